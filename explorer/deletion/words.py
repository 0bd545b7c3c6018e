"""In words, how two lists of tensors differ."""

from explorer.recorded.model_file import differences
from explorer.recorded.tensors import Tensors


def difference(found: Tensors, expected: Tensors) -> str | None:
    """The first tensor that is another one; None: all are the same, name by name."""
    for group in ("parameters", "buffers", "optimizer"):
        fault = next(differences(getattr(found, group), getattr(expected, group)), None)
        if fault:
            return f"{group}: {fault}"
    return None

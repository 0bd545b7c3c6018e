"""The methods that change models, on architectures as the field writes them: `python -m tests.architectures.table`
writes docs/architectures.md, and a test compares it.
"""

from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.methods import METHODS
from tests.architectures.models import ARCHITECTURES, CLASSES, Architecture

PAGE = Path(__file__).parents[2] / "docs" / "architectures.md"
METHOD_NAMES = sorted(
    name
    for name, kind in METHODS.items()
    if name == "channels_last" or (kind.kind is Kind.SURGERY and name != "gyro_dropout")
)
CHANGED: dict[str, dict[str, Any]] = {  # parameters under which models this small are large enough
    "factorize": {"min_channels": 8, "linear_rank": 2, "min_features": 16},
    "ghost_batchnorm": {"size": 2},
    "stochastic_depth": {"rate": 0.5},
}
HEAD = """# Methods on models as others write them

Methods that change a model find its parts by the names of their children
([engine/architectures.py](../explorer/engine/architectures.py)), without importing the package. *yes*: the model is
changed, trains, and loads again. *no*: nothing in it is of the kind that the method changes, or the method works on
other data; the recipe is refused before training. A number refers to the list below.

Models of torchvision and timm are written for the test in the structure that these packages publish; those of
transformers and torch are their own ([tests/architectures](../tests/architectures/models.py)).

"""
TAIL = """
Where a method draws, a run on each of them resumes bit for bit. Zero strength is the unchanged model, bit for bit.
For an architecture of your own, append a description of its block:

```python
from explorer.engine.architectures import BLOCKS, Block

BLOCKS.append(Block(as_in="mine", parts=("norm", "mix"), branches=(("mix",),), tokens=True))
```
"""


class Change(Enum):
    """What became of a model."""

    DONE = "yes"
    NOTHING = "no"
    REFUSED = "refused"  # with a reason of its own


def changed(architecture: Architecture, name: str, *, seed: int, method: Method | None = None) -> nn.Module:
    """The model after surgery. Raises `RecipeError` if it is refused."""
    model = architecture.made()
    state = State(seed=seed, total_steps=7, batch_size=4, classes=CLASSES, model=model, recompute=lambda: None)
    (method or METHODS[name](**CHANGED.get(name, {}))).change_model(state)
    return model


@cache
def outcome(architecture: Architecture, name: str) -> tuple[Change, str]:
    """What becomes of this model, and the reason of a refusal."""
    if ("text" if architecture.text else "image") not in METHODS[name].modalities:
        return Change.NOTHING, ""
    try:
        model = changed(architecture, name, seed=0)
    except RecipeError as error:
        return (Change.NOTHING if "found nothing to change" in str(error) else Change.REFUSED), str(error)
    model.train()(architecture.inputs()).square().mean().backward()
    return Change.DONE, ""


def cell(architecture: Architecture, name: str) -> Change:
    return outcome(architecture, name)[0]


def row(architecture: Architecture, reasons: list[str]) -> str:
    """The row of an architecture; reasons that are not in the list yet are added to it."""
    cells = []
    for name in METHOD_NAMES:
        change, reason = outcome(architecture, name)
        if change is Change.REFUSED:
            reasons += [reason] * (reason not in reasons)
            cells.append(str(reasons.index(reason) + 1))
        else:
            cells.append(change.value)
    return f"| {architecture.name} | " + " | ".join(cells) + " |"


def page() -> str:
    """The whole page. All packages must be installed."""
    reasons: list[str] = []
    rows = [row(architecture, reasons) for architecture in ARCHITECTURES]
    head = "| | " + " | ".join(f"`{name}`" for name in METHOD_NAMES) + " |"
    listed = [f"{number}. {reason}" for number, reason in enumerate(reasons, 1)]
    lines = [head, "|---" * (len(METHOD_NAMES) + 1) + "|", *rows, "", *listed]
    return HEAD + "\n".join(lines) + "\n" + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

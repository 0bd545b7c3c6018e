"""Changes of an attention's queries and keys, which surgical methods share.

Own attentions have a place for them. Those of other packages are run under a mode that changes what they pass to
torch's fused attention, `scaled_dot_product_attention`; one that does not call it is refused in its first pass, with
its name.
"""

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from explorer.engine.architectures import attentions_of
from explorer.engine.modules import change_modules, mix_in
from explorer.errors import RecipeError
from explorer.models.transformer import Attention, Change


class Queries(TorchFunctionMode):
    """Mode that changes the queries and keys of torch's fused attention."""

    def __init__(self, changes: tuple[Change, ...]) -> None:
        super().__init__()
        self.changes, self.met = changes, False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            self.met = True
            kwargs |= dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False))
            args = ()
            for change in self.changes:
                kwargs["query"], kwargs["key"] = change(kwargs["query"], kwargs["key"])
        return func(*args, **kwargs)


class Changed(nn.Module if TYPE_CHECKING else object):
    """Behaviour of an attention of another package: its queries and keys are changed."""

    attention_name: str  # of the module
    changes: tuple[Change, ...]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        mode = Queries(self.changes)
        with mode:
            output = super().forward(*args, **kwargs)
        if not mode.met:
            raise RecipeError(
                f"found {self.attention_name}, which computes its scores in another way: expected"
                " scaled_dot_product_attention"
            )
        return output


def change_queries(model: nn.Module, change: Change, *, method: str, target: str) -> list[str]:
    """Change the queries and keys of every self-attention, in place; return their names.

    Raises `RecipeError` if there is none that has no such change yet; the message names `target` as what was expected.
    """
    # torch's MultiheadAttention computes scores within one function, which no mode sees into.
    others = {module for _, module in attentions_of(model) if not isinstance(module, nn.MultiheadAttention)}

    def give(module: nn.Module, name: str) -> bool:
        if module in others and not isinstance(module, Changed):
            mix_in(Changed, module)
            module.attention_name, module.changes = name, ()  # pyright: ignore[reportArgumentType]
        if not isinstance(module, Attention | Changed) or any(type(one) is type(change) for one in module.changes):
            return False
        module.changes = (*module.changes, change)
        return True

    return change_modules(model, give, method=method, target=target)


ATTENTIONS = (
    "self-attention (explorer.models.transformer.Attention), as in a GPT, or one that fits a description"
    " (explorer.engine.architectures) and calls scaled_dot_product_attention"
)

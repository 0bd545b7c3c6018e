"""ALiBi: attention scores that fall with distance, instead of embeddings of positions.

Press, Smith, Lewis, "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation", 2022,
arXiv:2108.12409. The model can be evaluated on longer rows than it was trained on: `train_length` below 1 cuts every
training row into shorter ones, which is cheaper. The authors advise against 256 tokens or fewer.

Shapes: B rows, T tokens.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from explorer.data.dataset import Modality
from explorer.data.sequences import WHOLE_ROWS, cut_rows
from explorer.engine.architectures import attentions_of, leave_fast_paths, silence_positions
from explorer.engine.method import Kind, Method, Planned, Unit
from explorer.engine.modules import change_modules, mix_in
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.models.transformer import AlibiBias, Attention

SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)


class Scores(TorchFunctionMode):
    """Mode that adds the bias to the scores of an attention, where a softmax makes weights of them.

    It acts on whatever computes this softmax: torch's fused attention, its `MultiheadAttention`, or a softmax of B H T
    S. Later places stay excluded as the model excludes them; a model that excludes none gets the same bias for both
    directions.
    """

    def __init__(self, name: str, biases: dict[tuple[int, bool], AlibiBias]) -> None:
        super().__init__()
        self.name, self.met = name, False
        self._biases = biases

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is F.scaled_dot_product_attention:
            kwargs |= dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False))
            query, causal = kwargs["query"], kwargs.pop("is_causal", False)
            keys = kwargs["key"].shape[-2]
            if causal and keys != query.shape[-2]:  # torch then aligns the first places, a cache the last ones
                raise self._refused(f"causal attention of {query.shape[-2]} places to {keys}")
            bias = self._bias(query, query.shape[-3], keys=keys, causal=causal)
            args, kwargs["attn_mask"] = (), _masked(bias, kwargs.get("attn_mask"))
        elif func is F.multi_head_attention_forward:
            query, heads = args[0], args[4]
            if args[1] is not query:
                raise self._refused("attention to other rows")
            places, rows = len(query), query.shape[1] if query.ndim == 3 else 1
            bias = self._bias(query.new_empty(heads, places, 0), heads, keys=places, causal=False)
            bias = bias[0].repeat(rows, 1, 1)  # rows x heads T T, as torch wants it
            kwargs["attn_mask"], kwargs["is_causal"] = _masked(bias, kwargs.get("attn_mask")), False
        elif func in SOFTMAX and args[0].ndim == 4:
            scores = args[0]
            bias = self._bias(scores, scores.shape[1], keys=scores.shape[-1], causal=False)
            args = (scores + bias, *args[1:])
        return func(*args, **kwargs)

    def _bias(self, queries: Tensor, heads: int, *, keys: int, causal: bool) -> Tensor:
        self.met = True
        bias = self._biases.setdefault((heads, causal), AlibiBias(heads, causal=causal))
        return bias(queries, keys)

    def _refused(self, what: str) -> RecipeError:
        return RecipeError(
            f"{Alibi.name}: found {what} in {self.name}: expected self-attention by scaled_dot_product_attention or a"
            " softmax of scores, of one row's places to each other"
        )


def _masked(bias: Tensor, mask: Tensor | None) -> Tensor:
    """Return the bias with -inf where a mask of places is false, or plus a mask of numbers."""
    if mask is None:
        return bias
    return torch.where(mask, bias, -math.inf) if mask.dtype == torch.bool else bias + mask.to(bias.dtype)


class Biased(nn.Module if TYPE_CHECKING else object):
    """Behaviour of an attention of another package: its scores fall with distance."""

    alibi_name: str  # of the module
    alibi_biases: dict[tuple[int, bool], AlibiBias]  # shared by the model, by heads and whether causal

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        scores = Scores(self.alibi_name, self.alibi_biases)
        with scores:
            output = super().forward(*args, **kwargs)
        if not scores.met:
            raise scores._refused("no scores")
        return output


def apply_alibi(model: nn.Module) -> list[str]:
    """Give every attention a bias by distance and remove the positions from the embeddings, in place.

    Returns the names of the changed attentions and embeddings. Raises `RecipeError` if no attention lacks a bias. An
    attention of another package whose scores cannot be reached raises it in its first pass, with its name.

    In a loop:

        functional.alibi(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in text_batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    """
    own: dict[int, AlibiBias] = {}  # by number of heads: the bias has no state, so attentions share it
    biases: dict[tuple[int, bool], AlibiBias] = {}
    others = {module for _, module in attentions_of(model)}

    def change(module: nn.Module, name: str) -> bool:
        if isinstance(module, Attention) and module.bias is None:
            module.bias = own.setdefault(module.heads, AlibiBias(module.heads))
        elif module in others and not isinstance(module, Biased):
            mix_in(Biased, module)
            module.alibi_name, module.alibi_biases = name, biases  # pyright: ignore[reportArgumentType]
        else:
            return False
        return True

    target = (
        "attention that takes a bias and has none (explorer.models.transformer.Attention), as in a GPT without ALiBi,"
        " or fits a description (explorer.engine.architectures)"
    )
    names = change_modules(model, change, method=Alibi.name, target=target)
    # Positions go only once attention has changed: a model without known attention must keep them.
    names += silence_positions(model)
    leave_fast_paths(model)
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class Alibi(Method):
    """Replaces positions in the model for good, at inference too, so that it takes rows longer than those it trained
    on."""

    name: ClassVar[str] = "alibi"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Lets attention fall with distance, instead of embedding positions."
    source: ClassVar[str] = "Press, Smith, Lewis 2022, arXiv:2108.12409"
    formula: ClassVar[str] = (
        "scores = q k / sqrt(d) - m_h distance, m_h = 2^(-8 h / H) for head h of H (if H is not a power of two: the"
        " slopes of the power below, then every other slope of the power above); no embeddings of positions"
    )
    changes: ClassVar[str] = "the model; with `train_length` below 1, also the rows of training"
    needs: ClassVar[str] = "self-attention without ALiBi of its own, as in a GPT"
    routing: ClassVar[str] = "Works: the bias has no parameters, and pieces of a row stay in its slot."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text"})

    train_length: Annotated[
        float, Field(gt=0, le=1, description="length of a training row, 1 / a whole number"), Unit("share of the row")
    ] = 1.0

    def __post_init__(self) -> None:
        # 1 / 3 may be written as 0.33: a hundredth of a piece is far from the next whole number.
        if abs(self.pieces * self.train_length - 1) > 0.01:
            raise RecipeError(
                f"found train_length {self.train_length}: expected 1 divided by a whole number, such as 0.25"
            )

    @property
    def pieces(self) -> int:
        """The number of rows that a row is cut into."""
        return round(1 / self.train_length)

    def any_length(self) -> bool:
        return True

    def check(self, planned: Planned) -> None:
        (tokens,) = planned.example_shape
        if self.pieces > 1 and planned.one_target:
            raise RecipeError(f"found train_length {self.train_length:g} for texts with one target each: {WHOLE_ROWS}")
        if tokens % self.pieces:
            raise RecipeError(f"found rows of {tokens} tokens to be cut into {self.pieces} equal ones")

    def change_model(self, state: State) -> None:
        apply_alibi(state.model)

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        if self.pieces > 1:
            state.batch = cut_rows(state.batch, length=state.batch.inputs.shape[1] // self.pieces)

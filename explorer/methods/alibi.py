"""ALiBi: attention scores that fall with distance, instead of embeddings of positions.

Press, Smith, Lewis, "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation", 2022,
arXiv:2108.12409. The model can be evaluated on longer rows than it was trained on: `train_length` below 1 cuts every
training row into shorter ones, which is cheaper. The authors advise against 256 tokens or fewer.

Shapes: B rows, T tokens.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import nn

from explorer.data.dataset import Modality
from explorer.data.sequences import cut_rows
from explorer.engine.method import Kind, Method, Planned, Unit
from explorer.engine.modules import change_modules
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.models.transformer import AlibiBias, Attention, Embedding, NoPositions


def apply_alibi(model: nn.Module) -> list[str]:
    """Give every attention a bias by distance and remove the positions from the embeddings, in place.

    Returns the names of the changed attentions and embeddings. Raises `RecipeError` if no attention lacks a bias.
    """
    biases: dict[int, AlibiBias] = {}  # by number of heads: the bias has no state, so attentions share it

    def change(module: nn.Module, name: str) -> bool:
        if not isinstance(module, Attention) or module.bias is not None:
            return False
        module.bias = biases.setdefault(module.heads, AlibiBias(module.heads))
        return True

    target = (
        "attention that takes a bias and has none (explorer.models.transformer.Attention), as in a GPT without ALiBi"
    )
    names = change_modules(model, change, method=Alibi.name, target=target)
    # Positions go only once attention has changed: a model without known attention must keep them.
    for name, module in model.named_modules():
        if isinstance(module, Embedding) and not isinstance(module.positions, NoPositions):
            module.positions = NoPositions()
            names.append(name)
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
    needs: ClassVar[str] = "attention that takes a bias, as in a GPT without ALiBi of its own"
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

    def check(self, planned: Planned) -> None:
        (tokens,) = planned.example_shape
        if tokens % self.pieces:
            raise RecipeError(f"found rows of {tokens} tokens to be cut into {self.pieces} equal ones")

    def change_model(self, state: State) -> None:
        apply_alibi(state.model)

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        if self.pieces > 1:
            state.batch = cut_rows(state.batch, length=state.batch.inputs.shape[1] // self.pieces)

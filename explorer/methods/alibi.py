"""ALiBi: attention that falls with distance, instead of embeddings of positions.

Press, Smith, Lewis, "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation", 2022,
arXiv:2108.12409. A model trained so can be evaluated on longer rows than it was trained on: `train_length` below 1
cuts every training row into shorter ones, which is cheaper. The authors advise against 256 tokens and fewer.

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
    """Give every attention a bias by distance and take the positions from the embeddings, in place.

    Returns the names of the attentions and embeddings changed. Raises `RecipeError` if there is no attention without
    a bias.
    """
    biases: dict[int, AlibiBias] = {}  # one for all attentions of as many heads

    def change(module: nn.Module, name: str) -> bool:
        if not isinstance(module, Attention) or module.bias is not None:
            return False
        module.bias = biases.setdefault(module.heads, AlibiBias(module.heads))
        return True

    target = (
        "attention that takes a bias and has none (explorer.models.transformer.Attention), as in a GPT without ALiBi"
    )
    names = change_modules(model, change, method=Alibi.name, target=target)
    for name, module in model.named_modules():
        if isinstance(module, Embedding) and not isinstance(module.positions, NoPositions):
            module.positions = NoPositions()
            names.append(name)
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class Alibi(Method):
    """Attention by distance. Changes the model for good, inference included."""

    name: ClassVar[str] = "alibi"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Lets attention fall with distance, instead of embedding positions."
    source: ClassVar[str] = "Press, Smith, Lewis 2022, arXiv:2108.12409"
    formula: ClassVar[str] = (
        "scores = q k / sqrt(d) - m_h distance, m_h = 2^(-8 h / H) for head h of H (H no power of two: the slopes of"
        " the power below, then every other one of the power above); no embeddings of positions"
    )
    changes: ClassVar[str] = "the model; below `train_length` 1 the rows of training too"
    needs: ClassVar[str] = "attention that takes a bias, as in a GPT without ALiBi of its own"
    routing: ClassVar[str] = "Works: the bias has no parameters, and pieces of a row stay in its slot."
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text"})

    train_length: Annotated[
        float, Field(gt=0, le=1, description="length of a training row, one part in so many"), Unit("share of the row")
    ] = 1.0

    def __post_init__(self) -> None:
        if abs(self.pieces * self.train_length - 1) > 0.01:
            raise RecipeError(
                f"found train_length {self.train_length}: expected 1 divided by a whole number, such as 0.25"
            )

    @property
    def pieces(self) -> int:
        """Return how many rows a row is cut into."""
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

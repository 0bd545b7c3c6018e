"""Gated linear units: in a transformer's feed-forward, one linear map gates another.

Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017, arXiv:1612.08083; Shazeer, "GLU Variants
Improve Transformer", 2020, arXiv:2002.05202. There are no biases. All weights are new, so a run has to start from
scratch.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method
from explorer.engine.modules import initialised, replace_modules
from explorer.engine.state import State
from explorer.models.transformer import GatedPerceptron, Perceptron, gated_hidden


def gated(perceptron: Perceptron, *, seed: int, name: str) -> GatedPerceptron:
    """Return a gated perceptron of about as many parameters, its weights drawn by (seed, name)."""
    # Two thirds of the hidden units (Shazeer, section 2): three matrices then hold as much as two did.
    hidden = gated_hidden(perceptron.hidden)
    return initialised(
        lambda: GatedPerceptron(perceptron.width, hidden=hidden, branches=perceptron.branches),
        seed=seed,
        name=name,
        like=next(perceptron.parameters()),
    )


def apply_gated_linear_units(model: nn.Module, *, seed: int = 0) -> list[str]:
    """Replace every perceptron of a transformer by a gated one, in place; return their names.

    Raises `RecipeError` if there is none.
    """
    return replace_modules(
        model,
        lambda module, name: gated(module, seed=seed, name=name) if isinstance(module, Perceptron) else None,
        method=GatedLinearUnits.name,
        target="a known feed-forward (explorer.models.transformer.Perceptron), as in a GPT without gates",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedLinearUnits(Method):
    """Changes the model for good, at inference too. The number of parameters stays about the same."""

    name: ClassVar[str] = "gated_linear_units"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Gates the hidden units of a transformer's feed-forward, at equal size."
    source: ClassVar[str] = "Dauphin et al. 2017, arXiv:1612.08083; Shazeer 2020, arXiv:2002.05202"
    formula: ClassVar[str] = "y = W2 (gelu(W x) * V x), no biases, 2/3 as many hidden units as before"
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "a transformer's feed-forward, as in a GPT"
    routing: ClassVar[str] = "Works: the three matrices are layers of their own."
    before: ClassVar[tuple[str, ...]] = ("factorize",)  # which would change the perceptrons that this looks for
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text"})

    def change_model(self, state: State) -> None:
        apply_gated_linear_units(state.model, seed=state.seed)

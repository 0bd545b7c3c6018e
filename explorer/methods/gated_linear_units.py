"""Gated linear units: in a transformer's feed-forward, one linear map gates another.

Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017, arXiv:1612.08083; Shazeer, "GLU Variants
Improve Transformer", 2020, arXiv:2002.05202. There are no biases. All weights are new, so a run has to start from
scratch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.architectures import Hidden, feed_forwards_of, gated_of, leave_fast_paths, put
from explorer.engine.method import Kind, Method
from explorer.engine.modules import initialised, replace_modules
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.models.transformer import GatedPerceptron, Perceptron, gated_hidden


def gated_perceptron(perceptron: Perceptron, *, seed: int, name: str) -> GatedPerceptron:
    """Return a gated perceptron of about as many parameters, its weights drawn by (seed, name)."""
    # Two thirds of the hidden units (Shazeer, section 2): three matrices then hold as much as two did.
    hidden = gated_hidden(perceptron.hidden)
    return initialised(
        lambda: GatedPerceptron(perceptron.width, hidden=hidden, branches=perceptron.branches),
        seed=seed,
        name=name,
        like=next(perceptron.parameters()),
    )


class Spread(nn.Linear):
    """A linear map without bias, whose weights are as spread as those that it replaces."""

    def __init__(self, width_in: int, width_out: int, *, spread: float) -> None:
        self.spread = spread  # before the base class, whose constructor draws weights
        super().__init__(width_in, width_out, bias=False)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.spread)


class GatedUp(nn.Module):
    """Two maps of the same input, which `GatedActivation` multiplies."""

    def __init__(self, width: int, hidden: int, *, spread: float) -> None:
        super().__init__()
        self.gate = Spread(width, hidden, spread=spread)
        self.up = Spread(width, hidden, spread=spread)

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor]:
        return self.gate(input), self.up(input)


class GatedActivation(nn.Module):
    """The activation of one map times the other map."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
        return self.activation(pair[0]) * pair[1]


def gate_parts(feed_forward: Hidden, *, seed: int) -> str:
    """Replace the maps and the activation of another package's feed-forward, in place; return its name."""
    module, kind = feed_forward.module, feed_forward.kind
    hidden = gated_hidden(feed_forward.hidden)
    up, act, down = (attrgetter(path)(module) for path in (kind.up, kind.act, kind.down))
    width, prefix = feed_forward.width, f"{feed_forward.name}.".lstrip(".")

    def drawn(build: Callable[[], nn.Module], path: str) -> nn.Module:
        return initialised(build, seed=seed, name=prefix + path, like=up.weight)

    put(module, kind.up, drawn(lambda: GatedUp(width, hidden, spread=_spread(up.weight)), kind.up))
    put(module, kind.act, GatedActivation(act))
    put(module, kind.down, drawn(lambda: Spread(hidden, width, spread=_spread(down.weight)), kind.down))
    return feed_forward.name


def _spread(weight: Tensor) -> float:
    """Return the standard deviation of weights; of those without memory, whose values will be read, any."""
    return 0.02 if weight.is_meta else float(weight.detach().float().std())


def apply_gated_linear_units(model: nn.Module, *, seed: int = 0) -> list[str]:
    """Gate every feed-forward of a transformer, in place; return their names.

    Raises `RecipeError` if there is none.

    In a loop:

        functional.gated_linear_units(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in text_batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
            optimizer.step()
    """
    others = feed_forwards_of(model)
    known = any(isinstance(module, Perceptron) for module in model.modules())
    if not (others or known) and (gated := gated_of(model)):
        raise RecipeError(
            f"{GatedLinearUnits.name}: found {gated[0]}, which is gated already: expected a feed-forward of two maps"
        )
    names = [gate_parts(feed_forward, seed=seed) for feed_forward in others]
    if names:
        leave_fast_paths(model)
    if known or not names:
        names += replace_modules(
            model,
            lambda module, name: (
                gated_perceptron(module, seed=seed, name=name) if isinstance(module, Perceptron) else None
            ),
            method=GatedLinearUnits.name,
            target="a known feed-forward (explorer.models.transformer.Perceptron), as in a GPT without gates, or one"
            " that fits a description (explorer.engine.architectures)",
        )
    return names


@dataclass(frozen=True, kw_only=True, slots=True)
class GatedLinearUnits(Method):
    """Changes the model for good, at inference too. The number of parameters stays about the same."""

    name: ClassVar[str] = "gated_linear_units"
    kind: ClassVar[Kind] = Kind.SURGERY
    summary: ClassVar[str] = "Gates the hidden units of a transformer's feed-forward, at equal size."
    source: ClassVar[str] = "Dauphin et al. 2017, arXiv:1612.08083; Shazeer 2020, arXiv:2002.05202"
    formula: ClassVar[str] = "y = W2 (gelu(W x) * V x), no biases, 2/3 as many hidden units as before"
    changes: ClassVar[str] = "the model"
    needs: ClassVar[str] = "a feed-forward of two maps, as in transformers of text or images"
    routing: ClassVar[str] = "Works: the three matrices are layers of their own."
    before: ClassVar[tuple[str, ...]] = ("factorize",)  # which would change the perceptrons that this looks for
    modalities: ClassVar[frozenset[Modality]] = frozenset({"text", "image"})

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        apply_gated_linear_units(state.model, seed=state.seed)

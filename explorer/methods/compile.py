"""Compile: fuse the operations of training passes into kernels made for this model.

Ansel et al., "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and Graph Compilation",
2024, ASPLOS. The mathematics is the same, but the order of additions, and so the last bits, may differ. Only training
passes are compiled: evaluation, scoring and probes run the plain module, so the quality of a run is that of the model
that is saved, and the names of its tensors stay.

A pass is compiled whole, and again for each shape of its inputs and each set of parameters that may change. There are
no fallbacks, and nothing depends on what the process compiled before: otherwise a resumed run would compute other bits.
Dropout draws as it does without compilation. Steps with a compilation are timed separately (`Timings.compile`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import EVERYTHING, Kind, Method
from explorer.engine.state import State
from explorer.errors import RecipeError, TrainingError

Backend = Literal["inductor", "aot_eager"]
MOST_GRAPHS = 64  # limit for one run: each graph takes seconds to minutes
SETTINGS: dict[str, Any] = {
    "skip_nnmodule_hook_guards": False,  # later runs of the process reuse graphs, but only if the hooks are equal too
    "recompile_limit": 1_000_000,  # at torch's limit it continues uncompiled; MOST_GRAPHS stops the run instead
    "accumulated_recompile_limit": 1_000_000,
}


class Compiled:
    """The forward pass of a model, compiled at its first call and again for each new shape or set of parameters."""

    def __init__(self, model: nn.Module, *, backend: Backend) -> None:
        def forward(inputs: Tensor) -> Tensor:
            return model(inputs)

        # `fallback_random`: dropout draws from torch's generator, as without compilation, not from inductor's own.
        options: dict[str, Any] | None = {"fallback_random": True} if backend == "inductor" else None
        # `dynamic=False`: otherwise a second size would get a symbolic kernel, and a resumed run, which meets only that
        # size, a static one.
        self._forward: Callable[[Tensor], Tensor] = torch.compile(
            forward, backend=backend, dynamic=False, fullgraph=True, options=options
        )
        self.graphs = 0  # compiled in all calls so far
        self.fresh = False  # the last call compiled one

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the model's outputs. Raises `TrainingError` for a model that cannot be compiled."""
        before = _graphs()
        try:
            with torch._dynamo.config.patch(SETTINGS):
                return self._forward(inputs)
        except torch._dynamo.exc.TorchDynamoException as error:  # pyright: ignore[reportAttributeAccessIssue]
            reason = " ".join([line for line in str(error).splitlines() if line.strip()][:2])
            raise TrainingError(f"compile: the model cannot be compiled whole: {reason}") from error
        finally:
            made = _graphs() - before
            self.graphs, self.fresh = self.graphs + made, made > 0


def _graphs() -> int:
    """Return the number of graphs compiled in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def require_compiler() -> None:
    """Raise `RecipeError` without a C++ compiler, which inductor needs for its kernels."""
    from torch._inductor import cpp_builder, exc  # a second to import, and only for this

    try:
        cpp_builder.get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise RecipeError(
            "compile: found no C++ compiler that works: expected g++ or clang++, or the name of one in the environment"
            " variable CXX; backend: aot_eager needs none, and saves no time"
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Compile(Method):
    """Evaluation and everything else outside training passes run the plain model, which is also the one that is
    saved."""

    name: ClassVar[str] = "compile"
    kind: ClassVar[Kind] = Kind.LAYOUT
    summary: ClassVar[str] = "Compiles the training passes into fused kernels (torch.compile)."
    source: ClassVar[str] = "Ansel et al. 2024, ASPLOS"
    formula: ClassVar[str] = "the same sums and products, fused; the order of additions may differ"
    changes: ClassVar[str] = "the execution of training passes, not the model"
    needs: ClassVar[str] = "a model that can be captured whole; a C++ compiler"
    routing: ClassVar[str] = ""
    after: ClassVar[tuple[str, ...]] = ("channels_last",)
    conflicts_with: ClassVar[dict[str, str]] = {
        "gyro_dropout": "it draws its masks while the model runs, which cannot be captured in a graph",
        "routing": "classes differ in rows and in the parameters they may change: each would need graphs of its own",
        "stochastic_depth": "every step leaves out other branches: each choice of them would need a graph of its own",
    }
    modalities: ClassVar[frozenset[Modality]] = EVERYTHING

    backend: Annotated[
        Backend, Field(description="inductor makes kernels; aot_eager only captures graphs, for debugging")
    ] = "inductor"

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        if self.backend == "inductor":
            require_compiler()
        state.forward = Compiled(state.model, backend=self.backend)

    def before_loss(self, state: State) -> None:
        assert isinstance(state.forward, Compiled)
        if state.forward.graphs > MOST_GRAPHS:
            raise TrainingError(
                f"compile: step {state.step + 1} is the first to need more than {MOST_GRAPHS} graphs: a run that goes"
                " through so many shapes or sets of trained layers is better off without it"
            )
        state.compiled |= state.forward.fresh

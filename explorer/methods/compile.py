"""Compile: fuse the operations of training passes into kernels made for this model.

Ansel et al., "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and Graph Compilation",
2024, ASPLOS. The mathematics is the same; the order of additions, and so the last bits, may differ. Training passes
alone are compiled: evaluation, scoring and probes run the plain module, so the quality of a run is that of the model
that is kept, and the names of its tensors are its own.

A pass is compiled whole, and again for each shape of its inputs and each set of parameters that may change. Nothing is
left to a fallback, or to what the process has met before: else a resumed run would compute other bits. Dropout draws as
it does without compilation. Steps in which something is compiled are timed apart (`Timings.compile`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.data.dataset import Modality
from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.errors import RecipeError, TrainingError

Backend = Literal["inductor", "aot_eager"]
MOST_GRAPHS = 64  # that one run compiles; each takes seconds to minutes
SETTINGS: dict[str, Any] = {
    "skip_nnmodule_hook_guards": False,  # graphs serve later runs of the process: of equal models, hooks included
    "recompile_limit": 1_000_000,  # at the limit torch would go on without compiling; a run has a limit of its own
    "accumulated_recompile_limit": 1_000_000,
}


class Compiled:
    """The forward pass of a model, compiled when it is first called and for all that is new to it later."""

    def __init__(self, model: nn.Module, *, backend: Backend) -> None:
        def forward(inputs: Tensor) -> Tensor:
            return model(inputs)

        options: dict[str, Any] | None = {"fallback_random": True} if backend == "inductor" else None
        # Sizes that were met before would otherwise make later ones symbolic, and their kernels others.
        self._forward: Callable[[Tensor], Tensor] = torch.compile(
            forward, backend=backend, dynamic=False, fullgraph=True, options=options
        )
        self.graphs = 0  # that were compiled in all calls so far
        self.fresh = False  # whether some were in the last

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return what the model makes of them. Raises `TrainingError` for what cannot be compiled."""
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
    """Return how many graphs were compiled in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def require_compiler() -> None:
    """Raise `RecipeError` where there is no C++ compiler, which inductor's kernels are made with."""
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
    """Run training passes through torch.compile; everything else runs the plain model."""

    name: ClassVar[str] = "compile"
    kind: ClassVar[Kind] = Kind.LAYOUT
    summary: ClassVar[str] = "Compiles the training passes into fused kernels (torch.compile)."
    source: ClassVar[str] = "Ansel et al. 2024, ASPLOS"
    formula: ClassVar[str] = "the same sums and products, fused; the order of additions may differ"
    changes: ClassVar[str] = "how training passes are executed; not what the model is"
    needs: ClassVar[str] = "a model that can be captured whole; a C++ compiler"
    routing: ClassVar[str] = ""
    after: ClassVar[tuple[str, ...]] = ("channels_last",)
    conflicts_with: ClassVar[dict[str, str]] = {
        "gyro_dropout": "it draws its masks while the model runs, and that cannot be captured",
        "routing": "the classes of a step differ in rows and in what they may change: each would be compiled apart",
        "stochastic_depth": "it leaves out other branches in every step: each choice of them would be compiled apart",
    }
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "text", "volume"})

    backend: Annotated[
        Backend, Field(description="inductor makes kernels; aot_eager only captures, for finding faults")
    ] = "inductor"

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

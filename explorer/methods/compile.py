"""Compile: fuse the operations of training passes into kernels made for this model.

Ansel et al., "PyTorch 2: Faster Machine Learning Through Dynamic Python Bytecode Transformation and Graph Compilation",
2024, ASPLOS. The mathematics is the same, but the order of additions, and so the last bits, may differ. Only training
passes are compiled: evaluation, scoring and probes run the plain module, so the quality of a run is that of the model
that is saved, and the names of its tensors stay.

A pass is compiled whole, and again for each shape of its inputs and each set of parameters that may change. There are
no fallbacks, and nothing depends on what the process compiled before: otherwise a resumed run would compute other bits.
Dropout draws as it does without compilation. Steps with a compilation are timed separately (`Timings.compile`).

`reduce-overhead` also records the kernels of a pass as a CUDA graph and replays them with one launch. Its outputs and
gradients are where the next pass writes its own, so gradients are copied. `max-autotune` does that too, and chooses
kernels by timing them, so that another process may choose others, with other last bits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from explorer.engine.method import Kind, Method, Planned
from explorer.engine.state import State
from explorer.errors import RecipeError, TrainingError
from explorer.schema import LATER

Backend = Literal["inductor", "aot_eager"]
Mode = Literal["default", "reduce-overhead", "max-autotune"]
MOST_GRAPHS = 64  # limit for one run: each graph takes seconds to minutes
SETTINGS: dict[str, Any] = {
    "skip_nnmodule_hook_guards": False,  # later runs of the process reuse graphs, but only if the hooks are equal too
    "recompile_limit": 1_000_000,  # at torch's limit it continues uncompiled; MOST_GRAPHS stops the run instead
    "accumulated_recompile_limit": 1_000_000,
}


class Compiled:
    """The forward pass of a model, compiled at its first call and again for each new shape or set of parameters."""

    def __init__(self, model: nn.Module, *, backend: Backend, mode: Mode = "default", graphs: bool = False) -> None:
        """`graphs`: the mode replays CUDA graphs."""

        def forward(inputs: Tensor) -> Tensor:
            return model(inputs)

        options = options_of(mode) if backend == "inductor" else None
        # `dynamic=False`: otherwise a second size would get a symbolic kernel, and a resumed run, which meets only that
        # size, a static one.
        self._forward: Callable[[Tensor], Tensor] = torch.compile(
            forward, backend=backend, dynamic=False, fullgraph=True, options=options
        )
        self._replays = graphs
        self.graphs = 0  # compiled in all calls so far
        self.fresh = False  # the last call compiled one

    def __call__(self, inputs: Tensor) -> Tensor:
        """Return the model's outputs. Raises `TrainingError` for a model that cannot be compiled."""
        before = _graphs()
        if self._replays:
            torch.compiler.cudagraph_mark_step_begin()
        try:
            with torch._dynamo.config.patch(SETTINGS):
                return self._forward(inputs)
        except torch._dynamo.exc.TorchDynamoException as error:  # pyright: ignore[reportAttributeAccessIssue]
            reason = " ".join([line for line in str(error).splitlines() if line.strip()][:2])
            raise TrainingError(f"compile: the model cannot be compiled whole: {reason}") from error
        finally:
            made = _graphs() - before
            self.graphs, self.fresh = self.graphs + made, made > 0


def options_of(mode: Mode) -> dict[str, Any]:
    """Return the options of inductor for a mode."""
    from torch._inductor import list_mode_options  # a second to import, and only for this

    # `fallback_random`: dropout draws from torch's generator, as without compilation, not from inductor's own.
    return list_mode_options(mode) | {"fallback_random": True}


def _graphs() -> int:
    """Return the number of graphs compiled in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies, made in one launch on a GPU."""
    same = torch._foreach_mul(list(tensors.values()), 1.0)  # pyright: ignore[reportPrivateImportUsage]
    return dict(zip(tensors, same, strict=True))


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

    backend: Annotated[
        Backend, Field(description="inductor makes kernels; aot_eager only captures graphs, for debugging")
    ] = "inductor"
    mode: Annotated[
        Mode,
        Field(description="reduce-overhead replays CUDA graphs; max-autotune also tries kernels and takes the fastest"),
    ] = field(default="default", metadata=LATER)

    def __post_init__(self) -> None:
        if self.backend != "inductor" and self.mode != "default":
            raise RecipeError(f"found mode {self.mode} and backend {self.backend}: expected backend inductor")

    def check(self, planned: Planned) -> None:
        if self.mode == "max-autotune" and planned.kernels == "strict":
            raise RecipeError(
                "found mode max-autotune, which chooses kernels by timing them, so that a resumed run may come to other"
                " bits: expected deterministic: fast in train, or another mode"
            )

    def any_length(self) -> bool:
        return True

    def change_model(self, state: State) -> None:
        if self.backend == "inductor":
            require_compiler()
        device = next(state.model.parameters()).device.type
        if self.mode == "reduce-overhead" and device != "cuda":
            raise RecipeError(
                f"compile: found mode reduce-overhead on {device}, which has no CUDA graphs: expected mode default"
            )
        state.forward = Compiled(state.model, backend=self.backend, mode=self.mode, graphs=self._replays(device))

    def before_loss(self, state: State) -> None:
        assert isinstance(state.forward, Compiled)
        if state.forward.graphs > MOST_GRAPHS:
            raise TrainingError(
                f"compile: step {state.step + 1} is the first to need more than {MOST_GRAPHS} graphs: a run that goes"
                " through so many shapes or sets of trained layers is better off without it"
            )
        state.compiled |= state.forward.fresh

    def after_backward(self, state: State) -> None:
        if state.gradients and self._replays(next(iter(state.gradients.values())).device.type):
            state.gradients = copied(state.gradients)

    def _replays(self, device: str) -> bool:
        """Return whether passes are replayed as CUDA graphs."""
        return self.mode != "default" and device == "cuda"

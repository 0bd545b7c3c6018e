"""Training methods: their interface, a frozen value with hooks, and the one order in which a recipe's methods act.

A method holds hyper-parameters only; `asdict` is its record. What it must remember from step to step lives in
`state.memory[name]`, which the engine creates, hands over and checkpoints. What a schedule needs is a pure function of
the step, so resuming, planning and profiling need no state at all.

The acting order does not depend on the order in which a recipe lists its methods: kinds come first, then what methods
of one kind declare about each other (`before`, `after`), then the alphabet.
"""

from abc import ABC
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from typing import ClassVar, Self

from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.data.dataset import Modality, TaskName
from explorer.data.pace import Pace
from explorer.engine.optimizer import OptimizerSpec, Schedule
from explorer.engine.precision import Precision
from explorer.engine.state import State, progress
from explorer.entries.kinds import Traits
from explorer.errors import RecipeError


class Kind(IntEnum):
    """Where a method acts. Hooks run in this order: a mixed example has no loss to rank, so SELECT precedes MIX."""

    SURGERY = 0  # changes the model before there is an optimiser
    OPTIMIZER = 1  # owns the update rule
    PLAN = 2  # decides who may change what in a step, or how large steps are
    EXAMPLE = 3  # changes examples one by one, as they were read
    SHAPE = 4  # changes the shape of the whole batch
    SELECT = 5  # drops examples
    MIX = 6  # mixes examples
    TARGET = 7  # changes loss targets alone
    LAYOUT = 8  # memory format and execution, after all that changes shapes
    RECOMPUTE = 9  # takes gradients at other parameters
    GRADIENT = 10  # changes the summed gradient
    AVERAGE = 11  # averages weights after the update
    RECORD = 12  # observes and writes down; changes nothing


class Saving(IntEnum):
    """Whether a checkpoint may be written between two steps."""

    NOT_NOW = 0
    ALLOWED = 1
    KEPT = 2  # one is written now, and stays when the run is done


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A point of a planned run, enough for a schedule."""

    step: int
    total_steps: int
    example_shape: tuple[int, ...]  # C H W, C D H W, or T
    pace: Pace | None = None  # batch sizes by step; None: all equal

    @property
    def progress(self) -> float:
        """Share of the planned examples that the steps before it take, in [0, 1); with equal batches, of the steps."""
        return progress(self.pace, self.step, self.total_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """What a run will be, enough for a method to refuse it before it starts."""

    task: TaskName
    example_shape: tuple[int, ...]  # C H W, C D H W, or T
    classes: int
    steps: int
    batch_size: int  # the nominal one
    optimizer: OptimizerSpec
    schedule: Schedule
    precision: Precision
    microbatch_size: int | None


@dataclass(frozen=True, slots=True)
class Unit:
    """What a parameter is counted in, for people: `Annotated[float, Field(...), Unit("pixels")]`."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Method(ABC):
    """A training method. Hooks do nothing unless a subclass defines them; the loop in `engine.loop` says when they run.

    `before_*` and `change_*` hooks run in order, `after_*` hooks in reverse order; observers (RECORD) always last.
    """

    name: ClassVar[str]
    kind: ClassVar[Kind]
    summary: ClassVar[str]
    source: ClassVar[str]  # paper, or "no paper"
    formula: ClassVar[str]  # what is computed, in the names of its parameters
    changes: ClassVar[str]  # "the model", "the images", "images and targets"
    needs: ClassVar[str] = "any model"
    routing: ClassVar[str]  # how it behaves under a routing policy; empty if it conflicts with one
    before: ClassVar[tuple[str, ...]] = ()  # methods of the same kind that come later
    after: ClassVar[tuple[str, ...]] = ()  # methods of the same kind that come earlier
    conflicts_with: ClassVar[dict[str, str]] = {}  # method name: why they cannot be combined
    mixes: ClassVar[bool] = False  # a row that it leaves may hold content of other rows of its class
    modalities: ClassVar[frozenset[Modality]] = frozenset({"image", "text"})  # what it works on

    makes_dense: ClassVar[bool] = False  # turns class numbers into distributions over the classes
    traits: ClassVar[Traits] = Traits()  # what a reader of the run's ledger has to know of it

    def neutral(self) -> Self | None:
        """Return the same method at zero strength, bit-identical to leaving it out; None where no such thing exists."""
        return None

    def twin(self) -> "Method | None":
        """Return of a method that drops examples, the one that drops as many at random and does nothing else: its
        control."""
        return None

    def check(self, planned: Planned) -> None:
        """Raise `RecipeError` for a run that it cannot serve, without its own name, which the caller puts before it.
        Asked when a run is planned, before anything starts."""

    def warnings(self, planned: Planned, model: nn.Module) -> list[str]:
        """Say what a user should know of such a run on this model, which surgery has changed: nothing that stops it, in
        whole sentences without the method's name."""
        return []

    def pace(self, *, batch_size: int, examples: int) -> Pace | None:
        """Return the batch sizes of a run of so many examples, if this method decides them."""
        return None

    def learning_rate(self, factor: float, moment: Moment) -> float:
        """Return the factor on the peak learning rate, given the schedule's."""
        return factor

    def build_optimizers(
        self, parameters: dict[str, nn.Parameter], spec: OptimizerSpec, *, state: State
    ) -> tuple[Optimizer, ...] | None:
        """Return the optimisers of one region, by parameter name, if this method owns the update rule (kind OPTIMIZER).

        A parameter group with a key `peak` has that for its peak learning rate, others `spec.lr`. What steps is in
        `optimizer.state[parameter]` as tensors: the engine saves and restores those.
        """
        return None

    def phase(self, moment: Moment) -> str:
        """Return a name for the speed of this step, such as "size 16"; "" if the method never changes the speed of a
        step."""
        return ""

    def memory(self, state: State) -> dict[str, Tensor]:
        """Return the running state at step 0, made after the optimisers. Later it is in `state.memory[name]`."""
        return {}

    def saving(self, state: State) -> Saving:
        """Return whether a checkpoint may be written now. Asked after every step."""
        return Saving.ALLOWED

    def metrics(self, state: State) -> dict[str, float]:
        """Return what it found out about the whole run, by name in `run_files.METRICS`; asked once, at its end."""
        return {}

    def change_model(self, state: State) -> None: ...
    def before_fit(self, state: State) -> None: ...
    def before_step(self, state: State) -> None: ...
    def change_plan(self, state: State) -> None: ...
    def change_examples(self, state: State) -> None: ...
    def change_batch(self, state: State) -> None: ...
    def before_forward(self, state: State) -> None: ...
    def after_forward(self, state: State) -> None: ...
    def before_loss(self, state: State) -> None: ...
    def after_loss(self, state: State) -> None: ...
    def before_backward(self, state: State) -> None: ...
    def after_backward(self, state: State) -> None: ...
    def change_gradients(self, state: State) -> None: ...
    def before_update(self, state: State) -> None: ...
    def after_update(self, state: State) -> None: ...
    def after_step(self, state: State) -> None: ...
    def after_fit(self, state: State) -> None: ...
    def before_evaluation(self, state: State) -> None: ...
    def after_evaluation(self, state: State) -> None: ...
    def after_run(self, state: State) -> None: ...


HOOKS: tuple[str, ...] = (
    "change_model",
    "before_fit",
    "before_step",
    "change_plan",
    "change_examples",
    "change_batch",
    "before_forward",
    "after_forward",
    "before_loss",
    "after_loss",
    "before_backward",
    "after_backward",
    "change_gradients",
    "before_update",
    "after_update",
    "after_step",
    "before_evaluation",
    "after_evaluation",
    "after_fit",
    "after_run",
)


def used_hooks(method: type[Method]) -> tuple[str, ...]:
    """Return the hooks that a method defines, in the order of the loop."""
    return tuple(hook for hook in HOOKS if getattr(method, hook) is not getattr(Method, hook))


# --- the acting order ---

EXCLUSIVE = {
    Kind.OPTIMIZER: "each owns the update rule",
    Kind.AVERAGE: "each averages the same weights, and a run can end with one average only",
}


def ordered(methods: Iterable[Method]) -> tuple[Method, ...]:
    """Return the methods in acting order. Raises `RecipeError` for conflicts, repetitions and circles."""
    chosen = sorted(methods, key=lambda method: method.name)
    for one, other in combinations(chosen, 2):
        _refuse_conflict(one, other)
    kinds = sorted({method.kind for method in chosen})
    return tuple(method for kind in kinds for method in _within([m for m in chosen if m.kind == kind]))


def acting(hook: str, methods: Iterable[Method]) -> list[Method]:
    """Of methods in acting order, those that define a hook, in the order in which it runs."""
    users = [method for method in methods if getattr(type(method), hook) is not getattr(Method, hook)]
    if not hook.startswith("after_"):
        return users
    observers = [method for method in users if method.kind is Kind.RECORD]
    return [method for method in reversed(users) if method.kind is not Kind.RECORD] + observers


def _refuse_conflict(one: Method, other: Method) -> None:
    if one.name == other.name:
        raise RecipeError(f"method {one.name!r} is given twice: each method may stand once in a recipe")
    if one.kind is other.kind and one.kind in EXCLUSIVE:
        raise RecipeError(f"methods {one.name!r} and {other.name!r} cannot be combined: {EXCLUSIVE[one.kind]}")
    reason = one.conflicts_with.get(other.name) or other.conflicts_with.get(one.name)
    if reason:
        raise RecipeError(f"methods {one.name!r} and {other.name!r} cannot be combined: {reason}")


def _within(methods: list[Method]) -> list[Method]:
    """Methods of one kind, already alphabetical, by their declarations."""
    by_name = {method.name: method for method in methods}
    earlier: dict[str, set[str]] = {name: set() for name in by_name}
    for method in methods:
        earlier[method.name].update(name for name in method.after if name in by_name)
        for name in method.before:
            if name in by_name:
                earlier[name].add(method.name)
    sorter = TopologicalSorter(earlier)
    try:
        sorter.prepare()
    except CycleError as error:
        raise RecipeError(f"methods declare a circular order: {' -> '.join(error.args[1])}") from error
    result: list[Method] = []
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        first = min(ready)
        ready.remove(first)
        result.append(by_name[first])
        sorter.done(first)
    return result

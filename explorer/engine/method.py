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
from typing import ClassVar, Self, get_args

from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.data.dataset import Modality, TaskName
from explorer.data.pace import Pace
from explorer.data.streams import stream
from explorer.engine.optimizer import OptimizerSpec, Schedule
from explorer.engine.precision import Kernels, Precision
from explorer.engine.state import State, progress
from explorer.entries.kinds import Traits
from explorer.errors import RecipeError

EVERYTHING: frozenset[Modality] = frozenset(get_args(Modality))


class Kind(IntEnum):
    """The place of a method in the acting order, which is that of these numbers."""

    SURGERY = 0  # changes the model before the optimisers are built
    OPTIMIZER = 1  # owns the update rule
    PLAN = 2  # decides who may change what in a step, or how large steps are
    EXAMPLE = 3  # changes examples one by one, as they were read
    SHAPE = 4  # changes the shape of the whole batch
    SELECT = 5  # drops examples; before MIX, since a mixed example has no loss of its own to rank
    MIX = 6  # mixes examples
    TARGET = 7  # changes only loss targets
    LAYOUT = 8  # memory format and execution, after all changes of shape
    RECOMPUTE = 9  # takes gradients at other parameters
    GRADIENT = 10  # changes the summed gradient
    AVERAGE = 11  # averages weights after the update
    RECORD = 12  # observes and records; changes nothing


class Saving(IntEnum):
    """A method's answer whether a checkpoint may be written between two steps."""

    NOT_NOW = 0
    ALLOWED = 1
    KEPT = 2  # one is written now, and kept after the run


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """A step of a planned run: all that a schedule depends on."""

    step: int
    total_steps: int
    example_shape: tuple[int, ...]  # C H W, C D H W, or T
    pace: Pace | None = None  # batch sizes by step; None: all equal

    @property
    def progress(self) -> float:
        """The share of the planned examples that earlier steps take, in [0, 1); with equal batches, of the steps."""
        return progress(self.pace, self.step, self.total_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A planned run, as far as a method needs it to refuse the run before it starts."""

    task: TaskName
    example_shape: tuple[int, ...]  # C H W, C D H W, or T
    classes: int
    steps: int
    batch_size: int  # the nominal one
    optimizer: OptimizerSpec
    schedule: Schedule
    precision: Precision
    kernels: Kernels = "strict"
    microbatch_size: int | None
    lanes: int = 1
    one_target: bool = False  # an example has a target as a whole, not one for each token or pixel

    @property
    def rows(self) -> int:
        """The most rows that go through the model together."""
        lane = -(-self.batch_size // self.lanes)
        return min(lane, self.microbatch_size or lane)


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a parameter, for display: `Annotated[float, Field(...), Unit("pixels")]`."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Method(ABC):
    """A training method. Hooks do nothing unless a subclass defines them; `engine.loop` documents when they run.

    `before_*` and `change_*` hooks run in acting order, `after_*` hooks in reverse; observers (RECORD) always last.
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
    conflicts_with: ClassVar[dict[str, str]] = {}  # method name: reason why they cannot be combined
    turns: ClassVar[str] = ""  # methods with the same word take turns: one of them, drawn for the step, acts in it
    mixes: ClassVar[bool] = False  # a row of its output may hold content of other rows of its class
    modalities: ClassVar[frozenset[Modality]] = EVERYTHING  # what it works on

    makes_dense: ClassVar[bool] = False  # turns class numbers into distributions over the classes
    traits: ClassVar[Traits] = Traits()  # what readers of the run's ledger need to know about it

    def neutral(self) -> Self | None:
        """Return the method at zero strength, bit-identical to leaving it out; None where there is no such setting."""
        return None

    def twin(self) -> "Method | None":
        """Return the control of a method that drops examples: one that drops as many at random. None for others."""
        return None

    def check(self, planned: Planned) -> None:
        """Raise `RecipeError` for a run that the method does not support. The caller adds the method's name. Called
        when a run is planned, before anything starts."""

    def warnings(self, planned: Planned, model: nn.Module) -> list[str]:
        """Return warnings about such a run on this model, which surgery has changed: whole sentences, without the
        method's name."""
        return []

    def any_length(self) -> bool:
        """Return whether the steps of a run are the same whatever its length, bit for bit, as far as this method goes.

        Then a longer run may begin with the state of a shorter one. What looks at `total_steps` or `progress` is not.
        """
        return False

    def pace(self, *, batch_size: int, examples: int) -> Pace | None:
        """Return the batch sizes of a run of `examples` examples, if this method decides them."""
        return None

    def learning_rate(self, factor: float, moment: Moment) -> float:
        """Return the factor on the peak learning rate, given that of the schedule and of earlier methods."""
        return factor

    def build_optimizers(
        self, parameters: dict[str, nn.Parameter], spec: OptimizerSpec, *, state: State
    ) -> tuple[Optimizer, ...] | None:
        """Return the optimisers of one region, by parameter name, if this method owns the update rule (kind OPTIMIZER).

        The peak learning rate of a parameter group is its key `peak`, or else `spec.lr`. State is kept as tensors in
        `optimizer.state[parameter]`, which the engine saves and restores.
        """
        return None

    def phase(self, moment: Moment) -> str:
        """Return a name for the phase that this step's speed belongs to, such as "size 16"; "" if the method never
        changes the speed of steps."""
        return ""

    def memory(self, state: State) -> dict[str, Tensor]:
        """Return the running state at step 0, made after the optimisers. It lives in `state.memory[name]`."""
        return {}

    def saving(self, state: State) -> Saving:
        """Return whether a checkpoint may be written now. Asked after every step."""
        return Saving.ALLOWED

    def metrics(self, state: State) -> dict[str, float]:
        """Return metrics about the whole run, by name in `run_files.METRICS`; called once, at its end."""
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
    """Return the methods that define a hook, in the order in which it runs. `methods` are in acting order."""
    users = [method for method in methods if getattr(type(method), hook) is not getattr(Method, hook)]
    if not hook.startswith("after_"):
        return users
    # `after_*` hooks unwind in reverse, like nested blocks; observers stay last, to see what the others have left.
    observers = [method for method in users if method.kind is Kind.RECORD]
    return [method for method in reversed(users) if method.kind is not Kind.RECORD] + observers


def turn_takers(methods: Iterable[Method]) -> list[tuple[str, list[str]]]:
    """Return the names of methods that take turns, by their word."""
    takers: dict[str, list[str]] = {}
    for method in methods:
        # At strength zero a method takes no turn: it is bit-identical to leaving it out.
        if method.turns and method.neutral() != method:
            takers.setdefault(method.turns, []).append(method.name)
    return [(word, sorted(names)) for word, names in takers.items() if len(names) > 1]


def resting(takers: list[tuple[str, list[str]]], *, seed: int, step: int) -> frozenset[str]:
    """Return the names of the methods that sit out a step: all but one of those that take turns, each as likely."""
    sitting: set[str] = set()
    for word, names in takers:
        acts = int(stream(seed, "turns", word, step).integers(len(names)))
        sitting |= {*names} - {names[acts]}
    return frozenset(sitting)


def _refuse_conflict(one: Method, other: Method) -> None:
    if one.name == other.name:
        raise RecipeError(f"method {one.name!r} is given twice: expected each method at most once")
    if one.kind is other.kind and one.kind in EXCLUSIVE:
        raise RecipeError(f"methods {one.name!r} and {other.name!r} cannot be combined: {EXCLUSIVE[one.kind]}")
    reason = one.conflicts_with.get(other.name) or other.conflicts_with.get(one.name)
    if reason:
        raise RecipeError(f"methods {one.name!r} and {other.name!r} cannot be combined: {reason}")


def _within(methods: list[Method]) -> list[Method]:
    """Return methods of one kind, given in alphabetical order, in the order of their declarations."""
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
    # The first by alphabet of all that are ready: the order depends on nothing but the set of methods.
    result: list[Method] = []
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        first = min(ready)
        ready.remove(first)
        result.append(by_name[first])
        sorter.done(first)
    return result

"""The records that a run writes and all other parts read: frozen, versioned, checked when they are read.

A record is written by the training side, read by the store, the audit and the views, and never changed. Times are
seconds, timestamps are UTC in ISO 8601 (`2026-11-21T12:00:00Z`), digests are SHA-256 in hexadecimal.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from explorer import rundir, schema
from explorer.canonical import digest
from explorer.errors import RunError
from explorer.planned import effective_digest
from explorer.schema import record, to_json

FORMAT = 1

Record = TypeVar("Record")


FRACTION = "fraction"  # the unit of numbers from 0 to 1
PLAIN = "1"  # the unit of a number that has none
TRAIN_LOSS = "train_loss"  # what every run of ours measures at each step
ALL_STEPS = "all steps"  # the phase of a run whose steps all take the same time


@record
class Metric:
    """The meaning and the format of a number: its unit, which way is better, and how it is written.

    A custom task declares its metrics; `METRICS` has those that every run may report. The unit `fraction`
    means a number from 0 to 1, shown as a percentage unless `format` says otherwise; the unit `1` is not shown.

    >>> Metric(name="perplexity", higher_is_better=False).show(23.4567)
    '23.46'
    >>> Metric(name="my_f1", unit="fraction", higher_is_better=True, format=".3f").show(0.9123)
    '0.912'
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.@+-]{0,63}$")]
    unit: Annotated[str, Field(pattern=r"^[A-Za-z0-9%][A-Za-z0-9%/*^._ -]{0,23}$")] = PLAIN
    higher_is_better: bool
    format: Annotated[str, Field(pattern=r"^(,?\.[0-9][efg%])?$")] = (
        ""  # as Python writes it: .3f, .1%; empty: the unit's
    )

    def show(self, value: float) -> str:
        """Return a value with its unit: "98.77%", "0.1235 nats"."""
        return f"{value:{self._style}}{self._suffix}"

    def number(self, value: float, *, sign: str = "") -> str:
        """Return a difference of two values without its unit: percentages in points. `sign`: "+" to show it always."""
        if self.percent:
            return f"{100 * value:{sign}.{self._style[-2]}f}"
        return f"{value:{sign}{self.format or '.4f'}}"

    def difference(self, value: float) -> str:
        """Return a difference with its sign and unit: "+1.20 points", "-0.5000 bits"."""
        return f"{self.number(value, sign='+')}{self.of_difference}"

    @property
    def of_difference(self) -> str:
        """Return the unit that follows the number of a difference, with a space in front; empty where there is none."""
        return " points" if self.percent else self._suffix

    def title(self, *notes: str) -> str:
        """Return the name for an axis, with the unit and notes that are not empty: "nll (nats, log scale)"."""
        behind = [note for note in (self._suffix.strip(), *notes) if note]
        return f"{self.name} ({', '.join(behind)})" if behind else self.name

    @property
    def bounded(self) -> bool:
        """Return whether values lie between 0 and 1."""
        return self.unit == FRACTION

    @property
    def percent(self) -> bool:
        """Return whether values are shown as percentages, and differences in points."""
        return self._style.endswith("%")

    @property
    def _style(self) -> str:
        return self.format or (".2%" if self.unit == FRACTION else ".4g")

    @property
    def _suffix(self) -> str:
        return "" if self.unit in (FRACTION, PLAIN, "") else f" {self.unit}"


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="accuracy", unit="fraction", higher_is_better=True),
        Metric(name="nll", unit="nats", higher_is_better=False),
        Metric(name="mean_iou", unit="fraction", higher_is_better=True),
        Metric(name="dice", unit="fraction", higher_is_better=True),  # mean over classes but the background
        Metric(name="pixel_accuracy", unit="fraction", higher_is_better=True),
        Metric(name="bits_per_byte", unit="bits", higher_is_better=False),
        Metric(name="rmse", higher_is_better=False),
        Metric(name="mae", higher_is_better=False),
        Metric(name="r2", higher_is_better=True, format=".4f"),
        Metric(name="mean_average_precision", unit="fraction", higher_is_better=True),
        Metric(name="micro_f1", unit="fraction", higher_is_better=True),
        Metric(
            name=TRAIN_LOSS, unit="nats", higher_is_better=False
        ),  # of some tasks in another unit, which they declare
        Metric(name="lr", higher_is_better=False),
        Metric(name="skipped_steps", higher_is_better=False, format=",.0f"),  # of fp16, whose gradients overflowed
        Metric(name="ledger_bytes_per_step", unit="bytes", higher_is_better=False),
        Metric(name="ledger_seconds_per_step", unit="seconds", higher_is_better=False),
    )
}


# People write "no tuning" in many ways; a text that is none of these counts as a description.
_NO_TUNING = frozenset(
    (
        *("", "no", "not", "none", "null", "nil", "false", "0", "na", "n a", "nothing", "never", "untuned", "unknown"),
        *("not tuned", "no tuning", "not yet", "not done", "was not tuned", "it was not tuned", "baseline not tuned"),
        *("n", "tbd", "todo", "to do", "to be done", "later", "pending"),
    )
)
_NOT_HOW = frozenset(("yes", "y", "true", "1", "ok", "done", "tuned", "was tuned", "it was tuned", "baseline tuned"))


TUNES_EVERY = "every recipe:"  # the text of a sweep that tuned all of its recipes with equal effort begins so


def tuning_words(value: object, *, is_baseline: bool = True) -> str | None:
    """Return how the baseline of a sweep was tuned, in its author's words; None if it was not tuned.

    Most sweeps say of no other recipe how it was tuned; those with the key `tune` say it of all.

    This is a claim of the author's, and shown as one: it is not checked.

    >>> tuning_words("No."), tuning_words("lr by grid"), tuning_words(None)
    (None, 'lr by grid', None)
    """
    if not isinstance(value, str):
        return None
    known = is_baseline or value.startswith(TUNES_EVERY)
    return None if _folded(value) in _NO_TUNING or not known else value


def says_how_tuned(value: str) -> bool:
    """Return whether a text tells how a baseline was tuned, and not only that it was.

    >>> says_how_tuned("yes"), says_how_tuned("lr by grid")
    (False, True)
    """
    return _folded(value) not in _NO_TUNING | _NOT_HOW


def _folded(value: str) -> str:
    return re.sub(r"[\W_]+", " ", value).strip().casefold()


def metric_of(row: Mapping[Any, Any]) -> Metric:
    """Return the metric of a row of `results`, or of a table with the columns of a metric."""
    return Metric(
        name=str(row["metric"]),
        unit=str(row["unit"]),
        higher_is_better=bool(row["higher_is_better"]),
        format=str(row.get("format") or ""),
    )


OF_A_RUN = frozenset({"ledger_bytes_per_step", "ledger_seconds_per_step", "skipped_steps"})
"""Metrics of a whole run that methods report at its end (`Method.metrics`): no line of `metrics.jsonl` has them."""


Control = Literal["random-subset", "rescaled-baseline"]
"""The purpose of a run that was made for comparison.

random-subset       the recipe with what chooses examples replaced by choosing as many at random
rescaled-baseline   the baseline at a budget that takes as much uncontended time as a run of the recipe
"""


@record
class Hardware:
    """The machine as far as it decides bits and speed."""

    device: Literal["cpu", "cuda"]
    name: str  # "AMD EPYC 7B13", "NVIDIA H200"
    threads: int  # torch threads of one run
    world_size: int = 1  # processes that train one run together

    @property
    def of_a_process(self) -> "Hardware":
        """Return the machine as each process of a run has it: runs of one class of machines have it in common."""
        return dataclasses.replace(self, world_size=1)

    @property
    def devices(self) -> int:
        """Return how many accelerators of one node a run needs, which is what engines and schedulers are asked for."""
        return self.world_size if self.device == "cuda" else 0


@record
class RunRecord:
    """`run.json`: what the run is. `identity` holds everything that determines the result, and nothing else."""

    format: Literal[1] = FORMAT
    run_id: str  # resnet8-digits-fast-ssr0.5-s1-3f9c2a7d; ends in the first 8 characters of digest(identity)
    sweep: str
    recipe: str  # the recipe's name in the sweep; not part of the identity
    baseline: str  # the name of the sweep's baseline recipe
    tuning: str | None  # how the baseline was tuned; None: it was not, and every view says so
    identity: dict[str, Any]
    recipe_digest: str  # of the identity without seed and budget: one curve, and one profile for each hardware
    dataset: str
    model: str
    methods: tuple[str, ...]
    ssr: float  # scale-schedule ratio: the budget as a multiple of the recipe's full schedule
    seed: int
    steps: int  # optimiser steps at this budget
    batch_size: int
    precision: str
    hardware: Hardware
    quality: str  # the task's first metric
    phases: dict[str, int]  # steps spent in each phase of different speed; the sum is `steps`
    control: Control | None = None  # None: a recipe in its own right; not part of the identity
    control_of: tuple[str, ...] = ()  # the recipes that it was made to be compared with
    declared: Annotated[tuple[Metric, ...], Field(max_length=100)] = ()
    """Metrics that its task declares and METRICS lacks, and the training loss where it is not in nats."""
    functions: dict[str, str] = field(default_factory=dict)  # of a custom task: digests of their source, by name

    def metric(self, name: str) -> Metric | None:
        """Return a metric of the run from METRICS or as its task declares it; None if it is declared nowhere."""
        ours, own = METRICS.get(name), next((metric for metric in self.declared if metric.name == name), None)
        # Ours mean the same in every run, or runs could not be compared. The loss is the exception: a task chooses it.
        return own if ours is None or (own is not None and name == TRAIN_LOSS) else ours

    @property
    def effective_digest(self) -> str:
        """Return the digest that the run shares with profiles of the same recipe on any machine."""
        return effective_digest(self.identity)


@record
class LoopRecord:
    """`loop.json`: the record of a custom training loop (`explorer.govern`), without its code.

    The ledger's first entry has the digest of `identity`: `recipe` with the model's class, the optimiser, its settings
    as text and the methods, as in a recipe; `steps` and `seed`.
    """

    format: Literal["explorer/loop/v1"] = "explorer/loop/v1"
    run_id: Annotated[
        str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,120}$")
    ]  # the name of its directory; that of a run that a deletion made ends in 8 characters of the digest
    identity: dict[str, Any]

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the names of the methods. Raises `RunError` for a record that does not list them."""
        return tuple(name for method in listed_methods(self) for name in method)


Plan = RunRecord | LoopRecord
"""The record of a run: of a recipe, or of a user's own training loop."""


def listed_methods(plan: Plan) -> Sequence[Mapping[str, Any]]:
    """Return the methods that a run's identity names, each a name and its parameters. Raises `RunError` for damage."""
    recipe: Any = plan.identity.get("recipe")
    listed = recipe.get("methods") if isinstance(recipe, Mapping) else None
    if isinstance(recipe, Mapping) and listed is None and "set" in recipe:
        return ()  # a command's or a notebook's: values of placeholders, no methods of ours
    if not isinstance(listed, list) or not all(isinstance(method, Mapping) and len(method) == 1 for method in listed):
        raise RunError(f"run {plan.run_id}: damaged: its identity does not name its methods")
    return listed


def exact_every(plan: Plan) -> int | None:
    """Return from how many steps one has exact numbers of the classes' contributions; None: the run takes none. Raises
    `RunError` for damage."""
    for method in listed_methods(plan):
        for name, parameters in method.items():
            if name == "contributions":
                every = parameters.get("every", 1) if isinstance(parameters, Mapping) else None
                if type(every) is not int or every < 1:
                    raise RunError(f"run {plan.run_id}: damaged: its contributions are {parameters!r:.80}")
                return every
    return None


FAST = (
    "deterministic: fast adds in no fixed order, and gives up the same bits: when the run is made again, when it"
    " resumes, for replay, and for deletion by replay (G3)"
)


def given_up(plan: Plan) -> str | None:
    """Return a sentence about the guarantees that a run's settings give up; None: none."""
    recipe: Any = plan.identity.get("recipe")
    train = recipe.get("train") if isinstance(recipe, Mapping) else None
    fast = isinstance(train, Mapping) and train.get("deterministic", "strict") != "strict"
    return FAST if fast else None


def read_plan(run: Path) -> Plan | None:
    """Return the record of the run in this directory; None if there is none.

    Raises `RunError` for a damaged one.
    """
    if (run / rundir.RUN).exists():
        return read(RunRecord, run / rundir.RUN)
    return read(LoopRecord, run / rundir.LOOP) if (run / rundir.LOOP).exists() else None


def read_recipe_run(run: Path, *, what: str, instead: str) -> RunRecord:
    """Return the record of a recipe's run.

    Raises `RunError` for a damaged one, and for a user's own loop, on which `what` does not work; `instead` says what
    is missing there and what works.
    """
    if not (run / rundir.RUN).exists() and (run / rundir.LOOP).exists():
        raise RunError(f"{run}: the run of a custom loop: {what} works on runs of recipes only: {instead}")
    return read(RunRecord, run / rundir.RUN)


def plan_file(plan: Plan) -> str:
    """Return the name of the record's file in the run directory."""
    return rundir.RUN if isinstance(plan, RunRecord) else rundir.LOOP


def contradictions(record: Plan) -> Iterator[str]:
    """Yield a sentence for each field of a run's record that contradicts its identity.

    Only the identity is bound by the name of the run and by the first entry of its ledger; tables show the other
    fields. Names of sweep, recipe and baseline, tuning and controls are in no identity, and a loop's record has no
    other fields.
    """
    if isinstance(record, LoopRecord):
        return
    # An identity comes from a file, so every part of it may be missing or of another type.
    identity = record.identity
    recipe: Any = identity.get("recipe")
    recipe = recipe if isinstance(recipe, dict) else {}
    task, train = (fields if isinstance(fields, dict) else {} for fields in (recipe.get("task"), recipe.get("train")))
    named = {"dataset": task.get("own", _only(task.get("dataset"))), "model": _only(task.get("model"))}
    methods = recipe.get("methods")
    curve = {name: fields for name, fields in identity.items() if name not in ("ssr", "seed", "initial")}
    # What each field has to be, as far as the identity has it: one of an older version has less.
    expected_fields: dict[str, Any] = {
        **{name: identity[name] for name in ("ssr", "seed", "hardware") if name in identity},
        **{name: train[name] for name in ("batch_size", "precision") if name in train},
        **{name: value for name, value in named.items() if value is not None},
        **({"methods": [_only(fields) for fields in methods]} if isinstance(methods, list) else {}),
        "recipe_digest": digest(curve),
    }
    content = to_json(record)
    for name, expected in expected_fields.items():
        if content[name] != expected:
            yield f"run {record.run_id}: {name} is {content[name]!r:.120}, its identity says {expected!r:.120}"


def _only(chosen: object) -> str | None:
    """Return the name in {name: parameters}; None if it is anything else."""
    return str(next(iter(chosen))) if isinstance(chosen, dict) and len(chosen) == 1 else None


@record
class Timings:
    """Seconds of wall time in one run, by purpose.

    Warm-up steps count only in `warmup`, and steps in which something was compiled only in `compile`.
    """

    read: float = 0.0
    preprocess: float = 0.0
    transfer: float = 0.0
    wait: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    governance: float = 0.0
    other: float = 0.0
    warmup: float = 0.0
    compile: float = 0.0
    evaluation: float = 0.0
    checkpoint: float = 0.0

    def training(self) -> float:
        """Return the seconds of the timed optimiser steps: all parts but those of `APART`."""
        return sum(getattr(self, part.name) for part in dataclasses.fields(self) if part.name not in APART)


APART = ("warmup", "compile", "evaluation", "checkpoint")
"""The parts of `Timings` that are not timed optimiser steps."""


@record
class Interval:
    """A part of a step, in seconds since the first step that is shown began."""

    part: str  # a field of `Timings`; of the second thread `read` and `preprocess`
    start: float
    end: float
    ahead: bool = False  # by the thread that prepares the rows of the coming step


@record
class Timeline:
    """Work of a second thread on the rows of coming steps, in one process of a run, and the parts of a few steps.

    Its seconds are no part of a step's: what a step waits for the thread is `Timings.wait`.
    """

    read: float  # seconds of the second thread in which it fetched rows
    preprocess: float  # in which it decoded and augmented them
    steps: int  # for which it did
    shown: tuple[Interval, ...]


@record
class Trunk:
    """The first steps of a run, where it began with the state that a shorter run of its recipe and seed left."""

    run: str  # that left it
    step: int  # how many steps it had made
    state: str  # digest of parameters and buffers then; see `ResultRecord.state_digest`


JOULES_PER_KWH = 3.6e6


@record
class Flops:
    """Floating-point operations of a run's training steps, and the rate of its device.

    Those of its matrix products, convolutions and attention are counted, as torch's counter has them. What is done
    element by element is not. An operation is a multiplication or an addition.
    """

    phases: dict[str, Annotated[float, Field(ge=0, lt=1e30)]]  # of one step in each phase
    total: Annotated[float, Field(ge=0, lt=1e37)]  # of all steps; a float, since no integer above 2**53 is portable
    peak: Annotated[float, Field(ge=1e3, lt=1e24)] | None = None  # a second, of all devices of the run; None: unknown
    peak_source: str = ""  # of `peak`: a data sheet, or how it was measured


@record
class Energy:
    """Energy of timed training steps, by a counter of the machine: that of the whole device, idle or not."""

    joules: Annotated[float, Field(gt=0, lt=1e15)] | None  # None: `missing` says why it was not measured
    steps: int = 0  # that were measured
    source: str = ""  # "RAPL package", "NVML total energy"
    missing: str = ""


@record
class ResultRecord:
    """`result.json`: the run is done, and this is what came out. Its presence is the only sign of success."""

    format: Literal[1] = FORMAT
    run_id: str
    metrics: dict[str, float]  # final values by name; what they mean says `RunRecord.metric`
    steps: int
    examples: int  # in its batches, with repetition, whether methods dropped some or not; 0: unknown, of a command
    timings: Timings
    timed_steps: int  # the steps that `timings.training()` covers
    contended: bool  # other runs shared the machine: these timings are no measure of cost
    resumed: int  # how often the run was resumed from a checkpoint
    state_digest: str  # parameters and buffers of the finished model
    files: dict[str, str]  # digest of each file of the run that is complete now, by its name in the run directory
    finished_at: str
    peak_memory: int | None = None  # bytes, see `training.peak_memory`; None: not measured, as by older versions
    clock: Literal["reported", "wall"] | None = None  # of a command's run; None: our loop timed every step
    trunk: Trunk | None = None  # None: the run made all its steps itself
    flops: Flops | None = None  # None: not counted, as of a command or by older versions
    energy: Energy | None = None  # None: not asked for, as of a command or by older versions

    @property
    def utilisation(self) -> float | None:
        """Return operations over those that the device makes at its peak in the same time; None: unknown."""
        if self.flops is None or self.flops.peak is None or self.contended:
            return None
        seconds = self.timings.training()
        if not 0 < self.timed_steps <= self.steps or seconds < 1e-9:
            return None
        return self.flops.total * (self.timed_steps / self.steps) / (seconds * self.flops.peak)

    @property
    def energy_kwh(self) -> float | None:
        """Return the energy of all training steps, from that of the steps that were measured; None: unknown."""
        if self.energy is None or self.energy.joules is None or not 0 < self.energy.steps <= self.steps:
            return None
        return self.energy.joules * (self.steps / self.energy.steps) / JOULES_PER_KWH


@record
class FailureRecord:
    """`failure.json`: why the last attempt did not finish."""

    format: Literal[1] = FORMAT
    run_id: str
    kind: Literal["exception", "diverged", "dead kernel", "timeout", "interrupted", "lost worker"]
    message: str
    attempts: int
    failed_at: str


@record
class PhaseProfile:
    """The uncontended time of one step in one phase: median of `windows` interleaved windows, and their quartiles.

    The first numbers of `rounds` of all profiles of one pass were taken in the same round, shortly one after another,
    and so on: two recipes are compared round by round. `ratios` are processor seconds of the process for each second
    of the clock: 1 for one thread that nothing disturbs. `issue` is the share of a step in which the program hands its
    work to the device: near 1, the device waits for the program.
    """

    seconds: float
    low: float
    high: float
    windows: int
    split: dict[str, float] = field(default_factory=dict)  # the same step apart: keys of `Timings`, seconds
    rounds: tuple[float, ...] = ()  # seconds of a step in each window; empty in a file of an older version
    ratios: tuple[float, ...] = ()  # of each window
    issue: Annotated[float, Field(ge=0, le=1)] | None = None  # None: not measured, as on a CPU


@record
class Watch:
    """Other work of the machine while a profile was taken. Shares are of all its cores; None: unknown."""

    cores: int
    load: float | None  # the load average of the last minute for each core: the higher of before and after
    others: float | None  # processor time that other processes took
    stolen: float | None  # processor time that a virtual machine's host kept for its other guests
    repeated: int = 0  # windows that were disturbed and taken again
    disturbed: int = 0  # windows that were disturbed as often as they were taken
    reasons: tuple[str, ...] = ()  # why the machine counts as busy; empty: it was quiet


@record
class Validation:
    """A full run, the only one on the machine, and the profile's prediction for its schedule: seconds of training."""

    steps: int
    predicted: float
    measured: float

    @property
    def ratio(self) -> float:
        """Return predicted over measured: 1.02 is a prediction that is 2% too long."""
        return self.predicted / self.measured


@record
class ProfileRecord:
    """`_profiles/<key>.json`: step times of a recipe on a quiet machine, phase by phase, and its inference time."""

    format: Literal[1] = FORMAT
    recipe_digest: str
    recipe: str
    hardware: Hardware
    torch: str
    phases: dict[str, PhaseProfile]
    inference_seconds: float  # for one example, in evaluation mode
    made_at: str
    effective: str = ""  # the run's `effective_digest`; empty in a file of an older version
    evaluation_seconds: float | None = None  # for one evaluation of the whole test set; None: not measured
    checkpoint_seconds: float | None = None  # for one checkpoint; None: not measured
    validation: Validation | None = None  # None: no full run was made with it
    profile_pass: str = ""  # names the pass: profiles of one pass were measured in turn; empty in an older file
    builds: int = 1  # how often the recipe was built for it; the rounds are shared out among them in order
    watch: Watch | None = None  # None: not observed, in a file of an older version
    inference_rounds: tuple[float, ...] = ()  # in each round, as `PhaseProfile.rounds`; empty in an older file

    @property
    def busy(self) -> bool | None:
        """Return whether the machine was busy during the profile; None if that is unknown."""
        return None if self.watch is None else bool(self.watch.reasons)

    @property
    def key(self) -> str:
        """Return the name of its file, made from recipe and hardware."""
        return digest([self.recipe_digest, dataclasses.asdict(self.hardware)])[:16]


LONGEST_SECONDS = 1e6  # of a step, an example, an evaluation or a whole run: twelve days; times steps it stays finite


def check_profile(profile: ProfileRecord, *, where: str) -> ProfileRecord:
    """Return a profile of unknown origin, if its times are possible.

    Raises `RunError` that names `where`, the phase or the key, and the fault.
    """
    if not profile.phases:
        raise RunError(f"{where}: the profile has no phase: expected the time of a step in one at least")
    # The times of each phase, with the rounds and ratios that they come from.
    for name, phase in profile.phases.items():
        if not 0 < phase.low <= phase.seconds <= phase.high:
            raise RunError(
                f"{where}: phase {name!r:.80}: found {phase.seconds:g} s a step, quartiles {phase.low:g} and"
                f" {phase.high:g}; expected 0 < low <= seconds <= high"
            )
        if (longest := max(phase.high, *phase.rounds, *phase.split.values(), 0.0)) > LONGEST_SECONDS:
            raise RunError(
                f"{where}: phase {name!r:.80}: found {longest:g} s a step, expected at most {LONGEST_SECONDS:g} s"
            )
        if phase.windows < 1 or any(seconds < 0 for seconds in phase.split.values()):
            raise RunError(f"{where}: phase {name!r:.80}: expected one window at least, and no part below 0 s")
        if len(phase.rounds) not in (0, phase.windows) or any(seconds <= 0 for seconds in phase.rounds):
            raise RunError(
                f"{where}: phase {name!r:.80}: found {len(phase.rounds)} rounds; expected {phase.windows}, each above"
                " 0 s, or none"
            )
        if len(phase.ratios) not in (0, phase.windows) or any(ratio < 0 for ratio in phase.ratios):
            raise RunError(
                f"{where}: phase {name!r:.80}: found {len(phase.ratios)} ratios of processor time; expected"
                f" {phase.windows}, none below 0, or none"
            )
    # Inference is timed in the same windows as the phases.
    rounds, windows = profile.inference_rounds, {phase.windows for phase in profile.phases.values()}
    if rounds and not (
        len(rounds) in windows and 0 < min(rounds) <= profile.inference_seconds <= max(rounds) < math.inf
    ):
        raise RunError(
            f"{where}: inference: found {len(rounds)} rounds for {profile.inference_seconds:g} s; expected"
            f" {max(windows)}, each above 0 s, with that time between the least and the largest, or none"
        )
    if profile.builds < 1:
        raise RunError(f"{where}: builds: found {profile.builds}, expected 1 or more")
    # Times without rounds: only their range can be checked.
    besides = {name: getattr(profile, f"{name}_seconds") for name in ("inference", "evaluation", "checkpoint")}
    if profile.validation is not None:
        besides |= {"predicted": profile.validation.predicted, "measured": profile.validation.measured}
    for name, seconds in besides.items():
        if seconds is not None and not 0 < seconds <= LONGEST_SECONDS:
            raise RunError(
                f"{where}: {name}: found {seconds:g}; expected seconds above 0 and at most {LONGEST_SECONDS:g}"
            )
    return profile


def read_profile(path: Path) -> ProfileRecord:
    """Read a profile of unknown origin. Raises `RunError` for a damaged one, or for impossible times."""
    return check_profile(read(ProfileRecord, path), where=str(path))


def from_json(kind: type[Record], value: Any, *, where: str) -> Record:
    """Check a JSON value and return the record. Raises `RunError` that names `where`, the key and the fault."""
    return schema.from_json(kind, value, where=f"{where}: damaged {kind.__name__}", error=RunError)


def write(path: Path, record: Any) -> None:
    """Write a record whole or not at all."""
    rundir.write_json(path, to_json(record))


def read(kind: type[Record], path: Path) -> Record:
    """Read a record. Raises `RunError` when the file is absent or damaged."""
    return from_json(kind, rundir.read_json(path), where=str(path))

"""The plan of a sweep: its runs in order, the state of each, and the time and money that the missing ones take.

Cheap budgets come first, and within a budget all recipes with the first seed, so that curves appear early. Rescaled
baselines come last, because their budgets follow from profiles; a plan without profiles only counts them. A sweep
measures its step times before its first run, then plans again.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.costing import Price, cost_usd, default_price, train_seconds, wall_seconds
from explorer.data.sources import load
from explorer.errors import RecipeError, RunError, SpecError
from explorer.machine_class import Machine, why_not_here
from explorer.planned import describe, superseded
from explorer.provenance.policy import RoutingPolicy
from explorer.recipes.machine import this_machine
from explorer.recipes.recipe import Recipe
from explorer.run_files import ProfileRecord, ResultRecord, RunRecord
from explorer.runlog.documents import Documents
from explorer.schema import to_json
from explorer.sweep.chosen import with_tuned
from explorer.sweep.commands.command_record import check_notebook_task, command_record, surroundings_of
from explorer.sweep.commands.command_task import CommandRecipe
from explorer.sweep.control_runs import CONTROLS, NotRun, Rescaled, budgets_of, rescaled
from explorer.sweep.on_key import HERE, Target, targets_of
from explorer.sweep.profiles import profiles_for, read_profiles
from explorer.sweep.spec import SweepSpec
from explorer.sweep.status import State, state_of
from explorer.sweep.trunks import Place, places
from explorer.sweep.until_key import DecisionRecord, Until, read_decision
from explorer.training.branching import branch_step, segment_of, why_not
from explorer.training.ledgered import documents_of, routing_policy
from explorer.training.run_plan import plan_run, rehearse, total_steps

SETTLED = ("done", "damaged")  # states of runs that are not executed


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A run, its state, and the time of its training on a quiet machine."""

    record: RunRecord
    directory: Path
    state: State
    message: str  # why it failed or is damaged
    seconds: float | None  # None: the recipe has no step time yet
    source: str | None  # of the step time: "measured" in runs of this sweep, or "profiled"
    documents: Documents | None  # that govern it
    other_code: bool  # done, by different code of this package under the same version number
    setting: CommandRecipe | None = None  # of a run that a command trains
    place: Place | None = None  # on the trunk of its recipe and seed; None: it shares no step with another run

    @property
    def share(self) -> float:
        """The share of its steps that the run makes itself; shorter runs of its recipe and seed make the rest."""
        return 1.0 if self.place is None else 1 - self.place.start / self.record.steps

    @property
    def missing(self) -> bool:
        """True if the sweep executes this run. A damaged result is not repeated: its owner decides what it is worth."""
        return self.state not in SETTLED


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Estimate of the time and money that the missing runs take."""

    runs: int
    unknown: int  # of them, runs without a step time, which the sums below leave out
    train_seconds: float  # on a quiet machine
    separate_seconds: float  # what it would be if no run began with the steps of another: the sum of the time axis
    wall_seconds: float  # until the sweep is complete, with `workers` runs side by side
    usd: float | None  # None: no price for this hardware
    price: Price | None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A specification for a class of machines, by default that of this one, in its directory.

    One for several classes is that of this machine's class, if it has one, with the plans of the `others`.
    """

    spec: SweepSpec
    directory: Path  # runs/<sweep>
    data: Path | None
    runs: tuple[PlannedRun, ...]
    waiting: tuple[RunRecord, ...]  # runs of recipes whose rescaled baselines need a profile, one run for each baseline
    not_run: tuple[NotRun, ...]  # recipes and controls that were asked for and cannot be run
    target: Target  # the machine that it is for
    warnings: tuple[str, ...] = ()  # of methods, with the names of their recipes
    decided: DecisionRecord | None = None  # on the number of seeds, if the specification leaves it open
    unshared: Mapping[str, str] = field(default_factory=dict)  # why runs share no steps between budgets, by recipe
    others: tuple["Plan", ...] = ()  # for the other classes of the specification, in its order
    at: int = 0  # how many of them come before this one

    @property
    def classes(self) -> tuple["Plan", ...]:
        """The plans for all classes, in the order of the specification."""
        return (*self.others[: self.at], self, *self.others[self.at :])

    @property
    def targets(self) -> tuple[Target, ...]:
        """The machines of all classes."""
        return tuple(plan.target for plan in self.classes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about what was decided when the specification was read."""
        return tuple(dict.fromkeys(note for recipe in self.spec.recipes for note in recipe.notes))

    @cached_property
    def left_out(self) -> tuple[Path, ...]:
        """The run directories that this plan leaves out. They are kept, and shown only on request."""
        return tuple(superseded(self.directory, self.to_json()))

    @cached_property
    def why_not_here(self) -> str | None:
        """Why this machine would not execute the runs, in a sentence; None: it would."""
        return why_not_here(self.runs[0].record, this_machine(), planned=self.target.machine)

    @cached_property
    def missing(self) -> tuple[PlannedRun, ...]:
        return tuple(run for run in self.runs if run.missing)

    def extended(self, again: "Plan") -> "Plan":
        """Return this plan with the runs that a later one has beyond it. Those that are here keep their place."""
        known = {run.record.run_id for run in self.runs}
        return replace(
            self,
            runs=(*self.runs, *(run for run in again.runs if run.record.run_id not in known)),
            waiting=again.waiting,
            not_run=again.not_run,
            others=tuple(mine.extended(new) for mine, new in zip(self.others, again.others, strict=True)),
        )

    def estimate(self, *, workers: int, prices: Sequence[Price]) -> Estimate:
        """Estimate time and money for the missing runs, with `workers` runs side by side."""
        known = [(run.seconds, run.share) for run in self.missing if run.seconds is not None]
        seconds = [whole * share for whole, share in known]
        hardware = self.runs[0].record.hardware
        price = default_price(hardware.name, prices)
        total = sum(seconds)
        return Estimate(
            runs=len(self.missing),
            unknown=len(self.missing) - len(seconds),
            train_seconds=total,
            separate_seconds=sum(whole for whole, _ in known),
            wall_seconds=wall_seconds(total, runs=len(seconds), slowdown=_slowdown(self.runs), workers=workers),
            usd=None if price is None else cost_usd(total, price, hardware.world_size),
            price=price,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the content of `sweep.json`, with the runs of all classes."""
        first = self.classes[0]  # the same on every machine
        tuned, tunes = self.spec.tuned, self.spec.tunes
        return {
            "format": 1,
            "name": self.spec.name,
            "baseline": self.spec.baseline,
            "tuning": self.spec.tuning,
            "source": self.spec.source,
            "spec": self.spec.content,
            "spec_digest": self.spec.digest,
            **({} if tuned is None else {"tuned": to_json(tuned)}),
            **({} if tunes is None else {"tunes": tunes}),
            "hardware": asdict(first.runs[0].record.hardware),
            "machine": to_json(first.target.machine),
            **({"machines": [to_json(target.machine) for target in self.targets]} if self.others else {}),
            "runs": [_entry(run.record) for plan in self.classes for run in plan.runs],
            "waiting": sum(len(plan.waiting) for plan in self.classes),
            "not_run": [asdict(control) for control in dict.fromkeys(one for p in self.classes for one in p.not_run)],
            "unshared": dict(self.unshared),
            **({} if self.spec.until is None else {"until": self._until(self.spec.until)}),
            **({} if self.spec.search is None else {"searched": True}),
        }

    def _until(self, until: Until) -> dict[str, Any]:
        added = None if self.decided is None else list(self.decided.added)
        return {**asdict(until), "of": list(until.of), "first": list(self.spec.seeds), "added": added}


def make_plan(
    spec: SweepSpec,
    *,
    runs: Path = Path("runs"),
    data: Path | None = None,
    rehearsed: bool = False,
    on_rehearse: Callable[[Sequence[str]], None] = lambda names: None,
    targets: Sequence[Target] | None = None,
) -> Plan:
    """Plan the sweep in `runs/<sweep>` without writing anything.

    Every recipe with missing runs is rehearsed: tried out on a few steps, on this machine.

    spec         the specification
    runs         the directory of all sweeps
    data         the directory of datasets, for recipes that need one
    rehearsed    True if all recipes were rehearsed a moment ago, so that none is rehearsed again
    on_rehearse  called with the names of the recipes before the rehearsal, which can take a while
    targets      the machines that its runs are for; None: as the specification says, which is this one without `on`

    Raises `SpecError` for a sweep that is not tuned yet, for a budget that leaves no step and for a method that finds
    nothing to change in the model, and `DataError` when the dataset is missing.
    """
    directory, now = runs / spec.name, int(time.time())
    targets = targets or targets_of(spec.on, runs=runs, where=spec.source)
    if spec.command is not None:
        return _plan_commands(spec, directory, data, targets[0])
    spec = with_tuned(spec, directory)
    documents: dict[str, Documents | None] = {}
    # Documents come first: they are part of a governed run's identity.
    for recipe in spec.recipes:
        try:
            documents[recipe.name] = documents_of(recipe, spec.governance, now=now)
        except RecipeError as error:
            raise SpecError(f"{spec.source}: recipes.{recipe.name}: {error}") from error
    try:
        plans = [_plan_class(spec, directory, data, documents, target) for target in targets]
    except SpecError:
        _rehearse(spec, spec.recipes, data, documents, on_rehearse)  # its message is more precise, if it fails too
        raise
    warned: list[str] = []
    # Only recipes with missing runs are rehearsed, so that a complete sweep is planned at once.
    if not rehearsed:
        left = {run.record.recipe for plan in plans for run in plan.missing}
        left |= {record.baseline for plan in plans for record in plan.waiting}
        trying = [recipe for recipe in spec.recipes if recipe.name in left]
        warned = _rehearse(spec, trying, data, documents, on_rehearse)
    at = next((at for at, plan in enumerate(plans) if plan.why_not_here is None), 0)
    return replace(plans[at], warnings=tuple(warned), others=(*plans[:at], *plans[at + 1 :]), at=at)


def _plan_class(
    spec: SweepSpec, directory: Path, data: Path | None, documents: Mapping[str, Documents | None], target: Target
) -> Plan:
    """Plan the runs for one class of machines."""
    on = target.machine
    all_records = [_record(spec, recipe, ssr, seed, data, documents, on) for ssr, seed, recipe in _order(spec)]
    # Controls follow from the profiles, and come after all other runs.
    profiles = read_profiles(directory) if target.known == HERE else profiles_for(directory, all_records)
    wanted = _wanted(spec, directory, all_records, profiles)
    controls, not_run = _rescaled(spec, wanted, data, documents, on)
    decided = _decided(spec, directory, all_records)
    chosen = [recipe for recipe in spec.recipes if decided is not None and recipe.name in decided.recipes]
    added = [(ssr, seed, recipe) for ssr in spec.budgets for seed in _added(decided) for recipe in chosen]
    all_records += [_record(spec, recipe, ssr, seed, data, documents, on) for ssr, seed, recipe in added]
    all_records += controls
    all_records = _renamed(directory, all_records)
    states = {record.run_id: state_of(directory / record.run_id) for record in all_records}
    # Estimates use profiles, and where there are none, finished runs.
    step_times = _step_times(directory, [record for record in all_records if states[record.run_id][0] == "done"])
    policies = {recipe.name: routing_policy(recipe, documents[recipe.name], data) for recipe in spec.recipes}
    step_of = _shared_steps(spec, data, policies)
    missing = [record for record in all_records if states[record.run_id][0] not in SETTLED]
    shared = places(directory, missing, step_of=step_of)
    planned = []
    for record in all_records:
        seconds, source = _seconds(record, profiles, step_times)
        state, message = states[record.run_id]
        planned.append(
            PlannedRun(
                record=record,
                directory=directory / record.run_id,
                state=state,
                message=message,
                seconds=seconds,
                source=source,
                documents=documents[record.recipe],
                other_code=state == "done" and _other_code(directory / record.run_id / rundir.ENVIRONMENT, on),
                place=shared.get(record.run_id),
            )
        )
    return Plan(
        spec=spec,
        directory=directory,
        data=data,
        runs=tuple(planned),
        waiting=wanted.waiting,
        not_run=(*spec.not_run, *not_run),
        target=target,
        decided=decided,
        unshared=_unshared(spec, all_records, policies, step_of),
    )


def _decided(spec: SweepSpec, directory: Path, records: Sequence[RunRecord]) -> DecisionRecord | None:
    """Return the decision on the number of seeds, if it was taken for these runs."""
    if spec.until is None:
        return None
    digests = {record.recipe: record.recipe_digest for record in records}
    recipes = {name: digests[name] for name in (spec.baseline, *spec.until.of)}
    return read_decision(directory, spec.until, first=spec.seeds, recipes=recipes, where=spec.source)


def _added(decided: DecisionRecord | None) -> tuple[int, ...]:
    return () if decided is None else decided.added


def _shared_steps(
    spec: SweepSpec, data: Path | None, policies: Mapping[str, RoutingPolicy | None]
) -> Callable[[RunRecord], int | None]:
    """Return the function that gives how many of its first steps a run shares with longer ones; None: none."""
    recipes = {recipe.name: recipe for recipe in spec.recipes}
    full = {
        recipe.name: total_steps(recipe, examples=len(load(recipe.dataset, data).train), ssr=1.0)
        for recipe in spec.recipes
        if why_not(recipe, policies[recipe.name]) is None
    }

    def of(record: RunRecord) -> int | None:
        if record.recipe not in full:
            return None
        recipe, policy = recipes[record.recipe], policies[record.recipe]
        return branch_step(recipe, policy, steps=record.steps, full_steps=full[record.recipe])

    return of


def _unshared(
    spec: SweepSpec,
    records: Sequence[RunRecord],
    policies: Mapping[str, RoutingPolicy | None],
    step_of: Callable[[RunRecord], int | None],
) -> dict[str, str]:
    """Return why runs share no steps between budgets, by recipe; nothing where there is one budget."""
    if len(spec.budgets) == 1:
        return {}
    reasons: dict[str, str] = {}
    for recipe in spec.recipes:
        own = [record for record in records if record.recipe == recipe.name]
        most = max((record.steps for record in own), default=0)
        if (reason := why_not(recipe, policies[recipe.name])) is not None:
            reasons[recipe.name] = reason
        elif (every := segment_of(recipe)) > 1 and all(step_of(run) is None for run in own if run.steps < most):
            words = f"a segment of its ledger has {every} steps, and no shorter run makes so many before its decay"
            reasons[recipe.name] = words
    return reasons


def plan_more(plan: Plan, recipe: Recipe, *, ssr: float, seed: int) -> PlannedRun:
    """Plan a run that the specification does not list, of a recipe that it allows. The recipe is not rehearsed.

    Raises `RecipeError` for one that cannot be trained at this budget.
    """
    documents = documents_of(recipe, plan.spec.governance, now=int(time.time()))
    on = plan.target.machine
    record = _planned(plan.spec, recipe, ssr, seed, plan.data, {recipe.name: documents}, on)
    directory = plan.directory / record.run_id
    state, message = state_of(directory)
    return PlannedRun(
        record=record,
        directory=directory,
        state=state,
        message=message,
        seconds=None,
        source=None,
        documents=documents,
        other_code=state == "done" and _other_code(directory / rundir.ENVIRONMENT, on),
    )


def _plan_commands(spec: SweepSpec, directory: Path, data: Path | None, target: Target) -> Plan:
    """Plan the runs of a command: what it finds on this machine is looked up, and nothing is tried out.

    On another machine it has to find the same, since its runs are refused there otherwise.
    """
    assert spec.command is not None
    check_notebook_task(spec.settings, where=spec.source, seeds=len(spec.seeds))
    around = surroundings_of(spec.command, where=spec.source)
    hardware = target.machine.hardware_of(spec.threads)

    def record_of(ssr: float, seed: int, setting: CommandRecipe) -> tuple[CommandRecipe, RunRecord]:
        try:
            record = command_record(
                setting,
                around,
                sweep=spec.name,
                baseline=spec.baseline,
                tuning=spec.tuning,
                ssr=ssr,
                seed=seed,
                hardware=hardware,
            )
        except RecipeError as error:
            raise SpecError(f"{spec.source}: budgets: {error}") from error
        return setting, record

    planned = [record_of(ssr, seed, own) for ssr in spec.budgets for seed in spec.seeds for own in spec.settings]
    decided = _decided(spec, directory, [record for _, record in planned])
    chosen = [setting for setting in spec.settings if decided is not None and setting.name in decided.recipes]
    planned += [record_of(ssr, seed, own) for ssr in spec.budgets for seed in _added(decided) for own in chosen]
    records = _renamed(directory, [record for _, record in planned])
    states = {record.run_id: state_of(directory / record.run_id) for record in records}
    # The only step times are those of finished runs: training takes about as long as its budget is large.
    rates = _rates(directory, [record for record in records if states[record.run_id][0] == "done"])
    runs = []
    for (setting, _), record in zip(planned, records, strict=True):
        rate = rates.get(record.recipe_digest)
        state, message = states[record.run_id]
        runs.append(
            PlannedRun(
                record=record,
                directory=directory / record.run_id,
                state=state,
                message=message,
                seconds=None if rate is None else rate * record.ssr,
                source=None if rate is None else "measured",
                documents=None,
                other_code=False,
                setting=setting,
            )
        )
    return Plan(
        spec=spec,
        directory=directory,
        data=data,
        runs=tuple(runs),
        waiting=(),
        not_run=(),
        target=target,
        decided=decided,
    )


def _rates(directory: Path, done: Sequence[RunRecord]) -> dict[str, float]:
    """Return the median seconds of training for a budget of 1, of each recipe with finished runs."""
    times: dict[str, list[float]] = {}
    for record in done:
        result = _result(directory / record.run_id)
        if result is not None:
            times.setdefault(record.recipe_digest, []).append(result.timings.training() / record.ssr)
    return {recipe: statistics.median(values) for recipe, values in times.items()}


def _renamed(directory: Path, planned: list[RunRecord]) -> list[RunRecord]:
    """Return the planned runs, where a run that is done under its recipe's old name keeps its run id.

    Recipe digest, budget and seed make up a run's identity, so a run that was trained under the old name is this run.
    """
    known = {record.run_id for record in planned}
    others = [path for path in rundir.run_directories(directory) if path.name not in known]
    done = {
        (run.recipe_digest, run.ssr, run.seed): run.name
        for path in others
        if (run := describe(path)) is not None and not run.apart and state_of(path)[0] == "done"
    }
    if not done:
        return planned
    return [
        record
        if (name := done.get((record.recipe_digest, record.ssr, record.seed))) is None
        or state_of(directory / record.run_id)[0] == "done"
        else replace(record, run_id=name)
        for record in planned
    ]


def _rehearse(
    spec: SweepSpec,
    recipes: Sequence[Recipe],
    data: Path | None,
    documents: Mapping[str, Documents | None],
    on_rehearse: Callable[[Sequence[str]], None],
) -> list[str]:
    """Try these recipes out and return warnings. Raises `SpecError` for a recipe that cannot be trained."""
    warned: list[str] = []
    if recipes:
        on_rehearse([recipe.name for recipe in recipes])
    for recipe in recipes:
        try:
            words = rehearse(recipe, data=data, documents=documents[recipe.name], threads=spec.threads)
        except RecipeError as error:
            raise SpecError(f"{spec.source}: recipes.{recipe.name}: {error}") from error
        warned += [f"recipe {recipe.name}: {word}" for word in words]
    return warned


def _other_code(environment: Path, on: Machine) -> bool:
    """Return True if the run was trained by other code than that of the plan's machine; False also if it is unknown."""
    try:
        began = rundir.read_json(environment)
    except RunError:
        return False
    recorded = began.get("training_code") if isinstance(began, dict) else None
    return None not in (recorded, on.training_code) and recorded != on.training_code


def _order(spec: SweepSpec) -> list[tuple[float, int, Recipe]]:
    return [(ssr, seed, recipe) for ssr in spec.budgets for seed in spec.seeds for recipe in spec.recipes]


def _record(
    spec: SweepSpec,
    recipe: Recipe,
    ssr: float,
    seed: int,
    data: Path | None,
    documents: Mapping[str, Documents | None],
    on: Machine,
) -> RunRecord:
    try:
        planned = _planned(spec, recipe, ssr, seed, data, documents, on)
    except RecipeError as error:
        raise SpecError(f"{spec.source}: budgets: {error}") from error
    controlled = spec.twins.get(recipe.name)
    return planned if controlled is None else replace(planned, control="random-subset", control_of=controlled)


def _planned(
    spec: SweepSpec,
    recipe: Recipe,
    ssr: float,
    seed: int,
    data: Path | None,
    documents: Mapping[str, Documents | None],
    on: Machine,
) -> RunRecord:
    return plan_run(
        recipe,
        sweep=spec.name,
        baseline=spec.baseline,
        tuning=spec.tuning,
        ssr=ssr,
        seed=seed,
        threads=spec.threads,
        data=data,
        documents=documents[recipe.name],
        on=on,
    )


def _wanted(
    spec: SweepSpec, directory: Path, runs: Sequence[RunRecord], profiles: dict[str, ProfileRecord]
) -> Rescaled:
    """Return the rescaled budgets, if the specification asks for them."""
    if spec.controls is None or not CONTROLS[spec.controls].rescaled:
        return Rescaled(budgets={}, waiting=())
    baseline = next(run for run in runs if run.recipe == run.baseline)
    return rescaled(runs, earlier=budgets_of(directory, baseline), profiles=profiles)


def _rescaled(
    spec: SweepSpec, wanted: Rescaled, data: Path | None, documents: Mapping[str, Documents | None], on: Machine
) -> tuple[list[RunRecord], list[NotRun]]:
    """Return the runs of the baseline at rescaled budgets, and the budgets at which it cannot run."""
    baseline = next(recipe for recipe in spec.recipes if recipe.name == spec.baseline)
    runs: list[RunRecord] = []
    not_run: list[NotRun] = []
    for ssr, names in sorted(wanted.budgets.items()):
        try:
            planned = [_planned(spec, baseline, ssr, seed, data, documents, on) for seed in spec.seeds]
        except RecipeError as error:
            words = f"{baseline.name} for as long as {', '.join(names)}"
            not_run.append(NotRun(name=words, reason=str(error)))
            continue
        runs += [replace(run, control="rescaled-baseline", control_of=names) for run in planned]
    return runs, not_run


def _entry(record: RunRecord) -> dict[str, Any]:
    return {
        "run_id": record.run_id,
        "recipe": record.recipe,
        "ssr": record.ssr,
        "seed": record.seed,
        "steps": record.steps,
        "recipe_digest": record.recipe_digest,
        "effective": record.effective_digest,
        "control": record.control,
        "control_of": list(record.control_of),
    }


def _seconds(
    record: RunRecord, profiles: dict[str, ProfileRecord], step_times: dict[str, float]
) -> tuple[float | None, str | None]:
    profile = profiles.get(record.recipe_digest)
    if profile is not None and set(record.phases) <= set(profile.phases):
        return train_seconds(record.phases, profile.phases).seconds, "profiled"
    if record.recipe_digest in step_times:
        return record.steps * step_times[record.recipe_digest], "measured"
    return None, None


def _step_times(directory: Path, done: Sequence[RunRecord]) -> dict[str, float]:
    """Return the median seconds of a step in the finished runs of each recipe, contended or not."""
    times: dict[str, list[float]] = {}
    for record in done:
        result = _result(directory / record.run_id)
        if result is not None and result.timed_steps:
            times.setdefault(record.recipe_digest, []).append(result.timings.training() / result.timed_steps)
    return {recipe: statistics.median(values) for recipe, values in times.items()}


def _slowdown(runs: Sequence[PlannedRun]) -> float:
    """Return by what factor finished runs, with evaluation and contention, were longer than quiet training."""
    ratios = []
    for run in runs:
        result = _result(run.directory) if run.state == "done" else None
        if result is not None and run.seconds:
            timings = result.timings
            share = 1.0 if result.trunk is None else 1 - result.trunk.step / result.steps
            spent = timings.training() + timings.warmup + timings.evaluation + timings.checkpoint
            ratios.append(spent / (run.seconds * share) if share else 1.0)
    return statistics.median(ratios) if ratios else 1.0


def _result(directory: Path) -> ResultRecord | None:
    """Return the result, or None where it is damaged: an estimate can do without it, and the run's state reports it."""
    try:
        return run_files.read(ResultRecord, directory / rundir.RESULT)
    except RunError:
        return None

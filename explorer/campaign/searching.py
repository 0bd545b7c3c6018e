"""A search: runs that a searcher chooses while others are trained, so that no worker waits.

1. The step times of the baseline and of each method by itself are measured: every recipe's time is known from then on.
2. The baseline is trained at every budget with every seed: it defines the target. From then on a searcher is asked
   for a run whenever a worker would be idle. All of them are ordinary runs of the sweep.
3. When the time is spent, or nothing is worth its time, the recipes in front are measured next to the baseline, and
   `search.json` says what came out.

A line is appended to `_search/journal.jsonl` before a run begins and after it has ended. A search that was killed
continues from it: what ended was seen, in that order, and what was begun is continued first. Searchers are pure
functions of what was seen, so one worker takes the very same decisions, interrupted or not.
"""

import json
import math
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, starmap
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.analysis.schedules import Phase, Schedule, phase, predicted
from explorer.costing import train_seconds
from explorer.errors import AnalysisError, RecipeError, RunError, SpecError, SweepError, unknown
from explorer.run_files import ProfileRecord, ResultRecord, RunRecord
from explorer.search.method_effects import method_effects
from explorer.search.search_answer import FILE, Answer, Ended, LeftOut, MethodEffect, Moment, Place
from explorer.search.searcher import Methods, Searcher, Seen, Space, Trial
from explorer.search.searchers import DEFAULT, SEARCHERS
from explorer.search.tally import BASELINE
from explorer.sweep.control_runs import NotRun
from explorer.sweep.execute import Settings, Summary, profile_sweep, run_sweep
from explorer.sweep.plan import Plan, PlannedRun, make_plan, plan_more
from explorer.sweep.profiles import read_profiles, unprofiled
from explorer.sweep.search_key import SearchKey
from explorer.sweep.spec import SweepSpec
from explorer.training.run_plan import rehearse

OWN = "_search"  # the directory of a search's journal and first step times, in that of its sweep
JOURNAL = "journal.jsonl"
MAX_JOURNAL_BYTES = 64 * 2**20
FINALISTS = 8  # recipes in front that are measured at the end
MOMENTS = 20  # of the history


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A search on this machine, before it continues: its plan, and what it may try."""

    plan: Plan  # the baseline's runs, and those that were asked for before
    search: SearchKey
    space: Space
    searcher: Searcher
    left_out: tuple[NotRun, ...]
    asked: tuple[Trial, ...]  # in this order; the baseline's first
    seen: tuple[Seen, ...]

    def spent_on(self, seen: Sequence[Seen]) -> float:
        """Return the seconds of training that these runs take on an idle machine."""
        return sum(self.space.seconds(one.trial.methods, one.trial.budget) for one in seen)


def prepare(
    spec: SweepSpec,
    *,
    runs: Path = Path("runs"),
    data: Path | None = None,
    settings: Settings | None = None,
    on_rehearse: Callable[[Sequence[str]], None] = lambda names: None,
) -> Prepared:
    """Plan a search, measure the step times that are missing, and read what earlier starts of it did.

    Nothing is trained. Raises `SpecError` for a method that cannot be trained, or if the baseline by itself takes more
    than may be spent; `SweepError` for a sweep without a search, and for step times that cannot be measured.
    """
    search = spec.search
    if search is None:
        raise SweepError(f"{spec.source}: no key 'search'; `explorer sweep run` runs it")
    kind = _kind(spec, search)
    plan = make_plan(spec, runs=runs, data=data, on_rehearse=on_rehearse)
    foreseen = _foreseen(plan, search, settings or Settings(), on_rehearse)
    # --- what may be tried ---
    unknown = dict(foreseen.unknown())
    space = Space(
        methods=tuple(method.name for method in search.methods),
        recipes=tuple(methods for methods in search.subsets if methods not in unknown),
        ladder=search.ladder,
        seeds=spec.seeds,
        seconds=foreseen.seconds,
        spend=search.spend,
        target=_signed(plan, search.time_to),
    )
    least = sum(space.seconds(BASELINE, budget) for budget in space.ladder) * len(space.seeds)
    if least > space.spend:
        raise SpecError(
            f"{spec.source}: search.spend: found {space.spend:g} seconds of training; the baseline by itself takes"
            f" {least:.3g} at these budgets and seeds"
        )
    left_out = (*search.not_run, *(NotRun(name=search.name(names), reason=why) for names, why in unknown.items()))
    # --- what was tried before ---
    journal = _read_journal(plan.directory / OWN / JOURNAL)
    first = [Trial(BASELINE, budget, seed) for budget in space.ladder for seed in space.seeds]
    allowed = {*space.recipes}
    known = (trial for trial in journal.asked if trial.methods in allowed and _fits(trial, space))
    asked = tuple(dict.fromkeys([*first, *known]))
    planned = {(run.record.recipe, run.record.ssr, run.record.seed): run for run in plan.runs}
    more: list[PlannedRun] = []
    seen: dict[Trial, Seen] = {}
    by_trial: dict[Trial, PlannedRun | None] = {}
    for trial in asked:
        run = planned.get((search.name(trial.methods), trial.budget, trial.seed))
        if run is None:
            run = _planned(plan, search, trial)
            more += [] if run is None else [run]
        by_trial[trial] = run
    for trial in journal.ended:
        if trial in by_trial and (one := _seen(trial, by_trial[trial])) is not None:
            seen[trial] = one
    return Prepared(
        plan=replace(plan, runs=(*plan.runs, *more), not_run=left_out),
        search=search,
        space=space,
        searcher=kind(space, seed=0),
        left_out=left_out,
        asked=asked,
        seen=tuple(seen.values()),
    )


def run_search(prepared: Prepared, settings: Settings | None = None) -> tuple[Summary, Answer]:
    """Run the search until its time is spent or nothing is worth its time, and write its answer.

    Raises `RunError` when another process executes this sweep.
    """
    settings = settings or Settings()
    trials = _Trials(prepared)
    summary = run_sweep(trials.plan, replace(settings, profile=False), source=trials)
    seen = tuple(trials.seen)
    measured = {} if summary.interrupted else _measured_last(prepared, seen, settings)
    answer = _answer(prepared, seen, measured, "stopped" if summary.interrupted else trials.ended_because)
    run_files.write(prepared.plan.directory / FILE, answer)
    return summary, answer


class _Trials:
    """The source of the runs of a search."""

    def __init__(self, prepared: Prepared) -> None:
        self.plan, self.search = prepared.plan, prepared.search
        self.space, self.searcher = prepared.space, prepared.searcher
        self.journal = self.plan.directory / OWN / JOURNAL
        self.seen = list(prepared.seen)
        known = {one.trial for one in self.seen}
        self.begun = deque(trial for trial in prepared.asked if trial not in known)
        self.pending = dict.fromkeys(self.begun)  # a dict, so that they keep their order
        self.by_id: dict[str, Trial] = {}
        self.ended_because: Ended = "nothing is worth its time"

    @property
    def fraction(self) -> float:
        spent = sum(self._seconds(one.trial) for one in self.seen)
        return min(1.0, spent / self.space.spend)

    def next(self) -> PlannedRun | None:
        while True:
            trial = self.begun.popleft() if self.begun else self._asked()
            if trial is None:
                return None
            run = _planned(self.plan, self.search, trial)
            # It cannot be planned, or it ended before the journal was told.
            known = _seen(trial, run)
            if run is not None and known is None:
                self.by_id[run.record.run_id] = trial
                return run
            self._note(known or Seen(trial, None))

    def ended(self, run: PlannedRun, message: str | None) -> None:
        trial = self.by_id[run.record.run_id]
        self._note(Seen(trial, None if message is not None else _quality(run)))

    def _asked(self) -> Trial | None:
        """Ask the searcher. Its answer is on the disk before anything is done about it."""
        trial = self.searcher.next(self.seen, tuple(self.pending))
        known = {one.trial for one in self.seen} | self.pending.keys()
        if trial is None:
            every = product(self.space.recipes, self.space.ladder, self.space.seeds)
            untried = [other for other in starmap(Trial, every) if other not in known]
            left = self.space.spend - sum(map(self._seconds, known))
            if untried and min(map(self._seconds, untried)) > left:
                self.ended_because = "the time is spent"
            return None
        if trial in known or trial.methods not in self.space.recipes or not _fits(trial, self.space):
            raise SweepError(f"the searcher {self.searcher.name!r} asked for a run that it cannot have: {trial}")
        if sum(map(self._seconds, known)) + self._seconds(trial) > self.space.spend:
            self.ended_because = "the time is spent"
            return None
        self.pending[trial] = None
        _append(self.journal, {"asked": _written(trial)})
        return trial

    def _note(self, one: Seen) -> None:
        _append(self.journal, {"ended": _written(one.trial)})
        self.pending.pop(one.trial)
        self.seen.append(one)

    def _seconds(self, trial: Trial) -> float:
        return self.space.seconds(trial.methods, trial.budget)


def _kind(spec: SweepSpec, search: SearchKey) -> type[Searcher]:
    """Return the searcher that the specification names, or the default. Raises `SpecError`."""
    name = DEFAULT if search.searcher is None else search.searcher
    if name not in SEARCHERS:
        raise SpecError(f"{spec.source}: search.searcher: {unknown('searcher', name, SEARCHERS)}")
    return SEARCHERS[name]


# --- trials and runs ---


def _fits(trial: Trial, space: Space) -> bool:
    return trial.budget in space.ladder and trial.seed in space.seeds


def _planned(plan: Plan, search: SearchKey, trial: Trial) -> PlannedRun | None:
    """Plan the run of a trial; None if it cannot be trained, which counts as a failed run."""
    try:
        return plan_more(plan, search.recipe(trial.methods), ssr=trial.budget, seed=trial.seed)
    except RecipeError:
        return None


def _seen(trial: Trial, run: PlannedRun | None) -> Seen | None:
    """Return the end of a run that needs no worker; None if it has none yet."""
    if run is None or run.state in ("diverged", "failed", "damaged"):
        return Seen(trial, None)
    return Seen(trial, _quality(run)) if run.state == "done" else None


def _quality(run: PlannedRun) -> float | None:
    """Return the signed quality of a finished run; None if it is not finite."""
    result = run_files.read(ResultRecord, run.directory / rundir.RESULT)
    value = result.metrics.get(run.record.quality, math.nan)
    return _sign(run) * value if math.isfinite(value) else None


def _sign(run: PlannedRun) -> int:
    metric = run.record.metric(run.record.quality)
    return 1 if metric is None or metric.higher_is_better else -1


def _signed(plan: Plan, quality: float | None) -> float | None:
    return None if quality is None else _sign(plan.runs[0]) * quality


# --- the journal ---


@dataclass(frozen=True, kw_only=True, slots=True)
class _Journal:
    asked: tuple[Trial, ...]
    ended: tuple[Trial, ...]


def _written(trial: Trial) -> dict[str, Any]:
    return {"methods": sorted(trial.methods), "budget": trial.budget, "seed": trial.seed}


def _append(path: Path, line: Any) -> None:
    """Append a line, which is on the disk when this returns. Raises `RunError` if the disk refuses."""
    try:
        rundir.make_directory(path.parent)
        with path.open("ab+") as file:
            # A line that a killed process left half-written was not acted upon: it is cut off.
            file.seek(0)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def _read_journal(path: Path) -> _Journal:
    """Return what earlier starts asked for and what ended. Raises `RunError` for a damaged journal."""
    asked: list[Trial] = []
    ended: list[Trial] = []
    if not path.exists():
        return _Journal(asked=(), ended=())
    content = rundir.read_bytes(path, max_bytes=MAX_JOURNAL_BYTES, error=RunError)
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            ((kind, value),) = json.loads(line).items()
            trial = Trial(frozenset(map(str, value["methods"])), float(value["budget"]), int(value["seed"]))
            {"asked": asked, "ended": ended}[kind].append(trial)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise RunError(
                f"{path}:{number}: damaged; expected a line of a search; remove the file to begin the search again"
            ) from error
    return _Journal(asked=tuple(asked), ended=tuple(ended))


# --- times that are known before anything is trained ---
#
# The step times of the baseline and of each method by itself are measured in turn, phase by phase, like those of any
# sweep. A combination is predicted to do to each part of a step what its methods do by themselves
# (`analysis.schedules`). The measurement is kept in the search's own directory, so that a search that was interrupted
# continues with the same times; the recipes in front are measured once more at the end, next to the baseline.


def _simple_runs(plan: Plan, search: SearchKey) -> dict[tuple[Methods, float], PlannedRun]:
    """Return a run of the baseline and of each single method at each budget, whose step times are measured first.

    Raises `SpecError` for a method that cannot be trained by itself.
    """
    runs = {}
    for methods in (methods for methods in search.subsets if len(methods) <= 1):
        for budget in search.ladder:
            try:
                runs[methods, budget] = plan_more(plan, search.recipe(methods), ssr=budget, seed=plan.spec.seeds[0])
            except RecipeError as error:
                raise SpecError(f"{plan.spec.source}: search.of: {error}") from error
    return runs


class _Foreseen:
    """Times of whole runs of every recipe of a search."""

    def __init__(
        self,
        plan: Plan,
        search: SearchKey,
        simple: Mapping[tuple[Methods, float], PlannedRun],
        profiles: Mapping[str, ProfileRecord],
    ) -> None:
        self._plan, self._search = plan, search
        self._simple = {key: _schedule(run.record, profiles) for key, run in simple.items()}
        self._known: dict[tuple[Methods, float], float] = {}
        self._phases: dict[tuple[Methods, float], tuple[Phase, ...]] = {}
        # Only methods that change the phases or the number of steps make a combination's phases differ.
        base = {budget: simple[BASELINE, budget].record.phases for budget in search.ladder}
        self._phased = frozenset(
            name for (methods, budget), run in simple.items() for name in methods if run.record.phases != base[budget]
        )

    def seconds(self, methods: Methods, budget: float) -> float:
        """Return the training time of a recipe at a budget. Raises `AnalysisError` if it cannot be predicted."""
        key = methods, budget
        if key not in self._known:
            self._known[key] = self._predicted(methods, budget)
        return self._known[key]

    def unknown(self) -> Iterator[tuple[Methods, str]]:
        """Yield the recipes whose time cannot be predicted, and why."""
        faults: dict[Methods, str | None] = {}
        for methods in self._search.subsets:
            phased = methods & self._phased
            if phased not in faults:
                faults[phased] = self._fault(phased)
            if (fault := faults[phased]) is not None:
                yield methods, fault

    def _fault(self, phased: Methods) -> str | None:
        try:
            for budget in self._search.ladder:
                self.seconds(phased, budget)
        except (AnalysisError, RecipeError) as error:
            return str(error)
        return None

    def _predicted(self, methods: Methods, budget: float) -> float:
        if len(methods) <= 1:
            return self._simple[methods, budget].seconds
        alone = [self._simple[frozenset({name}), budget] for name in sorted(methods)]
        own = Schedule(recipe="", phases=self._joint_phases(methods & self._phased, budget))
        return predicted(self._simple[BASELINE, budget], alone, recipe=own).seconds

    def _joint_phases(self, phased: Methods, budget: float) -> tuple[Phase, ...]:
        key = phased, budget
        if key not in self._phases:
            if len(phased) <= 1:
                self._phases[key] = self._simple[key].phases
            else:
                recipe = self._search.recipe(phased)
                record = plan_more(self._plan, recipe, ssr=budget, seed=self._plan.spec.seeds[0]).record
                self._phases[key] = tuple(
                    Phase(name=name, steps=steps, seconds=0.0, error=None, windows=0, parts={})
                    for name, steps in record.phases.items()
                )
        return self._phases[key]


def _schedule(record: RunRecord, profiles: Mapping[str, ProfileRecord]) -> Schedule:
    profile = profiles.get(record.recipe_digest)
    if profile is None or not set(record.phases) <= set(profile.phases):
        raise SweepError(
            f"{record.recipe}: its step times could not be measured, so no time is known before training;"
            " leave it out of search.of, or see why with `explorer profile`"
        )
    return Schedule(
        recipe=record.recipe_digest,
        phases=tuple(
            phase(
                name,
                steps=steps,
                seconds=profile.phases[name].seconds,
                low=profile.phases[name].low,
                high=profile.phases[name].high,
                windows=profile.phases[name].windows,
                split=profile.phases[name].split,
            )
            for name, steps in record.phases.items()
        ),
    )


def _foreseen(
    plan: Plan, search: SearchKey, settings: Settings, on_rehearse: Callable[[Sequence[str]], None]
) -> _Foreseen:
    """Return the times of all recipes, measuring the simple ones first if that was not done."""
    simple = _simple_runs(plan, search)
    own = plan.directory / OWN
    records = [run.record for run in simple.values()]
    if unprofiled(own, records):
        names = [run.record.recipe for (methods, budget), run in simple.items() if methods and budget == 1.0]
        on_rehearse(names)
        for (methods, budget), run in simple.items():
            if methods and budget == 1.0:
                _rehearse(plan, search, methods, run)
        rundir.make_directory(own)
        summary = profile_sweep(replace(plan, directory=own, runs=tuple(simple.values())), settings)
        if summary.interrupted:
            raise KeyboardInterrupt
    return _Foreseen(plan, search, simple, read_profiles(own))


def _rehearse(plan: Plan, search: SearchKey, methods: Methods, run: PlannedRun) -> None:
    """Try out a method by itself. Raises `SpecError` if it cannot be trained."""
    try:
        rehearse(search.recipe(methods), data=plan.data, documents=run.documents, threads=plan.spec.threads)
    except RecipeError as error:
        raise SpecError(f"{plan.spec.source}: search.of: {error}") from error


def _measured_last(prepared: Prepared, seen: Sequence[Seen], settings: Settings) -> dict[tuple[Methods, float], float]:
    """Measure the recipes in front next to the baseline, if that was not done; return their times at each budget."""
    front = [one.methods for one in prepared.searcher.ranking(seen) if one.seconds is not None][:FINALISTS]
    plan, space = prepared.plan, prepared.space
    runs = {
        (methods, budget): run
        for methods in dict.fromkeys([BASELINE, *front])
        for budget in space.ladder
        if (run := _planned(plan, prepared.search, Trial(methods, budget, space.seeds[0]))) is not None
    }
    if settings.profile and unprofiled(plan.directory, [run.record for run in runs.values()]):
        # Here, as the first ones were, wherever the runs are executed.
        profile_sweep(replace(plan, runs=tuple(runs.values())), replace(settings, place=None, executor=None))
    profiles = read_profiles(plan.directory)
    return {
        key: train_seconds(run.record.phases, profile.phases).seconds
        for key, run in runs.items()
        if (profile := profiles.get(run.record.recipe_digest)) is not None
        and set(run.record.phases) <= set(profile.phases)
    }


# --- the answer ---


def _answer(
    prepared: Prepared, seen: tuple[Seen, ...], measured: Mapping[tuple[Methods, float], float], ended: Ended
) -> Answer:
    plan, search, space = prepared.plan, prepared.search, prepared.space
    # The machine may be faster or slower than at the beginning; the baseline, measured twice, says by how much.
    full = BASELINE, 1.0
    drift = measured[full] / space.seconds(*full) if full in measured else 1.0

    def seconds(methods: Methods, budget: float) -> float:
        return measured.get((methods, budget), drift * space.seconds(methods, budget))

    judge = type(prepared.searcher)(replace(space, seconds=seconds), seed=prepared.searcher.seed)
    ranking = judge.ranking(seen)
    runs = Counter(one.trial.methods for one in seen)
    places = tuple(
        Place(
            recipe=search.name(one.methods),
            methods=tuple(name for name in space.methods if name in one.methods),
            seconds=one.seconds,
            regret=one.regret if one.seconds is not None and math.isfinite(one.regret) else None,
            runs=runs[one.methods],
            measured=(one.methods, 1.0) in measured,
        )
        for one in ranking
    )
    later = {place.recipe: place.seconds for place in places}
    base = [one.quality for one in seen if one.trial[:2] == full and one.quality is not None]
    sign = _sign(plan.runs[0])
    target = space.target if space.target is not None else sum(base) / len(base) if base else None
    return Answer(
        sweep=plan.spec.name,
        baseline=plan.spec.baseline,
        spec_digest=plan.spec.digest,
        searcher=judge.name,
        seed=judge.seed,
        metric=plan.runs[0].record.quality,
        target=None if target is None else sign * target,
        recipes=len(space.recipes),
        spend=space.spend,
        spent=prepared.spent_on(seen),
        runs=len(seen),
        failed=sum(one.quality is None for one in seen),
        ended=ended,
        baseline_seconds=later.get(search.name(BASELINE)),
        ranking=places,
        left_out=tuple(LeftOut(name=one.name, reason=one.reason) for one in prepared.left_out),
        history=tuple(_history(prepared, judge, seen, later)),
        effects=tuple(_effects(space, seen, seconds, sign)),
    )


def _history(
    prepared: Prepared, judge: Searcher, seen: Sequence[Seen], later: Mapping[str, float | None]
) -> Iterator[Moment]:
    """Yield the recipe in front at some moments, the last one among them."""
    for count in sorted({round(len(seen) * step / MOMENTS) for step in range(1, MOMENTS + 1)} - {0}):
        front = next((one for one in judge.ranking(seen[:count]) if one.seconds is not None), None)
        if front is None:
            continue
        recipe = prepared.search.name(front.methods)
        yield Moment(
            runs=count,
            spent=prepared.spent_on(seen[:count]),
            recipe=recipe,
            seconds=front.seconds,
            regret=front.regret,
            later=later.get(recipe),
        )


def _effects(
    space: Space, seen: Sequence[Seen], seconds: Callable[[Methods, float], float], sign: int
) -> Iterator[MethodEffect]:
    for effect in method_effects(space, seen):
        low, high = sorted((sign * effect.low, sign * effect.high))
        yield MethodEffect(
            method=effect.method,
            quality=sign * effect.value,
            low=low,
            high=high,
            runs=effect.runs,
            time=seconds(frozenset({effect.method}), 1.0) / seconds(BASELINE, 1.0),
        )

"""Sweeps that add seeds: the first stage, one decision by `explorer.search.stopping`, and the second stage.

The decision is on the disk before the first added seed starts. A sweep that is killed at any moment continues by the
same command: before the decision, with the first stage; after it, with the seeds that it names.
"""

import datetime
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from explorer import run_files, rundir
from explorer.analysis.equal_quality import EqualQuality, equal_quality
from explorer.errors import SweepError
from explorer.search.stopping import Needed, needed_for, spread
from explorer.store import frames
from explorer.store.published import database
from explorer.sweep.confirm import used_seeds
from explorer.sweep.execute import Summary
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.until_key import DecisionRecord, NeededRecord, Until
from explorer.training.run_plan import MAX_SEED


def run_until(plan: Plan, execute: Callable[[Plan], Summary], *, runs: Path, tell: Callable[[str], object]) -> Summary:
    """Run a sweep with all seeds that its key `until` asks for; without that key, run it as it is.

    Args:
        plan: the sweep, with the added seeds once they are decided.
        execute: runs a plan and brings its results into the database.
        runs: the directory of all sweeps.
        tell: gets sentences on the decision.
    """
    summary = execute(plan)
    if plan.spec.until is None or plan.decided is not None or not summary.complete:
        return summary
    decision = _decide(plan, plan.spec.until, runs=runs)
    run_files.write(plan.directory / rundir.UNTIL, decision)
    for words in decision_words(decision):
        tell(words)
    return _joined(
        summary, execute(make_plan(plan.spec, runs=runs, data=plan.data, rehearsed=True, targets=plan.targets))
    )


def _decide(plan: Plan, until: Until, *, runs: Path) -> DecisionRecord:
    """Decide on the number of seeds. Raises `SweepError` while that is not possible."""
    results = {result.recipe: result for result in _first_stage(plan, until, runs=runs)}
    needed: list[Needed] = []
    for recipe in until.of:
        result = results.get(recipe)
        need = "it has no finished run" if result is None else needed_for(result, half_width=until.half_width)
        if isinstance(need, str):
            raise SweepError(
                f"{plan.spec.source}: until: how many seeds {recipe} needs cannot be decided yet: {need}. Then the same"
                " command decides"
            )
        needed.append(need)
    first = results[until.of[0]]
    return DecisionRecord(
        interval=until.interval,
        of=until.of,
        at_most=until.at_most,
        first=plan.spec.seeds,
        added=_added(plan, until, needed, runs=runs),
        confidence=first.confidence,
        family=max(result.family for result in results.values()),
        recipes=_digests(plan, until),
        needed=tuple(NeededRecord(**asdict(need)) for need in needed),
        decided_at=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )


def _first_stage(plan: Plan, until: Until, *, runs: Path) -> list[EqualQuality]:
    """Return the comparisons of the recipes on the sweep's machine, by the seeds of the specification."""
    rows = frames.results(database(runs), sweep=plan.spec.name)
    hardware = plan.runs[0].record.hardware
    results = equal_quality(rows[rows["seed"].isin(plan.spec.seeds)])
    return [
        result
        for result in results
        if result.recipe in until.of
        and (result.setting.device, result.setting.hardware, result.setting.threads)
        == (hardware.device, hardware.name, hardware.threads)
    ]


def _added(plan: Plan, until: Until, needed: Sequence[Needed], *, runs: Path) -> tuple[int, ...]:
    """Return the seeds of the second stage: the next ones that neither tuning nor a confirmation has."""
    first = plan.spec.seeds
    enough = max((need.seeds for need in needed if need.seeds is not None), default=len(first))
    used = used_seeds(runs, plan.spec.name, set(_digests(plan, until).values()))
    if plan.spec.tune is not None:
        used |= {*plan.spec.tune.seeds}
    free = (seed for seed in range(max(first) + 1, MAX_SEED + 1) if seed not in used)
    added = tuple(itertools.islice(free, min(enough, until.at_most) - len(first)))
    if len(first) + len(added) < min(enough, until.at_most):
        raise SweepError(f"{plan.spec.source}: until: no seed up to {MAX_SEED} is left")
    return added


def _digests(plan: Plan, until: Until) -> dict[str, str]:
    """Return the digests of the baseline and of the recipes."""
    digests = {run.record.recipe: run.record.recipe_digest for run in plan.runs}
    return {name: digests[name] for name in (plan.spec.baseline, *until.of)}


def expected(plan: Plan, until: Until, *, runs: Path) -> int | None:
    """Return how many seeds will probably be added, by the first stage's finished runs; None if they do not tell."""
    if not database(runs).exists():
        return None
    first, most = len(plan.spec.seeds), 0
    for result in _first_stage(plan, until, runs=runs):
        need = needed_for(result, half_width=until.half_width, first=first)
        if not isinstance(need, str) and need.seeds is not None:
            most = max(most, min(need.seeds, until.at_most))
    return most - first if most else None


def decision_words(decision: DecisionRecord) -> Iterator[str]:
    """Yield a sentence on each recipe, and one on the seeds that follow."""
    for need in decision.needed:
        has = (
            "" if need.half_width is None else f", interval {spread(need.half_width)} with {len(decision.first)} seeds"
        )
        wants = (
            need.reason if need.seeds is None else f"{need.seeds} are needed for {spread(decision.asked.half_width)}"
        )
        yield f"until: {need.recipe}{has}; {wants}"
    if not decision.added:
        yield "until: no seeds are added"
        return
    short = any((need.seeds or 0) > decision.at_most for need in decision.needed)
    yield (
        f"until: {len(decision.added)} more seeds of the baseline and {', '.join(decision.of)}, decided once by the"
        f" two-stage rule (Stein): {', '.join(map(str, decision.added))}"
        + (f"; at_most {decision.at_most} does not allow what is needed" if short else "")
    )


def _joined(first: Summary, second: Summary) -> Summary:
    """Return the outcome of both stages."""
    return replace(
        second,
        executed=first.executed + second.executed,
        warnings=first.warnings + second.warnings,
        seconds=first.seconds + second.seconds,
    )

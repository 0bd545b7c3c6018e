"""Tuning of a sweep: an ordinary sweep over recipes x points, and the choice of each recipe's values from its results.

`tuned.json` is written last, so a tuning that was killed continues from its finished runs. It names what was asked by
its digest, so a specification that changes is tuned again; runs that both have in common are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

from explorer import run_files, rundir
from explorer.errors import SweepError
from explorer.recipes.recipe import Recipe
from explorer.run_files import Metric, ResultRecord
from explorer.search.optuna_sampler import OptunaSampler
from explorer.search.tuning import Values, best, edges, points
from explorer.sweep.chosen import question, tunable, valued
from explorer.sweep.compose import fitting
from explorer.sweep.execute import Summary
from explorer.sweep.plan import Plan, PlannedRun, make_plan
from explorer.sweep.spec import SweepSpec, read_spec
from explorer.sweep.tune_key import QUASI_RANDOM, Axis, Tune
from explorer.sweep.tuned import FILE, EdgeRecord, PointRecord, TunedRecipe, TunedRecord
from explorer.yaml_document import document_of

ENDED = ("done", "diverged")  # states of runs that say what a point is worth

Points = Mapping[str, Sequence[Values]]  # of each recipe, in the order in which they are tried


def tuning_name(sweep: str) -> str:
    """Return the name of the sweep of tuning runs."""
    return fitting(f"{sweep}-tune")


def tuning_plan(spec: SweepSpec, *, runs: Path, data: Path | None, tried: Points | None = None) -> Plan:
    """Plan the tuning runs of these points; of a sampler that goes by results, as many points as are known.

    Of each recipe the first point is rehearsed: other points are as quick to build.
    """
    first = {name: own[:1] for name, own in (tried or first_points(spec)).items()}
    begun = make_plan(_tuning_spec(spec, first), runs=runs, data=data)
    if tried is None:
        tried = first_points(spec)
    planned = make_plan(_tuning_spec(spec, tried), runs=runs, data=data, rehearsed=True)
    return replace(planned, warnings=begun.warnings)


def first_points(spec: SweepSpec) -> dict[str, list[Values]]:
    """Return the points that do not depend on results: all of them, or the first of a sampler that goes by results."""
    tune = _asked(spec)
    if tune.sampler == QUASI_RANDOM:
        return {recipe.name: points(_axes(tune, recipe), tune.runs) for recipe in tunable(spec)}
    return {recipe.name: [OptunaSampler(tune.sampler, _axes(tune, recipe)).ask()] for recipe in tunable(spec)}


def tune(spec: SweepSpec, *, runs: Path, data: Path | None, execute: Callable[[Plan], Summary]) -> TunedRecord | None:
    """Tune every recipe, write `tuned.json` and return it; None where runs are missing or failed.

    `execute` runs a plan. Raises `SweepError` for a recipe all of whose points diverged.
    """
    asked = _asked(spec)
    if asked.sampler == QUASI_RANDOM:
        tried: Points = first_points(spec)
        planned = _executed(tuning_plan(spec, runs=runs, data=data, tried=tried), execute)
    else:
        tried, planned = _in_turn(spec, asked, runs=runs, data=data, execute=execute)
    if planned is None:
        return None
    record = _decided(spec, tried, planned)
    rundir.write_json(runs / spec.name / FILE, run_files.to_json(record))
    return record


def _in_turn(
    spec: SweepSpec, asked: Tune, *, runs: Path, data: Path | None, execute: Callable[[Plan], Summary]
) -> tuple[Points, Plan | None]:
    """Run the points of a sampler that goes by results: one of every recipe, then the next."""
    studies = {recipe.name: OptunaSampler(asked.sampler, _axes(asked, recipe)) for recipe in tunable(spec)}
    tried: dict[str, list[Values]] = {name: [] for name in studies}
    planned = None
    for at in range(asked.runs):
        for name, study in studies.items():
            tried[name].append(study.ask())
        planned = make_plan(_tuning_spec(spec, tried), runs=runs, data=data, rehearsed=at > 0)
        planned = _executed(planned, execute)
        if planned is None:
            return tried, None
        for name, study in studies.items():
            study.tell(_signed(planned, _runs_of(planned, name, tried[name], at)))
    return tried, planned


def _executed(planned: Plan, execute: Callable[[Plan], Summary]) -> Plan | None:
    """Run what is missing of a plan and return it with the new states; None if a run has not ended."""
    if any(run.state not in ENDED for run in planned.runs):
        execute(planned)
        runs, data, targets = planned.directory.parent, planned.data, planned.targets
        planned = make_plan(planned.spec, runs=runs, data=data, rehearsed=True, targets=targets)
    return planned if all(run.state in ENDED for run in planned.runs) else None


def _tuning_spec(spec: SweepSpec, tried: Points) -> SweepSpec:
    """Return the sweep of the tuning runs: each point of a recipe is a recipe."""
    asked = _asked(spec)
    recipes = {
        _point_name(recipe.name, at): valued(recipe, values, where=spec.source)
        for at in range(max(map(len, tried.values())))
        for recipe in tunable(spec)
        for values in tried[recipe.name][at : at + 1]
        if tried[recipe.name].index(values) == at  # equal points, of a short list of choices, share their runs
    }
    content = {key: spec.content[key] for key in ("task", "train", "threads", "governance") if key in spec.content}
    content |= {"name": tuning_name(spec.name), "baseline": _point_name(spec.baseline, 0), "recipes": recipes}
    content |= {"budgets": [asked.budget], "seeds": list(asked.seeds)}
    return replace(
        read_spec(document_of(content, where=spec.source)), governance=spec.governance, on=spec.on, tunes=spec.name
    )


def _point_name(recipe: str, at: int) -> str:
    return fitting(f"{recipe}-p{at + 1:03}")


def _asked(spec: SweepSpec) -> Tune:
    if spec.tune is None:
        raise SweepError(f"{spec.source}: tune: missing: expected what to tune, such as {{space: {{lr: [0.03, 0.3]}}}}")
    return spec.tune


def _axes(asked: Tune, recipe: Recipe) -> tuple[Axis, ...]:
    return asked.axes(recipe.name, [method.name for method in recipe.methods])


# --- the choice ---


def _runs_of(planned: Plan, recipe: str, own: Sequence[Values], at: int) -> list[PlannedRun]:
    """Return the runs of a point, or of the first one that is equal to it."""
    name = _point_name(recipe, own.index(own[at]))
    return [run for run in planned.runs if run.record.recipe == name]


def _metric(planned: Plan) -> Metric:
    record = planned.runs[0].record
    metric = record.metric(record.quality)
    assert metric is not None
    return metric


def _result(run: PlannedRun) -> ResultRecord | None:
    return run_files.read(ResultRecord, run.directory / rundir.RESULT) if run.state == "done" else None


def _quality(planned: Plan, own: Sequence[PlannedRun]) -> float | None:
    """Return the mean quality of a point; None if a run of it diverged."""
    results = [_result(run) for run in own]
    name = planned.runs[0].record.quality
    values = [result.metrics[name] for result in results if result is not None]
    return fmean(values) if len(values) == len(own) else None


def _signed(planned: Plan, own: Sequence[PlannedRun]) -> float | None:
    quality = _quality(planned, own)
    return quality if quality is None or _metric(planned).higher_is_better else -quality


def _decided(spec: SweepSpec, tried: Points, planned: Plan) -> TunedRecord:
    asked, contended = _asked(spec), False
    recipes = []
    for recipe in tunable(spec):
        own = tried[recipe.name]
        runs = [_runs_of(planned, recipe.name, own, at) for at in range(len(own))]
        chosen = best([_signed(planned, of_point) for of_point in runs])
        if chosen is None:
            raise SweepError(
                f"{spec.source}: tune: every point of the recipe {recipe.name!r} diverged at budget {asked.budget:g};"
                " expected a space with smaller learning rates"
            )
        recipes.append(
            TunedRecipe(
                recipe=recipe.name,
                points=tuple(_point(planned, values, mine) for values, mine in zip(own, runs, strict=True)),
                chosen=chosen,
                edges=tuple(EdgeRecord(**asdict(edge)) for edge in edges(_axes(asked, recipe), own, chosen)),
            )
        )
        results = (_result(run) for of_point in runs for run in of_point)
        contended |= any(result.contended for result in results if result is not None)
    return TunedRecord(
        question=question(spec),
        sweep=planned.spec.name,
        sampler=asked.sampler,
        runs=asked.runs,
        budget=asked.budget,
        seeds=asked.seeds,
        metric=_metric(planned),
        hardware=planned.runs[0].record.hardware,
        contended=contended,
        recipes=tuple(recipes),
    )


def _point(planned: Plan, values: Values, own: Sequence[PlannedRun]) -> PointRecord:
    results = [result for run in own if (result := _result(run)) is not None]
    return PointRecord(
        values=values,
        quality=_quality(planned, own),
        seconds=sum(result.timings.training() for result in results),
        steps=sum(run.record.steps for run in own),
        runs=tuple(run.record.run_id for run in own),
    )

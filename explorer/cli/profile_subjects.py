"""What `explorer profile` measures: each recipe once, however it was named, with the budgets that are asked about."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from explorer import records, rundir
from explorer.cli.training import planned_from
from explorer.document import read_document
from explorer.errors import RecipeError
from explorer.records import ProfileRecord, ResultRecord, RunRecord, Validation
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec
from explorer.training.profile import plan_here, validation
from explorer.training.single import Planned


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A recipe on this machine: a run of it as planned, and the runs at the budgets asked about."""

    planned: Planned
    runs: tuple[RunRecord, ...]
    finished: tuple[tuple[RunRecord, ResultRecord], ...] = ()  # those of the files named that are

    @property
    def longest(self) -> RunRecord:
        return max(self.runs, key=lambda run: run.steps)

    def compared(self, profile: ProfileRecord) -> Validation | None:
        """The longest finished run beside the profile. None: there is none that was alone, on a machine and software
        like these, without a phase that was not profiled."""
        fit = [
            (run, result)
            for run, result in self.finished
            if run.recipe_digest == profile.recipe_digest and set(run.phases) <= set(profile.phases)
            if result.timed_steps and not result.contended
        ]
        if not fit:
            return None
        run, result = max(fit, key=lambda pair: pair[0].steps)
        return validation(run, result, profile)


def subjects_of(
    paths: Iterable[Path], *, budgets: Sequence[float] | None, data: Path | None, governance: Path | None, runs: Path
) -> list[Subject]:
    """The recipes in these files: recipes, specifications of sweeps, records of runs. Each recipe comes once.

    Raises what planning raises, and `RunError` for a record whose data or documents are not those here.
    """
    found: dict[str, Subject] = {}
    for path in paths:
        planned = _of_sweep(path, data, governance, runs) or [planned_from(path, data, governance)]
        for each in planned:
            asked = sorted(set(budgets)) if budgets else [each.record.ssr]
            here = tuple(plan_here(each.record, data=data, documents=each.documents, ssr=ssr) for ssr in asked)
            known = found.get(key := here[0].recipe_digest, Subject(planned=each, runs=()))
            at = {run.ssr: run for run in (*known.runs, *here)}
            found[key] = replace(
                known, runs=tuple(at.values()), finished=(*known.finished, *_finished(path, each.record))
            )
    return list(found.values())


def _of_sweep(path: Path, data: Path | None, governance: Path | None, runs: Path) -> list[Planned]:
    """A run of each recipe and budget of a sweep; none if the file is no specification of one."""
    if path.suffix == ".json":
        return []
    content = read_document(path).value
    if not (isinstance(content, dict) and "recipes" in content):
        return []
    if governance is not None:
        raise RecipeError(f"{path}: --governance is for a recipe; the specification of a sweep names its documents")
    plan = make_plan(load_spec(path), runs=runs, data=data)
    chosen = {(run.record.recipe_digest, run.record.ssr): run for run in plan.runs}
    return [Planned(record=run.record, documents=run.documents) for run in chosen.values()]


def _finished(path: Path, record: RunRecord) -> list[tuple[RunRecord, ResultRecord]]:
    """The run whose record this is, if its result is beside it."""
    beside = path.with_name(rundir.RESULT)
    if path.name != rundir.RUN or not beside.exists():
        return []
    return [(record, records.read(ResultRecord, beside))]

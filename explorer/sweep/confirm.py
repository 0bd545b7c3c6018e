"""The sweep that confirms a recipe of another: the baseline and the recipe alone, on seeds that neither has seen.

The best of many recipes was chosen by noise too, so it looks better than it is. Run once more on fresh seeds it is only
as good as it is, and the fresh seeds alone are reported.
"""

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from explorer import rundir
from explorer.costing import train_seconds
from explorer.errors import RunError, SweepError, unknown
from explorer.planned import read_plan
from explorer.recipes.recipe import Recipe
from explorer.run_files import RunRecord
from explorer.sweep.compose import fitting
from explorer.sweep.plan import Plan, PlannedRun
from explorer.sweep.profiles import read_profiles
from explorer.sweep.spec import SweepSpec, load_spec
from explorer.training.run_plan import MAX_SEED

SEEDS = 3
MAX_SEEDS = 1000
KEPT = ("task", "train", "baseline", "tuning", "budgets", "threads")  # of the sweep's specification, as they are
_NAME = re.compile(r"[a-z][a-z_]*")
_SEED = re.compile(r"-s(\d{1,10})-[0-9a-f]{8}\Z")  # in the name of a run directory


def confirmation(runs: Path, sweep: str, recipe: str, *, seeds: int = SEEDS) -> dict[str, Any]:
    """Return the specification that confirms a recipe of a sweep which was started in `runs/<sweep>`.

    Its seeds are the least that no run of the sweep has, nor any other run of the two recipes; those with which it was
    started before are kept, so that it continues where it stopped. Raises `SweepError` for a sweep or a recipe that is
    not there, and for a recipe with which there is nothing to confirm.
    """
    if not 1 <= seeds <= MAX_SEEDS:
        raise SweepError(f"seeds: found {seeds}; expected a whole number from 1 to {MAX_SEEDS}")
    recorded = started(runs, sweep)
    spec = load_spec(recorded["spec"])
    chosen = _chosen(spec, recipe)
    name = fitting(f"{sweep}-confirm-{recipe}")
    used = _used(runs, sweep, _digests(recorded, (spec.baseline, recipe)), but=name)
    before = _before(runs / name)
    free = (seed for seed in itertools.count() if seed not in used and seed not in before)
    fresh = [*before, *itertools.islice(free, max(0, seeds - len(before)))]
    if max(fresh) > MAX_SEED or used & set(before):
        raise SweepError(f"{runs / name}: its seeds are not fresh, or there is no seed left; rename or remove it")
    base = next(recipe_ for recipe_ in spec.recipes if recipe_.name == spec.baseline)
    content: dict[str, Any] = {"name": name}
    content |= {key: recorded["spec"][key] for key in KEPT if key in recorded["spec"]}
    content["recipes"] = {recipe.name: _written(recorded["spec"], recipe) for recipe in (base, chosen)}
    content["seeds"] = fresh
    if spec.governance is not None:
        content["governance"] = _seen_from(runs, recorded["source"], recorded["spec"]["governance"])
    return content


def written(content: Mapping[str, Any], *, recipe: str, of: str) -> str:
    """Return the specification as YAML."""
    title = f"# {recipe} of {of} and its baseline once more, on seeds that had no part in choosing it.\n"
    return title + yaml.dump(dict(content), Dumper=_Plain, sort_keys=False, allow_unicode=False, width=110)


def started(runs: Path, sweep: str) -> dict[str, Any]:
    """Return the plan with which a sweep was started. Raises `SweepError` that names the sweeps there are."""
    known = [path.parent.name for path in runs.glob(f"*/{rundir.SWEEP}")]
    if sweep not in known:
        raise SweepError(f"{runs}: {unknown('sweep', sweep, known)}")
    plan = read_plan(runs / sweep)
    if not isinstance(plan.get("source"), str) or not all(
        isinstance(run.get("recipe_digest"), str) for run in plan["runs"]
    ):
        raise SweepError(f"{runs / sweep / rundir.SWEEP}: damaged; `explorer sweep run` writes it again")
    return plan


def check_same(planned: Plan, recorded: Mapping[str, Any]) -> None:
    """Refuse a plan whose recipes are not those that the sweep ran: of other code, data, documents or another machine.

    Raises `SweepError` that names what is another.
    """
    then = {run["recipe"]: run for run in recorded["runs"]}
    for record in (run.record for run in planned.runs):
        earlier = then.get(record.recipe)
        if earlier is None or earlier["recipe_digest"] != record.recipe_digest:
            directory = planned.directory.parent / recorded["name"] / (earlier["run_id"] if earlier else "")
            raise SweepError(
                f"recipe {record.recipe!r}: not what it was in {recorded['name']}, so running it would confirm"
                f" something else; {_other(directory, record)}"
            )


def timed(planned: Plan, sweep: Path) -> Plan:
    """Return the plan with the step times of the sweep that is confirmed, for runs about which nothing else is
    known."""
    profiles = read_profiles(sweep)

    def known(run: PlannedRun) -> PlannedRun:
        profile = profiles.get(run.record.recipe_digest)
        if run.seconds is not None or profile is None or not set(run.record.phases) <= set(profile.phases):
            return run
        return replace(run, seconds=train_seconds(run.record.phases, profile.phases).seconds, source="profiled")

    return replace(planned, runs=tuple(map(known, planned.runs)))


def _other(directory: Path, record: RunRecord) -> str:
    """Return what is another than in a run of the sweep, as far as that run says."""
    try:
        then = rundir.read_json(directory / rundir.RUN)["identity"]
        names = [key for key in record.identity if key not in ("ssr", "seed") and record.identity[key] != then.get(key)]
    except (RunError, KeyError, TypeError, AttributeError):
        return f"what is another cannot be told: {directory / rundir.RUN} is absent or damaged"
    return f"another by now: {', '.join(names)}"


def _chosen(spec: SweepSpec, name: str) -> Recipe:
    candidates = {recipe.name: recipe for recipe in spec.recipes if recipe.name not in spec.twins}
    if name in spec.twins:
        raise SweepError(f"{name!r} is a control of {', '.join(spec.twins[name])}; a control is not confirmed")
    if name not in candidates:
        raise SweepError(unknown("recipe", name, candidates))
    if name == spec.baseline:
        raise SweepError(f"{name!r} is the baseline, which recipes are compared with; there is nothing to confirm")
    return candidates[name]


def _written(spec: Mapping[str, Any], recipe: Recipe) -> Any:
    """Return the recipe as the specification has it; one that was composed in full."""
    if recipe.name in spec["recipes"]:
        return spec["recipes"][recipe.name]
    whole = recipe.to_mapping()
    return {"train": whole["train"], "methods": whole["methods"]}


def _digests(plan: Mapping[str, Any], recipes: tuple[str, ...]) -> set[str]:
    """Return what determines the results of these recipes but budget and seed, as the plan has recorded it."""
    return {run["recipe_digest"] for run in plan["runs"] if run["recipe"] in recipes}


def _used(runs: Path, sweep: str, digests: set[str], *, but: str) -> set[int]:
    """Return the seeds of every run of the sweep, and of all runs of these recipes in other sweeps but one."""
    used = {int(found[1]) for path in rundir.run_directories(runs / sweep) if (found := _SEED.search(path.name))}
    for path in runs.glob(f"*/{rundir.SWEEP}"):
        if path.parent.name != but:
            used |= {
                run["seed"]
                for run in read_plan(path.parent)["runs"]
                if path.parent.name == sweep or run.get("recipe_digest") in digests
            }
    return used


def _before(directory: Path) -> list[int]:
    """Return the seeds with which the confirmation was started before, in order."""
    if not (directory / rundir.SWEEP).exists():
        return []
    return list(dict.fromkeys(run["seed"] for run in read_plan(directory)["runs"]))


def _seen_from(runs: Path, source: str, governance: str) -> str:
    """Return the directory of documents as a specification in `runs` sees it, given how another one sees it."""
    return os.path.relpath(Path(source).parent / governance, runs)


class _Plain(yaml.SafeDumper):
    """Writes texts so that `document` reads them as texts: in quotes, but for names that cannot be anything else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _NAME.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _represent_text)

"""Confirmation of a recipe: a sweep of only the baseline and that recipe, on seeds that neither has been run with.

The best of many recipes was chosen partly by noise, so its result is biased upwards (the winner's curse). A second run
on fresh seeds removes that bias, so only the fresh seeds are reported.
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
from explorer.sweep.chosen import started_spec
from explorer.sweep.commands.command_task import CommandRecipe
from explorer.sweep.compose import fitting
from explorer.sweep.plan import Plan, PlannedRun
from explorer.sweep.profiles import read_profiles
from explorer.sweep.spec import SweepSpec
from explorer.sweep.status import state_of
from explorer.training.run_plan import MAX_SEED

SEEDS = 3  # unless the user asks for another number
MAX_SEEDS = 1000
KEPT = (
    "task",
    "train",
    "set",
    "scale",
    "baseline",
    "tuning",
    "budgets",
    "threads",
)  # keys copied from the sweep's specification
_NAME = re.compile(r"[a-z][a-z_]*")
_SEED = re.compile(r"-s(\d{1,10})-[0-9a-f]{8}\Z")  # in the name of a run directory


def confirmation(runs: Path, sweep: str, recipe: str, *, seeds: int = SEEDS) -> dict[str, Any]:
    """Return the specification that confirms a recipe of the sweep in `runs/<sweep>`.

    Its seeds are the smallest that no run of the sweep and no other run of the two recipes has. A confirmation that was
    started before keeps its seeds, so that it continues where it stopped. Once all of it is done, further seeds are a
    sweep of their own: they were asked for after a look at the first ones, and must show it.

    Raises `SweepError` for an unknown sweep or recipe, and for a recipe that cannot be confirmed: the baseline or a
    control.
    """
    if not 1 <= seeds <= MAX_SEEDS:
        raise SweepError(f"seeds: found {seeds}; expected a whole number from 1 to {MAX_SEEDS}")
    recorded = started(runs, sweep)
    spec, whole = started_spec(recorded, where=str(runs / sweep / rundir.SWEEP))
    chosen = _chosen(spec, recipe)
    name, finished = _round(runs, f"{sweep}-confirm-{chosen.name}", seeds)
    used = used_seeds(runs, sweep, _digests(recorded, (spec.baseline, recipe)), but=name)
    # Seeds of an earlier start come first; then the smallest free ones.
    before = _before(runs / name)
    free = (seed for seed in itertools.count() if seed not in used and seed not in before)
    fresh = [*before, *itertools.islice(free, max(0, seeds - finished - len(before)))]
    if max(fresh) > MAX_SEED or used & set(before):
        raise SweepError(
            f"{runs / name}: its seeds are no longer fresh, or no seed up to {MAX_SEED} is left; rename or remove it"
        )
    # The recipes are copied as their author wrote them, so that the confirmation trains the same thing.
    base = next(recipe_ for recipe_ in spec.trained if recipe_.name == spec.baseline)
    content: dict[str, Any] = {"name": name}
    content |= {key: whole[key] for key in KEPT if key in whole}
    content["recipes"] = {recipe.name: _written(whole, recipe) for recipe in (base, chosen)}
    content["seeds"] = fresh
    if spec.search is not None:
        content["budgets"] = list(spec.budgets)  # those of its ladder
    if spec.command is not None:
        # Labels that were left out follow from the sweep's name, and the paths are seen from its file.
        written = recorded["spec"]["task"]
        place = _seen_from(runs, recorded["source"], written.get("directory", "."))
        labels = {"dataset": spec.command.dataset, "model": spec.command.model}
        content["task"] = {**written, **labels, "directory": place}
    if len(spec.on) == 1:  # of several classes it is for this machine's
        (on,) = spec.on
        probe = None if on.probe is None else _seen_from(runs, recorded["source"], str(on.probe))
        content["on"] = [{"name": on.name} if probe is None else {"probe": probe}]
    if spec.governance is not None:
        content["governance"] = _seen_from(runs, recorded["source"], recorded["spec"]["governance"])
    return content


def written(content: Mapping[str, Any], *, recipe: str, of: str) -> str:
    """Return the specification as YAML."""
    title = f"# {recipe} of {of} and its baseline again, on seeds that played no part in choosing it.\n"
    return title + yaml.dump(dict(content), Dumper=_Plain, sort_keys=False, allow_unicode=False, width=110)


def started(runs: Path, sweep: str) -> dict[str, Any]:
    """Return the plan that a sweep was started with. Raises `SweepError`, which names the known sweeps."""
    known = [path.parent.name for path in runs.glob(f"*/{rundir.SWEEP}")]
    if sweep not in known:
        if sweep in (path.parent.parent.name for path in runs.glob(f"*/*/{rundir.RUN}")):
            raise SweepError(
                f"{runs / sweep}: a program made its runs, by explorer.train or explorer.begin, and only that program"
                " can make more: run it with fresh seeds"
            )
        raise SweepError(f"{runs}: {unknown('sweep', sweep, known)}")
    plan = read_plan(runs / sweep)
    if not isinstance(plan.get("source"), str) or not all(
        isinstance(run.get("recipe_digest"), str) for run in plan["runs"]
    ):
        raise SweepError(f"{runs / sweep / rundir.SWEEP}: damaged; `explorer sweep run` writes it again")
    return plan


def check_same(planned: Plan, recorded: Mapping[str, Any]) -> None:
    """Refuse a plan whose recipes differ from those that the sweep ran: other code, data, documents or hardware.

    Raises `SweepError`, which names what differs.
    """
    then = {run["recipe"]: run for run in recorded["runs"]}
    same = {(run["recipe"], run["recipe_digest"]) for run in recorded["runs"]}  # of one class or several
    for record in (run.record for run in planned.runs):
        earlier = then.get(record.recipe)
        if (record.recipe, record.recipe_digest) not in same:
            directory = planned.directory.parent / recorded["name"] / (earlier["run_id"] if earlier else "")
            raise SweepError(
                f"recipe {record.recipe!r} is not what it was in {recorded['name']}, so running it would confirm"
                f" something else; {_difference(directory, record)}"
            )


def timed(planned: Plan, sweep: Path) -> Plan:
    """Return the plan with step times of the confirmed sweep, for runs that have no estimate of their own."""
    profiles = read_profiles(sweep)

    def known(run: PlannedRun) -> PlannedRun:
        profile = profiles.get(run.record.recipe_digest)
        if run.seconds is not None or profile is None or not set(run.record.phases) <= set(profile.phases):
            return run
        return replace(run, seconds=train_seconds(run.record.phases, profile.phases).seconds, source="profiled")

    return replace(planned, runs=tuple(map(known, planned.runs)))


def _difference(directory: Path, record: RunRecord) -> str:
    """Name the parts of the recipe's identity that have changed since the run in `directory`."""
    try:
        then = rundir.read_json(directory / rundir.RUN)["identity"]
        # Budget and seed differ between any two runs of a recipe.
        names = [key for key in record.identity if key not in ("ssr", "seed") and record.identity[key] != then.get(key)]
    except (RunError, KeyError, TypeError, AttributeError):
        return f"the difference is unknown, because {directory / rundir.RUN} is absent or damaged"
    return f"changed since then: {', '.join(names)}"


def _chosen(spec: SweepSpec, name: str) -> Recipe | CommandRecipe:
    candidates = {recipe.name: recipe for recipe in spec.trained if recipe.name not in spec.twins}
    if name in spec.twins:
        raise SweepError(f"{name!r} is a control of {', '.join(spec.twins[name])}; controls cannot be confirmed")
    if spec.search is not None and (methods := spec.search.named(name)):
        return spec.search.recipe(methods)
    if name not in candidates:
        raise SweepError(unknown("recipe", name, candidates if spec.search is None else spec.search.names))
    if name == spec.baseline:
        raise SweepError(f"{name!r} is the baseline, so there is nothing to confirm; name another recipe")
    return candidates[name]


def _written(spec: Mapping[str, Any], recipe: Recipe | CommandRecipe) -> Any:
    """Return the recipe as it is written in the specification; a composed one, which is not there, in full."""
    if recipe.name in spec["recipes"]:
        return spec["recipes"][recipe.name]
    whole = recipe.to_mapping()
    return {"model": whole["task"]["model"], "train": whole["train"], "methods": whole["methods"]}


def _digests(plan: Mapping[str, Any], recipes: tuple[str, ...]) -> set[str]:
    """Return the recorded digests of these recipes, which cover all that determines a result but budget and seed."""
    return {run["recipe_digest"] for run in plan["runs"] if run["recipe"] in recipes}


def used_seeds(runs: Path, sweep: str, digests: set[str], *, but: str = "") -> set[int]:
    """Return the seeds of every run of the sweep, and of runs of these recipes in all other sweeps except `but`."""
    # Directories count too, because runs of earlier specifications are in no plan.
    used = {int(match[1]) for path in rundir.run_directories(runs / sweep) if (match := _SEED.search(path.name))}
    for path in runs.glob(f"*/{rundir.SWEEP}"):
        if path.parent.name != but:
            used |= {
                run["seed"]
                for run in read_plan(path.parent)["runs"]
                if path.parent.name == sweep or run.get("recipe_digest") in digests
            }
    return used


def _round(runs: Path, name: str, seeds: int) -> tuple[str, int]:
    """Return the name of the round of a confirmation that has to run, and the number of seeds of those before it.

    It is the last one, or one more if that is done and `seeds` ask for more than all of them have.
    """
    finished = 0
    for number in itertools.count(1):
        own = fitting(name if number == 1 else f"{name}-{number}")
        count = len(_before(runs / own))
        done = count and all(state_of(runs / own / run["run_id"])[0] == "done" for run in read_plan(runs / own)["runs"])
        if not done or finished + count >= seeds:
            return own, finished
        finished += count
    raise AssertionError  # the count has no end


def _before(directory: Path) -> list[int]:
    """Return the seeds that the confirmation was started with before, in order."""
    if not (directory / rundir.SWEEP).exists():
        return []
    return list(dict.fromkeys(run["seed"] for run in read_plan(directory)["runs"]))


def _seen_from(runs: Path, source: str, directory: str) -> str:
    """Return a directory, which `source` names from its own place, relative to `runs`."""
    return os.path.relpath(Path(source).parent / directory, runs)


class _Plain(yaml.SafeDumper):
    """Writer of strings that read back as strings: quoted, unless a plain name cannot be taken for anything else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _NAME.fullmatch(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Plain.add_representer(str, _represent_text)

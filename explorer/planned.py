"""The run directories of a sweep: those of its plan, and those that an earlier specification left behind.

`sweep.json` is the plan that the sweep was last started with, and it decides which runs are shown. Every run directory
of the sweep is one of these:

planned      the plan has its run id. A run whose recipe was renamed is the same run: its recipe digest, budget and seed
             are those of the plan
elsewhere    trained on a machine of no class of the plan, but the run has an effective recipe, a budget and a seed of
             the plan, and as many threads. The budgets of rescaled baselines differ between machines
apart        not from a specification: `explorer.train` or a deletion made it
superseded   from an earlier specification, version of the code or data, or measurement of step times

This module reads only the JSON files, so that `explorer sweep status` stays quick.
"""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.canonical import digest
from explorer.errors import ExplorerError, RunError, SweepError

OF_ONE_RUN = frozenset({"hardware", "versions", "ssr", "seed", "initial"})
"""The parts of a run's identity in which runs of the same effective recipe may differ."""


def effective_digest(identity: Mapping[str, Any]) -> str:
    """Return the digest of the effective recipe of a run: model, data and training, on whatever machine.

    It covers batch size, precision, methods, data and governance, and not the machine, its software, budget and seed.
    """
    return digest({name: value for name, value in identity.items() if name not in OF_ONE_RUN})


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """The facts of a run directory that decide its place in a plan."""

    name: str  # of the directory, which is the run's id
    recipe_digest: str
    effective: str
    ssr: float
    seed: int
    device: str
    hardware: str
    threads: int
    control: str | None
    apart: bool  # it comes from no specification


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """Place of a run in a plan. `entry` is its entry in the plan; None for a run that is apart or superseded."""

    superseded: bool
    entry: Mapping[str, Any] | None = None


def is_own(identity: Mapping[str, Any]) -> bool:
    """Return whether `explorer.train` made the run: its task is the user's own."""
    recipe = identity.get("recipe")
    task = recipe.get("task") if isinstance(recipe, Mapping) else None
    return isinstance(task, Mapping) and "own" in task


def standings(plan: Mapping[str, Any], runs: Iterable[Described]) -> dict[str, Standing]:
    """Return the place of each run directory of a sweep in its plan, which `read_plan` has read, by name."""
    described = {run.name: run for run in runs}
    by_id = {entry["run_id"]: entry for entry in plan["runs"]}
    standing_of = {name: Standing(superseded=False, entry=by_id[name]) for name in described if name in by_id}
    # A renamed recipe has another run id: planned runs without a directory are found by digest, budget and seed.
    absent = {_key(entry): entry for entry in plan["runs"] if entry["run_id"] not in described}
    machines = _machines(plan, [described[name] for name in standing_of])
    recipes = {entry.get("effective"): entry for entry in plan["runs"]}
    elsewhere = {(entry.get("effective"), entry["ssr"], entry["seed"]) for entry in plan["runs"]}
    # The order matters: a run of the plan, a run apart from sweeps, one that the plan lists under another id, one of
    # this machine that the plan no longer has. The rest is from other machines, where ids and step times differ.
    for name, run in described.items():
        if name in standing_of:
            continue
        if run.apart:
            standing_of[name] = Standing(superseded=False)
        elif (key := (run.recipe_digest, float(run.ssr), run.seed)) in absent:
            standing_of[name] = Standing(superseded=False, entry=absent.pop(key))
        elif (run.device, run.hardware) in machines or not machines:
            standing_of[name] = Standing(superseded=True)
        elif None in recipes:  # a plan of an older version has no effective digests to recognise a run by
            standing_of[name] = Standing(superseded=False)
        else:
            same = (run.effective, run.ssr, run.seed) in elsewhere or (
                run.control == "rescaled-baseline" and run.effective in recipes
            )
            same = same and run.threads == _threads(plan)
            standing_of[name] = Standing(superseded=not same, entry=_without_control(recipes, run) if same else None)
    return standing_of


def superseded(directory: Path, plan: Mapping[str, Any]) -> list[Path]:
    """Return the run directories of a sweep that its plan, or the next one, leaves out.

    A directory whose `run.json` cannot be read is not among them, because its run is unknown.
    """
    directories, planned = rundir.run_directories(directory), {entry["run_id"] for entry in plan["runs"]}
    # A run of the plan is never left out, and most sweeps have no other: thousands of records need not be read.
    if all(path.name in planned for path in directories):
        return []
    runs = [described for path in directories if (described := describe(path)) is not None]
    return [directory / name for name, standing in standings(plan, runs).items() if standing.superseded]


def describe(directory: Path) -> Described | None:
    """Return the facts of a run directory; None if it cannot be read or has another run's record."""
    try:
        record = rundir.read_json(directory / rundir.RUN)
        identity, hardware = record["identity"], record["hardware"]
        if record["run_id"] != directory.name:
            return None
        return Described(
            name=directory.name,
            recipe_digest=str(record["recipe_digest"]),
            effective=effective_digest(identity),
            ssr=float(record["ssr"]),
            seed=int(record["seed"]),
            device=str(hardware["device"]),
            hardware=str(hardware["name"]),
            threads=int(hardware["threads"]),
            control=record.get("control"),
            apart=is_own(identity)
            or record["sweep"] != directory.resolve().parent.name
            or (directory / rundir.ORIGIN).exists(),
        )
    except (ExplorerError, KeyError, TypeError, ValueError, AttributeError):
        return None


def left_out_words(count: int, sweep: str, *where: str) -> str:
    """Return the sentence about superseded runs and their removal; empty if there are none.

    `where` are options that name the runs.

    >>> left_out_words(1, "digits")
    '1 run of an earlier specification is left out; `explorer sweep prune digits` lists or removes it'
    """
    if not count:
        return ""
    runs, them = ("run", "it") if count == 1 else ("runs", "them")
    verb = "is" if count == 1 else "are"
    return (
        f"{count} {runs} of an earlier specification {verb} left out;"
        f" `{shlex.join(('explorer', 'sweep', 'prune', *where, sweep))}` lists or removes {them}"
    )


def read_plan(directory: Path) -> dict[str, Any]:
    """Return the content of `sweep.json`. Raises `SweepError` when it is absent or damaged."""
    path = directory / rundir.SWEEP
    if not path.exists():
        raise SweepError(f"{directory}: no sweep was started here; expected {rundir.SWEEP}")
    try:
        plan = rundir.read_json(path)
        check_plan(plan)
    except (RunError, KeyError, TypeError, ValueError) as error:
        raise SweepError(f"{path}: damaged ({error}); `explorer sweep run` writes it again") from error
    return plan


def data_option(spec: Any, data: Path | None = None) -> tuple[str, ...]:
    """Return the option that a command on a sweep, or on a specification, needs to find its data: `--data DIR`.

    `data` is the directory where it is known. None for a dataset that is in the package or in a bucket, and where
    EXPLORER_DATA names the directory.
    """
    task = spec.get("task") if isinstance(spec, Mapping) else None
    dataset = task.get("dataset") if isinstance(task, Mapping) else None
    (name, given), *_ = dataset.items() if isinstance(dataset, Mapping) and dataset else [(dataset, None)]
    path = given.get("path") if isinstance(given, Mapping) else None
    local = name == "cifar10" or (isinstance(path, str) and "://" not in path)
    if data is None and (not local or os.environ.get("EXPLORER_DATA")):
        return ()
    return ("--data", "DIR" if data is None else str(data))


def data_option_of(runs: Path, sweep: str, data: Path | None = None) -> tuple[str, ...]:
    """Return `data_option` of a sweep that was started; without its plan, only a directory that is known."""
    try:
        spec = read_plan(runs / sweep)["spec"]
    except (SweepError, KeyError):
        spec = None
    return data_option(spec, data)


def check_plan(plan: Any) -> None:
    """Raise `KeyError`, `TypeError` or `ValueError` for anything but a plan; keys of later versions are allowed."""
    # A run id becomes a path, so it must not lead out of the sweep's directory.
    for entry in plan["runs"]:
        if not _is_plain(entry["run_id"]):
            raise ValueError(f"{entry['run_id']!r:.80} is not the name of a run directory")
        if not _is_number(entry["ssr"]) or type(entry["seed"]) is not int:
            raise ValueError(f"run {entry['run_id']}: ssr and seed must be numbers")
        if not isinstance(entry["recipe"], str):
            raise ValueError(f"run {entry['run_id']}: the recipe must be a name")
        if not isinstance(entry.get("control"), str | None):
            raise ValueError(f"run {entry['run_id']}: the control must be a name")
        if not all(isinstance(entry.get(key), str | None) for key in ("recipe_digest", "effective")):
            raise ValueError(f"run {entry['run_id']}: digests must be text")
        if not all(isinstance(name, str) for name in entry.get("control_of", ())):
            raise ValueError(f"run {entry['run_id']}: control_of must list names of recipes")
    if not isinstance(plan["name"], str) or not isinstance(plan["spec"], dict):
        raise ValueError("name must be text and spec a mapping")
    if not all(isinstance(plan.get(key), str | None) for key in ("baseline", "tuning", "source", "tunes")):
        raise ValueError("baseline, tuning, source and tunes must be text")
    if not isinstance(plan.get("searched", False), bool):
        raise ValueError("searched must be a truth value")
    machine = plan.get("hardware", {"device": "", "name": "", "threads": 1})
    for hardware in (machine, *(other["hardware"] for other in plan.get("machines", ()))):
        if not isinstance(hardware["device"], str) or not isinstance(hardware["name"], str):
            raise ValueError("every machine must have a device and a name")
    if type(machine["threads"]) is not int or type(plan.get("waiting", 0)) is not int:
        raise ValueError("threads and waiting must be whole numbers")
    until = plan.get("until", {"at_most": 0, "of": (), "first": (), "added": None})
    if type(until["at_most"]) is not int or not all(isinstance(name, str) for name in until["of"]):
        raise ValueError("until must have a number and names of recipes")
    if not all(type(seed) is int for seed in (*until["first"], *(until["added"] or ()))):
        raise ValueError("until must list seeds")
    for left_out in plan.get("not_run", ()):
        if not isinstance(left_out["name"], str) or not isinstance(left_out["reason"], str):
            raise ValueError("every entry of not_run must have a name and a reason")


def _key(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return entry.get("recipe_digest"), float(entry["ssr"]), entry["seed"]


def _machines(plan: Mapping[str, Any], planned: Iterable[Described]) -> set[tuple[str, str]]:
    """Return the machines of the plan; a plan of an older version has only those of its runs."""
    if "hardware" in plan:
        named = (plan["hardware"], *(machine["hardware"] for machine in plan.get("machines", ())))
        return {(hardware["device"], hardware["name"]) for hardware in named}
    return {(run.device, run.hardware) for run in planned}


def _threads(plan: Mapping[str, Any]) -> int | None:
    return plan["hardware"]["threads"] if "hardware" in plan else None


def _without_control(recipes: Mapping[Any, Mapping[str, Any]], run: Described) -> Mapping[str, Any]:
    """Return the plan's entry for a run of another machine, or only its recipe if the run is a control of its own."""
    entry = recipes[run.effective]
    return entry if entry.get("control") == run.control else {"recipe": entry["recipe"]}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_plain(name: Any) -> bool:
    """Return whether a name is a file name that leads to no other directory."""
    return isinstance(name, str) and bool(name) and name == Path(name).name and name[0] not in "._"

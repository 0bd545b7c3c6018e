"""From a run directory, a profile or the plan of a sweep to rows of the working database."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from explorer import run_files, rundir
from explorer.canonical import canonical
from explorer.errors import ExplorerError, RunError
from explorer.planned import read_plan
from explorer.store import governed
from explorer.store.examine import Examined, State, examine, file_digest, version

TABLES = ("runs", "finals", "metrics", "timings", "profiles", "plans", *governed.TABLES)

Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A run directory, a profile or a plan, and how it was found."""

    path: str  # relative to the directory of runs
    kind: str  # "run", "profile" or "plan"
    version: str
    state: str  # a run's `State`; of the others "usable" or "damaged"; "gone"
    problem: str | None = None

    @property
    def sweep(self) -> str | None:
        """The sweep that it is of; None for a profile that was imported."""
        first = self.path.split("/")[0]
        return None if first == rundir.PROFILES else first


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A source and what was read from it, as rows by table."""

    source: Source
    rows: dict[str, list[Row]] = field(default_factory=dict)


def is_settled(runs: Path, known: Source) -> bool:
    """Whether the source is certain to be as it is known: complete, sound, and in the same version."""
    if known.state not in (State.FINISHED, "usable"):
        return False
    try:
        return _version(runs / known.path, known.kind) == known.version
    except RunError:
        return False


def look(runs: Path, path: str) -> Found:
    """Read a source. One that cannot be used comes back as damaged, with the reason."""
    kind = _kind(path)
    try:
        return _READERS[kind](path, runs / path)
    except ExplorerError as error:
        return Found(source=Source(path=path, kind=kind, version="", state=State.DAMAGED, problem=str(error)))


def _kind(path: str) -> str:
    place = PurePosixPath(path)
    if place.parent.name == rundir.PROFILES:
        return "profile"
    return "plan" if place.name == rundir.SWEEP else "run"


def _version(path: Path, kind: str) -> str:
    return version(path) if kind == "run" else file_digest(path)


def _run(path: str, directory: Path) -> Found:
    run = examine(directory)
    source = Source(path=path, kind="run", version=run.version, state=run.state, problem=run.problem)
    if run.state == State.DAMAGED:
        return Found(source=source)
    key = (path, run.version)
    rows = {"runs": [key + _run_columns(run)]}
    if run.result is not None:
        rows["finals"] = [(*key, *final) for final in _finals(run)]
        rows["metrics"] = [(*key, line.step, line.metric, line.value) for line in run.metrics]
        rows["timings"] = [(*key, part, seconds) for part, seconds in dataclasses.asdict(run.result.timings).items()]
        rows |= governed.governed_rows(run.directory, key)
    return Found(source=source, rows=rows)


def _finals(run: Examined) -> Iterator[Row]:
    """Each final metric: name, value, unit, direction, format; the last three None if it is not declared."""
    assert run.record is not None and run.result is not None
    for name, value in run.result.metrics.items():
        kind = run.record.metric(name)
        yield (name, value, *((kind.unit, kind.higher_is_better, kind.format) if kind else (None,) * 3))


def _run_columns(run: Examined) -> Row:
    record, result, failure = run.record, run.result, run.failure
    assert record is not None
    hardware = record.hardware
    return (
        *(record.run_id, record.recipe, record.baseline, record.tuning, record.recipe_digest),
        *(canonical(record.identity).decode(), record.dataset, record.model, "+".join(record.methods)),
        *(record.ssr, record.seed, record.steps, record.batch_size, record.precision),
        *(hardware.device, hardware.name, hardware.threads, hardware.world_size),
        *(record.quality, record.phases),
        *((result.examples, result.timed_steps, result.contended, result.resumed) if result else (None,) * 4),
        *((result.state_digest, result.finished_at) if result else (None,) * 2),
        *((failure.kind, failure.message, failure.attempts) if failure else (None,) * 3),
        *(record.control, "+".join(record.control_of) or None, record.effective_digest),
    )


def _profile(path: str, file: Path) -> Found:
    seen = file_digest(file)
    profile = run_files.read_profile(file)
    canonical(run_files.to_json(profile))  # no number or text that a database would refuse
    if file.name != f"{profile.key}.json":
        raise RunError(f"{file}: holds the profile {profile.key!r}, not the one that the file is named for")
    hardware = profile.hardware
    head = (path, seen, profile.key, profile.recipe_digest, profile.recipe)
    place = (hardware.device, hardware.name, hardware.threads, hardware.world_size, profile.torch)
    end = (profile.inference_seconds, profile.made_at, profile.effective)
    busy = None if profile.watch is None else "; ".join(profile.watch.reasons)
    rows = [
        (
            *(*head, *place, phase, step.seconds, step.low, step.high, step.windows, step.split, *end),
            *(list(step.rounds) or None, profile.profile_pass or None, busy, list(profile.inference_rounds) or None),
        )
        for phase, step in profile.phases.items()
    ]
    return Found(source=Source(path=path, kind="profile", version=seen, state="usable"), rows={"profiles": rows})


def _plan(path: str, file: Path) -> Found:
    """What a plan says of its runs; its specification is left where it is."""
    seen = file_digest(file)
    kept = ("name", "baseline", "tuning", "source", "hardware", "runs", "spec")
    plan = {name: value for name, value in read_plan(file.parent).items() if name in kept} | {"spec": {}}
    row = (path, seen, canonical(plan).decode())
    return Found(source=Source(path=path, kind="plan", version=seen, state="usable"), rows={"plans": [row]})


_READERS = {"run": _run, "profile": _profile, "plan": _plan}

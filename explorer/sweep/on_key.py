"""The key `on` of a sweep: the classes of machines that its runs are planned for, if not the machine that plans them.

    on: [{name: "NVIDIA H200"}]        # hardware that a probe, a finished run or a profile in the directory of runs has
    on: [{probe: hosts/h200.json}]     # what `explorer probe --json` printed there; relative to this file

With several classes every run is planned once for each. Runs are compared within a class, which readers know by its
hardware, so no two classes have the same. Probes in `runs/_probes` are known by the name of their hardware. Nothing
else about a plan differs: runs have the ids that a machine of the class would give them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from explorer import run_files, rundir, schema
from explorer.errors import RunError, SpecError, unknown
from explorer.machine_class import Machine, read_machine
from explorer.recipes.machine import this_machine
from explorer.run_files import ProfileRecord, RunRecord
from explorer.yaml_document import Document

KEYS = ("name", "probe")
EXPECTED = 'expected a list of classes, such as [{name: "NVIDIA H200"}, {probe: hosts/cpu.json}]'
HERE = "this machine"
MAX_NAME = 200
MAX_CLASSES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class On:
    """A class of machines as a specification names it: by its hardware, or by a probe."""

    name: str | None = None
    probe: Path | None = None


class Target(NamedTuple):
    """A machine that runs are planned for, and where it is known from."""

    machine: Machine
    known: str


def read_on(document: Document, content: Mapping[str, Any]) -> tuple[On, ...]:
    """Return the classes that a specification names; none where it leaves the key out. Raises `SpecError`."""
    if "on" not in content:
        return ()
    listed = content["on"]
    if not isinstance(listed, list) or not listed:
        raise document.error(("on",), f"found {listed!r:.80}, {EXPECTED}")
    if len(listed) > MAX_CLASSES:
        raise document.error(("on",), f"found {len(listed)} classes, expected at most {MAX_CLASSES}")
    # Each of these is decided by results, and there would be other results in each class.
    if len(listed) > 1 and (key := next((key for key in ONE_CLASS if key in content), None)) is not None:
        raise document.error((key,), f"{ONE_CLASS[key]}: name one class under 'on', or leave {key!r} out")
    return tuple(_read_class(document, at, one) for at, one in enumerate(listed))


ONE_CLASS = {
    "search": "a search chooses runs by the results of one class",
    "tune": "a tuning chooses values by the results of one class",
    "until": "the number of seeds is decided by the results of one class",
}


def _read_class(document: Document, at: int, one: object) -> On:
    if not isinstance(one, dict) or len(one) != 1:
        raise document.error(("on", at), f"found {one!r:.80}, expected {{name: HARDWARE}} or {{probe: FILE}}")
    ((key, value),) = one.items()
    if key not in KEYS:
        raise document.error(("on", at, key), unknown("key", str(key), KEYS))
    if not isinstance(value, str) or not value or not value.isprintable() or len(value) > MAX_NAME:
        what = "the name of some hardware" if key == "name" else "a file"
        raise document.error(("on", at, key), f"found {value!r:.80}, expected {what}, of at most {MAX_NAME} characters")
    if key == "name":
        return On(name=value)
    return On(probe=(Path() if document.text is None else Path(document.where).parent) / value)


def targets_of(classes: Sequence[On], *, runs: Path, where: str) -> tuple[Target, ...]:
    """Return the machines that a sweep in `runs` is planned for, in the order of its specification.

    Raises `SpecError` that starts with `where`, also for two classes of the same hardware.
    """
    here = this_machine()
    if not classes:
        return (Target(here, HERE),)
    targets = tuple(_target_of(on, here, at=at, runs=runs, where=where) for at, on in enumerate(classes))
    first: dict[str, int] = {}
    for at, (machine, _) in enumerate(targets):
        if (same := first.setdefault(machine.label, at)) != at:
            raise SpecError(
                f"{where}: on[{at}]: found {machine.hardware.name!r}, which on[{same}] names too; runs are compared by"
                " hardware: name it once, or write a specification with a name of its own for each"
            )
    return targets


def _target_of(on: On, here: Machine, *, at: int, runs: Path, where: str) -> Target:
    if on.name == here.hardware.name:
        return Target(here, HERE)
    try:
        if on.probe is not None:
            return Target(read_machine(on.probe), str(on.probe))
        return _named(str(on.name), here, runs=runs, where=where)
    except RunError as error:
        raise SpecError(f"{where}: on[{at}].{'name' if on.probe is None else 'probe'}: {error}") from error


def _named(name: str, here: Machine, *, runs: Path, where: str) -> Target:
    """Return the machine of this name: as a probe has it, else the newest finished run, else a profile."""
    probed = [Target(read_machine(path), str(path)) for path in sorted((runs / rundir.PROBES).glob("*.json"))]
    if same := [target for target in probed if target.machine.hardware.name == name]:
        if any(_bits(target.machine) != _bits(same[0].machine) for target in same):
            files = ", ".join(target.known for target in same)
            raise RunError(f"{files} have {name!r} with different software; write {{probe: FILE}} to choose one")
        return same[0]
    names = [here.hardware.name, *(target.machine.hardware.name for target in probed)]
    for target in _trained(runs):
        names.append(target.machine.hardware.name)
        if names[-1] == name:
            return target
    for profile, path in _profiled(runs):
        names.append(profile.hardware.name)
        # A profile has no version but torch's: the rest can only be taken to be as it is here.
        if names[-1] == name and profile.torch == torch.__version__:
            machine = Machine(hardware=profile.hardware, versions=here.versions)
            return Target(machine, f"{path}; versions but torch's as on {HERE}")
    reason = f"only profiles by another torch than this one have {name!r}" if name in names else None
    raise RunError(
        f"{reason or unknown('hardware', name, set(names))}: run `explorer probe --json` there, and write"
        f" {{probe: FILE}}, or put its output into {runs / rundir.PROBES}"
    )


def _bits(machine: Machine) -> tuple[Any, ...]:
    return machine.hardware.device, machine.versions, machine.torch_build, machine.training_code


def _trained(runs: Path) -> Iterator[Target]:
    """Yield the machines of finished runs, the newest first. A run that cannot be read says nothing about one."""
    results = [(path.stat().st_mtime_ns, path) for path in runs.glob(f"[!_.]*/[!_.]*/{rundir.RESULT}")]
    for _, path in sorted(results, reverse=True):
        try:
            record = run_files.read(RunRecord, path.parent / rundir.RUN)
            environment = rundir.read_json(path.parent / rundir.ENVIRONMENT)
            if isinstance(environment, dict) and isinstance(environment.get("training_code"), str):
                yield Target(_machine_of(record, environment["training_code"], path), f"run {record.run_id}")
        except RunError:
            continue


def _machine_of(record: RunRecord, code: str, path: Path) -> Machine:
    made = {
        "hardware": schema.to_json(record.hardware),
        "versions": record.identity.get("versions"),
        "training_code": code,
    }
    return schema.from_json(Machine, made, where=str(path), error=RunError)


def _profiled(runs: Path) -> Iterator[tuple[ProfileRecord, Path]]:
    """Yield the profiles of all sweeps, and the imported ones."""
    for path in sorted((*runs.glob(f"{rundir.PROFILES}/*.json"), *runs.glob(f"*/{rundir.PROFILES}/*.json"))):
        try:
            yield run_files.read_profile(path), path
        except RunError:
            continue

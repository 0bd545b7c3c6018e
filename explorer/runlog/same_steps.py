"""Two runs of a recipe and seed that share their first steps, by their ledgers: both record the same contents.

Entries differ in their commitments and in blobs that are encrypted, which have the secrets of each run. Everything
else has to be the same in both.
"""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from explorer import rundir
from explorer.canonical import digest
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Genesis, State, Trunk, decode
from explorer.errors import LedgerError
from explorer.ledger.storage import CHECKPOINT, LedgerDirectory, blob_path
from explorer.merkle import leaf_hash, root_of
from explorer.run_files import RunRecord, read
from explorer.runlog.anchor import DELEGATION
from explorer.runlog.run_ledger import Placed, RunLedger, class_of

# Fields of a genesis that runs do not have in common.
OWN = ("run", "recipe", "environment", "judged", "delegation", "lanes")
SECRET = ("numbers", "joint", "sketches")  # fields of steps and states that hold commitments


def has_ledger(runs: Path, name: str) -> bool:
    """Return whether a run of this name is in the directory, with its ledger."""
    return Path(name).name == name != ".." and (runs / name / rundir.LEDGER / CHECKPOINT).exists()


def open_named(runs: Path, name: str, named: LedgerState) -> RunLedger:
    """Open the ledger of a run as a trunk names it, without what was appended later. Raises `LedgerError` unless it
    begins with exactly these entries, byte for byte."""
    if not has_ledger(runs, name):
        raise LedgerError(f"{runs}: there is no ledger of a run {name!r:.80}")
    run = RunLedger(runs / name, size=named.size)
    here = run.ledger.checkpoint()
    if (run.genesis.run, here.origin) != (name, named.origin):
        raise LedgerError(f"of {run.genesis.run}, named {here.origin}; expected {name}, named {named.origin}")
    root = root_of(map(leaf_hash, run.ledger.entries(0, named.size))).hex()
    if root != named.root:
        raise LedgerError(f"its first {named.size} entries have the root {root}, expected {named.root}")
    return run


def sharing_steps(run: Path) -> tuple[str, ...]:
    """Return the names of the runs that have first steps in common with this one, by their ledgers: those that began
    with its steps, those whose steps it began with, and all that are tied to it through others. Unreadable ledgers
    next to it are left out; a run that a ledger names counts even where it is gone."""
    ties = [(other.name, entry.run) for other in rundir.run_directories(run.parent) for entry in _trunks(other)]
    tied, before = {run.name}, 0
    while len(tied) > before:
        before = len(tied)
        tied.update(name for tie in ties if not tied.isdisjoint(tie) for name in tie)
    return tuple(sorted(tied - {run.name}))


def _trunks(run: Path) -> list[Trunk]:
    if not has_ledger(run.parent, run.name):
        return []
    try:
        leaves = LedgerDirectory(run / rundir.LEDGER).entries()
        named = [decode(leaf) for leaf in leaves if b'"kind":"trunk"' in leaf]
    except LedgerError:
        return []
    return [entry for entry in named if isinstance(entry, Trunk)]


def unlike_plans(mine: Genesis, other: Genesis, *, runs: Path) -> Iterator[str]:
    """Yield where the plans of two runs in a directory differ, apart from their budgets: recipe, seed, machine and
    versions. Raises `RunError` for one that is missing or damaged, `LedgerError` for one that is not its ledger's."""
    yield from _unlike_values("plan", *(_identity(genesis, runs / genesis.run) for genesis in (mine, other)))


def _identity(genesis: Genesis, run: Path) -> dict[str, Any]:
    plan = read(RunRecord, run / rundir.RUN)
    if digest(plan.identity) != genesis.recipe:
        raise LedgerError(f"{run / rundir.RUN}: not the plan that the first entry of its ledger names")
    return {name: value for name, value in plan.identity.items() if name != "ssr"}


def _unlike_values(where: str, here: object, there: object) -> Iterator[str]:
    if isinstance(here, dict) and isinstance(there, dict):
        for name in sorted(here.keys() | there.keys()):
            yield from _unlike_values(f"{where}.{name}", here.get(name), there.get(name))
    else:
        yield from _unequal(where, here, there)


def unequal_beginnings(mine: Genesis, other: Genesis) -> Iterator[str]:
    """Yield where the first entries of two runs differ, apart from what only their lengths make different."""
    for name in (field.name for field in fields(Genesis) if field.name not in (*OWN, "blobs")):
        yield from _unequal(f"first entry: {name}", getattr(mine, name), getattr(other, name))
    blobs = ({name: blob for name, blob in of.blobs.items() if name != DELEGATION} for of in (mine, other))
    yield from _unequal("first entry: blobs", *blobs)


def unlike_steps(mine: RunLedger, other: RunLedger, *, steps: int) -> Iterator[str]:
    """Yield where two runs say something else about their first steps: the place, then what it is here and there."""
    yield from unequal_beginnings(mine.genesis, other.genesis)
    span = range(steps)
    yield from _unequal("steps", min(mine.steps, steps), min(other.steps, steps))
    if min(mine.steps, other.steps) < steps:
        return
    for here, there in zip(mine.read_steps(span), other.read_steps(span), strict=True):
        yield from _unlike(f"step {here.entry.step}", (mine, here), (other, there))
    ends = [[end for end in run.outline.states if end[0] <= steps] for run in (mine, other)]
    yield from _unequal("segments", *([stop for stop, _ in of] for of in ends))
    states = [run.read([index for _, index in of], State) for run, of in zip((mine, other), ends, strict=True)]
    for here, there in zip(*states, strict=False):
        yield from _unlike(f"state after {here.entry.step} steps", (mine, here), (other, there))


def _unlike(where: str, mine: tuple[RunLedger, Placed[Any]], other: tuple[RunLedger, Placed[Any]]) -> Iterator[str]:
    here, there = mine[1].entry, other[1].entry
    for name in (field.name for field in fields(here) if field.name != "blobs"):
        pair = getattr(here, name), getattr(there, name)
        yield from _unequal(f"{where}: {name}", *(_without(value) if name in SECRET else value for value in pair))
    yield from _unequal(f"{where}: blobs", sorted(here.blobs), sorted(there.blobs))
    for name in sorted(here.blobs.keys() & there.blobs.keys()):
        open_ = class_of(name) is None or (_is_open(*mine, name) and _is_open(*other, name))
        pair = here.blobs[name], there.blobs[name]
        yield from _unequal(f"{where}: {name}", *((blob.sha256, blob.size) if open_ else blob.size for blob in pair))


def _without(value: Any) -> Any:
    """Return whether there is a commitment, for each place of one."""
    return tuple(one is not None for one in value) if isinstance(value, tuple) else value is not None


def _is_open(run: RunLedger, placed: Placed[Any], name: str) -> bool:
    here = (run.ledger.path / blob_path(placed.entry.blobs[name].sha256)).exists()
    return here and not run.is_sealed(placed, name)


def _unequal(where: str, here: object, there: object) -> Iterator[str]:
    if here != there:
        yield f"{where}: {here!r:.200} here, {there!r:.200} there"

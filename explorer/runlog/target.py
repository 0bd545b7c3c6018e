"""The target of a deletion, its counterfactual run, and the record of the run that a deletion made.

A target is a set of classes, the examples that an authority vouches for, or single records. Its counterfactual is the
run with the same plan and the target's slots in the batches empty. It follows from the record of the run that had the
target, and from nothing else: the recipe's `routing` leaves the target out; budget, seed, data, machine, versions and
documents are the same. So its name can be computed from both records before anything is trained.

A run that a deletion made has an `origin.json`; its ledger's first entry names the same, by digest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from explorer import rundir
from explorer.canonical import digest
from explorer.entries.fields import LedgerState, Line, Whole
from explorer.entries.kinds import TrainingState
from explorer.errors import LedgerError, RunError, unknown
from explorer.provenance.spellings import ClassPath, covers
from explorer.provenance.trust import Name
from explorer.run_files import LoopRecord, Plan, RunRecord, listed_methods
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import from_json, record, to_json

MAX_RECORDS = 2**20


@record
class Target:
    """Exactly one of the three has members."""

    classes: tuple[ClassPath, ...] = ()  # classes of the run, in its order
    authorities: tuple[Name, ...] = ()
    records: Annotated[tuple[Whole, ...], Field(max_length=MAX_RECORDS)] = ()  # rows of the tag table, ascending

    @property
    def words(self) -> str:
        """Return a description for people."""
        if self.classes:
            return ", ".join(self.classes)
        if self.authorities:
            return f"what {', '.join(self.authorities)} vouches for"
        return f"record {self.records[0]}" if len(self.records) == 1 else f"{len(self.records)} records"


def resolve(
    run: RunLedger, *, class_: str | None = None, authority: str | None = None, records: Sequence[int] = ()
) -> Target:
    """Resolve a target by name in a run: a class, all classes of a branch, an authority, or records.

    Authorities and records are not checked here: that takes the run's tag table (`Presence.rows_of`). Raises
    `LedgerError` unless exactly one kind is named, and for a class that the run does not have.
    """
    if (class_ is not None) + (authority is not None) + bool(records) != 1:
        raise LedgerError("expected one of: a class, an authority, records")
    if authority is not None:
        return Target(authorities=(authority,))
    if records:
        return Target(records=tuple(sorted(set(records))))
    assert class_ is not None
    classes = tuple(path for path in run.genesis.classes if covers(class_, path))
    if not classes:
        raise LedgerError(unknown("class", class_, run.genesis.classes))
    return Target(classes=classes)


# --- the run that never had the target ---

SWEEP = "deletions"  # the directory that runs without a target share
ROUTING = "routing"  # the method that leaves something out, and its parameters
CLASSES, AUTHORITIES, RECORDS = "without", "without_authorities", "without_records"

AnyPlan = TypeVar("AnyPlan", bound=RunRecord | LoopRecord)


def counterfactual(record: AnyPlan, target: Target) -> AnyPlan:
    """Return the record of the run that leaves out the target, in addition to what this run leaves out already.

    Raises `RunError` for a run that routes nothing, and for one that leaves all of the target out already.
    """
    # Lists are sorted: the order of deletions must not change the name of the run that they lead to.
    before = left_out(record)
    after = {
        CLASSES: sorted({*before.classes, *target.classes}),
        AUTHORITIES: sorted({*before.authorities, *target.authorities}),
        RECORDS: sorted({*before.records, *target.records}),
    }
    if [*after.values()] == [[*each] for each in (before.classes, before.authorities, before.records)]:
        raise RunError(f"run {record.run_id}: leaves out {target.words} already: there is nothing to delete")
    methods = [
        {ROUTING: {**_parameters(method), **after}} if _name(method) == ROUTING else method
        for method in listed_methods(record)
    ]
    identity = {**record.identity, "recipe": {**record.identity["recipe"], "methods": methods}}
    if isinstance(record, LoopRecord):
        name = record.run_id.removesuffix(f"-{digest(record.identity)[:8]}")
        return replace(record, run_id=f"{name}-{digest(identity)[:8]}", identity=identity)
    # A run's name ends with eight digits of its identity; the digest of its recipe covers all but budget and seed.
    common = {name: value for name, value in identity.items() if name not in ("ssr", "seed")}
    return replace(
        record,
        run_id=record.run_id[:-8] + digest(identity)[:8],
        sweep=SWEEP,
        identity=identity,
        recipe_digest=digest(common),
    )


def left_out(record: Plan) -> Target:
    """Return the target that a run's recipe leaves out; here several kinds may have members. Raises `RunError` for a
    run that routes nothing: its recipe can leave nothing out."""
    for method in listed_methods(record):
        if _name(method) == ROUTING:
            parameters = _parameters(method)
            given = {
                "classes": parameters.get(CLASSES, []),
                "authorities": parameters.get(AUTHORITIES, []),
                "records": parameters.get(RECORDS, []),
            }
            return from_json(Target, given, where=f"run {record.run_id}: damaged: {ROUTING}", error=RunError)
    raise RunError(f"run {record.run_id}: its recipe has no {ROUTING!r}, so nothing can be left out of it")


def _name(method: Mapping[str, Any]) -> str:
    return next(iter(method))


def _parameters(method: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = method[_name(method)]
    if not isinstance(parameters, Mapping):
        raise RunError(f"{ROUTING}: damaged: expected its parameters, found {parameters!r:.80}")
    return parameters


# --- origin of a run that a deletion made ---


@record
class Origin:
    """A run that continues another one's state, without the target."""

    format: Literal["explorer/origin/v1"] = "explorer/origin/v1"
    level: Literal["G2", "G3"]  # exact by structure; exact by replay
    run: Line  # the run that had the target
    ledger: LedgerState  # of that run
    target: Target
    begins: Whole  # steps of that run that this one takes over
    state: TrainingState | None  # after them; None: it begins from the start


def read_origin(run: Path) -> Origin | None:
    """Read the origin of a run; None: no deletion made it. Raises `RunError` for a damaged file."""
    path = run / rundir.ORIGIN
    if not path.exists():
        return None
    return from_json(Origin, rundir.read_json(path), where=str(path), error=RunError)


def write_origin(run: Path, origin: Origin) -> None:
    """Write the origin of a run, whole or not at all."""
    rundir.write_json(run / rundir.ORIGIN, to_json(origin))

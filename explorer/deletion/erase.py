"""Erasing: what a run recorded about a class, or what links a record to its tag, destroyed for good.

Of a class its secret goes, and with it the meaning of every commitment to its numbers; its blobs; and its rows in the
spool. Numbers over several classes go as well, with their secret: what is left of the others would give the class away
by subtraction. Of a record its salt goes: nobody can link the example to its tag any more, and no later run trains on
it. Entries stay as they are, so every proof and signature still holds.

Before anything is destroyed the project's ledger has an `erasure` entry that says so: numbers that are gone without one
were withheld or lost, and `explorer conform` finds that.

This is not a deletion: the model has what it learned. And other copies are other copies: where they may be is said.
"""

import io
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from explorer import rundir
from explorer.entries.entropy_profile import TOLD
from explorer.entries.fields import LedgerState
from explorer.entries.heads import read_head
from explorer.entries.kinds import Erasure as Entry
from explorer.errors import ProvenanceError, RunError
from explorer.ledger.storage import blob_path
from explorer.project import Project, runs_of
from explorer.provenance.commitments import destroy_salt, read_salts
from explorer.runlog.documents import read_tag_rows
from explorer.runlog.forecast import kept
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger, class_of

OF_SEVERAL = ("share_num", "share_den", "update_num", "update_sq", "exact_num", *TOLD)  # columns that several made
MAX_SPOOL = 2**30  # bytes of one of its files


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasure:
    """What is to be erased, or was."""

    run: str
    classes: tuple[str, ...]
    records: tuple[int, ...]
    secrets: tuple[str, ...]  # whose they are; * is numbers over several classes
    blobs: tuple[str, ...]  # digests of those that are here
    spool: tuple[str, ...]  # files that are written again, or removed where nothing is left
    salts: str | None  # the file of the records' salts
    elsewhere: tuple[str, ...]  # where copies may be, which nothing here reaches


def of_classes(run: RunLedger, classes: Collection[str]) -> Erasure:
    """Plan the erasure of these classes' numbers from a run.

    Raises `LedgerError` for a class that the run does not have, `RunError` for a run that is not finished.
    """
    _check_finished(run)
    for path in classes:
        run.class_(path)
    gone = {*classes, JOINT}
    return Erasure(
        run=run.genesis.run,
        classes=tuple(path for path in run.genesis.classes if path in gone),
        records=(),
        secrets=tuple(path for path in (*run.genesis.classes, JOINT) if path in gone),
        blobs=tuple(sorted(_blobs(run, gone))),
        spool=tuple(str(path.relative_to(run.run)) for path in _spool(run.run)),
        salts=None,
        elsewhere=(*_copies(run), *_grants(run, classes)),
    )


def of_records(run: RunLedger, records: Collection[int], *, salts: Path) -> Erasure:
    """Plan the erasure of these rows of the run's tag table; `salts` is the file with their salts.

    Raises `ProvenanceError` for salts of another table, and for a row that it does not have.
    """
    tags, found = read_tag_rows(run).tags, read_salts(salts)
    if len(found) != len(tags):
        raise ProvenanceError(f"{salts}: {len(found)} salts for {len(tags)} tags: they belong to another table")
    for row in records:
        if not 0 <= row < len(tags):
            raise ProvenanceError(f"record {row}: the tag table has {len(tags)} rows, counted from 0")
    return Erasure(
        run=run.genesis.run,
        classes=(),
        records=tuple(sorted({*records})),
        secrets=(),
        blobs=(),
        spool=(),
        salts=str(salts),
        elsewhere=(
            "the examples themselves, and every copy of them",
            "backups of the salts; disks that keep what was written over",
            "the slots of the ledger: in which steps these rows of the tag table were stays known",
            "losses of single examples behind decisions to select some; erasing their class erases these",
            f"the model of {run.genesis.run}: it has what it learned; `explorer delete run` makes one without them",
        ),
    )


def erase(run: RunLedger, erasure: Erasure, *, project: Project) -> int:
    """Put it on record and erase it; when this returns it is on the disk. Return the number of its entry. To do it
    again changes nothing, so it can be ended where it broke off. Raises `RunError` where the run is in use, and where
    the disk refuses; `LedgerError` where the project's ledger cannot go on."""
    with rundir.locked(run.run, what=f"run {erasure.run}"):
        entry = _entry(run, erasure)
        known = (each.index for each in project.entries() if each.entry == entry)
        number = next(known, None) if erasure.classes else None  # of records nothing tells one time from another
        number = project.append(entry) if number is None else number
        names = (*run.genesis.classes, JOINT)
        for path in erasure.secrets if (run.run / rundir.SECRETS).exists() else ():
            destroy_salt(run.run / rundir.SECRETS, names.index(path))
        for row in erasure.records:
            assert erasure.salts is not None
            destroy_salt(Path(erasure.salts), row)
        for digest in erasure.blobs:
            _remove(run.ledger.path / blob_path(digest))
        for name in erasure.spool:
            _without(run.run / name, erasure.classes)
    return number


def _entry(run: RunLedger, erasure: Erasure) -> Entry:
    head = run.ledger.checkpoint()
    ledger = LedgerState(origin=head.origin, size=head.size, root=head.root.hex())
    return Entry(ledger=ledger, classes=erasure.classes, records=len(erasure.records), blobs={})


def _check_finished(run: RunLedger) -> None:
    if run.outline.end is None:
        raise RunError(f"{run.run}: unfinished: without its secrets it could not go on; end it, or remove all of it")


def _blobs(run: RunLedger, gone: Collection[str]) -> set[str]:
    """Digests of the blobs with their numbers that are here, in whatever entry, undone ones too; less those that an
    entry names as something that stays."""
    theirs, others = set[str](), set[str]()
    for leaf in run.ledger.entries():
        for name, blob in read_head(leaf).blobs.items():
            (theirs if class_of(name) in gone else others).add(blob.sha256)
    return {digest for digest in theirs - others if (run.ledger.path / blob_path(digest)).exists()}


def _spool(run: Path) -> Iterator[Path]:
    for name in (rundir.CONTRIBUTIONS, rundir.ENTROPY):
        yield from sorted((run / name).glob("[!.]*.parquet"))


def _without(path: Path, classes: Collection[str]) -> None:
    """Write a file of the spool without the rows of these classes, and without what several classes made."""
    content = rundir.read_bytes(path, max_bytes=MAX_SPOOL, error=RunError)
    try:
        table = pq.read_table(io.BytesIO(content))
        names = table["class"].cast(pa.string()).to_pylist()
        table = table.filter(pa.array([name not in classes and name != JOINT for name in names], pa.bool_()))
        for name in OF_SEVERAL:
            if name in table.column_names:
                at = table.schema.get_field_index(name)
                table = table.set_column(at, table.schema.field(at), pa.nulls(len(table), table.schema.field(at).type))
    except (pa.ArrowException, KeyError) as error:
        raise RunError(f"{path}: not a file of the spool: {str(error).splitlines()[0]:.200}") from error
    if not len(table):
        _remove(path)
        return
    target = io.BytesIO()
    pq.write_table(table, target, compression="zstd")
    rundir.write_bytes(path, target.getvalue())


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
        rundir.flush_directory(path.parent)
    except OSError as error:
        raise RunError(f"cannot remove {path}: {error.strerror or error}; erase it again") from error


def _copies(run: RunLedger) -> tuple[str, ...]:
    """Return where else numbers of a class may be."""
    database = runs_of(run.run) / "explorer.duckdb"
    rows = [f"{database}: its rows stay until `explorer store rebuild`"] if database.exists() else []
    states = len(kept(run.run))
    said = f"{states} states of training in {run.run / rundir.KEPT}: what methods remember of the class is in them"
    checkpoints = [f"{said}; without them any deletion trains from step 0"] if states else []
    notebook = (
        [f"{run.run / rundir.NOTEBOOK}: what was printed into it"] if (run.run / rundir.NOTEBOOK).exists() else []
    )
    return (
        *rows,
        *notebook,
        *checkpoints,
        f"{run.run / rundir.METRICS}: losses over all classes",
        "reports, exports and packs that were made of the run",
        "backups of the run's directory; disks that keep what was written over",
        f"the model of {run.genesis.run}: it has what it learned; `explorer delete run` makes one without it",
    )


def _grants(run: RunLedger, classes: Collection[str]) -> tuple[str, ...]:
    """Keys that were given away still open what their holders copied."""
    wrapped = sorted((run.run / rundir.GRANTS).glob("*.json"))
    said = f"{len(wrapped)} wrapped keys in {rundir.GRANTS}: who has one still opens what they copied of"
    return (f"{said} {', '.join(sorted(classes))}",) if wrapped else ()

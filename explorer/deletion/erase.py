"""Erasure: destroy what a run recorded about a class, or what links a record to its tag, for good.

Erasing a class destroys its secret, and with it the meaning of every commitment to its numbers; its blobs; and its rows
in the spool. Numbers over several classes go as well, with their secret: the class could be computed from them by
subtracting the others. Erasing a record destroys its salt: the example cannot be linked to its tag any more, and no
later run trains on it. Entries stay as they are, so every proof and signature still holds.

The project's ledger gets an `erasure` entry before anything is destroyed. Numbers that are gone without such an entry
were withheld or lost, and `explorer conform` reports that.

Erasure is not a deletion: the model keeps what it learned. It reaches no other copy either; `Erasure.elsewhere` lists
where copies may be.
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
from explorer.runlog.same_steps import sharing_steps

OF_SEVERAL = ("share_num", "share_den", "update_num", "update_sq", "exact_num", *TOLD)  # columns that several made
MAX_SPOOL = 2**30  # bytes of one of its files


@dataclass(frozen=True, kw_only=True, slots=True)
class Erasure:
    """An erasure, planned or done."""

    run: str
    classes: tuple[str, ...]
    records: tuple[int, ...]
    secrets: tuple[str, ...]  # classes whose secrets go; * is numbers over several classes
    blobs: tuple[str, ...]  # digests of those that exist
    spool: tuple[str, ...]  # files that are rewritten, or removed where no row is left
    salts: str | None  # the file of the records' salts
    elsewhere: tuple[str, ...]  # where copies may be that the erasure does not reach


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

    Raises `ProvenanceError` for salts of another table, and for a row that the table does not have.
    """
    tags, count = read_tag_rows(run).tags, len(read_salts(salts))
    if count != len(tags):
        raise ProvenanceError(f"{salts}: {count} salts for {len(tags)} tags: they belong to another table")
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
            "the examples themselves, in shards by `explorer data erase`; and every copy of them",
            "backups of the salts; disks that keep overwritten data",
            "the slots of the ledger: in which steps these rows of the tag table were stays known",
            "losses of single examples behind decisions to select some; erasing their class erases these",
            f"the model of {run.genesis.run}: it keeps what it learned; `explorer delete run` makes one without them",
        ),
    )


def erase(run: RunLedger, erasure: Erasure, *, project: Project) -> int:
    """Record the erasure and carry it out; return the index of its entry. The disk has all of it on return.

    Repeating it changes nothing, so an interrupted erasure is completed by the same call. Raises `RunError` for a run
    that is in use and for a disk that refuses, `LedgerError` for a project's ledger that cannot be appended to.
    """
    with rundir.locked(run.run, what=f"run {erasure.run}"):
        # The entry comes first: a crash leaves numbers that are on record as erased and still exist, never the reverse,
        # which would count as withholding. A repeated call finds its entry; entries about records do not name them, so
        # two of them cannot be told apart, and each call appends one.
        entry = _entry(run, erasure)
        known = (placed.index for placed in project.entries() if placed.entry == entry)
        number = next(known, None) if erasure.classes else None
        number = project.append(entry) if number is None else number

        # Secrets before blobs: once they are gone, even a blob that survives a crash can open no commitment.
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
        raise RunError(f"{run.run}: unfinished: it cannot continue without its secrets; end it, or remove all of it")


def _blobs(run: RunLedger, gone: Collection[str]) -> set[str]:
    """Return the digests of existing blobs with numbers of these classes, superseded entries included. A blob stays
    where an entry also names it as something else: equal content is stored once."""
    theirs, others = set[str](), set[str]()
    for leaf in run.ledger.entries():
        for name, blob in read_head(leaf).blobs.items():
            (theirs if class_of(name) in gone else others).add(blob.sha256)
    return {digest for digest in theirs - others if (run.ledger.path / blob_path(digest)).exists()}


def _spool(run: Path) -> Iterator[Path]:
    for name in (rundir.CONTRIBUTIONS, rundir.ENTROPY):
        yield from sorted((run / name).glob("[!.]*.parquet"))


def _without(path: Path, classes: Collection[str]) -> None:
    """Rewrite a file of the spool without the rows of these classes, and without numbers over several classes."""
    content = rundir.read_bytes(path, max_bytes=MAX_SPOOL, error=RunError)
    try:
        table = pq.read_table(io.BytesIO(content))
        names = table["class"].cast(pa.string()).to_pylist()
        table = table.filter(pa.array([name not in classes and name != JOINT for name in names], pa.bool_()))
        # The rows of other classes stay, but the columns to which the erased class contributed become null.
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
    remembered = f"{states} states of training in {run.run / rundir.KEPT}: methods remember the class in them"
    checkpoints = [f"{remembered}; without them any deletion trains from step 0"] if states else []
    sharing = sharing_steps(run.run)
    shared = [f"runs that share steps with it have the same numbers of them: {', '.join(sharing)}"] if sharing else []
    if (trunks := run.run.parent / rundir.TRUNKS).exists():
        shared.append(f"{trunks}: states of training that longer runs begin with, until these are done")
    printed = run.run / rundir.NOTEBOOK
    notebook = [f"{printed}: the numbers printed in it"] if printed.exists() else []
    return (
        *rows,
        *notebook,
        *checkpoints,
        *shared,
        f"{run.run / rundir.METRICS}: losses over all classes",
        "reports, exports and packs that were made of the run",
        "backups of the run's directory; disks that keep overwritten data",
        f"the model of {run.genesis.run}: it keeps what it learned; `explorer delete run` makes one without it",
    )


def _grants(run: RunLedger, classes: Collection[str]) -> tuple[str, ...]:
    """Return a warning about keys that were granted: they still open the copies of their holders."""
    wrapped = len(list((run.run / rundir.GRANTS).glob("*.json")))
    names = ", ".join(sorted(classes))
    return (
        (f"{wrapped} wrapped keys in {rundir.GRANTS}: their holders can still open copies of {names}",)
        if wrapped
        else ()
    )

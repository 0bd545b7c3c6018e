"""What of an old run holds what was deleted, and is to be destroyed: named by path and digest, destroyed by its owner.

A deletion makes another model; it does not unmake the old one. As long as both exist, what was deleted is their
difference. The old ledger stays: it holds commitments, and every proof still holds once numbers and secrets are gone.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from explorer import rundir
from explorer.errors import RunError
from explorer.ledger.storage import blob_path
from explorer.provenance.deletion_certificate import Artefact, What
from explorer.runlog.influence import Reach
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import JOINT

_REPORTS = (".html", ".pdf", ".md")


def artefacts(run: RunLedger, reach: Reach) -> tuple[Artefact, ...]:
    """All of a run that the target is in, as far as it lies in the run's directory, by kind and path.

    Raises `LedgerError` for a ledger that cannot be read, `RunError` for a file that cannot.
    """
    directory, first = run.run, reach.first
    found = [*_files(directory, "model", sorted((directory / rundir.MODEL).glob("*.safetensors")))]
    for name in (rundir.CHECKPOINT, rundir.KEPT):
        touched = (path for path in sorted((directory / name).glob("step-*")) if _after(path, first))
        found += _files(directory, "checkpoint", touched)
    found += [
        Artefact(what="secret", path=rundir.SECRETS, sha256=None, part=path)
        for path in (*reach.whole, *([JOINT] if reach.whole else []))
        if (directory / rundir.SECRETS).exists()
    ]
    found += blobs(run, reach)
    for name in (rundir.CONTRIBUTIONS, rundir.ENTROPY):
        found += _files(directory, "spool", sorted((directory / name).glob("*.parquet")))
    found += _files(directory, "notebook", sorted(directory.glob("*.ipynb")))
    measured = [directory / rundir.METRICS, *(path for path in sorted(directory.iterdir()) if path.suffix in _REPORTS)]
    return (*found, *_files(directory, "measurements", measured))


def blobs(run: RunLedger, reach: Reach) -> tuple[Artefact, ...]:
    """The numbers of classes that are in the target whole, and those over several classes that theirs can be taken
    from; wherever an entry names them, executions that were undone too. The ledger alone says which these are."""
    own = {f"{kind}/{path}" for kind in ("numbers", "sketches", "evidence") for path in reach.whole}
    found: dict[str, str] = {}
    for blobs in (placed.entry.blobs for placed in run.with_numbers()):
        if own & blobs.keys():
            names = own & blobs.keys() | ({"joint"} & blobs.keys())
            found |= {blobs[name].sha256: name for name in names}
    return tuple(
        Artefact(what="numbers", path=f"{rundir.LEDGER}/{blob_path(digest)}", sha256=digest, part=None)
        for digest in sorted(found)
    )


def _files(directory: Path, what: What, paths: Iterable[Path]) -> Iterator[Artefact]:
    for path in paths:
        if path.is_symlink() or not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror or error}") from error
        yield Artefact(what=what, path=str(path.relative_to(directory)), sha256=digest, part=None)


def _after(path: Path, first: int | None) -> bool:
    """Whether a checkpoint is of a later state than the one before the first influence; a strange name is."""
    number = path.stem.removeprefix("step-")
    return first is not None and not (number.isascii() and number.isdigit() and int(number) <= first)

"""The writer of a ledger: one process, one path, and nothing acknowledged before it is on the disk."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

from explorer import merkle, note
from explorer.errors import LedgerError, NoteError, RunError
from explorer.ledger import blobs
from explorer.ledger.checkpoint import Checkpoint
from explorer.ledger.durable import NewFiles
from explorer.ledger.files import list_names, read_file
from explorer.ledger.read import CHECKPOINT
from explorer.ledger.recovery import Recovered, load_edge, recover
from explorer.ledger.tiles import TILE, Bundle, Tile, belongs, encode_bundle
from explorer.note import Algorithm, Signer
from explorer.rundir import locked, write_bytes

INTERVAL = 65_536  # entries
PATIENCE = 1.0  # seconds to wait for another process


class Log:
    """A ledger that this process appends to, and no other until it is closed.

    An entry is acknowledged when the `commit` after it has returned: by then its bundle, the tiles and the signed
    checkpoint are on the disk. `append` commits by itself after every `interval` entries, and leaving the `with` block
    commits the rest; leaving it by an exception does not, since what was under way is not known to be wanted.

    Nothing that fails is tried again: after an error from the disk the object refuses further use, the directory is
    at its last checkpoint, and opening it anew goes on from there. It is for one thread at a time, and of no use in a
    forked child.

        with Log.create(directory, origin="example.com/run", signer=signer) as log:
            log.append([b"first", b"second"])
    """

    @classmethod
    def create(
        cls, directory: Path, *, origin: str, signer: Signer, interval: int = INTERVAL, patience: float = PATIENCE
    ) -> Self:
        """Begin a ledger with a signed checkpoint of size 0. Raises `LedgerError` if there is one already."""
        if origin != signer.name:
            raise LedgerError(f"a ledger bears the name of its key: origin {origin!r}, the key is of {signer.name!r}")
        directory = directory.absolute()
        with _lock(directory, signer=signer, interval=interval, patience=patience) as held:
            if present := {CHECKPOINT, "tile"} & set(list_names(directory, ".")):
                raise LedgerError(
                    f"{directory}: there is a ledger already ({max(present)!r} exists); open it, or move it away"
                )
            _publish(directory, Checkpoint(origin=origin, size=0, root=merkle.EMPTY_ROOT), signer)
            return cls(directory, signer=signer, interval=interval, held=held)

    @classmethod
    def open(cls, directory: Path, *, signer: Signer, interval: int = INTERVAL, patience: float = PATIENCE) -> Self:
        """Go on with a ledger of this key.

        Raises `LedgerError` if it is of another key, damaged at its edge, rolled back, or still in use by another
        process after `patience` seconds.
        """
        directory = directory.absolute()
        if CHECKPOINT not in list_names(directory, "."):  # before the lock, which would make the directory
            raise LedgerError(f"{directory}: no ledger is kept here: the file {CHECKPOINT!r} is missing")
        with _lock(directory, signer=signer, interval=interval, patience=patience) as held:
            return cls(directory, signer=signer, interval=interval, held=held)

    def __init__(self, directory: Path, *, signer: Signer, interval: int, held: ExitStack) -> None:
        """Use `create` or `open`: `held` has the lock and gives it up to the log."""
        found = recover(directory, signer.verifier)
        self._directory = directory
        self._signer = signer
        self._interval = interval
        self._owner = os.getpid()
        self._fault: str | None = None
        self._signed = found
        self._edge, self._bundle = load_edge(directory, found.checkpoint)
        self._partials: dict[Tile | Bundle, set[str]] = {}  # those there are, by the full file that makes them needless
        self._note_partials(found.partials)
        self._files = NewFiles(directory)
        self._held = held.pop_all()  # last, so that the lock is released if any of this fails

    @property
    def size(self) -> int:
        """How many entries there are, committed or not."""
        return self._edge.size

    @property
    def checkpoint(self) -> Checkpoint:
        """What was signed last."""
        return self._signed.checkpoint

    def append(self, entries: Iterable[bytes]) -> None:
        """Append entries of at most 65,535 bytes each, in memory that does not grow with their number.

        Raises `LedgerError` for one that is longer; `size` then says how many of those before it were taken.
        """
        self._check_usable()
        source = iter(entries)
        while chunk := list(islice(source, min(TILE - self.size % TILE, self._interval - self._unsigned))):
            encoded, hashes = encode_bundle(chunk), merkle.leaf_hashes(chunk)
            with self._writing():
                self._bundle += encoded
                self._write_full(self._edge.add(hashes))
                if self._unsigned == self._interval:
                    self._commit()

    def commit(self) -> Checkpoint:
        """Make all entries durable and sign a checkpoint over them; nothing is signed where nothing was appended.

        Raises `LedgerError` if the disk refuses or if somebody else has changed the checkpoint.
        """
        with self._writing():
            if self._unsigned:
                self._commit()
        return self.checkpoint

    def write_blob(self, content: bytes) -> str:
        """Store a blob and return its digest, for an entry to name. It is on the disk when this returns."""
        self._check_usable()
        return blobs.write_blob(self._directory, content)

    def close(self) -> None:
        """Let others have the ledger. What was not committed is left out of it."""
        self._fault = self._fault or "it is closed"
        try:
            self._files.close()
        finally:
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()

    @property
    def _unsigned(self) -> int:
        return self.size - self.checkpoint.size

    def _write_full(self, tiles: list[tuple[Tile, bytes]]) -> None:
        """Write what became full: the bundle first, then its tile and those above."""
        if tiles:
            self._files.create(Bundle(self.size // TILE - 1, TILE).path, bytes(self._bundle))
            self._bundle.clear()
        for tile, content in tiles:
            self._files.create(tile.path, content)

    def _commit(self) -> None:
        """Write the partial edge, flush, sign, publish; then remove the partials of tiles that are full.

        They are needed until the full tile was in the last checkpoint: whoever has an older one then reads that. A
        crash before publishing leaves the last checkpoint and files beyond it, which `recover` sets aside; one after it
        leaves partials that nobody needs, which the next commit removes.
        """
        partials = [*self._partial_bundle(), *self._edge.partial()]
        for file, content in partials:
            if file.path not in self._partials.get(file._replace(width=TILE), ()):  # the edge of a level may stay
                self._files.create(file.path, content)
        self._files.flush()
        if read_file(self._directory, CHECKPOINT, max_bytes=note.MAX_BYTES) != self._signed.content:
            raise LedgerError(f"{self._directory / CHECKPOINT}: changed by somebody else while the ledger was in use")
        checkpoint = Checkpoint(origin=self._signer.name, size=self.size, root=self._edge.root())
        content = _publish(self._directory, checkpoint, self._signer)
        for full in [full for full in self._partials if belongs(full, self._signed.checkpoint.size)]:
            for path in self._partials.pop(full):
                _remove(self._directory / path)
        self._note_partials(file for file, _ in partials)
        self._signed = Recovered(checkpoint=checkpoint, content=content, partials=())

    def _note_partials(self, partials: Iterable[Tile | Bundle]) -> None:
        for file in partials:
            self._partials.setdefault(file._replace(width=TILE), set()).add(file.path)

    def _partial_bundle(self) -> list[tuple[Bundle, bytes]]:
        number, width = divmod(self.size, TILE)
        return [(Bundle(number, width), bytes(self._bundle))] if width else []

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """After an error in here, an interruption too, memory and disk may differ: the object is of no more use."""
        self._check_usable()
        try:
            yield
        except BaseException as error:
            self._fault = f"{type(error).__name__}: {error}"
            raise

    def _check_usable(self) -> None:
        if self._fault:
            raise LedgerError(f"{self._directory}: this log is of no more use ({self._fault}); open the ledger anew")
        if os.getpid() != self._owner:
            raise LedgerError(f"{self._directory}: opened by process {self._owner}, used by process {os.getpid()}")


@contextmanager
def _lock(directory: Path, *, signer: Signer, interval: int, patience: float) -> Iterator[ExitStack]:
    """The lock, released at the end of the block unless somebody has taken it over with `pop_all`."""
    if interval < 1:
        raise LedgerError(f"an interval of {interval} entries; at least 1 is needed")
    if signer.algorithm is not Algorithm.ED25519:
        raise LedgerError(f"the key of {signer.name!r} cosigns; a ledger is signed with a plain Ed25519 key")
    with ExitStack() as held:
        try:
            held.enter_context(locked(directory, what=f"the ledger {signer.name!r}", patience=patience))
        except RunError as error:
            raise LedgerError(str(error)) from error
        yield held


def _publish(directory: Path, checkpoint: Checkpoint, signer: Signer) -> bytes:
    """Sign a checkpoint and put it in place, whole and durable; return the file's content."""
    try:
        content = note.sign(checkpoint.text, signer).content
        write_bytes(directory / CHECKPOINT, content)
    except (NoteError, RunError) as error:
        raise LedgerError(str(error)) from error
    return content


def _remove(path: Path) -> None:
    """Remove a partial, and its directory with the last one."""
    try:
        path.unlink(missing_ok=True)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
    except OSError as error:
        raise LedgerError(f"cannot remove {path}: {error.strerror or error}") from error

"""The writer of a ledger: one process, one path, and nothing acknowledged before it is on the disk.

Opening a ledger brings its directory to its signed checkpoint (`recover`). This runs at every opening: after a crash it
finds more, and does nothing else.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from explorer import merkle, note
from explorer.errors import LedgerError, NoteError, RunError
from explorer.ledger import storage
from explorer.ledger.edge import Edge
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import CHECKPOINT, UNSIGNED, LedgerDirectory, list_names, read_file
from explorer.ledger.tiles import TILE, Bundle, Tile, belongs, encode_bundle, parse_path
from explorer.note import Algorithm, Signer, Verifier
from explorer.rundir import locked, make_directory, write_bytes

INTERVAL = 65_536  # entries
PATIENCE = 1.0  # seconds to wait for another process


class Log:
    """A ledger that only this process appends to, until it is closed.

    An entry is acknowledged when the `commit` after it has returned: by then its bundle, the tiles and the signed
    checkpoint are on the disk. `append` commits by itself after every `interval` entries, and leaving the `with` block
    commits the rest; leaving it by an exception does not, since the entries may be incomplete.

    A failure is never retried: after an error from the disk the object refuses further use, the directory is at its
    last checkpoint, and the next opening continues from there. Use it in one thread at a time, and not in a forked
    child.

        with Log.create(directory, origin="example.com/run", signer=signer) as log:
            log.append([b"first", b"second"])
    """

    @classmethod
    def create(
        cls, directory: Path, *, origin: str, signer: Signer, interval: int = INTERVAL, patience: float = PATIENCE
    ) -> Self:
        """Begin a ledger with a signed checkpoint of size 0. Raises `LedgerError` if there is one already."""
        if origin != signer.name:
            raise LedgerError(f"a ledger has the name of its key: found origin {origin!r}, expected {signer.name!r}")
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
        """Open an existing ledger of this key for appending.

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
        recovered = recover(directory, signer.verifier)
        self._directory = directory
        self._signer = signer
        self._interval = interval
        self._owner = os.getpid()
        self._fault: str | None = None
        self._signed = recovered
        self._edge, self._bundle = load_edge(directory, recovered.checkpoint)
        self._partials: dict[Tile | Bundle, set[str]] = {}  # those there are, by the full file that makes them needless
        self._note_partials(recovered.partials)
        self._files = NewFiles(directory)
        self._held = held.pop_all()  # last, so that the lock is released if any of this fails

    @property
    def size(self) -> int:
        """Return the number of entries, committed or not."""
        return self._edge.size

    @property
    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint that was signed last."""
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

        Raises `LedgerError` if the disk refuses or if the checkpoint was changed from outside.
        """
        with self._writing():
            if self._unsigned:
                self._commit()
        return self.checkpoint

    def write_blob(self, content: bytes) -> str:
        """Store a blob and return its digest, for an entry to name. It is on the disk when this returns."""
        self._check_usable()
        return storage.write_blob(self._directory, content)

    def close(self) -> None:
        """Release the ledger for other processes. Entries that were not committed are dropped."""
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
        """Write the files that became full: the bundle first, then its tile and those above."""
        if tiles:
            self._files.create(Bundle(self.size // TILE - 1, TILE).path, bytes(self._bundle))
            self._bundle.clear()
        for tile, content in tiles:
            self._files.create(tile.path, content)

    def _commit(self) -> None:
        """Write the partial edge, flush, sign, publish; then remove the partials of tiles that are full.

        They are needed until the full tile was in the last checkpoint: readers with an older one read that. A
        crash before publishing leaves the last checkpoint and files beyond it, which `recover` sets aside; one after it
        leaves needless partials, which the next commit removes.
        """
        partials = [*self._partial_bundle(), *self._edge.partial()]
        for file, content in partials:
            if file.path not in self._partials.get(file._replace(width=TILE), ()):  # the edge of a level may stay
                self._files.create(file.path, content)
        # Tiles before the checkpoint over them, and the checkpoint before partials that older ones needed go.
        self._files.flush()
        if read_file(self._directory, CHECKPOINT, max_bytes=note.MAX_BYTES) != self._signed.content:
            raise LedgerError(f"{self._directory / CHECKPOINT}: changed from outside while the ledger was in use")
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
        """Make the object unusable after an error in the block: memory and disk may differ."""
        self._check_usable()
        try:
            yield
        except BaseException as error:  # an interruption may come between any two writes, too
            self._fault = f"{type(error).__name__}: {error}"
            raise

    def _check_usable(self) -> None:
        if self._fault:
            raise LedgerError(f"{self._directory}: this log cannot be used any more ({self._fault}); open it again")
        if os.getpid() != self._owner:
            raise LedgerError(f"{self._directory}: opened by process {self._owner}, used by process {os.getpid()}")


@contextmanager
def _lock(directory: Path, *, signer: Signer, interval: int, patience: float) -> Iterator[ExitStack]:
    """Hold the lock until the end of the block, unless `pop_all` has moved it to another owner."""
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


# ------------------------------------------------------ opening: from what is in the directory to the signed checkpoint


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovered:
    """A directory that holds what its checkpoint covers."""

    checkpoint: Checkpoint
    content: bytes  # of the file `checkpoint`
    partials: tuple[Tile | Bundle, ...]  # that are there: of the edge, and of earlier checkpoints


def recover(directory: Path, verifier: Verifier) -> Recovered:
    """Bring the directory to its checkpoint, which has to be signed by this key. The caller holds the lock.

    A checkpoint that was signed and not yet in place is put in place. Tiles and bundles beyond the checkpoint were
    never signed and never acknowledged. They are moved to `unsigned/<n>/`, not deleted, since they may also be the rest
    of a ledger whose checkpoint was rolled back. Raises `LedgerError` if the tree does not have its signed root, and if
    this key has signed another history, as a witness's note or a checkpoint that was not yet in place shows.
    """
    # A signed checkpoint first: it decides which files are beyond the tree.
    _finish_signing(directory, verifier)
    content = _read(directory, CHECKPOINT)
    if content is None:
        raise LedgerError(f"{directory}: no ledger is kept here: the file {CHECKPOINT!r} is missing")
    checkpoint = _own_checkpoint(content, verifier, where=str(directory / CHECKPOINT))
    _refuse_rolled_back(directory, checkpoint, verifier)
    # Nothing is moved before the tree has been compared with its signed root.
    load_edge(directory, checkpoint)
    beyond: list[str] = []
    partials: list[Tile | Bundle] = []
    for path, file in _stored(directory):
        if not belongs(file, checkpoint.size):
            beyond.append(path)
        elif file.width < TILE:
            partials.append(file)
    _set_aside(directory, beyond)
    return Recovered(checkpoint=checkpoint, content=content, partials=tuple(partials))


def load_edge(directory: Path, checkpoint: Checkpoint) -> tuple[Edge, bytearray]:
    """Return the right edge and the entries of the partial bundle, checked against the signed root."""
    stored = LedgerDirectory(directory)
    edge = Edge.load(checkpoint.size, stored.tile)
    if (root := edge.root()) != checkpoint.root:
        raise LedgerError(
            f"{directory}: the tiles at the edge are damaged: they lead to root {root.hex()} at size "
            f"{checkpoint.size}, signed is {checkpoint.root.hex()}"
        )
    number, width = divmod(checkpoint.size, TILE)
    entries = stored.bundle(Bundle(number, width)) if width else []
    if merkle.leaf_hashes(entries) != edge.leaves():
        raise LedgerError(f"{directory / Bundle(number, width).path}: damaged: not the entries that were signed")
    return edge, bytearray(encode_bundle(entries))


def _finish_signing(directory: Path, verifier: Verifier) -> None:
    """Put a later checkpoint in place whose writer died between signing it and renaming it.

    Its tree is on the disk, since nothing is signed before. If it is not, or does not extend the checkpoint in place,
    this key has signed two histories, or the directory is an older copy: then nothing is replaced, and no other tree
    is signed. The name is the one that `rundir.write_bytes` gives a file before it renames it.
    """
    for name in list_names(directory, "."):
        if not (name.startswith(f".{CHECKPOINT}.") and name.endswith(".tmp")):
            continue
        signed, present = _signed(_read(directory, name), verifier), _read(directory, CHECKPOINT)
        if signed is None or present is None:
            _set_aside(directory, [name])
            continue
        # The tree of the larger checkpoint has to be on the disk and to extend the smaller one.
        checkpoint = _own_checkpoint(present, verifier, where=str(directory / CHECKPOINT))
        old, new = sorted((checkpoint, signed), key=lambda state: state.size)
        try:
            load_edge(directory, new)
            hashes = LedgerDirectory(directory).hashes(new.size)
            proof = merkle.prove_consistency(old.size, new.size, hashes) if old.size else ()
            if old.size:
                merkle.check_consistency(
                    proof, old_size=old.size, old_root=old.root, new_size=new.size, new_root=new.root
                )
        except LedgerError as error:
            raise _two_histories(directory, name, signed, checkpoint, why=f"  {error}\n") from error
        # The file first, then its name: a crash in between leaves the old checkpoint, and this runs again.
        if signed.size > checkpoint.size:
            flush(directory / name)
            _move(directory / name, directory / CHECKPOINT)
            flush(directory)
        else:
            _set_aside(directory, [name])


def _signed(content: bytes | None, verifier: Verifier) -> Checkpoint | None:
    """Return the checkpoint if this key signed it; None for one that was written in part and so has no signature."""
    try:
        return None if content is None else _own_checkpoint(content, verifier, where="")
    except LedgerError:
        return None


def _own_checkpoint(content: bytes, verifier: Verifier, *, where: str) -> Checkpoint:
    try:
        signed = note.parse(content)
        note.verify(signed, [verifier])
        checkpoint = parse_checkpoint(signed.text)
    except (NoteError, LedgerError) as error:
        raise LedgerError(f"{where}: {error}") from error
    if checkpoint.origin != verifier.name:
        raise LedgerError(f"{where}: a ledger of {checkpoint.origin!r}, but the key is of {verifier.name!r}")
    return checkpoint


def _refuse_rolled_back(directory: Path, checkpoint: Checkpoint, verifier: Verifier) -> None:
    """Raise `LedgerError` if a witness holds a checkpoint of this key that the present one does not extend."""
    stored = LedgerDirectory(directory)
    for path, seen in stored.witness_notes().items():
        try:
            note.verify(seen, [verifier])
        except NoteError:
            continue  # not of this key: it says nothing about what this key has signed
        witnessed = parse_checkpoint(seen.text)
        if witnessed.origin != checkpoint.origin:
            continue
        if witnessed.size > checkpoint.size or merkle.root(witnessed.size, stored.read_hashes) != witnessed.root:
            raise _two_histories(directory, path, witnessed, checkpoint)


def _two_histories(directory: Path, path: str, other: Checkpoint, checkpoint: Checkpoint, why: str = "") -> LedgerError:
    return LedgerError(
        f"the ledger of {checkpoint.origin} was rolled back or rewritten\n"
        f"  {directory / path}: size {other.size}  root {other.root.hex()}\n"
        f"  {directory / CHECKPOINT}: size {checkpoint.size}  root {checkpoint.root.hex()}\n"
        f"{why}  the second does not extend the first, and this ledger's key has signed both\n"
        "  keep both notes: together they are the evidence"
    )


def _stored(directory: Path) -> Iterator[tuple[str, Tile | Bundle]]:
    """Yield every tile and bundle in the directory; files with other names are ignored.

    On the way every directory is flushed, those of blobs too: one that a killed writer made may not be on the disk yet.
    """
    for place in (directory, directory / "blobs", directory / "blobs/sha256"):
        if place.is_dir():
            flush(place)
    for parent, _, names in os.walk(directory / "tile", onerror=_refuse):
        flush(Path(parent))
        below = Path(parent).relative_to(directory).as_posix()
        for path in (f"{below}/{name}" for name in names):
            if (file := parse_path(path)) is not None:
                yield path, file


def _set_aside(directory: Path, paths: list[str]) -> None:
    if not paths:
        return
    fresh = next(place for n in count(1) if not (place := directory / UNSIGNED / str(n)).exists())
    for path in paths:
        _move(directory / path, fresh / path)


def _move(path: Path, target: Path) -> None:
    try:
        make_directory(target.parent)
        path.replace(target)
    except OSError as error:
        raise LedgerError(f"cannot move {path} to {target}: {error.strerror or error}") from error


def _read(directory: Path, name: str) -> bytes | None:
    return read_file(directory, name, max_bytes=note.MAX_BYTES)


def _refuse(error: OSError) -> None:
    if isinstance(error, FileNotFoundError):
        return  # a ledger without entries has no tiles
    raise LedgerError(f"cannot read {error.filename}: {error.strerror or error}") from error


# ------------------------------- files that are created once, never changed, and flushed before anything refers to them

MAX_OPEN = 128
AT_ONCE = 8  # files that are flushed at the same time: the disk then writes its journal once for many of them


class NewFiles:
    """New files below a directory. After `flush` they survive a power failure, with their directories.

    Files stay open until they are flushed: the kernel reports a failed write only through a descriptor that was open
    when it failed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._open: list[IO[bytes]] = []
        self._touched: set[Path] = set()

    def create(self, relative: str, content: bytes) -> None:
        """Create a file. Raises `LedgerError` if it exists or the disk refuses. A crash may leave it incomplete."""
        path = self._root / relative
        try:
            self._make(path.parent)
            self._open.append(path.open("xb", buffering=0))
            _write(self._open[-1], content)
        except OSError as error:
            raise _refused(path, error) from error
        self._touched.add(path.parent)
        if len(self._open) == MAX_OPEN:
            self._flush_content()

    def flush(self) -> None:
        """Bring everything created so far to the disk. Raises `LedgerError` if it refuses."""
        # Contents before names: no directory may name a file whose content could still be lost.
        self._flush_content()
        for directory in sorted(self._touched):
            flush(directory)
        self._touched.clear()

    def close(self) -> None:
        """Close all files. Those that were not flushed may be incomplete."""
        for file in self._open:
            file.close()
        self._open.clear()

    def _make(self, directory: Path) -> None:
        try:
            directory.mkdir()
        except FileExistsError:
            return
        except FileNotFoundError:
            self._make(directory.parent)
            directory.mkdir()
        self._touched.add(directory.parent)

    def _flush_content(self) -> None:
        if len(self._open) > AT_ONCE:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(_flush_file, self._open))
        else:
            for file in self._open:
                _flush_file(file)
        self._open.clear()


def flush(path: Path) -> None:
    """Make the content of a file, or the names in a directory, durable. Raises `LedgerError` if the disk refuses."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refused(path, error) from error


def _flush_file(file: IO[bytes]) -> None:
    try:
        os.fsync(file.fileno())
        file.close()
    except OSError as error:
        raise _refused(Path(file.name), error) from error


def _write(file: IO[bytes], content: bytes) -> None:
    """Write all of it: an unbuffered write may take only a part, as on a disk that fills up."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def _refused(path: Path, error: OSError) -> LedgerError:
    return LedgerError(f"cannot write {path}: {error.strerror or error}")

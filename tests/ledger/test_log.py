"""The writer: what is on the disk when, what is refused, and what happens when the disk refuses."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from explorer import merkle, note, rundir
from explorer.errors import LedgerError
from explorer.ledger import log
from explorer.ledger.log import Log
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.ledger.storage import LedgerDirectory, blob_path, write_blob
from explorer.ledger.tiles import TILE, belongs, bundles, tiles
from explorer.note import Algorithm
from tests.ledger.signers import ORIGIN, entry, signer


def create(directory: Path, size: int = 0, *, interval: int = 65_536) -> Log:
    """A new ledger, open, with this many entries in its checkpoint."""
    made = Log.create(directory, origin=ORIGIN, signer=signer(), interval=interval)
    made.append(entry(number) for number in range(size))
    made.commit()
    return made


def reopen(directory: Path) -> Log:
    return Log.open(directory, signer=signer())


def check(directory: Path, size: int) -> None:
    """The ledger holds exactly the first `size` entries, in tiles that lead to the signed root."""
    found = LedgerDirectory(directory)
    note.verify(found.note(), [signer().verifier])
    checkpoint = found.checkpoint()
    assert checkpoint.size == size
    assert list(found.entries()) == [entry(number) for number in range(size)]
    assert checkpoint.root == merkle.root_of(merkle.leaf_hash(entry(number)) for number in range(size))
    assert merkle.root(size, found.read_hashes) == checkpoint.root


def files(directory: Path) -> dict[str, tuple[int, int]]:
    """Every file of the tree, with what changes when it is written again."""
    found = [path for path in (directory / "tile").rglob("*") if path.is_file()]
    return {path.relative_to(directory).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


def test_a_new_ledger_is_signed_at_size_0(tmp_path: Path) -> None:
    create(tmp_path / "a").close()
    check(tmp_path / "a", 0)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [".lock", "checkpoint"]


@pytest.mark.parametrize(("step", "total"), ((1, 260), (7, 600), (255, 600), (256, 600), (257, 600), (600, 600)))
def test_what_is_appended_does_not_depend_on_the_steps(tmp_path: Path, step: int, total: int) -> None:
    """Within one opening and over several."""
    with create(tmp_path / "a") as writer:
        for start in range(0, total, step):
            writer.append(entry(number) for number in range(start, min(total, start + step)))
            assert writer.commit().size == min(total, start + step)
    create(tmp_path / "b").close()
    for start in range(0, total, step):
        with reopen(tmp_path / "b") as writer:
            writer.append(entry(number) for number in range(start, min(total, start + step)))
    check(tmp_path / "a", total)
    assert (tmp_path / "a/checkpoint").read_bytes() == (tmp_path / "b/checkpoint").read_bytes()
    for file in (*tiles(total), *bundles(total)):
        assert (tmp_path / "a" / file.path).read_bytes() == (tmp_path / "b" / file.path).read_bytes()


def test_all_levels_of_tiles(tmp_path: Path) -> None:
    with create(tmp_path / "a") as writer:
        writer.append(b"%d" % number for number in range(66_000))
        assert writer.checkpoint.size == 65_536
    found = LedgerDirectory(tmp_path / "a")
    leaves = [merkle.leaf_hash(b"%d" % number) for number in range(66_000)]
    assert found.checkpoint().root == merkle.root_of(leaves)
    assert set(files(tmp_path / "a")) >= {file.path for file in (*tiles(66_000), *bundles(66_000))}
    reopen(tmp_path / "a").close()


def test_append_commits_at_every_interval(tmp_path: Path) -> None:
    with create(tmp_path / "a", interval=10) as writer:
        writer.append(entry(number) for number in range(9))
        assert (writer.size, writer.checkpoint.size) == (9, 0)
        writer.append(entry(number) for number in range(9, 25))
        assert (writer.size, writer.checkpoint.size) == (25, 20)
        check(tmp_path / "a", 20)
    check(tmp_path / "a", 25)


def test_an_exception_does_not_commit(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="ours"), create(tmp_path / "a", 5) as writer:
        writer.append([b"lost"])
        raise KeyError("ours")
    check(tmp_path / "a", 5)


def test_nothing_is_signed_twice(tmp_path: Path) -> None:
    with create(tmp_path / "a", 5) as writer:
        before = (tmp_path / "a/checkpoint").stat().st_ino
        assert writer.commit() == writer.commit() == writer.checkpoint
        assert (tmp_path / "a/checkpoint").stat().st_ino == before


def needed(sizes: Sequence[int]) -> set[str]:
    """Full files, and the partials of every checkpoint until their full file was in the last checkpoint but one."""
    before = sizes[-2] if len(sizes) > 1 else 0
    of_all = (file for size in sizes for file in (*tiles(size), *bundles(size)))
    return {file.path for file in of_all if file.width == TILE or not belongs(file._replace(width=TILE), before)}


def test_files_are_written_once_and_partials_go_when_the_full_tile_is_there(tmp_path: Path) -> None:
    """C2SP tlog-tiles: partials of every size for which a checkpoint was produced MUST be there until then."""
    seen: dict[str, tuple[int, int]] = {}
    sizes: list[int] = []
    with create(tmp_path / "a") as writer:
        for size in (*range(1, 8), 200, *range(254, 260), 511, 512, 515):
            writer.append(entry(number) for number in range(writer.size, size))
            writer.commit()
            sizes.append(size)
            present = files(tmp_path / "a")
            assert set(present) == needed(sizes)
            assert all(seen.get(path, there) == there for path, there in present.items())
            seen.update(present)
            for file in (file for old in sizes for file in (*tiles(old), *bundles(old))):
                assert file.path in present or file._replace(width=TILE).path in present
    for size in (516, 517, 770, 771):
        with reopen(tmp_path / "a") as writer:  # a writer that is new to them goes on alike
            writer.append(entry(number) for number in range(writer.size, size))
        sizes.append(size)
        assert set(files(tmp_path / "a")) == needed(sizes)
    assert not [path for path in (tmp_path / "a/tile").rglob("*.p") if not any(path.iterdir())]


def test_there_is_one_ledger_in_a_directory(tmp_path: Path) -> None:
    create(tmp_path / "a", 5).close()
    with pytest.raises(LedgerError, match="there is a ledger already"):
        create(tmp_path / "a")
    (tmp_path / "a/checkpoint").unlink()
    with pytest.raises(LedgerError, match="'tile' exists"):
        create(tmp_path / "a")
    with pytest.raises(LedgerError, match="no ledger is kept here"):
        reopen(tmp_path / "a")
    with pytest.raises(LedgerError, match="no ledger is kept here"):
        reopen(tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_the_name_of_the_key_is_the_name_of_the_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"has the name of its key: found origin 'other', expected 'example.com/run'"):
        Log.create(tmp_path / "a", origin="other", signer=signer())
    with pytest.raises(LedgerError, match="cosigns; a ledger is signed with a plain"):
        Log.create(tmp_path / "a", origin=ORIGIN, signer=signer(algorithm=Algorithm.COSIGNATURE))
    with pytest.raises(LedgerError, match="an interval of 0"):
        Log.create(tmp_path / "b", origin=ORIGIN, signer=signer(), interval=0)


def test_another_key_is_refused_by_name(tmp_path: Path) -> None:
    create(tmp_path / "a", 5).close()
    for other in (signer(2), signer(1, name="example.com/other")):
        with pytest.raises(LedgerError) as refused:
            Log.open(tmp_path / "a", signer=other)
        assert f"signed by {ORIGIN} ({signer().verifier.key_id.hex()})" in str(refused.value)
        assert f"trusted are {other.name} ({other.verifier.key_id.hex()})" in str(refused.value)
    reopen(tmp_path / "a").close()


def test_another_origin_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "a", 5).close()
    text = LedgerDirectory(tmp_path / "a").note().text.replace(ORIGIN, "example.com/other")
    (tmp_path / "a/checkpoint").write_bytes(note.sign(text, signer()).content)
    with pytest.raises(LedgerError, match=r"a ledger of 'example\.com/other', but the key is of 'example\.com/run'"):
        reopen(tmp_path / "a")


def test_a_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from tests.ledger.signers import signer; from explorer.ledger.log import Log\n"
        f"Log.open(Path({str(tmp_path / 'a')!r}), signer=signer())"
    )
    with create(tmp_path / "a", 5):
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert f"LedgerError: the ledger '{ORIGIN}' is in use by process {os.getpid()}: wait" in found.stderr
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert again.returncode == 0, again.stderr


def test_a_failed_opening_releases_the_lock(tmp_path: Path) -> None:
    create(tmp_path / "a", 5).close()
    with pytest.raises(LedgerError):
        Log.open(tmp_path / "a", signer=signer(2))
    reopen(tmp_path / "a").close()


def test_a_child_process_cannot_go_on_with_its_parents_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = create(tmp_path / "a", 5)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(LedgerError, match="used by process -1"):
        writer.append([b"x"])
    monkeypatch.undo()
    writer.close()


def test_a_closed_log_is_of_no_use(tmp_path: Path) -> None:
    writer = create(tmp_path / "a", 5)
    writer.close()
    writer.close()
    for use in (writer.commit, lambda: writer.append([b"x"]), lambda: writer.write_blob(b"x")):
        with pytest.raises(LedgerError, match=r"cannot be used any more \(it is closed\); open it again"):
            use()


def test_a_bad_entry_spoils_nothing(tmp_path: Path) -> None:
    with create(tmp_path / "a", 5) as writer:
        with pytest.raises(LedgerError, match="an entry of 65536 bytes"):
            writer.append([*(entry(number) for number in range(5, 300)), bytes(65_536)])
        assert writer.size == 256, "whole bundles of the same call were taken"

        def failing() -> Iterator[bytes]:
            yield entry(256)
            raise KeyError("the caller's own")

        with pytest.raises(KeyError, match="own"):
            writer.append(failing())
        writer.append(entry(number) for number in range(writer.size, 300))
    check(tmp_path / "a", 300)


def test_a_changed_checkpoint_is_not_overwritten(tmp_path: Path) -> None:
    create(tmp_path / "a", 5).close()
    old = (tmp_path / "a/checkpoint").read_bytes()
    with pytest.raises(LedgerError, match="changed from outside"), reopen(tmp_path / "a") as writer:
        writer.append([entry(5)])
        writer.commit()
        (tmp_path / "a/checkpoint").write_bytes(old)
        writer.append([entry(6)])
    assert (tmp_path / "a/checkpoint").read_bytes() == old


def test_a_rolled_back_ledger_is_refused_when_a_witness_knows(tmp_path: Path) -> None:
    writer = create(tmp_path / "a", 5)
    old = (tmp_path / "a/checkpoint").read_bytes()
    writer.append([entry(5)])
    writer.commit()
    writer.close()
    (tmp_path / "a/witness").mkdir()
    (tmp_path / "a/witness/w.note").write_bytes((tmp_path / "a/checkpoint").read_bytes())
    reopen(tmp_path / "a").close()
    (tmp_path / "a/checkpoint").write_bytes(old)
    with pytest.raises(LedgerError, match=r"rolled back or rewritten\n.*w\.note: size 6 .*\n.*checkpoint: size 5 "):
        reopen(tmp_path / "a")


@pytest.mark.parametrize("size", (5, 3))
def test_a_witness_of_another_history_is_noticed(tmp_path: Path, size: int) -> None:
    """Of the same size or of a smaller one, if this ledger's key has signed it; what others sign means nothing here."""
    create(tmp_path / "a", 5).close()
    (tmp_path / "a/witness").mkdir()
    forged = Checkpoint(origin=ORIGIN, size=size, root=bytes(32))
    (tmp_path / "a/witness/w.note").write_bytes(note.sign(forged.text, signer(2)).content)
    reopen(tmp_path / "a").close()
    (tmp_path / "a/witness/w.note").write_bytes(note.sign(forged.text, signer()).content)
    with pytest.raises(LedgerError, match="rolled back or rewritten"):
        reopen(tmp_path / "a")


def test_a_process_that_changes_its_directory_goes_on_writing_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with create(Path("a"), 5) as writer:
        (tmp_path / "b").mkdir()
        monkeypatch.chdir("b")
        writer.append([entry(5)])
    check(tmp_path / "a", 6)


def test_what_was_never_signed_is_moved_aside(tmp_path: Path) -> None:
    """And not signed later, since nobody knows here how it came to be; each time in a directory of its own."""
    create(tmp_path / "a", 300).close()
    for round_ in (1, 2):
        with pytest.raises(KeyError), reopen(tmp_path / "a") as writer:
            writer.append(entry(number) for number in range(300, 600))
            raise KeyError
        assert (tmp_path / "a/tile/0/001").exists()
        reopen(tmp_path / "a").close()
        assert not (tmp_path / "a/tile/0/001").exists()
        aside = (path for path in (tmp_path / f"a/unsigned/{round_}").rglob("*") if path.is_file())
        assert sorted(path.name for path in aside) == ["001", "001"]
    (tmp_path / "a/tile/0/notes.txt").write_text("not ours")
    with reopen(tmp_path / "a") as writer:
        writer.append(entry(number) for number in range(300, 600))
    assert (tmp_path / "a/tile/0/notes.txt").read_text() == "not ours"
    check(tmp_path / "a", 600)


def test_a_signed_checkpoint_that_was_not_yet_in_place_is_put_there(tmp_path: Path) -> None:
    """The writer died after signing size 600 and before the rename."""
    with create(tmp_path / "a", 300) as writer:
        old = (tmp_path / "a/checkpoint").read_bytes()
        writer.append(entry(number) for number in range(300, 600))
    (tmp_path / "a/checkpoint").rename(tmp_path / "a/.checkpoint.77.tmp")
    (tmp_path / "a/checkpoint").write_bytes(old)
    with reopen(tmp_path / "a") as writer:
        assert writer.size == 600
        writer.append(entry(number) for number in range(600, 601))
    check(tmp_path / "a", 601)
    assert not list((tmp_path / "a").rglob("*.tmp"))


@pytest.mark.parametrize("content", (b"", b"example.com/run\n5", None))
def test_half_a_checkpoint_is_none(tmp_path: Path, content: bytes | None) -> None:
    """Written in part, or the one before."""
    with create(tmp_path / "a", 3) as writer:
        older = (tmp_path / "a/checkpoint").read_bytes()
        writer.append(entry(number) for number in range(3, 5))
    (tmp_path / "a/.checkpoint.77.tmp").write_bytes(older if content is None else content)
    reopen(tmp_path / "a").close()
    check(tmp_path / "a", 5)
    assert (tmp_path / "a/unsigned/1/.checkpoint.77.tmp").exists()


def aside(directory: Path) -> dict[str, bytes]:
    """Every file, to see that an opening that is refused changes none."""
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != ".lock"}


@pytest.mark.parametrize("size", (200, 300, 301, 600))
def test_a_signed_checkpoint_of_another_history_replaces_nothing(tmp_path: Path, size: int) -> None:
    """From a fork of this ledger, larger, smaller or as large: it is a second history, and both notes stay."""
    create(tmp_path / "a", 300).close()
    with create(tmp_path / "fork") as fork:
        fork.append(b"other %d" % number for number in range(size))
    (tmp_path / "a/.checkpoint.77.tmp").write_bytes((tmp_path / "fork/checkpoint").read_bytes())
    before = aside(tmp_path / "a")
    with pytest.raises(
        LedgerError, match=rf"rolled back or rewritten\n.*checkpoint\.77\.tmp: size {size} .*\n.*size 300"
    ):
        reopen(tmp_path / "a")
    assert aside(tmp_path / "a") == before
    (tmp_path / "a/.checkpoint.77.tmp").unlink()
    reopen(tmp_path / "a").close()
    check(tmp_path / "a", 300)


def test_a_signed_checkpoint_whose_tree_is_gone_replaces_nothing(tmp_path: Path) -> None:
    """An older copy of the tree under a later checkpoint that was not yet in place: to go on would be a fork."""
    with create(tmp_path / "a", 300) as writer:
        shutil.copytree(tmp_path / "a", tmp_path / "copy")
        writer.append(entry(number) for number in range(300, 600))
    shutil.copy(tmp_path / "a/checkpoint", tmp_path / "copy/.checkpoint.77.tmp")
    before = aside(tmp_path / "copy")
    with pytest.raises(LedgerError, match=r"rolled back or rewritten\n(.*\n)*.*tile/0/002\.p/88: missing"):
        reopen(tmp_path / "copy")
    assert aside(tmp_path / "copy") == before
    check(tmp_path / "copy", 300)


def test_nothing_is_moved_aside_from_a_ledger_that_does_not_open(tmp_path: Path) -> None:
    """Files beyond the checkpoint, and a checkpoint that its own tiles contradict."""
    with create(tmp_path / "a", 300) as writer:
        old = (tmp_path / "a/checkpoint").read_bytes()
        writer.append(entry(number) for number in range(300, 600))
    (tmp_path / "a/checkpoint").write_bytes(old)
    (tmp_path / "a/tile/0/001.p/44").write_bytes(bytes(44 * 32))
    before = aside(tmp_path / "a")
    with pytest.raises(LedgerError, match="lead to root"):
        reopen(tmp_path / "a")
    assert aside(tmp_path / "a") == before


@pytest.mark.parametrize(
    ("path", "message"),
    (
        ("tile/0/001.p/44", "lead to root [0-9a-f]{64} at size 300, signed is"),
        ("tile/1/000.p/1", "lead to root"),
        ("tile/entries/001.p/44", r"tile/entries/001\.p/44"),
        ("checkpoint", "checkpoint: "),
    ),
)
def test_a_damaged_edge_is_not_appended_to(tmp_path: Path, path: str, message: str) -> None:
    create(tmp_path / "a", 300).close()
    whole = (tmp_path / "a" / path).read_bytes()
    for at in (0, len(whole) // 2, len(whole) - 3):
        (tmp_path / "a" / path).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(LedgerError, match=message):
            reopen(tmp_path / "a")
    (tmp_path / "a" / path).unlink()
    with pytest.raises(LedgerError, match=r"missing"):
        reopen(tmp_path / "a")
    (tmp_path / "a" / path).write_bytes(whole)
    reopen(tmp_path / "a").close()


def test_a_blob_is_stored_before_it_is_named(tmp_path: Path) -> None:
    with create(tmp_path / "a") as writer:
        digest = writer.write_blob(b"large")
        writer.append([digest.encode()])
    assert LedgerDirectory(tmp_path / "a").blob(digest) == b"large"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        with Log.create(tmp_path / str(count), origin=ORIGIN, signer=signer()) as writer:
            writer.append(b"%0100d" % number for number in range(count))
        try:
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1_000)
    assert peak(80_000) < peak(40_000) + 100_000, "40,000 entries alone are 4 MB"


def test_everything_is_flushed_before_it_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every publication: each file of the tree, and each directory that had a name added since its last flush."""
    flushed: dict[Path, int] = {}
    clock = iter(range(10**9))
    fsync, publish = os.fsync, log.write_bytes
    added: dict[Path, int] = {}
    published = 0

    def noting_fsync(descriptor: int) -> None:
        fsync(descriptor)
        flushed[Path(f"/proc/self/fd/{descriptor}").readlink()] = next(clock)

    def noting_open(path: Path, *arguments: Any, **options: Any) -> Any:
        if arguments == ("xb",):
            added[path.parent] = added[path] = next(clock)
        return opening(path, *arguments, **options)

    def noting_mkdir(path: Path, *arguments: Any, **options: Any) -> None:
        if not path.exists():
            added[path.parent] = next(clock)
        making(path, *arguments, **options)

    def checking(path: Path, content: bytes) -> None:
        nonlocal published
        published += 1
        late = [there for there, moment in added.items() if "tile" in there.parts and flushed.get(there, -1) < moment]
        assert not late, late
        publish(path, content)

    opening, making = Path.open, Path.mkdir
    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(Path, "open", noting_open)
    monkeypatch.setattr(Path, "mkdir", noting_mkdir)
    monkeypatch.setattr(log, "write_bytes", checking)
    writer = create(tmp_path / "new/a")
    assert flushed[tmp_path] > added[tmp_path] and flushed[tmp_path / "new"] > added[tmp_path / "new"]
    for size in (1, 300, 301, 40_000):
        writer.append(entry(number) for number in range(writer.size, size))
        writer.commit()
    writer.close()
    assert published == 5 and len(added) > 300


class Disk:
    """Which names a power failure would leave: those that were flushed in their directory since they came there."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.waiting: set[Path] = set()  # names that their directory was not flushed after, and files not flushed
        real_fsync, real_mkdir, real_replace, real_open = os.fsync, Path.mkdir, Path.replace, Path.open

        def fsync(descriptor: int) -> None:
            real_fsync(descriptor)
            place = Path(f"/proc/self/fd/{descriptor}").readlink()
            self.waiting -= {path for path in self.waiting if path == place / path.name or path == place / ".content"}

        def mkdir(path: Path, *arguments: Any, **options: Any) -> None:
            new = not path.exists()
            real_mkdir(path, *arguments, **options)
            self.waiting |= {path} if new else set()

        def replace(path: Path, target: Path) -> Path:
            assert path / ".content" not in self.waiting, f"{path} is renamed before its content is on the disk"
            self.waiting.add(target)
            return real_replace(path, target)

        def opening(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            file = real_open(path, mode, *arguments, **options)
            if "w" in mode or "x" in mode:
                self.waiting |= {path / ".content"} | ({path} if "x" in mode else set())
            return file

        for owner, name, value in (
            (os, "fsync", fsync), (Path, "mkdir", mkdir), (Path, "replace", replace), (Path, "open", opening)
        ):  # fmt: skip
            patch.setattr(owner, name, value)

    def lost(self, path: Path) -> set[Path]:
        """What of a file and of the names on the way to it would not be there."""
        return self.waiting & {path / ".content", path, *path.parents}


def test_a_blob_is_on_the_disk_when_its_digest_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its content, its name, and the name of every directory on the way."""
    disk = Disk(monkeypatch)
    with create(tmp_path / "new/deep/a") as writer:
        for number in range(40):
            digest = writer.write_blob(b"%d" % number)
            path = tmp_path / "new/deep/a" / blob_path(digest)
            assert not disk.lost(path)
            writer.append([digest.encode()])
        writer.commit()
        for path in (path for path in (tmp_path / "new").rglob("*") if path.is_file() and path.name != ".lock"):
            assert not disk.lost(path)


def test_what_a_killed_writer_left_is_flushed_before_it_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blob that is there already, below directories that nobody flushed; the same one again, and a neighbour."""
    create(tmp_path / "a").close()
    one, two = [b"%d" % n for n in range(2_000) if sha256(b"%d" % n).startswith("fa")][:2]
    disk = Disk(monkeypatch)
    with monkeypatch.context() as crash:
        crash.setattr(rundir, "flush_directory", lambda directory: None)
        left = tmp_path / "a" / blob_path(write_blob(tmp_path / "a", one))
    assert len(disk.lost(left)) == 4, "the control: its name is lost, and those of three directories"
    with reopen(tmp_path / "a") as writer:
        beside = tmp_path / "a" / blob_path(writer.write_blob(two))
        assert beside.parent == left.parent and not disk.lost(beside)
        writer.write_blob(one)
        assert not disk.lost(left)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_no_other_file_system_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`os.sync` waits for everybody's disks; only our own files are flushed, however many."""
    flushed: list[Path] = []

    def refuse() -> None:
        raise AssertionError("os.sync")

    monkeypatch.setattr(os, "sync", refuse)
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink()))
    create(tmp_path / "a", 40_000).close()
    assert set(flushed) >= {path for path in (tmp_path / "a/tile").rglob("*") if path.is_file()}


class Failing:
    """Lets the n-th thing that is asked of the disk fail, and every one after it."""

    def __init__(self, patch: pytest.MonkeyPatch, after: int) -> None:
        self.left = after
        for owner, name in (
            (os, "fsync"), (Path, "open"), (Path, "mkdir"), (Path, "replace"), (Path, "rename"), (Path, "unlink"),
            (Path, "rmdir"), (log, "_write"), (os, "scandir"),
        ):  # fmt: skip
            patch.setattr(owner, name, self.wrap(getattr(owner, name)))

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments, **options)

        return called


@pytest.mark.slow
def test_whatever_the_disk_refuses_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every single request of a session fails once: opening, full and partial files, signing, removing partials."""
    for after in count():
        directory = tmp_path / str(after)
        create(directory, 250).close()
        with pytest.raises(KeyError), reopen(directory) as writer:
            writer.append(entry(number) for number in range(250, 520))
            raise KeyError  # leaves something to set aside
        acknowledged, writer = 250, None
        with monkeypatch.context() as patch:
            failing = Failing(patch, after)
            try:
                writer = reopen(directory)
                for size in (260, 600, 601):
                    writer.append(entry(number) for number in range(writer.size, size))
                    acknowledged = writer.commit().size
            except LedgerError as error:
                assert "Input/output error" in str(error)
            left = failing.left
        if writer is not None:
            if left < 0:
                with pytest.raises(LedgerError, match="cannot be used any more"):
                    writer.commit()
            writer.close()
        if left >= 0:
            assert after > 60, "every request was let fail"
            return
        size = LedgerDirectory(directory).checkpoint().size
        assert acknowledged <= size <= 601
        check(directory, size)
        with reopen(directory) as writer:
            assert writer.size in (size, 260, 600, 601), "as it was, or what was signed and not yet in place"
            assert writer.size >= size
            writer.append(entry(number) for number in range(writer.size, 602))
        check(directory, 602)


def test_an_interrupted_writer_is_of_no_more_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = create(tmp_path / "a", 5)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    writer.append([entry(5)])
    with monkeypatch.context() as patch:
        patch.setattr(log, "_write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.commit()
    with pytest.raises(LedgerError, match=r"cannot be used any more \(KeyboardInterrupt"):
        writer.commit()
    writer.close()
    check(tmp_path / "a", 5)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting a file system needs more rights")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    directory = small_disk / "a"
    create(directory, 100).close()
    with pytest.raises(LedgerError, match=r"cannot write .*: No space left on device"), reopen(directory) as writer:
        while True:
            writer.append(entry(number) for number in range(writer.size, writer.size + 300))
            writer.commit()
    size = LedgerDirectory(directory).checkpoint().size
    check(directory, size)
    assert size > 300
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    with reopen(directory) as writer:
        writer.append(entry(number) for number in range(size, 5_000))
    check(directory, 5_000)


def test_a_read_only_directory(small_disk: Path) -> None:
    directory = small_disk / "a"
    create(directory, 100).close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(LedgerError, match=r"cannot lock .*: Read-only file system"):
        reopen(directory)
    with pytest.raises(LedgerError, match=r"cannot lock .*: Read-only file system"):
        create(small_disk / "b")
    check(directory, 100)
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with reopen(directory) as writer:
        writer.append([entry(100)])
    check(directory, 101)


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tests.ledger.signers import entry, signer
from explorer.ledger.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
with Log.open(Path(sys.argv[1]), signer=signer()) as log:
    log.append(entry(number) for number in range(100, 400))
"""


def test_a_file_that_the_system_cuts_off(tmp_path: Path) -> None:
    """A real failure in the middle of a file: the bundle of 256 entries is larger than this process may write."""
    create(tmp_path / "a", 100).close()
    found = subprocess.run([sys.executable, "-c", LIMITED, tmp_path / "a"], capture_output=True, text=True, timeout=600)
    assert found.returncode == 1 and "LedgerError: cannot write" in found.stderr and "File too large" in found.stderr
    assert (tmp_path / "a/tile/entries/000").stat().st_size == 20_000
    check(tmp_path / "a", 100)
    with reopen(tmp_path / "a") as writer:
        assert writer.size == 100
    assert (tmp_path / "a/unsigned/1/tile/entries/000").stat().st_size == 20_000


def test_what_recovery_finds_is_what_the_writer_knew(tmp_path: Path) -> None:
    """A log that was opened anew behaves as one that was not."""
    with create(tmp_path / "a", 300) as writer:
        writer.append([entry(300)])
        writer.commit()
        found = log.recover(tmp_path / "a", signer().verifier)
        assert found.checkpoint == writer.checkpoint == parse_checkpoint(note.parse(found.content).text)
        partials = {"tile/entries/001.p/44", "tile/entries/001.p/45", "tile/0/001.p/44", "tile/0/001.p/45"}
        assert {file.path for file in found.partials} == partials | {"tile/1/000.p/1"}

"""Reading somebody's directory: older sizes out of newer files, and files that are hostile."""

import os
import random
import resource
import sys
import threading
import time
from pathlib import Path

import pytest

from explorer import merkle, note
from explorer.errors import LedgerError
from explorer.ledger import storage
from explorer.ledger.log import Log
from explorer.ledger.proof import make_proof
from explorer.ledger.storage import LedgerDirectory, blob_path, note_name, write_blob
from explorer.ledger.tiles import Bundle, Tile
from explorer.merkle import Place
from explorer.note import Algorithm
from tests.ledger.signers import ORIGIN, entry, signer


def written(directory: Path, *steps: int) -> LedgerDirectory:
    """A ledger with a checkpoint after each of these sizes."""
    with Log.create(directory, origin=ORIGIN, signer=signer()) as log:
        for size in steps:
            log.append(entry(number) for number in range(log.size, size))
            log.commit()
    return LedgerDirectory(directory)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found = written(tmp_path / "a", 600)
    checkpoint = found.checkpoint()
    assert (checkpoint.origin, checkpoint.size) == (ORIGIN, 600)
    assert list(found.entries()) == [entry(number) for number in range(600)]
    for start, stop in ((0, 0), (0, 1), (255, 257), (256, 512), (300, 600), (599, 600), (600, 600)):
        assert list(found.entries(start, stop)) == [entry(number) for number in range(start, stop)]
    assert merkle.root(600, found.read_hashes) == checkpoint.root
    assert found.read_hashes([]) == []


@pytest.mark.parametrize(("start", "stop"), ((-1, 3), (4, 3), (0, 601)))
def test_entries_that_are_not_there(tmp_path: Path, start: int, stop: int) -> None:
    found = written(tmp_path / "a", 600)
    with pytest.raises(LedgerError, match=f"no entries {start} to {stop} in a ledger of 600"):
        list(found.entries(start, stop))


def test_hashes_beyond_the_checkpoint_are_not_read(tmp_path: Path) -> None:
    found = written(tmp_path / "a", 600)
    with pytest.raises(LedgerError, match="no complete subtree 600 at level 0 in a tree of 600"):
        found.read_hashes([Place(0, 600)])


@pytest.mark.parametrize("later", ((520,), (520, 530), (520, 530, 540, 768), (520, 530, 768, 800, 70_000)))
def test_a_reader_is_not_disturbed_by_a_writer_that_goes_on(tmp_path: Path, later: tuple[int, ...]) -> None:
    """Whatever has become of the files of the reader's edge: kept, wider or full."""
    found = written(tmp_path / "a", 515)
    checkpoint = found.checkpoint()
    with Log.open(tmp_path / "a", signer=signer()) as log:
        for size in later:
            log.append(entry(number) for number in range(log.size, size))
            log.commit()
    assert found.checkpoint() == checkpoint
    assert list(found.entries()) == [entry(number) for number in range(515)]
    assert merkle.root(515, found.read_hashes) == checkpoint.root


@pytest.mark.slow
def test_a_reader_beside_a_writer_at_work_always_finds_what_it_needs(tmp_path: Path) -> None:
    """Partials come and go and tiles become full between a reader's checkpoint and its last file."""
    found = written(tmp_path / "a", 200)
    stop = threading.Event()

    def keep_writing() -> None:
        pick = random.Random(1)
        with Log.open(tmp_path / "a", signer=signer()) as log:
            while not stop.is_set():
                log.append(entry(number) for number in range(log.size, log.size + pick.randint(1, 60)))
                log.commit()

    before, reads = sys.getswitchinterval(), 0
    sys.setswitchinterval(1e-5)
    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            found = LedgerDirectory(tmp_path / "a")
            size = found.checkpoint().size
            time.sleep(reads % 3 / 200)
            assert merkle.root(size, found.read_hashes) == found.checkpoint().root
            start = size // 256 * 256
            assert list(found.entries(start)) == [entry(number) for number in range(start, size)]
            reads += 1
    finally:
        stop.set()
        writer.join()
        sys.setswitchinterval(before)
    assert reads > 5 and LedgerDirectory(tmp_path / "a").checkpoint().size > 500


def test_cosignatures_of_the_same_text_are_merged(tmp_path: Path) -> None:
    found = written(tmp_path / "a", 3)
    witness = signer(2, name="witness.example/dg", algorithm=Algorithm.COSIGNATURE)
    text = found.note().text
    directory = tmp_path / "a/witness"
    directory.mkdir()
    same = note.Note(text=text, signatures=(witness.sign(text, time=1_700_000_000),))
    (directory / "same.note").write_bytes(same.content)
    (directory / "older.note").write_bytes(note.sign("another\n", signer(3)).content)
    (directory / ".hidden.note").write_text("not read")
    (directory / "readme.txt").write_text("not read")
    again = LedgerDirectory(tmp_path / "a")
    assert again.note().signatures == (*found.note().signatures, *same.signatures)
    assert sorted(again.witness_notes()) == ["witness/older.note", "witness/same.note"]


def test_damage_is_named(tmp_path: Path) -> None:
    found = written(tmp_path / "a", 600)
    found.checkpoint()
    (tmp_path / "a/tile/0/000").write_bytes(bytes(8191))
    with pytest.raises(LedgerError, match="a/tile/0/000: 8191 bytes, expected 8192"):
        found.tile(Tile(0, 0, 256))
    (tmp_path / "a/tile/0/000").write_bytes(bytes(8193))
    with pytest.raises(LedgerError, match="a/tile/0/000: 8193 bytes, expected at most 8192"):
        found.tile(Tile(0, 0, 256))
    (tmp_path / "a/tile/entries/001").unlink()
    with pytest.raises(LedgerError, match="a/tile/entries/001: missing"):
        list(found.entries())
    (tmp_path / "a/tile/entries/002.p/88").write_bytes(b"\x00\x01")
    with pytest.raises(LedgerError, match=r"a/tile/entries/002\.p/88: ends inside entry 0, expected 88"):
        found.bundle(Bundle(2, 88))


@pytest.mark.parametrize(
    ("content", "message"), ((b"", "not a signed note"), (b"\xff", "UTF-8"), (bytes(1_000_001), "1000001 bytes"))
)
def test_a_damaged_note_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    written(tmp_path / "a", 3)
    (tmp_path / "a/checkpoint").write_bytes(content)
    with pytest.raises(LedgerError, match=f"a/checkpoint: .*{message}"):
        LedgerDirectory(tmp_path / "a").note()


@pytest.mark.parametrize("content", (b"", b"\xff", bytes(1_000_001)))
def test_a_damaged_note_of_a_witness_is_left_out(tmp_path: Path, content: bytes) -> None:
    """Anybody may have put it there: `verify` names it, and proofs are made without it."""
    before = written(tmp_path / "a", 3).note()
    (tmp_path / "a/witness").mkdir()
    (tmp_path / "a/witness/a.note").write_bytes(content)
    assert LedgerDirectory(tmp_path / "a").note() == before
    assert LedgerDirectory(tmp_path / "a").witness_notes() == {}


def test_a_checkpoint_that_is_none_is_named(tmp_path: Path) -> None:
    written(tmp_path / "a", 3)
    (tmp_path / "a/checkpoint").write_bytes(note.sign("hello\n", signer()).content)
    with pytest.raises(LedgerError, match="a/checkpoint: not a checkpoint"):
        LedgerDirectory(tmp_path / "a").checkpoint()
    (tmp_path / "a/checkpoint").unlink()
    with pytest.raises(LedgerError, match="a/checkpoint: missing"):
        LedgerDirectory(tmp_path / "a").checkpoint()
    with pytest.raises(LedgerError, match="b/checkpoint: missing"):
        LedgerDirectory(tmp_path / "b").checkpoint()


def test_of_very_many_notes_those_of_our_own_cosigners_are_read_first(tmp_path: Path) -> None:
    text = written(tmp_path / "a", 3).note().text
    witness = signer(2, name="w", algorithm=Algorithm.COSIGNATURE)
    own = note.Note(text=text, signatures=(witness.sign(text, time=1_700_000_000),))
    junk = note.Note(text=text, signatures=tuple(signer(9, name=f"j{n}").sign(text) for n in range(100)))
    (tmp_path / "a/witness").mkdir()
    for number in range(300):
        (tmp_path / f"a/witness/{number}.note").write_bytes(junk.content)
    (tmp_path / f"a/witness/{note_name(witness.verifier)}").write_bytes(own.content)
    found = LedgerDirectory(tmp_path / "a")
    assert len(found.witness_notes()) == 100
    assert own.signatures[0] in found.note().signatures
    assert len(found.note().signatures) == 100, "no more than one reads in a note"
    assert note.parse(make_proof(found, 0).checkpoint.content) == found.note()


def test_no_link_is_followed(tmp_path: Path) -> None:
    found = written(tmp_path / "a", 600)
    found.checkpoint()
    tile = tmp_path / "a/tile/0/000"
    tile.rename(tmp_path / "elsewhere")
    tile.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="tile/0/000: a link"):
        found.tile(Tile(0, 0, 256))
    entries = tmp_path / "a/tile/entries"
    entries.rename(tmp_path / "entries")
    entries.symlink_to(tmp_path / "entries")
    with pytest.raises(LedgerError, match="tile/entries/000: a link"):
        list(found.entries())
    (tmp_path / "a/witness").symlink_to(tmp_path)
    with pytest.raises(LedgerError, match="a/witness: a link"):
        found.witness_notes()
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert LedgerDirectory(tmp_path / "link").tile(Tile(1, 0, 2)), "the directory itself may be reached by one"


def test_a_pipe_or_a_device_keeps_nobody_waiting(tmp_path: Path) -> None:
    written(tmp_path / "a", 3)
    (tmp_path / "a/checkpoint").unlink()
    os.mkfifo(tmp_path / "a/checkpoint")
    with pytest.raises(LedgerError, match="a/checkpoint: not a regular file"):
        LedgerDirectory(tmp_path / "a").note()
    (tmp_path / "a/checkpoint").unlink()
    (tmp_path / "a/checkpoint").mkdir()
    with pytest.raises(LedgerError, match="a/checkpoint: not a regular file"):
        LedgerDirectory(tmp_path / "a").note()


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    found = written(tmp_path / "a", 600)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("checkpoint", "tile/0/000", "tile/entries/000"):
        with (tmp_path / "a" / name).open("r+b") as file:
            file.truncate(2**40)
    for read in (found.note, lambda: found.tile(Tile(0, 0, 256)), lambda: found.bundle(Bundle(0, 256))):
        with pytest.raises(LedgerError, match="1099511627776 bytes"):
            read()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_blobs(tmp_path: Path) -> None:
    digest = write_blob(tmp_path, b"content")
    assert digest == "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    assert (tmp_path / f"blobs/sha256/ed/{digest}").read_bytes() == b"content"
    assert write_blob(tmp_path, b"content") == digest
    assert LedgerDirectory(tmp_path).blob(digest) == b"content"
    assert write_blob(tmp_path, b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_damaged_blob_is_named(tmp_path: Path) -> None:
    digest = write_blob(tmp_path, b"content")
    (tmp_path / blob_path(digest)).write_bytes(b"kontent")
    with pytest.raises(LedgerError, match=f"{digest}: the blob is damaged: its digest is [0-9a-f]+"):
        LedgerDirectory(tmp_path).blob(digest)
    with pytest.raises(LedgerError, match="the blob is damaged"):
        write_blob(tmp_path, b"content")
    (tmp_path / blob_path(digest)).unlink()
    with pytest.raises(LedgerError, match=f"{digest}: the blob is missing"):
        LedgerDirectory(tmp_path).blob(digest)


def test_a_blob_that_is_too_large_or_has_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MAX_BLOB", 10)
    digest = write_blob(tmp_path, b"0123456789")
    with pytest.raises(LedgerError, match="a blob of 11 bytes; at most 10 are stored"):
        write_blob(tmp_path, b"0123456789a")
    with (tmp_path / blob_path(digest)).open("ab") as file:
        file.write(b"a")
    with pytest.raises(LedgerError, match="11 bytes, expected at most 10"):
        LedgerDirectory(tmp_path).blob(digest)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/blobs").touch()
    with pytest.raises(LedgerError, match="other/blobs/sha256/"):
        write_blob(tmp_path / "other", b"content")


@pytest.mark.parametrize("digest", ("", "../../etc/passwd", "e" * 63, "E" * 64, "e" * 64 + "\n", "é" * 64))
def test_a_digest_is_no_path(tmp_path: Path, digest: str) -> None:
    with pytest.raises(LedgerError, match="not a digest"):
        LedgerDirectory(tmp_path).blob(digest)

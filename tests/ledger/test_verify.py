"""Verification of sound ledgers, of living ones and of those that a crash has left; what is reported of each."""

import multiprocessing
import os
import shutil
import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from explorer import merkle
from explorer.errors import LedgerError
from explorer.ledger.cosign import cosign
from explorer.ledger.log import Log
from explorer.ledger.rebuild import MAX_FINDINGS, Findings, rebuild
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.storage import note_name
from explorer.ledger.trust_anchor import SKEW, Anchor
from explorer.merkle import leaf_hash, root_of
from explorer.note import sign, with_signatures
from tests.ledger.ledgers import AUDITOR, DG, LOG, MR, NOW, both, check, cosigned, grow, make, messages, note_of, policy
from tests.ledger.signers import ORIGIN, entry, signer

SIZES = [0, 1, 2, 3, 8, 255, 256, 257, 511, 512, 513, 700]


@pytest.mark.parametrize("size", SIZES)
def test_a_sound_ledger_verifies(tmp_path: Path, size: int) -> None:
    found = check(make(tmp_path, size))
    assert found.ok
    assert messages(found) == []
    assert found.uncovered == ()
    assert found.checkpoint.size == size
    assert found.checkpoint.root == root_of(leaf_hash(entry(number)) for number in range(size))
    assert found.judgement and [each.name for each in found.judgement.signed_by] == [ORIGIN]


def test_partials_of_earlier_checkpoints_are_part_of_it(tmp_path: Path) -> None:
    """The writer leaves the partials of the last checkpoint but one; they are compared with what replaced them."""
    for counts in pairwise([1, 5, 255, 256, 257, 300, 511, 512, 513]):
        directory = make(tmp_path / f"{counts[0]}-{counts[1]}", *counts)
        assert check(directory).ok
        earlier = [path for path in directory.rglob("*.p/*") if path.name == str(counts[0] % 256)]
        assert bool(earlier) is bool(counts[0] % 256)


def test_the_roots_of_every_earlier_size_are_rebuilt(tmp_path: Path) -> None:
    size = 600
    leaves = [leaf_hash(entry(number)) for number in range(size)]
    checkpoint = Checkpoint(origin=ORIGIN, size=size, root=root_of(leaves))
    findings = Findings()
    roots = rebuild(make(tmp_path, size), checkpoint, sizes=range(size + 1), findings=findings)
    assert not findings.kept
    assert roots == {number: root_of(leaves[:number]) for number in range(size + 1)}


@pytest.mark.slow
def test_a_tree_of_three_levels_of_tiles(tmp_path: Path) -> None:
    size = 256 * 256 + 300
    directory = make(tmp_path, 65_535, 65_536, size)
    held = Checkpoint(origin=ORIGIN, size=65_537, root=root_of(leaf_hash(entry(n)) for n in range(65_537)))
    found = check(directory, held=sign(held.text, LOG))
    assert found.ok, messages(found)
    assert {path.name for path in (directory / "tile").iterdir()} == {"entries", "0", "1", "2"}
    for path, place in (("tile/1/000", 77), ("tile/2/000.p/1", 0), ("tile/1/001.p/1", 0)):
        file = directory / path
        before = file.read_bytes()
        altered = bytearray(before)
        altered[place * 32] ^= 1
        file.write_bytes(altered)
        assert messages(check(directory)) == [f"{path}: hash {place} was altered: it is not what the entries give"]
        file.write_bytes(before)


def test_nothing_is_verified_against_nobody(tmp_path: Path) -> None:
    found = check(make(tmp_path, 5), anchor=Anchor())
    assert not found.ok
    assert messages(found) == ["checkpoint: no key is trusted: name the keys whose signatures count"]


def test_a_quorum_is_asked_for(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    assert check(directory).ok
    found = check(directory, anchor=both())
    assert messages(found) == [
        "checkpoint: the quorum is not met: it asks for all of dg.example, mr.example; cosigned: dg.example"
    ]
    cosigned(directory, tmp_path / "state", MR)
    assert check(directory, anchor=both()).ok


def test_a_cosignature_under_the_checkpoint_itself_counts_too(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG, MR)
    merged = directory / "checkpoint"
    lines = {line for path in (directory / "witness").iterdir() for line in path.read_text().splitlines()[4:]}
    merged.write_text(merged.read_text() + "".join(f"{line}\n" for line in lines if ORIGIN not in line))
    shutil.rmtree(directory / "witness")
    assert check(directory, anchor=both()).ok


def test_a_cosignature_of_a_smaller_tree_is_reported_as_such(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    grow(directory, [b"more"])
    found = check(directory)
    assert found.ok
    assert [
        (seen.checkpoint.size, each.verifier.name, each.time) for seen in found.older for each in seen.cosigners
    ] == [(5, "dg.example", NOW)]
    assert not check(directory, anchor=policy("dg.example")).ok, "it is of another checkpoint and counts for nothing"


def test_a_witness_that_the_anchor_does_not_know_proves_nothing_and_is_named(tmp_path: Path) -> None:
    directory = make(tmp_path / "ledger", 5)
    anchor = policy("none", witnesses=[AUDITOR])
    cosign(directory, signer=AUDITOR, state=tmp_path / "state", anchor=anchor, now=NOW)
    found = check(directory)
    assert found.ok
    assert any("auditor.example" in words for words in found.uncovered)


def test_a_cosignature_of_another_log_does_not_belong_here(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    text = Checkpoint(origin="example.com/other", size=0, root=merkle.EMPTY_ROOT).text
    (directory / "witness").mkdir()
    (directory / "witness/dg.note").write_bytes(with_signatures(sign(text, LOG), [DG.sign(text, time=NOW)]).content)
    found = check(directory)
    assert found.ok and found.uncovered == ("witness/dg.note: is of another log, 'example.com/other'",)
    (directory / "witness/dg.note").rename(directory / "witness" / note_name(DG.verifier))
    assert "is of another log, 'example.com/other'" in messages(check(directory))[0], "it bears a witness's name"


def test_where_entries_are_missing_nothing_is_said_about_their_root(tmp_path: Path) -> None:
    directory = make(tmp_path, 600)
    held = note_of(directory)
    for path in ("tile/entries/001", "tile/0/001"):
        (directory / path).unlink()
    found = check(directory, held=held)
    assert messages(found) == ["tile/0/001: missing", "tile/entries/001: missing"]
    assert found.evidence is None


def test_a_wrong_key_is_refused_by_name(tmp_path: Path) -> None:
    (message,) = messages(check(make(tmp_path, 5, key=signer(7))))
    assert message.startswith("checkpoint: no trusted key has signed: signed by example.com/run (")


def test_a_cosignature_from_the_future_is_not_counted(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG, now=NOW + SKEW + 9)
    (message,) = messages(check(directory, anchor=policy("dg.example")))
    assert f"its time is {SKEW + 9} seconds ahead of this machine's clock" in message


def test_there_has_to_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no ledger is kept here: the file 'checkpoint' is missing"):
        check(tmp_path)
    (tmp_path / "checkpoint").write_bytes(b"nothing")
    with pytest.raises(LedgerError, match="checkpoint: not a signed note"):
        check(tmp_path)


def test_a_held_checkpoint_has_to_be_of_this_log_and_signed(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    assert check(directory, held=note_of(directory)).ok
    other = Checkpoint(origin="example.com/other", size=0, root=merkle.EMPTY_ROOT)
    with pytest.raises(LedgerError, match="the checkpoint you hold: no trusted key has signed"):
        check(directory, held=sign(other.text, signer(1, name="example.com/other")))
    with pytest.raises(LedgerError, match=r"is of another log, 'example\.com/other'; this one is 'example\.com/run'"):
        check(directory, held=sign(other.text, LOG))
    with pytest.raises(LedgerError, match="the checkpoint you hold: no trusted key has signed"):
        check(directory, held=sign(note_of(directory).text, signer(8)))


@pytest.mark.parametrize("size", [0, 1, 200, 255, 256, 257, 299, 300])
def test_a_held_checkpoint_that_the_ledger_extends(tmp_path: Path, size: int) -> None:
    directory = make(tmp_path, size)
    held = note_of(directory)
    grow(directory, [entry(number) for number in range(size, 300)])
    found = check(directory, held=held)
    assert found.ok
    assert found.held and found.held.size == size


def test_a_ledger_that_is_being_written_verifies_up_to_its_checkpoint(tmp_path: Path) -> None:
    with Log.create(tmp_path, origin=ORIGIN, signer=LOG) as log:
        log.append(entry(number) for number in range(300))
        log.commit()
        log.append(entry(number) for number in range(300, 900))  # full bundles are on the disk, and nothing is signed
        found = check(tmp_path)
        assert found.ok, messages(found)
        assert found.checkpoint.size == 300
        assert found.uncovered == (
            "4 tiles and bundles beyond the checkpoint: of a writer at work, of one that was killed, "
            "or left over from a ledger that was rolled back",
        )


def test_what_a_killed_writer_left_is_named(tmp_path: Path) -> None:
    log = Log.create(tmp_path, origin=ORIGIN, signer=LOG)
    log.append(entry(number) for number in range(10))
    log.commit()
    log.append(entry(number) for number in range(10, 600))
    log.close()
    (tmp_path / ".checkpoint.77.tmp").write_bytes(b"half a no")
    found = check(tmp_path)
    assert found.ok
    assert found.uncovered[1] == "1 temporary files of unfinished writes"
    grow(tmp_path, [])
    found = check(tmp_path)
    assert found.ok
    assert found.uncovered == (
        "unsigned/: files beyond the checkpoint, which a writer set aside when it opened the ledger",
    )


def test_blobs_are_hashed(tmp_path: Path) -> None:
    with Log.create(tmp_path, origin=ORIGIN, signer=LOG) as log:
        digests = [log.write_blob(content) for content in (b"", b"numbers", b"x" * 3_000_000)]
    assert check(tmp_path).blobs == 3
    path = f"blobs/sha256/{digests[2][:2]}/{digests[2]}"
    with (tmp_path / path).open("r+b") as file:
        file.seek(2_999_999)
        file.write(b"y")
    found = check(tmp_path)
    assert messages(found) == [f"{path}: the blob was altered: its name is its digest"]
    assert found.findings[0].expected == digests[2]


def test_only_what_belongs_to_a_ledger_may_be_in_it(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    for path in ("notes.txt", "tile/0/000.p/05", "tile/0/0", "tile/x/000", "tile/entries/000.p/5.bak", "witness/a.txt",
                 "blobs/sha256/ab/cd", "blobs/sha256/README", "a/b/c/d/e/f/g/h/i/j/k/l"):  # fmt: skip
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        (message,) = messages(check(directory))
        assert message.startswith(path[:17]), (path, message)
        file.unlink()
    (directory / "tile/0/002.p").mkdir()  # an empty directory says nothing
    shutil.rmtree(directory / "a")
    assert check(directory).ok


@pytest.mark.parametrize("path", ["checkpoint", "tile/entries/000.p/5", "tile/0/000.p/5", "tile/0", "witness", "extra"])
def test_a_link_is_a_finding_wherever_it_leads(tmp_path: Path, path: str) -> None:
    directory = make(tmp_path / "ledger", 5)
    (directory / "witness").mkdir()
    place, moved = directory / path, tmp_path / "moved"
    if place.exists():
        place.rename(moved)
    place.symlink_to(moved)
    try:
        found = check(directory)
    except LedgerError as error:
        assert path == "checkpoint" and str(directory / path) in str(error)
    else:
        assert not found.ok
        assert any(message.startswith(path) for message in messages(found))


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    (directory / "tile/entries/000.p/5").unlink()
    os.mkfifo(directory / "tile/entries/000.p/5")
    assert any("not a regular file" in message for message in messages(check(directory)))


def test_a_forged_size_costs_nothing(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    forged = Checkpoint(origin=ORIGIN, size=2**62, root=bytes(32))
    (directory / "checkpoint").write_bytes(sign(forged.text, LOG).content)
    found = check(directory)
    assert not found.ok
    assert len(found.findings) <= MAX_FINDINGS + 2
    assert any("more than 5 bundles cannot be read" in message for message in messages(found))


def test_findings_are_bounded(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    for number in range(MAX_FINDINGS + 30):
        (directory / f"{number}.txt").touch()
    found = check(directory)
    assert len(found.findings) == MAX_FINDINGS
    assert found.more == 30


def test_a_name_cannot_steer_the_terminal(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    (directory / "\x1b[2Jgone\n").touch()
    (directory / os.fsdecode(b"\xff")).touch()
    assert sorted(finding.path for finding in check(directory).findings) == [r"'\udcff'", r"'\x1b[2Jgone\n'"]


def test_a_note_with_a_strange_name_is_shown_as_text(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    (note,) = (directory / "witness").iterdir()
    note.rename(note.with_name(os.fsdecode(b"\x1b\xff.note")))
    assert check(directory).ok
    (words,) = check(directory, anchor=policy(witnesses=[MR])).uncovered
    assert words == r"'witness/\x1b\udcff.note': not cosigned by any trusted key"
    grow(directory, [b"more"])
    (directory / "checkpoint").write_bytes(sign(Checkpoint(origin=ORIGIN, size=6, root=bytes(32)).text, LOG).content)
    assert all(message.isprintable() for message in messages(check(directory)))


def _write_on(directory: Path, stop: Any) -> None:
    with Log.open(directory, signer=LOG) as log:
        while not stop.is_set():
            log.append(entry(number) for number in range(log.size, log.size + 37))
            log.commit()
            log.write_blob(b"%d" % log.size)


def test_a_ledger_verifies_at_any_moment_beside_its_writer(tmp_path: Path) -> None:
    make(tmp_path, 1)
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    writer = context.Process(target=_write_on, args=(tmp_path, stop))
    writer.start()
    try:
        held, size = note_of(tmp_path), 0
        while size < 1500 and writer.is_alive():
            found = check(tmp_path, held=held)
            assert found.ok, messages(found)
            held, size = found.note, found.checkpoint.size
    finally:
        stop.set()
        writer.join()
    assert writer.exitcode == 0


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    peaks = []
    for size in (3_000, 30_000):
        directory = make(tmp_path / str(size), size)
        tracemalloc.start()
        assert check(directory).ok
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        shutil.rmtree(directory)
    assert peaks[1] < peaks[0] + 100_000

"""The contents of a ledger, and faults of its entries that no hash reveals."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.audit.contents import Contents, examine_contents
from explorer.audit.named_blobs import NO_BLOBS, Blobs, look_for_blobs
from explorer.audit.withheld import Withheld
from explorer.entries.fields import Blob
from explorer.entries.heads import write_entry
from explorer.entries.kinds import End, Genesis, Step, encode
from explorer.errors import LedgerError
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory, blob_path
from tests.entries.examples import EXAMPLES
from tests.ledger.signers import ORIGIN, signer

RUN = {type(entry): replace(entry, blobs={}) for entry in EXAMPLES}
GENESIS, STEP, END = encode(RUN[Genesis]), encode(RUN[Step]), encode(RUN[End])


def without(leaf: bytes, field: str) -> bytes:
    """The entry without a field that its kind has to have."""
    return write_entry({name: value for name, value in json.loads(leaf).items() if name != field})


def contents(directory: Path, leaves: Sequence[bytes]) -> Contents:
    with Log.create(directory, origin=ORIGIN, signer=signer()) as log:
        log.append(leaves)
    return examine_contents(LedgerDirectory(directory))


def test_a_finished_run(tmp_path: Path) -> None:
    found = contents(tmp_path, [GENESIS, STEP, END])
    assert found.order is not None and found.fault is None and found.blobs == Blobs()
    assert (found.order.steps, found.order.finished, found.order.unknown) == (1, True, 0)


def test_an_unfinished_run_and_an_empty_ledger(tmp_path: Path) -> None:
    found = contents(tmp_path / "run", [GENESIS, STEP])
    assert found.order is not None and not found.order.finished
    assert contents(tmp_path / "empty", []).fault is None


@pytest.mark.parametrize(
    ("leaves", "fault"),
    [
        ([GENESIS, STEP, END, STEP], "entry 3: step after the end"),
        ([GENESIS, END], "entry 1: end at 1 steps, and 0 were done; steps are missing"),
        ([GENESIS, b"{}"], "entry 1: kind is missing"),
        ([GENESIS, STEP.replace(b'{"', b'{ "', 1)], "entry 1: not in canonical form"),
        ([without(GENESIS, "classes")], "entry 0: genesis entry: classes"),
        ([GENESIS, without(STEP, "phase")], "entry 1: step entry: phase"),
        ([GENESIS, STEP, without(END, "metrics")], "entry 2: end entry: metrics"),
    ],
)
def test_a_fault_is_named_with_its_entry(tmp_path: Path, leaves: list[bytes], fault: str) -> None:
    found = contents(tmp_path, leaves)
    assert found.order is None and found.fault is not None and found.fault.startswith(fault)


def test_a_log_of_other_software_is_not_judged(tmp_path: Path) -> None:
    assert contents(tmp_path, [b"not ours", b"{}"]) == Contents(order=None, fault=None, blobs=Blobs())


def test_unknown_kinds_are_counted_and_kept(tmp_path: Path) -> None:
    found = contents(tmp_path, [GENESIS, b'{"blobs":{},"kind":"weather","version":3}', STEP])
    assert found.order is not None and (found.order.unknown, found.order.entries) == (1, 3)


def test_a_blob_that_is_named_and_not_there_is_counted(tmp_path: Path) -> None:
    with Log.create(tmp_path, origin=ORIGIN, signer=signer()) as log:
        digest = log.write_blob(b"numbers")
        named = {"numbers/open/mit": Blob(sha256=digest, size=7)}
        log.append([GENESIS, encode(replace(RUN[Step], blobs=named))])
    ledger = LedgerDirectory(tmp_path)
    assert examine_contents(ledger).blobs == look_for_blobs(ledger) == Blobs()
    blob = tmp_path / blob_path(digest)
    words = "entry 1: numbers/open/mit: missing, and no entry of the project's ledger says that it was erased"
    missing = Blobs(missing=1, first=(words,))
    blob.write_bytes(b"number")
    assert examine_contents(ledger).blobs == look_for_blobs(ledger) == missing
    blob.unlink()
    assert examine_contents(ledger).blobs == look_for_blobs(ledger) == missing
    blob.symlink_to(tmp_path / "checkpoint")
    assert examine_contents(ledger).blobs == look_for_blobs(ledger) == missing


def test_an_erasure_on_record_covers_its_class_and_numbers_over_several(tmp_path: Path) -> None:
    blob = Blob(sha256="a" * 64, size=7)
    named = dict.fromkeys(("numbers/open/mit", "numbers/open", "joint", "slots"), blob)
    with Log.create(tmp_path, origin=ORIGIN, signer=signer()) as log:
        log.append([GENESIS, encode(replace(RUN[Step], blobs=named))])
    withheld = Withheld(erased={"open/mit": (4,)}, without="nothing else was")
    found = look_for_blobs(LedgerDirectory(tmp_path), erasures=withheld)
    assert found == examine_contents(LedgerDirectory(tmp_path), erasures=withheld).blobs
    assert (found.erased, found.by, found.missing) == (2, (4,), 2)
    assert found.first == (
        "entry 1: numbers/open: missing, and nothing else was",
        "entry 1: slots: missing, and nothing else was",
    )


def test_entries_that_are_not_ours_do_not_hide_what_is_missing(tmp_path: Path) -> None:
    named = {"slots": Blob(sha256="a" * 64, size=7)}
    assert STEP.startswith(NO_BLOBS)  # most entries name none, and are not parsed
    with Log.create(tmp_path, origin=ORIGIN, signer=signer()) as log:
        log.append([GENESIS, b"garbage", STEP, encode(replace(RUN[End], blobs=named))])
    found = look_for_blobs(LedgerDirectory(tmp_path))
    assert (found.missing, found.strange) == (1, 1)


def test_a_ledger_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="checkpoint"):
        examine_contents(LedgerDirectory(tmp_path))

"""Proof files: known bytes, every entry of many trees, every byte flipped, and what no signature covers."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ExplorerError, LedgerError
from explorer.ledger.proof import MAX_BYTES, Proof, check_proof, make_proof, parse_proof
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.trust_anchor import Anchor, anchor_of
from explorer.note import parse
from tests.ledger.bad_proofs import DIRECTORY, GOOD, HASHES, LEAVES, LOG, NOTE, PROOFS, WITNESS
from tests.ledger.ledgers import DG, MR, NOW, both, cosigned, make, policy
from tests.ledger.signers import entry

KNOWN = anchor_of([LOG, WITNESS])


def test_the_known_answer_is_reproduced_byte_for_byte() -> None:
    proof = Proof(index=2, hashes=tuple(HASHES), checkpoint=parse(NOTE.encode()), extra=LEAVES[2])
    assert proof.content == GOOD.encode()
    assert parse_proof(proof.content, where="proof") == proof
    judgement = check_proof(proof, anchor=KNOWN, now=NOW)
    assert judgement.checkpoint.origin == "example.com/explorer-kat"
    assert [each.time for each in judgement.cosignatures] == [1_700_000_000]


@pytest.mark.parametrize("name", PROOFS)
def test_a_bad_proof_is_refused_with_its_own_message(name: str) -> None:
    content, message = PROOFS[name]
    file = DIRECTORY / f"proof_{name}.tlog-proof"
    assert file.read_bytes() == content, "run python -m tests.ledger.bad_proofs"
    with pytest.raises(LedgerError) as caught:
        check_proof(parse_proof(file.read_bytes(), where=file.name), anchor=KNOWN, now=NOW)
    assert message in str(caught.value)


def test_the_bad_proofs_are_all_there_is() -> None:
    assert {path.name for path in DIRECTORY.glob("proof_*")} == {f"proof_{name}.tlog-proof" for name in PROOFS}


@pytest.mark.parametrize("size", [1, 2, 3, 255, 256, 257, 600])
def test_every_entry_is_proved_from_the_directory(tmp_path: Path, size: int) -> None:
    ledger = LedgerDirectory(make(tmp_path, size))
    for index in range(size):
        made = make_proof(ledger, index)
        found = parse_proof(made.content, where="proof")
        check_proof(found, anchor=policy(), now=NOW)
        check_proof(found, entry(index), anchor=policy(), now=NOW)
        with pytest.raises(LedgerError, match=f"the inclusion proof of entry {index} fails"):
            check_proof(found, entry(index) + b"!", anchor=policy(), now=NOW)


def test_a_proof_carries_the_cosignatures(tmp_path: Path) -> None:
    ledger = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    with pytest.raises(LedgerError, match="the quorum is not met"):
        check_proof(make_proof(LedgerDirectory(ledger), 3), anchor=both(), now=NOW)
    cosigned(ledger, tmp_path / "state", MR)
    check_proof(make_proof(LedgerDirectory(ledger), 3), anchor=both(), now=NOW)


def test_a_proof_is_not_believed_without_an_anchor() -> None:
    with pytest.raises(LedgerError, match="no key is trusted"):
        check_proof(parse_proof(GOOD.encode(), where="proof"), anchor=Anchor(), now=NOW)


def test_there_is_no_proof_of_what_is_not_there(tmp_path: Path) -> None:
    ledger = LedgerDirectory(make(tmp_path, 3))
    for index in (-1, 3):
        with pytest.raises(LedgerError, match=f"no entry {index} in a tree of 3"):
            make_proof(ledger, index)


def test_a_damaged_ledger_hands_out_no_proof(tmp_path: Path) -> None:
    directory = make(tmp_path, 5)
    bundle = directory / "tile/entries/000.p/5"
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)
    make_proof(LedgerDirectory(directory), 0)
    with pytest.raises(LedgerError, match="the inclusion proof of entry 4 fails"):
        make_proof(LedgerDirectory(directory), 4)


def _survives(content: bytes, entry: bytes | None, anchor: Anchor) -> bool:
    try:
        check_proof(parse_proof(content, where="proof"), entry, anchor=anchor, now=NOW)
    except LedgerError:
        return False
    return True


def test_every_flipped_bit_of_a_complete_proof_is_detected() -> None:
    content = GOOD.encode()
    for at in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[at] ^= 1 << bit
            assert not _survives(bytes(flipped), None, KNOWN), (at, bit, bytes(flipped[max(0, at - 10) : at + 10]))


def test_what_nothing_covers_is_extra_data_and_signatures_of_unknown_keys() -> None:
    """With the entry given apart and a log without witnesses; the honest counter-list to the test above."""
    content = GOOD.encode()
    log_alone = anchor_of([LOG])
    free = set()
    for at in range(len(content)):
        for bit in range(8):
            flipped = bytearray(content)
            flipped[at] ^= 1 << bit
            if _survives(bytes(flipped), LEAVES[2], log_alone):
                free.add(at)
    extra = content.index(b"extra ") + len("extra ")
    witness = content.index("\u2014 witness".encode()) + len("\u2014 ".encode())
    assert free <= {*range(extra, content.index(b"\n", extra)), *range(witness, len(content) - 1)}
    assert len(free) > 80


def test_truncation_at_every_length_is_detected() -> None:
    content = GOOD.encode()
    for length in range(len(content)):
        assert not _survives(content[:length], None, KNOWN), length


def test_a_proof_is_bounded_before_it_is_read() -> None:
    with pytest.raises(LedgerError, match=r"proof: a proof of \d+ bytes; at most"):
        parse_proof(GOOD.encode() + b"\n" * MAX_BYTES, where="proof")


def test_an_empty_entry_is_embedded_too(tmp_path: Path) -> None:
    made = make_proof(LedgerDirectory(make(tmp_path, 2)), 0)
    assert made.extra == b"" == entry(0)
    assert parse_proof(made.content, where="proof") == made
    check_proof(made, anchor=policy(), now=NOW)
    with pytest.raises(LedgerError, match="give the entry too"):
        check_proof(replace(made, extra=None), anchor=policy(), now=NOW)


@given(st.binary(max_size=400) | st.binary(max_size=60).map(lambda middle: GOOD.encode()[:60] + middle + GOOD.encode()))
def test_no_other_exception_comes_out_of_a_proof(content: bytes) -> None:
    try:
        parse_proof(content, where="proof")
    except ExplorerError as error:
        assert str(error).startswith("proof: ")

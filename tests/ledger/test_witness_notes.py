"""What strangers put below `witness/`, and what they cannot stop by it."""

from pathlib import Path

import pytest

from explorer.ledger.log import Log
from explorer.ledger.proof import check_proof, make_proof
from explorer.ledger.signed_checkpoint import Checkpoint
from explorer.ledger.storage import LedgerDirectory, note_name
from explorer.ledger.verify import Verification
from explorer.note import Algorithm, Note, sign, with_signatures
from tests.ledger.ledgers import DG, LOG, MR, NOW, check, cosigned, make, messages, note_of, policy
from tests.ledger.signers import ORIGIN, entry, signer

STRANGER = signer(9, name="stranger.example", algorithm=Algorithm.COSIGNATURE)


def placed(tmp_path: Path, content: bytes, *, name: str = "aaa.note") -> Verification:
    """A ledger that DG has cosigned, with this file beside DG's note: what a check says that needs DG."""
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    (directory / "witness" / name).write_bytes(content)
    return check(directory, anchor=policy("dg.example"))


TEXT = Checkpoint(origin=ORIGIN, size=2, root=bytes(32)).text
OTHER = Checkpoint(origin="example.com/other", size=2, root=bytes(32)).text
STRANGE = {
    "empty": (b"", "not a signed note"),
    "not text": (b"\xff\x00", "a note is UTF-8"),
    "a control character": (f"{TEXT}\n\u2014 a\x1bb AAAAAAAA\n".encode(), "no control characters"),
    "a name with a plus": (f"{TEXT}\n\u2014 a+b AAAAAAAA\n".encode(), "signature line 1 is damaged"),
    "too short a signature": (f"{TEXT}\n\u2014 a AAA=\n".encode(), "signature line 1 is damaged: 2 bytes"),
    "no checkpoint": (sign("hello\n", STRANGER_PLAIN := signer(8, name="s")).content, "not a checkpoint"),
    "of a stranger": (sign(TEXT, STRANGER_PLAIN).content, "not cosigned by any trusted key"),
    "of another log": (with_signatures(sign(OTHER, LOG), [DG.sign(OTHER, time=NOW)]).content, "is of another log"),
    "without the log's line": (Note(text=TEXT, signatures=(DG.sign(TEXT, time=NOW),)).content, "no trusted log has"),
    "with a forged line of a known witness": (
        f"{TEXT}\n{DG.sign(OTHER, time=NOW).line}\n".encode(),
        "the signature of dg.example",
    ),
    "too large": (bytes(1_000_001), "1000001 bytes"),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_note_is_listed_and_stops_nothing(tmp_path: Path, name: str) -> None:
    content, why = STRANGE[name]
    found = placed(tmp_path, content)
    assert found.ok, messages(found)
    (words,) = found.uncovered
    assert words.startswith("witness/aaa.note: ") and why in words and words.isprintable()
    ledger = LedgerDirectory(tmp_path / "ledger")
    check_proof(make_proof(ledger, 1), anchor=policy("dg.example"), now=NOW)
    with Log.open(tmp_path / "ledger", signer=LOG) as log:
        log.append([entry(5)])


@pytest.mark.parametrize("name", STRANGE)
def test_the_same_under_the_name_of_a_known_witness_is_a_finding(tmp_path: Path, name: str) -> None:
    """The control: MR's note is not there, and what bears its name is not MR's."""
    found = placed(tmp_path, STRANGE[name][0], name=note_name(MR.verifier))
    assert not found.ok
    assert messages(found)[0].startswith(f"witness/{note_name(MR.verifier)}: ")


def test_a_note_named_after_one_witness_that_holds_anothers_is_a_finding(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    own = directory / "witness" / note_name(DG.verifier)
    own.rename(own.with_name(note_name(MR.verifier)))
    assert "has no cosignature of mr.example" in messages(check(directory))[0]
    assert check(directory, anchor=policy("dg.example", witnesses=[DG])).ok, "MR is nobody there"


def test_a_contradiction_counts_under_whatever_name_it_stands(tmp_path: Path) -> None:
    """A note that the log's key has signed: listed only as long as the tree extends it."""
    found = placed(tmp_path, sign(TEXT, LOG).content)
    assert not found.ok and "rewritten" in messages(found)[0]


def test_very_many_notes_hide_no_cosignature(tmp_path: Path) -> None:
    """The junk sorts before DG's note, and is of the same checkpoint."""
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    junk = with_signatures(note_of(directory), [STRANGER.sign(note_of(directory).text, time=NOW)]).content
    for number in range(250):
        (directory / f"witness/a{number}+0000000{number % 10}.note").write_bytes(junk)
    found = check(directory, anchor=policy("dg.example"))
    assert found.ok, messages(found)
    assert found.uncovered[-1] == "witness/: 151 more notes, which were not read; at most 100 are"
    make_proof(LedgerDirectory(directory), 1)
    with Log.open(directory, signer=LOG) as log:
        log.append([entry(5)])


def test_an_unknown_line_with_a_strange_name_is_ignored_and_shown_as_text(tmp_path: Path) -> None:
    directory = cosigned(make(tmp_path / "ledger", 5), tmp_path / "state", DG)
    checkpoint = directory / "checkpoint"
    lines = "".join(f"\u2014 {name} AAAAAAAA\n" for name in ("zero\u200bwidth", "\u202eturned", "x" * 3_000))
    checkpoint.write_text(checkpoint.read_text() + lines)
    found = check(directory, anchor=policy("dg.example"))
    assert found.ok, messages(found)
    (words,) = found.uncovered
    assert words.isprintable() and len(words) < 500 and "zero" in words

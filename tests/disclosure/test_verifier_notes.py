"""Notes and cosignatures, row by row: `ledger verify` and verify.py give the same answer to the same directory."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from explorer import note
from explorer.errors import ExplorerError
from explorer.ledger.storage import note_name
from explorer.ledger.verify import verify as verify_ledger
from explorer.note import Algorithm, Signature, Signer
from explorer.provenance.trust import Role, Trust
from explorer.runlog.anchor import anchor_of_trust
from tests.audit import governed_run
from tests.disclosure.packs import Files, findings, governed, opened, packed, signed_again
from tests.provenance.people import GOVERNANCE, NOW, RISK, private

DG, MR = (Signer(name=name, algorithm=Algorithm.COSIGNATURE, private_key=private(name)) for name in (GOVERNANCE, RISK))


def believed() -> Trust:
    """A trainer signs, data governance cosigns."""
    usual = governed_run.trust()
    return replace(usual, quorum=replace(usual.quorum, checkpoints={Role.TRAINER: 1, Role.DATA_GOVERNANCE: 1}))


@dataclass
class Case:
    """The checkpoint of a ledger, and the files in `witness/`; a row changes them."""

    text: str
    log: Signer
    checkpoint: bytes
    witness: dict[str, bytes]

    def note(self, *signatures: Signature, text: str | None = None) -> bytes:
        return note.Note(text=text or self.text, signatures=signatures).content

    def signed(self, *more: Signature) -> bytes:
        """As the log signs it, with cosignatures."""
        return self.note(self.log.sign(self.text), *more)

    def late(self, time: int = NOW + 10**6) -> Signature:
        return DG.sign(self.text, time=time)

    @property
    def good(self) -> Signature:
        return DG.sign(self.text, time=NOW)

    @property
    def impossible(self) -> Signature:
        """A true cosignature at a time that is none."""
        time = 2**63 + 5
        raw = private(GOVERNANCE).sign(f"cosignature/v1\ntime {time}\n{self.text}".encode())
        return replace(self.good, blob=time.to_bytes(8) + raw)


OWN = note_name(DG.verifier)
STRANGER = Signature(name="example.com/stranger", key_id=b"abcd", blob=b"x" * 64)
Change = Callable[[Case], None]


def named(name: str, content: Callable[[Case], bytes]) -> Change:
    return lambda case: case.witness.update({name: content(case)})


def line(name: str, base64: str) -> Change:
    """A signature line under the checkpoint."""
    return lambda case: setattr(case, "checkpoint", case.checkpoint + f"\u2014 {name} {base64}\n".encode())


def crowd(case: Case, number: int) -> None:
    for at in range(number):
        line(f"n{at}", "YWJjZGVmZ2g=")(case)


ROWS: dict[str, tuple[Change, bool]] = {
    "as it is": (lambda _: None, True),
    "own note without the log's line": (named(OWN, lambda c: c.note(c.good)), False),
    "another note without the log's line": (named("x.note", lambda c: c.note(c.good)), True),
    "own note with another's cosignature": (
        named(OWN, lambda c: c.signed(MR.sign(c.text, time=NOW))),
        False,
    ),
    "own note that is damaged": (named(OWN, lambda _: b"not a note"), False),
    "another note that is damaged": (named("x.note", lambda _: b"\xff\xfe"), True),
    "late, then good": (named(OWN, lambda c: c.signed(c.late(), c.good)), True),
    "good, then late": (named(OWN, lambda c: c.signed(c.good, c.late())), True),
    "impossible, then good": (named(OWN, lambda c: c.signed(c.impossible, c.good)), True),
    "good, then impossible": (named(OWN, lambda c: c.signed(c.good, c.impossible)), True),
    "late alone": (named(OWN, lambda c: c.signed(c.late())), False),
    "impossible alone": (named(OWN, lambda c: c.signed(c.impossible)), False),
    "a false signature beside a good one": (
        named(OWN, lambda c: c.signed(replace(c.good, blob=c.good.blob[:-1] + b"?"), c.good)),
        False,
    ),
    "a cosignature that is cut short": (named(OWN, lambda c: c.signed(replace(c.good, blob=c.good.blob[:60]))), False),
    "300 notes of strangers": (
        lambda c: c.witness.update({f"a{at:03}.note": c.note(STRANGER) for at in range(300)}),
        True,
    ),
    "300 copies of a good note": (
        lambda c: c.witness.update({f"a{at:03}.note": c.witness[OWN] for at in range(300)}),
        True,
    ),
    "a note of another log": (
        named("x.note", lambda c: c.note(c.good, text=c.text.replace("example.com", "elsewhere.org"))),
        True,
    ),
    "a note of a foreign log whose name has spaces and +": (
        named("x.note", lambda c: c.note(STRANGER, text=c.text.replace("example.com/", "Some Log 2026+"))),
        True,
    ),
    "an unknown line with a zero-width character": (line("example.com/\u200bx", "YWJjZGVmZ2g="), True),
    "an unknown line with a long name": (line("x" * 500, "YWJjZGVmZ2g="), True),
    "an unknown line with a plus sign": (line("a+b", "YWJjZGVmZ2g="), False),
    "an unknown line with a no-break space": (line("a\u00a0b", "YWJjZGVmZ2g="), False),
    "an unknown line with a control character": (line("a\x02b", "YWJjZGVmZ2g="), False),
    "an unknown line of two bytes": (line("a", "YWI="), False),
    "an unknown line that is not canonical base64": (line("a", "YWJjZGVmZ2h="), False),
    "a hundred unknown lines more": (lambda c: crowd(c, 100), False),
    "a larger tree that the log has signed": (
        named(OWN, lambda c: signed_other(c, "999")),
        False,
    ),
    "a smaller tree with another root": (named(OWN, lambda c: signed_other(c, "3")), False),
}


def signed_other(case: Case, size: str) -> bytes:
    """Log and witness have signed another state of the log."""
    origin, _, root, *_ = case.text.split("\n")
    text = f"{origin}\n{size}\n{root}\n"
    return case.note(case.log.sign(text), DG.sign(text, time=NOW), text=text)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Files]:
    run = governed(tmp_path_factory.mktemp("notes"))
    files = opened(packed(run).content)
    return run, {name: content for name, content in files.items() if not name.startswith("proofs/")}


@pytest.mark.parametrize("row", ROWS)
def test_the_same_answer_to_every_row(made: tuple[Path, Files], row: str, tmp_path: Path) -> None:
    run, files = made
    change, accepted = ROWS[row]
    content = (run / "ledger" / "checkpoint").read_bytes()
    case = Case(
        text=content.decode().partition("\n\n")[0] + "\n", log=governed_run.signer(run), checkpoint=content, witness={}
    )
    case.witness[OWN] = case.signed(case.good)
    change(case)
    ledger = tmp_path / "ledger"
    shutil.copytree(run / "ledger", ledger)
    (ledger / "checkpoint").write_bytes(case.checkpoint)
    (ledger / "witness").mkdir(exist_ok=True)
    for name, each in case.witness.items():
        (ledger / "witness" / name).write_bytes(each)
    packed_ = {**files, "ledger/checkpoint": case.checkpoint}
    packed_ |= {f"ledger/witness/{name}": each for name, each in case.witness.items()}
    try:
        anchor = anchor_of_trust(believed(), origin=case.log.name)
        own = [each.message for each in verify_ledger(ledger, anchor=anchor, now=NOW).findings]
    except ExplorerError as error:
        own = [str(error)]
    found = findings(signed_again(packed_), trust=believed())
    assert (own == [], found.failed == []) == (accepted, accepted), (own, found.failed)
    listed = [name for name in case.witness if name != OWN and not name.startswith("a")]
    assert all(any(name in each for each in found.unchecked) for name in listed)

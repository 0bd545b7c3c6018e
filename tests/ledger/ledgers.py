"""Small ledgers, the authorities that cosign them, and policies that believe them."""

from collections.abc import Iterable
from pathlib import Path

from explorer.ledger.cosign import cosign
from explorer.ledger.log import Log
from explorer.ledger.trust_anchor import Anchor, parse_policy
from explorer.ledger.verify import Verification, verify
from explorer.note import Algorithm, Note, Signer, parse
from tests.ledger.signers import ORIGIN, entry, signer

NOW = 1_700_000_000  # 2023-11-14T22:13:20Z
LOG = signer(1)
DG = signer(2, name="dg.example", algorithm=Algorithm.COSIGNATURE)
MR = signer(3, name="mr.example", algorithm=Algorithm.COSIGNATURE)
AUDITOR = signer(4, name="auditor.example", algorithm=Algorithm.COSIGNATURE)


def policy(quorum: str = "none", *lines: str, witnesses: Iterable[Signer] = (DG, MR)) -> Anchor:
    """The log and some witnesses, named like their keys; `lines` may define groups."""
    known = [f"witness {each.name} {each.verifier.vkey}" for each in witnesses]
    text = "\n".join([f"log {LOG.verifier.vkey}", *known, *lines, f"quorum {quorum}", ""])
    return parse_policy(text.encode(), where="policy")


def both() -> Anchor:
    """Both witnesses have to cosign."""
    return policy("authorities", "group authorities all dg.example mr.example")


def make(directory: Path, *counts: int, key: Signer = LOG) -> Path:
    """A ledger that was committed after each of these numbers of entries."""
    with Log.create(directory, origin=ORIGIN, signer=key) as log:
        for count in counts:
            log.append(entry(number) for number in range(log.size, count))
            log.commit()
    return directory


def grow(directory: Path, entries: Iterable[bytes], *, key: Signer = LOG) -> None:
    """Append to a ledger and commit."""
    with Log.open(directory, signer=key) as log:
        log.append(entries)


def cosigned(directory: Path, state: Path, *signers: Signer, now: int = NOW) -> Path:
    """Let these witnesses cosign the ledger."""
    for each in signers:
        assert cosign(directory, signer=each, state=state, anchor=policy(), now=now).path is not None
    return directory


def note_of(directory: Path) -> Note:
    """The checkpoint as it stands."""
    return parse((directory / "checkpoint").read_bytes())


def check(directory: Path, *, anchor: Anchor | None = None, held: Note | None = None, now: int = NOW) -> Verification:
    """Verify against the log's key alone, unless told otherwise."""
    return verify(directory, anchor=anchor or policy(), held=held, now=now)


def messages(found: Verification) -> list[str]:
    """The findings as text."""
    return [f"{finding.path}: {finding.message}" for finding in found.findings]

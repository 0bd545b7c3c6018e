"""Certificates of synthetic deletions, and certificates that lie: signed by the right key all the same."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from explorer.canonical import canonical
from explorer.deletion.claims import Outcome
from explorer.deletion.finish import certify
from explorer.deletion.verify_deletion import Verified, verify
from explorer.provenance.envelope import parse_envelope, sign_envelope
from explorer.provenance.statement import PAYLOAD_TYPE
from tests.audit.governed_run import TRAINER, USUAL, trust
from tests.deletion import deleted_runs
from tests.provenance.people import EXPIRES, NOW, private

TRUST = trust()


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletion:
    """An old run, what was made of it, and the certificate."""

    old: Path
    new: Path
    content: bytes


def structural(root: Path) -> Deletion:
    old = deleted_runs.write_old(root, deleted_runs.SEALED)
    return certified(old, deleted_runs.structural(old))


def replayed(root: Path, **how: Any) -> Deletion:
    old = deleted_runs.write_old(root, USUAL)
    return certified(old, deleted_runs.replayed(old, **how))


def certified(old: Path, new: Path, **how: Any) -> Deletion:
    made = certify(old, new, keys=[private(TRAINER)], trust=TRUST, now=NOW, **{"expires": EXPIRES, **how})
    return Deletion(old=old, new=new, content=made.content)


def checked(made: Deletion, content: bytes | None = None, **how: Any) -> Verified:
    given = {"old": made.old, "new": made.new, "trust": TRUST, "now": NOW, **how}
    return verify(made.content if content is None else content, **given)


def statement_of(content: bytes) -> Any:
    return json.loads(parse_envelope(content, where="certificate").payload)


def signed_again(content: bytes, change: Callable[[Any], None], *, by: str = TRAINER) -> bytes:
    """The certificate with something changed in its statement, under a signature that is good."""
    statement = statement_of(content)
    change(statement)
    return sign_envelope(canonical(statement), PAYLOAD_TYPE, [private(by)]).content


def failures(found: Verified) -> dict[str, str]:
    """What did not hold, by the name of the claim."""
    return {each.name: each.why or "" for each in found.checks if each.outcome is not Outcome.HELD}

"""Released models for tests: a synthetic governed run, its model attested, and gates in front of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer.provenance.envelope import sign_envelope
from explorer.provenance.model_attestation import PREDICATE_TYPE, Observer, open_model
from explorer.provenance.statement import PAYLOAD_TYPE, Statement, parse_statement
from explorer.provenance.trust import AuthorityKey, Role, Trust
from explorer.release.attest import attest, ship
from explorer.release.check_gate import Verdict, verify_model
from explorer.release.gate import FORMAT, Gate, gate_of
from explorer.release.observations import keep, observe
from explorer.release.shipped import open_shipped
from explorer.runlog.attested import ATTESTATION
from explorer.runlog.run_ledger import RunLedger
from explorer.yaml_document import document_of
from tests.audit.governed_run import FAR, TRAINER
from tests.provenance import people
from tests.provenance.people import NOW, private, public

EVALUATOR, OTHER = "example.com/evaluator", "example.com/other-evaluator"


def trust(*, trainer: AuthorityKey | None = None, cosigners: dict[Role, int] | None = None) -> Trust:
    """Everybody signs with the key of their name; two evaluators. `cosigners`: who has to cosign a checkpoint."""
    made = people.trust(
        people.governance(),
        people.risk(),
        people.authority(TRAINER, Role.TRAINER, trainer or public(TRAINER, not_after=FAR)),
        people.authority(EVALUATOR, Role.EVALUATOR, public(EVALUATOR, not_after=FAR)),
        people.authority(OTHER, Role.EVALUATOR, public(OTHER, not_after=FAR)),
    )
    return replace(made, quorum=replace(made.quorum, checkpoints={Role.TRAINER: 1} | (cosigners or {})))


def release(run: Path, *, believed: Trust | None = None, seed: str = TRAINER, now: int = NOW) -> Path:
    """Attest a run's model; return the directory that is shipped."""
    believed = believed or trust()
    ledger = RunLedger(run)
    envelope = attest(ledger, keys=[private(seed)], trust=believed, now=now, expires=FAR)
    return ship(ledger, envelope, trust=believed, now=now).parent


def gate(*rules: dict[str, Any], ledger: str = "checkpoint", **more: Any) -> Gate:
    """A gate of these rules; without any, one that holds of every released run here."""
    always = {"absent": {"branch": "personal"}}
    value = {"format": FORMAT, "name": "test", "ledger": ledger, "rules": [*(rules or (always,))], **more}
    return gate_of(document_of(value, where="gate.yaml"))


def judged(model: Path, asked: Gate | None = None, **changes: Any) -> Verdict:
    """What becomes of a model at a gate; in full mode its ledger is that of its own run."""
    asked = asked or gate()
    own = (model if model.is_dir() else model.parent).parent
    usual = {"trust": trust(), "ledger": own if asked.ledger == "full" else None, "now": NOW}
    return verify_model(model, asked, **{**usual, **changes})


def faults(found: Verdict) -> list[str]:
    """Why a model does not pass."""
    return [each.why for each in (*found.checks, *found.rules) if not each.holds]


def statement_of(model: Path) -> Statement:
    """What was attested of a model, before anything is changed in it."""
    opened = open_model((model / ATTESTATION).read_bytes(), trust=trust(), now=NOW, where="attestation")
    return parse_statement(opened.envelope.payload, predicate_type=PREDICATE_TYPE, where="attestation")


def sign_again(model: Path, statement: Statement, *, seed: str = TRAINER) -> None:
    """Attest something else with a key that may sign."""
    envelope = sign_envelope(statement.payload, PAYLOAD_TYPE, [private(seed)])
    (model / ATTESTATION).write_bytes(envelope.content)


def say(model: Path, *, seed: str = EVALUATOR, role: Observer = Observer.EVALUATOR, **changes: Any) -> Path:
    """Lay an observation beside a model."""
    usual: dict[str, Any] = {"metrics": {"accuracy": 0.93}, "note": None, "admitted": {}, "now": NOW}
    shipped = open_shipped(model, trust=trust(), now=NOW)
    return keep(shipped, observe(shipped, role=role, keys=[private(seed)], trust=trust(), **{**usual, **changes}))

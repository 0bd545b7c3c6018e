"""Delegations: in-toto statements in which a trainer lets another key sign the ledger of one run, for some time.

    subject    plan, by the SHA-256 of the canonical JSON (RFC 8785) of the run's identity, which the genesis of its
               ledger calls `recipe`
    predicate  {"ledger": "example.com/trainer/resnet8-digits-fast-ssr1-s0-3f9c2a7d", "public_key": "gPLP...",
                "issued": "2026-05-01T00:00:00Z", "expires": "2026-05-08T00:00:00Z"}

A run that another machine executes gets a fresh key, and this statement about it. The trainer's key stays at home. The
new key signs the checkpoints of this one ledger as the trainer's own key would, until the delegation expires, or the
key that signed it expires or is revoked. It signs nothing else: it is in no trust file.

The ledger carries the statement: the first entry names the digest of its payload, and its blob `delegation` is the
envelope.
"""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from explorer.errors import ProvenanceError
from explorer.note import is_weak
from explorer.provenance.envelope import Envelope, signers
from explorer.provenance.keys import PublicKey, parse_public
from explorer.provenance.signing import Kind, Signed, check_span, open_document, sign_document
from explorer.provenance.spellings import Ascii, Time, format_time, parse_time
from explorer.provenance.trust import Authority, Role, Trust
from explorer.schema import record

PLAN = "plan"  # the name of its subject
MAX_BYTES = 2**16  # of an envelope
MOST_DAYS = 366
SKEW = 300  # seconds by which the clock of the machine that signs may be slow


@record
class Delegation:
    """The predicate."""

    ledger: Ascii  # its origin: the trainer's name, and the run's
    public_key: PublicKey  # that may sign it
    issued: Time
    expires: Time


@dataclass(frozen=True, kw_only=True, slots=True)
class Delegate:
    """A key that may sign one ledger, on a trainer's word."""

    trainer: str
    value: Delegation
    plan: str
    digest: str  # SHA-256 of the statement
    valid_until: int  # seconds since 1970, exclusive
    ends: str  # what happens then, in words

    @property
    def public_key(self) -> bytes:
        return parse_public(self.value.public_key)

    @property
    def valid_from(self) -> int:
        """Return the first moment at which it may sign, in seconds since 1970."""
        return parse_time(self.value.issued)

    @property
    def words(self) -> str:
        """Return whose key it is, for people."""
        return f"a key that {self.trainer} delegated for this run until {self.value.expires}"

    def check_now(self, now: int, where: str) -> None:
        """Raise `ProvenanceError` if the key may not sign now."""
        if now < self.valid_from - SKEW:
            raise ProvenanceError(f"{where}: not yet valid: issued {self.value.issued}, now it is {format_time(now)}")
        if now >= self.valid_until:
            raise ProvenanceError(f"{where}: {self.ends}, and now it is {format_time(now)}")

    def check_run(self, run: str, *, plan: str, where: str) -> None:
        """Raise `ProvenanceError` unless the delegation is for this run, and for the plan with this digest."""
        if self.value.ledger != f"{self.trainer}/{run}":
            raise ProvenanceError(f"{where}: for another run: of the ledger {self.value.ledger}; this is {run}")
        if self.plan != plan:
            raise ProvenanceError(f"{where}: for another plan of {run}: {self.plan}; this one has the digest {plan}")


def _check(value: Delegation, where: str) -> None:
    check_span(value, where)
    if parse_time(value.expires) - parse_time(value.issued) > MOST_DAYS * 86_400:
        raise ProvenanceError(f"{where}: expires: {value.expires} is more than {MOST_DAYS} days after {value.issued}")
    if is_weak(parse_public(value.public_key)):
        raise ProvenanceError(f"{where}: public_key: {value.public_key} is weak: anybody can sign for it")


DELEGATION = Kind(name="delegation/v1", record=Delegation, role=Role.TRAINER, check=_check, about=(PLAN,))


def sign_delegation(
    value: Delegation, *, plan: str, key: Ed25519PrivateKey, trust: Trust, now: int, where: str
) -> Envelope:
    """Sign a delegation for the plan with this digest. Raises `ProvenanceError` for a key that is not a trainer's
    now, and for a ledger that is not named after this trainer."""
    envelope = sign_document(value, DELEGATION, [key], about=(plan,), trust=trust, now=now, where=where)
    # Read back at once: what its own reader refuses must not travel.
    open_delegation(envelope.content, trust=trust, where=where)
    return envelope


def open_delegation(content: bytes, *, trust: Trust, where: str) -> Delegate:
    """Read a delegation, whether it has expired or not: a ledger may have been signed before.

    Raises `ProvenanceError` unless a trainer of the trust file signed it, for a ledger under the trainer's own name.
    """
    if len(content) > MAX_BYTES:
        raise ProvenanceError(f"{where}: too large: {len(content)} bytes, at most {MAX_BYTES} are read")
    signed = open_document(content, DELEGATION, trust=trust, now=None, where=where)
    trainer = _owner(signed, trust, where)
    owner = trust.owner(parse_public(signed.value.public_key))
    if owner is not None:
        raise ProvenanceError(f"{where}: public_key: the key of {owner[0].name}; a delegation is to a key of its own")
    valid_until, ends = parse_time(signed.value.expires), f"the delegation expired {signed.value.expires}"
    by = signers(signed.envelope, (key.raw for key in trainer.keys))
    own = max((key for key in trainer.keys if key.raw in by), key=lambda key: key.valid_until)
    if own.valid_until < valid_until:
        lost = f"expired {own.not_after}" if own.revoked is None else f"is revoked as of {own.revoked.at}"
        valid_until, ends = own.valid_until, f"the key of {trainer.name} that delegated it {lost}"
    return Delegate(
        trainer=trainer.name,
        value=signed.value,
        plan=signed.about[0],
        digest=signed.digest,
        valid_until=valid_until,
        ends=ends,
    )


def _owner(signed: Signed[Delegation], trust: Trust, where: str) -> Authority:
    """Return the signer whose ledger it is: of several trainers the one with the longest name that its name begins
    with."""
    ledger = signed.value.ledger
    namesakes = [one for one in trust.authorities if one.role is Role.TRAINER and ledger.startswith(f"{one.name}/")]
    owner = max(namesakes, key=lambda one: len(one.name), default=None)
    if owner is None or owner not in signed.authorities:
        names = ", ".join(one.name for one in signed.authorities)
        raise ProvenanceError(f"{where}: ledger: {ledger} is not named after {names}: only its trainer may delegate it")
    return owner

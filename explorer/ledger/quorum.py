"""Whether a checkpoint is to be believed: its signatures against a trust anchor.

A plain signature carries no time, so that the validity of a log's key needs witnesses: its signature counts as made,
at the latest, when the quorum had cosigned it (with `quorum none`: when the first known witness had), or else now. A
cosignature counts if its key was valid at the time that it carries.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from explorer import note
from explorer.errors import LedgerError, NoteError
from explorer.ledger.anchor import NONE, Anchor, Witness
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.note import Note, Verified, Verifier

SKEW = 300  # seconds that the clocks of two machines may differ


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosignature:
    """A witness's signature that was checked, and whether it counts."""

    verifier: Verifier
    time: int  # seconds since 1970
    fault: str | None  # why it does not count, or None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A checkpoint that is to be believed, and why."""

    checkpoint: Checkpoint
    signed_by: tuple[Verifier, ...]  # keys of the log
    cosignatures: tuple[Cosignature, ...]
    ignored: tuple[str, ...]  # whose signature lines were not looked at: their keys are unknown, they prove nothing


def judge(found: Note, *, anchor: Anchor, now: int) -> Judgement:
    """Check every known signature of a checkpoint, and whether the anchor believes it; `now` is in seconds since 1970.

    Raises `LedgerError` that says what is missing.
    """
    checkpoint = parse_checkpoint(found.text)
    if not anchor.logs or anchor.quorum is None:
        raise LedgerError("nobody is trusted: whoever checks a ledger has to say whose signatures count")
    verified = {each.verifier: each for each in _verified(found, anchor)}
    cosignatures = {
        witness.name: _cosignature(witness, each.time, now)
        for witness in anchor.witnesses
        if (each := verified.get(witness.key.verifier)) and each.time is not None
    }
    counted = {name: each.time for name, each in cosignatures.items() if each.fault is None}
    if not anchor.met(set(counted)):
        raise LedgerError(_no_quorum(anchor, cosignatures))
    signed_by = _signed_by(checkpoint.origin, anchor, verified, _latest_time(anchor, counted, now))
    known = {(each.name, each.key_id) for each in verified}
    return Judgement(
        checkpoint=checkpoint,
        signed_by=signed_by,
        cosignatures=tuple(cosignatures.values()),
        ignored=tuple(f"{s.name} ({s.key_id.hex()})" for s in found.signatures if (s.name, s.key_id) not in known),
    )


def _verified(found: Note, anchor: Anchor) -> tuple[Verified, ...]:
    try:
        return note.verify(found, anchor.verifiers)
    except NoteError as error:
        raise LedgerError(str(error)) from error


def _cosignature(witness: Witness, time: int, now: int) -> Cosignature:
    late = f"its time is {time - now} seconds ahead of this machine's clock" if time > now + SKEW else None
    return Cosignature(verifier=witness.key.verifier, time=time, fault=late or witness.key.fault(time))


def _latest_time(anchor: Anchor, counted: dict[str, int], now: int) -> int:
    """When the log's signature was there at the latest, as far as the witnesses show it."""
    if anchor.quorum == NONE:
        return min([*counted.values(), now])
    for time in sorted(counted.values()):
        if anchor.met({name for name, other in counted.items() if other <= time}):
            return min(time, now)
    return now


def _signed_by(origin: str, anchor: Anchor, verified: dict[Verifier, Verified], latest: int) -> tuple[Verifier, ...]:
    """The keys of the log whose signature counts. Raises `LedgerError` that says for each why not, if none does."""
    faults: dict[Verifier, str | None] = {}
    for key in anchor.logs:
        if found := verified.get(key.verifier):
            fault = key.fault(latest if found.time is None else min(found.time, latest))
            other = key.verifier.name != origin
            faults[key.verifier] = f"it is the key of another log, this one is {origin!r}" if other else fault
    signed_by = tuple(verifier for verifier, fault in faults.items() if fault is None)
    if not signed_by:
        why = "; ".join(f"{_name(verifier)}: {fault}" for verifier, fault in faults.items())
        trusted = ", ".join(_name(key.verifier) for key in anchor.logs)
        raise LedgerError(f"no trusted log has signed: {why or f'only witnesses have; trusted are {trusted}'}")
    return signed_by


def _no_quorum(anchor: Anchor, cosignatures: Mapping[str, Cosignature]) -> str:
    found = [f"{name} ({each.fault})" if each.fault else name for name, each in cosignatures.items()]
    return f"the quorum is not met: it asks for {anchor.asked}; cosigned: {', '.join(found) or 'nobody'}"


def _name(verifier: Verifier) -> str:
    return f"{verifier.name} ({verifier.key_id.hex()})"

"""Whether a checkpoint is to be believed: its signatures against a trust anchor.

A plain signature carries no time, so that the validity of a log's key needs witnesses: its signature counts as made,
at the latest, when the quorum had cosigned it (with `quorum none`: when the first known witness had), or else now. A
cosignature counts if its key was valid at the time that it carries. Of several by one key any that counts is enough,
and the earliest of these is the one that is named: the order of the lines decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer import note
from explorer.errors import LedgerError, NoteError
from explorer.ledger.anchor import NONE, Anchor, Witness
from explorer.ledger.checkpoint import Checkpoint, parse_checkpoint
from explorer.note import MAX_TIME, Note, Verified, Verifier

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
    verified: dict[Verifier, list[int | None]] = {}
    for each in _verified(found, anchor):
        verified.setdefault(each.verifier, []).append(each.time)
    cosignatures = {
        witness.name: _cosignature(witness, times, now)
        for witness in anchor.witnesses
        if (times := [time for time in verified.get(witness.key.verifier, ()) if time is not None])
    }
    counted = {name: each.time for name, each in cosignatures.items() if each.fault is None}
    if not anchor.met(set(counted)):
        raise LedgerError(_no_quorum(anchor, cosignatures))
    signed_by = _signed_by(checkpoint.origin, anchor, verified, _latest_time(anchor, counted, now))
    known = {(key.name, key.key_id) for key in verified}
    unknown = dict.fromkeys(f"{s.name} ({s.key_id.hex()})" for s in found.signatures if (s.name, s.key_id) not in known)
    return Judgement(
        checkpoint=checkpoint,
        signed_by=signed_by,
        cosignatures=tuple(cosignatures.values()),
        ignored=tuple(unknown),
    )


def _verified(found: Note, anchor: Anchor) -> tuple[Verified, ...]:
    try:
        return note.verify(found, anchor.verifiers)
    except NoteError as error:
        raise LedgerError(str(error)) from error


def _cosignature(witness: Witness, times: Sequence[int], now: int) -> Cosignature:
    """The earliest one that counts, or else the earliest."""
    found = [
        Cosignature(verifier=witness.key.verifier, time=time, fault=_ahead(time, now) or witness.key.fault(time))
        for time in sorted(times)
    ]
    return next((each for each in found if each.fault is None), found[0])


def _ahead(time: int, now: int) -> str | None:
    if time > MAX_TIME:
        return f"it carries an impossible time, {time}"
    return f"its time is {time - now} seconds ahead of this machine's clock" if time > now + SKEW else None


def _latest_time(anchor: Anchor, counted: dict[str, int], now: int) -> int:
    """When the log's signature was there at the latest, as far as the witnesses show it."""
    if anchor.quorum == NONE:
        return min([*counted.values(), now])
    for time in sorted(counted.values()):
        if anchor.met({name for name, other in counted.items() if other <= time}):
            return min(time, now)
    return now


def _signed_by(
    origin: str, anchor: Anchor, verified: Mapping[Verifier, Sequence[int | None]], latest: int
) -> tuple[Verifier, ...]:
    """The keys of the log whose signature counts. Raises `LedgerError` that says for each why not, if none does."""
    faults: dict[Verifier, str | None] = {}
    for key in anchor.logs:
        if times := verified.get(key.verifier):
            fault = key.fault(min(latest if time is None else min(time, latest) for time in times))
            other = key.verifier.name != origin and note.is_name(origin)
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

"""Trust in a ledger: the caller's anchor, the file that states one, and the judgement of a checkpoint by it.

A trust anchor names the keys that may sign a log, the witnesses that may cosign it, and how many of them are enough.
The caller of a check provides it. `Anchor()` trusts nothing. It grows by one definition at a time, and no definition
can refer to a later one, so that there are no circles. Each name is a member of at most one group, and each public key
occurs once, so that no signer counts twice.

A plain signature has no time of its own, so the validity of a log's key needs witnesses: the signature counts as made,
at the latest, when the quorum had cosigned it (with `quorum none`: when the first known witness had), or else now. A
cosignature counts if its key was valid at its time. Of several by one key any that counts is enough, and the earliest
of these is named: the order of the lines decides nothing.

A policy file is an anchor as C2SP tlog-policy writes it (c2sp.org/tlog-policy), one definition a line:

    log <verifier key> [<url>]                  a log that may sign; the key's name is the checkpoint's origin
    witness <name> <verifier key> [<url>]       a witness that may cosign, with a cosignature key (type 04)
    group <name> all|any|<k> <member> ...       met if that many of its members, witnesses or groups, have cosigned
    quorum <name>|none                          the witness or group that must have cosigned

Keys of unknown types cannot be checked: such a log is left out, and such a witness never counts. The policy is refused
where that leaves no log, or no way to meet the quorum. Empty lines and lines that begin with # are skipped. Names are
compared byte by byte.
"""

import re
import time as clock
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from explorer import note
from explorer.errors import LedgerError, NoteError, unknown
from explorer.ledger.signed_checkpoint import Checkpoint, parse_checkpoint
from explorer.note import MAX_NAME, MAX_TIME, Algorithm, Note, UnknownTypeError, Verified, Verifier

NONE = "none"  # the quorum that asks for no cosignature
MAX_KEYS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedKey:
    """A key and the time in which it is trusted."""

    verifier: Verifier
    valid_from: int | None = None  # seconds since 1970; None: no limit
    valid_until: int | None = None  # exclusive
    whose: str | None = None  # in words, where the key is not the log's own
    ends: str | None = None  # in words: what happens at `valid_until`, other than the key's end

    def fault(self, time: int) -> str | None:
        """Return the reason to reject a signature of this time, or None."""
        if self.valid_from is not None and time < self.valid_from:
            return f"its key is valid from {utc(self.valid_from)} on, not at {utc(time)}"
        if self.valid_until is not None and time >= self.valid_until:
            if self.ends:
                return f"{self.ends}, and it counts as signed at {utc(time)}"
            return f"its key was valid until {utc(self.valid_until)}, not at {utc(time)}"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """A cosigner, with its name in groups."""

    name: str
    key: TrustedKey


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Witnesses or groups, of which `threshold` have to have cosigned."""

    name: str
    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Anchor:
    """Trusted keys and the quorum. `Anchor()` trusts nothing; each `with_...` adds one definition.

    These raise `LedgerError` for a definition that does not fit those before it.
    """

    logs: tuple[TrustedKey, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    strangers: tuple[str, ...] = ()  # witnesses with keys of unknown types: none of them ever counts
    groups: tuple[Group, ...] = ()
    quorum: str | None = None  # a witness, a group, "none"; None: not defined, so that nothing is trusted
    doubt: str | None = None  # why a key that the ledger itself names may not sign it; None: it names none, or it may

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that are defined so far: witnesses, then groups."""
        known = (witness.name for witness in self.witnesses)
        return (*known, *self.strangers, *(group.name for group in self.groups))

    @property
    def verifiers(self) -> tuple[Verifier, ...]:
        """Return the keys of all logs and witnesses."""
        return tuple(key.verifier for key in (*self.logs, *(witness.key for witness in self.witnesses)))

    def with_log(self, key: TrustedKey) -> Self:
        """Return this anchor with a log that may sign."""
        self._refuse_twice(key)
        return replace(self, logs=(*self.logs, key))

    def with_witness(self, name: str, key: TrustedKey) -> Self:
        """Return this anchor with a witness that may cosign."""
        if key.verifier.algorithm is not Algorithm.COSIGNATURE:
            raise LedgerError(
                f"witness {name!r} has a key for plain signatures; a witness needs a cosignature key (04)"
            )
        self._refuse_name(name)
        self._refuse_twice(key)
        return replace(self, witnesses=(*self.witnesses, Witness(name=name, key=key)))

    def with_stranger(self, name: str) -> Self:
        """Return this anchor with a witness whose key is of an unknown type: a name for groups, which never cosigns."""
        self._refuse_name(name)
        if len(self.strangers) >= MAX_KEYS:
            raise LedgerError(f"more than {MAX_KEYS} keys of unknown types")
        return replace(self, strangers=(*self.strangers, name))

    def with_group(self, name: str, threshold: int, members: Sequence[str]) -> Self:
        """Return this anchor with a group of witnesses and groups."""
        self._refuse_name(name)
        if len(self.groups) >= MAX_KEYS:
            raise LedgerError(f"more than {MAX_KEYS} groups")
        taken = {member: group.name for group in self.groups for member in group.members}
        for member in members:
            if member not in self.names:
                raise LedgerError(f"group {name!r}: {unknown('member', member, self.names)}")
            if member in taken:
                raise LedgerError(f"group {name!r}: {member!r} is a member of {taken[member]!r} already")
            taken[member] = name
        if not 1 <= threshold <= len(members):
            raise LedgerError(f"group {name!r}: {threshold} of {len(members)} members cannot be asked for")
        return replace(self, groups=(*self.groups, Group(name=name, threshold=threshold, members=tuple(members))))

    def with_quorum(self, name: str) -> Self:
        """Return this anchor with a quorum: a witness, a group, or "none"."""
        if self.quorum is not None:
            raise LedgerError(f"a second quorum, {name!r}; {self.quorum!r} was named before")
        if name != NONE and name not in self.names:
            raise LedgerError(f"quorum: {unknown('name', name, self.names)}")
        return replace(self, quorum=name)

    def met(self, cosigned: set[str]) -> bool:
        """Return whether the witnesses with these names are a quorum."""
        if self.quorum is None:
            return False
        # One pass in the order of definition is enough: members are defined before their group.
        satisfied = cosigned | {NONE}
        for group in self.groups:
            if sum(member in satisfied for member in group.members) >= group.threshold:
                satisfied.add(group.name)
        return self.quorum in satisfied

    @property
    def asked(self) -> str:
        """Return the demand of the quorum, in words."""
        words: dict[str, str] = {}
        for group in self.groups:
            members = [words.get(member, member) for member in group.members]
            inner = ", ".join(f"({member})" if " of " in member else member for member in members)
            count = "all" if group.threshold == len(members) else group.threshold
            words[group.name] = members[0] if len(members) == 1 else f"{count} of {inner}"
        return words.get(self.quorum or "", self.quorum or "nothing that could be met")

    def _refuse_name(self, name: str) -> None:
        if not name or len(name) > MAX_NAME:
            raise LedgerError(f"not a name: {name[:80]!r}; expected 1 to {MAX_NAME} characters")
        if name == NONE or name in self.names:
            raise LedgerError(f"the name {name!r} is taken")

    def _refuse_twice(self, key: TrustedKey) -> None:
        known = self.verifiers
        if len(known) >= MAX_KEYS:
            raise LedgerError(f"more than {MAX_KEYS} keys")
        for other in known:
            if other.public_key == key.verifier.public_key:
                raise LedgerError(f"the public key of {key.verifier.name!r} is listed twice ({other.name!r})")


def anchor_of(vkeys: Sequence[str]) -> Anchor:
    """Return the simplest anchor: any of these logs has to sign, and every key for cosignatures among them to cosign.

    Raises `LedgerError` or `NoteError` for a key that cannot be used.
    """
    anchor = Anchor()
    for verifier in map(Verifier.parse, vkeys):
        key = TrustedKey(verifier=verifier)
        cosigner = verifier.algorithm is Algorithm.COSIGNATURE
        anchor = anchor.with_witness(verifier.name, key) if cosigner else anchor.with_log(key)
    if not anchor.logs:
        raise LedgerError("none of the keys given is a log's; a cosignature proves nothing without the log's signature")
    if not anchor.witnesses:
        return anchor.with_quorum(NONE)
    name = "every key given"
    return anchor.with_group(name, len(anchor.names), anchor.names).with_quorum(name)


def utc(seconds: int) -> str:
    """Return a time in words: `2023-11-14T22:13:20Z`.

    >>> utc(1_700_000_000)
    '2023-11-14T22:13:20Z'
    """
    try:
        return clock.strftime("%Y-%m-%dT%H:%M:%SZ", clock.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds} seconds after 1970"


# ---------------------------------------------------------------------------------------- the judgement of a checkpoint

SKEW = 300  # seconds by which the clocks of two machines may differ


@dataclass(frozen=True, kw_only=True, slots=True)
class Cosignature:
    """A valid signature of a witness, and whether it counts."""

    verifier: Verifier
    time: int  # seconds since 1970
    fault: str | None  # why it does not count, or None


UNTRUSTED = "no key is trusted"
"""Beginning of the one message about the reader's anchor, not about the ledger."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """A checkpoint that an anchor trusts, and the reasons."""

    checkpoint: Checkpoint
    signed_by: tuple[Verifier, ...]  # keys of the log
    signers: tuple[str, ...]  # the same, in words
    cosignatures: tuple[Cosignature, ...]
    ignored: tuple[str, ...]  # unknown keys, whose signature lines were not checked and prove nothing


def judge(checkpoint_note: Note, *, anchor: Anchor, now: int) -> Judgement:
    """Check every signature of a known key, and that the anchor trusts the checkpoint; `now` is in seconds since 1970.

    Raises `LedgerError` that names what is missing.
    """
    checkpoint = parse_checkpoint(checkpoint_note.text)
    if not anchor.logs or anchor.quorum is None:
        raise LedgerError(f"{UNTRUSTED}: name the keys whose signatures count")
    # All times of a key are kept: of several cosignatures by one key, any that counts is enough.
    verified: dict[Verifier, list[int | None]] = {}
    for line in _verified(checkpoint_note, anchor):
        verified.setdefault(line.verifier, []).append(line.time)
    cosignatures = {
        witness.name: _cosignature(witness, times, now)
        for witness in anchor.witnesses
        if (times := [time for time in verified.get(witness.key.verifier, ()) if time is not None])
    }
    # The quorum comes before the log's keys: its times are the latest at which the log can have signed.
    counted = {name: cosignature.time for name, cosignature in cosignatures.items() if cosignature.fault is None}
    if not anchor.met(set(counted)):
        raise LedgerError(_no_quorum(anchor, cosignatures))
    signed_by = _signed_by(checkpoint.origin, anchor, verified, _latest_time(anchor, counted, now))
    # Lines of unknown keys prove nothing, and are listed apart from those that count.
    known = {(key.name, key.key_id) for key in verified}
    unknown = dict.fromkeys(
        f"{s.name} ({s.key_id.hex()})" for s in checkpoint_note.signatures if (s.name, s.key_id) not in known
    )
    whose = {key.verifier: key.whose for key in anchor.logs if key.whose}
    return Judgement(
        checkpoint=checkpoint,
        signed_by=signed_by,
        signers=tuple(f"{one.name}, {whose[one]}" if one in whose else one.name for one in signed_by),
        cosignatures=tuple(cosignatures.values()),
        ignored=tuple(unknown),
    )


def _verified(checkpoint_note: Note, anchor: Anchor) -> tuple[Verified, ...]:
    try:
        return note.verify(checkpoint_note, anchor.verifiers)
    except NoteError as error:
        raise LedgerError(f"{anchor.doubt}; {error}" if anchor.doubt else str(error)) from error


def _cosignature(witness: Witness, times: Sequence[int], now: int) -> Cosignature:
    """Return the earliest one that counts, or else the earliest."""
    candidates = [
        Cosignature(verifier=witness.key.verifier, time=time, fault=_ahead(time, now) or witness.key.fault(time))
        for time in sorted(times)
    ]
    return next((candidate for candidate in candidates if candidate.fault is None), candidates[0])


def _ahead(time: int, now: int) -> str | None:
    if time > MAX_TIME:
        return f"it carries an impossible time, {time}"
    return f"its time is {time - now} seconds ahead of this machine's clock" if time > now + SKEW else None


def _latest_time(anchor: Anchor, counted: dict[str, int], now: int) -> int:
    """Return the latest time at which the log can have signed, by the cosignatures."""
    # The first moment at which the quorum was met. Later cosignatures of further witnesses change nothing.
    if anchor.quorum == NONE:
        return min([*counted.values(), now])
    for time in sorted(counted.values()):
        if anchor.met({name for name, other in counted.items() if other <= time}):
            return min(time, now)
    return now


def _signed_by(
    origin: str, anchor: Anchor, verified: Mapping[Verifier, Sequence[int | None]], latest: int
) -> tuple[Verifier, ...]:
    """Return the keys of the log whose signature counts.

    Raises `LedgerError` with the fault of each key, if none does.
    """
    faults: dict[Verifier, str | None] = {}
    for key in anchor.logs:
        if times := verified.get(key.verifier):
            fault = key.fault(min(latest if time is None else min(time, latest) for time in times))
            # A key signs only the log of its name. An origin that cannot be a key's name has no such key.
            other = key.verifier.name != origin and note.is_name(origin)
            faults[key.verifier] = f"it is the key of another log, this one is {origin!r}" if other else fault
    signed_by = tuple(verifier for verifier, fault in faults.items() if fault is None)
    if not signed_by:
        why = "; ".join([*filter(None, [anchor.doubt]), *(f"{_name(key)}: {fault}" for key, fault in faults.items())])
        trusted = ", ".join(_name(key.verifier) for key in anchor.logs)
        raise LedgerError(f"no trusted log has signed: {why or f'only witnesses have; trusted are {trusted}'}")
    return signed_by


def _no_quorum(anchor: Anchor, cosignatures: Mapping[str, Cosignature]) -> str:
    cosigned = [
        f"{name} ({cosignature.fault})" if cosignature.fault else name for name, cosignature in cosignatures.items()
    ]
    return f"the quorum is not met: it asks for {anchor.asked}; cosigned: {', '.join(cosigned) or 'none'}"


def _name(verifier: Verifier) -> str:
    return f"{verifier.name} ({verifier.key_id.hex()})"


# --------------------------------------------------------------------------------------------------------- policy files

MAX_POLICY = 2**17
MAX_WORD = 2000
_CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_NUMBER = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_FORMS = {
    "log": "log <verifier key> [<url>]",
    "witness": "witness <name> <verifier key> [<url>]",
    "group": "group <name> all|any|<k> <member> ...",
    "quorum": "quorum <name>|none",
}


def parse_policy(content: bytes, *, where: str) -> Anchor:
    """Read a policy file. Raises `LedgerError` that names `where`, the line and the fault."""
    if len(content) > MAX_POLICY:
        raise LedgerError(f"{where}: too large: {len(content)} bytes, at most {MAX_POLICY} are read")
    if content and not content.endswith(b"\n"):
        raise LedgerError(f"{where}: the last line does not end in a newline; it may have been cut off")
    anchor = Anchor()
    for number, line in enumerate(content.split(b"\n"), 1):
        if control := _CONTROL.search(line):
            raise LedgerError(f"{where}, line {number}: control character {control[0][0]:#04x}; only tabs are allowed")
        words = line.decode(errors="surrogateescape").replace("\t", " ").split(" ")
        try:
            anchor = _define(anchor, [word for word in words if word])
        except (LedgerError, NoteError) as error:
            raise LedgerError(f"{where}, line {number}: {error}") from error
    for fault, missing in (("no log", not anchor.logs), ("no quorum", anchor.quorum is None)):
        if missing:
            raise LedgerError(f"{where}: names {fault}; such a policy would trust nothing")
    if not anchor.met({witness.name for witness in anchor.witnesses}):
        names = ", ".join(anchor.strangers)
        raise LedgerError(f"{where}: the quorum needs witnesses whose keys are of a type not known here: {names}")
    return anchor


def _define(anchor: Anchor, words: list[str]) -> Anchor:
    """Return the anchor with the definition on one line."""
    if any(len(word) > MAX_WORD for word in words):
        raise LedgerError(f"a word of more than {MAX_WORD} characters")
    match words:
        case []:
            return anchor
        case [first, *_] if first.startswith("#"):
            return anchor
        case ["log", vkey] | ["log", vkey, _]:
            key = _key(vkey)
            return anchor.with_log(key) if key else anchor
        case ["witness", name, vkey] | ["witness", name, vkey, _]:
            key = _key(vkey)
            return anchor.with_witness(name, key) if key else anchor.with_stranger(name)
        case ["group", name, threshold, *members]:
            return anchor.with_group(name, _threshold(threshold, len(members)), members)
        case ["quorum", name]:
            return anchor.with_quorum(name)
        case [("log" | "witness" | "group" | "quorum") as kind, *_]:
            raise LedgerError(f"{len(words) - 1} words after {kind!r}; expected {_FORMS[kind]}")
        case _:
            raise LedgerError(unknown("definition", words[0][:80], _FORMS))


def _key(vkey: str) -> TrustedKey | None:
    """Return the key, or None for one of an unknown type."""
    try:
        return TrustedKey(verifier=Verifier.parse(vkey))
    except UnknownTypeError:
        return None


def _threshold(word: str, members: int) -> int:
    if word in ("all", "any"):
        return members if word == "all" else 1
    if not _NUMBER.fullmatch(word):
        raise LedgerError(f"not a threshold: {word[:40]!r}; expected all, any, or a decimal number from 1 on")
    return int(word)

"""A trust anchor: the keys that may sign a log, the witnesses that may cosign it, and how many of them are enough.

It is what the caller of a check brings along. `Anchor()` believes nobody; it grows by one definition at a time, and no
definition can be of something that does not exist yet, so that there are no circles. Each name is a member of at most
one group, and each public key stands in it once, so that nobody counts twice.
"""

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from explorer.errors import LedgerError, unknown
from explorer.note import MAX_NAME, Algorithm, Verifier

NONE = "none"  # the quorum that asks for no cosignature
MAX_KEYS = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedKey:
    """A key and when it is believed: seconds since 1970, `valid_until` exclusive, None for no limit."""

    verifier: Verifier
    valid_from: int | None = None
    valid_until: int | None = None

    def fault(self, time: int) -> str | None:
        """Why what was signed at this time is not believed, or None."""
        if self.valid_from is not None and time < self.valid_from:
            return f"its key is valid from {utc(self.valid_from)} on, not at {utc(time)}"
        if self.valid_until is not None and time >= self.valid_until:
            return f"its key was valid until {utc(self.valid_until)}, not at {utc(time)}"
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """A cosigner, by the name that groups know it under."""

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
    """Whom to believe. `Anchor()` believes nobody; each `with_...` gives an anchor with one definition more.

    These raise `LedgerError` for a definition that does not fit those before it.
    """

    logs: tuple[TrustedKey, ...] = ()
    witnesses: tuple[Witness, ...] = ()
    strangers: tuple[str, ...] = ()  # witnesses whose keys are of a type not known here: none of them ever counts
    groups: tuple[Group, ...] = ()
    quorum: str | None = None  # a witness, a group, "none", or None where nothing was said

    @property
    def names(self) -> tuple[str, ...]:
        """What is defined so far: witnesses, then groups."""
        known = (witness.name for witness in self.witnesses)
        return (*known, *self.strangers, *(group.name for group in self.groups))

    @property
    def verifiers(self) -> tuple[Verifier, ...]:
        """The keys of all logs and witnesses."""
        return tuple(key.verifier for key in (*self.logs, *(witness.key for witness in self.witnesses)))

    def with_log(self, key: TrustedKey) -> Self:
        """A log that may sign."""
        self._refuse_twice(key)
        return replace(self, logs=(*self.logs, key))

    def with_witness(self, name: str, key: TrustedKey) -> Self:
        """A witness that may cosign."""
        if key.verifier.algorithm is not Algorithm.COSIGNATURE:
            raise LedgerError(
                f"witness {name!r} has a key for plain signatures; a witness needs a cosignature key (04)"
            )
        self._refuse_name(name)
        self._refuse_twice(key)
        return replace(self, witnesses=(*self.witnesses, Witness(name=name, key=key)))

    def with_stranger(self, name: str) -> Self:
        """A witness whose key is of a type that is not known here: a name for groups, which never cosigns."""
        self._refuse_name(name)
        if len(self.strangers) >= MAX_KEYS:
            raise LedgerError(f"more than {MAX_KEYS} keys of unknown types")
        return replace(self, strangers=(*self.strangers, name))

    def with_group(self, name: str, threshold: int, members: Sequence[str]) -> Self:
        """A group of witnesses and groups."""
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
        """What has to have cosigned: a witness, a group, or "none"."""
        if self.quorum is not None:
            raise LedgerError(f"a second quorum, {name!r}; {self.quorum!r} was named before")
        if name != NONE and name not in self.names:
            raise LedgerError(f"quorum: {unknown('name', name, self.names)}")
        return replace(self, quorum=name)

    def met(self, cosigned: set[str]) -> bool:
        """Whether the witnesses with these names are a quorum."""
        if self.quorum is None:
            return False
        having = cosigned | {NONE}
        for group in self.groups:  # in the order of definition: members come before their group
            if sum(member in having for member in group.members) >= group.threshold:
                having.add(group.name)
        return self.quorum in having

    @property
    def asked(self) -> str:
        """What the quorum asks for, in words."""
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
                raise LedgerError(f"the public key of {key.verifier.name!r} stands here twice ({other.name!r})")


def anchor_of(vkeys: Sequence[str]) -> Anchor:
    """The simplest anchor: any of these logs has to sign, and every key for cosignatures among them to cosign.

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
    everybody = "every key given"
    return anchor.with_group(everybody, len(anchor.names), anchor.names).with_quorum(everybody)


def utc(seconds: int) -> str:
    """A time in words: `2023-11-14T22:13:20Z`.

    >>> utc(1_700_000_000)
    '2023-11-14T22:13:20Z'
    """
    try:
        return clock.strftime("%Y-%m-%dT%H:%M:%SZ", clock.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds} seconds after 1970"

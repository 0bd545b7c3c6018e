"""Comparing what is executed again with a ledger, entry by entry; nothing is written."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explorer.entries.envelope import Head, read_head
from explorer.entries.kinds import decode
from explorer.entries.run import Genesis, State, TrainingState
from explorer.errors import LedgerError
from explorer.governance.history import History, Recorded
from explorer.governance.segments import NUMBERS, SKETCHES
from explorer.governance.spool import ALL

NOTHING = "nothing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first thing that came out otherwise."""

    entry: int  # its number in the ledger
    kind: str
    step: int
    field: str  # dotted
    expected: str  # on record
    found: str


class Differs(Exception):
    """Ends the replay."""

    def __init__(self, difference: Difference) -> None:
        self.difference = difference


@dataclass(slots=True)
class Comparison:
    """The book of a journal that writes nothing: what is put there has to be what the ledger has next."""

    directory: Path
    uncompared: frozenset[str]  # dotted fields of commitments that cannot be made here
    counts: dict[str, int] = field(default_factory=dict)  # of entries found equal, by kind; of blobs
    _recorded: Iterator[Recorded] = field(default_factory=lambda: iter(()))

    def begin(self, step: int) -> TrainingState | None:
        found, self._recorded = History(self.directory).state(step)
        state = decode(found.leaf)
        if isinstance(state, Genesis):
            return state.start
        return state.state if isinstance(state, State) else None

    def write_blob(self, content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    def put(self, leaf: bytes, *, step: int) -> None:
        head, expected = read_head(leaf), next(self._recorded, None)
        if expected is None:
            raise LedgerError(f"{self.directory}: ends before the {head.kind} at step {step}, which would be next")
        if leaf != expected.leaf:
            for name, wanted, found in differences(expected.head, head, uncompared=self.uncompared):
                raise Differs(
                    Difference(
                        entry=expected.number, kind=head.kind, step=step, field=name, expected=wanted, found=found
                    )
                )
        self.counts[head.kind] = self.counts.get(head.kind, 0) + 1
        compared = sum(f"blobs.{name}" not in self.uncompared for name in head.blobs)
        self.counts["blobs"] = self.counts.get("blobs", 0) + compared

    def commit(self) -> None: ...

    def close(self) -> None: ...


def differences(expected: Head, found: Head, *, uncompared: Collection[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Field, expected and found value, wherever two entries differ.

    Of the fields that are not compared it still counts whether there is a value. A ledger of an earlier version does
    not commit to sketches: there the blobs alone are compared.
    """
    then, now = _comparable(expected), _comparable(found)
    if SKETCHES not in expected.fields:
        now = {name: value for name, value in now.items() if not name.startswith(f"{SKETCHES}.")}
    for name in sorted(then.keys() | now.keys()):
        values = then.get(name, NOTHING), now.get(name, NOTHING)
        if values[0] != values[1] and not (name in uncompared and NOTHING not in values):
            yield name, *values


def commitments(genesis: Genesis, classes: Set[str], *, confidential: Set[str]) -> frozenset[str]:
    """The fields of the commitments of these classes and of their sealed blobs, in entries of all kinds."""
    numbers = {
        f"{of}.{place}" for of in (NUMBERS, SKETCHES) for place, name in enumerate(genesis.classes) if name in classes
    }
    named = {f"{of}.{name}" for of in ("classes", "evidence") for name in classes}
    joint = {"joint"} if ALL in classes else set[str]()
    sealed = {f"blobs.{of}/{name}" for of in (NUMBERS, SKETCHES, "evidence") for name in classes & confidential}
    return frozenset(numbers | named | joint | sealed | ({"blobs.joint"} if joint and confidential else set()))


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The values of nested objects, by dotted name."""
    found: dict[str, str] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found |= flat(inner, f"{prefix}{key}.")
        elif isinstance(inner, list | tuple):
            found |= flat({str(place): each for place, each in enumerate(inner)}, f"{prefix}{key}.")
        elif inner is not None:
            found[f"{prefix}{key}"] = str(inner)
    return found


def _comparable(head: Head) -> dict[str, str]:
    blobs = {name: f"{blob.sha256}, {blob.size} bytes" for name, blob in head.blobs.items()}
    return flat({"kind": head.kind, **head.fields, "blobs": blobs})

"""Reading a run's numbers as rows, with the keys that a grant gave, each checked against its commitment.

How a reader obtains keys, and what is put on record before, is described in `explorer.disclosure.requests`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explorer.canonical import canonical
from explorer.disclosure.grants_in_force import covered_classes
from explorer.disclosure.wrapped import GrantKeys
from explorer.entries import entropy_profile
from explorer.entries.kinds import Decision, Profile, Step
from explorer.entries.numbers import StepNumbers, share_terms
from explorer.errors import LedgerError, ProvenanceError, unknown
from explorer.provenance.commitments import commit
from explorer.provenance.encryption import KINDS, salt_of
from explorer.provenance.grants import Grant
from explorer.provenance.regions import ADAPTER
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers, having, open_commitments, read_numbers

# --- contents of blobs, opened ---

MAX_BYTES = 2**24
NO_KEY = "no key: recorded after the keys were wrapped, or its secret was destroyed"

Cell = int | float | str | None


@dataclass(kw_only=True, slots=True)
class Contents:
    """A reading under way. Every content of which a row is shown was checked; what cannot be read is noted.

    Raises `LedgerError` for content that is damaged or not what its entry committed to.
    """

    run: RunLedger  # with the reader's keys
    classes: tuple[str, ...]  # that are asked for; * is for numbers over several
    checked: int = 0
    unread: list[str] = field(default_factory=list)

    def steps(self, steps: range) -> Iterator[tuple[Cell, ...]]:
        """Yield rows of steps; those of a class have what needs other classes only where * is asked for too."""
        done = steps.start
        for segment in self.run.segments(steps):
            found = read_numbers(self.run, segment)
            readable = [path for path in self.classes if self._readable(path, segment, found)]
            for index, path, expected, content in open_commitments(found, self.run.keys):
                self._agree(index, path, expected, content)
            joint = {placed.index: numbers for placed, numbers in found.by_step()} if JOINT in readable else {}
            own = {path: found.of_class(self.run.class_(path)) for path in readable if path != JOINT}
            for placed in found.steps:
                if placed.entry.step in steps:
                    yield from self._of_step(placed, own, joint.get(placed.index))
            done = segment.stop
        if done < steps.stop:
            self.unread.append(f"steps {done} to {steps.stop - 1}: their numbers are in no state entry yet")

    def profiles(self, steps: range) -> Iterator[tuple[Cell, ...]]:
        """Yield rows of profiles. Adapters have none."""
        layers = [name for name in self.run.genesis.layers if ADAPTER not in name]
        for placed in self.run.read(self.run.outline.profiles, Profile):
            for path in self.classes if self._within(placed.entry.step, steps) else ():
                committed = placed.entry.joint if path == JOINT else placed.entry.classes.get(path)
                content = self._content(placed, "joint" if path == JOINT else f"numbers/{path}", path, committed)
                if content is None:
                    continue
                decode = entropy_profile.decode_joint if path == JOINT else entropy_profile.decode_class
                examples, numbers = decode(content, layers=len(layers))
                shown = entropy_profile.shown_joint if path == JOINT else entropy_profile.shown_class
                for layer, row in zip(layers, numbers, strict=True):
                    yield (placed.index, placed.entry.step, layer, path, examples, *shown(row).values())

    def decisions(self, steps: range) -> Iterator[tuple[Cell, ...]]:
        """Yield rows of decisions: the evidence as it was committed to."""
        standing = [index for index in self.run.outline.decisions if index not in self.run.outline.superseded]
        for placed in self.run.read(standing, Decision):
            for path in self.classes if self._within(placed.entry.step, steps) else ():
                content = self._content(placed, f"evidence/{path}", path, placed.entry.evidence.get(path))
                if content is not None:
                    layers = ", ".join(placed.entry.layers) or None
                    says = placed.entry.action, placed.entry.rule, content.hex()
                    yield (placed.index, placed.entry.step, layers, path, *says)

    def _of_step(
        self, placed: Placed[Step], own: dict[str, dict[int, Any]], numbers: StepNumbers | None
    ) -> Iterator[tuple[Cell, ...]]:
        shares, whole = (None, None) if numbers is None else share_terms(numbers.gram)
        step, layers = placed.entry.step, self.run.genesis.layers
        for path, rows in own.items():
            place = numbers.classes.index(self.run.class_(path)) if numbers and step in rows else None
            for at, row in enumerate(rows.get(step, np.empty((0, 2))).tolist()):
                joint: tuple[Cell, ...] = (None, None, None, None, None)
                if numbers is not None and shares is not None and place is not None:
                    exact = None if numbers.exact is None else float(numbers.exact[place, at])
                    joint = (float(shares[place, at]), None, float(numbers.dots[place, at]), exact, None)
                yield (placed.index, step, layers[at], path, *row, *joint)
        if numbers is not None and whole is not None:
            for at, layer in enumerate(layers):
                totals = None, float(whole[at]), None, None, float(numbers.updates[at])
                yield (placed.index, step, layer, JOINT, None, None, *totals)

    def _readable(self, path: str, segment: Segment, found: SegmentNumbers) -> bool:
        """Return whether a class's numbers of a segment can be read; where it has some and they cannot, that is
        noted."""
        if path == JOINT:
            any_, missing = any(each.entry.joint for each in found.steps), dict(found.missing)
        else:
            index, name = self.run.class_(path), f"numbers/{path}"
            any_ = any(index in having(each.entry) for each in found.steps)
            missing = {name: found.missing[name]} if name in found.missing else {}
        if not any_:
            return False
        why = NO_KEY if self.run.keys.of(path, Step.KIND, segment.first) is None else next(iter(missing.values()), None)
        if why is not None:
            self.unread.append(f"{path}, steps {segment.first} to {segment.stop - 1}: {why}")
        return why is None

    def _content(self, placed: Placed[Any], name: str, path: str, committed: str | None) -> bytes | None:
        """Content that an entry commits to; None, and noted, where it cannot be read."""
        if committed is None:
            return None
        kind, first = self.run.stretch(placed)
        key, found = self.run.keys.of(path, kind, first), self.run.find(placed, name, max_bytes=MAX_BYTES)
        if key is None or isinstance(found, Missing):
            why = NO_KEY if key is None else found
            self.unread.append(f"{path}, {kind} at step {placed.entry.step}: {why}")
            return None
        self._agree(placed.index, path, committed, commit(salt_of(key, placed.entry.step), found).hex())
        return found

    def _agree(self, index: int, path: str, expected: str, found: str) -> None:
        if found != expected:
            raise LedgerError(
                f"entry {index}: {path}: not the numbers that were committed to, or not their key: found {found}, "
                f"expected {expected}"
            )
        self.checked += 1

    def _within(self, step: int, steps: range) -> bool:
        """Include what was recorded after the last step of the run."""
        return step in steps or step == steps.stop == self.run.range_of(None, None).stop


# --- rows of a query ---

KEYS = ("entry", "step", "layer", "class")
"""What a row is about: the number of the entry that committed to it, the step, the layer, the class (* is several)."""

COLUMNS = {
    "step": ("weight", "norm", "share_num", "share_den", "dot", "exact", "update_sq"),
    "profile": ("examples", *entropy_profile.SHOWN),
    "decision": ("action", "rule", "evidence"),
}
"""What it says, by kind of entry. The columns share_* and update_* are those of the spool; evidence is hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A reader's query of a run's numbers."""

    run: str
    kind: str  # of entries
    classes: tuple[str, ...]  # * is for numbers over several
    steps: range

    @property
    def digest(self) -> str:
        """Return the SHA-256 of its canonical JSON, by which the project's ledger names it."""
        asked = {"classes": [*self.classes], "kind": self.kind, "run": self.run}
        return hashlib.sha256(canonical({**asked, "first": self.steps.start, "stop": self.steps.stop})).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The numbers; a row has a cell for each of `KEYS` and each of the `COLUMNS` of its kind."""

    query: Query
    rows: tuple[tuple[Cell, ...], ...]
    checked: int  # contents that were compared with their commitments, and agree
    unread: tuple[str, ...]  # what was asked for and could not be read, and why


def ask(
    run: RunLedger, grant: Grant, *, kind: str | None = None, class_: str | None = None, steps: range | None = None
) -> Query:
    """Return what to read: all that the grant covers, unless told otherwise. Raises `ProvenanceError` for what it does
    not cover, and says what it does; `LedgerError` for steps that were not done."""
    covered, known = covered_classes(run.genesis, grant), (*run.genesis.classes, JOINT)
    query = Query(
        run=run.genesis.run,
        kind=next(each for each in KINDS if each in grant.entries) if kind is None else kind,
        classes=tuple(path for path in known if path in covered) if class_ is None else (class_,),
        steps=run.range_of(None, None) if steps is None else steps,
    )
    check_query(run, grant, query)
    return query


def check_query(run: RunLedger, grant: Grant, query: Query) -> None:
    """Check that a grant covers all that a query asks for. Raises `ProvenanceError` for what it does not cover, and
    says what it does; `LedgerError` for steps that were not done."""
    covered, known = covered_classes(run.genesis, grant), (*run.genesis.classes, JOINT)
    if query.kind not in KINDS:
        raise ProvenanceError(unknown("kind of entry with numbers", query.kind, KINDS))
    for path in query.classes:
        if path not in known:
            raise ProvenanceError(unknown("class", path, known))
    if query.kind not in grant.entries:
        raise ProvenanceError(f"entries of kind {query.kind} are outside of the grant: {grant.words}")
    for path in query.classes:
        if path not in covered:
            what = "numbers over several classes" if path == JOINT else f"class {path}"
            raise ProvenanceError(f"{what}: outside of the grant: {grant.words}")
    if query.classes != tuple(path for path in known if path in query.classes):
        raise ProvenanceError(
            f"classes {', '.join(query.classes)}: expected each once, in the order of the run's genesis"
        )
    run.range_of(query.steps.start, query.steps.stop)


def read(run: RunLedger, query: Query, keys: GrantKeys) -> Answer:
    """Read with these keys and no others.

    Raises `LedgerError` for content that is damaged or not what was committed to.
    """
    contents = Contents(run=run.reading_with(keys), classes=query.classes)
    of_kind = {"step": contents.steps, "profile": contents.profiles, "decision": contents.decisions}[query.kind]
    rows = tuple(of_kind(query.steps))
    return Answer(query=query, rows=rows, checked=contents.checked, unread=tuple(contents.unread))

"""A run's numbers as rows, read with the keys of a grant and checked against their commitments.

`explorer.disclosure.requests` describes how a reader obtains keys, and what is recorded before.
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

# --- contents of blobs ---

MAX_BYTES = 2**24  # of one content
NO_KEY = "no key: recorded after the keys were wrapped, or its secret was destroyed"

Cell = int | float | str | None


@dataclass(kw_only=True, slots=True)
class Contents:
    """A reading in progress. A row is shown only after its content was checked; unreadable content is noted.

    Raises `LedgerError` for content that is damaged or not what its entry committed to.
    """

    run: RunLedger  # with the reader's keys
    classes: tuple[str, ...]  # of the query; * is for numbers over several
    checked: int = 0
    unread: list[str] = field(default_factory=list)

    def steps(self, steps: range) -> Iterator[tuple[Cell, ...]]:
        """Yield rows of steps. Columns that depend on other classes are filled only if * is in the query too."""
        done = steps.start
        for segment in self.run.segments(steps):
            recorded = read_numbers(self.run, segment)
            readable = [path for path in self.classes if self._readable(path, segment, recorded)]
            # The whole segment is checked before its first row is shown.
            for index, path, expected, content in open_commitments(recorded, self.run.keys):
                self._agree(index, path, expected, content)
            joint = {placed.index: numbers for placed, numbers in recorded.by_step()} if JOINT in readable else {}
            own = {path: recorded.of_class(self.run.class_(path)) for path in readable if path != JOINT}
            for placed in recorded.steps:
                if placed.entry.step in steps:
                    yield from self._of_step(placed, own, joint.get(placed.index))
            done = segment.stop
        # Numbers of steps are written with the state that closes their segment.
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
        """Yield rows of decisions, with their evidence as the bytes that were committed to."""
        in_force = [index for index in self.run.outline.decisions if index not in self.run.outline.superseded]
        for placed in self.run.read(in_force, Decision):
            for path in self.classes if self._within(placed.entry.step, steps) else ():
                content = self._content(placed, f"evidence/{path}", path, placed.entry.evidence.get(path))
                if content is not None:
                    layers = ", ".join(placed.entry.layers) or None
                    cells = placed.entry.action, placed.entry.rule, content.hex()
                    yield (placed.index, placed.entry.step, layers, path, *cells)

    def _of_step(
        self, placed: Placed[Step], own: dict[str, dict[int, Any]], numbers: StepNumbers | None
    ) -> Iterator[tuple[Cell, ...]]:
        shares, whole = (None, None) if numbers is None else share_terms(numbers.gram)
        step, layers = placed.entry.step, self.run.genesis.layers
        # A row for each class and layer; its joint columns are those that need the other classes' numbers.
        for path, rows in own.items():
            place = numbers.classes.index(self.run.class_(path)) if numbers and step in rows else None
            for at, row in enumerate(rows.get(step, np.empty((0, 2))).tolist()):
                joint: tuple[Cell, ...] = (None, None, None, None, None)
                if numbers is not None and shares is not None and place is not None:
                    exact = None if numbers.exact is None else float(numbers.exact[place, at])
                    joint = (float(shares[place, at]), None, float(numbers.dots[place, at]), exact, None)
                yield (placed.index, step, layers[at], path, *row, *joint)
        # A row for each layer over all classes.
        if numbers is not None and whole is not None:
            for at, layer in enumerate(layers):
                totals = None, float(whole[at]), None, None, float(numbers.updates[at])
                yield (placed.index, step, layer, JOINT, None, None, *totals)

    def _readable(self, path: str, segment: Segment, recorded: SegmentNumbers) -> bool:
        """Return whether a class's numbers of a segment can be read; note it where there are some and they cannot."""
        # Joint numbers are decoded with those of every class, so one missing blob makes all of them unreadable.
        if path == JOINT:
            any_, missing = any(placed.entry.joint for placed in recorded.steps), dict(recorded.missing)
        else:
            index, name = self.run.class_(path), f"numbers/{path}"
            any_ = any(index in having(placed.entry) for placed in recorded.steps)
            missing = {name: recorded.missing[name]} if name in recorded.missing else {}
        if not any_:
            return False
        why = NO_KEY if self.run.keys.of(path, Step.KIND, segment.first) is None else next(iter(missing.values()), None)
        if why is not None:
            self.unread.append(f"{path}, steps {segment.first} to {segment.stop - 1}: {why}")
        return why is None

    def _content(self, placed: Placed[Any], name: str, path: str, committed: str | None) -> bytes | None:
        """Return checked content of an entry; None, and a note, where it cannot be read."""
        if committed is None:
            return None
        kind, first = self.run.stretch(placed)
        key, content = self.run.keys.of(path, kind, first), self.run.find(placed, name, max_bytes=MAX_BYTES)
        if key is None or isinstance(content, Missing):
            why = NO_KEY if key is None else content
            self.unread.append(f"{path}, {kind} at step {placed.entry.step}: {why}")
            return None
        self._agree(placed.index, path, committed, commit(salt_of(key, placed.entry.step), content).hex())
        return content

    def _agree(self, index: int, path: str, expected: str, computed: str) -> None:
        if computed != expected:
            raise LedgerError(
                f"entry {index}: {path}: not the numbers that were committed to, or not their key: found {computed}, "
                f"expected {expected}"
            )
        self.checked += 1

    def _within(self, step: int, steps: range) -> bool:
        """Return whether a step is in a range; entries after the run's last step belong to it."""
        return step in steps or step == steps.stop == self.run.range_of(None, None).stop


# --- rows of a query ---

KEYS = ("entry", "step", "layer", "class")
"""The first columns of a row: the number of the entry that committed to it, step, layer, class (* is several)."""

COLUMNS = {
    "step": ("weight", "norm", "share_num", "share_den", "dot", "exact", "update_sq"),
    "profile": ("examples", *entropy_profile.SHOWN),
    "decision": ("action", "rule", "evidence"),
}
"""The other columns, by kind of entry. Those named share_* and update_* are the spool's; evidence is hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A reader's query of a run's numbers."""

    run: str
    kind: str  # of entries
    classes: tuple[str, ...]  # * is for numbers over several
    steps: range

    @property
    def digest(self) -> str:
        """Return the SHA-256 of its canonical JSON, which names it in the project's ledger."""
        asked = {"classes": [*self.classes], "kind": self.kind, "run": self.run}
        return hashlib.sha256(canonical({**asked, "first": self.steps.start, "stop": self.steps.stop})).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The numbers; a row has a cell for each of `KEYS` and each of the `COLUMNS` of its kind."""

    query: Query
    rows: tuple[tuple[Cell, ...], ...]
    checked: int  # contents that agree with their commitments
    unread: tuple[str, ...]  # parts of the query that could not be read, each with the reason


def ask(
    run: RunLedger, grant: Grant, *, kind: str | None = None, class_: str | None = None, steps: range | None = None
) -> Query:
    """Return a query: by default for everything that the grant covers.

    Raises `ProvenanceError` for a query beyond the grant, naming what it covers; `LedgerError` for steps that were not
    done.

    Args:
        run: the run to read.
        grant: the grant to read by.
        kind: the kind of entries; None: the first that the grant covers.
        class_: a class path, or * for numbers over several; None: all that the grant covers.
        steps: the steps; None: all of the run.
    """
    covered, known = covered_classes(run.genesis, grant), (*run.genesis.classes, JOINT)
    query = Query(
        run=run.genesis.run,
        kind=next(covered_kind for covered_kind in KINDS if covered_kind in grant.entries) if kind is None else kind,
        classes=tuple(path for path in known if path in covered) if class_ is None else (class_,),
        steps=run.range_of(None, None) if steps is None else steps,
    )
    check_query(run, grant, query)
    return query


def check_query(run: RunLedger, grant: Grant, query: Query) -> None:
    """Check that a grant covers a query.

    Raises `ProvenanceError` for a query beyond the grant, naming what it covers; `LedgerError` for steps that were not
    done.
    """
    covered, known = covered_classes(run.genesis, grant), (*run.genesis.classes, JOINT)
    if query.kind not in KINDS:
        raise ProvenanceError(unknown("kind of entry with numbers", query.kind, KINDS))
    for path in query.classes:
        if path not in known:
            raise ProvenanceError(unknown("class", path, known))
    if query.kind not in grant.entries:
        raise ProvenanceError(f"entries of kind {query.kind}: outside the grant: {grant.words}")
    for path in query.classes:
        if path not in covered:
            what = "numbers over several classes" if path == JOINT else f"class {path}"
            raise ProvenanceError(f"{what}: outside the grant: {grant.words}")
    # One order of the classes, so that a query has one digest.
    if query.classes != tuple(path for path in known if path in query.classes):
        raise ProvenanceError(
            f"classes {', '.join(query.classes)}: expected each once, in the order of the run's genesis"
        )
    run.range_of(query.steps.start, query.steps.stop)


def read(run: RunLedger, query: Query, keys: GrantKeys) -> Answer:
    """Read with these keys and no others. Raises `LedgerError` for content that is damaged or breaks its commitment."""
    contents = Contents(run=run.reading_with(keys), classes=query.classes)
    of_kind = {"step": contents.steps, "profile": contents.profiles, "decision": contents.decisions}[query.kind]
    rows = tuple(of_kind(query.steps))
    return Answer(query=query, rows=rows, checked=contents.checked, unread=tuple(contents.unread))

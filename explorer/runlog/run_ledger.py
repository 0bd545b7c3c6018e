"""The ledger of a run, read as the story of its training: steps, segments, decisions, and the blobs that they name.

Where steps were executed again, the latest execution counts; the earlier one stays in the ledger and is superseded.
Memory holds one bundle of entries, the blobs of one segment, and a number for each step. Only the digests of blobs are
checked here: `ledger.verify` checks the ledger, and `audit.conform` what it says.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from explorer import rundir
from explorer.entries.fields import Blob
from explorer.entries.kinds import Decision, End, Genesis, Profile, State, Step, Trunk, Unknown, decode
from explorer.errors import LedgerError, ProvenanceError, RunError, unknown
from explorer.ledger.storage import LedgerDirectory, blob_path, read_blob
from explorer.provenance.encryption import MAGIC, OVERHEAD, is_sealed, open_sealed
from explorer.run_files import given_up, read_plan
from explorer.runlog.run_keys import JOINT, Keys, own_keys

# --- outline ---

# In canonical JSON a quotation mark inside text is escaped, and no digest is one of these words: both can only be an
# entry's own keys.
_KIND = re.compile(rb'"kind":"(step|state|profile|decision|trunk|end)"')
_STEP, _NUMBER = b'"step":', re.compile(rb"(0|[1-9][0-9]{0,15})[,}]")
_TABLE, _DIGEST = b'"weights":"', re.compile(rb'([0-9a-f]{64})"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """A segment that was executed again, or whose state was recorded again."""

    first: int
    entries: tuple[int, ...]  # of its steps, as they were when the state was recorded
    state: int | None  # that closed it; None: none did
    before: int | None  # the state that it began with; None: where the ledger begins


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """The places of all entries of a run's ledger, by kind and step."""

    steps: Sequence[int]  # the latest execution of each step, by step; -1 for those before the genesis begins
    states: tuple[tuple[int, int], ...]  # steps done, entry; ascending
    tables: tuple[tuple[int, int], ...]  # step, entry: where the admission table in force changes
    profiles: tuple[int, ...]
    decisions: tuple[int, ...]  # superseded ones included
    undone: Mapping[int, int]  # superseded decisions -> the re-execution that undid each
    past: tuple[Past, ...]  # in the order in which they were superseded
    past_profiles: tuple[int, ...]
    end: int | None
    trunks: tuple[int, ...] = ()  # entries that say which run made the steps before them, without superseded ones

    @property
    def superseded(self) -> Set[int]:
        """Return the decisions that a re-execution has undone."""
        return self.undone.keys()

    def stands_at(self, decision: int, entry: int) -> bool:
        """Return whether a decision was in force at an entry: taken before it, and not undone before it."""
        return decision < entry and not self.undone.get(decision, entry) < entry


def outline_of(ledger: LedgerDirectory, *, begins: int, size: int | None = None) -> Outline:
    """Outline a ledger, or its first `size` entries, in one pass over their bytes, without decoding them.

    A re-execution takes back its step and everything recorded after it. The state that it begins with stays, unless it
    is recorded again.
    """
    steps, end = array("q", [-1]) * begins, None
    states: list[tuple[int, int]] = []
    tables: list[tuple[int, int, bytes]] = []
    profiles: list[tuple[int, int]] = []
    decisions: list[tuple[int, int]] = []
    undone: dict[int, int] = {}
    past: list[Past] = []
    past_profiles: list[int] = []
    trunks: list[tuple[int, int]] = []
    before = 0  # number of states that are older than the last re-execution
    for index, leaf in enumerate(ledger.entries(0, size)):
        kind, at = _KIND.search(leaf), _after(leaf, _STEP, _NUMBER)
        if kind is None or at is None:
            continue
        step = int(at[1])
        if kind[1] == b"step":
            if step != len(steps):
                raise LedgerError(f"entry {index}: step {step}, and {len(steps)} were done")
            steps.append(index)
            # Every step names its table; only changes are listed.
            table = _after(leaf, _TABLE, _DIGEST)
            if table and (not tables or table[1] != tables[-1][2]):
                tables.append((step, index, table[1]))
        elif kind[1] == b"state":
            # The first state after a re-execution may repeat the one that it began with: the new one counts.
            if states and len(states) == before and states[-1][0] == step:
                past += _superseded(steps, states, begins=begins, since=len(states) - 1)
                states.pop()
            states.append((step, index))
            before = 0
        elif kind[1] == b"trunk":
            trunks.append((step, index))
        elif kind[1] == b"profile":
            profiles.append((step, index))
        elif kind[1] == b"decision":
            if b'"action":"re-execution"' in leaf:
                # Segments that a state closed keep their numbers; steps after the last state lost theirs in the crash.
                kept = sum(at <= step for at, _ in states)
                past += _superseded(steps, states, begins=begins, since=kept)
                last = max(step, states[-1][0] if states else begins)
                if last < len(steps):
                    lost = tuple(steps[last:])
                    past.append(Past(first=last, entries=lost, state=None, before=None))
                del steps[step:]
                del states[kept:]
                before = len(states)
                tables = [table for table in tables if table[0] < step]
                past_profiles += [entry for at, entry in profiles if at >= step]
                profiles = [profile for profile in profiles if profile[0] < step]
                trunks = [trunk for trunk in trunks if trunk[0] < step]
                undone |= {entry: index for at, entry in decisions if at >= step and entry not in undone}
                # Step -1: no later re-execution can undo the fact of this one.
                decisions.append((-1, index))
            else:
                decisions.append((step, index))
        elif kind[1] == b"end":
            end = index
    return Outline(
        steps=steps,
        states=tuple(states),
        tables=tuple((step, index) for step, index, _ in tables),
        profiles=tuple(index for _, index in profiles),
        decisions=tuple(index for _, index in decisions),
        undone=undone,
        past=tuple(past),
        past_profiles=tuple(past_profiles),
        end=end,
        trunks=tuple(index for _, index in trunks),
    )


def _superseded(steps: Sequence[int], states: Sequence[tuple[int, int]], *, begins: int, since: int) -> Iterator[Past]:
    """Yield the segments that are closed by the state at the place `since` and later ones."""
    for place in range(since, len(states)):
        stop, index = states[place]
        first, before = states[place - 1] if place else (begins, None)
        yield Past(first=first, entries=tuple(steps[first:stop]), state=index, before=before)


def _after(leaf: bytes, key: bytes, value: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """Match the value after the last occurrence of a key. Keys are sorted, so this one is near the end of an entry."""
    at = leaf.rfind(key)
    return None if at < 0 else value.match(leaf, at + len(key))


# --- blobs: opened where they are sealed and the reader has the key ---

_OF_A_CLASS = ("numbers", "sketches", "evidence")
_JOINT = "joint"

Key = Callable[[str, str, int], bytes | None]  # `Keys.of`


class Missing(StrEnum):
    """Why there is no content."""

    NOT_HERE = "not here"  # never was, or was erased or left behind
    SEALED = "sealed: needs a grant"


def class_of(name: str) -> str | None:
    """Return the class whose numbers a blob of this name holds, * for several; None for a blob without numbers of
    classes.

    >>> class_of("numbers/open/mit"), class_of("joint"), class_of("slots")
    ('open/mit', '*', None)
    """
    what, _, path = name.partition("/")
    return path if path and what in _OF_A_CLASS else JOINT if name == _JOINT else None


def claims_seal(ledger: Path, sha256: str) -> bool:
    """Return whether a blob exists and begins like a sealed one. Raises `LedgerError` for one that cannot be read."""
    try:
        with (ledger / blob_path(sha256)).open("rb") as file:
            return is_sealed(file.read(len(MAGIC)))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LedgerError(f"cannot read blob {sha256}: {error.strerror or error}") from error


def read_content(
    ledger: Path, name: str, blob: Blob, *, key: Key, kind: str, first: int, max_bytes: int
) -> bytes | Missing:
    """Read the content of a blob, check its digest, and open it where it is sealed.

    Args:
        ledger: directory of the ledger.
        name, blob: as the entry names it.
        key: returns the reading key of a class, given the class path, `kind` and `first`.
        kind, first: of the reading key: kind of entry, and first step.
        max_bytes: largest size that the content can have.

    Raises `LedgerError` for a blob that is damaged, larger than it can be, or sealed with another key.
    """
    if not (ledger / blob_path(blob.sha256)).exists():
        return Missing.NOT_HERE
    # Bounded before reading, and again after opening: the seal's overhead must not admit larger content.
    if blob.size > max_bytes + OVERHEAD:
        raise LedgerError(f"blob {name} of {blob.size} bytes, at most {max_bytes}")
    content, path = read_blob(ledger, blob.sha256), class_of(name)
    if path is not None and is_sealed(content):
        opening = key(path, kind, first)
        if opening is None:
            return Missing.SEALED
        try:
            content = open_sealed(opening, content, kind=kind, name=name, first=first)
        except ProvenanceError as error:
            raise LedgerError(f"blob {error}") from error
    if len(content) > max_bytes:
        raise LedgerError(f"blob {name} of {len(content)} bytes, at most {max_bytes}")
    return content


# --- the ledger ---

Kind = TypeVar("Kind", Genesis, Step, Profile, State, Decision, Trunk, End)


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Generic[Kind]):
    """An entry with its index in the ledger."""

    index: int
    entry: Kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """The steps [first, stop) and the state that closes them, whose blobs hold their numbers."""

    first: int
    stop: int
    state: Placed[State]
    past: Past | None = None  # None: none of it was superseded

    @property
    def steps(self) -> range:
        return range(self.first, self.stop)


class RunLedger:
    """The ledger in a run directory, as its checkpoint was when it was opened."""

    def __init__(self, run: Path, *, keys: Keys | None = None, size: int | None = None) -> None:
        """Open the ledger, or its first `size` entries. `keys` open what is sealed; by default they follow from the
        secrets in the directory.

        Raises `RunError` for a directory without a governed run, `LedgerError` for a ledger that is not a run's.
        """
        self.run, self._keys = run, keys
        if not (run / rundir.LEDGER).is_dir():
            plan = read_plan(run)
            more = "" if plan is None or (words := given_up(plan)) is None else f"; {words}"
            raise RunError(f"{run}: no governed run: there is no directory {rundir.LEDGER!r} in it{more}")
        self.ledger = LedgerDirectory(run / rundir.LEDGER)
        self.genesis = next(iter(self.read([0], Genesis))).entry
        self.outline = outline_of(self.ledger, begins=self.genesis.begins, size=size)
        self._firsts = {past.state: past.first for past in self.outline.past}

    @property
    def keys(self) -> Keys:
        """Return the reader's keys. Raises `LedgerError` or `ProvenanceError` for secrets that cannot be used."""
        # Derived on first use: most readers need no key, and unusable secrets must not keep them out.
        if self._keys is None:
            self._keys = own_keys(self.run, self.genesis)
        return self._keys

    def reading_with(self, keys: Keys) -> Self:
        """Return this ledger with other keys, and only these."""
        made = copy(self)
        made._keys = keys
        return made

    @property
    def begins(self) -> int:
        """Return the number of steps before this ledger: a run that a deletion made continues another run's state."""
        return self.genesis.begins

    @property
    def steps(self) -> int:
        """Return the number of steps done, those before this ledger included."""
        return len(self.outline.steps)

    @property
    def trunks(self) -> tuple[Trunk, ...]:
        """Return the entries about the runs that made its first steps, which this ledger took over."""
        return tuple(placed.entry for placed in self.read(self.outline.trunks, Trunk))

    @property
    def continues(self) -> tuple[str, ...]:
        """Return in words what the run continues: other runs' models, states and first steps."""
        return tuple(one.words for one in (*self.genesis.parents, *self.trunks))

    def layer(self, name: str) -> int:
        """Return the number of a layer. Raises `LedgerError` with the nearest name."""
        return _find("layer", name, self.genesis.layers)

    def class_(self, path: str) -> int:
        """Return the number of a class. Raises `LedgerError` with the nearest name."""
        return _find("class", path, self.genesis.classes)

    def range_of(self, first: int | None, stop: int | None) -> range:
        """Return the steps [first, stop), by default all of them. Raises `LedgerError` for steps that are not on
        record."""
        if 0 < self.begins == self.steps:
            raise LedgerError(f"{self.run}: no step is on record: it begins after {self.begins} of another run's steps")
        steps = range(self.begins if first is None else first, self.steps if stop is None else stop)
        if not self.begins <= steps.start < steps.stop <= self.steps:
            raise LedgerError(f"no steps {steps.start}:{steps.stop}: on record are {self.begins}:{self.steps}")
        return steps

    def read(self, indices: Iterable[int], kind: type[Kind]) -> Iterator[Placed[Kind]]:
        """Yield the entries with these indices. Raises `LedgerError` for one that is damaged or of another kind."""
        for index, leaf in self._leaves(indices):
            try:
                entry = decode(leaf)
            except LedgerError as error:
                raise LedgerError(f"entry {index}: {error}") from error
            if not isinstance(entry, kind):
                here = f"{entry.head.kind} v{entry.head.version}" if isinstance(entry, Unknown) else entry.KIND
                raise LedgerError(f"entry {index}: found {here}, expected {kind.KIND} v{kind.VERSION}")
            yield Placed(index=index, entry=entry)

    def read_steps(self, steps: range) -> Iterator[Placed[Step]]:
        """Read the latest execution of these steps, in order."""
        return self._steps_at(steps, self.outline.steps[steps.start : steps.stop])

    def steps_of(self, segment: Segment) -> Iterator[Placed[Step]]:
        """Return the steps of a segment, as they were when its state was recorded."""
        past = segment.past
        return self.read_steps(segment.steps) if past is None else self._steps_at(segment.steps, past.entries)

    def spans(self, steps: range | None = None) -> list[range]:
        """Return the steps of each segment that has one of these steps, in order."""
        return [span for span, _ in self._spans(steps)]

    def segments(self, steps: range | None = None) -> Iterator[Segment]:
        """Yield the segments that have one of these steps, in order. Steps after the last state have none."""
        for span, index in self._spans(steps):
            (state,) = self.read([index], State)
            yield Segment(first=span.start, stop=span.stop, state=state)

    def superseded(self) -> Iterator[Segment]:
        """Yield the superseded segments that a state had closed, in the order in which they were superseded."""
        for past in self.outline.past:
            if past.state is not None:
                (state,) = self.read([past.state], State)
                yield Segment(first=past.first, stop=past.first + len(past.entries), state=state, past=past)

    def with_numbers(self) -> Iterator[Placed[Any]]:
        """Yield the entries whose blobs hold numbers of classes, superseded ones included."""
        outline = self.outline
        superseded = (past.state for past in outline.past if past.state is not None)
        yield from self.read(sorted({*superseded, *(index for _, index in outline.states)}), State)
        yield from self.read(sorted({*outline.profiles, *outline.past_profiles}), Profile)
        yield from self.read(sorted(outline.decisions), Decision)

    def blob(self, placed: Placed[Kind], name: str, *, max_bytes: int) -> bytes | None:
        """Read a blob that the entry names, check its digest, and open it if it is sealed. None: the entry names none,
        it is missing (which is how content is erased), or the reader has no key. Raises `LedgerError` for one that is
        damaged or larger than it can be."""
        content = self.find(placed, name, max_bytes=max_bytes)
        return None if isinstance(content, Missing) else content

    def find(self, placed: Placed[Kind], name: str, *, max_bytes: int) -> bytes | Missing:
        """Read a blob as `blob` does, or return why there is no content."""
        blob = placed.entry.blobs.get(name)
        if blob is None:
            return Missing.NOT_HERE
        kind, first = self.stretch(placed)
        try:
            return read_content(
                self.ledger.path, name, blob, key=self._key, kind=kind, first=first, max_bytes=max_bytes
            )
        except LedgerError as error:
            raise LedgerError(f"entry {placed.index}: {error}") from error

    def is_sealed(self, placed: Placed[Kind], name: str) -> bool:
        """Return whether the entry names such a blob, and it exists and is sealed, whatever keys the reader has."""
        blob = placed.entry.blobs.get(name)
        return blob is not None and claims_seal(self.ledger.path, blob.sha256)

    def stretch(self, placed: Placed[Kind]) -> tuple[str, int]:
        """Return kind and first step of the reading keys of an entry's blobs. A state's blobs have the numbers of all
        steps since the state before it, so their keys begin there."""
        if isinstance(placed.entry, Genesis):
            return Genesis.KIND, 0
        if not isinstance(placed.entry, State):
            return placed.entry.KIND, placed.entry.step
        if placed.index in self._firsts:
            return Step.KIND, self._firsts[placed.index]
        before = bisect_left(self.outline.states, (placed.entry.step,))
        return Step.KIND, self.outline.states[before - 1][0] if before else self.begins

    def _key(self, path: str, kind: str, first: int) -> bytes | None:
        return self.keys.of(path, kind, first)

    def _steps_at(self, steps: range, indices: Sequence[int]) -> Iterator[Placed[Step]]:
        """Yield these steps from their entries."""
        for step, placed in zip(steps, self.read(indices, Step), strict=True):
            if placed.entry.step != step:
                raise LedgerError(f"entry {placed.index}: found step {placed.entry.step}, expected {step}")
            self._check_shape(placed)
            yield placed

    def _spans(self, steps: range | None) -> Iterator[tuple[range, int]]:
        """Yield the spans of segments, each with the entry of the state that closes it."""
        wanted, first = range(self.steps) if steps is None else steps, self.begins
        for stop, index in self.outline.states:
            if first < stop and first < wanted.stop and wanted.start < stop:
                yield range(first, stop), index
            first = stop

    def _leaves(self, indices: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield entries by index; consecutive ones are read together, because entries are stored in bundles."""
        together: list[int] = []
        for index in indices:
            if together and index != together[-1] + 1:
                yield from zip(together, self.ledger.entries(together[0], together[-1] + 1), strict=True)
                together = []
            together.append(index)
        if together:
            yield from zip(together, self.ledger.entries(together[0], together[-1] + 1), strict=True)

    def _check_shape(self, placed: Placed[Step]) -> None:
        classes, layers, step = len(self.genesis.classes), len(self.genesis.layers), placed.entry
        if len(step.examples) != classes or len(step.numbers) != classes or len(step.updated) != layers:
            raise LedgerError(
                f"entry {placed.index}: {len(step.examples)} classes and {len(step.updated)} layers; the genesis has "
                f"{classes} and {layers}"
            )


def _find(what: str, name: str, known: tuple[str, ...]) -> int:
    if name not in known:
        raise LedgerError(unknown(what, name, known))
    return known.index(name)

"""The ledger of a run, read as what it says about training: steps, segments, decisions, and the blobs that they name.

Where history was executed again, the latest execution of a step is what counts; what came before stays in the ledger
and is marked as superseded. Reading holds one bundle of entries and the blobs of one segment in memory, and a number
for each step. Nothing is verified here beyond digests of blobs: `verify` of the ledger and `conform` do that.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from explorer import rundir
from explorer.entries.kinds import Unknown, decode
from explorer.entries.run import Decision, End, Genesis, Profile, State, Step
from explorer.errors import LedgerError, RunError, unknown
from explorer.ledger.storage import LedgerDirectory
from explorer.runlog.blobs import Missing, claims_seal, read_content
from explorer.runlog.keys import Keys, own_keys
from explorer.runlog.outline import Past, outline_of

Kind = TypeVar("Kind", Genesis, Step, Profile, State, Decision, End)


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(Generic[Kind]):
    """An entry and its number in the ledger."""

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

    def __init__(self, run: Path, *, keys: Keys | None = None) -> None:
        """`keys` open what is sealed; unless some are given, those that follow from the secrets in the directory.

        Raises `RunError` where there is no governed run, `LedgerError` for a ledger that is not a run's.
        """
        self.run, self._keys = run, keys
        if not (run / rundir.LEDGER).is_dir():
            raise RunError(f"{run}: no governed run: there is no directory {rundir.LEDGER!r} in it")
        self.ledger = LedgerDirectory(run / rundir.LEDGER)
        self.genesis = next(iter(self.read([0], Genesis))).entry
        self.outline = outline_of(self.ledger, begins=self.genesis.begins)
        self._firsts = {each.state: each.first for each in self.outline.past}

    @property
    def keys(self) -> Keys:
        """What opens numbers here. Raises `LedgerError` or `ProvenanceError` for secrets that cannot be used."""
        if self._keys is None:
            self._keys = own_keys(self.run, self.genesis)
        return self._keys

    def reading_with(self, keys: Keys) -> Self:
        """The same ledger, opened with these keys and no others."""
        made = copy(self)
        made._keys = keys
        return made

    @property
    def begins(self) -> int:
        """How many steps were done before the first one here: a deletion goes on from another run's state."""
        return self.genesis.begins

    @property
    def steps(self) -> int:
        """How many steps are done, those included."""
        return len(self.outline.steps)

    def layer(self, name: str) -> int:
        """The number of a layer. Raises `LedgerError` with the nearest name."""
        return _find("layer", name, self.genesis.layers)

    def class_(self, path: str) -> int:
        """The number of a class. Raises `LedgerError` with the nearest name."""
        return _find("class", path, self.genesis.classes)

    def range_of(self, first: int | None, stop: int | None) -> range:
        """The steps [first, stop), all of them where nothing is said. Raises `LedgerError` for steps not done."""
        if 0 < self.begins == self.steps:
            raise LedgerError(f"{self.run}: no step is on record in it: it begins after {self.begins} of another run's")
        found = range(self.begins if first is None else first, self.steps if stop is None else stop)
        if not self.begins <= found.start < found.stop <= self.steps:
            raise LedgerError(f"no steps {found.start}:{found.stop}: on record are {self.begins}:{self.steps}")
        return found

    def read(self, indices: Iterable[int], kind: type[Kind]) -> Iterator[Placed[Kind]]:
        """The entries with these numbers. Raises `LedgerError` for one that is damaged or of another kind."""
        for index, leaf in self._leaves(indices):
            try:
                entry = decode(leaf)
            except LedgerError as error:
                raise LedgerError(f"entry {index}: {error}") from error
            if not isinstance(entry, kind):
                found = f"{entry.head.kind} v{entry.head.version}" if isinstance(entry, Unknown) else entry.KIND
                raise LedgerError(f"entry {index}: found {found}, expected {kind.KIND} v{kind.VERSION}")
            yield Placed(index=index, entry=entry)

    def read_steps(self, steps: range) -> Iterator[Placed[Step]]:
        """The latest execution of these steps, in order."""
        return self._steps_at(steps, self.outline.steps[steps.start : steps.stop])

    def steps_of(self, segment: Segment) -> Iterator[Placed[Step]]:
        """The steps of a segment, as they were when its state was recorded."""
        past = segment.past
        return self.read_steps(segment.steps) if past is None else self._steps_at(segment.steps, past.entries)

    def spans(self, steps: range | None = None) -> list[range]:
        """The steps of each segment that has one of these steps, in order."""
        return [span for span, _ in self._spans(steps)]

    def segments(self, steps: range | None = None) -> Iterator[Segment]:
        """The segments that have one of these steps, in order. Steps after the last state have none."""
        for span, index in self._spans(steps):
            (state,) = self.read([index], State)
            yield Segment(first=span.start, stop=span.stop, state=state)

    def superseded(self) -> Iterator[Segment]:
        """The segments that were executed again, in the order in which they were superseded; those that a state closed
        before."""
        for past in self.outline.past:
            if past.state is not None:
                (state,) = self.read([past.state], State)
                yield Segment(first=past.first, stop=past.first + len(past.entries), state=state, past=past)

    def with_numbers(self) -> Iterator[Placed[Any]]:
        """The entries whose blobs hold numbers of classes, those of steps that were executed again among them."""
        outline = self.outline
        past = (each.state for each in outline.past if each.state is not None)
        yield from self.read(sorted({*past, *(index for _, index in outline.states)}), State)
        yield from self.read(sorted({*outline.profiles, *outline.past_profiles}), Profile)
        yield from self.read(sorted(outline.decisions), Decision)

    def blob(self, placed: Placed[Kind], name: str, *, max_bytes: int) -> bytes | None:
        """A blob that the entry names, its digest checked, opened if it was sealed; None where it names none, where it
        is not here, which is how content is erased, and where it stays sealed. Raises `LedgerError` for one that is
        damaged or larger than it can be."""
        found = self.find(placed, name, max_bytes=max_bytes)
        return None if isinstance(found, Missing) else found

    def find(self, placed: Placed[Kind], name: str, *, max_bytes: int) -> bytes | Missing:
        """The same, and why where there is none."""
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
        """Whether the entry names such a blob, and it is here and sealed; for everybody, whatever their keys."""
        blob = placed.entry.blobs.get(name)
        return blob is not None and claims_seal(self.ledger.path, blob.sha256)

    def stretch(self, placed: Placed[Kind]) -> tuple[str, int]:
        """Kind and first step of the reading keys of an entry's blobs: a state has the numbers of the steps since the
        state before it."""
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
        """These steps from their entries."""
        for step, placed in zip(steps, self.read(indices, Step), strict=True):
            if placed.entry.step != step:
                raise LedgerError(f"entry {placed.index}: found step {placed.entry.step}, expected {step}")
            self._check_shape(placed)
            yield placed

    def _spans(self, steps: range | None) -> Iterator[tuple[range, int]]:
        """Spans, and the entries of the states that close them."""
        wanted, first = range(self.steps) if steps is None else steps, self.begins
        for stop, index in self.outline.states:
            if first < stop and first < wanted.stop and wanted.start < stop:
                yield range(first, stop), index
            first = stop

    def _leaves(self, indices: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Entries by number; those that follow one another are read together."""
        run: list[int] = []
        for index in indices:
            if run and index != run[-1] + 1:
                yield from zip(run, self.ledger.entries(run[0], run[-1] + 1), strict=True)
                run = []
            run.append(index)
        if run:
            yield from zip(run, self.ledger.entries(run[0], run[-1] + 1), strict=True)

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

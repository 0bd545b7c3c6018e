"""Counts of each party's data in a run, from its ledger: the numbers of a statement of use.

An example counts each time that it was in a batch and trained: its class moved a layer in that step, and no decision
left the example out. Its row of the tag table tells the party that it belongs to: its class, the authority that vouches
for it, or its source. The rows of each step are exact, and compared with the root in the step's entry.

Shares of the summed gradient are recorded by class. Where a class has examples of several parties in a step, its share
is divided by their numbers of examples: an estimate, and its steps are counted as such.

Sealed numbers are not used. In a run with a confidential class the numbers over several classes are sealed, and with
them every share; numbers of examples stay readable (`explorer.provenance.policy`). The gaps of a run list everything
that is unknown; no sum leaves something out without a gap.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.history import outcome
from explorer.audit.trace import absent_rows, chosen_places, moved_in
from explorer.audit.typed import class_of_rows, leaves_of
from explorer.audit.withheld import Withheld, read_withheld
from explorer.entries.kinds import Step
from explorer.entries.numbers import share_terms
from explorer.entries.slots import slots_root
from explorer.errors import LedgerError
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.provenance.tags_file import TagFile
from explorer.provenance.trust import Trust
from explorer.provenance.usage import By, Gap, Superseded, Untold
from explorer.runlog.admission_tables import InForce, tables_in_force
from explorer.runlog.documents import TABLE_FILE, read_basis, read_verified_tags
from explorer.runlog.influence import recorded_plan
from explorer.runlog.run_keys import NoKeys
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers, read_numbers, read_rows

CONTEXT = "context"  # parameter of a dataset of text: the number of tokens in an example
SIMULATED = "simulated"  # branch of classes that were cut for demonstration
STEP = b'"kind":"step"'  # in canonical JSON this can only be an entry's own key


@dataclass(kw_only=True, slots=True)
class PartyCount:
    """Running counts of one party in one run."""

    first: int | None = None  # entries
    last: int | None = None
    steps: int = 0
    examples: int = 0
    denied: int = 0
    unclear: int = 0
    layers: set[int] = field(default_factory=set)
    share: float = 0.0  # numerator
    apportioned: int = 0
    superseded_steps: int = 0
    superseded_examples: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """Counts of a run."""

    parties: dict[str, PartyCount]  # by name
    outcome: Literal["finished", "stopped", "unfinished"]
    steps: int  # of this run, without those of a run that it continues
    counted: int
    shared: int
    scale: float  # denominator of every share
    superseded: int
    untold_superseded: frozenset[str]  # parties whose use in superseded steps is unknown
    slots: int
    quarantined: int
    absent: int
    unplaced: int
    tokens: int | None
    simulated: bool
    gaps: tuple[Gap, ...]

    def share_of(self, party: str) -> float | None:
        """Return the party's share of the gradient, over the steps with known shares; None: no such step, or no
        gradient."""
        return self.parties[party].share / self.scale if self.shared and self.scale > 0 else None

    def superseded_of(self, party: str) -> Superseded | None:
        """Return the party's use in superseded steps; None: unknown."""
        count = self.parties[party]
        if party in self.untold_superseded:
            return None
        return Superseded(steps=count.superseded_steps, examples=count.superseded_examples)


def count_usage(
    run: RunLedger, *, by: By, trust: Trust | None, now: int, entries: range | None = None, covered: int | None = None
) -> Counted:
    """Count the use of each party's data in a run.

    Args:
        run: the run.
        by: kind of party: class, authority or source.
        trust: trust file of the caller; without one the run's own copy is used.
        now: time for which signatures are judged, in seconds since 1970.
        entries: ledger entries of the period; None: all.
        covered: number of entries that are cosigned, where there is a period.

    Raises `LedgerError` for a damaged ledger and for a run without provenance, and `ProvenanceError` for documents that
    are not believed.
    """
    # Without keys: a statement for strangers must not rest on numbers that they could not check.
    withheld = read_withheld(run.ledger, trust=trust, now=now)
    return _Counting(run.reading_with(NoKeys()), by, trust, withheld, entries, covered).done()


class _Counting:
    """A count in one pass over a run, a segment at a time."""

    def __init__(
        self,
        run: RunLedger,
        by: By,
        trust: Trust | None,
        withheld: Withheld,
        entries: range | None,
        covered: int | None,
    ) -> None:
        if run.genesis.taxonomy is None:
            raise LedgerError(f"{run.run}: the run has no taxonomy, so its examples belong to no party")
        self.run, self.withheld = run, withheld
        tags = read_verified_tags(run.run, run.genesis, read_basis(run.run, run.genesis, trust=trust))
        self.kinds, self.leaves = class_of_rows(run, tags), leaves_of(run, tags)
        self.absent = absent_rows(run, tags)
        self.names, self.party = _parties(run, by, tags, self.kinds)
        self.parties = {name: PartyCount() for name in self.names}
        self.gaps: Counter[tuple[str, Untold]] = Counter()
        self.totals: Counter[str] = Counter()
        self.scale = 0.0
        # Steps count whose entries are in the period. Those that no cosignature covers have no proven time: a gap.
        self.inside = range(run.ledger.checkpoint().size) if entries is None else entries
        self.in_force = tables_in_force(run)
        steps = range(run.begins, run.steps)
        self.counted = [step for step in steps if run.outline.steps[step] in self.inside]
        if covered is not None and (late := sum(run.outline.steps[step] >= covered for step in steps)):
            self.gaps["period", Untold.NOT_COSIGNED] = late
        every = list(range(len(run.genesis.layers)))
        self.chosen, self.missing = chosen_places(run, steps, every) if len(steps) else ({}, {})

    def done(self) -> Counted:
        """Count all steps: those closed by a state, those after the last state, and superseded ones."""
        # Steps that no state closes are at the end; superseded ones are in no segment of the latest execution.
        run, wanted = self.run, frozenset(self.counted)
        closed = run.begins
        for segment in run.segments():
            if not wanted.isdisjoint(segment.steps):
                self._segment(segment, wanted)
            closed = segment.stop
        self._open([step for step in self.counted if step >= closed])
        untold = self._superseded()
        return Counted(
            parties=self.parties,
            outcome=outcome(run),
            steps=run.steps - run.begins,
            counted=len(self.counted),
            shared=self.totals["shared"],
            scale=self.scale,
            superseded=self.totals["superseded"],
            untold_superseded=untold,
            slots=self.totals["slots"],
            quarantined=self.totals["quarantined"],
            absent=self.totals["absent"],
            unplaced=self.totals["unplaced"],
            tokens=_tokens(run),
            simulated=any(path.partition("/")[0] == SIMULATED for path in run.genesis.classes),
            gaps=tuple(
                Gap(what=what, steps=steps, why=why)  # pyright: ignore[reportArgumentType]
                for (what, why), steps in sorted(self.gaps.items())
            ),
        )

    def _segment(self, segment: Segment, wanted: frozenset[int]) -> None:
        numbers = read_numbers(self.run, segment)
        rows = read_rows(self.run, segment, numbers.steps)
        shares = self._shares(numbers, wanted)
        trained = _Trained(self.run, segment, numbers, self.in_force)
        for at, placed in enumerate(numbers.steps):
            if placed.entry.step not in wanted:
                continue
            if rows is None:
                self._without_rows(placed, Untold.NOT_HERE)
            else:
                self._step(placed, rows[at], trained, shares.get(placed.entry.step))

    def _step(
        self, placed: Placed[Step], rows: NDArray[np.int64], trained: "_Trained", shares: dict[int, float] | None
    ) -> None:
        step = placed.entry
        if slots_root(rows, self.leaves).hex() != step.slots:
            raise LedgerError(f"entry {placed.index}: the examples of step {step.step} do not lead to its root")

        # Slots that train nothing whatever the policy says: in quarantine, or left out by the plan.
        kinds, absent = self.kinds[rows], self.absent[rows]
        classes = len(self.run.genesis.classes)
        self.totals["slots"] += len(rows)
        self.totals["quarantined"] += int((kinds == classes).sum())
        self.totals["absent"] += int((absent & (kinds < classes)).sum())

        # Each class: its examples trained, were denied, or that is unclear because the choice cannot be read.
        used: dict[str, int] = {}  # examples that trained, by party
        split: set[str] = set()  # parties with a part of a class's share: an estimate
        for index in np.unique(kinds[(kinds < classes) & ~absent]).tolist():
            here = rows[(kinds == index) & ~absent]
            layers, denied = trained.layers(placed, index), here
            if layers and (why := self.missing.get((step.step, index))):
                self.gaps["examples", self._why({f"evidence/{self.run.genesis.classes[index]}": why})] += 1
                for name, count in self._owners(here):
                    self.parties[name].unclear += count
                continue
            if layers:
                places = self.chosen.get((step.step, index), np.arange(len(here)))
                if len(places) and places[-1] >= len(here):
                    raise LedgerError(f"entry {placed.index}: more losses than examples to choose from")
                denied = np.delete(here, places)
                for name, count in self._owners(here[places]):
                    used[name] = used.get(name, 0) + count
                    self.parties[name].layers |= layers
                    if shares is not None and index in shares:
                        self.parties[name].share += shares[index] * count / len(places)
                        split |= {name} if count < len(places) else set()
            for name, count in self._owners(denied):
                self.parties[name].denied += count

        # A party's step counts once, however many classes its examples are of.
        for name, count in used.items():
            mine = self.parties[name]
            mine.first = placed.index if mine.first is None else mine.first
            mine.last = placed.index
            mine.steps += 1
            mine.examples += count
            mine.apportioned += name in split

    def _shares(self, numbers: SegmentNumbers, wanted: frozenset[int]) -> dict[int, dict[int, float]]:
        """Return the numerators of shares over all layers, by step and class, for steps where they are known."""
        mine = [placed for placed in numbers.steps if placed.entry.step in wanted]
        measured = [placed for placed in mine if placed.entry.joint is not None and not placed.entry.estimated]
        if estimated := sum(placed.entry.estimated for placed in mine):
            self.gaps["share", Untold.ESTIMATED] += estimated
        if missing := len(mine) - len(measured) - estimated:
            self.gaps["share", Untold.NOT_MEASURED] += missing
        if not measured:
            return {}
        if numbers.missing:
            self.gaps["share", self._why(numbers.missing)] += len(measured)
            return {}
        numerators: dict[int, dict[int, float]] = {}
        for placed, step in numbers.by_step():
            if placed.entry.step not in wanted or placed.entry.estimated:
                continue
            shares, whole = share_terms(step.gram)
            if not (np.isfinite(shares).all() and np.isfinite(whole).all()):
                self.gaps["share", Untold.NOT_FINITE] += 1
                continue
            self.totals["shared"] += 1
            self.scale += float(whole.sum())
            numerators[placed.entry.step] = dict(zip(step.classes, shares.sum(axis=1).tolist(), strict=True))
        return numerators

    def _without_rows(self, placed: Placed[Step], why: Untold) -> None:
        """Count a step with nothing but its entry, which has the number of examples of each class and not their
        parties."""
        step = placed.entry
        self.totals["slots"] += sum(step.examples) + step.quarantined
        self.totals["quarantined"] += step.quarantined
        self.totals["unplaced"] += sum(step.examples)
        self.gaps["examples", why] += 1

    def _open(self, steps: Sequence[int]) -> None:
        """Count steps after the last state: their numbers and slots are on no record."""
        for placed in self.run.read([self.run.outline.steps[step] for step in steps], Step):
            self._without_rows(placed, Untold.NOT_CLOSED)
            self.gaps["share", Untold.NOT_CLOSED] += 1

    def _superseded(self) -> frozenset[str]:
        """Count the superseded steps; return the parties whose use in them is unknown."""
        # Their slots may be gone. Their entries count examples by class, which tells the party only where all examples
        # of the class are one party's.
        latest = frozenset(self.run.outline.steps)
        leaves = enumerate(self.run.ledger.entries())
        again = [at for at, leaf in leaves if STEP in leaf and at not in latest and at in self.inside]
        untold: set[str] = set()
        owners = [np.unique(self.party[self.kinds == at]) for at in range(len(self.run.genesis.classes))]
        for placed in self.run.read(again, Step):
            self.totals["superseded"] += 1
            used: dict[str, int] = {}
            for index, count in enumerate(placed.entry.examples):
                if not count or placed.entry.numbers[index] is None:
                    continue
                names = [self.names[at] for at in owners[index]]
                if not names:
                    path = self.run.genesis.classes[index]
                    raise LedgerError(f"entry {placed.index}: examples of {path}, of which the tag table has none")
                if len(names) > 1:
                    untold.update(names)
                else:
                    used[names[0]] = used.get(names[0], 0) + count
            for name, count in used.items():
                self.parties[name].superseded_steps += 1
                self.parties[name].superseded_examples += count
        if untold:
            self.gaps["superseded", Untold.SHARED] = len(again)
        return frozenset(untold)

    def _why(self, missing: Mapping[str, Missing]) -> Untold:
        """Return the reason why these blobs cannot be read."""
        # The gravest reason wins: missing without an erasure on record, then erased, then sealed.
        gone = [name for name, why in missing.items() if why is not Missing.SEALED]
        if not all(self.withheld.entries(name) for name in gone):
            return Untold.NOT_HERE
        return Untold.ERASED if gone else Untold.SEALED

    def _owners(self, rows: NDArray[np.int64]) -> list[tuple[str, int]]:
        """Return the parties of these rows, each with its number of rows."""
        parties, counts = np.unique(self.party[rows], return_counts=True)
        return [(self.names[at], count) for at, count in zip(parties.tolist(), counts.tolist(), strict=True)]


class _Trained:
    """The layers that classes trained in the steps of a segment: by their weights where these can be read, else by
    admission. A layer that the step did not update was trained by no class."""

    def __init__(self, run: RunLedger, segment: Segment, numbers: SegmentNumbers, in_force: Sequence[InForce]) -> None:
        self._run, self._segment, self._numbers, self._in_force = run, segment, numbers, in_force
        self._moved: dict[int, set[int]] = {}
        self._weights: dict[int, dict[int, NDArray[np.float32]]] = {}

    def layers(self, placed: Placed[Step], index: int) -> set[int]:
        """Return the layers that one class trained in one step, by index."""
        step = placed.entry.step
        if index not in self._moved:
            every = list(range(len(self._run.genesis.layers)))
            self._moved[index] = moved_in(self._run, self._segment, self._numbers, self._in_force, index, every)
            self._weights[index] = self._numbers.of_class(index)
        if step not in self._moved[index]:
            return set()
        weights = self._weights[index].get(step)
        if weights is not None:
            trained = weights[:, 0] > 0
        else:
            table = next((table.weights for table in self._in_force if table.first <= step < table.stop), None)
            trained = np.ones(len(self._run.genesis.layers), bool) if table is None else table[index] > 0
        updated = np.frombuffer(placed.entry.updated.encode(), np.uint8) == ord("1")
        return set(np.flatnonzero(trained & updated).tolist())


def _parties(
    run: RunLedger, by: By, tags: VerifiedTags, kinds: NDArray[np.int64]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the parties, sorted by name, and the index of each row's party; -1 for rows without a valid tag."""
    classes = run.genesis.classes
    rows = len(tags.tags)
    if by is By.CLASS:
        numbers, names = kinds[:rows], classes
    elif by is By.AUTHORITY:
        numbers, names = tags.tags.authorities.astype(np.int64), tags.table.authorities
    else:
        numbers, names = _sources(run, rows)
    # Every class of the run is a party, also one without examples; authorities and sources only with examples.
    mine = kinds[:rows] < len(classes)
    kept = [*range(len(names))] if by is By.CLASS else np.unique(numbers[mine]).tolist()
    ordered = sorted(kept, key=lambda at: names[at])
    places = np.full(len(names) + 1, -1, np.int64)
    places[ordered] = np.arange(len(ordered))
    parties = np.full(len(kinds), -1, np.int64)
    parties[:rows][mine] = places[numbers[mine]]
    return tuple(names[at] for at in ordered), parties


def _sources(run: RunLedger, rows: int) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the index of each row's source, and the sources."""
    numbers: dict[str, int] = {}
    indices = np.zeros(rows, np.int64)
    with TagFile(run.run / rundir.GOVERNANCE / TABLE_FILE) as file:
        for batch in file.batches():
            here = np.array([numbers.setdefault(name, len(numbers)) for name in batch.sources.values], np.int64)
            indices[batch.first : batch.first + len(batch.sources.index)] = here[batch.sources.index]
    return indices, tuple(numbers)


def _tokens(run: RunLedger) -> int | None:
    """Return the number of tokens of an example, by the recipe that the genesis names; None: the recipe is missing, or
    its data is no text."""
    plan = recorded_plan(run)
    match None if plan is None else plan.identity:
        case {"recipe": {"task": {"dataset": {**dataset}}}} if len(dataset) == 1:
            parameters = next(iter(dataset.values()))
            context = parameters.get(CONTEXT) if isinstance(parameters, dict) else None
            return context if type(context) is int and context > 0 else None
    return None

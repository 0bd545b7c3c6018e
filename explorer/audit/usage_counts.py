"""How much of whose data trained what in a run, counted from its ledger: the numbers of a statement of use.

An example counts each time that it was in a batch and trained: its class moved a layer in that step, and no decision
left the example out. Whose it is, its row of the tag table says: its class, the authority that vouches for it, or its
source. Which rows were in which step is exact, and compared with the root in the step's entry.

A class's share of the summed gradient is recorded by class. Where a class has examples of several parties in a step,
each one gets the part that its examples are of them: an estimate, and its steps are counted as such.

Nothing is said that the ledger keeps sealed. In a run with a confidential class the numbers over several classes are
sealed, and with them every share; how many examples there were stays readable (`explorer.provenance.policy`). What
cannot be told is in the gaps of the run, and never left out of a sum without a word.
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
from explorer.entries.numbers import StepNumbers, share_terms
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

CONTEXT = "context"  # the parameter of a dataset of text: how many tokens an example has
SIMULATED = "simulated"  # the branch of classes that were cut for demonstration
STEP = b'"kind":"step"'  # in canonical JSON this can be nothing but an entry's own key


@dataclass(kw_only=True, slots=True)
class PartyCount:
    """One party's numbers in one run, while they are counted."""

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
    """What a run comes to. Parties are in the order of their names."""

    parties: dict[str, PartyCount]
    outcome: Literal["finished", "stopped", "unfinished"]
    steps: int  # done here, those that this run continues left out
    counted: int
    shared: int
    scale: float  # denominator of every share
    superseded: int
    untold_superseded: frozenset[str]  # parties of which it cannot be told what superseded steps used
    slots: int
    quarantined: int
    absent: int
    unplaced: int
    tokens: int | None
    simulated: bool
    gaps: tuple[Gap, ...]

    def share_of(self, party: str) -> float | None:
        """Of the gradient of the steps that shares are told over; None: of no step, or there was no gradient."""
        return self.parties[party].share / self.scale if self.shared and self.scale > 0 else None

    def superseded_of(self, party: str) -> Superseded | None:
        """None: it cannot be told."""
        found = self.parties[party]
        if party in self.untold_superseded:
            return None
        return Superseded(steps=found.superseded_steps, examples=found.superseded_examples)


def count_usage(
    run: RunLedger, *, by: By, trust: Trust | None, now: int, entries: range | None = None, covered: int | None = None
) -> Counted:
    """Count a run. `entries`: those of the period, all without one; `covered`: how many are cosigned, where a
    period is asked for. Raises `LedgerError` for a damaged ledger and for a run without provenance, and
    `ProvenanceError` for documents that are not believed."""
    withheld = read_withheld(run.ledger, trust=trust, now=now)
    return _Counting(run.reading_with(NoKeys()), by, trust, withheld, entries, covered).done()


class _Counting:
    """One pass over a run, a segment at a time."""

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
        self.inside = range(run.ledger.checkpoint().size) if entries is None else entries
        self.in_force = tables_in_force(run)
        steps = range(run.begins, run.steps)
        self.counted = [step for step in steps if run.outline.steps[step] in self.inside]
        if covered is not None and (late := sum(run.outline.steps[step] >= covered for step in steps)):
            self.gaps["period", Untold.NOT_COSIGNED] = late
        every = list(range(len(run.genesis.layers)))
        self.chosen, self.missing = chosen_places(run, steps, every) if len(steps) else ({}, {})

    def done(self) -> Counted:
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
        kinds, absent = self.kinds[rows], self.absent[rows]
        classes = len(self.run.genesis.classes)
        self.totals["slots"] += len(rows)
        self.totals["quarantined"] += int((kinds == classes).sum())
        self.totals["absent"] += int((absent & (kinds < classes)).sum())
        used: dict[str, int] = {}  # examples that trained, by party
        split: set[str] = set()
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
        for name, count in used.items():
            mine = self.parties[name]
            mine.first = placed.index if mine.first is None else mine.first
            mine.last = placed.index
            mine.steps += 1
            mine.examples += count
            mine.apportioned += name in split

    def _shares(self, numbers: SegmentNumbers, wanted: frozenset[int]) -> dict[int, dict[int, float]]:
        """By step and class, numerators of the share over all layers, of the steps of which they are told."""
        mine = [placed for placed in numbers.steps if placed.entry.step in wanted]
        measured = [placed for placed in mine if placed.entry.joint is not None]
        if missing := len(mine) - len(measured):
            self.gaps["share", Untold.NOT_MEASURED] += missing
        if not measured:
            return {}
        if numbers.missing:
            self.gaps["share", self._why(numbers.missing)] += len(measured)
            return {}
        found: dict[int, dict[int, float]] = {}
        for placed, step in numbers.by_step():
            if placed.entry.step in wanted:
                self._share(placed.entry.step, step, found)
        return found

    def _share(self, step: int, numbers: StepNumbers, found: dict[int, dict[int, float]]) -> None:
        shares, whole = share_terms(numbers.gram)
        if not (np.isfinite(shares).all() and np.isfinite(whole).all()):
            self.gaps["share", Untold.NOT_FINITE] += 1
            return
        self.totals["shared"] += 1
        self.scale += float(whole.sum())
        found[step] = dict(zip(numbers.classes, shares.sum(axis=1).tolist(), strict=True))

    def _without_rows(self, placed: Placed[Step], why: Untold) -> None:
        """A step of which its entry alone is here: how many examples of each class it had, and not whose they were."""
        step = placed.entry
        self.totals["slots"] += sum(step.examples) + step.quarantined
        self.totals["quarantined"] += step.quarantined
        self.totals["unplaced"] += sum(step.examples)
        self.gaps["examples", why] += 1

    def _open(self, steps: Sequence[int]) -> None:
        """Steps behind the last state: their numbers and slots are on no record."""
        for placed in self.run.read([self.run.outline.steps[step] for step in steps], Step):
            self._without_rows(placed, Untold.NOT_CLOSED)
            self.gaps["share", Untold.NOT_CLOSED] += 1

    def _superseded(self) -> frozenset[str]:
        """Count the steps that were executed again. Their slots may be gone, so that a class says whose they were only
        where all of it is one party's. Returns the parties of which it cannot be told."""
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
        """Return why what is in these blobs cannot be told: that some are missing without a reason is said before all
        else."""
        gone = [name for name, why in missing.items() if why is not Missing.SEALED]
        if not all(self.withheld.entries(name) for name in gone):
            return Untold.NOT_HERE
        return Untold.ERASED if gone else Untold.SEALED

    def _owners(self, rows: NDArray[np.int64]) -> list[tuple[str, int]]:
        """Return whose rows these are, and how many of each."""
        found = np.unique(self.party[rows], return_counts=True)
        return [(self.names[at], count) for at, count in zip(*(each.tolist() for each in found), strict=True)]


class _Trained:
    """Which layers the classes trained in the steps of a segment: by their weights where these are here, else by what
    they were admitted to. A layer that the step did not update was trained by no class."""

    def __init__(self, run: RunLedger, segment: Segment, numbers: SegmentNumbers, in_force: Sequence[InForce]) -> None:
        self._run, self._segment, self._numbers, self._in_force = run, segment, numbers, in_force
        self._moved: dict[int, set[int]] = {}
        self._weights: dict[int, dict[int, NDArray[np.float32]]] = {}

    def layers(self, placed: Placed[Step], index: int) -> set[int]:
        """Of one class in one step, by number."""
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
            table = next((each.weights for each in self._in_force if each.first <= step < each.stop), None)
            trained = np.ones(len(self._run.genesis.layers), bool) if table is None else table[index] > 0
        updated = np.frombuffer(placed.entry.updated.encode(), np.uint8) == ord("1")
        return set(np.flatnonzero(trained & updated).tolist())


def _parties(
    run: RunLedger, by: By, tags: VerifiedTags, kinds: NDArray[np.int64]
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Return the parties, by name, and the number of that of each row; rows without a valid tag have no party, -1."""
    classes = run.genesis.classes
    rows = len(tags.tags)
    if by is By.CLASS:
        numbers, names = kinds[:rows], classes
    elif by is By.AUTHORITY:
        numbers, names = tags.tags.authorities.astype(np.int64), tags.table.authorities
    else:
        numbers, names = _sources(run, rows)
    mine = kinds[:rows] < len(classes)
    kept = [*range(len(names))] if by is By.CLASS else np.unique(numbers[mine]).tolist()
    ordered = sorted(kept, key=lambda at: names[at])
    places = np.full(len(names) + 1, -1, np.int64)
    places[ordered] = np.arange(len(ordered))
    found = np.full(len(kinds), -1, np.int64)
    found[:rows][mine] = places[numbers[mine]]
    return tuple(names[at] for at in ordered), found


def _sources(run: RunLedger, rows: int) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of each row's source, and the sources."""
    numbers: dict[str, int] = {}
    found = np.zeros(rows, np.int64)
    with TagFile(run.run / rundir.GOVERNANCE / TABLE_FILE) as file:
        for batch in file.batches():
            here = np.array([numbers.setdefault(name, len(numbers)) for name in batch.sources.values], np.int64)
            found[batch.first : batch.first + len(batch.sources.index)] = here[batch.sources.index]
    return found, tuple(numbers)


def _tokens(run: RunLedger) -> int | None:
    """Return how many tokens an example has, by the recipe that the genesis names; None where that is not here, or no
    text."""
    plan = recorded_plan(run)
    match None if plan is None else plan.identity:
        case {"recipe": {"task": {"dataset": {**dataset}}}} if len(dataset) == 1:
            parameters = next(iter(dataset.values()))
            context = parameters.get(CONTEXT) if isinstance(parameters, dict) else None
            return context if type(context) is int and context > 0 else None
    return None

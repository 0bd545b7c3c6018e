"""Who was there: of which classes each step on record had examples, what they were admitted to, and what moved."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.canonical import digest
from explorer.errors import LedgerError, RunError, unknown
from explorer.provenance.policy import RoutingPolicy
from explorer.records import Plan, contradictions, listed_methods, plan_file, read_plan
from explorer.runlog.counterfactual import ROUTING, left_out
from explorer.runlog.papers import TagRows, read_policy, read_tag_rows
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_rows
from explorer.runlog.tables import tables
from explorer.runlog.target import Target

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]

# In canonical JSON a quotation mark inside text is escaped: these can be nothing but an entry's own keys.
_EXAMPLES = re.compile(rb'"examples":\[([0-9]{1,16}(?:,[0-9]{1,16})*)\]')
_UPDATED = re.compile(rb'"updated":"([01]*)"')


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stretch:
    """Steps in which one admission table was in force, as places among the steps on record."""

    places: slice
    admitted: Flags  # C L


class Presence:
    """The steps of a run in memory: S steps on record, C classes, L layers.

    Building it reads the ledger once. Raises `LedgerError` for one that is damaged, and as reading the run's own copy
    of its policy does.
    """

    def __init__(self, run: RunLedger) -> None:
        self.run = run
        self.policy: RoutingPolicy | None = read_policy(run)
        self.recipe = recorded_plan(run)  # None: no recipe is on record that is the genesis'
        listed = () if self.recipe is None else listed_methods(self.recipe)
        self.methods = frozenset(name for method in listed for name in method)
        self.absent = left_out(self.recipe) if self.recipe is not None and ROUTING in self.methods else Target()
        self.examples, self.updated = _read_steps(run)
        self.examples[:, [run.class_(path) for path in self.absent.classes if path in run.genesis.classes]] = 0

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """The tables, in order. Without a policy every class is admitted to every layer."""
        run = self.run
        if run.genesis.policy is None:
            everything = np.ones((len(run.genesis.classes), len(run.genesis.layers)), bool)
            return (Stretch(places=slice(0, len(self.examples)), admitted=everything),)
        return tuple(
            Stretch(places=slice(each.first - run.begins, each.stop - run.begins), admitted=each.weights > 0)
            for each in tables(run)
        )

    @property
    def strays(self) -> Iterator[tuple[int, str]]:
        """Steps that changed a layer to which nobody in the batch was admitted, each with the layer."""
        for each in self.stretches:
            present = (self.examples[each.places] > 0).astype(np.float32)
            strange = self.updated[each.places] & ~(present @ each.admitted.astype(np.float32) > 0)
            for place, layer in zip(*np.nonzero(strange), strict=True):
                yield self.run.begins + each.places.start + int(place), self.run.genesis.layers[layer]

    @cached_property
    def tags(self) -> TagRows:
        """The run's tag table. Raises `LedgerError` or `ProvenanceError` where it is not the one that was signed."""
        return read_tag_rows(self.run)

    def rows_of(self, target: Target) -> NDArray[np.int64]:
        """The rows of the tag table that are in a target, ascending. Raises `LedgerError` for what the table lacks."""
        tags, known = self.tags, self.run.genesis.classes
        for name in target.authorities:
            if name not in tags.authorities:
                raise LedgerError(unknown("authority", name, tags.authorities))
        beyond = [row for row in target.records if row >= len(tags.classes)]
        if beyond:
            raise LedgerError(f"record {beyond[0]}: the tag table has {len(tags.classes)} rows, counted from 0")
        chosen = [known.index(path) for path in target.classes if path in known]
        parts = [np.flatnonzero(np.isin(tags.classes, chosen)), np.array(target.records, np.int64)]
        return np.unique(np.concatenate([*parts, *(tags.vouched_by(name) for name in target.authorities)]))

    def of_rows(self, rows: NDArray[np.int64]) -> Counts:
        """How many of these rows of the tag table were in the batch of each step, S C by their class.

        Where the slots of a segment are not here any more, every example of their classes may be one of them.
        """
        run, nowhere = self.run, len(self.run.genesis.classes)
        classes = self.tags.classes
        wanted = np.zeros(len(classes), bool)
        wanted[rows] = classes[rows] != nowhere
        wanted[self.rows_of(self.absent)] = False
        found = np.zeros_like(self.examples)
        mine = np.unique(classes[wanted])
        for segment in run.segments():
            steps = tuple(run.read_steps(segment.steps))
            slots = read_rows(run, segment, steps)
            for at, placed in enumerate(steps):
                place = placed.entry.step - run.begins
                if slots is None:
                    found[place, mine] = self.examples[place, mine]
                else:
                    here = slots[at][slots[at] < len(classes)]  # behind the table: without a tag, and never read
                    np.add.at(found[place], classes[here[wanted[here]]], 1)
        return np.minimum(found, self.examples)


def _read_steps(run: RunLedger) -> tuple[Counts, Flags]:
    """How many examples of each class each step had, S C, and which layers it changed, S L.

    Steps are not decoded: a run has many, and all classes of all runs are asked about.
    """
    places = {index: place for place, index in enumerate(run.outline.steps[run.begins :])}
    examples = np.zeros((len(places), len(run.genesis.classes)), np.int64)
    updated = np.zeros((len(places), len(run.genesis.layers)), bool)
    for index, leaf in enumerate(run.ledger.entries()):
        place = places.get(index)
        if place is None:
            continue
        counts, flags = _EXAMPLES.search(leaf), _UPDATED.search(leaf)
        here = counts[1].split(b",") if counts else []
        if len(here) != examples.shape[1] or flags is None or len(flags[1]) != updated.shape[1]:
            raise LedgerError(f"entry {index}: a step of other classes or layers than the genesis lists")
        examples[place] = [int(count) for count in here]
        updated[place] = np.frombuffer(flags[1], np.uint8) == ord("1")
    return examples, updated


def recorded_plan(run: RunLedger) -> Plan | None:
    """What the run is, as its record says; None where that is not what the genesis names, or not there. Raises
    `RunError` for a record that contradicts its own identity."""
    found = read_plan(run.run)
    return None if found is None or digest(found.identity) != run.genesis.recipe else _sound(run, found)


def read_record(run: RunLedger) -> Plan:
    """The record of a run. Raises `RunError` where there is none, where it is of another run than the ledger, and where
    it contradicts its own identity."""
    found = read_plan(run.run)
    if found is None:
        raise RunError(
            f"{run.run}: there is neither {rundir.RUN}, which a recipe's run has, nor {rundir.LOOP}, which a run of"
            " explorer.govern has: what the run was is on no record, so that nothing can be deleted from it; put the"
            " file back, or train again"
        )
    if digest(found.identity) != run.genesis.recipe:
        raise RunError(
            f"{run.run / plan_file(found)}: names another recipe than the first entry of the ledger beside it"
        )
    return _sound(run, found)


def _sound(run: RunLedger, found: Plan) -> Plan:
    if found.run_id != run.genesis.run:
        raise RunError(f"{run.run / plan_file(found)}: of run {found.run_id}, the ledger is of {run.genesis.run}")
    if fault := next(contradictions(found), None):
        raise RunError(f"{run.run / plan_file(found)}: {fault}")
    return found

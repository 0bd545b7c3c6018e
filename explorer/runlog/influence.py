"""Compute a conservative upper bound on what a deletion target influenced in a run, from nothing but the ledger.

An example influences a run in one of two ways:

- It trains: it is in a batch, some layer admits its class, and that layer changes. Admission by the policy counts, not
  the recorded numbers: a class that a freeze keeps out of a layer still moves the factor by which the layer's group of
  gradients is clipped. Buffers follow the layer that they are in.
- It is measured: numbers of its class decide something about other classes.

Every doubt is resolved towards more influence. A replay that starts too early costs time; one that starts too late
keeps what was to be deleted.

Deleting single examples of a class keeps its other examples. The probes of the class change with the deletion, and a
method that decides by probes may have decided otherwise at any time, even where it decided to do nothing and left no
entry. Such a target therefore influences a run with such a method from its first step.

Shapes: S steps on record, C classes, L layers.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.canonical import digest
from explorer.entries.kinds import Decision
from explorer.errors import LedgerError, RunError, unknown
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.regions import region_of
from explorer.provenance.routing_weights import admitted_by_rule
from explorer.provenance.spellings import covers
from explorer.run_files import Plan, contradictions, listed_methods, plan_file, read_plan
from explorer.runlog.admission_tables import tables_in_force
from explorer.runlog.documents import TagRows, read_policy, read_tag_rows
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.runlog.segments import read_rows
from explorer.runlog.target import ROUTING, Target, left_out

# --- classes, admissions and changes of each step ---

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]

# In canonical JSON a quotation mark inside text is escaped: these can be nothing but an entry's own keys.
_EXAMPLES = re.compile(rb'"examples":\[([0-9]{1,16}(?:,[0-9]{1,16})*)\]')
_UPDATED = re.compile(rb'"updated":"([01]*)"')


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stretch:
    """Consecutive steps in which one admission table was in force."""

    places: slice  # among the steps on record
    admitted: Flags  # C L


class Presence:
    """The steps of a run in memory: S steps on record, C classes, L layers.

    Building it reads the ledger once. Raises `LedgerError` for a damaged ledger, and the errors of `read_policy`.
    """

    def __init__(self, run: RunLedger) -> None:
        self.run = run
        self.policy: RoutingPolicy | None = read_policy(run)
        self.recipe = recorded_plan(run)  # None: the plan that the genesis names is missing
        listed = () if self.recipe is None else listed_methods(self.recipe)
        self.methods = frozenset(name for method in listed for name in method)
        self.absent = left_out(self.recipe) if self.recipe is not None and ROUTING in self.methods else Target()
        # Classes that the plan leaves out keep their slots, which are counted in entries and trained nothing.
        self.examples, self.updated = _read_steps(run)
        self.examples[:, [run.class_(path) for path in self.absent.classes if path in run.genesis.classes]] = 0

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """Return the tables, in order. Without a policy every class is admitted to every layer."""
        run = self.run
        if run.genesis.policy is None:
            everything = np.ones((len(run.genesis.classes), len(run.genesis.layers)), bool)
            return (Stretch(places=slice(0, len(self.examples)), admitted=everything),)
        return tuple(
            Stretch(places=slice(table.first - run.begins, table.stop - run.begins), admitted=table.weights > 0)
            for table in tables_in_force(run)
        )

    @property
    def strays(self) -> Iterator[tuple[int, str]]:
        """Yield each step that changed a layer to which no class in its batch was admitted, with the layer."""
        for stretch in self.stretches:
            present = (self.examples[stretch.places] > 0).astype(np.float32)
            strange = self.updated[stretch.places] & ~(present @ stretch.admitted.astype(np.float32) > 0)
            for place, layer in zip(*np.nonzero(strange), strict=True):
                yield self.run.begins + stretch.places.start + int(place), self.run.genesis.layers[layer]

    @cached_property
    def tags(self) -> TagRows:
        """Read the run's tag table. Raises `LedgerError` or `ProvenanceError` where it is not the one that was
        signed."""
        return read_tag_rows(self.run)

    def rows_of(self, target: Target) -> NDArray[np.int64]:
        """Return the rows of the tag table that are in a target, ascending. Raises `LedgerError` for names and rows
        that the table lacks."""
        tags, known = self.tags, self.run.genesis.classes
        for name in target.authorities:
            if name not in tags.authorities:
                raise LedgerError(unknown("authority", name, tags.authorities))
        beyond = [row for row in target.records if not 0 <= row < len(tags.classes)]
        if beyond:
            raise LedgerError(f"record {beyond[0]}: the tag table has {len(tags.classes)} rows, counted from 0")
        # A target has members of one kind, the absent rows of a plan of several: the union covers both.
        chosen = [known.index(path) for path in target.classes if path in known]
        parts = [np.flatnonzero(np.isin(tags.classes, chosen)), np.array(target.records, np.int64)]
        return np.unique(np.concatenate([*parts, *(tags.vouched_by(name) for name in target.authorities)]))

    def of_rows(self, rows: NDArray[np.int64]) -> Counts:
        """Count these rows of the tag table in the batch of each step, S C by their class.

        Where the slots of a segment are gone, every example of these classes counts as one of the rows.
        """
        run, nowhere = self.run, len(self.run.genesis.classes)
        classes = self.tags.classes
        wanted = np.zeros(len(classes), bool)
        wanted[rows] = classes[rows] != nowhere
        wanted[self.rows_of(self.absent)] = False
        counts = np.zeros_like(self.examples)
        mine = np.unique(classes[wanted])
        for segment in run.segments():
            steps = tuple(run.read_steps(segment.steps))
            slots = read_rows(run, segment, steps)
            for at, placed in enumerate(steps):
                place = placed.entry.step - run.begins
                if slots is None:
                    counts[place, mine] = self.examples[place, mine]
                else:
                    here = slots[at][slots[at] < len(classes)]  # behind the table: without a tag, and never read
                    np.add.at(counts[place], classes[here[wanted[here]]], 1)
        # Never more than the step counted as trained: slots in quarantine or left out by the plan are empty.
        return np.minimum(counts, self.examples)


def _read_steps(run: RunLedger) -> tuple[Counts, Flags]:
    """Count the examples of each class in each step, S C, and return which layers it changed, S L."""
    # Steps are searched, not decoded: a run has many, and the store asks about all classes of all runs.
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
    """Read the run's plan; None where it is missing or is not the one that the genesis names. Raises `RunError` for a
    record that contradicts its own identity."""
    plan = read_plan(run.run)
    return None if plan is None or digest(plan.identity) != run.genesis.recipe else _sound(run, plan)


def read_record(run: RunLedger) -> Plan:
    """Read the plan of a run. Raises `RunError` for a plan that is missing, is of another run than the ledger, or
    contradicts its own identity."""
    plan = read_plan(run.run)
    if plan is None:
        raise RunError(
            f"{run.run}: there is neither {rundir.RUN} (run of a recipe) nor {rundir.LOOP} (run of explorer.govern):"
            " without a record of its plan nothing can be deleted from the run; put the file back, or train again"
        )
    if digest(plan.identity) != run.genesis.recipe:
        raise RunError(f"{run.run / plan_file(plan)}: names another recipe than the first entry of the run's ledger")
    return _sound(run, plan)


def _sound(run: RunLedger, plan: Plan) -> Plan:
    if plan.run_id != run.genesis.run:
        raise RunError(f"{run.run / plan_file(plan)}: of run {plan.run_id}, the ledger is of {run.genesis.run}")
    if fault := next(contradictions(plan), None):
        raise RunError(f"{run.run / plan_file(plan)}: {fault}")
    return plan


# --- influence of a target ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A decision about other examples that rested on numbers of the target's classes."""

    entry: int
    step: int  # steps done when it was taken
    action: str
    over: tuple[str, ...]  # classes


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """The influence of a target. Layers and classes are in the order of the genesis."""

    target: Target
    whole: tuple[str, ...]  # classes with all examples in the target
    partly: tuple[str, ...]  # classes with some examples in the target
    first: int | None  # the first step that it could have influenced; None: it reached nothing
    trained: int  # number of steps that it trained in
    layers: tuple[str, ...]  # that changed while it was admitted to them
    shared: tuple[str, ...]  # those of `layers` that are in no sealed region
    regions: dict[str, tuple[str, ...]]  # sealed regions of the other layers -> other classes in them
    channels: tuple[Channel, ...]
    probed: bool  # a method may have decided by its examples, as probes, without an entry here
    slots: tuple[int, ...]  # of each step on record: the target's slots that trained
    batch: int  # the largest number of slots of a batch that may train
    unrecorded: int  # steps before this ledger; in them it reached every layer that the policy can admit

    @property
    def structural(self) -> bool:
        """Return whether dropping sealed regions undoes all of the influence, and nothing else depends on it."""
        others = self.shared or self.channels or self.probed or any(self.regions.values())
        return self.first is None or not (others or self.partly)


def reach(run: RunLedger, target: Target) -> Reach:
    """Compute the influence of the target. Raises `LedgerError` for classes, authorities or records that the run does
    not have."""
    return reach_of(Presence(run), target)


def reach_of(presence: Presence, target: Target) -> Reach:
    """Like `reach`, but reuse a `Presence` across targets."""
    run = presence.run
    present, whole, partly = _examples(presence, target)
    mine = [run.class_(path) for path in (*whole, *partly) if path not in presence.absent.classes]

    # Training: a layer counts as moved by the target in a step if the policy admitted a class of the target that was in
    # the batch, and the layer changed. Recorded norms are not consulted: a frozen class has norm 0 and still moves the
    # factor by which the layer's group of gradients is clipped.
    moved = np.zeros_like(presence.updated)
    for stretch in presence.stretches:
        admitted = (present[stretch.places] > 0).astype(np.float32) @ stretch.admitted.astype(np.float32) > 0
        moved[stretch.places] = admitted & presence.updated[stretch.places]
    layers = moved.any(axis=0)
    # Steps before this ledger are in another one, which may be missing: assume every layer that the policy can admit.
    if run.begins:
        layers |= _may_admit(presence, mine)
    training = moved.any(axis=1)
    trained = np.flatnonzero(training) + run.begins

    # Decisions: what the target's numbers decided about others. A ledger that does not state the traits of its methods
    # is read as if one of them probed. A target that has all of a class takes the probes with it, and entries name
    # every decision that they drove; of a part of a class, or of steps that another ledger holds, no entry could tell.
    channels = tuple(_channels(presence, present, whole, partly))
    methods = run.genesis.methods
    deciding = bool(mine) and (methods is None or any(traits.probes for traits in methods.values()))
    probed = deciding and bool(partly or run.begins)
    before = run.begins > 0 and bool(layers.any())

    # The first influence is the earliest of all of these, and step 0 where it cannot be located: a replay that starts
    # too early costs time, one that starts too late would keep what was to be deleted.
    firsts = [*trained[:1].tolist(), *(_influenced(run, channel) for channel in channels)]
    firsts += [0] if probed or before else []
    names = tuple(run.genesis.layers[at] for at in np.flatnonzero(layers))
    shared, regions = _places(run, presence.policy, names, whole)
    return Reach(
        target=target,
        whole=whole,
        partly=partly,
        first=min(firsts, default=None),
        trained=len(trained),
        layers=names,
        shared=shared,
        regions=regions,
        channels=channels,
        probed=probed,
        slots=tuple((present.sum(axis=1) * training).tolist()),
        batch=int(presence.examples.sum(axis=1).max(initial=0)),
        unrecorded=run.begins,
    )


def _examples(presence: Presence, target: Target) -> tuple[Counts, tuple[str, ...], tuple[str, ...]]:
    """Count the target's examples in each batch, S C; return the classes with all examples in the target, and those
    with some."""
    # A target of whole classes needs no tag table, which may be missing next to an old ledger.
    run = presence.run
    if target.classes:
        chosen = np.zeros(len(run.genesis.classes), bool)
        chosen[[run.class_(path) for path in target.classes]] = True
        return presence.examples * chosen, target.classes, ()
    rows, classes = presence.rows_of(target), presence.tags.classes
    # A class counts as whole if no row is left, apart from those that the run leaves out anyway.
    touched = set(classes[rows].tolist())
    left = set(np.delete(classes, np.union1d(rows, presence.rows_of(presence.absent))).tolist())
    names = dict(enumerate(run.genesis.classes))
    whole = tuple(names[at] for at in sorted(touched - left) if at in names)
    partly = tuple(names[at] for at in sorted(touched & left) if at in names)
    return presence.of_rows(rows), whole, partly


def _channels(
    presence: Presence, present: Counts, whole: tuple[str, ...], partly: tuple[str, ...]
) -> Iterable[Channel]:
    """Find the decisions in force that the target's numbers took about other examples. Later decisions count as well
    once the target has switched on a condition: they may depend on it."""
    run, switched = presence.run, False
    in_force = [index for index in run.outline.decisions if index not in run.outline.superseded]
    for placed in run.read(in_force, Decision):
        decision = placed.entry
        driving = {*decision.evidence} & {*whole, *partly}
        # A selection chooses among the examples of one class in one batch: a part of the class that was not in that
        # batch drove nothing.
        if decision.action == "selection":
            driving = {path for path in driving if path in whole or _was_there(presence, present, placed, path)}
        # No subjects means all classes. Those that are deleted whole are no other examples.
        over = tuple(path for path in decision.subjects or run.genesis.classes if path not in whole)
        if over and (driving or (switched and decision.action != "selection")):
            yield Channel(entry=placed.index, step=decision.step, action=decision.action, over=over)
        switched = switched or (bool(driving) and decision.action == "activation")


def _was_there(presence: Presence, present: Counts, placed: Placed[Decision], path: str) -> bool:
    place = placed.entry.step - presence.run.begins
    return place >= len(present) or bool(present[place, presence.run.class_(path)] > 0)


def _influenced(run: RunLedger, channel: Channel) -> int:
    """Return the first step that a decision influences."""
    # It influences the step that follows it. A state recorded before the decision is free of it. Without such a state
    # the checkpoint of the previous step may hold it already, so the influence begins one step earlier.
    clean = any(step == channel.step and index < channel.entry for step, index in run.outline.states)
    return channel.step if clean else max(0, channel.step - 1)


def _may_admit(presence: Presence, classes: list[int]) -> Flags:
    """Return the layers to which the policy can ever admit one of these classes."""
    run, policy = presence.run, presence.policy
    layers = np.zeros(len(run.genesis.layers), bool)
    for path in (run.genesis.classes[at] for at in classes):
        for at, layer in enumerate(run.genesis.layers):
            region = None if policy is None else region_of(policy.sealed, layer)
            if region is not None:
                layers[at] |= covers(region.branch, path)
            else:
                layers[at] |= policy is None or admitted_by_rule(policy, path)
    return layers


def _places(
    run: RunLedger, policy: RoutingPolicy | None, layers: tuple[str, ...], whole: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Split these layers: return those in no sealed region, and the regions of the others, each with the other classes
    that train in it."""
    owners = {name: region_of(policy.sealed, name) if policy else None for name in layers}
    regions = {region.name: region.branch for region in owners.values() if region is not None}
    others = {
        name: tuple(path for path in run.genesis.classes if covers(branch, path) and path not in whole)
        for name, branch in regions.items()
    }
    return tuple(name for name, region in owners.items() if region is None), others

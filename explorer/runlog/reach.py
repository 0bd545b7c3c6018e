"""Reach: what a target touched in a run, from the ledger alone, and never less than it did touch.

An example can influence a run in two ways. It trains: it is in a batch, some layer admits its class, and that layer
changes. Or it is looked at: numbers of its class decide something about other classes. What counts is what the policy
admitted, not the numbers that were recorded: a class that a freeze keeps out of a layer still moves the factor by which
the layer's group of gradients is clipped. Buffers follow the layer that they are in.

Whoever leaves out single examples of a class leaves the others in. Then their class's probes are others too, and what a
method made of them at any look, even that it decided nothing, may have been otherwise: such a target reaches a run with
such a method from its first step.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from explorer.entries.run import Decision
from explorer.provenance.branches import covers
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.routing import admitted_by_rule
from explorer.provenance.sealed import region_of
from explorer.runlog.presence import Counts, Flags, Presence
from explorer.runlog.run_ledger import Placed, RunLedger
from explorer.runlog.target import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """A decision that numbers of the target's classes took over other examples."""

    entry: int
    step: int  # done when it was taken
    action: str
    over: tuple[str, ...]  # classes


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """What a target touched. Layers and classes stand in the order of the genesis."""

    target: Target
    whole: tuple[str, ...]  # classes of which every example is in the target
    partly: tuple[str, ...]  # classes of which some are
    first: int | None  # the first step that it could have influenced; None: it reached nothing
    trained: int  # steps that it trained in
    layers: tuple[str, ...]  # that changed while it was admitted to them
    shared: tuple[str, ...]  # of them, those in no sealed region
    regions: dict[str, tuple[str, ...]]  # sealed regions of the others -> other classes that live there
    channels: tuple[Channel, ...]
    probed: bool  # a method may have decided by its examples, as probes, where no entry here would say so
    slots: tuple[int, ...]  # of each step on record: how many slots trained that are the target's
    batch: int  # slots of a batch that may train, at most
    unrecorded: int  # steps before the first one of this ledger: what it reached in them is what the policy may admit

    @property
    def structural(self) -> bool:
        """Whether all it reached can be dropped and nothing else of the run depends on it."""
        others = self.shared or self.channels or self.probed or any(self.regions.values())
        return self.first is None or not (others or self.partly)


def reach(run: RunLedger, target: Target) -> Reach:
    """What the target touched. Raises `LedgerError` for classes, authorities or records that the run does not have."""
    return reach_of(Presence(run), target)


def reach_of(presence: Presence, target: Target) -> Reach:
    """The same, for who asks about several targets of one run."""
    run = presence.run
    present, whole, partly = _examples(presence, target)
    mine = [run.class_(path) for path in (*whole, *partly) if path not in presence.absent.classes]
    moved = np.zeros_like(presence.updated)
    for each in presence.stretches:
        admitted = (present[each.places] > 0).astype(np.float32) @ each.admitted.astype(np.float32) > 0
        moved[each.places] = admitted & presence.updated[each.places]
    layers = moved.any(axis=0)
    if run.begins:
        layers |= _may_admit(presence, mine)
    training = moved.any(axis=1)
    trained = np.flatnonzero(training) + run.begins
    channels = tuple(_channels(presence, present, whole, partly))
    methods = run.genesis.methods
    deciding = bool(mine) and (methods is None or any(traits.probes for traits in methods.values()))
    probed = deciding and bool(partly or run.begins)
    before = run.begins > 0 and bool(layers.any())
    firsts = [*trained[:1].tolist(), *(_influenced(run, each) for each in channels)]
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
    """How many examples of the target each batch had, S C; the classes it has all of, and those it has some of."""
    run = presence.run
    if target.classes:
        chosen = np.zeros(len(run.genesis.classes), bool)
        chosen[[run.class_(path) for path in target.classes]] = True
        return presence.examples * chosen, target.classes, ()
    rows, classes = presence.rows_of(target), presence.tags.classes
    touched = set(classes[rows].tolist())
    left = set(np.delete(classes, np.union1d(rows, presence.rows_of(presence.absent))).tolist())
    names = dict(enumerate(run.genesis.classes))
    whole = tuple(names[at] for at in sorted(touched - left) if at in names)
    partly = tuple(names[at] for at in sorted(touched & left) if at in names)
    return presence.of_rows(rows), whole, partly


def _channels(
    presence: Presence, present: Counts, whole: tuple[str, ...], partly: tuple[str, ...]
) -> Iterable[Channel]:
    """Decisions that hold, by the target's numbers, over anybody else. What a condition that it switched on made of
    others later counts as well: the decision may have asked for it."""
    run, switched = presence.run, False
    standing = [index for index in run.outline.decisions if index not in run.outline.superseded]
    for placed in run.read(standing, Decision):
        decision = placed.entry
        driving = {*decision.evidence} & {*whole, *partly}
        if decision.action == "selection":  # among the examples of one class in one batch
            driving = {path for path in driving if path in whole or _was_there(presence, present, placed, path)}
        over = tuple(path for path in decision.subjects or run.genesis.classes if path not in whole)
        if over and (driving or (switched and decision.action != "selection")):
            yield Channel(entry=placed.index, step=decision.step, action=decision.action, over=over)
        switched = switched or (bool(driving) and decision.action == "activation")


def _was_there(presence: Presence, present: Counts, placed: Placed[Decision], path: str) -> bool:
    place = placed.entry.step - presence.run.begins
    return place >= len(present) or bool(present[place, presence.run.class_(path)] > 0)


def _influenced(run: RunLedger, channel: Channel) -> int:
    """The first step that a decision influences: the one it precedes, if a state on record shows that it came after
    the update before; else that update's step, whose checkpoint holds what was decided."""
    clean = any(step == channel.step and index < channel.entry for step, index in run.outline.states)
    return channel.step if clean else max(0, channel.step - 1)


def _may_admit(presence: Presence, classes: list[int]) -> Flags:
    """Layers that the policy may admit one of these classes to, at some time: of steps that another ledger holds."""
    run, policy = presence.run, presence.policy
    found = np.zeros(len(run.genesis.layers), bool)
    for path in (run.genesis.classes[at] for at in classes):
        for at, layer in enumerate(run.genesis.layers):
            region = None if policy is None else region_of(policy.sealed, layer)
            if region is not None:
                found[at] |= covers(region.branch, path)
            else:
                found[at] |= policy is None or admitted_by_rule(policy, path)
    return found


def _places(
    run: RunLedger, policy: RoutingPolicy | None, layers: tuple[str, ...], whole: tuple[str, ...]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Which of these layers are in no sealed region; and the regions of the others, with who else lives there."""
    owners = {name: region_of(policy.sealed, name) if policy else None for name in layers}
    regions = {region.name: region.branch for region in owners.values() if region is not None}
    living = {
        name: tuple(path for path in run.genesis.classes if covers(branch, path) and path not in whole)
        for name, branch in regions.items()
    }
    return tuple(name for name, region in owners.items() if region is None), living

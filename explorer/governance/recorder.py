"""The recorder: what a run did, step by step, in its ledger.

It observes: a run with it has the same weights. Every so many steps, at the end, and where the next step is the first
that some class may train in, it closes a segment with the state of training, and everything so far is durable.
Checkpoints are written there alone, and the one before a class's first admission stays: from it the class can be left
out later without training again what came before.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from explorer.canonical import canonical
from explorer.engine.method import Kind, Method, Saving, Unit
from explorer.engine.state import State, progress
from explorer.entries.entropy_profile import LayerProfiles
from explorer.entries.kinds import Traits
from explorer.errors import RecipeError, TrainingError
from explorer.governance.digests import state_of, tensors_of
from explorer.governance.journal import Journal
from explorer.governance.layers import GovernedLayer, governed_layers
from explorer.governance.routing import Router
from explorer.governance.shared_state import DecisionNote, Notes, Session
from explorer.governance.writer import ledger_bytes
from explorer.provenance.routing_weights import Admission
from explorer.provenance.taxonomy import QUARANTINE
from explorer.runlog.tensors import BLOB as TENSORS
from explorer.runlog.tensors import OWNERS, Tensors, layer_of, moved, parameter_of


@dataclass(slots=True, kw_only=True)
class Recording:
    """What this process knows of the recording."""

    layers: tuple[GovernedLayer, ...]
    decided: int = 0  # how many of the step's decisions were made before its update
    keep: bool = False  # the checkpoint between this step and the next is to stay
    seconds: float = 0.0
    steps: int = 0
    tensors: Tensors | None = None  # of the state that the segment began with
    first: int = 0  # step of the segment
    moved: set[str] = field(default_factory=set)  # layers that some step of the segment says were updated

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start

    def begin(self, tensors: Tensors, *, step: int) -> None:
        """A segment begins with this state."""
        self.tensors, self.first, self.moved = tensors, step, set()

    def check(self, tensors: Tensors, *, step: int) -> None:
        """Raises `TrainingError` if a tensor of a layer moved, and no step of the segment says that the layer did:
        something wrote to it that is on no record."""
        if self.tensors is None:
            return
        owners = {
            name: governed.layer.name
            for governed in self.layers
            if governed.layer.name not in self.moved
            for name in (*governed.parameters, *governed.buffers)
        }
        for name in sorted(moved(self.tensors, tensors)):
            if (layer := owners.get(parameter_of(name))) is not None:
                raise TrainingError(
                    f"{name} is another than before, and none of the steps {self.first} to {step - 1} updated {layer}:"
                    " something writes to it past the gradients, such as .data in a forward pass, a hook, an optimiser"
                    " that moves what has no gradient, or code between the steps; these steps are not recorded"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorder(Method):
    """Write the run's ledger."""

    name: ClassVar[str] = "recorder"
    kind: ClassVar[Kind] = Kind.RECORD
    summary: ClassVar[str] = "Writes every step of the run into its ledger."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = (
        "an entry for every step; a segment with the digests of the whole state every `every` steps, at the end, and"
        " before a class is admitted for the first time"
    )
    changes: ClassVar[str] = "nothing"
    needs: ClassVar[str] = "a trainer's key"
    traits: ClassVar[Traits] = Traits(remembers="classes")
    routing: ClassVar[str] = "Works: which classes were admitted to what is in every entry."
    after: ClassVar[tuple[str, ...]] = ("contributions", "entropy")

    every: Annotated[
        int, Field(ge=1, le=100_000, description="steps between two records of the whole state"), Unit("steps")
    ] = 50

    def memory(self, state: State) -> dict[str, Tensor]:
        session = state.resource(Session)
        layers = governed_layers(state.model, state.layers, session.routing.policy.sealed if session.routing else ())
        session.layers = tuple(layer.layer for layer in layers)
        state.resources[Recording] = Recording(layers=layers)
        return {"admitted": torch.zeros(len(session.classes), dtype=torch.bool)}  # to any layer, in any step so far

    def before_fit(self, state: State) -> None:
        recording, tensors = state.resource(Recording), tensors_of(state)
        recording.begin(tensors, step=state.step)
        _journal(state).begin(state.step, state_of(tensors, state, step=state.step))

    def before_update(self, state: State) -> None:
        state.resource(Recording).decided = len(state.resource(Session).notes.decisions)

    def after_step(self, state: State) -> None:
        """This hook runs after those of all other methods: the step is done, but for its number."""
        recording, session = state.resource(Recording), state.resource(Session)
        with recording.timed():
            notes, session.notes = session.notes, Notes()
            _record(_journal(state), state, notes, recording)
            recording.steps += 1
            done = state.step + 1
            recording.keep = done < state.total_steps and self._admits_anew(state, notes.admission)
            if recording.keep or done % self.every == 0 or done == state.total_steps:
                _close(_journal(state), state, recording, step=done)

    def after_run(self, state: State) -> None:
        journal = _journal(state)
        if not journal.settled:  # a loop of one's own that ends before it had announced to
            _close(journal, state, state.resource(Recording), step=state.step)
        tensors = tensors_of(state)
        reached = state_of(tensors, state, step=state.step)
        outcome = "finished" if state.step == state.total_steps else "stopped"
        journal.end(state.step, reached, tensors=tensors, metrics=state.metrics, outcome=outcome)

    def saving(self, state: State) -> Saving:
        if not _journal(state).settled:
            return Saving.NOT_NOW
        return Saving.KEPT if state.resource(Recording).keep else Saving.ALLOWED

    def metrics(self, state: State) -> dict[str, float]:
        recording = state.resource(Recording)
        return {
            "ledger_bytes_per_step": ledger_bytes(_journal(state).directory) / state.total_steps,
            "ledger_seconds_per_step": recording.seconds / max(1, recording.steps),
        }

    def _admits_anew(self, state: State, now: Admission | None) -> bool:
        """Return whether the next step admits a class that none before it did."""
        if now is None:
            return False
        admitted = state.memory[self.name]["admitted"]
        admitted |= _admitted(now)
        conditions = frozenset(state.resource(Session).conditions)
        after = progress(state.pace, state.step + 1, state.total_steps)
        coming = state.resource(Router).at(after, conditions).admission
        return bool((_admitted(coming) & ~admitted).any())


def _admitted(admission: Admission) -> Tensor:
    """Which classes may train some layer."""
    return torch.from_numpy((admission.weights > 0).any(axis=1))


def beginning(state: State) -> dict[str, bytes]:
    """Return the blobs that the genesis of a run has in this state: its tensors, and the layers of those whose names
    begin with another layer's."""
    tensors, layers = tensors_of(state), state.resource(Recording).layers
    names = frozenset(layer.layer.name for layer in layers)
    owners = {
        name: layer.layer.name
        for layer in layers
        for name in (*layer.parameters, *layer.buffers)
        if layer_of(name, names) != layer.layer.name
    }
    return {TENSORS: tensors.content} | ({OWNERS: canonical(owners)} if owners else {})


def _close(journal: Journal, state: State, recording: Recording, *, step: int) -> None:
    """Close a segment, once what no step of it says was updated is what it was."""
    tensors = tensors_of(state)
    recording.check(tensors, step=step)
    journal.segment(step, state_of(tensors, state, step=step), tensors=tensors)
    recording.begin(tensors, step=step)


def _record(journal: Journal, state: State, notes: Notes, recording: Recording) -> None:
    """The entries of one step: what was measured and decided before its update, the step, and what was after it."""
    step, decided = state.step, recording.decided
    flags = updated(state, recording.layers)
    recording.moved |= {layer.layer.name for layer, flag in zip(recording.layers, flags, strict=True) if flag}
    counts = notes.examples or {share.name: len(share.slots) for share in state.shares}
    _record_notes(
        journal, step, [profile for profile in notes.profiles if profile.step == step], notes.decisions[:decided]
    )
    journal.step(
        step,
        rows=state.examples,
        examples=[counts.get(path, 0) for path in journal.genesis.classes],
        quarantined=counts.get(QUARANTINE, 0),
        updated=flags,
        admission=notes.admission,
        numbers=notes.numbers,
        sketches=notes.sketches,
    )
    _record_notes(
        journal, step + 1, [profile for profile in notes.profiles if profile.step != step], notes.decisions[decided:]
    )


def _record_notes(
    journal: Journal, step: int, profiles: Iterable[LayerProfiles], decisions: Iterable[DecisionNote]
) -> None:
    """What was measured and decided after so many steps."""
    for profile in profiles:
        journal.profile(profile)
    for note in decisions:
        journal.decision(
            step,
            action=note.action,
            rule=note.rule,
            parameters=note.parameters,
            subjects=note.subjects,
            layers=note.layers,
            evidence=note.evidence,
            condition=note.condition,
        )


def updated(state: State, layers: tuple[GovernedLayer, ...]) -> list[bool]:
    """Which layers the step may have changed: an optimiser saw a gradient of theirs, or a forward pass their buffers.

    Of the others parameters, buffers and optimiser state are bit for bit what they were.
    """
    moved = {
        name
        for region in state.regions.values()
        for name, parameter in region.parameters.items()
        if parameter.grad is not None
    }
    written = {name for share in state.shares if share.parameters for name in share.buffers}
    return [not (moved.isdisjoint(layer.parameters) and written.isdisjoint(layer.buffers)) for layer in layers]


def _journal(state: State) -> Journal:
    journal = state.resource(Session).journal
    if journal is None:
        raise RecipeError("recorder: this run was given no ledger: expected 'governance:' with a trainer's key")
    return journal

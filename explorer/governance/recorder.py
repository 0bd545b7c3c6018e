"""The recorder: writes every step of a run into its ledger, and the state of training as the ledger names it.

It observes: a run with it has the same weights. Every so many steps, at the end, and where the next step is the first
that some class may train in, it closes a segment with the state of training, and everything so far is durable.
Checkpoints are written only there, and the one before a class's first admission is kept: a deletion by replay (G3) of
that class starts from it, without training again what came before.
"""

import struct
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from explorer.canonical import canonical, digest
from explorer.engine.loss_scale import Rescaled
from explorer.engine.method import Kind, Method, Planned, Saving, Unit
from explorer.engine.ranks import Ranks
from explorer.engine.state import State, progress
from explorer.entries.entropy_profile import LayerProfiles
from explorer.entries.kinds import TrainingState, Traits
from explorer.errors import RecipeError, TrainingError
from explorer.governance.journal import Journal
from explorer.governance.layers import GovernedLayer, governed_layers
from explorer.governance.routing import Router
from explorer.governance.shared_state import DecisionNote, Notes, Session
from explorer.governance.writer import ledger_bytes
from explorer.provenance.routing_weights import Admission
from explorer.provenance.taxonomy import QUARANTINE
from explorer.runlog.tensors import BLOB as TENSORS
from explorer.runlog.tensors import CHUNK, OPTIMIZER, OWNERS, Tensors, layer_of, moved, parameter_of
from explorer.runlog.tensors import tensor_leaf as leaf_of_values


@dataclass(slots=True, kw_only=True)
class Recording:
    """State of the recording in this process; a resumed run begins a new one."""

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
        """Begin a segment with this state."""
        self.tensors, self.first, self.moved = tensors, step, set()

    def check(self, tensors: Tensors, *, step: int) -> None:
        """Raise `TrainingError` if a tensor moved although no step of the segment updated its layer: something that no
        entry records wrote to it."""
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
    routing: ClassVar[str] = "Works: every entry has the admission table in force."
    after: ClassVar[tuple[str, ...]] = ("contributions", "entropy")

    every: Annotated[
        int, Field(ge=1, le=100_000, description="steps between two records of the whole state"), Unit("steps")
    ] = 50

    def check(self, planned: Planned) -> None:
        if planned.kernels != "strict":
            raise RecipeError(
                f"found deterministic: {planned.kernels}: a ledger states steps that anyone can make again bit for bit,"
                " and replay, deletion and their certificates rest on that: expected deterministic: strict"
            )

    def any_length(self) -> bool:
        return True

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
        decisions = state.resource(Session).notes.decisions
        if state.rescaled is not None:
            decisions.append(_note_of(state.rescaled))
        state.resource(Recording).decided = len(decisions)

    def after_step(self, state: State) -> None:
        """Record the step. This hook runs after those of all other methods; only the step's number still has to
        advance."""
        recording, session = state.resource(Recording), state.resource(Session)
        with recording.timed():
            notes, session.notes = session.notes, Notes()
            _record(_journal(state), state, notes, recording)
            recording.steps += 1
            done = state.step + 1
            # A segment ends before a class's first admission, so that the last state without the class is on record
            # and has a checkpoint.
            recording.keep = done < state.total_steps and self._admits_newcomer(state, notes.admission)
            if recording.keep or done % self.every == 0 or done == state.total_steps:
                _close(_journal(state), state, recording, step=done)

    def after_run(self, state: State) -> None:
        journal = _journal(state)
        if not journal.settled:  # a custom loop that ended before its announced number of steps
            _close(journal, state, state.resource(Recording), step=state.step)
        tensors = tensors_of(state)
        reached = _agreed(state_of(tensors, state, step=state.step), state)
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

    def _admits_newcomer(self, state: State, now: Admission | None) -> bool:
        """Return whether the next step admits a class that no step before it did."""
        if now is None:
            return False
        admitted = state.memory[self.name]["admitted"]
        admitted |= _admitted(now)
        conditions = frozenset(state.resource(Session).conditions)
        after = progress(state.pace, state.step + 1, state.total_steps)
        coming = state.resource(Router).at(after, conditions).admission
        return bool((_admitted(coming) & ~admitted).any())


def _note_of(rescaled: Rescaled) -> DecisionNote:
    """Return the change of the loss scale as a decision about all classes, on the gradients of those that overflowed.

    A steady class could only have prevented a growth by an overflow, which would be a decision of its own.
    """
    return DecisionNote(
        action="loss-scale",
        rule=rescaled.rule,
        parameters={"before": rescaled.before, "after": rescaled.after},
        subjects=(),
        layers=(),
        evidence=dict.fromkeys(rescaled.classes, struct.pack("<d", rescaled.before)),
    )


def _admitted(admission: Admission) -> Tensor:
    """Return which classes may train some layer."""
    return torch.from_numpy((admission.weights > 0).any(axis=1))


def beginning(state: State) -> dict[str, bytes]:
    """Return the blobs of the genesis for this state: its tensors, and the owners of tensors that their names do not
    tell."""
    tensors, layers = tensors_of(state), state.resource(Recording).layers
    names = frozenset(layer.layer.name for layer in layers)
    # A reader without the model finds a tensor's layer by the beginning of its name, which is another layer's for some,
    # such as tied ones.
    owners = {
        name: layer.layer.name
        for layer in layers
        for name in (*layer.parameters, *layer.buffers)
        if layer_of(name, names) != layer.layer.name
    }
    return {TENSORS: tensors.content} | ({OWNERS: canonical(owners)} if owners else {})


def _close(journal: Journal, state: State, recording: Recording, *, step: int) -> None:
    """Close a segment, after checking that every layer that moved was updated by a recorded step."""
    tensors = tensors_of(state)
    recording.check(tensors, step=step)
    journal.segment(step, _agreed(state_of(tensors, state, step=step), state), tensors=tensors)
    recording.begin(tensors, step=step)


def _agreed(reached: TrainingState, state: State) -> TrainingState:
    """Return the state that this process and all others that train the run have come to.

    Raises `TrainingError` where one of them has another: its hardware or software computes other bits.
    """
    mine = state.resources.get(Ranks)
    if mine is None:  # a custom loop is one process
        return reached
    states = mine.gathered(canonical(asdict(reached)).decode())
    for rank, other in enumerate(states):
        if other != states[0]:
            raise TrainingError(
                f"rank {rank} has another state than rank 0 at step {state.step}: {other:.500}; rank 0 has"
                f" {states[0]:.500}; expected the same bits, from processes of one machine and one software"
            )
    return reached


def _record(journal: Journal, state: State, notes: Notes, recording: Recording) -> None:
    """Write the entries of one step: measurements and decisions before its update, the step, and those after it.

    An entry's number of steps says which state it is about, so one made after the update belongs to the next number.
    """
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
        estimated=notes.estimated,
    )
    _record_notes(
        journal, step + 1, [profile for profile in notes.profiles if profile.step != step], notes.decisions[decided:]
    )


def _record_notes(
    journal: Journal, step: int, profiles: Iterable[LayerProfiles], decisions: Iterable[DecisionNote]
) -> None:
    """Write the profiles and the decisions made after this many steps."""
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
    """Return which layers the step may have changed: by an optimiser that had a gradient, or by a forward pass.

    Parameters, buffers and optimiser state of the others are bit for bit what they were; `Recording.check` holds the
    run to that at the end of each segment.
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


# --- the state of training, as the ledger names it ---


def tensor_leaf(name: str, tensor: Tensor, *, chunk: int | None = CHUNK) -> str:
    """Return the leaf of one tensor (runlog/tensors.py)."""
    plain = tensor.detach().cpu().contiguous()
    values = plain.flatten().view(torch.uint8).numpy().data
    return leaf_of_values(name, dtype=str(plain.dtype), shape=plain.shape, values=[values], chunk=chunk)


def leaves_of(tensors: Mapping[str, Tensor], *, chunk: int | None = CHUNK) -> dict[str, str]:
    """Return the leaf of each tensor."""
    return {name: tensor_leaf(name, tensor, chunk=chunk) for name, tensor in tensors.items()}


def tensors_of(state: State) -> Tensors:
    """Return every tensor of training. The memory of methods counts as the optimiser's."""
    remembered = {f"{name}/{key}": tensor for name, memory in state.memory.items() for key, tensor in memory.items()}
    for region in state.regions.values():
        for index, optimizer in enumerate(region.optimizers):
            for name, parameter in region.parameters.items():
                values = optimizer.state.get(parameter, {})
                prefix = f"{OPTIMIZER}/{region.name}/{index}/{name}"
                remembered |= {f"{prefix}/{key}": value for key, value in values.items() if isinstance(value, Tensor)}
    chunk = state.resource(Session).chunk
    return Tensors(
        parameters=leaves_of(dict(state.model.named_parameters()), chunk=chunk),
        buffers=leaves_of(dict(state.model.named_buffers()), chunk=chunk),
        optimizer=leaves_of(remembered, chunk=chunk),
        chunk=chunk,
    )


def state_of(tensors: Tensors, state: State, *, step: int) -> TrainingState:
    """Return the recorded state of these tensors after this many steps."""
    parameters, buffers, optimizer = tensors.roots
    # Every random draw follows from the seed, the step and a name, so these two are the whole random state.
    random = digest({"seed": state.seed, "step": step})
    return TrainingState(parameters=parameters, buffers=buffers, optimizer=optimizer, random=random)


def training_state(state: State, *, step: int) -> TrainingState:
    """Return the recorded state of training after this many steps."""
    return state_of(tensors_of(state), state, step=step)

"""Entropy gate: a condition of the policy that is switched on once layers use enough directions for a class.

The policy decides what the condition does: a rule may admit classes under it, or end the admission of others. The
switch is a recorded decision with the number that decided it: the effective rank of the class's own probes, mean over
the layers, float64, little-endian. It measures one class and decides about others, which is a channel from that class
to every class that a rule with the condition is about. The entry names both; after it, the class can no longer be
deleted from the others exactly.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.state import State
from explorer.entries.kinds import Traits
from explorer.errors import RecipeError, unknown
from explorer.governance.probes import choose_probes, layer_outputs, layers_seen, moments
from explorer.governance.separation import spectrum
from explorer.governance.shared_state import DecisionNote, Session
from explorer.provenance.regions import matches


@dataclass(frozen=True, kw_only=True, slots=True)
class EntropyGate(Method):
    """Switch a condition on, for good, when the effective rank reaches a threshold."""

    name: ClassVar[str] = "entropy_gate"
    kind: ClassVar[Kind] = Kind.PLAN
    summary: ClassVar[str] = "Switches a condition of the policy on when layers use enough directions for a class."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = (
        "`condition` is on from the first of `profiles` profiles with exp S >= `effective_rank`, S the entropy of the"
        " outputs for `probes` examples of class `of`, the mean of exp S over `layers`"
    )
    changes: ClassVar[str] = "a condition of the policy, and so which classes may train which layers"
    needs: ClassVar[str] = "a policy with that condition; tagged examples"
    traits: ClassVar[Traits] = Traits(probes=True, remembers="classes")
    routing: ClassVar[str] = (
        "Switches the rules of a condition on: a recorded decision, and a channel from class `of` to those they name."
    )

    condition: Annotated[str, Field(min_length=1, max_length=64, description="of the policy")]
    of: Annotated[str, Field(min_length=1, max_length=200, description="the class whose probes decide")]
    effective_rank: Annotated[float, Field(ge=1, description="from which on the condition holds"), Unit("directions")]
    layers: Annotated[str, Field(min_length=1, max_length=300, description="name pattern of the layers")] = "*"
    profiles: Annotated[int, Field(ge=2, le=1000, description="measurements over the run"), Unit("profiles")] = 16
    probes: Annotated[
        int, Field(ge=2, le=4096, description="training examples of the class to measure"), Unit("examples")
    ] = 64

    def phase(self, moment: Moment) -> str:
        now = moment.step == 0 or moment.step + 1 in moments(moment.total_steps, count=self.profiles)
        return "gate profile" if now else ""

    def memory(self, state: State) -> dict[str, Tensor]:
        session = state.resource(Session)
        conditions = session.routing.policy.conditions if session.routing else ()
        if self.condition not in conditions:
            raise RecipeError(f"entropy_gate: {unknown('condition', self.condition, conditions)}")
        if self.of not in session.classes:
            raise RecipeError(f"entropy_gate: {unknown('class', self.of, session.classes)}")
        if not self._layers(state):
            names = ", ".join(leaf.name for leaf in layers_seen(state))
            raise RecipeError(f"entropy_gate: {self.layers!r} fits no layer; known: {names:.300}")
        return {"on": torch.tensor(False)}

    def before_fit(self, state: State) -> None:
        # A resumed run has the switch in its memory, and the session begins without conditions.
        if state.memory[self.name]["on"]:
            state.resource(Session).conditions.add(self.condition)

    def before_step(self, state: State) -> None:
        if state.step == 0:
            self._look(state)

    def after_update(self, state: State) -> None:
        """Look at the end of a step and not before the next one: the recorder has to know whom the next step admits,
        so that it can keep the checkpoint between them."""
        if state.step + 1 in moments(state.total_steps, count=self.profiles):
            self._look(state)

    def _look(self, state: State) -> None:
        session, on = state.resource(Session), state.memory[self.name]["on"]
        if on or self.of in session.absent:  # a run without the class never switches the condition on
            return
        outputs = layer_outputs(state, choose_probes(state, count=self.probes), self.of)
        rank = float(np.mean([spectrum(outputs[name]).effective_rank for name in self._layers(state)]))
        if rank >= self.effective_rank:
            on.fill_(True)
            session.conditions.add(self.condition)
            session.notes.decisions.append(self._note(state, session, rank))

    def _note(self, state: State, session: Session, rank: float) -> DecisionNote:
        assert session.routing is not None
        rules = [rule for rule in session.routing.policy.rules if rule.condition == self.condition]
        return DecisionNote(
            action="activation",
            rule="effective-rank",
            parameters={"effective-rank": self.effective_rank},
            subjects=tuple(path for path in session.classes if any(rule.holds_class(path) for rule in rules)),
            layers=self._layers(state),
            evidence={self.of: np.array(rank, "<f8").tobytes()},
            condition=self.condition,
        )

    def _layers(self, state: State) -> tuple[str, ...]:
        return tuple(leaf.name for leaf in layers_seen(state) if matches(self.layers, leaf.name))

"""Governed freezing: a layer stops learning a class once it has settled for it and the policy calls the class done.

A layer has settled for a class when the entropy of what it makes of the class's own probes has hardly changed between
the last profiles. Nobody else's examples are looked at, so this is no channel from one class to another. Freezing is
denial to one class (`engine.plan.deny`); layer freezing denies to all. The model goes on, though: where other classes
move a frozen layer so far that the entropy drifts away from where it settled, it had settled on the wrong thing, and
the freeze is overridden. Every decision is noted with the numbers that decided it, per layer, float64, little-endian:

    freeze     rule settled    the entropies of the last `patience` + 1 profiles
    override   rule drifted    the entropy at the freeze, and now
    re-open    rule policy     the entropy at the freeze, and now: the condition that called it done is off again

Shapes: H profiles looked back on, K classes, L layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from explorer.engine.leaves import Leaf
from explorer.engine.method import Kind, Method, Moment, Unit
from explorer.engine.plan import deny
from explorer.engine.state import State
from explorer.errors import RecipeError, unknown
from explorer.governance.probes import choose_probes, layer_outputs, layers_seen, moments
from explorer.governance.session import DecisionNote, Session
from explorer.governance.spectrum import spectrum


def has_settled(history_HKL: Tensor, *, within: float) -> Tensor:
    """Where no two successive profiles differ by more than `within` nats, K L. NaN, for no profile, never settles."""
    return (history_HKL.diff(dim=0).abs() <= within).all(0)


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernedFreezing(Method):
    """Deny a layer to a class that it has settled for, and give it back if it drifts.

    What settles when depends on the data: plans and forecasts take all steps as those of a model that learns.
    """

    name: ClassVar[str] = "governed_freezing"
    kind: ClassVar[Kind] = Kind.PLAN
    after: ClassVar[tuple[str, ...]] = ("routing",)
    summary: ClassVar[str] = "Stops training a layer on a class once the layer has settled for it."
    source: ClassVar[str] = "Raghu et al. 2017, arXiv:1706.05806, for settling layer by layer; else no paper"
    formula: ClassVar[str] = (
        "a layer is frozen for class c when the entropies S of the last `patience` + 1 profiles of c's own probes"
        " differ by at most `settled` each and c is done (`start`, `condition`); it is given back once"
        " |S - S at the freeze| > `drift`"
    )
    changes: ClassVar[str] = "who may train what"
    needs: ClassVar[str] = "tagged examples"
    routing: ClassVar[str] = (
        "Denies to one class what the policy admits it to, by its own probes alone: no channel between classes."
    )

    start: Annotated[
        float, Field(ge=0, le=1, description="share of training before any class is done"), Unit("share of training")
    ] = 0.5
    condition: Annotated[str, Field(max_length=64, description="of the policy, asked for too; empty: none")] = ""
    settled: Annotated[
        float, Field(ge=0, description="nats between profiles that count as no change"), Unit("nats")
    ] = 0.02
    patience: Annotated[
        int, Field(ge=1, le=100, description="changes in a row that have to be that small"), Unit("profiles")
    ] = 2
    drift: Annotated[float, Field(gt=0, description="nats from the freeze at which it is overridden"), Unit("nats")] = (
        0.1
    )
    profiles: Annotated[int, Field(ge=2, le=1000, description="how often to look, over the run"), Unit("profiles")] = 16
    probes: Annotated[
        int, Field(ge=2, le=4096, description="training examples of each class to look at"), Unit("examples of a class")
    ] = 64

    def phase(self, moment: Moment) -> str:
        return "settling profile" if moment.step in moments(moment.total_steps, count=self.profiles) else ""

    def memory(self, state: State) -> dict[str, Tensor]:
        session = state.resource(Session)
        if self.condition:
            conditions = session.routing.policy.conditions if session.routing else ()
            if self.condition not in conditions:
                raise RecipeError(f"governed_freezing: {unknown('condition', self.condition, conditions)}")
        shape = len(session.classes), len(layers_seen(state))
        return {
            "history": torch.full((self.patience + 1, *shape), torch.nan, dtype=torch.float64),
            "anchor": torch.full(shape, torch.nan, dtype=torch.float64),  # entropy at the freeze; NaN: not frozen
        }

    def change_plan(self, state: State) -> None:
        self._forget_absent(state)
        session, anchor_KL = state.resource(Session), state.memory[self.name]["anchor"]
        if state.step in moments(state.total_steps, count=self.profiles):
            session.notes.decisions += self._decide(state, session)
        if anchor_KL.isfinite().any():
            layers = layers_seen(state)
            frozen = {
                path: _chosen(layers, row) for path, row in zip(session.classes, anchor_KL.isfinite(), strict=True)
            }
            state.shares = tuple(deny(share, frozen.get(share.name, ())) for share in state.shares)

    def neutral(self) -> Self:
        """Nobody is done before the end."""
        return replace(self, start=1.0)

    def _forget_absent(self, state: State) -> None:
        """Nothing is remembered of a class that is absent, as in a run that never had it. A deletion goes on from a
        state of one that did, and begins with that very state: it is the one on record."""
        session, memory = state.resource(Session), state.memory[self.name]
        gone = [index for index, path in enumerate(session.classes) if path in session.absent]
        memory["history"][:, gone] = torch.nan
        memory["anchor"][gone] = torch.nan

    def _decide(self, state: State, session: Session) -> list[DecisionNote]:
        """Look at the probes and change what is frozen; a note for each class and action."""
        history_HKL, anchor_KL = state.memory[self.name]["history"], state.memory[self.name]["anchor"]
        layers = layers_seen(state)
        now_KL = self._entropies(state, session, layers)
        history_HKL.copy_(torch.cat([history_HKL[1:], now_KL[None]]))
        done = state.progress >= self.start and (not self.condition or self.condition in session.conditions)
        frozen = anchor_KL.isfinite()
        drifted = (now_KL - anchor_KL).abs() > self.drift
        reopened = frozen & ~drifted if not done else torch.zeros_like(frozen)
        settled = has_settled(history_HKL, within=self.settled) & ~frozen & _admitted(state, session, layers)
        freezing = settled if done else torch.zeros_like(frozen)
        since_2KL = torch.stack([anchor_KL, now_KL])
        decided = (
            ("freeze", "settled", freezing, history_HKL),
            ("override", "drifted", drifted, since_2KL),
            ("re-open", "policy", reopened, since_2KL),
        )
        notes = [
            self._note(action, rule, path, _chosen(layers, where[index]), numbers[:, index, where[index]])
            for index, path in enumerate(session.classes)
            for action, rule, where, numbers in decided
            if where[index].any()
        ]
        anchor_KL[freezing] = now_KL[freezing]
        anchor_KL[drifted | reopened] = torch.nan
        history_HKL[:, drifted] = torch.nan  # settling begins anew
        return notes

    def _note(self, action: str, rule: str, path: str, layers: list[Leaf], numbers: Tensor) -> DecisionNote:
        """A decision about a class in these layers; `numbers` has a column for each."""
        return DecisionNote(
            action=action,
            rule=rule,
            parameters={name: getattr(self, name) for name in ("start", "settled", "patience", "drift")},
            subjects=(path,),
            layers=tuple(leaf.name for leaf in layers),
            evidence={path: numbers.T.contiguous().numpy().astype("<f8").tobytes()},
        )

    def _entropies(self, state: State, session: Session, layers: Sequence[Leaf]) -> Tensor:
        """The entropy of every layer on every class's own probes, K L; NaN for classes that are absent."""
        probes = choose_probes(state, count=self.probes)
        now_KL = torch.full_like(state.memory[self.name]["anchor"], torch.nan)
        for index, path in enumerate(session.classes):
            if path not in session.absent:
                outputs = layer_outputs(state, probes, path)
                entropies = [spectrum(outputs[leaf.name]).entropy for leaf in layers]
                now_KL[index] = torch.tensor(entropies, dtype=torch.float64)
        return now_KL


def _chosen(layers: Sequence[Leaf], where_L: Tensor) -> list[Leaf]:
    """The layers for which it is so."""
    return [leaf for leaf, here in zip(layers, where_L.tolist(), strict=True) if here]


def _admitted(state: State, session: Session, layers: Sequence[Leaf]) -> Tensor:
    """Where the policy lets the class train the layer now, K L: elsewhere there is nothing to freeze."""
    if not state.admission:
        return torch.ones(len(session.classes), len(layers), dtype=torch.bool)
    codes = [{code for name in leaf.parameters for code in state.admission.get(name, ())} for leaf in layers]
    return torch.tensor([[session.codes[path] in found for found in codes] for path in session.classes])

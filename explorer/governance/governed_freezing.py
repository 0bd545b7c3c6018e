"""Governed freezing: a layer stops learning a class once it has settled for it and the policy calls the class done.

A layer has settled for a class when the entropy of its outputs for the class's own probes has hardly changed between
the last profiles. Freezing is denial to one class (`engine.state.deny`); layer freezing denies to all. Other classes
continue to train the layer: where they move it so far that the entropy drifts away from where it settled, the freeze is
overridden.

Settled is not learned: entropy measures how many directions are in use, and a layer that has settled at once on the
wrong ones never drifts. `told_apart` is a target for learning: the range of accuracy with which a linear probe tells
the class from the others in the layer (`explorer.governance.separation`; chance is 1/2). [0.9, 1] asks for a class that
can be recognised, [0, 0.6] for one that cannot. A layer that settles outside is not frozen. A frozen one is opened
again once the 95% interval of the accuracy lies outside, or once the accuracy of the rule that was fitted at the freeze
falls below: a layer that has exchanged one set of directions for another, at equal entropy, no longer serves the layers
that read it.

Without `told_apart` no other class's examples are read, so this is no channel from one class to another. With it every
class's probes decide about every class, and the decisions record it: after the first one no class can be deleted from
the others exactly (G2).

Every decision is noted with the numbers that decided it, per layer, float64, little-endian:

    freeze     rule settled    the entropies of the last `patience` + 1 profiles
    override   rule drifted    the entropy at the freeze, and now
    override   rule target     of a layer that settled: as for settled; of a frozen one: as for drifted
    re-open    rule policy     the entropy at the freeze, and now: the condition that called it done is off again

With a target, each class with probes has a part in the evidence of all decisions but `drifted` and `policy`: per layer
K numbers, the classes that its probes were taken for, and how many of them the rule from the freeze gets right, -1
without one. For the class that the decision is about they follow the entropies.

Shapes: H profiles in the history, K classes, L layers, D outputs of a layer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.streams import stream
from explorer.engine.leaves import Leaf
from explorer.engine.method import Kind, Method, Moment, Planned, Unit
from explorer.engine.state import State, deny
from explorer.entries.entropy_profile import Told, told_of
from explorer.entries.kinds import Traits
from explorer.errors import RecipeError, unknown
from explorer.governance.probes import choose_probes, layer_outputs, layers_seen, moments, of_one_width
from explorer.governance.separation import MAX_DIMENSIONS, fit, probe, recognised, spectrum
from explorer.governance.shared_state import DecisionNote, Session
from explorer.provenance.routing_weights import confidential


def has_settled(history_HKL: Tensor, *, within: float) -> Tensor:
    """Return where no two successive profiles differ by more than `within` nats, K L."""
    # A comparison with NaN, which marks a missing profile, is false: a short history never settles.
    return (history_HKL.diff(dim=0).abs() <= within).all(0)


class Target(NamedTuple):
    """Results of the probes for every class and layer, compared with the target."""

    learned: Tensor  # K L: the accuracy is within the target
    left: Tensor  # K L: for a frozen layer: its interval is outside, or the rule from the freeze falls below
    counts: Tensor  # L K K: row, the class of the probes; column, the class that they were taken for
    kept: Tensor  # L K K: how many probes of the second class the rule of the first gets right; -1: no rule


@dataclass(frozen=True, kw_only=True, slots=True)
class GovernedFreezing(Method):
    """Deny a layer to a class that it has settled for, and give it back if it drifts.

    When a layer settles depends on the data: plans and forecasts treat all steps as those without a frozen layer.
    """

    name: ClassVar[str] = "governed_freezing"
    kind: ClassVar[Kind] = Kind.PLAN
    after: ClassVar[tuple[str, ...]] = ("routing",)
    summary: ClassVar[str] = "Stops training a layer on a class once the layer has settled for it."
    source: ClassVar[str] = "Raghu et al. 2017, arXiv:1706.05806, for settling layer by layer; else no paper"
    formula: ClassVar[str] = (
        "a layer is frozen for class c when the entropies S of the last `patience` + 1 profiles of c's own probes"
        " differ by at most `settled` each and c is done (`start`, `condition`); it is given back once"
        " |S - S at the freeze| > `drift`; with `told_apart` the accuracy of a linear probe has to be in that range too"
    )
    changes: ClassVar[str] = "which classes may train which layers"
    needs: ClassVar[str] = "tagged examples"
    traits: ClassVar[Traits] = Traits(probes=True, remembers="classes")
    routing: ClassVar[str] = (
        "Denies to one class what the policy admits it to, only by its own probes: no channel between classes. With"
        " `told_apart` all classes' probes decide: a channel between all of them."
    )

    start: Annotated[
        float, Field(ge=0, le=1, description="share of training before any class is done"), Unit("share of training")
    ] = 0.5
    condition: Annotated[str, Field(max_length=64, description="of the policy, also required; empty: none")] = ""
    settled: Annotated[
        float, Field(ge=0, description="nats between profiles that count as no change"), Unit("nats")
    ] = 0.02
    patience: Annotated[
        int, Field(ge=1, le=100, description="changes in a row that have to be this small"), Unit("profiles")
    ] = 2
    drift: Annotated[float, Field(gt=0, description="nats from the freeze at which it is overridden"), Unit("nats")] = (
        0.1
    )
    told_apart: Annotated[
        tuple[float, float],
        Field(description="target of learning: accuracy of a linear probe for the class, from and to; (0, 1): any"),
        Unit("balanced accuracy"),
    ] = (0.0, 1.0)
    profiles: Annotated[int, Field(ge=2, le=1000, description="measurements over the run"), Unit("profiles")] = 16
    probes: Annotated[
        int, Field(ge=2, le=4096, description="training examples of each class to measure"), Unit("examples of a class")
    ] = 64

    @property
    def targeted(self) -> bool:
        """Return whether there is a target for what is learned."""
        return tuple(self.told_apart) != (0.0, 1.0)

    def check(self, planned: Planned) -> None:
        low, high = self.told_apart
        if not 0 <= low < high <= 1:
            raise RecipeError(f"told_apart: found {[low, high]}, expected [from, to] with 0 <= from < to <= 1")

    def phase(self, moment: Moment) -> str:
        return "settling profile" if moment.step in moments(moment.total_steps, count=self.profiles) else ""

    def memory(self, state: State) -> dict[str, Tensor]:
        session = state.resource(Session)
        if self.condition:
            conditions = session.routing.policy.conditions if session.routing else ()
            if self.condition not in conditions:
                raise RecipeError(f"governed_freezing: {unknown('condition', self.condition, conditions)}")
        shape = len(session.classes), len(layers_seen(state))
        memory = {
            "history": torch.full((self.patience + 1, *shape), torch.nan, dtype=torch.float64),
            "anchor": torch.full(shape, torch.nan, dtype=torch.float64),  # entropy at the freeze; NaN: not frozen
        }
        if self.targeted:
            if len(session.classes) < 2:
                raise RecipeError("governed_freezing: told_apart: found one class, expected another to tell it from")
            if sealed := confidential(session.routing, session.classes):
                raise RecipeError(
                    "governed_freezing: told_apart: its evidence is over all classes, and the policy calls"
                    f" {min(sealed)} confidential; expected a policy without confidential classes, or no target"
                )
            # K L (D + 2): the rule that was fitted at the freeze, zeros behind it; NaN: not frozen
            memory["rule"] = torch.full((*shape, self._width(state, session) + 2), torch.nan, dtype=torch.float64)
        return memory

    def change_plan(self, state: State) -> None:
        self._forget_absent(state)
        session, anchor_KL = state.resource(Session), state.memory[self.name]["anchor"]
        # Decided before the step's plan: the freeze holds from this step on.
        if state.step in moments(state.total_steps, count=self.profiles):
            session.notes.decisions += self._decide(state, session)
        if anchor_KL.isfinite().any():
            layers = layers_seen(state)
            frozen = {
                path: _chosen(layers, row) for path, row in zip(session.classes, anchor_KL.isfinite(), strict=True)
            }
            state.shares = tuple(deny(share, frozen.get(share.name, ())) for share in state.shares)

    def neutral(self) -> Self:
        return replace(self, start=1.0)  # no class is done before the end

    def _forget_absent(self, state: State) -> None:
        """Forget absent classes, as a run that never had them would.

        A deletion continues from a state of a run that had them, and begins with exactly that state, since it is the
        one on record; so it is changed here, in the first step.
        """
        session, memory = state.resource(Session), state.memory[self.name]
        gone = [index for index, path in enumerate(session.classes) if path in session.absent]
        memory["history"][:, gone] = torch.nan
        memory["anchor"][gone] = torch.nan
        if self.targeted:
            memory["rule"][gone] = torch.nan

    def _decide(self, state: State, session: Session) -> list[DecisionNote]:
        """Measure the probes, freeze and open layers, and return a note for each class and action."""
        # --- the new profile ---
        history_HKL, anchor_KL = state.memory[self.name]["history"], state.memory[self.name]["anchor"]
        layers, seen = layers_seen(state), self._outputs(state, session)
        now_KL = self._entropies(session, layers, seen)
        history_HKL.copy_(torch.cat([history_HKL[1:], now_KL[None]]))
        # --- candidates, K L each ---
        done = state.progress >= self.start and (not self.condition or self.condition in session.conditions)
        frozen, none = anchor_KL.isfinite(), torch.zeros_like(anchor_KL, dtype=torch.bool)
        drifted = (now_KL - anchor_KL).abs() > self.drift
        settled = has_settled(history_HKL, within=self.settled) & ~frozen & _admitted(state, session, layers)
        settled = settled if done else none
        # Reading other classes' probes is a channel from them: they are read only when a decision depends on them.
        asks = self.targeted and done and bool((settled | frozen).any())
        target = self._target(state, session, layers, seen) if asks else None
        left = frozen & ~drifted & target.left if target else none
        reopened = none if done else frozen & ~drifted
        freezing = settled & target.learned if target else settled
        # --- decisions; for each class the ledger has them in this order ---
        since_2KL = torch.stack([anchor_KL, now_KL])
        decided = (
            ("freeze", "settled", freezing, history_HKL, target),
            ("override", "target", settled & ~freezing, history_HKL, target),
            ("override", "target", left, since_2KL, target),
            ("override", "drifted", drifted, since_2KL, None),
            ("re-open", "policy", reopened, since_2KL, None),
        )
        notes = [
            self._note(action, rule, index, session, layers, where[index], numbers[:, index, where[index]], by)
            for index in range(len(session.classes))
            for action, rule, where, numbers, by in decided
            if where[index].any()
        ]
        # --- the new state ---
        anchor_KL[freezing] = now_KL[freezing]
        anchor_KL[drifted | left | reopened] = torch.nan
        history_HKL[:, drifted | left] = torch.nan  # settling starts again
        if self.targeted:
            self._keep_rules(state, session, layers, seen, freezing, gone=drifted | left | reopened)
        return notes

    def _note(
        self,
        action: str,
        rule: str,
        index: int,
        session: Session,
        layers: Sequence[Leaf],
        where_L: Tensor,
        numbers: Tensor,
        target: Target | None,
    ) -> DecisionNote:
        """Return a decision about a class in these layers.

        `numbers` has a column for each layer. With a `target` the probes of all classes decided, and each has its part
        in the evidence; its layout is in the module's docstring.
        """
        path, evidence = session.classes[index], {}
        for place, other in enumerate(session.classes):
            parts = [numbers.T] if other == path else []
            if target is not None and other not in session.absent:
                parts += [target.counts[where_L, place], target.kept[where_L, index, place, None]]
            if parts:
                evidence[other] = torch.cat(parts, dim=1).contiguous().numpy().astype("<f8").tobytes()
        names = ("start", "settled", "patience", "drift")
        wanted = dict(zip(("told_apart_from", "told_apart_to"), self.told_apart, strict=True)) if target else {}
        return DecisionNote(
            action=action,
            rule=rule,
            parameters={name: getattr(self, name) for name in names} | wanted,
            subjects=(path,),
            layers=tuple(leaf.name for leaf in _chosen(layers, where_L)),
            evidence=evidence,
        )

    def _outputs(self, state: State, session: Session, *, probes: int | None = None) -> dict[str, dict[str, Tensor]]:
        """Return every layer's outputs for the probes of each class that is not absent."""
        chosen = choose_probes(state, count=probes or self.probes)
        present = [path for path in session.classes if path not in session.absent]
        return {path: layer_outputs(state, chosen, path) for path in present}

    def _entropies(self, session: Session, layers: Sequence[Leaf], seen: dict[str, dict[str, Tensor]]) -> Tensor:
        """Return the entropy of every layer on every class's own probes, K L; NaN for classes that are absent."""
        measured = torch.full((len(session.classes), len(layers)), torch.nan, dtype=torch.float64)
        for path, outputs in seen.items():
            entropies = [spectrum(outputs[leaf.name]).entropy for leaf in layers]
            measured[session.classes.index(path)] = torch.tensor(entropies, dtype=torch.float64)
        return measured

    def _width(self, state: State, session: Session) -> int:
        """Return the largest number of outputs that the probe uses in a layer."""
        # Two probes are enough to see the shapes; the memory of the rules needs them before training.
        seen = self._outputs(state, session, probes=2)
        widths = [rows.shape[1] for outputs in seen.values() for rows in outputs.values()]
        return min(MAX_DIMENSIONS, max(widths, default=1))

    def _target(
        self, state: State, session: Session, layers: Sequence[Leaf], seen: dict[str, dict[str, Tensor]]
    ) -> Target:
        """Compare all classes' probes with the target."""
        K, L = len(session.classes), len(layers)
        rules = state.memory[self.name]["rule"]
        learned, left = torch.zeros(K, L, dtype=torch.bool), torch.zeros(K, L, dtype=torch.bool)
        counts = torch.zeros(L, K, K, dtype=torch.float64)
        kept = torch.full((L, K, K), -1.0, dtype=torch.float64)
        places = [session.classes.index(path) for path in seen]
        for at, leaf in enumerate(layers):
            rows, labels = _rows_of(leaf, seen)
            if len(seen) > 1:
                draws = stream(state.seed, "linear probe", leaf.name, state.step)
                guesses = probe(rows, labels, permutations=0, draws=draws).counts
                counts[at][np.ix_(places, places)] = torch.from_numpy(guesses).double()
            for index in places:
                rule = rules[index, at]
                if rule.isfinite().all():
                    kept[at, index, places] = _right(state, leaf, rule, rows, labels, places.index(index))
                told = told_of(counts[at].numpy().astype(np.int64), index)
                learned[index, at] = told is not None and self.told_apart[0] <= told.accuracy <= self.told_apart[1]
                left[index, at] = self._has_left(told, counts[at].sum(1), kept[at, index], index, places)
        return Target(learned=learned, left=left, counts=counts, kept=kept)

    def _has_left(self, told: Told | None, sizes_K: Tensor, kept_K: Tensor, index: int, places: Sequence[int]) -> bool:
        """Return whether a frozen layer is no longer within the target."""
        if told is None:  # no other class is left to tell it from
            return True
        # The rule from the freeze: its balanced accuracy, with all other classes weighed alike.
        shares_K = kept_K / sizes_K.clamp(min=1)
        others = [place for place in places if place != index]
        served = kept_K[index] < 0 or float(shares_K[index] + shares_K[others].mean()) / 2 >= self.told_apart[0]
        return told.high < self.told_apart[0] or told.low > self.told_apart[1] or not served

    def _keep_rules(
        self,
        state: State,
        session: Session,
        layers: Sequence[Leaf],
        seen: dict[str, dict[str, Tensor]],
        freezing_KL: Tensor,
        *,
        gone: Tensor,
    ) -> None:
        """Fit a rule to each layer that was just frozen, and forget those of layers that are open again."""
        rules, present = state.memory[self.name]["rule"], list(seen)
        rules[gone] = torch.nan
        for index, at in freezing_KL.nonzero().tolist():
            rows, labels = _rows_of(layers[at], seen)
            draws = stream(state.seed, "frozen rule", layers[at].name)
            rule = fit(rows, labels, present.index(session.classes[index]), draws=draws)
            # Weights first and the constant last: layers with fewer outputs have zeros between them.
            rules[index, at] = 0.0
            rules[index, at, : len(rule) - 1], rules[index, at, -1] = rule[:-1], rule[-1]


def _rows_of(leaf: Leaf, seen: dict[str, dict[str, Tensor]]) -> tuple[Tensor, np.ndarray]:
    """Return a layer's outputs for all probes, and their classes as indices into `seen`."""
    rows = of_one_width([outputs[leaf.name] for outputs in seen.values()])
    return torch.cat(rows), np.repeat(range(len(rows)), [len(row) for row in rows])


def _right(state: State, leaf: Leaf, rule: Tensor, rows: Tensor, labels: np.ndarray, place: int) -> Tensor:
    """Return how many probes of each class the rule gets right."""
    width = min(MAX_DIMENSIONS, rows.shape[1]) + 1
    taken = recognised(torch.cat([rule[:width], rule[-1:]]), rows, draws=stream(state.seed, "frozen rule", leaf.name))
    right = taken == (labels == place)
    return torch.from_numpy(np.bincount(labels, weights=right, minlength=labels.max() + 1))


def _chosen(layers: Sequence[Leaf], where_L: Tensor) -> list[Leaf]:
    """Return the layers where this is true."""
    return [leaf for leaf, here in zip(layers, where_L.tolist(), strict=True) if here]


def _admitted(state: State, session: Session, layers: Sequence[Leaf]) -> Tensor:
    """Return where the policy admits the class to the layer now, K L: elsewhere there is nothing to freeze."""
    if not state.admission:
        return torch.ones(len(session.classes), len(layers), dtype=torch.bool)
    codes = [{code for name in leaf.parameters for code in state.admission.get(name, ())} for leaf in layers]
    return torch.tensor([[session.codes[path] in admitted for admitted in codes] for path in session.classes])

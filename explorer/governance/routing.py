"""Routing: the signed policy, step by step, as the tensors that each class of examples may change.

The policy's weights for the current phase narrow every share of a step. Its gradients are computed only for the
parameters of admitted layers (autograd prunes the rest, so denying saves work), times the weight where that is a
fraction. The buffers of denied layers are restored after its passes. A sealed region takes part in its owner's forward
pass and in no other. A tensor that no class of a step may change has no gradient, and the optimiser leaves it exactly
as it was. fp16 is refused: its loss scale is common to all classes, so that the overflows of one would change how the
gradients of the others are rounded.

Cloud et al., "Gradient Routing", 2024, arXiv:2410.04332.

**Routing by example.** Where the rules in force tell the examples of a class apart, its rows are scored when they are
read (`explorer.governance.probes`), ranked among themselves (`explorer.provenance.regions`), and each band of them is a
forward and backward pass of its own, for the gradients of the layers that the policy admits it to. Bands with the same
grant are one pass. The class stays one share: its gradients are summed before they are weighted and recorded, the loss
is divided by the size of the whole batch, and no other class's step changes by one bit.

The passes are noted for the ledger as they happened (`explorer.entries.slots`).

Shapes: N rows of the share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from explorer.engine.averages import with_statistics
from explorer.engine.method import Kind, Method, Planned
from explorer.engine.state import Part, Share, State
from explorer.entries.kinds import Traits
from explorer.entries.slots import NONE, RULE, Chosen, encode_chosen
from explorer.errors import RecipeError, unknown
from explorer.governance.layers import GovernedLayer, governed_layers
from explorer.governance.probes import scores
from explorer.governance.region_modules import Switch, seal
from explorer.governance.shared_state import DecisionNote, Session
from explorer.provenance import routing_weights as policies
from explorer.provenance.findings import void
from explorer.provenance.regions import Band, Layer, placed, scores_of
from explorer.provenance.routing_weights import Admission, Admissions, Banded
from explorer.provenance.spellings import covers
from explorer.provenance.tag_attestation import Absent

# --- by example ---


@dataclass(frozen=True, kw_only=True, slots=True)
class BandGrant:
    """Tensors that the rows of some bands may change: a part of their class's grant."""

    bands: frozenset[int]  # places among the class's
    parameters: frozenset[str]
    buffers: frozenset[str]
    factors: Mapping[str, float]  # of parameters, where the band's weight is less than the class's largest


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ByExample:
    """Division of the rows of one class in one phase: the engine asks for it once they are read."""

    bands: tuple[Band, ...]
    grants: tuple[BandGrant, ...]
    layers: tuple[GovernedLayer, ...]

    def __call__(self, state: State) -> tuple[Part, ...]:
        """Return the parts of the share, in the order of their first band."""
        assert state.share is not None
        where_N = placed(self.bands, self._scores(state))
        return tuple(
            Part(
                slots=state.share.slots[np.isin(where_N, sorted(grant.bands))],
                parameters=grant.parameters,
                buffers=grant.buffers,
                factors=grant.factors,
            )
            for grant in self.grants
        )

    def note(self, state: State) -> DecisionNote:
        """Return the note about the share's passes, after they were made: its slots and tensors are theirs, not the
        plan's."""
        assert state.share is not None
        path, slots = state.share.name, state.share.slots
        kinds = list(dict.fromkeys(part.parameters | part.buffers for part in state.passed))
        taken = np.full(len(slots), NONE, np.uint8)
        for part in state.passed:
            taken[np.isin(slots, part.slots)] = kinds.index(part.parameters | part.buffers)
        tensors = [{*layer.parameters, *layer.buffers} for layer in self.layers]
        flags = np.array([[not kind.isdisjoint(tensor) for tensor in tensors] for kind in kinds], np.bool_)
        known = state.resource(Session).notes.scores.pop(path)
        chosen = Chosen(scores=known, passes=flags.reshape(len(kinds), len(self.layers)), taken=taken)
        return DecisionNote(
            action="selection",
            rule=RULE,
            parameters={},
            subjects=(path,),
            layers=(),
            evidence={path: encode_chosen(chosen)},
        )

    def _scores(self, state: State) -> dict[str, NDArray[np.float32]]:
        """Return the scores of the rows, kept for the note."""
        assert state.share is not None
        names = scores_of(self.bands)
        scored = {name: score.cpu().numpy().astype(np.float32) for name, score in scores(state, *names).items()}
        state.resource(Session).notes.scores[state.share.name] = np.stack([scored[name] for name in names])
        return scored


def grouped(bands: Sequence[BandGrant]) -> tuple[BandGrant, ...]:
    """Return the grants of single bands, with equal ones merged: each grant is a pass."""
    groups: dict[tuple[frozenset[str], frozenset[str], tuple[tuple[str, float], ...]], frozenset[int]] = {}
    for band in bands:
        key = band.parameters, band.buffers, tuple(sorted(band.factors.items()))
        groups[key] = groups.get(key, frozenset()) | band.bands
    return tuple(
        BandGrant(bands=places, parameters=parameters, buffers=buffers, factors=dict(factors))
        for (parameters, buffers, factors), places in groups.items()
    )


# --- by class ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """Tensors that one class may change in one phase, by name."""

    parameters: frozenset[str]
    weights: Mapping[str, float]  # of tensors, where it is a fraction
    buffers: frozenset[str]
    regions: frozenset[str]
    divide: ByExample | None = None  # how its examples are told apart; None: they all have the whole grant


NOTHING = Grant(parameters=frozenset(), weights={}, buffers=frozenset(), regions=frozenset())


@dataclass(frozen=True, kw_only=True, slots=True)
class Grants:
    """Grants of all classes in one phase."""

    admission: Admission
    of: Mapping[str, Grant]  # by class path
    admitted: dict[str, frozenset[int]]  # by parameter: the codes of the classes that may change it


class Router:
    """A policy compiled for the layers of one model."""

    def __init__(
        self,
        routing: policies.Routing,
        *,
        classes: Sequence[str],
        codes: Mapping[str, int],
        layers: Sequence[GovernedLayer],
    ) -> None:
        self._routing, self._codes, self._layers = routing, {class_: codes[class_] for class_ in classes}, tuple(layers)
        self._admissions = Admissions(routing, classes=classes, layers=[layer.layer for layer in layers])
        self._known: dict[Admission, Grants] = {}

    def at(self, progress: float, conditions: frozenset[str]) -> Grants:
        """Return the grants in force. They do not depend on which classes have examples in the batch."""
        # Compiled once for each admission table: most steps of a phase share one.
        admission = self._admissions.at(progress, conditions)
        if admission not in self._known:
            self._known[admission] = self._compiled(admission)
        return self._known[admission]

    def _compiled(self, admission: Admission) -> Grants:
        of = {path: self._grant(path, admission) for path in self._codes}
        admitted = {
            name: frozenset(self._codes[path] for path, grant in of.items() if name in grant.parameters)
            for layer in self._layers
            for name in layer.parameters
        }
        return Grants(admission=admission, of=of, admitted=admitted)

    def _grant(self, class_: str, admission: Admission) -> Grant:
        row = admission.row(class_)
        admitted = [layer for layer in self._layers if row[layer.layer.name] > 0]
        return Grant(
            parameters=frozenset(name for layer in admitted for name in layer.parameters),
            weights={
                name: row[layer.layer.name]
                for layer in admitted
                for name in (*layer.parameters, *layer.buffers)
                if row[layer.layer.name] != 1
            },
            buffers=frozenset(name for layer in admitted for name in layer.buffers),
            regions=frozenset(region.name for region in self._routing.policy.sealed if covers(region.branch, class_)),
            divide=self._divide(row, admission.by_example[class_]) if class_ in admission.by_example else None,
        )

    def _divide(self, row: Mapping[str, float], banded: Banded) -> ByExample:
        """Return the grants of a class's bands, as parts of the class's grant."""
        grants = []
        for place, weights in enumerate(banded.weights.tolist()):
            admitted = [(layer, own) for layer, own in zip(self._layers, weights, strict=True) if own > 0]
            # The class's weight multiplies the sum of its gradients, so a band's own weight is a factor relative to it.
            factors = {
                name: own / row[layer.layer.name]
                for layer, own in admitted
                for name in layer.parameters
                if own != row[layer.layer.name]
            }
            grants.append(
                BandGrant(
                    bands=frozenset({place}),
                    parameters=frozenset(name for layer, _ in admitted for name in layer.parameters),
                    buffers=frozenset(name for layer, _ in admitted for name in layer.buffers),
                    factors=factors,
                )
            )
        return ByExample(bands=banded.bands, grants=grouped(grants), layers=self._layers)


def narrowed(share: Share, grant: Grant) -> Share:
    """Return the share, restricted to the grant of its class."""
    parameters, buffers = share.parameters & grant.parameters, share.buffers & grant.buffers
    fractions = (parameters | buffers) & (grant.weights.keys() | share.weights.keys())
    return replace(
        share,
        parameters=parameters,
        weights={name: grant.weights.get(name, 1.0) * share.weights.get(name, 1.0) for name in fractions},
        buffers=buffers,
        regions=grant.regions,
        divide=grant.divide,
    )


def present(share: Share, examples: NDArray[np.int64], gone: NDArray[np.bool_] | None) -> Share:
    """Return the share without the slots of examples that are left out, which are not read; `gone` is by number of the
    example."""
    if gone is None:
        return share
    left_out = gone[examples[share.slots]]
    return replace(share, slots=share.slots[~left_out]) if left_out.any() else share


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing(Method):
    """Let each class of examples train the layers that the policy admits it to, and no others.

    The speed of a step depends on the policy, which a recipe only names: profiles treat all steps as equal.
    """

    name: ClassVar[str] = "routing"
    kind: ClassVar[Kind] = Kind.PLAN
    summary: ClassVar[str] = "Lets each class of data train only the layers that the signed policy admits it to."
    source: ClassVar[str] = "Cloud et al. 2024, arXiv:2410.04332"
    formula: ClassVar[str] = (
        "gradient of a tensor = sum over classes c of w(c, phase, layer) G_c, w in [0, 1] from the policy; where w is 0"
        " there is no gradient at all"
    )
    changes: ClassVar[str] = "which classes may train which layers"
    needs: ClassVar[str] = "tagged examples and a signed policy that names layers of the model"
    traits: ClassVar[Traits] = Traits(remembers="classes")
    routing: ClassVar[str] = "This method routes: weights 0 and 1 are exact, fractions are attenuation."

    policy: Annotated[str, Field(min_length=1, max_length=64, description="name of the policy")]
    without: Annotated[
        tuple[str, ...], Field(max_length=1000, description="classes whose places in the batches stay empty")
    ] = ()
    without_authorities: Annotated[
        tuple[str, ...], Field(max_length=1000, description="authorities for whose examples it is so")
    ] = ()
    without_records: Annotated[
        tuple[int, ...], Field(max_length=100_000, description="rows of the tag table for which it is so")
    ] = ()

    @property
    def absent(self) -> Absent:
        """Return the classes and examples that are left out."""
        return Absent(classes=self.without, authorities=self.without_authorities, records=self.without_records)

    def check(self, planned: Planned) -> None:
        if planned.precision == "fp16":
            raise RecipeError(
                "found precision fp16: its loss scale follows from the gradients of all classes, so that one class"
                " would act on layers that it is denied: expected bf16, tf32 or fp32"
            )

    def any_length(self) -> bool:
        return True  # a policy that looks at progress is refused where runs share steps (training/branching.py)

    def warnings(self, planned: Planned, model: nn.Module) -> list[str]:
        if not (layers := with_statistics(model)):
            return []
        return [
            f"The model has batch normalisation ({len(layers)} layers), which normalises each class by itself: where"
            " classes have different labels, accuracy can fall to chance. Group or layer normalisation does not mix"
            " examples."
        ]

    def change_model(self, state: State) -> None:
        session, policy = state.resource(Session), _policy(state)
        for path in self.without:
            if path not in session.codes:
                raise RecipeError(f"routing: without: {unknown('class', path, session.codes)}")
        if session.gone is None and (self.without_authorities or self.without_records):
            raise RecipeError("routing: without_authorities, without_records: this run was not checked for them")
        sealed = seal(state.model, policy.policy.sealed, seed=state.seed)
        state.sealed |= sealed.parameters
        state.resources[Switch] = sealed.switch

    def memory(self, state: State) -> dict[str, Tensor]:
        """Compile the policy, now that the model's layers are known. There is nothing to remember."""
        session, policy = state.resource(Session), _policy(state)
        layers = governed_layers(state.model, state.layers, policy.policy.sealed)
        session.layers = tuple(layer.layer for layer in layers)
        _refuse_void(policy, session.layers)
        state.resources[Router] = Router(policy, classes=session.classes, codes=session.codes, layers=layers)
        state.resource(Switch).on = frozenset()
        return {}

    def change_plan(self, state: State) -> None:
        session = state.resource(Session)
        grants = state.resource(Router).at(state.progress, frozenset(session.conditions))
        session.notes.admission = grants.admission
        state.admission = grants.admitted
        # Counted before examples are left out: the ledger of a run without them has the same counts.
        session.notes.examples = {share.name: len(share.slots) for share in state.shares}
        absent = session.absent.union(self.without)
        here = {path: grant for path, grant in grants.of.items() if path not in absent}
        shares = [present(share, state.examples, session.gone) for share in state.shares]
        state.shares = tuple(
            narrowed(share, here.get(share.name, NOTHING) if len(share.slots) else NOTHING) for share in shares
        )

    def change_gradients(self, state: State) -> None:
        """Note the passes of a class whose examples are told apart."""
        assert state.share is not None
        if isinstance(state.share.divide, ByExample):
            state.resource(Session).notes.decisions.append(state.share.divide.note(state))

    def before_forward(self, state: State) -> None:
        assert state.share is not None
        state.resource(Switch).on = state.share.regions

    def after_forward(self, state: State) -> None:
        state.resource(Switch).on = frozenset()


def _refuse_void(policy: policies.Routing, layers: Sequence[Layer]) -> None:
    """Raise `RecipeError` for rules and regions that do not fit this model."""
    first, *rest = void(policy, layers) or (None,)
    if first is not None:
        more = f" (and {len(rest)} more)" if rest else ""
        raise RecipeError(
            f"policy {policy.policy.name!r}: {first}{more}; `explorer policy check` shows what each rule decides"
        )


def _policy(state: State) -> policies.Routing:
    policy = state.resource(Session).routing
    if policy is None:
        raise RecipeError("routing: this run has no verified policy")
    return policy

"""Contributions in the loop: what is recorded is what happened, and looking changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.audit.reconstructible import impossible
from explorer.data.batches import Typing
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import AdamWSpec, SGDSpec
from explorer.engine.state import State
from explorer.entries.numbers import StepNumbers, encode_joint, share_terms
from explorer.errors import RecipeError
from explorer.governance import METHODS
from explorer.governance.contributions import Contributions, chosen, lay_out, projections, sketch
from explorer.governance.shared_state import Session
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.sam import SAM
from explorer.provenance.policy import Rule
from explorer.recipes.choice import choose, written
from tests.data_for_tests import noise
from tests.governance.governed import (
    CODES,
    EXAMPLES,
    HALF_DEPTH,
    PRESENT,
    SEALED,
    differing,
    everything,
    governed_loop,
    typing,
)
from tests.loop_for_tests import noise_loop, small_net
from tests.provenance.drafts_for_tests import routing

ATTENUATED = routing(
    Rule(classes=("open/bsd",), depth=(0.0, 0.5), weight=0.0),
    Rule(classes=("open/mit",), weight=0.25),
    Rule(classes=("*",), weight=1.0),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness(Method):
    """Keeps what contributions are made of, without their help."""

    name: ClassVar[str] = "a witness"
    kind: ClassVar[Kind] = Kind.RECORD
    summary: ClassVar[str] = ""
    source: ClassVar[str] = "no paper"

    gradients: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # weighted, by class
    parameters: dict[str, Tensor] = field(default_factory=dict)  # as they were before the update

    def before_step(self, state: State) -> None:
        self.gradients.clear()

    def change_gradients(self, state: State) -> None:
        assert state.share is not None
        weights = state.share.weights
        self.gradients[state.share.name] = {n: g * weights.get(n, 1.0) for n, g in state.gradients.items()}

    def before_update(self, state: State) -> None:
        for gradients in self.gradients.values():
            for name in gradients:
                gradients[name] = gradients[name] * state.scales.get(name, 1.0)
        self.parameters.update({name: p.detach().clone() for name, p in state.model.named_parameters()})


def numbers_of(loop: Loop) -> StepNumbers:
    found = loop.state.resource(Session).notes.numbers
    assert found is not None
    return found


def watched(policy: Any = HALF_DEPTH, methods: Sequence[Method] = (), **setting: Any) -> tuple[Loop, Witness]:
    witness = Witness()
    return governed_loop(policy, [Contributions(), witness, *methods], **setting), witness


def by_definition(loop: Loop, witness: Witness) -> tuple[Tensor, Tensor]:
    """The weighted gradients, layer by layer, k L P, and the update, L P, in float64, zeros around them."""
    model, layers = dict(loop.setting.model.named_parameters()), [layer.name for layer in session_of(loop).layers]
    classes = [path for path in session_of(loop).classes if path in witness.gradients]
    found = torch.zeros(len(classes) + 1, len(layers), sum(p.numel() for p in model.values()), dtype=torch.float64)
    end = 0
    for name, parameter in model.items():
        module, adapter, rest = name.partition(".@")
        layer = layers.index(f"{module}@{rest.partition('.')[0]}" if adapter else module.rpartition(".")[0])
        place = slice(end, end := end + parameter.numel())
        for row, path in enumerate(classes):
            if name in witness.gradients[path]:
                found[row, layer, place] = witness.gradients[path][name].flatten().double()
        found[-1, layer, place] = (parameter.detach() - witness.parameters[name]).flatten().double()
    return found[:-1], found[-1]


def session_of(loop: Loop) -> Session:
    return loop.state.resource(Session)


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"policy": ATTENUATED},
    "clipping": {"policy": ATTENUATED, "methods": [GradientClipping(threshold=0.01)]},
    "clipping of values": {"methods": [GradientClipping(clipping="value", threshold=1e-3)]},
    "clipping of units": {"methods": [GradientClipping(clipping="adaptive", threshold=1e-3)]},
    "accumulation": {"microbatch_size": 2},
    "bf16": {"precision": "bf16"},
    "sealed": {"policy": SEALED, "methods": [GradientClipping(threshold=0.01)]},
    "sam": {"methods": [SAM(rho=0.5)]},
    "adamw": {"optimizer": AdamWSpec(lr=0.01, weight_decay=0.1)},
    "absent": {"without": ("open-data",)},
    "channels_last": {"model": small_net("group").to(memory_format=torch.channels_last)},  # pyright: ignore
}


@pytest.mark.parametrize("name", SETTINGS)
def test_numbers_are_what_they_are_said_to_be(name: str) -> None:
    loop, witness = watched(**SETTINGS[name])
    for _ in range(3):
        loop.step()
        numbers = numbers_of(loop)
        gradients, update = by_definition(loop, witness)
        products = torch.einsum("clp,dlp->lcd", gradients, gradients)
        scale = products.diagonal(dim1=1, dim2=2).sqrt()
        assert_close(numbers.gram, products, scale[:, :, None] * scale[:, None, :])
        assert_close(numbers.dots, torch.einsum("clp,lp->cl", gradients, update), scale.T * update.norm(dim=1))
        assert_close(numbers.updates, update.square().sum(1), update.square().sum(1))
        assert_close(numbers.weights * numbers.norms, gradients.norm(dim=2), gradients.norm(dim=2))
        numerators, denominators = share_terms(numbers.gram)
        assert np.abs((numerators / denominators).sum(0) - 1)[denominators > 0].max() < 1e-6
        total = gradients.sum(0)
        assert_close(numerators, torch.einsum("clp,lp->cl", gradients, total), scale.T * total.norm(dim=1))


def assert_close(found: np.ndarray, expected: Tensor, scale: Tensor) -> None:
    """Equal to single precision, measured by `scale`; exactly where that is zero."""
    assert found.shape == tuple(expected.shape)
    assert (np.abs(found - expected.numpy()) <= 3e-6 * scale.numpy()).all()


def test_who_was_denied_has_exact_zeros_and_weights_say_so() -> None:
    loop, _ = watched(ATTENUATED)
    loop.step()
    numbers = numbers_of(loop)
    assert numbers.classes == (0, 1, 2, 3)
    assert numbers.weights[1].tolist() == [0, 0, 1, 1] and numbers.weights[2].tolist() == [0.25] * 4
    assert not numbers.norms[1, :2].any() and not numbers.dots[1, :2].any() and not numbers.gram[:2, 1].any()
    assert numbers.norms[1, 2:].all() and numbers.norms[2].all()
    without, _ = watched(routing(Rule(classes=("*",), weight=1.0)))  # the control: admitted, it is not zero
    without.step()
    assert numbers_of(without).norms[1, :2].all()


def test_a_class_without_any_admission_has_no_numbers() -> None:
    loop, _ = watched(SEALED)  # open-data is denied everywhere
    loop.step()
    assert numbers_of(loop).classes == (1, 2, 3)
    sealed = [layer.name for layer in session_of(loop).layers].index("7@customer")
    assert numbers_of(loop).weights[:, sealed].tolist() == [0, 0, 1]


def test_sketches_are_of_the_weighted_gradients() -> None:
    loop, witness = watched(ATTENUATED)
    loop.step()
    model = dict(loop.setting.model.named_parameters())
    layout = lay_out({place: {n: p for n, p in model.items() if n.startswith(place)} for place in "0137"})
    rows = torch.zeros(4, layout.width)
    for row, path in zip(rows, PRESENT, strict=True):
        for name, gradient in witness.gradients[path].items():
            layout.views(row)[name].copy_(gradient)
    expected = sketch(rows, layout, projections(loop.state.seed, layout, like=rows)).numpy()
    found = session_of(loop).notes.sketches
    assert found is not None and found.dtype == np.float32
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-7 * np.abs(expected).max())
    assert not found[1, :2].any()


def test_numbers_between_the_exact_ones_are_those_of_sketches() -> None:
    """Of the same gradients: looking less often changes nothing either."""
    exact, some = (governed_loop(ATTENUATED, [Contributions(every=every)]) for every in (1, 3))
    for step in range(5):
        exact.step()
        some.step()
        known, numbers, notes = numbers_of(exact), numbers_of(some), session_of(some).notes
        assert notes.estimated == (step % 3 != 0) and not session_of(exact).notes.estimated
        assert notes.sketches is not None and numbers.classes == known.classes
        assert np.array_equal(numbers.weights, known.weights)
        if not notes.estimated:
            assert encode_joint(numbers) == encode_joint(known)
            continue
        products = np.einsum("cls,dls->lcd", notes.sketches, notes.sketches)
        assert np.allclose(numbers.gram, products, rtol=1e-4, atol=1e-6 * products.max())
        assert not numbers.norms[1, :2].any() and not numbers.dots[1, :2].any()  # denied: exactly nothing
        assert not np.allclose(numbers.gram, known.gram, rtol=1e-2)  # estimates, after all
        assert not len(impossible(numbers))
        shares, known_shares = (np.divide(*share_terms(gram)) for gram in (numbers.gram, known.gram))
        assert np.abs(shares - known_shares).max() < 0.5
    assert not differing(everything(exact), everything(some))


@pytest.mark.parametrize("settings", [{"sketch": False}, {"exact": ("*",)}])
def test_estimates_need_sketches_and_an_update_in_one_piece(settings: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"found every 2 with.*: expected 1"):
        Contributions(every=2, **settings)


def test_recipes_that_say_nothing_of_every_are_what_they_were() -> None:
    assert written(Contributions()) == {"contributions": {"exact": [], "sketch": True}}
    assert written(Contributions(every=4)) == {"contributions": {"exact": [], "sketch": True, "every": 4}}


def test_without_sketches() -> None:
    loop = governed_loop(methods=[Contributions(sketch=False)])
    loop.step()
    assert session_of(loop).notes.sketches is None and numbers_of(loop).norms.all(1).any()


@pytest.mark.parametrize("method", [Contributions(), Contributions(exact=("*",))])
@pytest.mark.parametrize("policy", [HALF_DEPTH, SEALED])
def test_looking_changes_nothing(method: Method, policy: Any) -> None:
    clipping = GradientClipping(threshold=0.1)
    plain, looked_at = governed_loop(policy, [clipping]), governed_loop(policy, [clipping, method])
    for _ in range(4):
        assert plain.step() == looked_at.step()
    found = everything(looked_at)
    assert not differing(everything(plain), {n: t for n, t in found.items() if "memory/contributions" not in n})


def test_classes_without_a_policy() -> None:
    given = Session(classes=PRESENT, codes=CODES)
    dataset, resources = noise(train=EXAMPLES), {Session: given}
    loop = noise_loop(
        [Contributions()], model=small_net("group"), dataset=dataset, typing=typing(), resources=resources
    )
    loop.step()
    assert numbers_of(loop).classes == (0, 1, 2, 3) and (numbers_of(loop).weights == 1).all()
    assert [layer.name for layer in given.layers] == ["0", "1", "3", "7"]


def test_without_provenance_there_is_nothing_to_tell_apart() -> None:
    with pytest.raises(RecipeError, match="given no session"):
        noise_loop([Contributions()])


# Exact mode

OPTIMIZERS = {"sgd": SGDSpec(lr=0.05, weight_decay=0.1), "adamw": AdamWSpec(lr=0.005, weight_decay=0.1)}


def parts(loop: Loop) -> dict[str, Tensor]:
    memory = loop.state.memory["contributions"]
    return {n.removeprefix("displacements/"): t for n, t in memory.items() if n.startswith("displacements/")}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_parts_of_a_run_add_up_to_its_parameters(name: str) -> None:
    methods = [Contributions(exact=("*",)), GradientClipping(threshold=0.1)]
    loop = governed_loop(SEALED, methods, optimizer=OPTIMIZERS[name], total_steps=40, microbatch_size=2)
    for _ in range(40):
        loop.step()
    model = dict(loop.setting.model.named_parameters())
    assert parts(loop).keys() == model.keys()
    for parameter, displacements in parts(loop).items():
        theta = model[parameter].detach()
        assert float((displacements.sum(0) - theta).norm() / theta.norm()) < 1e-5
        sealed = ".@" in parameter
        moved = [bool(each.any()) for each in displacements[1:]]  # of PRESENT; open/bsd has the upper half
        lower = parameter[0] in "01"
        assert moved == ([False, False, False, True] if sealed else [False, not lower, True, False])


def test_the_exact_parts_of_an_update_add_up_with_the_decay() -> None:
    loop = governed_loop(methods=[Contributions(exact=("*",))], optimizer=SGDSpec(lr=0.1))
    for _ in range(3):
        loop.step()
        numbers = numbers_of(loop)
        assert numbers.exact is not None and not numbers.exact[1, :2].any()
        assert np.allclose(numbers.exact.sum(0), numbers.updates, rtol=1e-5)


def test_a_class_that_stays_away_goes_on_having_exact_numbers() -> None:
    codes = np.array([CODES[PRESENT[0 if n < 4 else 1 + n % 3]] for n in range(EXAMPLES)], dtype=np.int64)
    types = Typing(codes=codes, names={code: path for path, code in CODES.items()})
    loop = governed_loop(methods=[Contributions(exact=("*",))], typing=types, batch_size=6, optimizer=SGDSpec(lr=0.1))
    seen = []
    for _ in range(6):
        loop.step()
        numbers = numbers_of(loop)
        assert numbers.exact is not None
        assert np.allclose(numbers.exact.sum(0), numbers.updates, rtol=1e-5)
        present = any(share.name == PRESENT[0] for share in loop.state.shares)
        seen.append((present, 0 in numbers.classes))
        if seen[-1] == (False, True):
            assert not numbers.weights[0].any() and not numbers.norms[0].any() and numbers.exact[0].all()
    assert (False, True) in seen and (True, True) in seen
    assert seen[0] == (False, False)  # before its first step it has no part in anything


def test_exact_mode_resumes_bit_identically() -> None:
    def make() -> Loop:
        return governed_loop(SEALED, [Contributions(exact=("*",))], optimizer=OPTIMIZERS["adamw"])

    whole, resumed = make(), make()
    for _ in range(3):
        whole.step()
    resumed.restore(everything(whole), step=3)
    for _ in range(3):
        whole.step()
        resumed.step()
        one, other = numbers_of(whole), numbers_of(resumed)
        assert one.exact is not None and other.exact is not None
        assert one.exact.tobytes() == other.exact.tobytes() and one.gram.tobytes() == other.gram.tobytes()
    assert not differing(everything(whole), everything(resumed))


def test_exact_mode_in_some_layers() -> None:
    loop = governed_loop(SEALED, [Contributions(exact=("3", "7*"))])
    loop.step()
    assert {name.partition(".")[0] for name in parts(loop)} == {"3", "7"}
    exact = numbers_of(loop).exact
    assert exact is not None
    names = [layer.name for layer in session_of(loop).layers]
    assert np.isnan(exact).any(0).tolist() == [name not in ("3", "7", "7@customer") for name in names]


def test_the_layers_of_exact_mode() -> None:
    layers = ["embed", "blocks.0.up", "blocks.1.up", "blocks.0.up@customer"]
    assert chosen((), layers) == ()
    assert chosen(("*",), layers) == tuple(layers)
    assert chosen(("blocks.0.*", "embed"), layers) == ("embed", "blocks.0.up", "blocks.0.up@customer")
    with pytest.raises(RecipeError, match="exact: unknown layer 'embedd'; did you mean 'embed'"):
        chosen(("embedd",), layers)


def test_recipes_name_the_layers() -> None:
    written = {"contributions": {"exact": ["3", "7*"]}}
    assert choose(METHODS, written, kind="method", where="r") == Contributions(exact=("3", "7*"))


@pytest.mark.parametrize("exact", [True, "3", ["a b"]])
def test_recipes_name_nothing_else(exact: object) -> None:
    with pytest.raises(RecipeError, match=r"r\.contributions: exact"):
        choose(METHODS, {"contributions": {"exact": exact}}, kind="method", where="r")

"""A custom loop under the same policy: bit for bit what Explorer's loop does."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.method import HOOKS, Method
from explorer.engine.modules import initialise
from explorer.engine.optimizer import AdamWSpec, OptimizerSpec, SGDSpec, build_optimizer
from explorer.errors import RecipeError, TrainingError
from explorer.governance.custom_loop import CALLERS, Governed
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.governance.probes import Probes, layer_outputs
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.methods import METHODS
from explorer.methods.ema import EMA
from explorer.methods.factorize import Factorize
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.gyro_dropout import GyroDropout
from explorer.methods.random_subset import RandomSubset
from explorer.methods.sam import SAM
from explorer.provenance.policy import Rule
from explorer.provenance.regions import Examples
from explorer.provenance.routing_weights import Routing as Policy
from explorer.recipes.choice import choose
from tests.data_for_tests import noise
from tests.governance.governed import ADMIT_ALL, EXAMPLES, HALF_DEPTH, LOWER, governed_loop, session, typing
from tests.loop_for_tests import small_net
from tests.methods.samples import SAMPLES
from tests.provenance.drafts_for_tests import routing

STEPS = 6
DATA = noise(train=EXAMPLES)
PREPARE = DATA.preparation(torch.device("cpu"))


def governed(policy: Policy = HALF_DEPTH, *methods: Method, spec: OptimizerSpec | None = None) -> Governed:
    model = small_net("batch")
    initialise(model, seed=0)
    chosen = spec or SGDSpec(lr=0.1, weight_decay=0.01)
    return a_loop(model, build_optimizer(chosen, model.parameters()), policy, *methods)


def a_loop(
    model: nn.Module, optimizer: torch.optim.Optimizer, policy: Policy = HALF_DEPTH, *methods: Method
) -> Governed:
    return Governed(
        model.train(),
        optimizer,
        session=session(policy),
        examples=DATA.train,
        codes=typing().codes,
        methods=[Routing(policy="drawn"), *methods],
        steps=10,
        seed=0,
    )


def losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(PREPARE(inputs)), labels, reduction="none")


def number_of(inputs: Tensor) -> list[int]:
    """Which examples these are, by their content."""
    return [int((DATA.train.inputs == each).flatten(1).all(1).nonzero()) for each in inputs]


@pytest.mark.parametrize("spec", [SGDSpec(lr=0.1, weight_decay=0.01), AdamWSpec(lr=0.01, weight_decay=0.01)])
@pytest.mark.parametrize(
    "methods",
    [
        (),
        (GradientClipping(threshold=0.1),),
        (SAM(), EMA(half_life=0.5), GovernedSelectiveBackprop(start=0.0)),
        (RandomSubset(start=0.0, end=1.0, interrupt=0), GyroDropout(masks=4, together=2)),
    ],
    ids=["plain", "clipped", "two passes, an average, a choice", "a subset, masks"],
)
def test_the_same_bits_as_the_loop(spec: OptimizerSpec, methods: tuple[Method, ...]) -> None:
    """Parameters and BatchNorm's statistics, after several steps of the same examples."""
    loop = governed_loop(methods=list(methods), model=small_net("batch"), optimizer=spec)
    own = governed(HALF_DEPTH, *methods, spec=spec)
    for step in range(STEPS):
        numbers = loop.setting.batches.indices(step)
        expected = loop.step()
        found = own.step(numbers, losses)
        assert float(found) == float(expected)
    ours = own.state.model.state_dict()
    for name, tensor in loop.setting.model.state_dict().items():
        assert torch.equal(ours[name], tensor), name


def test_what_is_denied_stays_and_what_is_admitted_moves() -> None:
    """Half the depth is closed to `open/bsd`: a step of only that class leaves it bit for bit."""
    own = governed(HALF_DEPTH, spec=AdamWSpec(lr=0.01, weight_decay=0.1))
    everybody = np.arange(12)
    own.step(everybody, losses)
    before = {name: tensor.clone() for name, tensor in own.state.model.state_dict().items()}
    alone = np.flatnonzero(typing().codes == own.state.resource(Session).codes["open/bsd"])
    own.step(alone, losses)
    after = own.state.model.state_dict()
    still = {name.split(".")[0] for name, tensor in after.items() if torch.equal(tensor, before[name])}
    moved = {name.split(".")[0] for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert still == {"0", "1"} and moved == {"3", "7"}


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a mean": (
        lambda: (np.arange(12), lambda *given: losses(*given).mean()),
        r"found shape \(\), expected one",
    ),
    "no such example": (lambda: (np.array([3, 48]), losses), "found 3 to 48, expected 0 to 47"),
    "fractions": (lambda: (np.array([0.5]), losses), "found float64"),
    "none": (lambda: (np.array([], np.int64), losses), r"of shape \(0,\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_step_is_refused(name: str) -> None:
    (numbers, function), message = WRONG[name][0](), WRONG[name][1]
    with pytest.raises(TrainingError, match=message):
        governed().step(numbers, function)


def test_more_steps_than_announced_are_refused() -> None:
    """The policy speaks of shares of training: it has to know how long that is."""
    own = governed()
    for _ in range(10):
        own.step(np.arange(4), losses)
    with pytest.raises(TrainingError, match="step 11 of 10"):
        own.step(np.arange(4), losses)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_acts_or_is_refused_with_what_to_do(name: str) -> None:
    """None is taken and then does nothing: what defines a function that is never called is refused."""
    method = choose(METHODS, {name: SAMPLES[name].parameters}, kind="method", where="here")
    called = {*HOOKS, "neutral", "twin", "check", "warnings", "phase", "memory", "saving", "metrics", "log_weights"}
    called.add("any_length")  # which a sweep asks: a loop has one budget
    try:
        own = governed(HALF_DEPTH, method)
    except RecipeError as error:
        assert re.search(
            r"caller's part in a custom loop: |adds parameters|cannot be combined|found nothing", str(error)
        )
        return
    mine = {key for key, value in vars(type(method)).items() if callable(value) and not key.startswith("_")}
    assert mine <= called and mine.isdisjoint(CALLERS.keys() - {"change_batch"})
    own.step(np.arange(12), losses)


def test_a_method_that_adds_parameters_is_refused() -> None:
    """The caller's optimiser would not train them, and nothing would say so."""
    message = r"factorize adds parameters to the model, 3\.0\.weight the first.* \(`explorer methods factorize`\)"
    with pytest.raises(RecipeError, match=message):
        governed(HALF_DEPTH, Factorize(min_channels=8, convolution_rank=0.25))


def test_averaged_weights_are_evaluated_and_put_back() -> None:
    own = governed(HALF_DEPTH, EMA(half_life=0.5))
    with own.evaluating() as model:  # before the first step there is no average yet
        assert not model.training
    for _ in range(3):
        own.step(np.arange(12), losses)
    before = {name: tensor.clone() for name, tensor in own.state.model.state_dict().items()}
    average = own.state.memory["ema"]["average/7.weight"].clone()
    with own.evaluating() as model:
        assert not model.training and torch.equal(model.get_parameter("7.weight"), average)
        assert not torch.equal(average, before["7.weight"])
    assert own.state.model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in own.state.model.state_dict().items())


def test_layers_are_measured_as_in_the_loop() -> None:
    """Outputs for probes, by the losses of the step: the same bits as by the batches of a recipe."""
    loop, own = governed_loop(model=small_net("batch")), governed()
    own.step(np.arange(12), losses)
    loop.setting.model.load_state_dict(own.state.model.state_dict())
    for path in session(HALF_DEPTH).classes:
        numbers = np.flatnonzero(typing().codes == session(HALF_DEPTH).codes[path])
        probes = Probes(examples={path: numbers}, root="")
        expected, found = (layer_outputs(state, probes, path) for state in (loop.state, own.state))
        assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


class Shapes(nn.Module):
    """Layers whose outputs have the examples first, second, with their tokens, and not at all; on 48 numbers each."""

    def __init__(self, *, chosen: bool = False) -> None:
        super().__init__()
        self.rows, self.second, self.flat = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 7)
        self.positions, self.head, self.chosen = nn.Embedding(12, 7), nn.Linear(7, 3), chosen

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.second(self.rows(x.reshape(len(x), 12, 4)).transpose(0, 1))  # T B D, as of `nn.LSTM`
        flat = self.flat(tokens.transpose(0, 1).reshape(-1, 6)[: -1 if self.chosen else None])
        return self.head(flat[: 12 * len(x) // 12] + self.positions(torch.arange(12))[0])


def test_examples_are_in_any_dimension() -> None:
    """Twelve tokens and twelve examples: the shape alone would not tell which is which."""
    numbers = np.arange(12)
    model = Shapes()
    own = a_loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
    own.step(numbers, losses)
    found = layer_outputs(own.state, Probes(examples={"open/bsd": numbers}, root=""), "open/bsd")
    assert {name: tuple(rows.shape) for name, rows in found.items()} == {
        "rows": (12, 5), "second": (12, 6), "flat": (12, 7), "positions": (12, 7), "head": (12, 3),
    }  # fmt: skip
    with torch.no_grad():
        rows = model.rows(PREPARE(DATA.train.inputs[:12]).reshape(12, 12, 4))
        flat = model.flat(model.second(rows))
    assert torch.allclose(found["second"], model.second(rows).mean(1).double(), atol=1e-6)
    assert torch.allclose(found["flat"], flat.mean(1).double(), atol=1e-6)
    assert torch.equal(found["positions"][0], found["positions"][-1])


def test_outputs_that_are_not_of_examples_are_refused() -> None:
    model = Shapes(chosen=True)
    own = a_loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
    own.step(np.arange(12), losses)
    with pytest.raises(TrainingError, match=r"layer flat: found outputs of shape \(143, 7\) for 12 examples"):
        layer_outputs(own.state, Probes(examples={"open/bsd": np.arange(12)}, root=""), "open/bsd")


def test_what_the_caller_has_frozen_stays_frozen() -> None:
    """Parameters that require no gradient, and those that the optimiser does not have; their layer's buffers too."""
    for of_optimizer in (False, True):
        model = small_net("batch")
        initialise(model, seed=0)
        last = [p for name, p in model.named_parameters() if name.startswith("7.")]
        if not of_optimizer:
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name.startswith("7."))
        own = a_loop(model, torch.optim.AdamW(last if of_optimizer else model.parameters(), weight_decay=0.1))
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        required = [parameter.requires_grad for parameter in model.parameters()]
        own.step(np.arange(12), losses)
        moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
        assert moved and all(name.startswith("7.") for name in moved)
        assert required == [parameter.requires_grad for parameter in model.parameters()] or of_optimizer


def test_what_a_policy_denies_does_not_stay_frozen_afterwards() -> None:
    model = small_net("batch")
    own = a_loop(model, torch.optim.SGD(model.parameters(), lr=0.1))
    own.step(np.flatnonzero(typing().codes == own.state.resource(Session).codes["open/bsd"]), losses)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_class_denied_everywhere_is_not_even_read_to_meet_the_layers() -> None:
    """It is first in the batch; a class denied in some layers may be used to find them."""
    denied = Rule(classes=("open-data",), weight=0.0)
    shadowed = Rule(classes=("open-data",), depth=(0.0, 1.0), weight=1.0)
    own, seen = governed(routing(denied, shadowed, LOWER, ADMIT_ALL)), list[int]()

    def watched(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
        seen.extend(number_of(inputs))
        return losses(model, inputs, labels)

    types = typing()
    first = int(np.flatnonzero(types.codes == own.state.resource(Session).codes["open-data"])[0])
    with pytest.raises(TrainingError, match="no example that may train anything"):
        own.step(np.array([first]), watched)
    own.step(np.array([first, *range(12)]), watched)
    assert seen and "open-data" not in {types.names[types.codes[number]] for number in seen}


def test_buffers_are_put_back_when_a_loss_fails() -> None:
    """After the error is caught, the model is one that the denied class has not touched."""
    own = governed(routing(Rule(classes=("open/bsd",), depth=(0.5, 1.0), weight=1.0)))
    alone = np.flatnonzero(typing().codes == own.state.resource(Session).codes["open/bsd"])
    own.step(alone, losses)
    before = {name: buffer.clone() for name, buffer in own.state.model.named_buffers()}
    with pytest.raises(TrainingError, match="without a mean"):
        own.step(alone, lambda *given: losses(*given).mean())
    assert all(torch.equal(buffer, before[name]) for name, buffer in own.state.model.named_buffers())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_ends_the_run(value: float) -> None:
    own = governed()
    own.step(np.arange(12), losses)
    before = {name: parameter.clone() for name, parameter in own.state.model.named_parameters()}
    with pytest.raises(TrainingError, match=r"training diverged: the losses of class .* are (nan|inf) in step 2"):
        own.step(np.arange(12), lambda *given: losses(*given) * value)
    assert all(torch.equal(parameter, before[name]) for name, parameter in own.state.model.named_parameters())
    with pytest.raises(TrainingError, match="its ledger has no end"):
        own.finish()


def test_losses_that_lead_nowhere_are_refused() -> None:
    for function, message in (
        (lambda *given: losses(*given).detach(), "depend on no parameter that the class may train"),
        (lambda *given: losses(*given).long(), r"found torch\.int64, expected a tensor of floating"),
        (lambda model, inputs, labels: torch.ones(len(inputs)), "used no tensor of the model"),
    ):
        with pytest.raises(TrainingError, match=message):
            governed().step(np.arange(12), function)  # pyright: ignore


def test_an_optimiser_that_nobody_governs_is_refused() -> None:
    model, other = small_net("batch"), nn.Linear(2, 3)
    with pytest.raises(RecipeError, match=r"found 2 parameters that are not the model's, the first of shape \(3, 2\)"):
        a_loop(model, torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1))
    with pytest.raises(RecipeError, match="LBFGS takes the loss itself"):
        a_loop(model, torch.optim.LBFGS(model.parameters()))


WRAPPED: dict[str, tuple[str, Any]] = {
    "a scale of the losses": ("scaler", object()),
    "gradient accumulation over 4 steps": ("gradient_state", SimpleNamespace(num_steps=4)),
    "2 processes": ("accelerator_state", SimpleNamespace(num_processes=2)),
}


@pytest.mark.parametrize("what", WRAPPED)
def test_a_wrapper_that_makes_other_steps_is_refused(what: str) -> None:
    model = small_net("batch")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    setattr(optimizer, *WRAPPED[what])
    with pytest.raises(RecipeError, match=f"optimizer: SGD: found {what}"):
        a_loop(model, optimizer)


def test_a_policy_that_ranks_examples_by_entropy_is_refused() -> None:
    """Losses do not give it: with the weights of whole classes denied examples would train."""
    sure = Rule(classes=("open/bsd",), examples=Examples(entropy=(0.5, 1.0)), weight=0.0)
    with pytest.raises(RecipeError, match=r"rules\[0\].examples: found a rule that ranks examples by entropy"):
        governed(routing(sure, ADMIT_ALL))


def test_a_policy_that_ranks_examples_gives_the_same_bits_as_the_loop() -> None:
    """By loss: each band of ranks has a pass of its own, with methods that drop rows and pass twice."""
    hard = Rule(classes=("open/bsd",), examples=Examples(loss=(0.5, 1.0)), depth=(0.0, 0.5), weight=0.0)
    methods = (SAM(), GovernedSelectiveBackprop(start=0.0))
    states = []
    for policy in (routing(hard, ADMIT_ALL), routing(ADMIT_ALL)):
        loop, own = governed_loop(policy, list(methods), model=small_net("batch")), governed(policy, *methods)
        for step in range(STEPS):
            numbers = loop.setting.batches.indices(step)
            assert float(own.step(numbers, losses)) == float(loop.step())
        states.append(own.state.model.state_dict())
        for name, tensor in loop.setting.model.state_dict().items():
            assert torch.equal(states[-1][name], tensor), name
    assert not torch.equal(states[0]["0.weight"], states[1]["0.weight"]), "the rule does something"


def test_a_mean_that_is_repeated_ranks_nothing() -> None:
    """It would pass as the loss of each, and every example would have the same rank."""
    hard = Rule(classes=("open/bsd",), examples=Examples(loss=(0.5, 1.0)), weight=0.0)
    own = governed(routing(hard, ADMIT_ALL))
    with pytest.raises(TrainingError, match="found one number for all of them, by which none can be chosen"):
        own.step(np.arange(12), lambda *given: losses(*given).mean().expand(len(given[1])))

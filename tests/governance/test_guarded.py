"""What a class may not change does not change, whatever the model does in its forward pass: in both loops."""

from collections.abc import Callable
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer
from explorer.data.batches import Typing
from explorer.engine.gradients import Gradients
from explorer.engine.guard import CLOSELY_EVERY, Guard, Open
from explorer.errors import RecipeError, TrainingError
from explorer.governance.custom_loop import Governed
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.governance.probes import scores
from explorer.governance.routing import Routing
from explorer.methods.layer_freezing import LayerFreezing
from explorer.provenance.policy import Rule
from tests.data_for_tests import noise
from tests.governance.governed import ADMIT_ALL, CODES, EXAMPLES, governed_loop, session, typing
from tests.governance.writers import PUT_BACK, STATELESS, STOPPED, UNTOUCHED, First, Projected, Teacher, net, remembered
from tests.loop_for_tests import noise_loop
from tests.provenance.drafts_for_tests import routing

DENIED = routing(Rule(classes=("open/bsd",), layers=("first", "first.*"), weight=0.0), ADMIT_ALL)
OPEN = routing(ADMIT_ALL)
DATA = noise(train=EXAMPLES)


def losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(inputs / 255), labels, reduction="none")


def rows_of(path: str) -> np.ndarray:
    return np.flatnonzero(typing().codes == CODES[path])


def own(model: nn.Module, policy: object = DENIED) -> Callable[[], object]:
    """A step of only the denied class, in a custom loop."""
    governed = Governed(
        model.train(),
        torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1),
        session=session(policy),  # pyright: ignore[reportArgumentType]
        examples=DATA.train,
        codes=typing().codes,
        methods=[Routing(policy="drawn")],
        steps=1000,
        seed=0,
    )
    return lambda: governed.step(rows_of("open/bsd"), losses)


def engine(model: nn.Module, policy: object = DENIED) -> Callable[[], object]:
    """The same in the project's own loop."""
    alone = Typing(codes=np.full(EXAMPLES, CODES["open/bsd"]), names=typing().names)
    loop = governed_loop(policy, model=model, typing=alone, total_steps=1000, draw=False)  # pyright: ignore
    return loop.step


LOOPS = {"own": own, "engine": engine}
each_loop = pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)


@each_loop
@pytest.mark.parametrize("name", STOPPED)
def test_a_pass_that_writes_to_a_denied_parameter_stops_the_run(name: str, loop: Callable[..., Callable]) -> None:
    """In the very first step; where the class is admitted to the layer the same model trains, unless the parameter is
    none any more or never trains."""
    model = STOPPED[name]()
    with pytest.raises(
        TrainingError, match=r"first\.(table\.weight|weight|average) \(\w+\) was .* in a pass of open/bsd"
    ):
        loop(model)()
    if name not in ("replaced", "teacher inside"):
        loop(STOPPED[name](), OPEN)()


def test_the_remedy_is_that_of_the_module() -> None:
    with pytest.raises(TrainingError, match=r"Embedding.*max_norm=1\.0 shortens the rows.*leave max_norm out"):
        own(STOPPED["max_norm"]())()
    with pytest.raises(TrainingError, match=r"Projected.*a model, a hook or an optimiser must not write to it"):
        own(STOPPED["projected"]())()


@each_loop
@pytest.mark.parametrize("name", [*PUT_BACK, *UNTOUCHED])
def test_everything_else_is_put_back(name: str, loop: Callable[..., Callable]) -> None:
    """Bit for bit, over several passes, under the names it had; where the class is admitted it does change."""
    made = (PUT_BACK | UNTOUCHED)[name]
    model = made()
    buffers = [id(buffer) for buffer in model.buffers()]
    before, head, step = remembered(model), model.get_parameter("head.weight").detach().clone(), loop(model)
    for _ in range(3):
        step()
    assert remembered(model) == before
    assert [id(buffer) for buffer in model.buffers()] == buffers, "the objects too"
    assert not torch.equal(model.get_parameter("head.weight"), head), "the head trains"
    free = made()
    before = {name: each for name, each in remembered(free).items() if "weight" not in name and "bias" not in name}
    step = loop(free, OPEN)
    for _ in range(3):
        step()
    after = {name: each for name, each in remembered(free).items() if "weight" not in name and "bias" not in name}
    if name in PUT_BACK and name not in ("old spectral_norm", "deleted buffer"):  # whose buffers are no layer's
        assert after != before, "the control: it does write, where it may"


@each_loop
@pytest.mark.parametrize("name", STATELESS)
def test_state_that_no_layer_owns_holds_or_is_refused(name: str, loop: Callable[..., Callable]) -> None:
    model = STATELESS[name]()
    before = remembered(model)
    try:
        step = loop(model)
        step()
    except RecipeError as error:
        assert "first" in str(error)
        return
    step()
    assert remembered(model) == before


def test_without_the_guard_each_of_them_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the same models and policy, with unguarded passes."""
    monkeypatch.setattr(Gradients, "guarding", lambda self, share: nullcontext())
    for name, made in (STOPPED | PUT_BACK).items():
        model = made()
        before, step = remembered(model), own(model)
        with suppress(TrainingError):  # of the update: a parameter that was replaced is seen there too
            step()
        assert remembered(model) != before, name


def shrink(module: nn.Module) -> None:
    module.get_parameter("weight").data.mul_(0.9)


def test_a_write_through_data_is_seen_again_after_many_passes() -> None:
    """Values are compared now and then: a model that begins to write later does not go on for long."""
    model = net(First)
    first, step = model.get_submodule("first"), own(model)
    step()
    first.register_forward_pre_hook(lambda module, _: shrink(module))
    with pytest.raises(TrainingError, match="was written to in a pass of open/bsd"):
        for _ in range(CLOSELY_EVERY):
            step()


def test_meeting_the_layers_changes_nothing() -> None:
    """The model runs once before the first step: with rows of a class that is then kept out."""
    for name, made in (STOPPED | PUT_BACK).items():
        model = made()
        before = remembered(model)
        governed = governed_loop(DENIED, model=model, draw=False)
        assert remembered(model) == before, name
        assert governed.state.layers


def test_checkpoints_hold_the_buffers_that_the_model_has_now() -> None:
    """One that was assigned again is another tensor than at the start."""
    model = PUT_BACK["assigned buffer"]()
    loop = governed_loop(OPEN, model=model, draw=False)
    loop.step()
    kept = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    assert torch.equal(kept["model/first.mean"], model.get_buffer("first.mean"))
    assert kept["model/first.mean"].any()
    loop.step()
    loop.restore(kept, step=1)
    assert torch.equal(model.get_buffer("first.mean"), kept["model/first.mean"])


def test_what_a_method_freezes_stays_too() -> None:
    """Without any provenance: a frozen prefix that writes to itself is no frozen prefix."""

    def trained(first: type[First]) -> None:
        loop = noise_loop(
            [LayerFreezing(start=0.0, level=1.0)], model=net(first), dataset=DATA, draw=False, total_steps=40
        )
        for _ in range(40):
            loop.step()

    trained(First)
    with pytest.raises(TrainingError, match=r"first\.weight \(Projected\) was written to in a pass of the model"):
        trained(Projected)
    trained(Teacher)  # what never trains is the model's own business, where no class is kept out of anything


class Images:
    """A task of one's own."""

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        return DATA.train.inputs[numbers] / 255, DATA.train.labels[numbers]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    def metrics(self, model: nn.Module) -> dict[str, float]:
        return {"accuracy": 0.0}


@pytest.mark.parametrize("name", [name for name in STOPPED | PUT_BACK if name != "replaced"])
@pytest.mark.slow
def test_without_a_policy_such_a_model_trains_as_it_does_elsewhere(name: str) -> None:
    """`explorer.train` keeps no class out of anything: what the model writes to itself stays written."""
    model = (STOPPED | PUT_BACK)[name]()
    before = remembered(model)
    explorer.train(
        model, Images(), examples=EXAMPLES, train={"epochs": 1, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.1}}}
    )
    assert remembered(model) != before


def test_a_parameter_that_is_replaced_is_an_error_everywhere() -> None:
    """The optimiser has the other one: nothing that is trained would be in the model."""
    with pytest.raises(TrainingError, match="was replaced by another tensor in a pass of the model"):
        noise_loop(model=STOPPED["replaced"](), dataset=DATA, draw=False).step()


@pytest.mark.parametrize("name", PUT_BACK)
def test_what_only_looks_leaves_no_trace(name: str) -> None:
    """Scores of examples are taken in passes of their own, in evaluation mode, of denied classes too."""
    model = PUT_BACK[name]()
    before = remembered(model)
    loop = governed_loop(OPEN, [GovernedSelectiveBackprop(start=0.0)], model=model, draw=False)
    loop.prepare_step()
    loop.read_share(loop.state.shares[0])
    scores(loop.state, "loss")
    assert remembered(model) == before


def test_looking_at_a_model_that_writes_to_its_parameters_stops_the_run() -> None:
    loop = governed_loop(OPEN, [GovernedSelectiveBackprop(start=0.0)], model=STOPPED["projected"](), draw=False)
    with pytest.raises(TrainingError, match="in a pass of what looks at the model without training"):
        loop.step()


def test_bands_of_a_class_are_looked_at_closely_each_by_itself() -> None:
    """Passes of one class may differ in what they may change, and take turns."""
    model = net(First)
    guard, weight = Guard(model), model.get_parameter("first.weight")
    some, other = Open(frozenset({"first.bias"}), frozenset()), Open(frozenset({"head.bias"}), frozenset())
    for may in (some, other):
        with pytest.raises(TrainingError, match=r"first\.weight"), guard.passing("open", may):
            weight.data.mul_(0.9)
        with guard.passing("open", may):  # not in the second
            weight.data.mul_(0.9)


@pytest.mark.parametrize("name", STOPPED | PUT_BACK)
def test_an_evaluation_leaves_no_trace(name: str) -> None:
    """Test examples train nothing and have no class; with a policy or without one."""
    for loop in (
        governed_loop(OPEN, model=(STOPPED | PUT_BACK)[name](), draw=False),
        noise_loop(model=(STOPPED | PUT_BACK)[name](), dataset=DATA, draw=False),
    ):
        before = remembered(loop.setting.model)
        loop.evaluate()
        assert remembered(loop.setting.model) == before


def test_every_module_trains_again_after_an_evaluation() -> None:
    """The mode belongs to no module: a custom module and torch's below it change it together."""
    model = PUT_BACK["batch norm"]()
    loop = governed_loop(OPEN, model=model, draw=False)
    for _ in range(2):
        loop.step()
        loop.evaluate()
        assert {module.training for module in model.modules()} == {False}
        before = model.get_buffer("first.1.num_batches_tracked").clone()
        loop.step()
        assert {module.training for module in model.modules()} == {True}
        assert model.get_buffer("first.1.num_batches_tracked") > before

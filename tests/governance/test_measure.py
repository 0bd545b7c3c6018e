"""What is measured is what the classes did: against gradients of single examples, and against the mixed batch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from explorer.engine.gradients import Gradients
from explorer.engine.leaves import leaves
from explorer.engine.optimizer import SGDSpec, build_optimizer
from explorer.engine.state import SHARED, Region, Share
from explorer.entries.numbers import StepNumbers
from explorer.errors import TrainingError
from explorer.governance.contributions import Measure
from explorer.governance.layers import governed_layers
from explorer.models.gpt import GPT, Size
from tests.loop_for_tests import small_net

CLASSES = ("licensed/news", "open/bsd", "open/mit")
B = 12


class Images:
    """Twelve images of three classes for `small_net`."""

    def __init__(self, norm: str = "group") -> None:
        torch.manual_seed(0)
        self.model = small_net(norm).double()
        self.inputs = torch.randn(B, 2, 6, 4, dtype=torch.float64)
        self.labels = torch.randint(0, 3, (B,))

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels, reduction="none")


class Texts:
    """Twelve texts of three classes for a GPT, whose head is its embedding."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = GPT(Size(depth=1, width=8, heads=2), dropout=0.0, context=5, tokens=11).double()
        self.inputs = torch.randint(0, 11, (B, 5))
        self.labels = torch.randint(0, 11, (B, 5))

    def losses(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs.transpose(1, 2), labels, reduction="none").mean(1)


ROWS = {path: torch.arange(place, B, 3) for place, path in enumerate(CLASSES)}
Problem = Images | Texts


def step(problem: Problem, *, around: str | None = None) -> tuple[dict[str, dict[str, Tensor]], StepNumbers, Tensor]:
    """One step of SGD: the gradients of each class, what was measured, and the update of all parameters."""
    model, gradients = problem.model, Gradients(problem.model)
    names = frozenset(gradients.parameters)
    optimizer = build_optimizer(SGDSpec(lr=0.1, momentum=0.0), gradients.parameters.values())
    region = Region(name=SHARED, parameters=gradients.parameters, optimizers=(optimizer,))
    layers = governed_layers(model, leaves(model, problem.inputs[:1]))
    measured = Measure(layers, {SHARED: region}, classes=CLASSES, seed=0)
    shares = [
        Share(name=path, code=place, slots=rows.numpy(), parameters=names, buffers=frozenset(gradients.buffers))
        for place, (path, rows) in enumerate(ROWS.items())
    ]
    found: dict[str, dict[str, Tensor]] = {}
    gradients.clear()
    measured.begin(shares)
    for share in shares:
        rows, mine = ROWS[share.name], found.setdefault(share.name, {})
        loss = problem.losses(model(problem.inputs[rows]), problem.labels[rows]).sum() / B
        gradients.take(loss, gradients.admit(share), mine)
        for name in [name for name in mine if name.split(".")[0] == around]:
            del mine[name]
        measured.add(share, mine)
        gradients.add(share, mine)
    before = nn.utils.parameters_to_vector(model.parameters()).detach().clone()
    measured.before_update({})
    optimizer.step()
    numbers, _ = measured.after_update()
    return found, numbers, nn.utils.parameters_to_vector(model.parameters()).detach() - before


def by_example(problem: Problem) -> dict[str, Tensor]:
    """The gradient of each example's part of the loss: the oracle."""
    model = problem.model
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return problem.losses(functional_call(model, parameters, (row[None],)), label[None])[0] / B

    with sdpa_kernel(SDPBackend.MATH):  # the other ways to attend have no rule for single examples
        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, problem.inputs, problem.labels)


def error(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.mark.parametrize("kind", [Images, Texts])
def test_class_gradients_are_the_sums_of_their_examples(kind: type[Problem]) -> None:
    problem = kind()
    oracle = by_example(problem)
    found, numbers, _ = step(problem)
    for path, mine in found.items():
        assert mine.keys() == oracle.keys()
        assert all(error(mine[name], oracle[name][ROWS[path]].sum(0)) < 1e-10 for name in mine)
    flat = [torch.cat([each[ROWS[path]].sum(0).flatten() for each in oracle.values()]) for path in CLASSES]
    norms = np.sqrt(np.square(numbers.norms.astype(np.float64)).sum(1))  # of all layers: none is left out
    assert np.allclose(norms, [float(each.norm()) for each in flat], rtol=1e-6)


def mixed(problem: Problem) -> dict[str, Tensor]:
    """The gradient of one pass over all rows."""
    loss = problem.losses(problem.model(problem.inputs), problem.labels).sum() / B
    parameters = dict(problem.model.named_parameters())
    return dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))


@pytest.mark.parametrize("kind", [Images, Texts])
def test_the_classes_add_up_to_the_mixed_batch(kind: type[Problem]) -> None:
    problem = kind()
    whole = mixed(problem)
    found, _, update = step(problem)
    for name, expected in whole.items():
        assert error(torch.stack([mine[name] for mine in found.values()]).sum(0), expected) < 1e-10
    flat = torch.cat([each.flatten() for each in whole.values()])
    assert error(update, -0.1 * flat) < 1e-10


def test_they_do_not_where_an_operation_couples_examples() -> None:
    """The control: batch normalisation sees other rows."""
    problem = Images("batch")
    whole = mixed(problem)
    found, _, _ = step(problem)
    sums = {name: torch.stack([mine[name] for mine in found.values()]).sum(0) for name in whole}
    assert max(error(sums[name], expected) for name, expected in whole.items()) > 1e-2


def test_a_layer_that_took_no_gradient_has_weight_zero() -> None:
    """Admitted, and the forward pass went around it: nothing was done to it, and its weight says so."""
    _, numbers, _ = step(Images(), around="3")
    assert numbers.weights.tolist() == [[1, 1, 0, 1]] * 3
    assert numbers.updates[2] == 0 and numbers.updates[[0, 1, 3]].all()


def test_a_gradient_of_no_layer_is_not_passed_over() -> None:
    problem = Images()
    parameters = dict(problem.model.named_parameters())
    region = Region(name=SHARED, parameters=parameters, optimizers=())
    layers = governed_layers(problem.model, leaves(problem.model, problem.inputs[:1]))[:-1]
    measured = Measure(layers, {SHARED: region}, classes=CLASSES, seed=0)
    names = frozenset(parameters)
    share = Share(name=CLASSES[0], code=0, slots=np.arange(2), parameters=names, buffers=frozenset())
    measured.begin([share])
    with pytest.raises(TrainingError, match=r"7\.bias took a gradient, and the layers that were met do not have it"):
        measured.add(share, parameters)

"""SAM against the definition on a loss whose gradient is known, and in the loop."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.method import Moment
from explorer.engine.optimizer import SGDSpec
from explorer.methods.sam import SAM, perturb, restore
from tests.data_for_tests import typed
from tests.loop_for_tests import noise_loop, small_net


def with_gradients(seed: int = 0) -> tuple[list[nn.Parameter], list[Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((4, 3), (5,), (2, 2, 3))
    parameters = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    return parameters, [torch.randn(shape, generator=generator) for shape in shapes]


def test_the_perturbation_in_float64() -> None:
    parameters, gradients = with_gradients()
    before = [p.detach().double().numpy().copy() for p in parameters]
    kept = perturb(parameters, gradients, rho=0.3)
    exact = [gradient.double().numpy() for gradient in gradients]
    norm = np.sqrt(sum((gradient**2).sum() for gradient in exact))
    for parameter, old, gradient in zip(parameters, before, exact, strict=True):
        np.testing.assert_allclose(parameter.detach(), old + 0.3 * gradient / norm, atol=1e-6)
    steps = [(p.detach().double() - old.double()).flatten() for p, old in zip(parameters, kept, strict=True)]
    moved = torch.cat(steps).norm().item()
    assert moved == pytest.approx(0.3, rel=1e-5)
    restore(parameters, kept)
    for parameter, old in zip(parameters, before, strict=True):
        assert (parameter.detach().numpy() == old.astype(np.float32)).all()


def test_a_zero_gradient_moves_nothing() -> None:
    parameters, gradients = with_gradients()
    before = [p.detach().clone() for p in parameters]
    perturb(parameters, [torch.zeros_like(gradient) for gradient in gradients], rho=1.0)
    assert all(torch.equal(p, old) for p, old in zip(parameters, before, strict=True))


def test_one_step_of_a_linear_model_in_float64() -> None:
    """Softmax regression: both gradients written out, then plain SGD."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2 * 6 * 4, 3))
    loop = noise_loop([SAM(rho=0.5)], model=model, optimizer=SGDSpec(lr=0.1, momentum=0.0))
    linear = model[1]
    assert isinstance(linear, nn.Linear)
    w, b = linear.weight.detach().double().numpy().copy(), linear.bias.detach().double().numpy().copy()
    loop.step()
    assert loop.state.batch is not None
    x = loop.state.batch.inputs.flatten(1).double().numpy()
    onehot = np.eye(3)[loop.state.batch.labels.numpy()]

    def gradient(w: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits = x @ w.T + b
        chance = np.exp(logits - logits.max(1, keepdims=True))
        error = (chance / chance.sum(1, keepdims=True) - onehot) / len(x)
        return error.T @ x, error.sum(0)

    gw, gb = gradient(w, b)
    norm = np.sqrt((gw**2).sum() + (gb**2).sum())
    gw, gb = gradient(w + 0.5 * gw / norm, b + 0.5 * gb / norm)
    np.testing.assert_allclose(linear.weight.detach(), w - 0.1 * gw, atol=1e-6)
    np.testing.assert_allclose(linear.bias.detach(), b - 0.1 * gb, atol=1e-6)


def recorded(model: nn.Module, note: Callable[[nn.Module, torch.Tensor], object]) -> list[object]:
    seen: list[object] = []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(note(module, inputs[0])))
    return seen


class Dropping(nn.Sequential):
    """Dropout in front of a linear layer, so that two passes differ unless their masks are the same."""

    def __init__(self) -> None:
        super().__init__(nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 3))


def test_both_passes_see_identical_data_and_masks() -> None:
    model = Dropping()
    loop = noise_loop([SAM(rho=0.5)], model=model)
    seen = recorded(model[2], lambda _, x: x.detach().clone())
    loop.step()
    first, second = seen
    assert isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    assert (first == 0).any() and torch.equal(first, second)


def test_the_second_pass_is_taken_away_from_the_weights() -> None:
    model = Dropping()
    loop = noise_loop([SAM(rho=0.5)], model=model)
    seen = recorded(model, lambda module, _: [p.detach().clone() for p in module.parameters()])
    loop.step()
    first, second = seen
    assert isinstance(first, list) and isinstance(second, list)
    distance = sum(((a - b) ** 2).sum() for a, b in zip(first, second, strict=True)) ** 0.5
    assert float(distance) == pytest.approx(0.5, rel=1e-4)


def test_statistics_are_updated_once() -> None:
    sam, plain = noise_loop([SAM(rho=0.5)]), noise_loop()
    sam.step()
    plain.step()
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        assert torch.equal(sam.tensors()[f"model/1.{name}"], plain.tensors()[f"model/1.{name}"])
    assert not torch.equal(sam.tensors()["model/0.weight"], plain.tensors()["model/0.weight"])


def test_only_every_interval_th_step_passes_twice() -> None:
    model = small_net()
    loop = noise_loop([SAM(interval=3)], model=model)
    passes = recorded(model, lambda *_: None)
    counts = []
    for _ in range(7):
        before = len(passes)
        loop.step()
        counts.append(len(passes) - before)
    assert counts == [2, 1, 1, 2, 1, 1, 2]
    phases = [SAM(interval=3).phase(Moment(step=s, total_steps=7, example_shape=(1, 8, 8))) for s in range(7)]
    assert [{"one pass": 1, "two passes": 2}[phase] for phase in phases] == counts


def test_the_loss_reported_is_the_one_at_the_weights() -> None:
    sam, plain = noise_loop([SAM(rho=2.0)]), noise_loop()
    assert float(sam.step()) == float(plain.step())


def test_every_class_perturbs_by_its_own_gradient_alone() -> None:
    """What a class adds to the step is the same whatever the other class holds."""
    found = []
    for blank in (False, True):
        loop = noise_loop([SAM(rho=0.5)], model=small_net("group"), typing=typed(classes=2))
        if blank:
            loop.setting.batches.dataset.train.inputs[loop.setting.batches.typing.codes == 2] = 255
        loop.prepare_step()
        share = loop.state.shares[0]
        for parameter in loop.setting.model.parameters():
            parameter.grad = None
        loop._passes()
        loop.read_share(share)
        loop._take_gradients(share)
        loop.call("change_gradients")
        found.append({name: gradient.clone() for name, gradient in loop.state.gradients.items()})
        summed = {name: p.grad for name, p in loop.setting.model.named_parameters() if p.grad is not None}
        found.append({name: gradient.clone() for name, gradient in summed.items()})
    mine, total, mine_again, other_total = found
    assert all(torch.equal(mine[name], mine_again[name]) for name in mine)
    assert not all(torch.equal(total[name], other_total[name]) for name in total), "the control: the other class counts"

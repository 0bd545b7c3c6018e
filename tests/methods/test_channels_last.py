"""Channels last: the same numbers in another order of memory, and an optimiser that is not fooled by it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from explorer.engine import gradients as engine
from explorer.methods.channels_last import ChannelsLast, channels_last
from tests.loop_for_tests import noise_loop, small_net


def is_nhwc(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last)


def test_values_stay() -> None:
    images = torch.randn(2, 3, 5, 4)
    found = channels_last(images)
    assert torch.equal(found, images) and is_nhwc(found) and not is_nhwc(images)
    model = small_net()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    assert channels_last(model) is model
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert is_nhwc(model.get_parameter("0.weight"))


def test_the_run_is_close_to_the_plain_one() -> None:
    ours, plain = noise_loop([ChannelsLast()]), noise_loop()
    for _ in range(10):
        assert float(ours.step()) == pytest.approx(float(plain.step()), rel=1e-3)
    for name, tensor in plain.tensors().items():
        torch.testing.assert_close(ours.tensors()[name], tensor, rtol=1e-2, atol=1e-4)


def test_every_convolution_sees_the_order_it_wants() -> None:
    loop = noise_loop([ChannelsLast()])
    seen = []
    for module in loop.setting.model.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_pre_hook(lambda _, inputs: seen.append(is_nhwc(inputs[0])))
    loop.step()
    assert seen == [True, True]


def test_the_order_survives_a_checkpoint() -> None:
    first, second = noise_loop([ChannelsLast()]), noise_loop([ChannelsLast()])
    for _ in range(3):
        first.step()
    kept = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in first.tensors().items()}
    second.restore(kept, step=3)
    for name in ("model/0.weight", "model/3.weight", "optimizer/shared/0/0.weight/momentum_buffer"):
        assert is_nhwc(second.tensors()[name]), name


class AsProduct(nn.Conv2d):
    """A convolution written as a matrix product: the gradient of its weights comes in plain order."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        columns = F.unfold(input, 3, padding=1, stride=2)
        rows, width = (input.size(2) + 1) // 2, (input.size(3) + 1) // 2
        return (self.weight.flatten(1) @ columns).unflatten(2, (rows, width))


def five_steps(*, fused: bool) -> torch.Tensor:
    model = small_net()
    model[3] = AsProduct(8, 8, 3, stride=2, padding=1, bias=False)
    loop = noise_loop([ChannelsLast()], model=model)
    for group in loop.state.regions["shared"].optimizers[0].param_groups:
        group["fused"], group["foreach"] = fused, False
    for _ in range(5):
        loop.step()
    return loop.tensors()["model/3.weight"]


def test_fused_updates_equal_unfused_ones() -> None:
    torch.testing.assert_close(five_steps(fused=True), five_steps(fused=False), rtol=1e-5, atol=1e-6)


def test_fused_updates_go_wrong_without_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: fused SGD walks parameter and gradient in memory order, whatever their strides say."""
    monkeypatch.setattr(engine, "_in_layout_of", lambda parameter, gradient: gradient)
    assert (five_steps(fused=True) - five_steps(fused=False)).abs().max() > 1e-3

"""Squeeze-and-excitation against its formula in float64, in residual blocks and after convolutions."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.methods.blurpool import apply_blurpool, blur, blur_filter
from explorer.methods.squeeze_excite import Excitation, SqueezeExcite, apply_squeeze_excite, excite
from explorer.models.residual import Gate
from explorer.models.table import MODELS
from tests.loop_for_tests import noise_loop, small_net


def by_formula(x: np.ndarray, reduce: np.ndarray, expand: np.ndarray) -> np.ndarray:
    """Loops over examples and channels."""
    result = np.empty_like(x)
    for example in range(len(x)):
        means = np.array([channel.mean() for channel in x[example]])
        hidden = np.maximum(reduce @ means, 0)
        for channel, value in enumerate(expand @ hidden):
            result[example, channel] = x[example, channel] / (1 + np.exp(-value))
    return result


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("space", [(5,), (4, 3), (2, 3, 4)])
def test_against_the_formula(space: tuple[int, ...]) -> None:
    x, reduce, expand = normal(3, 8, *space), normal(2, 8), normal(8, 2)
    expected = by_formula(x.numpy(), reduce.numpy(), expand.numpy())
    np.testing.assert_allclose(excite(x, reduce_LC=reduce, expand_CL=expand), expected, rtol=1e-12)


@pytest.mark.parametrize("channels, reduction, hidden", [(64, 16, 4), (16, 16, 1), (8, 16, 1), (4, 1024, 1), (6, 1, 6)])
def test_hidden_units(channels: int, reduction: int, hidden: int) -> None:
    module = Excitation(channels, reduction=reduction)
    assert module.reduce.weight.shape == (hidden, channels) and module.expand.weight.shape == (channels, hidden)
    assert len(list(module.parameters())) == 2, "no biases"


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(width, width, 3, padding=1), Gate(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.gate(x, lambda: self.conv(x))


def test_a_residual_block_excites_its_branch_before_the_addition() -> None:
    model = nn.Sequential(Block(16), Block(8)).double()
    assert apply_squeeze_excite(model, reduction=4, seed=3) == ["0.gate"], "narrow blocks are left alone"
    new = [name for name, _ in model.named_parameters() if "excite" in name]
    assert new == ["0.gate.excite.reduce.weight", "0.gate.excite.expand.weight"]
    x = normal(2, 16, 4, 3)
    reduce, expand = (model.get_parameter(name).detach().numpy() for name in new)
    branch = model.get_submodule("0.conv")(x).detach().numpy()
    np.testing.assert_allclose(model[0](x).detach(), x.numpy() + by_formula(branch, reduce, expand), rtol=1e-10)


def test_a_branch_that_is_left_out_is_not_excited() -> None:
    block = Block(16)
    apply_squeeze_excite(block)
    block.gate.kept = False
    x = torch.randn(2, 16, 4, 3)
    assert block(x) is x
    block.eval()
    block.gate.survival = 0.5
    whole = block(x) - x
    block.gate.survival = 1.0
    torch.testing.assert_close(2 * whole, block(x) - x)


def test_without_residual_blocks_every_wide_convolution_is_excited() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 16, 3, bias=False), nn.ReLU(), nn.Conv3d(1, 32, 1)).double()
    plain = nn.Conv2d(4, 16, 3, bias=False).double()
    plain.load_state_dict(model[1].state_dict())
    assert apply_squeeze_excite(model, reduction=8) == ["1", "3"]
    reduce, expand = (model.get_parameter(f"1.excite.{name}.weight").detach().numpy() for name in ("reduce", "expand"))
    x = normal(2, 4, 6, 5)
    np.testing.assert_allclose(model[1](x).detach(), by_formula(plain(x).detach().numpy(), reduce, expand), rtol=1e-10)
    with pytest.raises(RecipeError, match="squeeze_excite: found nothing to change in Sequential: expected residual"):
        apply_squeeze_excite(model)


def test_a_blurred_convolution_is_excited_too() -> None:
    conv = nn.Conv2d(16, 16, 3, stride=2).double()
    x, plain = normal(2, 16, 7, 7), nn.Conv2d(16, 16, 3, stride=2).double()
    plain.load_state_dict(conv.state_dict())
    assert apply_squeeze_excite(conv) == apply_blurpool(conv) == [""]
    expected = conv.get_submodule("excite")(plain(blur(x, blur_filter())))
    torch.testing.assert_close(conv(x), expected)


def test_new_weights_depend_on_seed_and_name_alone() -> None:
    def weights(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(seed)  # what a user seeds by hand has no part in it, and is left alone
        model = MODELS["resnet8"]().build(example_shape=(3, 8, 8), classes=2)
        before = torch.get_rng_state()
        apply_squeeze_excite(model, seed=7)
        assert torch.equal(torch.get_rng_state(), before)
        return {name: parameter for name, parameter in model.named_parameters() if "excite" in name}

    one, other = weights(1), weights(2)
    assert len(one) == 6 and all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(
        one["stages.0.0.gate.excite.reduce.weight"], one["stages.1.0.gate.excite.reduce.weight"][:, :16]
    )


def test_a_run_keeps_the_plain_run_s_weights_and_steps_the_new_ones() -> None:
    ours, plain = noise_loop([SqueezeExcite(min_channels=8)], model=small_net()), noise_loop(model=small_net())
    assert all(torch.equal(ours.tensors()[name], tensor) for name, tensor in plain.tensors().items())
    before = ours.tensors()["model/0.excite.expand.weight"].clone()
    ours.step()
    assert not torch.equal(ours.tensors()["model/0.excite.expand.weight"], before)

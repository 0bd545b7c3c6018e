"""The U-Nets: published sizes, the net written out, any size of image or volume, and what is too small."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.leaves import leaves
from explorer.engine.modules import initialise
from explorer.errors import RecipeError
from explorer.models.table import MODELS
from explorer.models.unet import FAMILY, Halving3d, UNet, UNet3dSpec, UNetSpec, largest_of_cubes


def built(name: str, *, shape: tuple[int, ...], classes: int = 3, **parameters: Any) -> UNet:
    model = MODELS[name](**parameters).build(example_shape=shape, classes=classes)
    assert isinstance(model, UNet)
    initialise(model, seed=0)
    return model


def count(model: nn.Module, kinds: type[nn.Module] | tuple[type[nn.Module], ...] = nn.Module) -> int:
    inside = [module for module in model.modules() if isinstance(module, kinds)]
    return sum(parameter.numel() for module in inside for parameter in module.parameters(recurse=False))


def test_the_volume_net_has_the_published_number_of_parameters() -> None:
    """Çiçek et al. count 19,069,955 for three channels and three labels: one number a normalised channel, not two."""
    with torch.device("meta"):
        model = UNet3dSpec().build(example_shape=(3, 132, 132, 116), classes=3)
    gains = sum(module.num_features for module in model.modules() if isinstance(module, nn.BatchNorm3d))
    assert count(model) - gains == 19_069_955


def test_the_image_net_has_the_published_layers() -> None:
    """Ronneberger et al.: 23 convolutional layers; 64 channels double to 1024; weights counted layer by layer."""
    with torch.device("meta"):
        model = UNetSpec().build(example_shape=(1, 572, 572), classes=2)
    kinds = (nn.Conv2d, nn.ConvTranspose2d)
    assert sum(isinstance(module, kinds) for module in model.modules()) == 23
    widths = [64, 128, 256, 512, 1024]
    down = sum(9 * (before * after + after * after) for before, after in itertools.pairwise([1, *widths]))
    up = sum(4 * 2 * width * width + 9 * (2 * width * width + width * width) for width in widths[:-1])
    assert count(model, kinds) == down + up + 64 * 2 + 2
    with torch.device("meta"):
        colour = UNetSpec().build(example_shape=(3, 64, 64), classes=2)
    assert count(colour) == 31_036_738


def test_they_are_in_the_table_and_every_parameter_is_met() -> None:
    assert [MODELS[kind.name] for kind in FAMILY] == list(FAMILY)
    for name, shape in (("unet", (1, 8, 8)), ("unet3d", (1, 4, 4, 8))):
        model = built(name, shape=shape, width=8, levels=2)
        found = leaves(model, torch.zeros(1, *shape))
        assert {name for leaf in found for name in leaf.parameters} == {name for name, _ in model.named_parameters()}
        assert (found[0].name, found[-1].name) == ("down.0.conv1", "head")


def reference(model: UNet, x: Tensor) -> Tensor:
    """Three levels by functions, in evaluation, from the names of what is stored."""
    state = model.state_dict()
    flat = x.ndim == 4
    convolve, expand, pool = (
        (F.conv2d, F.conv_transpose2d, F.max_pool2d) if flat else (F.conv3d, F.conv_transpose3d, F.max_pool3d)
    )

    def twice(x: Tensor, at: str) -> Tensor:
        for part in "12":
            x = convolve(x, state[f"{at}.conv{part}.weight"], padding=1)
            mean, spread, gain, shift = (
                state[f"{at}.norm{part}.{name}"].view(-1, *[1] * (x.ndim - 2))
                for name in ("running_mean", "running_var", "weight", "bias")
            )
            x = ((x - mean) / (spread + 1e-5).sqrt() * gain + shift).clamp(min=0)
        return x

    first = twice(x, "down.0")
    second = twice(pool(first, 2), "down.1")
    lowest = twice(pool(second, 2), "down.2")
    upper = twice(torch.cat((second, expand(lowest, state["up.0.expand.weight"], stride=2)), 1), "up.0.convolutions")
    top = twice(torch.cat((first, expand(upper, state["up.1.expand.weight"], stride=2)), 1), "up.1.convolutions")
    return convolve(top, state["head.weight"], state["head.bias"])


@pytest.mark.parametrize("name, shape", [("unet", (2, 8, 12)), ("unet3d", (2, 4, 8, 4))])
@torch.no_grad()
def test_it_is_the_net_written_out(name: str, shape: tuple[int, ...]) -> None:
    model = built(name, shape=shape, width=8, levels=3).double().eval()
    generator = torch.Generator().manual_seed(0)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():  # away from where norms do nothing; spreads above zero
            tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=tensor.dtype) - (tensor.ndim > 1) / 2)
    x = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    assert torch.allclose(model(x), reference(model, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "name, shape", [("unet", (1, 9, 14)), ("unet", (3, 4, 7)), ("unet3d", (1, 5, 4, 7)), ("unet3d", (2, 4, 6, 8))]
)
@torch.no_grad()
def test_any_size_is_filled_up_with_zeros_and_cut_to_what_it_was(name: str, shape: tuple[int, ...]) -> None:
    model = built(name, shape=shape, width=8, levels=3).eval()
    x = torch.randn(2, *shape)
    found = model(x)
    assert found.shape == (2, 3, *shape[1:])
    larger = torch.zeros(2, shape[0], *(-(-side // 4) * 4 for side in shape[1:]))
    within = (..., *(slice(side) for side in shape[1:]))
    larger[within] = x
    assert torch.equal(found, model(larger)[within])


@pytest.mark.parametrize(
    "name, shape, levels, message",
    [
        ("unet", (3, 15, 64), 5, "unet: found a size of 15 x 64: expected 16 or more a side"),
        ("unet", (3, 16, 16), 5, "found a size of 16 x 16: .* more than that along one, for 5 levels; or fewer"),
        ("unet3d", (1, 7, 32, 32), 4, "unet3d: found a size of 7 x 32 x 32: expected 8 or more a side"),
    ],
)
def test_too_small_a_size_is_refused(name: str, shape: tuple[int, ...], levels: int, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        MODELS[name](levels=levels).build(example_shape=shape, classes=2)  # pyright: ignore[reportCallIssue]
    smaller = built(name, shape=(1, *shape[1:]), levels=levels - 1, width=8).train()
    assert smaller(torch.randn(1, 1, *shape[1:])).isfinite().all()  # one example, with batch norm


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("name, shape", [("unet", (1, 8, 8)), ("unet3d", (1, 4, 8, 8))])
def test_a_small_one_learns_where_it_is_bright(name: str, shape: tuple[int, ...], norm: str) -> None:
    images = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)) / 2
    images[..., 2:7, 3:6] += 2
    targets = torch.zeros(2, *shape[1:], dtype=torch.int64)
    targets[..., 2:7, 3:6] = 1
    model = built(name, shape=shape, classes=2, width=8, levels=2, norm=norm)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(10):
        loss = F.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_volumes_are_pooled_alike_on_every_device() -> None:
    """By the function that GPUs use, which the volume net has; forward and backward, behind a rectifier as there."""
    net = built("unet3d", shape=(1, 8, 8, 8), width=8, levels=2)
    assert isinstance(net.pool, Halving3d) and net.pool.kernel_size == 2
    volumes = torch.randn(2, 3, 4, 6, 8, generator=torch.Generator().manual_seed(0))
    inputs = [volumes.clone().requires_grad_() for _ in range(2)]
    pooled = [pool(F.relu(leaf)) for pool, leaf in zip((largest_of_cubes, net.pool), inputs, strict=True)]
    assert torch.equal(*pooled)
    weights = torch.arange(pooled[0].numel(), dtype=torch.float32).view_as(pooled[0])
    one, other = (torch.autograd.grad((out * weights).sum(), leaf)[0] for out, leaf in zip(pooled, inputs, strict=True))
    assert torch.equal(one, other) and one.count_nonzero() > 0
    # The control: without the rectifier equal numbers share what torch gives to the first of them.
    equal = torch.ones(1, 1, 2, 2, 2, requires_grad=True)
    assert torch.autograd.grad(largest_of_cubes(equal).sum(), equal)[0].unique().tolist() == [1 / 8]


def test_dropout_acts_at_the_lowest_level_in_training_alone() -> None:
    x = torch.randn(2, 1, 8, 8)
    for dropout, changes in ((0.0, False), (0.5, True)):
        model = built("unet", shape=(1, 8, 8), width=8, levels=2, norm="group", dropout=dropout)
        assert torch.equal(model.train()(x), model.eval()(x)) != changes

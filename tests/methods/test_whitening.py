"""Whitening: the layer of airbench before a first convolution, whose name and rule of initialisation stay."""

import copy

import pytest
import torch
from torch import nn

from explorer import functional
from explorer.engine.leaves import leaves
from explorer.engine.method import Planned
from explorer.engine.optimizer import Constant, SGDSpec
from explorer.errors import RecipeError
from explorer.methods.whitening import Whitened, Whitening
from explorer.models.airbench import Airbench, whitening_filters
from explorer.models.airbench import Whitening as Patches
from explorer.models.resnet import ResNet
from tests.data_for_tests import noise
from tests.loop_for_tests import noise_loop, small_net


def resnet(channels: int = 3) -> ResNet:
    return ResNet(depth=8, width=0.5, norm="batch", channels=channels, classes=4)


def test_it_computes_what_a_layer_before_the_network_does() -> None:
    model, images = resnet().eval(), torch.randn(2, 3, 12, 12)
    assert functional.whitening(model) == ["conv"]
    nn.init.normal_(model.get_parameter("conv.whitening.bias"))
    first, rest = Patches(3), resnet(channels=24).eval()
    first.load_state_dict(model.get_submodule("conv.whitening").state_dict())
    rest.load_state_dict({k: v for k, v in model.state_dict().items() if "whitening" not in k})
    torch.testing.assert_close(model(images), nn.Sequential(first, nn.GELU(), rest)(images))
    assert (model(images) - resnet().eval()(images)).abs().max() > 1e-3


def test_all_but_the_first_convolution_stays_as_it_is() -> None:
    model = resnet()
    before = copy.deepcopy(model.state_dict())
    functional.whitening(model)
    after = model.state_dict()
    assert after.keys() - before.keys() == {"conv.whitening.filters", "conv.whitening.bias"}
    assert [key for key in before if not torch.equal(before[key], after[key])] == ["conv.weight"]
    torch.testing.assert_close(after["conv.whitening.filters"][:12], whitening_filters(3))


def test_new_weights_belong_to_seed_and_name_and_follow_the_rule_of_the_convolution() -> None:
    drawn = []
    for seed in (0, 0, 1):
        model = resnet()
        functional.whitening(model, seed=seed)
        drawn.append(model.conv.weight)
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert drawn[0].shape == (8, 24, 3, 3)
    assert drawn[0].std().item() == pytest.approx((2 / (8 * 9)) ** 0.5, rel=0.1)  # He et al., fan-out


def test_the_biases_are_a_layer_of_their_own() -> None:
    model = resnet()
    functional.whitening(model)
    names = [leaf.name for leaf in leaves(model, torch.zeros(2, 3, 12, 12))]
    assert names[:2] == ["conv.whitening", "conv"]


def test_the_filters_stay_and_the_biases_train() -> None:
    loop = noise_loop([Whitening()], dataset=noise(shape=(2, 8, 8)))
    before = loop.tensors()["model/0.whitening.bias"].clone()
    filters = loop.tensors()["model/0.whitening.filters"].clone()
    for _ in range(3):
        loop.step()
    assert torch.equal(loop.tensors()["model/0.whitening.filters"], filters)
    assert not torch.equal(loop.tensors()["model/0.whitening.bias"], before)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(2, 2), "found nothing to change in Linear: expected a convolution of images"),
        (Airbench(width=0.125, channels=3, classes=2), "found whitening, which whitens already"),
        (nn.Sequential(nn.Conv2d(3, 4, 8, stride=8)), "found 0, which cuts images into patches: expected a"),
        (nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), "found 2 groups in 0: expected one"),
    ],
    ids=["no convolution", "airbench", "groups", "patches"],
)
def test_what_does_not_fit_is_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(RecipeError, match=f"whitening: {words}"):
        functional.whitening(model)


def test_twice_is_refused() -> None:
    model = resnet()
    functional.whitening(model)
    assert isinstance(model.conv, Whitened)
    with pytest.raises(RecipeError, match="whitening: found conv, which is whitened"):
        functional.whitening(model)


def test_a_first_convolution_that_does_not_take_the_images_is_refused() -> None:
    model = nn.Sequential(nn.ConstantPad3d((0, 0, 0, 0, 0, 1), 0.0), small_net(channels=3))
    with pytest.raises(RecipeError, match=r"whitening: found 3 input channels of 1\.0, .*: expected 2, those of the"):
        noise_loop([Whitening()], model=model)


def test_a_class_for_each_pixel_is_refused() -> None:
    planned = Planned(
        task="segmentation",
        example_shape=(3, 8, 8),
        classes=2,
        steps=1,
        batch_size=1,
        optimizer=SGDSpec(lr=0.1),
        schedule=Constant(),
        precision="fp32",
        microbatch_size=None,
    )
    with pytest.raises(RecipeError, match="found a class for each pixel, but it takes a pixel off each side"):
        Whitening().check(planned)

"""The operations against Pillow, which has them one image at a time, and against float64 where Pillow is coarse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from explorer.data import image_operations as operations
from explorer.data.image_operations import OPERATIONS, SETS, TORCHVISION, draw_levels, operate, refuse_unfit
from explorer.errors import RecipeError

BILINEAR = Image.Resampling.BILINEAR
Pillow = Callable[[Image.Image, float], Image.Image]


def affine(row: Callable[[float], tuple[float, ...]]) -> Pillow:
    return lambda image, value: image.transform(image.size, Image.Transform.AFFINE, row(value), resample=BILINEAR)


PILLOW: dict[str, tuple[Pillow, tuple[float, float]]] = {  # the operation, and the values it is tried with
    "posterize": (lambda image, value: ImageOps.posterize(image, int(value)), (1, 8)),
    "solarize": (lambda image, value: ImageOps.solarize(image, int(value)), (0, 256)),
    "rotate": (lambda image, value: image.rotate(value, resample=BILINEAR), (-40, 40)),
    "shear_x": (affine(lambda value: (1, value, 0, 0, 1, 0)), (-0.4, 0.4)),
    "shear_y": (affine(lambda value: (1, 0, 0, value, 1, 0)), (-0.4, 0.4)),
    "translate_x": (affine(lambda value: (1, 0, value, 0, 1, 0)), (-6, 6)),
    "translate_y": (affine(lambda value: (1, 0, 0, 0, 1, value)), (-6, 6)),
    "color": (lambda image, value: ImageEnhance.Color(image).enhance(value), (0, 2)),
    "contrast": (lambda image, value: ImageEnhance.Contrast(image).enhance(value), (0, 2)),
    "brightness": (lambda image, value: ImageEnhance.Brightness(image).enhance(value), (0, 2)),
    "sharpness": (lambda image, value: ImageEnhance.Sharpness(image).enhance(value), (0, 2)),
}
WHOLE = {"posterize", "solarize"}  # whole values, and nothing to round


def images(count: int, channels: int, *, size: tuple[int, int] = (9, 14), low: int = 0, high: int = 256) -> Tensor:
    drawn = np.random.default_rng(0).integers(low, high, (count, channels, *size), dtype=np.uint8)
    return torch.from_numpy(drawn)


def by_pillow(change: Callable[[Image.Image], Image.Image], image: Tensor) -> np.ndarray:
    pixels = image.numpy()
    if len(pixels) == 1:
        return np.asarray(change(Image.fromarray(pixels[0])))[None]
    return np.asarray(change(Image.fromarray(pixels.transpose(1, 2, 0)))).transpose(2, 0, 1)


def change(name: str, given: Tensor, values: np.ndarray) -> np.ndarray:
    operation: Any = getattr(operations, name)
    return operation(given, torch.from_numpy(values)).numpy()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", PILLOW)
def test_each_image_as_pillow_has_it(name: str, channels: int) -> None:
    """Exactly where nothing is rounded; else the nearest level, where Pillow cuts the fraction off."""
    pillow, (low, high) = PILLOW[name]
    values = np.linspace(low, high, 13)
    values = values.round() if name in WHOLE else values
    given = images(len(values), channels)
    expected = np.stack([by_pillow(lambda x, v=v: pillow(x, v), image) for image, v in zip(given, values, strict=True)])
    above = change(name, given, values).astype(int) - expected
    assert above.min() == 0 and above.max() <= (0 if name in WHOLE else 1)
    assert (expected != given.numpy()).any() or (name, channels) == ("color", 1)


@pytest.mark.parametrize("channels", [1, 3])
def test_autocontrast_as_pillow_has_it_to_a_level(channels: int) -> None:
    given = images(8, channels, low=40, high=190)
    expected = np.stack([by_pillow(ImageOps.autocontrast, image) for image in given])
    above = operations.autocontrast(given).numpy().astype(int) - expected
    assert above.min() == 0 and above.max() == 1
    stretched = (given.numpy() - given.amin((2, 3), keepdim=True).numpy()).astype(float)
    stretched *= 255 / stretched.max((2, 3), keepdims=True)
    np.testing.assert_array_equal(operations.autocontrast(given), np.floor(stretched + 0.5))


def equalized(channel: np.ndarray) -> np.ndarray:
    """By the definition in float64: the share of pixels that are darker, those of the brightest level left out."""
    darker = (channel.ravel()[None] < channel.ravel()[:, None]).sum(1).reshape(channel.shape)
    return np.floor(255 * darker / (channel != channel.max()).sum() + 0.5)


@pytest.mark.parametrize("size", [(8, 8), (9, 14), (20, 30)])
def test_equalize_in_float64(size: tuple[int, int]) -> None:
    given = images(4, 3, size=size, low=30, high=200)
    found = operations.equalize(given)
    np.testing.assert_array_equal(found, [[equalized(channel) for channel in image] for image in given.numpy()])
    assert (found.amin((2, 3)) == 0).all() and (found.amax((2, 3)) == 255).all()


@pytest.mark.parametrize("brightest", [4, 259])
def test_equalize_is_pillows_where_pillows_steps_are_whole(brightest: int) -> None:
    """There are 255 times as many other pixels."""
    pixels = np.random.default_rng(0).integers(0, 250, 1024, dtype=np.uint8)
    pixels[:brightest] = 250
    given = torch.from_numpy(np.random.default_rng(1).permutation(pixels).reshape(1, 1, 32, 32))
    np.testing.assert_array_equal(operations.equalize(given)[0], by_pillow(ImageOps.equalize, given[0]))


def test_pillow_does_not_equalize_small_images() -> None:
    """Why the definition is followed and not Pillow."""
    small = images(1, 1, size=(8, 8))
    assert (by_pillow(ImageOps.equalize, small[0]) == small[0].numpy()).all()
    assert (operations.equalize(small) != small).any()


def test_a_uniform_image_has_no_contrast_to_stretch() -> None:
    uniform = torch.full((1, 1, 5, 5), 77, dtype=torch.uint8)
    for found in (operations.autocontrast(uniform), operations.equalize(uniform)):
        assert torch.equal(found, uniform)


@pytest.mark.parametrize("channels", [1, 3])
def test_level_zero_does_nothing_to_any_level(channels: int) -> None:
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(1, channels, 16, 16)
    for name in set(TORCHVISION) - {"equalize"}:  # autocontrast: they fill the range already
        assert torch.equal(TORCHVISION[name](every, torch.zeros(1, dtype=torch.float64)), every), name


FULL: dict[str, tuple[float, float]] = {  # the values at level 1 and -1
    "posterize": (4, 4),
    "rotate": (30, -30),
    "solarize": (0, 0),
    "shear_x": (0.3, -0.3),
    "shear_y": (0.3, -0.3),
    "translate_x": (5, -5),  # a third of 14 columns
    "translate_y": (3, -3),  # of 9 rows
    "color": (1.9, 0.1),
    "contrast": (1.9, 0.1),
    "brightness": (1.9, 0.1),
    "sharpness": (1.9, 0.1),
}


@pytest.mark.parametrize("name", FULL)
def test_the_strongest_level(name: str) -> None:
    given = images(2, 3)
    found = TORCHVISION[name](given, torch.tensor([1.0, -1.0], dtype=torch.float64))
    np.testing.assert_array_equal(found, change(name, given, np.array(FULL[name], float)))


def test_half_a_level_is_rounded_to_whole_bits_and_pixels() -> None:
    given, level = images(1, 1), torch.tensor([0.4], dtype=torch.float64)
    np.testing.assert_array_equal(TORCHVISION["posterize"](given, level), change("posterize", given, np.array([6.0])))
    np.testing.assert_array_equal(
        OPERATIONS["translate_x"](given, level), change("translate_x", given, np.array([2.0]))
    )


def test_images_too_small_for_a_filter_stay_as_they_are() -> None:
    for size in ((1, 1), (2, 5), (5, 2)):
        given = images(1, 3, size=size)
        assert torch.equal(operations.sharpness(given, torch.tensor([1.9])), given)


def test_each_image_gets_its_own_operation_and_others_do_not_matter() -> None:
    names = SETS["all"]
    given = images(26, 3)
    choices, levels = np.arange(26) % 14 - 1, np.linspace(-1, 1, 26)
    found = operate(given, names, choices=choices, levels=levels)
    for row, choice in enumerate(choices):
        alone = given[row : row + 1]
        if choice >= 0:
            alone = OPERATIONS[names[choice]](alone, torch.from_numpy(levels[row : row + 1]))
        assert torch.equal(found[row], alone[0])
    assert torch.equal(given, images(26, 3)), "what was given is not written into"


def test_the_safe_set() -> None:
    assert set(SETS["all"]) - set(SETS["safe"]) == {"color", "contrast", "brightness", "sharpness"}
    assert len(SETS["all"]) == 13 and len(SETS["safe"]) == 9


def test_levels_are_uniform_up_to_the_severity_either_way() -> None:
    levels = draw_levels(np.random.default_rng(0), severity=3.0, shape=(4000, 2))
    sizes = np.abs(levels)
    assert 0.01 <= sizes.min() < 0.012 and 0.298 < sizes.max() <= 0.3
    assert abs(sizes.mean() - 0.155) < 0.005 and abs((levels > 0).mean() - 0.5) < 0.03


def test_what_they_cannot_serve_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"a class for each pixel.*expected one label for each image"):
        refuse_unfit(task="segmentation", example_shape=(3, 8, 8))
    with pytest.raises(RecipeError, match="found images of 2 channels: expected 1"):
        refuse_unfit(task="classification", example_shape=(2, 8, 8))
    for channels in (1, 3):
        refuse_unfit(task="classification", example_shape=(channels, 8, 8))


def authors(name: str, level: float) -> Pillow:
    """The authors' code (augmentations.py): `int_parameter` and `float_parameter` of a level of 10."""
    of_ten = 10 * abs(level)
    if name == "posterize":
        return lambda image, _: ImageOps.posterize(image, 4 - int(of_ten * 4 / 10))
    enhancer = {"color": ImageEnhance.Color, "contrast": ImageEnhance.Contrast, "brightness": ImageEnhance.Brightness}
    kind = enhancer.get(name, ImageEnhance.Sharpness)
    return lambda image, _: kind(image).enhance(of_ten * 1.8 / 10 + 0.1)


@pytest.mark.parametrize("level", [0.01, 0.3, -0.3, 0.74, 0.99])
@pytest.mark.parametrize("name", ["posterize", "color", "contrast", "brightness", "sharpness"])
def test_the_papers_strengths_are_those_of_the_authors_code(name: str, level: float) -> None:
    given = images(1, 3)
    found = OPERATIONS[name](given, torch.tensor([level], dtype=torch.float64)).numpy().astype(int)
    expected = by_pillow(lambda image: authors(name, level)(image, 0), given[0])
    assert (found[0] - expected).min() >= 0 and (found[0] - expected).max() <= 1


def smooth_image() -> Tensor:
    """A random image without edges: 8 x 8 colours, spread over 64 x 64."""
    coarse = torch.from_numpy(np.random.default_rng(0).uniform(0, 255, (1, 3, 8, 8)))
    return torch.nn.functional.interpolate(coarse, size=64, mode="bicubic").clamp(0, 255).to(torch.uint8)


def test_low_levels_are_strong_in_the_paper_and_weak_in_torchvision() -> None:
    """At severity 3, in levels of 255."""
    given = smooth_image().expand(60, -1, -1, -1)
    levels = np.linspace(0.01, 0.3, 60)
    for name in ("posterize", "color", "contrast", "brightness"):
        drawn = {"choices": np.zeros(60, int), "levels": levels}
        paper, torchvision = (
            (operate(given, (name,), **drawn, strengths=strengths).float() - given.float()).abs().mean()
            for strengths in ("paper", "torchvision")
        )
        assert paper > 2.5 * torchvision and paper > 5

"""Antialiased bilinear resizing against the triangle filter written out; the nearest class against torch's own."""

import numpy as np
import torch
import torch.nn.functional as F

from explorer.data.images import resize, resize_classes


def triangle(size: int, target: int) -> np.ndarray:
    """The weights of every input for every output: a triangle as wide as the scale, cut at the border, sum one."""
    scale = size / target
    weights = np.zeros((target, size))
    for row in range(target):
        centre = (row + 0.5) * scale
        for column in range(size):
            weights[row, column] = max(0.0, 1 - abs(column + 0.5 - centre) / max(scale, 1))
    return weights / weights.sum(1, keepdims=True)


def test_against_the_triangle_filter() -> None:
    images = torch.randn(2, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    for size in [(6, 5), (8, 6), (11, 10), (4, 10)]:
        found = resize(images, size=size).numpy()
        rows, columns = triangle(12, size[0]), triangle(10, size[1])
        expected = np.einsum("ih,bchw,jw->bcij", rows, images.double().numpy(), columns)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_same_size_is_the_same_tensor() -> None:
    images = torch.zeros(1, 1, 4, 6)
    assert resize(images, size=(4, 6)) is images


def test_the_nearest_class_pixel_by_pixel() -> None:
    classes = torch.randint(0, 7, (2, 12, 10), generator=torch.Generator().manual_seed(0))
    for size in [(6, 5), (8, 3), (11, 10), (1, 1), (24, 13)]:
        found = resize_classes(classes, size=size)
        expected = F.interpolate(classes[:, None].double(), size=size, mode="nearest-exact")[:, 0]
        assert found.dtype == classes.dtype and torch.equal(found.double(), expected)
        chances = F.one_hot(classes, 7).float()
        assert torch.equal(resize_classes(chances, size=size).argmax(-1), found)
    assert resize_classes(classes, size=(12, 10)) is classes

"""Sketches: known signs, linearity, expectation and the error that is promised."""

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.governance.gram import Layout, lay_out
from explorer.governance.sketch import projections, signed_columns, sketch

SHAPES = {"conv.weight": (16, 8, 3, 3), "norm.weight": (300,), "linear.weight": (40, 30), "linear.bias": (40,)}


def layout(*names: str) -> Layout:
    found: dict[str, dict[str, Tensor]] = {}
    for name in names or SHAPES:
        found.setdefault(name.partition(".")[0], {})[name] = torch.zeros(SHAPES[name])
    return lay_out(found)


def sketches(rows: Tensor, place: Layout, *, seed: int = 0) -> Tensor:
    return sketch(rows, place, projections(seed, place, like=rows))


def test_a_projection_is_that_of_the_docstring() -> None:
    # printf 'explorer/sketch/v1\\0007\\000fc.weight\\000out' | openssl dgst -shake256 -xoflen 32
    words = [0xF9BAC9960AC1910C, 0xBB200127FDE368BE, 0xE40BF020E5CFD80D, 0x01E1F8BDB774A514]
    found = signed_columns(7, "fc.weight", "out", 4, 8)
    expected = np.zeros((4, 8))
    for place, row in enumerate(sorted(range(4), key=lambda row: words[row])):
        expected[row, place] = -1 if words[row] % 2 else 1
    assert np.array_equal(found, expected)
    assert not np.array_equal(found, signed_columns(8, "fc.weight", "out", 4, 8))
    assert not np.array_equal(found, signed_columns(7, "fc.weight", "in", 4, 8))


@pytest.mark.parametrize("rows", [1, 8, 9, 72, 300])
def test_columns_are_of_equal_size(rows: int) -> None:
    found = signed_columns(0, "conv.weight", "in", rows, 8)
    assert (np.abs(found).sum(1) == 1).all()
    sizes = np.abs(found).sum(0)
    assert sizes.max() - sizes.min() <= 1


def test_a_matrix_is_projected_from_both_sides_and_a_layer_is_the_sum() -> None:
    place = layout("linear.weight", "linear.bias")
    rows = torch.randn(3, place.width, dtype=torch.float64)
    left = signed_columns(5, "linear.weight", "out", 40, 8)
    right = signed_columns(5, "linear.weight", "in", 30, 8)
    straight = signed_columns(5, "linear.bias", "all", 40, 64)
    for row, found in zip(rows.numpy(), sketches(rows, place, seed=5).numpy(), strict=True):
        matrix, bias = row[:1200].reshape(40, 30), row[1200:]
        expected = (left.T @ matrix @ right).ravel() + bias @ straight
        assert np.allclose(found[0], expected, rtol=1e-12, atol=1e-12)


def test_linear() -> None:
    place = layout()
    a, b = torch.randn(2, place.width, dtype=torch.float64)
    together = sketches((2 * a - 3 * b)[None], place)
    apart = sketches(torch.stack([a, b]), place)
    assert torch.allclose(together[0], 2 * apart[0] - 3 * apart[1], rtol=1e-12, atol=1e-12)
    assert not sketches(torch.zeros(1, place.width), place).any()


def test_inner_products_are_right_on_average() -> None:
    place = layout("conv.weight")
    rows = torch.randn(2, place.width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows[1] += 0.5 * rows[0]
    found = torch.stack([s[:, 0] @ s[:, 0].T for s in (sketches(rows, place, seed=n) for n in range(1500))])
    error = (found.mean(0) - rows @ rows.T).abs() / (found.std(0) / np.sqrt(len(found)))
    assert error.max() < 4


@pytest.mark.parametrize("name", ["conv.weight", "linear.weight", "norm.weight"])
def test_the_error_of_a_cosine_is_about_one_in_eight(name: str) -> None:
    assert 0.1 < cosine_error(name, cosine=0.0) < 0.13
    assert cosine_error(name, cosine=0.9) < 0.03


def test_a_short_vector_keeps_its_angles() -> None:
    assert cosine_error("linear.bias", cosine=0.3) < 1e-12


def test_rank_one_that_differs_on_one_side_is_the_worst_case() -> None:
    assert 0.25 < cosine_error("linear.weight", cosine=0.0, rank_one=True) < 0.35


def cosine_error(name: str, *, cosine: float, rank_one: bool = False) -> float:
    """Root mean square over seeds and pairs of gradients at that angle."""
    place = layout(name)
    generator = torch.Generator().manual_seed(0)
    errors = []
    for seed in range(300):
        if rank_one:
            common = torch.randn(40, 1, generator=generator, dtype=torch.float64)
            a, b = ((common * torch.randn(30, generator=generator, dtype=torch.float64)).flatten() for _ in range(2))
        else:
            a, b = torch.randn(2, place.width, generator=generator, dtype=torch.float64)
        a = a / a.norm()
        b = b - (a @ b) * a
        b = cosine * a + (1 - cosine**2) ** 0.5 * b / b.norm()
        s = sketches(torch.stack([a, b]), place, seed=seed)[:, 0]
        errors.append(float(s[0] @ s[1] / (s[0].norm() * s[1].norm())) - cosine)
    return float(np.sqrt(np.mean(np.square(errors))))

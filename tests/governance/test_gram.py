"""The numbers of a step against their definitions; sketches: known signs, linearity, expectation, promised error."""

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.entries.numbers import share_terms
from explorer.governance.contributions import (
    Layout,
    inner_products,
    lay_out,
    projections,
    signed_columns,
    sketch,
    step_numbers,
)


def layers() -> dict[str, dict[str, Tensor]]:
    torch.manual_seed(0)
    return {
        "conv": {"conv.weight": torch.randn(4, 3, 3, 3), "conv.bias": torch.randn(4)},
        "norm": {"norm.weight": torch.randn(4)},
        "scale": {"scale.weight": torch.randn(())},
    }


def rows(k: int, dtype: torch.dtype, *, width: int = 117, seed: int = 1) -> Tensor:
    return torch.randn(k + 1, width, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_a_row_holds_the_parameters_layer_by_layer() -> None:
    layout = lay_out(layers())
    assert layout.width == 117
    assert layout.spans == (slice(0, 112), slice(112, 116), slice(116, 117))
    assert layout.owners == {"conv.weight": 0, "conv.bias": 0, "norm.weight": 1, "scale.weight": 2}
    row = torch.zeros(117)
    for own in layers().values():
        for name, parameter in own.items():
            layout.views(row)[name].copy_(parameter)
    assert torch.equal(row, torch.cat([p.flatten() for own in layers().values() for p in own.values()]))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
def test_shares_are_what_they_are_said_to_be_and_add_up(dtype: torch.dtype, tolerance: float) -> None:
    layout, found = lay_out(layers()), rows(4, dtype)
    weights = np.random.default_rng(0).choice([0.25, 1.0], size=(4, 3)).astype(np.float32)
    products = inner_products(found, layout.spans).double().numpy()
    for index, span in enumerate(layout.spans):
        classes = found[:4, span].double() * torch.from_numpy(weights)[:, index, None]
        total = classes.sum(0)
        expected = (classes @ total / (total @ total)).numpy()
        gram = products[index, :4, :4] * np.outer(weights[:, index], weights[:, index])
        shares = gram.sum(1) / gram.sum()
        assert np.abs(shares - expected).max() < tolerance * max(1, np.abs(expected).max())
        assert abs(shares.sum() - 1) < tolerance
    numerators, denominators = share_terms(step_numbers(products, weights, classes=(0, 1, 2, 3)).gram)
    assert np.abs((numerators / denominators).sum(0) - 1).max() < 1e-12  # by construction, whatever was recorded


def test_numbers_by_definition() -> None:
    layout, found = lay_out(layers()), rows(3, torch.float64)
    weights = np.array([[1, 0.5, 1], [0.25, 1, 0.5], [1, 1, 1]], dtype=np.float32)
    numbers = step_numbers(inner_products(found, layout.spans).numpy(), weights, classes=(0, 2, 5))
    for index, span in enumerate(layout.spans):
        g, update = found[:3, span], found[3, span]
        weighted = g * torch.from_numpy(weights)[:, index, None]
        assert np.allclose(numbers.norms[:, index], g.norm(dim=1), rtol=1e-6)
        assert np.allclose(numbers.dots[:, index], weighted @ update, rtol=1e-5, atol=1e-6)
        assert np.allclose(numbers.gram[index], weighted @ weighted.T, rtol=1e-5, atol=1e-5)
        assert np.allclose(numbers.updates[index], update @ update, rtol=1e-6)


def test_denied_is_exactly_zero_even_beside_infinity() -> None:
    layout, found = lay_out(layers()), rows(2, torch.float32)
    found[0, :116] = 0
    found[1] = torch.inf
    weights = np.array([[0, 0, 1], [1, 1, 1]], dtype=np.float32)
    products = inner_products(found, layout.spans).double().numpy()
    assert np.isnan(products[0, 0, 1])  # zero times infinity: without the rule the denied class would have numbers
    numbers = step_numbers(products, weights, classes=(0, 1))
    assert not numbers.norms[0, :2].any() and not numbers.dots[0, :2].any()
    assert not numbers.gram[:2, 0].any() and not numbers.gram[:2, :, 0].any()
    assert np.isinf(numbers.norms[1]).all()


def test_no_class_at_all() -> None:
    layout = lay_out(layers())
    products = inner_products(rows(0, torch.float32), layout.spans).double().numpy()
    numbers = step_numbers(products, np.zeros((0, 3), dtype=np.float32), classes=())
    assert numbers.gram.shape == (3, 0, 0) and (numbers.updates > 0).all()


def test_what_overflows_is_recorded_as_it_was_and_nobody_is_warned() -> None:
    layout, found = lay_out(layers()), rows(2, torch.float64)
    found[1] *= 1e200
    weights = np.array([[1, 0, 1], [1, 1, 0.5]], dtype=np.float32)
    found[0, 112:116] = 0
    numbers = step_numbers(inner_products(found, layout.spans).numpy(), weights, classes=(0, 1))
    assert np.isinf(numbers.norms[1]).all() and np.isfinite(numbers.norms[0]).all()
    assert not numbers.gram[1, 0].any()
    numerators, denominators = share_terms(numbers.gram)
    assert not np.isfinite(denominators).any() and numerators[0, 1] == 0


# --- sketches ---

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

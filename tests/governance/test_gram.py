"""The numbers of a step against their definitions."""

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.entries.numbers import share_terms
from explorer.governance.gram import inner_products, lay_out, step_numbers


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

"""Numbers that gradients can have, and numbers that none can."""

from dataclasses import replace

import numpy as np
import pytest

from explorer.audit.reconstructible import impossible
from explorer.entries.numbers import StepNumbers, diagonal


def numbers(gradients: np.ndarray, update: np.ndarray) -> StepNumbers:
    """Of gradients (k L P) and an update (L P), at weight 1."""
    norms = np.linalg.norm(gradients, axis=2).astype(np.float32)
    gram = np.einsum("clp,dlp->lcd", gradients, gradients).astype(np.float32)
    gram = np.triu(gram) + np.triu(gram, 1).transpose(0, 2, 1)
    each = range(len(gradients))
    gram[:, each, each] = diagonal(np.ones_like(norms), norms).T
    dots = np.einsum("clp,lp->cl", gradients, update).astype(np.float32)
    squares = np.square(update).sum(1).astype(np.float32)
    classes = tuple(each)
    return StepNumbers(
        classes=classes, weights=np.ones_like(norms), norms=norms, dots=dots, gram=gram, updates=squares, exact=None
    )


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("parallel", [False, True])
def test_what_gradients_have_is_possible(scale: float, parallel: bool) -> None:
    draws = np.random.default_rng(0)
    gradients = draws.normal(size=(1 if parallel else 3, 4, 9)).repeat(3 if parallel else 1, axis=0) * scale
    gradients[:, 1] = 0
    assert not len(impossible(numbers(gradients, -0.1 * gradients.sum(0))))


def test_lengths_that_do_not_fit_the_products_are_not() -> None:
    draws = np.random.default_rng(0)
    gradients = draws.normal(size=(3, 4, 9))
    true = numbers(gradients, -0.1 * gradients.sum(0))
    assert impossible(replace(true, updates=true.updates * np.array([1, 0.01, 1, 1], np.float32))).tolist() == [1]
    dots = true.dots.copy()
    dots[0, 2] *= -5
    assert impossible(replace(true, dots=dots)).tolist() == [2]


def test_three_that_fit_in_pairs_and_not_together() -> None:
    """Each two of three vectors may be at 150 degrees, and not all three."""
    gradients, cosine = np.eye(3)[:, None, :], np.float32(-0.87)
    true = numbers(gradients, np.zeros((1, 3)))
    gram = np.full((1, 3, 3), cosine, np.float32)
    gram[0, range(3), range(3)] = 1
    assert impossible(replace(true, gram=gram)).tolist() == [0]


def test_what_is_not_finite_says_nothing() -> None:
    true = numbers(np.ones((2, 1, 3)), np.ones((1, 3)))
    dots = np.full_like(true.dots, np.nan)
    assert not len(impossible(replace(true, dots=dots)))

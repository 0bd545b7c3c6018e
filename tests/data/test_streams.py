"""Random streams: pure, distinct, independent, and nobody else's business."""

from itertools import combinations

import numpy as np
import pytest
import torch

from explorer.data.streams import key, stream, torch_stream

CPU = torch.device("cpu")
KEYS = [
    (0, "order", 0),
    (0, "order", 1),
    (1, "order", 0),
    (0, "augment", 0),
    (0, "order"),
    (0, "order", 0, 0),
    (0, "order", 10),
    (1, "order", 1, 0),
    (0, "a", "bc"),
    (0, "ab", "c"),
    (0, "abc"),
    (10, "abc"),
    (1, "0abc"),
]


def test_a_stream_is_a_pure_function_of_its_key() -> None:
    first = stream(3, "order", 7).random(5)
    stream(3, "other", 7).random(1000)
    np.random.default_rng(0).random()
    assert (stream(3, "order", 7).random(5) == first).all()


def test_keys_are_distinct() -> None:
    for one, other in combinations(KEYS, 2):
        assert key(*one) != key(*other), (one, other)
        assert stream(*one).random() != stream(*other).random(), (one, other)


def test_neighbouring_streams_are_uncorrelated() -> None:
    draws = np.stack([stream(0, "order", step).random(4000) for step in range(20)])
    correlation = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlation).max() < 0.07  # 4.4 standard deviations of 1/sqrt(4000)
    assert np.abs(draws.mean(1) - 0.5).max() < 0.02


def test_torch_draws_are_keyed_and_leave_the_global_generator() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    with torch_stream(CPU, 0, "model", 1):
        first = torch.rand(3)
    with torch_stream(CPU, 0, "model", 2):
        second = torch.rand(3)
    with torch_stream(CPU, 0, "model", 1):
        again = torch.rand(3)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(torch.rand(3), expected)


def test_the_global_generator_is_put_back_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), torch_stream(CPU, 0, "model"):
        torch.rand(1)
        raise ZeroDivisionError
    assert torch.equal(torch.get_rng_state(), before)

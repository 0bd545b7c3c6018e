"""The order of typed examples: even, complete, and the same whatever the classes hold."""

import numpy as np
import pytest

from explorer.data.order import Order

COUNTS = {0: 3, 4: 17, 9: 40, 12: 1}


def codes(counts: dict[int, int] = COUNTS) -> np.ndarray:
    """Classes in a fixed mixture."""
    listed = np.repeat(np.fromiter(counts, np.int64), list(counts.values()))
    return np.random.default_rng(0).permutation(listed)


def test_every_epoch_has_every_example_once_in_a_place_of_its_class() -> None:
    given = codes()
    order = Order(given, seed=3)
    epochs = [order.examples(start, start + 61) for start in (0, 61, 122)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(61))
        assert (given[epoch] == order.codes(0, 61)).all()
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("batch_size", [1, 5, 16])
def test_every_batch_has_each_class_in_its_share(batch_size: int) -> None:
    """To within two: a window over places that are evenly spaced by n / N, across the seam of an epoch too."""
    order = Order(codes(), seed=0)
    for step in range(40):
        found = order.codes(step * batch_size, (step + 1) * batch_size)
        for code, count in COUNTS.items():
            assert abs((found == code).sum() - batch_size * count / 61) <= 2, (step, code)


def test_an_ordinary_shuffle_is_not_even() -> None:
    """The control of the shares."""
    shuffled = np.random.default_rng(1).permutation(codes())
    windows = [shuffled[start : start + 16] for start in range(0, 45)]
    assert max(abs((window == 4).sum() - 16 * 17 / 61) for window in windows) > 2


def test_another_class_moves_neither_places_nor_examples() -> None:
    """Exchanging the numbers of two examples of one class changes that class's order and no other's."""
    given = codes()
    order, seeds = Order(given, seed=5), Order(given, seed=6)
    assert (order.codes(0, 200) == seeds.codes(0, 200)).all(), "which class stands where does not depend on the seed"
    renamed = given.copy()
    renamed[given == 4] = 5  # another name that keeps its place in the order of the codes
    other = Order(renamed, seed=5)
    mine, theirs = order.examples(0, 200), other.examples(0, 200)
    same = order.codes(0, 200) != 4
    assert (mine[same] == theirs[same]).all()
    assert (mine[~same] != theirs[~same]).any()


def test_one_class_alone_is_a_shuffle() -> None:
    order = Order(np.zeros(10, np.int64), seed=0)
    assert sorted(order.examples(0, 10)) == list(range(10))
    assert (order.codes(0, 25) == 0).all()

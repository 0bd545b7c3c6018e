import doctest
from itertools import product

import pytest

from explorer.errors import ProvenanceError
from explorer.provenance import levels
from explorer.provenance.levels import Cost, reaches, read_cost, replay_words


def test_there_is_one_order_and_two_levels_share_its_top() -> None:
    for found, asked in product(("G0", "G1", "G2", "G3"), repeat=2):
        expected = min(int(found[1]), 2) >= min(int(asked[1]), 2)
        assert reaches(found, asked) is expected


@pytest.mark.parametrize(
    ("written", "cost", "most"),
    [
        ("1% of training", Cost(share=0.01), 8),
        ("0.5 % of training", Cost(share=0.005), 4),
        ("100% of training", Cost(share=1.0), 800),
        ("0% of training", Cost(share=0.0), 0),
        ("500 steps", Cost(steps=500), 500),
        ("1 step", Cost(steps=1), 1),
        ("0 steps", Cost(steps=0), 0),
    ],
)
def test_a_cost_allows_so_much_and_not_a_step_more(written: str, cost: Cost, most: int) -> None:
    found = read_cost(written, where="at_most")
    assert found == cost and read_cost(str(found), where="at_most") == cost
    assert found.allows(most, of=800) and not found.allows(most + 1, of=800)


NO_COSTS = (
    *("", "1%", "1", "101% of training", "-1% of training", "nan% of training", "1e3 steps", "1.5 steps"),
    *("10 steps of training", "2 h", "1% of training, or so", "1%\n of training", "9999999999 steps"),
)


@pytest.mark.parametrize("written", NO_COSTS)
def test_what_is_no_cost_is_refused(written: str) -> None:
    with pytest.raises(ProvenanceError, match=r"at_most: found .*; expected "):
        read_cost(written, where="at_most")


def test_a_share_of_nothing_allows_nothing() -> None:
    assert not Cost(share=1.0).allows(1, of=0) and Cost(share=0.0).allows(0, of=0)
    assert replay_words(0, of=0) == "nothing to replay"


def test_examples() -> None:
    assert doctest.testmod(levels).failed == 0

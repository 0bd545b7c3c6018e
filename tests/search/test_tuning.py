"""Points, choice, edges and expectations of tuning: known answers."""

import itertools
import sys
from statistics import fmean

import pytest

from explorer.errors import SweepError
from explorer.search.optuna_sampler import OptunaSampler
from explorer.search.tpe import TreeParzen
from explorer.search.tuning import Edge, Values, best, edges, expected_best, points
from explorer.sweep.tune_key import Axis
from tests.search.spaces import world

LR = Axis(key="lr", scale="log", low=0.01, high=1.0)
DECAY = Axis(key="weight_decay", scale="linear", low=0.0, high=0.1)
CHOICE = Axis(key="batch_size", scale="of", options=(32, 64, 128))


def test_points_are_the_same_on_every_machine() -> None:
    assert points([LR, DECAY], 4) == [
        {"lr": 0.02425, "weight_decay": 0.02883},
        {"lr": 0.2425, "weight_decay": 0.09549},
        {"lr": 0.07669, "weight_decay": 0.06216},
        {"lr": 0.7669, "weight_decay": 0.01772},
    ]


def test_more_points_begin_with_the_fewer() -> None:
    assert points([LR, DECAY], 24)[:7] == points([LR, DECAY], 7)


def test_points_fill_every_axis_evenly() -> None:
    """Every eighth of either axis gets a point of 16, which independent draws miss nearly always."""
    for axis in (LR, DECAY):
        shares = [axis.share(point[axis.key]) for point in points([LR, DECAY], 24)]
        assert {int(8 * share) for share in shares if share is not None} == set(range(8))


def test_the_best_is_the_first_of_equal_ones_and_never_one_that_diverged() -> None:
    assert best([None, 0.3, 0.5, 0.5]) == 2
    assert best([-0.2, None, -0.1]) == 2
    assert best([None, None]) is None


GRID: list[Values] = [{"lr": lr, "weight_decay": decay} for lr in (0.011, 0.1, 0.9) for decay in (0.001, 0.05, 0.099)]


def test_a_choice_inside_the_space_is_at_no_edge() -> None:
    assert edges([LR, DECAY], GRID, GRID.index({"lr": 0.1, "weight_decay": 0.05})) == []


def test_a_choice_at_an_edge_is_said_with_a_wider_range() -> None:
    chosen = GRID.index({"lr": 0.9, "weight_decay": 0.001})
    assert edges([LR, DECAY], GRID, chosen) == [
        Edge(key="lr", side="high", wider=(0.01, 10.0)),
        Edge(key="weight_decay", side="low", wider=(0.0, 0.1)),
    ]


def test_the_outermost_value_tried_is_an_edge_however_far_from_the_end() -> None:
    tried: list[Values] = [{"lr": lr} for lr in (0.03, 0.1, 0.3)]
    assert [edge.side for edge in edges([LR], tried, 0)] == ["low"]
    assert edges([LR], tried, 1) == []


def test_an_end_of_a_list_of_numbers_is_an_edge_and_names_have_none() -> None:
    tried: list[Values] = [{"batch_size": size} for size in (64, 128, 32)]
    assert [[edge.side for edge in edges([CHOICE], tried, at)] for at in range(3)] == [[], ["high"], ["low"]]
    names = Axis(key="nesterov", scale="of", options=(True, False))
    assert edges([names], [{"nesterov": True}, {"nesterov": False}], 0) == []


@pytest.mark.parametrize("qualities", [[1.0, 3.0, 2.0, 2.0, -4.0], [0.5, 0.5], [2.0]])
def test_the_expected_best_is_the_mean_over_all_orders(qualities: list[float]) -> None:
    for drawn, expected in enumerate(expected_best(qualities), 1):
        assert expected == pytest.approx(fmean(max(order[:drawn]) for order in itertools.permutations(qualities)))


def test_a_point_that_diverged_counts_as_the_worst() -> None:
    assert expected_best([1.0, None, 3.0]) == expected_best([1.0, 1.0, 3.0])
    assert expected_best([None]) == []


def test_without_the_extra_its_samplers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)  # an import of it fails, as where it is not installed
    with pytest.raises(SweepError, match="sampler 'tpe' needs optuna, which is not installed: pip install"):
        OptunaSampler("tpe", [LR])
    with pytest.raises(SweepError, match="searcher 'tpe' needs optuna, which is not installed: pip install"):
        TreeParzen(world().space)

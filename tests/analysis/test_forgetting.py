"""Membership, seeds and equality against closed forms, and what has to fail them."""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from scipy import stats

from explorer.analysis.forgetting import auc, confident, judge, membership, over_seeds, reference, same
from explorer.errors import AnalysisError

EXAMPLES = 400


@dataclass(frozen=True, kw_only=True)
class Model:
    """Losses as if from training."""

    seed: int
    target_N: np.ndarray
    others_M: np.ndarray = field(default_factory=lambda: np.full(5, 0.5))
    quality: float = 0.9
    relearned: int | None = 10


def losses(seed: int, *, knows: float = 0.0, hard: bool = False) -> np.ndarray:
    """Of examples that differ in how hard they are, by a model that is surer of them by so many deviations."""
    hardness = np.random.default_rng(99).normal(0 if not hard else -9, 2.0, EXAMPLES)
    sure = hardness + knows + np.random.default_rng(seed).normal(0, 1.0, EXAMPLES)
    return np.log1p(np.exp(-sure))  # exp(-loss) has the logit `sure`


def references(count: int = 4) -> list[Model]:
    return [Model(seed=seed, target_N=losses(seed)) for seed in range(count)]


def test_the_area_of_known_scores() -> None:
    assert auc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1
    assert auc(np.array([0.0]), np.array([1.0, 2.0])) == 0
    assert auc(np.ones(3), np.ones(5)) == 0.5
    positive, negative = np.random.default_rng(0).integers(0, 9, (2, 50)).astype(float)
    pairs = positive[:, None] - negative
    assert auc(positive, negative) == pytest.approx(((pairs > 0) + (pairs == 0) / 2).mean())


def test_confidence_is_a_logit_however_small_the_loss() -> None:
    p = np.array([0.001, 0.5, 0.999])
    assert confident(-np.log(p)) == pytest.approx(np.log(p / (1 - p)))
    assert confident(np.array([0.0, 1e-13])).tolist() == confident(np.array([1e-12, 1e-12])).tolist()
    assert confident(np.array([800.0])) == pytest.approx([-800.0])


def test_the_score_orders_as_the_likelihood_ratio_of_two_gaussians_does() -> None:
    """Of one width; whatever the distance between them, so that nobody has to know it."""
    values = np.random.default_rng(0).normal(0, 3, 30)
    for shift in (0.1, 1.0, 5.0):
        ratio = stats.norm.logpdf(values, 2 + shift, 1.5) - stats.norm.logpdf(values, 2, 1.5)
        assert np.array_equal(np.argsort(ratio), np.argsort(values - 2))


def test_the_area_between_gaussians_is_the_one_that_theory_gives() -> None:
    """Means of so many references carry an error of their own, the same on both sides of the comparison."""
    found = membership(losses(50, knows=1.0), [each.target_N for each in references(4)])
    assert found.auc == pytest.approx(stats.norm.cdf(1 / np.sqrt(2 * (1 + 1 / 3))), abs=0.03)
    assert found.low < found.auc < found.high and found.high - found.low < 0.1


@pytest.mark.slow
def test_a_held_out_reference_cannot_be_told_from_the_others() -> None:
    found = reference(references(5))
    assert found.auc.mean == pytest.approx(0.5, abs=1e-3)
    for each in references(5):
        assert judge(each, references(5)).membership.auc == pytest.approx(0.5, abs=0.05)


def test_a_reference_that_has_seen_the_target_is_told() -> None:
    """The control of the calibration."""
    spoilt = [*references(4), Model(seed=4, target_N=losses(4, knows=2.0))]
    assert judge(spoilt[-1], spoilt).membership.low > 0.8
    assert not reference(references(4)).auc.expects(judge(spoilt[-1], spoilt).membership.auc)


def test_a_model_that_memorised_is_told_from_one_that_did_not() -> None:
    beside = reference(references())
    memorised = judge(Model(seed=7, target_N=losses(7, knows=3.0), relearned=0), references())
    innocent = judge(Model(seed=8, target_N=losses(8)), references())
    assert memorised.membership.low > 0.9 and innocent.membership.auc == pytest.approx(0.5, abs=0.05)
    assert not beside.target.expects(memorised.target) and beside.target.expects(innocent.target)
    assert not beside.auc.expects(memorised.membership.auc) and beside.auc.expects(innocent.membership.auc)


def test_gibberish_forgets_and_retains_nothing() -> None:
    """It passes what asks for forgetting alone: its score is below every reference's. What stands beside it tells."""
    beside = reference(references())
    found = judge(Model(seed=9, target_N=losses(9, hard=True), others_M=np.full(5, 6.0), quality=0.1), references())
    assert found.membership.high < 0.5 and found.target > beside.target.most
    assert not beside.others.expects(found.others) and not beside.quality.expects(found.quality)


@pytest.mark.slow
def test_equal_is_not_close() -> None:
    models = references()
    twin = replace(models[1])
    assert judge(twin, models).same is True
    assert judge(twin, models) == judge(models[1], models)
    for change in (
        {"target_N": np.nextafter(twin.target_N, 9)},
        {"others_M": np.nextafter(twin.others_M, 9)},
        {"quality": np.nextafter(0.9, 1)},
        {"relearned": None},
    ):
        assert not same(replace(twin, **change), models[1])
    assert judge(replace(twin, seed=77), models).same is None


def test_a_model_is_never_held_against_its_twin() -> None:
    """Which has its draws, and would seem to know what it knows."""
    models = references(4)
    rest = [each.target_N for each in models[1:]]
    assert judge(replace(models[0], target_N=losses(60)), models).membership == membership(losses(60), rest)


def test_seeds_have_the_intervals_of_the_textbook() -> None:
    values = [1.0, 1.5, 2.5]
    found = over_seeds(values)
    low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    reach = stats.t.ppf(0.975, 2) * np.std(values, ddof=1) * np.sqrt(4 / 3)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert (found.least, found.most) == (pytest.approx(np.mean(values) - reach), pytest.approx(np.mean(values) + reach))
    assert found.expects(1.7) and not found.expects(found.most + 0.01)


def test_the_range_of_an_area_ends_where_areas_do() -> None:
    """Seeds that lie far apart: no area beyond 0 and 1, and one that tells all is still outside."""
    far = [
        Model(seed=seed, target_N=losses(seed, knows=shift)) for seed, shift in enumerate((-0.6, -0.2, 0.0, 0.2, 0.6))
    ]
    found = reference(far).auc
    assert 0 < found.least < found.low < found.mean < found.high < found.most < 1
    assert found.mean == pytest.approx(0.5, abs=0.01)
    assert not found.expects(judge(Model(seed=9, target_N=losses(9, knows=6.0)), far).membership.auc)


def test_a_reference_that_never_gets_there_has_no_mean() -> None:
    assert reference([*references(3), Model(seed=3, target_N=losses(3), relearned=None)]).relearned is None


REFUSED = {
    "two references": (lambda: reference(references(2)), r"seeds \[0, 1\]; expected at least 3"),
    "a seed twice": (lambda: reference([*references(2), references(1)[0]]), r"seeds \[0, 1, 0\]"),
    "nobody but the twin": (lambda: judge(references(1)[0], references(2)), "1 references of other seeds"),
    "other examples": (lambda: membership(np.ones(3), [np.ones(4), np.ones(4)]), "expected the same"),
    "no examples": (lambda: membership(np.ones(0), [np.ones(0), np.ones(0)]), "not 0"),
    "no number": (lambda: membership(np.array([np.nan]), [np.ones(1), np.ones(1)]), "not finite"),
    "no loss": (lambda: membership(np.array([-1.0]), [np.ones(1), np.ones(1)]), "below 0"),
    "one seed": (lambda: over_seeds([1.0]), "found 1 seeds"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    ask, message = REFUSED[name]
    with pytest.raises(AnalysisError, match=message):
        ask()

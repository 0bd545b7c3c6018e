"""Moderated noise of seeds: limma's formulas against known answers, and what a comparison takes from other recipes."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import polygamma, psi

from explorer.analysis.comparison import Compared, compared
from explorer.analysis.equal_budget import at_equal_budget
from explorer.analysis.equal_quality import Call, EqualQuality, at_equal_quality, equal_quality
from explorer.analysis.inference import Error
from explorer.analysis.moderation import (
    LEAST_RECIPES,
    MOST_PRIOR_DF,
    Moderated,
    Runs,
    inverse_trigamma,
    moderated,
    prior_of,
)
from explorer.analysis.monotone import crossing
from explorer.analysis.power import TOO_NOISY, power_of
from tests.analysis.tables import BUDGETS, rows, table


def test_the_inverse_of_the_trigamma_function():
    values = np.array([1e-9, 1e-3, 0.1, 1.0, 9.9, 10.0, 12.0, 1e3, 1e8])
    assert polygamma(1, inverse_trigamma(values)) == pytest.approx(values, rel=1e-12)


def test_the_prior_of_variances_is_limmas():
    """By hand: limma's `fitFDist` of (0.5, 1, 2, 8) with 4 degrees of freedom, from its formulas."""
    variances = np.array([0.5, 1.0, 2.0, 8.0])
    e = np.log(variances) - psi(2.0) + math.log(2.0)
    assert e.mean() == pytest.approx(0.7902, abs=5e-5)  # (3 log 2) / 4 + 0.2704
    excess = e.var(ddof=1) - polygamma(1, 2.0)
    assert excess == pytest.approx(0.7564, abs=5e-5)  # 1.4013 - 0.6449
    found = prior_of(variances, df=4)
    assert polygamma(1, found.df / 2) == pytest.approx(excess)
    assert found.df == pytest.approx(3.5277, abs=5e-5)
    assert found.variance == pytest.approx(math.exp(e.mean() + psi(found.df / 2) - math.log(found.df / 2)))
    # A variance moves to the prior's by the degrees of freedom of both.
    expected = (found.df * found.variance + 4 * variances) / (found.df + 4)
    assert found.moderated(variances, df=4) == pytest.approx(expected)


def test_the_prior_is_found_again():
    random = np.random.default_rng(0)
    truth = 3.0 * 10 / random.chisquare(10, 20000)
    found = prior_of(truth * random.chisquare(2, truth.size) / 2, df=2)
    assert found.df == pytest.approx(10, rel=0.15)
    assert found.variance == pytest.approx(3.0, rel=0.03)


def test_variances_that_are_alike_have_a_prior_without_end():
    found = prior_of(np.array([1.0, 1.1, 0.9, 1.05]), df=2)
    assert math.isinf(found.df)
    assert found.moderated(np.array([0.5]), df=2) == pytest.approx(found.variance)
    capped = prior_of(np.array([1.0, 1.1, 0.9, 1.05]), df=2, most=MOST_PRIOR_DF)
    assert capped.df == MOST_PRIOR_DF
    assert 0.5 < capped.moderated(np.array([0.5]), df=2)[0] < capped.variance


def noise_of(random, *, m=12, n=3, of_seed=0.0, spread=1.0) -> np.ndarray:
    return random.normal(0, of_seed, n) + random.normal(0, spread, (m, n))


def test_the_noise_of_a_seed_in_all_recipes_cancels_where_budgets_are_the_same():
    quiet = noise_of(np.random.default_rng(1))
    loud = quiet + np.array([100.0, -50.0, 7.0])
    for row in (quiet, loud):
        found = moderated(-row, row)
        assert found.shared == 0
        assert found.own_M == pytest.approx(moderated(-quiet, quiet).own_M)


def test_the_noise_of_a_seed_in_all_recipes_counts_only_seeds_where_budgets_differ():
    random = np.random.default_rng(2)
    found: list[Moderated] = [moderated(-noise_of(random), noise_of(random, of_seed=5.0)) for _ in range(400)]
    assert np.mean([each.shared for each in found]) == pytest.approx(25, rel=0.15)
    assert np.mean([each.own_M.mean() for each in found]) == pytest.approx(2, rel=0.1)


def test_a_recipe_that_spreads_far_is_told_from_the_others():
    row = noise_of(np.random.default_rng(3), n=5)
    row[4] *= 30
    assert moderated(-row, row).unlike_M.tolist() == [place == 4 for place in range(12)]
    row[0] *= 900  # the baseline is in every comparison
    assert moderated(-row, row).unlike_M.all()
    assert not moderated(-row[:, :2], row[:, :2]).unlike_M.any(), "two seeds do not tell"


# --- in comparisons ---


def simulated(random, *, recipes=12, n=3, noise=0.005, common=0.0, speed=1.0, seeds=None, budgets=BUDGETS):
    """One sweep of recipes that all need 1 / `speed` of the baseline's time; they share noise of a seed at a budget."""
    parts = []
    shared = random.normal(0, common, (len(BUDGETS), n))
    for k in range(recipes + 1):
        own = shared + random.normal(0, noise, (len(BUDGETS), n))

        def quality(ssr, seed, own=own):
            return 0.8 + 0.05 * math.log(ssr) + own[BUDGETS.index(ssr), seed % n]

        chosen = range(n) if seeds is None or k == 0 else seeds(k)
        name = f"recipe {k}" if k else "baseline"
        parts.append(rows(name, quality, step=1 / speed if k else 1.0, seeds=chosen, budgets=budgets))
    return table(*parts)


def before(found: list[Compared]) -> list[Compared]:
    """The same comparisons, each by its own seeds."""
    return [replace(one, pair=one.pair and replace(one.pair, moderation=None)) for one in found]


def widths(results: list[EqualQuality]) -> np.ndarray:
    return np.array([math.log(r.ratio_high / r.ratio_low) for r in results if r.ratio_low and r.ratio_high])


@pytest.mark.parametrize(("n", "most"), [(2, 0.5), (3, 0.75)])
def test_intervals_are_narrower_and_estimates_the_same(n, most):
    found = compared(simulated(np.random.default_rng(4), n=n), x="train_seconds")
    now, then = at_equal_quality(found), at_equal_quality(before(found))
    assert [result.ratio for result in now] == [result.ratio for result in then]
    assert [result.reach_rate for result in now] == [result.reach_rate for result in then]
    assert widths(now).sum() < most * widths(then).sum()
    assert {result.errors[0].df for result in then if result.errors} == {n - 1}
    at_budget = [(r.high - r.low) for r in at_equal_budget(found) if r.high is not None and r.low is not None]
    by_itself = [(r.high - r.low) for r in at_equal_budget(before(found)) if r.high is not None and r.low is not None]
    assert len(at_budget) == len(by_itself) and sum(at_budget) < most * sum(by_itself)


def test_few_recipes_keep_their_own_intervals():
    few = simulated(np.random.default_rng(5), recipes=LEAST_RECIPES - 2)
    found = compared(few, x="train_seconds")
    assert at_equal_quality(found) == at_equal_quality(before(found))
    enough = compared(simulated(np.random.default_rng(5), recipes=LEAST_RECIPES - 1), x="train_seconds")
    assert at_equal_quality(enough) != at_equal_quality(before(enough))


def test_copies_of_a_recipe_count_once():
    one = simulated(np.random.default_rng(6), recipes=2)
    copies = [one[one["recipe"] == "recipe 1"].assign(recipe=f"copy {k}", recipe_digest=f"{k}") for k in range(9)]
    found = compared(pd.concat([one, *copies], ignore_index=True), x="train_seconds")
    assert len(found) == 11
    assert at_equal_quality(found) == at_equal_quality(before(found))


def test_other_seeds_keep_their_own_intervals():
    """A recipe's noise is moderated by runs on the very seeds that it is compared on."""
    apart = simulated(np.random.default_rng(7), seeds=lambda k: range(3 * k, 3 * k + 3))
    found = compared(apart, x="train_seconds")
    assert at_equal_quality(found) == at_equal_quality(before(found))


def test_times_that_differ_by_seed_keep_their_own_intervals():
    frame = simulated(np.random.default_rng(8))
    frame["train_seconds"] *= 1 + 0.01 * frame["seed"]
    found = compared(frame, x="train_seconds")
    assert at_equal_quality(found) == at_equal_quality(before(found))


def test_seeds_that_agree_have_no_noise_to_moderate():
    frame = simulated(np.random.default_rng(9), noise=0.0, speed=1.5)
    (reason,) = {result.reason for result in equal_quality(frame)}
    assert reason == "the seeds do not differ, so the noise is unknown"


def test_a_recipe_with_fewer_budgets_is_moderated_where_it_was_run():
    frame = simulated(np.random.default_rng(10))
    frame = frame[~((frame["recipe"] == "recipe 3") & (frame["ssr"] < 0.5))]
    found = compared(frame, x="train_seconds")
    now, then = (
        {r.recipe: r for r in results} for results in (at_equal_quality(found), at_equal_quality(before(found)))
    )
    assert now["recipe 3"].errors != then["recipe 3"].errors


def test_a_budget_that_no_recipe_has_whole_has_no_step():
    """As while a sweep runs; NumPy would warn of the mean of nothing on the terminal."""
    whole, part = (np.array([0.5]), np.array([[0.6, 0.7, 0.8]])), (np.array([1.0]), np.array([[0.6, 0.7]]))
    steps = Runs.of([whole, part], seeds=3).steps(np.array([0.5, 1.0]))
    assert steps[0] == pytest.approx(0.1 / math.sqrt(3)) and math.isnan(steps[1])


def test_where_a_raised_target_is_not_reached_the_other_side_tells():
    found = compared(simulated(np.random.default_rng(13), budgets=(0.25, 0.5, 1.0), speed=1.1), x="train_seconds")
    one_sided = 0
    for each, result in zip(found, at_equal_quality(found), strict=True):
        both = each.pair
        assert both is not None and both.baseline.at_full_budget_R is not None
        reached = crossing(both.recipe.x_RB, both.recipe.y_RB, both.baseline.at_full_budget_R)
        if result.errors is not None and not reached.found_R[both.weight_R == 0].all():
            one_sided += 1
            assert result.errors[0].df != 2 and all(math.isfinite(error.size) for error in result.errors)
    assert one_sided


def test_power_knows_the_parts_of_the_seeds():
    """Two parts of the seeds' error are no noise of times, which more seeds would not reduce."""
    results = equal_quality(simulated(np.random.default_rng(0), common=0.01, speed=1.5))
    result = next(r for r in results if r.errors and len(r.errors) == 2 and r.call is Call.INCONCLUSIVE)
    found = power_of(result)
    assert found is not None and found.seeds is not None
    assert result.seed_error is not None
    assert power_of(replace(result, errors=(Error(size=result.seed_error, df=2),))) == found
    # With the noise of times behind them, more seeds leave nothing but that.
    assert result.errors is not None
    times = Error(size=1.0, df=6)
    noisy = power_of(replace(result, errors=(*result.errors, times)))
    assert noisy is not None and noisy.reason == TOO_NOISY

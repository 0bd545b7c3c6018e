"""Does a 95% interval hold the truth 95 times in a hundred? The plain bootstrap, as a control, does not."""

import math

import numpy as np
import pytest

from explorer.analysis.comparison import matches, pair
from explorer.analysis.equal_quality import equal_quality
from explorer.analysis.monotone import crossing
from tests.analysis.tables import BUDGETS, rows, table

TRUE_RATIO = 1 / 1.5


def simulated(*, sweeps, n, shared=0.01, noise=0.005, same_seeds=True):
    """Sweeps in which "fast" truly needs 1 / 1.5 of the time; part of the noise is shared by equal seeds."""
    random = np.random.default_rng(n)
    parts = []
    for sweep in range(sweeps):
        common = random.normal(0, shared, 2 * n)
        own = random.normal(0, noise, (2, len(BUDGETS), 2 * n))
        for k, (recipe, step) in enumerate((("baseline", 1.0), ("fast", TRUE_RATIO))):
            seeds = range(n) if k == 0 or same_seeds else range(n, 2 * n)

            def quality(ssr, seed, k=k, common=common, own=own):
                return 0.8 + 0.05 * math.log(ssr) + common[seed] + own[k, BUDGETS.index(ssr), seed]

            parts.append(rows(recipe, quality, step=step, seeds=seeds, sweep=f"s{sweep}"))
    return table(*parts)


def coverage(frame):
    found = [(result.ratio_low, result.ratio_high) for result in equal_quality(frame)]
    limits = [(low, high) for low, high in found if low is not None and high is not None]
    assert len(limits) > 0.8 * len(found)
    return np.mean([low <= TRUE_RATIO <= high for low, high in limits])


def percentile_coverage(frame):
    """Coverage of the plain percentile bootstrap, from the very same resamples."""
    hits = []
    for match in matches(frame, x="train_seconds", baseline=None):
        assert match.baseline is not None
        both = pair(match.baseline, match.recipe, resamples=2000)
        target_R = both.baseline.at_full_budget_R
        assert target_R is not None
        base, mine = (crossing(side.x_RB, side.y_RB, target_R).x_R for side in (both.baseline, both.recipe))
        low, high = np.nanpercentile(np.repeat(mine / base, both.weight_R.astype(int)), [2.5, 97.5])
        hits.append(low <= TRUE_RATIO <= high)
    return np.mean(hits)


def test_three_seeds_and_the_plain_bootstrap_that_fails():
    frame = simulated(sweeps=250, n=3)
    assert 0.92 <= coverage(frame) <= 0.98
    assert percentile_coverage(frame) < 0.85


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("same_seeds", [True, False])
def test_coverage(n, same_seeds):
    shared = 0.01 if same_seeds else 0.0
    frame = simulated(sweeps=1000, n=n, shared=shared, same_seeds=same_seeds)
    assert 0.92 <= coverage(frame) <= 0.98
    assert percentile_coverage(frame) < 0.90

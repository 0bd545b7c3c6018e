import pandas as pd
import pytest

from explorer.views.explorer.answer import answer, facts
from explorer.views.explorer.question import Question
from tests.views.in_memory import InMemory


def test_a_target_that_pools_two_budgets_is_called_the_curves_own(results: pd.DataFrame) -> None:
    """The mean at the full budget is 0.97; the budgets on either side make the curve pass through the mean of three."""
    base, means = results["recipe"] == "baseline", {0.5: 0.98, 1.0: 0.97, 1.5: 0.96}
    quality = results["quality"].mask(base, results["ssr"].map(means).fillna(0.95))
    found = answer(InMemory(frame=results.assign(quality=quality)), Question())
    assert found.target == pytest.approx(0.97)
    found = answer(
        InMemory(frame=results.assign(quality=quality.mask(base & (results["ssr"] == 1.5), 0.93))), Question()
    )
    assert found.target == pytest.approx((0.98 + 0.97 + 0.93) / 3) != 0.97
    assert "96.00%, that of baseline at 100% budget (monotone fit)." in facts(found)[0]

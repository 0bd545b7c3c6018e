from dataclasses import replace

import pandas as pd

from explorer.analysis.equal_quality import equal_quality
from explorer.views.confirming import confirmations_of


def test_fresh_seeds_say_nothing_of_another_baseline_or_machine(results: pd.DataFrame) -> None:
    again = results[results["recipe"].isin(["baseline", "fast"])].assign(sweep="again", seed=results["seed"] + 10)
    (fast,) = (each for each in equal_quality(results) if each.recipe == "fast")
    on_another = replace(fast, baseline_setting=replace(fast.setting, threads=8))
    beside_another = replace(fast, baseline="heavy")
    found = confirmations_of(pd.concat([results, again]), [on_another, fast, beside_another])
    assert list(found) == [1]

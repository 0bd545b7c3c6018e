"""Whether fresh seeds bear out what is shown, given the rows that `store.confirming` finds."""

import pandas as pd

from explorer.analysis.ask import Candidate
from explorer.analysis.confirmed import Confirmation, confirmations
from explorer.analysis.equal_quality import EqualQuality

FROM_TIME = ("train_seconds", "cost_usd")  # within one hardware a cost is a time at a price


def confirmation_of(rows: pd.DataFrame, candidate: Candidate) -> Confirmation | None:
    """The confirmation of a candidate's recipe beside its sweep's baseline, in time; None where there is none."""
    for found in confirmations(rows, sweep=candidate.setting.sweep):
        if (found.setting, found.recipe_digest) == (candidate.setting, candidate.recipe_digest):
            return found
    return None


def confirmations_of(rows: pd.DataFrame, results: list[EqualQuality]) -> dict[int, Confirmation]:
    """The confirmations of comparisons, all of one sweep and metric, by their place.

    Fresh seeds are run beside the sweep's own baseline on the same machine: of other comparisons they say nothing.
    """
    if not results:
        return {}
    first = results[0]
    x = "train_seconds" if first.x in FROM_TIME else first.x
    target = None if first.own_target else first.target
    found = confirmations(rows, sweep=first.setting.sweep, x=x, target=target)
    by_recipe = {(each.setting, each.recipe): each for each in found}
    own = {str(name) for name in rows.loc[rows["sweep"] == first.setting.sweep, "baseline"]}
    places = {
        at: by_recipe.get((result.setting, result.recipe))
        for at, result in enumerate(results)
        if result.baseline in own and result.baseline_setting == result.setting
    }
    return {at: each for at, each in places.items() if each is not None}

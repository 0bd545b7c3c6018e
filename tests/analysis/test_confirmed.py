"""What counts as a confirmation, and what does not: digests and seeds decide, never a name."""

import math
from typing import Any

import pandas as pd
import pytest

from explorer.analysis.confirmed import Confirmation, Confirmed, confirmations
from explorer.analysis.equal_quality import AT_LOWEST, Call, equal_quality
from explorer.analysis.sentences import summary
from explorer.analysis.verdict import sweep_verdicts
from explorer.errors import AnalysisError
from tests.analysis.tables import rows, table

WOBBLE = (-0.001, 0.00025, 0.00075)


def log_curve(ssr: float, seed: int) -> float:
    return 0.8 + 0.05 * math.log(ssr) + WOBBLE[seed % 3] * (1 + ssr)


def better(ssr: float, seed: int) -> float:
    """Has a quality at 0.8 of the budget, with its seeds' noise turned around."""
    return 0.8 + 0.05 * math.log(1.25 * ssr) + WOBBLE[(seed + 1) % 3] * (1 + ssr)


def sweep(name: str, seeds: tuple[int, ...], fast: Any = better, *, other: bool = False, **more: Any) -> list[Any]:
    both = rows("baseline", log_curve, seeds=seeds, sweep=name, **more)
    both += rows("fast", fast, seeds=seeds, sweep=name, **more)
    return both + (rows("other", log_curve, seeds=seeds, sweep=name, **more) if other else [])


def found(*sweeps: list[Any], of: str = "first") -> Confirmation | None:
    known = confirmations(table(*sweeps), sweep=of)
    return known[0] if known else None


FIRST = sweep("first", (0, 1, 2), other=True)


def test_fresh_seeds_of_the_same_recipes_confirm() -> None:
    fresh = sweep("by-hand", (10, 11, 12), budgets=(0.5, 0.75, 1.0))
    confirmed = found(FIRST, fresh)
    assert confirmed is not None and confirmed.verdict is Confirmed.CONFIRMED
    assert (confirmed.recipe, confirmed.sweeps, confirmed.seeds) == ("fast", ("by-hand",), (10, 11, 12))
    (alone,) = equal_quality(table(fresh))  # the fresh seeds alone
    assert alone.ratio is not None and alone.ratio_low is not None and alone.ratio_high is not None
    assert confirmed.sentence == (
        f"confirmed on 3 fresh seeds: {1 / alone.ratio:.2f}x faster"
        f" ({1 / alone.ratio_high:.2f}x-{1 / alone.ratio_low:.2f}x)"
    )


def test_fresh_seeds_that_all_have_the_target_at_the_smallest_budget_confirm_nothing() -> None:
    """Nor is the confirmation called unfinished: every run is there."""

    def saturated(ssr: float, seed: int) -> float:
        return 1.0

    fresh = rows("baseline", saturated, seeds=(10, 11, 12), sweep="again")
    fresh += rows("fast", saturated, seeds=(10, 11, 12), sweep="again", step=0.5)
    frame = table(fresh)
    frame = frame.assign(
        train_seconds_low=frame["train_seconds"] * 0.999, train_seconds_high=frame["train_seconds"] * 1.001
    )
    (known,) = confirmations(pd.concat([table(FIRST), frame]), sweep="first")
    assert (known.verdict, known.reason) == (Confirmed.NOT_CONFIRMED, AT_LOWEST)


def test_a_winner_by_noise_is_not_confirmed() -> None:
    """In the sweep it is better; on fresh seeds it is the baseline with the noise turned around."""
    (first,) = (each for each in equal_quality(table(FIRST)) if each.recipe == "fast")
    assert first.call is Call.LESS
    luck = sweep("again", (10, 11, 12), lambda ssr, seed: log_curve(ssr, seed + 1))
    refuted = found(FIRST, luck)
    assert refuted is not None and refuted.verdict is Confirmed.NOT_CONFIRMED
    assert refuted.sentence.startswith("not confirmed on 3 fresh seeds: ") and "inconclusive" in refuted.sentence


def test_seeds_that_the_sweep_has_are_not_fresh() -> None:
    assert found(FIRST, sweep("again", (2, 3, 4))) is None
    assert found(FIRST, sweep("again", (3, 4, 5))) is not None


@pytest.mark.parametrize(
    "change",
    [{"recipe_digest": "0" * 64}, {"hardware": "NVIDIA H200"}, {"threads": 2}, {"dataset": "cifar10"}],
)
def test_another_recipe_of_that_name_or_another_machine_confirms_nothing(change: dict[str, Any]) -> None:
    fresh = sweep("first-confirm-fast", (3, 4, 5))
    assert found(FIRST, fresh) is not None
    assert found(FIRST, [row | change if row["recipe"] == "fast" else row for row in fresh]) is None


def test_a_sweep_in_which_there_was_something_to_choose_confirms_nothing() -> None:
    chosen = sweep("search", (3, 4, 5), other=True)
    assert found(FIRST, chosen) is None
    controls = rows(
        "fast-random", log_curve, seeds=(3, 4, 5), sweep="again", control="random-subset", control_of="fast"
    )
    assert found(FIRST, [*sweep("again", (3, 4, 5)), *controls]) is not None  # a control is no choice


def test_several_confirmations_count_together() -> None:
    """Nobody can pick the one that came out well."""
    luck = sweep("unlucky", (6, 7, 8), lambda ssr, seed: log_curve(ssr, seed + 1) - 0.03)
    good = sweep("lucky", (3, 4, 5), budgets=(0.5, 0.75, 1.0, 1.5))
    alone, both = found(FIRST, good), found(FIRST, good, luck)
    assert alone is not None and alone.verdict is Confirmed.CONFIRMED
    assert both is not None and both.verdict is Confirmed.NOT_CONFIRMED
    assert (both.sweeps, both.seeds) == (("lucky", "unlucky"), (3, 4, 5, 6, 7, 8))


def test_a_run_that_two_sweeps_have_counts_once() -> None:
    once, twice = found(FIRST, sweep("a", (3, 4, 5))), found(FIRST, sweep("a", (3, 4, 5)), sweep("b", (3, 4, 5)))
    assert once is not None and twice is not None and once.result == twice.result


def test_one_that_has_not_finished_says_nothing_yet() -> None:
    whole = sweep("again", (3, 4, 5))
    without = {
        "a run": [row for row in whole if (row["recipe"], row["ssr"], row["seed"]) != ("fast", 1.5, 5)],
        "long budgets": [row for row in whole if row["ssr"] < 1],
        "times": [row | {"train_seconds": math.nan} for row in whole],
    }
    for part in without.values():
        waiting = found(FIRST, part)
        assert waiting is not None and waiting.verdict is Confirmed.IN_PROGRESS
        assert waiting.sentence.startswith("its confirmation on 3 fresh seeds is in progress: ")
    assert found(FIRST, [row for row in whole if row["recipe"] == "baseline"]) is None


@pytest.mark.parametrize(
    ("fast", "seeds", "words"),
    [
        (lambda ssr, seed: log_curve(ssr, seed) - 0.2, (3, 4, 5), "the quality is not reached"),
        (lambda ssr, seed: log_curve(ssr, seed) + 0.3, (3, 4, 5), "by how much is not known"),
        (lambda ssr, seed: log_curve(0.8 * ssr, seed + 1), (3, 4, 5), "1.25x slower"),
        (better, (3,), "one seed"),
    ],
)
def test_what_does_not_confirm_says_why(fast: Any, seeds: tuple[int, ...], words: str) -> None:
    known = found(FIRST, sweep("again", seeds, fast))
    assert known is not None and known.verdict is Confirmed.NOT_CONFIRMED
    assert words in known.sentence


def test_names_do_not_matter() -> None:
    fresh = [row | {"recipe": f"x{row['recipe']}", "baseline": "xbaseline"} for row in sweep("again", (3, 4, 5))]
    known = found(FIRST, fresh)
    assert known is not None and (known.recipe, known.verdict) == ("fast", Confirmed.CONFIRMED)


def test_a_sweep_that_is_not_there() -> None:
    with pytest.raises(AnalysisError, match="'nowhere'"):
        confirmations(table(FIRST), sweep="nowhere")
    with pytest.raises(AnalysisError):
        confirmations(pd.DataFrame(columns=["sweep"]), sweep="first")


def test_a_confirmation_asks_for_none_and_says_what_it_confirms() -> None:
    """The only sweep that asked for fresh seeds once more was the one that had them."""
    fresh = sweep("first-confirm-fast", (3, 4, 5))
    both = table(FIRST, fresh)
    (alone,) = sweep_verdicts(table(fresh))
    assert alone.call is Call.LESS and alone.asks  # the control: without the sweep that it confirms
    (known,) = sweep_verdicts(table(fresh), both)
    assert known.confirmation is not None and known.confirmation.verdict is Confirmed.ITSELF
    assert known.claims and not known.asks and not known.judged_by_others
    assert summary([known]).endswith("; on fresh seeds, as the confirmation of first")
    seen = sweep("first-confirm-fast", (2, 3, 4))  # one seed chose it, too
    (unsure,) = sweep_verdicts(table(seen), table(FIRST, seen))
    assert unsure.asks
    chosen = sweep("search", (6, 7, 8), other=True)
    assert [each.asks for each in sweep_verdicts(table(chosen), table(FIRST, chosen)) if each.call is Call.LESS] == [
        True
    ]

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from explorer.analysis.confirmed import confirmations
from explorer.analysis.controls import Controlled, Difference
from explorer.analysis.equal_budget import EqualBudget, equal_budget
from explorer.analysis.equal_quality import Call, EqualQuality, Outcome, equal_quality
from explorer.analysis.sentences import CONFIRM
from explorer.analysis.verdict import Verdict, verdicts
from explorer.page import theme
from explorer.page.html import fragment
from explorer.views.explorer.answer import answer, warnings, where_words
from explorer.views.explorer.comparison_tables import comparison_table
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.question import ALL, Question
from tests.views.in_memory import InMemory


@pytest.fixture(scope="module")
def results(results: pd.DataFrame) -> pd.DataFrame:
    """With times that are exact: what their noise does to an interval is tested elsewhere."""
    return results.drop(
        columns=["train_seconds_low", "train_seconds_high", "train_seconds_windows", "inference_windows"]
    )


@pytest.fixture(scope="module")
def comparisons(results: pd.DataFrame) -> list[EqualQuality]:
    return equal_quality(results)


@pytest.fixture(scope="module")
def budgets(results: pd.DataFrame) -> list[EqualBudget]:
    return equal_budget(results, x="steps")


def rows(comparisons: list[EqualQuality], budgets: Sequence[EqualBudget] = (), **options: Any) -> list[str]:
    return shown(verdicts(comparisons), budgets, **options)


def shown(found: Sequence[Verdict], budgets: Sequence[EqualBudget] = (), **options: Any) -> list[str]:
    labels = [each.comparison.label for each in found]
    html = fragment(
        *comparison_table(
            found,
            budgets,
            **{
                "payment": PAYMENTS["time"],
                "look": theme.look(["baseline", *labels], baseline="baseline"),
                "rates": {},
            }
            | options,
        )
    )
    return str(html).split("<tr")[2:]


def test_the_baseline_stands_first_and_then_the_cheapest(comparisons: list[EqualQuality]) -> None:
    found = rows(list(reversed(comparisons)))
    assert ["baseline" in found[0], "fast" in found[1], "heavy" in found[2]] == [True, True, True]
    assert "baseline, tuned in its author&#39;s words" in found[0]
    assert "1.93x" in found[1] and "1.55x-2.40x" in found[1] and "100%" in found[1]


def test_a_target_beyond_the_baseline_itself(results: pd.DataFrame) -> None:
    found = rows(equal_quality(results, target=0.999))
    assert "not reached" in found[0] and "1.00x" not in found[0]


def test_an_untuned_baseline_is_called_so(comparisons: list[EqualQuality]) -> None:
    assert "untuned baseline" in rows([replace(found, tuning=None) for found in comparisons])[0]
    assert "untuned" not in rows(comparisons)[0]


@pytest.mark.parametrize("words", ["no", "None", "not tuned.", " ", "N/A", "False"])
def test_words_that_deny_tuning_are_no_claim_of_it(results: pd.DataFrame, words: str) -> None:
    """A run of an older version may have them: today a specification is refused."""
    assert "untuned baseline" in rows(equal_quality(results.assign(tuning=words)))[0]
    assert "untuned" not in rows(equal_quality(results.assign(tuning=f"{words}, but by grid")))[0]


def test_what_a_sweep_says_of_its_baseline_is_not_said_of_another_recipe(results: pd.DataFrame) -> None:
    assert "untuned baseline" in rows(equal_quality(results, baseline="heavy"))[0]
    assert "untuned" not in rows(equal_quality(results))[0]


def test_a_baseline_that_did_not_run_on_a_machine_is_not_said_to_fall_short_there(results: pd.DataFrame) -> None:
    """Nor to be untuned: nothing is known of it there."""
    elsewhere = results[results["recipe"] == "fast"].assign(hardware="NVIDIA T4", device="cuda")
    found = rows([each for each in equal_quality(pd.concat([results, elsewhere])) if "T4" in each.setting.hardware])
    assert "unknown" in found[0]
    assert "not reached" not in found[0] and "tuned" not in found[0]


def test_a_recipe_that_does_not_reach_the_target_says_so_and_comes_last(comparisons: list[EqualQuality]) -> None:
    missed = replace(comparisons[0], outcome=Outcome.NOT_REACHED, recipe_x=None, ratio=None, reach_rate=0.2)
    found = rows([missed, comparisons[1]])
    assert "not reached" in found[2] and "x-quiet" in found[2]
    assert "20%" in found[2]


def test_a_recipe_past_the_target_at_its_lowest_budget_has_an_upper_limit(comparisons: list[EqualQuality]) -> None:
    assert "at least 1.93x" in rows([replace(comparisons[0], outcome=Outcome.BELOW)])[1]


def test_one_seed_is_n_1_without_an_interval(results: pd.DataFrame) -> None:
    found = rows(equal_quality(results[results["seed"] == 0]))
    assert "n=1" in found[1]
    assert "x-" not in found[1].partition("n=1")[2].partition("</small>")[0]


def test_slower_inference_is_marked(comparisons: list[EqualQuality]) -> None:
    """By its interval; the ratio alone, which decided it before, is shown with the interval or its absence."""
    slower = replace(comparisons[0], inference_ratio=1.05, inference_low=1.03, inference_high=1.07)
    (_, row, *_) = rows([slower])
    assert "1.05x slower" in row and "1.03 to 1.07" in row
    unsure = replace(slower, inference_ratio=1.3, inference_low=1.01)
    assert "slower" not in rows([unsure])[1] and "1.01 to 1.07" in rows([unsure])[1]
    unknown = replace(slower, inference_ratio=1.3, inference_low=None, inference_high=None)
    assert "slower" not in rows([unknown])[1] and "no interval" in rows([unknown])[1]


def test_time_is_priced_where_there_is_a_price(comparisons: list[EqualQuality]) -> None:
    assert "no price" in rows(comparisons)[1]
    assert "$3.20" in rows(comparisons, rates={comparisons[0].setting.machine: 3600.0})[0]


def test_what_fresh_seeds_said_on_one_machine_is_said_of_no_other(results: pd.DataFrame) -> None:
    results = results[results["recipe"] != "heavy"]  # of two recipes neither would be less
    again = results.assign(sweep="again", seed=results["seed"] + 10)
    said = confirmations(pd.concat([results, again]), sweep=str(results["sweep"].iloc[0]))
    here = next(each for each in equal_quality(results) if each.recipe == "fast")
    assert here.call is Call.LESS
    there = replace(here, setting=replace(here.setting, threads=8), baseline_setting=replace(here.setting, threads=8))
    other = replace(there, recipe="other", recipe_digest="0", label="other")
    found = shown(verdicts([here, there, other], fresh=said))
    assert [sum(words in row for row in found) for words in ("on 3 fresh seeds:", CONFIRM)] == [1, 2]
    beside_another = replace(here, baseline="heavy")
    across = replace(here, baseline_setting=there.setting)
    known = verdicts([here, there, across, beside_another], fresh=said)
    assert [each.confirmation is not None for each in known] == [True, False, False, False]


def test_each_machine_has_its_own_rate(results: pd.DataFrame) -> None:
    four = results.assign(world_size=4, usd_per_hour=40.0)
    both = pd.concat([results.assign(usd_per_hour=10.0), four])
    found = answer(InMemory(frame=both), Question(hardware=ALL))
    assert {machine.world_size: rate for machine, rate in found.rates.items()} == {1: 10.0, 4: 40.0}
    assert "$10.00/h" in found.price and "4 processes: $40.00/h" in found.price


def test_names_are_escaped(results: pd.DataFrame) -> None:
    hostile = results.replace({"recipe": {"fast": "<script>alert(1)</script>"}})
    html = "".join(rows(equal_quality(hostile)))
    assert "&lt;script&gt;" in html
    assert "<script>" not in html


def test_what_is_reached_for_as_much_stands_beside_what_is_needed(
    comparisons: list[EqualQuality], budgets: list[EqualBudget]
) -> None:
    fast = next(each for each in budgets if each.label == "fast")
    assert fast.difference is not None
    assert f"{fast.difference * 100:+.2f} points" in rows(comparisons, budgets)[1]
    assert "points" not in "".join(rows(comparisons))


def test_the_table_is_sorted_by_need_or_by_what_is_reached(
    comparisons: list[EqualQuality], budgets: list[EqualBudget]
) -> None:
    better = [replace(each, difference=0.1 if each.label == "heavy" else 0.0) for each in budgets]
    assert "heavy" in rows(comparisons, better, order="best")[1]
    assert "fast" in rows(comparisons, better, order="least")[1]
    missing = [replace(each, difference=None) if each.label == "heavy" else each for each in better]
    assert "heavy" in rows(comparisons, missing, order="best")[2]  # what is not known comes last


def test_a_winner_asks_for_fresh_seeds(results: pd.DataFrame) -> None:
    (fast,) = verdicts(equal_quality(results[results["recipe"] != "heavy"]))
    assert fast.call is Call.LESS and fast.asks and "confirm on fresh seeds" in shown([fast])[1]
    wide = replace(fast.comparison, adjusted_high=1.2, ratio_high=1.1)
    (unsure,) = verdicts([wide])
    assert unsure.call is Call.INCONCLUSIVE and "confirm" not in shown([unsure])[1]
    assert "inconclusive" in shown([unsure])[1] and "no difference" not in shown([unsure])[1]


def test_on_several_machines_each_row_says_which(comparisons: list[EqualQuality]) -> None:
    fast = comparisons[0]
    elsewhere = replace(fast.setting, hardware="NVIDIA T4", device="cuda")
    found = rows([fast, replace(fast, setting=elsewhere, baseline_setting=elsewhere)])
    assert sum("NVIDIA T4, 1 thread" in row for row in found) == 2  # its baseline and itself
    assert "thread" not in "".join(rows([fast]))


def test_what_is_predicted_is_called_so_in_the_table_and_is_no_finished_run(results: pd.DataFrame) -> None:
    elsewhere = results.assign(hardware="Tesla T4", time_source="predicted")
    found = answer(InMemory(frame=pd.concat([results, elsewhere])), Question(hardware=ALL))
    told = rows(list(found.comparisons))
    assert all(("predicted" in row) == ("Tesla T4" in row) for row in told if "baseline<" not in row)
    assert where_words(found)[-2:] == [f"{len(results)} finished runs", f"{len(results)} predicted for other hardware"]
    assert sum("predicted" in row for row in rows(list(found.comparisons), payment=PAYMENTS["steps"])) == 0


def test_nothing_is_compared_without_the_sweeps_own_baseline_until_another_is_chosen(results: pd.DataFrame) -> None:
    """The terminal says the same: a baseline that nobody chose is none."""
    without = InMemory(frame=results[results["recipe"] != "baseline"])
    found = answer(without, Question())
    assert found.sentence.startswith("nothing can be compared") and found.settled.choices.baselines[0] == "baseline"
    assert {each.call for each in found.verdicts} == {Call.UNKNOWN}
    said = "The sweep's own baseline, baseline, has no run here"
    assert warnings(found)[0] == f"{said}, so nothing is compared until another is chosen."
    again = answer(without, found.question)
    assert again.sentence == found.sentence
    chosen = answer(without, replace(found.question, baseline="fast"))
    assert warnings(chosen)[0] == f"{said}: fast was chosen in its place."
    assert [each.comparison.baseline for each in chosen.verdicts] == ["fast"] * len(chosen.verdicts) != []
    assert not warnings(answer(InMemory(frame=results), Question(baseline="heavy")))[0].startswith("The sweep's own")


def test_a_gain_that_is_none_beside_a_control_is_said_where_the_gain_stands(comparisons: list[EqualQuality]) -> None:
    fast, heavy = verdicts(sorted(comparisons, key=lambda each: each.label))
    setting, nothing = fast.comparison.setting, Difference()
    control = Controlled(
        setting=setting,
        recipe="fast",
        label="fast",
        baseline="baseline",
        control="random-subset",
        name="fast-random",
        ssr=1.0,
        control_ssr=1.0,
        seconds=1.0,
        control_seconds=1.0,
        against=nothing,
        plain=nothing,
        confidence=0.95,
    )
    assert "no better than its control" in shown([replace(fast, control=control), heavy])[1]
    assert "control" not in "".join(rows(comparisons))

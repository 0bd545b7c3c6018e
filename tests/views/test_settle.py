from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from explorer.costing import Price
from explorer.views.explorer import choices
from explorer.views.explorer.answer import answer, where_words
from explorer.views.explorer.choices import Settled
from explorer.views.explorer.choices import settle as settle_results
from explorer.views.explorer.question import ALL, Question
from tests.views.in_memory import InMemory


def settle(frame: pd.DataFrame, wished: Question, **options: Any) -> Settled:
    return settle_results(InMemory(frame=frame, **options), wished)


@pytest.fixture
def both(results: pd.DataFrame) -> pd.DataFrame:
    """The sweep on its own machine and, twice as slow, on another one; and a sweep of another model."""
    other = results.assign(
        hardware="NVIDIA T4", device="cuda", train_seconds=2 * results["train_seconds"], time_source="predicted"
    )
    bigger = results.assign(model="resnet18", sweep="bigger")
    return pd.concat([results, other[other["seed"] < 2], bigger], ignore_index=True)


def test_an_empty_question_becomes_the_first_choices(results: pd.DataFrame) -> None:
    settled = settle(results, Question(), others=("nll",))
    asked = settled.question
    assert (asked.dataset, asked.model, asked.sweep) == ("digits", "resnet8", "digits")
    assert asked.hardware == "AMD EPYC 7B13, 1 thread"
    assert (asked.metric, asked.baseline, asked.payment) == ("accuracy", "baseline", "time")
    assert asked.recipes == ("baseline", "fast", "heavy")
    assert settled.choices.metrics == ("accuracy", "nll")
    assert len(settled.rows) == 45 and settled.shown.all()


def test_what_is_not_there_is_replaced(results: pd.DataFrame) -> None:
    wished = Question(
        sweep="gone",
        metric="gone",
        baseline="gone",
        payment="cost",
        compare="gone",
        size="chi",
        split="model",
        seeds=(9,),
    )
    asked = settle(results, replace(wished, recipes=("fast", "gone"), versus=("fast", "gone"))).question
    assert (asked.sweep, asked.metric, asked.baseline) == ("digits", "accuracy", "baseline")
    assert asked.recipes == ("baseline", "fast")  # a comparison needs its baseline
    assert asked.payment == "time"  # no run has a price
    assert (asked.compare, asked.size, asked.split, asked.seeds, asked.versus) == ("recipe", "", "", (), ("fast",))


def test_recipes_and_methods_hide_and_change_nothing_of_what_is_compared(results: pd.DataFrame) -> None:
    rows = results.assign(methods=results["recipe"].map({"baseline": "", "fast": "muon+ema", "heavy": "sam"}))
    some = settle(rows, Question(recipes=("heavy",)))
    assert set(some.rows.loc[some.shown, "recipe"]) == {"baseline", "heavy"} and len(some.rows) == 45
    with_ema = settle(rows, Question(methods=("ema", "gone")))
    assert with_ema.choices.methods == ("ema", "muon", "sam") and with_ema.question.methods == ("ema",)
    assert set(with_ema.rows.loc[with_ema.shown, "recipe"]) == {"baseline", "fast"} and len(with_ema.rows) == 45


def test_seeds_and_sources_of_time_narrow_what_is_compared(both: pd.DataFrame) -> None:
    two = settle(both, Question(sweep="digits", hardware=ALL, seeds=(0, 1)))
    assert set(two.rows["seed"]) == {0, 1} and two.choices.seeds == (0, 1, 2)
    predicted = settle(both, Question(sweep="digits", hardware=ALL, sources=("predicted",)))
    assert set(predicted.rows["hardware"]) == {"NVIDIA T4"}
    assert predicted.choices.sources == ("predicted", "profiled")


def test_what_no_chosen_seed_has_is_not_said_to_be_chosen(both: pd.DataFrame) -> None:
    first = both[(both["seed"] != 0) | (both["time_source"] != "predicted")]
    found = settle(first, Question(sweep="digits", hardware=ALL, seeds=(0,), sources=("predicted",)))
    assert set(found.rows["time_source"]) == {"profiled"} == set(found.choices.sources)
    assert found.question.sources == ()


def test_what_narrows_the_comparisons_stands_at_their_head(both: pd.DataFrame) -> None:
    asked = Question(sweep="digits", hardware=ALL, seeds=(0, 1), sources=("predicted",))
    assert where_words(answer(InMemory(frame=both), asked))[-2:] == [
        "only seeds 0, 1",
        "only predicted times",
    ]
    hidden = answer(InMemory(frame=both), Question(sweep="digits", hardware=ALL, recipes=("fast",)))
    assert not any("only" in words for words in where_words(hidden))


def test_the_machine_with_most_runs_is_the_first_choice_and_all_can_be_seen(both: pd.DataFrame) -> None:
    asked = settle(both, Question(sweep="digits")).question
    assert asked.hardware == "AMD EPYC 7B13, 1 thread"
    everywhere = settle(both, Question(sweep="digits", hardware=ALL))
    assert set(everywhere.rows["hardware"]) == {"AMD EPYC 7B13", "NVIDIA T4"}
    assert everywhere.choices.baseline_hardware == ("", "AMD EPYC 7B13, 1 thread", "NVIDIA T4, 1 thread")
    assert "hardware" in everywhere.choices.compare and "hardware" in everywhere.choices.splits
    bound = settle(both, Question(sweep="digits", hardware=ALL, baseline_hardware="NVIDIA T4, 1 thread"))
    assert bound.question.baseline_hardware == "NVIDIA T4, 1 thread"
    assert settle(both, Question(sweep="digits")).choices.baseline_hardware == ("",)


def test_models_narrow_sweeps_and_many_runs_of_all_sweeps_are_a_survey(
    both: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = settle(both, Question())
    assert (first.question.model, first.question.sweep) == (ALL, "bigger")
    assert first.choices.models == (ALL, "resnet18", "resnet8") and first.choices.sweeps == (ALL, "bigger", "digits")
    assert settle(both, Question(model="resnet8")).question.sweep == "digits"
    compared = settle(both, Question(sweep=ALL, hardware=ALL))
    assert not compared.question.is_survey and compared.choices.baseline_sweeps == ("digits", "bigger")
    assert compared.choices.baselines == ("baseline of sweep digits",)
    monkeypatch.setattr(choices, "MOST_ACROSS", 0)
    survey = settle(both, Question(sweep=ALL, hardware=ALL))
    assert survey.question.is_survey and survey.rows["sweep"].nunique() == 2
    assert survey.choices.seeds == () and "model" in survey.choices.splits


def test_cost_is_offered_once_there_is_a_price(results: pd.DataFrame) -> None:
    own = settle(results, Question(usd_per_hour=2.0, payment="cost"))
    assert own.question.payment == "cost"
    assert "cost" in settle(results.assign(cost_usd=1.0), Question()).choices.payments
    assert "cost" not in settle(results, Question()).choices.payments


def test_a_provider_prices_the_hardware_that_it_has(both: pd.DataFrame) -> None:
    price = Price(provider="aws", instance="g4dn", accelerator="T4", count=1, usd_per_hour=3600.0, source="a table")
    here = settle(both, Question(sweep="digits", cloud="aws"), prices=(price,))
    assert here.choices.clouds == ("",) and here.question.cloud == ""  # it has no price for this machine
    everywhere = settle(both, Question(sweep="digits", hardware=ALL, cloud="aws"), prices=(price,))
    assert everywhere.choices.clouds == ("", "aws")
    there = everywhere.rows[everywhere.rows["hardware"] == "NVIDIA T4"]
    assert there["cost_usd"].tolist() == pytest.approx(there["train_seconds"].tolist())
    assert everywhere.rows.loc[everywhere.rows["hardware"] == "AMD EPYC 7B13", "cost_usd"].isna().all()


def test_choices_narrow_from_dataset_to_hardware(results: pd.DataFrame) -> None:
    other = results.assign(dataset="cifar10", sweep="big", hardware="NVIDIA H200")
    settled = settle(pd.concat([results, other], ignore_index=True), Question(dataset="cifar10"))
    assert settled.choices.datasets == ("cifar10", "digits")
    assert settled.choices.sweeps == ("big",)
    assert settled.choices.hardware == ("NVIDIA H200, 1 thread",)
    assert set(settled.rows["dataset"]) == {"cifar10"}


def test_deletion_is_offered_where_runs_keep_ledgers(results: pd.DataFrame) -> None:
    nowhere = settle(results, Question(payment="deletion", deletion_of="open"))
    assert not {"deletion", "deletion_cost"} & {*nowhere.choices.payments} and nowhere.question.payment == "time"
    assert (nowhere.choices.deletions, nowhere.question.deletion_of) == (("",), "")
    columns = {"deletion_seconds": 9.0, "deletion_seconds/open": 5.0, "deletion_seconds/personal": 9.0}
    governed = results.assign(**columns)
    settled = settle(governed, Question(payment="deletion", deletion_of="open", size="deletion"))
    assert "deletion" in settled.choices.payments and "deletion_cost" not in settled.choices.payments
    assert settled.choices.deletions == ("", "open", "personal") and settled.question.size == "deletion"
    paid = settled.question.paid_in
    assert (paid.column, paid.title, paid.unit) == ("deletion_seconds/open", "Deletion of open", "seconds")
    priced = settle(governed, Question(usd_per_hour=2.0))
    assert "deletion_cost" in priced.choices.payments


def test_a_class_that_these_runs_do_not_have_is_not_offered(results: pd.DataFrame) -> None:
    other = results.assign(sweep="other", **{"deletion_seconds": 5.0, "deletion_seconds/open": 5.0})
    both = pd.concat([results.assign(**{"deletion_seconds/open": float("nan")}), other], ignore_index=True)
    assert settle(both, Question(sweep="digits")).choices.deletions == ("",)
    assert settle(both, Question(sweep="other")).choices.deletions == ("", "open")


def test_what_is_no_deletion_has_no_class() -> None:
    assert Question(payment="time", deletion_of="open").paid_in.column == "train_seconds"


@pytest.mark.parametrize("number", [0.0, -1.0, 5e-324, 1e308])
def test_a_price_that_is_none_leaves_the_price_table(results: pd.DataFrame, number: float) -> None:
    """A colleague's token may hold any number: the view has to be one that its controls can leave."""
    settled = settle(results, Question(usd_per_hour=number, payment="cost"))
    assert settled.question.usd_per_hour is None
    assert settle(results, Question(usd_per_hour=2.5, payment="cost")).question.usd_per_hour == 2.5


@pytest.mark.parametrize("number", [1e308, -1e308, 1e13])
def test_a_target_that_overflows_is_none(results: pd.DataFrame, number: float) -> None:
    assert settle(results, Question(target=number)).question.target is None
    for kept in (0.0, 0.5, 0.97):
        assert settle(results, Question(target=kept)).question.target == kept

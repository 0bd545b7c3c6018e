import pandas as pd

from explorer.views.question import Question, settle


def test_an_empty_question_becomes_the_first_choices(results: pd.DataFrame) -> None:
    settled = settle(results, Question(), metrics=("accuracy", "nll"))
    asked = settled.question
    assert (asked.dataset, asked.model, asked.sweep) == ("digits", "resnet8", "digits")
    assert asked.hardware == "AMD EPYC 7B13, 1 thread"
    assert (asked.metric, asked.baseline, asked.payment) == ("accuracy", "baseline", "time")
    assert asked.recipes == ("baseline", "fast", "heavy")
    assert len(settled.rows) == 45


def test_what_is_not_there_is_replaced(results: pd.DataFrame) -> None:
    wished = Question(sweep="gone", metric="gone", baseline="gone", recipes=("fast", "gone"), payment="cost")
    asked = settle(results, wished, metrics=("accuracy",)).question
    assert (asked.sweep, asked.metric, asked.baseline) == ("digits", "accuracy", "baseline")
    assert asked.recipes == ("baseline", "fast")  # a comparison needs its baseline
    assert asked.payment == "time"  # no run has a price


def test_cost_is_offered_once_there_is_a_price(results: pd.DataFrame) -> None:
    own = settle(results, Question(usd_per_hour=2.0, payment="cost"), metrics=("accuracy",))
    assert own.question.payment == "cost"
    priced = settle(results.assign(cost_usd=1.0), Question(), metrics=("accuracy",))
    assert "cost" in priced.choices.payments
    assert "cost" not in settle(results, Question(), metrics=("accuracy",)).choices.payments


def test_choices_narrow_from_dataset_to_hardware(results: pd.DataFrame) -> None:
    other = results.assign(dataset="cifar10", sweep="big", hardware="NVIDIA H200")
    both = pd.concat([results, other], ignore_index=True)
    settled = settle(both, Question(dataset="cifar10"), metrics=("accuracy",))
    assert settled.choices.datasets == ("cifar10", "digits")
    assert settled.choices.sweeps == ("big",)
    assert settled.choices.hardware == ("NVIDIA H200, 1 thread",)
    assert set(settled.rows["dataset"]) == {"cifar10"}

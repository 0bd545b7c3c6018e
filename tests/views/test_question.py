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


def test_deletion_is_offered_where_runs_keep_ledgers(results: pd.DataFrame) -> None:
    nowhere = settle(results, Question(payment="deletion", deletion_of="open"), metrics=("accuracy",))
    assert not {"deletion", "deletion_cost"} & {*nowhere.choices.payments} and nowhere.question.payment == "time"
    assert (nowhere.choices.deletions, nowhere.question.deletion_of) == (("",), "")
    columns = {"deletion_seconds": 9.0, "deletion_seconds/open": 5.0, "deletion_seconds/personal": 9.0}
    governed = results.assign(**columns)
    settled = settle(governed, Question(payment="deletion", deletion_of="open"), metrics=("accuracy",))
    assert "deletion" in settled.choices.payments and "deletion_cost" not in settled.choices.payments
    assert settled.choices.deletions == ("", "open", "personal")
    paid = settled.question.paid_in
    assert (paid.column, paid.title, paid.unit) == ("deletion_seconds/open", "Deletion of open", "seconds")
    priced = settle(governed, Question(usd_per_hour=2.0), metrics=("accuracy",))
    assert "deletion_cost" in priced.choices.payments


def test_a_class_that_these_runs_do_not_have_is_not_offered(results: pd.DataFrame) -> None:
    other = results.assign(sweep="other", **{"deletion_seconds": 5.0, "deletion_seconds/open": 5.0})
    both = pd.concat([results.assign(**{"deletion_seconds/open": float("nan")}), other], ignore_index=True)
    assert settle(both, Question(sweep="digits"), metrics=("accuracy",)).choices.deletions == ("",)
    assert settle(both, Question(sweep="other"), metrics=("accuracy",)).choices.deletions == ("", "open")


def test_what_is_no_deletion_has_no_class() -> None:
    assert Question(payment="time", deletion_of="open").paid_in.column == "train_seconds"

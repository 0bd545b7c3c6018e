from explorer.views.explorer.tabs.ask_words import evidence, headline, runner_up
from tests.analysis.tables import fixed
from tests.analysis.test_ask import asked, recipe


def test_a_time_at_the_lowest_budget_is_told_as_what_it_is() -> None:
    top = {0.5: (1.0, 1.0, 1.0), 1.0: (1.0, 1.0, 1.0)}
    both = [recipe(name, fixed(top), step=step, budgets=top) for name, step in (("baseline", 1.0), ("fast", 0.8))]
    found = asked(*both)
    assert headline(found).startswith(
        "fast reaches accuracy 100.00% (the baseline's, monotone fit) at its lowest budget, in at most 40 s, at most"
    )
    assert ", the least time that was tried of 2 candidates under these limits; " in headline(found)
    assert runner_up(found).startswith("Runner-up: baseline at its lowest budget, in at most 50 s, at most $0.05 (")
    assert "; which of the two takes less is not known: the runner-up was not tried at a smaller" in runner_up(found)
    assert "winner's time" not in runner_up(found)
    low = {0.25: (0.8, 0.81, 0.82), **top}  # the control: the baseline's time is measured
    found = asked(recipe("baseline", fixed(low), budgets=low), both[1])
    assert "at its lowest budget, in at most 40 s" in headline(found) and "that was tried" not in headline(found)
    assert ", at least 1.25x the winner's time" in runner_up(found)


def test_a_recipe_that_is_quicker_but_not_sure_leaves_the_least_time_to_those_that_are() -> None:
    found = asked(recipe("baseline", seeds=(0,)), recipe("fast", step=0.5, seeds=(0,)))
    assert found.best is not None and found.best.is_baseline
    assert ", the least time of the recipes that are sure to hold these limits" in headline(found)
    assert "Runner-up: fast " in runner_up(found) and "0.50x the winner's time" in runner_up(found)
    alone = asked(recipe("baseline"), recipe("slow", step=2.0))
    assert ", the least time of 2 candidates under these limits" in headline(alone)


def test_a_quality_that_is_missed_by_little_has_the_digits_that_show_it() -> None:
    best = {0.5: (0.7, 0.7, 0.7), 1.0: (0.79999, 0.79999, 0.79999)}
    rows = evidence(asked(recipe("near", fixed(best), budgets=best), quality=0.8))
    assert rows[0][-1] == "accuracy not reached: best 79.999%, asked 80.000%"


def test_a_prediction_and_its_machine_are_told_wherever_the_answer_is() -> None:
    guessed = recipe("fast", hardware="Tesla T4", time_source="predicted")
    found = asked(recipe("baseline"), guessed, recipe("baseline", hardware="Tesla T4", time_source="predicted"))
    assert [each.is_predicted for each in found.candidates] == [
        each.setting.hardware == "Tesla T4" for each in found.candidates
    ]
    best = found.candidates[0]
    assert f" on {best.setting.machine} reaches " in headline(found)
    for row, each in zip(evidence(found), found.candidates, strict=True):
        assert (str(each.setting.machine) in row[1], "predicted" in row[2]) == (True, each.is_predicted)
    assert ("(predicted, " in headline(found)) == best.is_predicted

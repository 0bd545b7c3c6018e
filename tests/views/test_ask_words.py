from explorer.views.explorer.tabs.ask_words import evidence, headline
from tests.analysis.test_ask import asked, recipe


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

import pandas as pd
import pytest

from explorer.views.explorer.answer import answer, facts
from explorer.views.explorer.comparison_view import comparison_html
from explorer.views.explorer.payments import MEASURES, PAYMENTS, known_measures, measure_of
from explorer.views.explorer.question import Question
from explorer.views.explorer.scene import build_scene
from explorer.views.explorer.tradeoff import tradeoff_spec
from tests.views.in_memory import InMemory


def test_only_what_is_known_of_some_run_is_offered(results: pd.DataFrame) -> None:
    assert "chi" not in known_measures(results) and "examples" in known_measures(results)
    assert "chi" in known_measures(results.assign(chi=[0.2, *[float("nan")] * 44]))
    assert "chi" not in known_measures(results.drop(columns="chi"))  # an older version had no such column


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("time", 90, "1.5 min"),
        ("cost", 2.0, "$2.00"),
        ("chi", 0.1234, "0.123 nats"),
        ("overhead", 0.05, "5.0%"),
        ("memory", 431 * 2**20, "431 MiB"),
        ("energy", 0.0123, "12.3 Wh"),
    ],
)
def test_a_value_is_said_in_its_unit(key: str, value: float, words: str) -> None:
    assert MEASURES[key].words(value) == words
    assert MEASURES[key].words(None) == "-" and MEASURES[key].words(float("nan")) == "-"


def test_peak_memory_is_an_x_axis_once_every_run_measured_it(results: pd.DataFrame) -> None:
    sizes = results["recipe"].map({"baseline": 2**31, "fast": 2**30, "heavy": 2**31}).astype("Int64")
    measured = InMemory(frame=results.assign(peak_memory=sizes + 2**20 * results["seed"]))
    shown = answer(measured, Question(payment="memory"))
    assert shown.question.payment == "memory" and shown.scene is not None
    assert shown.sentence.startswith("fast reaches the baseline's accuracy with 2.00x less peak memory")
    axis = tradeoff_spec(shown.scene)["layer"][0]["encoding"]["x"]
    assert axis["title"] == "Peak memory (GiB)" and axis["scale"]["domain"][0] < 2**30
    assert not any("Times are" in words for words in facts(shown))
    assert "1 GiB" in comparison_html(shown)
    # The negative control: one run that lacks it, as of an older version, and it is no axis.
    lacking = results.assign(peak_memory=sizes.where(results.index != results.index[0]))
    assert answer(InMemory(frame=lacking), Question(payment="memory")).question.payment == "time"


def test_energy_is_an_x_axis_once_every_run_measured_it(results: pd.DataFrame) -> None:
    kwh = results["recipe"].map({"baseline": 0.002, "fast": 0.001, "heavy": 0.002}) * results["ssr"]
    measured = InMemory(frame=results.assign(energy_kwh=kwh * (1 + results["seed"] / 1000)))
    shown = answer(measured, Question(payment="energy"))
    assert shown.question.payment == "energy" and shown.scene is not None
    assert shown.sentence.startswith("fast reaches the baseline's accuracy with ") and "less energy" in shown.sentence
    axis = tradeoff_spec(shown.scene)["layer"][0]["encoding"]["x"]
    assert axis["title"] == "Training energy (Wh)" and "datum.value / 0.001" in axis["axis"]["labelExpr"]
    assert " Wh" in comparison_html(shown)
    # The negative controls: a run that shared its machine has none, and older results have no such column.
    lacking = results.assign(energy_kwh=kwh.where(results.index != results.index[0]))
    for frame in (lacking, results):
        assert answer(InMemory(frame=frame), Question(payment="energy")).question.payment == "time"


def test_the_deletion_of_one_class_is_a_measure_of_its_own(results: pd.DataFrame) -> None:
    rows = results.assign(**{"deletion_seconds": 9.0, "deletion_seconds/open": 5.0})
    one = measure_of("deletion", class_="open")
    assert one is not None and (one.column, one.label) == ("deletion_seconds/open", "Deletion of open")
    assert measure_of("chi", class_="open") == MEASURES["chi"] and measure_of("", class_="open") is None
    for class_, seconds in (("", 9.0), ("open", 5.0)):
        scene = build_scene(
            rows, payment=PAYMENTS["time"], baseline="baseline", target=None, size="deletion", deletion_of=class_
        )
        assert scene is not None and set(scene.means["size"]) == {seconds}

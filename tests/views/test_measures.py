import pandas as pd
import pytest

from explorer.views.explorer.payments import MEASURES, PAYMENTS, known_measures, measure_of
from explorer.views.explorer.scene import build_scene


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
    ],
)
def test_a_value_is_said_in_its_unit(key: str, value: float, words: str) -> None:
    assert MEASURES[key].words(value) == words
    assert MEASURES[key].words(None) == "-" and MEASURES[key].words(float("nan")) == "-"


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

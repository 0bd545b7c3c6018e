import itertools
from typing import Any

import altair as alt
import pytest

from explorer.run_files import METRICS, Metric
from explorer.views.explorer.axes import heights, payment_axis, quality_axis, round_ticks
from explorer.views.explorer.payments import PAYMENTS


def plain(channel: alt.X | alt.Y) -> dict[str, Any]:
    found = channel.to_dict()
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("log", [True, False])
def test_ticks_lie_within_the_values_and_are_few(log: bool) -> None:
    for low, factor in itertools.product((1e-4, 0.37, 5.0, 9e5), (1.05, 1.5, 3.0, 40.0, 1e4)):
        ticks = round_ticks(low, low * factor, log=log)
        assert ticks == sorted(set(ticks))
        assert len(ticks) <= 16
        assert all(tick <= low * factor * 1.001 for tick in ticks)


@pytest.mark.parametrize("low", [0.00112, 0.013, 1.9, 9.4])
@pytest.mark.parametrize("factor", [3.1, 4.2, 9.0])
def test_an_axis_within_a_decade_has_ticks_to_read_it_by(low: float, factor: float) -> None:
    assert len(round_ticks(low, low * factor, log=True)) >= 3


@pytest.mark.parametrize(
    ("key", "values", "title"),
    [
        ("time", [1.0, 20.0], "Training time (seconds)"),
        ("time", [100.0, 2000.0], "Training time (minutes)"),
        ("time", [1000.0, 90_000.0], "Training time (hours)"),
        ("cost", [0.1, 3.0], "Training cost (US dollars)"),
        ("steps", [10, 280], "Optimiser steps"),
    ],
)
def test_the_axis_has_one_unit_that_suits_the_values(key: str, values: list[float], title: str) -> None:
    axis = plain(payment_axis(PAYMENTS[key], values, log=True))
    assert axis["title"] == title
    low, high = axis["scale"]["domain"]
    assert low < min(values) and max(values) < high
    assert all(low <= tick <= high for tick in axis["axis"]["values"])


def test_a_linear_axis_starts_at_zero_and_a_log_axis_does_not() -> None:
    assert plain(payment_axis(PAYMENTS["time"], [2.0, 9.0], log=False))["scale"]["domain"][0] == 0
    assert plain(payment_axis(PAYMENTS["time"], [2.0, 9.0], log=True))["scale"]["domain"][0] > 0


def quality(values: list[float], *, unit: str = "fraction", higher: bool = True) -> dict[str, Any]:
    return plain(quality_axis(heights(values, Metric(name="quality", unit=unit, higher_is_better=higher))))


def test_a_fraction_is_never_drawn_above_one() -> None:
    assert quality([0.9, 0.97])["scale"]["domain"][1] <= 1.0
    assert quality([0.5, 0.999], unit="nats")["scale"]["domain"][1] > 1.0


def test_equal_values_still_give_an_axis() -> None:
    low, high = quality([0.9, 0.9])["scale"]["domain"]
    assert low < 0.9 < high


def test_errors_that_differ_much_are_drawn_on_a_log_scale_from_above() -> None:
    axis = quality([0.4, 0.9, 0.985])
    assert (axis["scale"]["type"], axis["scale"]["reverse"]) == ("log", True)
    assert axis["scale"]["domain"][0] < 0.015 < 0.6 < axis["scale"]["domain"][1]
    assert axis["axis"]["labelExpr"] == "format(1 - datum.value, '.10~%')"
    assert "log scale of the error" in axis["title"]
    assert quality([0.94, 0.985])["scale"]["type"] == "linear"


def test_losses_that_differ_much_are_drawn_on_a_log_scale_as_they_are() -> None:
    axis = quality([0.05, 2.0], unit="nats", higher=False)
    assert (axis["scale"]["type"], axis["scale"]["reverse"]) == ("log", False)
    assert axis["title"] == "quality (nats, log scale)"


@pytest.mark.parametrize(("values", "unit", "higher"), [([0.4, 1.0], "fraction", True), ([1, 90], "points", True)])
def test_what_has_no_error_above_zero_is_drawn_linearly(values: list[float], unit: str, higher: bool) -> None:
    assert quality(values, unit=unit, higher=higher)["scale"]["type"] == "linear"


def test_a_place_is_found_and_found_back() -> None:
    for values in ([0.4, 0.985], [0.94, 0.985]):
        place = heights(values, METRICS["accuracy"])
        assert place.drawn(place.drawn(0.9)) == pytest.approx(0.9)
        assert place.low <= place.drawn(0.95) <= place.high
        assert place.within(2.0) in (place.low, place.high)

"""Axes of a tradeoff chart: payment along x, quality along y, with round numbers of one unit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from explorer.analysis.monotone import monotone
from explorer.page.amounts import DAY, HOUR, MEMORY, MINUTE
from explorer.run_files import JOULES_PER_KWH, Metric
from explorer.views.explorer.payments import Payment

NARROW = 2.3  # least ratio of the ends of a log axis: any such range has two of 1, 1.5, 2, 3, 5, 7
LOG_FROM = 6.0  # largest error over smallest: from here on a linear axis squeezes the good recipes together


def payment_axis(payment: Payment, values: Sequence[float], *, log: bool) -> alt.X:
    """Return the x channel over the field `x`: an amount or a count, labelled in one unit that suits."""
    return alt.X(**payment_channel(payment, values, log=log))


def payment_channel(payment: Payment, values: Sequence[float], *, log: bool) -> dict[str, Any]:
    """Return the x channel as Vega-Lite has it."""
    unit, name = _unit(payment, max(values))
    domain = _payment_domain(min(values), max(values), log=log)
    ticks = [tick * unit for tick in round_ticks(domain[0] / unit, domain[1] / unit, log=log and domain[0] > 0)]
    sign = "'$' + " if payment.unit == "dollars" else ""
    style = "~s" if payment.unit == "count" and max(values) >= 100_000 else ",.10~r"
    return {
        "field": "x",
        "type": "quantitative",
        "title": payment.title + (f" ({name})" if name else ""),
        "scale": {"type": "log" if log else "linear", "domain": domain, "nice": False},
        "axis": {
            "values": [tick for tick in ticks if domain[0] <= tick <= domain[1]],
            "labelExpr": f"{sign}format(datum.value / {unit:g}, '{style}')",
            "labelFlush": False,
        },
    }


def _payment_domain(low: float, high: float, *, log: bool) -> list[float]:
    """Return the ends of the x axis, with room for the marks at its ends."""
    if not log:
        return [0.0, high * 1.03]
    # 4% of the range on either side, by a factor; a narrow range, as of a single run, gets room for two ticks.
    pad = max((high / low) ** 0.04, math.sqrt(max(1.0, NARROW / (high / low)))) if low else 1.0
    return [low / pad, high * pad]


@dataclass(frozen=True, kw_only=True, slots=True)
class Heights:
    """Scale of the quality axis: linear, or logarithmic where errors differ by more than a factor of 6.

    On a log scale a fraction that should be high is drawn as its error, small errors on top, but labelled as a
    quality: 98% is as far below 99% as 96% below 98%. `drawn` turns a quality into its place, and back.
    """

    kind: Metric
    log: bool
    low: float  # the ends of the axis, as places
    high: float

    @property
    def from_above(self) -> bool:
        """True if places are errors, small ones on top."""
        return self.log and self.kind.higher_is_better

    def drawn(self, values: Any) -> Any:
        """Return qualities as places, or places as qualities: 1 - x is its own inverse."""
        return 1 - values if self.from_above else values

    def share(self, values: Any) -> Any:
        """Return the places of qualities as shares of the axis, 0 at the bottom and 1 at the top."""
        low, high, places = self.low, self.high, np.asarray(self.drawn(values), dtype=float)
        shares = np.log(places / low) / math.log(high / low) if self.log else (places - low) / (high - low)
        return 1 - shares if self.from_above else shares

    def place_of(self, shares: Any) -> Any:
        """Return the places at shares of the axis: what `drawn` returns for the qualities there."""
        shares = 1 - np.asarray(shares, dtype=float) if self.from_above else np.asarray(shares, dtype=float)
        return self.low * (self.high / self.low) ** shares if self.log else self.low + (self.high - self.low) * shares

    def within(self, values: Any) -> Any:
        """Return qualities as places that are cut off at the ends of the axis, for bands."""
        return np.clip(self.drawn(values), self.low, self.high)


def heights(values: Sequence[float], kind: Metric, *, log: bool = True) -> Heights:
    """Choose the scale for at least one quality; without `log` a linear one."""
    error = kind.higher_is_better and kind.bounded
    places = [1 - value for value in values] if error else list(values)
    low, high = min(places), max(places)
    if log and (error or not kind.higher_is_better) and low > 0 and high / low > LOG_FROM:
        return Heights(kind=kind, log=True, low=low / 1.15, high=high * 1.15)
    # Equal values still need an axis: 6% of the range, else of the value, else of 1.
    low, high = min(values), max(values)
    pad = (high - low or abs(high) or 1.0) * 0.06
    top = min(high + pad, 1.0) if kind.bounded else high + pad
    return Heights(kind=kind, log=False, low=low - pad, high=top)


def quality_axis(place: Heights) -> alt.Y:
    """Return the y channel over the field `y`, which holds places."""
    return alt.Y(**quality_channel(place))


def quality_channel(place: Heights) -> dict[str, Any]:
    """Return the y channel as Vega-Lite has it."""
    scale = "log scale of the error" if place.from_above else "log scale" if place.log else ""
    style = ".10~%" if place.kind.percent else ".10~g"
    shown = "1 - datum.value" if place.from_above else "datum.value"
    ticks: dict[str, Any] = {"format": style, "tickCount": 6}
    if place.log:
        ticks = {
            "values": round_ticks(place.low, place.high, log=True),
            "labelExpr": f"format({shown}, '{style}')",
        }
    return {
        "field": "y",
        "type": "quantitative",
        "title": place.kind.title(scale),
        "scale": {
            "type": "log" if place.log else "linear",
            "domain": [place.low, place.high],
            "nice": False,
            "reverse": place.from_above,
        },
        "axis": ticks,
    }


def spread(shares: np.ndarray, *, least: float) -> np.ndarray:
    """Return ascending shares of an axis, moved as little as possible until neighbours are `least` apart.

    They are the labels of lines; as many as fit are given: at most 1 / `least`.
    """
    # Each label minus its rank is a rising sequence: the closest one is a monotone curve through the wishes.
    ranks = least * np.arange(len(shares))
    moved = monotone((shares - ranks)[None, :])[0]
    return np.clip(moved, 0.0, max(0.0, 1.0 - ranks[-1])) + ranks if len(shares) else shares


def round_ticks(low: float, high: float, *, log: bool) -> list[float]:
    """Return round numbers from `low` to `high`: about six equal steps, or for a log axis 1, 2, 5 of each decade (only
    1 over many decades, more within one).

    >>> round_ticks(0.7, 30, log=True)
    [1.0, 2.0, 5.0, 10.0, 20.0]
    >>> round_ticks(3, 11, log=False)
    [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    if not log:
        step = _step(high / 6) if high > 0 else 1.0
        return [_clean(index * step) for index in range(math.floor(high / step) + 1)]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1, 2, 5) if math.log10(high / low) <= 3 else (1,)
    if math.log10(high / low) < 1:
        factors = (1, 1.5, 2, 3, 5, 7)
    if math.log10(high / low) < 0.5:
        factors = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    ticks = [_clean(factor * 10.0**power) for power in range(first, last + 1) for factor in factors]
    # A tolerance of 0.1%, so that a rounded end of the axis keeps its own tick.
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]


def _unit(payment: Payment, high: float) -> tuple[float, str]:
    if payment.unit == "bytes":
        name = next((name for name in ("GiB", "MiB") if high >= MEMORY[name.lower()]), "KiB")
        return float(MEMORY[name.lower()]), name
    if payment.unit == "kWh":
        return energy_unit(high)
    if payment.unit != "seconds":
        return 1.0, ""
    for least, unit, name in ((4 * DAY, DAY, "days"), (4 * HOUR, HOUR, "hours"), (4 * MINUTE, MINUTE, "minutes")):
        if high >= least:
            return unit, name
    return 1.0, "seconds"


def energy_unit(high: float) -> tuple[float, str]:
    """Return the unit that suits an axis up to so many kWh, in kWh, and its name."""
    return (1.0, "kWh") if high >= 0.1 else (1e-3, "Wh") if high >= 1e-4 else (1 / JOULES_PER_KWH, "J")


def _step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)


def _clean(value: float) -> float:
    # 0.1 * 3 is 0.30000000000000004, which a label would show
    return float(f"{value:.10g}")

"""What runs are paid in and what else is known of them: columns of `results` for an axis, or for the size of marks."""

from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from explorer.analysis.reprice import COST, DELETION, of_class
from explorer.page import amounts


@dataclass(frozen=True, kw_only=True, slots=True)
class Payment:
    """What a run is paid in: a column of `results`, and how its axis reads."""

    key: str
    column: str
    label: str
    title: str
    unit: Literal["seconds", "dollars", "count"]
    forecast: bool = False  # what is still to come, and never measured

    @property
    def counted(self) -> bool:
        """Whether it is known exactly, whatever is known of the time."""
        return self.unit == "count"


PAYMENTS = {
    payment.key: payment
    for payment in (
        Payment(key="time", column="train_seconds", label="Time", title="Training time", unit="seconds"),
        Payment(key="cost", column="cost_usd", label="Cost", title="Training cost (US dollars)", unit="dollars"),
        Payment(key="steps", column="steps", label="Steps", title="Optimiser steps", unit="count"),
        Payment(key="examples", column="examples", label="Examples", title="Training examples", unit="count"),
        Payment(
            key="deletion",
            column="deletion_seconds",
            label="Deletion",
            title="Deletion of the dearest class",
            unit="seconds",
            forecast=True,
        ),
        Payment(
            key="deletion_cost",
            column="deletion_usd",
            label="Deletion cost",
            title="Cost of deleting the dearest class (US dollars)",
            unit="dollars",
            forecast=True,
        ),
    )
}


def payment_of(key: str, *, class_: str = "") -> Payment:
    """The payment of that key; of a deletion that of one class, where one is named."""
    found = PAYMENTS[key]
    if not class_ or not found.forecast:
        return found
    title = found.title.replace("the dearest class", class_)
    return replace(found, column=of_class(found.column, class_), title=title)


def amount(x: float | None, payment: Payment) -> str:
    """A value on the x axis, in words."""
    if payment.unit == "seconds":
        return amounts.seconds(x)
    if payment.unit == "dollars":
        return amounts.dollars(x)
    return amounts.MISSING if amounts.missing(x) else f"{x:,.0f}"


DEAREST = "the dearest class"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """A column of `results` as the size of marks; `unit` says how it reads."""

    key: str
    column: str
    label: str
    unit: str  # "seconds", "dollars", "nats", "share", "count"

    @property
    def of_deletion(self) -> bool:
        """Whether it is about deleting a class."""
        return self.column in (DELETION, COST)

    def words(self, value: float | None) -> str:
        """A value in words; a dash where it is unknown."""
        if value is None or amounts.missing(value):
            return amounts.MISSING
        match self.unit:
            case "seconds":
                return amounts.seconds(value)
            case "dollars":
                return amounts.dollars(value)
            case "share":
                return f"{value:.1%}"
            case "nats":
                return f"{value:.3g} nats"
            case _:
                return f"{value:,.0f}"


MEASURES = {
    measure.key: measure
    for measure in (
        Measure(key="time", column="train_seconds", label="Training time", unit="seconds"),
        Measure(key="cost", column="cost_usd", label="Training cost", unit="dollars"),
        Measure(key="examples", column="examples", label="Examples", unit="count"),
        Measure(key="inference", column="inference_seconds", label="Inference of an example", unit="seconds"),
        Measure(key="deletion", column=DELETION, label=f"Deletion of {DEAREST}", unit="seconds"),
        Measure(key="deletion_cost", column=COST, label=f"Cost of deleting {DEAREST}", unit="dollars"),
        Measure(key="chi", column="chi", label="Directions of classes differ (chi)", unit="nats"),
        Measure(key="overhead", column="ledger_overhead", label="Ledger's share of a step", unit="share"),
    )
}


def measure_of(key: str, *, class_: str = "") -> Measure | None:
    """The measure of that key, None for none; of a deletion that of one class, where one is named."""
    found = MEASURES.get(key)
    if found is None or not class_ or not found.of_deletion:
        return found
    return replace(found, column=of_class(found.column, class_), label=found.label.replace(DEAREST, class_))


def known_measures(rows: pd.DataFrame) -> tuple[str, ...]:
    """The measures that some of these rows have."""
    return tuple(key for key, each in MEASURES.items() if each.column in rows and rows[each.column].notna().any())

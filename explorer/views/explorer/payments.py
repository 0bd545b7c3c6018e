"""Payments and measures: the columns of `results` that can be the x axis, or the size of a mark."""

from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from explorer.analysis.reprice import COST, DELETION, of_class
from explorer.page import amounts

COSTLIEST = "the costliest class"  # to delete, of the classes of a run


@dataclass(frozen=True, kw_only=True, slots=True)
class Payment:
    """Resource that a run is paid in: a column of `results`, and the wording of its axis."""

    key: str
    column: str
    label: str
    title: str
    unit: Literal["seconds", "dollars", "count", "bytes", "kWh"]
    forecast: bool = False  # it lies in the future, so it is never measured

    @property
    def counted(self) -> bool:
        """True for what is counted or measured of a run itself, even where its time is not known."""
        return self.unit in ("count", "bytes", "kWh")


PAYMENTS = {
    payment.key: payment
    for payment in (
        Payment(key="time", column="train_seconds", label="Time", title="Training time", unit="seconds"),
        Payment(key="cost", column="cost_usd", label="Cost", title="Training cost (US dollars)", unit="dollars"),
        Payment(key="steps", column="steps", label="Steps", title="Optimiser steps", unit="count"),
        Payment(key="examples", column="examples", label="Examples", title="Training examples", unit="count"),
        Payment(key="memory", column="peak_memory", label="Peak memory", title="Peak memory", unit="bytes"),
        Payment(key="energy", column="energy_kwh", label="Energy", title="Training energy", unit="kWh"),
        Payment(
            key="deletion",
            column="deletion_seconds",
            label="Deletion",
            title=f"Deletion of {COSTLIEST}",
            unit="seconds",
            forecast=True,
        ),
        Payment(
            key="deletion_cost",
            column="deletion_usd",
            label="Deletion cost",
            title=f"Cost of deleting {COSTLIEST} (US dollars)",
            unit="dollars",
            forecast=True,
        ),
    )
}


def payment_of(key: str, *, class_: str = "") -> Payment:
    """Return the payment of a key; for a deletion, that of one class if it is named."""
    # Only a forecast of deletion depends on the class; a chosen class means nothing to time or cost.
    payment = PAYMENTS[key]
    if not class_ or not payment.forecast:
        return payment
    title = payment.title.replace(COSTLIEST, class_)
    return replace(payment, column=of_class(payment.column, class_), title=title)


def amount(x: float | None, payment: Payment) -> str:
    """Return a value of the x axis in words."""
    if payment.unit == "seconds":
        return amounts.seconds(x)
    if payment.unit == "dollars":
        return amounts.dollars(x)
    if payment.unit == "bytes":
        return amounts.memory(x)
    if payment.unit == "kWh":
        return amounts.energy(x)
    return amounts.MISSING if amounts.missing(x) else f"{x:,.0f}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """Column of `results` that the size of a mark can show; `unit` gives its format."""

    key: str
    column: str
    label: str
    unit: str  # "seconds", "dollars", "bytes", "kWh", "nats", "share", "count"

    @property
    def of_deletion(self) -> bool:
        """True for the time or the cost of deleting a class."""
        return self.column in (DELETION, COST)

    def words(self, value: float | None) -> str:
        """Return a value in words; a dash where it is unknown."""
        if value is None or amounts.missing(value):
            return amounts.MISSING
        match self.unit:
            case "seconds":
                return amounts.seconds(value)
            case "dollars":
                return amounts.dollars(value)
            case "bytes":
                return amounts.memory(value)
            case "kWh":
                return amounts.energy(value)
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
        Measure(key="memory", column="peak_memory", label="Peak memory", unit="bytes"),
        Measure(key="energy", column="energy_kwh", label="Training energy", unit="kWh"),
        Measure(key="inference", column="inference_seconds", label="Inference per example", unit="seconds"),
        Measure(key="deletion", column=DELETION, label=f"Deletion of {COSTLIEST}", unit="seconds"),
        Measure(key="deletion_cost", column=COST, label=f"Cost of deleting {COSTLIEST}", unit="dollars"),
        Measure(key="chi", column="chi", label="Separation of classes (chi)", unit="nats"),
        Measure(key="overhead", column="ledger_overhead", label="Ledger overhead per step", unit="share"),
    )
}


def measure_of(key: str, *, class_: str = "") -> Measure | None:
    """Return the measure of a key, None for no key; for a deletion, that of one class if it is named."""
    measure = MEASURES.get(key)
    if measure is None or not class_ or not measure.of_deletion:
        return measure
    return replace(measure, column=of_class(measure.column, class_), label=measure.label.replace(COSTLIEST, class_))


def known_measures(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the measures that some of these rows have."""
    return tuple(
        key for key, measure in MEASURES.items() if measure.column in rows and rows[measure.column].notna().any()
    )

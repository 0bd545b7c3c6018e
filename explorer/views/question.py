"""What a user of the explorer asks, as a plain value; and which choices the results leave.

A question can name what the results do not have, for example after they were read again. `settle` then puts the first
valid choice in its place, so that every question that is answered is answerable.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from explorer.analysis.reprice import DELETION
from explorer.schema import record
from explorer.views.axes import PAYMENTS, Payment, payment_of


@record
class Question:
    """A view of the results. An empty text or tuple stands for the first choice, or for all recipes."""

    dataset: str = ""
    model: str = ""
    sweep: str = ""
    hardware: str = ""  # a label of `hardware_label`
    metric: str = ""
    recipes: tuple[str, ...] = ()
    baseline: str = ""
    payment: str = "time"  # a key of `PAYMENTS`
    deletion_of: str = ""  # a class, where deletion is what is paid; empty: the dearest
    log: bool = True
    target: float | None = None  # None: the baseline's quality at the full budget
    usd_per_hour: float | None = None  # for one accelerator or machine; None: the price table

    @property
    def paid_in(self) -> Payment:
        """What runs are paid in."""
        return payment_of(self.payment, class_=self.deletion_of)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """What each control offers, given the choices before it."""

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    sweeps: tuple[str, ...]
    hardware: tuple[str, ...]
    metrics: tuple[str, ...]
    recipes: tuple[str, ...]
    payments: tuple[str, ...]
    deletions: tuple[str, ...]  # "" for the dearest, and the classes of governed runs


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """An answerable question, what could be asked instead, and the rows of `results` that it is about."""

    question: Question
    choices: Choices
    rows: pd.DataFrame


def settle(results: pd.DataFrame, wished: Question, *, metrics: Sequence[str]) -> Settled:
    """Fit a wish to the results, which have at least one row. `metrics` are the metrics that can be chosen."""
    rows, found, choices = results.assign(hardware_label=hardware_labels(results)), wished, {}
    for field, column, plural in (
        ("dataset", "dataset", "datasets"),
        ("model", "model", "models"),
        ("sweep", "sweep", "sweeps"),
        ("hardware", "hardware_label", "hardware"),
    ):
        offered = tuple(sorted(rows[column].unique()))
        chosen = _first(getattr(wished, field), offered)
        rows, found, choices[plural] = rows[rows[column] == chosen], replace(found, **{field: chosen}), offered
    recipes = tuple(dict.fromkeys(rows["recipe"]))
    baseline = _first(wished.baseline, recipes, default=rows["baseline"].iloc[0])
    kept = tuple(name for name in recipes if name in (wished.recipes or recipes) or name == baseline)
    priced = wished.usd_per_hour is not None or bool(rows["cost_usd"].notna().any())
    payments = tuple(key for key, each in PAYMENTS.items() if _is_offered(each, rows, priced=priced))
    deletions = ("", *_classes(rows))
    question = replace(
        found,
        metric=_first(wished.metric, tuple(metrics), default=rows["metric"].iloc[0]),
        recipes=kept,
        baseline=baseline,
        payment=_first(wished.payment, payments),
        deletion_of=_first(wished.deletion_of, deletions),
    )
    offered = Choices(metrics=tuple(metrics), recipes=recipes, payments=payments, deletions=deletions, **choices)
    return Settled(question=question, choices=offered, rows=rows[rows["recipe"].isin(kept)])


def _is_offered(payment: Payment, rows: pd.DataFrame, *, priced: bool) -> bool:
    """Whether some of the runs were paid in it: costs take a price, deletions a ledger."""
    known = not payment.forecast or rows[DELETION].notna().any()
    return bool(known and (payment.unit != "dollars" or priced))


def _classes(rows: pd.DataFrame) -> list[str]:
    """The classes of these runs whose deletion has a forecast."""
    found = [str(name) for name in rows.columns if str(name).startswith(f"{DELETION}/") and rows[name].notna().any()]
    return sorted(name.removeprefix(f"{DELETION}/") for name in found)


def hardware_labels(results: pd.DataFrame) -> list[str]:
    """What tells one machine from another, in words."""
    columns = (results["hardware"], results["threads"], results["world_size"])
    return [hardware_label(*values) for values in zip(*columns, strict=True)]


def hardware_label(name: str, threads: int, world_size: int) -> str:
    """
    >>> hardware_label("NVIDIA H200", 8, 2)
    'NVIDIA H200, 8 threads, 2 processes'
    """
    parts = [name, f"{threads} thread{'s' * (threads != 1)}"]
    return ", ".join([*parts, f"{world_size} processes"] if world_size > 1 else parts)


def _first(wished: str, offered: Iterable[str], *, default: str | None = None) -> str:
    offered = tuple(offered)
    if wished in offered:
        return wished
    return default if default in offered else offered[0]

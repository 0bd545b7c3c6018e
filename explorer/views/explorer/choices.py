"""Choices that each control offers, and the question fitted to them: one that can be answered."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Protocol, TypeVar

import pandas as pd

from explorer.analysis.across_sweeps import named_across
from explorer.analysis.confirmed import Confirmation
from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.ladders import Machine
from explorer.analysis.reprice import DELETION, own_price, reprice, reprice_at
from explorer.costing import Price, price_at, providers
from explorer.page import amounts
from explorer.page.amounts import age_words
from explorer.run_files import FRACTION
from explorer.store.queries import Filter
from explorer.views.explorer.payments import PAYMENTS, Payment, known_measures
from explorer.views.explorer.question import ALL, COMPARE, ORDERS, SPLITS, Question


def clouds(rows: pd.DataFrame, prices: Sequence[Price]) -> tuple[str, ...]:
    """Return the providers that price some hardware of these rows, after "" for the price table's own choice."""
    hardware = rows["hardware"].unique()
    return ("", *(name for name in providers(prices) if any(price_at(machine, prices, name) for machine in hardware)))


def at_price(rows: pd.DataFrame, prices: Sequence[Price], *, cloud: str, usd_per_hour: float | None) -> pd.DataFrame:
    """Return the rows with their costs at the user's own price, at a provider's prices, or as the price table has them.

    Hardware for which the provider has no price then has no cost.
    """
    if usd_per_hour is not None:
        return reprice(rows, own_price(usd_per_hour))
    return reprice_at(rows, prices, provider=cloud) if cloud else rows


def price_words(rows: pd.DataFrame, *, today: date) -> str:
    """Return the prices behind the costs of these rows, for each hardware, with their dates.

    "$63.30/h as of 2026-08-06, dstackai/dstack#4110"
    """
    return "; ".join(_prices(rows, today))


def _prices(rows: pd.DataFrame, today: date) -> Iterator[str]:
    groups = rows.groupby(["hardware", "world_size"], sort=False)  # a run on several accelerators pays for all of them
    for (name, processes), runs in groups:
        hardware = name if processes == 1 else f"{name}, {processes} processes"
        priced = runs[runs["usd_per_hour"].notna()]
        if priced.empty:
            yield f"no price for {name}"
            continue
        first = priced.iloc[0]
        words = f"{amounts.dollars(first['usd_per_hour'])}/h"
        if "price_source" in first:  # means over many sweeps lack it
            as_of = first["price_as_of"] if isinstance(first["price_as_of"], str) else ""
            age = age_words(as_of, today)
            words += f"{f' as of {as_of}' if as_of else ''}{f', {age}' if age else ''}, {first['price_source']}"
        yield f"{hardware}: {words}" if len(groups) > 1 else words


Found = TypeVar("Found")

TARGETS = (-1e12, 1e12)
USD_PER_HOUR = (1e-6, 1e9)
"""Bounds of a target quality and of a user's own price: beyond them curves and axes overflow."""


class Results(Protocol):
    """Source of rows: a `Snapshot`."""

    @property
    def facets(self) -> pd.DataFrame: ...
    @property
    def prices(self) -> tuple[Price, ...]: ...
    def rows(self, where: Filter, *, metric: str) -> pd.DataFrame: ...
    def means(self, where: Filter, *, metric: str) -> pd.DataFrame: ...
    def confirmations(self, results: Sequence[EqualQuality]) -> list[Confirmation]: ...
    def unfinished(self, sweep: str) -> pd.DataFrame: ...
    def remember(self, key: Hashable, make: Callable[[], Found]) -> Found: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices:
    """Choices that each control offers, given the choices before it."""

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    sweeps: tuple[str, ...]
    hardware: tuple[str, ...]
    clouds: tuple[str, ...]
    metrics: tuple[str, ...]
    recipes: tuple[str, ...]
    baselines: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...]
    sources: tuple[str, ...]
    compare: tuple[str, ...]
    splits: tuple[str, ...]
    sizes: tuple[str, ...]
    baseline_hardware: tuple[str, ...]
    payments: tuple[str, ...]
    deletions: tuple[str, ...]  # "" for the costliest, and the classes of governed runs
    baseline_sweeps: tuple[str, ...] = ("",)  # of several sweeps at once


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """Question that can be answered, the other choices, and the rows that are compared.

    `rows` are rows of `results`, or in a survey of several sweeps a row for each recipe and budget (`frames.means`),
    at the price that was asked for. `shown` marks those that are not hidden.
    """

    question: Question
    choices: Choices
    rows: pd.DataFrame
    shown: pd.Series

    @property
    def baseline(self) -> str | None:
        """The recipe to compare with; None where the sweep's own has no run here and no other was chosen."""
        return self.question.baseline if self.question.baseline in self.choices.recipes else None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Scope:
    """Part of the results that a question is about."""

    question: Question
    datasets: tuple[str, ...]
    models: tuple[str, ...]
    sweeps: tuple[str, ...]
    hardware: tuple[str, ...]
    facets: pd.DataFrame  # of this part


def settle(results: Results, wished: Question) -> Settled:
    """Fit a question to the results, which have at least one row. Raises `StoreError` if they can no longer be read."""
    wished = replace(
        wished, target=_within(wished.target, TARGETS), usd_per_hour=_within(wished.usd_per_hour, USD_PER_HOUR)
    )
    scope = _scope(results.facets, wished)
    judged = scope.facets.loc[scope.facets["is_quality"], "metric"]  # the metric that sweeps are judged by
    metrics = tuple(sorted(scope.facets["metric"].unique()))
    metric = _first(wished.metric, metrics, default=str(judged.iloc[0]))
    question = replace(scope.question, metric=metric)
    where = _filter(question, scope.facets)
    rows, question, baseline_sweeps = _read(results, question, where, scope.facets)
    if question.target is not None and len(rows) and rows["unit"].iloc[0] == FRACTION and question.target > 1:
        # 97 for 97%, as a hand types it in a view; above 100 nothing can be meant.
        question = replace(question, target=question.target / 100 if question.target <= 100 else None)
    settled = _fit(rows, question, scope=scope, metrics=metrics, prices=results.prices)
    return replace(settled, choices=replace(settled.choices, baseline_sweeps=baseline_sweeps))


MOST_ACROSS = 1000
"""Runs of several sweeps that are compared with one baseline; of more only the means are read, as a survey."""


def _read(
    results: Results, asked: Question, where: Filter, facets: pd.DataFrame
) -> tuple[pd.DataFrame, Question, tuple[str, ...]]:
    """Return the rows, the question with the sweep of its baseline, and the sweeps that have one to offer."""
    if not asked.across:
        return results.rows(where, metric=asked.metric), replace(asked, baseline_sweep=""), ("",)
    if facets.loc[facets["metric"] == asked.metric, "runs"].sum() <= MOST_ACROSS:
        rows = results.rows(where, metric=asked.metric)
        runs = rows.loc[rows["is_baseline"].astype(bool), "sweep"].value_counts()
        # The sweep that has the most runs of its baseline is the default, the first by name among equals.
        offered = tuple(sorted(map(str, runs.index), key=lambda name: (-int(runs[name]), name)))
        if offered:
            chosen = _first(asked.baseline_sweep, offered)
            return named_across(rows, chosen), replace(asked, baseline_sweep=chosen), offered
    return results.means(where, metric=asked.metric), replace(asked, baseline_sweep=""), ("",)


def _fit(
    rows: pd.DataFrame, wished: Question, *, scope: _Scope, metrics: Sequence[str], prices: Sequence[Price]
) -> Settled:
    """Fit the choices of a question to some rows.

    Each choice is offered for the rows that the choices before it leave, so the order matters. A choice that is not
    offered is replaced by its default, so that a question from other results always has an answer.
    """
    # Seeds and sources come first: they take rows away, and everything below is offered for the rows that are left.
    # Seeds are offered for all rows, so that the choice can be widened again.
    rows = rows.assign(hardware_label=hardware_labels(rows))
    seeds = () if wished.is_survey else tuple(sorted({int(seed) for seed in rows["seed"].unique()}))
    wanted_seeds = tuple(seed for seed in wished.seeds if seed in seeds)
    if wanted_seeds:
        rows = rows[rows["seed"].isin(wanted_seeds)]
    sources = tuple(sorted({source for source in rows["time_source"].unique() if isinstance(source, str)}))
    wanted_sources = tuple(source for source in wished.sources if source in sources)
    if wanted_sources:
        rows = rows[rows["time_source"].isin(wanted_sources)]
    # Prices come before payments, because dollars are offered only if some run has a cost at the chosen price.
    offered_clouds = clouds(rows, prices)
    cloud = _first(wished.cloud, offered_clouds)
    rows = at_price(rows, prices, cloud=cloud, usd_per_hour=wished.usd_per_hour)
    # The sweep's own baseline is offered even without a run here: then nothing is compared until the user chooses
    # another. A silent stand-in would change the meaning of every number on the screen.
    recipes = tuple(rows["recipe"].unique())
    own_baseline = str(rows["baseline"].iloc[0])
    baselines = recipes if wished.is_survey or own_baseline in recipes else (own_baseline, *recipes)
    if wished.across and not wished.is_survey:
        baselines = (own_baseline,)  # another one is chosen by its sweep
    baseline = _first(wished.baseline, baselines, default=own_baseline)
    # Recipes and methods hide rows and take none away: hidden recipes still count among the comparisons. The baseline
    # is never hidden. This needs the baseline, so it follows it.
    methods = _methods(rows)
    wanted_methods = tuple(method for method in wished.methods if method in methods)
    kept = tuple(name for name in recipes if name in (wished.recipes or recipes) or name == baseline)
    shown = rows["recipe"].isin(kept) & (_has_any(rows, wanted_methods) | (rows["recipe"] == baseline))
    # The x axis and marker sizes: an amount that no run has cannot be drawn.
    priced = bool(rows["cost_usd"].notna().any())
    payments = tuple(key for key, payment in PAYMENTS.items() if _is_offered(payment, rows, priced=priced))
    deletions = ("", *_classes(rows))
    sizes = ("", *known_measures(rows))
    # Colours and small multiples: only a property with several values tells anything apart. Splitting by seed also
    # needs single runs, which a survey does not have.
    splits = tuple(key for key in SPLITS if key in ("", "seed") or (_column(key) in rows and _several(rows, key)))
    splits = tuple(key for key in splits if key != "seed" or len(seeds) > 1)
    compare = tuple(key for key in COMPARE if key in ("recipe", "methods") or _several(rows, key))
    # A baseline on other hardware needs several machines among the rows.
    labels = tuple(rows["hardware_label"].unique())
    own = ("", *(labels if len(labels) > 1 and not wished.across else ()))
    question = replace(
        wished,
        cloud=cloud,
        recipes=kept,
        methods=wanted_methods,
        seeds=wanted_seeds,
        sources=wanted_sources,
        compare=_first(wished.compare, compare),
        split=_first(wished.split, splits),
        size=_first(wished.size, sizes),
        baseline=baseline,
        baseline_hardware=_first(wished.baseline_hardware, own),
        payment=_first(wished.payment, payments),
        deletion_of=_first(wished.deletion_of, deletions),
        order=_first(wished.order, ORDERS),
        versus=tuple(name for name in wished.versus if name in recipes)[:2],
    )
    choices = Choices(
        datasets=scope.datasets,
        models=scope.models,
        sweeps=scope.sweeps,
        hardware=scope.hardware,
        clouds=offered_clouds,
        metrics=tuple(metrics),
        recipes=recipes,
        baselines=baselines,
        methods=methods,
        seeds=seeds,
        sources=sources,
        compare=compare,
        splits=splits,
        sizes=sizes,
        baseline_hardware=own,
        payments=payments,
        deletions=deletions,
    )
    return Settled(question=question, choices=choices, rows=rows, shown=shown)


def machines(rows: pd.DataFrame) -> list[Machine]:
    """Return the machine of each row."""
    columns = [rows[name].tolist() for name in ("device", "hardware", "threads", "world_size")]
    known: dict[tuple[object, ...], Machine] = {}  # a sweep has few, and as many rows as it has runs
    for key in zip(*columns, strict=True):
        if key not in known:
            device, hardware, threads, world_size = key
            known[key] = Machine(
                device=str(device), hardware=str(hardware), threads=int(threads), world_size=int(world_size)
            )
    return [known[key] for key in zip(*columns, strict=True)]


def hardware_labels(frame: pd.DataFrame) -> list[str]:
    """Return the machine of each row in words."""
    return [str(machine) for machine in machines(frame)]


def _scope(facets: pd.DataFrame, wished: Question) -> _Scope:
    """Choose dataset, model, sweep and hardware, in this order: each among those that the choices before it leave."""
    left, question = facets.assign(hardware_label=hardware_labels(facets)), wished
    # A named sweep brings its dataset along; else the first dataset would hide it.
    of_sweep = left.loc[left["sweep"] == wished.sweep, "dataset"]
    if len(of_sweep) and not wished.dataset:
        question = replace(question, dataset=str(of_sweep.iloc[0]))
    offered: dict[str, tuple[str, ...]] = {}
    for field, column, plural in (
        ("dataset", "dataset", "datasets"),
        ("model", "model", "models"),
        ("sweep", "sweep", "sweeps"),
        ("hardware", "hardware_label", "hardware"),
    ):
        names = sorted(left[column].unique())
        # Qualities of different datasets are not comparable, so there is no choice of all. A sweep may train several
        # models, so all of them are the default. The others begin with what has the most runs.
        several: tuple[str, ...] = (ALL,) if len(names) > 1 and field != "dataset" else ()
        default = ALL if field == "model" and len(names) > 1 else _most(left, column)
        chosen = _first(getattr(question, field), (*several, *names), default=default)
        left = left if chosen == ALL else left[left[column] == chosen]
        question, offered[plural] = replace(question, **{field: chosen}), (*several, *names)
    return _Scope(question=question, facets=left, **offered)


def _most(facets: pd.DataFrame, column: str) -> str:
    """Return the value with the most runs, without predicted and tuning ones; of equals the first by name."""
    own = (facets["runs"] - facets["predicted"]).mask(facets["tunes"].astype(bool), 0)
    return str(own.groupby(facets[column]).sum().sort_index().idxmax())


def _filter(question: Question, facets: pd.DataFrame) -> Filter:
    machine = facets.iloc[0]
    one = question.hardware != ALL
    return Filter(
        dataset=question.dataset,
        model=None if question.model == ALL else question.model,
        sweep=None if question.sweep == ALL else question.sweep,
        hardware=str(machine["hardware"]) if one else None,
        threads=int(machine["threads"]) if one else None,
        world_size=int(machine["world_size"]) if one else None,
    )


def _column(key: str) -> str:
    return {"hardware": "hardware_label"}.get(key, key)


def _several(rows: pd.DataFrame, key: str) -> bool:
    return bool(rows[_column(key)].nunique(dropna=False) > 1)


def _methods(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the methods of the recipes, by name."""
    joined = (names for names in rows["methods"].unique() if isinstance(names, str))
    return tuple(sorted({name for names in joined for name in names.split("+") if name}))


def _has_any(rows: pd.DataFrame, methods: Sequence[str]) -> pd.Series:
    if not methods:
        return pd.Series(True, index=rows.index)
    wanted = set(methods)
    having = {
        names: bool(wanted & set(names.split("+"))) for names in rows["methods"].unique() if isinstance(names, str)
    }
    return rows["methods"].map(having).eq(True)


def _is_offered(payment: Payment, rows: pd.DataFrame, *, priced: bool) -> bool:
    """Return whether some run has an amount: costs need a price, deletions a ledger. Memory and
    energy need all runs: they are not always measured, and a recipe without them would only seem to have lost."""
    if payment.key in ("memory", "energy"):
        return payment.column in rows and bool(rows[payment.column].notna().all())
    known = not payment.forecast or rows[DELETION].notna().any()
    return bool(known and (payment.unit != "dollars" or priced))


def _classes(rows: pd.DataFrame) -> list[str]:
    """Return the classes of these runs whose deletion has a forecast."""
    columns = [str(name) for name in rows.columns if str(name).startswith(f"{DELETION}/") and rows[name].notna().any()]
    return sorted(name.removeprefix(f"{DELETION}/") for name in columns)


def _within(wished: float | None, limits: tuple[float, float]) -> float | None:
    """Return a number that is within the limits, else None."""
    return wished if wished is not None and limits[0] <= wished <= limits[1] else None


def _first(wished: str, offered: Iterable[str], *, default: str | None = None) -> str:
    offered = tuple(offered)
    if wished in offered:
        return wished
    return default if default in offered else offered[0]

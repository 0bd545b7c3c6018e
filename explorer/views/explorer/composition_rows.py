"""How the methods of a setting compose, as rows of text, tables and JSON; no chart."""

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from explorer.analysis.comparison import Estimate
from explorer.analysis.composition import Composed, Composition, composition
from explorer.page import amounts
from explorer.page.document import Column, Row, Table
from explorer.run_files import Metric
from explorer.views.explorer.choices import settle
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot


def composed(snapshot: Snapshot, asked: Question, *, ssr: float | None = None) -> Composition:
    """The composition in the setting of a question, over all of its recipes: a recipe that is not chosen for the curves
    has been run all the same.

    Raises `AnalysisError` for a budget that was not run, `StoreError` if the database cannot be read any more.
    """
    settled = settle(snapshot, replace(asked, recipes=(), methods=()))
    schedules = snapshot.schedules(settled.question.sweep)
    return composition(settled.rows, schedules, baseline=settled.question.baseline, ssr=ssr)


RECIPES = ("Recipe", "Methods", "Speedup", "Predicted", "Of predicted time", "Interval")
PAIRS = ("Pair", "Quality beyond both", "Interval", "n", "Time beyond both", "Interval", "Holm")


def recipe_rows(found: Composition) -> list[tuple[str, ...]]:
    """The recipes of several methods, measured beside predicted; the columns are `RECIPES`."""
    return [_recipe(recipe) for recipe in found.recipes]


def pair_rows(found: Composition) -> list[tuple[str, ...]]:
    """The pairs that were run; the columns are `PAIRS`. Holm: what still differs among all pairs."""
    return [
        (
            f"{pair.first} with {pair.second}",
            quality_words(pair.quality.value, found.kind),
            interval_words(pair.quality, found.kind),
            str(pair.quality.n),
            time_words(pair.time.value),
            interval_words(pair.time),
            _holm(found.confidence, quality=pair.quality.p_holm, time=pair.time.p_holm),
        )
        for pair in found.measured_pairs
    ]


def quality_words(value: float | None, kind: Metric | None) -> str:
    """An interaction in quality, in the unit of a difference.

    >>> quality_words(-0.5, Metric(name="nll", unit="nats", higher_is_better=False)), quality_words(None, None)
    ('-0.5000 nats', '-')
    """
    return amounts.MISSING if kind is None or value is None or amounts.missing(value) else kind.difference(value)


def time_words(value: float | None) -> str:
    """A logarithm of a ratio of times, as what is longer or shorter.

    >>> time_words(0.0953), time_words(-0.1), time_words(None)
    ('+10.0%', '-9.5%', '-')
    """
    return amounts.MISSING if value is None or amounts.missing(value) else f"{math.expm1(value):+.1%}"


def interval_words(estimate: Estimate, kind: Metric | None = None) -> str:
    """The interval of an interaction in the quality of that metric, or in time; or why there is none."""
    if estimate.low is None or estimate.high is None:
        return f"no interval: {estimate.reason}" if estimate.value is not None else str(estimate.reason)
    if kind is None:
        return f"{time_words(estimate.low)} to {time_words(estimate.high)}"
    return f"{kind.number(estimate.low, sign='+')} to {kind.difference(estimate.high)}"


def composition_json(found: Composition) -> dict[str, Any]:
    """The composition for other tools; beside its logarithms the ratios of times that they stand for."""
    document = asdict(found)
    kind = document.pop("kind") or {"name": "", "unit": "", "higher_is_better": True}
    document |= {"metric": kind["name"], "unit": kind["unit"], "higher_is_better": kind["higher_is_better"]}
    for written, recipe in zip(document["recipes"], found.recipes, strict=True):
        written |= {"speedup": recipe.speedup, "predicted_speedup": recipe.predicted_speedup}
        for name in ("value", "low", "high"):
            log = getattr(recipe.error, name)
            written[f"of_predicted_time_{name}"] = None if log is None else math.exp(log)
    return document


def composition_tables(found: Composition) -> Iterator[Table]:
    """Yield both tables; each only if it has a row."""
    if found.recipes:
        caption = "Predicted from what each method does alone to each part of a step"
        yield _table(RECIPES, recipe_rows(found), caption)
    if found.measured_pairs:
        yield _table(PAIRS, pair_rows(found), "What pairs do together beyond what both do alone")


def _recipe(recipe: Composed) -> tuple[str, ...]:
    error = recipe.error
    if error.value is None:
        interval = f"no prediction: {recipe.reason}"
    elif error.low is None or error.high is None:
        interval = f"no interval: {error.reason}"
    else:
        interval = f"{math.exp(error.low):.2f} to {math.exp(error.high):.2f}"
    return (
        recipe.label,
        " + ".join(recipe.methods) or amounts.MISSING,
        amounts.ratio(recipe.speedup),
        amounts.ratio(recipe.predicted_speedup),
        amounts.MISSING if error.value is None else f"{math.exp(error.value):.2f}",
        interval,
    )


def _holm(confidence: float, **p_values: float | None) -> str:
    sure = [kind for kind, p_value in p_values.items() if p_value is not None and p_value < 1 - confidence]
    return " and ".join(sure) or amounts.MISSING


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]], caption: str) -> Table:
    first, *rest = titles
    numbers = ("Speedup", "Predicted", "Of predicted time", "Quality beyond both", "Time beyond both", "n")
    columns = [Column(title=first), *(Column(title=title, number=title in numbers) for title in rest)]
    return Table(columns, [Row(row) for row in rows], caption)

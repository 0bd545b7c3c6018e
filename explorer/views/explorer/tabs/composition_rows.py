"""Composition of the methods of a setting, as rows of text, tables and JSON; no chart."""

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from explorer.analysis.comparison import Estimate
from explorer.analysis.composition import Composed, Composition, composition
from explorer.analysis.main_effects import MainEffect
from explorer.page import amounts
from explorer.page.document import Column, Row, Table
from explorer.run_files import Metric
from explorer.views.explorer.choices import settle
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot


def composed(snapshot: Snapshot, asked: Question, *, ssr: float | None = None) -> Composition:
    """Return the composition in the setting of a question, over all of its recipes, shown or hidden.

    Raises `AnalysisError` for a budget that was not run, `StoreError` if the database can no longer be read.
    """
    # A hidden recipe was run all the same, and its pairs are needed to tell methods apart.
    settled = settle(snapshot, replace(asked, recipes=(), methods=()))
    schedules = snapshot.schedules(settled.question.sweep)
    return composition(settled.rows, schedules, baseline=settled.question.baseline, ssr=ssr)


RECIPES = ("Recipe", "Methods", "Speedup", "Predicted", "Of predicted time", "Interval")
PAIRS = ("Pair", "Quality beyond both", "Interval", "n", "Time beyond both", "Interval", "Holm")


def recipe_rows(composition: Composition) -> list[tuple[str, ...]]:
    """Return the recipes of several methods, measured and predicted; the columns are `RECIPES`."""
    return [_recipe(recipe) for recipe in composition.recipes]


def effect_rows(composition: Composition) -> list[tuple[str, ...]]:
    """Return the effect of each method by itself, where a pair of recipes identifies it; the columns are `EFFECTS`."""
    return [_effect(effect, composition) for effect in composition.effects if effect.pairs]


def _effect(effect: MainEffect, composition: Composition) -> tuple[str, ...]:
    return (
        effect.method,
        quality_words(effect.quality.value, composition.kind),
        interval_words(effect.quality, composition.kind),
        time_words(effect.time.value),
        interval_words(effect.time),
        amounts.count(len(effect.pairs), "pair"),
        _holm(composition.confidence, quality=effect.quality.p_holm, time=effect.time.p_holm),
    )


def unidentified(composition: Composition) -> list[str]:
    """Return a sentence for each method whose effect is not identified, with the line to add to the specification."""
    return [
        f"{effect.method}: its own effect is not known, because {effect.reason}; add `{effect.compose}`"
        for effect in composition.effects
        if not effect.pairs
    ]


def pair_rows(composition: Composition) -> list[tuple[str, ...]]:
    """Return the pairs that were run; the columns are `PAIRS`. "Holm" names what still differs among all pairs."""
    return [
        (
            f"{pair.first} with {pair.second}",
            quality_words(pair.quality.value, composition.kind),
            interval_words(pair.quality, composition.kind),
            str(pair.quality.n),
            time_words(pair.time.value),
            interval_words(pair.time),
            _holm(composition.confidence, quality=pair.quality.p_holm, time=pair.time.p_holm),
        )
        for pair in composition.measured_pairs
    ]


EFFECTS = ("Method", "Effect on quality", "Interval", "Effect on time", "Interval", "From", "Holm")


def quality_words(value: float | None, kind: Metric | None) -> str:
    """Return an interaction in quality, in the unit of a difference.

    >>> quality_words(-0.5, Metric(name="nll", unit="nats", higher_is_better=False)), quality_words(None, None)
    ('-0.5000 nats', '-')
    """
    return amounts.MISSING if kind is None or value is None or amounts.missing(value) else kind.difference(value)


def time_words(value: float | None) -> str:
    """Return a logarithm of a ratio of times as a percentage longer or shorter.

    >>> time_words(0.0953), time_words(-0.1), time_words(None)
    ('+10.0%', '-9.5%', '-')
    """
    return amounts.MISSING if value is None or amounts.missing(value) else f"{math.expm1(value):+.1%}"


def interval_words(estimate: Estimate, kind: Metric | None = None) -> str:
    """Return the interval of an interaction, in quality for a metric `kind`, else in time; or the reason for none."""
    if estimate.low is None or estimate.high is None:
        return f"no interval: {estimate.reason}" if estimate.value is not None else str(estimate.reason)
    if kind is None:
        return f"{time_words(estimate.low)} to {time_words(estimate.high)}"
    return f"{kind.number(estimate.low, sign='+')} to {kind.difference(estimate.high)}"


def composition_json(composition: Composition) -> dict[str, Any]:
    """Return the composition for other tools: its logarithms, and the ratios of times that they express."""
    document = asdict(composition)
    # A setting without results has no metric; its document keeps the fields, empty.
    kind = document.pop("kind") or {"name": "", "unit": "", "higher_is_better": True}
    document |= {"metric": kind["name"], "unit": kind["unit"], "higher_is_better": kind["higher_is_better"]}
    for written, recipe in zip(document["recipes"], composition.recipes, strict=True):
        written |= {"speedup": recipe.speedup, "predicted_speedup": recipe.predicted_speedup}
        for name in ("value", "low", "high"):
            log = getattr(recipe.error, name)
            written[f"of_predicted_time_{name}"] = None if log is None else math.exp(log)
    return document


def composition_tables(composition: Composition) -> Iterator[Table]:
    """Yield the tables; each only if it has a row."""
    if rows := effect_rows(composition):
        caption = "Effect of each method, averaged over the recipes that differ only in it"
        yield _table(EFFECTS, rows, caption)
    if composition.recipes:
        caption = "Predicted from the effect of each method by itself on each part of a step"
        yield _table(RECIPES, recipe_rows(composition), caption)
    if composition.measured_pairs:
        yield _table(PAIRS, pair_rows(composition), "Effect of pairs beyond that of both methods separately")


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
    numbers += ("Effect on quality", "Effect on time")
    columns = [Column(title=first), *(Column(title=title, number=title in numbers) for title in rest)]
    return Table(columns, [Row(row) for row in rows], caption)

"""The answer to a question: everything the explorer shows, put together without any widget."""

from dataclasses import dataclass

import pandas as pd

from explorer.analysis import curves, sentences
from explorer.analysis.equal_quality import EqualQuality, equal_quality
from explorer.analysis.reprice import own_price, reprice
from explorer.views import text, theme
from explorer.views.question import Question, Settled, settle
from explorer.views.scene import Scene, build_scene
from explorer.views.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What is shown for one question. `scene` is None when no run has been paid in what was asked for."""

    settled: Settled
    rows: pd.DataFrame  # rows of `results`, with the metric and the price that were asked for
    scene: Scene | None
    comparisons: tuple[EqualQuality, ...]
    sentence: str
    target: float | None  # the quality at which recipes are compared
    usd_per_hour: float | None  # None: no price
    price: str  # which price that is, and as of when

    @property
    def question(self) -> Question:
        return self.settled.question

    @property
    def look(self) -> theme.Look:
        return theme.look(self.scene.recipes if self.scene else (), baseline=self.question.baseline)


def answer(snapshot: Snapshot, wished: Question) -> Answer:
    """Answer a question, or the nearest one that can be answered. The snapshot has at least one finished run.

    Raises `StoreError` if the database cannot be read any more, `AnalysisError` for results that make no sense.
    """
    settled = settle(snapshot.results, wished, metrics=snapshot.metrics)
    asked, rows = settled.question, rows_of(snapshot, settled)
    payment = asked.paid_in
    comparisons = tuple(equal_quality(rows, baseline=asked.baseline, x=payment.column, target=asked.target))
    target = asked.target if asked.target is not None else _own_target(rows, asked, comparisons)
    scene = build_scene(rows, payment=payment, baseline=asked.baseline, target=target, log=asked.log)
    rates = rows["usd_per_hour"].dropna()
    return Answer(
        settled=settled,
        rows=rows,
        scene=scene,
        comparisons=comparisons,
        sentence=sentences.summary(list(comparisons)),
        target=target,
        usd_per_hour=None if rates.empty else float(rates.iloc[0]),
        price=price_words(rows),
    )


def price_words(rows: pd.DataFrame) -> str:
    """Which price the costs of these rows, all of one hardware, are made with.

    "$63.30/h, 2026-08-06, dstackai/dstack#4110"
    """
    priced = rows[rows["usd_per_hour"].notna()]
    if priced.empty:
        return f"no price for {rows['hardware'].iloc[0]}"
    first = priced.iloc[0]
    as_of = f" as of {first['price_as_of']}" if first["price_as_of"] else ""
    return f"{text.dollars(first['usd_per_hour'])}/h{as_of}, {first['price_source']}"


def rows_of(snapshot: Snapshot, settled: Settled) -> pd.DataFrame:
    """The rows of the question, with its metric as their quality and its price."""
    rows, asked = settled.rows, settled.question
    if asked.metric != rows["metric"].iloc[0]:
        measured = snapshot.with_metric(asked.metric)
        rows = measured[measured["directory"].isin(rows["directory"])]
    return rows if asked.usd_per_hour is None else reprice(rows, own_price(asked.usd_per_hour))


def _own_target(rows: pd.DataFrame, asked: Question, comparisons: tuple[EqualQuality, ...]) -> float | None:
    """The baseline's quality at its full budget: as the comparisons have it, or from its curve if there are none."""
    for comparison in comparisons:
        if comparison.target is not None:
            return comparison.target
    own = curves.curves(rows[rows["recipe"] == asked.baseline], x="steps")
    return next((point.fitted for curve in own for point in curve.points if point.ssr == 1.0), None)

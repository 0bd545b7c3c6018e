"""The answer to a question: everything the explorer shows, put together without any widget."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from explorer.analysis import curves, sentences
from explorer.analysis.comparison import compared
from explorer.analysis.equal_budget import EqualBudget, at_equal_budget
from explorer.analysis.equal_quality import EqualQuality, at_equal_quality
from explorer.analysis.hypervolume import Hypervolume, hypervolumes
from explorer.analysis.ladders import Machine
from explorer.analysis.verdict import Verdict, controls_of, verdicts
from explorer.views import text, theme
from explorer.views.pricing import price_words
from explorer.views.question import Question
from explorer.views.scene import Scene, build_scene
from explorer.views.series import machines
from explorer.views.settle import Results, Settled, settle
from explorer.views.survey import survey_scene, survey_sentence
from explorer.views.tradeoff import look_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What is shown for one question. `scene` is None when no run has been paid in what was asked for.

    Verdicts are those on the recipes that are shown; each counts all comparisons that were made. There are none in a
    survey of several sweeps.
    """

    settled: Settled
    scene: Scene | None
    verdicts: tuple[Verdict, ...]
    budgets: tuple[EqualBudget, ...]  # quality at equal budget, of the same recipes
    volume: Hypervolume | None  # of the front of the setting; None where several are drawn, or nothing is known
    sentence: str
    target: float | None  # the quality at which recipes are compared
    rates: Mapping[Machine, float]  # US dollars an hour of a run, on each machine that has a price
    price: str  # which price that is, and as of when

    @property
    def question(self) -> Question:
        return self.settled.question

    @property
    def comparisons(self) -> tuple[EqualQuality, ...]:
        """What the verdicts are on."""
        return tuple(each.comparison for each in self.verdicts)

    @property
    def rows(self) -> pd.DataFrame:
        """The rows that are shown."""
        return self.settled.rows[self.settled.shown]

    @property
    def look(self) -> theme.Look:
        return look_of(self.scene) if self.scene else theme.look((), baseline=self.question.baseline)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """All comparisons of a setting, whatever is shown."""

    verdicts: tuple[Verdict, ...]
    budgets: tuple[EqualBudget, ...]
    volume: Hypervolume | None


def answer(results: Results, wished: Question) -> Answer:
    """Answer a question, or the nearest one that can be answered. There is at least one finished run.

    Raises `StoreError` if the database cannot be read any more, `AnalysisError` for results that make no sense.
    """
    settled = settle(results, wished)
    asked = settled.question
    if asked.is_survey:
        return _survey(settled)
    beside = results.remember(("compared", _of_comparison(asked)), lambda: _compare(results, settled))
    shown = set(settled.rows.loc[settled.shown, "recipe"])
    shown_ones = tuple(each for each in beside.verdicts if each.comparison.recipe in shown)
    visible = settled.rows[settled.shown]
    target = asked.target if asked.target is not None else _own_target(settled.rows, asked, beside.verdicts)
    scene = results.remember(
        ("scene", replace(asked, **_OF_NO_SCENE)),
        lambda: build_scene(
            visible,
            payment=asked.paid_in,
            baseline=asked.baseline,
            target=target,
            log=asked.log,
            compare=asked.compare,
            size=asked.size,
            deletion_of=asked.deletion_of,
        ),
    )
    return Answer(
        settled=settled,
        scene=scene,
        verdicts=shown_ones,
        budgets=tuple(each for each in beside.budgets if each.recipe in shown),
        volume=beside.volume,
        sentence=sentences.summary(shown_ones),
        target=target,
        rates=_rates(visible),
        price=price_words(visible, today=datetime.now(UTC).date()),
    )


def _survey(settled: Settled) -> Answer:
    asked, visible = settled.question, settled.rows[settled.shown]
    scene = survey_scene(
        visible, payment=asked.paid_in, metric=asked.metric, log=asked.log, compare=asked.compare, size=asked.size
    )
    return Answer(
        settled=settled,
        scene=scene,
        verdicts=(),
        budgets=(),
        volume=None,
        sentence=survey_sentence(visible),
        target=None,
        rates=_rates(visible),
        price=price_words(visible, today=datetime.now(UTC).date()),
    )


def _of_comparison(asked: Question) -> Question:
    """The part of a question that comparisons depend on: not what is hidden, and not how it is drawn; prices only
    where dollars are paid, a class only where its deletion is."""
    paid = asked.paid_in
    names = [*_OF_THE_PICTURE, *(() if paid.unit == "dollars" else ("cloud", "usd_per_hour"))]
    names += [] if paid.forecast else ["deletion_of"]
    plain: dict[str, Any] = {name: getattr(Question(), name) for name in names}
    return replace(asked, **plain)


_OF_THE_PICTURE = (
    *("recipes", "methods", "compare", "split", "size", "log", "order"),
    *("brush", "chosen", "versus", "section"),
)


_OF_NO_SCENE: dict[str, Any] = {"split": "", "order": "", "brush": (), "chosen": (), "versus": (), "section": ""}


def _compare(results: Results, settled: Settled) -> _Compared:
    asked, rows = settled.question, settled.rows
    found = compared(
        rows,
        x=asked.paid_in.column,
        baseline=settled.baseline,
        machine=_machine(rows, asked.baseline_hardware),
    )
    qualities = at_equal_quality(found, target=asked.target)
    fresh = [] if asked.paid_in.forecast else results.confirmations(qualities)
    return _Compared(
        verdicts=tuple(verdicts(qualities, controls=controls_of(rows), fresh=fresh)),
        budgets=tuple(at_equal_budget(found)),
        volume=_volume(rows, asked),
    )


def _volume(rows: pd.DataFrame, asked: Question) -> Hypervolume | None:
    if asked.baseline not in set(rows["recipe"]):
        return None
    found = hypervolumes(rows, x=asked.paid_in.column, baseline=asked.baseline)
    return found[0] if len(found) == 1 else None


def _machine(rows: pd.DataFrame, label: str) -> Machine | None:
    """The machine of this name."""
    return machines(rows[rows["hardware_label"] == label].head(1))[0] if label else None


def _rates(rows: pd.DataFrame) -> dict[Machine, float]:
    priced = rows[rows["usd_per_hour"].notna()].drop_duplicates(["device", "hardware", "threads", "world_size"])
    return dict(zip(machines(priced), priced["usd_per_hour"].astype(float), strict=True))


def _own_target(rows: pd.DataFrame, asked: Question, found: tuple[Verdict, ...]) -> float | None:
    """The baseline's quality at its full budget: as the comparisons have it, or from its curve if there are none."""
    for each in found:
        if each.comparison.target is not None:
            return each.comparison.target
    own = curves.curves(rows[rows["recipe"] == asked.baseline], x="steps")
    return next((point.fitted for curve in own for point in curve.points if point.ssr == 1.0), None)


def headline(found: Answer) -> str:
    """The answer as a sentence; a recipe's name at its beginning stays as it is."""
    named = any(
        found.sentence.startswith(f"{each.label} ") or found.sentence.startswith(f"{each.label}:")
        for each in found.comparisons
    )
    first = found.sentence[:1]
    return f"{first if named else first.upper()}{found.sentence[1:]}."


def where_words(found: Answer) -> list[str]:
    """What the answer is about, in a few words each."""
    asked, rows = found.question, found.settled.rows
    several = {"model": "models", "sweep": "sweeps", "hardware": "machines"}
    counts = {field: text.count(rows[_COLUMNS[field]].nunique(), field, plural) for field, plural in several.items()}
    model, sweep, hardware = (
        counts[field] if getattr(asked, field) == "*" else getattr(asked, field) for field in several
    )
    counted = rows["n"] if asked.is_survey else pd.Series(1, index=rows.index)
    predicted = rows["time_source"] == "predicted"
    runs = text.count(int(counted[~predicted].sum()), "finished run")
    guesses = [f"{int(counted[predicted].sum()):,} predicted for other hardware"] if predicted.any() else []
    named = sweep if asked.is_survey else f"sweep {sweep}"
    return [f"{model} on {asked.dataset}", named, hardware, runs, *guesses, *_narrowed(asked)]


def _narrowed(asked: Question) -> list[str]:
    """What was chosen of the runs, which changes the comparisons."""
    seeds = f"chosen seed{'s' * (len(asked.seeds) != 1)} {', '.join(map(str, asked.seeds))} alone"
    sources = f"{' and '.join(asked.sources)} times alone"
    return [words for words, chosen in ((seeds, asked.seeds), (sources, asked.sources)) if chosen]


_COLUMNS = {"model": "model", "sweep": "sweep", "hardware": "hardware_label"}

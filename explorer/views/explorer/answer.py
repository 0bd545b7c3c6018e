"""The answer to a question: everything the explorer shows, put together without any widget."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from explorer.analysis import curves, sentences
from explorer.analysis.comparison import compared
from explorer.analysis.equal_budget import EqualBudget, at_equal_budget
from explorer.analysis.equal_quality import EqualQuality, at_equal_quality
from explorer.analysis.ladders import Machine
from explorer.analysis.pareto import Hypervolume, hypervolume_answer, hypervolumes
from explorer.analysis.sentences import budget_answer, busy_notes, inference_words, time_notes
from explorer.analysis.verdict import Verdict, controls_of, verdicts
from explorer.page import amounts, theme
from explorer.page.document import Paragraph
from explorer.views.explorer.choices import Results, Settled, machines, price_words, settle
from explorer.views.explorer.question import Question
from explorer.views.explorer.survey import survey_note, survey_scene, survey_sentence
from explorer.views.explorer.tradeoff import Scene, build_scene, look_of


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
    counts = {field: amounts.count(rows[_COLUMNS[field]].nunique(), field, plural) for field, plural in several.items()}
    model, sweep, hardware = (
        counts[field] if getattr(asked, field) == "*" else getattr(asked, field) for field in several
    )
    counted = rows["n"] if asked.is_survey else pd.Series(1, index=rows.index)
    predicted = rows["time_source"] == "predicted"
    runs = amounts.count(int(counted[~predicted].sum()), "finished run")
    guesses = [f"{int(counted[predicted].sum()):,} predicted for other hardware"] if predicted.any() else []
    named = sweep if asked.is_survey else f"sweep {sweep}"
    return [f"{model} on {asked.dataset}", named, hardware, runs, *guesses, *_narrowed(asked)]


def _narrowed(asked: Question) -> list[str]:
    """What was chosen of the runs, which changes the comparisons."""
    seeds = f"chosen seed{'s' * (len(asked.seeds) != 1)} {', '.join(map(str, asked.seeds))} alone"
    sources = f"{' and '.join(asked.sources)} times alone"
    return [words for words, chosen in ((seeds, asked.seeds), (sources, asked.sources)) if chosen]


_COLUMNS = {"model": "model", "sweep": "sweep", "hardware": "hardware_label"}


def notes(found: Answer) -> Iterator[Paragraph]:
    """Yield the notes as paragraphs, warnings first."""
    yield from (Paragraph(words, "warning") for words in warnings(found))
    yield from (Paragraph(words, "note") for words in facts(found))


def warnings(found: Answer) -> list[str]:
    """What weakens the comparisons."""
    words = []
    own = str(found.settled.rows["baseline"].iloc[0])
    if not found.question.is_survey and own not in found.settled.choices.recipes:
        words.append(f"The sweep's own baseline, {own}, has no run here{_stand_in(found)}.")
    if found.settled.baseline and found.comparisons and found.comparisons[0].tuning is None:
        words.append(f"Untuned baseline: nobody searched for good settings of {found.question.baseline}.")
    if any(comparison.n == 1 for comparison in found.comparisons):
        words.append("n=1: one seed says nothing about noise, so there is no interval.")
    vanishing = sorted(each.comparison.label for each in found.verdicts if each.control is not None)
    if vanishing:
        words.append(f"No better than its control: {', '.join(vanishing)}. See Controls.")
    if found.question.is_survey or not found.question.paid_in.counted:
        words += busy_notes(found.rows)
    slower = [f"{each.label}, {inference_words(each)}" for each in found.comparisons if each.slower_inference]
    if slower:
        words.append(f"Slower at inference than the baseline: {'; '.join(slower)}.")
    return words


def _stand_in(found: Answer) -> str:
    chosen = found.settled.baseline
    return f": {chosen} was chosen in its place" if chosen else ", so nothing is compared until another is chosen"


def facts(found: Answer) -> list[str]:
    """How to read the comparisons."""
    if found.question.is_survey:
        return [survey_note(found.rows, found.scene)] if found.scene else []
    words = []
    if found.target is not None and found.scene is not None:
        whose = f", what the monotone curve of {found.question.baseline} has at its full budget"
        whose = "" if found.question.target is not None else whose
        words.append(
            f"At equal quality: {found.scene.metric} {amounts.quality(found.target, found.scene.kind)}{whose}."
        )
    if any(comparison.ratio_low is not None for comparison in found.comparisons):
        first = found.comparisons[0]
        words.append(
            f"{first.confidence:.0%} intervals, t with n-1 degrees of freedom over shared seeds{_adjusted(found)}."
        )
    if found.question.order == "best":
        words += _best_at_equal_budget(found)
    if found.question.paid_in.forecast:
        words.append(f"Deletion is a forecast of the whole command, with its start: {_ways(found)}.")
    if not found.question.paid_in.counted:
        words += time_notes(comparison.time_source for comparison in found.comparisons)
        words.append(f"Price: {found.price}.")
    if found.volume is not None:
        volume = hypervolume_answer(found.volume)
        words.append(f"{volume[:1].upper()}{volume[1:]}.")
    if found.scene is not None and len(found.scene.runs) and not found.scene.draws_runs:
        words.append(f"{amounts.count(len(found.scene.runs), 'run')}: their means are drawn, and not each of them.")
    return words


def _best_at_equal_budget(found: Answer) -> list[str]:
    """What the first recipe of a table that is sorted by it reaches for as much as the baseline is paid."""
    known = [(each.difference, each) for each in found.budgets if each.difference is not None]
    ordered = sorted(known, key=lambda pair: pair[0] if pair[1].setting.higher_is_better else -pair[0])
    return [f"{budget_answer(ordered[-1][1])}."] if ordered else []


def _ways(found: Answer) -> str:
    """How the classes of these runs would be deleted."""
    levels = set(found.rows["deletion_level"].dropna())
    ways = {"G2": "every class by dropping its sealed region (G2)", "G3": "some class by replay without it (G3)"}
    return " or ".join(words for level, words in ways.items() if level in levels) or "no run here is governed"


def _adjusted(found: Answer) -> str:
    families = {comparison.baseline_setting: comparison.family for comparison in found.comparisons if comparison.family}
    sizes = sorted(set(families.values()))
    if not sizes or sizes == [1]:
        return ""
    each = f"{sizes[0]:,} to {sizes[-1]:,} comparisons" if len(sizes) > 1 else amounts.count(sizes[0], "comparison")
    return f"; adjusted for {each}{' on each machine' if len(families) > 1 else ''} (Bonferroni)"

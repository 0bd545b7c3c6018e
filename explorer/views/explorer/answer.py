"""Answer to a question: everything the explorer shows, put together without any widget."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pandas as pd

from explorer.analysis import curves, sentences
from explorer.analysis.across_sweeps import NOT_PAIRED, as_recorded, compared_across, result_across
from explorer.analysis.comparison import Compared, compared
from explorer.analysis.controls import Controlled
from explorer.analysis.equal_budget import EqualBudget, at_equal_budget
from explorer.analysis.equal_quality import EqualQuality, at_equal_quality
from explorer.analysis.ladders import Ladders, Machine, ladders_of
from explorer.analysis.moderation import ASSUMED
from explorer.analysis.pareto import Hypervolume, hypervolume_answer, hypervolumes
from explorer.analysis.sentences import budget_answer, busy_notes, inference_words, time_notes
from explorer.analysis.verdict import Verdict, controls_of, verdicts
from explorer.page import amounts, theme
from explorer.page.document import Paragraph
from explorer.views.explorer.choices import Results, Settled, hardware_labels, machines, price_words, settle
from explorer.views.explorer.question import ALL, OF_DRAWING, OF_LAYOUT, OF_PICTURE, Question
from explorer.views.explorer.scene import Gain, Scene, content_of, look_of, scene_of
from explorer.views.explorer.survey import survey_note, survey_scene, survey_sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Content of the explorer for one question.

    Verdicts are those on the recipes that are shown, but each is adjusted for all comparisons that were made. A survey
    of several sweeps has none.
    """

    settled: Settled
    scene: Scene | None  # None: the x axis is known of no run
    verdicts: tuple[Verdict, ...]
    budgets: tuple[EqualBudget, ...]  # quality at equal budget, of the same recipes
    volume: Hypervolume | None  # of the setting's front; None for several settings, or where nothing is known
    sentence: str
    target: float | None  # the quality at which recipes are compared
    rates: Mapping[Machine, float]  # US dollars an hour of a run, on each machine that has a price
    price: str  # the price behind the rates in words, with its date
    all_verdicts: tuple[Verdict, ...] = ()  # on hidden recipes too
    all_budgets: tuple[EqualBudget, ...] = ()

    @property
    def question(self) -> Question:
        return self.settled.question

    @property
    def comparisons(self) -> tuple[EqualQuality, ...]:
        """The comparisons that the verdicts are on."""
        return tuple(verdict.comparison for verdict in self.verdicts)

    @property
    def rows(self) -> pd.DataFrame:
        """The rows that are shown."""
        return self.settled.rows[self.settled.shown]

    @property
    def look(self) -> theme.Look:
        return look_of(self.scene) if self.scene else theme.look((), baseline=self.question.baseline)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Compared:
    """All comparisons of a setting, of hidden recipes too."""

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
    # All recipes are compared, hidden or not: hiding a loser must not make the winner's interval narrower.
    made = results.remember(("compared", _of_comparison(asked)), lambda: _compare(results, settled))
    visible = settled.rows[settled.shown]
    names = set(visible["recipe"])
    shown = tuple(verdict for verdict in made.verdicts if verdict.comparison.recipe in names)
    target = asked.target if asked.target is not None else _own_target(settled.rows, asked, made.verdicts)
    # What is drawn, and then how: a control that only draws reads nothing off the results again.
    content = results.remember(
        ("content", asked.without("target", *OF_DRAWING)),
        lambda: content_of(
            visible,
            payment=asked.paid_in,
            baseline=asked.baseline,
            compare=asked.compare,
            ladders=_ladders(results, settled).of(names),
        ),
    )
    scene = results.remember(
        ("scene", asked.without(*OF_LAYOUT)),
        lambda: (
            None
            if content is None
            else scene_of(
                content,
                target=target,
                log=asked.log,
                size=asked.size,
                deletion_of=asked.deletion_of,
                errors=asked.errors,
                own_target=asked.target is None,
                gain=_gain(shown),
                diverged=_diverged(results, settled),
            )
        ),
    )
    return Answer(
        settled=settled,
        scene=scene,
        verdicts=shown,
        budgets=tuple(result for result in made.budgets if result.recipe in names),
        volume=made.volume,
        sentence=sentences.summary(shown),
        target=target,
        rates=_rates(visible),
        price=price_words(visible, today=datetime.now(UTC).date()),
        all_verdicts=made.verdicts,
        all_budgets=made.budgets,
    )


def _diverged(results: Results, settled: Settled) -> pd.DataFrame:
    """Return the diverged runs of the recipes that are shown, each at what its whole budget would take."""
    asked, names = settled.question, set(settled.rows.loc[settled.shown, "recipe"])
    runs = results.unfinished(asked.sweep)  # none where several sweeps are shown
    runs = runs[(runs["state"] == "diverged") & runs["recipe"].isin(names)]
    if len(runs) and asked.hardware != ALL:
        runs = runs[[label == asked.hardware for label in hardware_labels(runs)]]
    column = asked.paid_in.column
    return runs.assign(x=runs[column].astype(float) if column in runs else float("nan"))


def _gain(shown: Sequence[Verdict]) -> Gain | None:
    """Return the speedup of the headline: a claim, or what fresh seeds could turn into one."""
    best = sentences.headliner(shown)
    result = None if best is None else best.comparison
    if best is None or result is None or result.ratio is None or result.recipe_x is None or result.baseline_x is None:
        return None
    return Gain(recipe=result.label, x=result.recipe_x, baseline_x=result.baseline_x, claimed=best.claims)


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
    """Return the part of a question that comparisons depend on, which is the key that they are remembered by."""
    paid = asked.paid_in
    prices = () if paid.unit == "dollars" else ("cloud", "usd_per_hour")
    return asked.without(*OF_PICTURE, *prices, *(() if paid.forecast else ("deletion_of",)))


def _ladders(results: Results, settled: Settled) -> Ladders:
    """Return the ladders of all recipes, which comparisons, curves and fronts are read off."""
    asked = settled.question
    key = _of_comparison(asked).without("target", "baseline", "baseline_hardware")
    return results.remember(("ladders", key), lambda: ladders_of(settled.rows, x=asked.paid_in.column))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Paired:
    """Comparisons before a target is chosen."""

    pairs: list[Compared]
    budgets: tuple[EqualBudget, ...]
    volume: Hypervolume | None
    controls: list[Controlled]


def _pair(results: Results, settled: Settled) -> _Paired:
    asked, rows, lines = settled.question, settled.rows, _ladders(results, settled)
    if asked.across:
        return _pair_across(as_recorded(rows), asked)
    machine = _machine(rows, asked.baseline_hardware)
    pairs = compared(lines, x=asked.paid_in.column, baseline=settled.baseline, machine=machine)
    return _Paired(
        pairs=pairs,
        budgets=tuple(at_equal_budget(pairs)),
        volume=_volume(lines, asked),
        controls=controls_of(rows),
    )


def _pair_across(rows: pd.DataFrame, asked: Question) -> _Paired:
    """Pair the recipes of several sweeps, whose names there `rows` have, with one baseline."""
    pairs = compared_across(rows, sweep=asked.baseline_sweep, x=asked.paid_in.column, own=True)
    return _Paired(
        pairs=pairs,
        budgets=tuple(map(result_across, at_equal_budget(pairs))),
        volume=None,  # of one sweep
        controls=controls_of(rows),
    )


def _compare(results: Results, settled: Settled) -> _Compared:
    asked = settled.question
    made = results.remember(("pairs", _of_comparison(asked).without("target")), lambda: _pair(results, settled))
    qualities = at_equal_quality(made.pairs, target=asked.target)
    # Fresh seeds of the baseline's own sweep judge its own recipes, and no run can confirm a forecast.
    own = [result for result in qualities if not asked.across or result.setting.sweep == asked.baseline_sweep]
    fresh = [] if asked.paid_in.forecast else results.confirmations(own)
    judged = verdicts(qualities, controls=made.controls, fresh=fresh)
    if asked.across:
        judged = [replace(verdict, comparison=result_across(verdict.comparison)) for verdict in judged]
    return _Compared(verdicts=tuple(judged), budgets=made.budgets, volume=made.volume)


def _volume(lines: Ladders, asked: Question) -> Hypervolume | None:
    if asked.baseline not in {ladder.recipe for ladder in lines.every}:
        return None
    # Volumes over several machines have different units of time, so none is shown.
    volumes = hypervolumes(lines, x=asked.paid_in.column, baseline=asked.baseline)
    return volumes[0] if len(volumes) == 1 else None


def _machine(rows: pd.DataFrame, label: str) -> Machine | None:
    return machines(rows[rows["hardware_label"] == label].head(1))[0] if label else None


def _rates(rows: pd.DataFrame) -> dict[Machine, float]:
    priced = rows[rows["usd_per_hour"].notna()].drop_duplicates(["device", "hardware", "threads", "world_size"])
    return dict(zip(machines(priced), priced["usd_per_hour"].astype(float), strict=True))


def _own_target(rows: pd.DataFrame, asked: Question, verdicts: tuple[Verdict, ...]) -> float | None:
    """Return the baseline's quality at its full budget: from a comparison, or from its curve if there is none."""
    for verdict in verdicts:
        if verdict.comparison.target is not None:
            return verdict.comparison.target
    own = curves.curves(rows[rows["recipe"] == asked.baseline], x="steps")
    return next((point.fitted for curve in own for point in curve.points if point.ssr == 1.0), None)


def where_words(answer: Answer) -> list[str]:
    """Return the subject of the answer, in a few words each: task, sweep, hardware, number of runs."""
    asked, rows = answer.question, answer.settled.rows
    several = {"model": "models", "sweep": "sweeps", "hardware": "machines"}
    counts = {field: amounts.count(rows[_COLUMNS[field]].nunique(), field, plural) for field, plural in several.items()}
    model, sweep, hardware = (
        counts[field] if getattr(asked, field) == "*" else getattr(asked, field) for field in several
    )
    counted = rows["n"] if asked.is_survey else pd.Series(1, index=rows.index)
    predicted = rows["time_source"] == "predicted"
    runs = amounts.count(int(counted[~predicted].sum()), "finished run")
    guesses = [f"{int(counted[predicted].sum()):,} predicted for other hardware"] if predicted.any() else []
    named = sweep if asked.across else f"sweep {sweep}"
    return [f"{model} on {asked.dataset}", named, hardware, runs, *guesses, *_narrowed(asked)]


def _narrowed(asked: Question) -> list[str]:
    """Return the filters that change the comparisons."""
    seeds = f"only seed{'s' * (len(asked.seeds) != 1)} {', '.join(map(str, asked.seeds))}"
    sources = f"only {' and '.join(asked.sources)} times"
    return [words for words, chosen in ((seeds, asked.seeds), (sources, asked.sources)) if chosen]


_COLUMNS = {"model": "model", "sweep": "sweep", "hardware": "hardware_label"}


def notes(answer: Answer) -> Iterator[Paragraph]:
    """Yield the notes as paragraphs, warnings first."""
    yield from (Paragraph(words, "warning") for words in warnings(answer))
    yield from (Paragraph(words, "note") for words in facts(answer))


def warnings(answer: Answer) -> list[str]:
    """Return the sentences on whatever weakens the comparisons."""
    # The gravest come first: a missing baseline, an untuned one, a single seed, then doubts about single recipes.
    words = []
    own = str(answer.settled.rows["baseline"].iloc[0])
    if not answer.question.is_survey and own not in answer.settled.choices.recipes:
        words.append(f"The sweep's own baseline, {own}, has no run here{_stand_in(answer)}.")
    if answer.settled.baseline and answer.comparisons and answer.comparisons[0].tuning is None:
        words.append(f"Untuned baseline: the specification claims no tuning of {answer.question.baseline}.")
    if any(comparison.n == 1 for comparison in answer.comparisons):
        words.append("n=1: one seed cannot show noise, so there is no interval.")
    vanishing = sorted(result.comparison.label for result in answer.verdicts if result.control is not None)
    if vanishing:
        words.append(f"No better than its control: {', '.join(vanishing)}. See Controls.")
    if answer.question.is_survey or not answer.question.paid_in.counted:
        words += busy_notes(answer.rows)
    slower = [f"{result.label}, {inference_words(result)}" for result in answer.comparisons if result.slower_inference]
    if slower:
        words.append(f"Slower at inference than the baseline: {'; '.join(slower)}.")
    return words


def _stand_in(answer: Answer) -> str:
    chosen = answer.settled.baseline
    return f": {chosen} was chosen in its place" if chosen else ", so nothing is compared until another is chosen"


def facts(answer: Answer) -> list[str]:
    """Return the sentences on how to read the comparisons."""
    if answer.question.is_survey:
        return [survey_note(answer.rows, answer.scene)] if answer.scene else []
    words = []
    if answer.target is not None and answer.scene is not None:
        whose = f", that of {answer.question.baseline} at 100% budget (monotone fit)"
        whose = "" if answer.question.target is not None else whose
        words.append(
            f"At equal quality: {answer.scene.metric} {amounts.quality(answer.target, answer.scene.kind)}{whose}."
        )
    if any(comparison.ratio_low is not None for comparison in answer.comparisons):
        first = answer.comparisons[0]
        seeds = "seeds, shared only within a sweep" if answer.question.across else "shared seeds"
        moderated = any(comparison.moderated for comparison in answer.comparisons)
        how = "t over" if moderated else "t with n-1 degrees of freedom over"
        whose = ", whose noise is moderated over the recipes of the sweep" if moderated else ""
        words.append(f"{first.confidence:.0%} intervals, {how} {seeds}{whose}{_adjusted(answer)}.")
        if moderated:
            words.append(ASSUMED)
    if answer.question.across:
        words.append(f"Recipes of other sweeps are compared with {NOT_PAIRED}.")
    if answer.question.order.removeprefix("-") == "best":
        words += _best_at_equal_budget(answer)
    if answer.question.paid_in.forecast:
        words.append(f"Deletion time is a forecast for the whole command, start-up included: {_ways(answer)}.")
    if not answer.question.paid_in.counted:
        words += time_notes(comparison.time_source for comparison in answer.comparisons)
        words.append(f"Price: {answer.price}.")
    if answer.volume is not None:
        volume = hypervolume_answer(answer.volume)
        words.append(f"{volume[:1].upper()}{volume[1:]}.")
    if answer.scene is not None and len(answer.scene.runs) and not answer.scene.draws_runs:
        words.append(f"{amounts.count(len(answer.scene.runs), 'run')}: too many to draw; the chart shows their means.")
    return words


def _best_at_equal_budget(answer: Answer) -> list[str]:
    """Return a sentence on the best recipe at equal budget, the first of a table in that order."""
    known = [(result.difference, result) for result in answer.budgets if result.difference is not None]
    ordered = sorted(known, key=lambda pair: pair[0] if pair[1].setting.higher_is_better else -pair[0])
    return [f"{budget_answer(ordered[-1][1])}."] if ordered else []


def _ways(answer: Answer) -> str:
    """Return the ways in which classes of these runs can be deleted."""
    levels = set(answer.rows["deletion_level"].dropna())
    ways = {"G2": "drop the class's sealed region (G2)", "G3": "replay training without the class (G3)"}
    return " or ".join(words for level, words in ways.items() if level in levels) or "no run here is governed"


def _adjusted(answer: Answer) -> str:
    families = {
        comparison.baseline_setting: comparison.family for comparison in answer.comparisons if comparison.family
    }
    sizes = sorted(set(families.values()))
    if not sizes or sizes == [1]:
        return ""
    counted = f"{sizes[0]:,} to {sizes[-1]:,} comparisons" if len(sizes) > 1 else amounts.count(sizes[0], "comparison")
    return f"; adjusted for {counted}{' on each machine' if len(families) > 1 else ''} (Bonferroni)"


# --- picked runs ---


def selected(rows: pd.DataFrame, brush: dict[str, list[float]]) -> pd.DataFrame:
    """Return the rows inside the brushed rectangle, given as the ranges of x and y."""
    inside = pd.Series(True, index=rows.index)
    for field, limits in brush.items():
        inside &= rows[field].between(min(limits), max(limits))
    return rows[inside]


def chosen_rows(answer: Answer) -> pd.DataFrame:
    """Return the runs of an answer's scene that are inside the brush; all of them without a brush."""
    scene, brush = answer.scene, answer.question.brush
    assert scene is not None  # the callers check
    if len(brush) != 4:  # no brush, or one from a hand-written token
        return scene.runs
    return selected(scene.runs, {"x": list(brush[:2]), "y": list(brush[2:])})


def picked(answer: Answer) -> pd.DataFrame:
    """Return the runs that are picked: clicked ones, else those inside the brush; none without either."""
    scene, asked = answer.scene, answer.question
    if scene is None or asked.is_survey:
        return pd.DataFrame()
    if asked.chosen:
        return picked_runs(scene.runs, asked)
    return chosen_rows(answer) if asked.brush else scene.runs.head(0)


def picked_runs(runs: pd.DataFrame, asked: Question) -> pd.DataFrame:
    """Return the runs that were clicked: by directory, or where only means are drawn by curve and budget."""
    places = runs["series"] + " at " + runs["ssr"].map("{:g}".format)
    return runs[runs["directory"].isin(asked.chosen) | places.isin(asked.chosen)]

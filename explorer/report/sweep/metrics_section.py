"""The section on the metrics: the confirmation of the answer, and on every hardware the curves, the recipes at equal
quality and at equal budget, and the controls."""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from explorer.analysis.confirmed import Confirmation
from explorer.analysis.confirmed import Confirmed as FreshSeeds
from explorer.analysis.controls import Controlled
from explorer.analysis.controls import Verdict as ControlVerdict
from explorer.analysis.equal_budget import EqualBudget
from explorer.analysis.equal_quality import Call, EqualQuality
from explorer.analysis.pareto import Hypervolume
from explorer.analysis.sentences import busy_recipes, call_words, control_sentences
from explorer.analysis.sentences import interval as points
from explorer.analysis.verdict import Verdict
from explorer.page import amounts
from explorer.page.document import (
    Block,
    Bullets,
    Code,
    Column,
    Heading,
    Paragraph,
    Picture,
    Row,
    Span,
    Table,
    Text,
    sentence,
    with_note,
)
from explorer.planned import data_option
from explorer.report.section import Section
from explorer.report.sweep.live_pictures import live_tradeoffs
from explorer.report.sweep.reported_sweep import MetricResults, ReportedSweep
from explorer.run_files import Metric
from explorer.schema import record
from explorer.views.explorer.answer import facts, warnings
from explorer.views.explorer.comparison_tables import comparison_table, control_table, p_value
from explorer.views.explorer.payments import amount
from explorer.views.explorer.scene import Scene
from explorer.views.explorer.tradeoff import describe, tradeoff

HEIGHT = 400  # pixels of a chart


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeLine:
    """A recipe in the table of recipes."""

    label: str
    methods: str
    budgets: tuple[float, ...]
    seeds: int
    full_quality: float | None  # mean over seeds at budget 1
    equal_budget: EqualBudget | None  # None for the baseline, and for controls, which have a table of their own


@record
class ComparedQuality:
    """A recipe beside its baseline at equal quality, and the verdict on it."""

    result: EqualQuality
    call: Call
    words: str  # the verdict, as tables word it
    seeds_to_decide: int | None  # of an inconclusive verdict
    claims: bool  # True: the recipe is significantly cheaper
    asks_confirmation: bool
    confirmed: FreshSeeds | None  # the verdict of fresh seeds
    vanishes_against: str | None  # the control that explains its gain


@record
class BesideControl:
    """A recipe beside its control, and what that takes away."""

    result: Controlled
    verdict: ControlVerdict
    gain_vanishes: bool


@record
class Confirmed:
    """What fresh seeds say."""

    result: Confirmation
    sentence: str


@record
class PricePaid:
    """What an hour of the hardware costs."""

    usd_per_hour: float | None
    words: str  # the kind of price, and its date


@record
class MetricSection:
    """One metric on one hardware."""

    hardware: str
    metric: str
    unit: str
    higher_is_better: bool
    answer: str
    target: float | None
    price: PricePaid
    equal_quality: tuple[ComparedQuality, ...]
    recipes: tuple[RecipeLine, ...]
    controls: tuple[BesideControl, ...]
    confirmations: tuple[Confirmed, ...]
    volume: Hypervolume | None
    busy_profile: tuple[str, ...] = ()  # recipes whose times were profiled on a busy machine


@record
class MetricsRecord:
    """The metrics, the sweep's own first."""

    sections: tuple[MetricSection, ...]


class MetricsSection(Section[ReportedSweep, MetricsRecord]):
    """The answer's confirmation, and the results in each metric on each hardware."""

    record = MetricsRecord

    def gather(self, sweep: ReportedSweep) -> MetricsRecord:
        return MetricsRecord(sections=tuple(map(_section, sweep.metrics)))

    def blocks(self, record: MetricsRecord, sweep: ReportedSweep) -> list[Block]:
        blocks = list(_confirmed(sweep.metrics[0], sweep)) if sweep.metrics else []
        for number, (results, section) in enumerate(zip(sweep.metrics, record.sections, strict=True), start=1):
            blocks += _metric(results, section.recipes, number)
        return blocks


# --- gathering ---


def _section(results: MetricResults) -> MetricSection:
    answer = results.answer
    return MetricSection(
        hardware=results.hardware,
        metric=results.metric,
        unit=results.kind.unit,
        higher_is_better=results.kind.higher_is_better,
        answer=answer.sentence,
        target=answer.target,
        price=PricePaid(usd_per_hour=results.rate, words=answer.price),
        equal_quality=tuple(map(_compared, answer.verdicts)),
        recipes=_recipes(results),
        controls=tuple(
            BesideControl(result=control, verdict=control.verdict, gain_vanishes=control.gain_vanishes)
            for control in results.controls
        ),
        confirmations=tuple(Confirmed(result=fresh, sentence=fresh.sentence) for fresh in results.confirmations),
        volume=answer.volume,
        busy_profile=tuple(busy_recipes(answer.rows)),
    )


def _compared(verdict: Verdict) -> ComparedQuality:
    return ComparedQuality(
        result=verdict.comparison,
        call=verdict.call,
        words=call_words(verdict),
        seeds_to_decide=verdict.seeds,
        claims=verdict.claims,
        asks_confirmation=verdict.asks,
        confirmed=verdict.confirmation and verdict.confirmation.verdict,
        vanishes_against=verdict.control and verdict.control.name,
    )


def _recipes(results: MetricResults) -> tuple[RecipeLine, ...]:
    compared = {result.label: result for result in results.answer.budgets}
    lines = []
    for label in results.labels:
        runs = results.runs[results.runs["recipe"] == label]
        full = runs.loc[runs["ssr"] == 1.0, "y"]
        lines.append(
            RecipeLine(
                label=label,
                methods=str(runs["methods"].iloc[0]).replace("+", " + ") or "none",
                budgets=tuple(sorted(runs["ssr"].unique())),
                seeds=runs["seed"].nunique(),
                full_quality=None if full.empty else float(full.mean()),
                equal_budget=compared.get(label),
            )
        )
    return tuple(lines)


# --- showing ---


def _confirmed(first: MetricResults, sweep: ReportedSweep) -> Iterator[Block]:
    """Yield the verdicts of fresh seeds on the recipes, in the sweep's own metric."""
    # Recipes that claim a gain and have no fresh seeds yet come with the command that would give them some.
    asking = [verdict.comparison for verdict in first.answer.verdicts if verdict.asks]
    yield Heading(2, "Is it confirmed?", "confirmed")
    if first.confirmations:
        yield _confirmations(first.confirmations)
    for comparison in asking:
        why = "no other sweep has it on fresh seeds, and this one may have chosen it"
        yield Paragraph(f"{comparison.label} is not confirmed: {why}.", "warning")
    if asking:
        where = "".join(f" {word}" for word in data_option((sweep.plan or {}).get("spec")))
        names = (f"{quoted(sweep.name)} {quoted(comparison.recipe)}" for comparison in asking)
        yield Code("\n".join(f"explorer confirm{where} {both}" for both in names))
    elif not first.confirmations and any(verdict.call is Call.SEARCHED for verdict in first.answer.verdicts):
        yield Paragraph(f"Nothing here is a claim yet: {Call.SEARCHED}.", "warning")
    elif not first.confirmations:
        yield Paragraph("No recipe beats the baseline yet, so there is nothing to confirm.", "note")


def _metric(results: MetricResults, recipes: tuple[RecipeLine, ...], number: int) -> Iterator[Block]:
    # The chart comes first, after its warnings; then the comparison, the recipes' methods, and the controls.
    better = "higher is better" if results.kind.higher_is_better else "lower is better"
    title = (Span(results.metric), Span(f" {better} \N{MIDDLE DOT} {results.hardware}", "small"))
    yield Heading(2, title, f"section-{number}")
    yield from (Paragraph(words, "warning") for words in warnings(results.answer))
    scene = results.answer.scene
    if scene is None:
        yield Paragraph("No curves, because no run on this hardware has a known training time.")
    else:
        yield Picture(
            name=f"curves-{number}",
            draw=lambda width: tradeoff(scene, width=width, height=HEIGHT),
            description=describe(scene),
            caption=f"A small mark is a run, a large one the mean over seeds at a budget{_bands(scene)}. The Pareto "
            "frontier is in colour, what is dominated in grey; the baseline has the colour of the text.",
            interactive=True,
            live=partial(live_tradeoffs, [results]),
        )
    if results.answer.comparisons:
        yield Heading(3, f"{results.answer.question.paid_in.label} at equal quality")
        yield from _equal_quality(results)
    if recipes:
        yield Heading(3, "Methods of the recipes, and quality at equal budget")
        yield _recipe_table(recipes, results)
    if results.controls:
        yield Heading(3, "Controls")
        yield control_table(results.controls)
        yield Bullets([sentence(words, names=results.labels) for words in control_sentences(results.controls)])


def _equal_quality(results: MetricResults) -> Iterator[Block]:
    answer = results.answer
    if all(verdict.call is Call.SEARCHED and not verdict.is_confirmed for verdict in answer.verdicts):
        yield Paragraph(
            "A search chose these runs by their results, so they carry no comparison: `explorer confirm` makes the"
            " claim, on fresh seeds."
        )
        return
    yield from comparison_table(
        answer.verdicts,
        (),  # the next table has the qualities at equal budget
        payment=answer.question.paid_in,
        look=answer.look,
        rates=answer.rates,
        p_values=True,
    )
    yield from (Paragraph(words, "note") for words in facts(answer))


def _bands(scene: Scene) -> str:
    return ", a band its interval" if scene.lines["low"].notna().any() else ""


def _named(recipe: str, results: MetricResults) -> Text:
    """Return a recipe's name, after its mark in the chart if it is drawn there."""
    return (Span(recipe, mark=results.answer.look.mark(recipe)),)


def _recipe_table(recipes: tuple[RecipeLine, ...], results: MetricResults) -> Table:
    metric, rows = results.metric, []
    titles = ("Recipe", "Methods", "Budgets", "Seeds", f"{metric} at full budget", f"{metric} in the baseline's time")
    columns = [Column(title, number=position > 1) for position, title in enumerate(titles)]
    for line in recipes:
        budgets = line.budgets
        cells = (
            _named(line.label, results),
            line.methods,
            f"{budgets[0]:g}" if len(budgets) == 1 else f"{len(budgets)} from {budgets[0]:g} to {budgets[-1]:g}",
            str(line.seeds),
            amounts.quality(line.full_quality, results.kind),
            _at_equal_budget(line, results),
            p_value(line.equal_budget.p_adjusted if line.equal_budget else None),
        )
        rows.append(Row(cells))
    return Table([*columns, Column("Adjusted p", number=True)], rows)


def _at_equal_budget(line: RecipeLine, results: MetricResults) -> Text:
    """Format the quality at the baseline's time, with the difference from the baseline."""
    compared = line.equal_budget
    if compared is None:
        baseline = line.label == results.answer.question.baseline
        return amounts.quality(results.answer.target, results.kind) if baseline else amounts.MISSING
    if compared.recipe_quality is None:
        payment = results.answer.question.paid_in
        return (
            f"not tested at {amount(compared.budget, payment)}"
            if compared.budget
            else compared.reason or amounts.MISSING
        )
    quality = amounts.quality(compared.recipe_quality, results.kind)
    return with_note(quality, _difference(compared, results.kind))


def _difference(compared: EqualBudget, kind: Metric) -> str:
    if compared.adjusted_low is None:
        return compared.reason or ""
    return points(compared.adjusted_low, compared.adjusted_high, kind)


def _confirmations(confirmations: Iterable[Confirmation]) -> Table:
    columns = [Column("Recipe"), Column("Fresh seeds"), Column("Result"), Column("Sweep")]
    rows = [
        Row((fresh.recipe, ", ".join(map(str, fresh.seeds)), fresh.sentence, ", ".join(fresh.sweeps)))
        for fresh in confirmations
    ]
    return Table(columns, rows)


def quoted(name: str) -> str:
    """Return a name as a single word of a command."""
    return shlex.quote(" ".join(name.split()))

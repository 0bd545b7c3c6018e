"""The section on how methods compose: what pairs do together, and the way from the baseline to a recipe."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from explorer.analysis.composition import Composition
from explorer.analysis.sentences import composition_sentences
from explorer.page.document import Block, Column, Heading, Paragraph, Row, Span, Table, sentence
from explorer.report.section import Section
from explorer.report.sweep.metrics_section import NUMBERS
from explorer.report.sweep.reported_sweep import ReportedSweep, picture
from explorer.schema import record
from explorer.views.explorer import composition_rows
from explorer.views.explorer.composition_charts import CAPTION, interactions, waterfall
from explorer.views.explorer.composition_rows import composed, composition_json

COMPOSED = (
    "Times are steps times profiled step times. Intervals of times come from the spread of a profile's windows on this "
    "machine and cover no other day; intervals of qualities come from seeds, paired."
)


@record
class ComposedRecord:
    """How methods compose."""

    composition: dict[str, dict[str, Any]]  # by hardware


class ComposedSection(Section[ReportedSweep, ComposedRecord]):
    """The composition of methods on each hardware, in the sweep's own metric; only where methods were combined."""

    record = ComposedRecord

    def gather(self, sweep: ReportedSweep) -> ComposedRecord:
        return ComposedRecord(
            composition={hardware: composition_json(parts) for hardware, parts in _compositions(sweep).items()}
        )

    def blocks(self, record: ComposedRecord, sweep: ReportedSweep) -> list[Block]:
        numbered = enumerate(_compositions(sweep).items(), start=1)
        return [block for number, (hardware, parts) in numbered for block in _composition(parts, hardware, number)]


def _compositions(sweep: ReportedSweep) -> dict[str, Composition]:
    compositions = {
        results.hardware: composed(sweep.snapshot, results.answer.question)
        for results in sweep.metrics
        if results.metric == sweep.metrics[0].metric
    }
    return {hardware: parts for hardware, parts in compositions.items() if parts.recipes or parts.measured_pairs}


def _composition(composition: Composition, hardware: str, number: int) -> Iterator[Block]:
    title = (Span("How methods compose"), Span(f" budget {composition.ssr:g} \N{MIDDLE DOT} {hardware}", "small"))
    yield Heading(2, title, f"composition-{number}")
    for words in composition_sentences(composition)[len(composition.recipes) :]:
        yield Paragraph(sentence(words, names=composition.methods))
    if composition.measured_pairs:
        yield Heading(3, "Pairs: what they do together beyond what both do alone")
        yield picture(f"pairs-{number}", partial(interactions, composition), CAPTION)
    together = [recipe for recipe in composition.recipes if recipe.by_parts is not None]
    if together:  # the waterfall is that of the recipe with most methods
        recipe = max(together, key=lambda recipe: len(recipe.methods))
        yield Heading(3, f"From the baseline to {recipe.label}")
        yield picture(f"way-{number}", partial(waterfall, recipe, baseline=composition.baseline))
    if composition.recipes:
        caption = "Predicted from what each method does alone to each part of a step"
        yield _table(composition_rows.RECIPES, composition_rows.recipe_rows(composition), caption)
    if composition.measured_pairs:
        caption = "What pairs do together beyond what both do alone"
        yield _table(composition_rows.PAIRS, composition_rows.pair_rows(composition), caption)
    yield Paragraph(COMPOSED, "note")


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Table:
    columns = [Column(title, number=title in NUMBERS) for title in titles]
    return Table(columns, [Row(cells) for cells in rows], caption=caption)

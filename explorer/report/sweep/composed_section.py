"""The section on how methods compose: the joint effect of pairs, and the way from the baseline to a recipe."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from explorer.analysis.composition import Composition
from explorer.analysis.sentences import composition_sentences
from explorer.page.document import Block, Heading, Paragraph, Span, sentence
from explorer.page.pictures import picture
from explorer.report.section import Section
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.schema import record
from explorer.views.explorer.tabs.composition_charts import CAPTION, interactions, waterfall
from explorer.views.explorer.tabs.composition_rows import composed, composition_json, composition_tables

COMPOSED = (
    "A time is the number of steps times the profiled time of a step. Intervals of times come from the spread of a "
    "profile's windows on this machine and do not cover differences between days; intervals of qualities come from "
    "paired seeds."
)


@record
class ComposedRecord:
    """How methods compose."""

    composition: dict[str, dict[str, Any]]  # by hardware


class ComposedSection(Section[ReportedSweep, ComposedRecord]):
    """The composition of methods on every hardware, in the sweep's own metric, where methods were combined."""

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
    # The first sentences are about recipes, which the table below has in full.
    for words in composition_sentences(composition)[len(composition.recipes) :]:
        yield Paragraph(sentence(words, names=composition.methods))
    if composition.measured_pairs:
        yield Heading(3, "Pairs: joint effect beyond the single effects of both")
        yield picture(f"pairs-{number}", partial(interactions, composition), CAPTION)
    together = [recipe for recipe in composition.recipes if recipe.by_parts is not None]
    if together:  # one waterfall, of the recipe with most methods
        recipe = max(together, key=lambda recipe: len(recipe.methods))
        yield Heading(3, f"From the baseline to {recipe.label}")
        yield picture(f"way-{number}", partial(waterfall, recipe, baseline=composition.baseline))
    yield from composition_tables(composition)
    yield Paragraph(COMPOSED, "note")

"""The report of a sweep as a page: the answer, what it rests on, what speaks against it, and how to do it again."""

import math
import shlex
from collections.abc import Iterator, Sequence
from functools import partial

import altair as alt
import yaml

import explorer
from explorer.analysis.composition import Composition
from explorer.analysis.composition_sentences import composition_sentences
from explorer.analysis.control_sentences import control_sentences
from explorer.page import amounts
from explorer.page.document import Block, Bullets, Code, Facts, Heading, Page, Paragraph, Picture, Span, Text, sentence
from explorer.provenance.spellings import format_time
from explorer.records import tuning_words
from explorer.report import sweep_tables
from explorer.report.content import Section, SweepContent
from explorer.views.explorer import composition_rows
from explorer.views.explorer.answer import facts, warnings
from explorer.views.explorer.composition_charts import CAPTION, interactions, step_times, waterfall
from explorer.views.explorer.tradeoff import describe, tradeoff

HEIGHT = 400
MOST_BARS = 30  # more are too small to be read on a page

MEASURED = (
    "Training time counts optimiser steps only; evaluation, checkpoints and the first steps are kept apart. A hollow "
    "mark is a profiled time: steps times the time of a step, measured recipe by recipe while nothing else is trained; "
    "where the machine was busy all the same, a warning says so. Nothing is extrapolated: what was not reached within "
    "the tested budgets is not reached here."
)
COMPOSED = (
    "Times are steps times profiled step times. Intervals of times come from the spread of a profile's windows on this "
    "machine and cover no other day; intervals of qualities come from seeds, paired."
)


def sweep_page(content: SweepContent) -> Page:
    """The page."""
    return Page(
        title=f"Report of the sweep {content.sweep}",
        subtitle=sentence(content.sentence, names=_labels(content.sections[:1])),
        blocks=[*_blocks(content)],
        facts=(
            ("Explorer", f"{explorer.__version__}, from finished runs alone"),
            ("Made", format_time(content.made)),
            ("Database", (Span(f"sha256:{content.database_sha256}", "code"),)),
        ),
        made=content.made,
    )


def _labels(sections: Sequence[Section]) -> list[str]:
    """The names that a sentence may begin with."""
    return [line.label for section in sections for line in section.recipes]


def _blocks(content: SweepContent) -> Iterator[Block]:
    yield from _confirmed(content)
    for number, section in enumerate(content.sections, start=1):
        yield from _section(section, number)
    yield from _negative(content)
    for number, (hardware, found) in enumerate(content.compositions.items(), start=1):
        yield from _composition(found, hardware, number)
    yield from _measured(content)
    yield from _again(content)


def _confirmed(content: SweepContent) -> Iterator[Block]:
    """What fresh seeds say of the recipes of the first section."""
    if not content.sections:
        return
    first = content.sections[0]
    open_ones = [each.comparison for each in first.answer.verdicts if each.asks]
    yield Heading(2, "Is it confirmed?", "confirmed")
    if first.confirmations:
        yield sweep_tables.confirmed(first.confirmations)
    for each in open_ones:
        words = f"{each.label} is not confirmed: the seeds that chose it are the seeds that it is judged by."
        yield Paragraph(words, "warning")
    if open_ones:
        names = (f"explorer confirm {_quoted(content.sweep)} {_quoted(each.recipe)}" for each in open_ones)
        yield Code("\n".join(names))
    if not open_ones and not first.confirmations:
        yield Paragraph("No recipe is shown to need less than the baseline, so there is nothing to confirm.", "note")


def _section(section: Section, number: int) -> Iterator[Block]:
    better = "higher is better" if section.kind.higher_is_better else "lower is better"
    yield Heading(
        2, (Span(section.metric), Span(f" {better} \N{MIDDLE DOT} {section.hardware}", "small")), f"section-{number}"
    )
    yield from (Paragraph(words, "warning") for words in warnings(section.answer))
    scene = section.answer.scene
    if scene is None:
        yield Paragraph("No curve: no run on this hardware has a known training time.")
    else:
        yield Picture(
            name=f"curves-{number}",
            draw=lambda width: tradeoff(scene, width=width, height=HEIGHT),
            description=describe(scene),
            caption="A small mark is a run, a large one the mean of seeds at a budget, a band its interval. The step "
            "line is the frontier; what is dominated is dimmed.",
            interactive=True,
        )
    if section.answer.comparisons:
        yield Heading(3, f"{section.answer.question.paid_in.label} at equal quality")
        yield sweep_tables.equal_quality(section)
        yield from (Paragraph(words, "note") for words in facts(section.answer))
    if section.recipes:
        yield Heading(3, "Recipes and their methods, and quality at equal budget")
        yield sweep_tables.recipes(section)
    if section.controls:
        yield Heading(3, "Controls")
        yield sweep_tables.controls(section)
        names = _labels([section])
        yield Bullets([sentence(words, names=names) for words in control_sentences(section.controls)])


def _negative(content: SweepContent) -> Iterator[Block]:
    yield Heading(2, "Negative results", "negative")
    if content.negatives:
        yield sweep_tables.negatives(content.negatives)
    else:
        yield Paragraph("None on record: no recipe that was compared fell short, and every run has a result.")


def _composition(found: Composition, hardware: str, number: int) -> Iterator[Block]:
    """How methods compose; the waterfall is that of the recipe with most methods."""
    title = (Span("How methods compose"), Span(f" budget {found.ssr:g} \N{MIDDLE DOT} {hardware}", "small"))
    yield Heading(2, title, f"composition-{number}")
    yield from (
        Paragraph(sentence(words, names=found.methods)) for words in composition_sentences(found)[len(found.recipes) :]
    )
    if found.measured_pairs:
        yield Heading(3, "Pairs: what they do together beyond what both do alone")
        yield _picture(f"pairs-{number}", partial(interactions, found), CAPTION)
    together = [recipe for recipe in found.recipes if recipe.by_parts is not None]
    if together:
        recipe = max(together, key=lambda each: len(each.methods))
        yield Heading(3, f"From the baseline to {recipe.label}")
        yield _picture(f"way-{number}", partial(waterfall, recipe, baseline=found.baseline))
    if found.recipes:
        caption = "Predicted from what each method does alone to each part of a step"
        yield sweep_tables.plain(composition_rows.RECIPES, composition_rows.recipe_rows(found), caption=caption)
    if found.measured_pairs:
        caption = "What pairs do together beyond what both do alone"
        yield sweep_tables.plain(composition_rows.PAIRS, composition_rows.pair_rows(found), caption=caption)
    yield Paragraph(COMPOSED, "note")


def _measured(content: SweepContent) -> Iterator[Block]:
    yield Heading(2, "How it was measured", "measured")
    integrity: Text = content.integrity if content.sound else (Span(content.integrity, "warn"),)
    yield Facts([*content.facts.items(), ("Integrity", integrity)])
    if content.findings:
        yield Bullets(content.findings, "warning")
    yield Paragraph(MEASURED, "note")
    if unknown := _unknown(content):
        yield Heading(3, "What is not known")
        yield Bullets(unknown)
    if content.ledgers:
        yield Heading(3, "Ledgers")
        yield sweep_tables.ledgers(content.ledgers)
    if not content.step_times.empty:
        yield Heading(3, "Where the time of a step goes")
        times, every = content.step_times, content.step_times["recipe"].nunique()
        slowest = times[times["recipe"].isin(list(dict.fromkeys(times["recipe"]))[:MOST_BARS])]
        caption = f"The {MOST_BARS} slowest of {every} steps." if every > MOST_BARS else ""
        yield _picture("steps", partial(step_times, slowest), caption)


def _unknown(content: SweepContent) -> list[str]:
    """What a reader would want to know and nobody recorded."""
    said = []
    for hardware, section in {each.hardware: each for each in reversed(content.sections)}.items():
        rows = section.answer.rows
        untimed = int(rows["train_seconds"].isna().sum())
        if untimed:
            said.append(
                f"The training time of {amounts.count(untimed, 'run')} of {len(rows)} on {hardware}: no profile."
            )
        if rows["usd_per_hour"].isna().all():
            said.append(f"What a run costs on {hardware}: {section.answer.price}.")
        if not any(map(tuning_words, rows["tuning"])):
            said.append("Whether the baseline could be better: nobody recorded a search for its settings.")
        if any(each.inference_ratio is None or math.isnan(each.inference_ratio) for each in section.answer.comparisons):
            said.append(f"What some recipes cost at inference on {hardware}: their profiles do not have it.")
        if rows["seed"].nunique() == 1:
            said.append(f"How far noise alone moves a quality on {hardware}: there is one seed.")
    if content.specification is None:
        said.append("The specification: the sweep's plan is not kept beside its runs.")
    return list(dict.fromkeys(said))


def _again(content: SweepContent) -> Iterator[Block]:
    yield Heading(2, "Do it again", "again")
    name = _quoted(content.sweep)
    if content.specification is not None:
        spec = _quoted(f"{content.sweep}.yaml")
        yield Paragraph((Span("Save the specification as "), Span(f"{content.sweep}.yaml", "code"), Span(", then:")))
        yield Code(
            f"explorer sweep plan {spec}    # what would run, for how long\n"
            f"explorer sweep run {spec}     # runs what is missing"
        )
        yield Code(
            yaml.safe_dump(dict(content.specification), sort_keys=False, allow_unicode=True), title="Specification"
        )
    yield Heading(3, "What to type next")
    yield Code(
        "explorer open explore          # these curves, with other axes, baselines, targets and prices\n"
        f"explorer results {name} --format csv\n"
        "explorer methods               # what a recipe can be made of"
    )


def _picture(name: str, draw: "partial[alt.LayerChart]", caption: str = "") -> Picture:
    """A picture that says itself what there is to see."""
    description = str(draw(width=100).to_dict().get("description", caption))
    return Picture(
        name=name, draw=lambda width: draw(width=width), caption=caption, description=description, interactive=True
    )


def _quoted(name: str) -> str:
    """A name as one word of a command, on one line."""
    return shlex.quote(" ".join(name.split()))

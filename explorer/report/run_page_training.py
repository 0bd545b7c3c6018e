"""The first sections of a run's report: what trained what, by class, over time, by layer; and what the classes are."""

from explorer.report.page import Block, Column, Heading, Paragraph, Picture, Row, Span, Table, with_note
from explorer.report.run_cite import Citations
from explorer.report.run_classes import parts
from explorer.report.run_content import RunContent
from explorer.report.run_layers import LayerCell
from explorer.report.run_taxonomy import SOURCES
from explorer.views import text
from explorer.views.ledger import matrices

MOST_LAYERS = 120  # rows of the table by layer; the JSON report has all
LEAST = 0.0005  # what would be shown as nothing
STATES = {"denied": "denied", "absent": "none there", "unmeasured": "not measured"}


def training(content: RunContent, cite: Citations) -> list[Block]:
    """What trained what."""
    whose = "the ledger" if content.confidential or not content.spooled else "the files beside the ledger"
    summed = f"Shares are summed from {whose}; {content.sums}."
    if content.quarantined:
        slots = text.count(content.quarantined, "slot")
        summed += f" {slots} held examples that nobody to be believed vouches for: they were never read."
    return [
        Heading(2, "What trained what", "what"),
        Paragraph(
            (
                Span(
                    "The share of each class in the summed gradient, over the whole run: of all layers, and of each "
                    "quarter of the depth. A column adds up to 100%; the policy's fractions are in it. Denied: the "
                    "weight was 0 in all of its layers in all steps. "
                ),
                cite(content.steps),
            )
        ),
        _classes(content, cite),
        Heading(3, "Over training"),
        Paragraph(
            "Steps with large gradients count for more in a sum, and these are the early ones as a rule. So here is "
            "the same over all layers, part by part."
        ),
        _over_time(content),
        Paragraph(summed, "note" if content.sums_agree else "warning"),
        Heading(3, "Examples in batches, and those that were denied"),
        _counts(content),
        *_layers(content, cite),
    ]


def taxonomy(content: RunContent, cite: Citations) -> list[Block]:
    """What the classes are."""
    found: list[Block] = [Heading(2, "Taxonomy and dataset", "taxonomy")]
    if not content.taxonomy:
        return [*found, Paragraph(f"No taxonomy is believed: {content.vouched}.", "warning")]
    rows = [
        Row(
            (
                with_note("\N{NO-BREAK SPACE}" * 4 * line.depth + line.path, "" if line.in_run else "not in this run"),
                line.definition,
                "may hold it" if line.personal_data else "no",
                SOURCES[line.source],
                text.MISSING if line.records is None else f"{line.records:,}",
            ),
            quiet=not line.in_run,
        )
        for line in content.taxonomy
    ]
    columns = (
        Column("Class"),
        Column("Definition"),
        Column("Personal data"),
        Column("Source, by the regulator's categories"),
        Column("Tagged examples", number=True),
    )
    note = "The tags count examples. Sizes in bytes or tokens are on no record."
    return [
        *found,
        Paragraph(
            (Span("The classes that the tags may name, as the signed taxonomy defines them. "), cite(content.genesis))
        ),
        Table(columns, rows),
        Paragraph(note, "note"),
    ]


def _classes(content: RunContent, cite: Citations) -> Table:
    bands = list(dict.fromkeys(band for line in content.classes for band in line.bands))
    columns = [
        Column("Class"),
        Column("Examples", number=True),
        Column("All layers", number=True),
        *(Column(band.capitalize(), number=True) for band in bands),
        Column("First admitted", number=True),
        Column("From"),
    ]
    rows = [
        Row(
            (
                line.path,
                with_note(f"{line.examples:,}", "" if line.tagged is None else f"{line.tagged:,} tagged"),
                "denied" if set(bands) <= set(line.denied) else share_words(line.share),
                *("denied" if band in line.denied else share_words(line.bands[band]) for band in bands),
                "never" if line.first_admitted is None else f"step {line.first_admitted:,}",
                (cite(line.reference),),
            ),
            quiet=line.first_admitted is None,
        )
        for line in content.classes
    ]
    return Table(columns, rows)


def _over_time(content: RunContent) -> Table:
    """The shares over all layers, by part of the training."""
    stretches = parts(content.opened.ledger.steps)
    columns = [Column("Class")]
    columns += [Column(f"Steps {each.start:,} to {each.stop - 1:,}", number=True) for each in stretches]
    rows = []
    for line in content.classes:
        first = line.first_admitted
        cells = [
            "denied" if first is None or first >= each.stop else share_words(value)
            for each, value in zip(stretches, line.over_time, strict=True)
        ]
        rows.append(Row((line.path, *cells), quiet=first is None))
    return Table(columns, rows)


def _counts(content: RunContent) -> Table:
    columns = (
        Column("Class"),
        Column("Examples", number=True),
        Column("Denied by every layer", number=True),
        Column("Steps with examples", number=True),
        Column("Of these denied", number=True),
    )
    rows = [
        Row((each.class_, f"{each.examples:,}", f"{each.denied:,}", f"{each.steps:,}", f"{each.steps_denied:,}"))
        for each in content.counts
    ]
    return Table(columns, rows)


def _layers(content: RunContent, cite: Citations) -> list[Block]:
    """The heat map, and the same as a table; nothing where all of it is sealed."""
    if content.confidential and all(line.share is None for line in content.classes):
        return []
    lines = content.layers[:: max(1, -(-len(content.layers) // MOST_LAYERS))]
    left = len(content.layers) - len(lines)
    rest = f" {text.count(left, 'layer')} between these stand in the JSON report alone." if left else ""
    classes = [cell.class_ for cell in content.layers[0].cells]
    rows = [Row((line.layer, *map(_cell, line.cells))) for line in lines]
    return [
        Heading(3, (Span("Class by layer "), cite(content.steps))),
        Picture(
            name="heat",
            draw=lambda width: matrices.heat_map(content.cells, width=inner(width, beside=260)),
            caption=matrices.SHARES_CAPTION,
            description=f"Share of {len(classes)} classes in the gradients of {len(content.layers)} layers.",
        ),
        Table(
            (Column("Layer"), *(Column(each, number=True) for each in classes)),
            rows,
            caption=f"Share of each class in the summed gradient of a layer, over all steps.{rest}",
        ),
    ]


def inner(width: int | str, *, beside: int) -> int | str:
    """What is left of a picture's width when so many pixels are for what stands beside its plot."""
    return width - beside if isinstance(width, int) else width


def _cell(cell: LayerCell) -> str:
    if cell.state in STATES:
        return STATES[cell.state]
    exact = "" if cell.update_share is None else f", {share_words(cell.update_share)} of the update"
    return f"{share_words(cell.share)}{exact}"


def share_words(value: float | None) -> str:
    """As a percentage; what is not zero does not look like it.

    >>> share_words(0.2494), share_words(0.0002), share_words(0.0), share_words(None)
    ('24.9%', 'below 0.1%', '0.0%', '-')
    """
    if value is None:
        return text.MISSING
    return "below 0.1%" if 0 < abs(value) < LEAST else f"{value:.1%}"

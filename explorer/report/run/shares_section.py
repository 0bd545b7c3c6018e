"""The section on what trained what: shares by class, over time and by layer."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.audit.shares import Shares, estimates
from explorer.page import amounts
from explorer.page.document import Block, Column, Heading, Paragraph, Picture, Row, Span, Table, with_note
from explorer.report.run.class_lines import ClassLine, parts
from explorer.report.run.reported_run import ReportedRun
from explorer.report.section import Section
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import record
from explorer.views.ledger import matrices
from explorer.views.ledger.open_run import Steps

MOST_LAYERS = 120  # rows of the table by layer; the JSON report has all
LEAST = 0.0005  # smaller shares would be rounded to 0.0%
STATES = {"denied": "denied", "absent": "none there", "unmeasured": "not measured"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """A class, over all steps of the run and with repetition."""

    class_: str
    examples: int  # in the batches
    denied: int  # of these, in steps in which no layer admitted the class: no forward and no backward pass
    steps: int  # with examples of the class
    steps_denied: int  # of these, steps in which no layer admitted the class


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCell:
    """A class in a layer, over all steps."""

    class_: str
    state: str  # a key of `explorer.views.ledger.matrices.STATES`
    share: float | None  # of the summed gradient of the layer; exactly 0 where the class was denied throughout
    update_share: float | None  # of the update itself, split by class; None: the layer's updates were not split
    weight: float  # the greatest that the policy gave
    examples: int  # in the batches of the steps with numbers
    steps: int  # with numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerLine:
    """A layer."""

    layer: str
    cells: tuple[LayerCell, ...]  # in the order of the genesis' classes


@record
class SharesRecord:
    """The part of every class in the training."""

    classes: tuple[ClassLine, ...]
    counts: tuple[Counts, ...]
    layers: tuple[LayerLine, ...]
    quarantined_slots: int


class SharesSection(Section[ReportedRun, SharesRecord]):
    """Shares by class, over time and by layer."""

    record = SharesRecord

    def gather(self, run: ReportedRun) -> SharesRecord:
        return SharesRecord(
            classes=run.classes,
            counts=counts(run.ledger, run.opened.recorded),
            layers=layer_lines(run.shares, run.cells),
            quarantined_slots=run.quarantined,
        )

    def blocks(self, record: SharesRecord, run: ReportedRun) -> list[Block]:
        # Sealed numbers have no files next to the ledger that a reader could compare.
        whose = "the ledger" if run.confidential or not run.sums.spooled else "the files next to the ledger"
        summed = f"Shares are summed from {whose}; {run.sums}."
        if estimated := estimates(run.ledger, run.opened.steps):
            summed += f" {estimated}"
        if record.quarantined_slots:
            slots = amounts.count(record.quarantined_slots, "slot")
            summed += f" {slots} held examples that no trusted authority vouches for, which were never read."
        said = (
            "The share of each class in the summed gradient over the whole run: of all layers, and of each quarter of "
            "the depth. A column adds up to 100%; fractional weights of the policy are included. Denied: the weight "
            "was 0 in all layers of the column in all steps. A negative share: the class's gradients pointed against "
            "the sum of all, so the other classes' shares are more than 100% together. "
        )
        return [
            Heading(2, "What trained what", "what"),
            Paragraph((Span(said), run.cite(run.steps))),
            _classes(record, run),
            Heading(3, "Over training"),
            Paragraph(
                "Steps with large gradients, usually the early ones, dominate a sum over the run. This table has the "
                "shares over all layers for each part of the training."
            ),
            _over_time(record, run),
            Paragraph(summed, "note" if run.sums.agrees else "warning"),
            Heading(3, "Examples in batches, and denied examples"),
            _counts(record),
            *_layers(record, run),
        ]


# --- gathering ---


def counts(run: RunLedger, recorded: Steps) -> tuple[Counts, ...]:
    """Count the examples of each class in batches, and those that no layer admitted."""
    examples = recorded.examples[run.begins : run.steps]
    admitted = np.ones(examples.shape, bool)  # without a policy, there is no table and everything is admitted
    for table in recorded.tables:
        admitted[max(0, table.first - run.begins) : table.stop - run.begins] = (table.weights > 0).any(axis=1)
    there = examples > 0
    return tuple(
        Counts(
            class_=path,
            examples=int(examples[:, at].sum()),
            denied=int(examples[~admitted[:, at], at].sum()),
            steps=int(there[:, at].sum()),
            steps_denied=int((there[:, at] & ~admitted[:, at]).sum()),
        )
        for at, path in enumerate(run.genesis.classes)
    )


def layer_lines(shares: Shares, cells: pd.DataFrame) -> tuple[LayerLine, ...]:
    """Return all layers, from input to output, with their shares over the whole run. `cells` is the heat map's data."""
    lines = []
    for layer, rows in cells.groupby("layer", sort=False):
        at = shares.layers.index(str(layer))
        line = tuple(
            LayerCell(
                class_=str(row["class"]),
                state=str(row["state"]),
                share=_finite(row["share"]),
                update_share=None if shares.exact is None else _finite(shares.exact[0, place, at]),
                weight=float(row["weight"]),
                examples=int(shares.examples[0, place, at]),
                steps=int(row["steps"]),
            )
            for place, (_, row) in enumerate(rows.iterrows())
        )
        lines.append(LayerLine(layer=str(layer), cells=line))
    return tuple(lines)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


# --- showing ---


def _classes(record: SharesRecord, run: ReportedRun) -> Table:
    bands = list(dict.fromkeys(band for line in record.classes for band in line.bands))
    columns = [
        Column("Class"),
        Column("Examples", number=True),
        Column("All layers", number=True),
        *(Column(band.capitalize(), number=True) for band in bands),
        Column("First admitted", number=True),
        Column("Evidence"),
    ]
    rows = [
        Row(
            (
                line.path,
                with_note(f"{line.examples:,}", "" if line.tagged is None else f"{line.tagged:,} tagged"),
                "denied" if set(bands) <= set(line.denied) else share_words(line.share),
                *("denied" if band in line.denied else share_words(line.bands[band]) for band in bands),
                "never" if line.first_admitted is None else f"step {line.first_admitted:,}",
                (run.cite(line.reference),),
            ),
            quiet=line.first_admitted is None,
        )
        for line in record.classes
    ]
    return Table(columns, rows)


def _over_time(record: SharesRecord, run: ReportedRun) -> Table:
    """Return the shares over all layers as a table, by part of the training."""
    stretches = parts(run.ledger.steps)
    # A class that was not admitted before the end of a part was denied in it, which is more than a share of 0%.
    columns = [Column("Class")]
    columns += [Column(f"Steps {part.start:,} to {part.stop - 1:,}", number=True) for part in stretches]
    rows = []
    for line in record.classes:
        first = line.first_admitted
        cells = [
            "denied" if first is None or first >= part.stop else share_words(value)
            for part, value in zip(stretches, line.over_time, strict=True)
        ]
        rows.append(Row((line.path, *cells), quiet=first is None))
    return Table(columns, rows)


def _counts(record: SharesRecord) -> Table:
    columns = (
        Column("Class"),
        Column("Examples", number=True),
        Column("Denied by every layer", number=True),
        Column("Steps with examples", number=True),
        Column("Steps that denied it", number=True),
    )
    rows = [
        Row((line.class_, f"{line.examples:,}", f"{line.denied:,}", f"{line.steps:,}", f"{line.steps_denied:,}"))
        for line in record.counts
    ]
    return Table(columns, rows)


def _layers(record: SharesRecord, run: ReportedRun) -> list[Block]:
    """Return the heat map, and the same as a table; nothing if all of it is sealed."""
    if run.confidential and all(line.share is None for line in record.classes):
        return []
    # Of more layers than the page has room for, every second is shown, or every third, ...
    lines = record.layers[:: max(1, -(-len(record.layers) // MOST_LAYERS))]
    left = len(record.layers) - len(lines)
    rest = f" The JSON report has {amounts.count(left, 'more layer')} between these." if left else ""
    classes = [cell.class_ for cell in record.layers[0].cells]
    return [
        Heading(3, (Span("Class by layer "), run.cite(run.steps))),
        Picture(
            name="heat",
            draw=lambda width: matrices.heat_map(run.cells, width=inner(width, margin=260)),
            caption=matrices.SHARES_CAPTION,
            description=f"Share of {len(classes)} classes in the gradients of {len(record.layers)} layers.",
        ),
        Table(
            (Column("Layer"), *(Column(path, number=True) for path in classes)),
            [Row((line.layer, *map(_cell, line.cells))) for line in lines],
            caption=f"Share of each class in the summed gradient of a layer, over all steps.{rest}",
        ),
    ]


def inner(width: int | str, *, margin: int) -> int | str:
    """Return the width of a plot in a picture whose axes and legends take `margin` pixels."""
    return width - margin if isinstance(width, int) else width


def _cell(cell: LayerCell) -> str:
    if cell.state in STATES:
        return STATES[cell.state]
    exact = "" if cell.update_share is None else f", {share_words(cell.update_share)} of the update"
    return f"{share_words(cell.share)}{exact}"


def share_words(value: float | None) -> str:
    """Format a share as a percentage. A small share must not look like none.

    >>> share_words(0.2494), share_words(0.0002), share_words(0.0), share_words(None)
    ('24.9%', 'below 0.1%', '0.0%', '-')
    """
    if value is None:
        return amounts.MISSING
    return "below 0.1%" if 0 < abs(value) < LEAST else f"{value:.1%}"

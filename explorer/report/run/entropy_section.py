"""The section on entropy profiles: how far classes can be told apart, chi and entropy of every layer, at its first and
its last measurement."""

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.audit.history import DepthProfile
from explorer.entries.entropy_profile import Told
from explorer.page import amounts
from explorer.page.document import Block, Column, Heading, Paragraph, Picture, Row, Span, Table
from explorer.report.run.references import Reference, refer
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run.shares_section import inner
from explorer.report.section import Section
from explorer.schema import record
from explorer.store.spool_reader import ALL
from explorer.views.ledger import depth

TOLD_WORDS = (
    "Told apart: balanced accuracy of a linear probe on held-out probes, with a 95% interval; chance is the accuracy "
    "of guessing. "
)
PICTURES = {
    "told_apart": "How well a linear probe tells the classes apart in the outputs",
    "chi": "How far the directions that the classes use differ in the outputs",
    "entropy": "The entropy of the outputs",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a layer's outputs on the probes of all classes together looked like once."""

    step: int
    examples: int  # probes
    entropy: float  # nats, of the outputs as they are
    entropy_centred: float | None  # of the outputs minus their mean; None: a record of earlier versions
    told: Told | None  # how well a linear probe tells the classes apart; None: a record of earlier versions
    told_p_value: float | None  # of `told` under permuted labels
    chi: float | None
    chi_null: float | None  # the mean under permuted labels
    p_value: float | None  # of chi under permuted labels


@dataclass(frozen=True, kw_only=True, slots=True)
class DepthLine:
    """A layer."""

    layer: str
    first: Measured
    last: Measured  # equal to `first` if it was measured once


@record
class Profiles:
    """Entropy profiles: each layer first and last, and all that was measured."""

    layers: tuple[DepthLine, ...]
    rows: tuple[DepthProfile, ...]
    reference: Reference | None


@record
class EntropyRecord:
    """The entropy profiles on record."""

    profiles: Profiles


class EntropySection(Section[ReportedRun, EntropyRecord]):
    """Entropy profiles."""

    record = EntropyRecord

    def gather(self, run: ReportedRun) -> EntropyRecord:
        rows, entries = run.opened.profiles, run.ledger.outline.profiles
        reference = refer(entries) if entries else None
        return EntropyRecord(profiles=Profiles(layers=depth_lines(rows), rows=rows, reference=reference))

    def blocks(self, record: EntropyRecord, run: ReportedRun) -> list[Block]:
        # Three cases: the numbers are here, they are on record but sealed or missing, or nothing was measured.
        profiles = record.profiles
        cited = (Span("Entropy profile "), run.cite(profiles.reference)) if profiles.reference else "Entropy profile"
        blocks: list[Block] = [Heading(2, cited, "entropy")]
        if depth.is_drawn(profiles.rows):
            blocks += [_picture(profiles.rows, name) for name in PICTURES if depth.is_drawn(profiles.rows, name)]
            blocks.append(Paragraph(depth.CAPTION, "note"))
        elif profiles.reference:
            sealed = "sealed, or " if run.confidential else ""
            words = f"Profiles are on record, but their numbers are {sealed}not next to the ledger."
            blocks.append(Paragraph(words))
        else:
            blocks.append(Paragraph("No entropy profile is on record, because the recipe measures none."))
        return [*blocks, _table(profiles.layers)] if profiles.layers else blocks


def depth_lines(profiles: Iterable[DepthProfile]) -> tuple[DepthLine, ...]:
    """Return the layers that were measured over all classes, from input to output; none if those numbers are sealed."""
    layers: dict[str, list[Measured]] = {}
    for profile in profiles:
        if profile.class_ == ALL:
            names = Measured.__dataclass_fields__
            measured = Measured(**{name: getattr(profile, name) for name in names})
            layers.setdefault(profile.layer, []).append(measured)
    return tuple(
        DepthLine(
            layer=layer,
            first=min(times, key=lambda measured: measured.step),
            last=max(times, key=lambda measured: measured.step),
        )
        for layer, times in layers.items()
    )


def _picture(rows: tuple[DepthProfile, ...], measure: str) -> Picture:
    return Picture(
        name=measure.replace("_", "-"),
        draw=lambda width: depth.depth_profile(rows, measure=measure, width=inner(width, margin=100)),
        description=f"{PICTURES[measure]} of every layer, at its first and its last measurement.",
    )


def _table(lines: tuple[DepthLine, ...]) -> Table:
    """Show the first and the last measurement, over all classes."""
    # Records of earlier versions lack both measures: their reports keep the columns of those versions.
    centred = all(line.first.entropy_centred is not None for line in lines)
    told = any(line.last.told is not None for line in lines)
    columns = (
        Column("Layer"),
        *((Column("Told apart, first", number=True), Column("last", number=True), Column("p", number=True)) * told),
        Column("Chi, first", number=True),
        Column("last", number=True),
        Column("by chance", number=True),
        Column("p", number=True),
        Column("Entropy, first", number=True),
        Column("last", number=True),
    )
    rows = [
        Row(
            (
                line.layer,
                *((_told(line.first), _told(line.last), _chance(line.last.told_p_value)) if told else ()),
                _number(line.first.chi),
                _number(line.last.chi),
                _number(line.last.chi_null),
                _chance(line.last.p_value),
                _number(line.first.entropy_centred if centred else line.first.entropy),
                _number(line.last.entropy_centred if centred else line.last.entropy),
            )
        )
        for line in lines
    ]
    first, last = lines[0].first, lines[0].last
    caption = (
        f"Over all classes, {amounts.count(last.examples, 'probe')}: first after {first.step:,} steps, last after "
        f"{last.step:,}. {TOLD_WORDS if told else ''}Chi compares the directions that the classes use, in nats; 0 "
        "means that they share them, not that they cannot be told apart. By chance: the mean over permuted labels; p: "
        "the fraction of permutations that reach the measured value. Entropy, in nats, is that of the outputs "
        f"{'minus their mean' if centred else 'as they are, not centred'}. That classes can be told apart does not "
        "prove that training on them is the cause."
    )
    return Table(columns, rows, caption=caption)


def _told(measured: Measured) -> str:
    return amounts.MISSING if measured.told is None else measured.told.words


def _chance(value: float | None) -> str:
    """Format a p-value, which is never shown as zero: permutations only bound it from above."""
    return "below 0.001" if value is not None and value < 0.001 else _number(value)


def _number(value: float | None) -> str:
    return amounts.MISSING if value is None else f"{value:.3f}"

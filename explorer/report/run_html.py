"""The governance report of a run as one HTML page that asks for nothing outside itself and runs no script.

Charts are pictures in the page (SVG), drawn in the colour of its text, so that they follow a dark page; every number in
them stands in a table or in the ledger too.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.resources import files

import altair as alt
import jinja2
import vl_convert
from markupsafe import Markup

import explorer
from explorer.audit.shares import shares
from explorer.report.run_classes import ClassLine, parts
from explorer.report.run_content import RunContent, references_of
from explorer.report.run_policy import PhaseTable
from explorer.report.run_references import ListedEntry, Reference, list_entries
from explorer.report.run_summary import LIMITS
from explorer.report.run_vouchers import VoucherLine
from explorer.views import ledger_depth, ledger_heat, ledger_timeline, text
from explorer.views.exports import VEGA_LITE
from explorer.views.ledger_badge import badge_html
from explorer.views.tables import CSS, Column, Row, table, with_note

WIDTH = 900
LEAST = 0.0005  # what would be shown as nothing

Cite = Callable[[Reference], Markup]
"""How a page links to the entries behind a figure."""


def as_html(content: RunContent) -> str:
    """The whole page."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(files("explorer.report").joinpath("run.html.j2").read_text(encoding="utf-8"))
    entries, unlisted = list_entries(content.opened.ledger, references_of(content))
    listed = {each.index for each in entries}

    def cite(reference: Reference) -> Markup:
        target = reference.first if reference.first in listed else entries[0].index
        return Markup('<a class="cite" href="#entry-{}">{}</a>').format(target, str(reference))

    def cite_entry(index: int) -> Markup:
        return cite(Reference(first=index, last=index))

    return template.render(
        content=content,
        cite=cite,
        badge=badge_html(content.integrity),
        classes=_classes(content, cite),
        over_time=_over_time(content),
        deletion=_deletion(content.classes, cite),
        vouchers=[_voucher(line, cite) for line in content.vouchers],
        phases=[(phase, _phase(content, phase)) for phase in (content.policy.phases if content.policy else ())],
        decisions=ledger_timeline.decisions_table(content.opened.decisions, link=cite_entry)
        if content.decisions
        else None,
        charts=_charts(content),
        captions={"heat": ledger_heat.CAPTION, "depth": ledger_depth.CAPTION, "time": ledger_timeline.CAPTION},
        entries=_entries(entries),
        unlisted=unlisted,
        limits=LIMITS,
        css=Markup(CSS),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=explorer.__version__,
    )


def _charts(content: RunContent) -> dict[str, Markup]:
    """The pictures, by name; those that there is nothing for are left out."""
    opened = content.opened
    charts: dict[str, alt.LayerChart] = {}
    if len(opened.recorded):
        if not content.confidential or any(line.share is not None for line in content.classes):
            frame = ledger_heat.cells(shares(opened.ledger), opened.recorded)
            charts["heat"] = ledger_heat.heat_map(frame, width=WIDTH - 200)
        if opened.decisions:
            steps, phases = len(opened.recorded), opened.recorded.phases
            charts["time"] = ledger_timeline.timeline(opened.decisions, phases=phases, steps=steps, width=WIDTH - 100)
    for measure in ("entropy", "chi") if ledger_depth.is_drawn(opened.profiles) else ():
        charts[measure] = ledger_depth.depth_profile(opened.profiles, measure=measure, width=WIDTH // 2 - 60)
    return {name: _picture(chart, name) for name, chart in charts.items()}


def _picture(chart: alt.LayerChart, name: str) -> Markup:
    """A chart as SVG. The names in it are its own, for they are the page's too."""
    svg = vl_convert.vegalite_to_svg(chart.to_dict(), vl_version=VEGA_LITE)
    return Markup(re.sub(r'(\bid="|url\(#)', rf"\g<1>{name}-", svg))


def _classes(content: RunContent, cite: Cite) -> Markup:
    bands = list(dict.fromkeys(band for line in content.classes for band in line.bands))
    columns = [
        Column(title="Class"),
        Column(title="Examples", number=True),
        Column(title="All layers", number=True),
        *(Column(title=band.capitalize(), number=True) for band in bands),
        Column(title="First admitted", number=True),
        Column(title="From"),
    ]
    rows = [
        Row(
            cells=(
                line.path,
                with_note(f"{line.examples:,}", "" if line.tagged is None else f"{line.tagged:,} tagged"),
                "denied" if set(bands) <= set(line.denied) else _share(line.share),
                *("denied" if band in line.denied else _share(line.bands[band]) for band in bands),
                "never" if line.first_admitted is None else f"step {line.first_admitted:,}",
                cite(line.reference),
            ),
            quiet=line.first_admitted is None,
        )
        for line in content.classes
    ]
    return table(columns, rows)


def _over_time(content: RunContent) -> Markup:
    """The shares over all layers, by part of the training."""
    stretches = parts(content.opened.ledger.steps)
    columns = [Column(title="Class")]
    columns += [Column(title=f"Steps {each.start:,} to {each.stop - 1:,}", number=True) for each in stretches]
    rows = []
    for line in content.classes:
        first = line.first_admitted
        cells = [
            "denied" if first is None or first >= each.stop else _share(value)
            for each, value in zip(stretches, line.over_time, strict=True)
        ]
        rows.append(Row(cells=(line.path, *cells), quiet=first is None))
    return table(columns, rows)


def _deletion(lines: tuple[ClassLine, ...], cite: Cite) -> Markup:
    columns = (
        Column(title="Class"),
        Column(title="Level"),
        Column(title="What the structure allows"),
        Column(title="From"),
    )
    rows = [
        Row(cells=(line.path, line.deletable.level or text.MISSING, line.deletable.words, cite(line.reference)))
        for line in lines
    ]
    return table(columns, rows)


def _share(value: float | None) -> str:
    """As a percentage; what is not zero does not look like it.

    >>> _share(0.2494), _share(0.0002), _share(0.0), _share(None)
    ('24.9%', 'below 0.1%', '0.0%', '-')
    """
    if value is None:
        return text.MISSING
    return "below 0.1%" if 0 < abs(value) < LEAST else f"{value:.1%}"


def _voucher(line: VoucherLine, cite: Cite) -> dict[str, object]:
    counts = [f"{path}: {text.count(number, 'record')}" for path, number in line.counts.items()]
    return {"line": line, "counts": "; ".join(counts), "cite": cite(line.reference)}


def _phase(content: RunContent, phase: PhaseTable) -> Markup:
    """The weights of a phase: a row for each class, neighbouring layers that are treated alike in one column."""
    columns = [Column(title="Class")]
    columns += [
        Column(title=each.first if each.first == each.last else f"{each.first} to {each.last}")
        for each in phase.columns
    ]
    names = [line.path for line in content.classes]
    rows = [Row(cells=(name, *(each.weights[at] for each in phase.columns))) for at, name in enumerate(names)]
    return table(columns, rows)


def _entries(entries: tuple[ListedEntry, ...]) -> Markup:
    columns = (
        Column(title="Entry"),
        Column(title="Kind"),
        Column(title="Step", number=True),
        Column(title="Leaf hash"),
    )
    rows = [
        Row(
            cells=(
                Markup('<span id="entry-{0}">{0}</span>').format(each.index),
                each.kind,
                text.MISSING if each.step is None else f"{each.step:,}",
                Markup("<code>{}</code>").format(each.leaf),
            )
        )
        for each in entries
    ]
    return table(columns, rows)

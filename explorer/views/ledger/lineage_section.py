"""Section on lineage: the runs that a run continues, those that continue it, its model and the statements on both.

The graph is SVG: boxes of one size, a column for each generation, older ones left, each box near the middle of its
origins. It is drawn in the colour of the text, so that it is legible in the dark and on paper. Claims without evidence
are dashed. A table below the graph has the same content for screen readers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from explorer.page import amounts
from explorer.page.document import Block, Column, Row, Span, Table, clipped, with_note
from explorer.page.html import Markup, element
from explorer.release.lineage import MOST, Family, Relative, Standing, family
from explorer.views.ledger.open_run import OpenRun
from explorer.views.ledger.pane import ReadSection, heading, note, warning
from explorer.views.notebook import joined, named

WIDTH, HEIGHT = 230, 46  # of a box, in pixels
ACROSS, DOWN = 84, 20  # pixels between boxes
EDGE = 8  # pixels around the graph
LETTERS = 26  # in a line of a box
DASHES = "5 4"  # of claims without evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """Node of the graph: its two lines, and the full text on hover."""

    key: str
    title: str
    line: str
    hover: str
    column: int
    claimed: bool = False
    bold: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrow:
    """Arrow from a box to one that came of it; `words` are shown on hover."""

    source: str
    target: str
    words: str
    claimed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Spot:
    """The upper left corner of a box."""

    x: float
    y: float


def graph(boxes: Sequence[Box], arrows: Sequence[Arrow], *, words: str) -> Markup:
    """Draw the graph, described by `words`. Arrows to or from missing boxes are left out."""
    spots = placed(boxes, arrows)
    width = max((spot.x for spot in spots.values()), default=0) + WIDTH + EDGE
    height = max((spot.y for spot in spots.values()), default=0) + HEIGHT + EDGE
    drawn = [_arrow(arrow, spots) for arrow in arrows if arrow.source in spots and arrow.target in spots]
    drawn += [_box(box, spots[box.key]) for box in boxes]
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "viewBox": f"0 0 {width:.0f} {height:.0f}"}
    picture = element("svg", *drawn, class_="x-graph", role="img", aria_label=words, **size)
    return element("div", picture, class_="x-scroll", tabindex="0", role="group", aria_label="The graph, which scrolls")


def placed(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Mapping[str, _Spot]:
    """Return the place of each box. Within a column, boxes follow the order of their neighbours in columns before."""
    # One pass of the barycentre heuristic (Sugiyama et al., 1981): enough for families of a few dozen boxes.
    columns = sorted({box.column for box in boxes})
    tied = [(arrow.source, arrow.target) for arrow in arrows] + [(arrow.target, arrow.source) for arrow in arrows]
    rows: dict[str, float] = {}
    tallest = max((sum(box.column == column for box in boxes) for column in columns), default=0)
    spots: dict[str, _Spot] = {}
    for at, column in enumerate(columns):
        mine = [box.key for box in boxes if box.column == column]

        def near(key: str) -> float:
            heights = [rows[other] for one, other in tied if one == key and other in rows]
            return sum(heights) / len(heights) if heights else 0.0

        order = sorted(mine, key=near)  # stable: boxes without neighbours keep their order
        above = (tallest - len(order)) / 2  # columns are centred
        for number, key in enumerate(order):
            spots[key] = _Spot(x=EDGE + at * (WIDTH + ACROSS), y=EDGE + (above + number) * (HEIGHT + DOWN))
            rows[key] = above + number
    return spots


def _box(box: Box, at: _Spot) -> Markup:
    frame = element(
        "rect",
        x=f"{at.x:.1f}",
        y=f"{at.y:.1f}",
        width=WIDTH,
        height=HEIGHT,
        rx=6,
        class_="x-graph-box",
        stroke_width=2.5 if box.bold else 1.2,
        stroke_dasharray=DASHES if box.claimed else None,
    )
    lines = (("x-graph-title", 19, clipped(box.title, LETTERS)), ("x-graph-line", 36, clipped(box.line, LETTERS + 4)))
    texts = (
        element("text", words, x=f"{at.x + 10:.1f}", y=f"{at.y + below:.1f}", class_=kind)
        for kind, below, words in lines
    )
    return element("g", element("title", box.hover), frame, *texts)


def _arrow(arrow: Arrow, spots: Mapping[str, _Spot]) -> Markup:
    """Return a curve with a head from the right side of one box to the left side of the other."""
    source, target = spots[arrow.source], spots[arrow.target]
    x, y = source.x + WIDTH, source.y + HEIGHT / 2
    to_x, to_y = target.x - 7, target.y + HEIGHT / 2
    # Short arrows still bend, or those between neighbours would lie on one another.
    bend = max(30.0, abs(to_x - x) / 2)
    curve = f"M{x:.1f},{y:.1f}C{x + bend:.1f},{y:.1f},{to_x - bend:.1f},{to_y:.1f},{to_x:.1f},{to_y:.1f}"
    head = f"M{to_x + 6:.1f},{to_y:.1f}l-7,-4v8z"
    return element(
        "g",
        element("title", arrow.words),
        element("path", d=curve, class_="x-graph-arrow", stroke_dasharray=DASHES if arrow.claimed else None),
        element("path", d=head, class_="x-graph-head"),
    )


COLUMNS = (
    Column(title="Kind"),
    Column(title="Name"),
    Column(title="Digest"),
    Column(title="Origin"),
    Column(title="Trust"),
)
STANDINGS: dict[Standing, str] = {
    "verified": "\u2713 verified",
    "here": "? here, not checked",
    "refused": "\u2717 not trusted",
    "claimed": "\u2013 claimed only",
}
CAPTION = (
    "Older to the left. Solid: the named ledger is here and had the named state, or a signature that you trust ties "
    "the two. Dashed: only claimed by the later one. Work that was never recorded here is missing."
)
GATES = "Decisions of gates are not recorded; a deployer reports a model in use by an observation."


def lineage_blocks(opened: OpenRun) -> Iterator[Block | Markup]:
    """Yield the graph, and a table with the same content. Raises as `explorer.release.lineage` does."""
    relatives = family(opened.ledger, trust=opened.trust, now=opened.now)
    yield heading("Lineage")
    yield graph(_boxes(relatives), _arrows(relatives), words=_words(relatives))
    yield note(f"{CAPTION} {GATES}")
    for remark in relatives.remarks:
        yield warning(remark)
    count = len(relatives.relatives)
    if relatives.left_out:
        yield warning(f"Only {amounts.count(count, 'relative')} of more are shown; the limit is {MOST}.")
    if count == 1:
        yield note("It continues no other run, and no run that is recorded here continues it.")
    yield Table(COLUMNS, list(_rows(relatives)))


def _boxes(relatives: Family) -> list[Box]:
    return [
        Box(
            key=relative.key,
            title=relative.name,
            line=f"{_sign(relative)} {relative.what} {relative.digest[:12] or 'without digest'}",
            hover=f"{relative.what} {relative.name}, digest {relative.digest or 'not known'}: {relative.why}",
            column=relative.generation,
            claimed=relative.standing == "claimed",
            bold=relative.generation == 0,
        )
        for relative in relatives.relatives
    ]


def _arrows(relatives: Family) -> list[Arrow]:
    return [
        Arrow(source=tie.source, target=tie.target, words=tie.words, claimed=not tie.certain) for tie in relatives.ties
    ]


def _words(relatives: Family) -> str:
    kinds = [
        amounts.count(sum(relative.what == what for relative in relatives.relatives), what) for what in ("run", "model")
    ]
    seen = amounts.count(sum(relative.what == "observation" for relative in relatives.relatives), "observation")
    return f"Lineage of the run: {', '.join(kinds)}, {seen}. The table below says the same."


def _rows(relatives: Family) -> Iterator[Row]:
    """Yield a row for each relative, the oldest first."""
    names = {relative.key: relative.name for relative in relatives.relatives}
    for relative in sorted(relatives.relatives, key=lambda one: one.generation):
        ties = [tie for tie in relatives.ties if tie.target == relative.key]
        origins = [
            with_note(named(names[tie.source]), tie.words if tie.certain else f"{tie.words}: only claimed")
            for tie in ties
        ]
        digest = Span(relative.digest[:16] or amounts.MISSING, "code", hover=relative.digest)
        yield Row(
            (
                "this run" if relative.generation == 0 else relative.what,
                named(relative.name),
                (digest,),
                joined(origins, "") if origins else amounts.MISSING,
                with_note(STANDINGS[relative.standing], clipped(relative.why, 200)),
            ),
            strong=relative.generation == 0,
            quiet=relative.standing == "claimed",
        )


def _sign(relative: Relative) -> str:
    return STANDINGS[relative.standing][0]


class LineageSection(ReadSection):
    """Section on lineage."""

    key, title = "lineage", "Lineage"

    def blocks(self, opened: OpenRun) -> Iterator[Block | Markup]:
        return lineage_blocks(opened)

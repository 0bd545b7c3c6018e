"""The section on lineage: the runs that a run continues, those that continue it, its model and the statements on both.

The graph is SVG: boxes of one size, a column for each generation, older ones left, each box near the middle of those
that it came from. It is drawn in the colour of the text, so that it can be read in the dark and on paper. What is
only claimed is dashed. A table below the graph has the same content for readers who cannot see it.
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
ACROSS, DOWN = 84, 20  # between boxes
EDGE = 8  # around all
LETTERS = 26  # in a box's lines
DASHES = "5 4"  # of what is only claimed


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
    """Something in the graph: its two lines, and all of it for who rests on it."""

    key: str
    title: str
    line: str
    hover: str
    column: int
    claimed: bool = False
    bold: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrow:
    """From a box to one that came of it. `words` are shown to who rests on it."""

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
    """Draw it; `words` describe it. An arrow between boxes that are not there is left out."""
    spots = placed(boxes, arrows)
    width = max((spot.x for spot in spots.values()), default=0) + WIDTH + EDGE
    height = max((spot.y for spot in spots.values()), default=0) + HEIGHT + EDGE
    drawn = [_arrow(arrow, spots) for arrow in arrows if arrow.source in spots and arrow.target in spots]
    drawn += [_box(box, spots[box.key]) for box in boxes]
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}", "viewBox": f"0 0 {width:.0f} {height:.0f}"}
    picture = element("svg", *drawn, class_="x-graph", role="img", aria_label=words, **size)
    return element("div", picture, class_="x-scroll", tabindex="0", role="group", aria_label="The graph, which scrolls")


def placed(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> Mapping[str, _Spot]:
    """Where each box is. Within a column they stand in the order of what they are tied to, a column before."""
    columns = sorted({box.column for box in boxes})
    tied = [(each.source, each.target) for each in arrows] + [(each.target, each.source) for each in arrows]
    rows: dict[str, float] = {}
    tallest = max((sum(box.column == column for box in boxes) for column in columns), default=0)
    spots: dict[str, _Spot] = {}
    for at, column in enumerate(columns):
        mine = [box.key for box in boxes if box.column == column]

        def near(key: str) -> float:
            found = [rows[other] for one, other in tied if one == key and other in rows]
            return sum(found) / len(found) if found else 0.0

        order = sorted(mine, key=near)  # stable: what is tied to nothing stays as it came
        above = (tallest - len(order)) / 2
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
    Column(title="What"),
    Column(title="Name"),
    Column(title="Digest"),
    Column(title="Came of"),
    Column(title="Believed"),
)
STANDINGS: dict[Standing, str] = {
    "verified": "\u2713 verified",
    "here": "? here, not checked",
    "refused": "\u2717 not believed",
    "claimed": "\u2013 claimed only",
}
CAPTION = (
    "Older to the left. A solid line: the ledger that is named is here and has had the state that is named, or a "
    "signature that you believe ties the two. Dashed: only claimed, by who names it. What was done elsewhere and never "
    "recorded here is not in it."
)
GATES = "What a gate decided is on no record; a deployer who lets a model run says so in an observation."


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
        yield warning(f"{amounts.count(count, 'relative')} are shown, at most {MOST}; more were met.")
    if count == 1:
        yield note("It goes on from no other run, and nothing that is recorded here goes on from it.")
    yield Table(COLUMNS, list(_rows(relatives)))


def _boxes(found: Family) -> list[Box]:
    return [
        Box(
            key=each.key,
            title=each.name,
            line=f"{_sign(each)} {each.what} {each.digest[:12] or 'without digest'}",
            hover=f"{each.what} {each.name}, digest {each.digest or 'not known'}: {each.why}",
            column=each.generation,
            claimed=each.standing == "claimed",
            bold=each.generation == 0,
        )
        for each in found.relatives
    ]


def _arrows(found: Family) -> list[Arrow]:
    return [
        Arrow(source=each.source, target=each.target, words=each.words, claimed=not each.certain) for each in found.ties
    ]


def _words(found: Family) -> str:
    kinds = [amounts.count(sum(each.what == what for each in found.relatives), what) for what in ("run", "model")]
    seen = amounts.count(sum(each.what == "observation" for each in found.relatives), "observation")
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


def _sign(each: Relative) -> str:
    return STANDINGS[each.standing][0]


class LineageSection(ReadSection):
    """Section on lineage."""

    key, title = "lineage", "Lineage"

    def blocks(self, opened: OpenRun) -> Iterator[Block | Markup]:
        return lineage_blocks(opened)

"""Blocks as HTML: a page as one file that asks for nothing outside itself, and the fragment that a widget shows.

The content security policy of a page forbids requests. Its charts are pictures (SVG) in the colour of the text. An
interactive one is there as its specification too, from which the Vega library in the file draws it again so that it
answers the mouse; a page without one has no script at all.

Every text that comes from outside is escaped here, once: `fragment` and `element` return `Markup`, which is HTML, and
take any other string for words.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import jinja2
import vl_convert
from markupsafe import Markup, escape

from explorer.page import theme
from explorer.page.document import (
    LONGEST_HOVER,
    Block,
    Bullets,
    Code,
    Facts,
    Fold,
    Heading,
    Mark,
    Page,
    Paragraph,
    Picture,
    Row,
    Span,
    Table,
    Text,
    Tone,
    clean,
    clipped,
    one_line,
    spans,
    words,
)
from explorer.page.pictures import VEGA_LITE, drawable, specification, svg

WIDTH = 880  # pixels of a picture
CSS = files("explorer.page").joinpath("explorer.css").read_text(encoding="utf-8")

Attribute = str | int | float | bool | None
EMPTY = ("br", "circle", "img", "input", "line", "path", "polyline", "rect")  # elements that end where they begin


# ---- a page, and the fragment that a widget shows


def render_html(page: Page) -> str:
    """Return the whole file."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(files("explorer.page").joinpath("page.html.j2").read_text(encoding="utf-8"))
    interactive = any(isinstance(block, Picture) and block.interactive for block in page.blocks)
    return template.render(
        page=page,
        title=clean(page.title),
        contents=[heading for heading, _ in page.sections if heading and heading.anchor],
        block=lambda block: _block(block, PAGE),
        inline=lambda text: _inline(text, PAGE),
        bare=lambda text: words(text) if isinstance(text, str) else words(text[:1]),
        clean=clean,
        css=Markup(CSS),
        bundle=Markup(_bundle()) if interactive else None,
        embed=_json(theme.EMBED),
    )


def fragment(*blocks: Block | Markup) -> Markup:
    """Return blocks as the HTML that a widget shows below `style`; HTML among them stays as it is."""
    return Markup("").join(block if isinstance(block, Markup) else _block(block, WIDGET) for block in blocks)


def inline(text: Text) -> Markup:
    """Return a text as the HTML that a widget shows, for an `element` that holds it."""
    return _inline(text, WIDGET)


def style() -> Markup:
    """Return the style sheet of widgets, for the first of them; the outermost has the class `explorer`."""
    return Markup("<style>{}</style>").format(Markup(CSS))


def element(name: str, *content: str | Markup, **attributes: Attribute) -> Markup:
    """Return an element: strings in it are escaped, `Markup` is not.

    An attribute that is None or False is left out. Underscores become hyphens, except one at the end, which is dropped:
    it keeps `class_` from being a keyword of Python.

    >>> element("p", "a < b", class_="x-note", aria_label="It's", hidden=False)
    Markup('<p class="x-note" aria-label="It&#39;s">a &lt; b</p>')
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is not None and value is not False:
            word = key.removesuffix("_").replace("_", "-")
            parts.append(f" {word}" if value is True else f' {word}="{escape(value)!s}"')
    if name in EMPTY and not content:
        return Markup(f"{''.join(parts)}/>")
    return Markup(f"{''.join(parts)}>{''.join(map(escape, content))}</{name}>")


Colour = Literal["good", "bad", "warn", "quiet"]


def chip(words: str, colour: Colour = "quiet", *, hover: str = "") -> Markup:
    """Return a verdict in a word or two, in a frame whose colour repeats what the words say."""
    title = clipped(hover, LONGEST_HOVER) or None
    return element("span", clipped(words, 48), class_=f"x-chip x-chip-{colour}", title=title)


# ---- what differs between a page and a widget


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """The attributes of the elements in a place, and whether it is narrow: then names and endless words are clipped."""

    tones: Mapping[Tone, Mapping[str, Attribute]]
    heading: str | None = None
    code: str | None = None
    facts: str | None = None
    narrow: bool


PAGE = _Place(
    narrow=False,
    tones={
        "lead": {"class": "x-lead"},
        "note": {"class": "x-note"},
        "warning": {"class": "x-warn"},
        "alert": {"class": "x-warn"},
        "good": {"class": "x-verdict x-good"},
        "bad": {"class": "x-verdict x-bad"},
    },
)
WIDGET = _Place(
    narrow=True,
    heading="x-heading",
    code="x-said",
    facts="x-facts",
    tones={
        "lead": {"class": "x-answer", "role": "status"},
        "note": {"class": "x-note"},
        "warning": {"class": "x-note x-warn"},
        "alert": {"class": "x-note x-warn", "role": "alert"},
        "good": {"class": "x-answer", "role": "status"},
        "bad": {"class": "x-answer x-warn", "role": "status"},
        "status": {"class": "x-progress", "role": "status"},
        "empty": {"class": "x-empty"},
    },
)


# ---- blocks


def _block(block: Block, place: _Place) -> Markup:
    """Return a block as HTML that ends in a newline."""
    match block:
        case Heading(level, text, anchor):
            made = element(f"h{level}", _inline(text, place), id=anchor or None, class_=place.heading)
        case Paragraph(text, tone):
            made = element("p", _inline(text, place), **place.tones.get(tone, {}))
        case Bullets(items, tone, numbered):
            listed = [element("li", _inline(item, place)) for item in items]
            start = {"start": "0"} if numbered else {}
            made = element("ol" if numbered else "ul", *listed, **start, **place.tones.get(tone, {}))
        case Facts(pairs):
            lines = (
                Markup("{}{}\n").format(element("dt", clean(name)), element("dd", _inline(value, place)))
                for name, value in pairs
            )
            made = element("dl", Markup("\n"), *lines, class_=place.facts)
        case Code(text, title):
            made = element("pre", clean(text), class_=place.code, tabindex="0")
            made = element("details", element("summary", clean(title)), made) if title else made
        case Fold(title, blocks):
            inner = (_block(inner, place) for inner in blocks)
            made = element("details", element("summary", clean(title)), *inner)
        case Table():
            made = _table(block, place)
        case Picture():
            made = _figure(block, place)
    return made + Markup("\n")


def _table(table: Table, place: _Place) -> Markup:
    numeric = ["x-number" if column.number else None for column in table.columns]
    heads = (
        element("th", _inline(column.title, place), scope="col", class_=kind)
        for column, kind in zip(table.columns, numeric, strict=True)
    )
    caption = element("caption", _inline(table.caption, place)) if table.caption else Markup("")
    rows = (_row(row, numeric, place) + Markup("\n") for row in table.rows)
    made = element(
        "table",
        caption,
        element("thead", element("tr", *heads)),
        element("tbody", Markup("\n"), *rows),
        class_="x-table",
    )
    return element("div", made, class_="x-scroll", tabindex="0")


def _row(row: Row, numeric: list[str | None], place: _Place) -> Markup:
    # The first cell names its row, so screen readers read it before every other cell.
    first, *rest = (_inline(cell, place) for cell in row.cells)
    cells = (element("td", cell, class_=kind) for cell, kind in zip(rest, numeric[1:], strict=True))
    kind = "x-bold" if row.strong else "x-quiet" if row.quiet else None
    return element("tr", element("th", first, scope="row"), *cells, id=row.anchor or None, class_=kind)


def _figure(picture: Picture, place: _Place) -> Markup:
    """Return a chart as SVG, and as its specification where the page draws it again."""
    # Ids are global to a page: two charts with a gradient of the same id would share one of them.
    drawn = re.sub(r'(\bid="|url\(#)', rf"\g<1>picture-{picture.name}-", svg(picture, WIDTH))
    label = Markup('<svg role="img" aria-label="{}" ').format(clean(picture.description))
    chart = element("div", label + Markup(drawn.removeprefix("<svg ")), id=f"chart-{picture.name}", class_="x-chart")
    caption = element("figcaption", _inline(picture.caption, place)) if picture.caption else Markup("")
    made = element("figure", chart, caption) + Markup("\n")
    if picture.interactive and not place.narrow:
        data = _json(drawable(picture.live()) if picture.live else specification(picture, "container"))
        made += element("script", data, type="application/json", id=f"data-{picture.name}")
    return made


# ---- texts


def _inline(text: Text, place: _Place) -> Markup:
    return Markup("").join(_span(span, place) for span in spans(text))


def _span(span: Span, place: _Place) -> Markup:
    """Return words with the mark before them; a link to a file opens in a new window."""
    hover = span.hover and clipped(span.hover, LONGEST_HOVER)
    if not isinstance(span.text, str):
        shown = _inline(span.text, place)
    elif span.kind == "name" and place.narrow:
        short = clipped(span.text)
        hover = hover or (clipped(span.text, LONGEST_HOVER) if short != span.text else "")
        shown = element("bdi", short, title=hover or None)
    else:
        shown = Markup("{}").format(_spaced(span.text) if place.narrow else span.text)
    shown = (_mark(span.mark) if span.mark else Markup("")) + shown
    match span.kind:
        case "plain":
            return element("span", shown, title=hover) if hover else shown
        case "name":
            return shown
        case "strong":
            return element("b", shown, title=hover or None)
        case "code":
            return element("code", shown, title=hover or None)
        case "small":
            return element("small", shown, title=hover or None)
        case "warn":
            return element("span", shown, class_="x-warn", title=hover or None)
        case "link":
            apart = {} if span.target.startswith(("#", "https://")) else {"target": "_blank", "rel": "noopener"}
            return element("a", shown, href=span.target, title=hover or None, **apart)


def _spaced(text: str) -> str:
    """Return words on one line, with the spaces at either end that separate them from the next words."""
    line = one_line(text)
    if not line:
        return " " if text else ""
    return f"{' ' * text[:1].isspace()}{line}{' ' * text[-1:].isspace()}"


def _mark(mark: Mark) -> Markup:
    path = element("path", d=mark.outline, fill="none", stroke=mark.colour, stroke_width=2)
    return element("svg", path, class_="x-mark", width=14, height=14, viewBox="-7 -7 14 14", aria_hidden="true")


# ---- scripts


def _json(value: Any) -> Markup:
    """Return JSON for a script element: nothing in it can end the element."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))


@cache
def _bundle() -> str:
    """Return the Vega libraries as one script."""
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    assert "</script" not in script.lower(), "the library would end its own script element"
    return script

"""A page as one HTML file that asks for nothing outside itself; a content security policy forbids requests.

Charts are pictures (SVG) in the colour of the text. An interactive one is there as its specification too, from which
the Vega library in the file draws it again so that it answers the mouse; a page without one has no script at all.
"""

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from explorer.report.drawing import specification, svg
from explorer.report.page import Mark, Page, Picture, Span, Text, Tone, clean, spans, words
from explorer.views import theme
from explorer.views.explorer.exports import VEGA_LITE
from explorer.views.tables import CSS

WIDTH = 880  # pixels of a picture

TONES: dict[Tone, str] = {
    "plain": "",
    "lead": "x-lead",
    "note": "x-note",
    "warning": "x-warn",
    "good": "x-verdict x-good",
    "bad": "x-verdict x-bad",
}


def render_html(page: Page) -> str:
    """The whole file."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(files("explorer.report").joinpath("page.html.j2").read_text(encoding="utf-8"))
    interactive = any(isinstance(block, Picture) and block.interactive for block in page.blocks)
    return template.render(
        page=page,
        title=clean(page.title),
        contents=[heading for heading, _ in page.sections if heading and heading.anchor],
        kind_of=lambda block: type(block).__name__,
        inline=inline,
        bare=lambda text: words(text) if isinstance(text, str) else words(text[:1]),
        tone=_tone,
        clean=clean,
        picture=_picture,
        specification=lambda picture: _json(specification(picture, "container")),
        css=Markup(CSS),
        bundle=Markup(_bundle()) if interactive else None,
        embed=_json(theme.EMBED),
    )


def inline(text: Text) -> Markup:
    """A text as HTML."""
    return Markup("").join(map(_span, spans(text)))


def _span(span: Span) -> Markup:
    shown = Markup("{}{}").format(_mark(span.mark) if span.mark else "", span.text)
    match span.kind:
        case "plain":
            return shown
        case "strong":
            return Markup("<b>{}</b>").format(shown)
        case "code":
            return Markup("<code>{}</code>").format(shown)
        case "link":
            return Markup('<a href="{}">{}</a>').format(span.target, shown)
        case "small":
            return Markup("<small>{}</small>").format(shown)
        case "warn":
            return Markup('<span class="x-warn">{}</span>').format(shown)


def _mark(mark: Mark) -> Markup:
    return Markup(
        '<svg class="x-mark" width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true">'
        '<path d="{}" fill="none" stroke="{}" stroke-width="2"/></svg>'
    ).format(mark.outline, mark.colour)


def _tone(tone: Tone) -> Markup:
    return Markup(' class="{}"').format(TONES[tone]) if TONES[tone] else Markup("")


def _picture(picture: Picture) -> Markup:
    """A chart as SVG. The names in it are its own, for they are the page's too."""
    drawn = re.sub(r'(\bid="|url\(#)', rf"\g<1>picture-{picture.name}-", svg(picture, WIDTH))
    label = Markup('<svg role="img" aria-label="{}" ').format(clean(picture.description))
    return label + Markup(drawn.removeprefix("<svg "))


def _json(value: Any) -> Markup:
    """JSON for a script element: nothing in it can end the element."""
    return Markup(json.dumps(value, allow_nan=False).replace("<", "\\u003c"))


@cache
def _bundle() -> str:
    """The Vega libraries as one script."""
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VEGA_LITE)
    assert "</script" not in script.lower(), "the library would end its own script element"
    return script

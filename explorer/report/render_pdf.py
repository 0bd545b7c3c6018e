"""A page as PDF: A4, with outline, page numbers, tags and descriptions for screen readers. Set by Typst.

The content reaches Typst as data (`page.json`) that the template reads, never as its source, and the charts as SVG
files beside it: whatever a text holds, there is nothing that would run it. Typst sees this directory alone, and nothing
of the network. The same page with the same fonts gives the same bytes; letters that no font of this machine has are
drawn as boxes, their characters are in the file nevertheless.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typst
from markupsafe import Markup

from explorer.report.drawing import svg
from explorer.report.page import (
    Block,
    Bullets,
    Code,
    Facts,
    Heading,
    Mark,
    Page,
    Paragraph,
    Picture,
    Row,
    Table,
    Text,
    clean,
    spans,
    words,
)

WIDTH = 640  # pixels of a picture, which is as wide as the text


def render_pdf(page: Page) -> bytes:
    """The file."""
    with source(page) as template:
        return typst.compile(template, root=template.parent, format="pdf", timestamp=page.made)


@contextmanager
def source(page: Page) -> Iterator[Path]:
    """The template in a directory of its own that has the content and the pictures, until the block ends."""
    with TemporaryDirectory(prefix="explorer-report-") as made:
        directory = Path(made)
        (directory / "page.json").write_text(json.dumps(_page(page, directory)), encoding="utf-8")
        template = directory / "page.typ"
        template.write_bytes(files("explorer.report").joinpath("page.typ").read_bytes())
        yield template


def _page(page: Page, directory: Path) -> dict[str, Any]:
    """The content as the template reads it; the pictures go to files in `directory`."""
    return {
        "title": clean(page.title),
        "subtitle": _text(page.subtitle),
        "blocks": [_block(block, directory) for block in page.blocks],
        "facts": _pairs(page.facts),
        "anchors": sorted({*_anchors(page)}),
    }


def _anchors(page: Page) -> Iterator[str]:
    """What a link can lead to."""
    for block in page.blocks:
        if isinstance(block, Heading):
            yield block.anchor
        elif isinstance(block, Table):
            yield from (row.anchor for row in block.rows)


def _block(block: Block, directory: Path) -> dict[str, Any]:
    match block:
        case Heading(level, text, anchor):
            return {"kind": "heading", "level": level, "text": _text(text), "bare": words(text), "anchor": anchor}
        case Paragraph(text, tone):
            return {"kind": "paragraph", "text": _text(text), "tone": tone}
        case Bullets(items, tone, numbered):
            return {"kind": "bullets", "items": [*map(_text, items)], "tone": tone, "numbered": numbered}
        case Facts(pairs):
            return {"kind": "facts", "pairs": _pairs(pairs)}
        case Code(text, title):
            return {"kind": "code", "text": clean(text), "title": clean(title)}
        case Table(columns, rows, caption):
            heads = [{"title": clean(column.title), "number": column.number} for column in columns]
            return {"kind": "table", "columns": heads, "rows": [*map(_row, rows)], "caption": _text(caption)}
        case Picture():
            path = directory / f"{block.name}.svg"
            path.write_text(svg(block, WIDTH), encoding="utf-8")
            description = clean(block.description)
            return {"kind": "picture", "file": path.name, "alt": description, "caption": _text(block.caption)}


def _row(row: Row) -> dict[str, Any]:
    cells = [*map(_text, row.cells)]
    return {"cells": cells, "strong": row.strong, "quiet": row.quiet, "anchor": row.anchor}


def _pairs(pairs: Sequence[tuple[str, Text]]) -> list[dict[str, Any]]:
    return [{"name": clean(name), "value": _text(value)} for name, value in pairs]


def _text(text: Text) -> list[dict[str, str]]:
    return [
        {"text": span.text, "kind": span.kind, "target": span.target, "mark": _mark(span.mark)} for span in spans(text)
    ]


def _mark(mark: Mark | None) -> str:
    """The mark as SVG, or nothing. On paper the colour of the text is black, which is what currentColor is in SVG."""
    if mark is None:
        return ""
    path = Markup('<path d="{}" fill="none" stroke="{}" stroke-width="2"/>').format(mark.outline, mark.colour)
    return Markup('<svg xmlns="http://www.w3.org/2000/svg" viewBox="-7 -7 14 14">{}</svg>').format(path)

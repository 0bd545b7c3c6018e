"""A page as PDF: A4, with outline, page numbers, tags and descriptions for screen readers. Set by Typst.

The content reaches Typst as data (`page.json`) that the template reads, never as source, and the charts as SVG files
next to it: no text is ever executed. Typst sees only this directory, and no network. The same page with the same fonts
gives the same bytes. Letters that no font of this machine has are drawn as boxes; the file has their characters all the
same.
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

from explorer.page.document import (
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
    Table,
    Text,
    Tone,
    clean,
    flat,
    words,
)
from explorer.page.pictures import svg

WIDTH = 640  # pixels of a picture, which is as wide as the text
TONES: dict[Tone, Tone] = {"alert": "warning", "status": "plain", "empty": "plain"}  # those of widgets, on paper


def render_pdf(page: Page) -> bytes:
    """Return the file."""
    with source(page) as template:
        return typst.compile(template, root=template.parent, format="pdf", timestamp=page.made)


@contextmanager
def source(page: Page) -> Iterator[Path]:
    """Write the template, the content and the pictures into a directory, which is gone when the block ends."""
    with TemporaryDirectory(prefix="explorer-report-") as made:
        directory = Path(made)
        (directory / "page.json").write_text(json.dumps(_page(page, directory)), encoding="utf-8")
        template = directory / "page.typ"
        template.write_bytes(files("explorer.page").joinpath("page.typ").read_bytes())
        yield template


def _page(page: Page, directory: Path) -> dict[str, Any]:
    """Return the content as the template reads it; the pictures go to files in `directory`."""
    return {
        "title": clean(page.title),
        "subtitle": _text(page.subtitle),
        "blocks": [_block(block, directory) for block in _unfolded(page.blocks)],
        "facts": _pairs(page.facts),
        "anchors": sorted({*_anchors(page)}),
    }


def _anchors(page: Page) -> Iterator[str]:
    """Yield the anchors that a link can lead to; the template sets links to others as plain text."""
    for block in page.blocks:
        if isinstance(block, Heading):
            yield block.anchor
        elif isinstance(block, Table):
            yield from (row.anchor for row in block.rows)


def _unfolded(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks, with a heading in place of each fold: paper does not unfold."""
    for block in blocks:
        if isinstance(block, Fold):
            yield Heading(4, block.title)
            yield from _unfolded(block.blocks)
        else:
            yield block


def _block(block: Block, directory: Path) -> dict[str, Any]:
    match block:
        case Heading(level, text, anchor):
            return {"kind": "heading", "level": level, "text": _text(text), "bare": words(text), "anchor": anchor}
        case Paragraph(text, tone):
            return {"kind": "paragraph", "text": _text(text), "tone": TONES.get(tone, tone)}
        case Bullets(items, tone, numbered):
            return {
                "kind": "bullets",
                "items": [*map(_text, items)],
                "tone": TONES.get(tone, tone),
                "numbered": numbered,
            }
        case Facts(pairs):
            return {"kind": "facts", "pairs": _pairs(pairs)}
        case Code(text, title):
            return {"kind": "code", "text": clean(text), "title": clean(title)}
        case Table(columns, rows, caption):
            heads = [{"title": words(column.title), "number": column.number} for column in columns]
            return {"kind": "table", "columns": heads, "rows": [*map(_row, rows)], "caption": _text(caption)}
        case Fold():
            raise AssertionError("folds are unfolded before")
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


def _text(text: Text) -> list[dict[str, Any]]:
    return [
        {"text": span.text, "kind": span.kind, "target": span.target, "mark": _mark(span.mark)} for span in flat(text)
    ]


def _mark(mark: Mark | None) -> str:
    """Return the mark as SVG, or nothing. The text on paper is black, which is what currentColor is in SVG."""
    if mark is None:
        return ""
    path = Markup('<path d="{}" fill="none" stroke="{}" stroke-width="2"/>').format(mark.outline, mark.colour)
    return Markup('<svg xmlns="http://www.w3.org/2000/svg" viewBox="-7 -7 14 14">{}</svg>').format(path)

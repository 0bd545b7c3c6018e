"""Blocks in a notebook: words and tables as HTML, and pictures as charts that answer the mouse."""

from collections.abc import Iterable, Iterator

import ipywidgets as widgets

from explorer.page.document import Block, Paragraph, Picture
from explorer.page.html import fragment
from explorer.views.live_chart import LiveChart


class LiveBlocks(widgets.VBox):
    """A place for blocks, empty at first. A table that is wider than it scrolls by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.add_class("x-blocks")

    def show(self, blocks: Iterable[Block]) -> None:
        """Show blocks from top to bottom, in place of those before."""
        self.children = tuple(_shown(blocks))


def _shown(blocks: Iterable[Block]) -> Iterator[widgets.Widget]:
    words: list[Block] = []
    for block in blocks:
        if not isinstance(block, Picture):
            words.append(block)
            continue
        if words:
            yield widgets.HTML(fragment(*words))
        chart = LiveChart()
        chart.draw(block.draw("container"))
        yield chart.add_class("x-chart")
        words = [Paragraph(block.caption, "note")] if block.caption else []
    if words:
        yield widgets.HTML(fragment(*words))

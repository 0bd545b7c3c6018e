"""Building blocks of the ledger's sections: a chart with its caption, paragraphs, and buttons."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ipywidgets as widgets

from explorer.errors import ExplorerError
from explorer.page.document import Block, Heading, Paragraph, Span, Text
from explorer.page.html import Markup, fragment
from explorer.views.ledger.depth import MEASURES
from explorer.views.ledger.open_run import OpenRun
from explorer.views.live_chart import LiveChart


class Section(widgets.VBox):
    """Part of the ledger's view, computed when it is opened. `others` returns the other runs by name."""

    key: ClassVar[str]
    title: ClassVar[str]  # on its button

    def __init__(self, others: Callable[[], dict[str, Path]], children: Sequence[widgets.Widget] = ()) -> None:
        self._others = others
        super().__init__(list(children))

    def show(self, opened: OpenRun) -> None:
        """Show a run."""
        raise NotImplementedError

    def clear(self) -> None:
        """Show nothing."""
        raise NotImplementedError


class ReadSection(Section):
    """Section without controls: the blocks of a run, or the error that reading them raised."""

    def __init__(self, others: Callable[[], dict[str, Path]]) -> None:
        self.shown = widgets.HTML()
        super().__init__(others, [self.shown])

    def blocks(self, opened: OpenRun) -> Iterator[Block | Markup]:
        """Yield the content. Raises `ExplorerError` if it cannot be read."""
        raise NotImplementedError

    def show(self, opened: OpenRun) -> None:
        try:
            self.shown.value = fragment(*self.blocks(opened))
        except ExplorerError as error:
            self.shown.value = fragment(warning(str(error)))

    def clear(self) -> None:
        self.shown.value = ""


class Pane(widgets.VBox):
    """Chart with its caption, or words in place of both."""

    def __init__(self, caption: str) -> None:
        self.chart = LiveChart(wait=50)
        self.drawn = False
        self._text, self._caption = widgets.HTML(), caption
        super().__init__([self.chart, self._text])
        self.add_class("x-chart")
        self.remark("")

    def draw(self, chart: Callable[[], Any]) -> None:
        """Show a chart, or the reason why it cannot be made."""
        # One damaged part of a ledger must not take the others off the screen.
        try:
            made = chart()
        except ExplorerError as error:
            self.say(str(error))
            return
        self.chart.chart, self.drawn = made, True

    def remark(self, words: str) -> None:
        """Show the caption, with a sentence about the current chart before it."""
        self._text.value = fragment(note(f"{words} {self._caption}".strip()))

    def say(self, words: str) -> None:
        """Show words instead of a chart."""
        self.chart.chart, self.drawn = None, False  # pyright: ignore[reportAttributeAccessIssue]
        self._text.value = fragment(Paragraph(words, "empty")) if words else ""


def heading(words: str) -> Heading:
    """Return the heading of a part, below the title of the notebook."""
    return Heading(2, words)


def note(words: Text) -> Paragraph:
    """Return a remark."""
    return Paragraph(words, "note")


def warning(words: Text) -> Paragraph:
    """Return an error, which takes the place of what it prevented."""
    return Paragraph(words, "alert")


def coded(words: str) -> Text:
    """Return words in which text between two backticks is code. Names from outside must not be part of them."""
    return tuple(Span(part, "code" if at % 2 else "plain") for at, part in enumerate(words.split("`")))


def measure_buttons() -> widgets.ToggleButtons:
    """Return the buttons that choose a number of the depth profile."""
    return buttons({key: measure.label for key, measure in MEASURES.items()}, "Number of the depth profile")


def buttons(titles: Mapping[str, str], what: str) -> widgets.ToggleButtons:
    """Return one button for each title, the first one pressed. `what` begins their tooltips."""
    # Tooltips repeat the titles, because narrow screens cut them.
    options = [(title, key) for key, title in titles.items()]
    return widgets.ToggleButtons(
        options=options,
        value=next(iter(titles)),
        tooltips=[f"{what}: {title}" for title in titles.values()],
        style={"button_width": "auto"},  # a fixed width would cut titles short
    )

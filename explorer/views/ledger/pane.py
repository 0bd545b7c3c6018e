"""What the sections of the ledger's view are made of: a chart with its caption, paragraphs, and buttons."""

from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets as widgets
from markupsafe import Markup

from explorer.errors import ExplorerError
from explorer.views.ledger.depth import MEASURES
from explorer.views.notebook import Fit, empty_chart


class Pane(widgets.VBox):
    """A chart with its caption, or words in the place of both."""

    def __init__(self, caption: str) -> None:
        self.chart = empty_chart(debounce_wait=50, max_wait=False)
        self.drawn = False
        self._said, self._caption = widgets.HTML(), caption
        super().__init__([Fit().add_class("x-fit"), self.chart, self._said])
        self.add_class("x-chart")
        self.remark("")

    def draw(self, chart: Callable[[], Any]) -> None:
        """Show a chart, or say why it cannot be made."""
        try:
            made = chart()
        except ExplorerError as error:
            self.say(str(error))
            return
        self.chart.chart, self.drawn = made, True

    def remark(self, words: str) -> None:
        """The caption, with a sentence of the moment before it."""
        self._said.value = note(f"{words} {self._caption}".strip())

    def say(self, words: str) -> None:
        """Words instead of a chart."""
        self.chart.chart, self.drawn = None, False  # pyright: ignore[reportAttributeAccessIssue]
        self._said.value = Markup('<p class="x-empty">{}</p>').format(words) if words else ""


def heading(words: str) -> Markup:
    """The heading of a part, below the title of the notebook."""
    return Markup('<h2 class="x-heading">{}</h2>').format(words)


def coded(words: str) -> Markup:
    """Words of our own, in which what stands between two backticks is code."""
    parts = words.split("`")
    return Markup("").join(Markup("<code>{}</code>" if at % 2 else "{}").format(part) for at, part in enumerate(parts))


def note(words: str | Markup) -> Markup:
    return Markup('<p class="x-note">{}</p>').format(words)


def warning(words: str | Markup) -> Markup:
    return Markup('<p class="x-note x-warn" role="alert">{}</p>').format(words)


def nothing(words: str | Markup) -> Markup:
    """What stands where there is nothing to show."""
    return Markup('<p class="x-empty">{}</p>').format(words)


def measure_buttons() -> widgets.ToggleButtons:
    """Which number of the depth profile is drawn."""
    return buttons({key: measure.label for key, measure in MEASURES.items()}, "Number of the depth profile")


class Quiet:
    """While the program sets the fields, nobody is called."""

    def __init__(self, controls: Any) -> None:
        self._controls = controls

    def __enter__(self) -> None:
        self._controls._quiet = True

    def __exit__(self, *_: object) -> None:
        self._controls._quiet = False


def buttons(titles: Mapping[str, str], what: str) -> widgets.ToggleButtons:
    """Return one button for each title, the first one pressed. `what` they choose is in their tooltips."""
    options = [(title, key) for key, title in titles.items()]
    return widgets.ToggleButtons(
        options=options, value=next(iter(titles)), tooltips=[f"{what}: {t}" for t, _ in options]
    )

"""Page without runs to show: why, and the button for what helps.

A directory without runs offers the quickstart; a store that cannot be used, its rebuilding from the runs. Both are
commands that run next to the notebook, and the notebook shows how far they are.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import ipywidgets as widgets

from explorer import rundir
from explorer.page import amounts
from explorer.page.document import one_line
from explorer.page.html import Markup, element
from explorer.views.sweep_process import Background, run_command

TICK = 2.0  # seconds between two looks at the work
REBUILD = "explorer store rebuild"  # errors that it mends name it


class EmptyPage(widgets.VBox):
    """Reason and button. `on_end` is called when the command that the button started has ended well."""

    def __init__(self, runs: Path, *, on_end: Callable[[], None]) -> None:
        self._runs, self._on_end = runs, on_end
        self._background = Background()
        self._command: tuple[str, ...] = ()
        self._words, self._hint, self._state = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.button = widgets.Button(button_style="primary", layout=widgets.Layout(width="auto"))
        self.button.on_click(lambda _: self._background.start(self.run()))
        super().__init__([self._words, self.button, self._hint, self._state])
        self.add_class("x-empty")

    def show(self, reason: str) -> None:
        """Show why there is nothing to see, and offer what helps."""
        damaged = REBUILD in reason
        self._command = ("store", "rebuild") if damaged else ("quickstart",)
        self.button.description = "Rebuild the store" if damaged else "Run the quickstart (a few minutes)"
        self.button.tooltip = f"explorer {' '.join(self._command)} --runs {self._runs}"
        self._words.value = _damaged(reason) if damaged else _page("No runs yet", reason)
        self._hint.value = "" if damaged else _typed()

    async def run(self) -> None:
        """Run the offered command to its end, and say how far it is."""
        self.button.disabled = True
        began = time.monotonic()
        work = asyncio.ensure_future(run_command(*self._command, "--runs", self._runs))
        while not work.done():
            done = sum(1 for _ in self._runs.glob(f"*/*/{rundir.RESULT}"))
            finished = f", {amounts.count(done, 'run')} finished" if self._command == ("quickstart",) else ""
            self._say(f"explorer {' '.join(self._command)}: {time.monotonic() - began:.0f} s{finished} ...")
            await asyncio.wait([work], timeout=TICK)
        output = work.result()
        self.button.disabled = False
        if not output.succeeded:
            return self._say(output.text.strip() or "It ended without a result.", failed=True)
        self._say("")
        return self._on_end()

    def _say(self, words: str, *, failed: bool = False) -> None:
        kind, role = ("x-said x-warn", "alert") if failed else ("x-said", "status")
        self._state.value = element("pre", words, class_=kind, role=role) if words else ""


def _typed() -> Markup:
    commands = (
        "Or from a terminal: ",
        "explorer quickstart",
        ", or ",
        "explorer sweep run SPEC",
        ". Then press Refresh.",
    )
    words = (element("code", part) if at % 2 else part for at, part in enumerate(commands))
    return element("p", *words, class_="x-note")


def _damaged(reason: str) -> Markup:
    kept = "The runs themselves are files of their own, and are not touched: the store is made again from them."
    return _page("The store cannot be used", reason, element("p", kept))


def _page(title: str, reason: str, *advice: Markup) -> Markup:
    return element(
        "div",
        element("p", title, class_="x-answer"),
        element("p", one_line(reason)),
        *advice,
        role="status",
    )

"""What leaves the explorer: files of exactly what is shown, and the view itself as a token to paste."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import ipywidgets as widgets

from explorer.errors import ExplorerError
from explorer.page.document import Paragraph
from explorer.page.html import element, fragment
from explorer.views.explorer.exports import FORMATS, Format
from explorer.views.explorer.question import Question, from_token, to_token
from explorer.views.notebook import Quiet

LABEL = "This view (paste another one here)"


class Sharing(widgets.VBox):
    """`export` writes a file and returns its path; `on_open` is called with the question of a pasted token."""

    def __init__(self, *, export: Callable[[Format], Path], on_open: Callable[[Question], None]) -> None:
        self._export, self._on_open = export, on_open
        self.token = widgets.Text(description=LABEL, continuous_update=False)
        self.token.observe(self._pasted, "value")
        self._quiet = Quiet()
        self._said = widgets.HTML()
        buttons = [button(kind.upper(), tooltip=f"Export what is shown as {kind.upper()}") for kind in FORMATS]
        for kind, each in zip(FORMATS, buttons, strict=True):
            each.on_click(partial(self.write, kind))
        super().__init__([widgets.HBox([self.token.add_class("x-token"), *buttons]).add_class("x-exports"), self._said])
        self.add_class("x-sharing")

    def show(self, question: Question) -> None:
        """Show the token of a question."""
        with self._quiet:
            try:
                self.token.value, self._said.value = to_token(question), ""
            except ExplorerError as error:
                self.token.value = ""
                self._warn(str(error))

    def write(self, kind: Format, _: object = None) -> None:
        """Export, and say where to."""
        try:
            path = self._export(kind)
        except ExplorerError as error:
            self._warn(str(error))
            return
        wrote = element("code", os.path.relpath(path))
        self._said.value = element("p", "Wrote ", wrote, class_="x-note", role="status")

    def _pasted(self, _: object) -> None:
        pasted = str(self.token.value)
        if self._quiet or not pasted.strip():
            return
        try:
            self._on_open(from_token(pasted))
        except ExplorerError as error:
            self._warn(str(error))

    def _warn(self, words: str) -> None:
        self._said.value = fragment(Paragraph(words, "alert"))


def button(label: str, *, tooltip: str) -> widgets.Button:
    """A button that is as wide as its words."""
    return widgets.Button(description=label, tooltip=tooltip, layout=widgets.Layout(width="auto"))

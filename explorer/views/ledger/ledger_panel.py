"""Ledger view of a governed run. `ledger()` is the one call in `notebooks/ledger.ipynb`.

Everything is read from the run directory and the project's ledger; nothing here can write there, and torch is not
loaded. A section is computed when it is opened, and again when the run or the trust file changes.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import ipywidgets as widgets

from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Paragraph
from explorer.page.html import Markup, element, fragment, style
from explorer.views.ledger.access_section import AccessSection
from explorer.views.ledger.deletion_section import DeletionSection
from explorer.views.ledger.lineage_section import LineageSection
from explorer.views.ledger.open_run import (
    OpenRun,
    badge_html,
    badge_words,
    find_run,
    governed_runs,
    open_run,
    simulated_note,
)
from explorer.views.ledger.pane import buttons
from explorer.views.ledger.training_section import TrainingSection
from explorer.views.ledger.two_runs_section import TwoRunsSection
from explorer.views.notebook import Quiet, runs_directory

SECTIONS = (TrainingSection, TwoRunsSection, LineageSection, DeletionSection, AccessSection)
"""The parts of the view, in the order of their buttons."""


def ledger(
    runs: str | Path | None = None,
    run: str | None = None,
    trust: str | Path | None = None,
    cell: tuple[str, str] | None = None,
) -> "Ledger":
    """Open the ledger of a governed run: `run`, or else the newest one in the directory of runs. `trust` is a trust
    file, `cell` the layer and the class to open at; by default the one with the largest share of the gradient.

    The directory is `runs`, or else the one that `explorer.views.explore` opens.
    """
    return Ledger(runs_directory(runs), run=run, trust=None if trust is None else Path(trust), cell=cell)


class Ledger(widgets.VBox):
    """Whole view. `opened` is the run that is shown, or None."""

    def __init__(
        self, runs: Path, *, run: str | None, trust: Path | None = None, cell: tuple[str, str] | None = None
    ) -> None:
        self.opened: OpenRun | None = None
        self._runs, self._known = runs, dict[str, Path]()
        self._head, self._place = widgets.HTML(), widgets.VBox().add_class("x-section")
        self.controls = RunControls(trust="" if trust is None else str(trust), on_change=self._open)
        self.section = buttons({kind.key: kind.title for kind in SECTIONS}, "Section").add_class("x-sections")
        self.section.observe(lambda _: self._show_section(), "value")
        self.sections = {kind.key: kind(self._others) for kind in SECTIONS}
        self._cell = cell
        self._shown: dict[str, OpenRun] = {}  # by the key of the section that shows it
        self._body = widgets.VBox([self.controls, self.section, self._place]).add_class("x-body")
        super().__init__([widgets.HTML(style()), self._head.add_class("x-chart"), self._body])
        self.add_class("explorer")
        self._find(run)

    def _find(self, run: str | None) -> None:
        try:
            self._known = governed_runs(self._runs) if self._runs.is_dir() else {}
            # A run outside the directory of runs joins the list, so that the field can show it.
            if run is not None:
                path = find_run(self._runs, run)
                name = next((key for key, other in self._known.items() if other == path), str(path))
                self._known.setdefault(name, path)
            elif not self._known:
                return self._show_nothing(f"There is no governed run in {self._runs} yet.", hint=True)
            else:
                name = next(iter(self._known))
        except ExplorerError as error:
            return self._show_nothing(str(error), hint=True)
        self.controls.offer(list(self._known), name)
        return self._open()

    def _open(self) -> None:
        directory = self._known[str(self.controls.run.value)]
        trust = self.controls.trust.value.strip()
        try:
            opened = open_run(directory, trust=Path(trust) if trust else None, now=int(time.time()))
            if self._cell is not None:
                opened.ledger.layer(self._cell[0])
                opened.ledger.class_(self._cell[1])
                training = self.sections[TrainingSection.key]
                assert isinstance(training, TrainingSection)
                training.at, self._cell = self._cell, None
        except ExplorerError as error:
            return self._show_nothing(str(error))
        self.opened = opened
        self.section.layout.display = self._place.layout.display = ""
        self._body.layout.display = ""
        self._head.value = _headline(opened)
        return self._show_section()

    def _show_section(self) -> None:
        name = str(self.section.value)
        section = self.sections[name]
        # A section is filled when it is first seen with this run: reading all of them would take seconds.
        self._place.children = (section,)
        if self.opened is not None and self._shown.get(name) is not self.opened:
            self._shown[name] = self.opened
            section.show(self.opened)

    def _others(self) -> dict[str, Path]:
        """Return the runs that the current one can be compared with."""
        return {name: path for name, path in self._known.items() if name != self.controls.run.value}

    def _show_nothing(self, reason: str, *, hint: bool = False) -> None:
        self.opened = None
        self._body.layout.display = "" if self._known else "none"
        self.section.layout.display = self._place.layout.display = "none"
        self._shown.clear()
        for section in self.sections.values():
            section.clear()
        # The fields stay if there are runs, so that another run or trust file can be chosen.
        hints = [element("p", "To make one: ", element("code", "explorer quickstart"), ".")] if hint else []
        words = (element("p", "Nothing to show", class_="x-answer"), element("p", reason), *hints)
        self._head.value = element("div", *words, class_="x-empty", role="alert")


class RunControls(widgets.Box):
    """Fields for the run and the trust file; `on_change` is called when either changes."""

    def __init__(self, *, trust: str, on_change: Callable[[], None]) -> None:
        self._quiet = Quiet()
        self.run = widgets.Dropdown(description="Run")
        self.trust = widgets.Text(
            value=trust,
            description="Trust file",
            placeholder="path to trust.json",
            continuous_update=False,
        )
        super().__init__([self.run, self.trust])
        self.add_class("x-controls")
        for field in (self.run, self.trust):
            field.observe(lambda _: None if self._quiet else on_change(), "value")

    def offer(self, names: Sequence[str], chosen: str) -> None:
        """Offer these runs, one of them chosen."""
        with self._quiet:
            self.run.options = tuple(names)
            self.run.value = chosen


def _headline(opened: OpenRun) -> Markup:
    genesis = opened.ledger.genesis
    facts = [
        amounts.count(len(opened.recorded), "step"),
        amounts.count(len(opened.classes), "class", "classes"),
        amounts.count(len(opened.layers), "layer"),
        f"ledger {opened.badge.origin}",
        f"root {opened.badge.root[:16]}",
        *(f"continues {words}" for words in opened.ledger.continues),
    ]
    return fragment(
        simulated_note(opened.classes),
        element("p", genesis.run, class_="x-answer"),
        Paragraph(" · ".join(facts), "note"),
        badge_html(badge_words(opened.badge)),
    )

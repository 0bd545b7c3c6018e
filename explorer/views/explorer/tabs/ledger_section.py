"""Section with the ledger of a governed run: which class moved which layer, opened at the cell that moved most."""

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from explorer.errors import AnalysisError
from explorer.rundir import LEDGER as LEDGER_DIRECTORY
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.sections import Section
from explorer.views.ledger.ledger_panel import Ledger

LEDGER = "ledger"
NONE_HERE = (
    "None of these runs is governed, so none keeps a ledger. `explorer init --governed` makes a recipe whose runs do;"
    " in a specification it is `governance: DIR`, with the methods routing and recorder."
)


class LedgerSection(Section):
    """The ledger of the picked run; without a picked one that is governed, of the first governed run of the baseline,
    or else of any recipe."""

    key, title = LEDGER, "Ledger"

    def __init__(self, ask: Callable[..., None]) -> None:
        self._shown: tuple[Any, ...] = ()
        self._place = widgets.VBox()
        super().__init__(ask, [self._place])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        directory = run_of(answer)
        if directory is None:
            raise AnalysisError(NONE_HERE)
        path = snapshot.runs / directory
        if not (path / LEDGER_DIRECTORY).is_dir():
            raise AnalysisError(f"The directory of {directory} was removed, and its ledger with it.")
        # Reading a ledger takes a second or more: another answer about the same run leaves it as it is.
        if self._shown != (path,):
            self._place.children = (Ledger(snapshot.runs, run=str(path)),)
            self._shown = (path,)


def run_of(answer: Answer) -> str | None:
    """Return the directory of the run whose ledger is shown; None where no run is governed."""
    rows = answer.settled.rows
    governed = rows[rows["deletion_level"].notna()]
    picked = [directory for directory in answer.question.chosen if directory in set(governed["directory"])]
    if picked or governed.empty:
        return picked[0] if picked else None
    order = governed.sort_values(["is_baseline", "ssr", "seed"], ascending=[False, False, True], kind="stable")
    return str(order["directory"].iloc[0])

"""The winners of an answer and their confirmations: what came out best is run once more on fresh seeds."""

from collections.abc import Collection
from pathlib import Path

import ipywidgets as widgets
from markupsafe import Markup

from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.ladders import Setting
from explorer.analysis.verdict import Verdict
from explorer.errors import ExplorerError
from explorer.views.answer import Answer, answer
from explorer.views.snapshot import read_snapshot
from explorer.views.winner import Winner

MOST = 12  # winners that are shown: those that need least

NOTE = (
    "The best of many recipes looks better than it is, for noise chose it too. On seeds that no run of the sweep has it"
    " is only as good as it is, and they alone are reported."
)


class ConfirmPanel(widgets.VBox):
    """The winners of an answer, each with its button or with what fresh seeds said. Nothing starts by itself."""

    def __init__(self) -> None:
        self.winners: list[Winner] = []
        self._known: dict[tuple[Path, Setting, str], Winner] = {}  # one that is running goes on when others are shown
        self._shown: tuple[Answer, Path] | None = None
        self._said = widgets.HTML()
        super().__init__([self._said])
        self.add_class("x-confirm")

    def show(self, found: Answer, runs: Path) -> None:
        """Show the winners of an answer about a sweep in `runs`."""
        self._shown = found, runs
        open_ones = (
            [] if found.question.paid_in.forecast else [e for e in found.verdicts if e.asks or e.judged_by_others]
        )
        own = {str(name) for name in found.rows["baseline"]}
        beside = [each for each in open_ones if _beside_own(each.comparison, own)]
        beside.sort(key=lambda each: each.comparison.ratio or 0.0)
        self._said.value = _introduction(found, open_ones, beside)
        self.winners = [self._winner(runs, each) for each in beside[:MOST]]
        self.children = (self._said, *self.winners)

    def _winner(self, runs: Path, verdict: Verdict) -> "Winner":
        result = verdict.comparison
        key = (runs, result.setting, result.recipe)
        winner = self._known.get(key)
        if winner is None:
            winner = self._known[key] = Winner(runs, result.setting.sweep, result.recipe, on_end=self._again)
        winner.show(verdict)
        return winner

    def _again(self) -> None:
        """Show the same again, with what has become known."""
        if self._shown is None:
            return
        answered, runs = self._shown
        try:
            self.show(answer(read_snapshot(runs), answered.question), runs)
        except ExplorerError as error:
            self._said.value = Markup('<p class="x-note x-warn" role="alert">{}</p>').format(str(error))
            self.children = (self._said,)


def _beside_own(result: EqualQuality, own: Collection[str]) -> bool:
    """Whether fresh seeds would be run beside the same baseline on the same machine."""
    return result.baseline in own and result.baseline_setting == result.setting


def _introduction(found: Answer, open_ones: list[Verdict], beside: list[Verdict]) -> Markup:
    if found.question.paid_in.forecast:
        words = "What a deletion takes is a forecast: fresh seeds confirm time, cost and steps."
    elif not open_ones and any(each.confirmation is not None for each in found.verdicts):
        words = "Nothing to confirm: this sweep is a confirmation itself."
    elif not open_ones:
        words = "Nothing to confirm: no recipe is shown to need less than the baseline at equal quality."
    elif not beside:
        words = "Only a comparison with the sweep's own baseline on the same machine can be confirmed from here."
    else:
        more = f" Of {len(beside)} recipes the {MOST} that need least are shown."
        words = f"{NOTE}{more if len(beside) > MOST else ''}"
    return Markup('<p class="x-note">{}</p>').format(words)

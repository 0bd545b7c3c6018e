"""The winners of an answer and their confirmations: what came out best is run once more on fresh seeds."""

from pathlib import Path

import ipywidgets as widgets
from markupsafe import Markup

from explorer.analysis.confirmed import Confirmation
from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.ladders import Setting
from explorer.analysis.sentences import is_winner
from explorer.errors import ExplorerError
from explorer.store.confirming import with_confirming
from explorer.store.place import database
from explorer.views.answer import Answer
from explorer.views.confirming import confirmations_of
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

    def show(self, answer: Answer, runs: Path) -> None:
        """Show the winners of an answer about a sweep in `runs`."""
        self._shown = answer, runs
        winners = [each for each in answer.comparisons if is_winner(each)]
        if answer.question.paid_in.forecast:
            winners = []
        own = {str(name) for name in answer.rows["baseline"]}
        beside = [each for each in winners if each.baseline in own and each.baseline_setting == each.setting]
        beside.sort(key=lambda each: each.ratio or 0.0)
        shown = beside[:MOST]
        try:
            confirmed = _confirmed(runs, shown)
        except ExplorerError as error:
            self._said.value = Markup('<p class="x-note x-warn" role="alert">{}</p>').format(str(error))
            self.children = (self._said,)
            return
        self._said.value = _introduction(answer, winners, beside)
        self.winners = [self._winner(runs, each, confirmed.get(at)) for at, each in enumerate(shown)]
        self.children = (self._said, *self.winners)

    def _winner(self, runs: Path, result: EqualQuality, confirmation: Confirmation | None) -> "Winner":
        key = (runs, result.setting, result.recipe)
        winner = self._known.get(key)
        if winner is None:
            winner = self._known[key] = Winner(runs, result.setting.sweep, result.recipe, on_end=self._again)
        winner.show(result, confirmation)
        return winner

    def _again(self) -> None:
        """Show the same again, with what has become known."""
        if self._shown is not None:
            self.show(*self._shown)


def _confirmed(runs: Path, shown: list[EqualQuality]) -> dict[int, Confirmation]:
    if not shown:
        return {}
    setting = shown[0].setting
    return confirmations_of(with_confirming(database(runs), setting.sweep, metric=setting.metric), shown)


def _introduction(answer: Answer, winners: list[EqualQuality], beside: list[EqualQuality]) -> Markup:
    if answer.question.paid_in.forecast:
        words = "What a deletion takes is a forecast: fresh seeds confirm time, cost and steps."
    elif not winners:
        words = "Nothing to confirm: no recipe is shown to need less than the baseline at equal quality."
    elif not beside:
        words = "Only a comparison with the sweep's own baseline on the same machine can be confirmed from here."
    else:
        words = (
            NOTE if len(beside) <= MOST else f"{NOTE} Of {len(beside)} winners the {MOST} that need least are shown."
        )
    return Markup('<p class="x-note">{}</p>').format(words)

"""Section that asks for the best recipe under stated limits: limits as fields, the answer with its evidence."""

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import ipywidgets as widgets
import pandas as pd

from explorer.analysis.ask import Asked, ask
from explorer.analysis.budget_law import Forecast, forecast
from explorer.analysis.limits import Limits, Standing
from explorer.analysis.verdict import sweep_verdicts
from explorer.errors import ExplorerError
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Span, Table, clipped
from explorer.page.html import fragment
from explorer.provenance.levels import EXACT, read_cost
from explorer.run_files import metric_of
from explorer.store import frames
from explorer.store.frames import with_confirming
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.choices import settle
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs import ask_words
from explorer.views.explorer.tabs.forecast_chart import forecast_blocks
from explorer.views.explorer.tabs.sections import Section
from explorer.views.live_blocks import LiveBlocks
from explorer.views.notebook import named

REPEATED = {
    "all of training": "",
    "10% of training": "10% of training",
    "1% of training": "1% of training",
    "nothing: by structure": "0 steps",
}
"""The choices for the share of training that deleting a class may repeat."""


def ask_blocks(asked: Asked, *, today: datetime.date) -> Iterator[Block]:
    """Yield the answer, the runner-up, the evidence and the notes on it."""
    yield Paragraph(ask_words.headline(asked), "good" if asked.holds else "bad")
    if second := ask_words.runner_up(asked):
        yield Paragraph(second, "note")
    yield _evidence(asked)
    for words in ask_words.notes(asked, today):
        yield Paragraph(words, "note")
    best = asked.best
    if best is not None and best.verdict is not None and best.verdict.asks:
        command = Span(clipped(ask_words.confirming_command(best), 200), "code")
        yield Paragraph((Span("On fresh seeds: "), command), "note")


class AskSection(Section):
    """Limits as fields, and the best recipe of a sweep within them. An empty field is no limit."""

    key, title = "ask", "Ask"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.asked: Asked | None = None  # the answer that is shown
        self._about: _About | None = None
        self._look: theme.Look | None = None  # of the chart above
        self.quality = _text("Quality, at least", "the baseline's")
        self.time, self.time_unit = (
            _text("Training time, at most", "no limit"),
            _unit("Unit of time", ("s", "min", "h")),
        )
        self.cost = _text("Cost, at most (US dollars)", "no limit")
        self.memory = _text("Peak memory, at most", "such as 2GiB")
        self.inference = _text("Inference, at most", "no limit")
        self.inference_unit = _unit("Unit of inference", (("ms", "ms"), ("of the baseline's", "x")))
        self.deletable = widgets.Dropdown(description="Deletable class", options=[("any", "")])
        self.repeated = widgets.Dropdown(description="Deletion repeats at most", options=[*REPEATED.items()])
        self.deletion = _text("Deletion time, at most", "no limit")
        self.deletion_unit = _unit("Unit of deletion", ("s", "min", "h"))
        self.budget = _text("Forecast at budget", "none")
        fields = (
            *(self.quality, self.time, self.time_unit, self.cost, self.memory, self.inference, self.inference_unit),
            *(self.deletable, self.repeated, self.deletion, self.deletion_unit, self.budget),
        )
        for field in fields:
            field.observe(self._changed, "value")
        self._shown, self._ahead = widgets.HTML(), LiveBlocks()
        super().__init__(ask, [widgets.Box(list(fields)).add_class("x-controls"), self._shown, self._ahead])
        self.add_class("x-ask")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Ask about the sweep of an answer, under the limits in the fields."""
        self._look = answer.look
        try:
            about = self._about = _About(snapshot, answer.question)
        except ExplorerError as error:
            self._about, self.asked = None, None
            return self._refuse(error)
        with self.quiet:
            self._offer(about)
        self._answer()

    def _offer(self, about: "_About") -> None:
        """Offer the classes of this sweep's runs; a chosen class that they lack is given up."""
        chosen = self.deletable.value if self.deletable.value in about.classes else ""
        self.deletable.options = [("any", ""), *((clipped(name), name) for name in about.classes)]
        self.deletable.value = chosen
        # Without a governed run no deletion has a forecast, so its fields could only fail.
        for field in (self.deletable, self.repeated, self.deletion, self.deletion_unit):
            field.layout.display = "" if about.classes else "none"
        higher = about.rows["higher_is_better"].iloc[0]
        self.quality.description = "Quality, at least" if higher else "Quality, at most"

    def _answer(self) -> None:
        if self._about is None:
            return
        about, self.asked = self._about, None
        try:
            asked = ask(about.rows, about.forecasts, self._limits(), verdicts=about.verdicts, baseline=about.baseline)
        except ExplorerError as error:
            return self._refuse(error)
        self.asked = asked
        self._shown.value = fragment(*ask_blocks(asked, today=datetime.date.today()))
        self._ahead.show(forecast_blocks(self._forecasts(about), look=self._look))

    def _forecasts(self, about: "_About") -> list[Forecast] | ExplorerError | None:
        """Return the forecasts at the typed budget, or why there are none; None where no budget is typed."""
        if not (typed := self.budget.value.strip()):
            return None
        # The answer needs no forecast, so an error of the forecast is shown below it.
        try:
            budget = amounts.read_quality(self.budget.description, typed)
            return forecast(about.rows, budget=budget, unfinished=about.unfinished)
        except ExplorerError as error:
            return error

    def _refuse(self, error: ExplorerError) -> None:
        self._shown.value = fragment(Paragraph(str(error), "alert"))
        self._ahead.show(())

    def _limits(self) -> Limits:
        """Return the limits in the fields. Raises `ExplorerError` that names the field."""
        # A ratio and a time share one field; the unit decides between them.
        inference = _with_unit(self.inference, self.inference_unit)
        seconds, ratio = amounts.read_inference(self.inference.description, inference) if inference else (None, None)
        cost = self.cost.value.strip().removeprefix("$")
        class_, repeated = self.deletable.value, self.repeated.value
        chosen: dict[str, Any] = {class_: EXACT} if class_ else {}
        most = {class_: read_cost(repeated, where=self.repeated.description)} if class_ and repeated else {}
        return Limits(
            quality=self._least_quality(),
            max_seconds=_seconds(self.time, self.time_unit),
            max_usd=amounts.read_usd(self.cost.description, cost) if cost else None,
            max_memory=amounts.read_memory(self.memory.description, self.memory.value)
            if self.memory.value.strip()
            else None,
            max_inference_seconds=seconds,
            max_inference_ratio=ratio,
            deletable=chosen,
            deletion_at_most=most,
            max_deletion_seconds=_seconds(self.deletion, self.deletion_unit) if chosen else None,
        )

    def _least_quality(self) -> float | None:
        written = self.quality.value.strip()
        if not written or self._about is None:
            return None
        kind = metric_of(self._about.rows.iloc[0].to_dict())
        return amounts.read_target(self.quality.description, written, kind)

    def _changed(self, _: Any) -> None:
        if not self.quiet:
            self._answer()


def winner(snapshot: Snapshot, question: Question) -> str | None:
    """Return the recipe that beats the baseline without further limits; None if none does. Raises `ExplorerError`."""
    about = _About(snapshot, question)
    asked = ask(about.rows, about.forecasts, Limits(), verdicts=about.verdicts, baseline=about.baseline)
    return None if asked.winner is None else asked.winner.recipe


class _About:
    """Results of a sweep, read once: another limit reads nothing. Raises `StoreError`."""

    def __init__(self, snapshot: Snapshot, question: Question) -> None:
        self._snapshot, self._sweep = snapshot, question.sweep
        settled = settle(snapshot, question)
        self.baseline, self.rows = settled.baseline, settled.rows
        self.forecasts = self._read(
            "forecasts", lambda: frames.deletion_forecasts(snapshot.database, sweep=self._sweep)
        )
        self.unfinished = snapshot.unfinished(question.sweep)
        self.classes = sorted({str(name) for name in self.forecasts["class"]})
        metric = str(self.rows["metric"].iloc[0])
        fresh = self._read(
            f"fresh seeds in {metric}", lambda: with_confirming(snapshot.database, self._sweep, metric=metric)
        )
        self.verdicts = sweep_verdicts(self.rows, fresh, baseline=self.baseline)

    def _read(self, what: str, read: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        return self._snapshot.remember((what, self._sweep), read)


def _evidence(asked: Asked) -> Table:
    several = len({candidate.setting.machine for candidate in asked.candidates}) > 1
    shown = [at for at, name in enumerate(ask_words.COLUMNS) if several or name != "hardware"]
    titles = [name if name == "n" else name.capitalize() for name in ask_words.COLUMNS]
    numbers = [name in ask_words.NUMBERS for name in ask_words.COLUMNS]
    rows = [
        Row(
            [named(candidate.label), *(cells[at] for at in shown[1:])],
            strong=candidate is asked.best and asked.holds,
            quiet=candidate.standing in (Standing.UNKNOWN, Standing.FAILS),
        )
        for candidate, cells in zip(asked.candidates, ask_words.evidence(asked), strict=True)
    ]
    columns = [Column(titles[at], number=numbers[at]) for at in shown]
    return Table(columns, rows, f"Asked: {ask_words.limits_words(asked)}.")


def _text(description: str, placeholder: str) -> widgets.Text:
    return widgets.Text(description=description, placeholder=placeholder, continuous_update=False)


def _unit(description: str, options: Any) -> widgets.Dropdown:
    return widgets.Dropdown(description=description, options=options)


def _with_unit(amount: widgets.Text, unit: widgets.Dropdown) -> str:
    """Return the typed amount, in the unit of the next field unless it has its own; empty for an empty field."""
    typed = amount.value.strip()
    return typed if not typed or typed[-1].isalpha() else f"{typed}{unit.value}"


def _seconds(amount: widgets.Text, unit: widgets.Dropdown) -> float | None:
    typed = _with_unit(amount, unit)
    return amounts.read_seconds(amount.description, typed) if typed else None

"""The section that confirms winners on fresh seeds: one press shows what that takes, a second one runs it.

It writes a specification and starts the command line; the notebook itself trains nothing.
"""

import asyncio
import json
from collections.abc import Callable, Collection, Coroutine
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from explorer.analysis.axis_words import axis_words
from explorer.analysis.equal_quality import EqualQuality, Outcome
from explorer.analysis.ladders import Setting
from explorer.analysis.sentences import call_words, control_words, fresh_words, ratio_interval
from explorer.analysis.verdict import Verdict
from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Paragraph, clipped
from explorer.page.html import element, fragment
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.answer import answer as answer_to
from explorer.views.explorer.sections import Section
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.sweep_process import TICK, SweepProcess, progress_words, run_command

SEEDS = 3


class Winner(widgets.VBox):
    """One winner: what it takes, and its confirmation. The first press shows what that takes, the second starts it."""

    def __init__(self, runs: Path, sweep: str, recipe: str, *, on_end: Callable[[], None]) -> None:
        self._runs, self._sweep, self._recipe, self._on_end = runs, sweep, recipe, on_end
        self._spec: Path | None = None
        self._process: SweepProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.words, self.state = widgets.HTML(), widgets.HTML()
        self.button = widgets.Button(button_style="primary")
        self.stop_button = widgets.Button(
            description="Stop", tooltip="Stop after the current steps; the same button goes on from there"
        )
        self.bar = widgets.FloatProgress(min=0, max=1, description="Progress")
        self.button.on_click(lambda _: self._start(self.run() if self._spec else self.plan()))
        self.stop_button.on_click(lambda _: self.stop())
        self._buttons = widgets.HBox([self.button, self.stop_button, self.bar]).add_class("x-buttons")
        super().__init__([self.words, self._buttons, self.state])
        self._offer()

    def show(self, verdict: Verdict) -> None:
        """Show the verdict: what the sweep says, and what fresh seeds do."""
        result = verdict.comparison
        holds = verdict.is_confirmed and verdict.control is None
        kind = "x-verified" if holds else "x-broken" if verdict.is_refuted else "x-warn"
        said = (f"{call_words(verdict)}{fresh_words(verdict)}", control_words(verdict))
        where = f"in {_ratio(result)} of the baseline's {axis_words(result.x)}:"
        name, said_ = (
            element("strong", clipped(result.label)),
            element("span", "; ".join(filter(None, said)), class_=kind),
        )
        self.words.value = element("p", name, f" {where} ", said_, class_="x-confirmed")
        judged = verdict.is_confirmed or verdict.is_refuted
        self._buttons.layout.display = "none" if judged and not self._running else ""

    async def plan(self) -> None:
        """Write the specification and show what the confirmation takes."""
        self.button.disabled = True
        self._tell("Planning ...")
        options = ("--plan", "--json", "--seeds", str(SEEDS), "--runs", str(self._runs))
        said = await run_command("confirm", *options, "--", self._sweep, self._recipe)
        self.button.disabled = False
        if not said.succeeded:
            return self._tell(said.text.strip(), failed=True)
        plan = json.loads(said.text)
        self._spec = Path(plan["spec"])
        self.button.description = f"Start {amounts.count(plan['missing'], 'run')}"
        self._tell(plan_words(plan))

    async def run(self) -> None:
        """Start what was planned and follow it to its end."""
        assert self._spec is not None
        try:
            self._process = SweepProcess(self._spec, runs=self._runs)
        except ExplorerError as error:
            return self._tell(str(error), failed=True)
        self._set_running(True)
        self._tell("Starting ...")
        try:
            complaint = await self._follow(self._process)
        finally:
            self._spec = None
            self._set_running(False)
        self._tell(complaint, failed=True) if complaint else self._tell("Finished.")
        self._on_end()

    def stop(self) -> None:
        """Ask the runs to stop."""
        if self._process is not None:
            self._process.stop()
            self._tell("Stopping after the current steps ...")

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.running

    async def _follow(self, process: SweepProcess) -> str:
        """Show how it goes; what it complained about, if it did not do everything."""
        while process.running:
            self._progress(process.events())
            await asyncio.sleep(TICK)
        self._progress(process.events())
        return "" if process.succeeded else process.complaint() or "It ended before all runs were done."

    def _progress(self, events: list[dict[str, Any]]) -> None:
        if events:
            self.bar.value = events[-1]["fraction"]
            self._tell(progress_words(events[-1]))

    def _set_running(self, running: bool) -> None:
        self.button.disabled = running
        self._offer(running=running)

    def _offer(self, *, running: bool = False) -> None:
        self.button.description = f"Confirm {clipped(self._recipe, 24)} on {SEEDS} fresh seeds"
        self.button.tooltip = "Show what that takes; nothing starts yet"
        for each in (self.stop_button, self.bar):
            each.layout.display = "" if running else "none"

    def _tell(self, words: str, *, failed: bool = False) -> None:
        kind, role = ("x-said x-warn", "alert") if failed else ("x-said", "status")
        self.state.value = element("pre", words, class_=kind, role=role)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something without holding up the notebook; the reference keeps the task alive until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def plan_words(plan: dict[str, Any]) -> str:
    """What a confirmation takes, from what `explorer confirm --plan --json` says.

    >>> plan_words({"seeds": [3, 4], "runs": 8, "missing": 8, "unknown": 0, "wall_seconds": 90.0, "usd": None,
    ...             "workers": 2, "spec": "runs/a.yaml"})
    'seeds 3, 4: 8 runs, 8 to do, about 1.5 min with 2 side by side, no price for this hardware (runs/a.yaml)'
    """
    seeds = ", ".join(map(str, plan["seeds"]))
    parts = [amounts.count(plan["runs"], "run"), f"{plan['missing']} to do"]
    if plan["missing"] and plan["unknown"] == plan["missing"]:
        parts.append("of unknown step time")
    elif plan["missing"]:
        parts.append(f"about {amounts.seconds(plan['wall_seconds'])} with {plan['workers']} side by side")
        parts.append("no price for this hardware" if plan["usd"] is None else amounts.dollars(plan["usd"]))
    return f"seeds {seeds}: {', '.join(parts)} ({plan['spec']})"


def _ratio(result: EqualQuality) -> str:
    interval = f" ({ratio_interval(result)})" if result.adjusted_low is not None else ""
    upper = "at most " if result.outcome is Outcome.BELOW else ""
    return f"{upper}{amounts.ratio(result.ratio)}{interval}"


MOST = 12  # winners that are shown: those that need least

NOTE = (
    "The best of many recipes looks better than it is, for noise chose it too. On seeds that no run of the sweep has it"
    " is only as good as it is, and they alone are reported."
)


class ConfirmSection(Section):
    """The winners of an answer, each with its button or with what fresh seeds said. Nothing starts by itself."""

    key, title = "confirm", "Confirm"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.winners: list[Winner] = []
        self._known: dict[tuple[Path, Setting, str], Winner] = {}  # one that is running goes on when others are shown
        self._shown: tuple[Answer, Path] | None = None
        self._said = widgets.HTML()
        super().__init__(ask, [self._said])
        self.add_class("x-confirm")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the winners of an answer about one sweep, those first that need least."""
        self._shown = answer, snapshot.runs
        own = {str(name) for name in answer.rows["baseline"]}
        forecast = answer.question.paid_in.forecast
        open_ones = [] if forecast else [each for each in answer.verdicts if each.asks or each.judged_by_others]
        beside = [each for each in open_ones if _beside_own(each.comparison, own)]
        beside.sort(key=lambda each: each.comparison.ratio or 0.0)
        self._said.value = fragment(_introduction(answer, open_ones, beside))
        self.winners = [self._winner(snapshot.runs, each) for each in beside[:MOST]]
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
        """Answer the same question from the database as it is now."""
        if self._shown is None:
            return
        before, runs = self._shown
        try:
            snapshot = read_snapshot(runs)
            self.show(snapshot, answer_to(snapshot, before.question))
        except ExplorerError as error:
            self._said.value = fragment(Paragraph(str(error), "alert"))
            self.children = (self._said,)


def _beside_own(result: EqualQuality, own: Collection[str]) -> bool:
    """Whether fresh seeds would be run beside the same baseline on the same machine."""
    return result.baseline in own and result.baseline_setting == result.setting


def _introduction(found: Answer, open_ones: list[Verdict], beside: list[Verdict]) -> Paragraph:
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
    return Paragraph(words, "note")

"""Section that confirms recipes on fresh seeds: one press shows the plan with its price, a second one runs it.

Any recipe can be confirmed; the one that Ask names is chosen at first.

It writes a specification and starts the command line; the notebook itself trains nothing.
"""

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from explorer.analysis.advice import AFTER_LOOKING, SEEDS, Advice, advise, to_confirm
from explorer.analysis.equal_quality import EqualQuality
from explorer.analysis.ladders import Setting
from explorer.analysis.sentences import call_words, control_words, fresh_words
from explorer.analysis.verdict import Verdict
from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Paragraph, clipped, one_line
from explorer.page.html import element, fragment
from explorer.sweep.workers import default_workers
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.answer import answer as answer_to
from explorer.views.explorer.comparison_tables import speedup, speedup_interval, speedup_title
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.explorer.tabs.ask_section import winner
from explorer.views.explorer.tabs.sections import Section
from explorer.views.sweep_process import Background, SweepProcess, progress_words, run_command


class Winner(widgets.VBox):
    """Winner with its verdict and its confirmation: the first press shows the plan, the second starts it."""

    def __init__(self, runs: Path, sweep: str, recipe: str, *, on_end: Callable[[], None]) -> None:
        self._runs, self._sweep, self._recipe, self._on_end = runs, sweep, recipe, on_end
        self._seeds = SEEDS  # in all, with those that were run before
        self._spec: Path | None = None
        self._process: SweepProcess | None = None
        self._background = Background()
        self.words, self.state = widgets.HTML(), widgets.HTML()
        self.button = widgets.Button(button_style="primary")
        self.stop_button = widgets.Button(
            description="Stop", tooltip="Stop after the current steps; the start button resumes"
        )
        self.bar = widgets.FloatProgress(min=0, max=1, description="Progress")
        self.button.on_click(lambda _: self._background.start(self.run() if self._spec else self.plan()))
        self.stop_button.on_click(lambda _: self.stop())
        self._buttons = widgets.HBox([self.button, self.stop_button, self.bar]).add_class("x-buttons")
        super().__init__([self.words, self._buttons, self.state])
        self._offer()

    def show(self, verdict: Verdict, advice: Advice | None = None) -> None:
        """Show the verdict of the sweep, and that of fresh seeds, and offer as many seeds as would tell."""
        result = verdict.comparison
        holds = verdict.is_confirmed and verdict.control is None
        kind = "x-verified" if holds else "x-broken" if verdict.is_refuted else "x-warn"
        words = "; ".join(filter(None, (f"{call_words(verdict)}{fresh_words(verdict)}", control_words(verdict))))
        chip = element("span", words, class_=kind)
        interval = f" ({speedup_interval(result)})" if result.adjusted_low is not None else ""
        name = element("strong", clipped(result.label))
        # A recipe that never reaches the target has no speedup, and its chip says so.
        gain = "" if result.ratio is None else f" {speedup_title(result.x).lower()} {speedup(result)}{interval}"
        lines = [element("p", name, f"{gain}: ", chip, class_="x-confirmed")]
        if advice is not None:
            price = f" ({advice.price})" if advice.price else ""
            looked = f"; {AFTER_LOOKING}" if advice.after_looking else ""
            said = f"{advice.words[:1].upper()}{advice.words[1:]}{price}{looked}."
            lines.append(element("p", one_line(said), class_="x-note"))
        self.words.value = element("div", *lines)
        # A verdict of fresh seeds is final, unless more of them would tell; the buttons stay while its runs are going.
        more = advice is not None and bool(advice.command())
        judged = verdict.is_confirmed or (verdict.is_refuted and not more)
        self._buttons.layout.display = "none" if judged and not self._running else ""
        if not self._running and self._spec is None:
            self._seeds = advice.total if advice is not None and more else SEEDS
            self._offer()

    @property
    def seeds(self) -> int:
        """Return the number of fresh seeds that the button offers, with those that were run before."""
        return self._seeds

    def take(self, seeds: int) -> None:
        """Offer another number of fresh seeds; a plan that is shown already is for the earlier number."""
        if not self._running and seeds != self._seeds:
            self._seeds, self._spec = seeds, None
            self._offer()

    async def start(self) -> None:
        """Plan and run at once: the price was shown before the press."""
        await self.plan()
        if self._spec is not None:
            await self.run()

    async def plan(self) -> None:
        """Write the specification and show the plan of the confirmation."""
        self.button.disabled = True
        self._report("Planning ...")
        options = ("--plan", "--json", "--seeds", str(self._seeds), "--runs", str(self._runs))
        output = await run_command("confirm", *options, "--", self._sweep, self._recipe)
        self.button.disabled = False
        if not output.succeeded:
            return self._report(output.text.strip(), failed=True)
        plan = json.loads(output.text)
        self._spec = Path(plan["spec"])
        self.button.description = f"Start {amounts.count(plan['missing'], 'run')}"
        self._report(plan_words(plan))

    async def run(self) -> None:
        """Start the planned runs and follow them to their end."""
        assert self._spec is not None  # `plan` set it
        try:
            self._process = SweepProcess(self._spec, runs=self._runs)
        except ExplorerError as error:
            return self._report(str(error), failed=True)
        self._set_running(True)
        self._report("Starting ...")
        try:
            complaint = await self._follow(self._process)
        finally:
            self._spec = None
            self._set_running(False)
        self._report(complaint, failed=True) if complaint else self._report("Finished.")
        self._on_end()

    def stop(self) -> None:
        """Ask the runs to stop."""
        if self._process is not None:
            self._process.stop()
            self._report("Stopping after the current steps ...")

    @property
    def _running(self) -> bool:
        return self._process is not None and self._process.running

    async def _follow(self, process: SweepProcess) -> str:
        """Show the progress, and return the error of a process that did not finish all runs."""
        async for events in process.watch():
            if events:
                self.bar.value = events[-1]["fraction"]
                self._report(progress_words(events[-1]))
        return "" if process.succeeded else process.complaint() or "It ended before all runs were done."

    def _set_running(self, running: bool) -> None:
        self.button.disabled = running
        self._offer(running=running)

    def _offer(self, *, running: bool = False) -> None:
        fresh = amounts.count(self._seeds, "fresh seed")
        self.button.description = f"Confirm {clipped(self._recipe, 24)} on {fresh}"
        self.button.tooltip = "Show the plan and its price; nothing starts yet"
        for widget in (self.stop_button, self.bar):
            widget.layout.display = "" if running else "none"

    def _report(self, words: str, *, failed: bool = False) -> None:
        kind, role = ("x-said x-warn", "alert") if failed else ("x-said", "status")
        self.state.value = element("pre", words, class_=kind, role=role)


def plan_words(plan: dict[str, Any]) -> str:
    """Return the plan of a confirmation in words, given the output of `explorer confirm --plan --json`.

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


MOST_TYPED = 1000  # fresh seeds, as many as `explorer confirm` takes
MOST = 12  # recipes that are shown with their verdicts

NOTE = (
    "The best of many recipes looks better than it is, because noise helped to choose it. Seeds that no run of the"
    " sweep used are free of that choice, and only they are reported."
)


class ConfirmSection(Section):
    """A recipe of an answer with its button, and the verdicts of fresh seeds. Nothing starts without a press."""

    key, title = "confirm", "Confirm"

    def __init__(self, ask: Callable[..., None]) -> None:
        self.winners: list[Winner] = []
        # Winners are kept, so that a running confirmation continues while others are shown.
        self._known: dict[tuple[Path, Setting, str], Winner] = {}
        self._shown: tuple[Answer, Path] | None = None
        self._introduction = widgets.HTML()
        self.recipe = widgets.Dropdown(description="Recipe to confirm")
        self.recipe.observe(self._chosen, "value")
        self.seeds = widgets.BoundedIntText(description="Fresh seeds", min=1, max=MOST_TYPED, value=SEEDS)
        self.seeds.observe(self._counted, "value")
        self._fields = widgets.Box([self.recipe, self.seeds]).add_class("x-controls")
        self._background = Background()
        self._ready: tuple[Verdict, ...] = ()
        super().__init__(ask, [self._introduction])
        self.add_class("x-confirm")

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Offer the recipes of an answer about one sweep: Ask's winner first, then what asks to be confirmed."""
        self._shown = answer, snapshot.runs
        own = {str(name) for name in answer.rows["baseline"]}
        # A forecast cannot be confirmed by training; a comparison with a baseline of the user's choice has no spec.
        forecast = answer.question.paid_in.forecast
        itself = any(verdict.confirmation and not verdict.judged_by_others for verdict in answer.verdicts)
        known = [] if forecast or itself else to_confirm(answer.all_verdicts, winner=_winner_of(snapshot, answer))
        ready = self._ready = tuple(verdict for verdict in known if _has_own_baseline(verdict.comparison, own))
        self._introduction.value = fragment(_introduction(answer, known, ready, itself=itself))
        with self.quiet:
            chosen = self.recipe.value
            options = [(_offered(verdict), at) for at, verdict in enumerate(ready)]
            if tuple(self.recipe.options) != tuple(options):
                self.recipe.options, chosen = options, 0
            self.recipe.value = (chosen or 0) if ready else None
        self._show_chosen()

    def _show_chosen(self) -> None:
        """Show the chosen recipe, and below it those that have a verdict of fresh seeds or ask for one."""
        if self._shown is None:
            return
        first = [self._ready[self.recipe.value]] if self._ready and self.recipe.value is not None else []
        others = [verdict for verdict in self._ready if verdict.asks or verdict.judged_by_others]
        shown = [*first, *(verdict for verdict in others if verdict not in first)][:MOST]
        self.winners = [self._winner(self._shown[1], verdict, self._shown[0]) for verdict in shown]
        if self.winners:
            with self.quiet:
                self.seeds.value = self.winners[0].seeds
        self.children = (self._introduction, *([self._fields] if self._ready else []), *self.winners)

    def start(self, recipe: str) -> None:
        """Choose a recipe, and run the number of fresh seeds that is advised for it."""
        places = [at for at, verdict in enumerate(self._ready) if verdict.comparison.recipe == recipe]
        if places:
            self.recipe.value = places[0]
            self._background.start(self.winners[0].start())

    def _counted(self, _: Any) -> None:
        if not self.quiet and self.winners:
            self.winners[0].take(self.seeds.value)

    def _chosen(self, _: Any) -> None:
        if not self.quiet:
            self._show_chosen()

    def _winner(self, runs: Path, verdict: Verdict, answer: Answer) -> "Winner":
        result = verdict.comparison
        key = (runs, result.setting, result.recipe)
        winner = self._known.get(key)
        if winner is None:
            winner = self._known[key] = Winner(runs, result.setting.sweep, result.recipe, on_end=self._again)
        workers = default_workers(threads=result.setting.threads, device=result.setting.device)
        advice = advise(answer.verdicts, answer.settled.rows, workers=workers, recipe=result.recipe)
        winner.show(verdict, None if verdict.is_confirmed else advice)
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
            self._introduction.value = fragment(Paragraph(str(error), "alert"))
            self.children = (self._introduction,)


def advice_on(answer: Answer) -> Advice | None:
    """Return what to do next about an answer; None where nothing is open, or where training cannot settle it."""
    own = {str(name) for name in answer.rows["baseline"]} if len(answer.rows) else set()
    mine = [verdict for verdict in answer.verdicts if _has_own_baseline(verdict.comparison, own)]
    settings = {verdict.comparison.setting for verdict in mine}
    # Several machines have an answer each, and a forecast is settled by no training.
    if answer.question.across or answer.question.paid_in.forecast or len(settings) != 1:
        return None
    (setting,) = settings
    workers = default_workers(threads=setting.threads, device=setting.device)
    return advise(mine, answer.settled.rows, workers=workers)


def _has_own_baseline(result: EqualQuality, own: Collection[str]) -> bool:
    """Return whether a comparison is with the sweep's own baseline on the same machine, as a confirmation would be."""
    return result.baseline in own and result.baseline_setting == result.setting


def _winner_of(snapshot: Snapshot, answer: Answer) -> str | None:
    try:
        return winner(snapshot, answer.question)
    except ExplorerError:  # Ask says why it has no answer; here the recipes keep their own order
        return None


def _offered(verdict: Verdict) -> str:
    result = verdict.comparison
    gain = "" if result.ratio is None else f", {speedup_title(result.x).lower()} {speedup(result)}"
    return f"{clipped(result.label, 40)}{gain} ({verdict.call})"


def _introduction(answer: Answer, known: Sequence[Verdict], ready: Sequence[Verdict], *, itself: bool) -> Paragraph:
    if answer.question.paid_in.forecast:
        words = "Deletion is a forecast, which training cannot confirm. Choose time, cost or steps as the x axis."
    elif itself:
        words = "Nothing to confirm: this sweep is a confirmation itself."
    elif not answer.verdicts:
        words = "Nothing to confirm: there is no recipe besides the baseline."
    elif known and not ready:
        words = "Only comparisons with the sweep's own baseline on the same machine can be confirmed here."
    else:
        words = NOTE
    return Paragraph(words, "note")

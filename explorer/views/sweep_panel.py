"""The sweep panel: edit a specification, plan it, run it, watch it. `sweep_panel()` is the one call in `sweep.ipynb`.

Its buttons write the specification and start the command line; the notebook itself trains nothing.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from markupsafe import Markup

from explorer import rundir
from explorer.costing.words import BUSY
from explorer.document import read_document
from explorer.errors import ExplorerError, RunError, StoreError
from explorer.records import METRICS
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.views import text
from explorer.views.axes import PAYMENTS
from explorer.views.curves import metric_curves
from explorer.views.fit import Fit, empty_chart
from explorer.views.place import runs_directory
from explorer.views.scene import build_scene
from explorer.views.sweep_process import SweepProcess, run_command
from explorer.views.tables import CSS
from explorer.views.tradeoff import tradeoff

TICK = 1.0  # seconds between two looks at the process
REDRAW = 3  # ticks between two drawings of the curves
LINES = 12  # runs in the chart of losses: the ones that started last

TEMPLATE = """\
# Which of these recipes is as good as the baseline for less? See `explorer methods` for what can be combined.
name: mine
task: {dataset: digits, model: resnet8}
train:
  epochs: 4
  batch_size: 32
  optimizer: {sgd: {lr: 0.4, momentum: 0.9, weight_decay: 5e-3}}
baseline: baseline
recipes:
  baseline: []
  smooth: [label_smoothing]
  resize: [{progressive_resizing: {initial_scale: 0.5}}]
budgets: [0.25, 0.5, 1.0]
seeds: [0, 1]
"""


def sweep_panel(spec: str | Path, runs: str | Path | None = None) -> "SweepPanel":
    """Open the panel on a specification, which is made from a template if it is not there yet."""
    return SweepPanel(Path(spec), runs=runs_directory(runs))


class SweepPanel(widgets.VBox):
    """The panel. Nothing is written or started before a button is pressed."""

    def __init__(self, spec: Path, *, runs: Path) -> None:
        self._spec, self._runs = spec, runs
        self._process: SweepProcess | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        content = spec.read_text(encoding="utf-8") if spec.exists() else TEMPLATE
        self.editor = widgets.Textarea(value=content, description=f"Specification: {spec}", rows=16)
        self.plan_button = widgets.Button(description="Plan", tooltip="Check the specification; show what would run")
        self.run_button = widgets.Button(description="Run", tooltip="Run what is missing", button_style="primary")
        self.stop_button = widgets.Button(
            description="Stop", tooltip="Stop after the current steps; Run goes on from there", disabled=True
        )
        self.bar = widgets.FloatProgress(min=0, max=1, description="Progress")
        self.state = widgets.HTML()
        self.said = widgets.HTML()
        self._losses = empty_chart()
        self._quality = empty_chart()
        self.plan_button.on_click(lambda _: self._start(self.plan()))
        self.run_button.on_click(lambda _: self._start(self.run()))
        self.stop_button.on_click(lambda _: self.stop())
        super().__init__(self._parts())
        self.add_class("explorer")
        self._tell("Not started from here. Plan shows what would run and how long it takes.")

    async def plan(self) -> None:
        """Save the specification and show what `explorer sweep plan` says to it."""
        if not self._save():
            return
        self._say("Planning ...")
        said = await run_command("sweep", "plan", self._spec, "--runs", self._runs)
        self._say(said.text.strip("\n"), failed=not said.succeeded)

    async def run(self) -> None:
        """Save the specification, start the command line and follow it to its end."""
        if not self._save():
            return
        try:
            self._process = SweepProcess(self._spec, runs=self._runs)
        except ExplorerError as error:
            return self._say(str(error), failed=True)
        self._say("")
        self._tell("Starting ...")
        self._set_running(True)
        try:
            await self._follow(self._process)
        finally:
            self._set_running(False)

    def stop(self) -> None:
        """Ask the sweep to stop."""
        if self._process is not None:
            self._process.stop()
            self._tell("Stopping after the current steps ...")

    def draw(self) -> None:
        """Bring the database up to what is there now, unfinished runs included, and draw it."""
        try:
            database = ingest(self._runs, live=True, patience=0.2).database
            name = read_document(self._spec).value["name"]
            losses = frames.metrics(database, sweep=name)
            results = frames.results(database, sweep=name)
            runs = frames.runs(database, sweep=name)
        except (RunError, StoreError):
            return  # the sweep is writing to the database just now, or has no run in it yet: the next tick will do
        runs = runs[~runs["superseded"]]
        losses = losses[losses["metric"] == "train_loss"].merge(runs[["run_id", "recipe", "baseline"]], on="run_id")
        latest = list(dict.fromkeys(losses["run_id"]))[-LINES:]
        losses = losses[losses["run_id"].isin(latest)]
        if not losses.empty:
            baseline = str(losses["baseline"].iloc[0])
            self._losses.chart = metric_curves(losses, metric=METRICS["train_loss"], baseline=baseline)
        if not results.empty:
            scene = build_scene(
                results, payment=PAYMENTS["steps"], baseline=str(results["baseline"].iloc[0]), target=None
            )
            self._quality.chart = None if scene is None else tradeoff(scene, height=260)

    async def _follow(self, process: SweepProcess) -> None:
        ticks = 0
        while process.running:
            self._show(process.events())
            if ticks % REDRAW == 0:
                self.draw()
            ticks += 1
            await asyncio.sleep(TICK)
        self._show(process.events())
        self.draw()
        if process.succeeded:
            self._tell("Finished. Open explore.ipynb for the answer.")
        elif complaint := process.complaint():
            self._say(complaint, failed=True)

    def _show(self, events: list[dict[str, Any]]) -> None:
        if events:
            self.bar.value = events[-1]["fraction"]
            self._tell(progress_words(events[-1]))

    def _tell(self, words: str) -> None:
        self.state.value = Markup('<p class="x-progress" role="status">{}</p>').format(words)

    def _save(self) -> bool:
        try:
            rundir.write_bytes(self._spec, self.editor.value.encode())
        except RunError as error:
            self._say(str(error), failed=True)
            return False
        return True

    def _say(self, words: str, *, failed: bool = False) -> None:
        kind = "x-said x-warn" if failed else "x-said"
        role = "alert" if failed else "status"
        self.said.value = Markup('<pre class="{}" role="{}">{}</pre>').format(kind, role, words) if words else ""

    def _set_running(self, running: bool) -> None:
        self.run_button.disabled = self.plan_button.disabled = running
        self.stop_button.disabled = not running

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something without holding up the notebook; the reference keeps the task alive until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _parts(self) -> list[widgets.Widget]:
        buttons = widgets.HBox([self.plan_button, self.run_button, self.stop_button, self.bar]).add_class("x-buttons")
        left = widgets.VBox([self.editor]).add_class("x-editor")
        right = widgets.VBox([buttons, self.state, self.said]).add_class("x-plan")
        charts = [widgets.VBox([Fit().add_class("x-fit"), chart]) for chart in (self._losses, self._quality)]
        return [
            widgets.HTML(Markup("<style>{}</style>").format(Markup(CSS))),
            widgets.Box([left, right]).add_class("x-halves"),
            widgets.Box([chart.add_class("x-chart") for chart in charts]).add_class("x-halves"),
        ]


def progress_words(event: dict[str, Any]) -> str:
    """Where a sweep stands, from its latest event.

    >>> progress_words({"event": "done", "done": 3, "failed": 1, "total": 12, "seconds_left": 90.0, "run": None})
    '3 of 12 runs done, 1 failed, about 2 min left.'
    """
    parts = [f"{event['done']} of {text.count(event['total'], 'run')} done"]
    if event["failed"]:
        parts.append(f"{event['failed']} failed")
    if event["event"] == "profile":
        parts.append("measuring step times: leave the machine idle")
    elif event["event"] == "busy":
        parts.append(f"{BUSY}: {event['message']}")
    elif event["event"] != "end" and event["seconds_left"]:
        parts.append(f"about {_roughly(event['seconds_left'])} left")
    return ", ".join(parts) + "."


def _roughly(seconds: float) -> str:
    """A time that is an estimate: whole minutes, or tens of seconds."""
    if seconds >= 90:
        return f"{round(seconds / text.MINUTE)} min"
    return f"{max(10, round(seconds, -1)):.0f} s"

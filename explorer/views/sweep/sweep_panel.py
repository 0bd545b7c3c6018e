"""Sweep panel: edit a specification, see its plan, run it, and follow the loss curves of its runs.

Nothing here trains: a process of the command line does, and the panel reads its events and the store.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt
import ipywidgets as widgets
import pandas as pd

from explorer import rundir
from explorer.errors import ExplorerError, RunError, StoreError
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Table, clipped
from explorer.page.html import element, fragment, style
from explorer.run_files import METRICS, Metric
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.views.explore import explore
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.scene import build_scene
from explorer.views.explorer.tradeoff import tradeoff_spec
from explorer.views.live_chart import LiveChart
from explorer.views.notebook import runs_directory
from explorer.views.sweep_process import MAX_MESSAGE, Background, SweepProcess, progress_words, run_command
from explorer.yaml_document import read_document

MAX_POINTS = 200  # per line; more would overlap, and altair refuses more than 5,000 rows
MAX_ROWS = 4800


def metric_curves(
    frame: pd.DataFrame,
    *,
    metric: Metric,
    baseline: str | None = None,
    width: int | str = "container",
    height: int = 260,
) -> alt.LayerChart:
    """Draw curves over the steps of training, a line for each run. `frame`: run_id, recipe, step, value; not empty."""
    look = theme.look(frame["recipe"], baseline=baseline)
    thin = thinned(frame)
    lines = (
        alt.Chart(thin, name="lines")
        .mark_line(strokeWidth=1.6, opacity=0.85)
        .encode(
            x=alt.X(
                "step:Q", title="Optimiser step", axis=alt.Axis(tickCount=8, format=",~r"), scale=alt.Scale(nice=False)
            ),
            y=alt.Y("value:Q", title=metric.title(), scale=alt.Scale(zero=False)),
            color=look.colour("recipe"),
            detail="run_id:N",
            tooltip=[
                alt.Tooltip("recipe:N", title="Recipe"),
                alt.Tooltip("run_id:N", title="Run"),
                alt.Tooltip("step:Q", title="Step"),
                alt.Tooltip("value:Q", title=metric.name, format=".4~g"),
            ],
        )
    )
    runs = frame["run_id"].nunique()
    words = f"{metric.name} over training steps of {runs} {'run' if runs == 1 else 'runs'}."
    return theme.styled(
        alt.LayerChart(layer=[lines]).properties(
            width=width, height=height, description=words, padding={"top": 18, "right": 12}
        )
    )


def thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """Return at most `MAX_POINTS` rows of each run, its last one among them, and at most `MAX_ROWS` in all."""
    # Strides count from the end, so that the last step is always kept: it is the one that is read.
    runs = max(1, frame["run_id"].nunique())
    keep = max(2, min(MAX_POINTS, MAX_ROWS // runs))
    ordered = frame.sort_values(["run_id", "step"])
    from_end = ordered.groupby("run_id").cumcount(ascending=False)
    length = ordered.groupby("run_id")["step"].transform("size")
    stride = -(-length // keep)
    return ordered[from_end % stride == 0][["run_id", "recipe", "step", "value"]]


REDRAW = 3  # ticks between two drawings of the curves
LINES = 12  # runs in the chart of losses: those that started last

MAX_PLAN = 20_000_000  # characters of a plan: the largest sweep has 20,000 runs

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
    """Open the panel on a specification; a missing file begins as a template."""
    return SweepPanel(Path(spec), runs=runs_directory(runs))


def plan_blocks(plan: dict[str, Any]) -> Iterator[Block]:
    """Yield a plan as a table of its recipes and what the missing runs take, given `explorer sweep plan --json`."""
    missing, by_recipe = set(plan["missing"]), dict[str, list[dict[str, Any]]]()
    for run in plan["runs"]:
        name = f"{run['recipe']} ({run['control'].replace('-', ' ')})" if run["control"] else run["recipe"]
        by_recipe.setdefault(name, []).append(run)
    columns = (Column("Recipe"), *(Column(title, number=True) for title in ("Runs", "Done", "Steps at most")))
    rows = [
        Row(
            (
                clipped(f"{name} (baseline)" if name == plan["baseline"] else name),
                str(len(own)),
                str(sum(run["run_id"] not in missing for run in own)),
                f"{max(run['steps'] for run in own):,}",
            )
        )
        for name, own in by_recipe.items()
    ]
    yield Table(columns, rows)
    total = len(plan["runs"])
    yield Paragraph(f"{total} runs, {total - len(missing)} done, {len(missing)} to do")
    if missing and plan["unknown"] == len(missing):
        yield Paragraph("Step times are not known yet: Run measures them first.", "note")
    elif missing:
        money = "no price for this hardware" if plan["usd"] is None else amounts.dollars(plan["usd"])
        words = f"About {amounts.seconds(plan['wall_seconds'])} with {plan['workers']} runs at the same time; {money}."
        yield Paragraph(words, "note")
    yield from (Paragraph(f"Warning: {words}", "note") for words in plan["warnings"])


class SweepPanel(widgets.VBox):
    """Panel of one specification. Nothing is written or started before a button is pressed."""

    def __init__(self, spec: Path, *, runs: Path) -> None:
        self._spec, self._runs = spec, runs
        self._process: SweepProcess | None = None
        self._background = Background()
        content = spec.read_text(encoding="utf-8") if spec.exists() else TEMPLATE
        self.editor = widgets.Textarea(value=content, description=f"Specification: {spec}", rows=16)
        self.plan_button = widgets.Button(description="Plan", tooltip="Check the specification and list its runs")
        self.run_button = widgets.Button(description="Run", tooltip="Run the missing runs", button_style="primary")
        self.stop_button = widgets.Button(
            description="Stop", tooltip="Stop after the current steps; Run resumes", disabled=True
        )
        self.bar = widgets.FloatProgress(min=0, max=1, description="Progress")
        self.state = widgets.HTML()
        self.clock = widgets.HTML()  # apart from the state, which a screen reader announces
        self.output = widgets.HTML()
        self._look = widgets.Button(description="Look at it in explore", tooltip="Open the answer below")
        self._look.layout.width, self._look.layout.display = "auto", "none"
        self._look.on_click(lambda _: self.look())
        self._place = widgets.VBox()
        self._losses = LiveChart()
        self._quality = LiveChart()
        self.plan_button.on_click(lambda _: self._background.start(self.plan()))
        self.run_button.on_click(lambda _: self._background.start(self.run()))
        self.stop_button.on_click(lambda _: self.stop())
        super().__init__(self._parts())
        self.add_class("explorer")
        self._tell('No sweep running. "Plan" lists the runs and their cost.')

    async def plan(self) -> None:
        """Save the specification and show what `explorer sweep plan` says, as a table."""
        if not self._save():
            return
        self._say("Planning ...")
        options = ("--runs", self._runs, "--json")
        output = await run_command("sweep", "plan", self._spec, *options, most=MAX_PLAN)
        if not output.succeeded:
            return self._say(output.text.strip("\n")[-MAX_MESSAGE:], failed=True)
        self.output.value = element("div", fragment(*plan_blocks(json.loads(output.text))), class_="x-said")

    async def run(self) -> None:
        """Save the specification, start the command line and follow it to its end."""
        if not self._save():
            return
        try:
            self._process = SweepProcess(self._spec, runs=self._runs)
        except ExplorerError as error:
            return self._say(str(error), failed=True)
        self._say("")
        self._look.layout.display = "none"
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
        """Bring the database up to date, unfinished runs included, and draw the curves."""
        try:
            database = ingest(self._runs, live=True, patience=0.2).database
            name = read_document(self._spec).value["name"]
            losses = frames.metrics(database, sweep=name)
            results = frames.results(database, sweep=name)
            runs = frames.runs(database, sweep=name)
        except (RunError, StoreError):
            return  # the sweep is writing to the database, or has no run in it yet: the next tick draws
        # --- losses of the latest runs ---
        runs = runs[~runs["superseded"]]
        losses = losses[losses["metric"] == "train_loss"].merge(runs[["run_id", "recipe", "baseline"]], on="run_id")
        latest = list(dict.fromkeys(losses["run_id"]))[-LINES:]
        losses = losses[losses["run_id"].isin(latest)]
        if not losses.empty:
            baseline = str(losses["baseline"].iloc[0])
            self._losses.chart = metric_curves(losses, metric=METRICS["train_loss"], baseline=baseline)
        # --- the tradeoff of the finished runs ---
        if not results.empty:
            scene = build_scene(
                results, payment=PAYMENTS["steps"], baseline=str(results["baseline"].iloc[0]), target=None
            )
            self._quality.draw(None if scene is None else tradeoff_spec(scene, height=260))

    async def _follow(self, process: SweepProcess) -> None:
        ticks, begun, seen = 0, time.monotonic(), False
        async for events in process.watch():
            self._show(events)
            seen = seen or bool(events)
            # Checking recipes and measuring step times can take a minute without an event.
            if not seen:
                said = process.complaint().splitlines()
                self._tell(said[-1] if said else "Starting: reading the specification ...")
            self.clock.value = fragment(Paragraph(f"running for {amounts.seconds(round(time.monotonic() - begun))}"))
            if ticks % REDRAW == 0:
                self.draw()
            ticks += 1
        self.draw()  # the last runs finished after the last drawing
        if process.succeeded:
            self._tell("Finished.")
            self._look.layout.display = ""
        elif complaint := process.complaint():
            self._say(complaint, failed=True)

    def _show(self, events: list[dict[str, Any]]) -> None:
        if events:
            self.bar.value = events[-1]["fraction"]
            self._tell(progress_words(events[-1]))

    def _tell(self, words: str) -> None:
        self.state.value = fragment(Paragraph(words, "status"))

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
        self.output.value = element("pre", words, class_=kind, role=role) if words else ""

    def look(self) -> None:
        """Open the explorer on this sweep, below the panel."""
        try:
            name = str(read_document(self._spec).value["name"])
            self._place.children = (explore(self._runs, sweep=name),)
        except ExplorerError as error:
            self._say(str(error), failed=True)

    def _set_running(self, running: bool) -> None:
        if not running:
            self.clock.value = ""
        self.run_button.disabled = self.plan_button.disabled = running
        self.stop_button.disabled = not running

    def _parts(self) -> list[widgets.Widget]:
        buttons = widgets.HBox([self.plan_button, self.run_button, self.stop_button, self.bar]).add_class("x-buttons")
        left = widgets.VBox([self.editor]).add_class("x-editor")
        right = widgets.VBox([buttons, self.state, self.clock, self._look, self.output]).add_class("x-plan")
        charts = [widgets.VBox([chart]) for chart in (self._losses, self._quality)]
        return [
            widgets.HTML(style()),
            widgets.Box([left, right]).add_class("x-halves"),
            widgets.Box([chart.add_class("x-chart") for chart in charts]).add_class("x-halves"),
            self._place,
        ]

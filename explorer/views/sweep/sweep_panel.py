"""Sweep panel: edit a specification, see its plan, run it, and follow it: progress, loss curves, best answer so far.

Nothing here trains: a process of the command line does. What is shown of a sweep comes from its directory and the
store, so a sweep that was started elsewhere is followed too; a process of the panel's own adds its events. For a sweep
at a place, hosts, pace, spend and faults come from there, by a thread: a bucket may be slow to answer.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from explorer import rundir
from explorer.analysis.sentences import so_far
from explorer.analysis.verdict import sweep_verdicts
from explorer.costing import Price, load_prices, own_prices
from explorer.errors import ExplorerError, RunError
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Heading, Paragraph, Row, Span, Table, as_baseline, clipped, sentence
from explorer.page.html import element, fragment, style
from explorer.place.place_status import PlaceReader
from explorer.place.published_sweep import Published
from explorer.store import frames
from explorer.store.learning_curves import is_training, latest
from explorer.store.published import database
from explorer.store.queries import Filter
from explorer.store.upkeep import bring_up
from explorer.sweep.overview import Overview, overview_at, overview_here
from explorer.sweep.status import SweepStatus, sweep_status
from explorer.sweep.tuned import TunedRecord, tuned_of
from explorer.views.explore import explore
from explorer.views.explorer.curves_chart import LOSS, curves_chart, metric_named, with_others
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.pulse import Pulse
from explorer.views.explorer.scene import build_scene, look_of
from explorer.views.explorer.tabs.search_chart import search_blocks, searched
from explorer.views.explorer.tradeoff import tradeoff_spec
from explorer.views.live_blocks import LiveBlocks
from explorer.views.live_chart import LiveChart
from explorer.views.notebook import runs_directory
from explorer.views.sweep.overview_blocks import amount_blocks, count_words, fault_blocks, host_blocks, progress_blocks
from explorer.views.sweep_process import MAX_MESSAGE, Background, SweepProcess, progress_words, run_command
from explorer.yaml_document import read_document

REDRAW = 3  # ticks between two drawings of the curves
EVERY = 2.0  # seconds between two looks at a place
SHARE = 0.1  # of the time, for drawing, and for looks
MOST = 12  # hosts, runs in progress and faults that are listed
LINES = 12  # runs in the chart of losses: those that train, and those that finished last
POINTS = 150  # of a curve

MAX_PLAN = 20_000_000  # characters of a plan: the largest sweep has 20,000 runs

HEIGHT = 260  # pixels of a chart
IDLE = 'No sweep running. "Plan" lists the runs and their cost.'

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
# tune: {space: {lr: [0.04, 0.8], weight_decay: [1e-3, 1e-2]}, runs: 12, budget: 0.25, seeds: [100]}   # every recipe
"""


def sweep_panel(spec: str | Path, runs: str | Path | None = None, at: str | None = None) -> "SweepPanel":
    """Open the panel on a specification; a missing file begins as a template.

    `at` is the place of a sweep on many machines: a directory, or s3://, gs:// or az:// and a path.
    """
    return SweepPanel(Path(spec), runs=runs_directory(runs), at=at or "")


def plan_blocks(plan: dict[str, Any]) -> Iterator[Block]:
    """Yield a plan as a table of its recipes and what the missing runs take, given `explorer sweep plan --json`."""
    missing, by_recipe = set(plan["missing"]), dict[str, list[dict[str, Any]]]()
    for run in plan["runs"]:
        name = f"{run['recipe']} ({run['control'].replace('-', ' ')})" if run["control"] else run["recipe"]
        by_recipe.setdefault(name, []).append(run)
    if first := plan.get("tune"):
        todo = amounts.count(len(first["missing"]), "tuning run")
        yield Paragraph(f"First {todo} of {first['name']} with {first['sampler']} points; then, as they choose:")
    columns = (Column("Recipe"), *(Column(title, number=True) for title in ("Runs", "Done", "Steps at most")))
    rows = [
        Row(
            (
                clipped(as_baseline(name) if name == plan["baseline"] else name),
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
    if reason := plan.get("why_not_here"):
        yield Paragraph(f"This machine does not execute it: {reason}.", "note")
    yield from (Paragraph(f"Warning: {words}", "note") for words in plan["warnings"])


def chosen_blocks(tuned: TunedRecord) -> Iterator[Block]:
    """Yield what a tuning chose, and values at an edge of their range."""
    columns = (Column("Recipe"), Column("Chosen"), Column(f"{tuned.metric.name} (tuning)", number=True))
    yield Table(
        columns,
        [
            Row((clipped(own.recipe), own.words, tuned.metric.show(own.quality) if own.quality is not None else ""))
            for own in tuned.recipes
        ],
    )
    for own in tuned.recipes:
        yield from (Paragraph(f"{own.recipe}: {words}", "note") for words in own.edge_words)


def status_words(status: SweepStatus) -> str:
    """Return the progress of a sweep, as its directory shows it.

    "3 of 8 runs done, 2 running: started elsewhere."
    """
    counts = status.counts
    parts = [f"{counts.get('done', 0)} of {amounts.count(len(status.runs), 'run')} done"]
    parts += [f"{count} {state}" for state, count in counts.items() if state not in ("done", "planned")]
    if status.active:
        return f"{', '.join(parts)}: another process runs this sweep."
    if counts.get("done", 0) == len(status.runs):
        return f"{parts[0]}."
    return f'{", ".join(parts)}. "Run" does the rest.'


_following: list[asyncio.Task[None]] = []  # of the panel that was opened last: a kernel feeds one


class SweepPanel(widgets.VBox):
    """Panel of one specification. Nothing is written or started before a button is pressed."""

    def __init__(self, spec: Path, *, runs: Path, at: str = "") -> None:
        self._spec, self._runs = spec, runs
        self._process: SweepProcess | None = None
        self._background = Background()
        content = spec.read_text(encoding="utf-8") if spec.exists() else TEMPLATE
        self.editor = widgets.Textarea(value=content, description=f"Specification: {spec}", rows=16)
        self.plan_button = widgets.Button(description="Plan", tooltip="Check the specification and list its runs")
        self.tune_button = widgets.Button(
            description="Tune", tooltip="Tune every recipe as the key tune says; Run does it first too"
        )
        self.run_button = widgets.Button(
            description="Run", tooltip="Run the missing runs, or the search", button_style="primary"
        )
        self.stop_button = widgets.Button(
            description="Stop", tooltip="Stop after the current steps; Run resumes", disabled=True
        )
        self.at = widgets.Text(
            value=at,
            description="Place",
            placeholder="this machine; or a directory, s3://, gs:// or az:// and a path",
            continuous_update=False,
        )
        self.amounts, self.hosts, self.held = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self.bar = widgets.FloatProgress(min=0, max=1, description="Progress")
        self.state = widgets.HTML()
        self.clock = widgets.HTML()  # apart from the state, which a screen reader announces
        self.best = widgets.HTML()
        self.output = widgets.HTML()
        self._look = widgets.Button(description="Look at it in explore", tooltip="Open the answer below")
        self._look.layout.width, self._look.layout.display = "auto", "none"
        self._look.on_click(lambda _: self.look())
        self._place = widgets.VBox()
        self.searched, self._answer = LiveBlocks(), None
        self._losses = LiveChart()
        self._quality = LiveChart()
        self.plan_button.on_click(lambda _: self._background.start(self.plan()))
        self.tune_button.on_click(lambda _: self._background.start(self.tune()))
        self.run_button.on_click(lambda _: self._background.start(self.run()))
        self.stop_button.on_click(lambda _: self.stop())
        super().__init__(self._parts())
        self.add_class("explorer")
        self._next_drawing = self._next_look = 0.0
        self._tell(IDLE)
        self.at.observe(lambda _: self._follow_place(), "value")
        self._pulse = Pulse(runs, sweep=self._name, on_growth=self._grew, on_results=self._grew)
        self._follow_place()
        self._grew()
        self._pulse.start()

    async def plan(self) -> None:
        """Save the specification and show what `explorer sweep plan` says, as a table."""
        if not self._save():
            return
        self._say("Planning ...")
        if self._searches():
            output = await run_command("search", self._spec, "--plan", "--runs", self._runs)
            return self._say(output.text.strip("\n"), failed=not output.succeeded)
        options = ("--runs", self._runs, "--json")
        output = await run_command("sweep", "plan", self._spec, *options, most=MAX_PLAN)
        if not output.succeeded:
            return self._say(output.text.strip("\n")[-MAX_MESSAGE:], failed=True)
        self.output.value = element("div", fragment(*plan_blocks(json.loads(output.text))), class_="x-said")

    async def tune(self) -> None:
        """Save the specification, tune its recipes as its key `tune` says, and follow that to its end."""
        await self.run(("tune",))

    async def run(self, verb: Sequence[str] = ()) -> None:
        """Save the specification, start the command line and follow it to its end.

        With the key `search` that is a search, unless another verb is given; else the sweep.
        """
        if not self._save():
            return
        verb = verb or (("search",) if self._searches() else ("sweep", "run"))
        options = ("--at", self.at.value) if self.at.value and verb in (("sweep", "run"), ("search",)) else ()
        try:
            self._process = SweepProcess(self._spec, runs=self._runs, verb=verb, options=options)
        except ExplorerError as error:
            return self._say(str(error), failed=True)
        self._say("")
        self._look.layout.display = "none"
        self._tell("Starting ...")
        self._set_running(True)
        self._follow_place()
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
        """Draw the curves and the tradeoff so far, and say which recipe leads."""
        name = self._name()
        try:
            bring_up(self._runs, patience=0.2)
            curves = latest(self._runs, name, LOSS, most=LINES, points=POINTS)
            results = frames.results(database(self._runs), where=Filter(sweep=name))
            verdicts = sweep_verdicts(results) if len(results) else []
        except ExplorerError:
            return  # the database is being replaced, or there is none yet: the next look draws
        look = theme.look((), baseline=None)
        if len(results):
            timed = results["train_seconds"].notna().all()
            payment, baseline = PAYMENTS["time" if timed else "steps"], str(results["baseline"].iloc[0])
            scene = build_scene(results, payment=payment, baseline=baseline, target=None)
            self._quality.draw(None if scene is None else tradeoff_spec(scene, height=HEIGHT))
            look = look if scene is None else look_of(scene)
        if len(curves):
            colours = with_others(look, curves["recipe"]) if look.recipes else None
            chart = curves_chart(curves, metric=metric_named(LOSS, of=curves), mean=False, look=colours, height=HEIGHT)
            self._losses.draw(chart)
        words = so_far(verdicts)
        self.best.value = fragment(Paragraph(sentence(words, names=list(set(results["recipe"]))))) if words else ""

    def _grew(self) -> None:
        """Show how far the sweep has come, unless the panel's own process tells it, or the last look took long."""
        begun, name = time.monotonic(), self._name()
        if not name or (self._process is not None and self._process.running):
            return
        # The last look, once the lock is free, is never left out.
        if begun < self._next_drawing and is_training(self._runs, name):
            return
        try:
            status = sweep_status(self._runs / name)
        except ExplorerError:
            return  # no sweep was started from this specification
        if not status.runs:
            return
        done = status.counts.get("done", 0)
        if not self.at.value:
            self.bar.value = done / len(status.runs)
            self._tell(status_words(status))
        self.run_button.disabled = self.plan_button.disabled = self.tune_button.disabled = status.active
        self._look.layout.display = "" if done and not status.active else "none"
        self.draw()
        self._look_here()
        self._show_search(name)
        self._next_drawing = time.monotonic() + (time.monotonic() - begun) / SHARE

    def _look_here(self) -> None:
        """Show hosts, pace, spend and faults of the sweep in its directory, unless it is at a place, or the last look
        took long."""
        begun = time.monotonic()
        if self.at.value or begun < self._next_look:
            return
        try:
            status = sweep_status(self._runs / self._name())
            self._show_overview(overview_here(status, prices=self._prices(), now=time.time()))
        except ExplorerError:
            return  # no sweep was started from this specification yet
        self._next_look = time.monotonic() + (time.monotonic() - begun) / SHARE

    def _follow_place(self) -> None:
        """Follow the sweep at the place in the field, from now on; without an event loop, as in a script, nothing
        happens."""
        for task in _following:
            task.cancel()
        _following.clear()
        self.amounts.value = self.hosts.value = self.held.value = ""
        self._next_look = 0.0
        if self.at.value:
            try:
                _following.append(asyncio.get_running_loop().create_task(self.follow_place()))
            except RuntimeError:
                return
        else:
            self._look_here()

    async def follow_place(self) -> None:
        """Show hosts, pace, spend and faults of the sweep at the place, until nothing is left to do there."""
        reader: PlaceReader | None = None
        seen: Overview | None = None
        while seen is None or not seen.complete or (self._process is not None and self._process.running):
            begun = time.monotonic()
            try:
                reader = reader or await asyncio.to_thread(lambda: PlaceReader(Published.at(self.at.value)))
                seen = await asyncio.to_thread(self._look_there, reader)
            except ExplorerError as error:
                self.amounts.value = fragment(Paragraph(str(error), "warning"))
                self.hosts.value = self.held.value = ""
            else:
                self._show_overview(seen)
                if self._process is None or not self._process.running:
                    self.bar.value = seen.done / max(1, seen.runs)
                    self._tell(f"{count_words(seen)}.")
            await asyncio.sleep(max(EVERY, (time.monotonic() - begun) / SHARE))

    def _look_there(self, reader: PlaceReader) -> Overview:
        now = time.time()
        return overview_at(reader.look(now=now), prices=self._prices(), now=now)

    def _prices(self) -> tuple[Price, ...]:
        return (*load_prices(), *own_prices(self._runs))

    def _show_overview(self, seen: Overview) -> None:
        where = (Span("At "), Span(self.at.value, "name"), Span(", for ")) if self.at.value else (Span("For "),)
        heading = Heading(3, (*where, Span(seen.machine or "this machine", "name")))
        self.amounts.value = fragment(heading, *amount_blocks(seen), *fault_blocks(seen, most=MOST))
        self.hosts.value = fragment(*host_blocks(seen, most=MOST))
        self.held.value = fragment(*progress_blocks(seen, most=MOST))

    def _name(self) -> str:
        """Return the name in the specification as it is saved; empty for none that is a directory's."""
        try:
            content = read_document(self._spec).value
        except ExplorerError:
            return ""
        name = content.get("name") if isinstance(content, dict) else None
        return name if isinstance(name, str) and name == Path(name).name and name[:1] not in "._" else ""

    def _searches(self) -> bool:
        """Return whether the specification as it is saved has the key `search`."""
        try:
            content = read_document(self._spec).value
        except ExplorerError:
            return False  # the command line says what is wrong with it
        return isinstance(content, dict) and "search" in content

    def _show_search(self, name: str) -> None:
        """Show what a search of this name found, if one has come to an answer."""
        try:
            answer = searched(self._runs, name)
        except ExplorerError as error:
            return self._say(str(error), failed=True)
        if answer != self._answer:
            self._answer = answer
            self.searched.show(search_blocks(answer) if answer is not None else ())

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
                self._look_here()
            ticks += 1
        self.draw()  # the last runs finished after the last drawing
        self._next_look = 0.0
        self._look_here()
        self._show_search(self._name())
        if process.succeeded:
            self._tell("Finished.")
            self._look.layout.display = ""
        elif complaint := process.complaint():
            self._say(complaint, failed=True)

    def _show(self, events: list[dict[str, Any]]) -> None:
        # What tuning chose comes once, between the events of its runs and those of the sweep's. What a search found is
        # the last event, and in its directory too.
        for event in events:
            if event["event"] == "tuned":
                tuned = tuned_of({key: value for key, value in event.items() if key != "event"}, where="tuned")
                self.output.value = element("div", fragment(*chosen_blocks(tuned)), class_="x-said")
        if progress := [event for event in events if event["event"] not in ("tuned", "answer")]:
            self.bar.value = progress[-1]["fraction"]
            self._tell(progress_words(progress[-1]))

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
        self.run_button.disabled = self.plan_button.disabled = self.tune_button.disabled = running
        self.stop_button.disabled = not running

    def _parts(self) -> list[widgets.Widget]:
        pressed = (self.plan_button, self.tune_button, self.run_button, self.stop_button)
        buttons = widgets.HBox([*pressed, self.bar]).add_class("x-buttons")
        left = widgets.VBox([self.editor]).add_class("x-editor")
        at = self.at.add_class("x-place")
        shown = [
            buttons,
            at,
            self.state,
            self.best,
            self.clock,
            self._look,
            self.amounts.add_class("x-seen"),
            self.output,
        ]
        right = widgets.VBox(shown).add_class("x-plan")
        seen = [widgets.VBox([part]).add_class("x-blocks") for part in (self.hosts, self.held)]
        charts = [widgets.VBox([chart]) for chart in (self._losses, self._quality)]
        return [
            widgets.HTML(style()),
            widgets.Box([left, right]).add_class("x-halves"),
            widgets.Box(seen).add_class("x-halves").add_class("x-seen"),
            widgets.Box([chart.add_class("x-chart") for chart in charts]).add_class("x-halves"),
            self.searched,
            self._place,
        ]

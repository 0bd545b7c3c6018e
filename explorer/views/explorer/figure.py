"""Tradeoff chart as a widget: one chart in which runs can be chosen, or small multiples on the same axes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import altair as alt
import ipywidgets as widgets

from explorer.analysis.ladders import ladders_of
from explorer.page import amounts, theme
from explorer.page.document import clipped
from explorer.page.html import element
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.scene import MAX_DRAWN, Scene, content_of, look_of, scene_of
from explorer.views.explorer.tradeoff import (
    BRUSH,
    Brush,
    Drawing,
    Json,
    describe,
    legend_of_marks,
    tradeoff_spec,
)
from explorer.views.live_chart import LiveChart

COLUMNS = 2
SMALL_WIDTH, SMALL_HEIGHT = 228, 190  # pixels: two columns of charts fit next to the table
MOST = 12  # charts; the first ones by name are drawn
UNKNOWN = "none"
ROUNDING = 1e-9  # of the width of a brush


def multiples(answer: Answer) -> Json:
    """Return small multiples of an answer that has a scene: a chart for each value that its question splits by."""
    scene, split = answer.scene, answer.question.split
    assert scene is not None  # the callers check
    parts = _parts(answer, scene)
    look, datasets, charts = look_of(scene), {}, []
    for number, (name, make) in enumerate(list(parts.items())[:MOST]):
        part = make()
        drawing = Drawing(part, look=look, height=SMALL_HEIGHT, live=False, prefix=f"part {number} ")
        charts.append(
            {
                "layer": drawing.layers(),
                "width": SMALL_WIDTH,
                "height": SMALL_HEIGHT,
                "title": {"text": clipped(name, 44), "fontSize": 12, "fontWeight": "normal", "offset": 14},
                "description": f"{split} {clipped(name)}: {describe(part)}",
            }
        )
        datasets |= drawing.datasets
    left_out = len(parts) - len(charts)
    words = f"{amounts.count(len(charts), 'chart')}, one for each {split}" + (f"; {left_out} more" if left_out else "")
    return {
        "$schema": theme.SCHEMA,
        "concat": charts,
        "columns": COLUMNS,
        "datasets": datasets,
        "resolve": {"scale": {"color": "shared", "shape": "shared", "size": "shared"}},
        "description": f"{words}. {describe(scene)}",
        "spacing": 28,
        "config": theme.CONFIG,
    }


def _parts(answer: Answer, scene: Scene) -> dict[str, Callable[[], Scene]]:
    """Return what makes the scene of each value, by name."""
    column = {"hardware": "hardware_label"}.get(answer.question.split, answer.question.split)
    if answer.question.split == "seed":
        return _by_seed(answer, scene)
    rows = scene.runs if len(scene.runs) else scene.means
    values = rows[column].map(lambda value: str(value) if isinstance(value, str) else UNKNOWN)

    def part(name: str) -> Scene:
        mine = values == name
        return scene.of(rows.loc[mine, "series"].unique(), runs=mine if len(scene.runs) else None)

    return {name: partial(part, name) for name in sorted(values.unique())}


def _by_seed(answer: Answer, scene: Scene) -> dict[str, Callable[[], Scene]]:
    """Return what makes the curves of each seed, on the axes of all seeds."""
    asked, rows = answer.question, answer.rows
    lines = ladders_of(rows, x=scene.payment.column)

    def part(seed: int) -> Scene:
        content = content_of(
            rows[rows["seed"] == seed],
            payment=scene.payment,
            baseline=scene.base,
            compare=asked.compare,
            ladders=lines.at_seed(seed),
        )
        assert content is not None  # the seed has runs
        single = scene_of(
            content,
            target=scene.target,
            log=scene.log,
            size=asked.size,
            deletion_of=asked.deletion_of,
            most=MAX_DRAWN // 4,  # a small chart is a quarter as wide
        )
        # Of one seed a mean is the run itself: only the run is drawn.
        return replace(single, x_range=scene.x_range, y_range=scene.y_range, errors=scene.errors)

    return {f"seed {seed}": partial(part, seed) for seed in sorted(scene.runs["seed"].unique())}


HEIGHT = 380
PAPER = 720  # width of an exported chart, in pixels


class Figure(widgets.VBox):
    """Chart of an answer, in which runs are chosen.

    `on_brush` is called with the brushed rectangle, `on_pick` with the directories of the clicked runs (where only
    means are drawn, with their keys), and `on_hover` with the recipe under the mouse, None for none.
    """

    def __init__(
        self,
        *,
        on_brush: Callable[[Brush], None],
        on_pick: Callable[[list[str]], None],
        on_hover: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._on_brush, self._on_pick, self._on_hover = on_brush, on_pick, on_hover
        self._chart = LiveChart(wait=150)
        self._chart.on_mark(hover=self._hovered, click=self._clicked)
        self._answer: Answer | None = None
        self._picked: list[str] = []
        self._brush: Brush = ()
        self._window: Brush = ()  # what is zoomed into, as a brush
        self._zoom = _button("Zoom in", "Enlarge what the brush selects")
        self._reset = _button("Reset zoom", "Show the whole chart")
        self._zoom.on_click(lambda _: self.zoom())
        self._reset.on_click(lambda _: self.reset())
        self._legend = widgets.HTML()
        buttons = widgets.HBox([self._zoom, self._reset]).add_class("x-zoom")
        super().__init__([buttons, self._chart, self._legend])
        self.add_class("x-chart")
        self._offer()

    def show(self, answer: Answer) -> None:
        """Draw an answer; nothing where it has no scene."""
        before, self._answer = self._answer, answer
        # Scenes are remembered, so the same scene is the same object.
        if before is not None and answer.scene is before.scene and answer.question.split == before.question.split:
            return  # drawing it again would take a second and lose the brush
        if before is None or _axes(before) != _axes(answer):
            self._window = ()
        self._brush = answer.question.brush
        self._draw()

    def forget(self) -> None:
        """Draw the next answer even if it is drawn already, because only the browser knows the brush."""
        self._answer = None
        self._chart.draw(None)

    def zoom(self) -> None:
        """Enlarge what the brush selects."""
        if self._brush:
            self._window, self._brush = self._brush, ()
            self._draw()

    def reset(self) -> None:
        """Show the whole chart again."""
        if self._window:
            self._window = ()
            self._brush = self._answer.question.brush if self._answer is not None else ()
            self._draw()

    def isolate(self, recipe: str | None) -> None:
        """Show the curve of one recipe, the others faint; all of them for None."""
        self._chart.tell(isolated=recipe or "")

    def pick(self, keys: Sequence[str]) -> None:
        """Ring these runs and dim all others; show all as they are without one."""
        self._picked = list(keys)
        self._chart.tell(picked=self._picked, chosen=self._recipes())

    def bands(self, which: Literal["selected", "all"]) -> None:
        """Show the bands of the baseline and the chosen recipes, or of all."""
        self._chart.tell(bands=which)

    def _draw(self) -> None:
        answer = self._answer
        self._offer()
        if answer is None or answer.scene is None:
            self._legend.value = ""
            return self._chart.draw(None)
        self._legend.value = element("p", legend_of_marks(answer.scene), class_="x-note")
        self._chart.draw(_spec(answer, window=self._window, brush=self._brush))
        if not answer.question.split:
            self._chart.selections.observe(self._brushed, BRUSH)
        return None

    def _offer(self) -> None:
        """Show the buttons that can do something now."""
        whole = self._answer is not None and not self._answer.question.split
        self._zoom.layout.display = "" if whole and self._brush else "none"
        self._reset.layout.display = "" if whole and self._window else "none"

    def _recipes(self) -> list[str]:
        """Return the recipes of the marks that are picked."""
        scene = self._answer.scene if self._answer is not None else None
        if scene is None or not self._picked:
            return []
        runs = scene.runs[scene.runs["directory"].isin(self._picked)] if len(scene.runs) else scene.runs
        places = scene.means["series"] + " at " + scene.means["ssr"].map("{:g}".format)
        return sorted({*runs["recipe"], *scene.means.loc[places.isin(self._picked), "recipe"]})

    def _brushed(self, change: Any) -> None:
        answer = self._answer
        if answer is None or answer.scene is None:
            return
        ranges = {name: [float(end) for end in limits] for name, limits in (change["new"].value or {}).items()}
        brush: Brush = ()
        if ranges:
            # A brush as wide or as tall as the chart lacks that range: it means all of it. Heights become qualities.
            scene = _windowed(answer.scene, self._window)
            x = sorted(ranges.get("x", scene.x_range))
            y = sorted(scene.heights.drawn(end) for end in ranges["y"]) if "y" in ranges else [*scene.y_range]
            brush = (*x, *y)
        # A chart that gets another width reports its brush again. To take that for a choice would undo a later one.
        if _alike(brush, self._brush):
            return
        self._brush = brush
        self._offer()
        self._on_brush(brush)

    def _hovered(self, mark: Mapping[str, str] | None, _: bool) -> None:
        self._on_hover((mark or {}).get("recipe"))

    def _clicked(self, mark: Mapping[str, str] | None, more: bool) -> None:
        key = (mark or {}).get("directory") or (mark or {}).get("place")
        others = [known for known in self._picked if known != key] if more else []
        added = [key] if key and not (more and key in self._picked) else []
        self.pick([*others, *added])
        self._on_pick(self._picked)


def chart_of(answer: Answer, *, width: int | str = "container") -> alt.LayerChart | alt.ConcatChart:
    """Return the chart of an answer that has a scene as an Altair chart."""
    kind = alt.ConcatChart if answer.question.split else alt.LayerChart
    return kind.from_dict(_spec(answer, width=width), validate=False)


def _spec(answer: Answer, *, width: int | str = "container", window: Brush = (), brush: Brush | None = None) -> Json:
    assert answer.scene is not None  # the callers check
    if answer.question.split:
        return multiples(answer)
    return tradeoff_spec(_windowed(answer.scene, window), width=width, height=HEIGHT, brush=brush)


def _windowed(scene: Scene, window: Brush) -> Scene:
    """Return the scene on the axes of what is zoomed into."""
    return replace(scene, x_range=window[:2], y_range=window[2:]) if len(window) == 4 else scene


def _alike(one: Brush, other: Brush) -> bool:
    """Return whether two brushes differ by no more than rounding, far less than a pixel."""
    if len(one) != len(other):
        return False
    widths = [end - start for start, end in zip(one[::2], one[1::2], strict=True) for _ in range(2)]
    return all(abs(a - b) <= ROUNDING * width for a, b, width in zip(one, other, widths, strict=True))


def _axes(answer: Answer) -> tuple[str, ...]:
    """Return what the axes mean: while it stays, so does the zoom."""
    asked = answer.question
    return asked.dataset, asked.sweep, asked.metric, asked.payment, asked.deletion_of


def _button(words: str, tooltip: str) -> widgets.Button:
    return widgets.Button(description=words, tooltip=tooltip, layout=widgets.Layout(width="auto"))

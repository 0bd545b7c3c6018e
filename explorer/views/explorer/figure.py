"""The tradeoff chart as a widget: one chart in which runs can be chosen, or small multiples on the same axes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import altair as alt
import ipywidgets as widgets
import pandas as pd
from altair.utils import schemapi

from explorer.page import amounts, theme
from explorer.page.document import clipped
from explorer.views.explorer.answer import Answer
from explorer.views.explorer.tradeoff import (
    BRUSH,
    PICKED,
    Brush,
    Scene,
    build_scene,
    describe,
    layers,
    look_of,
    tradeoff,
)
from explorer.views.notebook import Fit, empty_chart

COLUMNS = 2
SMALL_WIDTH, SMALL_HEIGHT = 228, 190  # pixels: two charts beside one another, beside the table
MOST = 12  # charts; of more values the first ones by name are drawn
UNKNOWN = "none"


def multiples(found: Answer) -> alt.ConcatChart:
    """The charts of an answer that has a scene, for the values of what its question splits by."""
    scene, split = found.scene, found.question.split
    assert scene is not None  # the caller looked
    parts = _parts(found, scene)
    drawn = dict(list(parts.items())[:MOST])
    look = look_of(scene)
    charts = [
        alt.LayerChart(layer=layers(part, look=look)).properties(
            width=SMALL_WIDTH,
            height=SMALL_HEIGHT,
            title=alt.TitleParams(clipped(name, 44), fontSize=12, fontWeight="normal", offset=14),
            description=f"{split} {clipped(name)}: {describe(part)}",
        )
        for name, part in drawn.items()
    ]
    left_out = len(parts) - len(drawn)
    words = f"{amounts.count(len(drawn), 'chart')}, one for each {split}" + (f"; {left_out} more" if left_out else "")
    whole = alt.concat(*charts, columns=COLUMNS).resolve_scale(color="shared", shape="shared", size="shared")
    return theme.styled(whole.properties(description=f"{words}. {describe(scene)}", spacing=28))


def _parts(found: Answer, scene: Scene) -> dict[str, Scene]:
    """The scene of each value, by name."""
    column = {"hardware": "hardware_label"}.get(found.question.split, found.question.split)
    if found.question.split == "seed":
        return {f"seed {seed}": _of_seed(found, scene, seed) for seed in sorted(scene.runs["seed"].unique())}
    rows = scene.runs if len(scene.runs) else scene.means
    values = rows[column].map(lambda value: str(value) if isinstance(value, str) else UNKNOWN)
    return {
        name: scene.of(sorted(set(rows.loc[values == name, "series"])), runs=_mask(scene, values == name))
        for name in sorted(set(values))
    }


def _mask(scene: Scene, rows: pd.Series) -> pd.Series | None:
    return rows if len(scene.runs) else None


def _of_seed(found: Answer, scene: Scene, seed: int) -> Scene:
    """The curves of one seed alone, on the axes of all."""
    asked, rows = found.question, found.rows
    alone = build_scene(
        rows[rows["seed"] == seed],
        payment=scene.payment,
        baseline=scene.base,
        target=scene.target,
        log=scene.log,
        compare=asked.compare,
        size=asked.size,
        deletion_of=asked.deletion_of,
    )
    assert alone is not None  # the seed has runs
    return replace(alone, x_range=scene.x_range, y_range=scene.y_range)


HEIGHT = 380
PAPER = 720  # width of an exported chart, in pixels


class Figure(widgets.VBox):
    """`on_brush` is told what was brushed, `on_pick` which marks were clicked."""

    def __init__(self, *, on_brush: Callable[[Brush], None], on_pick: Callable[[list[str]], None]) -> None:
        self._on_brush, self._on_pick = on_brush, on_pick
        self._chart = empty_chart(debounce_wait=150, max_wait=False)
        self._found: Answer | None = None
        super().__init__([Fit().add_class("x-fit"), self._chart])
        self.add_class("x-chart")

    def show(self, found: Answer) -> None:
        """Draw an answer; nothing where it has no scene."""
        before, self._found = self._found, found
        if before is not None and found.scene is before.scene and found.question.split == before.question.split:
            return  # it is drawn, and drawing it anew would take a second and the brush
        if found.scene is None:
            self._chart.chart = None  # pyright: ignore[reportAttributeAccessIssue]
            return
        # Tests hold charts against the schema of Vega-Lite; on the way to the page that takes longer than all else.
        with schemapi.debug_mode(False):
            drawn = chart_of(found)
            object.__setattr__(drawn, "to_dict", partial(drawn.to_dict, validate=False))
            self._chart.chart = drawn  # pyright: ignore[reportAttributeAccessIssue]
        if not found.question.split:
            self._chart.selections.observe(self._brushed, BRUSH)
            self._chart.selections.observe(self._picked, PICKED)

    def forget(self) -> None:
        """Draw the next answer even if it is drawn already: what was brushed is in the browser alone."""
        self._found = None
        self._chart.chart = None  # pyright: ignore[reportAttributeAccessIssue]

    def _brushed(self, change: Any) -> None:
        found = self._found
        if found is None or found.scene is None:
            return
        ranges = {name: [float(end) for end in limits] for name, limits in (change["new"].value or {}).items()}
        if not ranges:
            return self._on_brush(())
        x = sorted(ranges.get("x", found.scene.x_range))
        heights = found.scene.heights
        y = sorted(heights.drawn(end) for end in ranges["y"]) if "y" in ranges else [*found.scene.y_range]
        return self._on_brush((*x, *y))

    def _picked(self, change: Any) -> None:
        picked = change["new"].value or []
        self._on_pick([str(value) for mark in picked for name, value in mark.items() if name in ("directory", "place")])


def chart_of(found: Answer, *, width: int | str = "container") -> alt.LayerChart | alt.ConcatChart:
    """The chart of an answer that has a scene. Only one that is as wide as its place can be brushed."""
    assert found.scene is not None  # the caller looked
    if found.question.split:
        return multiples(found)
    return tradeoff(
        found.scene, width=width, height=HEIGHT, brush=found.question.brush if width == "container" else None
    )

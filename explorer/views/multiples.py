"""Small multiples: the tradeoff chart once for each model, hardware, policy or seed, all on the same axes."""

from dataclasses import replace

import altair as alt
import pandas as pd

from explorer.views import text, theme
from explorer.views.answer import Answer
from explorer.views.scene import Scene, build_scene
from explorer.views.tradeoff import describe, layers, look_of

COLUMNS = 2
WIDTH, HEIGHT = 228, 190  # pixels: two charts beside one another, beside the table
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
            width=WIDTH,
            height=HEIGHT,
            title=alt.TitleParams(text.clipped(name, 44), fontSize=12, fontWeight="normal", offset=14),
            description=f"{split} {text.clipped(name)}: {describe(part)}",
        )
        for name, part in drawn.items()
    ]
    left_out = len(parts) - len(drawn)
    words = f"{text.count(len(drawn), 'chart')}, one for each {split}" + (f"; {left_out} more" if left_out else "")
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

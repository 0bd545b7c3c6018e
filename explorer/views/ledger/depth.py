"""Depth profile: numbers on the outputs of every layer on the probes, each time they were measured.

"Told apart" is the balanced accuracy of a linear probe: how well a linear rule recognises the provenance classes in
the layer. chi, less its value by chance, compares the directions that the classes use; classes with the same
directions have chi 0 and may still be told apart. Entropy and effective rank measure how many directions the outputs
use: of the centred outputs where these are on record, since a common mean hides the variation around it. Inputs can be
told apart without any training on them, so the untrained model is drawn too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np
import pandas as pd

from explorer.audit.history import DepthProfile
from explorer.page import amounts, theme
from explorer.provenance.regions import depths_of
from explorer.store.spool_reader import ALL

MAX_LINES = 6
SIGNIFICANT = 0.05
COLOUR = theme.PALETTE[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """Number of a profile: its name on a button, and the title of its axis."""

    label: str
    title: str


MEASURES = {
    "told_apart": Measure(label="Classes told apart", title="Balanced accuracy of a linear probe"),
    "chi": Measure(label="Directions differ (chi)", title="chi less its mean under permuted labels (nats)"),
    "entropy": Measure(label="Entropy", title="Entropy S of the outputs (nats)"),
    "effective_rank": Measure(label="Effective rank", title="Effective rank exp S"),
}
P_VALUES = {"chi": "p_value", "told_apart": "told_p_value"}  # the column with the p-value of a measure
_SPECTRA = ("entropy", "effective_rank")

CAPTION = (
    "A line for each measurement of the probes; the untrained model is dashed. Told apart: the share of held-out "
    "probes that a linear rule assigns to the right class, every class weighted equally. Chi compares the directions "
    "that the classes use, less the mean over permuted labels: 0 means shared directions, not that the classes cannot"
    " be told apart. A filled point has p below 0.05. Both show that inputs of the classes differ in this layer, not "
    "that training on them is the cause."
)


def depth_profile(
    profiles: Sequence[DepthProfile],
    *,
    measure: str,
    width: int | str = "container",
    span: tuple[float, float] | None = None,
) -> alt.LayerChart:
    """Draw one of `MEASURES` over depth, for profiles with something to draw (`is_drawn`).

    `span` is the range of the y axis, for charts side by side; by default it fits the numbers.
    """
    # Time is shown by opacity, the latest measurement strongest; the untrained model is dashed in the colour of text.
    frame = profile_frame(profiles)
    steps = shown_steps(frame)
    shown = frame[frame["step"].isin(steps)].assign(value=frame[measure]).dropna(subset=["value"])
    labels = [_label(step) for step in steps]
    domain = alt.Scale(domain=labels, range=[theme.TEXT if step == 0 else COLOUR for step in steps])
    legend = alt.Legend(title=None, orient="top", symbolType="stroke", columns=MAX_LINES, offset=34)
    later = [step for step in steps if step]
    strengths = [0.8 if step == 0 else 0.25 + 0.75 * (later.index(step) + 1) / len(later) for step in steps]
    x = alt.X(
        "depth:Q",
        title="Depth, from input to output",
        scale=alt.Scale(domain=[0, 1], padding=6),
        axis=alt.Axis(tickCount=5, format=".2~f"),
    )
    fits = alt.Scale(zero=measure == "chi") if span is None else alt.Scale(domain=span, zero=False)
    title = title_of(measure, frame)
    y = alt.Y("value:Q", title=title, scale=fits)
    colour = alt.Color("label:N", scale=domain, sort=labels, legend=legend)
    opacity = alt.Opacity(
        "label:N", scale=alt.Scale(type="ordinal", domain=labels, range=strengths), sort=labels, legend=legend
    )
    dash = alt.StrokeDash(
        "label:N",
        scale=alt.Scale(domain=labels, range=[[5, 4] if step == 0 else [1, 0] for step in steps]),
        sort=labels,
        legend=legend,
    )
    tooltip = [
        alt.Tooltip("layer:N", title="Layer"),
        alt.Tooltip("label:N", title="Measured"),
        alt.Tooltip("value:Q", title=title, format=".4~g"),
        alt.Tooltip("examples:Q", title="Probes", format=","),
    ]
    if measure == "told_apart":
        tooltip.append(alt.Tooltip("told:N", title="95% interval, and chance"))
    if measure in P_VALUES:
        tooltip.append(alt.Tooltip(f"{P_VALUES[measure]}:Q", title="p of the permutations", format=".3~g"))
    # A filled point is significant. Measures without a p-value have only filled points.
    certain = shown[P_VALUES[measure]] < SIGNIFICANT if measure in P_VALUES else shown["value"].notna()

    def points(rows: pd.DataFrame, name: str, *, filled: bool) -> alt.Chart:
        chart = alt.Chart(rows, name=name).mark_point(size=34, strokeWidth=1.5, filled=filled)
        return chart.encode(x=x, y=y, color=colour, opacity=opacity, tooltip=tooltip)

    lines = alt.Chart(shown, name="profiles").mark_line(strokeWidth=2)
    layers = [lines.encode(x=x, y=y, color=colour, opacity=opacity, strokeDash=dash)]
    layers += [points(shown[certain], "filled", filled=True)] if certain.any() else []
    layers += [points(shown[~certain], "hollow", filled=False)] if not certain.all() else []
    if measure == "told_apart" and not shown.empty:
        chance = alt.Chart(pd.DataFrame({"chance": [shown["told_chance"].max()]}), name="chance")
        layers.append(chance.mark_rule(strokeDash=[2, 3], color=theme.TEXT, opacity=0.6).encode(y="chance:Q"))
    words = f"{title} by depth, measured {amounts.count(len(steps), 'time')}."
    chart = alt.LayerChart(layer=layers).properties(width=width, height=250, description=words)
    return theme.styled(chart.properties(padding={"top": 18, "left": 2, "right": 12, "bottom": 4}))


def is_drawn(profiles: Sequence[DepthProfile], measure: str = "entropy") -> bool:
    """Return whether there is a profile over all classes to draw. A sealed run may have only those of single classes,
    and profiles of earlier versions have no linear probe."""
    every = [profile for profile in profiles if profile.class_ == ALL]
    return any(profile.told is not None for profile in every) if measure == "told_apart" else bool(every)


def title_of(measure: str, frame: pd.DataFrame) -> str:
    """Return the title of a measure's axis; for entropy and rank it tells whether the outputs are centred."""
    title = MEASURES[measure].title
    if measure not in _SPECTRA or frame.empty:
        return title
    return f"{title}, {'centred' if frame['centred'].all() else 'not centred'}"


def profile_frame(profiles: Sequence[DepthProfile]) -> pd.DataFrame:
    """Return the rows over all classes: step, layer, depth, examples, entropy, effective_rank, centred (true for all
    rows or for none: both are of the centred outputs), chi (less chance), p_value, told_apart, told_chance,
    told_p_value, told (in words)."""
    # Centred and uncentred numbers are not comparable, so one row without the centred ones makes all rows uncentred.
    rows = [profile for profile in profiles if profile.class_ == ALL]
    centred = all(profile.entropy_centred is not None for profile in rows)
    depths = {layer.name: layer.depth for layer in depths_of(list(dict.fromkeys(profile.layer for profile in rows)))}
    return pd.DataFrame(
        [
            {
                "step": profile.step,
                "layer": profile.layer,
                "depth": depths[profile.layer],
                "label": _label(profile.step),
                "examples": profile.examples,
                "entropy": _number(profile.entropy_centred if centred else profile.entropy),
                "effective_rank": _number(profile.effective_rank_centred if centred else profile.effective_rank),
                "centred": centred,
                "chi": _number(profile.chi) - _number(profile.chi_null),
                "p_value": _number(profile.p_value),
                "told_apart": _number(profile.told_apart),
                "told_chance": _number(profile.told_chance),
                "told_p_value": _number(profile.told_p_value),
                "told": amounts.MISSING if profile.told is None else profile.told.words,
            }
            for profile in rows
        ]
    )


def shown_steps(frame: pd.DataFrame) -> list[int]:
    """Return at most `MAX_LINES` of the measured steps, the first and the last among them."""
    steps = sorted(frame["step"].unique().tolist())
    places = np.linspace(0, len(steps) - 1, min(MAX_LINES, len(steps))).round().astype(int)
    return [steps[place] for place in dict.fromkeys(places.tolist())]


def _label(step: int) -> str:
    return "untrained" if step == 0 else f"step {step:,}"


def _number(value: float | None) -> float:
    return np.nan if value is None else value

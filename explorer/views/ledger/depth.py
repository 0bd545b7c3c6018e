"""The depth profile: what the outputs of every layer on the probes look like, each time it was measured.

"Told apart" is the balanced accuracy of a linear probe: which provenance classes a linear rule recognises in the
layer. chi, less what chance alone gives, compares the directions that the classes use; classes with the same
directions have chi 0 and may still be told apart at once. Entropy and effective rank say how many directions the
outputs use: of the outputs less their mean where that is on record, since a mean that all share hides what varies
around it. That inputs can be told apart does not show that training on them did it, which is why the untrained model
is drawn too.
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
    """One of the numbers of a profile: its name on a button, and what the axis says."""

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
    "A line for each time the probes were measured; dashed is the untrained model. Told apart: how many of the probes "
    "a linear rule gives to the right class, every class weighed alike, on probes that it was not fitted to. Chi "
    "compares the directions that the classes use, with the mean over permuted labels taken off: 0 means that the "
    "directions are shared, not that the classes cannot be told apart. A filled point has p below 0.05. Both say that "
    "inputs of the classes differ in this layer, not that training on them is why."
)


def depth_profile(
    profiles: Sequence[DepthProfile],
    *,
    measure: str,
    width: int | str = "container",
    span: tuple[float, float] | None = None,
) -> alt.LayerChart:
    """Draw one of `MEASURES` over depth. There is something to draw (`is_drawn`). `span` is what the axis of the
    measure goes over, for charts that stand side by side; without one it fits the numbers."""
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
    """Whether there is a profile over all classes, which is what is drawn. Where it is sealed there can be others.
    Profiles of earlier versions have no probe to draw."""
    every = [each for each in profiles if each.class_ == ALL]
    return any(each.told is not None for each in every) if measure == "told_apart" else bool(every)


def title_of(measure: str, frame: pd.DataFrame) -> str:
    """What the axis of a measure says; of a spectrum also whether the outputs are centred."""
    title = MEASURES[measure].title
    if measure not in _SPECTRA or frame.empty:
        return title
    return f"{title}, {'less their mean' if frame['centred'].all() else 'as they are, not centred'}"


def profile_frame(profiles: Sequence[DepthProfile]) -> pd.DataFrame:
    """The rows over all classes: step, layer, depth, examples, entropy, effective_rank, centred (whether these two are
    of the outputs less their mean: of all rows or of none), chi (less chance), p_value, told_apart, told_chance,
    told_p_value, told (in words)."""
    rows = [each for each in profiles if each.class_ == ALL]
    centred = all(each.entropy_centred is not None for each in rows)
    depths = {layer.name: layer.depth for layer in depths_of(list(dict.fromkeys(each.layer for each in rows)))}
    return pd.DataFrame(
        [
            {
                "step": each.step,
                "layer": each.layer,
                "depth": depths[each.layer],
                "label": _label(each.step),
                "examples": each.examples,
                "entropy": _number(each.entropy_centred if centred else each.entropy),
                "effective_rank": _number(each.effective_rank_centred if centred else each.effective_rank),
                "centred": centred,
                "chi": _number(each.chi) - _number(each.chi_null),
                "p_value": _number(each.p_value),
                "told_apart": _number(each.told_apart),
                "told_chance": _number(each.told_chance),
                "told_p_value": _number(each.told_p_value),
                "told": amounts.MISSING if each.told is None else each.told.words,
            }
            for each in rows
        ]
    )


def shown_steps(frame: pd.DataFrame) -> list[int]:
    """At most `MAX_LINES` of the steps at which it was measured, the first and the last among them."""
    steps = sorted(frame["step"].unique().tolist())
    places = np.linspace(0, len(steps) - 1, min(MAX_LINES, len(steps))).round().astype(int)
    return [steps[place] for place in dict.fromkeys(places.tolist())]


def _label(step: int) -> str:
    return "untrained" if step == 0 else f"step {step:,}"


def _number(value: float | None) -> float:
    return np.nan if value is None else value

"""Section on a search: how its answer came about, from `search.json`. What it shows was chosen, and is no claim."""

from collections.abc import Callable

import altair as alt
import ipywidgets as widgets
import pandas as pd

from explorer import run_files
from explorer.analysis.equal_quality import Call
from explorer.errors import ExplorerError
from explorer.page import amounts, theme
from explorer.page.document import Paragraph, clipped
from explorer.page.html import fragment
from explorer.search.search_answer import FILE, Answer
from explorer.views.explorer.answer import Answer as Shown
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.sections import Section
from explorer.views.live_chart import LiveChart

ROW = 26  # pixels of a method


class SearchSection(Section):
    """The search that chose the runs of a sweep."""

    key, title = "search", "Search"

    def __init__(self, ask: Callable[..., None]) -> None:
        self._head, self._foot = widgets.HTML(), widgets.HTML()
        self.spent, self.effects = LiveChart(), LiveChart()
        super().__init__(ask, [self._head, self.spent, self.effects, self._foot])
        self.add_class("x-chart").add_class("x-rule")

    def show(self, snapshot: Snapshot, answer: Shown) -> None:
        """Show the search of the sweep that an answer is about."""
        path = snapshot.runs / answer.question.sweep / FILE
        if not path.exists():
            raise ExplorerError(
                "No search chose the runs of this sweep. To try many combinations of methods for little, write"
                " `search: {of: [...], spend: 3h, ladder: [0.125, 0.5, 1.0]}` into a specification, and run"
                " `explorer search SPEC`."
            )
        read = run_files.read(Answer, path)
        self._head.value = fragment(Paragraph(heading(read)))
        self.spent.chart = spent_chart(read)
        self.effects.chart = effects_chart(read)
        self.effects.layout.display = "" if read.effects else "none"
        self._foot.value = fragment(Paragraph(caption(read), "note"))


def heading(answer: Answer) -> str:
    """Return what a search took and what it put in front."""
    ahead = answer.contenders
    front = "no recipe is expected to reach the target sooner than the baseline"
    if ahead:
        regret = "" if ahead[0].regret is None else f", expected regret {ahead[0].regret:.1%}"
        front = f"{clipped(ahead[0].recipe)} is in front ({amounts.seconds(ahead[0].seconds)} to the target{regret})"
    took = f"{amounts.count(answer.runs, 'run')}, {amounts.seconds(answer.spent)} of training"
    return f"After {took} of {amounts.seconds(answer.spend)}: {front}. {str(Call.SEARCHED).capitalize()}."


def caption(answer: Answer) -> str:
    """Return how to read both pictures."""
    return (
        "Above: the recipe in front after so much training, at its time to the target by all runs; a step is a change"
        f" of the recipe in front. Searcher: {answer.searcher}. Below: effects of methods on {answer.metric} at the"
        " full budget, by a ridge fit to the runs that were chosen, with 95% intervals; interactions count as noise."
    )


def spent_chart(answer: Answer, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the time to the target of the recipe in front, over the training that was spent."""
    rows = [
        {
            "spent": moment.spent,
            "seconds": moment.later,
            "recipe": clipped(moment.recipe),
            "regret": "" if moment.regret is None else f"{moment.regret:.1%}",
            "runs": moment.runs,
        }
        for moment in answer.history
        if moment.later is not None
    ]
    frame = pd.DataFrame(rows, columns=["spent", "seconds", "recipe", "regret", "runs"])
    base = alt.Chart(frame).encode(
        x=alt.X("spent:Q", title="training spent, s", scale=alt.Scale(zero=False)),
        y=alt.Y("seconds:Q", title="time to target, s", scale=alt.Scale(zero=True)),
        tooltip=[
            alt.Tooltip("recipe:N", title="in front"),
            alt.Tooltip("regret:N", title="expected regret then"),
            alt.Tooltip("runs:Q"),
        ],
    )
    layers: list[alt.Chart] = [
        base.mark_line(interpolate="step-after", color=theme.PALETTE[0]),
        base.mark_point(filled=True, color=theme.PALETTE[0], size=36),
    ]
    if answer.baseline_seconds is not None:
        rule = pd.DataFrame({"seconds": [answer.baseline_seconds], "words": ["baseline"]})
        layers.append(
            alt.Chart(rule).mark_rule(strokeDash=[4, 3], color=theme.TEXT).encode(y="seconds:Q", tooltip="words:N")
        )
    first = f"Time to the target of the recipe in front, over training spent: {len(rows)} moments."
    return theme.styled(alt.LayerChart(layer=layers).properties(width=width, height=180, description=first))


def effects_chart(answer: Answer, *, width: int | str = "container") -> alt.LayerChart:
    """Draw the effect of each method on quality with its interval."""
    frame = pd.DataFrame(
        [
            {
                "method": effect.method,
                "quality": effect.quality,
                "low": effect.low,
                "high": effect.high,
                "time": f"{effect.time:.2f}x",
                "runs": effect.runs,
            }
            for effect in answer.effects
        ],
        columns=["method", "quality", "low", "high", "time", "runs"],
    )
    y = alt.Y("method:N", title=None, sort=alt.SortField("quality", order="descending"))
    base = alt.Chart(frame).encode(
        y=y,
        tooltip=["method:N", "quality:Q", "low:Q", "high:Q", alt.Tooltip("time:N", title="time of a run"), "runs:Q"],
    )
    title = f"effect on {answer.metric}"
    zero = alt.Chart(pd.DataFrame({"at": [0.0]})).mark_rule(strokeDash=[4, 3], color=theme.TEXT).encode(x="at:Q")
    bars = base.mark_rule(strokeWidth=2, color=theme.PALETTE[0]).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    points = base.mark_point(filled=True, size=60, color=theme.PALETTE[0]).encode(x=alt.X("quality:Q", title=title))
    spoken = " ".join(f"{e.method}: {e.quality:+.3g} ({e.low:+.3g} to {e.high:+.3g})." for e in answer.effects)
    chart = alt.LayerChart(layer=[zero, bars, points])
    return theme.styled(chart.properties(width=width, height=ROW * max(1, len(frame)), description=spoken))

"""Section on learning curves: what runs measured while they trained, by run or as means over seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as widgets
import pandas as pd

from explorer.analysis.ladders import SEARCHED, searched
from explorer.analysis.smoothing import SMOOTH
from explorer.errors import ExplorerError
from explorer.page import amounts
from explorer.page.document import Block, Paragraph, isolated, sentence
from explorer.page.html import fragment
from explorer.run_files import Metric, metric_of
from explorer.store import queries
from explorer.store.examine import State
from explorer.store.learning_curves import MOST_RUNS, ROWS, growing, is_training, learning_curves, recorded_metrics
from explorer.views.explorer.answer import Answer, picked
from explorer.views.explorer.curves_chart import FEW, LOSS, OVER, curves_spec, metric_named, with_others
from explorer.views.explorer.payments import PAYMENTS
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.explorer.tabs.sections import Section
from explorer.views.live_chart import LiveChart

SCHEDULE = "lr"
SMOOTHING = (0.0, SMOOTH, 0.05, 0.1, 0.2)  # shares of a run
STOPPED = (State.FAILED, State.INTERRUPTED, "diverged")


class CurvesSection(Section):
    """Learning curves of the runs that are picked, or of all recipes at their full budget."""

    key, title = "curves", "Curves"
    across = True

    def __init__(self, ask: Callable[..., None]) -> None:
        self.metric = widgets.Dropdown(description="Metric")
        self.over = widgets.ToggleButtons(
            description="Over", options=[(PAYMENTS[key].label, key) for key in OVER], tooltips=list(OVER)
        )
        self.runs = widgets.ToggleButtons(description="Lines", options=[("Means of seeds", False), ("Runs", True)])
        self.smooth = widgets.Dropdown(
            description="Smoothing",
            options=[(f"{share:.0%} of a run" if share else "none", share) for share in SMOOTHING],
        )
        self.scale = widgets.ToggleButtons(description="Y axis", options=[("Linear", False), ("Log", True)])
        self._words, self._chart = widgets.HTML(), LiveChart()
        self._shown: tuple[Any, ...] = ()
        fields = [self.metric, self.over, self.runs, self.smooth, self.scale]
        for field in fields:
            field.observe(self._changed, "value")
        chart = widgets.VBox([self._chart]).add_class("x-chart").add_class("x-curves")
        super().__init__(ask, [widgets.Box(fields).add_class("x-controls"), self._words, chart])

    def show(self, snapshot: Snapshot, answer: Answer) -> None:
        """Show the curves of the picked runs, or of all recipes at their full budget."""
        asked = answer.question
        sweeps = tuple(dict.fromkeys(map(str, answer.rows["sweep"]))) if asked.across else (asked.sweep,)
        names = snapshot.remember(("recorded", sweeps), lambda: _recorded(snapshot, sweeps))
        # Runs that are training have no place in a comparison across sweeps yet.
        now = not asked.across and is_training(snapshot.runs, asked.sweep)
        if not names and not now:
            raise ExplorerError("These runs recorded nothing while they trained, so there is no curve.")
        names = names or [LOSS]
        metric = asked.curve if asked.curve in names else LOSS if LOSS in names else names[0]
        over = asked.curve_x if asked.curve_x in OVER else "steps"
        self._set(names, metric, over, asked)
        kind = _declared(snapshot, sweeps)
        chosen = chosen_runs(snapshot, answer)
        frame = snapshot.remember(
            ("curves", asked.sweep, metric, over == "time", chosen.directories),
            lambda: learning_curves(
                snapshot.database,
                metric,
                sweep=None if asked.across else asked.sweep,
                directories=chosen.directories,
                points=_points(len(chosen.directories)),
                timed=over == "time",
            ),
        )
        if asked.across:  # recipes of the same name are not one curve
            frame = frame.assign(recipe=frame["directory"].map(chosen.names))
        if now and not chosen.picked:
            frame = _with_growing(frame, growing(snapshot.runs, asked.sweep, metric), chosen)
        self._draw(frame, metric_named(metric, kind, of=frame), over, answer, chosen)

    def _draw(self, frame: pd.DataFrame, metric: Metric, over: str, answer: Answer, chosen: "Chosen") -> None:
        asked = answer.question
        smooth = asked.curve_smooth if _noisy(frame, metric) else 0.0
        drawn = frame[frame[OVER[over]].notna()]
        self._words.value = fragment(*_words(frame, drawn, metric, over, smooth, answer, chosen))
        # A chart that is the same is not drawn again: that would take its tooltip and the isolated curve away.
        state = (
            metric,
            over,
            asked.curve_runs,
            smooth,
            asked.curve_log,
            chosen,
            tuple(drawn["step"].tail(1)),
            len(drawn),
        )
        if state == self._shown:
            return
        self._shown = state
        if drawn.empty:
            self._chart.draw(None)
            return
        groups = chosen.groups
        drawn = drawn.assign(
            group=[
                groups.get(directory) or answer.look.groups.get(recipe, recipe)
                for directory, recipe in zip(drawn["directory"].tolist(), drawn["recipe"].tolist(), strict=True)
            ]
        )
        chart = curves_spec(
            drawn,
            metric=metric,
            over=over,
            mean=not asked.curve_runs,
            smooth=smooth,
            log=asked.curve_log,
            look=with_others(answer.look, drawn["group"].unique()),
        )
        self._chart.draw(chart)

    def _set(self, names: list[str], metric: str, over: str, asked: Question) -> None:
        with self.quiet:
            if tuple(self.metric.options) != tuple(names):
                self.metric.options = tuple(names)
            self.metric.value, self.over.value, self.runs.value = metric, over, asked.curve_runs
            self.scale.value = asked.curve_log
            # A token can name any share: the nearest one is shown.
            self.smooth.value = min(SMOOTHING, key=lambda share: abs(share - asked.curve_smooth))

    def _changed(self, _: Any) -> None:
        if not self.quiet:
            self.ask(
                curve=str(self.metric.value),
                curve_x=str(self.over.value),
                curve_runs=bool(self.runs.value),
                curve_smooth=float(self.smooth.value or 0.0),
                curve_log=bool(self.scale.value),
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The runs whose curves are shown: by their directories, with the group in the chart above of those it has."""

    directories: tuple[str, ...]
    picked: bool  # by brush or click; else all recipes at their full budget
    every: int  # how many there are; only `MOST_RUNS` are drawn
    recipes: frozenset[str]
    groups: dict[str, str]
    names: dict[str, str]  # of their recipes in the chart above, by directory

    def __hash__(self) -> int:
        return hash((self.directories, self.picked))


def chosen_runs(snapshot: Snapshot, answer: Answer) -> Chosen:
    """Return the runs that are picked in the chart; without a pick all at the full budget, stopped ones among them."""
    asked, rows = answer.question, answer.rows
    if answer.scene is not None and len(answer.scene.runs):
        rows = answer.scene.runs
    mine = picked(answer)
    is_picked = len(mine) > 0
    stopped: tuple[str, ...] = ()
    if not is_picked:
        full = float(rows["ssr"].max())
        mine = rows[rows["ssr"] == full]
        stopped = _stopped(snapshot, asked.sweep, frozenset(map(str, rows["recipe"].unique())), full)
    columns = ["directory", "recipe", "ssr", *(["group"] if "group" in mine else [])]
    mine = mine[columns].drop_duplicates("directory")
    # Of many runs the first seeds of every recipe are drawn, so that none is missing.
    if len(mine) > MOST_RUNS:
        mine = mine.loc[mine.groupby("recipe").cumcount().sort_values(kind="stable").index[:MOST_RUNS]]
    directories = (*map(str, mine["directory"].tolist()), *stopped)
    groups = dict(zip(mine["directory"].tolist(), mine["group"].tolist(), strict=True)) if "group" in mine else {}
    return Chosen(
        directories=directories[:MOST_RUNS],
        picked=is_picked,
        every=len(directories),
        recipes=frozenset(map(str, rows["recipe"].unique())),
        groups=groups,
        names=dict(zip(map(str, mine["directory"].tolist()), map(str, mine["recipe"].tolist()), strict=True)),
    )


def _stopped(snapshot: Snapshot, sweep: str, recipes: frozenset[str], ssr: float) -> tuple[str, ...]:
    """Return the runs of these recipes at a budget that did not finish, and are not training."""
    marks = ", ".join("?" for _ in STOPPED)
    question = queries.Question(
        sql=f"SELECT directory, recipe FROM runs WHERE sweep = ? AND ssr = ? AND NOT superseded AND state IN ({marks})",
        parameters=(sweep, ssr, *map(str, STOPPED)),
    )
    rows = snapshot.remember(("stopped", sweep, ssr), lambda: queries.select(snapshot.database, question).rows)
    return tuple(directory for directory, recipe in rows if recipe in recipes)


def _with_growing(frame: pd.DataFrame, live: pd.DataFrame, chosen: Chosen) -> pd.DataFrame:
    """Return the curves with those of runs that are training, in the place of what the store has of them."""
    live = live[live["recipe"].isin(chosen.recipes)] if chosen.recipes else live
    kept = frame[~frame["directory"].isin(live["directory"])]
    return pd.concat([kept, live], ignore_index=True) if len(live) else frame


def _recorded(snapshot: Snapshot, sweeps: Sequence[str]) -> list[str]:
    """Return the names of what the runs of some sweeps measured while they trained, in order."""
    return sorted({name for sweep in sweeps for name in recorded_metrics(snapshot.database, sweep)})


def _declared(snapshot: Snapshot, sweeps: Sequence[str]) -> dict[str, Metric]:
    """Return the metrics that the sweeps' own tasks declare, by name."""
    facets = snapshot.facets[snapshot.facets["sweep"].isin(sweeps)].drop_duplicates("metric")
    return {str(facet["metric"]): metric_of(facet) for facet in facets.to_dict("records")}


def _points(runs: int) -> int:
    return max(1, min(400, ROWS // max(1, runs)))


def _noisy(frame: pd.DataFrame, metric: Metric) -> bool:
    """Return whether curves may have noise that hides their course: a schedule has none, and a few points neither."""
    return metric.name != SCHEDULE and len(frame) > 0 and len(frame) > FEW * frame["directory"].nunique()


def _words(
    frame: pd.DataFrame,
    drawn: pd.DataFrame,
    metric: Metric,
    over: str,
    smooth: float,
    answer: Answer,
    chosen: Chosen,
) -> list[Block]:
    """Return the sentences on what is shown and on what is not."""
    runs = amounts.count(drawn["directory"].nunique(), "run")
    whose = "picked above" if chosen.picked else "of all recipes shown, at their full budget"
    words = [f"{runs} {whose}"]
    if not answer.question.curve_runs and (drawn.groupby(["recipe", "ssr"])["directory"].nunique() > 1).any():
        bands = SEARCHED if searched(drawn).any() else "bands their 95% t intervals at each place"
        words.append(f"lines are means over seeds, {bands}")
    if smooth:
        raw = ", the measurements faint behind" if answer.question.curve_runs else ""
        words.append(f"smoothed over {smooth:.0%} of a run{raw}")
    training = drawn.loc[drawn["state"] == State.RUNNING, "directory"].nunique()
    if training:
        words.append(f"{amounts.count(training, 'run')} training now")
    stopped = drawn.loc[~drawn["state"].isin([State.FINISHED, State.RUNNING]), "directory"].nunique()
    if stopped:
        words.append(f"{amounts.count(stopped, 'run')} did not finish: a cross where the measurements end")
    blocks: list[Block] = [Paragraph(sentence("; ".join(words), names=[isolated(metric.name)]), "note")]
    if drawn.empty and len(frame):
        blocks = [Paragraph("The time of these runs is unknown: choose steps or examples.", "empty")]
    elif drawn.empty:
        blocks = [Paragraph(f"None of these runs recorded {isolated(metric.name)} while it trained.", "empty")]
    elif drawn["directory"].is_unique:
        once = "Measured once a run, at its end. For a curve, add evaluations: 10 to the train: of the specification."
        blocks.append(Paragraph(once, "note"))
    if len(drawn) and (missing := frame["directory"].nunique() - drawn["directory"].nunique()) > 0:
        blocks.append(Paragraph(f"{amounts.count(missing, 'run')} without a known time are left out.", "note"))
    if chosen.every > len(chosen.directories):
        blocks.append(
            Paragraph(
                f"{chosen.every:,} runs: the first {len(chosen.directories):,} seeds and recipes are drawn.", "note"
            )
        )
    return blocks

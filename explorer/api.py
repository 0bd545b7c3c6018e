"""Results in anybody's notebook: `explorer.load`, and what it returns.

    import explorer

    runs = explorer.load("runs")
    runs.frame                                    # a DataFrame, a row for each finished run
    runs.sweep("digits").compare(target=0.97)     # a table with intervals; its `.frame` is a DataFrame
    runs.chart().save("tradeoff.html")            # an Altair chart, in a page that works offline
    runs.curves("train_loss")                     # learning curves, as an Altair chart
    runs.ask(quality=0.97)                        # the cheapest recipe under limits, with evidence
    runs.explore()                                # the explorer itself, as a widget

`load` takes a directory of runs, or a file that `explorer export` wrote. What needs the runs themselves, such as
learning curves, works for a directory only. Errors are `explorer.errors.ExplorerError`.
"""

import io
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from explorer.analysis import ask as asking
from explorer.analysis import budget_law
from explorer.analysis.comparison import known
from explorer.analysis.equal_budget import EqualBudget, equal_budget
from explorer.analysis.limits import Limits, read_deletable
from explorer.analysis.sentences import busy_notes, call_words, summary, time_notes
from explorer.analysis.verdict import Verdict, sweep_verdicts
from explorer.errors import AnalysisError, StoreError, unknown
from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Table, sentence
from explorer.page.html import element, fragment, style
from explorer.page.pictures import VEGA_LITE, drawable
from explorer.page.terminal import show
from explorer.run_files import metric_of
from explorer.store import frames
from explorer.store.learning_curves import learning_curves
from explorer.store.published import database
from explorer.store.upkeep import bring_up
from explorer.views.explore import Explorer, explore
from explorer.views.explorer.checked_view import view_by_fields
from explorer.views.explorer.comparison_tables import comparison_table
from explorer.views.explorer.curves_chart import OVER, curves_chart, metric_named
from explorer.views.explorer.payments import PAYMENTS, Payment
from explorer.views.explorer.question import to_token
from explorer.views.explorer.scene import build_scene
from explorer.views.explorer.tabs import ask_words
from explorer.views.explorer.tabs.forecast_chart import forecast_blocks
from explorer.views.explorer.tradeoff import tradeoff

MAX_EXPORT_BYTES = 2**31
MAX_EXPORT_ROWS = 2_000_000

UNITS: Mapping[str, str] = {
    "quality": "that of the column `unit`; a fraction is from 0 to 1",
    "ssr": "fraction of the recipe's full budget",
    "train_seconds": "seconds of training, without evaluation; `time_source` says how it is known",
    "train_seconds_low": "seconds, lower quartile of the profile",
    "train_seconds_high": "seconds, upper quartile of the profile",
    "cost_usd": "US dollars, at `usd_per_hour`",
    "usd_per_hour": "US dollars an hour, of the whole machine",
    "steps": "optimiser steps",
    "examples": "training examples, with repetition",
    "inference_seconds": "seconds for one example",
    "inference_ratio": "relative to the baseline on the same machine",
    "wall_seconds": "seconds, with everything else that the run did",
    "deletion_seconds": "seconds to delete the costliest class, a forecast",
    "deletion_usd": "US dollars to delete the costliest class, a forecast",
    "ledger_overhead": "fraction of training time",
    "chi": "from 0 to 1: how far the classes can be told apart",
    "train_seconds_windows": "seconds, one for each round of the profile",
    "inference_windows": "seconds for one example, one for each round of the profile",
    "peak_memory": "bytes",
    "flops": "floating-point operations of all training steps",
    "utilisation": "fraction of the operations that the device makes at its peak in the same time",
    "energy_kwh": "kWh of all training steps, of the whole device",
}
"""Units of the columns of `Runs.frame` that are numbers with one; also in its `attrs["units"]`."""

# Columns of an export whose types a file of text does not keep.
_LISTS = ("train_seconds_windows", "inference_windows")
_NUMBERS = ("quality", "ssr", "train_seconds", "cost_usd", "steps", "examples")
_TRUTHS = ("higher_is_better", "is_baseline")
_TEXTS = ("format", "tuning", "control", "control_of", "deletion_level")


def load(runs: str | os.PathLike[str] | None = None) -> "Runs":
    """Return the results in a directory of runs, or in a file that `explorer export` wrote (CSV or Parquet).

    Args:
        runs: the directory or file; by default $EXPLORER_RUNS, or else `runs`.

    Finished runs that the database lacks are added first; what cannot be read is a warning. Raises `StoreError` where
    there is nothing to read.
    """
    path = Path(runs if runs is not None else os.environ.get("EXPLORER_RUNS", "runs"))
    if path.is_dir():
        for words in bring_up(path):
            warnings.warn(words, stacklevel=2)
        return Runs(directory=path, table=frames.results(database(path)))
    if not path.exists():
        raise StoreError(f"there is no directory or file {path}: expected a directory of runs, or an export")
    return Runs(directory=None, table=_exported(path))


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The finished runs of a directory or an export; of one sweep, after `sweep`.

    In a notebook it shows how many runs of which sweeps it has.
    """

    directory: Path | None  # None: they come from an export
    table: pd.DataFrame = field(repr=False)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each finished run and the hardware that it is shown on; `UNITS` has the units of its columns.

        It is a copy: what is changed in it changes no other answer.
        """
        copy = self.table.copy()
        copy.attrs["units"] = {name: unit for name, unit in UNITS.items() if name in copy}
        return copy

    @property
    def sweeps(self) -> list[str]:
        """The names of the sweeps, in order."""
        return sorted(map(str, self.table["sweep"].unique()))

    @property
    def metrics(self) -> list[str]:
        """The metrics that runs are judged by; for those of a directory, every final metric."""
        if self.directory is None:
            return sorted(map(str, self.table["metric"].unique()))
        rows = frames.facets(database(self.directory))
        return sorted(map(str, rows.loc[rows["sweep"].isin(self.sweeps), "metric"].unique()))

    def sweep(self, name: str) -> "Runs":
        """Return the runs of one sweep. Raises `StoreError` with the nearest name for one that is not there."""
        if name not in self.sweeps:
            raise StoreError(unknown("sweep", str(name), self.sweeps))
        rows = self.table[self.table["sweep"] == name].reset_index(drop=True)
        return Runs(directory=self.directory, table=rows)

    def compare(
        self,
        *,
        target: float | str | None = None,
        x: str = "time",
        metric: str | None = None,
        baseline: str | None = None,
        confidence: float = 0.95,
    ) -> "Comparison":
        """Compare every recipe of a sweep with its baseline, at equal quality and in the same time.

        Args:
            target: the quality to compare at, 0.97 or "97%"; by default the baseline's at its full budget.
            x: what recipes are compared by: "time", "cost", "energy", "memory", "steps", "examples", "deletion" or
                "deletion_cost".
            metric: the metric of quality; by default the sweep's own.
            baseline: the recipe to compare with; by default the sweep's own.
            confidence: of the intervals.

        Raises `AnalysisError` or `StoreError` with the nearest name for what is not there.
        """
        rows, payment = self._rows(metric), _payment(x)
        quality = None if target is None else _quality(target, rows)
        _within("confidence", confidence, 0.5, 0.9999)
        if baseline is not None and baseline not in set(rows["recipe"]):
            raise AnalysisError(unknown("baseline", str(baseline), rows["recipe"].unique()))
        made = {"baseline": baseline, "x": payment.column, "confidence": confidence}
        # Fresh seeds confirm training, so they are looked for only where the runs of other sweeps are at hand.
        fresh = None
        if self.directory is not None and baseline is None:
            fresh = frames.with_confirming(database(self.directory), str(rows["sweep"].iloc[0]), metric=metric)
        return Comparison(
            verdicts=tuple(sweep_verdicts(rows, fresh, target=quality, **made)),
            budgets=tuple(equal_budget(rows, **made)),
            payment=payment,
            notes=(*busy_notes(rows), *time_notes(rows["time_source"].dropna().unique())),
        )

    def chart(
        self,
        *,
        x: str = "time",
        metric: str | None = None,
        target: float | str | None = None,
        log: bool = True,
        width: int = 720,
        height: int = 400,
    ) -> "Chart":
        """Draw quality against what it takes, as an Altair chart, which can be restyled and saved.

        Args:
            x, metric, target: as for `compare`; the target is drawn as a line.
            log: whether the x axis is logarithmic.
            width, height: in pixels.

        Raises `AnalysisError` where no run has an amount for the axis.
        """
        rows, payment = self._rows(metric), _payment(x)
        _within("width", width, 50, 10_000)
        _within("height", height, 50, 10_000)
        names = [str(name) for name in rows["baseline"].dropna().unique()]
        scene = build_scene(
            rows,
            payment=payment,
            baseline=names[0] if names and names[0] in set(rows["recipe"]) else None,
            target=None if target is None else _quality(target, rows),
            log=log,
        )
        if scene is None:
            raise AnalysisError(f"no run has a known {payment.label.lower()}: choose another x of {_keys()}")
        drawn = tradeoff(scene, width=width, height=height)
        return Chart(**drawn._kwds)

    def curves(
        self,
        metric: str,
        *,
        x: str = "steps",
        mean: bool = True,
        smooth: float = 0.0,
        log: bool = False,
        budget: float | None = 1.0,
        width: int = 720,
        height: int = 320,
    ) -> "Chart":
        """Draw the learning curves of a metric, as an Altair chart.

        Args:
            metric: what was measured while runs trained, such as the training loss.
            x: "steps", "examples" or "time".
            mean: draw the mean over the seeds of each recipe and budget, with its interval, instead of each run.
            smooth: the share of a run that an exponential mean covers; 0 draws the measurements.
            log: a log scale; of the error, for a fraction that should be high.
            budget: only runs of this budget, a fraction of the full one; None: all budgets.
            width, height: in pixels.

        Raises `StoreError` for a metric that was not measured, for several sweeps, whose recipes are not the same, and
        for runs of an export, which has no curves.
        """
        if x not in OVER:
            raise AnalysisError(unknown("x", str(x), OVER))
        for name, value, least, most in (
            ("smooth", smooth, 0, 1),
            ("width", width, 50, 10_000),
            ("height", height, 50, 10_000),
        ):
            _within(name, value, least, most)
        frame = self.curve_frame(metric)
        if budget is not None:
            known_budgets = sorted(set(frame["ssr"]))
            frame = frame[frame["ssr"] == budget]
            if frame.empty:
                shown = ", ".join(f"{ssr:g}" for ssr in known_budgets)
                raise AnalysisError(f"budget: found {budget}; expected None or one of {shown}")
        drawn = curves_chart(
            frame,
            metric=metric_named(metric, of=frame),
            over=x,
            mean=mean,
            smooth=smooth,
            log=log,
            width=width,
            height=height,
            interactive=False,
        )
        return Chart(**drawn._kwds)

    def curve_frame(self, metric: str) -> pd.DataFrame:
        """Return what `curves` draws: recipe, run_id, seed, ssr, state, step, examples, seconds, value, mean,
        and `loss_unit`, that of the run's training loss.

        Curves of very many points are thinned: extremes stay. Unfinished runs are in it too.
        """
        directory = self._directory("learning curves")
        return learning_curves(database(directory), str(metric), sweep=self._only())

    def ask(
        self,
        *,
        quality: float | str | None = None,
        max_time: float | str | None = None,
        max_cost: float | str | None = None,
        max_inference: str | None = None,
        deletable: str | Sequence[str] = (),
        metric: str | None = None,
        max_memory: float | str | None = None,
        forecast: float | None = None,
    ) -> "Answered":
        """Find the recipe of a sweep that takes least under limits, with the evidence.

        Args:
            quality: at least this, 0.97 or "97%"; by default the baseline's at its full budget.
            max_time: seconds, or text such as "10min".
            max_cost: US dollars; if given, cost is minimised in place of time.
            max_inference: of one example, "3ms", or relative to the baseline, "1.02x".
            deletable: a class with its level, such as "open/mit=G2", or several.
            metric: the metric of quality; by default the sweep's own.
            max_memory: peak memory in bytes, or text such as "2GiB".
            forecast: a larger budget, for which the quality of each recipe is forecast; no part of the answer.

        Raises `AnalysisError` for limits that make no sense for these runs.
        """
        rows = self._rows(metric)
        sweep = str(rows["sweep"].iloc[0])
        seconds, ratio = (
            (None, None) if max_inference is None else amounts.read_inference("max_inference", f"{max_inference}")
        )
        classes = [deletable] if isinstance(deletable, str) else deletable
        wanted = [read_deletable("deletable", str(written)) for written in classes]
        levels: Any = {name: level for name, level, _ in wanted}
        limits = Limits(
            quality=None if quality is None else _quality(quality, rows),
            max_seconds=_amount("max_time", max_time, amounts.read_seconds),
            max_usd=_amount("max_cost", max_cost, amounts.read_usd),
            max_memory=_amount("max_memory", max_memory, amounts.read_memory),
            max_inference_seconds=seconds,
            max_inference_ratio=ratio,
            deletable=levels,
            deletion_at_most={name: most for name, _, most in wanted if most is not None},
        )
        if self.directory is None:
            forecasts, fresh, unfinished = pd.DataFrame(columns=_FORECASTS), None, None
        else:
            forecasts = frames.deletion_forecasts(database(self.directory), sweep=sweep)
            fresh = frames.with_confirming(database(self.directory), sweep, metric=metric)
            unfinished = frames.unfinished(database(self.directory), sweep=sweep)
        asked = asking.ask(rows, forecasts, limits, verdicts=sweep_verdicts(rows, fresh))
        ahead = None if forecast is None else budget_law.forecast(rows, budget=forecast, unfinished=unfinished)
        return Answered(asked=asked, ahead=ahead)

    def explore(self, view: str | None = None, **chosen: Any) -> Explorer:
        """Open the explorer as a widget, on these runs.

        Args:
            view: a view as text, as the explorer's field "View" has it; by default the sweep chosen with `sweep`.
            chosen: fields of the view, such as `metric="nll"`, `x="cost"`, `target="97%"`, `recipes=["fast"]`.

        Raises `AnalysisError` with the nearest name for what these runs lack.
        """
        directory = self._directory("the explorer")
        if view is None and len(self.sweeps) == 1:
            chosen = {"sweep": self.sweeps[0], **chosen}
        return explore(directory, view=to_token(view_by_fields(directory, view, chosen)))

    def _rows(self, metric: str | None) -> pd.DataFrame:
        """Return the rows of the only sweep, with another metric in the place of quality."""
        sweep = self._only()
        if metric is None or set(self.table["metric"]) == {metric}:
            return self.table
        if metric not in self.metrics:
            raise StoreError(unknown("metric", str(metric), self.metrics))
        return frames.results(database(self._directory("another metric")), sweep=sweep, metric=metric)

    def _only(self) -> str:
        """Return the name of the only sweep: a recipe of one is another in the next."""
        if len(self.sweeps) != 1:
            raise StoreError(
                f"found {len(self.sweeps)} sweeps, expected one: choose with .sweep(NAME); known:"
                f" {', '.join(self.sweeps) or 'none'}"
            )
        return self.sweeps[0]

    def _directory(self, what: str) -> Path:
        if self.directory is None:
            raise StoreError(f"{what}: an export has no runs; load the directory of runs")
        return self.directory

    def _repr_html_(self) -> str:
        return _html(Paragraph(self._words()), *self._tables())

    def __repr__(self) -> str:
        return self._words()

    def _words(self) -> str:
        where = "an export" if self.directory is None else str(self.directory)
        return f"{amounts.count(len(self.table), 'finished run')} of {where}"

    def _tables(self) -> Iterable[Block]:
        if self.table.empty:
            return []
        groups = self.table.groupby("sweep", sort=True)
        rows = [
            Row((str(name), str(rows["run_id"].nunique()), str(rows["recipe"].nunique()), ", ".join(
                sorted(map(str, rows["metric"].unique()))
            )))
            for name, rows in groups
        ]  # fmt: skip
        columns = [Column("Sweep"), Column("Runs", number=True), Column("Recipes", number=True), Column("Quality")]
        return [Table(columns, rows)]


class Chart(alt.LayerChart):
    """An Altair chart whose HTML needs no network: what draws it is in the page."""

    def save(  # pyright: ignore[reportIncompatibleMethodOverride]: what is not named here goes to Altair as it is
        self, fp: Any, format: Any = None, *, inline: bool = True, **options: Any
    ) -> None:
        """Save the chart: HTML, JSON (Vega-Lite), SVG, PNG or PDF, by the ending of the file's name.

        HTML has the Vega libraries in it (about 0.8 MB); with `inline=False` it loads them from the network.
        """
        html = format == "html" or (format is None and str(fp).lower().endswith((".html", ".htm")))
        super().save(fp, format, **({"inline": inline} if html else {}), **options)

    def _repr_mimebundle_(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Show the chart as Vega-Lite to notebooks that draw it themselves, and as a picture (SVG) to all others.

        Altair's own way would load the Vega libraries from the network, whenever the notebook is opened.
        """
        specification = self.to_dict()
        mime = f"application/vnd.vegalite.v{VEGA_LITE.partition('.')[0]}+json"
        picture = vl_convert.vegalite_to_svg(specification, vl_version=VEGA_LITE)
        return {mime: specification, "image/svg+xml": picture, "text/plain": repr(self)}

    def to_dict(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the Vega-Lite specification; names in it are fit to be drawn, whatever characters they have."""
        return drawable(super().to_dict(*args, **options))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Recipes compared with their baseline. In a notebook it shows as a table."""

    verdicts: tuple[Verdict, ...]
    budgets: tuple[EqualBudget, ...]
    payment: Payment
    notes: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The answer in a sentence."""
        return sentence(summary(self.verdicts), names=[verdict.comparison.label for verdict in self.verdicts])

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each recipe but the baseline.

        Columns: recipe, baseline, verdict in words, claims (whether it may be said to need less), target; speedup with
        its adjusted interval (low, high); needed and baseline_needed, in the unit of the axis; reach_rate; n seeds;
        p_value, adjusted; difference in quality in the same time, with its adjusted interval; n_more, the fresh seeds
        that would probably decide an inconclusive comparison; reason, why there is no number.
        """
        at_budget = {(result.setting, result.label): result for result in self.budgets}
        keys = [(verdict.comparison.setting, verdict.comparison.label) for verdict in self.verdicts]
        return pd.DataFrame(
            [_row(verdict, at_budget.get(key)) for verdict, key in zip(self.verdicts, keys, strict=True)], columns=_ROW
        )

    def _blocks(self) -> list[Block]:
        look = theme.look([], baseline=None)
        tables = comparison_table(self.verdicts, self.budgets, payment=self.payment, look=look, rates={})
        return [Paragraph(self.summary, "lead"), *tables, *(Paragraph(words, "note") for words in self.notes)]

    def _repr_html_(self) -> str:
        return _html(*self._blocks())

    def __repr__(self) -> str:
        return _text(self._blocks())


_ROW = [
    *("recipe", "baseline", "verdict", "claims", "target", "speedup", "low", "high", "needed", "baseline_needed"),
    *("reach_rate", "n", "p_value", "difference", "difference_low", "difference_high", "n_more", "reason"),
]


def _row(verdict: Verdict, budget: EqualBudget | None) -> dict[str, Any]:
    result = verdict.comparison
    # The interval of a ratio turns around with it: the upper end of the ratio is the lower end of the speedup.
    low, high = (None if end is None else 1 / end for end in (result.adjusted_high, result.adjusted_low))
    return {
        "recipe": result.label,
        "baseline": result.baseline,
        "verdict": call_words(verdict),
        "claims": verdict.claims,
        "target": result.target,
        "speedup": result.speedup,
        "low": low,
        "high": high,
        "needed": result.recipe_x,
        "baseline_needed": result.baseline_x,
        "reach_rate": result.reach_rate,
        "n": result.n,
        "p_value": result.p_adjusted,
        "difference": budget and budget.difference,
        "difference_low": budget and budget.adjusted_low,
        "difference_high": budget and budget.adjusted_high,
        "n_more": verdict.seeds,
        "reason": result.reason,
    }


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The answer to `Runs.ask`. In a notebook it shows the sentence and the evidence."""

    asked: asking.Asked
    ahead: list[budget_law.Forecast] | None = None

    @property
    def sentence(self) -> str:
        """The answer in a sentence."""
        return ask_words.headline(self.asked)

    @property
    def recipe(self) -> str | None:
        """The recipe; None where none meets the limits."""
        return self.asked.best and self.asked.best.label

    @property
    def holds(self) -> bool:
        """True if it meets every limit, its uncertainty included."""
        return self.asked.holds

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each recipe, the best first: recipe, standing, seconds with interval, usd, quality, n."""
        rows = [
            {
                "recipe": candidate.label,
                "standing": str(candidate.standing),
                "seconds": candidate.reached.seconds,
                "seconds_low": candidate.reached.low,
                "seconds_high": candidate.reached.high,
                "usd": candidate.usd,
                "reach_rate": candidate.reached.reach_rate,
                "best_quality": known(candidate.reached.best),
                "n": candidate.reached.n,
            }
            for candidate in self.asked.candidates
        ]
        return pd.DataFrame(rows)

    @cached_property
    def forecasts(self) -> pd.DataFrame:
        """A row for each recipe, where a forecast was asked for: recipe, budget, quality with interval, and reason."""
        columns = ["recipe", "budget", "quality", "low", "high", "reason"]
        return pd.DataFrame([[getattr(one, name) for name in columns] for one in self.ahead or ()], columns=columns)

    def _blocks(self) -> list[Block]:
        columns = [Column(name, number=name in ask_words.NUMBERS) for name in ask_words.COLUMNS]
        rows = [Row(cells) for cells in ask_words.evidence(self.asked)]
        remarks = ask_words.notes(self.asked, datetime.now(UTC).date())
        return [
            Paragraph(self.sentence, "lead"),
            Table(columns, rows),
            *(Paragraph(words, "note") for words in remarks),
            *forecast_blocks(self.ahead, look=None),
        ]

    def _repr_html_(self) -> str:
        return _html(*self._blocks())

    def __repr__(self) -> str:
        return _text(self._blocks())


# --- an export, and what is written by hand ---

_FORECASTS = ["sweep", "run_id", "class", "level", "first_step", "start_step", "steps", "seconds", "seconds_low",
              "seconds_high", "directory"]  # fmt: skip
_NEEDED = ("sweep", "run_id", "recipe", "baseline", "ssr", "seed", "metric", "quality", "unit", "higher_is_better")


def _exported(path: Path) -> pd.DataFrame:
    """Read an export. Raises `StoreError` for a file that is none."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise StoreError(f"{path}: expected a directory of runs, or an export as .csv or .parquet")
    if path.stat().st_size > MAX_EXPORT_BYTES:
        raise StoreError(f"{path}: {path.stat().st_size:,} bytes; expected {MAX_EXPORT_BYTES:,} or fewer")
    try:
        if path.suffix.lower() == ".csv":
            table = pd.read_csv(path, nrows=MAX_EXPORT_ROWS + 1, low_memory=False)
        else:
            table = pd.read_parquet(path)
    except (ValueError, OSError, pd.errors.ParserError) as error:
        raise StoreError(f"{path}: cannot be read: {str(error).splitlines()[0][:200]}") from error
    missing = [name for name in _NEEDED if name not in table]
    if missing or len(table) > MAX_EXPORT_ROWS:
        fault = f"no column {missing[0]!r}" if missing else f"more than {MAX_EXPORT_ROWS:,} rows"
        raise StoreError(f"{path}: {fault}; expected a file that `explorer export` wrote")
    return _typed(table, path)


def _typed(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return an export with the types that it had: in CSV a column without any value has lost its own."""
    typed: dict[str, Any] = {}
    for name in table.columns.intersection([*_NUMBERS, *_TEXTS, *_TRUTHS, *_LISTS]):
        column = table[name]
        if name in _NUMBERS:
            typed[name] = pd.to_numeric(column, errors="coerce")
        elif name in _TRUTHS and column.notna().all():
            typed[name] = column.astype(bool)
        elif name in _TEXTS:
            typed[name] = column.astype(object).where(column.notna(), "" if name == "format" else None)
        elif name in _LISTS and any(isinstance(value, str) for value in column):
            typed[name] = pd.Series([_numbers(value, path) for value in column], index=table.index, dtype=object)
    return table.assign(**typed)


def _numbers(value: Any, path: Path) -> list[float] | None:
    if not isinstance(value, str):
        return None
    try:
        return [float(part) for part in value.strip("[] ").split(",")]
    except ValueError:
        raise StoreError(f"{path}: found {value!r:.80}; expected a list of numbers") from None


def _payment(x: str) -> Payment:
    if x not in PAYMENTS:
        raise AnalysisError(unknown("x", str(x), PAYMENTS))
    return PAYMENTS[x]


def _amount(name: str, written: float | str | None, read: Callable[[str, str], float]) -> float | None:
    """Return an amount that is a number, or a text with its unit."""
    if written is None or (isinstance(written, (int, float)) and not isinstance(written, bool)):
        return written
    return read(name, f"{written}")


def _within(name: str, value: object, least: float, most: float) -> None:
    """Raise `AnalysisError` for what is no number within bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise AnalysisError(f"{name}: found {value!r:.80}; expected a number from {least:g} to {most:,g}")


def _keys() -> str:
    return ", ".join(PAYMENTS)


def _quality(written: float | str, rows: pd.DataFrame) -> float:
    """Return a quality as the metric has it: of a fraction, 97 is 97%."""
    kind = metric_of(rows.iloc[0].to_dict())
    return amounts.read_target("target", amounts.as_typed(written), kind)


def _text(blocks: Iterable[Block]) -> str:
    written = io.StringIO()
    show(blocks, file=written)
    return written.getvalue().strip()


def _html(*blocks: Block) -> str:
    return str(element("div", style(), fragment(*blocks), class_="explorer"))


__all__ = ["UNITS", "Answered", "Chart", "Comparison", "Runs", "load"]

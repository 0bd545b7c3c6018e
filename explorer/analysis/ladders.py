"""Ladders: one recipe on one hardware, with its quality and cost at every budget and seed, from a table of results.

The rows are grouped for all ladders at once, because a table has thousands of rows and hundreds of groups.

Shapes: N rows, G groups; B budgets and S seeds of one group.
"""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from explorer.analysis.axis_words import AXES
from explorer.analysis.step_times import StepTimes, between, of_quartiles, of_windows
from explorer.errors import AnalysisError, unknown
from explorer.run_files import Control, Metric, tuning_words

SEARCHED = "searched: chosen runs, no bands"
"""The words in place of every interval and verdict of a search's runs: those that looked bad were not repeated, so the
spread of the others is not that of chance. Fresh seeds have intervals (`explorer confirm`)."""
IMPORTED = "imported"  # the `time_source` of runs that another tool recorded


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The group of each row. Groups are numbered in the order in which they appear in the table."""

    of_N: np.ndarray
    first_G: np.ndarray  # each group's first row

    def __len__(self) -> int:
        return self.first_G.size


def grouped(frame: pd.DataFrame, columns: Sequence[str]) -> Groups:
    """Group rows that agree in all of the columns; absent values agree with each other."""
    of_N = np.asarray(frame.groupby(list(columns), sort=False, dropna=False).ngroup())
    _, first_G = np.unique(of_N, return_index=True)
    return Groups(of_N=of_N, first_G=first_G)


def texts(groups: Groups, column: pd.Series, *, where_N: np.ndarray) -> list[tuple[str, ...]]:
    """Return the different texts of each group among the rows `where_N`, in order; other values are left out."""
    code_N, values = pd.factorize(column)
    is_text = np.array([isinstance(value, str) for value in values], dtype=bool)
    rows = np.flatnonzero(where_N & (code_N >= 0))
    rows = rows[is_text[code_N[rows]]]
    key, first = np.unique(groups.of_N[rows] * max(len(values), 1) + code_N[rows], return_index=True)
    texts_G: list[list[str]] = [[] for _ in range(len(groups))]
    for code in key[np.argsort(first, kind="stable")]:
        texts_G[code // len(values)].append(values[code % len(values)])
    return [tuple(names) for names in texts_G]


def medians(groups: Groups, values_N: np.ndarray, *, where_N: np.ndarray) -> np.ndarray:
    """Return the median of each group's finite values among the rows `where_N`; NaN for none."""
    # Sorted by group and value, so that the middle of each group is found by its edges, without a loop over groups.
    rows = np.flatnonzero(where_N & np.isfinite(values_N))
    rows = rows[np.lexsort((values_N[rows], groups.of_N[rows]))]
    edge = np.searchsorted(groups.of_N[rows], np.arange(len(groups) + 1))
    start, count = edge[:-1], np.diff(edge)
    some = count > 0
    medians_G = np.full(len(groups), np.nan)
    lower, upper = rows[(start + (count - 1) // 2)[some]], rows[(start + count // 2)[some]]
    medians_G[some] = (values_N[lower] + values_N[upper]) / 2
    return medians_G


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A group's rows by ascending budget and seed. NaN where there is no row, the mean where there are several."""

    ssr_B: np.ndarray
    seeds_S: np.ndarray
    values: tuple[np.ndarray, ...]  # each B x S


def grids(
    groups: Groups, *, ssr_N: np.ndarray, seed_N: np.ndarray, values: Sequence[np.ndarray], where_N: np.ndarray
) -> list[Grid]:
    """Return the grid of each group for several columns of values.

    Args:
        groups: the group of each row.
        ssr_N, seed_N: budget and seed of each row.
        values: the columns.
        where_N: the rows that are used.
    """
    # All grids lie behind one another in one flat array, so that one bincount fills all of them.
    of_N = groups.of_N[where_N]
    ssr_N, budgets, b = _ranked(of_N, ssr_N[where_N], len(groups))
    seed_N, seeds, s = _ranked(of_N, seed_N[where_N], len(groups))
    width_G = np.diff(s)
    end_G = np.cumsum(np.diff(b) * width_G)
    start_G = end_G - np.diff(b) * width_G
    place_N = start_G[of_N] + ssr_N * width_G[of_N] + seed_N
    count = np.bincount(place_N, minlength=end_G[-1])
    means = []
    for column in values:
        total = np.bincount(place_N, weights=column[where_N], minlength=end_G[-1])
        means.append(np.divide(total, count, out=np.full(count.size, np.nan), where=count > 0))
    return [
        Grid(
            ssr_B=budgets[b[g] : b[g + 1]],
            seeds_S=seeds[s[g] : s[g + 1]],
            values=tuple(mean[start_G[g] : end_G[g]].reshape(b[g + 1] - b[g], width_G[g]) for mean in means),
        )
        for g in range(len(groups))
    ]


def _ranked(of_N: np.ndarray, values_N: np.ndarray, groups: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each value's rank in its group, the different values group by group, and where each group begins."""
    different, code_N = np.unique(values_N, return_inverse=True)
    key_N = of_N * different.size + code_N
    present = np.unique(key_N)
    edge = np.searchsorted(present, np.arange(groups + 1) * different.size)
    return np.searchsorted(present, key_N) - edge[of_N], different[present % different.size], edge


# --- from a table of results to ladders ---

PROFILED = ("train_seconds", "cost_usd", "deletion_seconds", "deletion_usd")  # made of profiled step times


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The machine of a run, on which its time depends."""

    device: str
    hardware: str
    threads: int
    world_size: int

    def __str__(self) -> str:
        """
        >>> str(Machine(device="cuda", hardware="NVIDIA H200", threads=8, world_size=2))
        'NVIDIA H200, 8 threads, 2 processes'
        """
        processes = f", {self.world_size} processes" if self.world_size > 1 else ""
        return f"{self.hardware}, {self.threads} thread{'s' * (self.threads != 1)}{processes}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """Where recipes are compared: only what agrees in all of this is comparable."""

    sweep: str
    dataset: str
    model: str
    metric: str
    unit: str
    higher_is_better: bool
    device: str
    hardware: str
    threads: int
    world_size: int
    format: str = ""

    @property
    def kind(self) -> Metric:
        """Return the metric of the qualities, with its format."""
        return Metric(name=self.metric, unit=self.unit, higher_is_better=self.higher_is_better, format=self.format)

    @property
    def machine(self) -> Machine:
        return Machine(device=self.device, hardware=self.hardware, threads=self.threads, world_size=self.world_size)

    def on(self, machine: Machine | None) -> "Setting":
        """Return the setting on another machine; None: on this one."""
        return self if machine is None else replace(self, **asdict(machine))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladder:
    """One recipe in one setting. Budgets and seeds ascend; NaN where there is no run."""

    setting: Setting
    recipe: str
    recipe_digest: str
    label: str  # the recipe's name; with its digest where several recipes in the setting have that name
    is_baseline: bool
    control: Control | None  # of a recipe that is there to be compared with others; None for the baseline
    control_of: tuple[str, ...]  # the recipes that it is the control of
    baseline: str
    tuning: str | None  # of the sweep's own baseline, and of every recipe where the sweep tuned all
    inference_ratio: float | None
    inference_times: StepTimes  # how exact the inference time is
    time_source: str  # "profiled", "measured", "imported", "measured+profiled", "" where unknown
    ssr_B: np.ndarray
    seeds_S: np.ndarray
    x_BS: np.ndarray
    quality_BS: np.ndarray
    times_B: tuple[StepTimes, ...]  # how exact x is at each budget; empty where it is counted or measured run by run
    searched: bool = False  # a search chose its runs by their results: see `SEARCHED`
    added: tuple[int, ...] = ()  # the seeds that a rule added, because of the spread of the others

    @property
    def imported(self) -> bool:
        """Return whether runs of another tool are in it: nothing about them was observed."""
        return IMPORTED in self.time_source.split("+")

    @property
    def unjudged(self) -> str:
        """Return why the spread of its runs judges nothing; empty where it does."""
        return SEARCHED if self.searched else ""

    @property
    def sign(self) -> int:
        """Return 1, or -1 where lower is better: quality times this is better when it is higher."""
        return 1 if self.setting.higher_is_better else -1

    def times_at(self, x: float) -> StepTimes:
        """Return the noise of a time on the curve, interpolated between the budgets on either side."""
        if not self.times_B:
            return StepTimes()
        x_B = _medians(self.x_BS)
        order = np.argsort(x_B, kind="stable")
        log_B = np.log(x_B[order])
        upper = int(np.clip(np.searchsorted(log_B, math.log(x)), 1, max(1, len(log_B) - 1)))
        if upper >= len(log_B):  # a single budget
            return self.times_B[order[0]]
        width = log_B[upper] - log_B[upper - 1]
        share = 0.0 if width <= 0 else float(np.clip((math.log(x) - log_B[upper - 1]) / width, 0.0, 1.0))
        return between(self.times_B[order[upper - 1]], self.times_B[order[upper]], share=share)


def _medians(x_BS: np.ndarray) -> np.ndarray:
    # numpy's median that leaves NaN out takes twenty times as long, and most ladders lack no run.
    return np.nanmedian(x_BS, axis=1) if np.isnan(x_BS).any() else np.median(x_BS, axis=1)


SETTING = tuple(
    field.name for field in fields(Setting) if field.name != "format"
)  # runs that differ only in it are comparable
COLUMNS = (
    *SETTING,
    *(
        "recipe",
        "recipe_digest",
        "is_baseline",
        "control",
        "control_of",
        "baseline",
        "tuning",
        "inference_ratio",
        "time_source",
    ),
    *("ssr", "seed", "quality"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ladders:
    """The ladders of a table along the column `x`, for several questions to the same rows."""

    x: str
    every: tuple[Ladder, ...]  # in the order of the table; recipes without a known x have empty ones

    def of(self, recipes: Collection[str]) -> "Ladders":
        """Return the ladders of some recipes, by name."""
        return Ladders(x=self.x, every=tuple(ladder for ladder in self.every if ladder.recipe in recipes))

    def at_seed(self, seed: int) -> "Ladders":
        """Return the ladders of one seed: a curve without noise."""
        return Ladders(x=self.x, every=tuple(_at_seed(ladder, seed) for ladder in self.every))

    def lines(self, *, empty: bool = False) -> list[Ladder]:
        """Return the ladders with their labels, empty ones among them if `empty`."""
        kept = [ladder for ladder in self.every if empty or ladder.ssr_B.size]
        names = Counter((ladder.setting, ladder.recipe) for ladder in kept)
        return [
            replace(ladder, label=f"{ladder.recipe} ({ladder.recipe_digest[:6]})")
            if names[ladder.setting, ladder.recipe] > 1
            else ladder
            for ladder in kept
        ]


def _at_seed(ladder: Ladder, seed: int) -> Ladder:
    mine_S = ladder.seeds_S == seed
    has_B = np.asarray(np.isfinite(ladder.x_BS[:, mine_S]).any(axis=1))
    return replace(
        ladder,
        ssr_B=ladder.ssr_B[has_B],
        seeds_S=ladder.seeds_S[mine_S],
        x_BS=ladder.x_BS[has_B][:, mine_S],
        quality_BS=ladder.quality_BS[has_B][:, mine_S],
        times_B=tuple(time for time, has in zip(ladder.times_B, has_B.tolist(), strict=False) if has),
    )


def ladders_of(rows: pd.DataFrame | Ladders, *, x: str) -> Ladders:
    """Return the ladders in a table with the columns of `results`, along the column `x`; ladders stay as they are.

    Raises `AnalysisError` for a missing column, and for an x that is not above zero.
    """
    if isinstance(rows, Ladders):
        assert rows.x == x, "the ladders are along another column"
        return rows
    x_N, quality_N = _numbers(rows, x)
    if rows.empty:
        return Ladders(x=x, every=())
    groups = grouped(rows, [*SETTING, "recipe", "recipe_digest"])
    every = _ladders(rows, groups, x_N, quality_N, profiled=x.partition("/")[0] in PROFILED)
    return Ladders(x=x, every=tuple(every))


def ladders(frame: pd.DataFrame, *, x: str, empty: bool = False) -> list[Ladder]:
    """Return the ladders in a table with the columns of `results`, along the column `x`, in the order of the table.

    Rows whose x is unknown are left out; a recipe with no other rows gets an empty ladder if `empty`, otherwise none.
    Raises `AnalysisError` for a missing column, and for an x that is not above zero.
    """
    return ladders_of(frame, x=x).lines(empty=empty)


def stacked(grids: Sequence[np.ndarray]) -> np.ndarray:
    """Stack grids of several ladders, with NaN where one has fewer seeds than another."""
    wide = np.full((sum(len(grid) for grid in grids), max(grid.shape[1] for grid in grids)), np.nan)
    row = 0
    for grid in grids:
        wide[row : row + len(grid), : grid.shape[1]] = grid
        row += len(grid)
    return wide


def _numbers(frame: pd.DataFrame, x: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns `x` and quality; NaN where they are unknown."""
    for column in (x, *COLUMNS):
        if column not in frame.columns:
            raise AnalysisError(f"the table of results: {unknown('column', column, map(str, frame.columns))}")
    try:
        x_N, quality_N = (np.asarray(frame[column], dtype=float) for column in (x, "quality"))
    except (TypeError, ValueError) as error:
        raise AnalysisError(
            f"the column {x!r} does not hold numbers; expected one such as {', '.join(AXES)}"
        ) from error
    if np.isinf(x_N).any() or np.isinf(quality_N).any() or (x_N <= 0).any():
        raise AnalysisError(f"the columns {x!r} and 'quality': expected finite numbers, and {x!r} above 0")
    return x_N, quality_N


def _ladders(
    frame: pd.DataFrame, groups: Groups, x_N: np.ndarray, quality_N: np.ndarray, *, profiled: bool
) -> list[Ladder]:
    # Arrays over rows (N) and groups (G) first; then one pass over groups, since a call of pandas for each is slow.
    known_N = ~np.isnan(x_N) & ~np.isnan(quality_N)
    ssr_N, seed_N = np.asarray(frame["ssr"], dtype=float), np.asarray(frame["seed"])
    chosen_N = np.asarray(frame["control"] == "random-subset")
    ratios_G = medians(groups, np.asarray(frame["inference_ratio"], dtype=float), where_N=known_N)
    first = frame.iloc[groups.first_G]
    times = _times(frame, groups, ssr_N, where_N=known_N) if profiled else [()] * len(groups)
    return [
        Ladder(
            setting=Setting(
                **{column: _plain(value) for column, value in zip(SETTING, setting, strict=True)}, format=style
            ),
            recipe=own.recipe,
            recipe_digest=own.recipe_digest,
            label=own.recipe,
            is_baseline=bool(own.is_baseline),
            control="random-subset" if controlled else None,
            control_of=controlled,
            baseline=own.baseline,
            tuning=tuning_words(own.tuning, is_baseline=bool(own.is_baseline)),
            inference_ratio=None if np.isnan(ratio) else float(ratio),
            inference_times=exact,
            time_source="+".join(sorted(sources)),
            ssr_B=grid.ssr_B,
            seeds_S=grid.seeds_S,
            x_BS=grid.values[0],
            quality_BS=grid.values[1],
            times_B=times_B,
            added=added,
            searched=chosen,
        )
        for setting, style, own, controlled, ratio, exact, sources, grid, times_B, added, chosen in zip(
            zip(*(first[column].tolist() for column in SETTING), strict=True),
            first["format"].tolist() if "format" in first else [""] * len(first),
            first[["recipe", "recipe_digest", "is_baseline", "baseline", "tuning"]].itertuples(index=False),
            _controlled(texts(groups, frame["control_of"], where_N=chosen_N)),
            ratios_G,
            _inference_times(frame, groups, where_N=known_N),
            texts(groups, frame["time_source"], where_N=known_N),
            grids(groups, ssr_N=ssr_N, seed_N=seed_N, values=(x_N, quality_N), where_N=known_N),
            times,
            _added(frame, groups, seed_N),
            _searched(frame, groups),
            strict=True,
        )
    ]


def _searched(frame: pd.DataFrame, groups: Groups) -> list[bool]:
    """Return whether a search chose runs of each ladder."""
    chosen_G = np.zeros(len(groups), dtype=bool)
    chosen_G[groups.of_N[searched(frame)]] = True
    return chosen_G.tolist()


def searched(frame: pd.DataFrame) -> np.ndarray:
    """Return which rows of `results` are of runs that a search chose."""
    if "searched" not in frame.columns:
        return np.zeros(len(frame), dtype=bool)
    # A table that was exported to text has words in place of truth values.
    return np.array([str(value) in ("True", "true") for value in frame["searched"]], dtype=bool)


def _added(frame: pd.DataFrame, groups: Groups, seed_N: np.ndarray) -> list[tuple[int, ...]]:
    """Return the seeds of each ladder that a rule added."""
    seeds_G: list[tuple[int, ...]] = [()] * len(groups)
    if "added" not in frame.columns:
        return seeds_G
    rows = np.flatnonzero(frame["added"].astype("boolean").fillna(False).astype(bool))
    for group in np.unique(groups.of_N[rows]):
        seeds_G[group] = tuple(np.unique(seed_N[rows[groups.of_N[rows] == group]]).tolist())
    return seeds_G


def _times(
    frame: pd.DataFrame, groups: Groups, ssr_N: np.ndarray, *, where_N: np.ndarray
) -> list[tuple[StepTimes, ...]]:
    """Return the noise of each ladder's times, budget by budget; nothing where none of them was profiled."""
    times_G: list[tuple[StepTimes, ...]] = [()] * len(groups)
    if not {"train_seconds_low", "train_seconds_high"} <= set(frame.columns):
        return times_G
    rows = np.flatnonzero(where_N)
    rows = rows[np.lexsort((ssr_N[rows], groups.of_N[rows]))]
    if not rows.size:
        return times_G
    # Rows are sorted by ladder and budget; the first row of each cell speaks for it, since seeds share a profile.
    new = (np.diff(groups.of_N[rows]) != 0) | (np.diff(ssr_N[rows]) != 0)
    start_C = np.r_[0, np.flatnonzero(new) + 1]  # C: the cells of one ladder and budget
    passes = _passes(frame)
    code_N = pd.factorize(passes)[0][rows]
    # Where the rows of a cell are of several profiling passes, none of them is paired with another recipe's.
    one_C = np.minimum.reduceat(code_N, start_C) == np.maximum.reduceat(code_N, start_C)
    cells = frame.iloc[rows[start_C]]
    windows_C = cells["train_seconds_windows"] if "train_seconds_windows" in cells.columns else [None] * len(cells)
    names = ("train_seconds", "train_seconds_low", "train_seconds_high")
    seconds_C, low_C, high_C = (np.asarray(cells[name], dtype=float) for name in names)
    in_turn_C = np.asarray(passes, dtype=object)[rows[start_C]]
    for group, windows_W, seconds, low, high, in_turn, one in zip(
        groups.of_N[rows[start_C]], windows_C, seconds_C, low_C, high_C, in_turn_C, one_C, strict=True
    ):
        together = in_turn if one and isinstance(in_turn, str) else ""
        times_G[group] += (_time(windows_W, seconds, low, high, measured_with=together),)
    return [times if any(time.is_profiled for time in times) else () for times in times_G]


def _inference_times(frame: pd.DataFrame, groups: Groups, *, where_N: np.ndarray) -> list[StepTimes]:
    """Return the noise of each ladder's inference time, by the rounds of its profile; none for several profiles."""
    times_G = [StepTimes()] * len(groups)
    if "inference_windows" not in frame.columns:
        return times_G
    windows_N = frame["inference_windows"].to_numpy(dtype=object)
    has_N = np.array(
        [isinstance(windows_W, list | np.ndarray) and len(windows_W) > 1 for windows_W in windows_N], dtype=bool
    )
    rows = np.flatnonzero(where_N & has_N)
    if not rows.size:
        return times_G
    rows = rows[np.argsort(groups.of_N[rows], kind="stable")]
    start_G = np.r_[0, np.flatnonzero(np.diff(groups.of_N[rows])) + 1]
    passes = _passes(frame)
    code_N = pd.factorize(passes)[0][rows]
    one_G = np.minimum.reduceat(code_N, start_G) == np.maximum.reduceat(code_N, start_G)
    for row in rows[start_G[one_G]]:
        windows_W, in_turn = np.asarray(windows_N[row], dtype=float), passes.iloc[row]
        together = in_turn if isinstance(in_turn, str) else ""
        times_G[groups.of_N[row]] = of_windows(windows_W, float(np.median(windows_W)), measured_with=together)
    return times_G


def _passes(frame: pd.DataFrame) -> pd.Series:
    """Return the profiling pass behind each row's time, if any."""
    return frame["profile_pass"] if "profile_pass" in frame.columns else pd.Series(None, index=frame.index)


def _time(windows_W: Any, seconds: float, low: float, high: float, *, measured_with: str) -> StepTimes:
    """Return the noise of one time; `windows_W` is no sequence where there are no windows."""
    if isinstance(windows_W, list | np.ndarray) and len(windows_W):
        return of_windows(windows_W, seconds, measured_with=measured_with)
    return StepTimes() if math.isnan(low) else of_quartiles(low, high, seconds)


def _controlled(names_G: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the recipes that any of a ladder's runs is the control of, in order."""
    return [tuple(dict.fromkeys(name for joined in names for name in joined.split("+"))) for names in names_G]


def _plain(value: Any) -> Any:
    """Return a Python value for a numpy one; an absent text becomes empty."""
    if isinstance(value, float) and np.isnan(value):
        return ""
    return value.item() if isinstance(value, np.generic) else value

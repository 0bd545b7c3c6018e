"""Forecasts: the quality of a recipe at a larger budget than any that was run, from a law of its budgets.

    q(D) = E + B D^-b

D is the budget, and q the quality, signed so that less is better: the error rate of an accuracy, whose E is at least 0.
The fit is by least squares on the means of budgets, with a robust loss (soft L1, in standard errors). For a given b it
is linear, so the exponents of a grid are solved in closed form, and then those near the best: no start is needed.

The interval is for the mean over as many seeds at that budget. It is a parametric bootstrap over seeds, whose noise is
pooled over budgets and may be shared by the budgets of a seed, as where they branch from one trunk. That is widened by
how far the forecast moves when any one budget is left out (the jackknife), because the law is never quite true.

A forecast is of quality, nothing else. No answer, verdict, speedup or exit status reads one.

Shapes: B budgets, S seeds, R resamples, G exponents, F budgets that are forecast.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from explorer.analysis.inference import generator
from explorer.analysis.ladders import Ladder, Setting, ladders
from explorer.errors import AnalysisError

ASSUMED = (
    "A forecast assumes that quality keeps to the law that its budgets follow, E + B D^-b:"
    " a plateau, a turn or a kink beyond the last budget is not foreseen."
)
LEAST_BUDGETS = 4
LEAST_SEEDS = 2
MOST_AHEAD = 4.0  # times the largest budget that was run
EXPONENTS_G = np.geomspace(0.05, 3.0, 24)
NEAR = 13  # exponents that are tried around the best of these
REWEIGHTED = 2  # times: more change nothing that counts
RESAMPLES = 500
WAY = 6  # places from the last budget to the one that is forecast, for a chart
PRIOR_DF = 4.0  # that the noise of all budgets together counts for at each of them
TURNED = 2.0  # standard errors by which a larger budget is worse than a smaller one, where the law is given up


@dataclass(frozen=True, kw_only=True, slots=True)
class Law:
    """A law of quality by budget. In `gain`, budgets are counted in the largest that was run."""

    floor: float  # E, signed so that less is better
    gain: float  # B
    exponent: float  # b


@dataclass(frozen=True, kw_only=True, slots=True)
class Ahead:
    """A quality beyond the last budget, with its interval."""

    budget: float
    quality: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """The quality of a recipe at a budget that was not run; `quality` is None where `reason` says why there is none."""

    setting: Setting
    recipe: str
    label: str
    budget: float
    quality: float | None = None
    low: float | None = None
    high: float | None = None
    budgets: tuple[float, ...] = ()  # those that the law was fitted to
    measured: tuple[float, ...] = ()  # mean quality at each of these
    seeds: tuple[int, ...] = ()  # their number at each of these
    fitted: tuple[float, ...] = ()  # what the law has at each of these
    law: Law | None = None
    way: tuple[Ahead, ...] = ()  # from the last of these budgets to the one that is forecast
    reason: str = ""


def forecast(
    rows: pd.DataFrame,
    *,
    budget: float,
    unfinished: pd.DataFrame | None = None,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
) -> list[Forecast]:
    """Return the forecast of each recipe at a budget beyond its last, or why there is none.

    Args:
        rows: rows of `results`, with one metric.
        budget: at most `MOST_AHEAD` times the largest that was run.
        unfinished: runs that did not finish, by `recipe` and `state`: a recipe of which one diverged has no forecast.
        confidence: of the intervals.
        resamples: bootstrap resamples.

    Raises `AnalysisError` for a budget that is not beyond the last of any recipe, or too far beyond all.
    """
    recipes = [ladder for ladder in ladders(rows, x="ssr") if ladder.control is None]
    if not recipes:
        raise AnalysisError("there is no finished run of a recipe to forecast from")
    largest = [float(ladder.ssr_B[-1]) for ladder in recipes]
    if not min(largest) < budget <= MOST_AHEAD * max(largest):
        raise AnalysisError(
            f"forecast: found the budget {budget:g}; expected one above {min(largest):g} and up to"
            f" {MOST_AHEAD * max(largest):g}, {MOST_AHEAD:g} times the largest that was run"
        )
    lost = () if unfinished is None else set(unfinished["recipe"][unfinished["state"] == "diverged"])
    # The same runs may be shown on several machines, on which their times differ and their quality does not.
    once = {(ladder.recipe, ladder.recipe_digest, ladder.quality_BS.tobytes()): ladder for ladder in reversed(recipes)}
    ordered = reversed(once.values())
    return [
        _of(ladder, budget, ladder.recipe in lost, confidence=confidence, resamples=resamples) for ladder in ordered
    ]


def _of(ladder: Ladder, budget: float, diverged: bool, *, confidence: float, resamples: int) -> Forecast:
    whole_B = np.isfinite(ladder.quality_BS).sum(axis=1) >= LEAST_SEEDS
    ssr_B, quality_BS = ladder.ssr_B[whole_B], ladder.quality_BS[whole_B]
    reason = _refused(ladder, ssr_B, quality_BS, budget, diverged)
    if reason:
        return Forecast(setting=ladder.setting, recipe=ladder.recipe, label=ladder.label, budget=budget, reason=reason)
    # An error rate is what a law describes: an accuracy cannot rise above 1.
    kind = ladder.setting.kind
    offset, floor = (1.0 if kind.bounded and kind.higher_is_better else 0.0), (0.0 if kind.bounded else None)
    budgets_F = np.geomspace(ssr_B[-1], budget, WAY)
    ahead = extrapolated(ssr_B, offset - ladder.sign * quality_BS, budgets_F, floor=floor, resamples=resamples)
    law, ends_2F = ahead.law, interval(ahead.draws_RF, ahead.value_F, confidence)
    if kind.bounded:
        ends_2F = np.clip(ends_2F, 0.0, 1.0)
    quality_F, ends_2F = ladder.sign * (offset - ahead.value_F), np.sort(ladder.sign * (offset - ends_2F), axis=0)
    columns = (column.tolist() for column in (budgets_F, quality_F, *ends_2F))
    fitted_B = ladder.sign * (offset - (law.floor + law.gain * (ssr_B / ssr_B[-1]) ** -law.exponent))
    way = tuple(Ahead(budget=x, quality=y, low=low, high=high) for x, y, low, high in zip(*columns, strict=True))
    return Forecast(
        setting=ladder.setting,
        recipe=ladder.recipe,
        label=ladder.label,
        budget=budget,
        quality=way[-1].quality,
        low=way[-1].low,
        high=way[-1].high,
        budgets=tuple(ssr_B.tolist()),
        measured=tuple(np.nanmean(quality_BS, axis=1).tolist()),
        seeds=tuple(np.isfinite(quality_BS).sum(axis=1).tolist()),
        fitted=tuple(fitted_B.tolist()),
        law=law,
        way=way,
    )


def interval(draws_RF: np.ndarray, value_F: np.ndarray, confidence: float = 0.95) -> np.ndarray:
    """Return the ends of the interval of each value, which lies between them."""
    tail = (1 - confidence) / 2
    low_F, high_F = np.quantile(draws_RF, [tail, 1 - tail], axis=0)
    return np.array([np.minimum(low_F, value_F), np.maximum(high_F, value_F)])


def _refused(ladder: Ladder, ssr_B: np.ndarray, quality_BS: np.ndarray, budget: float, diverged: bool) -> str:
    """Return why there is no forecast; empty if there is one."""
    largest = float(ladder.ssr_B[-1])
    if ladder.unjudged:
        return ladder.unjudged
    if diverged:
        return "a run of it diverged, so the others are no fair sample"
    if ladder.imported:
        return "imported: whether its schedules ended with their budgets is not known"
    if budget <= largest:
        return f"it was run up to budget {largest:g}"
    if budget > MOST_AHEAD * largest:
        return f"more than {MOST_AHEAD:g} times its largest budget, {largest:g}"
    if ssr_B.size < LEAST_BUDGETS:
        return f"{ssr_B.size} budgets with {LEAST_SEEDS} seeds or more; a law needs {LEAST_BUDGETS}"
    if ssr_B[-1] < largest:
        return f"its largest budget, {largest:g}, has fewer than {LEAST_SEEDS} seeds"
    mean_B, error_B = np.nanmean(ladder.sign * quality_BS, axis=1), Noise.of(quality_BS).error_B
    best = int(mean_B.argmax())
    if mean_B[best] - mean_B[-1] > TURNED * math.hypot(error_B[best], error_B[-1]):
        return f"its quality turns: it is worse at budget {ssr_B[-1]:g} than at {ssr_B[best]:g}"
    return ""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Noise:
    """The noise of seeds in the mean of each budget."""

    error_B: np.ndarray  # standard errors
    df: int  # with which they were estimated, all budgets together
    shared: float  # the part of the variance that a seed has in common at all budgets

    @classmethod
    def of(cls, quality_BS: np.ndarray) -> "Noise":
        """Estimate it, each budget's variance moderated by that of all."""
        n_B = np.isfinite(quality_BS).sum(axis=1)
        df_B, variance_B = n_B - 1, np.nanvar(quality_BS, axis=1, ddof=1)
        pooled = float(df_B @ variance_B / df_B.sum())
        variance_B = (df_B * variance_B + PRIOR_DF * pooled) / (df_B + PRIOR_DF)
        # Seeds that agree to the last digit would outweigh everything, and divide by zero.
        variance_B = np.maximum(variance_B, (1e-6 * np.nanmax(np.abs(quality_BS)) + 1e-12) ** 2)
        residual_BS = (quality_BS - np.nanmean(quality_BS, axis=1, keepdims=True)) / np.sqrt(variance_B)[:, None]
        of_seeds = float(np.nanmean(residual_BS, axis=0).var(ddof=1))
        shared = (n_B.size * of_seeds - 1) / max(n_B.size - 1, 1)
        return cls(error_B=np.sqrt(variance_B / n_B), df=int(df_B.sum()), shared=min(max(shared, 0.0), 0.95))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Extrapolated:
    """A law beyond the budgets that it was fitted to, and draws of the errors of its values there."""

    law: Law
    value_F: np.ndarray
    fits_RF: np.ndarray  # values of the laws that other seeds would have given
    seeds_RF: np.ndarray  # noise of the mean over fresh seeds
    budgets_RF: np.ndarray  # what hangs on any one budget

    @property
    def draws_RF(self) -> np.ndarray:
        """Return draws of what would be measured."""
        return self.fits_RF + self.seeds_RF + self.budgets_RF


def extrapolated(
    ssr_B: np.ndarray, loss_BS: np.ndarray, budgets_F: np.ndarray, *, floor: float | None, resamples: int = RESAMPLES
) -> Extrapolated:
    """Return the law of a loss beyond the budgets that were run.

    Args:
        ssr_B: the budgets, ascending.
        loss_BS: less is better; NaN where there is no run.
        budgets_F: those to be forecast.
        floor: the least that E may be; None: anything.
        resamples: bootstrap resamples.
    """
    x_B, x_F = ssr_B / ssr_B[-1], budgets_F / ssr_B[-1]
    noise, mean_B = Noise.of(loss_BS), np.nanmean(loss_BS, axis=1)
    fitted = fit(x_B, mean_B[None], noise.error_B, floor=floor)
    # --- what other seeds would have shown; a spread that few seeds show is itself uncertain ---
    random = generator("forecast", ssr_B.tolist(), resamples)
    scale_R1 = np.sqrt(noise.df / random.chisquare(noise.df, (resamples, 1)))
    of_seeds_R1, own_RB = random.standard_normal((resamples, 1)), random.standard_normal((resamples, x_B.size))
    unit_RB = math.sqrt(noise.shared) * of_seeds_R1 + math.sqrt(1 - noise.shared) * own_RB
    again = fit(x_B, _values(x_B, *fitted) + scale_R1 * noise.error_B * unit_RB, noise.error_B, floor=floor)
    # --- the law is not quite true: the jackknife over budgets ---
    without_BF = np.concatenate(
        [
            _values(x_F, *fit(x_B[kept_B], mean_B[None, kept_B], noise.error_B[kept_B], floor=floor))
            for kept_B in ~np.eye(x_B.size, dtype=bool)
        ]
    )
    moved_F = math.sqrt(x_B.size - 1) * without_BF.std(axis=0)
    return Extrapolated(
        law=Law(floor=float(fitted[0][0]), gain=float(fitted[1][0]), exponent=float(fitted[2][0])),
        value_F=_values(x_F, *fitted)[0],
        fits_RF=_values(x_F, *again),
        # Fresh seeds are as noisy as those at the largest budget.
        seeds_RF=np.tile(scale_R1 * noise.error_B[-1] * random.standard_normal((resamples, 1)), x_F.size),
        budgets_RF=moved_F * random.standard_normal((resamples, 1)),
    )


def fit(
    x_B: np.ndarray, loss_RB: np.ndarray, error_B: np.ndarray, *, floor: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E, B and b of the law that fits each row of losses best. B is never below 0, nor E below `floor`."""
    row_R = np.arange(len(loss_RB))
    least, gain, cost = _fits(x_B ** -EXPONENTS_G[:, None], loss_RB, error_B, floor)
    nearest_R = EXPONENTS_G[cost.argmin(axis=1)]
    # Once more between the neighbours of the best exponent: the grid is too coarse where seeds have little noise.
    step = math.log(EXPONENTS_G[1] / EXPONENTS_G[0])
    closer_RG = nearest_R[:, None] * np.exp(np.linspace(-step, step, NEAR))
    closer_RG = np.clip(closer_RG, EXPONENTS_G[0], EXPONENTS_G[-1])
    least, gain, cost = _fits(x_B ** -closer_RG[..., None], loss_RB, error_B, floor)
    best_R = cost.argmin(axis=1)
    return least[row_R, best_R], gain[row_R, best_R], closer_RG[row_R, best_R]


def _fits(
    power: np.ndarray, loss_RB: np.ndarray, error_B: np.ndarray, floor: float | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return E, B and the cost of the best law for each row and exponent, R x G; `power` is x^-b, (R x) G x B."""
    loss_R1B = loss_RB[:, None, :]
    weight = np.broadcast_to(error_B**-2.0, (len(loss_RB), *power.shape[-2:]))
    least, gain = _solved(power, loss_R1B, weight, floor)
    # The first is plain least squares; these give less weight to a budget that is far off (soft L1).
    for _ in range(REWEIGHTED):
        root = np.sqrt(1 + ((loss_R1B - least[..., None] - gain[..., None] * power) / error_B) ** 2)
        least, gain = _solved(power, loss_R1B, weight / root, floor)
    root = np.sqrt(1 + ((loss_R1B - least[..., None] - gain[..., None] * power) / error_B) ** 2)
    return least, gain, (root - 1).sum(axis=-1)


def _solved(
    power: np.ndarray, loss_R1B: np.ndarray, weight: np.ndarray, floor: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return E and B by weighted least squares, within their bounds."""
    total = weight.sum(axis=-1)
    middle, mean = (weight * power).sum(axis=-1) / total, (weight * loss_R1B).sum(axis=-1) / total
    away = power - middle[..., None]
    gain = (weight * away * loss_R1B).sum(axis=-1) / (weight * away**2).sum(axis=-1)
    least = mean - gain * middle
    if floor is not None:
        bound = least < floor
        steep = (weight * power * (loss_R1B - floor)).sum(axis=-1) / (weight * power**2).sum(axis=-1)
        gain, least = np.where(bound, steep, gain), np.where(bound, floor, least)
    return np.where(gain < 0, mean, least), np.maximum(gain, 0.0)


def _values(x_F: np.ndarray, floor_R: np.ndarray, gain_R: np.ndarray, exponent_R: np.ndarray) -> np.ndarray:
    """Return the laws' values, R x F, at budgets counted in the largest that was run."""
    return floor_R[:, None] + gain_R[:, None] * x_F ** -exponent_R[:, None]

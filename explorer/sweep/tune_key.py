"""The key `tune` of a sweep: what is tuned for every recipe, on how many points, at which budget and with which seeds.

    tune:
      space: {lr: [0.03, 0.3], weight_decay: [1e-4, 1e-2]}
      spaces: {adam: {lr: [1e-4, 1e-2]}}    # of single recipes, in place of `space`
      runs: 24                              # points that every recipe gets, the baseline among them
      budget: 0.25                          # scale-schedule ratio of a tuning run
      seeds: [100]                          # none of the claim's, which would count what chose the values
      sampler: quasi-random                 # or one of Optuna's: tpe, gp, cmaes

A key is a number of the optimiser, of the schedule, `batch_size`, or `METHOD.PARAMETER`, which is tuned in the recipes
that have the method. `[low, high]` is a range: on a log scale where low is above 0 and high at least 10 times low, else
on a linear one. `{log: [low, high]}` and `{linear: [low, high]}` say which. A longer list is a list of choices, and
`{of: [a, b]}` one of any length. Values are rounded to four digits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from explorer.errors import SpecError, unknown
from explorer.yaml_document import Document, Key

REQUIRED = ("space", "runs", "budget", "seeds")
KEYS = (*REQUIRED, "spaces", "sampler")
QUASI_RANDOM = "quasi-random"
SAMPLERS = (QUASI_RANDOM, "tpe", "gp", "cmaes")
SCALES = ("log", "linear", "of")
WHOLE = ("batch_size",)
MAX_POINTS = 1000
MAX_AXES = 20
LOG_FROM = 10  # times low: a range as wide as this is searched by order of magnitude
DIGITS = 4

Scalar = int | float | str | bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One number or choice to tune."""

    key: str
    scale: Literal["log", "linear", "of"]
    low: float = 0.0
    high: float = 1.0
    options: tuple[Scalar, ...] = ()  # of the scale `of`

    @property
    def whole(self) -> bool:
        """Return whether values are whole numbers."""
        return self.key in WHOLE

    def at(self, share: float) -> Scalar:
        """Return the value at a share from 0 to 1 of the axis.

        >>> Axis(key="lr", scale="log", low=0.01, high=1.0).at(0.5)
        0.1
        """
        if self.scale == "of":
            return self.options[min(int(share * len(self.options)), len(self.options) - 1)]
        if self.scale == "log":
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        return self.rounded(value)

    def rounded(self, value: float) -> int | float:
        """Return a value of a range as it is tried."""
        if self.whole:
            return round(value)
        # Rounding may not leave the range, whose ends may have more digits.
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def share(self, value: Scalar) -> float | None:
        """Return where a value lies, from 0 to 1; None for a choice among things that have no order."""
        if self.scale == "of":
            ordered = len(self.options) > 1 and all(map(_is_number, self.options))
            return sorted(self.options).index(value) / (len(self.options) - 1) if ordered else None  # pyright: ignore
        assert isinstance(value, int | float)
        if self.scale == "log":
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tune:
    """The tuning that a sweep asks for."""

    space: tuple[Axis, ...]
    spaces: Mapping[str, tuple[Axis, ...]]  # of single recipes
    runs: int  # points a recipe
    budget: float
    seeds: tuple[int, ...]
    sampler: str

    def axes(self, recipe: str, methods: Sequence[str]) -> tuple[Axis, ...]:
        """Return what is tuned in a recipe with these methods."""
        space = self.spaces.get(recipe, self.space)
        return tuple(axis for axis in space if "." not in axis.key or axis.key.partition(".")[0] in methods)


def read_tune(document: Document, value: Any, *, budget: float, seeds: Sequence[int], claimed: Sequence[int]) -> Tune:
    """Return the tuning that `tune` asks for; its `budget` and `seeds` are checked. Raises `SpecError`.

    claimed  the seeds of the sweep, which tuning must not see
    """
    runs, sampler = value["runs"], value.get("sampler", QUASI_RANDOM)
    if isinstance(runs, bool) or not isinstance(runs, int) or not 2 <= runs <= MAX_POINTS:
        raise document.error(("tune", "runs"), f"{_found(runs)}, expected a whole number from 2 to {MAX_POINTS}")
    if not isinstance(sampler, str) or sampler not in SAMPLERS:
        raise document.error(("tune", "sampler"), unknown("sampler", str(sampler), SAMPLERS))
    for index, seed in enumerate(seeds):
        if seed in claimed:
            raise document.error(
                ("tune", "seeds", index),
                f"{seed} is a seed of the sweep as well, so the result would be measured where it was chosen;"
                " expected others",
            )
    spaces = value.get("spaces", {})
    if not isinstance(spaces, dict):
        raise document.error(("tune", "spaces"), f"{_found(spaces)}, expected a mapping of recipes to their spaces")
    return Tune(
        space=_space(document, ("tune", "space"), value["space"]),
        spaces={name: _space(document, ("tune", "spaces", name), space) for name, space in spaces.items()},
        runs=runs,
        budget=budget,
        seeds=tuple(seeds),
        sampler=sampler,
    )


def with_values(recipe: Mapping[str, Any], values: Mapping[str, Scalar], *, where: str) -> dict[str, Any]:
    """Return `train` and `methods` of a recipe in canonical form, with these values in the place of its own.

    Raises `SpecError` for a key that the recipe has not.
    """
    train, methods = (
        dict(recipe["train"]),
        [{name: dict(own) for name, own in row.items()} for row in recipe["methods"]],
    )
    parts = {part: {name: dict(own) for name, own in train[part].items()} for part in ("optimizer", "schedule")}
    (optimizer,), (schedule,) = (part.values() for part in parts.values())
    for key, value in values.items():
        method, dot, parameter = key.partition(".")
        if dot:
            next(own for row in methods for name, own in row.items() if name == method)[parameter] = value
        elif key in optimizer:
            optimizer[key] = value
        elif key in WHOLE:
            train[key] = value
        elif key in schedule:
            schedule[key] = value
        else:
            raise SpecError(f"{where}: {unknown('number', key, (*optimizer, *WHOLE, *schedule))}")
    return {"train": train | parts, "methods": methods}


def _space(document: Document, key: Key, value: Any) -> tuple[Axis, ...]:
    if not isinstance(value, dict) or not 1 <= len(value) <= MAX_AXES:
        raise document.error(
            key,
            f"{_found(value)}, expected a mapping of 1 to {MAX_AXES} numbers to ranges, such as {{lr: [0.03, 0.3]}}",
        )
    return tuple(_axis(document, (*key, name), name, written) for name, written in value.items())


def _axis(document: Document, key: Key, name: str, written: Any) -> Axis:
    scale, values = None, written
    if isinstance(written, dict):
        if len(written) != 1 or next(iter(written)) not in SCALES:
            raise document.error(key, f"{_found(written)}, expected one of {', '.join(SCALES)} with its list")
        ((scale, values),) = written.items()
    if not isinstance(values, list) or not values:
        raise document.error(key, f"{_found(values)}, expected [low, high], or a list of choices")
    if scale == "of" or (scale is None and len(values) > 2):
        if any(isinstance(option, dict | list) or option is None for option in values) or len(values) != len(
            {(type(option), option) for option in values}
        ):
            raise document.error(key, f"{_found(values)}, expected different numbers or names")
        return Axis(key=name, scale="of", options=tuple(values))
    if len(values) != 2 or not all(map(_is_number, values)) or not values[0] < values[1]:
        raise document.error(key, f"{_found(values)}, expected [low, high], the lower number first")
    low, high = values
    if scale == "log" and low <= 0:
        raise document.error(key, f"{_found(values)}, expected a range above 0 for a log scale")
    if scale is None:
        scale = "log" if low > 0 and high / low >= LOG_FROM else "linear"
    return Axis(key=name, scale=scale, low=float(low), high=float(high))  # pyright: ignore[reportArgumentType]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _found(value: Any) -> str:
    return "found nothing" if value is None else f"found {value!r:.80}"

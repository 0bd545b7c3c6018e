"""The key `until` of a sweep: as many seeds as an interval of a wanted width takes, and the record of their number.

    until: {interval: 10%, of: [fast], at_most: 12}

The seeds of the specification are the first stage. Once all of it is done, the spread of its seeds says, once and for
all, how many the recipes `of` and the baseline need, so that the 95% interval of the speedup at the baseline's quality
reaches at most so far to either side: its half width, in the logarithm, is at most log(1.10). These recipes then get
the seeds that are missing, up to `at_most` in all; other recipes keep the first ones.

The decision is written to `until.json` before the first added seed starts, and is not taken again: with the results of
added seeds in sight, their number would no longer be independent of them (`explorer.search.stopping`).
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from explorer import run_files, rundir
from explorer.errors import SpecError, unknown
from explorer.planned import describe
from explorer.schema import record
from explorer.training.run_plan import MAX_SEED
from explorer.yaml_document import Document, Key

KEYS = ("interval", "of", "at_most")
FIRST = 3  # seeds of the first stage, at least: with two, the spread is so uncertain that the rule asks for hundreds
NARROWEST, WIDEST = 0.005, 1.0
MOST = 1000
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?) ?%")


@dataclass(frozen=True, kw_only=True, slots=True)
class Until:
    """A wanted width of an interval, the recipes that it is asked of, and the seeds that they get at most."""

    interval: float  # 0.1: to 1.1 times the speedup, and to the 1.1th part of it
    of: tuple[str, ...]
    at_most: int

    @property
    def half_width(self) -> float:
        """The largest half width of the interval of a log speedup."""
        return math.log1p(self.interval)


@record
class NeededRecord:
    """The finding of the first stage on one recipe. None where there is no interval that could become narrower."""

    recipe: str
    half_width: float | None = None  # of the log speedup, with the seeds of the first stage
    seeds: int | None = None  # of both stages, that would do
    reason: str = ""  # why there is no such number


@record
class DecisionRecord:
    """`until.json`: the seeds of the second stage, decided once, from the first."""

    format: Literal["explorer/until/v1"] = "explorer/until/v1"
    interval: float
    of: tuple[str, ...]
    at_most: int
    first: tuple[int, ...]  # the seeds that decided
    added: tuple[int, ...]  # the seeds that the recipes and the baseline get
    confidence: float
    family: int  # the comparisons that the interval is adjusted for
    recipes: dict[str, str]  # the digests of the baseline and of the recipes
    needed: tuple[NeededRecord, ...]
    decided_at: str

    @property
    def asked(self) -> Until:
        return Until(interval=self.interval, of=self.of, at_most=self.at_most)


def read_until(
    document: Document, content: Mapping[str, Any], *, recipes: Collection[str], baseline: str, seeds: Sequence[int]
) -> Until | None:
    """Return what the key asks for; None without it. Raises `SpecError` that names the key and the fault."""
    if "until" not in content:
        return None
    asked, key = content["until"], ("until",)
    if not isinstance(asked, dict):
        raise document.error(key, f"found {asked!r:.80}, expected a mapping with {', '.join(KEYS)}")
    for name in asked:
        if name not in KEYS:
            raise document.error((*key, name), unknown("key", str(name), KEYS))
    for name in KEYS:
        if name not in asked:
            raise document.error(key, f"key {name!r} is missing; expected {', '.join(KEYS)}")
    if len(seeds) < FIRST:
        raise document.error(
            key,
            f"found {len(seeds)} of the seeds that decide on their number, expected at least {FIRST} under 'seeds'",
        )
    return Until(
        interval=_interval(document, (*key, "interval"), asked["interval"]),
        of=_recipes(document, (*key, "of"), asked["of"], recipes=recipes, baseline=baseline),
        at_most=_at_most(document, (*key, "at_most"), asked["at_most"], seeds=seeds),
    )


def _interval(document: Document, key: Key, value: Any) -> float:
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    number = float(match[1]) / 100 if match else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not NARROWEST <= number <= WIDEST:
        raise document.error(key, f"found {value!r:.80}, expected a width from {NARROWEST:.1%} to {WIDEST:.0%}")
    return float(number)


def _recipes(document: Document, key: Key, value: Any, *, recipes: Collection[str], baseline: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise document.error(key, f"found {value!r:.80}, expected a list of recipes")
    others = [name for name in recipes if name != baseline]
    for index, name in enumerate(value):
        if name == baseline:
            words = f"{name!r} is the baseline, which has a speedup over nothing; it gets the same seeds"
            raise document.error((*key, index), words)
        if name not in others:
            raise document.error((*key, index), unknown("recipe", str(name), others))
        if name in value[:index]:
            raise document.error((*key, index), f"{name!r} is given twice")
    return tuple(value)


def _at_most(document: Document, key: Key, value: Any, *, seeds: Sequence[int]) -> int:
    # Added seeds follow on the written ones, so there has to be room for them.
    most = min(MOST, len(seeds) + MAX_SEED - max(seeds))
    if isinstance(value, bool) or not isinstance(value, int) or not len(seeds) < value <= most:
        raise document.error(
            key,
            f"found {value!r:.80}, expected a whole number of seeds above the {len(seeds)} that are written, and at"
            f" most {most}",
        )
    return value


def read_decision(
    directory: Path, until: Until, *, first: Sequence[int], recipes: Mapping[str, str], where: str
) -> DecisionRecord | None:
    """Return the decision of the sweep in `directory`; None if it has to be taken yet.

    Args:
        directory: the sweep's.
        until: what is asked for now.
        first: the seeds of the specification.
        recipes: the digests of the baseline and of the recipes, by name.
        where: the specification, for messages.

    Raises `SpecError` where something else is asked for after added seeds have finished, and `RunError` for a damaged
    record.
    """
    path = directory / rundir.UNTIL
    if not path.exists():
        return None
    decision = run_files.read(DecisionRecord, path)
    shared = decision.recipes.keys() & recipes.keys()
    if any(decision.recipes[name] != recipes[name] for name in shared):
        return None  # of other runs: a recipe was changed, or the code, the data or the machine
    if (decision.asked, decision.first, decision.recipes.keys()) == (until, tuple(first), recipes.keys()):
        return decision
    if _is_seen(directory, decision):
        raise SpecError(
            f"{where}: until: the number of seeds was decided at {decision.decided_at}, for an interval of"
            f" {decision.interval:.3g} of {', '.join(decision.of)}, and some of the added ones have finished. Another"
            " number, after a look at them, would be optional stopping: write seeds and until as they were, or give"
            " the sweep another name"
        )
    return None


def _is_seen(directory: Path, decision: DecisionRecord) -> bool:
    """Return whether an added run has finished."""
    digests = set(decision.recipes.values())
    finished = (path for path in rundir.run_directories(directory) if (path / rundir.RESULT).exists())
    runs = (run for path in finished if (run := describe(path)) is not None)
    return any(run.seed in decision.added and run.recipe_digest in digests for run in runs)

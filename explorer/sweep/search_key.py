"""The key `search` of a specification: recipes that a search may make of methods, and what it may spend on them.

    search:
      of: [channels_last, label_smoothing, {mixup: {alpha: 0.4}}]   # added to the baseline's methods
      up_to: 6                                 # at a time; by default all of them
      spend: 3h                                # of training: 600s, 90min, 3h, or a number of seconds
      ladder: [0.125, 0.5, 1.0]                # budgets; the schedule of each run ends where its budget ends
      objective: {time_to: baseline}           # or a quality, such as {time_to: 0.93}
      searcher: random                         # by default the one that the benchmark of searchers favours

A specification with a search writes out one recipe, the baseline: the search makes all others. Its `seeds` are those of
the search; a confirmation has others.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from explorer.errors import unknown
from explorer.recipes.choice import written
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.sweep.compose import conflict_of, fitting, methods_of
from explorer.sweep.control_runs import NotRun
from explorer.training.run_plan import MAX_BUDGET
from explorer.yaml_document import Document, Key

KEYS = ("of", "up_to", "spend", "ladder", "objective", "searcher")
REQUIRED = ("of", "spend", "ladder")
NOT_HERE = ("budgets", "compose", "controls", "tune", "until")  # keys of sweeps whose runs are known beforehand
MOST = 2**14  # recipes of one search: that many are looked at in seconds
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
BASELINE = "baseline"  # the word for its quality at the full budget
_SPEND = re.compile(r"([0-9]+(?:\.[0-9]*)?) ?(s|min|h)")

Names = frozenset[str]


@dataclass(frozen=True, kw_only=True)
class SearchKey:
    """Bounds of a search: the recipes that it may make, its budgets, and the time that it may spend."""

    base: Recipe
    methods: tuple[Any, ...]  # in the order of writing, with distinct names, none of which the baseline has
    up_to: int
    spend: float  # seconds of training
    ladder: tuple[float, ...]  # ascending; ends with 1
    time_to: float | None  # the quality to reach; None: the baseline's at its full budget
    searcher: str | None  # None: the default

    @cached_property
    def subsets(self) -> tuple[Names, ...]:
        """The sets of names of methods that can be combined, smaller ones first: the first is empty, the baseline."""
        return tuple(names for names, conflict in self._judged if conflict is None)

    @cached_property
    def not_run(self) -> tuple[NotRun, ...]:
        """The combinations that are impossible. One that contains another of them is counted there, not listed."""
        least: dict[Names, str] = {}
        containing: Counter[Names] = Counter()
        for names, conflict in self._judged:
            if conflict is None:
                continue
            smaller = next((known for known in least if known < names), None)
            if smaller is None:
                least[names] = conflict
            else:
                containing[smaller] += 1
        return tuple(
            NotRun(name=self.name(names), reason=f"{conflict}{_also(containing[names])}")
            for names, conflict in least.items()
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the recipes that it may make."""
        return tuple(map(self.name, self.subsets))

    def name(self, names: Names) -> str:
        """Return the name of the recipe that adds these methods."""
        return fitting("-".join(method.name for method in self.methods if method.name in names)) or self.base.name

    def recipe(self, names: Names) -> Recipe:
        """Return the recipe that adds these methods to the baseline's. Raises `RecipeError`."""
        if not names:
            return self.base
        base = self.base.to_mapping()
        methods = [*base["methods"], *(written(method) for method in self.methods if method.name in names)]
        name = self.name(names)
        return build_recipe(name, task=base["task"], train=base["train"], methods=methods, where=f"search: {name}")

    def named(self, name: str) -> Names | None:
        """Return the methods of the recipe of this name; None if the search has none."""
        return next((names for names in self.subsets if self.name(names) == name), None)

    @cached_property
    def _judged(self) -> list[tuple[Names, str | None]]:
        """Every set of names, and why its methods cannot be combined."""
        return [
            (frozenset(method.name for method in chosen), conflict_of([*self.base.methods, *chosen]))
            for size in range(self.up_to + 1)
            for chosen in itertools.combinations(self.methods, size)
        ]


def read_search(document: Document, asked: Any, *, recipes: Sequence[Recipe]) -> SearchKey:
    """Return the search that a specification asks for. Raises `SpecError`.

    document  the specification, for messages
    asked     the value of `search`
    recipes   the recipes that are written out: only the baseline
    """
    where: Key = ("search",)
    if not isinstance(asked, dict):
        raise document.error(where, f"found {asked!r:.80}, expected a mapping with {', '.join(KEYS)}")
    for key in asked:
        if key not in KEYS:
            raise document.error((*where, key), unknown("key", str(key), KEYS))
    for key in REQUIRED:
        if key not in asked:
            raise document.error(where, f"key {key!r} is missing; expected {', '.join(REQUIRED)}")
    for key in NOT_HERE:
        if key in document.value:
            raise document.error(
                (key,), "found next to 'search', which chooses the runs itself; expected one of the two"
            )
    if len(recipes) != 1:
        raise document.error(
            ("recipes",),
            f"found {len(recipes)} recipes next to 'search', which makes all others; expected the baseline",
        )
    methods = _methods(document, asked["of"], recipes[0])
    most = asked.get("up_to", len(methods))
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= len(methods):
        raise document.error(
            (*where, "up_to"),
            f"found {most!r:.80}, expected a whole number from 1 to {len(methods)}, the number of methods given",
        )
    # Recipes are counted before the first is built: 30 methods have a billion.
    count = sum(math.comb(len(methods), size) for size in range(most + 1))
    if count > MOST:
        raise document.error(
            (*where, "of"),
            f"{len(methods)} methods, up to {most} at a time, are {count} recipes; expected at most {MOST}:"
            " fewer methods, or a smaller up_to",
        )
    return SearchKey(
        base=recipes[0],
        methods=tuple(methods),
        up_to=most,
        spend=_spend(document, asked["spend"]),
        ladder=_ladder(document, asked["ladder"]),
        time_to=_objective(document, asked.get("objective", {"time_to": BASELINE})),
        searcher=_searcher(document, asked.get("searcher")),
    )


def _also(count: int) -> str:
    return f" (so are {count} recipes that contain them)" if count else ""


def _methods(document: Document, asked: Any, base: Recipe) -> list[Any]:
    key: Key = ("search", "of")
    methods = methods_of(document, key, asked, least=2)
    taken = {method.name: "the baseline has it already" for method in base.methods}
    for index, method in enumerate(methods):
        if method.name in taken:
            raise document.error((*key, index), f"method {method.name!r}: {taken[method.name]}; expected it once")
        taken[method.name] = "it is given twice"
    return methods


def _spend(document: Document, asked: Any) -> float:
    seconds = math.nan
    if isinstance(asked, int | float) and not isinstance(asked, bool):
        seconds = float(asked)
    elif isinstance(asked, str) and (match := _SPEND.fullmatch(asked)):
        seconds = float(match[1]) * UNITS[match[2]]
    if not 0 < seconds < math.inf:
        raise document.error(
            ("search", "spend"),
            f"found {asked!r:.80}, expected a time of training, such as 3h, 90min, 600s, or a number of seconds",
        )
    return seconds


def _ladder(document: Document, asked: Any) -> tuple[float, ...]:
    key: Key = ("search", "ladder")
    if not isinstance(asked, list) or not asked:
        raise document.error(key, f"found {asked!r:.80}, expected a list of budgets, such as [0.125, 0.5, 1.0]")
    for index, value in enumerate(asked):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 < value <= MAX_BUDGET:
            raise document.error(
                (*key, index), f"found {value!r:.80}, expected a number above 0 and at most {MAX_BUDGET:g}"
            )
    ladder = tuple(float(value) for value in asked)
    if any(one >= other for one, other in itertools.pairwise(ladder)):
        raise document.error(key, f"found {asked!r:.80}, expected budgets that ascend")
    if ladder[-1] != 1.0:
        raise document.error(key, f"found {asked!r:.80}, expected 1.0 at its end: the full budget defines the target")
    return ladder


def _objective(document: Document, asked: Any) -> float | None:
    key: Key = ("search", "objective")
    if not isinstance(asked, dict):
        raise document.error(key, f"found {asked!r:.80}, expected {{time_to: {BASELINE}}} or {{time_to: 0.93}}")
    for name in asked:
        if name != "time_to":
            raise document.error((*key, name), unknown("key", str(name), ("time_to",)))
    value = asked.get("time_to")
    if value == BASELINE:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise document.error((*key, "time_to"), f"found {value!r:.80}, expected {BASELINE!r} or a quality")
    return float(value)


def _searcher(document: Document, asked: Any) -> str | None:
    if asked is not None and not isinstance(asked, str):
        raise document.error(("search", "searcher"), f"found {asked!r:.80}, expected the name of a searcher")
    return asked

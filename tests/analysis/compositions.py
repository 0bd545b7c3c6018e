"""Made-up recipes for tests of composition: their step times by phase and part, and their qualities."""

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from explorer.analysis.composition import Composed, Composition, Pair, composition
from explorer.analysis.schedules import Phase, Schedule
from explorer.run_files import ALL_STEPS
from tests.analysis.tables import SETTING, rows

Parts = Mapping[str, float]
BASE = {"forward": 0.4, "backward": 0.5, "optimizer": 0.1}


def schedule(recipe: str, phases: Mapping[str, tuple[int, Parts]], *, error: float = 0.01) -> Schedule:
    """A schedule from phase -> steps and seconds by part."""
    return Schedule(
        recipe=recipe,
        phases=tuple(
            Phase(name=name, steps=steps, seconds=sum(parts.values()), error=error, windows=7, parts=parts)
            for name, (steps, parts) in phases.items()
        ),
    )


def steady(recipe: str, parts: Parts, *, steps: int = 100) -> Schedule:
    """All steps alike."""
    return schedule(recipe, {ALL_STEPS: (steps, parts)})


def scaled(factors: Mapping[str, float], parts: Parts = BASE) -> dict[str, float]:
    """What is left of the parts when each takes its factor of its time."""
    return {part: seconds * factors.get(part, 1.0) for part, seconds in parts.items()}


class Bench:
    """Recipes put together one after another, and the composition that they give."""

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []
        self._schedules: list[dict[str, object]] = []

    def recipe(
        self,
        name: str,
        methods: Sequence[object] = (),
        *,
        parts: Parts = BASE,
        phases: Mapping[str, tuple[int, Parts]] | None = None,
        qualities: Sequence[float] = (0.90, 0.91, 0.92),
        train: Mapping[str, object] | None = None,
        profiled: bool = True,
        spread: float = 0.02,
        **changes: object,
    ) -> "Bench":
        """A recipe at budget 1, with a quality for each seed. `spread` is the width of its quartiles."""
        made = rows(name, lambda ssr, seed: qualities[seed], budgets=[1.0], seeds=range(len(qualities)))
        self._rows += [{**row, "control": None, **changes} for row in made]
        written = [method if isinstance(method, dict) else {method: {}} for method in methods]
        identity = {"recipe": {"methods": written, "train": {"lr": 0.1, **(train or {})}}, "seed": 0, "ssr": 1.0}
        for phase, (steps, spent) in (phases or {ALL_STEPS: (100, parts)}).items():
            seconds = sum(spent.values())
            times = {"seconds": seconds, "low": seconds * (1 - spread / 2), "high": seconds * (1 + spread / 2)}
            unknown = {"seconds": None, "low": None, "high": None, "windows": None, "split": None}
            self._schedules.append(
                {
                    **{column: SETTING[column] for column in ("sweep", "device", "hardware", "threads", "world_size")},
                    "recipe": name,
                    "recipe_digest": made[0]["recipe_digest"],
                    "ssr": 1.0,
                    "identity": json.dumps(identity),
                    "phase": phase,
                    "steps": steps,
                    **({**times, "windows": 7, "split": dict(spent)} if profiled else unknown),
                }
            )
        return self

    def found(self, *, baseline: str = "baseline", ssr: float | None = None) -> Composition:
        return composition(pd.DataFrame(self._rows), pd.DataFrame(self._schedules), baseline=baseline, ssr=ssr)

    def composed(self, label: str) -> Composed:
        return next(recipe for recipe in self.found().recipes if recipe.label == label)

    def pair(self, first: str, second: str) -> Pair:
        return next(pair for pair in self.found().pairs if {pair.first, pair.second} == {first, second})

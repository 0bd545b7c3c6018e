"""Tables with the columns of `results`, made from a rule for quality and time."""

from collections.abc import Callable, Iterable, Mapping

import pandas as pd

BUDGETS = (0.125, 0.25, 0.5, 1.0, 1.5)

SETTING = {
    "sweep": "digits",
    "dataset": "digits",
    "model": "resnet8",
    "metric": "accuracy",
    "unit": "fraction",
    "higher_is_better": True,
    "device": "cpu",
    "hardware": "AMD EPYC 7B13",
    "threads": 1,
    "world_size": 1,
}


def rows(
    recipe: str,
    quality: Callable[[float, int], float],
    *,
    step: float = 1.0,
    budgets: Iterable[float] = BUDGETS,
    seeds: Iterable[int] = (0, 1, 2),
    **changes: object,
) -> list[dict[str, object]]:
    """A recipe whose quality is `quality(ssr, seed)` and whose full budget takes 100 * `step` seconds."""
    common = {
        **SETTING,
        "recipe": recipe,
        "recipe_digest": recipe.encode().hex().ljust(64, "0"),
        "is_baseline": recipe == "baseline",
        "baseline": "baseline",
        "tuning": "lr over 5 values",
        "control": None,
        "control_of": None,
        "inference_ratio": 1.0,
        "time_source": "profiled",
    }
    made = []
    for ssr in budgets:
        for seed in seeds:
            seconds = 100.0 * ssr * step
            point = {"ssr": ssr, "seed": seed, "steps": round(1000 * ssr), "quality": quality(ssr, seed)}
            made.append(
                {
                    **common,
                    **point,
                    "train_seconds": seconds,
                    "wall_seconds": 1.2 * seconds,
                    "cost_usd": seconds / 3600,
                    **changes,
                }
            )
    return made


def table(*recipes: list[dict[str, object]]) -> pd.DataFrame:
    return pd.DataFrame([row for rows in recipes for row in rows])


def fixed(values: Mapping[float, tuple[float, ...]]) -> Callable[[float, int], float]:
    """Quality from a table: budget -> a value for each seed."""
    return lambda ssr, seed: values[ssr][seed]

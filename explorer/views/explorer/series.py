"""Which curve a run belongs to, what the curve is called, and what gives it its colour.

A curve is one recipe on one machine. Where several machines are drawn at once, a curve's name says which one it is.
"""

from collections.abc import Sequence

import pandas as pd

from explorer.analysis.curves import Curve
from explorer.analysis.ladders import Machine

UNGOVERNED = "no policy"
NO_METHODS = "none"


def series_names(found: Sequence[Curve]) -> dict[tuple[Machine, str], str]:
    """The name of each curve, by its machine and label."""
    several = len({curve.setting.machine for curve in found}) > 1
    return {
        (curve.setting.machine, curve.label): f"{curve.label}, {curve.setting.machine}" if several else curve.label
        for curve in found
    }


def run_labels(rows: pd.DataFrame, found: Sequence[Curve]) -> tuple[list[Machine], list[str]]:
    """The machine and the label of each row's curve: the recipe, with its digest where several have that name."""
    known = {(curve.setting.machine, curve.label) for curve in found}
    places = machines(rows)
    labels = [
        recipe if (place, recipe) in known else f"{recipe} ({digest[:6]})"
        for place, recipe, digest in zip(places, rows["recipe"], rows["recipe_digest"], strict=True)
    ]
    return places, labels


def machines(rows: pd.DataFrame) -> list[Machine]:
    """The machine of each row."""
    columns = (rows["device"], rows["hardware"], rows["threads"], rows["world_size"])
    known: dict[tuple[object, ...], Machine] = {}  # a sweep has few, and as many rows as it has runs
    for key in zip(*columns, strict=True):
        if key not in known:
            device, hardware, threads, world_size = key
            known[key] = Machine(
                device=str(device), hardware=str(hardware), threads=int(threads), world_size=int(world_size)
            )
    return [known[key] for key in zip(*columns, strict=True)]


def group_of(rows: pd.DataFrame, found: Sequence[Curve], compare: str) -> dict[tuple[Machine, str], str]:
    """What gives each curve its colour, by its machine and label; `compare` is that of a `Question`."""
    first = rows.drop_duplicates(["recipe_digest", "device", "hardware", "threads", "world_size"])
    places, labels = run_labels(first, found)
    return {
        (place, label): group_name(compare, label, place, methods, policy)
        for place, label, methods, policy in zip(places, labels, first["methods"], _policies(first), strict=True)
    }


def group_name(compare: str, label: str, place: Machine, methods: object, policy: object) -> str:
    """One value of what is compared."""
    match compare:
        case "methods":
            return str(methods).replace("+", " + ") if isinstance(methods, str) and methods else NO_METHODS
        case "hardware":
            return str(place)
        case "policy":
            return policy if isinstance(policy, str) else UNGOVERNED
        case _:
            return label


def _policies(rows: pd.DataFrame) -> pd.Series:
    return rows["policy"] if "policy" in rows else pd.Series(None, index=rows.index, dtype=object)

"""Axes in words: what a column of `results` counts, amounts of it, and how much less of it one recipe needs.

Comparisons hold ratios, recipe over baseline, so that 0.62 means 0.62 of the baseline's time. People compare speedups,
so words turn the ratio round: 1.61x faster. The same number along an axis that is no time is called a gain.
"""

from explorer.page.amounts import energy, memory

AXES = {
    "train_seconds": "time",
    "cost_usd": "cost",
    "steps": "steps",
    "peak_memory": "peak memory",
    "energy_kwh": "energy",
    "wall_seconds": "wall time",
    "deletion_seconds": "time of deletion",
    "deletion_usd": "cost of deletion",
}

_COMPARED = {  # words for less of it, for more of it, and for as much
    "train_seconds": ("faster", "slower", "as fast"),
    "wall_seconds": ("faster", "slower", "as fast"),
    "cost_usd": ("cheaper", "more expensive", "at the same cost"),
}


def axis_words(x: str) -> str:
    """Return a column in words; for the column of one class, the words for all classes and its name.

    >>> axis_words("deletion_seconds/open/mit")
    'time of deletion of open/mit'
    """
    column, _, class_ = x.partition("/")
    return f"{AXES.get(column, column)} of {class_}" if class_ else AXES.get(x, x)


def amount_words(x: str, value: float) -> str:
    """Return an amount of what a column counts.

    >>> amount_words("cost_usd", 0.5), amount_words("train_seconds", 62.0)
    ('$0.5', '62 s')
    """
    column = x.partition("/")[0]
    if column == "peak_memory":
        return memory(value)
    if column == "energy_kwh":
        return energy(value)
    unit = "s" if column.endswith("_seconds") else x
    return f"${value:.4g}" if column.endswith("_usd") else f"{value:.4g} {unit}"


def ratio_words(value: float) -> str:
    """Return a ratio with two decimals, or two digits below 0.1; with three where two would hide that it is not 1.

    >>> [ratio_words(value) for value in (0.625, 0.0421, 0.9984, 1.0, 1e9)]
    ['0.62', '0.042', '0.998', '1.00', 'over 1000']
    """
    if value >= 1000:
        return "over 1000"
    if value < 0.1:
        return f"{value:.2g}" if value >= 1e-3 else "0.00"
    return f"{value:.3f}" if value != 1 and f"{value:.2f}" == "1.00" else f"{value:.2f}"


def gain_words(x: str, ratio: float) -> str:
    """Return how a recipe that needs `ratio` of the baseline's `x` compares with it.

    >>> gain_words("train_seconds", 0.5), gain_words("cost_usd", 1.5), gain_words("steps", 0.8)
    ('2.00x faster', '1.50x more expensive', 'in 1.25x fewer steps')
    """
    if ratio == 1:
        return _COMPARED[x][2] if x in _COMPARED else f"with as {'many' if x == 'steps' else 'much'} {axis_words(x)}"
    before = "" if x in _COMPARED else "in " if x == "steps" else "with "
    factor = ratio if ratio > 1 else 1 / max(ratio, 1e-300)
    return f"{before}{ratio_words(factor)}x {gain_name(x, more=ratio > 1)}"


def gain_bound(x: str, ratio: float) -> str:
    """Return how a recipe that needs at most `ratio` of the baseline's `x` compares with it.

    >>> gain_bound("train_seconds", 0.5), gain_bound("train_seconds", 1.5)
    ('at least 2.00x faster', 'at most 1.50x slower')
    """
    return f"at {'most' if ratio > 1 else 'least'} {gain_words(x, ratio)}"


def gain_name(x: str, *, more: bool = False) -> str:
    """Return the comparative for needing less of `x`, or more: "faster", "slower"."""
    if x in _COMPARED:
        return _COMPARED[x][more]
    return f"{'more' if more else 'fewer' if x == 'steps' else 'less'} {axis_words(x)}"


def gain_span(low: float | None, high: float | None) -> str:
    """Return the interval of a ratio, recipe over baseline, as one of speedups.

    >>> gain_span(0.5, 0.8)
    '1.25x-2.00x'
    """
    if low is None or high is None:
        return "-"
    return "-".join(f"{ratio_words(1 / max(value, 1e-300))}x" for value in (high, low))


def gain_number(x: str, ratio: float) -> str:
    """Return the speedup, or gain, as a number: below 1x the recipe needs more.

    >>> gain_number("train_seconds", 1.25)
    'speedup 0.80x'
    """
    return f"{'speedup' if x in ('train_seconds', 'wall_seconds') else 'gain'} {ratio_words(1 / max(ratio, 1e-300))}x"

"""Shared parts of the benchmarks: arguments that are checked before anything is measured, and verdicts on targets.

A target is written as the page shows it, "at most 1.08", "below 1" or "at least 200,000", and `verdict` says in words
whether a figure meets it and by how much:

    1.033 (at most 1.08: meets its target by 0.05)
    1.373 (at most 1.20: misses its target by 0.17)
"""

import argparse
import re
from collections.abc import Callable

_TARGET = re.compile(r"(at most|at least|below|above) ([0-9][0-9,]*(?:\.[0-9]+)?)")


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser that shows a script's docstring as its help."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def whole(least: int = 1, most: int | None = None) -> Callable[[str], int]:
    """The type of an argument that is a whole number from `least` to `most`."""

    def read(written: str) -> int:
        try:
            number = int(written)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            upper = "" if most is None else f" to {most:,}"
            raise argparse.ArgumentTypeError(f"found {written!r}; expected a whole number from {least:,}{upper}")
        return number

    return read


def meets(found: float, target: str) -> bool:
    """Return True if a figure meets a target. Raises `ValueError` for a target in other words."""
    word, bound = _parts(target)
    return {
        "at most": found <= bound,
        "below": found < bound,
        "at least": found >= bound,
        "above": found > bound,
    }[word]


def verdict(found: float, target: str, *, decimals: int = 2) -> str:
    """A target, and in words whether a figure meets it; empty where there is none.

    >>> verdict(1.373, "at most 1.20")
    'at most 1.20: misses its target by 0.17'
    """
    if not target:
        return ""
    _, bound = _parts(target)
    by = f"{abs(found - bound):,.{decimals}f}"
    return f"{target}: {'meets' if meets(found, target) else 'misses'} its target by {by}"


def _parts(target: str) -> tuple[str, float]:
    match = _TARGET.fullmatch(target)
    if match is None:
        raise ValueError(f"found the target {target!r}; expected at most, at least, below or above a number")
    return match[1], float(match[2].replace(",", ""))

"""How a simulated policy is told to people: a table for each phase, and what such a table cannot know."""

import textwrap
from collections.abc import Sequence

from explorer.audit.simulate import LIMITS, Outcome
from explorer.cli.output import print_table, visible

WIDTH = 100


def print_outcomes(outcomes: Sequence[Outcome], *, run: str, was: str, would: str) -> None:
    """Every phase and layer, then the limits."""
    print(visible(f"{run}: recorded under {was}, asked about {would}\n"))
    for phase in dict.fromkeys(each.phase for each in outcomes):
        mine = [each for each in outcomes if each.phase == phase]
        print(visible(f"{phase}: {mine[0].steps} steps"))
        columns = ("layer", "unknown", "length", "cosine", *mine[0].would)
        rows = [
            (each.layer, each.unknown, _number(each.length), _number(each.cosine), *map(_shares, *_both(each)))
            for each in mine
        ]
        print_table(columns, rows, right=columns[1:])
    print("unknown: steps left out; length: of the gradient, over the recorded one; then the classes' shares in it,")
    print("recorded > simulated. What this cannot know:")
    for each in LIMITS:
        print(textwrap.fill(each, WIDTH, initial_indent="- ", subsequent_indent="  "))


def _both(outcome: Outcome) -> tuple[list[float | None], list[float | None]]:
    return list(outcome.was.values()), list(outcome.would.values())


def _shares(was: float | None, would: float | None) -> str:
    return f"{_percent(was)} > {_percent(would)}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"

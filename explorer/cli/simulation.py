"""How a simulated policy is told to people: a table for each phase, and what such a table cannot know."""

import textwrap
from collections.abc import Sequence

from explorer.audit.simulate import LIMITS, Outcome
from explorer.cli.output import print_table, visible

WIDTH = 100
COLUMNS = ("layer", "unknown", "length", "cosine", "the share that changes most")


def print_outcomes(outcomes: Sequence[Outcome], *, run: str, was: str, would: str) -> None:
    """Every phase and layer, then the limits."""
    print(visible(f"{run}: recorded under {was}, asked about {would}\n"))
    for phase in dict.fromkeys(each.phase for each in outcomes):
        mine = [each for each in outcomes if each.phase == phase]
        print(visible(f"{phase}: {mine[0].steps} steps"))
        rows = [
            (each.layer, each.unknown, _number(each.length), _number(each.cosine), visible(_change(each)))
            for each in mine
        ]
        print_table(COLUMNS, rows, right=COLUMNS[1:4])
    print("unknown: steps left out; length: of the gradient, over the recorded one; all shares: --json")
    print("What this cannot know:")
    for each in LIMITS:
        print(textwrap.fill(each, WIDTH, initial_indent="- ", subsequent_indent="  "))


def _change(outcome: Outcome) -> str:
    """The class whose share of the gradient changes most, with what it was and would be."""
    changes = {
        path: abs(would - was)
        for (path, was), would in zip(outcome.was.items(), outcome.would.values(), strict=True)
        if was is not None and would is not None
    }
    path = max(changes, key=lambda each: changes[each], default="")
    if not changes.get(path):
        return "none" if changes else "-"
    return f"{path}: {outcome.was[path]:.1%} > {outcome.would[path]:.1%}"


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"

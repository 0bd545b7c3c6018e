"""What verbs that read the database say of it on standard error."""

import sys
from pathlib import Path

from explorer.page.terminal import visible
from explorer.planned import left_out_words
from explorer.store import queries
from explorer.store.upkeep import bring_up


def tell_upkeep(runs: Path) -> None:
    """Bring the database up to the run directories, and say on standard error what an answer lacks."""
    for words in bring_up(runs):
        print(visible(f"explorer: {words}"), file=sys.stderr)


def tell_left_out(where: Path, sweep: str | None) -> None:
    """Say on standard error how many runs of earlier specifications a database leaves out of its answers."""
    for name, count in queries.left_out(where, sweep=sweep).items():
        print(visible(f"explorer: {name}: {left_out_words(count, name)}"), file=sys.stderr)

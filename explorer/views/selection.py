"""The table of single runs: what each is, its executed notebook, and the command that trains it again."""

from pathlib import Path

import pandas as pd
from markupsafe import Markup

from explorer.records import metric_of
from explorer.views import run_files, text, theme
from explorer.views.tables import Column, Row, swatch, table

MAX_ROWS = 60

COLUMNS = (
    Column(title="Recipe"),
    Column(title="Budget", number=True),
    Column(title="Seed", number=True),
    Column(title="Quality", number=True),
    Column(title="Training time", number=True),
    Column(title="Cost", number=True),
    Column(title="Notebook"),
    Column(title="Train it again"),
)


def selected(rows: pd.DataFrame, brush: dict[str, list[float]]) -> pd.DataFrame:
    """The rows of a scene's runs inside the brushed rectangle, given as the ranges of x and y."""
    inside = pd.Series(True, index=rows.index)
    for field, limits in brush.items():
        inside &= rows[field].between(min(limits), max(limits))
    return rows[inside]


def runs_table(rows: pd.DataFrame, *, look: theme.Look, runs: Path, here: Path) -> Markup:
    """The rows as HTML, in their order. `runs` is the directory of runs; links are relative to the directory `here`.

    Raises `StoreError` for a run that is said to lie outside `runs`.
    """
    shown = rows.head(MAX_ROWS)
    body = table(COLUMNS, [_row(row, look=look, runs=runs, here=here) for _, row in shown.iterrows()])
    rest = len(rows) - len(shown)
    more = Markup('<p class="x-note">and {}; the export has them all</p>').format(text.count(rest, "more run"))
    return body + more if rest else body


def _row(run: pd.Series, *, look: theme.Look, runs: Path, here: Path) -> Row:
    directory = run_files.run_directory(runs, run["directory"])
    return Row(
        cells=(
            swatch(run["recipe"], look),
            f"{run['ssr']:g}",
            str(run["seed"]),
            text.quality(run["y"], metric_of(run.to_dict())),
            text.seconds(run["train_seconds"]),
            "no price" if text.missing(run["usd_per_hour"]) else text.dollars(run["cost_usd"]),
            run_files.notebook(directory, here=here),
            run_files.command(run_files.reproduce(directory, here=here)),
        )
    )

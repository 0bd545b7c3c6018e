"""Exports of the explorer: files of exactly what is shown, and the view itself as a token to paste.

`exports/<name>.csv` comes with `exports/<name>.csv.json`: the question that was asked and the token that asks it
again, the digests of file, database and price table, the prices that the costs are made with, and the head of the
ledger of every governed run that is shown, so that a reader of the file can trace its numbers.
"""

import datetime
import hashlib
import io
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any, Literal

import ipywidgets as widgets
import pandas as pd
import traitlets

from explorer import __version__, rundir
from explorer.canonical import digest
from explorer.costing import Price
from explorer.errors import AnalysisError, ExplorerError
from explorer.page.document import Paragraph
from explorer.page.html import element, fragment
from explorer.page.pictures import Chart, drawn
from explorer.store import frames
from explorer.store.plain_text import RULE, csv_text
from explorer.store.queries import Table
from explorer.views.explorer.question import Question, from_token, to_token
from explorer.views.explorer.snapshot import Snapshot
from explorer.views.notebook import Quiet
from explorer.views.scripted import Scripted, script

Format = Literal["csv", "parquet", "svg", "png", "pdf"]
FORMATS: tuple[Format, ...] = ("csv", "parquet", "svg", "png", "pdf")


def export(
    kind: Format,
    *,
    rows: pd.DataFrame,
    chart: Chart,
    question: Question,
    target: float | None,
    snapshot: Snapshot,
    directory: Path,
    name: str,
) -> Path:
    """Write one file and its origin into `directory`, and return the file's path.

    Args:
        kind: the format, and the suffix of the file.
        rows: the rows that are shown.
        chart: the chart, with a width in pixels.
        question: the view, which the origin records.
        target: the quality at which recipes are compared.
        snapshot: the database that the rows come from.
        directory: the folder for both files.
        name: the file's name without its suffix.

    Raises `RunError` if the disk refuses, `StoreError` if the database can no longer be read, and `AnalysisError` if a
    ledger that is shown has changed there.
    """
    content = encode(kind, rows=rows, chart=chart)
    path = directory / f"{name}.{kind}"
    origin = {
        "file": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "rows": len(rows),
        **({"texts": RULE} if kind == "csv" else {}),
        "query": {**question.as_json(), "target_used": target},
        **_view(question),
        "database_sha256": snapshot.sha256,
        "prices": prices_behind(rows, snapshot.prices),
        **ledgers_behind(rows, snapshot.database),
        "made_at": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "explorer": __version__,
    }
    rundir.write_bytes(path, content)
    rundir.write_json(path.with_name(f"{path.name}.json"), origin)
    return path


def encode(kind: Format, *, rows: pd.DataFrame, chart: Chart) -> bytes:
    """Return the bytes of the file."""
    if kind == "csv":
        # CSV holds text: missing values become None, and arrays lists, as the store's own export writes them.
        plain = rows.astype(object).where(rows.notna(), None)
        for column in {"train_seconds_windows", "inference_windows"} & set(plain.columns):
            lists = [None if cell is None else list(map(float, cell)) for cell in plain[column]]
            plain[column] = pd.Series(lists, index=plain.index, dtype=object)
        table = Table(columns=tuple(map(str, plain.columns)), rows=tuple(plain.itertuples(index=False, name=None)))
        return csv_text(table).encode()
    if kind == "parquet":
        buffer = io.BytesIO()
        rows.to_parquet(buffer, index=False)
        return buffer.getvalue()
    return drawn(kind, chart)


def prices_behind(rows: pd.DataFrame, prices: Sequence[Price]) -> dict[str, Any]:
    """Return the digest of the price table, and the price that each hardware's costs were computed with, or None."""
    columns = ["hardware", "world_size", "usd_per_hour", "price_source", "price_as_of"]
    shown = rows[columns].drop_duplicates() if set(columns) <= set(rows.columns) else pd.DataFrame(columns=columns)
    used = shown.astype(object).where(shown.notna(), None).to_dict("records")
    return {"table_sha256": digest([list(astuple(price)) for price in prices]), "used": used}


def ledgers_behind(rows: pd.DataFrame, database: Path) -> dict[str, Any]:
    """Return the heads of the ledgers of the governed runs among the rows: origin, size and root, as they were read.

    Rows that are means have none, and a note records that. Raises `AnalysisError` if the database now has another root.
    """
    if not {"run_id", "ledger_root"} <= set(rows.columns):
        return {"ledgers": None, "ledgers_note": "the rows are means over runs: no single run is shown"}
    governed = rows[rows["ledger_root"].notna()].drop_duplicates(["sweep", "run_id"])
    sweeps = list(governed["sweep"].unique())
    heads = pd.concat([frames.ledger_heads(database, sweep=sweep) for sweep in sweeps]) if sweeps else pd.DataFrame()
    known = {(head["sweep"], head["run_id"]): head for head in heads.to_dict("records")}
    ledgers = []
    for run in governed[["sweep", "run_id", "ledger_root"]].to_dict("records"):
        head = known.get((run["sweep"], run["run_id"]))
        if head is None or head["root"] != run["ledger_root"]:
            raise AnalysisError(f"the ledger of {run['run_id']} is not the one that is shown: press Refresh")
        ledgers.append(
            {"sweep": head["sweep"], "run": head["run_id"], **{k: head[k] for k in ("origin", "size", "root")}}
        )
    return {
        "ledgers": ledgers,
        "ledgers_note": "as read when the database was made; `explorer ledger verify` checks one",
    }


def _view(question: Question) -> dict[str, str | None]:
    """Return the token, and the command that opens the same view."""
    try:
        token = to_token(question)
    except AnalysisError as error:
        return {"view": None, "view_note": str(error)}
    return {"view": token, "view_note": f"explorer open explore --view {shlex.quote(token)}"}


# ---- the widget

LABEL = "This view (paste another one here)"


class Copy(Scripted):
    """Button that puts a text on the clipboard of the browser, and says so."""

    _esm = script("copy_button")
    text = traitlets.Unicode().tag(sync=True)


class Sharing(widgets.VBox):
    """Token of the view and the export buttons. `export` writes a file and returns its path; `on_open` is called with
    the question of a pasted token."""

    def __init__(self, *, export: Callable[[Format], Path], on_open: Callable[[Question], None]) -> None:
        self._export, self._on_open = export, on_open
        self.token = widgets.Text(description=LABEL, continuous_update=False)
        self.token.observe(self._pasted, "value")
        self.copy = Copy()
        self._quiet = Quiet()
        self._said = widgets.HTML()
        buttons = [button(kind.upper(), tooltip=f"Export what is shown as {kind.upper()}") for kind in FORMATS]
        for kind, pressed in zip(FORMATS, buttons, strict=True):
            pressed.on_click(partial(self.write, kind))
        row = widgets.HBox([self.token.add_class("x-token"), self.copy, *buttons]).add_class("x-exports")
        super().__init__([row, self._said])
        self.add_class("x-sharing")

    def show(self, question: Question) -> None:
        """Show the token of a question."""
        with self._quiet:
            try:
                self.token.value, self._said.value = to_token(question), ""
                self.copy.text = f"explorer open explore --view {shlex.quote(self.token.value)}"
            except ExplorerError as error:
                self.token.value = self.copy.text = ""
                self._warn(str(error))

    def write(self, kind: Format, _: object = None) -> None:
        """Export what is shown, and show the file's path."""
        try:
            path = self._export(kind)
        except ExplorerError as error:
            self._warn(str(error))
            return
        wrote = element("code", os.path.relpath(path))
        self._said.value = element("p", "Wrote ", wrote, class_="x-note", role="status")

    def _pasted(self, _: object) -> None:
        pasted = str(self.token.value)
        if self._quiet or not pasted.strip():
            return
        try:
            self._on_open(from_token(pasted))
        except ExplorerError as error:
            self._warn(str(error))

    def _warn(self, words: str) -> None:
        self._said.value = fragment(Paragraph(words, "alert"))


def button(label: str, *, tooltip: str) -> widgets.Button:
    """Return a button that is as wide as its label."""
    return widgets.Button(description=label, tooltip=tooltip, layout=widgets.Layout(width="auto"))

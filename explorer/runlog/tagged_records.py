"""Single records of a run by what its tag table says of them: from a source to a number, and from numbers to words."""

import difflib
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from explorer import rundir
from explorer.errors import LedgerError
from explorer.provenance.tags_file import TagFile
from explorer.runlog.documents import TABLE_FILE
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target

SHOWN = 6  # most records, or sources, in one message
COMPARED = 10_000  # most sources among which the nearest are looked for


def numbers_of(run: RunLedger, written: Sequence[str]) -> tuple[int, ...]:
    """Return the numbers of these records, each written as its row number in the tag table, or as its source there.

    A number is not looked up here (`Presence.rows_of`). Raises `LedgerError` for a source that no row has, or several.
    """
    sources = {name for name in written if not re.fullmatch(r"-?[0-9]{1,18}", name)}
    numbers = _rows_from(run, sources) if sources else {}
    return tuple(numbers[name] if name in numbers else int(name) for name in written)


def _rows_from(run: RunLedger, sources: set[str]) -> dict[str, int]:
    places: dict[str, list[int]] = {source: [] for source in sources}
    known: dict[str, None] = {}  # in the order of the table
    with TagFile(_table(run)) as table:
        for batch in table.batches():
            known |= dict.fromkeys(islice(batch.sources.values, COMPARED - len(known)))
            for code, value in enumerate(batch.sources.values):
                if value in places:
                    places[value] += (batch.first + np.flatnonzero(batch.sources.index == code)).tolist()
    for source, rows in places.items():
        if len(rows) != 1:
            raise LedgerError(_several(source, rows) if rows else _none(source, [*known]))
    return {source: row for source, (row,) in places.items()}


def words_of(run: RunLedger, target: Target) -> str:
    """Return a target in words; of single records with what the tag table says of each."""
    if not target.records:
        return target.words
    with TagFile(_table(run)) as table:
        rows = dict(table.rows_at(target.records[:SHOWN]))
    said = [", ".join(filter(None, (row.source, f"class {row.class_path}"))) for row in rows.values()]
    if len(target.records) == 1:
        return f"{target.words} ({said[0]})"
    listed = "; ".join(f"{number} ({words})" for number, words in zip(rows, said, strict=True))
    more = f"; and {len(target.records) - SHOWN} more" if len(target.records) > SHOWN else ""
    return f"{target.words}: {listed}{more}"


def _table(run: RunLedger) -> Path:
    return run.run / rundir.GOVERNANCE / TABLE_FILE


def _several(source: str, rows: list[int]) -> str:
    more = ", ..." if len(rows) > SHOWN else ""
    return (
        f"record {source!r}: the source of {len(rows):,} rows of the tag table, expected one: give a row number"
        f" of {', '.join(map(str, rows[:SHOWN]))}{more}; in shards, `explorer data find` finds it by the content"
    )


def _none(source: str, known: list[str]) -> str:
    near = difflib.get_close_matches(source, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"its sources are such as {known[0]!r}."
    return (
        f"record {source!r}: no row of the tag table has this source; {hint} The table has training examples only."
        " Expected a row number, counted from 0, or a source as the table has it"
    )

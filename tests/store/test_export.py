"""What is exported is exactly what is asked: read back, it is the same rows."""

import csv
import io

import pyarrow.parquet
import pytest

from explorer.errors import RunError, StoreError
from explorer.store import queries
from explorer.store.export import export
from explorer.store.ingest import ingest
from explorer.store.plain_text import csv_text, markdown_text, neutral
from explorer.store.queries import Table
from tests.builders import run_record, write_run, write_sweep


@pytest.fixture
def database(tmp_path):
    write_sweep(tmp_path, {"baseline": {1.0: (0.9, 1 / 3)}})
    write_run(tmp_path, run_record(sweep="second", tuning='|a,"b"\n<b>'))
    return ingest(tmp_path).database


def plain(value):
    """How a value stands in a CSV file; a float stays one."""
    if value is None or isinstance(value, float):
        return "" if value is None else value
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_csv_reads_back_the_same(database, tmp_path):
    assert export(database, tmp_path / "out.csv") == 3
    table = queries.results(database)
    with (tmp_path / "out.csv").open(newline="") as file:
        found = list(csv.reader(file))
    assert tuple(found[0]) == table.columns
    for row, cells in zip(table.rows, found[1:], strict=True):
        for value, cell in zip(row, cells, strict=True):
            assert (float(cell) if isinstance(value, float) else cell) == plain(value)


def test_parquet_reads_back_the_same(database, tmp_path):
    assert export(database, tmp_path / "out.parquet", sweep="digits", metric="nll") == 2
    table = queries.results(database, sweep="digits", metric="nll")
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert tuple(found.column_names) == table.columns
    assert [tuple(row.values()) for row in found.to_pylist()] == list(table.rows)


def test_markdown_is_one_line_a_row_and_holds_no_markup(database):
    table = queries.results(database)
    text = markdown_text(table)
    assert len(text.splitlines()) == 2 + 3
    assert '\\|a,"b" &lt;b>' in text
    assert "0.333333" in text
    assert {line.replace("\\|", "").count("|") for line in text.splitlines()} == {len(table.columns) + 1}


FORMULAE = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "\uff1d1", '=HYPERLINK("http://x")', "-"]
PLAIN = ["fast", "a=1", "1-2", "'quoted'", "", "\u0645\u062f\u0644"]


def test_a_text_that_begins_like_a_formula_is_neutralised_and_a_number_is_not():
    numbers = [-1.5, -0.1, 1e-300, -7, 0.1 + 0.2]
    table = Table(columns=("=name", "other"), rows=tuple((text, number) for text in FORMULAE for number in numbers))
    found = list(csv.reader(io.StringIO(csv_text(table), newline="")))
    assert found[0] == ["'=name", "other"]
    for (text, number), (name, value) in zip(table.rows, found[1:], strict=True):
        assert name == f"'{text}"
        assert float(value) == number
    assert [neutral(text) for text in PLAIN] == PLAIN


def test_a_name_stays_one_cell_of_markdown():
    hostile = [
        "a|b",
        "a\\|b",
        "a\nb",
        "a\r\n| x |",
        "![x](http://x)",
        "<img src=x>",
        "&lt;",
        "`code`",
        "\x1b[31mred",
        "\u202ea",
    ]
    text = markdown_text(Table(columns=("name|", "n"), rows=tuple((name, 1) for name in hostile)))
    lines = text.splitlines()
    assert len(lines) == 2 + len(hostile)
    for line in lines:
        assert line.replace("\\\\", "").replace("\\|", "").count("|") == 3
    assert not {"<", "![", "\x1b", "\u202e"} & set(text) and "![x]" not in text
    assert "!\\[x\\](http://x)" in text
    assert "&amp;lt;" in text


def test_texts_are_files_too(database, tmp_path):
    table = queries.results(database, sweep="digits")
    assert export(database, tmp_path / "out.md", sweep="digits") == 2
    assert (tmp_path / "out.md").read_text() == markdown_text(table)
    assert export(database, tmp_path / "any", sweep="digits", format="csv") == 2
    assert (tmp_path / "any").read_text() == csv_text(table)


def test_an_export_that_cannot_be_written_leaves_nothing(database, tmp_path):
    with pytest.raises(StoreError, match="unknown format 'xlsx'"):
        export(database, tmp_path / "out.xlsx")
    (tmp_path / "file").write_text("x")
    for suffix in ("csv", "md", "parquet"):
        with pytest.raises((StoreError, RunError), match="cannot write"):
            export(database, tmp_path / "file" / f"out.{suffix}")
    with pytest.raises(StoreError, match="unknown sweep"):
        export(database, tmp_path / "out.csv", sweep="x")
    assert not (tmp_path / "out.csv").exists()

"""Blocks as text, tables in a terminal that is too narrow for them, and the answers of verbs."""

import io
import json
import os
import shutil
import sys
from typing import NoReturn

import pytest

from explorer.page.document import Bullets, Code, Column, Facts, Fold, Heading, Paragraph, Row, Span, Table, with_note
from explorer.page.progress import Bar
from explorer.page.terminal import KERNEL, Answer, deliver, print_table, show


def test_a_narrow_terminal_breaks_words_and_leaves_nothing_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    name, word = "uniform_sampling_of_names", "a_word_that_is_long"
    print_table(("first", "second"), [(name, f"{word} {word}")])
    header, _, *lines = capsys.readouterr().out.strip("\n ").splitlines()
    assert header.split() == ["first", "second"]
    shown = sorted("".join(lines).replace(" ", ""))
    assert shown == sorted(name + word + word)


class Narrow(io.StringIO):
    """A terminal, of $COLUMNS columns."""

    def isatty(self) -> bool:
        return True


def test_a_narrow_table_is_written_where_it_should_be_in_a_notebook_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel rich shows what it prints as an output of its own; the text of a result would lack its table."""
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    written = Narrow()
    print_table(("first", "second"), [("a" * 40, "b" * 40)], file=written)
    assert written.getvalue().count("a") >= 40
    assert "a" * 40 not in written.getvalue()


def test_a_string_is_not_wrapped_to_the_terminal_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel has the terminal that Jupyter was started from; what a cell shows must not depend on it."""
    monkeypatch.setenv("COLUMNS", "30")
    written = io.StringIO()
    print_table(("first", "second"), [("a" * 40, "b" * 40)], file=written)
    assert "a" * 40 + "  " + "b" * 40 in written.getvalue()


def test_the_terminal_of_a_notebooks_cell_gets_whole_lines_and_no_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """`!explorer results` runs in a terminal of 80 columns, and the notebook stores what it writes."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda fallback: os.terminal_size((80, 24)))
    monkeypatch.setattr(sys, "stderr", Narrow())
    monkeypatch.setenv(KERNEL, "17")
    text, drawn = _shown(monkeypatch)
    assert "a" * 60 + "  " + "b" * 60 in text and "\x1b" not in text and not drawn
    monkeypatch.delenv(KERNEL)
    text, drawn = _shown(monkeypatch)
    assert "\x1b" in text and drawn, "a terminal of one's own gets them as before"


def _shown(monkeypatch: pytest.MonkeyPatch) -> tuple[str, bool]:
    """Return the text of a wide table, and whether a bar is drawn."""
    out = Narrow()
    monkeypatch.setattr(sys, "stdout", out)
    print_table(("first", "second"), [("a" * 60, "b" * 60)])
    with Bar("mine") as bar:
        return out.getvalue(), bar.is_drawn


def test_what_is_piped_has_a_line_a_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "get_terminal_size", lambda fallback: os.terminal_size(fallback))
    print_table(("first", "second"), [("a" * 200, "b" * 200)])
    assert ("a" * 200 + "  " + "b" * 200) in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["20", "300"])
def test_a_cell_steers_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_table(("name",), [("\x1b[31mred\x07\nline\u202eback",)])
    out = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\u202e"} & set(out)
    assert "\\x1b[31mred\\x07\\nline\\u202eback" in "".join(out.split())


BLOCKS = [
    Heading(2, "Recipes"),
    Paragraph(with_note("fast\x1b[31m", "n=3"), "lead"),
    Facts([("key", "a"), ("longer", "b")]),
    Bullets(["one", "two"]),
    Table([Column("recipe"), Column("time", number=True)], [Row(("fast", (Span("1 s", "strong"),)))], caption="Times"),
    Fold("More", [Code("as it is")]),
    "a line",
]
SHOWN = """
Recipes
fast\\x1b[31m (n=3)
  key     a
  longer  b
- one
- two
Times
recipe  time
──────  ────
fast     1 s

More
as it is
a line
"""


def test_blocks_are_lines_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    show(BLOCKS)
    assert capsys.readouterr().out == SHOWN


def refuse() -> NoReturn:
    raise AssertionError("not asked for")


@pytest.mark.parametrize(("holds", "status", "expected"), [(True, None, 0), (False, None, 1), (False, 3, 3)])
def test_an_answer_prints_what_is_asked_for_and_gives_the_status(
    capsys: pytest.CaptureFixture[str], holds: bool, status: int | None, expected: int
) -> None:
    people = Answer(page=lambda: ["it holds"], record=refuse, holds=holds, status=status, faults_to_stderr=True)
    assert deliver(people, as_json=False) == expected
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (("it holds\n", "") if holds else ("", "it holds\n"))
    programs = Answer(page=refuse, record=lambda: {"holds": holds}, holds=holds, status=status)
    assert deliver(programs, as_json=True) == expected
    assert json.loads(capsys.readouterr().out) == {"holds": holds}


def test_an_alert_and_the_remark_of_an_answer_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The rest of the page stays on standard output, also where the answer does not hold."""
    alert = Paragraph("2 blobs are missing\x1b[2J", "alert")
    answer = Answer(page=lambda: ["verified", alert], record=lambda: {}, holds=False, remark="kept in evidence/")
    assert deliver(answer, as_json=False) == 1
    shown = capsys.readouterr()
    assert shown.out == "verified\n"
    assert shown.err == "2 blobs are missing\\x1b[2J\nkept in evidence/\n"
    assert deliver(answer, as_json=True) == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("{}\n", "kept in evidence/\n")

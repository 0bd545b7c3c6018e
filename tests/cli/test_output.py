"""Tables in a terminal that is too narrow for them, and where there is none."""

import os
import shutil

import pytest

from explorer.cli.output import print_table


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

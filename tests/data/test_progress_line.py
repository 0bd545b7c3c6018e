"""The progress line while data are read: a terminal after a second, nothing elsewhere."""

import io

import pytest

from explorer.data import progress_line


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("screen", "after", "shown"), [(Screen(), 0.0, True), (Screen(), 60.0, False), (io.StringIO(), 0.0, False)]
)
def test_a_line_on_a_terminal_after_a_while(
    screen: io.StringIO, after: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_line, "AFTER", after)
    assert [*progress_line.watched(range(5), "reading p", total=5, stream=screen)] == [*range(5)]
    assert ("reading p: 0 of 5" in screen.getvalue()) == shown
    assert screen.getvalue().endswith(progress_line.CLEAR) == shown


def test_the_line_goes_away_where_reading_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "AFTER", 0.0)
    screen = Screen()
    with pytest.raises(ZeroDivisionError):
        for item in progress_line.watched([1, 0], "reading p", total=2, stream=screen):
            assert 1 / item
    assert "reading p" in screen.getvalue()

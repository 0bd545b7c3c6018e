"""Progress of a sweep in a terminal: rate, time left, best answer so far; events for programs stay events."""

import json

import pytest

from explorer.cli import sweep
from explorer.cli.sweep import JsonLines, ProgressBar, Rate
from explorer.sweep.execute import Event


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(sweep, "time", made)
    return made


def done(number: int, **more: object) -> Event:
    fields = {"kind": "done", "done": number, "failed": 0, "total": 20, "fraction": number / 20, "seconds_left": 60.0}
    return Event(**(fields | more))  # pyright: ignore[reportArgumentType]


def test_the_rate_counts_the_runs_of_this_start(clock: Clock) -> None:
    rate = Rate()
    assert rate.words(7) == ""  # done before it started
    clock.now = 30.0
    assert rate.words(7) == ""
    assert rate.words(12) == "10 a minute"


def test_a_log_has_rate_time_left_and_the_answer(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar("digits") as progress:
        progress.show(done(0, kind="start"))
        clock.now = 60.0
        progress.answer(lambda: "so far fast 1.61x faster (1.43x-1.82x)")
        progress.show(done(10))
    assert capsys.readouterr().err.splitlines()[-1] == (
        "10 of 20 runs, 10 a minute, about 1 min 00 s left; so far fast 1.61x faster (1.43x-1.82x)"
    )


def test_answers_take_a_small_share_of_the_time(clock: Clock) -> None:
    asked = []

    def words() -> str:
        asked.append(clock.now)
        clock.now += 1.0  # a second of work
        return ""

    with ProgressBar("digits") as progress:
        for moment in (0.0, 5.0, 15.0, 22.0, 30.0):
            clock.now = max(clock.now, moment)
            progress.answer(words)
    assert asked == [0.0, 22.0]


def test_events_for_programs_have_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with JsonLines() as lines:
        lines.answer(lambda: pytest.fail("nothing shows it"))
        lines.show(done(10))
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line == {
        "event": "done", "run": None, "message": "", "done": 10, "failed": 0, "total": 20, "fraction": 0.5,
        "seconds_left": 60.0,
    }  # fmt: skip

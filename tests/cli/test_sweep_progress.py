"""Progress of a sweep in a terminal: rate, time left, best answer so far; events for programs stay events."""

import json
from pathlib import Path

import duckdb
import pytest

from explorer.cli import sweep
from explorer.cli.sweep import JsonLines, ProgressBar, Rate
from explorer.errors import StoreError
from explorer.store.ingest import WORKING, ingest, rebuild
from explorer.sweep.execute import Event
from tests.builders import write_sweep
from tests.sweep.sweeps import plan


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


def make_old(runs: Path) -> None:
    """Leave a database of an earlier version."""
    ingest(runs)
    with duckdb.connect(runs / "_store" / WORKING) as connection:
        connection.execute("UPDATE schema_version SET version = version - 1")


def warnings(text: str) -> list[str]:
    return [event["message"] for event in map(json.loads, text.splitlines()) if event["event"] == "warning"]


@pytest.mark.slow
def test_a_database_of_an_earlier_version_is_told_once_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_SAID", set())
    planned = plan(tmp_path)
    options = {"runs": tmp_path, "engine": "inline", "workers": 1, "profile": False, "json": True}
    write_sweep(tmp_path, {"baseline": {1.0: (0.9,)}})
    make_old(tmp_path)
    for _ in range(2):  # a command that tunes, or adds seeds, executes several plans
        summary = sweep.execute(planned, **options)
        assert summary.complete
    (told,) = warnings(capsys.readouterr().out)
    assert "of schema" in told and "`explorer store rebuild` makes it again" in told
    # The control: with a database of this version there is nothing to tell.
    rebuild(tmp_path)
    monkeypatch.setattr(sweep, "_SAID", set())
    assert sweep.execute(planned, **options).complete and not warnings(capsys.readouterr().out)


def test_another_fault_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_SAID", set())
    told: list[str] = []

    def once(fault: str) -> None:
        try:
            with sweep._said_once():
                raise StoreError(fault)
        except StoreError as error:
            told.append(str(error))

    for fault in ("too old", "too old", "in use", "too old", "in use"):
        once(fault)
    assert told == ["too old", "in use"]

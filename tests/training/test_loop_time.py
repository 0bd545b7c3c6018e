"""The step time of a loop of one's own, by the function that trained it, in the forecast of a deletion."""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from explorer.costing import Duration
from explorer.errors import RunError
from explorer.runlog.forecast import DRIFT, START, replay_time
from explorer.runlog.target import Target
from explorer.training import loop_time
from explorer.training.loop_time import measure_loop
from tests.adapters.whole_way import OPEN
from tests.cli.command import explorer as command
from tests.cli.command import refused
from tests.training import own_deletions as own
from tests.training.own_deletions import BY_NAME, NEWS

GPT = BY_NAME["minGPT"]
STEPS = 10


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    own.at_desk(monkeypatch)


@pytest.mark.slow
def test_the_plan_of_a_deletion_measures_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time, interval and level, by the function alone; nothing is left behind, and without it the plan says so."""
    documents = own.papers(tmp_path / "governed", GPT.examples, OPEN)
    run = tmp_path / "runs" / "own" / "mine"
    train = partial(own.train, GPT, documents, run, policy=OPEN.name, steps=STEPS)
    train()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    # --- the time is that of the loop, with what it does between its steps ---
    pause = 0.2

    def slow(govern: Any) -> None:
        def paused(*given: Any, **named: Any) -> Any:
            governed = govern(*given, **named)
            step = governed.step

            def stepped(*rows: Any) -> Any:
                time.sleep(pause)
                return step(*rows)

            governed.step = stepped
            return governed

        train(paused)

    measured = measure_loop(run, Target(classes=(NEWS,)), slow)
    assert pause < measured.low <= measured.seconds <= measured.high
    # --- by the command line ---
    monkeypatch.setattr("tests.training.own_deletions.by_name", slow, raising=False)
    loop = ("--loop", "tests.training.own_deletions:by_name")
    planned = command("delete", "plan", run, NEWS, "--profile", *loop, "--json")
    found = json.loads(planned.stdout)
    assert (planned.returncode, found["level"], found["obstacles"]) == (0, "G3", [])
    assert found["time"]["source"] == "profiled" and "first steps" in found["time"]["words"]
    assert found["time"]["low"] >= START.low + STEPS * pause / DRIFT
    without = json.loads(command("delete", "plan", run, NEWS, "--json").stdout)
    assert without["level"] is None and "--loop MODULE:FUNCTION" in without["obstacles"][0]
    assert without["time"]["seconds"] is None and "--profile --loop" in without["time"]["words"]
    said = refused("delete", "plan", run, NEWS, "--profile")
    assert "--profile works on runs of recipes only: name the function that trained this one as well: --loop" in said
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    # --- a loop of too few steps ---
    monkeypatch.setattr(loop_time, "FEWEST", STEPS)
    with pytest.raises(RunError, match=f"found {STEPS} steps of the loop, expected {STEPS + loop_time.WARMUP + 1} or"):
        measure_loop(run, Target(classes=(NEWS,)), train)


def test_the_time_of_a_loop_is_that_of_its_steps(tmp_path: Path) -> None:
    (tmp_path / "loop.json").write_text("{}")
    step = Duration(seconds=0.5, low=0.4, high=0.8)
    found = replay_time(tmp_path, steps=100, share=0.5, step=step)
    assert found.seconds == START.seconds + 50
    assert found.low == START.low + 40 / DRIFT and found.high == START.high + 80 * DRIFT
    assert replay_time(tmp_path, steps=100, share=0.5).seconds is None

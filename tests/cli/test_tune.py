"""`explorer tune`, and a sweep that is tuned before its first run."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from explorer.sweep.tuned import FILE, read_tuned
from tests.cli.command import explorer, refused
from tests.sweep.sweeps import spec

TUNE: dict[str, Any] = {"space": {"lr": [0.01, 1.0]}, "runs": 2, "budget": 0.5, "seeds": [100]}
SMOOTH = {"baseline": [], "smooth": [{"label_smoothing": {"smoothing": 0.3}}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    content = spec(tune=TUNE, budgets=[1.0], recipes=SMOOTH)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "tiny.yaml"


def test_a_plan_shows_the_tuning_and_then_the_sweep_and_writes_nothing(path: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = explorer("tune", path, "--plan", "--runs", runs)
    assert done.returncode == 0, done.stderr
    assert "tiny-tune: which lr is best for each of 2 recipes? 2 quasi-random points a recipe" in done.stdout
    assert "4 runs, 0 of them done" in done.stdout
    whole = json.loads(explorer("sweep", "plan", path, "--json", "--runs", runs).stdout)
    assert (len(whole["runs"]), len(whole["tune"]["runs"]), len(whole["tune"]["missing"])) == (2, 4, 4)
    assert not runs.exists()


def test_what_needs_the_values_says_that_they_are_not_chosen_yet(path: Path, tmp_path: Path) -> None:
    said = refused("sweep", "profile", path, "--runs", tmp_path / "runs")
    assert f"{path}: tune: not done yet; `explorer tune {path}` does it" in said
    spaced = path.rename(path.with_name("my tune.yaml"))
    said = refused("sweep", "profile", spaced, "--runs", tmp_path / "runs")
    command = said.split("`")[1]
    assert shlex.split(command) == ["explorer", "tune", str(spaced)] and command.split()[2:] != [str(spaced)]


def test_a_specification_without_the_key_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(spec()))
    for plan in ([], ["--plan"]):
        said = refused("tune", tmp_path / "plain.yaml", "--runs", tmp_path / "runs", *plan)
        assert "plain.yaml: tune: missing: expected what to tune, such as {space: {lr: [0.03, 0.3]}" in said


@pytest.mark.slow
def test_a_tuning_at_a_place_chooses_what_it_chooses_here(path: Path, tmp_path: Path) -> None:
    options, place = ("--engine", "inline", "--workers", "1"), tmp_path / "place"
    done = explorer("sweep", "run", path, "--runs", tmp_path / "there", "--at", place, "--no-profile", *options)
    assert done.returncode == 0, done.stderr
    for at, count in ((place / "tuning", 4), (place, 2)):
        assert len(list((at / "results").iterdir())) == count, "both are executed there"
    again = explorer("tune", path, "--runs", tmp_path / "again", "--at", place, "--json", *options)
    events = [json.loads(line)["event"] for line in again.stdout.splitlines()]
    assert again.returncode == 0 and "start" in events and events[-1] == "tuned"
    assert explorer("tune", path, "--runs", tmp_path / "here", *options).returncode == 0
    chosen = []
    for name in ("there", "again", "here"):
        tuned = read_tuned(tmp_path / name / "tiny")
        assert tuned is not None
        of_points = [[(point.values, point.quality, point.steps) for point in own.points] for own in tuned.recipes]
        chosen.append((of_points, [own.chosen for own in tuned.recipes]))
    assert chosen[0] == chosen[1] == chosen[2]


@pytest.mark.slow
def test_a_sweep_is_tuned_before_its_first_run_and_only_once(path: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    options = ("--runs", runs, "--engine", "inline", "--workers", "1")
    done = explorer("sweep", "run", path, *options, "--no-profile", "--json")
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    at = next(index for index, event in enumerate(events) if event["event"] == "tuned")
    assert {event.get("tunes") for event in events[:at]} == {"tiny"}
    assert {event.get("tunes") for event in events[at + 1 :]} == {None}
    tuned = read_tuned(runs / "tiny")
    assert tuned is not None and [len(own.points) for own in tuned.recipes] == [2, 2]
    before = (runs / "tiny" / FILE).stat().st_mtime_ns

    again = explorer("tune", path, *options)
    assert again.returncode == 0, again.stderr
    assert "baseline" in again.stdout and f"lr {tuned.recipes[0].values['lr']:g}" in again.stdout
    assert "end of what was tried: a better one may lie beyond; write lr: [" in again.stdout  # of two points both are
    assert (runs / "tiny" / FILE).stat().st_mtime_ns == before
    said = explorer("results", "tiny-tune", "--runs", runs).stdout
    assert "no verdict: these runs chose the values of the recipes of tiny" in said
    planned = json.loads(explorer("sweep", "plan", path, "--json", "--runs", runs).stdout)
    assert planned["missing"] == [] and "tune" not in planned and planned["tuning"] == tuned.words

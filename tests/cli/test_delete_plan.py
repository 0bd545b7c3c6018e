"""`explorer delete plan` on runs that were trained: under an open policy, a late phase and a sealed region."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from explorer import rundir
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.runlog.forecast import START
from explorer.training import replay
from tests.cli.command import explorer, refused
from tests.governance import desk
from tests.training.deletions import BATCHNORM, NEWS, author, recipe_of, trained

STEPS, FIRST = 4, 2  # FIRST: in which `licensed/news` is admitted, where it comes late
OPEN = desk.policy(name="open", rules=(Rule(classes=("*",), weight=1.0),))
LATE = desk.policy(
    name="late", rules=(Rule(classes=("licensed",), progress=(0.0, 0.5), weight=0.0), Rule(classes=("*",), weight=1.0))
)
NORMS_FIRST = desk.policy(
    name="norms-first", rules=(Rule(classes=("licensed",), layers=("*norm*",), weight=1.0), *LATE.rules)
)
SEALED = desk.policy(
    name="sealed",
    sealed=(SealedRegion(name="news", branch="licensed", layers=("head",), rank=2),),
    rules=(Rule(classes=("open",), weight=1.0),),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("plans")
    policies = (OPEN, LATE, NORMS_FIRST, SEALED)
    made = author(root, *policies)
    return {each.name: trained(root / each.name, made, recipe_of(each.name, model=BATCHNORM)) for each in policies}


def planned(run: Path, *words: str) -> dict[str, object]:
    done = explorer("delete", "plan", run, *words, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def route(found: dict[str, object]) -> tuple[object, ...]:
    said = found["route"]
    assert isinstance(said, dict)
    return found["level"], said["start"], said["steps"], said["dropped"]


@pytest.mark.slow
def test_three_policies_and_what_deleting_the_class_takes(runs: dict[str, Path]) -> None:
    assert route(planned(runs["open"], NEWS)) == ("G3", 0, STEPS, [])
    assert route(planned(runs["late"], NEWS)) == ("G3", FIRST, STEPS - FIRST, [])
    assert route(planned(runs["sealed"], NEWS)) == ("G2", STEPS, 0, ["news"])
    assert route(planned(runs["sealed"], "open")) == ("G3", 0, STEPS, [])


def test_statistics_that_the_class_moved_early_move_the_start(runs: dict[str, Path]) -> None:
    """The control: the class is late everywhere but in BatchNorm layers, whose statistics it moves from step 0."""
    assert route(planned(runs["norms-first"], NEWS)) == ("G3", 0, STEPS, [])


def test_records_and_authorities(runs: dict[str, Path]) -> None:
    some = planned(runs["sealed"], *(word for row in range(2, 90, 3) for word in ("--record", str(row))))
    assert some["reach"]["partly"] == [NEWS] and some["level"] == "G3"  # pyright: ignore
    assert route(planned(runs["sealed"], "--record", "2")) == ("G2", STEPS, 0, [])  # it was in no batch


def test_when_nothing_is_left_to_train_nothing_can_be_made(runs: dict[str, Path]) -> None:
    done = explorer("delete", "plan", runs["open"], "--authority", desk.GOVERNANCE)  # vouches for all of them
    assert done.returncode == 1 and "every example of the run would be left out" in done.stdout
    assert "there is nothing to train" in refused("delete", "run", runs["open"], "--authority", desk.GOVERNANCE)
    assert "there is nothing to replay; G2 is available" in refused(
        "delete", "run", runs["sealed"], "--record", "2", "--level", "G3"
    )


def test_what_people_read(runs: dict[str, Path]) -> None:
    done = explorer("delete", "plan", runs["sealed"], NEWS)
    assert done.returncode == 0
    for words in (
        "G2, exact by structure; certified, it will be called deleted.",
        "sealed region news: its own",
        "to drop: news; nothing is trained",
        f"time: {START.seconds:g} s ({START.low:g} s to {START.high:g} s)",
        "normalisation: ",
        "G1: localised and ablated: empirical only, measured and never proved; not a deletion",
    ):
        assert words in done.stdout, words
    one = explorer("delete", "plan", runs["sealed"], "--record", "2").stdout
    assert f": deleting record 2 (example 1.0, class {NEWS})\n" in one
    late = explorer("delete", "plan", runs["late"], NEWS).stdout
    assert "first possible influence: step 2; it trained in 2 steps" in late
    assert "to replay: 2 steps, from the checkpoint of step 2" in late


def test_a_profile_made_now_gives_an_interval(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "WINDOW_SECONDS", 0.001)
    monkeypatch.setattr(replay, "WINDOWS", 2)
    before, after = planned(runs["late"], NEWS)["time"], planned(runs["late"], NEWS, "--profile")["time"]
    assert isinstance(before, dict) and isinstance(after, dict)
    assert (before["source"], before["low"]) == ("measured", None)
    assert after["source"] == "profiled" and START.low < after["low"] < after["seconds"] < after["high"]


def test_what_is_in_the_way_is_said_and_the_exit_status_is_1(runs: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "runs" / "test" / runs["late"].name
    shutil.copytree(runs["late"], run)
    environment = json.loads((run / rundir.ENVIRONMENT).read_text())
    environment["packages"]["torch"] = "2.11.0\x1b[2J"
    environment["platform"] = "another kernel"
    rundir.write_json(run / rundir.ENVIRONMENT, environment)
    done = explorer("delete", "plan", run, NEWS)
    assert done.returncode == 1 and "NOT POSSIBLE here and now; its level would be G3:" in done.stdout
    assert "deleted" not in done.stdout
    assert "packages.torch: 2.11.0\\x1b[2J when it was recorded, " in done.stdout
    assert "another kernel" not in done.stdout
    found = json.loads(explorer("delete", "plan", run, NEWS, "--json").stdout)
    assert found["level"] is None and len(found["obstacles"]) == 1


def test_faults(runs: dict[str, Path], tmp_path: Path) -> None:
    assert "did you mean 'licensed/news'" in refused("delete", "plan", runs["open"], "licensed/new")
    assert "expected one of: a class, an authority, records" in refused("delete", "plan", runs["open"])
    assert "has 899 rows" in refused("delete", "plan", runs["open"], "--record", "99999")
    assert "record -7: the tag table has 899 rows" in refused("delete", "plan", runs["open"], "--record", "-7")
    assert "no row of the tag table has this source" in refused("delete", "run", runs["open"], "--record", "x.jpg")
    assert "no governed run" in refused("delete", "plan", tmp_path, NEWS)

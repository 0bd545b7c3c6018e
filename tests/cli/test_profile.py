"""`explorer profile`: measured here, extrapolated, held against full runs; carried elsewhere and taken in."""

import dataclasses
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from explorer import run_files, rundir
from explorer.engine.fit import affordable_evaluations
from explorer.run_files import ProfileRecord
from explorer.store import queries
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.training import profile as measuring
from tests.cli.command import explorer, refused
from tests.training.governed_for_tests import documents, recipe

RECIPE = """
name: small
task: {dataset: digits, model: {resnet8: {width: 0.5}}}
train: {epochs: 0.5, batch_size: 64, optimizer: {sgd: {lr: 0.1}}}
methods: [{progressive_resizing: {initial_scale: 0.5}}]
"""
PROFILE = ProfileRecord(
    recipe_digest="0" * 64,
    recipe="r",
    hardware=run_files.Hardware(device="cpu", name="a processor", threads=1),
    torch="2.13.0",
    phases={"all steps": run_files.PhaseProfile(seconds=0.2, low=0.1, high=0.3, windows=7)},
    inference_seconds=0.001,
    made_at="2026-11-21T12:00:00Z",
    effective="3" * 64,
)


def _shorten(patch: pytest.MonkeyPatch) -> None:
    for name, value in {"WINDOW_SECONDS": 0.001, "WINDOWS": 3, "BESIDES_SECONDS": 0.001}.items():
        patch.setattr(measuring, name, value)


@pytest.fixture(autouse=True)
def _short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    _shorten(monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path


def told(*arguments: object, cwd: Path) -> Any:
    done = explorer("profile", *map(str, arguments), "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_recipe_is_measured_and_extrapolated_phase_by_phase(place: Path) -> None:
    processor = json.loads(explorer("prices", "list", "--json", "--runs", place).stdout)["hardware"]
    price = ("--usd-per-hour", "7.2", "--count", "2", "--source", "bill")
    assert explorer("prices", "add", "--hardware", processor, *price, "--runs", place / "runs").returncode == 0
    (found,) = told("mine.yaml", "--budget", 1, "--budget", 0.5, "--out", "out.json", cwd=place)
    assert [(run["ssr"], sum(run["phases"].values())) for run in found["runs"]] == [(0.5, 7 // 2 + 1), (1.0, 7)]
    for run in found["runs"]:
        expected = sum(steps * found["phases"][phase]["seconds"] for phase, steps in run["phases"].items())
        assert run["train_seconds"] == pytest.approx(expected)
        assert run["train_seconds_low"] <= run["train_seconds"] <= run["train_seconds_high"]
        assert run["usd"] == pytest.approx(expected * 7.2 / 2 / 3600)
        evaluations = affordable_evaluations(training=expected, one=found["evaluation_seconds"])  # on a quiet machine 1
        assert run["whole_seconds"] == pytest.approx(expected + evaluations * found["evaluation_seconds"])
    assert found["inference_seconds"] > 0 and found["checkpoint_seconds"] > 0 and found["validation"] is None
    written = run_files.read_profile(place / "out.json")
    assert (found["key"], found["effective"]) == (written.key, written.effective)
    assert found["sha256"] == hashlib.sha256((place / "out.json").read_bytes()).hexdigest()


def test_without_a_price_there_are_no_dollars(place: Path) -> None:
    shown = explorer("profile", "mine.yaml", cwd=place).stdout.splitlines()
    assert shown[0].startswith("small on ") and shown[1].startswith("price: no price for ")
    (training,) = (line.split() for line in shown if line.startswith("training"))
    assert (training[1], training[-2:]) == ("7", ["-", "-"])
    assert "not compared with a full run; --validate trains one" in shown


def test_a_full_run_is_trained_and_compared(place: Path) -> None:
    (found,) = told("mine.yaml", "--validate", "--out", "profiles", cwd=place)
    full = found["validation"]
    assert full["steps"] == 7 and found["ratio"] == pytest.approx(full["predicted"] / full["measured"])
    assert full["predicted"] == pytest.approx(found["runs"][0]["train_seconds"])
    assert not (place / "runs").exists()
    (file,) = (place / "profiles").iterdir()
    assert file.name == f"{found['key']}.json" and run_files.read_profile(file).validation is not None


@pytest.mark.slow
def test_a_recorded_run_that_was_alone_is_compared_with_its_own_time(place: Path) -> None:
    done = json.loads(explorer("run", "mine.yaml", "--json", cwd=place).stdout)
    run = place / done["directory"]
    (found,) = told(run / "run.json", cwd=place)
    timings = done["timings"]
    training = sum(timings.values()) - sum(timings[part] for part in run_files.APART)
    assert found["validation"]["measured"] == pytest.approx(training * 7 / done["timed_steps"])
    result = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps(result | {"contended": True}))  # the control
    (found,) = told(run / "run.json", cwd=place)
    assert found["validation"] is None


def test_another_recipe_under_the_name_of_a_recorded_run_is_refused(place: Path) -> None:
    done = json.loads(explorer("run", "mine.yaml", "--json", cwd=place).stdout)
    record = run_files.read(run_files.RunRecord, place / done["directory"] / rundir.RUN)
    other = dataclasses.replace(record, identity={**record.identity, "data": "0" * 64})
    named = dataclasses.replace(other, run_id=other.run_id[:-8] + run_files.digest(other.identity)[:8])
    run_files.write(place / "other.json", named)
    assert "data here differ from its record: this would be another recipe" in refused(
        "profile", "other.json", cwd=place
    )


SWEEP = """
name: both
task: {dataset: digits, model: {resnet8: {width: 0.5}}}
train: {epochs: 0.5, batch_size: 64, optimizer: {sgd: {lr: 0.1}}}
baseline: baseline
recipes: {baseline: [], small: [{progressive_resizing: {initial_scale: 0.5}}]}
budgets: [0.5, 1.0]
seeds: [0, 1]
"""


def test_all_recipes_of_a_sweep_are_measured_in_turns(place: Path) -> None:
    (place / "both.yaml").write_text(SWEEP)
    found = told("both.yaml", "mine.yaml", "--out", "profiles", cwd=place)
    assert [(each["recipe"], [run["ssr"] for run in each["runs"]]) for each in found] == [
        ("baseline", [0.5, 1.0]),
        ("small", [0.5, 1.0]),  # the file of the recipe names the same one
    ]
    assert {path.stem for path in (place / "profiles").iterdir()} == {each["key"] for each in found}
    assert "a sweep specification names its own documents" in refused(
        "profile", "both.yaml", "--governance", ".", cwd=place
    )


def test_one_file_holds_one_recipe(place: Path) -> None:
    (place / "both.yaml").write_text(SWEEP)
    assert "one file for 2 recipes; expected a directory" in refused(
        "profile", "both.yaml", "--out", "x.json", cwd=place
    )
    assert "budget 0.001 leaves no step" in refused("profile", "mine.yaml", "--budget", "0.001", cwd=place)


@pytest.mark.slow
def test_a_governed_recipe_is_profiled_under_its_documents(tmp_path: Path) -> None:
    content = recipe(str(documents(tmp_path / "governed")))
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(content))
    run = json.loads(explorer("run", "tiny.yaml", "--json", cwd=tmp_path).stdout)["directory"]
    (found,) = told(f"{run}/run.json", "tiny.yaml", cwd=tmp_path)  # the same recipe
    assert found["validation"]["steps"] == sum(found["runs"][0]["phases"].values())
    assert any("governance" in phase["split"] for phase in found["phases"].values())


# Carried from one machine to another


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a finished run and a profile of its recipe."""
    made = tmp_path_factory.mktemp("once")
    (made / "mine.yaml").write_text(RECIPE)
    explorer("run", "mine.yaml", cwd=made)
    with pytest.MonkeyPatch.context() as patch:
        _shorten(patch)
        told("mine.yaml", "--out", "here.json", cwd=made)
    return made


@pytest.fixture
def trained(once: Path, tmp_path: Path) -> tuple[Path, ProfileRecord]:
    """A copy of it, and the profile as another machine would have made it."""
    shutil.copytree(once, tmp_path / "place")
    here = run_files.read_profile(once / "here.json")
    there = dataclasses.replace(here.hardware, device="cuda", name="NVIDIA H200")
    return tmp_path / "place", dataclasses.replace(here, hardware=there, recipe_digest="1" * 64)


@pytest.mark.slow
def test_a_profile_from_elsewhere_predicts_the_runs_of_its_recipe(trained: tuple[Path, ProfileRecord]) -> None:
    place, profile = trained
    run_files.write(place / "h200.json", profile)
    (found,) = told("import", "h200.json", cwd=place)
    assert (found["predicted"], found["profiled"], found["of_this_recipe"], found["ratio"]) == (1, 0, 1, None)
    assert found["sha256"] == hashlib.sha256((place / "h200.json").read_bytes()).hexdigest()
    kept = place / "runs" / rundir.PROFILES / f"{profile.key}.json"
    assert kept.read_bytes() == (place / "h200.json").read_bytes()
    (row,) = predicted(place / "runs")
    (run,) = rundir.run_directories(place / "runs" / "single")
    phases = run_files.read(run_files.RunRecord, run / rundir.RUN).phases
    assert row["train_seconds"] == pytest.approx(sum(n * profile.phases[name].seconds for name, n in phases.items()))
    assert (row["hardware"], row["cost_usd"]) == (
        "NVIDIA H200",
        pytest.approx(row["train_seconds"] / 3600 * 63.296 / 8),
    )
    shown = explorer("profile", "import", "h200.json", cwd=place).stdout
    assert "1 finished run is now with predicted times on NVIDIA H200" in shown
    assert "not compared with a full run there" in shown


def test_a_profile_of_another_recipe_predicts_nothing(trained: tuple[Path, ProfileRecord]) -> None:
    place, profile = trained
    run_files.write(place / "other.json", dataclasses.replace(profile, effective="2" * 64))
    (found,) = told("import", "other.json", cwd=place)
    assert (found["predicted"], found["of_this_recipe"]) == (0, 0)
    assert predicted(place / "runs") == []
    assert (
        "no finished run has this recipe (222222222222)"
        in explorer("profile", "import", "other.json", cwd=place).stdout
    )


def test_a_profile_without_a_phase_of_the_runs_predicts_nothing(trained: tuple[Path, ProfileRecord]) -> None:
    place, profile = trained
    (first, *_) = profile.phases.items()
    run_files.write(place / "part.json", dataclasses.replace(profile, phases=dict([first])))
    (found,) = told("import", "part.json", cwd=place)
    assert (found["predicted"], found["of_this_recipe"]) == (0, 1)


def predicted(runs: Path) -> list[dict[str, Any]]:
    found = queries.results(database(runs))
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    return [row for row in rows if row["time_source"] == "predicted"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"phases": {}}, "the profile has no phase"),
        ({"inference_seconds": -1.0}, "inference: found -1; expected seconds above 0"),
        ({"effective": ""}, "made by an earlier version"),
        ({"extra": 1}, "damaged ProfileRecord: extra: unknown key"),
        ({"recipe": "\ud800"}, "bad.json: damaged ProfileRecord: the whole: invalid JSON"),
    ],
)
def test_a_file_that_cannot_be_believed_is_refused_and_none_is_taken_in(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    good = run_files.to_json(PROFILE)
    (tmp_path / "good.json").write_text(json.dumps(good))
    (tmp_path / "bad.json").write_text(json.dumps(good | change))
    (tmp_path / "runs").mkdir()
    ingest(tmp_path / "runs")
    assert message in refused("profile", "import", "good.json", "bad.json", cwd=tmp_path)
    assert not (tmp_path / "runs" / rundir.PROFILES).exists()


def test_a_changed_byte_has_another_digest_or_is_refused(tmp_path: Path) -> None:
    """Every digit of a profile can be changed by hand; what is printed on both machines tells."""
    (tmp_path / "runs").mkdir()
    run_files.write(tmp_path / "p.json", PROFILE)
    content = (tmp_path / "p.json").read_bytes()
    (whole,) = told("import", "p.json", cwd=tmp_path)
    (tmp_path / "p.json").write_bytes(content.replace(b'"seconds": 0.2', b'"seconds": 0.3'))
    (changed,) = told("import", "p.json", cwd=tmp_path)
    assert changed["sha256"] != whole["sha256"] == hashlib.sha256(content).hexdigest()
    for broken in (
        content.replace(b'"seconds": 0.2', b'"seconds": 0.4'),
        content[:-3],
        content.replace(b"cpu", b"cpv"),
    ):
        (tmp_path / "p.json").write_bytes(broken)
        assert "p.json" in refused("profile", "import", "p.json", cwd=tmp_path)
    assert "there is no directory" in refused("profile", "import", "p.json", "--runs", "nowhere", cwd=tmp_path)

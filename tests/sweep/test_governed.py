"""Sweeps under signed documents: named once in the specification, kept by every run, the same in every engine."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from explorer import run_files, rundir
from explorer.errors import ProvenanceError, SpecError
from explorer.ledger.storage import LedgerDirectory
from explorer.run_files import ProfileRecord, ResultRecord, RunRecord
from explorer.store.ingest import ingest
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.measure import measure
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec
from tests.training.governed_for_tests import METHODS, documents, recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents(tmp_path_factory.mktemp("documents"))


def spec(governance: str | None, **recipes: Any) -> dict[str, Any]:
    usual = recipe()
    content: dict[str, Any] = {
        "name": "governed",
        "task": usual["task"],
        "train": usual["train"],
        "baseline": "typed",
        "recipes": {"typed": [], "routed": METHODS} | recipes,
        "budgets": [1.0],
        "seeds": [0],
    }
    return content if governance is None else content | {"governance": governance}


def plan(directory: Path, governance: str | None, **recipes: Any) -> Plan:
    """The plan of a specification in a file of this directory."""
    path = directory / "spec.yaml"
    path.write_text(yaml.safe_dump(spec(governance, **recipes)))
    return make_plan(load_spec(path), runs=directory / "runs")


def digests(runs: Path) -> dict[str, str]:
    return {
        path.name: run_files.read(ResultRecord, path / rundir.RESULT).state_digest
        for path in rundir.run_directories(runs / "governed")
    }


def execute(directory: Path, governance: str, engine: Any) -> dict[str, str]:
    summary = run_sweep(plan(directory, governance), Settings(engine=engine, workers=1, profile=False))
    assert summary.complete, summary.failures
    return digests(directory / "runs")


def test_a_directory_is_seen_from_the_specification(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made, tmp_path / "beside")
    relative, absolute = plan(tmp_path, "beside"), plan(tmp_path, str(made))
    assert [run.record for run in relative.runs] == [run.record for run in absolute.runs]
    assert relative.spec.governance == tmp_path / "beside"
    assert {
        run.record.recipe: run.documents is not None and run.documents.policy is not None for run in relative.runs
    } == {
        "typed": False,
        "routed": True,
    }


@pytest.mark.notebook
def test_every_run_keeps_its_documents_and_has_its_ledger(made: Path, tmp_path: Path) -> None:
    execute(tmp_path, str(made), "inline")
    for path in rundir.run_directories(tmp_path / "runs" / "governed"):
        routed = run_files.read(RunRecord, path / rundir.RUN).recipe == "routed"
        assert (path / "governance" / "policy.json").exists() == routed
        assert (path / rundir.LEDGER).exists() == routed
        if routed:
            assert LedgerDirectory(path / rundir.LEDGER).checkpoint().origin == f"example.com/trainer/{path.name}"
    assert not plan(tmp_path, str(made)).missing
    assert ingest(tmp_path / "runs").problems == ()


@pytest.mark.slow
@pytest.mark.notebook
def test_governed_runs_have_the_same_bits_in_every_engine(made: Path, tmp_path: Path) -> None:
    found = {}
    for engine in ("inline", "warm", "cold"):
        (tmp_path / engine).mkdir()
        found[engine] = execute(tmp_path / engine, str(made), engine)
    assert found["inline"] == found["warm"] == found["cold"] and len(found["inline"]) == 2


@pytest.mark.notebook
@pytest.mark.slow
def test_timing_steps_does_not_touch_the_ledgers(made: Path, tmp_path: Path) -> None:
    execute(tmp_path, str(made), "inline")
    whole = plan(tmp_path, str(made))
    (routed,) = (run.directory for run in whole.runs if run.record.recipe == "routed")
    before = {path: path.read_bytes() for path in routed.rglob("*") if path.is_file()}
    documents = {run.record.recipe_digest: run.documents for run in whole.runs}
    measure(whole.directory, [run.record for run in whole.runs], data=None, documents=documents)
    assert {path: path.read_bytes() for path in routed.rglob("*") if path.is_file()} == before
    profiles = [run_files.read(ProfileRecord, path) for path in (whole.directory / rundir.PROFILES).glob("*.json")]
    (governed,) = (profile for profile in profiles if profile.recipe == "routed")
    assert governed.phases["all steps"].split["governance"] > 0


REFUSED: dict[str, tuple[Any, Any, type[Exception], str]] = {
    "no documents": (None, {}, SpecError, r"recipes.routed: recipe 'routed': 'routing' acts on signed documents"),
    "not a directory": ("nowhere", {}, ProvenanceError, r"governance: .*nowhere: no such directory"),
    "not a text": (3, {}, SpecError, r"spec.yaml:\d+: governance: found 3, expected a directory"),
    "an unknown policy": (
        "documents",
        {"other": [{"routing": {"policy": "lowr"}}]},
        ProvenanceError,
        r"unknown policy 'lowr'; did you mean 'lower'",
    ),
    "an unknown class": (
        "documents",
        {"other": [{"routing": {"policy": "lower", "without": ["simulated/class-09"]}}]},
        SpecError,
        r"recipes.other: routing: without: unknown class 'simulated/class-09'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_faulty_documents_are_refused_before_anything_starts(made: Path, tmp_path: Path, name: str) -> None:
    governance, recipes, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        plan(tmp_path, str(made) if governance == "documents" else governance, **recipes)
    assert not (tmp_path / "runs").exists()

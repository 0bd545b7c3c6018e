"""The template of a package of one's own: built as a wheel, installed elsewhere, certified, listed and swept."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import run_files, rundir

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "notebooks" / "guide" / "plugin"
PATIENCE = 900.0  # seconds for one command on a busy machine


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that the wheel is installed to."""
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(TEMPLATE, place / "source", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", place / "wheels", place / "source"]
    subprocess.run(build, check=True, cwd=place, timeout=PATIENCE)
    (wheel,) = (place / "wheels").glob("*.whl")
    target = [*pip, "install", "--no-deps", "--no-index", "--target", place / "site", wheel]
    subprocess.run(target, check=True, cwd=place, timeout=PATIENCE)
    shutil.rmtree(place / "source")
    return place / "site"


def command(installed: Path, desk: Path, *arguments: object) -> str:
    """Run a module of Python in an empty directory, with the package on its path; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": f"{installed}:{ROOT}", "EXPLORER_RUNS": str(desk / "runs")}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=desk,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_its_own_tests_pass(installed: Path, tmp_path: Path) -> None:
    shutil.copytree(TEMPLATE / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    assert "18 passed" in command(installed, tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")


@pytest.mark.slow
def test_it_is_listed_with_its_origin(installed: Path, tmp_path: Path) -> None:
    for verb, name in (("methods", "gradient_noise"), ("data", "bars"), ("models", "patches")):
        listed = json.loads(command(installed, tmp_path, "-m", "explorer", verb, "--json"))
        assert {thing["name"]: thing["origin"] for thing in listed}[name] == "blocks 0.1.0"
    assert "Neelakantan" in command(installed, tmp_path, "-m", "explorer", "methods", "gradient_noise")
    assert "1,024 train" in command(installed, tmp_path, "-m", "explorer", "data", "bars")


@pytest.mark.slow
@pytest.mark.notebook
def test_it_is_swept_by_local_processes(installed: Path, tmp_path: Path) -> None:
    shutil.copy(TEMPLATE / "sweep.yaml", tmp_path)
    sweep = ("-m", "explorer", "sweep", "run", "sweep.yaml", "--workers", "2", "--no-profile")
    assert "16 runs done" in command(installed, tmp_path, *sweep)
    runs = sorted((tmp_path / "runs" / "blocks").glob("patches-bars-noise-*"))
    assert len(runs) == 4
    record = run_files.read(run_files.RunRecord, runs[0] / rundir.RUN)
    assert record.methods == ("gradient_noise",)
    environment = rundir.read_json(runs[0] / rundir.ENVIRONMENT)
    assert environment["plugins"]["blocks"] == {"source": record.identity["code"]["blocks"], "package": "blocks 0.1.0"}
    # Results are read where the package is not: nothing of it is imported.
    for path in installed.glob("blocks*"):
        path.rename(path.with_name(f"_{path.name}"))
    shown = command(installed, tmp_path, "-m", "explorer", "results", "blocks", "--json")
    assert "noise" in {row["recipe"] for row in json.loads(shown)}
    again = subprocess.run(
        [sys.executable, "-m", "explorer", "run", runs[0] / rundir.RUN, "--out", "again"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert again.returncode != 0 and "no module 'blocks'" in again.stderr and "Traceback" not in again.stderr

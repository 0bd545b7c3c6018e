"""The examples in other frameworks and languages, from the sweep to the report: JAX, and a program in C++."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from explorer import run_files, rundir
from explorer.run_files import ResultRecord, RunRecord
from tests.cli.command import explorer
from tests.sweep.test_command_results import sweep

HERE = Path(__file__).parents[2] / "notebooks" / "guide" / "any_command"


def digits(place: Path) -> None:
    """Write the table of the examples: 64 pixels from 0 to 16, and the digit."""
    pixels, labels = load_digits(return_X_y=True)
    np.savetxt(place / "digits.csv", np.column_stack([pixels, labels]), fmt="%d", delimiter=",")


def compile_program(place: Path) -> None:
    """Build the program as its first lines say."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler: c++")
    digits(place)
    subprocess.run([compiler, "-O2", "-std=c++17", "-o", "train", "train.cpp"], cwd=place, check=True)


def jax_is_here(_: Path) -> None:
    pytest.importorskip("jax", reason="needs JAX: pip install -e '.[jax]'")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prepare"), [("jax", jax_is_here), ("cpp", compile_program)], ids=["jax", "cpp"])
def test_an_example_is_swept_asked_and_reported(
    name: str, prepare: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE.parents[2]))
    for file in HERE.iterdir():
        shutil.copy(file, tmp_path)
    prepare(tmp_path)
    runs = sweep(tmp_path / f"{name}.yaml")
    directories = sorted((runs / name).glob("*/result.json"))
    results = [run_files.read(ResultRecord, path) for path in directories]
    records = [run_files.read(RunRecord, path.with_name(rundir.RUN)) for path in directories]
    assert len(results) == 18
    for record, result in zip(records, results, strict=True):
        assert result.clock == "reported" and result.timings.training() > 0 and result.examples > 0
        assert (record.ssr < 1) or result.metrics["accuracy"] > 0.85
    shown = explorer("results", name, "--runs", runs)
    assert shown.returncode == 0 and "fast" in shown.stdout and "nothing can be compared" not in shown.stdout
    answer = explorer("ask", name, "--quality", "90%", "--runs", runs)
    assert answer.returncode == 0 and "fast" in answer.stdout, answer.stdout + answer.stderr
    report = explorer("report", name, "--format", "md", "--out", tmp_path / "report.md", "--runs", runs)
    assert report.returncode == 0, report.stderr
    assert "Trained by: a command or notebook of the user's" in (tmp_path / "report.md").read_text()

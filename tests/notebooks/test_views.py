"""The notebooks that are opened by people: how they are stored, and that they run."""

import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest

from tests.sample import write_sample

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAMES = ("explore", "sweep")


@pytest.mark.parametrize("name", NAMES)
def test_stored_small_and_without_outputs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) == 2
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert all(len(cell.source.splitlines()) <= 5 for cell in code)
    assert [cell.metadata.get("tags", []) for cell in code] == [["parameters"], []]


def test_the_reading_notebooks_load_no_torch() -> None:
    check = "import sys, explorer.views.explore, explorer.views.sweep_panel, explorer.report.sweep_report\n"
    check += "sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
    control = "import sys; sys.modules['torch'] = sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", control], check=False).returncode == 1


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("name", NAMES)
def test_runs_with_its_own_parameters(name: str, tmp_path: Path) -> None:
    write_sample(tmp_path / "runs", seeds=1)
    parameters = {"runs": str(tmp_path / "runs")}
    if name == "sweep":
        parameters["spec"] = str(tmp_path / "mine.yaml")
    output = tmp_path / "out.ipynb"
    papermill.execute_notebook(
        str(NOTEBOOKS / f"{name}.ipynb"), str(output), parameters=parameters, progress_bar=False, cwd=str(tmp_path)
    )
    outputs = nbformat.read(output, as_version=4).cells[-1].outputs
    assert any("application/vnd.jupyter.widget-view+json" in shown.get("data", {}) for shown in outputs)

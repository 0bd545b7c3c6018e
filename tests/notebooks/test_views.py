"""The notebooks that are opened by people: how they are stored, and that they run."""

import subprocess
import sys
from pathlib import Path

import nbformat
import papermill
import pytest

from tests.governed_sample import write_governed_run
from tests.sample import write_sample

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAMES = ("explore", "sweep", "ledger")


@pytest.mark.parametrize("name", NAMES)
def test_stored_small_and_without_outputs(name: str) -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) == 2
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert all(len(cell.source.splitlines()) <= 5 for cell in code)
    assert [cell.metadata.get("tags", []) for cell in code] == [["parameters"], []]


@pytest.mark.slow
def test_the_reading_notebooks_load_no_torch() -> None:
    check = "import sys, explorer.views.explore, explorer.views.sweep.sweep_panel, explorer.report.sweep_report\n"
    check += "import explorer.views.ledger.ledger_panel\n"
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
    outputs = [cell for cell in nbformat.read(output, as_version=4).cells if cell.cell_type == "code"][-1].outputs
    assert any("application/vnd.jupyter.widget-view+json" in shown.get("data", {}) for shown in outputs)


@pytest.mark.slow
@pytest.mark.notebook
def test_the_ledger_opens_without_torch(tmp_path: Path) -> None:
    """In a kernel of its own: the cells as they are, and then what they have loaded."""
    write_governed_run(tmp_path / "runs")
    notebook = nbformat.read(NOTEBOOKS / "ledger.ipynb", as_version=4)
    check = "import sys\nassert 'torch' not in sys.modules\nprint(view.opened.badge.size, 'entries')"
    notebook.cells.append(nbformat.v4.new_code_cell(check))
    source, output = tmp_path / "ledger.ipynb", tmp_path / "out.ipynb"
    nbformat.write(notebook, source)
    trust = next((tmp_path / "runs" / "single").iterdir()) / "governance" / "trust.json"
    parameters = {"runs": str(tmp_path / "runs"), "trust": str(trust)}
    papermill.execute_notebook(str(source), str(output), parameters=parameters, progress_bar=False)
    code = [cell for cell in nbformat.read(output, as_version=4).cells if cell.cell_type == "code"]
    view, printed = (cell.outputs for cell in code[-2:])
    assert any("application/vnd.jupyter.widget-view+json" in shown.get("data", {}) for shown in view)
    assert printed[0].text == "61 entries\n"

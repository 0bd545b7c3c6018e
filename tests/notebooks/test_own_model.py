"""The notebook on a model of one's own, run whole, twice: the second time it trains nothing."""

from pathlib import Path

import nbformat
import papermill
import pytest

from explorer.store.frames import results
from explorer.store.published import database

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "guide" / "own_model.ipynb"


def test_the_task_is_ten_lines() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    task = code[1].source.partition("class ")[2].partition("\n\n\n")[0]
    assert len([line for line in task.splitlines() if line.strip()]) <= 10


@pytest.mark.slow
@pytest.mark.notebook
def test_trains_and_stands_in_the_table(tmp_path: Path) -> None:
    for turn in range(2):
        papermill.execute_notebook(
            str(NOTEBOOK),
            str(tmp_path / f"out{turn}.ipynb"),
            parameters={"runs": str(tmp_path / "runs")},
            progress_bar=False,
            cwd=str(tmp_path),
        )
    frame = results(database(tmp_path / "runs"), sweep="own")
    assert len(frame) == 27 and set(frame["recipe"]) == {"plain", "smooth", "blur"}
    assert frame[frame["ssr"] == 1]["quality"].min() > 0.85
    whole = nbformat.read(tmp_path / "out1.ipynb", as_version=4)
    assert "Steps to target" in whole.cells[-3].outputs[-1].data["text/plain"]

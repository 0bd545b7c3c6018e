"""The notebooks that govern a loop of one's own: run whole, on the source that is installed here."""

from pathlib import Path

import nbformat
import papermill
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks" / "guide"
DENIED = {"own_loop": ("embed", "near"), "transformers": ("transformer.wte", "transformer.h.0.mlp.c_fc")}


def test_stored_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOKS / "own_loop.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("name", DENIED)
def test_governs_and_proves_it(name: str, tmp_path: Path) -> None:
    if name == "transformers":
        pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[hub]'")
    output = tmp_path / "out.ipynb"
    papermill.execute_notebook(
        str(NOTEBOOKS / f"{name}.ipynb"),
        str(output),
        parameters={"runs": str(tmp_path / "runs"), "steps": 12},
        progress_bar=False,
        cwd=str(tmp_path),
    )
    shown = [out for cell in nbformat.read(output, as_version=4).cells for out in cell.get("outputs", [])]
    text = "".join(out.get("text", "") for out in shown)
    assert "executed again: 12 steps, as on record: True" in text
    assert "12 steps, finished; verified: True" in text
    table = shown[-1].data["text/html"]
    row = table[table.index(f"<th>{DENIED[name][0]}</th>") :].split("</tr>")[0]
    header = [cell.split("<")[0] for cell in table.split("</thead>")[0].split("<th>")[2:]]
    share = dict(zip(header, (cell.split("<")[0] for cell in row.split("<td>")[1:]), strict=True))
    assert float(share["open/permissive/bsd"]) == 0
    assert sum(map(float, share.values())) == pytest.approx(1, abs=0.01)

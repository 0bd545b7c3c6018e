from pathlib import Path

import pandas as pd
import pytest

from explorer.page import theme
from explorer.page.document import words
from explorer.page.html import fragment
from explorer.views.explorer.run_cards import reproduce
from explorer.views.explorer.runs_section import MAX_ROWS, runs_table, selected


@pytest.fixture
def shown(results: pd.DataFrame) -> pd.DataFrame:
    return results.assign(x=results["train_seconds"], y=results["quality"])


LOOK = theme.look(["baseline", "fast", "heavy"], baseline="baseline")


def test_a_brush_selects_what_lies_inside(shown: pd.DataFrame) -> None:
    inside = selected(shown, {"x": [3.1, 3.3], "y": [1.0, 0.0]})
    assert set(inside["recipe"]) == {"baseline"}
    assert set(inside["ssr"]) == {1.0}
    assert len(selected(shown, {"x": [3.1, 3.3], "y": [0.0, 0.1]})) == 0


def test_each_run_has_its_command_and_a_link_to_its_notebook(shown: pd.DataFrame, tmp_path: Path) -> None:
    runs, here = tmp_path / "runs", tmp_path / "notebooks"
    row = shown.head(2)
    notebook = runs / row["directory"].iloc[0] / "notebook.ipynb"
    notebook.parent.mkdir(parents=True)
    notebook.write_text("{}")
    html = fragment(*runs_table(row, look=LOOK, runs=runs, here=here))
    assert html.count("<a ") == 1  # the other run has no notebook
    assert f'href="../runs/{row["directory"].iloc[0]}/notebook.ipynb"' in html
    assert f"explorer run ../runs/{row['directory'].iloc[1]}/run.json --out again" in html


def test_a_hostile_directory_is_quoted_for_shell_and_page(shown: pd.DataFrame, tmp_path: Path) -> None:
    assert words(reproduce(tmp_path / "a;rm b", here=tmp_path)) == "explorer run 'a;rm b/run.json' --out again"
    html = fragment(*runs_table(shown.head(1).assign(directory='x"><img>'), look=LOOK, runs=tmp_path, here=tmp_path))
    assert "<img>" not in html


def test_a_long_table_is_cut_and_says_so(shown: pd.DataFrame, tmp_path: Path) -> None:
    long = pd.concat([shown, shown])
    html = fragment(*runs_table(long, look=LOOK, runs=tmp_path, here=tmp_path))
    assert html.count("<tr>") - 1 == MAX_ROWS
    assert f"and {len(long) - MAX_ROWS} more runs" in html

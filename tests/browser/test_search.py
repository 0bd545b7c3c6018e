"""A search and a tuning as notebooks show them: nothing is cut, narrow or wide, and pictures are drawn."""

from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Page, expect

from tests.browser.lab import cut, faults, open_notebook
from tests.searched_sample import write_searched
from tests.tuned_sample import write_tuned

pytestmark = pytest.mark.browser

EXPLORER = "from explorer.views.explore import explore\n\nexplore({!r}, section={!r})"
PANEL = "from explorer.views.sweep.sweep_panel import sweep_panel\n\nsweep_panel({!r}, {!r})"
LONG = "name: digits\n" + "".join(f"# {number}\n" for number in range(30))


@pytest.fixture(scope="module")
def notebooks(workplace: Path) -> Path:
    place = workplace / "searching"
    for name, write in (("searched", write_searched), ("tuned", write_tuned)):
        write(place / name)
    (place / "spec.yaml").write_text(LONG)
    searched, tuned = str(place / "searched"), str(place / "tuned")
    cells = {
        "search": EXPLORER.format(searched, "search"),
        "tuning": EXPLORER.format(tuned, "tuning"),
        "panel": PANEL.format(str(place / "spec.yaml"), searched),
    }
    for name, cell in cells.items():
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        nbformat.write(notebook, place / f"{name}.ipynb")
    return place


@pytest.mark.parametrize(
    ("name", "pictures", "words"),
    [("search", 2, "expected regret"), ("panel", 2, "expected regret"), ("tuning", 1, "Tuned every recipe")],
)
def test_nothing_is_cut(
    page: Page, address: str, notebooks: Path, screenshots: Path, name: str, pictures: int, words: str
) -> None:
    open_notebook(page, address, f"searching/{name}.ipynb")
    blocks = page.locator(".explorer .x-blocks").filter(has_text=words)  # the panel has others
    expect(blocks).to_have_count(1)
    expect(blocks.locator("svg.marks")).to_have_count(pictures)
    for width in (900, 1260, 1600):
        page.set_viewport_size({"width": width, "height": 1600})
        page.wait_for_timeout(1500)  # charts are drawn for the new width
        assert cut(page) == [], f"at {width} px"
        page.screenshot(path=screenshots / f"{name}-{width}.png")
    assert faults(page, ".explorer .x-blocks") == []

"""Pictures of the explorer's first screen to look at: light and dark, narrow to wide, from no run to very many.

    python benchmarks/screens.py PICTURES [--runs NAME=RUNS ...]

PICTURES gets one picture for each store, width and theme. Stores are made up: no run, one run, and sweeps with 1, 5 and
20 recipes; `--runs` adds directories, such as a finished quickstart or the 100,000 runs of `face_store.py`. What is cut
off on a screen, text or field, is printed; the exit status is 1 if there is any.
"""

import argparse
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import numpy as np
from playwright.sync_api import Page, sync_playwright

from explorer.store.ingest import ingest
from tests.browser.lab import ARGUMENTS, CHROMIUM, cut, jupyterlab, open_notebook, scroll_to, theme
from tests.builders import write_sweep

NOTEBOOK = Path(__file__).parent.parent / "notebooks" / "explore.ipynb"
SIZES = ((900, 900), (1260, 900), (1440, 900), (1600, 1000))
BUDGETS = (0.25, 0.5, 1.0, 2.0)
PANELS = ("Filters", "Prices", "Drawing", "Share, export")


def sweep_of(runs: Path, *, recipes: int, budgets: tuple[float, ...] = BUDGETS, seeds: int = 3) -> None:
    """Write a sweep whose recipes differ in speed and in quality."""
    draws = np.random.default_rng(recipes)
    names = ["baseline", *(f"recipe-{number:02d}" for number in range(1, recipes))]
    gains = {name: draws.normal(0, 0.003) for name in names}
    write_sweep(
        runs,
        {
            name: {
                ssr: tuple(
                    float(min(v, 0.9999))
                    for v in draws.normal(0.98 + gains[name] - 0.03 * math.exp(-2 * ssr), 0.001, seeds)
                )
                for ssr in budgets
            }
            for name in names
        },
        step_seconds={name: float(0.04 * math.exp(draws.normal(-0.1, 0.4))) for name in names},
        quartiles=(0.99, 1.01),
    )
    ingest(runs)


def made_up(place: Path) -> Iterator[tuple[str, Path]]:
    """Write the stores and yield their names and places."""
    (place / "none").mkdir()
    yield "none", place / "none"
    sweep_of(place / "one", recipes=1, budgets=(1.0,), seeds=1)
    yield "one", place / "one"
    for recipes in (1, 5, 20):
        sweep_of(place / f"recipes-{recipes}", recipes=recipes)
        yield f"recipes-{recipes}", place / f"recipes-{recipes}"


def photograph(page: Page, address: str, name: str, pictures: Path) -> list[str]:
    """Take all pictures of one store and return what was cut off."""
    open_notebook(page, address, f"{name}.ipynb")
    page.wait_for_selector(".explorer .x-answer, .explorer .x-empty button", timeout=120_000)
    page.wait_for_timeout(4000)
    faults: list[str] = []
    for colours in ("Light", "Dark"):
        theme(page, colours)
        for width, height in SIZES:
            page.set_viewport_size({"width": width, "height": height})
            scroll_to(page, ".explorer")
            page.wait_for_timeout(900)
            page.screenshot(path=pictures / f"{name}-{colours.lower()}-{width}.png")
            faults += [f"{name}, {width} px, {colours}: {words}" for words in cut(page)]
    theme(page, "Light")
    for panel in PANELS if page.get_by_role("button", name=PANELS[0]).count() else ():
        page.set_viewport_size({"width": 1440, "height": 900})
        page.get_by_role("button", name=panel).click()
        page.wait_for_timeout(700)
        page.screenshot(path=pictures / f"{name}-{panel.split(',')[0].lower()}.png")
        faults += [f"{name}, {panel}: {words}" for words in cut(page)]
        page.get_by_role("button", name=panel).click()
    return faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path, metavar="PICTURES")
    parser.add_argument("--runs", nargs="*", default=[], metavar="NAME=RUNS")
    parser.add_argument("--only", help="the name of one store")
    given = parser.parse_args()
    given.pictures.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="explorer-screens-") as made:
        place = Path(made) / "place"
        place.mkdir()
        stores = [
            *made_up(place),
            *((name, Path(runs).resolve()) for name, _, runs in (s.partition("=") for s in given.runs)),
        ]
        stores = [(name, runs) for name, runs in stores if given.only in (None, name)]
        for name, runs in stores:
            notebook = nbformat.read(NOTEBOOK, as_version=4)
            notebook.cells[0].source = notebook.cells[0].source.replace("runs = None", f"runs = {str(runs)!r}", 1)
            nbformat.write(notebook, place / f"{name}.ipynb")
        with jupyterlab(place, workspace=Path(made)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            for name, _ in stores:
                page = browser.new_page(viewport={"width": 1440, "height": 900})
                page.set_default_timeout(120_000)
                faults += photograph(page, address, name, given.pictures)
                page.close()
            browser.close()
    print("\n".join(faults) or "Nothing is cut off.")
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()

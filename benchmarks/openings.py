"""Whether the explorer opens on a slow machine: many openings in a real browser at a sixth of its speed.

    python benchmarks/openings.py RUNS [--openings N]        writes benchmarks/openings.md

Each opening is a fresh page and a fresh kernel. It counts if the chart is drawn and still follows a control, and if
neither a script failed nor a request left the machine. Openings in which anywidget gave up the module of a widget as
late are counted too: those widgets have to hear the kernel all the same.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from urllib.request import Request, urlopen

from options import whole
from pages import write_page
from playwright.sync_api import Error, Page, expect, sync_playwright

from tests.browser.lab import ARGUMENTS, CHROMIUM, VIEWPORT, Fence, jupyterlab, open_notebook

HERE = Path(__file__).parent
SLOWER = 6
PATIENCE = 240_000  # milliseconds
LATE = "[anywidget] Failed to initialize model."


def opening(page: Page, address: str) -> tuple[list[str], bool]:
    """Open the explorer once and choose another x axis; return what went wrong, and whether a module was late."""
    faults: list[str] = []
    late: list[str] = []
    page.on("pageerror", lambda error: (late if LATE in str(error) else faults).append(str(error)))
    fence = Fence(page.context)
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    page.set_default_timeout(PATIENCE)
    try:
        open_notebook(page, address, "notebooks/explore.ipynb")
        page.wait_for_selector(".x-chart-place .vega-embed svg.marks", timeout=PATIENCE)
        page.get_by_label("X axis", exact=True).select_option(label="Optimiser steps")
        title = page.locator(".x-chart-place .role-axis-title").filter(has_text="Optimiser steps")
        expect(title).to_be_visible(timeout=PATIENCE)
    except (Error, AssertionError) as error:
        faults.append(str(error).splitlines()[0])
    return [*faults, *fence.blocked], bool(late)


def end_kernels(address: str) -> None:
    with urlopen(f"{address}/api/sessions") as answer:
        sessions = json.load(answer)
    for session in sessions:
        urlopen(Request(f"{address}/api/sessions/{session['id']}", method="DELETE")).close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--openings", type=whole(), default=50)
    given = parser.parse_args()
    wrong: list[str] = []
    late = 0
    with tempfile.TemporaryDirectory(prefix="explorer-openings-") as made:
        place, start = Path(made) / "place", time.monotonic()
        shutil.copytree(HERE.parent / "notebooks", place / "notebooks")
        (place / "runs").symlink_to(given.runs.resolve())
        with jupyterlab(place, workspace=Path(made)) as address, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            for number in range(given.openings):
                context = browser.new_context(viewport=VIEWPORT)
                faults, was_late = opening(context.new_page(), address)
                late += was_late
                context.close()
                end_kernels(address)
                wrong += [f"opening {number + 1}: {fault}" for fault in faults]
                print(number + 1, faults, was_late, flush=True)
            browser.close()
        seconds = (time.monotonic() - start) / given.openings
    lines = [
        "# Openings of the explorer on a slow machine",
        "",
        f"{given.openings} openings in Chromium, {SLOWER} times slower, {seconds:.0f} s each: {len(wrong)} faults.",
        f"In {late} of them the module of a widget was later than anywidget waits.",
        *(f"\n- {fault}" for fault in wrong),
    ]
    write_page(HERE / "openings.md", "\n".join(lines))


if __name__ == "__main__":
    main()

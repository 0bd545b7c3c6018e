import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Error, Page, expect, sync_playwright

from explorer.report.sweep_report import write_sweep_report
from explorer.store.ingest import ingest
from tests.browser.lab import ARGUMENTS, CHROMIUM, VIEWPORT, Fence, jupyterlab
from tests.builders import run_record, write_failure, write_sweep
from tests.composed_sample import write_composed
from tests.sample import write_sample

HOSTILE = (
    "baseline",
    "<img src=x onerror=alert(1)>",
    '"><script>alert(2)',
    "=cmd|calc",
    "\u05d0\u05d1\u05d2",
    150 * "w",
)
DIVERGED = (
    "training diverged: the loss is nan at step 36: the first layer that gives something else is 'head';"
    " the step was not made, and checkpoints of earlier ones are kept; a lower learning rate or a warm-up may help"
)
PATIENCE = 300_000  # milliseconds; the machine may be busy with other things
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as a user has it: `notebooks/` from the repository, `runs/` with a finished sweep and its report."""
    place = tmp_path_factory.mktemp("workplace")
    shutil.copytree(ROOT / "notebooks", place / "notebooks")
    write_sample(place / "runs")
    write_composed(place / "runs", sweep="together")
    write_sweep(place / "runs", {name: {0.5: (0.9, 0.91), 1.0: (0.95, 0.96)} for name in HOSTILE}, sweep="hostile")
    hot = run_record(recipe="hot", full_steps=400)
    write_failure(place / "runs", hot, kind="diverged", message=DIVERGED)
    ingest(place / "runs")
    notebook = next((place / "runs" / "digits").glob("*baseline-ssr1-s0*")) / "notebook.ipynb"
    shutil.copy(ROOT / "notebooks" / "run.ipynb", notebook)
    write_sweep_report(place / "runs", "digits", place / "report.html")
    return place


@pytest.fixture(scope="session")
def address(workplace: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with jupyterlab(workplace, workspace=tmp_path_factory.mktemp("jupyter")) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium. Without one the tests are skipped, unless $EXPLORER_REQUIRE_BROWSER says otherwise."""
    if not Path(CHROMIUM).exists():
        if os.environ.get("EXPLORER_REQUIRE_BROWSER"):
            pytest.fail(f"no browser at {CHROMIUM}: install chromium, or set EXPLORER_CHROMIUM")
        pytest.skip(f"no browser at {CHROMIUM}")
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that can reach this machine alone; the test fails if it tried anything else, or if a script failed."""
    with fenced_page(browser) as found:
        yield found


@pytest.fixture(scope="module")
def shared_page(browser: Browser) -> Iterator[Page]:
    """The same for all tests of a module: a notebook is opened once, which is most of what a test takes."""
    with fenced_page(browser) as found:
        yield found


def is_of_others(stack: str) -> bool:
    """Whether an error is not ours: JupyterLab's core alone is in its stack, or anywidget gave up a module as late.

    A page that is left in the middle of a request ("Failed to fetch") or of connecting ("reading 'kernel'") throws in
    the core. A widget whose module was late hears the kernel all the same, as test_chart.py shows.
    """
    if stack.startswith("Error: [anywidget] Failed to initialize model."):
        return True
    frames = [line for line in stack.splitlines() if line.lstrip().startswith("at ")]
    placed = [frame for frame in frames if not frame.endswith("(<anonymous>)")]  # the browser's own have no place
    return bool(placed) and all("/static/lab/jlab_core." in frame for frame in placed)


@contextmanager
def fenced_page(browser: Browser) -> Iterator[Page]:
    """A page behind a fence."""
    context = browser.new_context(viewport=VIEWPORT)
    fence = Fence(context)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    failures: list[str] = []

    def note(error: Error) -> None:
        stack = error.stack or str(error)
        if not is_of_others(stack):
            failures.append(stack)

    page.on("pageerror", note)

    def refuse(dialog: Dialog) -> None:
        failures.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)
    yield page
    context.close()
    assert fence.blocked == []
    assert failures == []


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """Where pictures are kept to be looked at; not part of the repository."""
    directory = ROOT / "screenshots"
    directory.mkdir(exist_ok=True)
    return directory

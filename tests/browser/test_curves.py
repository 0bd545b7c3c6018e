"""Learning curves in a real JupyterLab: the legend and the mouse, picked runs, and a run that grows while one looks."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

from explorer import rundir
from explorer.run_files import RunRecord
from explorer.store.ingest import ingest
from tests.browser.conftest import ROOT
from tests.browser.lab import becomes, drag, faults, jupyterlab, open_notebook, overflow, scroll_to, theme
from tests.builders import run_record, write_failure, write_plan, write_profile, write_run

pytestmark = pytest.mark.browser

STEPS = 400
RECIPES = {"baseline": 1.0, "fast": 0.6, "smooth": 0.85}
GROWING = run_record(recipe="smooth", methods=("smooth",), seed=9, full_steps=STEPS)


def losses(recipe: str, seed: int) -> list[float]:
    noise = np.random.default_rng(seed).normal(0, 0.12, STEPS)
    level = 0.15 + 2.2 * np.exp(-np.arange(STEPS) / (120 * RECIPES[recipe])) * (1 + noise)
    return [float(loss) for loss in level]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workplace with three recipes of three seeds, a run that failed, and one that is there and not finished."""
    place = tmp_path_factory.mktemp("curves")
    shutil.copytree(ROOT / "notebooks", place / "notebooks")
    records: list[RunRecord] = []
    for recipe, factor in RECIPES.items():
        methods = () if recipe == "baseline" else (recipe,)
        for seed in range(3):
            for ssr, quality in ((0.5, 0.9), (1.0, 0.95)):
                record = run_record(recipe=recipe, methods=methods, seed=seed, ssr=ssr, full_steps=STEPS)
                final = {"accuracy": quality + 0.004 * seed - 0.01 * (1 - factor), "nll": 0.3}
                write_run(place / "runs", record, losses=losses(recipe, seed)[: record.steps], metrics=final)
                records.append(record)
        write_profile(place / "runs", records[-1], seconds=0.01 * factor)
    failed = run_record(recipe="fast", methods=("fast",), seed=3, full_steps=STEPS)
    write_failure(place / "runs", failed)
    write_run(place / "runs", GROWING, finished=False, losses=losses("smooth", 9)[:40])
    write_plan(place / "runs", [*records, failed, GROWING])
    ingest(place / "runs")
    return place


@pytest.fixture(scope="module")
def explorer(place: Path, shared_page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locator]:
    with jupyterlab(place, workspace=tmp_path_factory.mktemp("jupyter")) as address:
        open_notebook(shared_page, address, "notebooks/explore.ipynb")
        shared_page.wait_for_selector(".x-curves .vega-embed svg.marks")
        yield shared_page.locator(".explorer").first


def test_legend_tooltip_and_controls(explorer: Locator, shared_page: Page, screenshots: Path) -> None:
    page, curves = shared_page, explorer.locator(".x-curves")
    expect(explorer.locator(".x-rule .x-note").first).to_contain_text("lines are means over seeds")
    scroll_to(page, ".x-rule")
    page.screenshot(path=screenshots / "curves.png")
    # --- the legend isolates what is under the mouse ---
    lines = curves.locator(".lines_marks path, .mark-line.lines_marks path")
    faint = "paths => paths.filter(path => Number(path.getAttribute('opacity')) < 0.2).length"
    assert lines.evaluate_all(faint) == 0
    curves.locator(".role-legend-entry .role-legend-symbol path").nth(1).hover(force=True)
    becomes(page, lambda: lines.evaluate_all(faint) >= 2, True)
    page.screenshot(path=screenshots / "curves-isolated.png")
    page.mouse.move(5, 5)
    becomes(page, lambda: lines.evaluate_all(faint), 0)
    # --- the mouse need not meet a line exactly ---
    point = curves.locator(".near_marks path").nth(20)
    point.hover(force=True)
    expect(page.locator("#vg-tooltip-element")).to_contain_text("mean of 3 seeds")
    page.mouse.move(5, 5)
    # --- every run over time, on a log scale ---
    explorer.get_by_role("button", name="Runs", exact=True).last.click()
    expect(explorer.locator(".x-rule .x-note").first).to_contain_text("the measurements faint behind")
    rule = explorer.locator(".x-rule")
    rule.get_by_role("button", name="Time", exact=True).click()
    expect(curves.locator(".role-axis-title").first).to_contain_text("Training time")
    rule.get_by_role("button", name="Log", exact=True).click()
    expect(curves.locator(".role-axis-title").nth(1)).to_contain_text("log scale")
    page.screenshot(path=screenshots / "curves-runs.png")
    theme(page, "Dark")
    page.screenshot(path=screenshots / "curves-dark.png")
    theme(page, "Light")
    rule.get_by_role("button", name="Linear", exact=True).click()
    rule.get_by_role("button", name="Steps", exact=True).click()
    # --- the keyboard chooses a metric ---
    metric = rule.get_by_label("Metric", exact=True)
    metric.focus()
    metric.select_option("accuracy")
    expect(explorer.locator(".x-rule")).to_contain_text("Measured once a run")
    metric.select_option("train_loss")
    expect(explorer.locator(".x-rule .x-note").first).to_contain_text("the measurements faint behind")
    rule.get_by_role("button", name="Means of seeds", exact=True).click()
    assert faults(page, ".x-rule") == []
    assert overflow(page, ".x-rule") <= 0


def test_a_brush_shows_the_curves_of_its_runs(explorer: Locator, shared_page: Page, screenshots: Path) -> None:
    note = explorer.locator(".x-rule .x-note").first
    expect(note).to_contain_text("of all recipes shown")
    scroll_to(shared_page, ".x-main")
    shared_page.wait_for_timeout(1000)  # the chart is drawn; its brush is connected a moment later
    drag(shared_page, explorer.locator(".x-main .vega-embed svg.marks"), start=(0.35, 0.2), end=(0.97, 0.8))
    expect(note).to_contain_text("picked above")
    scroll_to(shared_page, ".explorer")
    shared_page.screenshot(path=screenshots / "curves-picked.png")
    box = explorer.locator(".x-main .vega-embed svg.marks").bounding_box()
    assert box is not None
    shared_page.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 0.7 * box["height"])
    expect(note).to_contain_text("of all recipes shown")


def test_a_run_that_someone_else_trains_grows_by_itself(
    explorer: Locator, shared_page: Page, place: Path, screenshots: Path
) -> None:
    note, sweep = explorer.locator(".x-rule .x-note").first, place / "runs" / "digits"
    directory = sweep / GROWING.run_id
    expect(note).not_to_contain_text("training now")
    scroll_to(shared_page, ".x-rule")
    with rundir.locked(sweep, what="sweep"):
        with rundir.locked(directory, what="run"):
            expect(note).to_contain_text("1 run training now")
            line = explorer.locator(".x-curves .lines_marks path").last
            before = line.get_attribute("d")
            with (directory / rundir.METRICS).open("a") as file:
                for step, loss in enumerate(losses("smooth", 9)[40:250], start=41):
                    file.write(json.dumps({"step": step, "metric": "train_loss", "value": loss}) + "\n")
            expect(line).not_to_have_attribute("d", before or "")
            shared_page.screenshot(path=screenshots / "curves-live.png")
        write_run(place / "runs", GROWING, losses=losses("smooth", 9), metrics={"accuracy": 0.95, "nll": 0.3})
    expect(note).not_to_contain_text("training now")
    expect(explorer.locator(".x-head")).to_contain_text("19 finished runs")

"""Asking under limits in the notebook: the fields are the limits, and the answer is the command line's."""

from pathlib import Path

import pytest

from explorer import run_files, rundir
from explorer.run_files import RunRecord
from explorer.store.ingest import ingest
from explorer.views.explorer.answer import answer
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.explorer.tabs import ask_words
from explorer.views.explorer.tabs.ask_section import AskSection
from explorer.views.live_chart import LiveChart
from tests.audit.governed_run import MIT, write_governed_run
from tests.builders import write_profile, write_sweep

WINNER = {"baseline": {0.5: (0.970, 0.9703, 0.9706), 1.0: (0.980, 0.9803, 0.9806)}}


def opened(runs: Path) -> AskSection:
    panel, snapshot = AskSection(lambda **_: None), read_snapshot(runs)
    panel.show(snapshot, answer(snapshot, Question()))
    return panel


@pytest.fixture
def panel(runs: Path) -> AskSection:
    return opened(runs)


def said(panel: AskSection) -> str:
    return panel.children[1].value


def test_nothing_asked_is_as_good_as_the_baseline(panel: AskSection) -> None:
    assert panel.asked is not None and panel.asked.best is not None
    assert panel.asked.limits.quality is None and panel.asked.best.recipe == "fast"
    assert "Asked: accuracy as good as the baseline" in said(panel)
    assert "explorer confirm digits fast" in said(panel)


def test_every_field_is_a_limit(panel: AskSection) -> None:
    panel.quality.value = "98%"
    panel.time.value, panel.time_unit.value = "2", "min"
    panel.cost.value = "$5"
    panel.inference.value, panel.inference_unit.value = "1.5", "x"
    assert panel.asked is not None
    limits = panel.asked.limits
    assert (limits.quality, limits.max_seconds, limits.max_usd) == (0.98, 120.0, 5.0)
    assert (limits.max_inference_seconds, limits.max_inference_ratio) == (None, 1.5)
    panel.inference_unit.value, panel.time.value = "ms", "90s"  # a unit that is typed counts
    assert panel.asked.limits.max_inference_seconds == pytest.approx(0.0015)
    assert panel.asked.limits.max_seconds == 90.0
    assert "is known to hold these limits" in said(panel) and "no price for" in said(panel)
    panel.cost.value = ""
    assert panel.asked.holds and "x-warn" not in said(panel)


def test_it_says_what_the_command_line_says(panel: AskSection) -> None:
    panel.time.value = "1h"
    asked = panel.asked
    assert asked is not None
    for words in (ask_words.headline(asked), ask_words.runner_up(asked)):
        assert words.replace("'", "&#39;") in said(panel)
    assert said(panel).count("<tr") == 1 + len(asked.candidates)


@pytest.mark.parametrize(("field", "typed"), [("quality", "<b>high</b>"), ("time", "soon"), ("cost", "5 euros")])
def test_what_cannot_be_read_is_said_and_harms_nothing(panel: AskSection, field: str, typed: str) -> None:
    getattr(panel, field).value = typed
    assert panel.asked is None and 'role="alert"' in said(panel)
    assert getattr(panel, field).description in said(panel) and "<b>" not in said(panel)
    getattr(panel, field).value = ""
    assert panel.asked is not None


def test_a_forecast_is_shown_below_the_answer_and_changes_nothing_of_it(tmp_path: Path) -> None:
    budgets = (0.125, 0.25, 0.5, 1.0)
    errors = {ssr: 0.02 + 0.03 * ssr**-0.7 for ssr in budgets}
    write_sweep(tmp_path, {"baseline": {ssr: tuple(1 - e + 1e-4 * s for s in range(3)) for ssr, e in errors.items()}})
    ingest(tmp_path)
    panel = opened(tmp_path)
    before, asked = said(panel), panel.asked
    assert "Forecast at budget" not in before and not panel.children[2].children
    panel.budget.value = "2"
    assert said(panel) == before and panel.asked == asked
    words, chart, table = panel.children[2].children
    assert "Forecast at budget 2, which was not run" in words.value and "4 budgets x 3 seeds" in table.value
    assert isinstance(chart, LiveChart) and chart.spec and "forecast at 2" in chart.spec["description"]
    for typed, complaint in (("1", "expected one above 1"), ("soon", "Forecast at budget: found")):
        panel.budget.value = typed
        (alert,) = panel.children[2].children
        assert said(panel) == before and 'role="alert"' in alert.value and complaint in alert.value
    panel.budget.value = ""
    assert said(panel) == before and not panel.children[2].children
    panel.budget.value, panel.time.value = "2", "soon"
    assert 'role="alert"' in said(panel) and not panel.children[2].children


def test_every_field_has_a_label(panel: AskSection) -> None:
    labels = [field.description for field in panel.children[0].children]
    assert all(labels) and len(set(labels)) == len(labels)


def test_ungoverned_runs_offer_no_class(panel: AskSection) -> None:
    fields = (panel.deletable, panel.repeated, panel.deletion, panel.deletion_unit)
    assert panel.deletable.options == (("any", ""),) and {field.layout.display for field in fields} == {"none"}


def test_classes_and_levels_of_governed_runs(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    write_profile(tmp_path, run_files.read(RunRecord, run / rundir.RUN), seconds=10.0)
    ingest(tmp_path)
    panel = opened(tmp_path)
    panel.quality.value, panel.deletable.value = "50%", MIT
    assert {value for _, value in panel.deletable.options} >= {"", MIT} and panel.repeated.layout.display == ""
    assert panel.asked is not None and panel.asked.best is not None
    panel.repeated.value = "1% of training"
    assert f"{MIT} is deletable at G3: " in said(panel) and "at most 1% of training allowed" in said(panel)
    panel.repeated.value = ""
    assert panel.asked is not None and panel.asked.best is not None and "allowed" not in said(panel)
    panel.deletion.value = "1"
    assert f"deleting {MIT} takes" in said(panel) and "at most 1 s allowed" in said(panel)


def test_names_are_written_as_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202e'\""
    write_sweep(tmp_path, WINNER | {name: {0.5: (0.976, 0.9765, 0.977), 1.0: (0.986, 0.9865, 0.987)}})
    ingest(tmp_path)
    panel = opened(tmp_path)
    assert panel.asked is not None and panel.asked.best is not None and panel.asked.best.recipe == name
    assert (
        "<img" not in said(panel) and "&lt;img" in said(panel) and "\u202e" not in said(panel).replace(f'"{name}', "")
    )

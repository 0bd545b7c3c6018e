"""A sweep for two classes of machines: nothing compares a recipe of one with the baseline of the other.

In each class `mixed` needs longer than the baseline, and one class is ten times as fast as the other: against the
baseline of the slow class, the fast class's `mixed` would be a great speedup.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from explorer import run_files
from explorer.analysis.comparison import Comparison
from explorer.analysis.equal_budget import equal_budget
from explorer.analysis.equal_quality import Call
from explorer.analysis.verdict import sweep_verdicts
from explorer.report.sweep_report import as_json, read_sweep
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.views.explorer.answer import answer
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from tests.builders import CPU, H200, write_plan, write_sweep

BUDGETS = (0.25, 0.5, 1.0, 1.5)
CLASSES = ((CPU, 0.04), (H200, 0.004))  # seconds of the baseline's step
NAMES = {CPU.name, H200.name}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished sweep, with one plan for both classes."""
    runs, draws = tmp_path_factory.mktemp("two"), np.random.default_rng(7)
    qualities = {
        recipe: {
            ssr: tuple(0.985 - 0.03 * math.exp(-2.2 * ssr) + 0.0004 * float(noise) for noise in draws.normal(size=3))
            for ssr in BUDGETS
        }
        for recipe in ("baseline", "mixed")
    }
    planned = []
    for hardware, step in CLASSES:
        steps = {"baseline": step, "mixed": 1.5 * step}
        planned += write_sweep(runs, qualities, hardware=hardware, step_seconds=steps, quartiles=(0.99, 1.01))
    write_plan(runs, planned, machines=[{"hardware": run_files.to_json(hardware)} for hardware, _ in CLASSES])
    ingest(runs)
    return runs


@pytest.fixture(scope="module")
def frame(runs: Path) -> pd.DataFrame:
    return frames.results(database(runs), sweep="digits", metric="accuracy")


def values(results: Sequence[Comparison], name: str) -> dict[str, Any]:
    """A number of each comparison, by its class."""
    return {result.baseline_setting.hardware: getattr(result, name) for result in results}


def test_a_comparison_is_that_of_its_class_without_the_other(frame: pd.DataFrame) -> None:
    verdicts = sweep_verdicts(frame)
    alone = [verdict for name in NAMES for verdict in sweep_verdicts(frame[frame["hardware"] == name])]
    ratios = values([verdict.comparison for verdict in verdicts], "ratio")
    assert ratios == values([verdict.comparison for verdict in alone], "ratio")
    assert ratios.keys() == NAMES and min(ratios.values()) > 1.4
    assert all(verdict.comparison.setting == verdict.comparison.baseline_setting for verdict in verdicts)
    lost = values(equal_budget(frame), "difference")
    apart = [result for name in NAMES for result in equal_budget(frame[frame["hardware"] == name])]
    assert lost == values(apart, "difference") and max(lost.values()) < 0


def test_a_recipe_without_a_baseline_in_its_class_is_not_compared(frame: pd.DataFrame) -> None:
    slow_baseline = frame["is_baseline"] & (frame["hardware"] == CPU.name)
    crossed = frame[slow_baseline | (~frame["is_baseline"] & (frame["hardware"] == H200.name))]
    (verdict,) = sweep_verdicts(crossed)
    assert verdict.comparison.ratio is None and "has no finished run" in str(verdict.comparison.reason)
    # The control: with the classes forgotten, the same rows are a speedup of six.
    (mixed,) = sweep_verdicts(crossed.assign(hardware="one", device="cpu", threads=1))
    assert mixed.call is Call.LESS and mixed.comparison.ratio == pytest.approx(0.17, abs=0.02)


def test_the_report_and_the_explorer_have_each_class_apart(runs: Path) -> None:
    sections = json.loads(as_json(read_sweep(runs, "digits")))["sections"]
    found = [line["result"] for section in sections for line in section["equal_quality"]]
    assert {(line["setting"]["hardware"], line["baseline_setting"]["hardware"]) for line in found} == {
        (name, name) for name in NAMES
    }
    assert min(line["ratio"] for line in found) > 1.4
    shown = answer(read_snapshot(runs), Question(sweep="digits"))
    assert values(shown.comparisons, "ratio").keys() <= NAMES and shown.comparisons
    for comparison in shown.comparisons:
        assert comparison.setting == comparison.baseline_setting
        assert comparison.ratio is not None and comparison.ratio > 1.4

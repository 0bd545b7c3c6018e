"""Two runs held against each other: the difference, what it is of, and nothing beyond that."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vl_convert

from explorer import run_files, rundir
from explorer.audit.shares import shares
from explorer.canonical import digest
from explorer.entries.kinds import Genesis
from explorer.page.html import fragment
from explorer.page.pictures import VEGA_LITE
from explorer.run_files import RunRecord
from explorer.views.ledger.depth import depth_profile, profile_frame
from explorer.views.ledger.open_run import OpenRun, governed_runs, open_run
from explorer.views.ledger.two_runs_section import (
    NO_OTHER,
    TwoRunsSection,
    common,
    difference_map,
    differences_table,
    facts,
    facts_table,
    profiles_at,
    profiles_table,
    share_differences,
    span_of,
)
from tests.audit.governed_run import sign_again
from tests.builders import with_identity
from tests.governed_sample import CLASSES, LAYERS, SIMULATED, STEPS, Sample, write_governed_run
from tests.provenance.people import NOW
from tests.views.test_explore import texts
from tests.views.test_ledger_panel import estimating

HOSTILE = "<img src=x onerror=alert(1)>"
SHORT = 20  # steps; the last profile that it shares with the whole run is that after step 16


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[OpenRun, OpenRun]:
    """A whole run, and an unfinished one with another name for its last layer."""
    runs = tmp_path_factory.mktemp("pair") / "runs"
    first = write_governed_run(runs, sweep="one")
    second = write_governed_run(runs, sweep="two", sample=Sample(layers=(*LAYERS[:-1], HOSTILE)), steps=SHORT)
    return open_run(first, trust=None, now=NOW), open_run(second, trust=None, now=NOW)


def test_a_run_does_not_differ_from_itself(pair: tuple[OpenRun, OpenRun]) -> None:
    run = pair[0]
    assert all(each.same for each in facts(run, run))
    step, frame = profiles_at(run, run)
    assert step == STEPS and len(frame) == len(LAYERS)
    for measure in ("entropy", "effective_rank", "chi"):
        assert (frame[f"{measure}_difference"] == 0).all()
    differences = share_differences(run, run)["difference"]
    assert (differences.dropna() == 0).all() and differences.notna().any()
    assert "inputs of the two runs are the same" in fragment(*facts_table(facts(run, run)))


def test_profiles_are_compared_at_the_last_step_that_both_have(pair: tuple[OpenRun, OpenRun]) -> None:
    step, frame = profiles_at(*pair)
    assert step == 16 and list(frame["layer"]) == list(LAYERS[:-1])
    wanted = Sample().profile(16).joint
    assert np.allclose(frame["entropy_first"], wanted[:-1, 6]) and np.allclose(frame["p_value_second"], wanted[:-1, 5])
    table = fragment(*profiles_table(*pair, "chi"))
    assert (
        "after step 16" in table
        and "p, second" in table
        and "p, first" not in fragment(*profiles_table(*pair, "entropy"))
    )
    assert "1 layer of only the second run: &lt;img src=x" in table and "<img" not in table


def test_shares_are_second_less_first(pair: tuple[OpenRun, OpenRun]) -> None:
    first, second = pair
    frame: Any = share_differences(first, second).set_index(["layer", "class"])
    one, other = (shares(each.ledger).share[0] for each in pair)
    at, of = LAYERS.index("norm") - 1, CLASSES.index("open/apache")
    name = first.layers[at]
    assert frame.loc[(name, "open/apache"), "difference"] == pytest.approx(other[of, at] - one[of, at])
    assert {layer for layer, _ in frame.index} == set(first.layers) & set(second.layers)
    assert (frame.xs("withheld", level="class")["difference"] == 0).all()  # denied by both: exactly nothing
    late = frame.loc[("token", "open/bsd")]
    assert (late["first"], late["second"], late["state_first"]) == (0, 0, "denied")


def test_what_is_drawn_is_said_in_a_table_too(pair: tuple[OpenRun, OpenRun]) -> None:
    frame: Any = share_differences(*pair)
    chart: Any = difference_map(frame, width=400).to_dict()
    drawn = [row for rows in chart["datasets"].values() for row in rows]
    assert len(drawn) == len(frame) and {row["state"] for row in drawn} == {"", "denied"}
    assert vl_convert.vegalite_to_svg(chart, vl_version=VEGA_LITE).count("currentColor") > 3
    table = fragment(*differences_table(frame))
    assert table.count("<tr>") == len(frame) + 2  # two heads: the smaller ones are folded away
    largest = frame.loc[frame["difference"].abs().idxmax()]
    assert table.index(f">{largest['layer']}<") < table.index("<details>")


def test_what_makes_two_runs_differ_is_named(pair: tuple[OpenRun, OpenRun], tmp_path: Path) -> None:
    """Another seed in the ledger; and another setting of a method, in the recipe that the ledger names."""

    def planned(*without: str) -> OpenRun:
        path = Path(shutil.copytree(pair[0].ledger.run, tmp_path / str(len(without)) / pair[0].ledger.run.name))
        record = run_files.read(RunRecord, path / rundir.RUN)
        methods = [{"routing": {"policy": "half-depth", "without": [*without]}}, {HOSTILE: {}}]
        record = with_identity(record, {"recipe": {"methods": methods, "task": {"model": "gpt"}}, "seed": 0})
        run_files.write(path / rundir.RUN, record)
        plan = digest(record.identity)
        sign_again(path, lambda _, e: replace(e, recipe=plan, seed=5) if isinstance(e, Genesis) else e)
        return open_run(path, trust=None, now=NOW)

    one, other = planned(), planned("open/bsd")
    differing = {each.name: (each.first, each.second) for each in facts(one, other) if not each.same}
    assert differing.pop("methods routing without") == ("[]", '["open/bsd"]')
    assert set(differing) == {"Recipe"}
    bare = Path(shutil.copytree(pair[0].ledger.run, tmp_path / "bare" / pair[0].ledger.run.name))
    (bare / rundir.RUN).unlink()
    without = open_run(bare, trust=None, now=NOW)
    against = {each.name: (each.first, each.second) for each in facts(without, other) if not each.same}
    assert against["Seed"] == ("0", "5") and against["Settings of the recipe"] == ("not recorded here", "in words")


def test_names_are_compared_by_name() -> None:
    found = common(["a", "b", "c"], ["c", "d", "a"])
    assert (found.both, found.first, found.second) == (("a", "c"), ("b",), ("d",))


def test_both_charts_have_one_axis(pair: tuple[OpenRun, OpenRun]) -> None:
    frames = [profile_frame(each.profiles) for each in pair]
    span = span_of(frames, "entropy")
    assert span is not None and span[0] < min(frame["entropy"].min() for frame in frames)
    assert span[1] > max(frame["entropy"].max() for frame in frames)
    chart: Any = depth_profile(pair[0].profiles, measure="entropy", span=span).to_dict()
    assert chart["layer"][0]["encoding"]["y"]["scale"]["domain"] == list(span)
    assert span_of([frame.head(0) for frame in frames], "chi") is None


def test_the_section_waits_for_a_second_run(pair: tuple[OpenRun, OpenRun]) -> None:
    runs = governed_runs(pair[0].ledger.run.parents[1])
    others = {name: path for name, path in runs.items() if name.startswith("two")}
    section = TwoRunsSection(lambda: others)
    section.show(pair[0])
    assert "Choose a second run" in texts(section) and not section.left.drawn
    section.second.value = next(iter(others))
    shown = texts(section)
    assert "These are two single runs" in shown and "no interval" in shown
    assert section.left.drawn and section.right.drawn and section.heat.drawn
    assert "&lt;img" in shown and "<img" not in shown
    section._measure.value = "chi"
    assert "p, second" in texts(section)
    section.clear()
    assert section._both.layout.display == "none"
    alone = TwoRunsSection(dict)
    alone.show(pair[0])
    assert NO_OTHER in texts(alone)


def test_a_run_without_profiles_is_compared_by_what_it_has(pair: tuple[OpenRun, OpenRun], tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, steps=0)
    section = TwoRunsSection(lambda: {"empty": run})
    section.show(pair[0])
    section.second.value = "empty"
    shown = texts(section)
    assert "Second: There are no entropy profiles to show" in shown and section.left.drawn
    assert "no step in common" in shown


def test_what_is_sealed_and_what_is_simulated_is_said(pair: tuple[OpenRun, OpenRun], tmp_path: Path) -> None:
    sealed = write_governed_run(tmp_path / "sealed", sample=Sample(confidential=("open/mit",)), steps=16)
    made_up = write_governed_run(tmp_path / "simulated", sample=Sample(classes=SIMULATED), steps=1)
    section = TwoRunsSection(lambda: {"sealed": sealed, "simulated": made_up})
    section.show(pair[0])
    section.second.value = "sealed"
    assert "Shares of the second run are sealed" not in texts(section)  # its secrets are here
    shutil.rmtree(sealed / rundir.PRIVATE)
    section.show(pair[0])
    assert "Shares of the second run are sealed" in texts(section) and "Simulated" not in texts(section)
    section.second.value = "simulated"
    assert "Simulated provenance" in texts(section) and "no layer, no class or no step in common" in texts(section)


def test_what_is_estimated_is_said(pair: tuple[OpenRun, OpenRun], tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, sample=Sample(), steps=16)
    section = TwoRunsSection(lambda: {"other": run})
    for first in (True, False):  # before, and after every other step has estimates
        section.show(pair[0])
        section.second.value = "other"
        assert ("Of the second run: In 8 of these 16 steps the numbers are estimates" in texts(section)) is not first
        assert "Of the first run" not in texts(section)
        estimating(run)


def test_a_second_run_that_cannot_be_read_is_said(pair: tuple[OpenRun, OpenRun], tmp_path: Path) -> None:
    run = Path(shutil.copytree(pair[1].ledger.run, tmp_path / "run"))
    (run / rundir.LEDGER / "checkpoint").write_text("nonsense")
    section = TwoRunsSection(lambda: {"<b>": run})
    section.show(pair[0])
    section.second.value = "<b>"
    assert "&lt;b&gt;: " in texts(section) and "<b>" not in texts(section)

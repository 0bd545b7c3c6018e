"""The charts of a ledger, judged by what they would draw."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert

from explorer.audit.history import DepthProfile, decisions, depth_profiles, directions
from explorer.audit.shares import shares
from explorer.page.html import fragment
from explorer.page.pictures import VEGA_LITE
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger import depth, matrices, timeline
from explorer.views.ledger.matrices import CELL
from explorer.views.ledger.open_run import read_all_steps
from tests.governed_sample import CLASSES, STEPS


@pytest.fixture
def run(governed: Path) -> RunLedger:
    return RunLedger(governed)


def cells(run: RunLedger, steps: range) -> pd.DataFrame:
    return matrices.cells(shares(run, steps), read_all_steps(run)).set_index(["layer", "class"])


def values(chart: dict[str, Any], name: str) -> list[dict[str, Any]]:
    (layer,) = [layer for layer in chart["layer"] if layer.get("name") == name]
    return chart["datasets"][layer.get("data", chart.get("data"))["name"]]


def test_shares_of_a_layer_add_up(run: RunLedger) -> None:
    frame = cells(run, range(STEPS))
    assert frame.groupby("layer")["share"].sum().to_numpy() == pytest.approx(1)


def test_denied_is_not_the_same_as_nothing_to_measure(run: RunLedger) -> None:
    frame = cells(run, range(0, 16))
    assert frame.loc[("norm", "open/bsd"), "state"] == "denied"
    assert frame.loc[("token", "open/bsd"), "state"] == "denied"
    assert frame.loc[("norm", "withheld"), "state"] == "denied"
    assert frame.loc[("norm", "withheld"), "examples"] == 16 * 3  # in the batches, and never read
    assert frame.loc[("norm", "open/mit"), "weight"] == 0.5
    later = cells(run, range(16, STEPS))
    assert later.loc[("norm", "open/bsd"), "state"] == "trained"
    assert later.loc[("token", "open/bsd"), "state"] == "denied"


def test_a_class_without_examples_is_a_dot(run: RunLedger) -> None:
    recorded = read_all_steps(run)
    recorded.examples[:, CLASSES.index("open/apache")] = 0
    frame = matrices.cells(shares(run, range(STEPS)), recorded).set_index(["layer", "class"])
    assert frame.loc[("norm", "open/apache"), "state"] == "absent"
    assert frame.loc[frame["state"] == "absent", "share"].isna().all()


def test_the_heat_map_hatches_what_was_denied_and_nothing_else(run: RunLedger) -> None:
    chart = matrices.heat_map(cells(run, range(STEPS)).reset_index()).to_dict()
    (hatch,) = [layer for layer in chart["layer"] if layer.get("name") == "hatch"]
    assert hatch["transform"] == [{"filter": "(datum.state === 'denied')"}]
    drawn = {(row["row"], row["column"]): row for row in values(chart, "cells")}
    assert drawn["token", "open/bsd"]["state"] == "denied" and drawn["token", "open/bsd"]["size"] == 0
    assert drawn["norm", "open/mit"]["weight_text"] == "0.5 (attenuation, no guarantee)"
    assert "params" not in chart


def test_a_chosen_cell_is_framed_and_others_can_be_chosen(run: RunLedger) -> None:
    frame = cells(run, range(STEPS)).reset_index()
    chart = matrices.heat_map(frame, chosen={"row": "norm", "column": "open/mit"}).to_dict()
    assert [(param["name"], param["views"]) for param in chart["params"]] == [(CELL, ["cells"])]
    assert chart["params"][0]["value"] == [{"row": "norm", "column": "open/mit"}]


def test_a_heat_map_has_room_for_so_many_cells() -> None:
    frame = pd.DataFrame(
        [
            {"layer": f"l{at}", "class": f"c{index}", "share": 0.1, "weight": 1.0, "examples": 1, "steps": 1}
            | {"state": "trained"}
            for at in range(900)
            for index in range(8)
        ]
    )
    assert len(matrices.shown_layers(frame)) * 8 <= matrices.MAX_CELLS
    assert len(values(matrices.heat_map(frame).to_dict(), "cells")) <= 5000


def test_the_untrained_model_is_dashed_and_chance_is_taken_off(run: RunLedger) -> None:
    profiles = depth_profiles(run)
    chart = depth.depth_profile(profiles, measure="chi").to_dict()
    (lines,) = [layer for layer in chart["layer"] if layer.get("name") == "profiles"]
    assert lines["encoding"]["strokeDash"]["scale"]["domain"][0] == "untrained"
    assert lines["encoding"]["strokeDash"]["scale"]["range"] == [[5, 4], [1, 0], [1, 0], [1, 0]]
    first = next(each for each in profiles if each.class_ == "*")
    assert first.chi is not None and first.chi_null is not None
    assert values(chart, "profiles")[0]["value"] == pytest.approx(first.chi - first.chi_null)
    assert all(row["p_value"] >= 0.05 for row in values(chart, "hollow"))
    assert all(row["p_value"] < 0.05 for row in values(chart, "filled"))


def test_few_profiles_stand_for_many(run: RunLedger) -> None:
    (one, *_) = [each for each in depth_profiles(run) if each.class_ == "*"]
    many: list[DepthProfile] = [replace(one, step=step) for step in range(0, 1000, 10)]
    assert depth.shown_steps(depth.profile_frame(many)) == [0, 200, 400, 590, 790, 990]


def test_cosines_of_directions(run: RunLedger) -> None:
    found = directions(run)
    drawn = {(row["row"], row["column"]): row for row in values(matrices.direction_map(found, 0).to_dict(), "cells")}
    assert drawn["open/mit", "open/mit"]["value"] == pytest.approx(1)
    assert drawn["open/mit", "open/apache"]["value"] == drawn["open/apache", "open/mit"]["value"]
    assert drawn["open/mit", "withheld"]["value"] is None  # no direction is not a right angle
    assert drawn["open/mit", "withheld"]["text"] == "\u00b7"
    opposite = replace(found, sketches=np.array([found.sketches[0], -found.sketches[0]]), classes=("a", "b"))
    assert matrices.cosines(opposite, 0)["value"].tolist() == pytest.approx([1, -1, -1, 1])


def test_the_timeline_says_what_decided(run: RunLedger) -> None:
    found = decisions(run)
    chart = timeline.timeline(found, phases=((0, "a"), (16, "b")), steps=STEPS).to_dict()
    assert [row["step"] for row in values(chart, "decisions")] == [24, 36]
    assert "entropy-settled (tolerance 0.02), on numbers of open/mit" in values(chart, "decisions")[0]["by"]
    assert [row["step"] for row in values(chart, "phases")] == [0, 16]
    table = fragment(*timeline.decisions_table([replace(found[0], superseded=True)]))
    assert "undone by a re-execution" in table
    assert "undone" not in fragment(*timeline.decisions_table(found))


def test_a_timeline_without_decisions_still_has_phases() -> None:
    chart = timeline.timeline((), phases=((0, "a"),), steps=STEPS).to_dict()
    assert [layer["name"] for layer in chart["layer"]] == ["phases"]


def test_all_can_be_drawn(run: RunLedger) -> None:
    charts = [
        matrices.heat_map(cells(run, range(STEPS)).reset_index(), width=500),
        depth.depth_profile(depth_profiles(run), measure="effective_rank", width=500),
        matrices.direction_map(directions(run), 0, width=400),
        timeline.timeline(decisions(run), phases=((0, "a"),), steps=STEPS, width=500),
    ]
    for chart in charts:
        assert vl_convert.vegalite_to_svg(chart.to_dict(), vl_version=VEGA_LITE).count("currentColor") > 3

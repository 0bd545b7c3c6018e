"""The phases of each recipe at each budget, with the step times of its profile."""

import json
from pathlib import Path

import pytest

from explorer.errors import StoreError
from explorer.store import frames
from explorer.store.ingest import ingest
from tests.builders import run_record, write_profile, write_run


def test_a_row_for_each_phase_of_each_recipe_and_budget(tmp_path: Path) -> None:
    for ssr, seed in ((0.5, 0), (1.0, 0), (1.0, 1)):
        write_run(tmp_path, run_record(ssr=ssr, seed=seed))
    phased = run_record(recipe="resize", methods=("resize",), phases={"8x8 px": 60, "16x16 px": 20})
    write_run(tmp_path, phased)
    write_run(tmp_path, run_record(recipe="unfinished", methods=("ema",)), finished=False)
    write_profile(tmp_path, run_record(), seconds=0.01, split={"forward": 0.25, "backward": 0.75})
    write_profile(tmp_path, phased, seconds={"8x8 px": 0.004})
    found = frames.schedules(ingest(tmp_path).database, sweep="digits")
    assert list(zip(found["recipe"], found["ssr"], found["phase"], found["steps"], strict=True)) == [
        ("baseline", 0.5, "all", 40),
        ("baseline", 1.0, "all", 80),
        ("resize", 1.0, "16x16 px", 20),
        ("resize", 1.0, "8x8 px", 60),
    ]
    assert found["seconds"].isna().tolist() == [False, False, True, False]
    assert found["split"].iloc[0] == pytest.approx({"forward": 0.0025, "backward": 0.0075})
    assert json.loads(found["identity"].iloc[2])["recipe"]["methods"] == [{"resize": {}}]


def test_a_sweep_that_is_not_there(tmp_path: Path) -> None:
    write_run(tmp_path, run_record())
    with pytest.raises(StoreError, match="unknown sweep 'digit'; did you mean 'digits'"):
        frames.schedules(ingest(tmp_path).database, sweep="digit")

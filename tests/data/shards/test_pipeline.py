"""Reading, decoding, transfer and computing at the same time: what is measured of it, and what is said and drawn."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

from explorer import run_files, rundir
from explorer.analysis.bottleneck import ahead_words
from explorer.data.shards import image_shards
from explorer.data.shards.image_shards import ImageShards
from explorer.recipes.choice import written
from explorer.recipes.recipe import build_recipe
from explorer.run_files import Interval, ResultRecord, Timeline
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from explorer.views.sweep.run_notebook import outcome, timeline_html, timeline_svg
from tests.data.shards.written import DIGITS, folder, write
from tests.recipes_for_tests import write_run

JPEGS = ImageShards(path="jpegs", size=16, window=2)


def trained(root: Path, source: ImageShards, *, epochs: int = 20) -> tuple[Path, ResultRecord]:
    task = {"dataset": written(source), "model": {"resnet8": {"width": 0.5}}}
    train = {"epochs": epochs, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.05}}}
    recipe = build_recipe("plain", task=task, train=train, methods=[], where="test")
    chosen = {"sweep": "test", "baseline": "plain", "tuning": None, "ssr": 1.0, "seed": 0, "threads": 1}
    run = write_run(root, plan_run(recipe, data=root, **chosen))
    return run, execute(run, data=root)


def test_a_slow_decoder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder(tmp_path), tmp_path / "jpegs", data=tmp_path, shard_bytes=3_000)
    decode = image_shards.decode

    def slow(*args: object, **named: object) -> np.ndarray:
        time.sleep(0.05)
        return decode(*args, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(image_shards, "decode", slow)
    run, result = trained(tmp_path, JPEGS, epochs=14)
    timeline = run_files.read(Timeline, run / rundir.TIMELINE)
    assert timeline.steps == 20 and timeline.preprocess > 20 * 0.05 > timeline.read  # the first step reads its own
    assert result.timings.wait > 0.3 * result.timings.training() and result.timings.preprocess < result.timings.wait
    words = outcome(result, run).data or ""
    assert "preprocessing holds steps up in" in words and "Bound by data loading" in words and "data:image/png" in words


def test_what_is_shown_overlaps(tmp_path: Path) -> None:
    write(folder(tmp_path), tmp_path / "jpegs", data=tmp_path, shard_bytes=3_000)
    run, result = trained(tmp_path, JPEGS)
    timeline = run_files.read(Timeline, run / rundir.TIMELINE)
    ahead = [one for one in timeline.shown if one.ahead]
    computing = [one for one in timeline.shown if one.part in ("forward", "backward")]
    assert ahead and computing
    assert any(a.start < c.end and c.start < a.end for a in ahead for c in computing)
    assert result.timings.read == 0  # no step read its rows itself
    assert "Meanwhile rows were read in" in (outcome(result, run).data or "")
    assert "Meanwhile" not in (outcome(result).data or "")


def test_a_run_that_reads_nothing_ahead_has_no_timeline(tmp_path: Path) -> None:
    task = {"dataset": written(DIGITS), "model": {"resnet8": {"width": 0.5}}}
    train = {"epochs": 0.5, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.05}}}
    recipe = build_recipe("plain", task=task, train=train, methods=[], where="test")
    chosen = {"sweep": "test", "baseline": "plain", "tuning": None, "ssr": 1.0, "seed": 0, "threads": 1}
    run = write_run(tmp_path, plan_run(recipe, data=None, **chosen))
    result = execute(run)
    assert not (run / rundir.TIMELINE).exists() and "Meanwhile" not in (outcome(result, run).data or "")


def test_the_picture_has_a_lane_for_each_kind_of_work() -> None:
    shown = (
        Interval(part="read", start=0.0, end=0.01, ahead=True),
        Interval(part="preprocess", start=0.01, end=0.03, ahead=True),
        Interval(part="wait", start=0.0, end=0.03),
        Interval(part="forward", start=0.03, end=0.06),
    )
    timeline = Timeline(read=1, preprocess=2, steps=3, shown=shown)
    svg = timeline_svg(timeline)
    colours = re.findall(r'<rect x="[^"]+" y="([^"]+)" width="([^"]+)" height="22" fill="(#\w+)"', svg)
    assert len({colour for _, _, colour in colours}) == len({y for y, _, _ in colours}) == 4
    widths = {colour: float(width) for _, width, colour in colours}
    assert widths["#0072B2"] == pytest.approx(3 * widths["#56B4E9"], abs=0.5)
    for name in ("load", "preprocess", "wait, transfer", "compute", "60 ms"):
        assert f">{name}<" in svg
    assert timeline_html(Timeline(read=0, preprocess=0, steps=1, shown=())) == ""


def test_what_keeps_steps_waiting_is_the_larger_part() -> None:
    slow_store = Timeline(read=9.0, preprocess=1.0, steps=10, shown=())
    assert "reading holds steps up in 50% of it" in ahead_words(slow_store, wait=5.0, steps=10, seconds=10.0)

"""What a run's notebook shows, from records that were made for the test."""

import json
from dataclasses import replace

import pytest

from explorer import run_files, rundir
from explorer.run_files import ResultRecord, Timings, Trunk
from explorer.views.sweep.run_notebook import describe, loss_curve, outcome
from tests.builders import run_record, write_run


@pytest.fixture
def directory(tmp_path):
    return write_run(tmp_path, run_record(recipe="fast"))


@pytest.fixture
def described(tmp_path):
    """The description of a run whose every text is hostile."""
    evil = "<script>alert(1)</script>"
    run = run_record(recipe="fast")
    run = replace(run, sweep="s", identity={"recipe": {"methods": [{evil: {"a": evil}}]}}, model=evil, dataset=evil)
    return describe(write_run(tmp_path / "a b; rm -rf", run)).data


def test_hostile_text_is_escaped(described):
    assert "<script>" not in described
    assert "&lt;script&gt;alert(1)&lt;/script&gt; (a &lt;script&gt;" in described


def test_the_command_is_quoted(described):
    assert "explorer run &#x27;" in described
    assert "a b; rm -rf/s/" in described


def write_losses(directory, losses):
    lines = [{"step": step, "metric": "train_loss", "value": loss} for step, loss in enumerate(losses, start=1)]
    (directory / rundir.METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("losses", [[2.3], [0.0, 0.0], [-1.5, -0.5], [1e-9, 2e-9], [1e12, 1.0], [2.0] * 5000])
def test_every_curve_can_be_drawn(directory, losses):
    write_losses(directory, losses)
    image = loss_curve(directory)
    assert isinstance(image.data, bytes)
    assert image.data.startswith(b"\x89PNG")
    assert len(image.data) < 200_000


def test_different_losses_give_different_pictures(directory):
    write_losses(directory, [3.0, 2.0, 1.0])
    falling = loss_curve(directory).data
    write_losses(directory, [1.0, 2.0, 3.0])
    assert loss_curve(directory).data != falling


def test_a_run_without_losses_is_an_error(directory):
    write_losses(directory, [])
    with pytest.raises(ValueError, match="no loss was recorded"):
        loss_curve(directory)


def test_contended_times_say_so(tmp_path):
    for contended in (True, False):
        path = write_run(tmp_path / str(contended), run_record(), contended=contended)
        text = outcome(run_files.read(ResultRecord, path / rundir.RESULT)).data
        assert text is not None
        assert ("these times do not measure cost" in text) is contended
        assert "90.00%" in text


def test_the_outcome_names_the_run_that_made_the_first_steps(directory):
    """The control: a run that made them all says nothing of it."""
    plain = run_files.read(ResultRecord, directory / rundir.RESULT)
    assert "made by" not in str(outcome(plain).data)
    branched = replace(plain, trunk=Trunk(run="short<run>", step=12, state="0" * 64))
    assert "12, made by <code>short&lt;run&gt;</code>" in str(outcome(branched).data)


def test_the_outcome_says_what_the_run_was_bound_by_and_how_fast_it_was(directory):
    """The control: a run on a GPU, whose parts were not told apart, has its speed and no verdict."""
    plain = run_files.read(ResultRecord, directory / rundir.RESULT)
    parts = Timings(read=1.0, preprocess=1.0, forward=6.0, backward=12.0)
    timed = replace(plain, timings=parts, steps=110, timed_steps=100, examples=110 * 64)
    text = str(outcome(timed).data)
    assert "Bound by compute, 90% of a step: all else could gain 10% at most" in text
    assert "100 steps, 320 examples a second" in text
    whole = str(outcome(replace(timed, timings=Timings(other=20.0))).data)
    assert "Bound by" not in whole and "100 steps, 320 examples a second" in whole
    assert "a second" not in str(outcome(replace(timed, examples=0)).data)

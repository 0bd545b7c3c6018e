"""Curves of runs: thinned without losing an extreme, over steps, examples and seconds, of runs in every state."""

import fcntl
from pathlib import Path

import numpy as np
import pytest

from explorer import rundir
from explorer.errors import StoreError
from explorer.store.ingest import ingest
from explorer.store.learning_curves import growing, is_training, learning_curves, recorded_metrics
from explorer.store.published import database
from tests.builders import run_record, write_failure, write_plan, write_profile, write_run

STEPS = 4000


def noisy(seed: int) -> list[float]:
    """A falling loss with noise and one spike, which thinning must not lose."""
    losses = 2.0 / np.sqrt(np.arange(1, STEPS + 1)) + np.random.default_rng(seed).normal(0, 0.01, STEPS)
    losses[1234] = 9.0
    return [float(loss) for loss in losses]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs of 4,000 losses each, one of which has batches and phases that change; their recipes are profiled."""
    plain = run_record(recipe="baseline", full_steps=STEPS)
    paced = run_record(recipe="paced", phases={"batch 16": 1000, "batch 64": 3000})
    for seed, record in enumerate((plain, paced)):
        write_run(tmp_path, record, losses=noisy(seed), metrics={"accuracy": 0.9, "nll": 0.3})
    write_profile(tmp_path, plain, seconds=0.01)
    write_profile(tmp_path, paced, seconds={"batch 16": 0.004, "batch 64": 0.01})
    return tmp_path


def test_thinning_keeps_every_extreme_and_both_ends(runs: Path) -> None:
    ingest(runs)
    frame = learning_curves(database(runs), "train_loss", sweep="digits", points=100)
    for seed, recipe in enumerate(("baseline", "paced")):
        curve, losses = frame[frame["recipe"] == recipe], noisy(seed)
        assert 50 <= len(curve) <= 110
        assert curve["step"].is_monotonic_increasing
        assert [losses[int(step) - 1] for step in curve["step"]] == pytest.approx(curve["value"])
        assert {curve["step"].iloc[0], curve["step"].iloc[-1]} == {1, STEPS}
        assert (curve["value"].max(), curve["value"].min()) == (9.0, pytest.approx(min(losses)))
        # Means are those of all measurements, so that what is smoothed follows neither extreme.
        last = curve[curve["step"] > STEPS - 80]
        assert last["mean"].iloc[-1] == pytest.approx(np.mean(losses[-80:]), rel=0.02)
    # The control: with room for all of them nothing is left out, and each is its own mean.
    whole = learning_curves(database(runs), "train_loss", sweep="digits", points=STEPS)
    assert len(whole) == 2 * STEPS
    assert (whole["value"] == whole["mean"]).all()


def test_examples_and_seconds_follow_the_phases_of_a_run(runs: Path) -> None:
    ingest(runs)
    frame = learning_curves(database(runs), "train_loss", sweep="digits", points=STEPS).set_index(["recipe", "step"])
    amounts = frame[["examples", "seconds"]].T.to_dict("list")
    assert amounts["baseline", STEPS] == [64 * STEPS, pytest.approx(40.0)]
    assert amounts["paced", 1000] == [16_000, pytest.approx(4.0)]
    assert amounts["paced", 1001] == [16_064, pytest.approx(4.01)]
    assert amounts["paced", STEPS] == [16_000 + 3000 * 64, pytest.approx(34.0)]


def test_unknown_seconds_stay_unknown(tmp_path: Path) -> None:
    write_run(tmp_path, run_record(), losses=[2.0, 1.0], contended=True)
    ingest(tmp_path)
    assert learning_curves(database(tmp_path), "train_loss")["seconds"].isna().all()


def test_runs_that_failed_have_curves_and_names_are_checked(runs: Path) -> None:
    write_failure(runs, run_record(recipe="failed"))
    ingest(runs)
    path = database(runs)
    frame = learning_curves(path, "train_loss", sweep="digits")
    assert set(frame.loc[frame["state"] == "failed", "recipe"]) == {"failed"}
    one = frame["directory"].iloc[0]
    assert set(learning_curves(path, "train_loss", directories=[one])["directory"]) == {one}
    assert learning_curves(path, "train_loss", directories=[]).empty
    assert recorded_metrics(path, "digits") == ["accuracy", "nll", "train_loss"]
    with pytest.raises(StoreError, match="unknown metric 'train_los'; did you mean 'train_loss'"):
        learning_curves(path, "train_los", sweep="digits")
    with pytest.raises(StoreError, match="unknown sweep 'digit'; did you mean 'digits'"):
        learning_curves(path, "train_loss", sweep="digit")


def test_runs_in_training_are_read_from_their_files(runs: Path) -> None:
    record = run_record(recipe="baseline", seed=7)
    directory = write_run(runs, record, finished=False, losses=[2.0, 1.5, 1.0])
    write_plan(runs, [run_record(recipe="baseline", full_steps=STEPS), record])
    assert growing(runs, "digits", "train_loss").empty  # some process left it
    assert not is_training(runs, "digits")
    with rundir.locked(runs / "digits", what="the sweep"), rundir.locked(directory, what="the run"):
        assert is_training(runs, "digits")
        frame = growing(runs, "digits", "train_loss")
        assert frame[["seed", "step", "examples", "value"]].to_numpy().tolist() == [
            [7, 1, 64, 2.0],
            [7, 2, 128, 1.5],
            [7, 3, 192, 1.0],
        ]
        assert set(frame["state"]) == {"running"}
        with (directory / rundir.METRICS).open("a") as file:
            file.write('{"step": 4, "metric": "train_loss", "value": 0.5}\n{"step": 5, "me')
        assert growing(runs, "digits", "train_loss")["step"].tolist() == [1, 2, 3, 4]
        (directory / rundir.METRICS).write_text("no measurement\n")
        assert growing(runs, "digits", "train_loss").empty


def test_a_look_at_a_sweep_leaves_it_unlocked(runs: Path) -> None:
    """Views look every few seconds, and must not keep a sweep from being started."""
    assert not is_training(runs, "digits")
    with rundir.locked(runs / "digits", what="the sweep", patience=0.0):
        pass
    with (runs / "digits" / rundir.LOCK).open("a") as file:  # the control: a lock that is held is seen
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_training(runs, "digits")

"""Runs over shards by any number of ranks, killed in mid-epoch and finished by others: same rows, same digests."""

from pathlib import Path

import pytest

from explorer import rundir
from explorer.data.shards.image_shards import ImageShards
from explorer.recipes.choice import written
from explorer.recipes.recipe import build_recipe
from explorer.training.run import execute
from explorer.training.run_plan import plan_run
from tests.data.shards.written import folder, write
from tests.recipes_for_tests import write_run
from tests.training.test_torchrun import stopped_after

JPEGS = ImageShards(path="jpegs", size=16, window=2)


def planned(root: Path, name: str, *, seed: int = 0) -> Path:
    task = {"dataset": written(JPEGS), "model": {"resnet8": {"width": 0.5}}}
    train = {"epochs": 3, "batch_size": 8, "lanes": 4, "optimizer": {"sgd": {"lr": 0.05}}}
    recipe = build_recipe("plain", task=task, train=train, methods=[], where="test")
    chosen = {"sweep": "test", "baseline": "plain", "tuning": None, "ssr": 1.0, "seed": seed, "threads": 1}
    return write_run(root / name, plan_run(recipe, data=root, **chosen))


@pytest.mark.slow
def test_any_number_of_ranks_reads_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder(tmp_path, train=60), tmp_path / "jpegs", data=tmp_path, shard_bytes=6_000)
    single = execute(planned(tmp_path, "single"), data=tmp_path)
    for ranks in (2, 4):
        result = execute(planned(tmp_path, f"by-{ranks}"), data=tmp_path, ranks=ranks)
        assert result.state_digest == single.state_digest
    # Stopped in the middle of an epoch, finished by two ranks.
    run = planned(tmp_path, "stopped")
    with stopped_after(11, monkeypatch) as progress, pytest.raises(KeyboardInterrupt):
        execute(run, data=tmp_path, on_progress=progress)
    assert not (run / rundir.RESULT).exists()
    finished = execute(run, data=tmp_path, ranks=2)
    assert finished.resumed == 1 and finished.state_digest == single.state_digest
    # The control: with another order of the rows the digest is another one.
    assert execute(planned(tmp_path, "other", seed=1), data=tmp_path).state_digest != single.state_digest

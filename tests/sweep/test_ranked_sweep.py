"""A sweep whose runs are trained by several ranks."""

from pathlib import Path

import pytest

from explorer.sweep.execute import run_sweep
from explorer.sweep.job_files import Jobs, slurm
from explorer.sweep.profiles import to_profile
from explorer.sweep.workers import default_workers, make_executor
from explorer.training.run import execute
from tests.recipes_for_tests import write_run
from tests.sweep.sweeps import SPEC, plan, results

RANKED = {
    **SPEC,
    "recipes": {
        "baseline": {"train": {"lanes": 2}},
        "together": {"train": {"lanes": 2, "ranks": 2}, "methods": ["ema"]},
    },
    "budgets": [1.0],
    "seeds": [0],
}


@pytest.mark.notebook
@pytest.mark.slow
def test_ranks_are_started_by_the_runs_of_a_sweep(tmp_path: Path) -> None:
    planned = plan(tmp_path, RANKED)
    one, two = sorted((run.record for run in planned.runs), key=lambda record: record.hardware.world_size)
    assert (one.hardware.world_size, two.hardware.world_size) == (1, 2)
    assert [record.run_id for record in to_profile([one, two])] == [one.run_id]
    summary = run_sweep(planned)
    assert summary.complete
    again = execute(write_run(tmp_path / "again", two), ranks=1)
    assert again.state_digest == results(tmp_path)[two.run_id].state_digest


def test_a_scheduler_is_asked_for_all_of_a_runs_processes(tmp_path: Path) -> None:
    record = plan(tmp_path, RANKED).runs[1].record
    hardware = record.hardware
    assert hardware.world_size == 2
    assert "#SBATCH --cpus-per-task=2\n" in slurm(Jobs(sweep="tiny", place="/p", runs=1, hardware=hardware))


@pytest.mark.slow
def test_workers_have_a_gpu_for_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,4")
    assert default_workers(threads=1, device="cuda", ranks=2) == 2
    with make_executor(2, threads=1, device="cuda", ranks=2) as pool:
        seen = [pool.submit(visible) for _ in range(2)]
        assert {future.result() for future in seen} <= {"0,1", "2,3"}


def visible() -> str:
    import os

    return os.environ["CUDA_VISIBLE_DEVICES"]

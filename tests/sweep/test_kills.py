"""Killed with -9 at any moment: kernels, workers, the whole sweep. The next start ends with the same bits."""

import random
import signal
import subprocess
import time

import psutil
import pytest

from explorer import rundir
from explorer.sweep.status import sweep_status
from tests.sweep.sweeps import SPEC, execute, outcomes, plan, spec, start

pytestmark = pytest.mark.notebook

WORK = spec(train={**SPEC["train"], "epochs": 4}, budgets=[0.5, 1.0], seeds=[0])  # 4 runs of 28 and 56 steps


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    runs = tmp_path_factory.mktemp("calm")
    assert execute(runs, WORK).complete
    return outcomes(runs)


def kin(process: subprocess.Popen, module: str) -> list[psutil.Process]:
    """The living descendants of the process that run the module."""
    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if module in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def wait_until(holds, *, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def trains(runs) -> bool:
    """Whether some run has begun to train and has no result."""
    return any(
        (path / rundir.ENVIRONMENT).exists() and not (path / rundir.RESULT).exists()
        for path in rundir.run_directories(runs / "tiny")
    )


def finish(process: subprocess.Popen) -> tuple[str, str]:
    out, err = process.communicate(timeout=240)
    assert "Traceback" not in err, err
    return out, err


@pytest.mark.slow
def test_a_killed_kernel_and_a_killed_worker_cost_one_run_a_retry(tmp_path, undisturbed):
    process = start(tmp_path, WORK, engine="warm", workers=2)
    wait_until(lambda: trains(tmp_path))
    kin(process, "explorer.sweep.kernel")[0].kill()
    wait_until(lambda: len(outcomes(tmp_path)) >= 2 and trains(tmp_path))
    kin(process, "explorer.sweep.workers")[0].kill()
    out, _ = finish(process)
    assert out.count("retry") in (1, 2)  # a kill between two runs costs nothing
    assert "failed" not in out
    assert outcomes(tmp_path) == undisturbed


@pytest.mark.slow
def test_a_killed_sweep_leaves_nothing_behind_and_resumes(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    process = start(tmp_path, WORK, engine="warm", workers=2)
    wait_until(lambda: trains(tmp_path))
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 4  # two workers, two kernels
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(family, timeout=100)
    assert not alive
    assert not list((tmp_path / "private").glob("explorer-*"))
    status = sweep_status(tmp_path / "tiny")
    assert not status.active
    assert set(status.counts) <= {"done", "interrupted", "planned"}
    assert execute(tmp_path, WORK).complete
    assert outcomes(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["warm", "inline"])
def test_a_complete_sweep_leaves_nothing_behind(tmp_path, undisturbed, monkeypatch, engine):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    process = start(tmp_path, WORK, engine=engine, workers=2)
    wait_until(lambda: trains(tmp_path))
    family = psutil.Process(process.pid).children(recursive=True)
    finish(process)
    assert not psutil.wait_procs(family, timeout=100)[1]
    assert not list((tmp_path / "private").glob("explorer-*"))
    assert outcomes(tmp_path) == undisturbed


@pytest.mark.slow
def test_ctrl_c_in_the_terminal_stops_workers_after_their_step(tmp_path, undisturbed):
    process = start(tmp_path, WORK, engine="inline", workers=2)
    wait_until(lambda: trains(tmp_path))
    process.send_signal(signal.SIGINT)
    out, _ = finish(process)
    assert "stopping" in out
    assert "failed" not in out
    assert out.splitlines()[-1].strip() == "end"
    assert set(sweep_status(tmp_path / "tiny").counts) <= {"done", "interrupted", "planned"}
    assert plan(tmp_path, WORK).missing
    assert execute(tmp_path, WORK).complete
    assert outcomes(tmp_path) == undisturbed


# A fixed number of evaluations: automatic ones depend on the time, and a killed run takes longer.
PLENTY = spec(train={**SPEC["train"], "epochs": 6, "evaluations": 2}, budgets=[0.5, 1.0], seeds=[0, 1, 2, 3])  # 16 runs


@pytest.fixture(scope="module")
def plenty(tmp_path_factory):
    runs = tmp_path_factory.mktemp("plenty")
    assert execute(runs, PLENTY).complete
    return outcomes(runs)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["warm", "inline"])
def test_killed_again_and_again_at_random_moments(tmp_path, plenty, engine):
    draw = random.Random(engine)
    for _ in range(2 if engine == "warm" else 1):  # warm is the default engine; benchmarks/kill.py kills more often
        process = start(tmp_path, PLENTY, engine=engine, workers=2)
        time.sleep(draw.uniform(0.5, 12))
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        assert not psutil.wait_procs(family, timeout=100)[1]
    finish(start(tmp_path, PLENTY, engine=engine, workers=2))
    assert outcomes(tmp_path) == plenty
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
def test_a_killed_sweep_of_cold_kernels_continues(tmp_path, undisturbed):
    process = start(tmp_path, WORK, engine="cold", workers=2)
    wait_until(lambda: trains(tmp_path))
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    assert not psutil.wait_procs(family, timeout=300)[1]  # they follow, and a busy machine takes its time
    finish(start(tmp_path, WORK, engine="cold", workers=2))
    assert outcomes(tmp_path) == undisturbed
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.slow
def test_kernels_and_workers_killed_again_and_again(tmp_path, plenty):
    draw = random.Random(0)
    process = start(tmp_path, PLENTY, engine="warm", workers=2)
    for _ in range(4):
        time.sleep(draw.uniform(3, 9))
        if process.poll() is not None:
            break
        if victims := kin(process, draw.choice(["explorer.sweep.kernel", "explorer.sweep.workers"])):
            draw.choice(victims).kill()
    finish(process)
    assert execute(tmp_path, PLENTY).complete
    assert outcomes(tmp_path) == plenty

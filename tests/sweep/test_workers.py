"""What every executor promises, and what only worker processes do."""

import math
import operator
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import wait

import psutil
import pytest

from explorer.errors import SweepError
from explorer.guardian import child_environment
from explorer.sweep import work
from explorer.sweep.notebooks import NotebookError
from explorer.sweep.work import Job, measure_apart, perform
from explorer.sweep.workers import (
    InProcess,
    LocalProcesses,
    WorkerLost,
    default_workers,
    gpus,
    make_executor,
    use_gpus,
)


@pytest.fixture(params=["in process", "local processes"])
def executor(request):
    made = InProcess() if request.param == "in process" else LocalProcesses(2, threads=1)
    yield made
    made.shutdown(cancel_futures=True)


class TestEveryExecutor:
    def test_a_call_gives_its_value(self, executor):
        assert executor.submit(math.hypot, 3, 4).result() == 5
        assert executor.submit(int, "11", base=2).result() == 3

    def test_a_call_gives_its_exception(self, executor):
        with pytest.raises(ZeroDivisionError):
            executor.submit(operator.truediv, 1, 0).result()
        assert executor.submit(abs, -1).result() == 1

    def test_many_calls(self, executor):
        futures = [executor.submit(operator.mul, number, number) for number in range(20)]
        assert [future.result() for future in futures] == [number**2 for number in range(20)]

    def test_it_is_a_context_manager(self, executor):
        with executor as entered:
            future = entered.submit(abs, -2)
        assert future.result() == 2


@pytest.fixture
def workers():
    with LocalProcesses(2, threads=3) as made:
        yield made


def test_workers_are_kept_and_are_not_this_process(workers):
    seen = {workers.submit(os.getpid).result() for _ in range(4)}
    assert len(seen) == 1
    assert seen != {os.getpid()}


def test_threads_are_set_before_anything_is_imported(workers):
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        assert workers.submit(os.getenv, name).result() == "3"


def test_a_killed_worker_fails_its_own_call_alone(workers):
    slow = workers.submit(time.sleep, 1.0)
    with pytest.raises(WorkerLost, match=r"its worker process \d+ ended \(killed by SIGKILL\)"):
        workers.submit(os.kill, 0, signal.SIGKILL).result()
    assert slow.result() is None
    assert workers.submit(abs, -1).result() == 1


def test_an_interrupted_call_raises_and_its_worker_lives_on(workers):
    pid = workers.submit(os.getpid).result()
    future = workers.submit(time.sleep, 60)
    time.sleep(0.3)
    workers.interrupt()
    assert isinstance(future.exception(timeout=300), KeyboardInterrupt)
    assert workers.submit(os.getpid).result() == pid


def test_interrupting_again_kills(workers):
    future = workers.submit(signal.pthread_sigmask, signal.SIG_BLOCK, [signal.SIGINT])
    future.result()
    stuck = workers.submit(time.sleep, 60)
    time.sleep(0.3)
    workers.interrupt()
    assert not wait([stuck], timeout=0.3).done
    workers.interrupt()
    assert isinstance(stuck.exception(timeout=300), WorkerLost)


def test_an_answer_that_cannot_be_sent_is_an_error(workers):
    with pytest.raises(RuntimeError, match="cannot be sent"):
        workers.submit(open, os.devnull).result()


def test_workers_end_with_the_pool():
    with LocalProcesses(1, threads=1) as pool:
        pid = pool.submit(os.getpid).result()
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_workers_do_not_outlive_their_parent(number):
    code = """
import os, time
from explorer.sweep.workers import LocalProcesses
pool = LocalProcesses(1, threads=1)
print(pool.submit(os.getpid).result(), flush=True)
pool.submit(time.sleep, 600)
time.sleep(600)
"""
    environment = {**os.environ, **child_environment(threads=1)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(number)
        parent.wait()
        worker.wait(timeout=300)


def test_cores_are_shared_out(monkeypatch):
    monkeypatch.setattr("explorer.sweep.workers.cores", lambda: 8)
    assert default_workers(threads=1) == 8
    assert default_workers(threads=3) == 2
    assert default_workers(threads=16) == 1
    assert default_workers(threads=1, device="cuda") == 1
    assert isinstance(make_executor(1, threads=1), InProcess)


def test_each_gpu_has_a_worker_and_cores_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5")
    assert gpus() == ("3", "GPU-5")
    assert default_workers(threads=1, device="cuda") == 2
    own = os.sched_getaffinity(0)
    with make_executor(2, threads=1, device="cuda") as pool:
        seen = {}
        first = pool.submit(time.sleep, 2)  # keeps one of the two
        seen[pool.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result()] = pool.submit(os.sched_getaffinity, 0).result()
        first.result()
        seen[pool.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result()] = pool.submit(os.sched_getaffinity, 0).result()
        with pytest.raises(WorkerLost):
            pool.submit(os.kill, 0, signal.SIGKILL).result()
        assert pool.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result() in seen  # the next worker takes the seat
    assert seen.keys() == {"3", "GPU-5"}
    if len(own) > 1:
        assert seen["3"].isdisjoint(seen["GPU-5"])
        assert seen["3"] | seen["GPU-5"] == own
    with make_executor(2, threads=1) as pool:  # the control: a run on the CPU may use every core
        assert pool.submit(os.sched_getaffinity, 0).result() == own


@pytest.mark.slow
def test_eight_gpus_have_a_worker_each_with_its_threads(monkeypatch):
    """The GPUs are only names here: what a run sees of them is the environment of its worker."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(8))))
    workers = default_workers(threads=3, device="cuda")
    assert workers == 8, "by devices, and not by cores"
    seen = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

    def started(device: str) -> tuple[dict[str, int], set[str]]:
        with make_executor(workers, threads=3, device=device) as pool:
            calls = [pool.submit(environment_of, seen) for _ in range(workers)]
            answers = [future.result() for future in calls]
        return {gpu: pid for pid, (gpu, *_) in answers}, {number for _, (_, *numbers) in answers for number in numbers}

    devices, threads = started("cuda")
    assert set(devices) == set(map(str, range(8))) and len(set(devices.values())) == 8
    assert threads == {"3"}
    together, _ = started("cpu")  # the control: workers that are given no device see all of them
    assert set(together) == {",".join(map(str, range(8)))}
    use_gpus("2,5")
    assert default_workers(threads=3, device="cuda") == 2


def environment_of(names: tuple[str, ...]) -> tuple[int, list[str]]:
    """Return the process, and what its environment has of these names."""
    return os.getpid(), [os.environ[name] for name in names]


def test_gpus_are_chosen_among_those_that_are_there(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    use_gpus("0,2")
    assert (gpus(), default_workers(threads=1, device="cuda")) == (("0", "2"), 2)
    with pytest.raises(SweepError, match=r"--device: found '1', expected some of 0,2"):
        use_gpus("1")
    with pytest.raises(SweepError, match="found '0,0'"):
        use_gpus("0,0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(SweepError, match="none, because this machine shows no GPU"):
        use_gpus("0")


def test_a_worker_that_died_idle_is_no_fault_of_the_next_call(workers):
    psutil.Process(pid := workers.submit(os.getpid).result()).kill()
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=300)
    assert workers.submit(os.getpid).result() != pid


def test_step_times_are_measured_in_a_process_of_their_own_until_the_permit_is_gone(tmp_path):
    permit = tmp_path / "permit"
    permit.touch()
    assert measure_apart(os.getpid, threads=1, permit=permit) != os.getpid()
    permit.unlink()
    begun = time.monotonic()
    assert measure_apart(time.sleep, 600, threads=1, permit=permit) is None
    assert time.monotonic() - begun < 300


@pytest.mark.parametrize(("left", "fault"), [(True, "exception"), (False, "interrupted")])
def test_what_breaks_once_the_permit_is_gone_is_no_fault_of_the_run(tmp_path, monkeypatch, left, fault):
    permit = tmp_path / "permit"
    permit.touch()

    def run(job, call):
        if not left:
            permit.unlink()
        raise NotebookError("exception", "CellExecutionError: the kernel was interrupted while it began")

    monkeypatch.setattr(work, "_run", run)
    job = Job(
        directory=tmp_path / "run",
        notebook=tmp_path,
        engine="inline",
        threads=1,
        data=None,
        contended=False,
        timeout=None,
        permit=permit,
    )
    assert perform(job).fault == fault


def test_workers_start_without_what_they_do_not_need():
    """Each takes as long as everything else together; lark is the parser of a grammar that comes with JupyterLab."""
    code = "import explorer.sweep.work, sys; print(*sys.modules)"
    environment = {**os.environ, **child_environment(threads=1)}
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "papermill" in loaded.stdout.split()
    assert {"torch", "sklearn", "lark"}.isdisjoint(loaded.stdout.split())

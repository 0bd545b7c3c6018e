"""One run from its directory to its result: done, refused, shared, interrupted, killed."""

import json
import multiprocessing
import os
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest
import torch

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.engine.fit import FitOptions, Fitted, fit
from explorer.errors import DivergedError, RecipeError, RunError
from explorer.recipes import machine
from explorer.run_files import FailureRecord, ResultRecord, RunRecord
from explorer.training import peak_memory, watch
from explorer.training import run as module
from explorer.training.peak_memory import watch_memory
from explorer.training.run import build_loop, execute
from explorer.training.run_plan import recipe_of
from tests.recipes_for_tests import machine_with, tiny_recipe, tiny_run, write_run


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return write_run(tmp_path, tiny_run(tiny_recipe(["ema"], evaluations=2)))


@pytest.fixture(scope="module")
def processes() -> BaseContext:
    """Processes that have torch loaded already, and none of this one's state."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["explorer.training.run", "tests.recipes_for_tests"])
    return context


def test_a_run_leaves_its_records(directory: Path) -> None:
    result = execute(directory)
    assert run_files.read(ResultRecord, directory / rundir.RESULT) == result
    assert sorted(path.name for path in directory.iterdir()) == [
        ".lock",
        "environment.json",
        "metrics.jsonl",
        "result.json",
        "run.json",
    ]
    assert (result.steps, result.examples, result.timed_steps, result.resumed) == (7, 448, 4, 0)
    assert set(result.metrics) == {"accuracy", "nll"}
    environment = rundir.read_json(directory / rundir.ENVIRONMENT)
    assert environment["packages"] == machine.versions() and len(environment["code"]) == 64


def test_a_run_that_diverges_says_so_in_its_directory(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "training diverged: the loss is nan at step 3"

    def diverge(*_: object) -> None:
        raise DivergedError(message)

    monkeypatch.setattr(module, "fit", diverge)
    with pytest.raises(DivergedError):
        execute(directory)
    failure = run_files.read(FailureRecord, directory / rundir.FAILURE)
    assert (failure.kind, failure.message) == ("diverged", message)
    monkeypatch.undo()
    execute(directory)
    assert not (directory / rundir.FAILURE).exists()


def test_the_peak_of_memory_is_that_of_this_run(directory: Path) -> None:
    size = 200 * 2**20
    end = watch_memory()
    held = torch.ones(size // 4)
    high = end()
    del held
    end = watch_memory()
    low = end()
    assert high is not None and low is not None and high - low > 0.8 * size, "the first run's peak is forgotten"
    result = execute(directory)
    assert result.peak_memory is not None and 50 * 2**20 < result.peak_memory < high + size


def test_without_a_new_peak_only_a_higher_one_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak_memory, "_CLEAR", tmp_path)  # a directory cannot be written to
    peaks = iter([100, 100, 100, 250])
    monkeypatch.setattr(peak_memory, "_peak", lambda: next(peaks))
    assert watch_memory()() is None
    assert watch_memory()() == 250


def test_loops_of_before_are_gone_when_a_gpu_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = build_loop(tiny_run(tiny_recipe()), data=None)
    model, left = weakref.ref(loop.setting.model), list[bool]()
    monkeypatch.setattr(machine, "device", lambda: torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: left.append(model() is not None))
    watch_memory()
    del loop
    watch_memory()
    assert left == [True, False]


def test_the_same_run_twice_has_the_same_bits(tmp_path: Path) -> None:
    run = tiny_run(tiny_recipe(["mixup"]))
    results = [execute(write_run(tmp_path / name, run)) for name in ("one", "other")]
    assert results[0].state_digest == results[1].state_digest
    assert results[0].files["metrics.jsonl"] == results[1].files["metrics.jsonl"]
    other = execute(write_run(tmp_path, tiny_run(tiny_recipe(["mixup"]), seed=1)))
    assert other.state_digest != results[0].state_digest


@pytest.mark.parametrize(("others", "contended"), [(0.0, False), (0.5, True)])
def test_a_run_beside_other_work_is_contended(
    directory: Path, monkeypatch: pytest.MonkeyPatch, others: float, contended: bool
) -> None:
    """However it was started: a sweep with one worker may still share the machine."""
    monkeypatch.setattr(watch, "read_machine", machine_with(others=others))
    assert execute(directory).contended is contended


def test_what_the_sweep_says_of_its_own_runs_stays(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "read_machine", machine_with(others=0.0))
    assert execute(directory, contended=True).contended


def test_a_finished_run_is_left_alone(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = execute(directory)
    times = {path.name: path.stat().st_mtime_ns for path in directory.iterdir() if path.name != rundir.LOCK}
    monkeypatch.setattr(module, "build_loop", lambda *args, **options: pytest.fail("nothing is to be trained"))
    start = time.perf_counter()
    assert execute(directory) == result
    assert time.perf_counter() - start < 0.5
    assert {name: (directory / name).stat().st_mtime_ns for name in times} == times


def test_what_a_finished_run_no_longer_needs_goes(directory: Path) -> None:
    """Killed between the result and the clearing: the next look clears."""
    execute(directory)
    (directory / rundir.FAILURE).write_text("{}")
    (directory / rundir.CHECKPOINT).mkdir(parents=True)
    (directory / rundir.CHECKPOINT / "step-00000001.safetensors").write_bytes(b"")
    execute(directory)
    assert not (directory / rundir.FAILURE).exists()
    assert not (directory / rundir.CHECKPOINT).exists()


REFUSALS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "machine": (
        r"planned for .* \(cpu\), and this machine is Other Processor \(cpu\)",
        lambda patch: patch.setattr(machine, "_cpu_name", lambda: "Other Processor"),
    ),
    "version": (
        r"planned for explorer .*, and this machine has .*torch 0\.0\.0",
        lambda patch: patch.setattr(machine, "versions", lambda: {"torch": "0.0.0"}),
    ),
    "data": (
        r"planned for data .*, found other",
        lambda patch: patch.setattr("explorer.data.digits.Digits.digest", lambda self, data: "other"),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_other_surroundings_are_refused(directory: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    message, change = REFUSALS[name]
    change(monkeypatch)
    with pytest.raises(RunError, match=message + ".*: plan it again here"):
        execute(directory)
    assert not (directory / rundir.RESULT).exists()


@pytest.mark.parametrize(
    "field, value",
    [("steps", 3), ("batch_size", 8), ("seed", 5), ("ssr", 2.0), ("precision", "bf16"), ("phases", {"all steps": 6})],
)
def test_a_record_that_contradicts_its_identity_is_damaged(directory: Path, field: str, value: object) -> None:
    path = directory / rundir.RUN
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(RunError, match=r"damaged: .* is .*, its identity gives"):
        execute(directory)


def test_a_changed_identity_no_longer_fits_the_name(directory: Path) -> None:
    run = run_files.read(RunRecord, directory / rundir.RUN)
    run_files.write(directory / rundir.RUN, replace(run, identity={**run.identity, "seed": 1}))
    with pytest.raises(RunError, match=r"damaged: its identity has the digest"):
        execute(directory)


@pytest.mark.parametrize("recipe", [None, {}, {"task": 1, "train": 2}, "text"])
def test_a_forged_identity_is_refused_in_words(recipe: object) -> None:
    run = tiny_run(tiny_recipe())
    identity = {**run.identity, "recipe": recipe}
    with pytest.raises((RecipeError, RunError), match=f"run {run.run_id[:-8]}"):
        recipe_of(replace(run, identity=identity, run_id=run.run_id[:-8] + digest(identity)[:8]))


def test_no_run_record(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot read .*run\.json"):
        execute(tmp_path)


def test_a_run_in_use_is_not_touched(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    with (
        rundir.locked(directory, what="this test"),
        pytest.raises(RunError, match=rf"run {directory.name} is in use by process {os.getpid()}: wait for it"),
    ):
        execute(directory)


def execute_and_tell(directory: Path, told: Path) -> None:
    """In a process of its own: the number of steps that it trained itself, and the result's digest."""
    steps: list[int] = []
    result = execute(directory, on_progress=lambda done, total: steps.append(done))
    told.write_text(json.dumps([len(steps), result.state_digest]))


def test_two_processes_train_a_run_once(directory: Path, tmp_path: Path, processes: BaseContext) -> None:
    told = [tmp_path / "one", tmp_path / "other"]
    workers = [processes.Process(target=execute_and_tell, args=(directory, path)) for path in told]  # pyright: ignore
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(600)
    answers = [json.loads(path.read_text()) for path in told]
    assert sorted(steps for steps, _ in answers) == [0, 7]
    assert answers[0][1] == answers[1][1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_leaves_a_checkpoint_and_the_rest_gives_the_same_bits(tmp_path: Path, number: signal.Signals) -> None:
    run = tiny_run(tiny_recipe(["ema"], evaluations=2))
    expected = execute(write_run(tmp_path / "whole", run))
    directory = write_run(tmp_path / "parts", run)
    handler = signal.getsignal(number)
    for at in (2, 5):
        with pytest.raises(KeyboardInterrupt):
            execute(
                directory, on_progress=lambda done, total, at=at: os.kill(os.getpid(), number) if done == at else None
            )
        assert (directory / rundir.CHECKPOINT / f"step-{at + 1:08d}.json").exists()
        assert not (directory / rundir.RESULT).exists()
    found = execute(directory)
    assert (found.state_digest, found.metrics, found.resumed) == (expected.state_digest, expected.metrics, 2)
    assert found.files["metrics.jsonl"] == expected.files["metrics.jsonl"]
    assert signal.getsignal(number) is handler


def test_a_signal_after_the_last_step_is_not_lost(directory: Path) -> None:
    """The run is done then, and a caller with several runs stops nevertheless."""
    with pytest.raises(KeyboardInterrupt):
        execute(
            directory, on_progress=lambda done, total: os.kill(os.getpid(), signal.SIGTERM) if done == total else None
        )
    assert (directory / rundir.RESULT).exists()
    assert not (directory / rundir.CHECKPOINT).exists()


def test_a_run_in_another_thread_works_without_signals(directory: Path) -> None:
    results: list[ResultRecord] = []
    thread = threading.Thread(target=lambda: results.append(execute(directory)))
    thread.start()
    thread.join()
    assert results[0].steps == 7


LONG = {"epochs": 3, "batch_size": 32, "evaluations": 4}  # 84 steps


def train_with_many_checkpoints(directory: Path, told: Path) -> None:
    """As `execute` trains, with a checkpoint at every step, so that a kill often meets one half written."""
    fitted = fitted_run(directory)
    told.write_text(json.dumps([fitted.state_digest, fitted.metrics, fitted.resumed]))


def fitted_run(directory: Path, *, checkpoint_seconds: float = 0.0) -> Fitted:
    run = run_files.read(RunRecord, directory / rundir.RUN)
    loop = build_loop(run, data=None)
    options = FitOptions(directory=directory, run_id=run.run_id, evaluations=4, checkpoint_seconds=checkpoint_seconds)
    return fit(loop, options)


def newest_step(directory: Path) -> int:
    names = [path.stem for path in (directory / rundir.CHECKPOINT).glob("step-*.json")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def killed_until_done(context: BaseContext, directory: Path, told: Path, *, kills: int) -> int:
    """Kill the training process at random moments, `kills` times at most, then let it finish. Returns the kills."""
    draws, done = random.Random(0), 0
    while True:
        before = newest_step(directory)
        worker = context.Process(target=train_with_many_checkpoints, args=(directory, told))  # pyright: ignore
        worker.start()
        while done < kills and worker.is_alive() and newest_step(directory) < before + 5:
            time.sleep(0.005)
        if done < kills and worker.is_alive():
            time.sleep(draws.random() * 0.05)
            worker.kill()
        worker.join(600)
        if told.exists():
            return done
        assert worker.exitcode == -signal.SIGKILL
        done += 1


@pytest.mark.parametrize("kills", [2, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path: Path, processes: BaseContext, kills: int) -> None:
    run = tiny_run(tiny_recipe([{"ema": {"every": 2}}, "mixup", {"sam": {"interval": 3}}], **LONG))
    whole, parts, told = (write_run(tmp_path / name, run) for name in ("whole", "parts", "told"))
    expected = fitted_run(whole, checkpoint_seconds=1e9)
    told = told / "answer.json"
    done = killed_until_done(processes, parts, told, kills=kills)
    assert done >= min(kills, 4)
    state_digest, metrics, resumed = json.loads(told.read_text())
    assert (state_digest, metrics) == (expected.state_digest, expected.metrics)
    assert resumed >= 1
    assert (parts / rundir.METRICS).read_bytes() == (whole / rundir.METRICS).read_bytes()

"""Energy: counters of a made-up sysfs, in real files that the real reader reads; no machine here has one of its own."""

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from explorer import run_files, rundir
from explorer.engine.fit import Fitted
from explorer.engine.meter import CounterError
from explorer.recipes import machine
from explorer.run_files import ResultRecord
from explorer.training import energy as module
from explorer.training import watch
from explorer.training.energy import nvml, rapl
from explorer.training.run import execute
from tests.recipes_for_tests import machine_with, tiny_recipe, tiny_run, write_run

RANGE = 262_143_328_850  # microjoules, of a real processor


def zone(root: Path, name: str, kind: str, energy: int, *, most: int = RANGE) -> Path:
    """A zone of powercap; returns the file of its counter."""
    directory = root / name
    directory.mkdir(parents=True)
    for file, content in (("name", kind), ("energy_uj", energy), ("max_energy_range_uj", most)):
        (directory / file).write_text(f"{content}\n")
    return directory / "energy_uj"


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """Two packages, with what must not be counted twice: parts of them, their second interface, and the whole board."""
    root = tmp_path / "powercap"
    zone(root, "intel-rapl:0", "package-0", 1_000_000)
    zone(root, "intel-rapl:1", "package-1", 5_000_000)
    zone(root, "intel-rapl:0:0", "core", 7)
    zone(root, "intel-rapl:0:1", "dram", 7)
    zone(root, "intel-rapl:2", "psys", 7)
    zone(root, "intel-rapl-mmio:0", "package-0", 7)
    return root


def test_packages_are_added_and_nothing_is_counted_twice(powercap: Path) -> None:
    read = rapl(powercap)
    begun = read()
    for name in ("intel-rapl:0:0", "intel-rapl:0:1", "intel-rapl:2", "intel-rapl-mmio:0"):
        (powercap / name / "energy_uj").write_text("900000000")
    assert read() == begun
    (powercap / "intel-rapl:0" / "energy_uj").write_text("3500000")
    (powercap / "intel-rapl:1" / "energy_uj").write_text("5500000")
    assert read() - begun == pytest.approx(2.5 + 0.5)


def test_a_counter_that_starts_again_keeps_rising(powercap: Path) -> None:
    counter = powercap / "intel-rapl:0" / "energy_uj"
    counter.write_text(str(RANGE - 1_000_000))
    read = rapl(powercap)
    begun = read()
    counter.write_text("2000000")
    assert read() - begun == pytest.approx(3.0)
    counter.write_text("2500000")
    assert read() - begun == pytest.approx(3.5)


@pytest.mark.parametrize("content", ["", "-5", "12.5", "1" * 60 + "x", "\xff"])
def test_a_counter_that_is_no_number_is_absent_and_not_zero(powercap: Path, content: str) -> None:
    path = powercap / "intel-rapl:1" / "energy_uj"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(CounterError, match=r"intel-rapl:1/energy_uj: found .*, expected microjoules"):
        rapl(powercap)


def test_without_a_package_or_without_permission_there_is_no_counter(tmp_path: Path, powercap: Path) -> None:
    with pytest.raises(CounterError, match="has no package of RAPL"):
        rapl(tmp_path / "none")
    counter = powercap / "intel-rapl:1" / "energy_uj"
    counter.unlink()
    counter.mkdir()  # refuses to be read, as the file of root does; a test that runs as root may read any file
    with pytest.raises(CounterError, match=r"counter that this process may read: .*energy_uj: Is a directory"):
        rapl(powercap)


# --- a run ---


@contextlib.contextmanager
def working(powercap: Path) -> Iterator[None]:
    """A machine whose first package takes 100 W while the block lasts, in steps of a millisecond."""
    counter, done, joules = powercap / "intel-rapl:0" / "energy_uj", threading.Event(), 0

    def count() -> None:
        nonlocal joules
        while not done.wait(0.001):
            joules += 1
            fresh = counter.with_name("fresh")
            fresh.write_text(str(joules * 100_000))
            fresh.replace(counter)  # a reader sees the old number or the new one

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.fixture
def counted(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "POWERCAP", powercap)
    monkeypatch.setattr(watch, "read_machine", machine_with(others=0.0))
    (powercap / "intel-rapl:0" / "energy_uj").write_text("0")
    return powercap


def total(powercap: Path) -> float:
    return int((powercap / "intel-rapl:0" / "energy_uj").read_text()) / 1e6


def test_a_run_records_the_energy_of_its_timed_steps(tmp_path: Path, counted: Path) -> None:
    directory = write_run(tmp_path, tiny_run(tiny_recipe(epochs=2)))
    with working(counted):
        result = execute(directory)
    assert result == run_files.read(ResultRecord, directory / rundir.RESULT)
    assert result.energy is not None and result.energy.joules is not None
    assert result.energy.source == "RAPL package" and result.energy.steps == result.timed_steps
    assert 0 < result.energy.joules < total(counted), "neither nothing nor all that the machine took"
    assert result.energy_kwh == pytest.approx(result.energy.joules * result.steps / result.timed_steps / 3.6e6)


def test_a_run_that_shared_its_machine_has_no_energy(tmp_path: Path, counted: Path) -> None:
    with working(counted):
        result = execute(write_run(tmp_path, tiny_run(tiny_recipe())), contended=True)
    assert result.energy is not None and result.energy_kwh is None
    assert result.energy.joules is None and "shared the machine" in result.energy.missing


def test_a_counter_that_did_not_move_is_no_energy_of_zero(tmp_path: Path, counted: Path) -> None:
    result = execute(write_run(tmp_path, tiny_run(tiny_recipe())))
    assert result.energy is not None and result.energy.joules is None and "too short" in result.energy.missing


def test_without_a_counter_a_run_says_why(tmp_path: Path, counted: Path) -> None:
    run = tiny_run(tiny_recipe())
    (counted / "intel-rapl:1" / "energy_uj").unlink()
    result = execute(write_run(tmp_path, run))
    assert result.energy is not None and result.energy.joules is None
    assert result.energy.missing.startswith("the machine has no energy counter that this process may read: ")


def test_a_counter_that_is_lost_on_the_way_costs_the_energy_and_not_the_run(tmp_path: Path, counted: Path) -> None:
    def lose(done: int, total: int) -> None:
        (counted / "intel-rapl:1" / "energy_uj").unlink(missing_ok=True)

    result = execute(write_run(tmp_path, tiny_run(tiny_recipe())), on_progress=lose)
    assert result.energy is not None and result.energy.joules is None and "No such file" in result.energy.missing


def test_a_resumed_run_adds_what_it_took_before(tmp_path: Path, counted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_run(tmp_path, tiny_run(tiny_recipe(epochs=2)))
    stop = [False]
    monkeypatch.setattr("explorer.training.run.stop_signals", lambda: contextlib.nullcontext(lambda: stop[0]))

    def stop_at(done: int, _: int) -> None:
        stop[0] = done == 15

    with working(counted):
        with pytest.raises(KeyboardInterrupt):
            execute(directory, on_progress=stop_at)
        between, stop[0] = total(counted), False
        result = execute(directory)
    assert result.resumed == 1 and result.energy is not None and result.energy.joules is not None
    assert result.energy.steps == result.timed_steps > result.steps - 16
    assert result.energy.joules < total(counted) and between > 0


# --- NVML: no GPU is here, so what is tested is what this process does without one, and the arithmetic ---


def test_a_gpu_needs_the_package_that_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(CounterError, match="nvidia-ml-py, which reads that of a GPU, is not installed"):
        nvml(["GPU-aa"])


def test_the_cards_of_a_run_are_added_in_joules(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(Exception):
        pass

    cards = {"GPU-aa": 5_000, "GPU-bb": 7_000, "GPU-cc": 900_000}  # millijoules; the run has the first two
    library: Any = types.ModuleType("pynvml")
    library.NVMLError = Refused
    library.nvmlInit = lambda: None
    library.nvmlDeviceGetHandleByUUID = lambda name: name
    library.nvmlDeviceGetTotalEnergyConsumption = lambda card: cards[card]
    monkeypatch.setitem(sys.modules, "pynvml", library)
    read = nvml(["GPU-aa", "GPU-bb"])
    assert read() == pytest.approx(12.0)

    def refuse(card: str) -> int:
        raise Refused("Not Supported")

    library.nvmlDeviceGetTotalEnergyConsumption = refuse
    with pytest.raises(CounterError, match="NVML: Not Supported"):
        read()


def test_a_machine_without_a_counter_measures_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "POWERCAP", tmp_path)
    monkeypatch.setattr(machine, "device", lambda: torch.device("cpu"))
    clock: Any = types.SimpleNamespace(meter=None)
    end = module.watch_energy(clock, [module.card()])
    fitted = Fitted(metrics={}, timings=run_files.Timings(), timed_steps=4, resumed=0, state_digest="")
    assert clock.meter is None and "no package of RAPL" in end(fitted, False).missing

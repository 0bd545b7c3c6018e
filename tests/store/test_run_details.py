"""Details of single runs: their machine, metrics, wall time and phases, on their own machine and as imported."""

from pathlib import Path

import pytest

from explorer.errors import StoreError
from explorer.run_files import PhaseProfile
from explorer.store.ingest import ingest
from explorer.store.run_details import Machine, run_details
from tests.builders import CPU, H200, run_record, write_profile, write_run
from tests.store.test_predicted import imported

PHASED = run_record(recipe="resize", methods=("resize",), phases={"8x8 px": 60, "16x16 px": 20, "never": 0})
OWN = Machine(device="cpu", hardware=CPU.name, threads=1, world_size=1)


def test_a_run_has_its_metrics_its_times_and_its_phases(tmp_path: Path) -> None:
    directory = write_run(tmp_path, PHASED, metrics={"accuracy": 0.75, "nll": 0.5})
    write_run(tmp_path, run_record())
    seconds, split = {"8x8 px": 0.004, "16x16 px": 0.01}, {"forward": 0.25, "backward": 0.75}
    write_profile(tmp_path, PHASED, seconds=seconds, split=split)
    name = str(directory.relative_to(tmp_path))
    found = run_details(ingest(tmp_path).database, [name, "nowhere"])
    assert list(found) == [name]
    run = found[name]
    assert run.machine == OWN
    assert [(each.metric.name, each.value, each.metric.unit) for each in run.finals] == [
        ("accuracy", 0.75, "fraction"),
        ("nll", 0.5, "nats"),
    ]
    assert (run.timings["warmup"], run.timings["evaluation"]) == (1.0, 0.5)
    assert run.timings["forward"] == pytest.approx(76 * 0.01 * 0.4)
    (profile,) = run.profiles.values()
    assert [(phase.name, phase.steps, phase.seconds) for phase in profile.phases] == [
        ("8x8 px", 60, 0.004),
        ("16x16 px", 20, 0.01),
    ]
    assert profile.phases[0].split == pytest.approx({"forward": 0.001, "backward": 0.003})


def test_what_a_profile_lacks_is_left_out(tmp_path: Path) -> None:
    directory = write_run(tmp_path, PHASED)
    write_profile(tmp_path, PHASED, seconds={"8x8 px": 0.004})
    found = run_details(ingest(tmp_path).database, [str(directory.relative_to(tmp_path))])
    ((profile,),) = [each.profiles.values() for each in found.values()]
    assert [phase.name for phase in profile.phases] == ["8x8 px"]


def test_each_machine_has_its_own_profile(tmp_path: Path) -> None:
    record = run_record()
    name = str(write_run(tmp_path, record).relative_to(tmp_path))
    write_profile(tmp_path, record, seconds=0.02)
    imported(tmp_path, record, phases=_phases(0.001))
    (run,) = run_details(ingest(tmp_path).database, [name]).values()
    assert {(machine.hardware, profile.phases[0].seconds) for machine, profile in run.profiles.items()} == {
        (CPU.name, 0.02),
        (H200.name, 0.001),
    }
    assert run.machine == OWN


def test_without_a_database_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no database"):
        run_details(tmp_path / "explorer.duckdb", [])


def _phases(seconds: float) -> dict:
    return {"all": PhaseProfile(seconds=seconds, low=seconds, high=seconds, windows=5, split={"forward": seconds})}

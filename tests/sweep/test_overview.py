"""A sweep at a glance, at a place and from run directories: hosts, pace, spend, what is to come, faults."""

import dataclasses
import os
import socket
import time
from pathlib import Path

import pytest

from explorer import rundir
from explorer.costing import Price
from explorer.place import place_status
from explorer.place.place_status import PlaceReader
from explorer.run_files import Timings
from explorer.sweep import run_at
from explorer.sweep.at_place import publish
from explorer.sweep.overview import HOUR, Overview, overview_at, overview_here
from explorer.sweep.run_at import Worker
from explorer.sweep.status import sweep_status
from tests.builders import CPU, change_result, run_record, write_failure, write_plan, write_run
from tests.place.attempts import RUNS, WrittenPlace, eventful
from tests.sweep.sweeps import execute, plan

NOW = 1_800_000_000.0
PRICE = Price(provider="own", instance="box", accelerator=CPU.name, count=2, usd_per_hour=7.2, source="us", own=True)


def seen_at(at: WrittenPlace, *, now: float = NOW, prices: tuple[Price, ...] = ()) -> Overview:
    return overview_at(PlaceReader(at.published).look(now=now), prices=prices, now=now)


def hosts(seen: Overview) -> dict[str, tuple[int, int | None, int]]:
    return {line.host: (line.running, line.done, line.lost) for line in seen.hosts}


def faults(seen: Overview) -> dict[str, tuple[str, str]]:
    return {fault.run_id: (fault.kind, fault.host) for fault in seen.faults}


# --- at a place ---


def test_hosts_and_what_went_wrong(tmp_path):
    seen = seen_at(eventful(tmp_path, NOW))
    assert (seen.runs, seen.done, seen.failed, seen.complete) == (8, 2, 2, False)
    assert [one.run_id for one in seen.in_progress] == [RUNS[5], RUNS[6]], "in the order in which they began"
    own = {name: counts for name, counts in hosts(seen).items() if name.startswith("node")}
    assert own == {"node-7": (1, 2, 0), "node-8": (0, 0, 2)}
    assert len(seen.hosts) == 3 and {line.hardware for line in seen.hosts} == {CPU.name}
    assert faults(seen) == {
        RUNS[2]: ("lost worker", "node-8"),
        RUNS[3]: ("diverged", "node-8"),
        RUNS[4]: ("set aside", "node-8"),
        RUNS[0]: ("not reproducible", "node-8"),
    }, "a preempted run is no fault"
    assert any("metrics, state_digest" in fault.message for fault in seen.faults)


def test_a_sweep_without_faults_has_none(tmp_path):
    at = WrittenPlace(tmp_path)
    for run_id in RUNS:
        at.done(run_id, "node-7", NOW - 60, NOW - 50)
    seen = seen_at(at)
    assert seen.complete and seen.faults == () and seen.in_progress == ()
    assert seen.seconds_left is None and seen.to_come_seconds == 0


def test_pace_and_spend(tmp_path):
    at = WrittenPlace(tmp_path)
    at.done(RUNS[0], "a", NOW - 400, NOW - 300)  # 100 s at budget 0.5
    at.done(RUNS[1], "b", NOW - 400, NOW - 200)  # 200 s, another recipe
    at.claim(RUNS[2], "a", NOW - 40, NOW + 60)  # the recipe and budget of the first
    seen = seen_at(at, prices=(PRICE,))
    assert seen.window == 400 and seen.runs_per_hour == pytest.approx(2 * HOUR / 400)
    assert seen.spent_seconds == pytest.approx(100 + 200 + 40)
    # Of the runs to come, two have budget 0.5 and recipes that are known, four have budget 1 and take by budget.
    assert seen.to_come_seconds is not None
    assert seen.to_come_seconds == pytest.approx((100 - 40) + 200 + 4 * 300)
    assert seen.seconds_left == seen.to_come_seconds, "one worker"
    assert seen.spent_usd == pytest.approx(seen.spent_seconds * 3.6 / HOUR)
    assert seen.to_come_usd == pytest.approx(seen.to_come_seconds * 3.6 / HOUR)
    at.claim(RUNS[3], "b", NOW, NOW + 60)
    assert seen_at(at).seconds_left == pytest.approx(seen.to_come_seconds / 2), "two"


def test_without_a_price_or_a_finished_run_less_is_known(tmp_path):
    at = WrittenPlace(tmp_path)
    at.claim(RUNS[0], "a", NOW - 40, NOW + 60)
    seen = seen_at(at, prices=(dataclasses.replace(PRICE, accelerator="H200"),))
    assert (seen.runs_per_hour, seen.seconds_left, seen.to_come_seconds) == (None, None, None)
    assert (seen.spent_seconds, seen.spent_usd, seen.to_come_usd, seen.prices[CPU.name]) == (40, None, None, None)


def test_a_pause_between_two_starts_is_no_work(tmp_path):
    at = WrittenPlace(tmp_path)
    at.done(RUNS[0], "a", NOW - 9000, NOW - 8900)
    at.done(RUNS[1], "a", NOW - 200, NOW - 100)
    at.claim(RUNS[2], "a", NOW - 100, NOW + 60)
    assert seen_at(at).runs_per_hour == pytest.approx(HOUR / 200)
    # The control: work that took that long counts.
    at.claim(RUNS[3], "b", NOW - 9000, NOW + 60)
    assert seen_at(at).runs_per_hour == pytest.approx(1.0)


def test_a_worker_that_comes_second_is_not_in_progress(tmp_path):
    at = WrittenPlace(tmp_path)
    at.claim(RUNS[0], "late", NOW - 300, NOW + 60)
    at.done(RUNS[0], "first", NOW - 200, NOW - 100, epoch=2)
    seen = seen_at(at)
    assert seen.in_progress == () and hosts(seen) == {"first": (0, 1, 0), "late": (0, 0, 0)}
    assert seen.spent_seconds == pytest.approx(300 + 100), "it costs all the same"


def test_measuring_step_times_is_shown_and_is_no_run(tmp_path):
    at = WrittenPlace(tmp_path)
    at.claim(at.measuring, "a", NOW - 30, NOW + 60)
    seen = seen_at(at)
    assert [one.run_id for one in seen.measuring] == [at.measuring] and seen.in_progress == ()
    assert seen.spent_seconds == 30 and seen.seconds_left is None


def test_classes_have_prices_and_paces_of_their_own(tmp_path):
    at = WrittenPlace(tmp_path, runs=RUNS[:4])
    (cpu,) = at.published.plan().classes
    gpu = dataclasses.replace(cpu.machine, hardware=dataclasses.replace(CPU, device="cuda", name="NVIDIA H200"))
    other = dataclasses.replace(cpu, machine=gpu, runs=RUNS[4:])
    at.published.write("plan.json", dataclasses.replace(at.published.plan(), classes=(cpu, other)))
    at.done(RUNS[0], "a", NOW - 400, NOW - 300)
    at.done(RUNS[4], "b", NOW - 400, NOW - 390)
    at.claim(RUNS[5], "b", NOW, NOW + 60)
    dear = dataclasses.replace(PRICE, accelerator="H200", usd_per_hour=72.0)
    seen = seen_at(at, prices=(PRICE, dear))
    assert seen.spent_usd == pytest.approx((100 * 3.6 + 10 * 36) / HOUR) and [*seen.prices] == [CPU.name, "NVIDIA H200"]
    assert seen.to_come_seconds == pytest.approx(3 * 100 + 3 * 10)
    assert seen.seconds_left is None, "no worker of the first class"
    assert seen_at(at, prices=(PRICE,)).spent_usd is None, "a part of the cost is no cost"
    at.claim(RUNS[1], "a", NOW, NOW + 60)
    assert seen_at(at).seconds_left == pytest.approx(300), "the slower class decides"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{}", "is missing"),
        (b"[" * 100_000, "too large"),
        (b"\xff", "not JSON"),
        (b"moved", "names another run"),
    ],
)
def test_a_damaged_claim_is_a_fault_and_hides_nothing(tmp_path, content, words):
    at = eventful(tmp_path, NOW)
    path = tmp_path / "claims" / RUNS[6] / "00000001.json"
    path.write_bytes((tmp_path / "claims" / RUNS[5] / "00000001.json").read_bytes() if content == b"moved" else content)
    seen = seen_at(at)
    (damaged,) = (fault for fault in seen.faults if fault.kind == "damaged")
    assert words in damaged.message and [one.run_id for one in seen.in_progress] == [RUNS[5]] and len(seen.faults) == 5


@pytest.mark.parametrize("begun", [-1.0, 1e300])
def test_an_impossible_moment_is_refused(tmp_path, begun):
    at = WrittenPlace(tmp_path)
    at.claim(RUNS[0], "a", 1.0, NOW)
    path = tmp_path / "claims" / RUNS[0] / "00000001.json"
    path.write_text(path.read_text().replace('"begun": 1.0', f'"begun": {begun!r}'))
    seen = seen_at(at)
    assert [fault.kind for fault in seen.faults] == ["damaged"] and seen.spent_seconds == 0


def test_a_large_sweep_is_read_little_by_little_and_nothing_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(place_status, "MOST_READ", 2)
    at = WrittenPlace(tmp_path)
    for number, run_id in enumerate(RUNS[:6]):
        at.done(run_id, "a", NOW - 1000 + 100 * number, NOW - 900 + 100 * number)
    at.claim(RUNS[6], "b", NOW - 10, NOW + 60)
    read: list[str] = []
    whole = at.published.objects.read
    monkeypatch.setattr(at.published.objects, "read", lambda key, **most: read.append(key) or whole(key, **most))
    reader = PlaceReader(at.published)
    looks = [overview_at(reader.look(now=NOW), prices=(), now=NOW) for _ in range(4)]
    assert [look.unread for look in looks] == [4, 2, 0, 0]
    assert [len(look.in_progress) for look in looks] == [1] * 4, "what is in progress is read at once"
    ended = [key for key in read if key.startswith("claims/") and RUNS[6] not in key]
    assert sorted(ended) == sorted(set(ended)) and ended[:2] != [] and len(ended) == 6
    assert {RUNS[4] in key or RUNS[5] in key for key in ended[:2]} == {True}, "the last ones first"
    # What is not read yet is estimated by what is: here all runs took 100 s, by budget those of half of it take 50 s.
    assert looks[-1].spent_seconds == 610 and looks[0].spent_seconds == pytest.approx(410)


def test_runs_that_may_be_tried_again_are_looked_at_again(tmp_path):
    at = eventful(tmp_path, NOW)
    reader = PlaceReader(at.published)
    before = overview_at(reader.look(now=NOW), prices=(), now=NOW)
    at.published.forgive()
    at.claim(RUNS[3], "node-9", NOW - 5, NOW + 60)
    after = overview_at(reader.look(now=NOW), prices=(), now=NOW)
    assert (before.failed, after.failed) == (2, 0) and RUNS[3] in {one.run_id for one in after.in_progress}
    assert faults(after).keys() == {RUNS[2], RUNS[0]}


@pytest.mark.notebook
def test_what_real_workers_leave(tmp_path, monkeypatch):
    at = publish(plan(tmp_path / "planned"), str(tmp_path / "place"))
    runs = at.plan().runs
    for host, run_id in zip(("node-7", "node-8"), runs, strict=False):
        monkeypatch.setattr(run_at.socket, "gethostname", lambda host=host: host)
        assert run_at.run_at(Worker(place=at.objects.url, engine="inline"), run_id).state == "done"
    seen = overview_at(PlaceReader(at).look(now=time.time()), prices=(), now=time.time())
    assert hosts(seen) == {"node-7": (0, 1, 0), "node-8": (0, 1, 0)} and seen.faults == ()
    assert seen.spent_seconds > 0 and seen.runs_per_hour and seen.unread == 0 and seen.to_come_seconds


# --- from run directories ---


def write_local(runs: Path) -> list[str]:
    """Two runs that are done, one in progress, one that diverged, one whose worker died, one to do."""
    records = [run_record(ssr=ssr, seed=seed, sweep="mine") for ssr in (0.5, 1.0) for seed in (0, 1, 2)]
    for record in records[:2]:
        directory = write_run(runs, record)
        change_result(directory, finished_at="2026-11-21T12:00:00Z", timings=Timings(forward=60.0, evaluation=40.0))
    write_failure(runs, records[3], kind="diverged", message="the loss is nan")
    for record, host in ((records[2], "node-7"), (records[4], "node-8")):
        mark = write_run(runs, record, finished=False) / f"{rundir.BEGUN}1"
        mark.write_text(f"{host}, process 12")
        os.utime(mark, (NOW - 30, NOW - 30))
    write_plan(runs, records)
    return [record.run_id for record in records]


def test_a_sweep_on_this_machine(tmp_path):
    names = write_local(tmp_path)
    with rundir.locked(tmp_path / "mine", what="sweep"):
        seen = overview_here(sweep_status(tmp_path / "mine"), prices=(PRICE,), now=NOW)
    assert (seen.runs, seen.done, seen.failed, seen.complete, *seen.prices) == (6, 2, 1, False, CPU.name)
    assert {(one.run_id, one.host) for one in seen.in_progress} == {(names[2], "node-7"), (names[4], "node-8")}
    assert hosts(seen) == {"node-7": (1, None, 0), "node-8": (1, None, 0)}, "no result says on which host it was made"
    assert seen.spent_seconds == pytest.approx(100 + 100 + 30 + 30)
    assert seen.to_come_seconds == pytest.approx((100 - 30) + (200 - 30) + 200)
    assert faults(seen) == {names[3]: ("diverged", "")}


def test_a_mark_without_a_sweep_at_work_is_a_lost_worker(tmp_path):
    names = write_local(tmp_path)
    seen = overview_here(sweep_status(tmp_path / "mine"), prices=(), now=NOW)
    assert seen.in_progress == () and hosts(seen) == {"node-7": (0, None, 1), "node-8": (0, None, 1)}
    assert faults(seen)[names[4]] == ("lost worker", "node-8") and not seen.complete


def test_of_several_marks_the_newest_works(tmp_path):
    names = write_local(tmp_path)
    second = tmp_path / "mine" / names[2] / f"{rundir.BEGUN}2"
    second.write_text("node-9, process 12")
    os.utime(second, (NOW - 10, NOW - 10))
    with rundir.locked(tmp_path / "mine", what="sweep"):
        seen = overview_here(sweep_status(tmp_path / "mine"), prices=(), now=NOW)
    assert hosts(seen) == {"node-7": (0, None, 1), "node-8": (1, None, 0), "node-9": (1, None, 0)}
    assert faults(seen)[names[2]] == ("lost worker", "node-7")


@pytest.mark.parametrize("damage", [{"finished_at": "yesterday"}, {"timings": {"forward": "long"}}, {"timings": 5}])
def test_a_result_with_odd_times_is_done_all_the_same(tmp_path, damage):
    names = write_local(tmp_path)
    path = tmp_path / "mine" / names[0] / rundir.RESULT
    rundir.write_json(path, {**rundir.read_json(path), **damage})
    seen = overview_here(sweep_status(tmp_path / "mine"), prices=(), now=NOW)
    assert seen.done == 2 and seen.spent_seconds == pytest.approx(100 + 100), "it took as long as its like, about"


@pytest.mark.notebook
def test_a_real_sweep_tells_what_it_took(tmp_path):
    assert execute(tmp_path).complete
    seen = overview_here(sweep_status(tmp_path / "tiny"), prices=(), now=NOW)
    assert seen.complete and seen.spent_seconds > 0 and seen.runs_per_hour and seen.to_come_seconds == 0
    assert socket.gethostname() not in hosts(seen), "marks are gone with their workers"

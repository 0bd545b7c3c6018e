import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files, rundir
from explorer.run_files import RunRecord
from explorer.schema import to_json
from explorer.views import sweep_process
from explorer.views.explore import Explorer
from explorer.views.explorer import pulse
from explorer.views.sweep import sweep_panel as sweep_panel_module
from explorer.views.sweep.sweep_panel import IDLE, TEMPLATE, SweepPanel, sweep_panel
from explorer.views.sweep_process import progress_words
from tests.builders import run_record, write_plan, write_run
from tests.place.attempts import HOSTILE, RUNS, WrittenPlace, eventful
from tests.sample import write_sample
from tests.tuned_sample import tuned_record


@pytest.fixture
def panel(tmp_path: Path) -> SweepPanel:
    return sweep_panel(tmp_path / "mine.yaml", tmp_path / "runs")


def replace_command(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Let a Python script stand for the command line; it gets the same arguments."""

    def command(*arguments: object) -> list[str]:
        return [sys.executable, "-c", script, *map(str, arguments)]

    monkeypatch.setattr(sweep_process, "command", command)


def event(kind: str, **changes: Any) -> str:
    return json.dumps(
        {"event": kind, "run": None, "message": "", "done": 0, "failed": 0, "total": 4, "fraction": 0.0}
        | {"seconds_left": None}
        | changes
    )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def test_it_opens_on_a_template_and_writes_nothing(panel: SweepPanel, tmp_path: Path) -> None:
    assert panel.editor.value == TEMPLATE
    assert list(tmp_path.iterdir()) == []


def test_it_opens_on_the_specification_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("name: other\n")
    assert sweep_panel(tmp_path / "mine.yaml", tmp_path).editor.value == "name: other\n"


@pytest.mark.slow
def test_plan_shows_what_the_command_line_says(panel: SweepPanel, tmp_path: Path) -> None:
    asyncio.run(panel.plan())
    assert (tmp_path / "mine.yaml").read_text() == TEMPLATE
    assert "18 runs, 0 done, 18 to do" in panel.output.value and "(baseline)" not in panel.output.value
    assert "<table" in panel.output.value and "Step times are not known yet" in panel.output.value
    assert "\x1b" not in panel.output.value


@pytest.mark.slow
def test_plan_shows_what_is_wrong_with_a_specification(panel: SweepPanel) -> None:
    panel.editor.value = TEMPLATE.replace("label_smoothing", "label_smothing<b>")
    asyncio.run(panel.plan())
    assert "did you mean &#39;label_smoothing&#39;?" in panel.output.value
    assert 'role="alert"' in panel.output.value
    assert "<b>" not in panel.output.value
    assert "Traceback" not in panel.output.value


@pytest.mark.slow
def test_a_running_sweep_is_followed_to_its_end(
    panel: SweepPanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sample(tmp_path / "runs", sweep="mine", seeds=1)
    lines = [
        event("start"),
        event("done", done=1, fraction=0.25, seconds_left=120.0),
        event("end", done=4, fraction=1.0),
    ]
    replace_command(monkeypatch, f"print({chr(10).join(lines)!r})")
    asyncio.run(panel.run())
    assert "Finished" in panel.state.value
    assert panel.bar.value == 1.0 and panel.clock.value == ""
    assert panel._look.layout.display == ""
    panel.look()
    (shown,) = panel._place.children
    assert isinstance(shown, Explorer) and shown.question.sweep == "mine"
    assert panel._losses.spec is not None and panel._quality.spec is not None
    assert (panel.run_button.disabled, panel.stop_button.disabled) == (False, True)


@pytest.mark.slow
def test_a_sweep_that_was_started_elsewhere_is_followed_from_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "LEAST", 0.0)
    runs, spec, record = tmp_path / "runs", tmp_path / "mine.yaml", run_record(recipe="fast", sweep="mine", seed=9)
    spec.write_text(TEMPLATE)
    write_sample(runs, sweep="mine", seeds=2)
    directory = write_run(runs, record, finished=False, losses=[1.0 - step / 100 for step in range(30)])
    write_plan(runs, [run_files.read(RunRecord, path) for path in sorted((runs / "mine").glob("*/run.json"))])
    with rundir.locked(runs / "mine", what="sweep"), rundir.locked(directory, what="run"):
        panel = sweep_panel(spec, runs)
        assert "30 of 31 runs done, 1 running: another process runs this sweep." in panel.state.value
        assert panel.bar.value == pytest.approx(30 / 31) and panel.run_button.disabled
        assert "So far fast" in panel.best.value and panel._quality.spec is not None

        def steps() -> int:
            spec = panel._losses.spec or {}
            (lines,) = (layer for layer in spec["layer"] if layer["name"] == "lines")
            rows = spec["datasets"][lines["data"]["name"]]
            return max(row["x"] for row in rows if row["series"] == f"mine/{record.run_id}")

        assert steps() == 30
        with (directory / rundir.METRICS).open("a") as file:
            file.write('{"step": 31, "metric": "train_loss", "value": 0.5}\n')
        panel._next_drawing = 0.0
        assert panel._pulse.beat() == pulse.TRAINING and steps() == 31
        assert panel._look.layout.display == "none"
    write_run(runs, record, metrics={"accuracy": 0.98, "nll": 0.3})
    panel._pulse.beat()
    assert "31 of 31 runs done." in panel.state.value and panel.bar.value == 1.0
    assert not panel.run_button.disabled and panel._look.layout.display == ""
    assert panel._pulse.beat() == pulse.IDLE


def test_a_specification_without_a_sweep_of_its_own_shows_none(tmp_path: Path) -> None:
    record = run_record(sweep="mine")
    write_run(tmp_path / "runs", record)
    write_plan(tmp_path / "runs", [record])
    for name, said in (("mine", "1 of 1 run done."), ("runs/mine", IDLE), ("_mine", IDLE), ("[1]", IDLE), ("no", IDLE)):
        (tmp_path / "spec.yaml").write_text(f"name: {name}\n")
        assert said.split('"')[0] in sweep_panel(tmp_path / "spec.yaml", tmp_path / "runs").state.value, name


def test_a_sweep_that_has_no_event_yet_shows_what_it_does(panel: SweepPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    panel.state.observe(lambda change: told.append(change["new"]), "value")
    script = "import sys, time; print('trying a few steps', file=sys.stderr, flush=True); time.sleep(2)"
    replace_command(monkeypatch, script)
    asyncio.run(panel.run())
    assert any("trying a few steps" in words for words in told)


def test_a_sweep_that_fails_says_why(panel: SweepPanel, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_command(monkeypatch, "import sys; sys.exit('no space left on <device>')")
    asyncio.run(panel.run())
    assert "no space left on &lt;device&gt;" in panel.output.value
    assert "Finished" not in panel.state.value


def test_a_specification_that_cannot_be_saved_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    panel = sweep_panel(tmp_path / "file" / "mine.yaml", tmp_path)
    monkeypatch.setattr(subprocess, "Popen", None)
    asyncio.run(panel.run())
    assert "cannot write" in panel.output.value


def test_stop_is_an_interrupt_and_the_sweep_outlives_nobody_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: (print('stopping', file=sys.stderr), sys.exit(130)))\n"
        f"print({event('start')!r}, flush=True)\n"
        "time.sleep(60)"
    )
    replace_command(monkeypatch, script)
    process = sweep_process.SweepProcess(tmp_path / "mine.yaml", runs=tmp_path)
    seen: list[dict[str, Any]] = []
    wait_until(lambda: bool(seen.extend(process.events()) or seen))
    assert process.running
    process.stop()
    wait_until(lambda: not process.running)
    assert not process.succeeded
    assert process.complaint() == "stopping"
    assert [item["event"] for item in seen] == ["start"]


def test_a_line_that_is_still_being_written_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = event("start")
    script = (
        f"import sys, time\nline = {whole!r}\nprint(line[:20], end='', flush=True)\n"
        f"open({str(tmp_path / 'half')!r}, 'w').close()\n"
        f"import pathlib\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)\n"
        "print(line[20:])"
    )
    replace_command(monkeypatch, script)
    process = sweep_process.SweepProcess(tmp_path / "mine.yaml", runs=tmp_path)
    wait_until(lambda: (tmp_path / "half").exists())
    assert process.events() == []
    (tmp_path / "go").touch()
    wait_until(lambda: not process.running)
    assert process.events() == [json.loads(whole)]


@pytest.mark.slow
def test_tuning_is_followed_and_what_it_chose_is_shown(
    panel: SweepPanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        event("done", done=1, fraction=0.25, tunes="mine"),
        json.dumps({"event": "tuned", **to_json(tuned_record())}),
    ]
    replace_command(monkeypatch, f"import sys; assert sys.argv[1] == 'tune'; print({chr(10).join(lines)!r})")
    asyncio.run(panel.tune())
    assert "lr 0.2" in panel.output.value and "is at the high end of what was tried" in panel.output.value
    assert "Finished" in panel.state.value and panel.bar.value == 0.25
    assert progress_words(json.loads(lines[0])) == "1 of 4 tuning runs done."


# --- hosts, pace, spend and faults ---


def shown(panel: SweepPanel) -> str:
    return panel.amounts.value + panel.hosts.value + panel.held.value


async def follow(panel: SweepPanel, until: Callable[[], bool]) -> None:
    """Follow a place on an event loop until a condition holds."""
    task = asyncio.get_running_loop().create_task(panel.follow_place())
    deadline = time.monotonic() + 200
    while not until() and not task.done():
        assert time.monotonic() < deadline, "it did not happen"
        await asyncio.sleep(0.02)
    task.cancel()


def test_a_sweep_at_a_place_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_panel_module, "EVERY", 0.01)
    now = time.time()
    place = eventful(tmp_path / "place", now)
    panel = sweep_panel(tmp_path / "mine.yaml", tmp_path / "runs", str(tmp_path / "place"))
    assert shown(panel) == "", "without an event loop nothing is looked at"
    asyncio.run(follow(panel, lambda: bool(panel.hosts.value)))
    assert "2 of 8 runs done, 2 in progress on 2 hosts, 2 to do, 2 failed." in panel.state.value
    assert panel.bar.value == pytest.approx(2 / 8)
    for words in ("node-7", "node-8", RUNS[5], "lost worker", "set aside", "not reproducible", "machine time"):
        assert words in shown(panel), words
    assert "<img" not in shown(panel) and "&lt;img src=x onerror=alert(1)&gt;" in panel.hosts.value
    assert not set("\x1b\u202e") & set(shown(panel)) and set("\x1b\u202e") <= set(HOSTILE)
    for run_id in (RUNS[2], RUNS[5], RUNS[6], RUNS[7]):
        place.done(run_id, "node-9", now - 10, now)
    asyncio.run(asyncio.wait_for(panel.follow_place(), 200))
    assert "6 of 8 runs done, 2 failed." in panel.state.value and "lost worker" not in shown(panel)


def test_a_place_that_cannot_be_used_says_why_until_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_panel_module, "EVERY", 0.01)
    panel = sweep_panel(tmp_path / "mine.yaml", tmp_path / "runs", str(tmp_path / "place"))
    asyncio.run(follow(panel, lambda: bool(panel.amounts.value)))
    assert "no sweep is published here" in panel.amounts.value and panel.hosts.value == ""
    eventful(tmp_path / "place", time.time())
    asyncio.run(follow(panel, lambda: bool(panel.hosts.value)))
    assert "no sweep is published here" not in panel.amounts.value


def test_another_place_replaces_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_panel_module, "EVERY", 0.01)
    eventful(tmp_path / "one", time.time())
    WrittenPlace(tmp_path / "two").claim(RUNS[0], "other-host", time.time(), time.time() + 1000)

    async def change() -> None:
        panel = sweep_panel(tmp_path / "mine.yaml", tmp_path / "runs", str(tmp_path / "one"))
        for value, words in (("", "node-7"), (str(tmp_path / "two"), ""), ("", "other-host")):
            deadline = time.monotonic() + 200
            while words not in panel.hosts.value:
                assert time.monotonic() < deadline, words
                await asyncio.sleep(0.02)
            panel.at.value = value
            assert panel.hosts.value == ""
        assert sweep_panel_module._following == []

    asyncio.run(change())


def test_run_publishes_at_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_command(monkeypatch, "import sys; sys.exit(' '.join(sys.argv[1:]))")
    panel = sweep_panel(tmp_path / "mine.yaml", tmp_path / "runs", "s3://bucket/mine")
    monkeypatch.setattr(panel, "follow_place", lambda: asyncio.sleep(0))
    asyncio.run(panel.run())
    assert "--at s3://bucket/mine --json" in panel.output.value
    asyncio.run(panel.tune())
    assert "--at" not in panel.output.value, "a tuning stays here"
    panel.editor.value += "search: {of: [ema], spend: 1h}\n"
    asyncio.run(panel.run())
    assert "search" in panel.output.value and "--at s3://bucket/mine --json" in panel.output.value
    panel.at.value = ""
    asyncio.run(panel.run())
    assert "search" in panel.output.value and "--at" not in panel.output.value


def test_a_sweep_on_this_machine_shows_its_hosts_too(tmp_path: Path) -> None:
    runs, spec, record = tmp_path / "runs", tmp_path / "mine.yaml", run_record(sweep="mine", seed=9)
    spec.write_text(TEMPLATE)
    done = run_record(sweep="mine")
    write_run(runs, done)
    (write_run(runs, record, finished=False) / f"{rundir.BEGUN}1").write_text("<b>node</b>, process 12")
    write_plan(runs, [done, record])
    with rundir.locked(runs / "mine", what="sweep"):
        panel = sweep_panel(spec, runs)
    assert "&lt;b&gt;node&lt;/b&gt;" in panel.hosts.value and record.run_id in panel.held.value
    assert "machine time" in panel.amounts.value and "<b>node" not in shown(panel)

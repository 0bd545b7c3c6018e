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
from explorer.views.sweep.sweep_panel import IDLE, TEMPLATE, SweepPanel, sweep_panel
from explorer.views.sweep_process import progress_words
from tests.builders import run_record, write_plan, write_run
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

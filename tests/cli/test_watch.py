"""`explorer sweep status`: hosts, pace, spend and faults; `--watch` in a terminal and in a pipe."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.command import explorer
from tests.place.attempts import RUNS, WrittenPlace, eventful

PATIENCE = 240  # seconds; the machine may be busy with other things


@pytest.fixture
def at(tmp_path: Path) -> WrittenPlace:
    """A place at which all runs but the last one are settled, and that one is in progress."""
    now = time.time()
    place = WrittenPlace(tmp_path / "place")
    for run_id in RUNS[:-1]:
        place.done(run_id, "node-7", now - 100, now - 90)
    place.claim(RUNS[-1], "node-8\x1b[31m", now - 10, now + 3600)
    (tmp_path / "mine.yaml").write_text("name: mine")
    return place


def command(at: WrittenPlace, *options: str) -> list[str]:
    spec = at.directory.parent / "mine.yaml"
    return [sys.executable, "-m", "explorer", "sweep", "status", str(spec), "--at", str(at.directory), *options]


def test_hosts_pace_spend_and_faults_are_shown(tmp_path: Path) -> None:
    eventful(tmp_path / "place", time.time())
    (tmp_path / "mine.yaml").write_text("name: mine")
    (tmp_path / "runs").mkdir()
    row = "own,box,,on demand,EPYC,2,0.4,2026-11-01,2026-11-22,power\n"
    header = "provider,instance,region,tenancy,accelerator,count,usd_per_hour,effective,retrieved,source\n"
    (tmp_path / "runs" / "prices.csv").write_text(header + row)
    asked = ("sweep", "status", tmp_path / "mine.yaml", "--at", tmp_path / "place", "--runs", tmp_path / "runs")
    out = explorer(*asked).stdout
    assert "2 of 8 runs done, 2 in progress on 2 hosts, 2 to do, 2 failed" in out
    assert re.search(r"pace +[\d.,]+ runs an hour, over the last ", out)
    assert re.search(r"end +in about .*, at .*, if all 2 workers stay", out)
    assert re.search(r"spent +[\d.]+ min of machine time, \$0\.\d+", out)
    assert re.search(r"to come +about [\d.]+ min, \$0\.\d+", out) and "$0.20/h" in out
    assert f"- {RUNS[2]}: lost worker on node-8: waits for a worker" in out
    assert f"- {RUNS[0]}: not reproducible on node-8: a second result differs" in out
    assert "\x1b" not in out and "\u202e" not in out and r"\x1b[31m" in out
    record = json.loads(explorer(*asked, "--json").stdout)
    assert {"sweep", "machine", "runs", "done", "active", "lost", "waiting", "failures"} < record.keys()
    assert (record["runs"], record["done"], record["waiting"], len(record["active"])) == (8, 2, 1, 2)
    assert record["overview"]["spent_usd"] > 0 and len(record["overview"]["hosts"]) == 3
    # Without a price there are no dollars, and it says so.
    out = explorer(*asked[:-2], "--runs", tmp_path / "none").stdout
    assert "$" not in out and "no price for AMD EPYC 7B13" in out


def test_json_is_one_record_though_it_is_watched(at: WrittenPlace) -> None:
    done = subprocess.run(command(at, "--watch", "--json"), capture_output=True, text=True, timeout=PATIENCE)
    assert json.loads(done.stdout)["overview"]["done"] == len(RUNS) - 1 and done.returncode == 0


def test_a_pipe_gets_a_line_for_every_change(at: WrittenPlace) -> None:
    process = subprocess.Popen(command(at, "--watch"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    first = process.stdout.readline()
    assert "7 of 8 runs done, 1 in progress on 1 host; pace: " in first, first
    at.differs(RUNS[0], "node-9\x1b[31m")
    second = process.stdout.readline()
    assert f"{RUNS[0]}: not reproducible on node-9\\x1b[31m" in second, second
    now = time.time()
    at.done(RUNS[-1], "node-8", now - 10, now)
    rest, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and err == ""
    assert re.fullmatch(r"\d\d:\d\d:\d\d 8 of 8 runs done; pace: .*", rest.strip()), "one line, and the end"


class Terminal:
    """A terminal of 100 columns and 40 lines in which a command runs."""

    def __init__(self, arguments: list[str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment.pop("JPY_PARENT_PID", None)
        self.process = subprocess.Popen(
            arguments,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a test in the background ignores it
        )
        os.close(theirs)
        self.shown = ""

    def read_until(self, *words: str) -> str:
        """Return what was written until all of these words have been."""
        deadline = time.monotonic() + PATIENCE
        begin = len(self.shown)
        while not all(word in self.shown[begin:] for word in words):
            assert time.monotonic() < deadline, self.shown
            try:
                self.shown += os.read(self._ours, 10_000).decode(errors="replace")
            except OSError:  # the command has ended, and all of its output was read
                assert all(word in self.shown[begin:] for word in words), self.shown
        return self.shown[begin:]

    def close(self) -> None:
        os.close(self._ours)


@pytest.fixture
def terminal(at: WrittenPlace) -> Iterator[Terminal]:
    made = Terminal(command(at, "--watch"))
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.wait()
    made.close()


def test_a_terminal_is_drawn_again_until_nothing_is_left(at: WrittenPlace, terminal: Terminal) -> None:
    first = terminal.read_until("7 of 8 runs done", "node-8", RUNS[-1])
    assert r"node-8\x1b[31m" in first and "\x1b[31m" not in first, "a name does not steer it"
    now = time.time()
    at.done(RUNS[-1], "node-8", now - 10, now)
    again = terminal.read_until("8 of 8 runs done")
    assert re.search(r"\x1b\[\d*A|\x1b\[2K", again), "in the place of what was there"
    assert terminal.process.wait(PATIENCE) == 0


def test_ctrl_c_ends_it_as_it_ends_other_verbs(terminal: Terminal) -> None:
    terminal.read_until("7 of 8 runs done")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(PATIENCE) == 130
    last = terminal.read_until("\x1b[?25h")
    assert "Traceback" not in last and last.rstrip().endswith("\x1b[?25h"), "the cursor is back"


def test_a_place_without_a_sweep_is_an_error_at_once(at: WrittenPlace) -> None:
    (at.directory / "plan.json").unlink()
    done = subprocess.run(command(at, "--watch"), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "no sweep is published here" in done.stderr and done.stdout == ""

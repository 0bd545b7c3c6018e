"""Sweeps of one machine know of each other while they time: locks between real processes, kills, links, other users."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from explorer.errors import RunError
from explorer.sweep import presence
from tests.sweep.sweeps import ROOT

HELD = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from explorer.sweep import presence
with getattr(presence, sys.argv[2])(*sys.argv[3:]):
    print("held", flush=True)
    sys.stdin.read()
"""
REAL_PLACE = presence._place


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real choice of a directory, below a temporary directory of the test's."""
    monkeypatch.setattr(presence, "_place", REAL_PLACE)
    monkeypatch.setattr(presence.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(presence, "GRACE", 0.0)
    return tmp_path / f".explorer-sweeps-{os.getuid()}"


@contextmanager
def held(tmp_path: Path, what: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that trains, or measures, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, str(tmp_path), what, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with process.stdin, process.stdout:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()
            process.wait()


def test_without_other_processes_nothing_waits(place: Path) -> None:
    heard: list[str] = []
    with presence.timing(on_wait=heard.append) as reasons:
        assert (reasons, presence.others()) == ([], [])
    with presence.training("mine", on_wait=heard.append):
        assert presence.others() == []  # itself is no other
        assert len(list(place.glob("training-*"))) == 1
    assert heard == [] and not list(place.glob("training-*"))
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_profile_names_the_sweep_that_kept_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "FOR_TRAINING", 0.2)
    heard: list[str] = []
    with held(tmp_path, "training", "theirs"):
        assert presence.others() == ["theirs"]
        with presence.timing(on_wait=heard.append) as reasons:
            assert reasons == ["sweep 'theirs' trained at the same time"]
    assert heard == ["sweep 'theirs' trains on this machine: waiting up to 0 s"]
    with presence.timing() as reasons:
        assert reasons == []


def test_a_profile_begins_when_the_other_sweep_ends(tmp_path: Path) -> None:
    with held(tmp_path, "training", "theirs") as other:

        def end(message: str) -> None:
            assert other.stdin is not None
            other.stdin.close()

        with presence.timing(on_wait=end) as reasons:
            assert reasons == []


def test_training_begins_when_the_profile_ends(tmp_path: Path) -> None:
    heard: list[str] = []
    with held(tmp_path, "timing") as other:

        def end(message: str) -> None:
            heard.append(message)
            assert other.stdin is not None
            other.stdin.close()

        with presence.training("mine", on_wait=end):
            assert heard == ["waiting while another process measures step times"]
            assert other.poll() is not None or presence.others() == []


def test_waiting_ends_after_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profile that hangs blocks others only for a while; what they measure meanwhile says so."""
    monkeypatch.setattr(presence, "FOR_TIMING", 0.2)
    with held(tmp_path, "timing"):
        with presence.training("mine"):
            assert presence.others() == []
        with presence.timing() as reasons:
            assert reasons == ["another process measured step times at the same time"]


def test_a_stopped_sweep_waits_no_longer(tmp_path: Path) -> None:
    begun = time.monotonic()
    with held(tmp_path, "training", "theirs"), presence.timing(stop=lambda: True) as reasons:
        assert reasons == ["sweep 'theirs' trained at the same time"]
    assert time.monotonic() - begun < presence.FOR_TRAINING


def test_the_lock_of_a_killed_process_blocks_no_other(tmp_path: Path, place: Path) -> None:
    with held(tmp_path, "training", "theirs") as other:
        other.send_signal(signal.SIGKILL)
        other.wait()
        (left,) = place.glob("training-*")
        assert presence.others() == [] and left.exists()
        os.utime(left, (0, 0))
        assert presence.others() == [] and not left.exists()  # in the end it is removed


def test_a_name_is_shown_as_one_line(tmp_path: Path) -> None:
    with held(tmp_path, "training", "a\n\x1b[2J" + "b" * 1000):
        (name,) = presence.others()
    assert name.startswith("a[2Jbbb") and len(name) <= presence.MAX_NAME_BYTES


@pytest.mark.parametrize("kind", ["link", "file", "open to others"])
def test_a_directory_that_others_could_write_is_refused(place: Path, tmp_path: Path, kind: str) -> None:
    """Anybody may make a name in a directory of temporary files before its owner does."""
    if kind == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        place.write_text("")
    else:
        place.mkdir()
        place.chmod(0o777)
    for act in (lambda: presence.training("mine"), presence.timing):
        with pytest.raises(RunError, match="other sweeps are not seen: "), act():
            pytest.fail("entered")
    assert not list((tmp_path / "elsewhere").glob("*")) if kind == "link" else True


def test_a_lock_that_is_a_link_is_not_followed(place: Path, tmp_path: Path) -> None:
    place.mkdir(mode=0o700)
    (tmp_path / "precious").write_text("kept")
    (place / "timing").symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match="other sweeps are not seen: cannot open"), presence.timing():
        pytest.fail("entered")
    assert (tmp_path / "precious").read_text() == "kept"

"""The state of a sweep at a place, and what the verbs of places refuse."""

import json
from pathlib import Path

import pytest

from explorer.place.leases import end, take
from explorer.sweep.at_place import publish
from tests.cli.command import explorer, refused
from tests.sweep.sweeps import plan, spec


def test_the_state_of_a_place_is_shown(tmp_path):
    at = publish(plan(tmp_path / "planned"), str(tmp_path / "place"))
    runs, objects = at.plan().runs, at.objects
    held = take(objects, runs[0], host="node-7", hardware="CPU")
    lost = take(objects, runs[1], host="node-8", hardware="CPU")
    failed = take(objects, runs[2], host="node-9", hardware="CPU")
    assert held and lost and failed
    end(objects, lost, "dead kernel")
    at.fail(failed, "exception", "RunError: no such file")
    objects.put(f"findings/{runs[3]}/00000002.json", b"{}")
    (tmp_path / "s.yaml").write_text("name: tiny")
    out = explorer("sweep", "status", tmp_path / "s.yaml", "--at", tmp_path / "place").stdout
    assert "0 of 4 runs done" in out and "1 in progress on 1 host, 2 to do, 1 failed" in out
    assert "node-7" in out and "dead kernel on node-8: waits for a worker" in out
    assert "exception on node-9: RunError: no such file" in out and f"{runs[3]}: not reproducible" in out


@pytest.mark.slow
@pytest.mark.notebook
def test_a_sweep_at_a_place_publishes_its_results_for_readers(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tiny.yaml").write_text(json.dumps(spec(recipes={"baseline": []})))
    command = ("sweep", "run", tmp_path / "tiny.yaml", "--runs", tmp_path / "runs", "--at", tmp_path / "place")
    done = explorer(*command, "--engine", "inline", "--no-profile")
    assert done.returncode == 0, done.stderr
    there, here = (
        explorer("results", "tiny", "--rows", "--format", "csv", *where)
        for where in (("--at", tmp_path / "place"), ("--runs", tmp_path / "runs"))
    )
    assert there.stdout == here.stdout and there.stdout.count("baseline") >= 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--claim",), "no sweep is published here; expected plan.json"),
        ((), "expected one of --run ID, --index N, --claim and --profile"),
        (("--run", "a", "--index", "1"), "expected one of --run ID, --index N, --claim and --profile"),
        (("--claim", "--engine", "hot"), "unknown notebook engine 'hot'"),
    ],
)
def test_what_is_no_work_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str):
    assert words in refused("run-at", tmp_path / "none", *arguments)

"""`explorer replay`: what it says, and an exit status of 0 only where everything came out as it is on record."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.cli.run import parse_steps
from explorer.entries.kinds import Step, decode, encode
from explorer.errors import RunError
from tests.cli.command import explorer, refused
from tests.training.recorded_runs import copied, recorded_run, rewritten


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_run(tmp_path_factory.mktemp("recorded"))


@pytest.mark.slow
def test_a_run_as_it_is_on_record(run: Path) -> None:
    done = explorer("replay", run, "--steps", "5:7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "steps 5:7, executed from the checkpoint of step 4" in done.stdout
    assert "bit for bit as recorded: 3 steps, 2 states" in done.stdout
    found = json.loads(explorer("replay", run, "--steps", "0:1", "--json").stdout)
    assert (found["equal"], found["difference"], found["environment"], found["steps"]) == (True, None, [], 1)


@pytest.mark.slow
def test_a_run_whose_record_was_altered(run: Path, tmp_path: Path) -> None:
    """The control, and what is said first of another build."""

    def other(leaves: list[bytes]) -> list[bytes]:
        made = []
        for leaf in leaves:
            entry = decode(leaf)
            if isinstance(entry, Step) and entry.step == 1:
                leaf = encode(replace(entry, quarantined=1))
            made.append(leaf)
        return made

    made = rewritten(run, tmp_path, other)
    environment = json.loads((made / rundir.ENVIRONMENT).read_text())
    environment["packages"]["torch"] = "2.11.0\x1b[2J"
    rundir.write_json(made / rundir.ENVIRONMENT, environment)
    done = explorer("replay", made, "--steps", "0:2")
    assert (done.returncode, done.stderr) == (1, "")
    first, second, *_, expected, found = done.stdout.splitlines()
    assert first == "the environment differs from the record, so bits may differ:"
    assert second.startswith("  packages.torch: 2.11.0\\x1b[2J then, ")
    assert "NOT as recorded, after 1 steps" in done.stdout and "step at step 1: quarantined" in done.stdout
    assert (expected.split(), found.split()) == (["expected", "1"], ["found", "0"])
    told = explorer("replay", made, "--steps", "0:2", "--json")
    assert told.returncode == 1 and json.loads(told.stdout)["difference"]["field"] == "quarantined"


def test_what_cannot_be_replayed_is_refused(run: Path, tmp_path: Path) -> None:
    assert "expected a range within 0:7" in refused("replay", run, "--steps", "0:8")
    assert "--steps: found '3-4', expected A:B" in refused("replay", run, "--steps", "3-4")
    assert "run.json" in refused("replay", tmp_path)
    damaged = copied(run, tmp_path)
    (damaged / rundir.ENVIRONMENT).write_text("[]")
    assert "environment.json: damaged: expected a JSON object" in refused("replay", damaged)


@pytest.mark.parametrize("text", ["", "1", "1:", ":2", "1:2:3", "-1:2", "a:b", "1:2\n", "9" * 16 + ":1"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(RunError, match="expected A:B"):
        parse_steps(text)

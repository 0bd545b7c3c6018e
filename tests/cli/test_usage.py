"""`explorer usage` and `explorer usage verify`, as people and programs meet them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.entries.kinds import Step
from explorer.ledger.storage import blob_path
from explorer.provenance.keys import new_key, write_key
from explorer.provenance.trust import write_trust
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import CLASSES, MIT, TRAINER, sign_again, trust, write_governed_run
from tests.cli.command import explorer
from tests.governed_sample import SIMULATED, Sample
from tests.governed_sample import write_governed_run as write_sample
from tests.provenance.people import private


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run `run`, the trust file and the trainer's key beside it, and its statements by class in `use`."""
    directory = tmp_path_factory.mktemp("usage")
    write_governed_run(directory).rename(directory / "run")
    write_trust(directory / "trust.json", trust())
    write_key(directory / "trainer.pem", private(TRAINER), None)
    write_key(directory / "other.pem", new_key(), None)
    done = explorer("usage", "run", "--by", "class", *SIGN, "use", cwd=directory)
    assert done.returncode == 0, done.stderr
    return directory


TRUST = ("--trust", "trust.json")
SIGN = (*TRUST, "--key", "trainer.pem", "--out")
MINE = "use/00002-open-mit.json"


def test_the_table(place: Path) -> None:
    done = explorer("usage", "run", "--by", "class", cwd=place)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "use by class, 1 run"
    assert {line.split()[0] for line in lines[4:7]} == {*CLASSES}
    counts = [int(line.split()[1]) for line in lines[4:7]]
    assert counts == sorted(counts, reverse=True)  # who trained most comes first
    assert "12 steps counted" in done.stdout and "not signed: --trust FILE --out DIR" in done.stdout
    again = explorer("usage", "state", "run", "--by", "class", cwd=place)
    assert again.stdout == done.stdout  # the verb in full


def test_json_has_the_same_numbers_signed_and_unsigned(place: Path) -> None:
    made = json.loads(explorer("usage", "run", "--by", "class", "--json", cwd=place).stdout)
    told = json.loads(explorer("usage", "verify", "use/whole.json", *TRUST, "--json", cwd=place).stdout)
    assert made["lines"] == told["lines"] and [line["party"] for line in made["lines"]] == [*CLASSES]
    assert (made["out"], told["signed_by"], told["lines_in_all"]) == (None, [TRAINER], 3)
    assert made["total"][0]["slots"] == 96


def test_several_runs_are_summed_and_the_unused_are_counted(place: Path, tmp_path: Path) -> None:
    """The second run has one step, whose batch has no source but some."""
    write_governed_run(tmp_path / "runs", steps=1, every=1)
    done = explorer("usage", tmp_path / "runs", "--by", "source", cwd=place)
    assert done.returncode == 0, done.stderr
    few = json.loads(explorer("usage", tmp_path / "runs", "--by", "source", "--json", cwd=place).stdout)["lines"]
    idle = [line for line in few if not any(use["examples"] + use["denied"] for use in line["uses"])]
    assert (f"{len(idle)} more: none of their" in done.stdout) == bool(idle)
    both = json.loads(explorer("usage", "run", tmp_path / "runs", "--by", "class", "--json", cwd=place).stdout)
    for line in both["lines"]:
        assert len(line["uses"]) == 2 and line["examples"] == sum(use["examples"] for use in line["uses"])
    done = explorer("usage", "run", tmp_path / "runs", "--by", "class", cwd=place)
    assert done.stdout.startswith("use by class, 2 runs\n") and done.stdout.count("  all  ") == 3


def test_a_file_for_each_party_and_the_whole_for_the_trainer_alone(place: Path) -> None:
    names = sorted(path.name for path in (place / "use").iterdir())
    assert names == ["00000-licensed-news.json", "00001-open.json", "00002-open-mit.json", "whole.json"]
    assert (place / "use" / "whole.json").stat().st_mode & 0o777 == 0o600
    done = explorer("usage", "verify", MINE, *TRUST, cwd=place)
    assert done.returncode == 0, done.stderr
    assert f"signed by {TRAINER}" in done.stdout and "this line, 1 of 3" in done.stdout
    assert "licensed/news" not in done.stdout and MIT in done.stdout
    done = explorer("usage", "verify", MINE, *TRUST, "--runs", "run", cwd=place)
    assert done.returncode == 0 and "counted again from the ledgers: the same" in done.stdout


def test_a_changed_number_is_refused_in_one_line(place: Path, tmp_path: Path) -> None:
    value = json.loads((place / MINE).read_text())
    value["line"]["content"]["uses"][0]["examples"] += 1
    (tmp_path / "forged.json").write_text(json.dumps(value))
    done = explorer("usage", "verify", tmp_path / "forged.json", *TRUST, cwd=place)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1 and "the line: not what was signed" in done.stderr


def test_counting_again_from_another_ledger_is_refused(place: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(place / "run", tmp_path / "run"))
    sign_again(run, lambda at, entry: replace(entry, quarantined=0) if isinstance(entry, Step) else entry)
    done = explorer("usage", "verify", MINE, *TRUST, "--runs", run, cwd=place)
    assert (done.returncode == 1 and "stated are" in done.stderr) or "not among those given" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--by", "clas"), "--by: unknown party 'clas'; did you mean 'class'?"),
        (("run", "--by", "class", "--period", "2026"), "--period: found '2026', expected FROM..TO"),
        (("run", "--by", "class", "--period", "2026-07-01..2026-06-01", *TRUST), "which is not after it begins"),
        (("run", "--by", "class", "--period", "2026-13-01..2027-01-01", *TRUST), "not a time: '2026-13-01T00:00:00Z'"),
        (("run", "--by", "class", "--period", "2026-06-01..2026-07-01"), "a period needs a trust file"),
        (("run", "--by", "class", "--out", "new"), "--out signs a statement, which takes --trust FILE"),
        (("run", "--by", "class", *SIGN, "use"), "use: exists already; expected a new directory"),
        (("nowhere", "--by", "class"), "nowhere: no governed run: expected the directory of a run"),
        (("run", "--by", "class", *TRUST, "--key", "other.pem", "--out", "new"), "is not in the trust file"),
        (("verify", "trust.json", *TRUST), "not a statement of use"),
        (("verify", "missing.json", *TRUST), "cannot read missing.json"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_nothing_is_written(
    place: Path, arguments: tuple[str, ...], message: str
) -> None:
    before = sorted(place.iterdir())
    done = explorer("usage", *arguments, cwd=place)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert sorted(place.iterdir()) == before


def test_simulated_provenance_is_called_so(tmp_path: Path) -> None:
    write_sample(tmp_path, sample=Sample(SIMULATED)).rename(tmp_path / "run")
    done = explorer("usage", "run", "--by", "class", cwd=tmp_path)
    assert "(simulated provenance)" in done.stdout.splitlines()[0]


def test_what_cannot_be_told_is_in_the_table(place: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(place / "run", tmp_path / "run"))
    ledger = RunLedger(run)
    for segment in ledger.segments():
        for name in ("slots", "joint"):
            (run / rundir.LEDGER / blob_path(segment.state.entry.blobs[name].sha256)).unlink()
    done = explorer("usage", run, "--by", "source", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "cannot be told: whose examples trained in 12 steps: their numbers are missing, and no entry" in done.stdout
    assert (
        "cannot be told: the share of the gradient in 12 steps: their numbers are missing, and no entry" in done.stdout
    )

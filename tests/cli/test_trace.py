"""`explorer trace`, `explorer conform` and `explorer policy simulate`, as people and programs meet them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer import rundir
from explorer.entries.kinds import Step
from explorer.provenance.policy import Rule
from explorer.provenance.trust import write_trust
from explorer.schema import to_json
from tests.audit import governed_run as runs
from tests.audit.governed_run import MIT, NEWS, sign_again, trust, write_governed_run
from tests.cli.command import explorer, refused


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run `run`, and the trust file beside it."""
    directory = tmp_path_factory.mktemp("governed")
    write_governed_run(directory).rename(directory / "run")
    write_trust(directory / "trust.json", trust())
    return directory


@pytest.fixture
def copy(place: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(place, tmp_path / "copy"))


def say(place: Path, *arguments: str, status: int = 0) -> Any:
    done = explorer(*arguments, "--json", cwd=place)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_a_layer(place: Path) -> None:
    found = say(place, "trace", "run", "--layer", "head", "--steps", "2:9", "--trust", "trust.json")
    assert (found["layer"], found["steps"], found["verified"]) == ("head", [2, 9], True)
    assert [row["class"] for row in found["rows"]] == list(runs.CLASSES)
    assert sum(row["share"] for row in found["rows"]) == pytest.approx(1)
    assert found["first_admitted"] == {NEWS: 5, "open": 0, MIT: 0}
    assert found["check"] == {"segments": 2, "of": 2, "differences": [], "unread": [], "spooled": True, "agrees": True}
    news = found["participants"][0]
    expected = {row for step in range(5, 9) for row in runs.rows_of(step).tolist() if runs.ROW_CLASSES[row] == NEWS}
    assert (news["class"], news["steps"], set(news["examples"])) == (NEWS, 4, expected)
    assert sum(news["sources"].values()) == len(expected)
    assert {each["chi"] for each in found["separable"]} == {0.5}


def test_a_class_and_a_layer_that_denies_it(place: Path) -> None:
    found = say(place, "trace", "run", "--class", NEWS)
    assert [(row["layer"], row["admitted"], row["share"] == 0) for row in found["rows"]] == [
        ("embed", False, True),
        ("body.0", False, True),
        ("body.1", True, False),
        ("head", True, False),
    ]
    embed = say(place, "trace", "run", "--layer", "embed")
    assert [len(each["examples"]) > 0 for each in embed["participants"]] == [False, True, True]


def test_a_parameter_says_what_its_own_numbers_take(place: Path) -> None:
    found = say(place, "trace", "run", "--parameter", "body.1.weight", "--steps", "6:8")
    assert found["parameter"] == {
        "parameter": "body.1.weight",
        "layer": "body.1",
        "replay_from": 0,
        "replay_steps": 8,
        "replay_seconds": pytest.approx(0.08),
    }
    assert "did you mean 'body.1.weight'" in refused("trace", "run", "--parameter", "body1.weight", cwd=place)


def test_people_are_told_too(place: Path) -> None:
    done = explorer("trace", "run", "--layer", "head", cwd=place)
    assert "licensed/news: admitted from step 5" in done.stdout
    assert "sums: recomputed from the ledger: 3 of 3 segments, and equal" in done.stdout
    assert "ledger: not verified" in done.stdout


def test_proofs_are_read_anywhere(place: Path, tmp_path: Path) -> None:
    arguments = ("trace", "run", "--layer", "head", "--steps", "5:7", "--proofs", str(tmp_path / "proofs"))
    assert say(place, *arguments)["proofs"] == 3
    files = sorted((tmp_path / "proofs").iterdir())
    assert len(files) == 3
    for file in files:
        assert say(place, "ledger", "check", str(file), "--trust", "trust.json")["ok"]


def test_a_spool_that_was_touched_is_found_out(copy: Path) -> None:
    path = copy / "run" / rundir.CONTRIBUTIONS / "segment-00000005.parquet"
    table = pq.read_table(path)
    shares = pa.array(table["share_num"].to_numpy() * np.float32(1.01))
    pq.write_table(table.set_column(table.schema.get_field_index("share_num"), "share_num", shares), path)
    found = say(copy, "trace", "run", "--layer", "head", status=1)
    assert not found["check"]["agrees"]
    assert found["check"]["differences"][0].startswith("steps 5 to 9: open in body.0: share_num is")
    path.unlink()
    found = say(copy, "trace", "run", "--layer", "head", status=1)
    assert "in the ledger, and not in the spool" in found["check"]["differences"][0]


def test_a_forged_ledger_is_not_verified(copy: Path) -> None:
    sign_again(copy / "run", lambda index, entry: entry, seed="somebody else")
    found = say(copy, "trace", "run", "--layer", "head", "--trust", "trust.json", status=1)
    assert found["verified"] is False and found["check"]["agrees"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name one thing to trace: expected --layer L, --class C or --parameter P"),
        (("--layer", "head", "--class", MIT), "expected --layer L, --class C or --parameter P"),
        (("--layer", "haed"), "unknown layer 'haed'; did you mean 'head'"),
        (("--class", "mit"), "unknown class 'mit'"),
        (("--layer", "head", "--steps", "3"), "--steps: found '3', expected A:B"),
        (("--layer", "head", "--steps", "-1:3"), "expected A:B"),
        (("--layer", "head", "--steps", "3:99"), "on record are 0:12"),
    ],
)
def test_what_cannot_be_traced(place: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("trace", "run", *arguments, cwd=place)


def test_a_directory_without_a_ledger(place: Path) -> None:
    for verb in (("trace", ".", "--layer", "head"), ("conform", "."), ("policy", "simulate", ".", "trust.json")):
        assert "no governed run" in refused(*verb, cwd=place)


def test_conform(place: Path, copy: Path) -> None:
    found = say(place, "conform", "run", "--trust", "trust.json")
    assert found["conforms"] and [each["holds"] for each in found["conditions"]] == [True] * 4
    assert not say(place, "conform", "run", status=1)["conforms"]
    done = explorer("conform", "run", cwd=place)
    assert (done.returncode, done.stdout) == (1, "") and "Not verified: no independent trust file given" in done.stderr
    assert done.stderr.splitlines()[0] == "run: whether it conforms cannot be decided: no trust file was given"
    sign_again(copy / "run", lambda i, e: e if not isinstance(e, Step) or e.step != 4 else changed(e))
    done = explorer("conform", "run", "--trust", "trust.json", cwd=copy)
    assert done.returncode == 1
    assert "typed            DOES NOT HOLD" in done.stderr
    assert "step 4: quarantine: the count of examples differs from their tags" in done.stderr
    assert explorer("conform", "run", cwd=copy).stderr.startswith("run: does not conform")  # with no trust file either


def test_a_trust_file_that_came_with_the_run_is_named(place: Path) -> None:
    """By every verb that judges with it; the one of the reader is not."""
    words = "came with the run, and a forged run would bring its own"
    for verb in (("conform", "run"), ("ledger", "verify", "run/ledger"), ("trace", "run", "--layer", "head")):
        own, mine = (
            explorer(*verb, "--trust", trust, cwd=place) for trust in ("run/governance/trust.json", "trust.json")
        )
        assert (own.returncode, own.stdout) == (mine.returncode, mine.stdout)
        assert words in own.stderr and words not in mine.stderr, verb


def changed(step: Step) -> Step:
    return replace(step, quarantined=step.quarantined + 1, examples=(*step.examples[:2], step.examples[2] - 1))


def test_estimates_are_said_wherever_numbers_are_shown(place: Path, tmp_path: Path) -> None:
    write_governed_run(tmp_path, exact_every=3).rename(tmp_path / "run")
    other = runs.policy(Rule(classes=(MIT,), weight=1.0))
    words = "In 8 of these 12 steps the numbers are estimates, from sketches of 64 numbers a layer"
    for here in (tmp_path, place):
        (here / "mit.yaml").write_text(json.dumps(to_json(other)))
        traced, simulated = ("trace", "run", "--layer", "head"), ("policy", "simulate", "run", "mit.yaml")
        said = [say(here, *traced).get("estimates", ""), say(here, *simulated)["limits"][-1]]
        said += [explorer(*arguments, cwd=here).stdout for arguments in (traced, simulated)]
        shown = [words in " ".join(text.split()) for text in said]
        assert shown == [here == tmp_path] * 4, shown  # in the other run all numbers are exact


def test_simulate(place: Path) -> None:
    other = runs.policy(Rule(classes=(MIT,), weight=1.0), Rule(classes=(NEWS,), depth=(0.5, 1.0), weight=1.0))
    (place / "other.yaml").write_text(json.dumps(to_json(other)))
    found = say(place, "policy", "simulate", "run", "other.yaml", "--trust", "trust.json")
    assert len(found["limits"]) == 4 and len(found["outcomes"]) == 4
    embed, head = found["outcomes"][0], found["outcomes"][3]
    assert (embed["unknown"], embed["would"]) == (0, {NEWS: 0.0, "open": 0.0, MIT: 1.0})
    assert head["unknown"] == 5, "before it was admitted nobody knows what the class would have added"
    done = explorer("policy", "simulate", "run", "other.yaml", cwd=place)
    assert "Limits of this estimate" in done.stdout and done.returncode == 0
    (place / "foreign.yaml").write_text((place / "other.yaml").read_text().replace(other.taxonomy.digest, "0" * 64))
    assert "written for" in refused("policy", "simulate", "run", "foreign.yaml", cwd=place)

"""`explorer delete verify`: what was checked, what was not, what is merely said; status 0 only if all of it holds."""

import json
import shutil
from pathlib import Path
from typing import Any

import nbformat
import pytest

from explorer import rundir
from explorer.deletion.evidence import RECORDS_FILE
from explorer.deletion.finish import certify
from explorer.provenance.deletion_certificate import FORMER, MEANS, NEVER_HAD
from explorer.provenance.levels import Level
from explorer.provenance.trust import write_trust
from explorer.runlog.model_file import MODEL
from explorer.runlog.target import Target
from explorer.training.deletion import Compared, delete
from tests.audit.governed_run import FAR, NEWS, RISK, USUAL
from tests.cli.command import explorer, refused
from tests.deletion import deleted_runs
from tests.deletion.certified import TRUST, Deletion, certified, signed_again
from tests.governance import desk
from tests.provenance.people import EXPIRES, NOW, private
from tests.training.deletions import author, recipe_of, route, trained
from tests.training.test_counterfactual_trained import LATE
from tests.training.test_counterfactual_trained import TRUST as DESK_TRUST


def written(root: Path, made: Deletion, content: bytes | None = None) -> list[str | Path]:
    """The arguments of the verb."""
    (root / "certificate.json").write_bytes(made.content if content is None else content)
    write_trust(root / "trust.json", TRUST)
    arguments = ["--old", made.old, "--new", made.new, "--trust", root / "trust.json"]
    return ["delete", "verify", root / "certificate.json", *arguments]


@pytest.fixture
def made(tmp_path: Path) -> Deletion:
    old = deleted_runs.write_old(tmp_path / "runs", deleted_runs.SEALED)
    return certified(old, deleted_runs.structural(old), expires=FAR)


def test_what_holds_is_called_deleted(made: Deletion, tmp_path: Path) -> None:
    done = explorer(*written(tmp_path, made))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == f"{tmp_path / 'certificate.json'}: {NEWS}: deleted, by both ledgers"
    assert lines[1].endswith(f"G2. {MEANS['G2']}") and "Same plan, the target's slots empty" in lines[1]
    checks, rest = done.stdout.split("  checked:\n")[1].split("  counterfactual: not trained")
    assert checks.count("    held ") == checks.count("\n") == 14
    assert all(f"    by {where}: " in rest for where in ("both ledgers", "the counterfactual", "neither"))
    _, said = rest.split("  claimed by the signer, not checked:\n")
    assert "    not reached: copies of the old model" in said
    assert "    to be destroyed: model: model/model.safetensors" in said
    assert "of the files to be destroyed are still next to the old ledger" in said


COMPARED = {
    "not trained": None,
    "equal": Compared(run="new", steps=4, tensors=9, differing=()),
    "not equal": Compared(run="new", steps=4, tensors=9, differing=("x: found 1, expected 2",)),
}


@pytest.mark.parametrize("what", COMPARED)
@pytest.mark.parametrize("level", ["G2", "G3"])
def test_the_sentence_is_what_was_computed_and_no_wider(
    level: Level, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With both ledgers alone the steps are the trainer's word; only a run that never had it, trained, says more."""
    if level == "G2":
        old = deleted_runs.write_old(tmp_path / "runs", deleted_runs.SEALED)
        made = certified(old, deleted_runs.structural(old), expires=FAR)
    else:
        old = deleted_runs.write_old(tmp_path / "runs", USUAL)
        made = certified(old, deleted_runs.replayed(old), expires=FAR)
    trained = COMPARED[what]
    monkeypatch.setattr("explorer.cli.governed.delete_run.train_counterfactual", lambda *_, **__: trained)
    arguments = [*written(tmp_path, made), *(["--counterfactual"] if trained else [])]
    done = explorer(*arguments)
    said = (done.stdout or done.stderr).splitlines()
    whole, value = "\n".join(said), json.loads(explorer(*arguments, "--json").stdout)
    if what == "equal":
        assert NEVER_HAD in said[1] and "is the trainer's word" not in said[1]
        assert said[0].endswith("deleted, identical to a run that never had it") and value["means"] == NEVER_HAD
    else:
        assert said[1].endswith(MEANS[level]) and MEANS[level].count("is the trainer's word") == 1
        assert NEVER_HAD not in whole and "never had it" not in said[0]
        assert value["means"] == (MEANS[level] if what == "not trained" else None)
    assert ("NOT shown to be deleted" in said[0]) == (what == "not equal")


def test_a_certificate_of_before_is_read_and_shown_in_todays_words(made: Deletion, tmp_path: Path) -> None:
    def former(statement: Any) -> None:
        statement["predicate"]["means"] = FORMER["G2"]

    done = explorer(*written(tmp_path, made, signed_again(made.content, former)))
    assert done.returncode == 0 and MEANS["G2"] in done.stdout and FORMER["G2"] not in done.stdout

    def wider(statement: Any) -> None:
        statement["predicate"]["means"] = NEVER_HAD

    assert "means: not what G2 means" in refused(*written(tmp_path, made, signed_again(made.content, wider)))


def test_documents_say_the_same() -> None:
    """Where G2 and G3 are promised, so is on whose word."""
    root = Path(__file__).parents[2]
    guide = nbformat.read(root / "notebooks" / "guide" / "deletion.ipynb", as_version=4)
    texts = {
        "the guide": "\n".join(cell.source for cell in guide.cells),
        "SECURITY.md": (root / "SECURITY.md").read_text(),
    }
    for name, text in texts.items():
        rows = [row for row in text.splitlines() if row.startswith("|") and "never had" in row]
        assert rows and all("--counterfactual" in row for row in rows), name
    for words in ("that training kept the region apart is the trainer's word", "is the trainer's word"):
        assert words in texts["the guide"]


def test_what_does_not_hold_is_not(made: Deletion, tmp_path: Path) -> None:
    shutil.copy(made.old / rundir.MODEL / MODEL, made.new / rundir.MODEL / MODEL)
    said = refused(*written(tmp_path, made))
    first, *rest = said.splitlines()
    assert first.endswith(f"{NEWS}: NOT shown to be deleted")
    assert [line for line in rest if "FAILED" in line] == [
        "    FAILED        the model's file holds what the new ledger ends with"
    ]
    assert "  claims       G2." in said


def test_what_is_not_here_is_not_called_deleted_either(made: Deletion, tmp_path: Path) -> None:
    (made.new / rundir.RUN).unlink()
    said = refused(*written(tmp_path, made))
    assert "NOT LOOKED AT the same plan" in said and "there is neither run.json" in said


def test_for_programs(made: Deletion, tmp_path: Path) -> None:
    found: Any = json.loads(explorer(*written(tmp_path, made), "--json").stdout)
    assert found["deleted"] is True and found["certificate"]["level"] == "G2"
    assert {check["outcome"] for check in found["checks"]} == {"held"}
    assert found["counterfactual"] is None and found["said_by_the_signer_not_checked"]
    (made.new / rundir.MODEL / MODEL).unlink()
    done = explorer(*written(tmp_path, made), "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["deleted"] is False


def test_nobodys_certificate(made: Deletion, tmp_path: Path) -> None:
    other = signed_again(made.content, lambda _: None, by=RISK)
    assert "wrong role" in refused(*written(tmp_path, made, other))
    level = signed_again(made.content, lambda statement: statement["predicate"].update(level="G1"))
    said = refused(*written(tmp_path, made, level))
    assert "level" in said and "deleted" not in said.lower()
    assert "not JSON" in refused(*written(tmp_path, made, b"{"))
    (tmp_path / "certificate.json").unlink()
    assert "cannot read" in refused(*written(tmp_path, made)[:2], tmp_path / "nothing", *written(tmp_path, made)[3:])


def test_what_a_signer_says_steers_no_terminal(made: Deletion, tmp_path: Path) -> None:
    def steering(statement: Any) -> None:
        statement["predicate"]["to_destroy"][0]["path"] = "model/\x1b[2J"

    assert "\x1b" not in refused(*written(tmp_path, made, signed_again(made.content, steering)))


def test_records_take_their_list(tmp_path: Path) -> None:
    old = deleted_runs.write_old(tmp_path / "runs", USUAL)
    target = Target(records=(5, 8))
    made = certified(old, deleted_runs.replayed(old, target=target, begins=0, without=()), expires=FAR)
    said = refused(*written(tmp_path, made)).splitlines()
    assert "names records, and only their list says which: give it by --records" in said[1]
    assert "FAILED" not in "\n".join(said) and "the list that opens the commitment is missing" in "\n".join(said)
    done = explorer(*written(tmp_path, made), "--records", made.new / RECORDS_FILE)
    assert done.returncode == 0 and "2 records: deleted" in done.stdout


def test_with_the_counterfactual_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real run, a real deletion; and what was trained otherwise than it says."""
    monkeypatch.setattr("explorer.cli.options.time", lambda: NOW)
    old = trained(tmp_path, author(tmp_path, LATE), recipe_of("late"))
    new = delete(old, Target(classes=(NEWS,)), route=route(old, Target(classes=(NEWS,))), to=tmp_path / "new")
    signing: Any = {"keys": [private(desk.TRAINER)], "trust": DESK_TRUST, "now": NOW, "expires": EXPIRES}
    made = Deletion(old=old, new=new, content=certify(old, new, **signing).content)
    arguments = [*written(tmp_path, made), "--counterfactual"]
    write_trust(tmp_path / "trust.json", DESK_TRUST)
    done = explorer(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert "counterfactual: trained, 4 steps: all" in done.stdout and "bit for bit the same" in done.stdout

    def otherwise(*_: object, **__: object) -> Compared:
        return Compared(run=new.name, steps=4, tensors=9, differing=tuple(f"tensor {at}" for at in range(7)))

    monkeypatch.setattr("explorer.cli.governed.delete_run.train_counterfactual", otherwise)
    said = refused(*arguments)
    assert "NOT shown to be deleted" in said.splitlines()[0]
    assert "trained, 4 steps: 7 tensors are NOT the same" in said and "    and 2 more" in said
    found: Any = json.loads(explorer(*arguments, "--json").stdout)
    assert (found["deleted"], found["counterfactual"]["equal"]) == (False, False)

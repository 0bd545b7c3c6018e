"""`explorer next`: every step is verified, every missing one has the command that completes it, faults are named."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from explorer.cli.governed.next_steps import DOES, LOOKS
from explorer.ledger.cosign import begin_memory, memory_of
from explorer.provenance.keys import write_key
from explorer.provenance.trust import Role, write_trust
from tests.audit.governed_run import TRAINER, write_governed_run
from tests.cli.command import Done, explorer, refused
from tests.provenance import people
from tests.provenance.people import private
from tests.release.released import trust

KEYS = {"trainer": TRAINER, "data-governance": people.GOVERNANCE, "model-risk": people.RISK}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, with the keys of all authorities next to it, two of which have to cosign."""
    root = tmp_path_factory.mktemp("desk")
    keys = write_governed_run(root / "runs").parent
    for name, seed in KEYS.items():
        write_key(keys / f"{name}.pem", private(seed), None)
        begin_memory(memory_of(keys / f"{name}.pem"))
    write_trust(keys / "trust.json", trust(cosigners={Role.DATA_GOVERNANCE: 1, Role.MODEL_RISK: 1}))
    return root


def copied(made: Path, desk: Path) -> Path:
    """A copy, whose run says that its private documents are in the copy."""
    shutil.copytree(made, desk)
    source = run_in(desk) / "governance" / "source.json"
    source.write_text(json.dumps(json.loads(source.read_text()) | {"private": str(run_in(desk).parent)}))
    return desk


@pytest.fixture
def desk(made: Path, tmp_path: Path) -> Path:
    return copied(made, tmp_path / "desk")


@pytest.fixture(scope="module")
def finished(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run after every command of the list was pasted, each of which names the next one."""
    desk = copied(made, tmp_path_factory.mktemp("finished") / "desk")
    before = asked(desk)
    assert before["missing"] == ["cosigned", "conforms", "attested", "reported", "packed"]
    announced = [line for step in before["steps"] for line in step["commands"]]
    verbs = [line.removeprefix("explorer ").split(" runs/")[0] for line in announced]
    assert verbs == ["ledger cosign", "ledger cosign", "conform", "attest", "report", "pack"]
    for line, following in zip(announced, [*announced[1:], None], strict=True):
        done = pasted(line, desk)
        assert done.returncode == 0, done.stderr
        if following is not None:
            assert done.stderr.splitlines()[-1] == f"next: {following}"
    return desk


def run_in(desk: Path) -> Path:
    (run,) = (desk / "runs" / "digits").glob("resnet*")
    return run


def asked(desk: Path) -> dict[str, Any]:
    """The record of `explorer next`, whose exit status fits it."""
    done = explorer("next", run_in(desk), "--trust", "runs/digits/trust.json", "--json", cwd=desk)
    value = json.loads(done.stdout)
    assert done.returncode == (1 if value["missing"] else 0)
    return value


def step(desk: Path, name: str) -> dict[str, Any]:
    return next(step for step in asked(desk)["steps"] if step["name"] == name)


def pasted(line: str, desk: Path) -> Done:
    program, *arguments = shlex.split(line)
    assert program == "explorer"
    return explorer(*arguments, cwd=desk)


def test_each_command_completes_its_step_and_names_the_next_one(finished: Path) -> None:
    page = explorer("next", run_in(finished), "--trust", "runs/digits/trust.json", cwd=finished)
    assert page.returncode == 0 and "nothing is missing" in page.stdout


@pytest.mark.slow
def test_files_alone_complete_nothing(finished: Path, tmp_path: Path) -> None:
    desk = copied(finished, tmp_path / "desk")
    run = run_in(desk)
    good = {path: path.read_bytes() for path in (run / "report.html", run / "run.pack.zip")}
    root = json.loads(explorer("ledger", "verify", run / "ledger", "--json", cwd=desk).stdout)["root"]
    # a report of another ledger, one without a trust file, and one that only has a name
    (run / "report.html").write_bytes(good[run / "report.html"].replace(root.encode(), b"0" * 64))
    assert "another state of the ledger" in step(desk, "reported")["words"]
    assert explorer("report", run, cwd=desk).returncode == 0
    assert "without a trust file" in step(desk, "reported")["words"]
    (run / "report.html").write_bytes(b"")
    assert asked(desk)["missing"] == ["reported"]
    (run / "report.html").write_bytes(good[run / "report.html"])
    # a pack with one byte changed
    content = bytearray(good[run / "run.pack.zip"])
    content[len(content) // 2] ^= 1
    (run / "run.pack.zip").write_bytes(content)
    assert asked(desk)["missing"] == ["packed"]
    (run / "run.pack.zip").write_bytes(b"PK")
    assert asked(desk)["missing"] == ["packed"]
    (run / "run.pack.zip").write_bytes(good[run / "run.pack.zip"])
    assert asked(desk)["missing"] == []
    # another model under the attestation
    model = run / "model" / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1] + b"x")
    assert asked(desk)["missing"] == ["conforms"]


def test_a_broken_ledger_fails_and_nothing_behind_it_is_judged(desk: Path) -> None:
    tile = next(path for path in (run_in(desk) / "ledger" / "tile" / "entries").rglob("*") if path.is_file())
    content = bytearray(tile.read_bytes())
    content[len(content) // 2] ^= 1
    tile.write_bytes(content)
    done = explorer("next", run_in(desk), "--trust", "runs/digits/trust.json", cwd=desk)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "packed" not in done.stdout and "explorer pack" not in done.stdout


def test_a_key_that_is_not_here_is_named_by_its_owner(desk: Path) -> None:
    (run_in(desk).parent / "model-risk.pem").unlink()
    cosigned = step(desk, "cosigned")
    assert "KEY is the key of example.com/model-risk" in cosigned["words"]
    assert [" --key KEY " in line for line in cosigned["commands"]] == [False, True]


def test_what_is_no_governed_run_is_refused(desk: Path, tmp_path: Path) -> None:
    assert "there is no run directory" in refused("next", tmp_path / "none", cwd=desk)
    assert "found no ledger" in refused("next", desk / "runs", cwd=desk)
    source = run_in(desk) / "governance" / "source.json"
    for content in (b"", b"{}", b"[" * 100_000, b"\xff"):
        source.write_bytes(content)
        said = refused("next", run_in(desk), cwd=desk)
        assert "source.json" in said and len(said.splitlines()) == 1


def test_every_verb_of_the_list_completes_a_step_of_it() -> None:
    assert set(DOES.values()) < set(LOOKS)


def test_a_verb_that_came_too_early_names_the_first_step_that_is_missing(desk: Path) -> None:
    done = explorer("report", run_in(desk), "--trust", "runs/digits/trust.json", cwd=desk)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"next: {step(desk, 'cosigned')['commands'][0]}"

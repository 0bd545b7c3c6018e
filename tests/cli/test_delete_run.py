"""`explorer delete run` as a person meets it: what it says first, what comes out, and that it verifies."""

import json
import shlex
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from explorer import rundir
from explorer.deletion.deletion_plan import REQUEST_FILE as REQUEST
from explorer.deletion.finish import CERTIFICATE, DESTROY
from explorer.entries.kinds import Deletion
from explorer.project import read_project
from explorer.provenance.commitments import commit
from explorer.provenance.policy import Quarantine, RoutingPolicy, Rule
from explorer.provenance.regions import SealedRegion
from explorer.runlog.target import read_origin
from explorer.training.demonstration import demonstrate
from tests.cli.command import Done, explorer, refused
from tests.training.governed_for_tests import DIGITS, TAXONOMY, recipe
from tests.training.governed_for_tests import policy as lower

LATE, SEALED, USUAL = "simulated/class-00", "simulated/class-01", "simulated/class-02"
REGION = SealedRegion(name="own", branch=SEALED, layers=("stages.2.*",), rank=2)


def policy(name: str) -> RoutingPolicy:
    """One class comes late, one lives in a region of its own, one trains everything."""
    rules = (
        Rule(classes=(LATE,), progress=(0.0, 0.5), weight=0.0),
        Rule(classes=(SEALED,), weight=0.0),
        Rule(classes=("simulated",), weight=1.0),
    )
    return replace(lower(name, Quarantine.REFUSE), rules=rules, sealed=(REGION,))


def trained_in(root: Path, *options: str, **train: int) -> Path:
    """A project's directory with a finished run in it."""
    made = demonstrate(root, DIGITS, data=None, taxonomy=TAXONOMY, policies=(policy("mine"),), now=int(time.time()))
    made.rename(root / "governed")
    methods = [{"routing": {"policy": "mine"}}, "contributions", {"recorder": {"every": 2}}]
    content = recipe("governed", methods=methods)
    (root / "tiny.yaml").write_text(yaml.safe_dump(content | {"train": content["train"] | train}))
    done = explorer("run", "tiny.yaml", *options, cwd=root)
    assert done.returncode == 0, done.stderr
    cosign(root, run_of(root))
    return root


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_in(tmp_path_factory.mktemp("project"))


KEYS = [
    ("--key", f"governed/{role}.pem", "--trust", "governed/trust.json") for role in ("data-governance", "model-risk")
]


def cosign(project: Path, run: Path) -> None:
    """The trust file asks for both."""
    for key in KEYS:
        done = explorer("ledger", "cosign", run / rundir.LEDGER, *key, cwd=project)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def project(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / "project")
    return tmp_path / "project"


def run_of(project: Path) -> Path:
    (run,) = rundir.run_directories(project / "runs" / "single")
    return run


def delete(project: Path, *arguments: str) -> Done:
    """Until its ledger has the cosignatures that the trust file asks for, nothing is certified and called deleted."""
    made = explorer("delete", "run", run_of(project), *arguments, cwd=project)
    assert made.returncode == 0, made.stderr
    assert "not certified yet" in made.stdout and "deleted" not in made.stdout
    assert not (new_run(project) / CERTIFICATE).exists()
    cosign(project, new_run(project))
    done = certify(project)
    return Done(returncode=done.returncode, stdout=made.stdout + done.stdout, stderr=done.stderr)


def certify(project: Path, *arguments: str) -> Done:
    where = ["--old", str(run_of(project)), "--trust", "governed/trust.json"]
    return explorer("delete", "certify", new_run(project), *where, *arguments, cwd=project)


def new_run(project: Path) -> Path:
    (run,) = rundir.run_directories(project / "runs" / "deletions")
    return run


def verified(project: Path, *arguments: str | Path) -> Done:
    new = new_run(project)
    where = ["--old", str(run_of(project)), "--new", str(new), "--trust", str(project / "governed" / "trust.json")]
    return explorer("delete", "verify", new / CERTIFICATE, *where, *arguments, cwd=project)


def test_a_class_that_came_late(project: Path) -> None:
    """By replay: the plan first, then what came out; the certificate holds, the counterfactual too."""
    done = delete(project, LATE)
    assert done.returncode == 0, done.stderr
    first, *_ = done.stdout.splitlines()
    assert first.endswith(f": {LATE}") and "G3, exact by replay: 2 steps, from step 2 on" in done.stdout
    new = new_run(project)
    assert f"{new.name}: G3, deleted, by both ledgers." in done.stdout and "never ship both models" in done.stdout
    assert done.stdout.index("exact by replay") < done.stdout.index("deleted")
    found = verified(project, "--counterfactual")
    assert found.returncode == 0, found.stderr + found.stdout


def test_a_class_with_a_region_of_its_own(project: Path) -> None:
    done = delete(project, SEALED)
    assert done.returncode == 0, done.stderr
    assert "G2, exact by structure: drops own; nothing is trained" in done.stdout
    found = verified(project, "--counterfactual")
    assert found.returncode == 0, found.stderr + found.stdout


@pytest.mark.slow
def test_a_region_may_be_replayed_too(project: Path) -> None:
    assert delete(project, SEALED, "--level", "G3").returncode == 0
    origin = read_origin(new_run(project))
    assert origin is not None and origin.level == "G3"
    found = verified(project)
    assert found.returncode == 0, found.stderr + found.stdout


def test_records(project: Path) -> None:
    """Which ones stands in the private list alone, and in the plan of the new run."""
    done = delete(project, "--record", "5", "--record", "9")
    assert done.returncode == 0, done.stderr
    new = new_run(project)
    assert '"records":[5,9]' not in (new / CERTIFICATE).read_text()
    found = verified(project, "--records", new / "private" / "deleted.json")
    assert found.returncode == 0, found.stderr + found.stdout
    assert verified(project).returncode == 1  # the control: without the list nobody knows which


@pytest.mark.slow
@pytest.mark.parametrize("row", ["5", "9"])
def test_every_command_on_the_way_is_printed(project: Path, row: str) -> None:
    """From the new run to a certificate that anyone checks, a project's ledger that is cosigned too, and a pack."""
    source = run_of(project) / rundir.GOVERNANCE / "source.json"
    source.write_text(json.dumps(json.loads(source.read_text()) | {"private": str(project / "governed")}))
    made = explorer("delete", "run", run_of(project), "--record", row, cwd=project)
    assert f": record {row} (digits, example {row}, class simulated/class-0" in made.stdout.splitlines()[0]
    done, pasted = explorer("ledger", "cosign", new_run(project) / rundir.LEDGER, *KEYS[0], cwd=project), []
    for _ in range(10):
        line = done.stderr.splitlines()[-1].removeprefix("next: explorer ")
        pasted.append(line.split(" runs/")[0])
        if pasted[-1].startswith("next"):
            break
        done = explorer(*shlex.split(line), cwd=project)
        assert done.returncode == 0, done.stderr
        if pasted[-1] == "delete certify":
            (check,) = (said.partition(": explorer ")[2] for said in done.stdout.splitlines() if "checks it" in said)
            assert explorer(*shlex.split(check), cwd=project).returncode == 0
        if "_audit" in line:  # cosigning a project's ledger names no run that would come next
            done = explorer("delete", "certify", new_run(project), "--old", run_of(project), *KEYS[0][2:], cwd=project)
    report = ["report"] if row == "9" else []  # the other one was in no batch: nothing was trained
    cosigning = ["ledger cosign"] * 2
    assert pasted == ["ledger cosign", "delete certify", *cosigning, "conform", "attest", *report, "pack", "next"]
    done = explorer("next", new_run(project), *KEYS[0][2:], cwd=project)
    assert done.returncode == 0 and "nothing is missing" in done.stdout, done.stdout


def test_what_it_leaves(project: Path) -> None:
    (project / "request.txt").write_text("Please forget me. A. Person")
    made = explorer("delete", "run", run_of(project), LATE, "--request", "request.txt", "--json", cwd=project)
    assert (json.loads(made.stdout)["deleted"], json.loads(made.stdout)["certificate"]) == (False, None)
    cosign(project, new_run(project))
    done = certify(project, "--json")
    assert done.returncode == 0, done.stderr
    said, new, old = json.loads(done.stdout), new_run(project), run_of(project)
    assert (said["level"], said["deleted"], said["run"]) == ("G3", True, new.name)
    files = json.loads((new / DESTROY).read_text())["files"]
    assert files == said["to_destroy"]
    assert {each["what"] for each in files} >= {"model", "numbers", "secret", "spool", "measurements"}
    assert all((old / each["path"]).exists() and each["why"] for each in files)
    (entry,) = [each.entry for each in read_project(project / "runs")]
    assert isinstance(entry, Deletion) and (entry.classes, entry.level) == ((LATE,), "G3")
    assert entry.evidence == {"certificate": said["certificate"]["digest"]}
    kept = json.loads((new / REQUEST).read_text())
    assert entry.request == commit(bytes.fromhex(kept["salt"]), b"Please forget me. A. Person").hex()
    assert (new / REQUEST).stat().st_mode & 0o077 == 0
    everything = b"".join(path.read_bytes() for path in (project / "runs").rglob("*") if path.is_file())
    assert b"Person" not in everything


def test_again_it_changes_nothing(project: Path) -> None:
    assert delete(project, LATE).returncode == 0
    before = {path: path.read_bytes() for path in new_run(project).rglob("*") if path.is_file()}
    again = explorer("delete", "run", run_of(project), LATE, cwd=project)
    assert again.returncode == 0 and "G3, deleted, by both ledgers." in again.stdout
    assert certify(project).returncode == 0
    assert {path: path.read_bytes() for path in before} == before
    assert len(list(read_project(project / "runs"))) == 1
    other = explorer("delete", "run", run_of(project), LATE, "--request", "another", cwd=project)
    assert other.returncode == 1 and "answers another request" in other.stderr and "deleted" not in other.stdout


def test_half_of_the_cosignatures_is_not_enough(project: Path) -> None:
    explorer("delete", "run", run_of(project), LATE, cwd=project)
    where = ["--key", "governed/model-risk.pem", "--trust", "governed/trust.json"]
    assert explorer("ledger", "cosign", new_run(project) / rundir.LEDGER, *where, cwd=project).returncode == 0
    done = certify(project)
    assert done.returncode == 1 and "the quorum is not met" in done.stderr
    assert not (new_run(project) / CERTIFICATE).exists()


def test_what_no_deletion_made_is_not_certified(project: Path) -> None:
    run = run_of(project)
    assert "not made by a deletion" in refused(
        "delete", "certify", run, "--old", run, "--trust", project / "governed" / "trust.json"
    )


def test_what_is_not_available_is_refused(project: Path) -> None:
    run = run_of(project)
    assert "reached more than its own sealed regions" in refused("delete", "run", run, USUAL, "--level", "G2")
    assert "unknown level 'G1'" in refused("delete", "run", run, USUAL, "--level", "G1")
    assert "did you mean 'simulated/class-0" in refused("delete", "run", run, "simulated/class-0")
    assert not (project / "runs" / "deletions").exists()


def test_a_key_that_may_not_sign_is_refused_before_anything_is_trained(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explorer.cli.options.time", lambda: 10**11)
    assert "expired" in refused("delete", "run", run_of(project), LATE, "--json")
    assert not (project / "runs" / "deletions").exists()


def test_an_old_ledger_without_its_cosignatures_is_refused_before_anything_is_trained(project: Path) -> None:
    shutil.rmtree(run_of(project) / rundir.LEDGER / "witness")
    assert "the quorum is not met" in refused("delete", "run", run_of(project), LATE, "--json")
    assert not (project / "runs" / "deletions").exists()


@pytest.mark.slow
def test_a_run_of_two_ranks_is_deleted_from_by_three(tmp_path: Path) -> None:
    """Everything that reads the ledger of a run by ranks: conform, replay, a deletion and its certificate."""
    project = trained_in(tmp_path, "--ranks", "2", lanes=4)
    for command in (["conform", run_of(project), "--trust", "governed/trust.json"], ["replay", run_of(project)]):
        done = explorer(*command, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr
    shown = explorer("ledger", "show", run_of(project) / rundir.LEDGER, cwd=project).stdout
    assert '"action": "ranks"' in shown
    done = delete(project, LATE, "--ranks", "3")
    assert done.returncode == 0, done.stderr
    found = verified(project, "--counterfactual")
    assert found.returncode == 0, found.stderr + found.stdout

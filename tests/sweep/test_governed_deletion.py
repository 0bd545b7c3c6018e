"""Deleting from a governed run that began with the steps of a shorter one: the same as from the run trained alone."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from explorer import rundir
from explorer.deletion.erase import of_classes
from explorer.deletion.finish import CERTIFICATE
from explorer.disclosure import verifier
from explorer.entries.kinds import Trunk, decode
from explorer.ledger.storage import LedgerDirectory
from explorer.runlog.influence import reach
from explorer.runlog.model_file import MODEL
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.same_steps import sharing_steps
from explorer.runlog.target import Target
from explorer.runlog.tensors import read_ended
from explorer.training.deletion import delete
from tests.cli.command import explorer
from tests.sweep.governed_ladders import FIRST, SHARED, THIRD, content, documents, execute, methods
from tests.training.deletions import never, payload_absent, route
from tests.training.governed_for_tests import DIGITS

pytestmark = pytest.mark.slow

TARGETS = {"G3": FIRST, "G2": THIRD}
WORDS = f"the first {SHARED} steps of "


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project: documents, and a sweep of two budgets whose longer run began with steps of the shorter one."""
    root = tmp_path_factory.mktemp("branched")
    documents(root / "made").rename(root / "governed")
    assert execute(root, written(root)).complete
    return root


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, made: Path) -> Path:
    """The longer run, trained without the other one."""
    root = tmp_path_factory.mktemp("alone")
    assert execute(root, written(made, [1.0])).complete
    return longest(root)


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "project"))


def written(root: Path, budgets: list[float] | None = None) -> dict[str, object]:
    return content(root / "governed", budgets or [0.5, 1.0], lodged=methods("lodged"))


def longest(root: Path) -> Path:
    (run,) = (root / "runs" / "governed").glob("*-ssr1-*")
    return run


def shorter(root: Path) -> Path:
    (run,) = (root / "runs" / "governed").glob("*-ssr0.5-*")
    return run


def model(run: Path) -> str:
    return hashlib.sha256((run / rundir.MODEL / MODEL).read_bytes()).hexdigest()


def states(run: Path) -> dict[str, object]:
    """What a run ended with: its tensors, its model, what was measured."""
    ended = read_ended(RunLedger(run))
    return {"tensors": ended.tensors, "model": model(run), "metrics": (run / rundir.METRICS).read_bytes()}


# --- the same model ---


@pytest.mark.parametrize("level", TARGETS)
def test_the_model_without_it_is_the_one_of_the_run_trained_alone(
    made: Path, alone: Path, tmp_path: Path, level: str
) -> None:
    branched, target = longest(made), Target(classes=(TARGETS[level],))
    assert states(branched) == states(alone) and RunLedger(branched).trunks and not RunLedger(alone).trunks
    assert reach(RunLedger(branched), target) == reach(RunLedger(alone), target)
    made_of = {}
    for name, run in (("branched", branched), ("alone", alone)):
        found = route(run, target)
        assert (found.level, found.steps) == (level, 14 if level == "G3" else 0)
        made_of[name] = delete(run, target, route=found, to=tmp_path / name / "deletions")
    assert made_of["branched"].name == made_of["alone"].name
    assert states(made_of["branched"]) == states(made_of["alone"])
    # The controls: the target did something, and without another class it is another model.
    assert states(made_of["branched"])["model"] != model(branched)
    for run in made_of.values():
        assert not any(isinstance(decode(leaf), Trunk) for leaf in LedgerDirectory(run / rundir.LEDGER).entries())


def test_it_is_the_run_that_never_had_it(made: Path, tmp_path: Path) -> None:
    branched, target = longest(made), Target(classes=(FIRST,))
    new = delete(branched, target, route=route(branched, target), to=tmp_path / "deletions")
    provenance = DIGITS.load(None).provenance
    assert provenance is not None and provenance.classes[0] == FIRST
    with payload_absent(lambda number: provenance.codes[number] == 0):
        reference = never(branched, target, tmp_path / "never")
    assert states(new) == states(reference)
    other = Target(classes=(THIRD,))
    other_new = delete(branched, other, route=route(branched, other), to=tmp_path / "other")
    assert states(other_new)["model"] != states(new)["model"]


# --- the certificate ---


def cosign(project: Path, run: Path) -> None:
    for key in ("data-governance.pem", "model-risk.pem"):
        where = ["--key", f"governed/{key}", "--trust", "governed/trust.json"]
        done = explorer("ledger", "cosign", run / rundir.LEDGER, *where, cwd=project)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("level", TARGETS)
def test_the_certificate_holds_and_says_who_shares_the_steps(project: Path, level: str) -> None:
    old, trust = longest(project), ["--trust", "governed/trust.json"]
    planned = explorer("delete", "plan", old, TARGETS[level], cwd=project)
    assert planned.returncode == 0, planned.stderr
    assert f"continues {WORDS}{shorter(project).name}" in planned.stdout
    assert f"runs that share steps with it: {shorter(project).name}" in planned.stdout
    cosign(project, old)
    assert explorer("delete", "run", old, TARGETS[level], *trust, cwd=project).returncode == 0
    (new,) = rundir.run_directories(project / "runs" / "deletions")
    cosign(project, new)
    done = explorer("delete", "certify", new, "--old", old, *trust, cwd=project)
    assert done.returncode == 0 and f"{level}, deleted, by both ledgers" in done.stdout, done.stderr
    check = ["delete", "verify", new / CERTIFICATE, "--old", old, "--new", new, *trust]
    found = explorer(*check, "--counterfactual", cwd=project)
    assert found.returncode == 0 and "bit for bit the same" in found.stdout, found.stderr
    assert f"runs that share steps with it: {shorter(project).name}" in found.stdout
    # The pack of the run that had it: the stand-alone verifier reads its ledger, and says what it cannot compare.
    for run in (old, new):
        assert explorer("attest", run, *trust, cwd=project).returncode == 0
        assert explorer("pack", run, "--out", project / "run.zip", *trust, cwd=project).returncode == 0
        said = stand_alone(project / "run.zip", project / "governed" / "trust.json")
        assert said.returncode == 0, said.stdout + said.stderr
        assert (f"that {shorter(project).name!r} made the first {SHARED} steps" in said.stdout) == (run == old)
        assert "1  statement about a deletion, signed by example.com/trainer" in said.stdout
        (project / "run.zip").unlink()
    # The control: the shorter run is not the one that the certificate is about.
    cosign(project, shorter(project))
    wrong = explorer(*check[:4], shorter(project), *check[5:], cwd=project)
    assert wrong.returncode == 1


def stand_alone(pack: Path, trust: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", verifier.__file__, str(pack), "--trust", str(trust)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


# --- every verb says whose steps they are ---


def test_every_verb_names_the_run_that_made_the_steps(project: Path) -> None:
    run, trust = longest(project), ["--trust", "governed/trust.json"]
    cosign(project, run)
    words = f"continues {WORDS}{shorter(project).name}"
    for verb in (
        ["conform", run, *trust],
        ["trace", run, "--class", FIRST, "--check", *trust],
        ["replay", run],
        ["replay", run, "--steps", "4:9"],
        ["delete", "plan", run, FIRST],
    ):
        done = explorer(*verb, cwd=project)
        assert done.returncode == 0 and words in done.stdout, done.stdout + done.stderr
        machine = explorer(*verb, "--json", cwd=project)
        assert json.loads(machine.stdout)["continues"] == [words.removeprefix("continues ")]
        other = [shorter(project) if part == run else part for part in verb if part not in ("--steps", "4:9")]
        assert "continues the first" not in explorer(*other, cwd=project).stdout  # the control: it made its own
    assert words in explorer("next", run, *trust, cwd=project).stdout
    attested = explorer("attest", run, *trust, cwd=project)
    origin = RunLedger(shorter(project)).ledger.checkpoint().origin
    assert f"with the first steps of {origin}, taken over" in attested.stdout
    (project / "gate.yaml").write_text(GATE)
    passed = explorer("verify", run / "model", "--gate", "gate.yaml", *trust, "--ledger", run, cwd=project)
    assert passed.returncode == 0 and f"took over its first steps from {origin}" in passed.stdout, passed.stderr
    assert explorer("report", run, *trust, "--format", "md", cwd=project).returncode == 0
    assert f"Starts from: {WORDS}{shorter(project).name}" in (run / "report.md").read_text().replace("\\", "")
    assert sharing_steps(shorter(project)) == (run.name,)
    assert any(run.name in words for words in of_classes(RunLedger(shorter(project)), [FIRST]).elsewhere)
    assert any(shorter(project).name in words for words in of_classes(RunLedger(run), [FIRST]).elsewhere)


GATE = """\
format: explorer/gate/v1
name: branched
ledger: full
rules:
- conforms: true
- deletable: {branch: simulated/class-00, at_least: G2}
"""

"""`explorer attest`, `verify` and `observe`: a model leaves its run, is evaluated, and comes to a gate."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from explorer.entries.kinds import Observation
from explorer.project import read_project
from explorer.provenance.keys import write_key, write_private
from explorer.provenance.trust import write_trust
from tests import tensors_for_tests
from tests.audit.governed_run import LAYERS, NEWS, STEPS, TRAINER, write_governed_run
from tests.cli.command import explorer, refused
from tests.provenance.people import RISK, private
from tests.release.released import EVALUATOR, trust

GATE = {
    "format": "explorer/gate/v1",
    "name": "customer-facing",
    "ledger": "full",
    "observers": [{"name": EVALUATOR, "weight": 1}],
    "rules": [
        {"conforms": True},
        {"deny": {"branch": NEWS, "depth": [0, 0.5]}},
        {"evaluated": {"by": EVALUATOR, "metric": "accuracy", "at_least": 0.9}},
    ],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with runs, keys, a trust file and a gate."""
    root = tmp_path_factory.mktemp("desk")
    run = write_governed_run(root / "runs")
    for name, seed in (("trainer", TRAINER), ("evaluator", EVALUATOR), ("risk", RISK)):
        write_key(root / f"{name}.pem", private(seed), None)
    write_key(run.parent / "trainer.pem", private(TRAINER), None)  # where the run says that its private documents are
    write_trust(root / "trust.json", trust())
    (root / "gate.yaml").write_text(yaml.safe_dump(GATE))
    return root


@pytest.fixture
def desk(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "desk"))


def run_in(desk: Path) -> Path:
    (run,) = (desk / "runs" / "digits").glob("resnet*")
    return run


def test_from_the_run_to_the_gate(desk: Path) -> None:
    run = run_in(desk)
    done = explorer("attest", run, "--trust", "trust.json", cwd=desk)
    assert done.returncode == 0, done.stderr
    assert "licensed/news" in done.stdout and "explorer verify" in done.stdout
    asked = ("verify", run / "model", "--gate", "gate.yaml", "--trust", "trust.json", "--ledger", run)
    done = explorer(*asked, cwd=desk)
    assert done.returncode == 1 and done.stdout == ""
    assert "DOES NOT PASS" in done.stderr and "no admitted observation gives its accuracy" in done.stderr
    said = ("--role", "evaluator", "--key", "evaluator.pem", "--metric", "accuracy=0.93", "--note", "May")
    done = explorer("observe", run / "model", *said, "--trust", "trust.json", "--project", "runs", cwd=desk)
    assert done.returncode == 0, done.stderr
    assert "entry 0 of the ledger of runs" in done.stdout
    done = explorer(*asked, cwd=desk)
    assert done.returncode == 0, done.stderr
    for words in ("passes the gate", "rule 1     holds", "lineage", "admitted", "accuracy 0.93", "not looked at"):
        assert words in done.stdout
    (recorded,) = read_project(desk / "runs")
    entry = recorded.entry
    assert isinstance(entry, Observation) and entry.role == "evaluator"
    assert (run / "model" / "observations" / f"{entry.statement}.json").exists()
    verified = explorer("ledger", "verify", "runs/_audit", "--trust", "trust.json", cwd=desk)
    assert verified.returncode == 0, verified.stderr


def test_a_model_is_signed_for_other_tools_too(desk: Path) -> None:
    run, key = run_in(desk), ec.derive_private_key(7, ec.SECP256R1())
    write_private(desk / "ec.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    attest = ("attest", run, "--trust", "trust.json")
    done = explorer(*attest, "--model-signing-key", "ec.pem", cwd=desk)
    assert done.returncode == 0, done.stderr
    assert "model_signing verify key" in done.stdout and (run / "model" / "model.sig").exists()
    before = (run / "model" / "attestation.json").read_bytes()
    assert "give --model-signing-key again" in refused(*attest, cwd=desk)
    assert (run / "model" / "attestation.json").read_bytes() == before  # nothing was written
    assert "OpenSSF model signing takes ECDSA" in refused(*attest, "--model-signing-key", "trainer.pem", cwd=desk)


def test_json(desk: Path) -> None:
    run = run_in(desk)
    done = explorer("attest", run, "--key", "trainer.pem", "--trust", "trust.json", "--json", cwd=desk)
    made = json.loads(done.stdout)
    assert made["run"] == run.name and made["classes"][0]["path"] == NEWS
    said = ("--role", "deployer", "--key", "risk.pem", "--admit", "open=0.5", "--trust", "trust.json", "--json")
    assert json.loads(explorer("observe", run / "model", *said, cwd=desk).stdout)["model"] == made["model"]
    asked = ("--gate", "gate.yaml", "--trust", "trust.json", "--ledger", run, "--json")
    done = explorer("verify", run / "model", *asked, cwd=desk)
    found = json.loads(done.stdout)
    assert (done.returncode, found["passes"], found["sha256"]) == (1, False, made["model"])
    assert [each["holds"] for each in found["rules"]] == [True, True, False]
    (observation,) = found["observations"]
    assert observation["verdict"] == "rejected" and "not one of the gate's observers" in observation["why"]
    assert found["lineage"]["run"] == run.name and found["not_looked_at"]
    tensors_for_tests.write_model(run, LAYERS, STEPS + 1)
    done = explorer("verify", run / "model", *asked, cwd=desk)
    found = json.loads(done.stdout)
    assert (done.returncode, found["passes"], found["lineage"], found["sha256"]) == (1, False, None, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--metric", "accuracy"), "--metric: found 'accuracy', expected NAME=VALUE"),
        (("--metric", "accuracy=nan"), "found 'accuracy=nan', expected NAME=VALUE"),
        (("--metric", "a=1", "--metric", "a=2"), "--metric: 'a' is given twice"),
        (("--admit", "personal=1"), "unknown class 'personal'"),
        ((), "empty observation"),
        (("--metric", "a=1", "--project", "nowhere"), "found no run that made the model"),
    ],
)
def test_what_cannot_be_said(desk: Path, arguments: tuple[str, ...], message: str) -> None:
    run = run_in(desk)
    assert explorer("attest", run, "--trust", "trust.json", cwd=desk).returncode == 0
    said = ("--role", "evaluator", "--key", "evaluator.pem", "--trust", "trust.json")
    assert message in refused("observe", run / "model", *said, *arguments, cwd=desk)
    assert not (run / "model" / "observations").exists()


def test_keys_that_may_not(desk: Path) -> None:
    run = run_in(desk)
    assert "a trainer signs it" in refused("attest", run, "--key", "risk.pem", "--trust", "trust.json", cwd=desk)
    assert explorer("attest", run, "--trust", "trust.json", cwd=desk).returncode == 0
    said = ("--role", "evaluator", "--key", "trainer.pem", "--metric", "accuracy=1", "--trust", "trust.json")
    assert "wrong role" in refused("observe", run / "model", *said, cwd=desk)


def test_a_gate_that_is_none(desk: Path) -> None:
    (desk / "gate.yaml").write_text(yaml.safe_dump({**GATE, "rules": [{"allow": {"branch": NEWS}}]}))
    words = refused("verify", "nowhere", "--gate", "gate.yaml", "--trust", "trust.json", cwd=desk)
    assert "rules[0].allow: unknown key" in words


def test_a_model_that_is_not_there(desk: Path) -> None:
    words = refused("verify", "nowhere", "--gate", "gate.yaml", "--trust", "trust.json", cwd=desk)
    assert "FAILS: cannot read" in words and "not judged" in words

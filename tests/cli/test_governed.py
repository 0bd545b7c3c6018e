"""`explorer run` under signed documents, as a person meets it."""

import shutil
from pathlib import Path

import pytest
import yaml

from explorer import rundir
from explorer.provenance.commitments import destroy_salt
from explorer.provenance.keys import read_key, write_key
from tests.cli.command import explorer, refused
from tests.provenance.agents import Agent, needs_agent
from tests.training.governed_for_tests import documents, recipe


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents(tmp_path_factory.mktemp("documents"))


@pytest.fixture
def desk(made: Path, tmp_path: Path) -> Path:
    """A directory with a recipe, and the documents that it names."""
    shutil.copytree(made, tmp_path / "governed")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe("governed")))
    return tmp_path


def only_run(directory: Path) -> Path:
    (run,) = rundir.run_directories(directory)
    return run


def test_a_recipe_names_its_documents_and_a_record_is_trained_again(desk: Path) -> None:
    elsewhere = desk / "elsewhere"
    elsewhere.mkdir()
    done = explorer("run", "../tiny.yaml", "--out", "one", cwd=elsewhere)
    assert done.returncode == 0, done.stderr
    run = only_run(elsewhere / "one")
    assert "ledger_bytes_per_step" in done.stdout
    again = explorer("run", run / "run.json", "--out", "other", cwd=elsewhere)
    assert again.returncode == 0, again.stderr
    assert "bit-identical to the record" in again.stdout
    other = only_run(elsewhere / "other")
    assert (other / "governance" / "source.json").read_bytes() == (run / "governance" / "source.json").read_bytes()


def test_documents_that_have_moved_are_named_with_an_option(desk: Path) -> None:
    (desk / "governed").rename(desk / "moved")
    assert "governance: governed: no such directory" in refused("run", "tiny.yaml", cwd=desk)
    assert explorer("run", "tiny.yaml", "--out", "one", "--governance", "moved", cwd=desk).returncode == 0
    run = only_run(desk / "one")
    (desk / "moved").rename(desk / "again")
    assert "cannot open" in refused("run", run / "run.json", "--out", "other", cwd=desk)
    done = explorer("run", run / "run.json", "--out", "other", "--governance", "again", cwd=desk)
    assert done.returncode == 0 and "bit-identical" in done.stdout


def test_what_is_not_believed_starts_nothing(desk: Path) -> None:
    destroy_salt(desk / "governed" / "salts", 5)
    message = refused("run", "tiny.yaml", "--out", "one", cwd=desk)
    assert "the example of slot 5" in message and "its salt was destroyed" in message
    assert not (desk / "one").exists()


def test_methods_that_need_documents_say_so(desk: Path) -> None:
    (desk / "tiny.yaml").write_text(yaml.safe_dump(recipe()))
    message = refused("run", "tiny.yaml", cwd=desk)
    assert "tiny.yaml: recipe 'tiny': 'routing' acts on signed documents" in message and "governance: DIR" in message


def test_the_trainers_passphrase_is_asked_for_before_anything_starts(
    desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = desk / "governed" / "trainer.pem"
    private = read_key(key, None)
    key.unlink()
    write_key(key, private, "correct horse")
    monkeypatch.delenv("EXPLORER_PASSPHRASE", raising=False)
    message = refused("run", "tiny.yaml", "--out", "one", cwd=desk)
    assert message == f"explorer: {key}: needs its passphrase: set EXPLORER_PASSPHRASE"
    monkeypatch.setenv("EXPLORER_PASSPHRASE", "wrong")
    assert "wrong passphrase" in refused("run", "tiny.yaml", "--out", "one", cwd=desk)
    assert not (desk / "one").exists()
    monkeypatch.setenv("EXPLORER_PASSPHRASE", "correct horse")
    assert explorer("run", "tiny.yaml", "--out", "one", cwd=desk).returncode == 0


@needs_agent
@pytest.mark.slow
def test_a_trainers_key_in_an_ssh_agent_signs_the_ledger(
    desk: Path, real_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key file names a key of the agent; the trust file, the ledger and those who check it see no difference."""
    key = desk / "governed" / "trainer.pem"
    name = real_agent.add(read_key(key, None), "trainer")
    key.write_text(f"ssh-agent:{name}\n")
    done = explorer("run", "tiny.yaml", "--out", "one", cwd=desk)
    assert done.returncode == 0, done.stderr
    ledger = (only_run(desk / "one") / "ledger", "--trust", desk / "governed" / "trust.json")
    real_agent.add(read_key(desk / "governed" / "data-governance.pem", None), "dg@example.com")
    cosigning = ("ledger", "cosign", *ledger, "--key", "ssh-agent:dg@example.com")
    assert "a key in an SSH agent needs --state DIR for its record of cosignatures" in refused(*cosigning, cwd=desk)
    done = explorer(*cosigning, "--state", "memory", "--first", cwd=desk)
    assert done.returncode == 0, done.stderr
    assert explorer("ledger", "cosign", *ledger, "--key", desk / "governed" / "model-risk.pem").returncode == 0
    found = explorer("ledger", "verify", *ledger)
    assert found.returncode == 0, found.stdout + found.stderr
    real_agent.run("ssh-add", "-q", "-D")
    assert "the agent has no key, or is locked" in refused("run", "tiny.yaml", "--out", "two", cwd=desk)
    monkeypatch.delenv("SSH_AUTH_SOCK")
    assert "no SSH agent: SSH_AUTH_SOCK is not set" in refused("run", "tiny.yaml", "--out", "two", cwd=desk)
    assert not (desk / "two").exists()


def test_a_governed_sweep_is_planned_on_what_is_believed_now(desk: Path) -> None:
    content = recipe("governed")
    sweep = {
        "name": "governed",
        "task": content["task"],
        "train": content["train"],
        "governance": "governed",
        "baseline": "routed",
        "recipes": {"routed": content["methods"]},
        "budgets": [1.0],
        "seeds": [0],
    }
    (desk / "sweep.yaml").write_text(yaml.safe_dump(sweep))
    done = explorer("sweep", "plan", "sweep.yaml", cwd=desk)
    assert (
        done.returncode == 0 and "governed by the documents in governed, whose signatures are valid now" in done.stdout
    )
    (desk / "governed" / "tags.parquet").write_bytes(b"forged")
    assert "tags.parquet: not the file that was signed" in refused("sweep", "plan", "sweep.yaml", cwd=desk)

"""Where a run's private documents are, and that no key signs because a file names it."""

from pathlib import Path

import pytest

from explorer import rundir
from explorer.errors import ProvenanceError, RunError
from explorer.provenance.keys import public_bytes, write_key
from explorer.provenance.private import PASSPHRASE
from explorer.provenance.roles import Role
from explorer.runlog.source import SOURCE, Source, source_of, trainer_key
from tests.provenance import people
from tests.provenance.people import NOW, private, public

TRAINER = "example.com/trainer"
TRUST = people.trust(people.authority(TRAINER, Role.TRAINER), people.risk())


def run_with(directory: Path, seed: str, passphrase: str | None = None) -> Path:
    run = directory / "run"
    rundir.write_json(run / rundir.GOVERNANCE / SOURCE, {"private": str(directory), "judged": 7})
    write_key(directory / "trainer.pem", private(seed), passphrase)
    return run


def test_the_trainer_and_its_key(tmp_path: Path) -> None:
    run = run_with(tmp_path, TRAINER)
    assert source_of(run) == Source(private=str(tmp_path), judged=7)
    name, key = trainer_key(run, trust=TRUST, now=NOW)
    assert (name, public_bytes(key)) == (TRAINER, public_bytes(private(TRAINER)))


def test_its_passphrase_is_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(tmp_path, TRAINER, "correct horse")
    with pytest.raises(ProvenanceError, match="its passphrase is needed"):
        trainer_key(run, trust=TRUST, now=NOW)
    monkeypatch.setenv(PASSPHRASE, "correct horse")
    assert trainer_key(run, trust=TRUST, now=NOW)[0] == TRAINER


@pytest.mark.parametrize(("seed", "message"), [(people.RISK, "wrong role"), ("nobody", "is not in the trust file")])
def test_another_key_in_its_place_signs_nothing(tmp_path: Path, seed: str, message: str) -> None:
    with pytest.raises(ProvenanceError, match=message):
        trainer_key(run_with(tmp_path, seed), trust=TRUST, now=NOW)


def test_a_key_that_has_expired_signs_nothing(tmp_path: Path) -> None:
    short = people.trust(people.authority(TRAINER, Role.TRAINER, public(TRAINER, not_after=people.ISSUED)))
    with pytest.raises(ProvenanceError, match="key expired"):
        trainer_key(run_with(tmp_path, TRAINER), trust=short, now=NOW)


@pytest.mark.parametrize("content", ["", "[]", '{"private": 1, "judged": 7}', '{"private": "/", "judged": 7, "x": 1}'])
def test_a_damaged_file(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run" / rundir.GOVERNANCE / SOURCE
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(RunError, match=r"source\.json"):
        source_of(tmp_path / "run")


def test_a_run_that_is_not_governed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot read"):
        source_of(tmp_path)

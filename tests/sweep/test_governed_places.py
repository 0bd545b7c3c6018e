"""Governed runs at a place: the trainer's key stays at home, and what comes back is what a run at home leaves."""

import base64
import hashlib
import time
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.errors import LedgerError, PlaceError
from explorer.ledger.storage import LedgerDirectory
from explorer.ledger.verify import verify
from explorer.objects import DirectoryObjects
from explorer.place.published_sweep import Published, ResultAt
from explorer.provenance.keys import PASSPHRASE
from explorer.runlog.anchor import anchor_of_ledger
from explorer.sweep.at_place import bring_back, fetch_results, publish
from explorer.sweep.run_at import Worker, run_any
from tests.sweep.test_governed import digests, execute, plan
from tests.training.governed_for_tests import documents
from tests.training.test_delegated import without_cosigners

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents(tmp_path_factory.mktemp("documents"))


def away(place: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Execute everything at a place as a worker elsewhere does: without the passphrase of the trainer's key."""
    states = []
    with monkeypatch.context() as patch:
        patch.delenv(PASSPHRASE, raising=False)
        run_any(Worker(place=str(place), engine="inline"), on_end=lambda ended: states.append(ended.state))
    return states


@pytest.fixture
def fetched(tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a governed sweep that was executed at the place next to it."""
    planned = plan(tmp_path, str(made))
    at = publish(planned, str(tmp_path / "place"))
    assert away(tmp_path / "place", monkeypatch) == ["done"] * 2
    assert [outcome.fault for outcome in fetch_results(at, planned).values()] == [None, None]
    return tmp_path


def routed(directory: Path) -> Path:
    return next(path for path in rundir.run_directories(directory / "runs" / "governed") if "routed" in path.name)


def test_a_governed_sweep_at_a_place_gives_what_it_gives_at_home(fetched, made, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    assert digests(fetched / "runs") == execute(home, str(made), "inline")
    run, own = routed(fetched), routed(home)
    names = [{path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()} for run in (run, own)]
    ours = {name for name in names[0] ^ names[1] if not name.startswith("ledger/")}
    assert ours == {"governance/delegation.json"}
    assert (run / rundir.SECRETS).stat().st_mode & 0o777 == 0o600
    assert len((run / rundir.SECRETS).read_bytes()) == len((own / rundir.SECRETS).read_bytes())


def test_the_ledger_that_comes_back_is_signed_by_the_trainer(fetched, made):
    ledger = LedgerDirectory(routed(fetched) / rundir.LEDGER)
    found = verify(ledger.path, anchor=anchor_of_ledger(ledger, without_cosigners(made)), now=int(time.time()))
    assert found.ok and found.judgement is not None
    assert any("delegated" not in signer for signer in found.judgement.signers), found.judgement.signers


def test_no_key_and_no_secret_of_the_trainer_is_at_the_place(fetched, made):
    contents = [path.read_bytes() for path in (fetched / "place").rglob("*") if path.is_file()]
    home = {name: (made / name).read_bytes() for name in ("trainer.pem", "salts")}
    secrets = (routed(fetched) / rundir.SECRETS).read_bytes()
    for what, secret in {**home, "secrets": secrets}.items():
        assert not any(secret in content for content in contents), what
    # The control: what is not secret is found in this way.
    assert any((made / "trust.json").read_bytes() in content for content in contents)


def test_a_ledger_that_was_changed_is_no_result(tmp_path, made, monkeypatch):
    planned = plan(tmp_path, str(made))
    at = publish(planned, str(tmp_path / "place"))
    away(tmp_path / "place", monkeypatch)
    run = next(run for run in planned.runs if run.record.recipe == "routed")
    result = at.find(ResultAt, f"results/{run.record.run_id}.json")
    assert result is not None
    name = next(name for name in result.files.digests if name.startswith("ledger/") and "entries" in name)
    content = bytearray(base64.b64decode(result.files.small[name]))
    content[len(content) // 2] ^= 1
    digest = hashlib.sha256(content).hexdigest()
    files = replace(
        result.files,
        digests={**result.files.digests, name: digest},
        small={**result.files.small, name: base64.b64encode(content).decode()},
    )
    at.write(f"results/{run.record.run_id}.json", replace(result, files=files))
    with pytest.raises(LedgerError):
        bring_back(at, run)
    assert not (run.directory / rundir.RESULT).exists()


def test_another_record_under_the_name_of_a_run_is_refused(tmp_path, made, monkeypatch):
    planned = plan(tmp_path, str(made))
    at = publish(planned, str(tmp_path / "place"))
    away(tmp_path / "place", monkeypatch)
    run = next(run for run in planned.runs if run.record.recipe == "typed")
    stored = at.run(run.record.run_id)
    at.write(f"runs/{run.record.run_id}.json", replace(stored, run=replace(run.record, tuning="well tuned")))
    with pytest.raises(PlaceError, match="not the run that is planned here"):
        bring_back(at, run)
    assert not (run.directory / rundir.RESULT).exists()


def test_a_run_keeps_its_key_when_a_sweep_is_published_again(tmp_path, made):
    planned = plan(tmp_path, str(made))
    first = publish(planned, str(tmp_path / "place"))
    before = [first.run(run.record.run_id).given for run in planned.runs]
    publish(planned, str(tmp_path / "place"))
    again = Published(DirectoryObjects(tmp_path / "place"))
    assert [again.run(run.record.run_id).given for run in planned.runs] == before

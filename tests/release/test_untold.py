"""A gate and a run that conforms or not, which cannot be told: refused, unless a rule names whose numbers are gone."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.deletion.erase import erase, of_classes
from explorer.entries.kinds import Entry, Genesis, State
from explorer.errors import LedgerError
from explorer.ledger.storage import blob_path
from explorer.project import AUDIT, Project, runs_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import BLOB
from tests.audit.governed_run import MIT, NEWS, TRAINER, USUAL, sign_again, write_governed_run
from tests.provenance.people import private
from tests.release.released import faults, gate, judged, release

CONFORMS = {"conforms": True}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def confidential(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which the news are confidential, attested, as others have it: without its secrets."""
    secret = replace(USUAL, confidential=(NEWS,))
    run = write_governed_run(tmp_path_factory.mktemp("confidential"), policy=secret)
    release(run)
    shutil.rmtree(run / rundir.PRIVATE)
    return run


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "runs" / "digits" / honest.name))


def erased(run: Path, *classes: str) -> Path:
    """The model of a run whose numbers of these classes were erased before it was attested."""
    ledger = RunLedger(run)
    with Project.open(runs_of(run), key=private(TRAINER), name=TRAINER) as project:
        erase(ledger, of_classes(ledger, classes), project=project)
    return release(run)


def refused(model: Path, rule: dict[str, Any]) -> str:
    found = faults(judged(model, gate(rule, ledger="full")))
    assert len(found) == 1, found
    (why,) = found
    return why


def passes(model: Path, rule: dict[str, Any]) -> bool:
    return judged(model, gate(rule, ledger="full")).passes


def but_for(**branches: list[str]) -> dict[str, Any]:
    return {"conforms_but_for": branches}


def test_what_was_erased_passes_no_gate_that_does_not_name_it(run: Path) -> None:
    model = erased(run, NEWS)
    words = "cannot be told: routable, reconstructible; joint: erased: entry 0 of the project's ledger"
    assert refused(model, CONFORMS) == words
    assert passes(model, but_for(erased=[NEWS])) and passes(model, but_for(erased=["open", "licensed"]))
    assert "cannot be told" in refused(model, but_for(erased=["open"]))
    assert "cannot be told" in refused(model, but_for(sealed=[NEWS]))
    assert "unknown branch 'licenced'; did you mean 'licensed'" in refused(model, but_for(erased=["licenced"]))


def test_every_class_that_was_erased_has_to_be_named(run: Path) -> None:
    """The numbers over several classes went with both."""
    model = erased(run, NEWS, MIT)
    assert "cannot be told" in refused(model, but_for(erased=[NEWS]))
    assert passes(model, but_for(erased=[NEWS, MIT]))


def test_a_rule_that_names_what_was_erased_still_asks_for_the_rest(run: Path) -> None:
    model = erased(run, NEWS)
    (state, *_) = (segment.state.entry for segment in RunLedger(run).segments())
    (run / rundir.LEDGER / blob_path(state.blobs[f"numbers/{MIT}"].sha256)).unlink()
    found = faults(judged(model, gate(but_for(erased=[NEWS]), ledger="full")))
    assert any("does not hold: reconstructible" in each for each in found)


def test_without_its_entry_an_erasure_passes_no_gate(run: Path) -> None:
    model = erased(run, NEWS)
    shutil.rmtree(runs_of(run) / AUDIT)
    found = faults(judged(model, gate(but_for(erased=[NEWS]), ledger="full")))
    assert any("does not hold: reconstructible" in each for each in found)
    with pytest.raises(LedgerError, match="missing, and no entry of the project's ledger says"):
        release(run)


def test_erased_behind_the_attestation_the_shares_cannot_be_told(run: Path) -> None:
    model = release(run)
    ledger = RunLedger(run)
    with Project.open(runs_of(run), key=private(TRAINER), name=TRAINER) as project:
        erase(ledger, of_classes(ledger, (NEWS,)), project=project)
    (why,) = faults(judged(model, gate(but_for(erased=[NEWS]), ledger="full")))
    assert "unknown from the ledger: numbers are sealed, or were erased since" in why
    assert passes(release(run), but_for(erased=[NEWS]))  # attested again, without the shares


def test_what_is_sealed_passes_no_gate_that_does_not_name_it(confidential: Path) -> None:
    model = confidential / rundir.MODEL
    assert refused(model, CONFORMS).startswith("cannot be told: routable, reconstructible; ")
    assert passes(model, but_for(sealed=["licensed"]))
    assert "cannot be told" in refused(model, but_for(erased=["licensed"]))
    assert "cannot be told" in refused(model, but_for(sealed=["open"]))


def test_what_was_never_recorded_no_rule_can_name(run: Path) -> None:
    def older(_: int, entry: Entry) -> Entry:
        if isinstance(entry, Genesis | State):
            return replace(entry, blobs={name: blob for name, blob in entry.blobs.items() if name != BLOB})
        return entry

    sign_again(run, older)
    everything = but_for(erased=["licensed", "open"], sealed=["licensed", "open"])
    assert "the run's states list no tensors" in refused(release(run), everything)

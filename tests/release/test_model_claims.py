"""Models that deletions made: what trained them stands in two ledgers, and in neither is what was deleted."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.deletion.finish import certify
from explorer.entries.kinds import Genesis
from explorer.errors import ExplorerError, LedgerError, ProvenanceError
from explorer.provenance.envelope import write_envelope
from explorer.provenance.model_attestation import Attested
from explorer.release.shipped import open_shipped
from explorer.runlog.model_file import CARD, read_card, write_card
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import FAR, MIT, NEWS, OPEN, TRAINER, USUAL, sign_again
from tests.deletion.deleted_runs import FIRST, SEALED, STEPS, replayed, structural, write_old
from tests.provenance.people import NOW, private
from tests.release.released import faults, gate, judged, release, trust


def delete(runs: Path, level: str) -> tuple[Path, Path]:
    """A run with `licensed/news`, and the one without it, with its certificate."""
    old = write_old(runs, SEALED if level == "G2" else USUAL)
    new = structural(old) if level == "G2" else replayed(old)
    card = read_card(old / "model" / CARD)
    write_card(new / "model" / CARD, replace(card, run=new.name, sealed=()))
    envelope = certify(old, new, keys=[private(TRAINER)], trust=trust(), now=NOW, expires=FAR)
    write_envelope(new / "certificate.json", envelope)
    return old, new


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    return {level: delete(tmp_path_factory.mktemp(level) / "runs", level) for level in ("G2", "G3")}


@pytest.fixture(params=["G2", "G3"])
def pair(request: pytest.FixtureRequest, made: dict[str, tuple[Path, Path]], tmp_path: Path) -> tuple[Path, Path]:
    """The run with and the run without, in a copy of their project."""
    old, new = made[request.param]
    shutil.copytree(old.parent.parent, tmp_path / "runs")
    return tmp_path / "runs" / "digits" / old.name, tmp_path / "runs" / "deletions" / new.name


def opened(model: Path) -> Attested:
    return open_shipped(model, trust=trust(), now=NOW).attested


def test_what_trained_the_rest_is_counted_over_both_ledgers(pair: tuple[Path, Path]) -> None:
    before, after = (opened(release(run)).value for run in pair)
    had, has = ({claim.path: claim for claim in value.classes} for value in (before, after))
    assert had[NEWS].trained and had[NEWS].examples
    assert not has[NEWS].trained and not has[NEWS].examples
    for path in (OPEN, MIT):
        assert has[path].examples == had[path].examples
        assert {each.layer: (each.steps, each.examples) for each in has[path].trained} == {
            each.layer: (each.steps, each.examples) for each in had[path].trained
        }
    assert after.steps == before.steps == STEPS


def test_the_deletion_is_in_the_record_and_the_gate_believes_it(pair: tuple[Path, Path]) -> None:
    old, new = pair
    model = release(new)
    value = opened(model).value
    (done,) = value.deletions
    assert done.classes == (NEWS,) and done.ledger.origin == RunLedger(old).ledger.checkpoint().origin
    rules = (
        {"deleted": {"branch": NEWS, "at_least": "G2"}},
        {"absent": {"branch": NEWS}},
        {"deny": {"branch": NEWS}},
    )
    for ledger in ("full", "checkpoint"):
        found = judged(model, gate(*rules, ledger=ledger))
        assert found.passes, faults(found)
    assert judged(model, gate({"deleted": {"branch": NEWS, "at_least": "G2"}})).passes
    assert not judged(release(old), gate(rules[1])).passes


def test_without_the_ledger_that_it_goes_on_from(pair: tuple[Path, Path]) -> None:
    old, new = pair
    model = release(new)
    shutil.rmtree(old)
    assert "is not here: expected in" in faults(judged(model, gate(ledger="full")))[0]
    assert judged(model).passes
    with pytest.raises(LedgerError, match="is not here: expected in"):
        release(new)


def test_with_another_ledger_in_its_place(pair: tuple[Path, Path]) -> None:
    """A byte of the old ledger flipped; then the checkpoint of another run."""
    old, new = pair
    bundle = next((old / rundir.LEDGER / "tile" / "entries").rglob("*.p/*"))
    content = bytearray(bundle.read_bytes())
    content[-3] ^= 1
    bundle.write_bytes(bytes(content))
    with pytest.raises(ExplorerError):
        release(new)
    shutil.rmtree(old / rundir.LEDGER)
    shutil.copytree(new / rundir.LEDGER, old / rundir.LEDGER)
    with pytest.raises(LedgerError, match="is not here: expected in"):
        release(new)


def test_without_its_certificate(pair: tuple[Path, Path], made: dict[str, tuple[Path, Path]]) -> None:
    new = pair[1]
    model = release(new)
    other = next(each for _, each in made.values() if each.name != new.name)
    shutil.copy(other / "certificate.json", new / "certificate.json")
    for _ in range(2):
        assert not judged(model, gate(ledger="full")).passes
        with pytest.raises(ProvenanceError, match=r"certificate.json"):
            release(new)
        (new / "certificate.json").unlink(missing_ok=True)


def test_a_class_that_trained_what_is_kept_is_not_called_deleted(tmp_path: Path) -> None:
    """By structure, where there was no structure: its region is dropped, and it had trained shared layers too."""
    old = write_old(tmp_path / "runs", USUAL)
    new = structural(old)
    with pytest.raises(LedgerError, match=r"licensed/news is left out as deleted, but trained body.1 in \d steps"):
        release(new)


def test_steps_that_no_ledger_holds(pair: tuple[Path, Path]) -> None:
    new = pair[1]
    sign_again(new, lambda _, entry: replace(entry, parents=()) if isinstance(entry, Genesis) else entry)
    with pytest.raises(LedgerError, match=rf"begins after ({FIRST}|{STEPS}) steps, and names no ledger that holds"):
        release(new)


def test_a_class_that_is_left_out_and_has_numbers(tmp_path: Path) -> None:
    """The recipe says that its places were empty, and the steps say otherwise."""
    old = write_old(tmp_path / "runs", USUAL)
    new = replayed(old, without=())
    with pytest.raises(LedgerError, match=r"entry \d+: licensed/news is left out, and has numbers"):
        release(new)

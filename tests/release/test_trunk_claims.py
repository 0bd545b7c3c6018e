"""A model whose run took over its first steps: what is attested of that, and what a gate makes of a claim that is not
true."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.release.lineage import family
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import to_json
from tests.audit.trunk_run import AT, SHORTER, named, true_entry, write_branched
from tests.provenance.people import NOW
from tests.release.released import faults, gate, judged, release, sign_again, statement_of, trust

CONFORMS = gate({"conforms": True}, ledger="full")
ASKED = "the rule {conforms: true} compares both ledgers"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_branched(tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("other"))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made.parent, tmp_path / "runs" / made.parent.name)
    return tmp_path / "runs" / made.parent.name / made.name


def test_the_attestation_names_the_run_that_made_the_steps(run: Path) -> None:
    model = release(run)
    (parent,) = statement_of(model).predicate["parents"]
    assert (parent["kind"], parent["ledger"]) == ("trunk", to_json(true_entry(run).ledger))
    assert (parent["model"], parent["attestation"], parent["admitted"]) == (None, None, {})
    verdict = judged(model, CONFORMS)
    assert verdict.passes and not any(ASKED in words for words in verdict.unseen), faults(verdict)
    assert any(ASKED in words for words in judged(model).unseen)  # nothing was compared there


@pytest.mark.parametrize("parents", ["none", "another"])
def test_an_attestation_that_says_something_else_is_refused(run: Path, parents: str) -> None:
    model = release(run)
    said = statement_of(model)
    (parent,) = said.predicate["parents"]
    other = {**parent, "ledger": {**parent["ledger"], "origin": "example.com/longer"}}
    changed = {**said.predicate, "parents": [] if parents == "none" else [other]}
    sign_again(model, replace(said, predicate=changed))
    assert any("parents" in words for words in faults(judged(model, CONFORMS)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"run": "longer"}, "trunk: not the ledger of another run"),
        ({"root": "5" * 64}, f"trunk: the ledger of {SHORTER}, here too, is another one"),
    ],
)
def test_a_gate_refuses_steps_that_no_such_run_made(run: Path, change: dict[str, str], words: str) -> None:
    ledger = true_entry(run).ledger
    named(run, **({"ledger": replace(ledger, **change)} if "root" in change else change))
    verdict = judged(release(run), CONFORMS)
    assert not verdict.passes and any(words in why for why in faults(verdict)), faults(verdict)


def test_both_runs_are_of_one_family(run: Path) -> None:
    origins = [RunLedger(path).ledger.checkpoint().origin for path in (run.parent / SHORTER, run)]
    for path in (run, run.parent / SHORTER):
        found = family(RunLedger(path), trust=trust(), now=NOW)
        (tie,) = (tie for tie in found.ties if (tie.source, tie.target) == (origins[0], origins[1]))
        assert (tie.words, tie.certain) == (f"took over its first {AT} steps", True)
    shutil.rmtree(run.parent / SHORTER)
    found = family(RunLedger(run), trust=trust(), now=NOW)
    (tie,) = (tie for tie in found.ties if tie.target == origins[1])
    assert not tie.certain

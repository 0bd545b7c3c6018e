"""The entry that names the run which made the first steps: what conform and verify.py make of it, true and forged."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files, rundir
from explorer.audit.conform import Conformance, conform
from explorer.canonical import digest
from explorer.disclosure import verifier
from explorer.entries.fields import Blob, LedgerState
from explorer.entries.kinds import Entry, Genesis, Step, Trunk, decode
from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory
from explorer.merkle import leaf_hash, root_of
from explorer.run_files import RunRecord
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.same_steps import open_named, sharing_steps, unequal_beginnings
from tests.audit.governed_run import again, rewrite, sign_again, trust
from tests.audit.trunk_run import AT, SHORTER, named, other, renamed, true_entry, write_branched
from tests.disclosure.packs import opened, packed
from tests.provenance.people import NOW


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_branched(tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("other"))


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    shutil.copytree(honest.parent, tmp_path / "sweep")
    return tmp_path / "sweep" / honest.name


def judged(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=trust(), now=NOW)


def said(run: Path) -> list[str]:
    found = judged(run).conditions[3]
    return [each.message for each in found.contradictions]


def test_what_is_said_of_the_other_run_is_true(run: Path) -> None:
    found = judged(run)
    assert found.conforms and not said(run), [each.contradictions for each in found.conditions]
    assert not any("trunk" in note for note in found.conditions[3].notes)
    assert RunLedger(run).continues == (f"the first {AT} steps of {SHORTER}",)


def test_runs_that_share_steps_are_found_through_others_and_where_these_are_gone(run: Path) -> None:
    copy_of(run, "third", lambda entry: entry)
    copy_of(run, "alone", lambda entry: None if isinstance(entry, Trunk) else entry)
    third, alone = run.parent / "third", run.parent / "alone"
    assert sharing_steps(run.parent / SHORTER) == tuple(sorted((run.name, "third")))
    for gone in (False, True):
        if gone:
            shutil.rmtree(run.parent / SHORTER)
        assert sharing_steps(run) == (SHORTER, "third")
        assert sharing_steps(third) == tuple(sorted((run.name, SHORTER)))
        assert sharing_steps(alone) == ()


def copy_of(run: Path, name: str, change: Callable[[Entry], Entry | None]) -> None:
    """The run under another name, its entries as `change` gives them."""
    shutil.copytree(run, run.parent / name)
    sign_again(run.parent / name, lambda _, entry: change(renamed(entry, name)))


def test_where_the_other_run_is_gone_conform_says_so_and_nothing_is_broken(run: Path) -> None:
    shutil.rmtree(run.parent / SHORTER)
    found = judged(run)
    assert found.conforms
    (note,) = (note for note in found.conditions[3].notes if "trunk" in note)
    assert f"steps 0 to {AT - 1} are those of {SHORTER}, whose ledger is not here" in note


def test_an_erasure_from_the_other_run_changes_nothing(run: Path) -> None:
    shutil.rmtree(run.parent / SHORTER / rundir.LEDGER / "blobs")
    (run.parent / SHORTER / rundir.SECRETS).unlink()
    assert judged(run).conforms


def flipped(run: Path) -> None:
    """Change a byte of an entry of the other run, and leave its hashes as they are."""
    bundle = run.parent / SHORTER / rundir.LEDGER / "tile" / "entries"
    (path,) = (path for path in bundle.rglob("*") if path.is_file())
    content = path.read_bytes()
    assert content.count(b'"quarantined":0') > 0
    path.write_bytes(content.replace(b'"quarantined":0', b'"quarantined":1', 1))


def counted(entry: Entry) -> Entry:
    return replace(entry, quarantined=entry.quarantined + 1) if isinstance(entry, Step) and entry.step == 2 else entry


def begun(**changes: Any) -> Callable[[Path], None]:
    """Change the first entry of the other run, sign its ledger again, and name that."""

    def forge(run: Path) -> None:
        other(lambda entry: replace(entry, **changes) if isinstance(entry, Genesis) else entry)(run)
        named(run)

    return forge


def planned(run: Path) -> None:
    """Another recipe of the other run, with its digest where it has to be."""
    path = run.parent / SHORTER / rundir.RUN
    record = run_files.read(RunRecord, path)
    train = {**record.identity["recipe"]["train"], "batch_size": 8}
    identity = {**record.identity, "recipe": {**record.identity["recipe"], "train": train}, "ssr": 0.5}
    run_files.write(path, replace(record, identity=identity))
    begun(recipe=digest(identity))(run)


def unsigned(run: Path) -> None:
    """The very ledger, signed by another key under the trainer's name."""
    sign_again(run.parent / SHORTER, lambda _, entry: entry, seed="example.com/stranger")
    named(run)


def renamed_here(run: Path) -> None:
    """An entry that names a ledger of the right name whose steps are other ones: signed, and named with its root."""
    other(counted)(run)
    named(run)


CLASSES_OF_ANOTHER = ("a", "b", "c")
FORGERIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "another state": (
        lambda run: named(run, state=replace(true_entry(run).state, optimizer="5" * 64)),
        f"trunk: not the state after {AT} steps",
    ),
    "the run itself": (
        lambda run: named(run, run=run.name, ledger=replace(true_entry(run).ledger, origin=f"example.com/{run.name}")),
        "trunk: not the ledger of another run",
    ),
    "another run": (lambda run: named(run, run="longer"), "trunk: not the ledger of another run"),
    "another root": (
        lambda run: named(run, ledger=replace(true_entry(run).ledger, root="5" * 64)),
        f"the ledger of {SHORTER}, here too, is another one: its first",
    ),
    "a ledger with fewer steps": (
        lambda run: named(run, ledger=fewer(run)),
        f"the ledger of {SHORTER}, here too, is another one: steps: {AT} here, 1 there",
    ),
    "the other ledger signed anew": (other(counted), f"the ledger of {SHORTER}, here too, is another one: its first"),
    "a byte of the other ledger": (flipped, f"the ledger of {SHORTER}, here too, is another one: its first"),
    "the ledger of another trainer": (
        lambda run: named(run, ledger=replace(true_entry(run).ledger, origin=f"elsewhere.example/{SHORTER}")),
        "trunk: not the ledger of another run",
    ),
    "a ledger that no trainer signed": (unsigned, "is another one: no trusted key has signed: signed by example.com/"),
    "another seed": (begun(seed=1), "is another one: first entry: seed: 0 here, 1 there"),
    "another policy": (begun(policy="5" * 64), "is another one: first entry: policy: "),
    "another taxonomy": (begun(taxonomy="5" * 64), "is another one: first entry: taxonomy: "),
    "other classes": (begun(classes=CLASSES_OF_ANOTHER), "is another one: first entry: classes: "),
    "other data": (begun(data="5" * 64), "is another one: first entry: data: "),
    "other initial parameters": (begun(initial="5" * 64), "is another one: first entry: initial: "),
    "another recipe": (planned, "is another one: plan.recipe.train.batch_size: "),
    "a plan that its ledger does not name": (begun(recipe="5" * 64), "not the plan that the first entry of its ledger"),
    "other steps": (renamed_here, "is another one: step 2: quarantined: "),
}


def fewer(run: Path) -> LedgerState:
    """The other ledger after its first step."""
    ledger = LedgerDirectory(run.parent / SHORTER / rundir.LEDGER)
    leaves = list(ledger.entries())
    size = next(at for at, leaf in enumerate(leaves) if isinstance(decode(leaf), Step)) + 1
    return LedgerState(origin=ledger.checkpoint().origin, size=size, root=root_of(map(leaf_hash, leaves[:size])).hex())


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_not_true_is_found(run: Path, name: str) -> None:
    forge, words = FORGERIES[name]
    forge(run)
    found = judged(run)
    assert not found.conforms
    assert any(words in each.message for each in found.conditions[3].contradictions), said(run)


def test_runs_with_keys_of_their_own_share_steps(run: Path) -> None:
    """A delegation is of one run. The control: any other blob of the first entry is the same in both."""
    mine = RunLedger(run).genesis
    blob = Blob(sha256="5" * 64, size=3)
    other = replace(mine, delegation="5" * 64, blobs={**mine.blobs, "delegation": blob})
    assert list(unequal_beginnings(mine, other)) == []
    (words,) = unequal_beginnings(mine, replace(mine, blobs={**mine.blobs, "quarantine": blob}))
    assert words.startswith("first entry: blobs: ")


def test_a_plan_that_is_not_here_is_not_compared(run: Path) -> None:
    """It was moved away; what is left of the other run says the same."""
    (run.parent / SHORTER / rundir.RUN).unlink()
    assert judged(run).conforms


def test_another_step_than_the_clock_is_out_of_order(run: Path) -> None:
    named(run, step=AT - 1)
    assert not judged(run).conforms
    with pytest.raises(verifier.Refused, match=f"trunk at {AT - 1} steps, after {AT} were done"):
        verifier.read_run(opened(packed(run).content), note_of(run))


def note_of(run: Path) -> verifier.Note:
    return verifier.read_note((run / rundir.LEDGER / "checkpoint").read_bytes(), "checkpoint")


def test_steps_that_were_executed_again_are_no_longer_the_other_run_s(run: Path) -> None:
    rewrite(run, lambda leaves: again_from(leaves, AT - 1))
    assert RunLedger(run).outline.trunks == ()
    assert not any(words.startswith("trunk") for words in said(run))


def again_from(leaves: list[bytes], step: int) -> list[bytes]:
    """Take back a step and what follows, and make all of it again."""
    entries = [decode(leaf) for leaf in leaves]
    at = next(at for at, entry in enumerate(entries) if isinstance(entry, Step) and entry.step == step)
    end = next(at for at, entry in enumerate(entries) if isinstance(entry, Trunk)) + 1
    redone = [leaf for leaf, entry in zip(leaves[at:end], entries[at:end], strict=True) if not isinstance(entry, Trunk)]
    return [*leaves[:end], again(step), *redone, *leaves[end:]]


def test_verify_py_reads_the_entry_and_names_what_it_cannot_check(run: Path) -> None:
    read, origin = verifier.read_run(opened(packed(run).content), note_of(run)), note_of(run).origin
    assert read.unknown == 0
    findings = verifier.Findings()
    verifier.check_trunks(read, origin, findings)
    assert any(f"that {SHORTER!r} made the first {AT} steps" in words for words in findings.unchecked)
    (true,) = (entry for entry in read.entries if entry["kind"] == "trunk")
    changes = (
        {"state": {**true["state"], "random": "5" * 64}},
        {"step": AT - 1},
        {"run": read.genesis["run"]},
        {"run": "longer"},
        {"ledger": {**true["ledger"], "origin": f"elsewhere.example/{SHORTER}"}},
    )
    for change in changes:
        forged = [{**entry, **change} if entry["kind"] == "trunk" else entry for entry in read.entries]
        with pytest.raises(verifier.Refused, match=r"not the state that|not the ledger of another"):
            verifier.check_trunks(replace(read, entries=forged), origin, verifier.Findings())


def test_a_name_that_leads_elsewhere_is_no_run(run: Path) -> None:
    for name in ("..", f"../{run.parent.name}/{SHORTER}", "", "."):
        with pytest.raises(LedgerError, match="there is no ledger of a run"):
            open_named(run.parent, name, true_entry(run).ledger)


def test_the_result_names_the_same_run(run: Path) -> None:
    """What the result says of its beginning has an entry."""
    digest = hashlib.sha256(b"").hexdigest()
    path = run / rundir.RESULT
    result = rundir.read_json(path)
    assert isinstance(result, dict)
    rundir.write_json(path, {**result, "trunk": {"run": SHORTER, "step": AT, "state": digest}})
    assert not any("no entry names" in words for words in said(run))
    rundir.write_json(path, {**result, "trunk": {"run": "longer", "step": AT, "state": digest}})
    assert any("began with 5 steps of longer, which no entry names" in words for words in said(run))

"""Blobs that are gone: erased, and the pack shows the entry that says so; or withheld, and nobody calls that erased."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from explorer.deletion.erase import erase, of_classes
from explorer.disclosure import verifier
from explorer.disclosure.pack import make_pack
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Access, Deletion, Erasure, State
from explorer.errors import LedgerError
from explorer.ledger.proof import make_proof
from explorer.ledger.storage import LedgerDirectory, blob_path
from explorer.project import AUDIT, Project, runs_of
from explorer.provenance.trust import Role
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run
from tests.audit.governed_run import MIT, NEWS, OPEN, TRAINER
from tests.disclosure.packs import REPORT, Files, faults, findings, governed, opened, packed, signed_again
from tests.provenance.people import GOVERNANCE, NOW, private

PROOF = "erasures/0.tlog-proof"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose numbers of `open/mit` were erased."""
    run = governed(tmp_path_factory.mktemp("erased"))
    ledger = RunLedger(run)
    with project_of(run) as project:
        erase(ledger, of_classes(ledger, (MIT,)), project=project)
    return run


@pytest.fixture(scope="module")
def files(run: Path) -> Files:
    return opened(packed(run).content)


def project_of(run: Path, *, seed: str = TRAINER) -> Project:
    return Project.open(runs_of(run), key=private(seed), name=seed)


def blob_of(run: Path, name: str) -> str:
    """Where the blob of that name in the last state lies, in a pack."""
    ledger = RunLedger(run)
    *_, (_, index) = ledger.outline.states
    (state,) = ledger.read([index], State)
    return f"ledger/{blob_path(state.entry.blobs[name].sha256)}"


def proof_of(root: Path, entry: Erasure | Deletion | Access, *, seed: str = TRAINER) -> bytes:
    """The proof of an entry in a project's ledger of its own."""
    with Project.open(root, key=private(seed), name=TRAINER) as project:
        project.append(entry)
    return make_proof(LedgerDirectory(root / AUDIT), 0).content


def recorded(run: Path, *classes: str) -> Erasure:
    head = RunLedger(run).ledger.checkpoint()
    state = LedgerState(origin=head.origin, size=head.size, root=head.root.hex())
    return Erasure(ledger=state, classes=classes, records=0, blobs={})


def test_what_was_erased_on_record_is_told_and_refuses_nothing(files: Files) -> None:
    found = findings(files)
    assert not found.failed
    assert found.checked["erasures on the record of the project"] == 1
    told = [each for each in found.unchecked if each.endswith("erased: entry 0 of the project's ledger")]
    assert any(f"numbers/{MIT}" in each for each in told) and any("joint" in each for each in told)
    assert not any(f"numbers/{NEWS}" in each for each in told)


def test_a_deletion_on_record_covers_its_classes_too(run: Path, files: Files, tmp_path: Path) -> None:
    mine = recorded(run, MIT)
    digest: dict[str, str] = {"certificate": "c" * 64}
    what = Deletion(
        ledger=mine.ledger,
        result=None,
        request="d" * 64,
        classes=(MIT,),
        authorities=(),
        records=0,
        level="G1",
        evidence=digest,
        blobs={},
    )
    assert not faults(signed_again({**files, PROOF: proof_of(tmp_path / "mit", what)}))
    other = faults(signed_again({**files, PROOF: proof_of(tmp_path / "news", replace(what, classes=(NEWS,)))}))
    assert f"numbers/{MIT}: {verifier.WITHHELD}" in other
    read = Access(ledger=mine.ledger, grant="a" * 64, query="b" * 64, blobs={})
    found = faults(signed_again({**files, PROOF: proof_of(tmp_path / "read", read)}))
    assert f"{PROOF}: a access entry erases nothing" in found


def test_without_its_entry_it_was_withheld(files: Files) -> None:
    rest = {name: content for name, content in files.items() if name != PROOF}
    assert f"numbers/{MIT}: {verifier.WITHHELD}" in faults(signed_again(rest))


@pytest.mark.parametrize("name", [f"numbers/{NEWS}", f"sketches/{OPEN}", "slots", "tensors"])
def test_an_entry_about_one_class_covers_no_other_blob(run: Path, files: Files, name: str) -> None:
    rest = {path: content for path, content in files.items() if path != blob_of(run, name)}
    assert f"{name}: {verifier.WITHHELD}" in faults(signed_again(rest))


def test_all_blobs_withheld_is_not_a_pack_that_verifies(files: Files) -> None:
    """The pack of the report: exit status 0 and one line."""
    rest = {name: content for name, content in files.items() if not name.startswith(("ledger/blobs/", "erasures/"))}
    assert faults(signed_again(rest)).count(verifier.WITHHELD) > 4


def test_erasures_that_are_of_something_else(run: Path, files: Files, tmp_path: Path) -> None:
    mine = recorded(run, MIT)
    cases = {
        "another run": (replace(mine, ledger=replace(mine.ledger, origin="example.com/other")), TRAINER),
        "another state of it": (replace(mine, ledger=replace(mine.ledger, size=1)), TRAINER),
        "signed by no trainer": (mine, GOVERNANCE),
    }
    for at, (said, (entry, seed)) in enumerate(cases.items()):
        changed = {**files, PROOF: proof_of(tmp_path / str(at), entry, seed=seed)}
        found = faults(signed_again(changed))
        assert f"{PROOF}: " in found and verifier.WITHHELD in found, said
    whole = proof_of(tmp_path / "same", mine)
    assert not faults(signed_again({**files, PROOF: whole}))
    head, gap, rest = whole.partition(b"\n\n")
    without = b"\n".join(line for line in head.split(b"\n") if not line.startswith(b"extra "))
    for changed in (without + gap + rest, whole.replace(b"index 0", b"index 1"), files["proofs/0.tlog-proof"]):
        assert PROOF in faults(signed_again({**files, PROOF: changed}))


def test_the_projects_ledger_is_believed_as_the_runs_is(run: Path, files: Files) -> None:
    """Whoever asks for cosignatures asks for them on both."""
    usual = governed_run.trust()
    strict = replace(usual, quorum=replace(usual.quorum, checkpoints={Role.TRAINER: 1, Role.MODEL_RISK: 1}))
    assert f"{PROOF}: cosigned by 0 of the role model-risk" in faults(files, trust=strict)


def test_a_run_with_withheld_blobs_is_not_packed(tmp_path: Path) -> None:
    run = governed(tmp_path)
    shutil.rmtree(run / "ledger" / "blobs")
    with pytest.raises(LedgerError, match="missing, and no entry of the project's ledger says that it was erased"):
        make_pack(RunLedger(run), grants={}, report=REPORT, key=private(TRAINER), trust=governed_run.trust(), now=NOW)

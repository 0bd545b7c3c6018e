"""Numbers that are gone: erased on record cannot be told, and everything else that is gone contradicts the record."""

import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer import rundir
from explorer.audit.conditions import Cause, Outcome
from explorer.audit.conform import Conformance, conform
from explorer.deletion.erase import erase, of_classes
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.heads import read_head
from explorer.entries.kinds import Deletion, End, Entry, Genesis, Profile, State
from explorer.ledger.storage import LedgerDirectory, blob_path
from explorer.project import AUDIT, Project, runs_of
from explorer.provenance.commitments import destroy_salt
from explorer.provenance.encryption import seal
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import RunLedger, class_of
from tests.audit.governed_run import CLASSES, MIT, NEWS, TRAINER, sign_again, trust, with_blob, write_governed_run
from tests.audit.test_conform import change_numbers
from tests.provenance.people import NOW, private

BY = "no entry of the project's ledger says that it was erased"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest run, in a project of its own."""
    return Path(shutil.copytree(honest, tmp_path / "runs" / "digits" / honest.name))


def judged(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=trust(), now=NOW)


def contradictions(found: Conformance) -> list[str]:
    return [each.message for condition in found.conditions for each in condition.contradictions]


def by_hand(run: Path, classes: Collection[str]) -> None:
    """Destroy secrets and blobs, and say nothing."""
    gone, ledger = {*classes}, LedgerDirectory(run / rundir.LEDGER)
    for path in gone & {*CLASSES, JOINT}:
        destroy_salt(run / rundir.SECRETS, (*CLASSES, JOINT).index(path))
    for leaf in ledger.entries():
        for name, blob in read_head(leaf).blobs.items():
            if class_of(name) in gone:
                (ledger.path / blob_path(blob.sha256)).unlink(missing_ok=True)


def on_record(run: Path, *classes: str, seed: str = TRAINER) -> int:
    """Erase, as the command does."""
    ledger = RunLedger(run)
    with Project.open(runs_of(run), key=private(seed), name=TRAINER) as project:
        return erase(ledger, of_classes(ledger, classes), project=project)


def trained_what_it_is_denied(run: Path) -> None:
    """The news trained the input in step 8, which the policy denies them: committed to, and signed."""

    def lie(numbers: np.ndarray) -> None:
        numbers[0] = numbers[3]

    change_numbers(run, 8, NEWS, lie)


def test_erased_on_record_cannot_be_told_and_names_the_entry(run: Path) -> None:
    assert judged(run).conforms
    assert on_record(run, NEWS) == 0
    found = judged(run)
    assert found.outcome is Outcome.UNTOLD and not found.conforms
    routable, typed, reconstructible, _ = found.conditions
    assert typed.holds and routable.outcome is reconstructible.outcome is Outcome.UNTOLD
    words = {
        (Cause.ERASED, (NEWS,), f"numbers/{NEWS}: erased: entry 0 of the project's ledger"),
        (Cause.ERASED, (NEWS,), "joint: erased: entry 0 of the project's ledger"),
    }
    assert {(each.cause, each.classes, each.message) for each in routable.untold} == words
    sketches = (Cause.ERASED, (NEWS,), f"sketches/{NEWS}: erased: entry 0 of the project's ledger")
    assert {(each.cause, each.classes, each.message) for each in reconstructible.untold} >= {*words, sketches}


def test_a_second_erasure_has_an_entry_of_its_own(run: Path) -> None:
    assert (on_record(run, NEWS), on_record(run, MIT), on_record(run, NEWS)) == (0, 1, 0)
    found = judged(run)
    joint = next(each for each in found.conditions[0].untold if each.message.startswith("joint"))
    assert joint.classes == (NEWS, MIT) and joint.message.endswith("erased: entries 0, 1 of the project's ledger")


def test_a_deletion_on_record_covers_what_it_says_is_to_be_destroyed(run: Path) -> None:
    head = RunLedger(run).ledger.checkpoint()
    entry = Deletion(
        ledger=LedgerState(origin=head.origin, size=head.size, root=head.root.hex()),
        result=None,
        request="a" * 64,
        classes=(NEWS,),
        authorities=(),
        records=0,
        level="G2",
        evidence={},
        blobs={},
    )
    with Project.open(runs_of(run), key=private(TRAINER), name=TRAINER) as project:
        project.append(entry)
    assert judged(run).conforms
    by_hand(run, {NEWS, JOINT})
    assert judged(run).outcome is Outcome.UNTOLD
    by_hand(run, {MIT})
    assert judged(run).outcome is Outcome.FAILS


def test_the_same_without_an_entry_does_not_conform(run: Path) -> None:
    by_hand(run, {NEWS, JOINT})
    found = judged(run)
    assert found.outcome is Outcome.FAILS
    said = contradictions(found)
    assert any(each.startswith(f"{NEWS}: the secret was destroyed, and {BY}: there is none in ") for each in said)
    assert any(each.startswith(f"numbers/{NEWS}: the blob is missing, and {BY}") for each in said)


def test_destroying_the_numbers_that_convict_never_conforms(run: Path) -> None:
    """A class trained what it is denied; then what tells is destroyed, with and without an entry."""
    trained_what_it_is_denied(run)
    assert any("with more weight than the policy gives it" in each for each in contradictions(judged(run)))
    without = Path(shutil.copytree(run, run.parents[2] / "other" / "digits" / run.name))
    by_hand(without, {NEWS, JOINT})
    assert judged(without).outcome is Outcome.FAILS
    on_record(run, NEWS)
    assert judged(run).outcome is Outcome.UNTOLD


def test_what_was_erased_hides_no_contradiction(run: Path) -> None:
    """The news are convicted by numbers that are here; only another class was erased."""
    trained_what_it_is_denied(run)
    on_record(run, MIT)
    assert judged(run).outcome is Outcome.FAILS


def test_an_entry_of_what_is_still_here_takes_nothing_away(run: Path) -> None:
    """An erasure that was interrupted behind its entry."""
    kept = Path(shutil.copytree(run, run.parents[2] / "kept"))
    on_record(run, NEWS)
    shutil.rmtree(run)
    kept.rename(run)
    assert judged(run).conforms


def another_class(run: Path) -> None:
    on_record(run, MIT)
    by_hand(run, {NEWS})


def another_ledger(run: Path) -> None:
    """The ledger is signed again behind the erasure: the entry is about another one."""
    on_record(run, NEWS)
    metrics = {"accuracy": write_float(1)}
    sign_again(run, lambda _, entry: replace(entry, metrics=metrics) if isinstance(entry, End) else entry)


def another_key(run: Path) -> None:
    """Somebody else's project's ledger under the trainer's name."""
    on_record(run, NEWS, seed="somebody else")


def damaged(run: Path) -> None:
    on_record(run, NEWS)
    ledger = runs_of(run) / AUDIT
    (bundle,) = (path for path in (ledger / "tile" / "entries").rglob("*") if path.is_file())
    bundle.write_bytes(bundle.read_bytes().replace(b'"records":0', b'"records":1'))


def gone(run: Path) -> None:
    on_record(run, NEWS)
    shutil.rmtree(runs_of(run) / AUDIT)


def the_joint_alone(run: Path) -> None:
    by_hand(run, {JOINT})


def renamed(run: Path) -> None:
    blob = _blob(run, f"numbers/{NEWS}")
    blob.rename(blob.with_name("f" * 64))


def truncated(run: Path) -> None:
    on_record(run, MIT)
    blob = _blob(run, f"numbers/{NEWS}")
    blob.write_bytes(blob.read_bytes()[:-4])


def tensors_of_a_state(run: Path) -> None:
    on_record(run, *CLASSES)
    _blob(run, "tensors").unlink()


def slots(run: Path) -> None:
    on_record(run, *CLASSES)
    _blob(run, "slots").unlink()


def tags(run: Path) -> None:
    on_record(run, *CLASSES)
    (run / rundir.GOVERNANCE / "tags.parquet").unlink()


def _blob(run: Path, name: str) -> Path:
    """Such a blob of the last state that has one."""
    ledger = RunLedger(run)
    states = [segment.state.entry for segment in ledger.segments() if name in segment.state.entry.blobs]
    return ledger.ledger.path / blob_path(states[-1].blobs[name].sha256)


@pytest.mark.parametrize(
    ("withhold", "words"),
    [
        (another_class, f"numbers/{NEWS}: the blob is missing, and {BY}"),
        (another_ledger, f"numbers/{NEWS}: the blob is missing, and {BY}"),
        (another_key, f"numbers/{NEWS}: the blob is missing, and {BY} and can be believed: checkpoint: "),
        (damaged, f"numbers/{NEWS}: the blob is missing, and {BY}: it cannot be read: "),
        (gone, f"numbers/{NEWS}: the blob is missing, and {BY}: there is none in "),
        (the_joint_alone, f"joint: the blob is missing, and {BY}"),
        (renamed, f"numbers/{NEWS}: the blob is missing, and {BY}"),
        (truncated, "the blob is damaged"),
        (tensors_of_a_state, f"tensors: the blob is missing, and {BY}"),
        (slots, f"slots: the blob is missing, and {BY}"),
        (tags, "tags.parquet"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_what_is_withheld_does_not_conform(run: Path, withhold: Callable[[Path], None], words: str) -> None:
    withhold(run)
    found = judged(run)
    said = contradictions(found)
    assert found.outcome is Outcome.FAILS and any(words in each for each in said), said


def test_without_any_number_nothing_holds_that_needs_one(run: Path) -> None:
    """All blobs of numbers are gone: no condition that reads them says that it holds."""
    by_hand(run, {*CLASSES, JOINT})
    routable, typed, reconstructible, _ = judged(run).conditions
    assert routable.outcome is Outcome.UNTOLD and reconstructible.outcome is Outcome.FAILS
    assert typed.holds  # the examples of every step, and who typed them, are here


def test_the_spool_by_itself_decides_nothing(run: Path) -> None:
    shutil.rmtree(run / rundir.CONTRIBUTIONS)
    assert judged(run).conforms


def test_secrets_that_only_the_trainer_has_are_not_missed(run: Path) -> None:
    shutil.rmtree(run / rundir.PRIVATE)
    assert judged(run).conforms
    on_record(run, NEWS)
    assert judged(run).outcome is Outcome.UNTOLD


def test_sealing_what_no_policy_calls_confidential_withholds_it(run: Path) -> None:
    ledger, name = RunLedger(run), f"numbers/{NEWS}"

    def sealed(_: int, entry: Entry) -> Entry:
        if not isinstance(entry, State | Profile) or name not in entry.blobs:
            return entry
        content = (ledger.ledger.path / blob_path(entry.blobs[name].sha256)).read_bytes()
        return with_blob(run, entry, name, seal(b"k" * 32, content, kind="step", name=name, first=0))

    sign_again(run, sealed)
    shutil.rmtree(run / rundir.PRIVATE)
    found = judged(run)
    assert found.outcome is Outcome.FAILS
    assert f"{name}: sealed, and the policy does not call it confidential" in contradictions(found)


def test_rows_set_aside_that_are_on_no_list_any_more(run: Path) -> None:
    """The genesis says that some were, and which ones is gone: then who was typed cannot be counted."""

    def named(_: int, entry: Entry) -> Entry:
        return with_blob(run, entry, "quarantine", b'{"erased":[]}') if isinstance(entry, Genesis) else entry

    sign_again(run, named)
    assert judged(run).conforms
    genesis = RunLedger(run).genesis
    (run / rundir.LEDGER / blob_path(genesis.blobs["quarantine"].sha256)).unlink()
    found = judged(run)
    assert found.conditions[1].outcome is Outcome.FAILS
    assert "the list of the rows that were set aside is missing" in found.conditions[1].contradictions[0].message

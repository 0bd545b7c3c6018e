"""The ledger of a governed run: what it holds, what is executed again, and what it refuses to go on from."""

import hashlib
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer import merkle, rundir
from explorer.entries.fields import Blob
from explorer.entries.heads import check_sequence, read_head
from explorer.entries.kinds import Decision, End, Profile, State, Step, decode
from explorer.entries.numbers import StepNumbers, decode_sketches, split_class, split_joint
from explorer.entries.slots import decode_slots, slots_root
from explorer.errors import LedgerError, ProvenanceError
from explorer.governance.spool import RecordedStep, Segment
from explorer.governance.writer import History
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.commitments import commit, destroy_salt, read_salts
from explorer.provenance.encryption import reading_key, salt_of
from tests.governance.journals import (
    CLASSES,
    EVERY,
    GENESIS,
    LEAVES,
    NO_TENSORS,
    finish,
    numbers,
    open_journal,
    record,
    record_step,
    recorded,
    rows,
    sketches,
    state,
)
from tests.ledger.ledgers import check
from tests.ledger.signers import signer

STEPS = 8


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run."""
    return recorded(tmp_path_factory.mktemp("calm") / "run", STEPS)


@pytest.fixture
def run(calm: Path, tmp_path: Path) -> Path:
    """A run with the secrets of the calm one, so that both have the same entries."""
    shutil.copytree(calm / rundir.PRIVATE, tmp_path / "run" / rundir.PRIVATE)
    return tmp_path / "run"


def leaves(run: Path) -> list[bytes]:
    return list(LedgerDirectory(run / rundir.LEDGER).entries())


def entries(run: Path) -> list[object]:
    return [decode(leaf) for leaf in leaves(run)]


def kinds(run: Path) -> list[tuple[str, int]]:
    return [(head.kind, head.fields.get("step", 0)) for head in map(read_head, leaves(run))]  # pyright: ignore


def killed_after(run: Path, steps: int) -> Path:
    """A run whose process is gone: what it had not committed is not there."""
    journal = open_journal(run)
    journal.begin(0, state(0))
    record(journal, 0, steps)
    journal.close()
    return run


def test_a_run_is_recorded_from_genesis_to_end(calm: Path) -> None:
    found = check(calm / rundir.LEDGER)
    assert found.ok and not found.findings
    order = check_sequence(map(read_head, leaves(calm)))
    assert (order.finished, order.steps, order.unknown) == (True, STEPS, 0)
    assert [kind for kind, _ in kinds(calm)[:7]] == ["genesis", "profile", "decision", "step", "step", "step", "state"]
    named = NO_TENSORS.content
    tensors = Blob(sha256=hashlib.sha256(named).hexdigest(), size=len(named))
    assert entries(calm)[-1] == End(
        step=STEPS,
        outcome="finished",
        state=state(STEPS),
        metrics={"accuracy": "0x1.0000000000000p-1"},
        blobs={"tensors": tensors},
    )


def test_every_commitment_opens_to_the_numbers_of_its_step(calm: Path) -> None:
    ledger, secrets = LedgerDirectory(calm / rundir.LEDGER), read_salts(calm / rundir.SECRETS)

    def opened(slot: int, path: str, content: bytes, *, kind: str, step: int, first: int | None = None) -> str:
        secret = secrets.of(slot)
        assert secret
        if first is None:
            first = step // EVERY * EVERY if kind == "step" else step
        key = reading_key(secret, kind=kind, class_path=path, first=first)
        return commit(salt_of(key, step), content).hex()

    steps: list[Step] = []
    seen = 0
    for entry in entries(calm):
        match entry:
            case Step():
                steps.append(entry)
            case Profile() | Decision():
                assert entry.blobs
                for name, found in (entry.classes if isinstance(entry, Profile) else entry.evidence).items():
                    where = "numbers" if isinstance(entry, Profile) else "evidence"
                    content = ledger.blob(entry.blobs[f"{where}/{name}"].sha256)
                    slot = CLASSES.index(name)
                    assert opened(slot, name, content, kind=entry.KIND, step=entry.step) == found
            case State():
                blobs = {name: ledger.blob(blob.sha256) for name, blob in entry.blobs.items()}
                for index, path in enumerate(CLASSES):
                    contents = iter(split_class(blobs[f"numbers/{path}"], layers=2))
                    for step in steps:
                        if (found := step.numbers[index]) is not None:
                            assert opened(index, path, next(contents), kind="step", step=step.step) == found
                            seen += 1
                    assert next(contents, None) is None
                counts = [sum(each is not None for each in step.numbers) for step in steps]
                for step, content in zip(steps, split_joint(blobs["joint"], layers=2, counts=counts), strict=True):
                    assert opened(2, "*", content, kind="step", step=step.step) == step.joint
                for index, path in enumerate(CLASSES):
                    key = (index, path, blobs[f"sketches/{path}"])
                    assert entry.sketches[index] == opened(*key, kind="step", step=entry.step, first=steps[0].step)
                batches = decode_slots(blobs["slots"], counts=[sum(step.examples) + step.quarantined for step in steps])
                for step, batch in zip(steps, batches, strict=True):
                    assert slots_root(batch, LEAVES).hex() == step.slots
                    assert batch.tolist() == rows(step.step).tolist()
                steps = []
    assert seen == 2 * STEPS - 1  # all but the one step in which the first class has no numbers


def test_sketches_add_up_over_the_segment(calm: Path) -> None:
    first = next(entry for entry in entries(calm) if isinstance(entry, State))
    content = LedgerDirectory(calm / rundir.LEDGER).blob(first.blobs["sketches/open/bsd"].sha256)
    expected = sketches(0)[0] + sketches(1)[0] + sketches(2)[0]
    assert np.array_equal(decode_sketches(content, layers=2), expected)


def test_the_first_step_of_a_segment_that_names_a_table_carries_it(calm: Path) -> None:
    ledger = LedgerDirectory(calm / rundir.LEDGER)
    named = [(entry.step, entry.blobs.get("weights"), entry.weights) for entry in entries(calm) if type(entry) is Step]
    assert [step for step, blob, _ in named if blob] == [0, 3, 4, 6]
    for _, blob, digest in named:
        assert blob is None or (blob.sha256 == digest and ledger.blob(blob.sha256).startswith(b'{"classes"'))


@pytest.mark.parametrize("at", [0, 3, 6])
def test_what_is_executed_again_identically_is_not_appended_twice(calm: Path, run: Path, at: int) -> None:
    before = leaves(killed_after(run, 7))
    with open_journal(run) as journal:
        journal.begin(at, state(at))
        record(journal, at, STEPS)
        assert leaves(run) == before  # up to the last commit everything was known
        finish(journal, STEPS)
    assert leaves(run) == leaves(calm)
    assert LedgerDirectory(run / rundir.LEDGER).checkpoint() == LedgerDirectory(calm / rundir.LEDGER).checkpoint()
    assert files(run) == files(calm)


def files(run: Path) -> dict[str, bytes]:
    """The spool and the blobs."""
    found = [path for name in ("contributions", "entropy", "ledger/blobs") for path in (run / name).rglob("*")]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in found if path.is_file()}


def test_a_run_killed_before_its_first_commit_begins_anew(calm: Path, run: Path) -> None:
    killed_after(run, 2)
    assert leaves(run) == []
    with open_journal(run) as journal:
        journal.begin(0, state(0))
        record(journal, 0, STEPS)
        finish(journal, STEPS)
    assert leaves(run) == leaves(calm)


def test_the_first_difference_is_recorded_and_history_goes_on(
    calm: Path, run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The control of the comparison: one count in one step differs. What is on record of that step is written again."""
    before = leaves(killed_after(run, 7))
    with open_journal(run) as journal, caplog.at_level(logging.WARNING):
        journal.begin(3, state(3))
        record(journal, 3, 4)
        record_step(journal, 4, examples=(4, 3))
        record(journal, 5, STEPS)
        finish(journal, STEPS)
    assert "step 4 was executed again with another result" in caplog.text
    found = leaves(run)
    assert found[: len(before)] == before
    assert kinds(run)[len(before) :][:5] == [("decision", 4), ("profile", 4), ("decision", 4), ("step", 4), ("step", 5)]
    again = decode(found[len(before)])
    assert isinstance(again, Decision) and (again.action, again.rule, again.step) == ("re-execution", "other-bits", 4)
    assert check(run / rundir.LEDGER).ok
    assert check_sequence(map(read_head, found)).steps == STEPS
    latest = [each.leaf for each in History(run / rundir.LEDGER).entries()]
    assert len(latest) == len(leaves(calm))
    assert [a == b for a, b in zip(latest, leaves(calm), strict=True)].count(False) == 1


def test_a_second_re_execution_is_compared_with_the_latest(run: Path) -> None:
    killed_after(run, 7)
    with open_journal(run) as journal:
        journal.begin(3, state(3))
        record_step(journal, 3, examples=(4, 3))
        record(journal, 4, 6)
    before = leaves(run)
    with open_journal(run) as journal:  # from before the place where history was left
        journal.begin(0, state(0))
        record(journal, 0, 3)
        record_step(journal, 3, examples=(4, 3))
        record(journal, 4, 6)
    assert leaves(run) == before
    with open_journal(run) as journal:  # and now the first result again
        journal.begin(0, state(0))
        record(journal, 0, 6)
    assert [entry for entry in kinds(run)[len(before) :]] == [
        ("decision", 3),
        ("state", 3),
        *(("step", 3), ("profile", 4), ("decision", 4), ("step", 4), ("step", 5), ("state", 6)),
    ]
    assert check_sequence(map(read_head, leaves(run))).steps == 6


def test_another_state_at_the_end_of_a_segment_is_a_difference_too(run: Path) -> None:
    killed_after(run, 7)
    with open_journal(run) as journal:
        journal.begin(3, state(3))
        for step in (3, 4):
            record_step(journal, step)
        journal.step(5, rows=rows(5), examples=(3, 4), quarantined=1, updated=(True, True))
        journal.segment(6, state(6, salt=1))
    assert kinds(run)[-3:] == [("decision", 5), ("step", 5), ("state", 6)]


@pytest.mark.parametrize("again", ["alike", "differently"])
def test_a_finished_ledger_is_never_reopened(calm: Path, run: Path, again: str) -> None:
    shutil.copytree(calm / rundir.LEDGER, run / rundir.LEDGER)
    with open_journal(run) as journal:
        journal.begin(6, state(6))
        if again == "alike":
            record(journal, 6, STEPS)
            finish(journal, STEPS)
        else:
            with pytest.raises(LedgerError, match="finished, and executing it again gives another step entry"):
                record_step(journal, 6, examples=(4, 3))
    assert leaves(run) == leaves(calm)


def test_another_run_is_refused(run: Path) -> None:
    killed_after(run, 4)
    with pytest.raises(LedgerError, match="the ledger of another run"):
        open_journal(run, genesis=replace(GENESIS, seed=2))
    with pytest.raises(LedgerError):
        open_journal(run, seed=2)
    open_journal(run).close()  # both refusals gave the lock back


def test_a_checkpoint_that_the_ledger_does_not_know_is_refused(run: Path) -> None:
    killed_after(run, 4)
    with open_journal(run) as journal:
        with pytest.raises(LedgerError, match="records no state after 6 steps: it is another run's, or was rolled"):
            journal.begin(6, state(6))
        with pytest.raises(LedgerError, match="training continues from another state"):
            journal.begin(3, state(3, salt=1))


def test_a_run_without_its_secrets_is_refused(run: Path) -> None:
    killed_after(run, 4)
    destroy_salt(run / rundir.SECRETS, 1)
    with pytest.raises(ProvenanceError, match=r"the secret of class 'open/mit' was destroyed"):
        open_journal(run)
    (run / rundir.SECRETS).unlink()
    with pytest.raises(ProvenanceError, match="missing, and the ledger next to it was written with it"):
        open_journal(run)


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run"):
        path = tmp_path / "run" / rundir.SECRETS
        assert len(read_salts(path)) == len(CLASSES) + 1
        assert (path.stat().st_mode & 0o077, path.parent.stat().st_mode & 0o077) == (0, 0)


def test_secrets_of_other_classes_are_refused_and_the_lock_is_given_back(tmp_path: Path) -> None:
    more = replace(GENESIS, classes=(*CLASSES, "open"))
    open_journal(tmp_path / "run", genesis=more).close()
    with pytest.raises(ProvenanceError, match="4 secrets for 2 classes"):
        open_journal(tmp_path / "run")
    open_journal(tmp_path / "run", genesis=more).close()


def test_an_end_needs_every_step_in_a_segment(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run") as journal:
        journal.begin(0, state(0))
        record(journal, 0, 4)
        assert not journal.settled
        with pytest.raises(LedgerError, match="1 of them have no state entry yet"):
            journal.end(4, state(4), tensors=NO_TENSORS, metrics={})


def test_an_unknown_example_is_refused(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run") as journal:
        journal.begin(0, state(0))
        with pytest.raises(LedgerError, match="row 40 of a tag table of 40"):
            journal.step(0, rows=np.array([40]), examples=(1, 0), quarantined=0, updated=(True, True))


def test_entries_that_are_no_runs_are_refused(tmp_path: Path) -> None:
    with Log.create(tmp_path / "ledger", origin=signer().name, signer=signer()) as log:
        log.append([b"no entry"])
    with pytest.raises(LedgerError, match="the ledger of another run"):
        open_journal(tmp_path / "other" / "..")
    with pytest.raises(LedgerError, match="not JSON"):
        list(History(tmp_path / "ledger").entries())


def test_blobs_of_16_layers_and_8_classes_are_at_most_4_kilobytes_a_step() -> None:
    k, layers, batch = 8, 16, 128
    ones = np.ones((k, layers), np.float32)
    full = StepNumbers(
        classes=tuple(range(k)),
        weights=ones,
        norms=ones,
        dots=ones,
        gram=np.ones((layers, k, k), np.float32),
        updates=np.ones(layers, np.float32),
    )
    segment = Segment([f"class-{index}" for index in range(k)], first=0)
    for step in range(5):
        segment.add(RecordedStep(step=step, rows=np.arange(batch), examples=(16,) * k, numbers=full), None)
    assert sum(map(len, segment.blobs().values())) <= 5 * 4096


def test_what_is_recorded_has_a_root_that_follows_from_the_entries(calm: Path) -> None:
    found = LedgerDirectory(calm / rundir.LEDGER).checkpoint()
    assert merkle.root_of(map(merkle.leaf_hash, leaves(calm))) == found.root
    assert numbers(4).classes == (1,)

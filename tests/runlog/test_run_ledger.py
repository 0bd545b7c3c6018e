"""The ledger of a run, read: the latest execution counts, and damaged or missing parts are reported."""

from dataclasses import replace
from pathlib import Path

import pytest

from explorer import rundir
from explorer.entries.kinds import Decision, State, encode
from explorer.errors import LedgerError, RunError
from explorer.ledger.log import Log
from explorer.note import Signer
from explorer.runlog.run_ledger import RunLedger
from tests.audit.governed_run import CLASSES, LAYERS, sign_again, signer, write_governed_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"))


def test_steps_segments_and_ends(run: Path) -> None:
    found = RunLedger(run)
    assert (found.genesis.classes, found.genesis.layers, found.steps) == (CLASSES, LAYERS, 12)
    assert [placed.entry.step for placed in found.read_steps(range(3, 9))] == [3, 4, 5, 6, 7, 8]
    assert [(each.first, each.stop) for each in found.segments()] == [(0, 5), (5, 10), (10, 12)]
    assert [each.first for each in found.segments(range(4, 6))] == [0, 5]
    assert found.outline.end is not None and not found.outline.superseded


def again(step: int) -> bytes:
    return encode(
        Decision(
            step=step,
            action="re-execution",
            rule="other-bits",
            parameters={},
            condition=None,
            subjects=(),
            layers=(),
            evidence={},
            blobs={},
        )
    )


def test_a_state_that_is_recorded_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    """Only the state came out otherwise: the steps that it closes have the numbers that it names."""
    run = write_governed_run(tmp_path, steps=10, finished=False)
    before = RunLedger(run)
    step, index = before.outline.states[0]
    (old,) = before.read([index], State)
    new = replace(old.entry, state=replace(old.entry.state, buffers="0" * 64))
    with Log.open(run / rundir.LEDGER, signer=signer(run)) as log:
        log.append([again(step), encode(new)])
    (segment,) = RunLedger(run).segments()
    assert (segment.first, segment.stop, segment.state.entry) == (0, step, new)


def test_the_latest_execution_of_a_step_counts(tmp_path: Path) -> None:
    """A run that was executed again from its checkpoint at 5 differs in the first step after it."""
    run = write_governed_run(tmp_path, steps=10, finished=False)
    before = RunLedger(run)
    steps = [placed.entry for placed in before.read_steps(range(5, 8))]
    with Log.open(run / rundir.LEDGER, signer=signer(run)) as log:
        log.append([again(5), *(encode(replace(step, phase="again")) for step in steps)])
    found = RunLedger(run)
    assert found.steps == 8
    assert [placed.entry.phase == "again" for placed in found.read_steps(range(3, 8))] == [False] * 2 + [True] * 3
    assert [(each.first, each.stop) for each in found.segments()] == [(0, 5)], "the state that it began with stays"
    assert len(found.outline.profiles) == 1 and len(before.outline.profiles) == 2
    kept = [index for index in found.outline.decisions if index not in found.outline.superseded]
    assert [placed.entry.action for placed in found.read(kept, Decision)] == ["freeze", "re-execution"]
    assert len(found.outline.decisions) == 3, "what was undone is there to be seen"


def test_names_that_the_run_does_not_have(run: Path) -> None:
    found = RunLedger(run)
    assert (found.layer("head"), found.class_("open")) == (3, 1)
    with pytest.raises(LedgerError, match="unknown layer 'haed'; did you mean 'head'"):
        found.layer("haed")
    with pytest.raises(LedgerError, match="unknown class 'open/mti'; did you mean 'open/mit'"):
        found.class_("open/mti")
    for first, stop in ((0, 13), (5, 5), (-1, 3), (12, None)):
        with pytest.raises(LedgerError, match="on record are 0:12"):
            found.range_of(first, stop)
    assert found.range_of(None, None) == range(12)


def test_an_ungoverned_run_and_a_foreign_ledger(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no governed run: there is no directory 'ledger'"):
        RunLedger(tmp_path)
    with Log.create(tmp_path / "ledger", origin="example.com/run", signer=named("example.com/run")) as log:
        log.append([b"{}"])
    with pytest.raises(LedgerError, match="entry 0: entry: kind is missing"):
        RunLedger(tmp_path)


def test_entries_of_another_kind_shape_and_order(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    with pytest.raises(LedgerError, match="entry 1: found step, expected state v1"):
        list(RunLedger(run).read([1], State))
    sign_again(run, lambda index, entry: replace(entry, updated="1") if index == 2 else entry)  # pyright: ignore
    with pytest.raises(LedgerError, match="entry 2: 3 classes and 1 layers; the genesis has 3 and 4"):
        list(RunLedger(run).read_steps(range(0, 3)))
    sign_again(run, lambda index, entry: None if index == 2 else entry)
    with pytest.raises(LedgerError, match="entry 2: step 2, and 1 were done"):
        RunLedger(run)


def test_blobs_that_are_erased_too_large_or_damaged(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    found = RunLedger(run)
    (segment, *_) = found.segments()
    name = "numbers/open/mit"
    assert found.blob(segment.state, "numbers/nobody", max_bytes=1) is None
    assert found.blob(segment.state, name, max_bytes=1000)
    with pytest.raises(LedgerError, match=r"blob numbers/open/mit of \d+ bytes, at most 3"):
        found.blob(segment.state, name, max_bytes=3)
    digest = segment.state.entry.blobs[name].sha256
    path = run / rundir.LEDGER / "blobs" / "sha256" / digest[:2] / digest
    path.write_bytes(b"other")
    with pytest.raises(LedgerError, match="the blob is damaged"):
        found.blob(segment.state, name, max_bytes=1000)
    path.unlink()
    assert found.blob(segment.state, name, max_bytes=1000) is None


def named(origin: str) -> Signer:
    return replace(signer(Path("x")), name=origin)

"""Forensics: answers follow from the ledger, and state what the ledger has no more."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import rundir
from explorer.audit import trace as module
from explorer.audit.trace import trace, with_examples
from explorer.entries.kinds import Decision, Entry, State, Step
from explorer.entries.slots import encode_slots
from explorer.errors import LedgerError, ProvenanceError
from explorer.runlog.run_ledger import RunLedger
from tests.audit import governed_run as runs
from tests.audit.governed_run import CLASSES, LAYERS, MIT, NEWS, STEPS, sign_again, with_blob, write_governed_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"), exact=True)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("steps", [range(STEPS), range(4, 7)])
def test_examples_are_those_of_the_steps_that_admit_their_class(run: Path, layer: str, steps: range) -> None:
    ledger = RunLedger(run)
    found = with_examples(ledger, trace(ledger, layer=layer, steps=steps))
    assert found.participants is not None
    for each in found.participants:
        late = each.class_ == NEWS
        admitted = [step for step in steps if not late or (step >= 5 and layer in LAYERS[2:])]
        rows = [row for step in admitted for row in runs.rows_of(step).tolist() if runs.ROW_CLASSES[row] == each.class_]
        assert (set(each.examples), each.slots) == (set(rows), len(rows))
        assert list(each.examples) == sorted(each.examples)


def mit_rows(step: int) -> list[int]:
    return [row for row in runs.rows_of(step).tolist() if runs.ROW_CLASSES[row] == MIT]


def test_examples_that_were_not_chosen_took_no_part(tmp_path: Path) -> None:
    step = next(step for step in range(1, STEPS) if len(mit_rows(step)) == 3)
    rows = mit_rows(step)
    losses = np.array([np.nan, 1.0, 3.0], np.float32)  # nothing is harder than what is no number
    ledger = RunLedger(write_governed_run(tmp_path, losses={step: losses}))
    expected = {rows[0], rows[2]}
    found = with_examples(ledger, trace(ledger, class_=MIT, steps=range(step, step + 1)))
    assert found.participants is not None and set(found.participants[0].examples) == expected
    both = with_examples(ledger, trace(ledger, class_=MIT, steps=range(step - 1, step + 1)))
    assert both.participants is not None and set(both.participants[0].examples) == expected | {*mit_rows(step - 1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parameters": {}}, "not a selection by losses"),
        ({"parameters": {"keep": "nan"}}, "not a selection by losses"),
        ({"evidence": b"x"}, "not a selection by losses"),
        ({"evidence": bytes(400)}, "more losses than examples"),
    ],
)
def test_a_selection_that_is_none(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    run = write_governed_run(tmp_path, losses={0: np.zeros(len(mit_rows(0)), np.float32)})

    def lie(index: int, entry: Entry) -> Entry:
        if not isinstance(entry, Decision) or entry.action != "selection":
            return entry
        if "evidence" in change:
            return with_blob(run, entry, f"evidence/{MIT}", change["evidence"])
        return replace(entry, **change)

    sign_again(run, lie)
    ledger = RunLedger(run)
    with pytest.raises(LedgerError, match=message):
        with_examples(ledger, trace(ledger, class_=MIT))


def test_shares_over_time_and_of_the_update(run: Path) -> None:
    found = trace(RunLedger(run), class_=MIT)
    assert found.edges == (0, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12) and all(len(row.over_time) == 10 for row in found.rows)
    assert all(row.exact == pytest.approx(row.share, rel=1e-4) for row in found.rows), "descent alone moved them"
    assert found.check.segments == 3 and found.check.agrees


def test_many_steps_are_not_recomputed_unasked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECOMPUTED", 4)
    found = trace(RunLedger(run), layer="head")
    assert str(found.check) == "not compared with the ledger: none of 3 segments was recomputed"
    assert trace(RunLedger(run), layer="head", check=True).check.segments == 3


def test_what_was_erased_is_named(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    (segment, *_) = RunLedger(run).segments()
    digest = segment.state.entry.blobs[f"numbers/{MIT}"].sha256
    (run / rundir.LEDGER / "blobs" / "sha256" / digest[:2] / digest).unlink()
    found = with_examples(RunLedger(run), trace(RunLedger(run), layer="head"))
    assert found.check.segments == 2 and found.check.unread == (f"steps 0 to 4: not here: numbers/{MIT}",)
    assert found.participants is not None
    mit = found.participants[CLASSES.index(MIT)]
    assert mit.steps == STEPS, "which examples took part follows from what was admitted"


def test_a_run_that_measured_nothing_has_nothing_to_recompute(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)

    def without(index: int, entry: Entry) -> Entry:
        if isinstance(entry, Step):
            return replace(entry, numbers=(None,) * len(CLASSES), joint=None)
        kept = {name: blob for name, blob in entry.blobs.items() if name == "slots"}
        return replace(entry, blobs=kept) if isinstance(entry, State) else entry

    sign_again(run, without)
    for file in (run / rundir.CONTRIBUTIONS).iterdir():
        file.unlink()
    ledger = RunLedger(run)
    found = with_examples(ledger, trace(ledger, layer="head"))
    assert found.check.segments == 0 and found.check.unread[0] == "steps 0 to 4: nothing was measured"
    assert {row.share for row in found.rows} == {None}
    assert found.participants is not None and found.participants[0].steps == 7, "what was admitted took part"


def test_slots_that_are_not_those_of_the_root(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    (segment, *_) = RunLedger(run).segments()
    other = encode_slots(np.roll(runs.rows_of(step), 1) for step in segment.steps)
    sign_again(run, lambda i, e: with_blob(run, e, "slots", other) if i == segment.state.index else e)
    answer = trace(RunLedger(run), layer="head")
    with pytest.raises(LedgerError, match="the examples of step 0 do not lead to its root"):
        with_examples(RunLedger(run), answer)


def test_without_documents_the_class_of_an_example_is_unknown(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    (run / rundir.GOVERNANCE / "tags.json").unlink()
    answer = trace(RunLedger(run), layer="head")
    with pytest.raises(ProvenanceError, match=r"tags\.json"):
        with_examples(RunLedger(run), answer)


def test_the_checkpoint_to_replay_from(run: Path) -> None:
    kept = run / rundir.KEPT
    kept.mkdir(exist_ok=True)
    for name in ("step-00000005.json", "step-00000009.json", "step-x.json"):
        (kept / name).write_text("{}")
    note = trace(RunLedger(run), parameter="head.weight", steps=range(7, 9)).parameter
    assert note is not None and (note.layer, note.replay_from, note.replay_steps) == ("head", 5, 4)


def test_parameters_of_adapters_are_of_the_adapter(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, layers=("embed", "head", "head@customer"), steps=2)
    found = trace(RunLedger(run), parameter="head.@customer.down.weight")
    assert found.layer == "head@customer"


def test_a_spool_that_lacks_a_segment_is_not_added_up(run: Path, tmp_path: Path) -> None:
    """What is there would come to less than what was, and nobody would see it."""
    made = Path(shutil.copytree(run, tmp_path / run.name))
    (made / rundir.CONTRIBUTIONS / "segment-00000005.parquet").unlink()
    whole, lacking = trace(RunLedger(run), layer="head"), trace(RunLedger(made), layer="head")
    for row, other in zip(whole.rows, lacking.rows, strict=True):
        assert (row.steps, row.examples, row.admitted) == (other.steps, other.examples, other.admitted)
        assert other.share == pytest.approx(row.share, rel=1e-5) and other.projection == pytest.approx(row.projection)
    assert not lacking.check.agrees and "in the ledger, and not in the spool" in str(lacking.check)

"""Files to destroy: every file of the old run that the target is in, and no other."""

import hashlib
from pathlib import Path

import pytest

from explorer import rundir
from explorer.deletion.claims import artefacts
from explorer.entries.kinds import Entry, State
from explorer.ledger.storage import blob_path
from explorer.provenance.deletion_certificate import Artefact
from explorer.runlog.influence import reach
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from tests.audit.governed_run import NEWS, USUAL, executed_again, rewrite, with_blob
from tests.deletion import deleted_runs

KEPT = tuple(f"{rundir.KEPT}/step-0000000{step}.{end}" for step in (5, 6) for end in ("json", "safetensors"))
STRANGE = f"{rundir.CHECKPOINT}/step-strange.json"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A run with all that a directory can hold; its class comes in step 5."""
    run = deleted_runs.write_old(tmp_path, USUAL)
    for name in (*KEPT, STRANGE, "notebook.ipynb", "report.html"):
        rundir.write_bytes(run / name, name.encode())
    return run


def listed(old: Path, target: Target = deleted_runs.TARGET) -> list[Artefact]:
    run = RunLedger(old)
    return list(artefacts(run, reach(run, target)))


def paths(found: list[Artefact], what: str) -> list[str]:
    return [each.path for each in found if each.what == what]


def test_all_that_the_class_is_in(old: Path) -> None:
    found = listed(old)
    assert paths(found, "model") == ["model/model.safetensors"]
    assert paths(found, "checkpoint") == [STRANGE, *KEPT[2:]]  # the state before its first step may stay
    assert [(each.part, each.sha256) for each in found if each.what == "secret"] == [(NEWS, None), ("*", None)]
    assert paths(found, "notebook") == ["notebook.ipynb"]
    assert paths(found, "measurements") == ["metrics.jsonl", "report.html"]
    assert len(paths(found, "spool")) == 3
    for each in found:
        if each.sha256 is not None:
            assert hashlib.sha256((old / each.path).read_bytes()).hexdigest() == each.sha256


def test_numbers_are_those_that_the_ledger_names_for_the_class(old: Path) -> None:
    run = RunLedger(old)
    mine, others = set[str](), set[str]()
    for segment in run.segments():
        names = segment.state.entry.blobs
        for name, blob in names.items():
            of_target = name.endswith(f"/{NEWS}") or (name == "joint" and f"numbers/{NEWS}" in names)
            (mine if of_target else others).add(f"{rundir.LEDGER}/{blob_path(blob.sha256)}")
    assert {*paths(listed(old), "numbers")} == mine
    assert mine and others


def test_numbers_of_steps_that_were_executed_again_are_among_them(old: Path) -> None:
    other = b"what the first execution recorded"

    def first(entry: Entry) -> Entry:
        return with_blob(old, entry, f"numbers/{NEWS}", other) if isinstance(entry, State) else entry

    before = {*paths(listed(old), "numbers")}
    rewrite(old, lambda leaves: executed_again(leaves, first))
    written = f"{rundir.LEDGER}/{blob_path(hashlib.sha256(other).hexdigest())}"
    assert written not in before and {*paths(listed(old), "numbers")} == before | {written}


def test_numbers_of_a_class_that_others_are_left_in_stay(old: Path) -> None:
    found = listed(old, Target(records=(5,)))
    assert paths(found, "numbers") == paths(found, "secret") == []
    assert paths(found, "model") == ["model/model.safetensors"]


def test_links_are_not_followed(old: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.ipynb").write_text("{}")
    (old / "other.ipynb").symlink_to(tmp_path / "elsewhere.ipynb")
    assert paths(listed(old), "notebook") == ["notebook.ipynb"]

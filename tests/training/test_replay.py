"""A replay finds a recorded run as it is on record, and every change to the record or to the training."""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files, rundir
from explorer.engine.loop import Loop
from explorer.entries.heads import read_head
from explorer.entries.kinds import End, Entry, Genesis, State, Step, Traits, Unknown, decode, encode
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.provenance.commitments import destroy_salt
from explorer.run_files import RunRecord
from explorer.training.replay import INITIAL, replay
from tests.recipes_for_tests import tiny_recipe, tiny_run, write_run
from tests.training.recorded_runs import EVERY, STEPS, copied, entries_of, recorded_run, rewritten


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_run(tmp_path_factory.mktemp("recorded"))


def files(run: Path) -> dict[str, bytes]:
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_all_of_a_run_comes_out_as_it_is_on_record_and_nothing_is_written(run: Path) -> None:
    before = files(run)
    found = replay(run)
    assert found.equal and found.difference is None
    assert (found.first, found.last, found.start, found.source) == (0, STEPS, 0, INITIAL)
    assert found.environment == () and found.secrets_missing == ()
    heads = [read_head(leaf) for leaf in entries_of(run)]
    assert found.entries == len(heads) - 1  # the genesis is where it begins
    assert (found.steps, found.states) == (STEPS, 4)  # after 3 and 6 steps, before the late class at 4, at the end
    assert found.blobs == sum(len(head.blobs) for head in heads[1:]) > 20
    assert files(run) == before


def test_some_steps_are_replayed_from_the_checkpoint_before_them(run: Path) -> None:
    found = replay(run, steps=(5, 6))
    assert found.equal
    assert (found.start, found.source, found.steps) == (4, "the checkpoint of step 4", 2)
    assert replay(run, steps=(2, 3)).start == 0  # there is none before these


def test_a_damaged_checkpoint_costs_time_and_nothing_else(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = copied(run, tmp_path)
    (made / rundir.KEPT / "step-00000004.safetensors").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        found = replay(made, steps=(5, 6))
    assert found.equal and found.source == INITIAL and "going back" in caplog.text


def changed(run: Path, root: Path, index: int, change: dict) -> Path:
    """A copy of the run in which one entry says something else, under the trainer's signature."""

    def other(leaves: list[bytes]) -> list[bytes]:
        entry = decode(leaves[index])
        assert not isinstance(entry, Unknown)
        return [*leaves[:index], encode(replace(entry, **change)), *leaves[index + 1 :]]

    return rewritten(run, root, other)


def place(run: Path, kind: type[Entry], step: int) -> int:
    entries = [decode(leaf) for leaf in entries_of(run)]
    return next(at for at, entry in enumerate(entries) if isinstance(entry, kind) and entry.step == step)  # pyright: ignore


CHANGES = {
    "the examples of a class": (Step, 2, {"examples": (21, 22, 21)}, "examples."),
    "the slots": (Step, 2, {"slots": "a" * 64}, "slots"),
    "the numbers of a class": (Step, 5, {"numbers": ("b" * 64,) * 3}, "numbers.0"),
    "the numbers over classes": (Step, 5, {"joint": "c" * 64}, "joint"),
    "which layers were updated": (Step, 1, {"updated": "1" * 10}, "updated"),
    "the metrics": (End, STEPS, {"metrics": {"accuracy": "0x1.0000000000000p+0"}}, "metrics.accuracy"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_an_entry_that_was_changed_is_found(run: Path, tmp_path: Path, name: str) -> None:
    """The control: the ledger was rewritten by the holder of its key, so it verifies."""
    kind, step, change, field = CHANGES[name]
    index = place(run, kind, step)
    found = replay(changed(run, tmp_path, index, change))
    assert not found.equal and found.difference is not None
    difference = found.difference
    assert (difference.entry, difference.kind, difference.step) == (index, kind.KIND, step)
    assert difference.field.startswith(field) and difference.expected != difference.found


@pytest.mark.slow
def test_traits_and_strategy_are_those_of_the_code_that_trains(run: Path, tmp_path: Path) -> None:
    """Who says that nothing decides by probes, and that nothing was fitted, makes deletions look cheaper."""
    genesis = decode(entries_of(run)[0])
    assert isinstance(genesis, Genesis) and genesis.methods
    lies: dict[str, Any] = {
        "strategy": "fused",
        "methods": dict.fromkeys(genesis.methods, Traits(probes=True)),
        "fitted": {"tokeniser": "on everything"},
    }
    for name, value in lies.items():
        (tmp_path / name).mkdir()
        difference = replay(changed(run, tmp_path / name, 0, {name: value})).difference
        assert difference and (difference.entry, difference.field) == (0, name)
    (tmp_path / "older").mkdir()
    assert replay(changed(run, tmp_path / "older", 0, {"methods": None, "fitted": None})).equal


@pytest.mark.slow
def test_numbers_and_states_that_were_changed_are_found(run: Path, tmp_path: Path) -> None:
    index = place(run, State, EVERY)
    entry = decode(entries_of(run)[index])
    assert isinstance(entry, State)
    blobs = {**entry.blobs, "joint": replace(entry.blobs["joint"], sha256="d" * 64)}
    (tmp_path / "a").mkdir()
    difference = replay(changed(run, tmp_path / "a", index, {"blobs": blobs})).difference
    assert difference and (difference.entry, difference.field) == (index, "blobs.joint")
    (tmp_path / "b").mkdir()
    state = replace(entry.state, optimizer="e" * 64)
    difference = replay(changed(run, tmp_path / "b", index, {"state": state})).difference
    assert difference and (difference.entry, difference.field) == (index, "state.optimizer")


@pytest.mark.slow
def test_a_ledger_of_before_sketches_were_committed_to_is_replayed(run: Path, tmp_path: Path) -> None:
    index = place(run, State, EVERY)
    assert any(decode(entries_of(run)[index]).sketches)  # pyright: ignore
    assert replay(changed(run, tmp_path, index, {"sketches": ()})).equal
    (tmp_path / "other").mkdir()
    difference = replay(changed(run, tmp_path / "other", index, {"sketches": ("d" * 64,) * 3})).difference
    assert difference and (difference.entry, difference.field) == (index, "sketches.0")


def test_an_entry_that_was_left_out_is_found(run: Path, tmp_path: Path) -> None:
    index = next(at for at, leaf in enumerate(entries_of(run)) if read_head(leaf).kind == "profile")
    made = rewritten(run, tmp_path, lambda leaves: [*leaves[:index], *leaves[index + 1 :]])
    difference = replay(made).difference
    assert difference and difference.entry == index and difference.field == "blobs.joint"


def test_training_that_is_not_what_it_was_is_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Loop._factor
    monkeypatch.setattr(Loop, "_factor", lambda loop: usual(loop) * (1 + 1e-6 * (loop.state.step == 2)))
    difference = replay(run).difference
    assert difference and (difference.kind, difference.step) == ("step", 2)


def test_what_differs_here_is_said_first(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, step = copied(run, tmp_path), Loop.step
    environment = json.loads((made / rundir.ENVIRONMENT).read_text())
    environment["packages"]["torch"] = "2.11.0"
    rundir.write_json(made / rundir.ENVIRONMENT, environment)
    told: list[object] = []
    monkeypatch.setattr(Loop, "step", lambda loop: told.append("a step") or step(loop))
    found = replay(made, steps=(0, 1), on_environment=told.append)
    assert told == [found.environment, "a step"], "it was said first"
    ((what, recorded),) = [(each.what, each.recorded) for each in found.environment]
    assert (what, recorded) == ("packages.torch", "2.11.0") and found.equal


def test_a_run_of_another_machine_is_replayed_here(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = run_files.read(RunRecord, run / rundir.RUN).hardware
    monkeypatch.setattr("explorer.recipes.machine._cpu_name", lambda: "another processor")
    found = replay(run, steps=(0, 1))
    ((what, recorded, here),) = [(each.what, each.recorded, each.here) for each in found.environment]
    assert (what, recorded, here) == ("hardware.name", usual.name, "another processor") and found.equal


@pytest.mark.slow
def test_without_secrets_the_numbers_are_compared_by_their_blobs(run: Path, tmp_path: Path) -> None:
    made = copied(run, tmp_path)
    destroy_salt(made / rundir.SECRETS, 1)
    found = replay(made)
    assert found.equal and found.secrets_missing == ("open",)
    (made / rundir.SECRETS).unlink()
    found = replay(made)
    assert found.equal and found.secrets_missing == ("*", "licensed/news", "open", "open/mit")


def test_salts_may_have_moved(run: Path, tmp_path: Path) -> None:
    made, here = copied(run, tmp_path), tmp_path / "here"
    here.mkdir()
    (run.parent / "desk" / "salts").rename(here / "salts")
    try:
        with pytest.raises(ProvenanceError, match="salts"):
            replay(made, steps=(0, 1))
        assert replay(made, steps=(0, 1), private=here).equal
    finally:
        (here / "salts").rename(run.parent / "desk" / "salts")


def test_without_secrets_a_change_is_still_found(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = copied(run, tmp_path)
    (made / rundir.SECRETS).unlink()
    usual = Loop._factor
    monkeypatch.setattr(Loop, "_factor", lambda loop: usual(loop) * (1 + 1e-6 * (loop.state.step == 1)))
    difference = replay(made).difference
    assert difference and (difference.kind, difference.step) == ("state", 3)


def test_a_run_that_is_not_finished_is_replayed_as_far_as_it_goes(run: Path, tmp_path: Path) -> None:
    stop = place(run, State, 6) + 1
    made = rewritten(run, tmp_path, lambda leaves: leaves[:stop])
    found = replay(made)
    assert found.equal and (found.last, found.steps) == (6, 6)
    with pytest.raises(LedgerError, match=r"steps 0:7; expected a range within 0:6, which is on record"):
        replay(made, steps=(0, 7))


@pytest.mark.parametrize("steps", [(3, 3), (-1, 2), (5, 4), (0, 8)])
def test_steps_that_are_not_there_are_refused(run: Path, steps: tuple[int, int]) -> None:
    with pytest.raises(LedgerError, match="expected a range within 0:7"):
        replay(run, steps=steps)


def test_what_has_no_ledger_of_its_own_is_refused(run: Path, tmp_path: Path) -> None:
    plain = write_run(tmp_path, tiny_run(tiny_recipe()))
    with pytest.raises(RunError, match="has no ledger: its recipe has no 'recorder'"):
        replay(plain)
    left = copied(run, tmp_path / "left")
    shutil.rmtree(left / rundir.LEDGER)
    with pytest.raises(RunError, match="has no ledger: it was recorded, and is not here"):
        replay(left)
    (plain / rundir.LEDGER).symlink_to(run / rundir.LEDGER)
    with pytest.raises(LedgerError, match="not the ledger of run"):
        replay(plain)
    (plain / rundir.RUN).unlink()
    with pytest.raises(RunError, match="only its owner's code executes its steps"):
        replay(plain)

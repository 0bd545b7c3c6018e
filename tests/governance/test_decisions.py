"""Decisions and profiles in the ledger of a run: all of them, in their places, with numbers that open."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import rundir
from explorer.engine.checkpoint import load_checkpoint
from explorer.entries.entropy_profile import decode_class, decode_joint
from explorer.entries.kinds import Decision, Profile, Step, decode
from explorer.governance.entropy import Entropy
from explorer.governance.entropy_gate import EntropyGate
from explorer.governance.governed_freezing import GovernedFreezing
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.commitments import commit, read_salts
from explorer.provenance.encryption import reading_key, salt_of
from explorer.provenance.policy import Rule
from tests.governance.recorded import STEPS, Interrupted, governed, leaves_of, train
from tests.governance.tagged import CLASSES, routing
from tests.ledger.ledgers import check

NEWS, MIT = CLASSES
METHODS = (
    Entropy(profiles=3, probes=8, permutations=9),
    GovernedFreezing(start=0.25, settled=0.01, patience=1, drift=0.001, profiles=STEPS + 1, probes=8),
    GovernedSelectiveBackprop(start=0.5, keep=0.5),
    EntropyGate(condition="ready", of=MIT, effective_rank=1.0, layers="3", profiles=4, probes=8),
)
POLICY = routing(
    Rule(classes=("licensed",), condition="ready", progress=(0.25, 1.0), weight=1.0),
    Rule(classes=("open",), weight=1.0),
    conditions=("ready",),
)


def run(directory: Path, *methods: Any) -> Path:
    train(directory, governed([*METHODS, *methods], session={"routing": POLICY}))
    return directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("decisions") / "run")


def entries(directory: Path) -> list[Any]:
    return [decode(leaf) for leaf in leaves_of(directory)]


def decisions(directory: Path) -> list[Decision]:
    return [entry for entry in entries(directory) if isinstance(entry, Decision)]


def content(directory: Path, entry: Decision | Profile, name: str) -> bytes:
    """A blob of an entry, compared with its commitment in the entry."""
    found = LedgerDirectory(directory / rundir.LEDGER).blob(entry.blobs[name].sha256)
    path = name.partition("/")[2]
    secrets = read_salts(directory / rundir.PRIVATE / "secrets")
    place = CLASSES.index(path) if path else len(CLASSES)
    secret = secrets.of(place)
    assert secret is not None
    salt = salt_of(reading_key(secret, kind=entry.KIND, class_path=path or "*", first=entry.step), entry.step)
    named = entry.evidence if isinstance(entry, Decision) else {**entry.classes, "": entry.joint}
    assert commit(salt, found).hex() == named[path]
    return found


def test_every_decision_is_an_entry_of_a_ledger_that_verifies(whole: Path) -> None:
    assert check(whole / rundir.LEDGER).ok
    found = decisions(whole)
    assert {entry.action for entry in found} == {"activation", "freeze", "override", "selection"}
    (activation,) = [entry for entry in found if entry.action == "activation"]
    assert (activation.step, activation.subjects, list(activation.evidence)) == (0, (NEWS,), [MIT])
    assert activation.condition == "ready"


def test_decisions_stand_before_the_steps_that_they_are_about(whole: Path) -> None:
    steps = [entry.step for entry in entries(whole) if isinstance(entry, (Decision, Step))]
    assert steps == sorted(steps)
    place = {entry.step: at for at, entry in enumerate(entries(whole)) if isinstance(entry, Step)}
    for at, entry in enumerate(entries(whole)):
        if isinstance(entry, Decision):
            assert at < place[entry.step]


def test_the_numbers_behind_them_open_and_decide_the_same(whole: Path) -> None:
    for entry in decisions(whole):
        for path in entry.evidence:
            numbers = content(whole, entry, f"evidence/{path}")
            if entry.action == "override":
                then, now = np.frombuffer(numbers, "<f8").reshape(len(entry.layers), 2).T
                assert (np.abs(now - then) > float.fromhex(entry.parameters["drift"])).all()
            if entry.action == "freeze":
                history = np.frombuffer(numbers, "<f8").reshape(len(entry.layers), 2)
                assert (np.abs(np.diff(history)) <= float.fromhex(entry.parameters["settled"])).all()


def test_profiles_are_entries_with_numbers_that_open(whole: Path) -> None:
    found = [entry for entry in entries(whole) if isinstance(entry, Profile)]
    assert [entry.step for entry in found] == [0, 6, 12]
    for entry in found:
        for path in CLASSES:
            assert decode_class(content(whole, entry, f"numbers/{path}"), layers=4)[0] == 8
        assert decode_joint(content(whole, entry, "joint"), layers=4)[0] == 16
    assert sorted(path.name for path in (whole / rundir.ENTROPY).iterdir()) == [
        f"step-{step:08d}.parquet" for step in (0, 6, 12)
    ]


def test_an_interrupted_run_decides_the_same(whole: Path, tmp_path: Path) -> None:
    """Its secrets are others, and so are the commitments; everything else is what an undisturbed run says."""
    with pytest.raises(InterruptedError):
        run(tmp_path / "run", Interrupted(at=8))
    again = run(tmp_path / "run")
    assert check(again / rundir.LEDGER).ok

    def said(directory: Path) -> list[Any]:
        found = decisions(directory)
        return [(e.step, e.action, e.rule, e.subjects, e.layers, e.parameters, e.blobs) for e in found]

    assert said(again) == said(whole)
    assert not any(entry.action == "re-execution" for entry in decisions(again))


def test_before_a_gate_opens_a_checkpoint_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It opens after four steps, and the class comes in with the next: all before that is without it."""
    monkeypatch.setattr(EntropyGate, "before_step", lambda self, state: None)
    directory = run(tmp_path / "run")
    (activation,) = [entry for entry in decisions(directory) if entry.action == "activation"]
    assert activation.step == 4
    first = next(entry.step for entry in entries(directory) if isinstance(entry, Step) and entry.numbers[0])
    assert first == 4
    kept = load_checkpoint(directory / rundir.KEPT / "step-00000004.json", run_id="run")
    assert kept.tensors["memory/entropy_gate/on"], "and it knows that the gate is open"

"""Governed runs that begin with the steps of shorter ones: the records, and what is left of them after damage."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.audit.conditions import Outcome
from explorer.audit.conform import conform
from explorer.deletion.erase import of_classes
from explorer.engine.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from explorer.engine.fit import MODEL, model_digest
from explorer.entries.kinds import Decision, End, Step, Trunk, decode
from explorer.errors import RunError
from explorer.ledger.storage import LedgerDirectory
from explorer.provenance.commitments import destroy_salt
from explorer.provenance.policy import Rule
from explorer.provenance.regions import Examples
from explorer.provenance.trust import read_trust
from explorer.run_files import OF_A_RUN
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.same_steps import unlike_steps
from explorer.training import run as run_module
from explorer.training.branching import branch_step, why_not
from explorer.training.replay import replay
from tests.recipes_for_tests import tiny_recipe
from tests.sweep.governed_ladders import (
    BUDGETS,
    EVERY,
    FIRST,
    KILL_AT,
    KILLS,
    LOWER,
    PHASES,
    SHARED,
    SWITCHED,
    content,
    documents,
    execute,
    methods,
)
from tests.sweep.sweeps import ROOT, outcomes, results

SCHEDULE = {"wsd": {"warmup": 0.05}}
REASONS = {
    "phases": (PHASES, [], "rules[0] of the policy 'phases' holds for a share of the run, which depends on the length"),
    "conditions": (SWITCHED, [], "rules[0] of the policy 'switched' has a condition, and what switches it on depends"),
    "examples": (
        replace(LOWER, rules=(Rule(classes=("*",), examples=Examples(loss=(0.5, 1.0)), weight=1.0),)),
        [],
        "rules[0] of the policy 'lower' selects examples in each step, and only steps are shared",
    ),
    "profiles": (LOWER, ["entropy"], "the steps of entropy depend on the length"),
    "freezing": (LOWER, ["governed_freezing"], "the steps of governed_freezing depend on the length"),
}


# --- which recipes ---


@pytest.mark.parametrize("name", REASONS)
def test_a_governed_recipe_that_shares_nothing_says_why(name: str) -> None:
    policy, more, reason = REASONS[name]
    told = why_not(tiny_recipe(methods(policy.name, *more), schedule=SCHEDULE), policy)
    assert told is not None and told.startswith(reason), told


def test_states_are_left_where_segments_end() -> None:
    def step(every: int, steps: int) -> int | None:
        recipe = tiny_recipe([*methods()[:2], {"recorder": {"every": every}}], schedule=SCHEDULE)
        assert why_not(recipe, LOWER) is None
        return branch_step(recipe, LOWER, steps=steps, full_steps=100)

    plain = branch_step(tiny_recipe(schedule=SCHEDULE), None, steps=100, full_steps=100)
    assert plain == 81
    assert [step(every, 100) for every in (1, 2, 10, 80, 81, 82)] == [81, 80, 80, 80, 81, None]
    assert step(1, 5) is None  # all of it is warm-up


# --- the same records ---

RECIPES = {"routed": methods(), "closed": methods("closed", exact=True)}


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return documents(tmp_path_factory.mktemp("author") / "governed")


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory, author: Path) -> Path:
    """The sweep of all budgets."""
    directory = tmp_path_factory.mktemp("ladder")
    assert execute(directory, content(author, **RECIPES)).complete
    return directory / "runs" / "governed"


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory, author: Path) -> Path:
    """The same runs, each in a sweep of its own budget, where none can begin with another's steps; in one directory."""
    together = tmp_path_factory.mktemp("apart")
    for budget in BUDGETS:
        assert execute(together / f"{budget}", content(author, [budget], **RECIPES)).complete
        assert all(result.trunk is None for result in results(together / f"{budget}" / "runs", "governed").values())
        for run in rundir.run_directories(together / f"{budget}" / "runs" / "governed"):
            shutil.move(run, together / "governed" / run.name)
    return together / "governed"


def measured(sweep: Path) -> dict[str, Any]:
    """What must not depend on where the first steps were made."""
    return {
        run: ({name: value for name, value in metrics.items() if name not in OF_A_RUN}, state, lines)
        for run, (metrics, state, lines) in outcomes(sweep.parent, sweep.name).items()
    }


def entries(run: Path) -> list[Any]:
    return [decode(leaf) for leaf in LedgerDirectory(run / rundir.LEDGER).entries()]


def spool(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (run / rundir.CONTRIBUTIONS).iterdir()}


def commitments(run: Path) -> set[str]:
    steps = [entry for entry in entries(run) if isinstance(entry, Step)]
    return {committed for step in steps for committed in step.numbers if committed is not None}


def trunks(run: Path) -> list[Trunk]:
    return [entry for entry in entries(run) if isinstance(entry, Trunk)]


def longest(sweep: Path, recipe: str = "routed") -> Path:
    (run,) = sweep.glob(f"*-{recipe}-ssr1-*")
    return run


def conditions(run: Path) -> list[Any]:
    """All four, judged under the run's own trust file."""
    found = conform(RunLedger(run), trust=read_trust(run / rundir.GOVERNANCE / "trust.json"), now=int(time.time()))
    return list(found.conditions)


@pytest.mark.slow
def test_every_run_is_the_run_that_makes_all_its_steps(ladder: Path, apart: Path) -> None:
    assert measured(ladder) == measured(apart) and len(measured(ladder)) == 6
    begun = {result.steps: result.trunk and result.trunk.step for result in results(ladder.parent, "governed").values()}
    assert begun == {4: None, 7: 4, 14: 6}
    for run in rundir.run_directories(ladder):
        mine, alone = RunLedger(run), RunLedger(apart / run.name)
        assert list(unlike_steps(mine, alone, steps=mine.steps)) == []
        others = [entry for entry in entries(run) if not isinstance(entry, Trunk)]
        assert [(type(a), getattr(a, "step", 0)) for a in others] == [
            (type(a), getattr(a, "step", 0)) for a in entries(alone.run)
        ]
        ends = [entry for path in (run, alone.run) for entry in entries(path) if isinstance(entry, End)]
        assert ends[0] == ends[1]
        spools = [
            {path.name: path.read_bytes() for path in (of / "contributions").iterdir()} for of in (run, alone.run)
        ]
        assert spools[0] == spools[1]
        # Commitments have secrets of each run's own.
        numbers = [
            {c for e in entries(path) if isinstance(e, Step) for c in e.numbers if c} for path in (run, alone.run)
        ]
        assert numbers[0] and numbers[0].isdisjoint(numbers[1])


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_the_ledger_names_the_run_that_made_the_steps(ladder: Path, recipe: str) -> None:
    run = longest(ladder, recipe)
    (entry,) = trunks(run)
    (shorter,) = ladder.glob(f"*-{recipe}-ssr0.5-*")
    assert (entry.step, entry.run) == (6, shorter.name)
    for directory in rundir.run_directories(ladder):
        for condition in conditions(directory):
            assert condition.outcome is Outcome.HOLDS, condition
            assert not any("trunk" in note for note in condition.notes)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(0, 2), (3, 5), (5, 9), (8, 14), None])
def test_steps_before_and_after_are_replayed(ladder: Path, steps: tuple[int, int] | None) -> None:
    found = replay(longest(ladder, "closed"), steps=steps)
    assert found.equal, found.difference
    assert found.steps == (14 if steps is None else steps[1])


@pytest.mark.slow
def test_erasing_and_removing_the_other_run_changes_nothing(ladder: Path, tmp_path: Path) -> None:
    sweep = Path(shutil.copytree(ladder, tmp_path / "governed"))
    run = longest(sweep)
    shorter = sweep / trunks(run)[0].run
    planned = of_classes(RunLedger(shorter), [FIRST])
    assert any(run.name in words for words in planned.elsewhere)
    for digest in planned.blobs:
        (shorter / rundir.LEDGER / "blobs" / "sha256" / digest[:2] / digest).unlink()
    (shorter / rundir.SECRETS).unlink()
    assert all(condition.outcome is Outcome.HOLDS for condition in conditions(run))
    shutil.rmtree(shorter)
    found = conditions(run)
    assert all(condition.outcome is Outcome.HOLDS for condition in found)
    assert any("whose ledger is not here" in note for note in found[3].notes)
    assert replay(run, steps=(0, 3)).equal


# --- damage on the way ---


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory, author: Path) -> Path:
    """The directory of a sweep of which only the longest run is left, with the state that it can begin with."""
    directory, train = tmp_path_factory.mktemp("half"), run_module.fit

    def failing(loop: Any, options: Any) -> Any:
        if loop.setting.total_steps == 14:
            raise RunError("no luck")
        return train(loop, options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_module, "fit", failing)
        assert len(execute(directory, content(author)).failures) == 1
    return directory


@pytest.fixture
def copied(half: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(half, tmp_path / "copy"))


def shorter(sweep: Path) -> Path:
    (run,) = sweep.glob("*-routed-ssr0.5-*")
    return run


def other_weight(sweep: Path) -> None:
    """Another weight in the state, with all digests of the file and of the state as they have to be."""
    (path,) = (path for place in (sweep / rundir.TRUNKS).iterdir() for path in checkpoints(place))
    key = json.loads(path.read_text())["run_id"]
    left = load_checkpoint(path, run_id=key)
    tensors = {name: tensor + 1e-3 if name.endswith("head.weight") else tensor for name, tensor in left.tensors.items()}
    model = {name: tensor for name, tensor in tensors.items() if name.startswith(MODEL)}
    plain = {**left.plain, "state": model_digest(model)}
    save_checkpoint(path.parent, replace(left, tensors=tensors, plain=plain), run_id=key, keep=None)


def other_byte(sweep: Path) -> None:
    """Another count in an entry of the other run, under the hashes and the signature of the true one."""
    for path in (shorter(sweep) / rundir.LEDGER / "tile" / "entries").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes().replace(b'"quarantined":0', b'"quarantined":1', 1))


def numbers_gone(sweep: Path) -> None:
    shutil.rmtree(shorter(sweep) / rundir.LEDGER / "blobs")


def secrets_gone(sweep: Path) -> None:
    """Of a class; numbers that nothing binds are not taken over."""
    destroy_salt(shorter(sweep) / rundir.SECRETS, 0)


def removed(sweep: Path) -> None:
    shutil.rmtree(shorter(sweep))


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "another state": (other_weight, "is not the tensor that the checkpoint has"),
    "another entry": (other_byte, "entries have the root"),
    "no numbers": (numbers_gone, "entry 3: not here: "),
    "no secret": (secrets_gone, "the secret of simulated/class-00 is not here"),
    "no run": (removed, "there is no ledger of a run"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_what_cannot_be_taken_over_is_named_and_trained(
    copied: Path, author: Path, apart: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    damage, words = DAMAGES[name]
    sweep = copied / "runs" / "governed"
    damage(sweep)
    written = content(author)
    if name == "no run":  # it would be trained again
        written = {**written, "budgets": [0.25, 1.0]}
    with caplog.at_level(logging.WARNING):
        assert execute(copied, written).complete
    assert any(words in message for message in caplog.messages), caplog.messages
    run = longest(sweep)
    assert measured(sweep)[run.name] == measured(apart)[run.name]
    assert trunks(run) == [] and all(condition.outcome is Outcome.HOLDS for condition in conditions(run))


@pytest.mark.slow
@pytest.mark.parametrize("after", KILLS)
def test_killed_while_it_takes_steps_over_or_right_after(copied: Path, author: Path, apart: Path, after: str) -> None:
    command = [sys.executable, "-m", "tests.sweep.governed_ladders", str(copied), json.dumps(content(author)), after]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    run = longest(copied / "runs" / "governed")
    # Entries are written when their segment ends, so that of a step on its own nothing is left.
    assert RunLedger(run).steps == (KILL_AT * EVERY if after == "segment" else SHARED)
    before, named = list(LedgerDirectory(run / rundir.LEDGER).entries()), len(trunks(run))
    assert named == (0 if after == "segment" else 1) and not list(checkpoints(run / rundir.CHECKPOINT))
    assert execute(copied, content(author)).complete
    assert list(LedgerDirectory(run / rundir.LEDGER).entries())[: len(before)] == before
    assert [entry.step for entry in trunks(run)] == [SHARED]
    assert not any(isinstance(entry, Decision) for entry in entries(run))
    assert measured(run.parent) == {name: of for name, of in measured(apart).items() if "-routed-" in name}
    assert all(condition.outcome is Outcome.HOLDS for condition in conditions(run))
    assert list(unlike_steps(RunLedger(run), RunLedger(apart / run.name), steps=RunLedger(run).steps)) == []


@pytest.mark.slow
def test_killed_after_taking_over_and_without_the_state_it_makes_the_steps_itself(
    copied: Path, author: Path, apart: Path
) -> None:
    """What it had taken over stays on record, since the steps lead to the same."""
    command = [sys.executable, "-m", "tests.sweep.governed_ladders", str(copied), json.dumps(content(author)), "step"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    sweep = copied / "runs" / "governed"
    run = longest(sweep)
    before = list(LedgerDirectory(run / rundir.LEDGER).entries())
    shutil.rmtree(sweep / rundir.TRUNKS)
    assert execute(copied, content(author)).complete
    assert list(LedgerDirectory(run / rundir.LEDGER).entries())[: len(before)] == before
    result = next(of for of in results(sweep.parent, sweep.name).values() if of.steps == 14)
    assert result.trunk is None and len(trunks(run)) == 1
    assert not any(isinstance(entry, Decision) for entry in entries(run))
    assert measured(sweep)[run.name] == measured(apart)[run.name]
    assert all(condition.outcome is Outcome.HOLDS for condition in conditions(run))


@pytest.mark.slow
def test_with_several_workers_a_ledger_is_read_while_it_grows(tmp_path: Path, author: Path, apart: Path) -> None:
    assert execute(tmp_path, content(author, routed=methods()), workers=2).complete
    sweep = tmp_path / "runs" / "governed"
    assert measured(sweep) == {name: of for name, of in measured(apart).items() if "-routed-" in name}
    assert [entry.step for entry in trunks(longest(sweep))] == [6]

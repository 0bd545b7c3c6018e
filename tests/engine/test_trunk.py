"""Runs that begin with the steps of shorter ones: the bits and the records of the run that makes all its steps."""

import dataclasses
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from explorer import rundir
from explorer.engine import fit as fit_module
from explorer.engine.fit import AUTOMATIC, FitOptions, Fitted, fit
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import WSD, AdamWSpec
from explorer.engine.state import State
from explorer.engine.trunk import CHUNK, LOSSES, Measured, Shared
from explorer.errors import DivergedError
from explorer.methods.mixup import MixUp
from explorer.methods.sam import SAM
from tests.loop_for_tests import noise_loop, small_net

WARM = WSD(warmup=0.1, decay_share=0.25)
FULL = 20
LADDER = (10, 20, 32)  # total steps; their decays begin at 8, 16 and 25
KINDS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "adamw, bf16": lambda: {"optimizer": AdamWSpec(lr=0.01, weight_decay=0.1), "precision": "bf16"},
    "group norm, microbatches": lambda: {"model": small_net("group"), "microbatch_size": 3},
    "sam and mixup": lambda: {"methods": [SAM(interval=2), MixUp(alpha=0.5)]},
}


def loop_of(total: int, kind: str = "plain", **setting: Any) -> Loop:
    return noise_loop(total_steps=total, schedule=WARM, **KINDS[kind](), **{"full_steps": FULL, **setting})


def place_of(root: Path, total: int, *, longer: tuple[int, ...] | None = None, key: str = "k") -> Shared:
    step = WARM.branch_step(total_steps=total, full_steps=FULL)
    assert step is not None
    rest = tuple(other for other in LADDER if other > total) if longer is None else longer
    return Shared(place=root / "trunk", key=key, step=step, longer=rest)


def trained(loop: Loop, directory: Path, shared: Shared | None = None, **options: Any) -> Fitted:
    directory.mkdir(exist_ok=True, parents=True)
    return fit(
        loop,
        FitOptions(directory=directory, run_id=directory.name, shared=shared, **{"evaluations": 4, **options}),
    )


def climb(root: Path, kind: str = "plain", *, to: int = LADDER[-1], **options: Any) -> dict[int, tuple[Loop, Fitted]]:
    """Train the ladder, each run from what the one before it left."""
    rungs = {}
    for total in (total for total in LADDER if total <= to):
        loop = loop_of(total, kind)
        rungs[total] = loop, trained(loop, root / str(total), place_of(root, total), **options)
    return rungs


def assert_the_same(root: Path, total: int, loop: Loop, fitted: Fitted, kind: str = "plain") -> None:
    """Everything that the run trains, measures and reports is that of the run that makes all its steps."""
    whole = loop_of(total, kind)
    expected = trained(whole, root / "separate" / str(total))
    assert (fitted.state_digest, fitted.metrics) == (expected.state_digest, expected.metrics)
    ours, theirs = loop.tensors(), whole.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    records = [(place / rundir.METRICS).read_bytes() for place in (root / str(total), root / "separate" / str(total))]
    assert records[0] == records[1]


@pytest.mark.parametrize("kind", KINDS)
def test_every_run_of_a_ladder_is_the_run_that_makes_all_its_steps(kind: str, tmp_path: Path) -> None:
    rungs = climb(tmp_path, kind)
    for total, (loop, fitted) in rungs.items():
        assert_the_same(tmp_path, total, loop, fitted, kind)
    trunks = [fitted.trunk for _, fitted in rungs.values()]
    assert trunks[0] is None
    assert [(trunk.run, trunk.step) for trunk in trunks[1:] if trunk] == [("10", 8), ("20", 16)]
    assert [fitted.timed_steps for _, fitted in rungs.values()] == [10, 20 - 8, 32 - 16]


def test_the_longest_run_leaves_nothing_and_the_others_one_state(tmp_path: Path) -> None:
    climb(tmp_path)
    assert sorted(path.name for path in (tmp_path / "trunk").glob("*.json")) == [
        "step-00000008.json",
        "step-00000016.json",
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Looking(Method):
    """A method that looks at the length, as none may that branches."""

    name: ClassVar[str] = "looking"
    kind: ClassVar[Kind] = Kind.GRADIENT

    def change_gradients(self, state: State) -> None:
        state.gradients = {name: g * (1 - state.progress / 2) for name, g in state.gradients.items()}


def test_a_method_that_looks_at_the_length_would_end_with_other_bits(tmp_path: Path) -> None:
    """The control: the bits of the others are no accident of a state that decides nothing."""

    def looking(total: int) -> Loop:
        return noise_loop(total_steps=total, full_steps=FULL, schedule=WARM, methods=[Looking()])

    trained(looking(10), tmp_path / "10", place_of(tmp_path, 10))
    forced, whole = trained(looking(20), tmp_path / "20", place_of(tmp_path, 20)), looking(20)
    assert forced.trunk is not None
    assert forced.state_digest != trained(whole, tmp_path / "separate").state_digest


# --- interrupted ---


class Killed(BaseException):
    """The end of a process: nothing of it runs on."""


def killed(loop: Loop, directory: Path, shared: Shared, *, at: int, **options: Any) -> None:
    """Train until a step has ended, with a checkpoint after every step, and then no more."""

    def die(done: int, _: int) -> None:
        if done == at:
            raise Killed

    with pytest.raises(Killed):
        trained(loop, directory, shared, on_progress=die, checkpoint_seconds=0.0, **options)


@pytest.mark.slow
@pytest.mark.parametrize("saved", [True, False], ids=["checkpoints", "no checkpoint"])
@pytest.mark.parametrize("at", [1, 9, 15, 16, 17, 19])
def test_killed_at_any_step_and_resumed(at: int, saved: bool, tmp_path: Path) -> None:
    """In the steps before its trunk's state, between that and its own, where it leaves its own, and in its decay."""
    if at >= 8:
        climb(tmp_path, to=10)
    directory, shared = tmp_path / "20", place_of(tmp_path, 20)
    if saved:
        killed(loop_of(20), directory, shared, at=at)
    else:
        with pytest.raises(Killed):
            trained(loop_of(20), directory, shared, on_progress=lambda done, _: _die(done == at))
    loop = loop_of(20)
    fitted = trained(loop, directory, shared)
    assert fitted.resumed == saved
    assert_the_same(tmp_path, 20, loop, fitted)
    # What it leaves is as good as that of a run that nothing disturbed.
    longer = loop_of(32)
    assert_the_same(tmp_path, 32, longer, after := trained(longer, tmp_path / "32", place_of(tmp_path, 32)))
    assert after.trunk is not None and after.trunk.step == 16


def _die(now: bool) -> None:
    if now:
        raise Killed


@pytest.mark.parametrize("suffix", [".safetensors", ".json"])
def test_killed_while_it_leaves_its_state(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before either of the two files has its name: no reader takes half of it for a state."""
    write = rundir.write_bytes

    def dying(path: Path, content: bytes) -> None:
        if path.parent.name == "trunk" and path.suffix == suffix:
            path.parent.mkdir(exist_ok=True)
            path.with_name(f".{path.name}.1.tmp").write_bytes(content[: len(content) // 2])
            raise Killed
        write(path, content)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(rundir, "write_bytes", dying)
        trained(loop_of(10), tmp_path / "10", place_of(tmp_path, 10))
    assert not list((tmp_path / "trunk").glob("*.json"))
    early = trained(loop_of(20), tmp_path / "early/20", place_of(tmp_path, 20, longer=()))
    assert early.trunk is None
    loop = loop_of(10)
    assert_the_same(tmp_path, 10, loop, trained(loop, tmp_path / "10", place_of(tmp_path, 10)))
    loop = loop_of(20)
    assert_the_same(tmp_path, 20, loop, after := trained(loop, tmp_path / "20", place_of(tmp_path, 20)))
    assert after.trunk is not None


# --- damaged ---


def damage_tensors(trunk: Path) -> None:
    path = trunk / "step-00000016.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def damage_record(trunk: Path) -> None:
    path = trunk / "step-00000016.json"
    path.write_text(path.read_text().replace('"accuracy"', '"accuracies"', 1))


def lose_tensors(trunk: Path) -> None:
    (trunk / "step-00000016.safetensors").unlink()


def rename(trunk: Path) -> None:
    for suffix in (".json", ".safetensors"):
        (trunk / f"step-00000008{suffix}").rename(trunk / f"step-00000016{suffix}")


def of_another_code(trunk: Path) -> None:
    for total in (10, 20):
        trained(loop_of(total), trunk.parent / f"other{total}", place_of(trunk.parent, total, key="other"))


def with_another_state(trunk: Path) -> None:
    """Every digest of the files is right, but the state is not the one that it says it is."""
    loop = loop_of(20)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fit_module, "model_digest", lambda tensors: "0" * 64)
        trained(loop, trunk.parent / "liar", dataclasses.replace(place_of(trunk.parent, 20), place=trunk))


def short_of_losses(trunk: Path) -> None:
    tensors = Measured.tensors
    for path in trunk.glob("step-00000016*"):
        path.unlink()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Measured, "tensors", lambda self: {name: t[:-1] for name, t in tensors(self).items()})
        trained(loop_of(20), trunk.parent / "liar", place_of(trunk.parent, 20))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "words", "left"),
    [
        (damage_tensors, "its tensors do not have the recorded digest", 8),
        (damage_record, "it does not have the digest that it names", 8),
        (lose_tensors, "step-00000016", 8),
        (rename, "step 8, expected 16", None),
        (of_another_code, "of run other, not of k", None),
        (with_another_state, "digest ", 8),
        (short_of_losses, LOSSES, 8),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_state_that_is_not_whole_is_said_and_its_steps_are_made(
    damage: Callable[[Path], None],
    words: str,
    left: int | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    climb(tmp_path, to=20)
    damage(tmp_path / "trunk")
    loop = loop_of(32)
    with caplog.at_level(logging.WARNING):
        fitted = trained(loop, tmp_path / "32", place_of(tmp_path, 32))
    assert words in caplog.text
    assert (fitted.trunk and fitted.trunk.step) == left
    assert_the_same(tmp_path, 32, loop, fitted)


def test_a_run_stopped_before_longer_ones_were_planned_leaves_nothing(tmp_path: Path) -> None:
    """It has not kept what its first steps measured."""
    killed(loop_of(10), tmp_path / "10", place_of(tmp_path, 10, longer=()), at=5)
    loop = loop_of(10)
    assert_the_same(tmp_path, 10, loop, trained(loop, tmp_path / "10", place_of(tmp_path, 10)))
    assert not (tmp_path / "trunk").exists()


# --- records ---


def test_automatic_evaluations_of_longer_runs_are_made_in_the_trunk(tmp_path: Path) -> None:
    """They are measured for the longer run, and are none of the shorter one's records."""
    rungs = climb(tmp_path, evaluations=AUTOMATIC)
    lines = {
        total: [json.loads(line) for line in (tmp_path / str(total) / rundir.METRICS).read_text().splitlines()]
        for total in rungs
    }
    for total, run in lines.items():
        places = {round(total * place / 10) for place in range(1, 11)}
        evaluated = [line["step"] for line in run if line["metric"] == "accuracy"]
        assert evaluated[-1] == total and set(evaluated) <= places
        assert [line["step"] for line in run if line["metric"] == "train_loss"] == list(range(1, total + 1))
        assert evaluated == sorted(evaluated)


def test_many_losses_are_exact() -> None:
    measured = Measured()
    losses = torch.rand(2 * CHUNK + 7)
    for at, loss in enumerate(losses):
        measured.add(loss, 0.1 / (at + 1))
    assert len(measured) == len(losses)
    assert list(measured.steps()) == [(at + 1, float(loss), 0.1 / (at + 1)) for at, loss in enumerate(losses)]
    assert [*measured.steps()] == [*measured.steps()]


def test_a_run_that_diverged_leaves_no_state(tmp_path: Path) -> None:
    loop = loop_of(10, optimizer=dataclasses.replace(loop_of(10).setting.optimizer, lr=1e20))
    with pytest.raises(DivergedError):
        trained(loop, tmp_path / "10", dataclasses.replace(place_of(tmp_path, 10), step=9))
    assert not (tmp_path / "trunk").exists()

"""Real models on digits, measured: what a deletion leaves is the model that never had the class; nothing else is."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from explorer import rundir
from explorer.analysis.forgetting import judge, reference, same
from explorer.errors import LedgerError, RunError
from explorer.runlog.forecast import forecast
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import resolve
from explorer.training.deletion import delete
from explorer.training.forgetting_evidence import Behaviour, Bench, finished
from tests.training.evidence_runs import TARGET, Desk

LONG = 1.5  # epochs: long enough for the class to be known


class Scene:
    """A run, and three that never had the class."""

    def __init__(self, root: Path) -> None:
        self.desk = Desk(root)
        self.run = self.desk.run("late", epochs=LONG)
        self.retrained = [self.desk.run("late", seed=seed, without=[TARGET], epochs=LONG) for seed in (0, 1, 2)]
        self.bench = bench(self.run)
        self.references = [self.bench.without(each) for each in self.retrained]


def bench(run: Path) -> Bench:
    return Bench(run, resolve(RunLedger(run), class_=TARGET))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("evidence"))


@pytest.fixture(scope="module")
def sealed(scene: Scene) -> tuple[Bench, Path, Path]:
    """A run in which the class has a region of its own, and the one that never had it."""
    run = scene.desk.run("sealed")
    return bench(run), run, scene.desk.run("sealed", without=[TARGET])


def left_of(run: Path, to: Path, *, level: str) -> Path:
    """What deleting the class leaves."""
    target = resolve(RunLedger(run), class_=TARGET)
    route = forecast(RunLedger(run), target).route
    assert route.level == level
    return delete(run, target, route=route, to=to)


@pytest.mark.slow
def test_the_run_is_told_from_those_that_never_had_the_class(scene: Scene) -> None:
    found, beside = judge(scene.bench.whole(), scene.references), reference(scene.references)
    assert found.target < beside.target.least and found.relearned == 0
    assert found.membership.low > 0.9 and not beside.auc.expects(found.membership.auc)
    assert all((each.relearned or 0) > 0 for each in scene.references)


@pytest.mark.slow
def test_what_a_replay_leaves_is_equal_to_its_reference_and_the_run_is_not(scene: Scene, tmp_path: Path) -> None:
    """G3. Not close: all numbers are the same."""
    found = scene.bench.without(left_of(scene.run, tmp_path, level="G3"))
    assert same(found, scene.references[0]) and judge(found, scene.references).same is True
    assert judge(scene.bench.whole(), scene.references).same is False
    assert judge(scene.bench.ablated(), scene.references).same is False


@pytest.mark.slow
def test_what_dropping_a_region_leaves_is_equal_to_its_reference(
    sealed: tuple[Bench, Path, Path], tmp_path: Path
) -> None:
    """G2; its file has no tensor of the region."""
    measured, run, retrained = sealed
    left = left_of(run, tmp_path, level="G2")
    assert not any("@own" in name for name in finished(left)) and any("@own" in name for name in finished(run))
    assert same(measured.without(left), measured.without(retrained))
    assert not same(measured.whole(), measured.without(retrained))


@pytest.mark.slow
def test_putting_layers_back_is_no_deletion(scene: Scene) -> None:
    """The class trained every layer, in the second half: what others learned then is gone with it."""
    localised, twin = scene.bench.ablated(), scene.references[0]
    assert localised.target_N.mean() > scene.bench.whole().target_N.mean()
    assert localised.others_M.mean() > 1.1 * twin.others_M.mean()


def test_putting_layers_back_takes_the_checkpoint_before_the_class(scene: Scene, tmp_path: Path) -> None:
    run = tmp_path / scene.run.name
    shutil.copytree(scene.run, run)
    (checkpoint,) = (run / rundir.KEPT).glob("*.safetensors")
    before = load_file(checkpoint)
    measured = bench(run)
    measured._put({name.removeprefix("model/"): each for name, each in before.items() if name.startswith("model/")})
    assert np.array_equal(measured._losses(measured._others), scene.bench.ablated().others_M)
    checkpoint.unlink()
    with pytest.raises(RunError, match="the checkpoint of step 11, before the first one of the target, is not here"):
        measured.ablated()


def test_a_sealed_class_is_gone_with_its_region_exactly(sealed: tuple[Bench, Path, Path]) -> None:
    measured, _, retrained = sealed
    twin = measured.without(retrained)
    assert measured.sealed
    assert same(measured.switched_off(), twin)
    assert same(measured.ablated(), twin)


def test_only_with_its_region_on_the_class_is_known(sealed: tuple[Bench, Path, Path]) -> None:
    """The control: the equality above is not for want of anything learned."""
    measured, *_ = sealed
    on, off = measured.whole(), measured.switched_off()
    assert on.target_N.mean() < off.target_N.mean()
    assert np.array_equal(on.others_M, off.others_M) and on.quality == off.quality


def test_a_class_without_a_region_has_nothing_to_switch_off(scene: Scene) -> None:
    assert not scene.bench.sealed
    assert np.array_equal(scene.bench.whole().target_N, scene.bench.switched_off().target_N)


def test_gibberish_forgets_and_retains_nothing(scene: Scene) -> None:
    """It passes every test of forgetting. That of retaining is the one that tells."""
    noise = {
        name: torch.randn_like(each) if each.is_floating_point() else each for name, each in finished(scene.run).items()
    }
    found: Behaviour = scene.bench._measured(noise, seed=9)
    judged, beside = judge(found, scene.references), reference(scene.references)
    assert judged.target > scene.bench.whole().target_N.mean() and judged.membership.high < 0.9
    assert not beside.others.expects(judged.others) and judged.others > beside.others.most


def test_measuring_leaves_no_trace(scene: Scene) -> None:
    first = scene.bench.without(scene.retrained[0])
    scene.bench.ablated()
    assert same(scene.bench.without(scene.retrained[0]), first)


def test_what_is_no_reference(scene: Scene) -> None:
    with pytest.raises(RunError, match="its recipe is not that run's with the target left out"):
        scene.bench.without(scene.run)
    with pytest.raises(RunError, match="its recipe is not"):
        scene.bench.without(scene.desk.run("late", seed=3, without=["simulated/class-01"]))


def test_somebody_has_to_be_left(scene: Scene) -> None:
    everybody = resolve(RunLedger(scene.run), class_="simulated")
    with pytest.raises(RunError, match="all that the run was trained on; expected others to retain"):
        Bench(scene.run, everybody)


def test_a_model_that_the_run_did_not_end_with(scene: Scene, tmp_path: Path) -> None:
    run = tmp_path / scene.run.name
    shutil.copytree(scene.run, run)
    path = run / "model" / "model.safetensors"
    tensors = load_file(path)
    name = next(iter(tensors))
    save_file({**tensors, name: tensors[name] + 1}, path)
    with pytest.raises(LedgerError, match=f"not the model that the run ended with: {name}"):
        bench(run)
    path.unlink()
    with pytest.raises(RunError, match="no finished model"):
        bench(run)

"""The battery that every method in the table passes."""

from itertools import combinations
from pathlib import Path

import pytest
import torch
from torch import Tensor

from explorer import rundir
from explorer.engine.fit import FitOptions, Fitted, fit
from explorer.engine.loop import Loop
from explorer.engine.method import Method, used_hooks
from explorer.errors import RecipeError
from explorer.methods import METHODS
from explorer.recipes.choice import written
from explorer.recipes.run import build_loop
from tests.recipes_for_tests import tiny_recipe, tiny_run

# Settings under which a method acts in every part of a seven-step run.
ACTIVE: dict[str, dict] = {
    "ema": {"half_life": 0.2, "every": 2},
    "gradient_clipping": {"max_norm": 0.1},
    "layer_freezing": {"start": 0.2, "level": 0.9},
    "progressive_resizing": {"delay": 0.3, "finetune": 0.3, "increment": 2},
    "sam": {"rho": 0.5, "interval": 2},
}
NO_NEUTRAL = {"blurpool", "channels_last"}
NAMES = sorted(METHODS)
PAIRS = list(combinations(NAMES, 2))


def active(name: str) -> dict:
    return {name: ACTIVE.get(name, {})}


def make_loop(methods: list[dict]) -> Loop:
    return build_loop(tiny_run(tiny_recipe(methods)), data=None)


def everything(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loop.tensors().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different


def run_to_end(loop: Loop, directory: Path, **options: object) -> Fitted:
    directory.mkdir(exist_ok=True)
    return fit(loop, FitOptions(directory=directory, run_id="r", **options))  # pyright: ignore


def interrupted(methods: list[dict], directory: Path, at: int) -> tuple[Loop, Fitted]:
    """Stop after `at` steps, forget everything in memory, go on from the directory alone."""
    first = make_loop(methods)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(first, directory, stop=lambda: first.state.step >= at)
    second = make_loop(methods)
    return second, run_to_end(second, directory)


@pytest.mark.parametrize("name", NAMES)
def test_trains(name: str, tmp_path: Path) -> None:
    recipe = tiny_recipe([active(name)], epochs=4)
    loop = build_loop(tiny_run(recipe), data=None)
    losses = [float(loop.step()) for _ in range(loop.setting.total_steps)]
    assert sum(losses[-5:]) / 5 < 0.9 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_changes_the_run(name: str) -> None:
    """The control of the neutral test: at full strength the bits differ."""
    with_it, plain = make_loop([active(name)]), make_loop([])
    for _ in range(plain.setting.total_steps):
        with_it.step()
        plain.step()
    with_it.call("after_fit")
    ours = {k: v for k, v in with_it.tensors().items() if k.startswith("model/") and "blur_filter" not in k}
    theirs = {k: v for k, v in plain.tensors().items() if k.startswith("model/")}
    assert ours.keys() == theirs.keys()
    assert any(not torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("name", NAMES)
def test_resumes_bit_identically_after_every_step(name: str, tmp_path: Path) -> None:
    whole = make_loop([active(name)])
    expected = run_to_end(whole, tmp_path / "whole", evaluations=3)
    metrics = (tmp_path / "whole" / rundir.METRICS).read_bytes()
    for at in range(1, whole.setting.total_steps + 1):
        directory = tmp_path / str(at)
        first = make_loop([active(name)])
        with pytest.raises(KeyboardInterrupt):
            run_to_end(first, directory, evaluations=3, stop=lambda loop=first, at=at: loop.state.step >= at)
        with (directory / rundir.METRICS).open("ab") as file:
            file.write(b'{"step": 99, "metric": "written after the checkpoint"')
        loop = make_loop([active(name)])
        result = run_to_end(loop, directory, evaluations=3)
        assert_same(everything(loop), everything(whole))
        assert result.metrics == expected.metrics
        assert result.state_digest == expected.state_digest
        assert result.resumed == 1
        assert (directory / rundir.METRICS).read_bytes() == metrics


@pytest.mark.parametrize("name", NAMES)
def test_forgetting_part_of_the_state_is_noticed(name: str, tmp_path: Path) -> None:
    """The control of the resume test: a checkpoint without the optimiser's momentum gives another run."""
    whole, resumed = make_loop([active(name)]), make_loop([active(name)])
    for _ in range(4):
        whole.step()
    tensors = {k: v for k, v in everything(whole).items() if not k.startswith("optimizer/")}
    resumed.restore(tensors, step=4)
    whole.step()
    resumed.step()
    assert not torch.equal(whole.tensors()["model/head.weight"], resumed.tensors()["model/head.weight"])


@pytest.mark.parametrize("name", NAMES)
def test_neutral_is_the_plain_run(name: str) -> None:
    method = METHODS[name]().neutral()
    assert (method is None) == (name in NO_NEUTRAL)
    if method is None:
        return
    with_it, plain = make_loop([written(method)]), make_loop([])
    for _ in range(plain.setting.total_steps):
        assert float(with_it.step()) == float(plain.step())
    with_it.call("after_fit")
    mine = {k: v for k, v in everything(with_it).items() if not k.startswith("memory/")}
    assert_same(mine, everything(plain))


@pytest.mark.parametrize("pair", PAIRS, ids="+".join)
def test_every_pair_composes_or_is_refused_by_name(pair: tuple[str, str], tmp_path: Path) -> None:
    one, other = (active(name) for name in pair)
    reason = METHODS[pair[0]].conflicts_with.get(pair[1]) or METHODS[pair[1]].conflicts_with.get(pair[0])
    if reason:
        with pytest.raises(RecipeError, match=f"{pair[0]}.*{pair[1]}"):
            tiny_recipe([one, other])
        return
    whole = make_loop([one, other])
    expected = run_to_end(whole, tmp_path / "whole")
    resumed, result = interrupted([other, one], tmp_path / "resumed", at=3)
    assert_same(everything(resumed), everything(whole))
    assert result.metrics == expected.metrics


@pytest.mark.parametrize("name", NAMES)
def test_declares_itself(name: str) -> None:
    method: type[Method] = METHODS[name]
    assert method.name == name
    assert method.summary.endswith(".")
    assert method.source
    assert used_hooks(method), "a method without a hook does nothing"
    assert set(method.conflicts_with).isdisjoint({name})
    assert "__dict__" not in dir(method()), "methods are slotted: a misspelt field is an error"


@pytest.mark.parametrize("name", NAMES)
def test_leaves_the_global_generators_alone(name: str) -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    loop = make_loop([active(name)])
    for _ in range(3):
        loop.step()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", NAMES)
def test_does_not_change_the_order_of_the_data(name: str) -> None:
    with_it, plain = make_loop([active(name)]), make_loop([])
    for step in range(5):
        assert (with_it.setting.batches.indices(step) == plain.setting.batches.indices(step)).all()

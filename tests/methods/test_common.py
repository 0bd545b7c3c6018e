"""The battery that every method in the table passes."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from explorer import rundir
from explorer.data.batches import Batch
from explorer.engine.fit import FitOptions, Fitted, fit
from explorer.engine.loop import Loop
from explorer.engine.method import Method, ordered, used_hooks
from explorer.errors import RecipeError
from explorer.methods import METHODS
from explorer.recipes.catalogue import describe
from explorer.recipes.choice import choose, written
from explorer.training.run_plan import total_steps
from tests.methods.samples import SAMPLES, STEPS, active, sample_loop, sample_recipe, task_of

NAMES = sorted(METHODS)
ELSEWHERE = [
    (name, task)
    for name in NAMES
    for task, modality in (("text", "text"), ("clutter", "image"), ("clutter3d", "volume"), ("iris", "tabular"))
    if task != SAMPLES[name].task and modality in METHODS[name].modalities
]
# The default run has every fourth pair, so that each method is in several of them; the slow run has them all.
PAIRS = [
    pytest.param(pair, marks=[pytest.mark.slow] * ("compile" in pair or at % 4 > 0), id="+".join(pair))
    for at, pair in enumerate(pair for pair in combinations(NAMES, 2) if task_of(*pair))
]


def make_loop(name: str, *, plain: bool = False, steps: int = STEPS) -> Loop:
    """The method's loop, or the same one without it."""
    return sample_loop([] if plain else [active(name)], like=(name,), steps=steps)


def everything(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loop.tensors().items()}


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    different = [name for name in one if not torch.equal(one[name], other[name])]
    assert not different


def run_to_end(loop: Loop, directory: Path, **options: object) -> Fitted:
    directory.mkdir(exist_ok=True)
    return fit(loop, FitOptions(directory=directory, run_id="r", **options))  # pyright: ignore


def trained(loop: Loop, steps: int) -> Loop:
    for _ in range(steps):
        loop.step()
    return loop


def test_every_method_has_a_sample() -> None:
    assert SAMPLES.keys() == METHODS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_trains(name: str) -> None:
    loop = make_loop(name, steps=40)
    losses = [float(loop.step()) for _ in range(loop.setting.total_steps)]
    assert sum(losses[-5:]) / 5 < 0.9 * sum(losses[:2]) / 2


@pytest.mark.parametrize("name", NAMES)
def test_changes_the_run(name: str) -> None:
    """The control of the neutral test: at full strength the bits differ."""
    loops = make_loop(name), make_loop(name, plain=True)
    for loop in loops:
        trained(loop, loop.setting.total_steps)
        loop.call("after_fit")
    ours, theirs = ({k: v for k, v in loop.tensors().items() if k.startswith("model/")} for loop in loops)
    both = ours.keys() & theirs.keys()
    assert both
    changed = any(ours[key].shape != theirs[key].shape or not torch.equal(ours[key], theirs[key]) for key in both)
    assert changed == SAMPLES[name].changes


@pytest.mark.parametrize("name", NAMES)
def test_resumes_bit_identically_after_every_step(name: str) -> None:
    """What a checkpoint holds is enough, whenever it is written: the rest of the run is the same to the last bit."""
    whole = make_loop(name)
    total = whole.setting.total_steps
    checkpoints, losses = {}, []
    for step in range(total):
        checkpoints[step] = everything(whole)
        losses.append(float(whole.step()))
    whole.call("after_fit")
    for step in range(1, total):
        resumed = make_loop(name)
        resumed.restore(checkpoints[step], step=step)
        resumed.call("before_fit")
        assert [float(resumed.step()) for _ in range(step, total)] == losses[step:]
        resumed.call("after_fit")
        assert_same(everything(resumed), everything(whole))


@pytest.mark.slow  # the default run resumes after every step from memory
@pytest.mark.parametrize("name", NAMES)
def test_resumes_from_the_disk_with_the_same_metrics(name: str, tmp_path: Path) -> None:
    """A whole run with evaluations in between, stopped and taken up again, beside one that nobody disturbed."""
    whole = make_loop(name)
    expected = run_to_end(whole, tmp_path / "whole", evaluations=3)
    metrics = (tmp_path / "whole" / rundir.METRICS).read_bytes()
    first = make_loop(name)
    at = first.setting.total_steps // 2
    with pytest.raises(KeyboardInterrupt):
        run_to_end(first, tmp_path / "run", evaluations=3, stop=lambda: first.state.step >= at)
    with (tmp_path / "run" / rundir.METRICS).open("ab") as file:
        file.write(b'{"step": 99, "metric": "written after the checkpoint"')
    loop = make_loop(name)
    result = run_to_end(loop, tmp_path / "run", evaluations=3)
    assert_same(everything(loop), everything(whole))
    assert result.metrics == expected.metrics
    assert result.state_digest == expected.state_digest
    assert result.resumed == 1
    assert (tmp_path / "run" / rundir.METRICS).read_bytes() == metrics
    once = make_loop(name)  # evaluations leave no trace in the training
    assert run_to_end(once, tmp_path / "once", evaluations=0).state_digest == expected.state_digest
    assert_same(everything(once), everything(whole))


@pytest.mark.parametrize("name", NAMES)
def test_forgetting_part_of_the_state_is_noticed(name: str) -> None:
    """The control of the resume test: a checkpoint without the optimiser's state gives another run."""
    whole, resumed = trained(make_loop(name), 4), make_loop(name)
    tensors = {k: v for k, v in everything(whole).items() if not k.startswith("optimizer/")}
    resumed.restore(tensors, step=4)
    trained(whole, 1)
    trained(resumed, 1)
    assert any(not torch.equal(whole.tensors()[key], resumed.tensors()[key]) for key in tensors)


@pytest.mark.parametrize("name", NAMES)
def test_neutral_is_the_plain_run(name: str) -> None:
    method = choose(METHODS, active(name), kind="method", where="test").neutral()
    assert (method is not None) == SAMPLES[name].neutral
    if method is None:
        return
    with_it, plain = sample_loop([written(method)], like=(name,)), make_loop(name, plain=True)
    for _ in range(plain.setting.total_steps):
        assert float(with_it.step()) == float(plain.step())
    with_it.call("after_fit")
    mine = {k: v for k, v in everything(with_it).items() if not k.startswith("memory/")}
    assert_same(mine, everything(plain))


@pytest.mark.parametrize("pair", PAIRS)
def test_every_pair_composes_or_is_refused_by_name(pair: tuple[str, str]) -> None:
    """Resumed in the middle, written in the other order, two methods give the same bits."""
    one, other = (active(name) for name in pair)
    if reason := refused(pair):
        with pytest.raises(RecipeError, match=f"{pair[0]}.*{pair[1]}|{pair[1]}.*{pair[0]}") as error:
            sample_recipe([one, other], like=pair)
        assert reason in str(error.value)
        return
    whole, resumed = (sample_loop(methods, like=pair) for methods in ([one, other], [other, one]))
    trained(whole, 3)
    resumed.restore(everything(whole), step=3)
    trained(whole, 2)
    trained(resumed, 2)
    assert_same(everything(resumed), everything(whole))


def refused(pair: tuple[str, str]) -> str | None:
    """Why the two may not stand together, as they or their kinds declare it."""
    methods = [METHODS[name] for name in pair]
    declared = methods[0].conflicts_with.get(pair[1]) or methods[1].conflicts_with.get(pair[0])
    if declared or methods[0].kind is not methods[1].kind:
        return declared
    try:
        ordered([choose(METHODS, active(name), kind="method", where="test") for name in pair])
    except RecipeError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("name", "task"), ELSEWHERE)
@pytest.mark.slow
def test_trains_and_resumes_on_whatever_else_it_says_it_works_on(name: str, task: str) -> None:
    """Text, a class for each pixel, volumes; or the run is refused when it is planned, with the reason."""
    train = {"batch_size": 8}
    try:
        whole, resumed = (sample_loop([active(name)], like=(name,), task=task, steps=4, **train) for _ in range(2))
    except RecipeError as error:
        assert name in str(error) and ("expected" in str(error) or "found nothing" in str(error))
        return
    trained(whole, 2)
    resumed.restore(everything(whole), step=2)
    losses = [[float(loop.step()) for _ in range(2)] for loop in (whole, resumed)]
    assert losses[0] == losses[1]
    assert_same(everything(resumed), everything(whole))


@pytest.mark.parametrize("name", NAMES)
def test_declares_itself(name: str) -> None:
    method: type[Method] = METHODS[name]
    assert method.name == name
    assert method.summary.endswith(".")
    decides = [each for each in ("build_optimizers", "pace", "learning_rate") if each in vars(method)]
    assert used_hooks(method) or decides, "a method without a hook does nothing"
    assert set(method.conflicts_with).isdisjoint({name})
    assert "__dict__" not in dir(method()), "methods are slotted: a misspelt field is an error"
    said = describe(name)
    assert all(said[key] for key in ("summary", "description", "formula", "changes", "needs", "source", "works_on"))
    assert bool(method.routing) != ("routing" in method.conflicts_with), "either how it is routed, or why it cannot be"
    for parameter in said["parameters"]:
        assert parameter["meaning"], parameter["name"]
        assert parameter["range"] or parameter["type"] not in ("int", "float"), parameter["name"]


@pytest.mark.parametrize("name", NAMES)
def test_touches_nothing_that_it_does_not_declare(name: str) -> None:
    """No draw from the global generators, no change in the order of the data, in the data or in what metrics see."""
    torch.manual_seed(123)
    before = torch.get_rng_state()
    loop = make_loop(name)
    batches = loop.setting.batches
    data = [tensor.clone() for side in (batches.dataset.train, batches.dataset.test) for tensor in side_of(side)]
    trained(loop, 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(
        torch.equal(old, new)
        for old, new in zip(
            data, [t for side in (batches.dataset.train, batches.dataset.test) for t in side_of(side)], strict=True
        )
    )
    batch = loop.state.batch
    assert batch is not None
    if SAMPLES[name].task == "digits":
        read = batches.dataset.train.labels[torch.from_numpy(loop.state.examples)]
        assert torch.equal(batch.labels, read[batch.slots])
    plain = make_loop(name, plain=True).setting.batches
    positions = range(0, 4 * plain.batch_size, 5)
    assert [batches._order.examples(p, p + 1)[0] for p in positions] == [
        plain._order.examples(p, p + 1)[0] for p in positions
    ]


@pytest.mark.parametrize("name", NAMES)
def test_copies_no_batch(name: str) -> None:
    """Who changes no batch hands on the very one that was read; who does makes a batch of its own size and no more."""
    loop, given = make_loop(name), []
    transfer = loop.setting.batches.transfer

    def noted(*args: Any, **settings: Any) -> Batch:
        given.append(transfer(*args, **settings))
        return given[-1]

    loop.setting.batches.transfer = noted  # pyright: ignore[reportAttributeAccessIssue]
    for _ in range(4):
        loop.step()
        batch = loop.state.batch
        assert batch is not None
        if "change_batch" not in used_hooks(METHODS[name]):
            assert batch is given[-1]
        assert batch.inputs.untyped_storage().nbytes() <= given[-1].inputs.untyped_storage().nbytes()


def side_of(split: object) -> tuple[Tensor, Tensor]:
    return split.inputs, split.labels  # pyright: ignore


@pytest.mark.parametrize("name", NAMES)
def test_keeps_to_the_budget(name: str) -> None:
    """Whatever the sizes of batches, a run takes the examples that its budget gives, to within half a step."""
    loop = make_loop(name)
    batches, recipe = loop.setting.batches, sample_recipe([active(name)], like=(name,))
    examples = total_steps(recipe, examples=len(batches.dataset.train), ssr=1.0) * batches.batch_size
    assert abs(batches.pace.position(loop.setting.total_steps) - examples) <= batches.pace.largest / 2

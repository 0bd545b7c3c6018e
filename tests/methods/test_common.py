"""The battery that every method in the table passes."""

from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from explorer import rundir
from explorer.data.batches import Batch
from explorer.engine.fit import FitOptions, Fitted, fit
from explorer.engine.loop import Loop
from explorer.engine.method import Method, ordered, used_hooks
from explorer.errors import RecipeError
from explorer.methods import METHODS
from explorer.recipes.catalogue import describe
from explorer.recipes.choice import choose
from explorer.testing import MethodContract, assert_same, everything, steps
from explorer.training.run_plan import total_steps
from tests.methods.samples import ROOT, SAMPLES, TASKS, active, sample_loop, sample_recipe, task_of

NAMES = sorted(METHODS)
ELSEWHERE = [
    (name, task)
    for name in NAMES
    for task, modality in (("text", "text"), ("clutter", "image"), ("clutter3d", "volume"), ("iris", "tabular"))
    if task != SAMPLES[name].task and modality in METHODS[name].modalities
]
# The default run has every eighth pair, so that each method is in several of them; the slow run has them all.
PAIRS = [
    pytest.param(pair, marks=[pytest.mark.slow] * ("compile" in pair or at % 8 > 0), id="+".join(pair))
    for at, pair in enumerate(pair for pair in combinations(NAMES, 2) if task_of(*pair))
]


def make_loop(name: str, *, plain: bool = False) -> Loop:
    """The method's loop, or the same one without it."""
    return sample_loop([] if plain else [active(name)], like=(name,))


def run_to_end(loop: Loop, directory: Path, **options: object) -> Fitted:
    directory.mkdir(exist_ok=True)
    return fit(loop, FitOptions(directory=directory, run_id="r", **options))  # pyright: ignore


def contract(name: str) -> MethodContract:
    """The public contract, on what the method is tried with."""
    sample = SAMPLES[name]

    class Ours(MethodContract):
        method: ClassVar[Method] = choose(METHODS, active(name), kind="method", where="test")
        task: ClassVar[Any] = TASKS[sample.task] | ({"model": sample.model} if sample.model else {})
        train: ClassVar[Any] = sample.train
        data: ClassVar[Path | None] = ROOT
        changes: ClassVar[bool] = sample.changes

    return Ours()


def test_every_method_has_a_sample() -> None:
    assert SAMPLES.keys() == METHODS.keys()


@pytest.mark.parametrize("name", NAMES)
def test_trains(name: str) -> None:
    contract(name).test_trains()


@pytest.mark.parametrize("name", NAMES)
def test_changes_the_run(name: str) -> None:
    contract(name).test_changes_the_run()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_resumes_bit_identically_after_every_step(name: str) -> None:
    contract(name).test_resumes_bit_for_bit_after_every_step()


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
    assert_same(everything(loop), everything(whole), "the runs")
    assert result.metrics == expected.metrics
    assert result.state_digest == expected.state_digest
    assert result.resumed == 1
    assert (tmp_path / "run" / rundir.METRICS).read_bytes() == metrics
    once = make_loop(name)  # evaluations leave no trace in the training
    assert run_to_end(once, tmp_path / "once", evaluations=0).state_digest == expected.state_digest
    assert_same(everything(once), everything(whole), "the runs")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_forgetting_part_of_the_state_is_noticed(name: str) -> None:
    """The control of the resume test: a checkpoint without the optimiser's state gives another run."""
    whole, resumed = steps(make_loop(name), 4), make_loop(name)
    tensors = {k: v for k, v in everything(whole).items() if not k.startswith("optimizer/")}
    resumed.restore(tensors, step=4)
    steps(whole, 1)
    steps(resumed, 1)
    assert any(not torch.equal(whole.tensors()[key], resumed.tensors()[key]) for key in tensors)


@pytest.mark.parametrize("name", NAMES)
def test_neutral_is_the_plain_run(name: str) -> None:
    ours = contract(name)
    assert (ours.method.neutral() is not None) == SAMPLES[name].neutral
    ours.test_neutral_value_changes_nothing()


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
    steps(whole, 3)
    resumed.restore(everything(whole), step=3)
    steps(whole, 2)
    steps(resumed, 2)
    assert_same(everything(resumed), everything(whole), "the runs")


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
    steps(whole, 2)
    resumed.restore(everything(whole), step=2)
    losses = [[float(loop.step()) for _ in range(2)] for loop in (whole, resumed)]
    assert losses[0] == losses[1]
    assert_same(everything(resumed), everything(whole), "the runs")


@pytest.mark.parametrize("name", NAMES)
def test_declares_itself(name: str) -> None:
    method: type[Method] = METHODS[name]
    contract(name).test_declares_itself()
    assert method.name == name
    assert set(method.conflicts_with).isdisjoint({name})
    said = describe(name)
    assert all(said[key] for key in ("summary", "description", "formula", "changes", "needs", "source", "works_on"))
    for parameter in said["parameters"]:
        assert parameter["meaning"], parameter["name"]
        assert parameter["range"] or parameter["type"] not in ("int", "float"), parameter["name"]


# With the parameters of their samples: a warm-up of stochastic_depth and the end of colout are shares of training.
OF_A_LENGTH = {
    *("batch_size_warmup", "colout", "ema", "gyro_dropout", "layer_freezing", "progressive_resizing", "random_subset"),
    *("schedule_free", "selective_backprop", "seq_length_warmup", "stochastic_depth", "swa"),
}


def test_no_method_that_looks_at_the_length_says_that_it_does_not() -> None:
    assert not {name for name in OF_A_LENGTH if contract(name).method.any_length()}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_A_LENGTH])
def test_steps_of_any_length_are_the_same(name: str) -> None:
    contract(name).test_steps_of_any_length_are_the_same()


@pytest.mark.parametrize(
    "method",
    [{"stochastic_depth": {"warmup": 0.0}}, {"colout": {"finetune": 0.0}}, {"random_subset": {"start": 0, "end": 1}}],
)
def test_a_parameter_can_make_a_method_one_of_any_length(method: Any) -> None:
    (name,) = method
    ours = contract(name)
    type(ours).method = choose(METHODS, method, kind="method", where="test")
    assert ours.method.any_length()
    ours.test_steps_of_any_length_are_the_same()


@pytest.mark.parametrize("name", NAMES)
def test_touches_nothing_that_it_does_not_declare(name: str) -> None:
    contract(name).test_touches_nothing_that_it_does_not_declare()


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_as_they_were_read(name: str) -> None:
    """Who changes no batch hands on the very one that was read; who does makes a batch of its own size and no more.
    Neither changes the order of the data, nor what metrics see."""
    loop, given = make_loop(name), []
    batches = loop.setting.batches
    transfer = batches.transfer

    def noted(*args: Any, **settings: Any) -> Batch:
        given.append(transfer(*args, **settings))
        return given[-1]

    batches.transfer = noted  # pyright: ignore[reportAttributeAccessIssue]
    batch = None
    for _ in range(4):
        loop.step()
        batch = loop.state.batch
        assert batch is not None
        if "change_batch" not in used_hooks(METHODS[name]):
            assert batch is given[-1]
        assert batch.inputs.untyped_storage().nbytes() <= given[-1].inputs.untyped_storage().nbytes()
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
def test_keeps_to_the_budget(name: str) -> None:
    """Whatever the sizes of batches, a run takes the examples that its budget gives, to within half a step."""
    loop = make_loop(name)
    batches, recipe = loop.setting.batches, sample_recipe([active(name)], like=(name,))
    examples = total_steps(recipe, examples=len(batches.dataset.train), ssr=1.0) * batches.batch_size
    assert abs(batches.pace.position(loop.setting.total_steps) - examples) <= batches.pace.largest / 2

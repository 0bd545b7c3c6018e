"""One step of the loop: microbatches, parameter sets, recomputation, precision."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.data.batches import Batches, Typing
from explorer.engine.custom_task import OwnBatches
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method
from explorer.engine.modules import initialise
from explorer.engine.optimizer import AdamWSpec, Linear, OptimizerSpec, SGDSpec
from explorer.engine.state import Share, State
from explorer.errors import CheckpointError
from tests.data_for_tests import CPU, noise, typed
from tests.loop_for_tests import noise_loop, small_net


def gradients(loop: Loop) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in loop.setting.model.named_parameters() if p.grad is not None}


def distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The largest difference relative to the largest gradient."""
    assert one.keys() == other.keys()
    scale = max(float(tensor.abs().max()) for tensor in one.values())
    return max(float((one[name] - other[name]).abs().max()) for name in one) / scale


@pytest.mark.parametrize("microbatch_size", [1, 3, 4, 7, 8, 100])
def test_accumulated_gradients_are_those_of_the_whole_batch(microbatch_size: int) -> None:
    """For a model that treats examples one by one, also where the last microbatch is smaller."""
    whole, parts = (noise_loop(model=small_net("group"), microbatch_size=size) for size in (None, microbatch_size))
    assert float(parts.step()) == pytest.approx(float(whole.step()), rel=1e-5)
    assert distance(gradients(parts), gradients(whole)) < 1e-5


def test_batch_statistics_do_not_accumulate() -> None:
    """The control: with BatchNorm the microbatch is part of the function."""
    whole, parts = (noise_loop(microbatch_size=size) for size in (None, 2))
    whole.step()
    parts.step()
    assert distance(gradients(parts), gradients(whole)) > 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned(Method):
    """Shares, made by a function of the one share of everything."""

    name: ClassVar[str] = "planned"
    kind: ClassVar[Kind] = Kind.PLAN

    plan: Callable[[Share], tuple[Share, ...]]

    def change_plan(self, state: State) -> None:
        state.shares = self.plan(state.shares[0])


def planned(plan: Callable[[Share], tuple[Share, ...]], **setting: object) -> Loop:
    return noise_loop([Planned(plan=plan)], model=small_net("group"), **setting)  # pyright: ignore


EVEN, ODD = np.arange(0, 8, 2), np.arange(1, 8, 2)


def test_the_denominator_is_the_batch_size_whoever_is_admitted() -> None:
    """Leaving rows out does not turn the others up: their sum is divided by the nominal batch."""
    some = np.array([1, 4, 6])
    loop = planned(lambda share: (replace(share, slots=some),))
    loss = float(loop.step())
    reference = noise_loop(model=small_net("group"))
    reference.prepare_step()
    reference.read_share(reference.state.shares[0])
    batch = reference.state.batch
    assert batch is not None
    logits = reference.setting.model(batch.inputs[some]).detach().double()
    expected = torch.nn.functional.cross_entropy(logits, batch.labels[some], reduction="sum") / 8
    assert loss == pytest.approx(float(expected), rel=1e-5)


def test_shares_are_summed_in_order_and_the_classes_of_a_step_add_up() -> None:
    split = planned(lambda share: tuple(replace(share, slots=slots) for slots in (EVEN, ODD)))
    whole = noise_loop(model=small_net("group"))
    assert float(split.step()) == pytest.approx(float(whole.step()), rel=1e-5)
    assert distance(gradients(split), gradients(whole)) < 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen(Method):
    """Keeps what each share's batch and gradients were: the objects, and copies of their values."""

    name: ClassVar[str] = "seen"
    kind: ClassVar[Kind] = Kind.RECORD

    batches: list[Tensor]
    gradients: list[dict[str, Tensor]]
    values: list[dict[str, Tensor]]

    def change_batch(self, state: State) -> None:
        assert state.batch is not None
        self.batches.append(state.batch.inputs.clone())

    def change_gradients(self, state: State) -> None:
        self.gradients.append(dict(state.gradients))
        self.values.append({name: tensor.clone() for name, tensor in state.gradients.items()})


def seen() -> Seen:
    return Seen(batches=[], gradients=[], values=[])


THIRDS = tuple(np.array(slots) for slots in ([0, 3, 7], [1, 2], [4, 5, 6]))


def in_thirds(share: Share, *, denied: int | None = None) -> tuple[Share, ...]:
    nothing = frozenset[str]()
    return tuple(
        replace(share, code=code, slots=slots, parameters=nothing if code == denied else share.parameters)
        for code, slots in enumerate(THIRDS)
    )


class Counting(Batches):
    """Notes which examples were asked for together, and varies a row by how many are read with it where `rows_apart`
    would be wrong."""

    def __init__(self, *args: Any, mixes: bool = False, **more: Any) -> None:
        super().__init__(*args, **more)
        self.asked: list[np.ndarray] = []
        self.mixes = mixes

    def read(self, examples: np.ndarray) -> tuple[Tensor, Tensor]:
        self.asked.append(examples)
        return super().read(examples)

    def augment(self, inputs: Tensor, step: int, slots: np.ndarray) -> Tensor:
        varied = super().augment(inputs, step, slots)
        return varied + len(slots) if self.mixes else varied


class OneByOne(Counting):
    rows_apart: ClassVar[bool] = False


def read_in_thirds(kind: type[Counting], *, mixes: bool = False, denied: int | None = None) -> tuple[Counting, bool]:
    """One step of three shares; whether each got the rows that it gets when it is read by itself."""
    dataset = replace(noise(), crop=1, flip=True)
    made = [kind(dataset, batch_size=8, seed=0, device=CPU, mixes=mixes) for _ in range(2)]
    notes, alone = seen(), seen()
    plan = Planned(plan=lambda share: in_thirds(share, denied=denied))
    loop, reference = (
        noise_loop([plan, each], model=small_net("group"), batches=batches)
        for each, batches in zip((notes, alone), made, strict=True)
    )
    loop.step()
    reference.prepare_step()
    for share in reference.state.shares:
        if share.parameters:
            reference.read_share(share)
    same = all(torch.equal(one, other) for one, other in zip(notes.batches, alone.batches, strict=True))
    return made[0], same


@pytest.mark.parametrize("denied", [None, 0, 1, 2])
def test_shares_are_read_together_and_get_the_rows_that_they_get_alone(denied: int | None) -> None:
    """With random crops and mirrors; and of a share that may change nothing no row is read."""
    batches, same = read_in_thirds(Counting, denied=denied)
    assert same
    admitted = [slots for code, slots in enumerate(THIRDS) if code != denied]
    (asked,) = batches.asked
    assert (asked == batches.indices(0)[np.concatenate(admitted)]).all()


def test_batches_that_do_not_keep_rows_apart_are_read_share_by_share() -> None:
    """The control: read together, these rows are others."""
    assert not read_in_thirds(Counting, mixes=True)[1]
    batches, same = read_in_thirds(OneByOne, mixes=True)
    assert same
    assert [len(asked) for asked in batches.asked] == [3, 2, 3]
    assert not OwnBatches.rows_apart


def test_a_step_in_which_nothing_trains_reads_nothing() -> None:
    batches = Counting(noise(), batch_size=8, seed=0, device=CPU)
    loop = planned(lambda share: (replace(share, parameters=frozenset()),), batches=batches)
    assert float(loop.step()) == 0.0
    assert batches.asked == []


@pytest.mark.parametrize("weights", [{}, {"0.weight": 0.25}])
def test_the_sum_over_shares_leaves_their_gradients_as_they_were(weights: dict[str, float]) -> None:
    """What a method has of a share's gradients is the same after the others were added; and the sum is, to the bit,
    that of adding one after the other."""
    notes = seen()
    plan = Planned(plan=lambda share: tuple(replace(each, weights=weights) for each in in_thirds(share)))
    loop = noise_loop([plan, notes], model=small_net("group"))
    loop.step()
    assert len(notes.gradients) == 3
    for held, copies in zip(notes.gradients, notes.values, strict=True):
        assert all(torch.equal(held[name], copies[name]) for name in copies)
    for name, found in gradients(loop).items():
        first, second, third = (each[name] * weights.get(name, 1.0) for each in notes.values)
        assert torch.equal(found, first + second + third), name


def test_weights_multiply_the_gradient_of_a_share() -> None:
    weighted = planned(lambda share: (replace(share, weights={"0.weight": 0.25}),))
    whole = noise_loop(model=small_net("group"))
    weighted.step()
    whole.step()
    found, expected = gradients(weighted), gradients(whole)
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient * 0.25 if name == "0.weight" else gradient), name


def test_a_typed_step_has_a_share_for_each_class_in_the_order_of_the_codes() -> None:
    loop = noise_loop(model=small_net("group"), typing=typed(classes=3))
    loop.step()
    assert [(share.code, share.name) for share in loop.state.shares] == [(c, f"open/class-{c}") for c in (1, 2, 3)]
    slots = np.concatenate([share.slots for share in loop.state.shares])
    assert sorted(slots) == list(range(8))
    for share in loop.state.shares:
        numbers = loop.setting.batches.indices(0)[share.slots]
        assert (loop.setting.batches.typing.codes[numbers] == share.code).all()


def test_the_quarantine_is_never_read() -> None:
    """Whatever the methods are: its rows could be anything."""
    codes = np.arange(20) % 2
    loop = noise_loop(typing=Typing(codes=codes, names={0: "quarantine", 1: "open"}))
    loop.setting.batches.dataset.train.inputs[codes == 0] = 255
    other = noise_loop(typing=Typing(codes=codes, names={0: "quarantine", 1: "open"}))
    for _ in range(3):
        assert float(loop.step()) == float(other.step())
    admitted = noise_loop(typing=Typing(codes=codes, names={0: "unsafe", 1: "open"}))
    admitted.setting.batches.dataset.train.inputs[codes == 0] = 255
    assert float(admitted.step()) != float(noise_loop(typing=admitted.setting.batches.typing).step()), "the control"


def test_buffers_that_a_share_may_not_change_are_put_back() -> None:
    denied = noise_loop([Planned(plan=lambda share: (replace(share, buffers=frozenset()),))])
    before = {name: buffer.clone() for name, buffer in denied.setting.model.named_buffers()}
    denied.step()
    assert before and all(torch.equal(b, before[name]) for name, b in denied.setting.model.named_buffers())
    free = noise_loop()
    free.step()
    assert not torch.equal(free.setting.model.get_buffer("1.running_mean"), before["1.running_mean"]), "the control"
    for name, gradient in gradients(free).items():
        assert torch.equal(gradients(denied)[name], gradient), "the pass itself is the same"


@pytest.mark.parametrize("spec", [SGDSpec(lr=0.1, weight_decay=0.1), AdamWSpec(lr=0.1, weight_decay=0.1)])
def test_what_no_share_may_change_stays_to_the_last_bit(spec: OptimizerSpec) -> None:
    """After some ordinary steps, so that there are momenta that could move it."""
    closed = {"0.weight", "7.bias"}
    loop = planned(
        lambda share: (replace(share, parameters=share.parameters - closed) if shut else share,), optimizer=spec
    )
    shut = False
    for _ in range(3):
        loop.step()
    before = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    shut = True
    loop.step()
    for name, tensor in loop.tensors().items():
        is_closed = any(part in closed for part in (name.removeprefix("model/"), name.rsplit("/", 2)[-2]))
        assert torch.equal(tensor, before[name]) == is_closed, name
    shut = False
    loop.step()
    assert not torch.equal(loop.tensors()["model/0.weight"], before["model/0.weight"])


def test_rows_from_which_nobody_may_learn_are_not_even_read() -> None:
    """No forward either, so that BatchNorm does not see them."""
    loop = noise_loop([Planned(plan=lambda share: (replace(share, parameters=frozenset()),))])
    before = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    assert float(loop.step()) == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in loop.tensors().items())
    assert loop.state.step == 1


def test_one_parameter_may_learn_from_one_part_only() -> None:
    """The weights of the first layer see the even rows, everything else sees all."""
    loop = planned(
        lambda share: (
            replace(share, slots=EVEN),
            replace(share, slots=ODD, parameters=share.parameters - {"0.weight"}),
        )
    )
    alone = planned(lambda share: (replace(share, slots=EVEN),))
    whole = noise_loop(model=small_net("group"))
    for each in (loop, alone, whole):
        each.step()
    mixed, first, full = gradients(loop), gradients(alone), gradients(whole)
    assert torch.equal(mixed["0.weight"], first["0.weight"])
    rest = [{k: v for k, v in found.items() if k != "0.weight"} for found in (mixed, full)]
    assert distance(*rest) < 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Twice(Method):
    """Asks for the same gradients again and compares them."""

    name: ClassVar[str] = "twice"
    kind: ClassVar[Kind] = Kind.RECOMPUTE

    def change_gradients(self, state: State) -> None:
        first = state.gradients
        state.recompute()
        assert first is not state.gradients and first.keys() == state.gradients.keys()
        assert all(torch.equal(gradient, state.gradients[name]) for name, gradient in first.items())


def with_dropout() -> nn.Sequential:
    layers = list(small_net().children())
    return nn.Sequential(*layers[:3], nn.Dropout(0.5), *layers[3:])


@pytest.mark.parametrize("microbatch_size", [None, 3])
def test_a_second_pass_repeats_the_first(microbatch_size: int | None) -> None:
    """Dropout draws the same mask, BatchNorm keeps its statistics."""
    models = [with_dropout() for _ in range(2)]
    twice, once = (
        noise_loop(methods, model=model, microbatch_size=microbatch_size)
        for methods, model in (([Twice()], models[0]), ([], models[1]))
    )
    for _ in range(3):
        assert float(twice.step()) == float(once.step())
    for name, tensor in once.tensors().items():
        assert torch.equal(twice.tensors()[name], tensor), name


def test_microbatches_draw_different_masks() -> None:
    """The control of the masks above: they are keyed by step and microbatch, not constant."""
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, 3))
    loop = noise_loop(model=model, microbatch_size=4)
    masks: list[Tensor] = []
    model[2].register_forward_pre_hook(lambda _, inputs: masks.append(inputs[0] == 0))
    loop.step()
    loop.step()
    assert len(masks) == 4
    assert len({mask.numpy().tobytes() for mask in masks}) == 4


def test_bf16_runs_the_forward_pass_in_bf16_and_keeps_everything_else_in_fp32() -> None:
    loop = noise_loop(precision="bf16")
    seen: list[torch.dtype] = []
    handle = loop.setting.model[7].register_forward_hook(  # pyright: ignore
        lambda module, inputs, output: seen.append(output.dtype)
    )
    loop.step()
    loop.evaluate()
    handle.remove()
    assert seen == [torch.bfloat16, torch.float32], "evaluation is in fp32"
    assert loop.state.loss is not None and loop.state.loss.dtype == torch.float32
    for name, tensor in loop.tensors().items():
        assert tensor.dtype in (torch.float32, torch.int64), name
    plain = noise_loop()
    plain.step()
    differs = distance(gradients(loop), gradients(plain))
    assert 0 < differs < 0.1


def test_learning_rates_reach_the_optimiser() -> None:
    loop = noise_loop(schedule=Linear(), optimizer=SGDSpec(lr=0.4))
    rates = []
    for _ in range(10):
        rates.append(loop.learning_rate())
        loop.step()
        groups = loop.state.regions["shared"].optimizers[0].param_groups
        assert {group["lr"] for group in groups} == {rates[-1]}
    np.testing.assert_allclose(rates, [0.4 * (1 - step / 10) for step in range(10)])


def test_a_layer_more_does_not_change_how_the_others_start() -> None:
    plain, more = small_net(), small_net()
    more.add_module("extra", nn.Linear(3, 3))
    for model in (plain, more):
        initialise(model, seed=4)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(more.state_dict()[name], tensor)
    other = small_net()
    initialise(other, seed=5)
    assert not torch.equal(other.get_parameter("0.weight"), plain.get_parameter("0.weight"))


def test_initial_weights_have_the_spread_that_the_layer_asks_for() -> None:
    model = nn.Sequential(nn.Linear(400, 300), nn.Linear(400, 300))
    initialise(model, seed=0)
    first, second = model.get_parameter("0.weight"), model.get_parameter("1.weight")
    assert float(first.detach().std()) == pytest.approx(1 / np.sqrt(3 * 400), rel=0.02)
    assert not torch.equal(first, second), "layers of one shape start differently"


@pytest.mark.parametrize("change", ["absent", "another shape", "another type", "step beyond the end", "step below 0"])
def test_a_checkpoint_that_does_not_fit_is_refused(change: str) -> None:
    loop = noise_loop()
    tensors = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    step = 3
    if change == "absent":
        del tensors["model/0.weight"]
    elif change == "another shape":
        tensors["model/0.weight"] = torch.zeros(2, 2)
    elif change == "another type":
        tensors["model/0.weight"] = tensors["model/0.weight"].double()
    else:
        step = 11 if "beyond" in change else -1
    with pytest.raises(CheckpointError, match=r"found .*, expected"):
        loop.restore(tensors, step=step)


def test_a_step_leaves_the_rows_of_the_batch_alone() -> None:
    """Microbatches are views; one of all rows is the batch itself."""
    loop = noise_loop(microbatch_size=4)
    loop.step()
    state = loop.state
    assert state.rows is not None and state.batch is not None
    assert state.rows.inputs.untyped_storage().data_ptr() == state.batch.inputs.untyped_storage().data_ptr()
    whole = noise_loop()
    whole.step()
    assert whole.state.rows is whole.state.batch

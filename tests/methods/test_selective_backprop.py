"""Selective backprop: the draw against its definition, the step against autograd's, and scoring without a trace."""

from itertools import permutations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.loop import Loop
from explorer.engine.method import Method, Moment, Planned, ordered
from explorer.engine.optimizer import Constant, SGDSpec
from explorer.engine.subset import kept, numbers_of, race
from explorer.engine.task import Classification
from explorer.errors import RecipeError
from explorer.governance.routing import Routing
from explorer.methods.random_subset import RandomSubset
from explorer.methods.selective_backprop import SelectiveBackprop, log_weights
from tests.loop_for_tests import noise_loop, small_net

ALWAYS = {"start": 0.0, "end": 1.0, "interrupt": 0}


@pytest.mark.parametrize("keep", [0.25, 0.5, 0.9])
def test_weights_are_powers_of_the_rank(keep: float) -> None:
    losses = torch.tensor([0.5, 3.0, 0.5, 0.1])
    ranks = np.array([2, 4, 3, 1])  # of the two equal ones the first
    np.testing.assert_allclose(
        np.exp(log_weights(losses, keep=keep).numpy()), ((ranks - 0.5) / 4) ** (1 / keep - 1), rtol=1e-12
    )


def successive(weights: np.ndarray, count: int) -> dict[frozenset[int], float]:
    """The chance of every set of `count` rows, when one is drawn after the other in proportion to what is left."""
    found: dict[frozenset[int], float] = {}
    for order in permutations(range(len(weights)), count):
        chance, left = 1.0, weights.sum()
        for row in order:
            chance *= weights[row] / left
            left -= weights[row]
        found[frozenset(order)] = found.get(frozenset(order), 0.0) + chance
    return found


def farthest(numbers: np.ndarray, weights: np.ndarray, count: int) -> float:
    """By how many standard deviations the most surprising set's frequency misses its chance."""
    logs = torch.from_numpy(np.log(weights))
    drawn = [frozenset(race(logs, torch.from_numpy(row), count=count).tolist()) for row in numbers]
    chances = successive(weights, count)
    return max(
        abs(drawn.count(rows) / len(drawn) - chance) / np.sqrt(chance * (1 - chance) / len(drawn))
        for rows, chance in chances.items()
    )


def test_the_race_is_drawing_one_after_the_other_without_replacement() -> None:
    weights = np.array([0.5, 1.0, 2.0, 4.0])
    draws = np.random.default_rng(0)
    assert farthest(draws.exponential(size=(4000, 4)), weights, 2) < 4
    assert farthest(draws.random((4000, 4)), weights, 2) > 8, "the control: numbers that are not exponential"


def test_the_hardest_example_is_likely_to_be_kept_and_not_certain() -> None:
    logs = log_weights(torch.arange(64.0), keep=0.5)
    draws = np.random.default_rng(0)
    rows = [race(logs, torch.from_numpy(draws.exponential(size=64)), count=32) for _ in range(1000)]
    counts = torch.bincount(torch.cat(rows), minlength=64) / 1000
    assert 0.73 < counts[-1] < 0.82 and counts[0] < 0.05


def test_how_many_are_kept() -> None:
    assert [kept(100, keep=share) for share in (0.29, 0.5, 0.999, 1.0, 0.001)] == [29, 50, 99, 100, 1]
    assert kept(7, keep=0.5) == 3


def test_numbers_belong_to_slots_whoever_else_is_here() -> None:
    def numbers(slots: list[int]) -> list[float]:
        return numbers_of(np.random.default_rng(0), slots=torch.tensor(slots), batch_size=8, pieces=2).tolist()

    everybody = numbers(list(range(8)))
    assert numbers([1, 4, 6]) == [everybody[1], everybody[4], everybody[6]]
    pieces = numbers([4, 1, 4])
    assert pieces[:2] == [everybody[4], everybody[1]] and pieces[2] not in everybody


def test_numbers_are_drawn_without_waiting_for_the_device() -> None:
    """On the meta device, whose tensors have no content, whatever the host reads of one is an error."""
    slots = torch.arange(8, device="meta")
    assert numbers_of(np.random.default_rng(0), slots=slots, batch_size=8).shape == (8,)
    with pytest.raises(RuntimeError):
        int(slots.max())


def selecting(keep: float = 0.5, **options: object) -> SelectiveBackprop:
    return SelectiveBackprop(keep=keep, **ALWAYS | options)  # pyright: ignore[reportArgumentType]


def test_the_step_is_that_of_the_mean_over_the_kept() -> None:
    model = small_net("group")
    loop = noise_loop([selecting(0.4)], model=model, optimizer=SGDSpec(lr=0.1, momentum=0.0))
    loop.prepare_step()
    loss = loop._passes()
    batch = loop.state.batch
    assert batch is not None and len(batch) == 3 and batch.weight == 8 / 3
    ours = {name: parameter.grad for name, parameter in model.named_parameters()}
    loop._gradients.allow(loop._trainable)
    mean = F.cross_entropy(model(batch.inputs), batch.labels)
    assert float(loss) == pytest.approx(mean.item(), rel=1e-5)
    for (name, parameter), gradient in zip(
        model.named_parameters(), torch.autograd.grad(mean, list(model.parameters())), strict=True
    ):
        torch.testing.assert_close(ours[name], gradient, rtol=1e-4, atol=1e-6, msg=f"{name} {parameter.shape}")


def test_harder_examples_are_kept_more_often() -> None:
    loop = noise_loop([selecting(0.25)], total_steps=40, optimizer=SGDSpec(lr=0.0))
    method = loop.methods[0]
    assert isinstance(method, SelectiveBackprop)
    taken, others = [], []
    for _ in range(40):
        loop.prepare_step()
        whole = loop.setting.batches.transfer(
            *loop.setting.batches.read(loop.state.examples), slots=loop.state.shares[0].slots, code=0
        )
        losses = method.losses(loop.state, whole.inputs, whole.targets)
        loop.read_share(loop.state.shares[0])
        assert loop.state.batch is not None
        here = torch.isin(whole.slots, loop.state.batch.slots)
        taken.append(losses[here].mean())
        others.append(losses[~here].mean())
        loop.state.step += 1
    assert torch.stack(taken).mean() > torch.stack(others).mean() + 0.1


class Dropping(nn.Sequential):
    """Statistics and masks: what a pass in training mode would leave behind."""

    def __init__(self) -> None:
        super().__init__(
            *list(small_net())[:2], nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)
        )


def scored(loop: Loop) -> Tensor:
    method, batches = loop.methods[0], loop.setting.batches
    assert isinstance(method, SelectiveBackprop)
    inputs, labels = batches.read(np.arange(8))
    return method.losses(loop.state, batches.prepare(inputs), labels)


def test_scoring_leaves_no_trace() -> None:
    loop = noise_loop([selecting()], model=Dropping())
    loop.setting.model.train()
    before = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    generator = torch.get_rng_state()
    modes: list[tuple[bool, bool]] = []
    loop.setting.model[1].register_forward_hook(  # pyright: ignore[reportIndexIssue]
        lambda module, _, output: modes.append((module.training, output.requires_grad))
    )
    first, second = scored(loop), scored(loop)
    assert torch.equal(first, second), "no mask was drawn"
    assert modes == [(False, False)] * 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in loop.tensors().items())
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(module.training for module in loop.setting.model.modules())
    loop.setting.model(loop.setting.batches.prepare(loop.setting.batches.read(np.arange(8))[0]))
    assert not torch.equal(loop.tensors()["model/1.running_mean"], before["model/1.running_mean"]), "the control"


def test_scoring_is_in_the_number_formats_of_training() -> None:
    loop = noise_loop([selecting()], precision="bf16")
    types: list[torch.dtype] = []
    loop.setting.model[0].register_forward_hook(  # pyright: ignore[reportIndexIssue]
        lambda *found: types.append(found[2].dtype)
    )
    assert scored(loop).dtype == torch.float32
    assert types == [torch.bfloat16]


def test_a_smaller_image_is_scored_at_its_size() -> None:
    loop = noise_loop([selecting(scale=0.5)])
    sizes: list[tuple[int, ...]] = []
    loop.setting.model.register_forward_pre_hook(lambda _, inputs: sizes.append(tuple(inputs[0].shape)))
    loop.step()
    assert sizes == [(8, 2, 3, 2), (4, 2, 6, 4)], "eight small ones scored, four at full size trained"


def acting(method: Method) -> list[bool]:
    """In which steps of twenty a loop's batch is cut."""
    loop = noise_loop([method], total_steps=20, model=nn.Sequential(nn.Flatten(), nn.Linear(48, 3)))
    found = []
    for _ in range(20):
        loop.step()
        assert loop.state.batch is not None
        found.append(len(loop.state.batch) < 8)
    return found


@pytest.mark.parametrize("kind", [SelectiveBackprop, RandomSubset])
def test_steps_and_phases_follow_the_schedule(kind: type[SelectiveBackprop | RandomSubset]) -> None:
    method = kind(start=0.2, end=0.7, interrupt=3)
    expected = [4 <= step < 14 and (step + 1) % 3 != 0 for step in range(20)]
    assert acting(method) == expected
    phases = [method.phase(Moment(step=step, total_steps=20, example_shape=(2, 6, 4))) for step in range(20)]
    assert phases == ["selecting" if acts else "all examples" for acts in expected]
    assert acting(kind()) == [10 <= step < 18 and step % 2 == 0 for step in range(20)]
    assert method.neutral().phase(Moment(step=5, total_steps=20, example_shape=(2, 6, 4))) == ""


@pytest.mark.parametrize("kind", [SelectiveBackprop, RandomSubset])
def test_schedules_that_never_act_are_refused(kind: type[SelectiveBackprop | RandomSubset]) -> None:
    with pytest.raises(RecipeError, match=r"found start 0.5 and end 0.4: expected a start before the end"):
        kind(start=0.5, end=0.4)
    with pytest.raises(RecipeError, match="interrupt: found 1, and with that every step takes all: expected 0, or 2"):
        kind(interrupt=1)


def test_what_cannot_be_scored_is_refused_before_the_first_step() -> None:
    """The schedule would wake up half-way through."""
    fixed = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    with pytest.raises(RecipeError, match=r"cannot score examples of \(2, 6, 4\) at scale 0.5: "):
        noise_loop([SelectiveBackprop(scale=0.5)], model=fixed).call("before_fit")
    noise_loop([SelectiveBackprop()], model=fixed).call("before_fit")

    class OneNumber(Classification):
        def loss(self, outputs: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
            return F.cross_entropy(outputs, targets)

    with pytest.raises(RecipeError, match=r"found a loss of shape \(\) for 2 examples: expected one for each"):
        noise_loop([SelectiveBackprop()], task=OneNumber(classes=3)).call("before_fit")


def test_scoring_smaller_text_is_refused() -> None:
    planned = Planned(
        task="language",
        example_shape=(32,),
        classes=256,
        steps=1,
        batch_size=1,
        optimizer=SGDSpec(lr=0.1),
        schedule=Constant(),
        precision="fp32",
        microbatch_size=None,
    )
    with pytest.raises(RecipeError, match=r"scale: found 0.5 for language of examples \(32,\): expected 1"):
        SelectiveBackprop(scale=0.5).check(planned)
    SelectiveBackprop().check(planned)


def test_under_a_policy_the_governed_one_is_pointed_out() -> None:
    with pytest.raises(RecipeError, match="governed_selective_backprop chooses within each class"):
        ordered([SelectiveBackprop(), Routing(policy="p")])


def test_its_twin_drops_as_many_in_the_same_steps() -> None:
    method = SelectiveBackprop(start=0.1, end=0.8, keep=0.3, interrupt=4)
    twin = method.twin()
    assert twin == RandomSubset(start=0.1, end=0.8, keep=0.3, interrupt=4)
    assert acting(twin) == acting(method)

"""The plain mean against a float64 sum, when weights count, and exactly who sees the mean."""

import numpy as np
import pytest
import torch
from torch import nn

from explorer.data.pace import Pace
from explorer.engine.method import Moment
from explorer.engine.optimizer import Linear
from explorer.errors import RecipeError
from explorer.methods.swa import SWA, due
from tests.loop_for_tests import noise_loop, small_net


@pytest.mark.parametrize(
    ("settings", "steps", "expected"),
    [
        ({"start": 0.5, "end": 0.9, "interval": 0.1}, 10, [5, 6, 7, 8, 9]),
        ({"start": 0.3, "end": 0.9, "interval": 0.2}, 10, [3, 5, 7, 9]),
        ({"start": 0.5, "end": 0.9, "interval": 0.001}, 4, [2, 3, 4]),  # more often than there are steps
        ({"start": 0.0, "end": 0.0, "interval": 1.0}, 10, [1]),
        ({"start": 1.0, "end": 1.0, "interval": 0.5}, 10, [10]),
        ({"start": 0.7, "end": 0.97, "interval": 0.01}, 1, [1]),
    ],
)
def test_after_which_steps_the_weights_count(settings: dict[str, float], steps: int, expected: list[int]) -> None:
    counted = [k for k in range(1, steps + 1) if due(k / steps, **settings) > due((k - 1) / steps, **settings)]
    assert counted == expected
    moments = [Moment(step=k - 1, total_steps=steps, example_shape=(1, 8, 8)) for k in range(1, steps + 1)]
    assert [m.step + 1 for m in moments if SWA(**settings).phase(m)] == expected


def test_there_is_an_average_in_every_run() -> None:
    for total in range(1, 60):
        for start in np.linspace(0, 1, 23):
            done = [due(k / total, start=start, end=start, interval=0.5) for k in range(total + 1)]
            assert done[0] == 0 and done[-1] == 1


def test_the_tenth_of_ten_tenths_counts() -> None:
    """In floating point 0.7 + 0.1 * 3 is less than 1."""
    assert due(1.0, start=0.7, end=1.0, interval=0.1) == 4


def test_a_run_in_float64() -> None:
    loop = noise_loop([SWA(start=0.4, end=0.9, interval=0.2)])
    model = loop.setting.model
    kept = []
    for step in range(10):
        loop.step()
        if step + 1 in (4, 6, 8):
            kept.append({k: v.detach().double().clone() for k, v in model.state_dict().items()})
    assert loop.state.memory["swa"]["taken"] == 3
    last = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    loop.call("after_fit")
    statistics = {"1.running_mean", "1.running_var"}
    for name, tensor in model.state_dict().items():
        if name == "1.num_batches_tracked":
            assert tensor == 8, "the counter of the last weights that count"
        elif name not in statistics:
            np.testing.assert_allclose(tensor.double(), sum(each[name] for each in kept) / 3, atol=1e-6)
    assert not torch.equal(model.state_dict()["0.weight"], last["0.weight"])
    inputs = loop.setting.batches.prepare(loop.setting.batches.dataset.train.inputs)
    found = model.get_submodule("0")(inputs).detach()
    np.testing.assert_allclose(model.state_dict()["1.running_mean"], found.mean((0, 2, 3)), atol=1e-5)
    wide = found.double().transpose(0, 1).flatten(1)
    np.testing.assert_allclose(model.state_dict()["1.running_var"], wide.var(1), rtol=1e-4)


def test_training_never_sees_the_mean() -> None:
    ours, plain = noise_loop([SWA(start=0.2)]), noise_loop()
    for _ in range(8):
        assert float(ours.step()) == float(plain.step())


def test_an_evaluation_on_the_way_uses_the_mean_and_leaves_no_trace() -> None:
    method = SWA(start=0.3, interval=0.1)
    evaluated, undisturbed = noise_loop([method]), noise_loop([method])
    seen: list[torch.Tensor] = []
    evaluated.setting.model.get_submodule("7").register_forward_pre_hook(
        lambda module, _: None if module.training else seen.append(module.get_parameter("weight").detach().clone())
    )
    for step in range(10):
        if step in (2, 5):
            weights = evaluated.tensors()["model/7.weight"].clone()
            seen.clear()
            evaluated.evaluate()
            mean = evaluated.state.memory["swa"]["mean/7.weight"]
            assert torch.equal(seen[-1], weights if step == 2 else mean)
            assert torch.equal(evaluated.tensors()["model/7.weight"], weights)
        assert float(evaluated.step()) == float(undisturbed.step())
    for name, tensor in undisturbed.tensors().items():
        assert torch.equal(evaluated.tensors()[name], tensor), name


def test_the_final_evaluation_is_of_the_final_weights() -> None:
    loop = noise_loop([SWA()])
    for _ in range(10):
        loop.step()
    loop.call("after_fit")
    final = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    first = loop.evaluate()
    assert loop.evaluate() == first
    assert all(torch.equal(loop.tensors()[name], tensor) for name, tensor in final.items())


def test_the_statistics_of_the_last_weights_would_not_do() -> None:
    """The control: the mean with the averaged running statistics answers otherwise than with its own."""
    loop = noise_loop([SWA(start=0.1, interval=0.1)])
    for _ in range(10):
        loop.step()
    averaged = loop.state.memory["swa"]["mean/1.running_mean"].clone()
    loop.call("after_fit")
    assert (loop.tensors()["model/1.running_mean"] - averaged).abs().max() > 1e-3


def test_the_learning_rate_may_be_held() -> None:
    held, free = (noise_loop([SWA(start=0.5, lr=lr)], schedule=Linear()) for lr in (0.4, None))
    rates: list[list[float]] = [[], []]
    for _ in range(8):
        for loop, found in zip((held, free), rates, strict=True):
            found.append(loop.learning_rate() / 0.1)
            loop.step()
    np.testing.assert_allclose(rates[0], [1, 0.9, 0.8, 0.7, 0.6, 0.4, 0.4, 0.4])
    np.testing.assert_allclose(rates[1], [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])


def test_with_growing_batches_shares_of_training_are_shares_of_the_examples() -> None:
    pace = Pace(((0, 1), (10, 10)))  # half of the examples are in the first ten steps of eleven
    method = SWA(start=0.5, end=0.5, interval=1.0)
    averaging = [
        step
        for step in range(11)
        if method.phase(Moment(step=step, total_steps=11, example_shape=(1, 8, 8), pace=pace))
    ]
    assert averaging == [9]


def test_a_start_behind_the_end_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"found start 0.9 and end 0.5: expected a start before the end"):
        SWA(start=0.9, end=0.5)


def test_a_model_without_batch_normalisation_is_averaged_all_the_same() -> None:
    loop = noise_loop([SWA()], model=small_net("group"))
    for _ in range(10):
        loop.step()
    loop.call("after_fit")
    assert all(torch.isfinite(p).all() for p in loop.setting.model.parameters())
    assert isinstance(loop.setting.model.get_submodule("1"), nn.GroupNorm)

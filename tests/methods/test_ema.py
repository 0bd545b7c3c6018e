"""The moving average against a float64 recurrence, and exactly who sees it when."""

import numpy as np
import pytest
import torch

from explorer.engine.method import Moment
from explorer.methods.ema import EMA, decay
from tests.loop_for_tests import noise_loop


@pytest.mark.parametrize("half_life", [1, 10, 300])
def test_a_weight_counts_half_after_the_half_life(half_life: int) -> None:
    late = decay(half_life=half_life, updates=10**9)
    assert late**half_life == pytest.approx(0.5, rel=1e-12)


def test_the_first_weights_are_forgotten_early() -> None:
    assert [decay(half_life=1000, updates=n) for n in range(4)] == [1 / 10, 2 / 11, 3 / 12, 4 / 13]
    assert decay(half_life=1000, updates=10**6) == 2 ** (-1 / 1000)
    assert decay(half_life=0, updates=5) == 0


@pytest.mark.parametrize("every", [1, 3])
def test_a_run_in_float64(every: int) -> None:
    """The recurrence by hand over the weights that the run really had; the last step always counts."""
    method = EMA(half_life=0.2, every=every)
    loop = noise_loop([method])
    model = loop.setting.model
    average = {k: v.detach().double().clone() for k, v in model.state_dict().items()}
    updates = 0
    for step in range(10):
        loop.step()
        if (step + 1) % every == 0 or step == 9:
            keep = min(2 ** (-every / (0.2 * 10)), (1 + updates) / (10 + updates))
            for name, now in model.state_dict().items():
                average[name] = keep * average[name] + (1 - keep) * now.double()
            updates += 1
    counters = {name for name, tensor in model.state_dict().items() if not tensor.is_floating_point()}
    assert counters == {"1.num_batches_tracked"}
    trained = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    loop.call("after_fit")
    final = model.state_dict()
    for name in final.keys() - counters:
        np.testing.assert_allclose(final[name].double(), average[name], atol=1e-6)
    assert not torch.equal(final["0.weight"], trained["0.weight"])
    assert final["1.num_batches_tracked"].item() == 10, "averaging would have left the counter behind"


def test_an_evaluation_on_the_way_uses_the_average_and_leaves_no_trace() -> None:
    evaluated, undisturbed = noise_loop([EMA(half_life=0.5)]), noise_loop([EMA(half_life=0.5)])
    seen: list[torch.Tensor] = []
    for _ in range(5):
        evaluated.step()
        undisturbed.step()
    average = evaluated.state.memory["ema"]["average/0.weight"].clone()
    weights = evaluated.tensors()["model/0.weight"].clone()
    handle = evaluated.setting.model.register_forward_pre_hook(
        lambda module, _: seen.append(module.get_parameter("0.weight").detach().clone())
    )
    evaluated.evaluate()
    handle.remove()
    assert torch.equal(seen[0], average) and not torch.equal(average, weights)
    for _ in range(5):
        assert float(evaluated.step()) == float(undisturbed.step())
    for name, tensor in undisturbed.tensors().items():
        assert torch.equal(evaluated.tensors()[name], tensor), name


def test_the_final_evaluation_is_of_the_final_weights() -> None:
    loop = noise_loop([EMA(half_life=0.5)])
    for _ in range(10):
        loop.step()
    loop.call("after_fit")
    final = {name: tensor.clone() for name, tensor in loop.tensors().items()}
    first = loop.evaluate()
    assert loop.evaluate() == first, "evaluating changes nothing"
    assert all(torch.equal(loop.tensors()[name], tensor) for name, tensor in final.items())


def test_optimiser_and_weights_do_not_know_of_the_average() -> None:
    ours, plain = noise_loop([EMA()]), noise_loop()
    for _ in range(6):
        assert float(ours.step()) == float(plain.step())


def test_phases_say_which_steps_average() -> None:
    phases = [EMA(every=3).phase(Moment(step=s, total_steps=7, example_shape=(1, 8, 8))) for s in range(7)]
    assert phases == ["", "", "averaging", "", "", "averaging", ""]
    assert EMA().phase(Moment(step=2, total_steps=7, example_shape=(1, 8, 8))) == ""

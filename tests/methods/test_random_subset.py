"""Random subset: everybody equally likely, nobody looked at, and classes that do not know of each other."""

import numpy as np
import pytest
import torch
from torch import Tensor

from explorer.methods.random_subset import RandomSubset
from tests.data_for_tests import typed
from tests.loop_for_tests import noise_loop, small_net

ALWAYS = RandomSubset(start=0.0, end=1.0, keep=0.5, interrupt=0)


def kept_slots(steps: int, *, batch_size: int) -> Tensor:
    """Which slots train, steps B."""
    loop = noise_loop([ALWAYS], batch_size=batch_size, total_steps=steps)
    found = torch.zeros(steps, batch_size)
    for step in range(steps):
        loop.prepare_step()
        loop.read_share(loop.state.shares[0])
        assert loop.state.batch is not None and loop.state.batch.weight == 2
        found[step, loop.state.batch.slots] = 1
        loop.state.step += 1
    return found


def test_half_of_the_slots_all_of_them_equally_likely() -> None:
    found = kept_slots(400, batch_size=8)
    assert (found.sum(1) == 4).all()
    surprise = (found.mean(0) - 0.5) / np.sqrt(0.25 / 400)
    assert surprise.abs().max() < 3.5
    together = float((found[:, 0] * found[:, 1]).mean())
    assert together == pytest.approx(4 / 8 * 3 / 7, abs=0.08)


def test_nothing_is_scored() -> None:
    model = small_net()
    loop = noise_loop([ALWAYS], model=model)
    passes: list[int] = []
    model.register_forward_pre_hook(lambda _, inputs: passes.append(len(inputs[0])))
    loop.step()
    assert passes == [4]


def test_a_class_keeps_its_own_share_whatever_the_other_one_holds() -> None:
    """Rows and weight of a class: with the other class blank, and with it gone."""
    found = []
    for other in ("as it is", "blank", "absent"):
        loop = noise_loop([ALWAYS], typing=typed(classes=2))
        if other == "blank":
            loop.setting.batches.dataset.train.inputs[loop.setting.batches.typing.codes == 2] = 255
        loop.prepare_step()
        first, *rest = loop.state.shares
        if other != "absent":
            loop.read_share(rest[0])
        loop.read_share(first)
        batch = loop.state.batch
        assert batch is not None and len(batch) == len(first.slots) // 2
        found.append((batch.slots.tolist(), batch.weight))
    assert found[0] == found[1] == found[2]
    assert found[0][1] == 2

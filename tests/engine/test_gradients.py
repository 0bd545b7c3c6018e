"""Where a loss stopped being a number: the step, the class and the layer."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from explorer import rundir
from explorer.engine.checkpoint import load_newest
from explorer.engine.fit import FitOptions, fit
from explorer.engine.gradients import check_finite, first_not_finite
from explorer.engine.loop import Loop
from explorer.errors import TrainingError
from tests.governance.governed import governed_loop
from tests.loop_for_tests import noise_loop, small_net


class BreaksAt(nn.ReLU):
    """Gives one infinity in the `count`-th pass of training, and ever after."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.left = count

    def forward(self, input: Tensor) -> Tensor:
        self.left -= self.training
        found = super().forward(input)
        return found.index_fill(0, torch.tensor([0]), math.inf) if self.left <= 0 else found


def breaking(count: int) -> nn.Sequential:
    net = small_net("batch")
    net[4] = BreaksAt(count)
    return net


def digests(loop: Loop) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in loop.tensors().items() if "running" not in name}


def test_it_names_step_and_layer_and_leaves_the_weights_of_the_step_before() -> None:
    loop = noise_loop(model=breaking(4))
    for _ in range(3):
        loop.step()
    before = digests(loop)
    with pytest.raises(TrainingError, match=r"the loss is (nan|inf) at step 4: .*first layer .* is '4'") as caught:
        loop.step()
    weights = {name for name in before if name.startswith(("model/", "optimizer/")) and "num_batches" not in name}
    assert all(torch.equal(before[name], loop.tensors()[name]) for name in weights)
    assert loop.state.step == 3
    assert "the last checkpoint" not in str(caught.value)  # a short run has none


def test_statistics_that_the_pass_itself_spoilt_are_not_the_cause() -> None:
    net = small_net("batch")
    net[0] = nn.Sequential(net[0], BreaksAt(2))
    loop = noise_loop(model=net)
    loop.step()
    with pytest.raises(TrainingError, match=r"at step 2: .*first layer .* is '0\.1'"):
        loop.step()


def test_under_a_policy_it_names_the_class() -> None:
    loop = governed_loop()
    loop.step()
    customers = loop.setting.batches.typing.codes == next(
        code for code, name in loop.setting.batches.typing.names.items() if name == "personal/customer"
    )
    prepare = loop.setting.batches.prepare
    bad = loop.setting.batches.dataset.train.inputs[torch.from_numpy(customers)]

    def poisoned(inputs: Tensor) -> Tensor:
        found = prepare(inputs)
        hit = torch.tensor([any(torch.equal(row, each) for each in bad) for row in inputs])
        return torch.where(hit.reshape(-1, 1, 1, 1), torch.full_like(found, math.nan), found)

    loop.setting.batches.prepare = poisoned
    with pytest.raises(TrainingError, match="at step 2, class personal/customer: its inputs are not finite already"):
        loop.step()


def test_the_last_good_checkpoint_is_kept(tmp_path: Path) -> None:
    loop = noise_loop(model=breaking(6))
    with pytest.raises(TrainingError, match="at step 6"):
        fit(loop, FitOptions(directory=tmp_path, run_id="r", checkpoint_seconds=0.0))
    kept = load_newest(tmp_path / rundir.CHECKPOINT, run_id="r")
    assert kept is not None and kept.step == 5
    assert all(bool(torch.isfinite(tensor).all()) for tensor in kept.tensors.values())


def test_weights_that_are_not_finite_are_not_saved() -> None:
    loop = noise_loop()
    check_finite(loop.tensors(), step=3)
    with torch.no_grad():
        loop.setting.model.get_parameter("0.bias")[0] = math.nan
    with pytest.raises(TrainingError, match=r"'0\.bias' is not finite after step 3"):
        check_finite(loop.tensors(), step=3)
    with pytest.raises(TrainingError, match=r"at step 1: '0\.bias' is not finite already"):
        loop.step()


def test_looking_leaves_the_model_alone() -> None:
    net = small_net("batch")
    buffers = {name: buffer.clone() for name, buffer in net.named_buffers()}
    with torch.no_grad():
        assert first_not_finite(net, torch.zeros(2, 2, 6, 4), torch.no_grad()) is None
        assert first_not_finite(net, torch.full((2, 2, 6, 4), math.inf), torch.no_grad()) == "0"
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in net.named_buffers())
    assert not any(module._forward_hooks for module in net.modules())

"""The gate: a plain sum as it is built, a branch that is left out is not run, and what evaluation makes of it."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.leaves import leaves
from explorer.engine.modules import initialise
from explorer.models.gpt import GPT, Size
from explorer.models.residual import Gate
from explorer.models.resnet import Block, ResNet

AROUND, BRANCH = torch.randn(2, 4, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def raises() -> Tensor:
    raise AssertionError("the branch ran")


def gate(*, kept: bool | Tensor | None = None, survival: float = 1.0, training: bool = True) -> Gate:
    made = Gate(3).train(training)
    made.kept, made.survival = kept, survival
    return made


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kept", [None, True])
def test_as_it_is_built_it_is_the_plain_sum(training: bool, kept: bool | None) -> None:
    assert torch.equal(gate(kept=kept, training=training)(AROUND, lambda: BRANCH), AROUND + BRANCH)
    assert not gate().state_dict()


def test_a_branch_that_is_left_out_is_not_computed() -> None:
    assert torch.equal(gate(kept=False)(AROUND, raises), AROUND)
    assert torch.equal(gate(kept=False)(lambda: AROUND, raises), AROUND)
    with pytest.raises(AssertionError, match="the branch ran"):
        gate(kept=True)(AROUND, raises)


def test_in_training_nothing_is_scaled_and_in_evaluation_all_is() -> None:
    assert torch.equal(gate(survival=0.25)(AROUND, lambda: BRANCH), AROUND + BRANCH)
    for kept in (None, False, torch.zeros(4)):
        found = gate(kept=kept, survival=0.25, training=False)(AROUND, lambda: BRANCH)
        assert torch.equal(found, AROUND + BRANCH / 4)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.int64])
def test_each_example_can_be_kept_or_left_out(kind: torch.dtype) -> None:
    kept = torch.tensor([1, 0, 0, 1]).to(kind)
    found = gate(kept=kept)(AROUND, lambda: BRANCH)
    expected = torch.stack([a + b if k else a for a, b, k in zip(AROUND, BRANCH, kept.tolist(), strict=True)])
    assert torch.equal(found, expected)


def test_the_expectation_in_training_is_what_evaluation_computes() -> None:
    """Over all ways to keep each of two examples with probability 1/4."""
    mean = torch.zeros(4, 3, 2, 2)
    for first in (0, 1):
        for second in (0, 1):
            likely = (0.25 if first else 0.75) * (0.25 if second else 0.75)
            mean += likely * gate(kept=torch.tensor([first, second, first, second]))(AROUND, lambda: BRANCH)
    assert torch.allclose(mean, gate(survival=0.25, training=False)(AROUND, lambda: BRANCH))


def test_what_goes_around_runs_after_the_branch() -> None:
    """So the layers of a block are met in the order in which they stand."""
    block = Block(8, 16, stride=2, norm="batch")
    found = [leaf.name for leaf in leaves(block, torch.zeros(1, 8, 4, 4))]
    assert found == ["conv1", "norm1", "conv2", "norm2", "shortcut.0", "shortcut.1"]


@pytest.mark.parametrize("training", [True, False])
def test_a_block_of_the_residual_network_is_its_definition_to_the_bit(training: bool) -> None:
    block = Block(8, 16, stride=2, norm="batch")
    initialise(block, seed=0)
    block.train(training)
    x = torch.randn(3, 8, 4, 4, requires_grad=True)
    inside = block.norm2(block.conv2(F.relu(block.norm1(block.conv1(x)))))
    plain = F.relu(inside + block.shortcut(x))
    gated = block(x)
    assert torch.equal(gated, plain)
    weights = [x, *block.parameters()]
    for one, other in zip(
        torch.autograd.grad(gated.square().sum(), weights),
        torch.autograd.grad(plain.square().sum(), weights),
        strict=True,
    ):
        assert torch.equal(one, other)


def models() -> list[tuple[nn.Module, Tensor]]:
    return [
        (ResNet(depth=8, width=0.5, norm="batch", channels=1, classes=3), torch.randn(4, 1, 8, 8)),
        (GPT(Size(depth=2, width=8, heads=2), dropout=0.0, context=5, tokens=7), torch.randint(0, 7, (4, 5))),
    ]


@pytest.mark.parametrize("index, gates", [(0, 3), (1, 4)])
def test_the_blocks_of_the_models_add_through_gates(index: int, gates: int) -> None:
    """A branch that is left out has no part in the output: its parameters get no gradient at all."""
    model, inputs = models()[index]
    initialise(model, seed=0)
    found = {name: module for name, module in model.named_modules() if isinstance(module, Gate)}
    assert len(found) == gates
    widths = {"stages.0.0.gate": 8, "stages.1.0.gate": 16, "stages.2.0.gate": 32}
    assert all(module.width == widths.get(name, 8) for name, module in found.items())
    assert not [name for name in model.state_dict() if "gate" in name]
    inner = [p for n, p in model.named_parameters() if "shortcut" not in n and n.startswith(("stages", "blocks"))]
    for left_out in (False, True):
        for module in found.values():
            module.kept = not left_out
        model.zero_grad(set_to_none=True)
        model(inputs).square().sum().backward()
        assert all((parameter.grad is None) == left_out for parameter in inner)

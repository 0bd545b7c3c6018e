"""Ghost batch normalisation against one torch layer that sees the chunks one after the other."""

import copy

import pytest
import torch
from torch import nn

from explorer.errors import RecipeError
from explorer.methods.ghost_batchnorm import Ghost, GhostBatchNorm, apply_ghost_batchnorm, chunks
from explorer.recipes.choice import written
from tests.data_for_tests import typed
from tests.loop_for_tests import noise_loop, small_net
from tests.recipes_for_tests import tiny_recipe, tiny_run

SHAPES = {nn.BatchNorm1d: (), nn.BatchNorm2d: (3, 2), nn.BatchNorm3d: (2, 1, 3)}


def layer(kind: type = nn.BatchNorm2d, **options: object) -> nn.Module:
    made = kind(4, **options).double()
    if made.affine:
        nn.init.normal_(made.weight, generator=torch.Generator().manual_seed(1))
    return made


def rows(count: int, kind: type = nn.BatchNorm2d, *, seed: int = 0) -> torch.Tensor:
    draws = torch.Generator().manual_seed(seed)
    return 2 * torch.randn((count, 4, *SHAPES[kind]), generator=draws, dtype=torch.float64) + 3


@pytest.mark.parametrize(
    "count, size, sizes",
    [
        (8, 4, [4, 4]),
        (4, 8, [4]),
        (9, 4, [3, 3, 3]),
        (7, 4, [4, 3]),
        (1, 4, [1]),
        (3, 2, [3]),
        (5, 2, [3, 2]),
        (6, 2, [2] * 3),
    ],
)
def test_chunks_are_of_the_size_or_nearly_equal_and_never_one_row(count: int, size: int, sizes: list[int]) -> None:
    parts = chunks(torch.arange(count), size=size)
    assert [len(part) for part in parts] == sizes
    assert torch.equal(torch.cat(parts), torch.arange(count))


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.3}, {"affine": False}, {"track_running_stats": False}], ids=str)
@pytest.mark.parametrize("count", [8, 7, 3])
def test_against_a_loop_over_chunks(kind: type, options: dict, count: int) -> None:
    reference = layer(kind, **options)
    ghost = copy.deepcopy(reference)
    assert apply_ghost_batchnorm(ghost, size=4) == [""]
    for step in range(3):
        x, y = (rows(count, kind, seed=step).requires_grad_() for _ in range(2))
        parts = chunks(y, size=4)
        reference.momentum = options.get("momentum", 0.1) / len(parts)  # pyright: ignore
        expected = torch.cat([reference(part) for part in parts])
        found = ghost(x)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        found.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-9, atol=1e-9)
    for name, buffer in reference.named_buffers():
        torch.testing.assert_close(ghost.get_buffer(name), buffer, rtol=1e-12, atol=1e-12)


def test_without_a_momentum_the_statistics_are_the_mean_over_all_chunks() -> None:
    ghost = layer(momentum=None)
    apply_ghost_batchnorm(ghost, size=4)
    parts = [part for step in range(3) for part in chunks(rows(8, seed=step), size=4)]
    for step in range(3):
        ghost(rows(8, seed=step))
    means = torch.stack([part.mean((0, 2, 3)) for part in parts]).mean(0)
    variances = torch.stack([part.transpose(0, 1).flatten(1).var(1) for part in parts]).mean(0)
    torch.testing.assert_close(ghost.get_buffer("running_mean"), means, rtol=1e-12, atol=0)
    torch.testing.assert_close(ghost.get_buffer("running_var"), variances, rtol=1e-12, atol=0)


def test_evaluation_and_small_batches_are_as_they_were() -> None:
    plain = layer()
    ghost = copy.deepcopy(plain)
    apply_ghost_batchnorm(ghost, size=8)
    assert torch.equal(ghost(rows(8)), plain(rows(8)))
    for module in (ghost, plain):
        module.eval()
    assert torch.equal(ghost(rows(33)), plain(rows(33)))
    assert all(torch.equal(ghost.get_buffer(name), buffer) for name, buffer in plain.named_buffers())


def test_the_chunks_matter() -> None:
    """The control: over the whole batch the numbers are others."""
    ghost, plain = layer(), layer()
    apply_ghost_batchnorm(ghost, size=4)
    assert not torch.allclose(ghost(rows(8)), plain(rows(8)), atol=1e-3)


def test_memory_order_is_kept() -> None:
    ghost = layer()
    apply_ghost_batchnorm(ghost, size=4)
    assert ghost(rows(8).contiguous(memory_format=torch.channels_last)).is_contiguous(memory_format=torch.channels_last)


def test_what_is_changed() -> None:
    model = nn.Sequential(nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Sequential(nn.BatchNorm1d(4)), nn.InstanceNorm2d(4))
    saved = list(model.state_dict())
    assert apply_ghost_batchnorm(model, size=2) == ["0", "2.0"]
    assert list(model.state_dict()) == saved and isinstance(model[0], Ghost)
    with pytest.raises(
        RecipeError, match="ghost_batchnorm: found nothing to change in Sequential: expected batch norm"
    ):
        apply_ghost_batchnorm(small_net("group"))


def test_a_class_has_chunks_of_its_own() -> None:
    """With two classes of four rows each, a size of four leaves the governed step as it is, and two does not."""
    losses = [
        float(noise_loop(methods, typing=typed()).step())
        for methods in ([], [GhostBatchNorm(size=4)], [GhostBatchNorm(size=2)])
    ]
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("train", [{"batch_size": 16}, {"batch_size": 64, "microbatch_size": 16}])
def test_a_size_that_no_pass_exceeds_is_refused(train: dict[str, int]) -> None:
    """A microbatch is a ghost batch already. The neutral size, which says so, is not refused; nor is a smaller one."""
    for method in (GhostBatchNorm(size=15), GhostBatchNorm().neutral()):
        tiny_run(tiny_recipe([written(method)], **train))
    with pytest.raises(RecipeError, match="ghost_batchnorm: found size 16 for passes of 16 rows, where it changes"):
        tiny_run(tiny_recipe([{"ghost_batchnorm": {"size": 16}}], **train))

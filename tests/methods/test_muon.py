"""Newton-Schulz in float64, torch's own Muon on matrices, and who steps what."""

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from explorer.engine.optimizer import AdamWSpec, Linear, SGDSpec
from explorer.errors import RecipeError
from explorer.governance.contributions import check_linear
from explorer.methods.muon import (
    Muon,
    MuonOptimizer,
    Scale,
    hidden_matrices,
    matrices_in,
    matrix_groups,
    number_format,
    orthogonalise,
    stacks_up,
    step_size,
)
from explorer.models.gpt import AnySpec
from explorer.models.resnet import ResNet
from tests.loop_for_tests import noise_loop, small_net

SHAPES = [(4, 9), (9, 4), (6, 6), (1, 5), (5, 1), (1, 1)]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def quintic(matrix: Tensor) -> np.ndarray:
    """The iteration as a function of the singular values, in float64: X = U S V^T gives U p(S) V^T."""
    u, s, vt = np.linalg.svd(matrix.double().numpy(), full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    return u @ np.diag(s) @ vt


@pytest.mark.parametrize("shape", SHAPES)
def test_newton_schulz_is_a_polynomial_of_the_singular_values(shape: tuple[int, int]) -> None:
    matrix = drawn(*shape)
    np.testing.assert_allclose(orthogonalise(matrix), quintic(matrix), atol=2e-5)


@pytest.mark.parametrize("shape", [(12, 12), (8, 40)])
def test_directions_of_no_length_stay_out(shape: tuple[int, int]) -> None:
    """Of rank 3: what is zero but for rounding does not grow to be an update."""
    matrix = drawn(shape[0], 3) @ drawn(3, shape[1], seed=1)
    np.testing.assert_allclose(orthogonalise(matrix), quintic(matrix), atol=2e-4)


@pytest.mark.parametrize("shape", [(16, 64), (64, 16), (32, 32)])
def test_the_result_is_about_orthogonal(shape: tuple[int, int]) -> None:
    values = torch.linalg.svdvals(orthogonalise(drawn(*shape)))
    assert values.min() > 0.6 and values.max() < 1.22
    assert torch.linalg.svdvals(drawn(*shape)).max() > 1.22, "it was not before"


def test_zeros_stay_zeros() -> None:
    assert not orthogonalise(torch.zeros(3, 5)).any()
    assert not orthogonalise(torch.zeros(2, 3, 5)).any()


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (16, 16), (16, 144), (40, 24)])
def test_a_stack_is_its_matrices_one_by_one(shape: tuple[int, int]) -> None:
    matrices = [drawn(*shape, seed=seed) * 10.0**seed for seed in range(4)]
    stack = orthogonalise(torch.stack(matrices))
    for matrix, update in zip(matrices, stack, strict=True):
        torch.testing.assert_close(update, orthogonalise(matrix), rtol=0, atol=1e-5)
    short = orthogonalise(torch.stack([matrices[0], *(torch.zeros(3, *shape))]))
    assert torch.equal(short[0], stack[0]), "to the bit: what else is in the stack makes no difference"
    together = orthogonalise(torch.cat(matrices))[: shape[0]]
    assert not torch.allclose(together, stack[0], atol=0.1), "the control: one matrix of all of them"


@pytest.mark.parametrize("shape", [(32, 32), (16, 64), (64, 16), (12, 512)])
def test_bf16_as_on_a_gpu_stays_within_its_digits(shape: tuple[int, int]) -> None:
    """Bits differ from fp32 by what torch's own Muon, which iterates in bf16 everywhere, differs."""
    stack = torch.stack([drawn(*shape, seed=seed) for seed in range(3)])
    updates = orthogonalise(stack, kind=torch.bfloat16)
    assert updates.dtype is torch.float32 and not torch.equal(updates, orthogonalise(stack))
    for matrix, update in zip(stack, updates, strict=True):
        np.testing.assert_allclose(update, quintic(matrix), atol=0.03)


def test_what_runs_as_a_stack() -> None:
    def stacks(*shape: int, count: int = 8, device: str = "cpu") -> bool:
        return stacks_up(torch.Size(shape), count=count, device=torch.device(device))

    assert stacks(16, 144) and stacks(32, 288) and not stacks(88, 88) and not stacks(64, 576)
    assert stacks(64, 576, device="cuda") and not stacks(64, 576, count=1, device="cuda")
    assert number_format(torch.device("cpu")) is torch.float32


def test_the_length_of_an_update() -> None:
    assert (
        step_size(torch.Size((64, 16)), scale="original") == 2.0
        and step_size(torch.Size((16, 64)), scale="original") == 1.0
    )
    assert step_size(torch.Size((100, 16)), scale="match_rms_adamw") == pytest.approx(2.0)


@pytest.mark.parametrize("scale", ["original", "match_rms_adamw"])
@pytest.mark.parametrize("nesterov", [True, False])
def test_matrices_move_as_with_torch(scale: Scale, nesterov: bool) -> None:
    """Within what bf16, in which torch iterates, leaves of an update of about 0.1."""
    ours, theirs = ([nn.Parameter(drawn(*shape)) for shape in SHAPES] for _ in range(2))
    settings = {"lr": 0.1, "momentum": 0.9, "nesterov": nesterov, "weight_decay": 0.2}
    mine = MuonOptimizer(ours, scale=scale, **settings)
    other = torch.optim.Muon(theirs, adjust_lr_fn=scale, **settings)
    for step in range(3):
        for seed, (one, two) in enumerate(zip(ours, theirs, strict=True)):
            one.grad = two.grad = drawn(*one.shape, seed=10 * step + seed + 1)
        mine.step()
        other.step()
    for one, two, shape in zip(ours, theirs, SHAPES, strict=True):
        assert not torch.equal(one, drawn(*shape))
        np.testing.assert_allclose(one.detach(), two.detach(), atol=0.02)


def test_one_step_by_hand_in_float64() -> None:
    """A filter is the matrix of its outputs by everything else."""
    filters, gradient = drawn(4, 3, 2, 2), drawn(4, 3, 2, 2, seed=1)
    parameter = nn.Parameter(filters.clone())
    parameter.grad = gradient
    MuonOptimizer([parameter], lr=0.1, momentum=0.9, weight_decay=0.2).step()
    momentum = 0.1 * gradient
    update = quintic((0.1 * gradient + 0.9 * momentum).reshape(4, 12)).reshape(4, 3, 2, 2)
    expected = filters.double().numpy() * (1 - 0.1 * 0.2) - 0.1 * update
    np.testing.assert_allclose(parameter.detach(), expected, atol=5e-6)


def test_memory_order_makes_no_difference() -> None:
    found = []
    for order in (torch.contiguous_format, torch.channels_last):
        parameter = nn.Parameter(drawn(4, 3, 2, 2).to(memory_format=order))
        parameter.grad = drawn(4, 3, 2, 2, seed=1).to(memory_format=order)
        MuonOptimizer([parameter]).step()
        assert parameter.is_contiguous(memory_format=order)
        found.append(parameter.detach())
    assert torch.equal(*found)


def test_nothing_moves_without_a_gradient_or_without_numbers() -> None:
    still, empty, moved = nn.Parameter(drawn(3, 3)), nn.Parameter(torch.zeros(0, 3)), nn.Parameter(drawn(3, 3))
    empty.grad, moved.grad = torch.zeros(0, 3), drawn(3, 3, seed=1)
    optimizer = MuonOptimizer([still, empty, moved])
    optimizer.step()
    assert torch.equal(still, drawn(3, 3)) and still not in optimizer.state
    assert not torch.equal(moved, drawn(3, 3))


def test_what_a_matrix_becomes_does_not_depend_on_the_others() -> None:
    """To the bit, whether matrices of its shape have gradients beside it or not."""
    found = []
    for others in (0, 3):
        parameters = [nn.Parameter(drawn(8, 16)) for _ in range(4)]
        for seed, parameter in enumerate(parameters[: 1 + others]):
            parameter.grad = drawn(8, 16, seed=seed + 1)
        MuonOptimizer(parameters).step()
        found.append(parameters[0].detach())
    assert torch.equal(*found)


def test_vectors_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"shape \(8,\): expected two dimensions"):
        MuonOptimizer([nn.Parameter(torch.zeros(8))])


class Tied(nn.Module):
    """Tokens and places in, the tokens' matrix once more at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.position = nn.Parameter(torch.zeros(5, 4))
        self.mix = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight


def test_tables_heads_and_vectors_are_not_for_muon() -> None:
    resnet = hidden_matrices(ResNet(depth=8, width=0.5, norm="batch", channels=1, classes=3), head={"head.weight"})
    assert "conv.weight" in resnet and "stages.2.0.shortcut.0.weight" in resnet
    assert not [name for name in resnet if "norm" in name or "head" in name or "bias" in name]
    gpt = AnySpec(depth=1, width=8, heads=2).build(example_shape=(4,), classes=256)
    matrices = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
    assert hidden_matrices(gpt, head=()) == [f"blocks.0.{name}.weight" for name in matrices]
    assert hidden_matrices(Tied(), head=()) == ["mix.weight"]


@pytest.mark.parametrize("spec", [SGDSpec(lr=0.5), AdamWSpec(lr=0.5)])
def test_two_optimisers_with_a_peak_each_follow_one_schedule(spec: SGDSpec | AdamWSpec) -> None:
    loop = noise_loop([Muon(lr=0.1)], optimizer=spec, schedule=Linear())
    muon, rest = loop.state.regions["shared"].optimizers
    names = {id(parameter): name for name, parameter in loop.setting.model.named_parameters()}
    mine, theirs = (
        [names[id(p)] for group in optimizer.param_groups for p in group["params"]] for optimizer in (muon, rest)
    )
    assert mine == ["0.weight", "3.weight"]
    assert sorted(mine + theirs) == sorted(names.values())
    for step in range(3):
        loop.step()
        assert muon.param_groups[0]["lr"] == pytest.approx(0.1 * (1 - step / 10))
        assert all(group["lr"] == pytest.approx(0.5 * (1 - step / 10)) for group in rest.param_groups)


def test_the_rest_moves_as_it_would_without_muon() -> None:
    """In the first step, when every gradient is the same."""
    ours, plain = noise_loop([Muon()]), noise_loop()
    ours.step()
    plain.step()
    mine, others = ours.tensors(), plain.tensors()
    for name in ("1.weight", "1.bias", "7.weight", "7.bias", "0.bias"):
        assert torch.equal(mine[f"model/{name}"], others[f"model/{name}"])
    assert not torch.equal(mine["model/0.weight"], others["model/0.weight"])


def test_everything_that_steps_is_in_the_checkpoint() -> None:
    loop = noise_loop([Muon()])
    loop.step()
    kept = {name for name in loop.tensors() if name.startswith("optimizer/")}
    assert kept == {f"optimizer/shared/0/{n}.weight/momentum_buffer" for n in (0, 3)} | {
        f"optimizer/shared/1/{name}/momentum_buffer"
        for name in ("0.bias", "1.weight", "1.bias", "3.bias", "7.weight", "7.bias")
    }


def test_a_model_of_a_head_alone_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"muon: found nothing to step in Sequential: expected a model with matrices"):
        noise_loop([Muon()], model=nn.Sequential(nn.Flatten(), nn.Linear(48, 3)))


def test_its_updates_cannot_be_split_by_class() -> None:
    muon, rest = noise_loop([Muon()], model=small_net()).state.regions["shared"].optimizers
    check_linear(rest)
    with pytest.raises(RecipeError, match="MuonOptimizer is not supported: not linear"):
        check_linear(muon)


def moved(parameter: nn.Parameter, gradient: Tensor, **group: Any) -> Tensor:
    """What a step of length 1 along the gradient adds to a parameter of zeros."""
    parameter.grad = gradient
    MuonOptimizer([{"params": [parameter], **group}], lr=1.0, weight_decay=0.0).step()
    return parameter.detach()


def weak_values() -> Tensor:
    """Queries, keys and values one below the other; the gradient of the values is a twentieth of the others'."""
    gradient = drawn(96, 32)
    gradient[64:] *= 0.05
    return gradient


class Fused(nn.Module):
    """Parameters that hold several matrices, as torch, nanoGPT, GPT-2 and mixtures of experts hold them."""

    fused_matrices: ClassVar[dict[str, Any]] = {"grouped.weight": (32, 16, 16), "gated": 2}

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 2)
        self.c_attn = nn.Linear(32, 96)
        self.other = nn.ModuleDict({"qkv": nn.Linear(32, 96), "plain": nn.Linear(32, 96)})
        self.grouped = nn.Linear(32, 64)
        self.lstm = nn.LSTM(32, 32)
        self.gru = nn.GRUCell(32, 32)
        self.left = nn.ModuleDict({"c_attn": FromTheLeft()})
        self.experts = nn.Parameter(torch.zeros(4, 32, 32))
        self.gated = nn.Parameter(torch.zeros(4, 64, 32))
        self.audio = nn.Conv1d(32, 32, 3)
        self.normed = parametrizations.weight_norm(nn.Conv1d(32, 32, 3))
        self.cls = nn.Parameter(torch.zeros(1, 1, 32))
        self.places = nn.Parameter(torch.zeros(1, 7, 32))
        self.vector = nn.Linear(32, 1)


class FromTheLeft(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(32, 96))


def layouts(model: nn.Module) -> dict[str, list[tuple[int, ...]]]:
    """The shapes that are made orthogonal, by the name of the parameter."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: [tuple(part.flatten(1).shape) for part in matrices_in(parameter, group["layout"])]
        for group in matrix_groups(model, hidden_matrices(model, head=()))
        for parameter in group["params"]
    }


def test_what_a_parameter_holds_is_known_by_module_name_and_declaration() -> None:
    square = (32, 32)
    assert layouts(Fused()) == {
        "attention.in_proj_weight": [square] * 3,
        "attention.out_proj.weight": [square],
        "c_attn.weight": [square] * 3,
        "other.qkv.weight": [square] * 3,
        "other.plain.weight": [(96, 32)],
        "grouped.weight": [square, (16, 32), (16, 32)],
        "lstm.weight_ih_l0": [square] * 4,
        "lstm.weight_hh_l0": [square] * 4,
        "gru.weight_ih": [square] * 3,
        "gru.weight_hh": [square] * 3,
        "left.c_attn.weight": [square] * 3,
        "experts": [square] * 4,
        "gated": [square] * 8,
        "audio.weight": [(32, 96)],
        "normed.parametrizations.weight.original1": [(32, 96)],
    }


def test_each_of_fused_matrices_gets_an_update_as_long_as_alone() -> None:
    gradient = weak_values()
    alone = [float(orthogonalise(part).norm()) for part in gradient.chunk(3)]
    groups = matrix_groups(Fused(), ["c_attn.weight"])
    layout = groups[0]["layout"]
    apart = [float(x.norm()) for x in moved(nn.Parameter(torch.zeros(96, 32)), gradient, layout=layout).chunk(3)]
    assert apart == pytest.approx(alone) and min(apart) > 4.8
    whole = [float(part.norm()) for part in moved(nn.Parameter(torch.zeros(96, 32)), gradient).chunk(3)]
    assert whole[2] < whole[0] / 10, "the control: as one matrix, the values hardly move"


def test_experts_are_matrices_of_their_own() -> None:
    gradient = drawn(4, 32, 32)
    update = moved(nn.Parameter(torch.zeros(4, 32, 32)), gradient)
    for expert, alone in zip(update, gradient, strict=True):
        np.testing.assert_allclose(-expert, orthogonalise(alone), atol=1e-5)
        values = torch.linalg.svdvals(expert)
        assert values.median() > 0.6 and values.max() < 1.22
    wide = moved(nn.Parameter(torch.zeros(4, 32, 32)), gradient, layout="filters")
    assert torch.linalg.svdvals(wide[0]).min() < 0.05, "the control: as one wide matrix they share their directions"


@pytest.mark.parametrize("declared", [5, 0, -1, (32, 32), "three", (96.0,), True])
def test_a_declaration_that_does_not_fit_is_refused(declared: Any) -> None:
    class Wrong(nn.Module):
        fused_matrices: ClassVar[dict[str, Any]] = {"qkv.weight": declared}

        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(32, 96)

    with pytest.raises(RecipeError, match=r"fused_matrices: qkv.weight: found .* divides its 96 rows"):
        matrix_groups(Wrong(), ["qkv.weight"])


def test_queries_keys_and_values_of_the_models_here_are_apart() -> None:
    gpt = AnySpec(depth=1, width=8, heads=2).build(example_shape=(4,), classes=256)
    assert layouts(gpt)["blocks.0.attention.qkv.weight"] == [(8, 8)] * 3

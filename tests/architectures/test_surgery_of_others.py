"""Surgery on models as the field writes them: what it computes, what trains, what is refused."""

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine import architectures
from explorer.engine.architectures import Block, attentions_of, branches_of
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop
from explorer.engine.modules import LowPrecision
from explorer.errors import RecipeError
from explorer.methods import METHODS
from explorer.methods.alibi import apply_alibi
from explorer.methods.blurpool import apply_blurpool
from explorer.methods.factorize import apply_factorize
from explorer.methods.gated_linear_units import apply_gated_linear_units
from explorer.methods.ghost_batchnorm import apply_ghost_batchnorm
from explorer.methods.low_precision_layernorm import apply_low_precision_layernorm
from explorer.methods.squeeze_excite import apply_squeeze_excite
from explorer.methods.stochastic_depth import apply_stochastic_depth, gates_of, keep, stochastic_depth
from explorer.methods.weight_standardization import apply_weight_standardization
from explorer.models.transformer import AlibiBias, Attention, alibi_slopes
from explorer.training import custom
from tests.architectures import models
from tests.architectures.models import ARCHITECTURES, PLACES, TOKENS, WIDTH, Architecture
from tests.architectures.table import CHANGED, METHOD_NAMES, Change, cell, changed

BY_NAME = {architecture.name: architecture for architecture in ARCHITECTURES}
# Those that need a package are slow tests: `.ci/run` installs it for these. So are those that are like another one.
PARAMETERS = [
    pytest.param(
        architecture,
        id=architecture.name,
        marks=[pytest.mark.slow] * bool(architecture.library or architecture.like),
    )
    for architecture in ARCHITECTURES
]


@pytest.fixture(params=PARAMETERS)
def architecture(request: pytest.FixtureRequest) -> Architecture:
    if not request.param.is_here:
        pytest.skip(f"{request.param.library} is not installed")
    return request.param


@pytest.fixture(autouse=True)
def _one_seed() -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    return model(inputs)


def gradients(model: nn.Module, inputs: Tensor) -> dict[str, Tensor | None]:
    model.zero_grad(set_to_none=True)
    outputs(model, inputs).square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


# --- every method on every architecture ---


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_changed_model_trains_and_its_tensors_load(architecture: Architecture, method: str) -> None:
    if cell(architecture, method) is not Change.DONE:
        return
    before, inputs = torch.get_rng_state(), architecture.inputs()
    model, again = changed(architecture, method, seed=0), changed(architecture, method, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    reached = gradients(model.train(), inputs)
    assert not [name for name, grad in reached.items() if grad is None or not grad.isfinite().all()]
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-2)
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    first = float(outputs(model, inputs).detach().square().mean())
    optimiser.step()
    assert float(outputs(model, inputs).detach().square().mean()) < first
    assert any(not torch.equal(weights[name], parameter) for name, parameter in model.named_parameters())
    again.load_state_dict(model.state_dict())
    with torch.no_grad():  # in evaluation, where torch has kernels that read the weights of whole layers
        assert torch.equal(outputs(model.eval(), inputs), outputs(again.eval(), inputs))
        if method != "channels_last":
            assert torch.equal(outputs(copy.deepcopy(model), inputs), outputs(model, inputs))


def test_zero_strength_is_the_same_model_bit_for_bit(architecture: Architecture) -> None:
    inputs = architecture.inputs()
    for name in METHOD_NAMES:
        neutral = METHODS[name](**CHANGED.get(name, {})).neutral()
        if neutral is None or cell(architecture, name) is not Change.DONE:
            continue
        plain, same = architecture.made(), changed(architecture, name, seed=0, method=neutral)
        expected, found = gradients(plain.train(), inputs), gradients(same.train(), inputs)
        assert all(torch.equal(found[key], grad) for key, grad in expected.items() if grad is not None)  # pyright: ignore
        with torch.no_grad():
            assert torch.equal(outputs(plain.eval(), inputs), outputs(same.eval(), inputs))


# --- stochastic depth ---


def residual(architecture: Architecture) -> nn.Module:
    model = architecture.made()
    apply_stochastic_depth(model, rate=0.5)
    return model


def test_an_omitted_branch_is_not_computed(architecture: Architecture) -> None:
    model, inputs = residual(architecture).train(), architecture.inputs()
    branches, gates = branches_of(model), gates_of(model)
    assert len(branches) == len(gates) >= 2
    plain = outputs(architecture.made().train(), inputs)
    assert torch.equal(outputs(model, inputs), plain)
    weighed = [torch.tensor([1.0, 0.0, 1.0, 0.0])] * len(gates)
    keep(gates, weighed)
    by_row = outputs(model, inputs)
    assert not torch.equal(by_row, plain)
    keep(gates, [torch.ones(4)] * len(gates))
    assert torch.equal(outputs(model, inputs), plain)
    keep(gates, [torch.zeros(4)] * len(gates))
    nothing = outputs(model, inputs)
    keep(gates, [False] * len(gates))
    reached = gradients(model, inputs)
    # To rounding: zeros may lie in memory in another order than what was computed, and convolutions read by it.
    torch.testing.assert_close(outputs(model, inputs), nothing)
    # Of the branch, only the normalisation before it and what joins its parts may be used: for nothing.
    within = {id(parameter) for branch in branches for module in branch.modules for parameter in module.parameters()}
    omitted = [name for name, parameter in model.named_parameters() if id(parameter) in within]
    assert omitted and all(reached[name] is None for name in omitted)
    assert all(grad.isfinite().all() for grad in reached.values() if grad is not None)
    keep(gates, [True] * len(gates))
    assert all(gradients(model, inputs)[name] is not None for name in omitted)


def scaled(_: nn.Module, __: Any, output: Any, *, survival: float, pair: bool) -> Any:
    return (output[0] * survival, *output[1:]) if pair else output * survival


def test_evaluation_weighs_a_branch_by_its_survival(architecture: Architecture) -> None:
    model, inputs = residual(architecture).eval(), architecture.inputs()
    rates = [gate.survival for gate in gates_of(model)]
    assert rates == [1 - 0.5 * (number + 1) / len(rates) for number in range(len(rates))]
    by_hand = architecture.made().eval()
    for branch, survival in zip(branches_of(by_hand), rates, strict=True):
        branch.modules[-1].register_forward_hook(partial(scaled, survival=survival, pair=branch.pairs[-1]))
    with torch.no_grad():
        assert torch.equal(outputs(model, inputs), outputs(by_hand, inputs))
        assert not torch.equal(outputs(model, inputs), outputs(architecture.made().eval(), inputs))


def test_a_block_without_its_branch_is_its_shortcut() -> None:
    model = models.ResNet(models.BasicBlock)
    apply_stochastic_depth(model)
    keep(gates_of(model), [False] * 4)
    x = torch.randn(2, 16, 8, 8)
    first: Any = model.layer2[0]
    second = model.layer2[1]
    assert torch.equal(second.train()(x.repeat(1, 2, 1, 1)), F.relu(x.repeat(1, 2, 1, 1)))
    expected = F.relu(copy.deepcopy(first.downsample)(x))
    assert torch.equal(first.train()(x), expected)


class _Task:
    """Rows by number, and a loss that any output has."""

    def __init__(self, architecture: Architecture) -> None:
        self.rows = architecture.inputs(rows=24)

    def batch(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        return self.rows[numbers], torch.from_numpy(numbers % 3)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.flatten(1)[:, :3], targets, reduction="none")

    def metrics(self, model: nn.Module) -> dict[str, float]:
        return {"nll": float(model(self.rows[:4]).square().mean())}


def loop_of(architecture: Architecture, methods: list[Any]) -> Loop:
    numbers = {"epochs": 2, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.05, "momentum": 0.9}}}
    training = custom._training(numbers, methods)
    pace, steps = custom.length(training, "test", examples=24, ssr=1.0)
    task = _Task(architecture)
    setting = custom._setting(architecture.made(), task, training, examples=24, seed=3, pace=pace, steps=steps)
    return Loop(setting, training.methods, Clock(setting.batches.device, warmup_steps=0, split=False))


@pytest.mark.parametrize("mode", ["block", pytest.param("sample", marks=pytest.mark.slow)])
def test_a_run_resumes_bit_for_bit(architecture: Architecture, mode: str) -> None:
    methods: list[Any] = [{"stochastic_depth": {"rate": 0.8, "mode": mode, "warmup": 0.3}}]
    whole, parts = loop_of(architecture, methods), loop_of(architecture, methods)
    for _ in range(3):
        whole.step()
    parts.restore({key: tensor.clone() for key, tensor in whole.tensors().items()}, step=3)
    losses = [[float(loop.step()) for _ in range(3)] for loop in (whole, parts)]
    assert losses[0] == losses[1]
    assert all(torch.equal(tensor, parts.tensors()[key]) for key, tensor in whole.tensors().items())
    other = loop_of(architecture, [])  # the control: without the method the bits are others
    for _ in range(3):
        other.step()
    assert [float(other.step()) for _ in range(3)] != losses[0]


def test_rows_have_draws_of_their_own_only_where_they_come_first() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    with pytest.raises(RecipeError, match=r"found dropout1, whose first dimension is places: expected rows first"):
        apply_stochastic_depth(layer, by_row=True)
    assert apply_stochastic_depth(layer) == ["dropout1", "dropout2"]


def test_a_model_that_is_called_by_name_draws_too() -> None:
    model, inputs = models.NanoGPT(), BY_NAME["nanoGPT"].inputs()
    stochastic_depth(model, draws=np.random.default_rng(0), rate=0.9, mode="sample")
    assert not torch.equal(model(idx=inputs), model(idx=inputs))
    assert torch.equal(model.eval()(idx=inputs), model(idx=inputs))


def test_a_module_that_ends_two_branches_is_refused() -> None:
    block = models.TimmBlock(8)
    block.drop_path1 = block.drop_path2
    with pytest.raises(RecipeError, match="found drop_path1 and drop_path2, one module"):
        apply_stochastic_depth(block)


def test_a_block_with_parts_that_no_description_names_stays() -> None:
    block = models.BasicBlock(8, 8, 1, None)
    assert branches_of(block)
    block.conv3 = nn.Conv2d(8, 8, 1)
    assert not branches_of(block)
    swapped = nn.Module()  # a pre-activation block: its normalisations come first, and the branch ends elsewhere
    for name in ("bn1", "conv1", "bn2", "conv2"):
        swapped.add_module(name, getattr(models.BasicBlock(8, 8, 1, None), name))
    swapped.downsample = None  # pyright: ignore[reportArgumentType]
    assert not branches_of(swapped)
    with pytest.raises(RecipeError, match=r"stochastic_depth: found nothing to change in Module: expected residual"):
        apply_stochastic_depth(swapped)


def test_a_description_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mixer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.mix = nn.LayerNorm(4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.mix(self.norm(x))

    mine = Block(as_in="mine", parts=("norm", "mix"), branches=(("mix",),), tokens=True)
    monkeypatch.setattr(architectures, "BLOCKS", [*architectures.BLOCKS, mine])
    model, x = nn.Sequential(Mixer(), Mixer()), torch.randn(3, 4)
    assert apply_stochastic_depth(model) == ["0.mix", "1.mix"]
    keep(gates_of(model), [False, False])
    assert torch.equal(model(x), x)


# --- ALiBi ---


def test_alibi_on_nanogpt_is_that_of_our_own_attention_bit_for_bit() -> None:
    theirs, ours = models.NanoAttention(), Attention(WIDTH, heads=4, branches=1)
    with torch.no_grad():
        ours.qkv.weight.copy_(theirs.c_attn.weight)
        ours.qkv.bias.copy_(theirs.c_attn.bias)
        ours.out.weight.copy_(theirs.c_proj.weight)
        ours.out.bias.copy_(theirs.c_proj.bias)
    assert apply_alibi(theirs) == apply_alibi(ours) == [""]
    x = torch.randn(3, PLACES, WIDTH)
    assert torch.equal(theirs(x), ours(x))


def by_hand(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """softmax(q k / sqrt(d) - m |i - j|) v, written out."""
    place = torch.arange(q.shape[2])
    distance = (place[:, None] - place).float()
    scores = q @ k.mT / math.sqrt(q.shape[-1]) - alibi_slopes(q.shape[1]).float()[:, None, None] * distance.abs()
    return (scores.masked_fill(distance < 0, -math.inf) if causal else scores).softmax(-1) @ v


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_alibi_on_torchs_attention_is_the_formula(causal: bool, weights: bool, training: bool) -> None:
    module, x = nn.MultiheadAttention(12, 3, batch_first=True).train(training), torch.randn(2, 6, 12)
    apply_alibi(module)
    mask = nn.Transformer.generate_square_subsequent_mask(6) if causal else None
    q, k, v = (
        part.view(2, 6, 3, 4).transpose(1, 2)
        for part in F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
    )
    expected = module.out_proj(by_hand(q, k, v, causal=causal).transpose(1, 2).reshape(2, 6, 12))
    with torch.no_grad():
        found, _ = module(x, x, x, attn_mask=mask, need_weights=weights, is_causal=causal)
    torch.testing.assert_close(found, expected)


def test_attention_to_other_rows_is_refused() -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    apply_alibi(nn.Sequential(module))
    with pytest.raises(RecipeError, match=r"alibi: found attention to other rows in 0: expected self-attention"):
        module(torch.randn(1, 3, 8), torch.randn(1, 3, 8), torch.randn(1, 3, 8))


def test_scores_that_cannot_be_reached_are_refused_by_name() -> None:
    class Linear(nn.Module):  # attention without a softmax
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(4, 12), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, -1)
            return self.proj(q @ (k.mT @ v))

    model = nn.Sequential(Linear())
    apply_alibi(model)
    with pytest.raises(RecipeError, match=r"alibi: found no scores in 0: expected self-attention"):
        model(torch.randn(1, 3, 4))


def test_causal_attention_to_more_keys_is_refused() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(4, 12), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x)[:, None].chunk(3, -1)
            return F.scaled_dot_product_attention(q[:, :, 1:], k, v, is_causal=True)

    model = nn.Sequential(Growing())
    apply_alibi(model)
    with pytest.raises(RecipeError, match=r"alibi: found causal attention of 2 places to 3 in 0"):
        model(torch.randn(1, 3, 4))


@pytest.mark.parametrize("build", [models.NanoGPT, models.Encoder])
def test_alibi_takes_longer_rows_and_no_later_places(build: Callable[[], nn.Module]) -> None:
    model = build().eval()
    names = apply_alibi(model)
    assert [name for name in names if name.endswith("wpe")] and not [key for key in model.state_dict() if "wpe" in key]
    tokens = torch.randint(0, TOKENS, (2, 3 * PLACES))
    other = tokens.clone()
    other[:, 20:] = 0
    with torch.no_grad():
        long, cut = outputs(model, tokens), outputs(model, other)
    torch.testing.assert_close(long[:, :20], cut[:, :20])
    assert not torch.allclose(long[:, 20:], cut[:, 20:])


def test_positions_that_are_parameters_become_zeros() -> None:
    model = models.TimmViT()
    assert "pos_embed" in apply_alibi(model)
    assert "pos_embed" not in dict(model.named_parameters()) and not model.pos_embed.any()
    assert "pos_embed" not in model.state_dict()


def attention_of(model: nn.Module) -> Any:
    return attentions_of(model)[0][1]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_alibi_on_transformers_is_the_formula(name: str, form: str) -> None:
    pytest.importorskip("transformers")
    model = getattr(models, name)(attn_implementation=form).eval()
    names = apply_alibi(model)
    assert any("position_embeddings" in key or "wpe" in key or "rotary" in key for key in names)
    attention, seen = attention_of(model), {}
    attention.register_forward_hook(
        lambda module, args, kwargs, out: seen.update(x=(args or [kwargs["hidden_states"]])[0], y=out[0]),
        with_kwargs=True,
    )
    with torch.no_grad():
        outputs(model, torch.randint(0, TOKENS, (2, PLACES)))
        x = seen["x"]
        if name == "gpt2":
            q, k, v = attention.c_attn(x).split(WIDTH, -1)
        else:
            parts = ("q_proj", "k_proj", "v_proj") if name == "llama" else ("query", "key", "value")
            q, k, v = (getattr(attention, part)(x) for part in parts)
        q, k, v = (part.view(*part.shape[:2], -1, WIDTH // 4).transpose(1, 2) for part in (q, k, v))
        k, v = (part.repeat_interleave(4 // part.shape[1], 1) for part in (k, v))
        y = by_hand(q, k, v, causal=name != "bert").transpose(1, 2).flatten(2)
        if name != "bert":  # there, the projection is a module of its own
            y = getattr(attention, "c_proj" if name == "gpt2" else "o_proj")(y)
    torch.testing.assert_close(seen["y"], y, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generation_with_a_cache_sees_the_same_distances(name: str) -> None:
    pytest.importorskip("transformers")
    model = getattr(models, name)().eval()
    apply_alibi(model)
    tokens = torch.randint(0, TOKENS, (2, 10))
    with torch.no_grad():
        whole = model.model(input_ids=tokens).logits
        first = model.model(input_ids=tokens[:, :6], use_cache=True)
        rest = [first.logits]
        # Later releases call it `cache`, and warn of the old name.
        name_of_cache = "cache" if "cache" in signature(model.model.forward).parameters else "past_key_values"
        cache = first.past_key_values
        for at in range(6, 10):
            step = model.model(input_ids=tokens[:, at : at + 1], **{name_of_cache: cache}, use_cache=True)
            rest.append(step.logits)
            cache = step.past_key_values
    torch.testing.assert_close(torch.cat(rest, 1), whole, atol=1e-5, rtol=1e-4)


def test_a_bias_for_cached_keys_is_the_end_of_the_whole_one() -> None:
    bias, query = AlibiBias(4), torch.zeros(1, 4, 2, 8)
    assert torch.equal(bias(query, 7), AlibiBias(4)(torch.zeros(1, 4, 7, 8))[..., 5:, :])


# --- feed-forwards, factors, norms, filters ---


def test_a_gated_feed_forward_is_the_formula() -> None:
    mlp, x = models.TimmMlp(12, 48), torch.randn(2, 5, 12)
    before = sum(parameter.numel() for parameter in mlp.parameters() if parameter.ndim == 2)
    assert apply_gated_linear_units(mlp) == [""]
    weights = dict(mlp.named_parameters())
    assert weights.keys() == {"fc1.gate.weight", "fc1.up.weight", "fc2.weight"}
    inside = F.gelu(x @ weights["fc1.gate.weight"].T) * (x @ weights["fc1.up.weight"].T)
    torch.testing.assert_close(mlp(x), inside @ weights["fc2.weight"].T)
    assert sum(parameter.numel() for parameter in mlp.parameters()) == before


def test_the_head_of_a_classifier_is_no_feed_forward() -> None:
    head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 5))
    with pytest.raises(RecipeError, match="gated_linear_units: found nothing to change in Sequential"):
        apply_gated_linear_units(head)


@pytest.mark.slow
def test_a_transposed_layer_is_factorised() -> None:
    pytest.importorskip("transformers")
    layer = import_module("transformers.pytorch_utils").Conv1D(96, 32)  # its weight is inputs x outputs
    with torch.no_grad():
        layer.weight.copy_(torch.randn(32, 4) @ torch.randn(4, 96))
        layer.bias.normal_()
    x = torch.randn(5, 32)
    expected, model = layer(x), nn.Sequential(layer)
    assert apply_factorize(model, linear_rank=4, min_features=32) == ["0"]
    torch.testing.assert_close(model(x), expected, atol=1e-4, rtol=1e-4)
    assert sum(parameter.numel() for parameter in model.parameters()) == 4 * (32 + 96) + 96
    names = apply_factorize(models.gpt2(), linear_rank=23, min_features=32)
    assert [name for name in names if name.endswith("c_attn")]


def test_a_batch_norm_that_ends_with_an_activation_keeps_it() -> None:
    class BatchNormAct2d(nn.BatchNorm2d):  # as in timm: normalises, then activates
        def forward(self, input: Tensor) -> Tensor:
            return F.relu(super().forward(input))

    layer, plain, x = BatchNormAct2d(4), nn.BatchNorm2d(4), torch.randn(8, 4, 3, 3)
    for norm in (layer, plain):
        apply_ghost_batchnorm(norm, size=4)
    assert torch.equal(layer(x), F.relu(plain(x)))
    assert torch.equal(layer.running_mean, plain.running_mean)  # pyright: ignore[reportArgumentType]
    assert layer.momentum == 0.1


def test_a_norm_that_moves_channels_first_runs_in_low_precision() -> None:
    layer, x = models.LayerNorm2d(4), torch.randn(2, 4, 3, 3)
    with torch.no_grad():
        layer.weight.normal_()
    weight, shift = (tensor.detach().bfloat16() for tensor in (layer.weight, layer.bias))
    expected = F.layer_norm(x.bfloat16().permute(0, 2, 3, 1), (4,), weight, shift, layer.eps).permute(0, 3, 1, 2)
    apply_low_precision_layernorm(layer)
    assert isinstance(layer, LowPrecision)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    assert found.dtype == torch.bfloat16 and torch.equal(found, expected)
    found.float().sum().backward()
    gain = dict(layer.named_parameters())["weight"]
    assert gain.grad is not None and gain.dtype == torch.float32


class Conv2dSame(nn.Conv2d):
    """As in timm's ports of TensorFlow's models: it pads, and computes by itself."""

    def forward(self, input: Tensor) -> Tensor:
        return F.conv2d(F.pad(input, (0, 1, 0, 1)), self.weight, self.bias, self.stride)


class Conv2dPadded(nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        return super().forward(F.pad(input, (0, 1, 0, 1)))


@pytest.mark.parametrize("apply", [apply_blurpool, apply_weight_standardization])
def test_a_convolution_that_computes_by_itself_is_refused(apply: Callable[[nn.Module], list[str]]) -> None:
    with pytest.raises(RecipeError, match=r"found 0 \(Conv2dSame\), whose forward does not call that of Conv2d"):
        apply(nn.Sequential(Conv2dSame(16, 16, 3, 2)))
    assert apply(nn.Sequential(Conv2dPadded(16, 16, 3, 2))) == ["0"]


def test_what_is_excited_already_or_adds_to_tokens_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"found features.1.stochastic_depth, which is excited already"):
        apply_squeeze_excite(models.EfficientNet())
    with pytest.raises(RecipeError, match=r"found blocks.0.drop_path1, which adds to tokens"):
        apply_squeeze_excite(models.TimmViT())


def test_excitation_acts_once_in_each_block_before_the_sum() -> None:
    model = models.ResNet(models.BasicBlock)
    assert apply_squeeze_excite(model) == ["layer1.0.bn2", "layer1.1.bn2", "layer2.0.bn2", "layer2.1.bn2"]
    block: Any = model.layer1[1].eval()
    x = torch.randn(2, 16, 8, 8)
    inside = block.conv2(block.relu(block.bn1(block.conv1(x))))
    branch = block.bn2.excite(F.batch_norm(inside, torch.zeros(16), torch.ones(16)))
    torch.testing.assert_close(block(x), F.relu(branch + x))

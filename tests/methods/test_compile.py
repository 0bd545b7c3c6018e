"""Compile: the plain model's numbers, nobody else's passes, and time apart."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.loop import Loop
from explorer.engine.modules import initialise
from explorer.errors import RecipeError, TrainingError
from explorer.methods import compile as module
from explorer.methods.compile import Compile, Compiled, copied, options_of, require_compiler
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.models.table import MODELS
from explorer.models.unet import largest_of_cubes
from explorer.recipes.recipe import build_recipe
from explorer.run_files import Timings
from explorer.training.run_plan import plan_run
from tests.loop_for_tests import noise_loop, small_net

CAPTURED = Compile(backend="aot_eager")


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Dropping(nn.Sequential):
    """Statistics, and dropout before the head."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten())
        self.append(nn.Dropout(0.5)).append(nn.Linear(32, 3))


def timed(loop: Loop, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        loop.clock.start_step(loop.state.step)
        losses.append(float(loop.step()))
        loop.clock.end_step()
    return losses


def test_captured_steps_are_the_plain_ones_dropout_included() -> None:
    """To the bit: capturing alone changes no operation, and draws come from the stream that they always come from."""
    captured, plain = noise_loop([CAPTURED], model=Dropping()), noise_loop(model=Dropping())
    assert timed(captured, 3) == timed(plain, 3)
    ours, theirs = captured.tensors(), plain.tensors()
    assert ours.keys() == theirs.keys(), "no prefix in the names"
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_step_that_compiles_is_apart_from_the_training_time() -> None:
    """One step for each size of the images, and no other."""
    resizing = ProgressiveResizing(delay=0.5, finetune=0.5, increment=1)
    loop = noise_loop([CAPTURED, resizing], total_steps=6)
    timed(loop, 6)
    assert isinstance(loop.state.forward, Compiled) and loop.state.forward.graphs == 2
    assert loop.clock.timed_steps == 4
    timings = loop.clock.timings(Timings())
    assert timings.compile > timings.training() > 0


def test_only_training_passes_are_compiled() -> None:
    loop = noise_loop([CAPTURED])
    assert isinstance(loop.state.forward, Compiled)
    loop.evaluate()
    assert loop.state.forward.graphs == 0
    loop.step()
    assert loop.state.forward.graphs == 1
    loop.evaluate()
    assert loop.state.forward.graphs == 1


def test_a_hook_that_comes_later_is_not_forgotten() -> None:
    """What was compiled for a model without hooks does not serve one of the same structure that has some."""
    doubled = small_net()
    handle = doubled[-1].register_forward_hook(lambda _module, _inputs, output: output.mul(2))
    inputs = torch.randn(2, 2, 6, 4)
    plain = small_net()
    Compiled(plain, backend="aot_eager")(inputs)
    with_hook = Compiled(doubled, backend="aot_eager")(inputs)
    torch.testing.assert_close(with_hook, doubled(inputs))
    handle.remove()
    assert not torch.allclose(with_hook, doubled(inputs))


def test_too_many_graphs_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_GRAPHS", 1)
    resizing = ProgressiveResizing(delay=0.5, finetune=0.5, increment=1)
    loop = noise_loop([CAPTURED, resizing], total_steps=4)
    loop.step()
    loop.step()
    with pytest.raises(TrainingError, match="step 3 is the first to need more than 1 graphs"):
        loop.step()


class Breaking(nn.Linear):
    """A model that looks at its own numbers."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.flatten(1)) * (1 if float(input.sum()) > 0 else 2)


def test_what_cannot_be_captured_whole_is_an_error() -> None:
    loop = noise_loop([CAPTURED], model=Breaking(48, 3))
    with pytest.raises(TrainingError, match="compile: the model cannot be compiled whole: "):
        loop.step()


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder, exc

    def none() -> str:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    with pytest.raises(RecipeError, match=r"found no C\+\+ compiler that works: expected g\+\+"):
        require_compiler()
    with pytest.raises(RecipeError, match="aot_eager needs none"):
        noise_loop([Compile()])
    noise_loop([CAPTURED])


def test_graphs_are_refused_where_there_are_none_and_choices_by_time_where_bits_are_promised() -> None:
    with pytest.raises(RecipeError, match="compile: found mode reduce-overhead on cpu, which has no CUDA graphs"):
        noise_loop([Compile(mode="reduce-overhead")])
    with pytest.raises(RecipeError, match="found mode max-autotune and backend aot_eager: expected backend inductor"):
        Compile(mode="max-autotune", backend="aot_eager")
    with pytest.raises(RecipeError, match=r"compile: .*expected deterministic: fast in train"):
        planned("strict")
    planned("fast")


def planned(kernels: str) -> None:
    """Plan a run with kernels that are chosen by time."""
    train = {"epochs": 1, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.1}}, "deterministic": kernels}
    task, methods = {"dataset": "digits", "model": "resnet8"}, [{"compile": {"mode": "max-autotune"}}]
    recipe = build_recipe("r", task=task, train=train, methods=methods, where="r")
    plan_run(recipe, ssr=1.0, seed=0, threads=1, sweep="s", baseline="r", tuning=None, data=None)


def test_gradients_of_replayed_passes_are_copied_exactly() -> None:
    gradients = {"a": torch.tensor([1.5, -0.0, 0.0, math.inf, -math.inf, math.nan]), "b": torch.randn(3, 4).T}
    copies = copied(gradients)
    for name, gradient in gradients.items():
        assert copies[name].numpy().tobytes() == gradient.numpy().tobytes()
        assert copies[name].stride() == gradient.stride() and copies[name].data_ptr() != gradient.data_ptr()


def test_modes_are_those_of_inductor_with_torch_s_own_draws() -> None:
    assert options_of("default") == {"fallback_random": True}
    assert options_of("reduce-overhead") == {"fallback_random": True, "triton.cudagraphs": True}
    assert options_of("max-autotune")["max_autotune"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own
def test_kernels_chosen_by_time_are_close_to_the_plain_steps() -> None:
    tuned, plain = noise_loop([Compile(mode="max-autotune")], model=Dropping()), noise_loop(model=Dropping())
    assert timed(tuned, 2) == pytest.approx(timed(plain, 2), rel=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own
def test_kernels_are_close_to_the_plain_steps_and_resume_to_the_bit() -> None:
    def made(*methods: Compile) -> Loop:
        return noise_loop(methods, model=Dropping())

    whole, plain, resumed = made(Compile()), made(), made(Compile())
    assert timed(whole, 2) == pytest.approx(timed(plain, 2), rel=1e-4)
    before = {name: tensor.clone() for name, tensor in whole.tensors().items()}
    assert isinstance(whole.state.forward, Compiled) and whole.state.forward.graphs == 1
    torch._dynamo.reset()
    resumed.restore(before, step=2)
    assert timed(whole, 2) == timed(resumed, 2)
    ours, theirs = whole.tensors(), resumed.tensors()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


class Largest(nn.Conv3d):
    """Maximum pooling as GPUs have it."""

    def forward(self, input: Tensor) -> Tensor:
        return largest_of_cubes(F.gelu(super().forward(input))).mean((2, 3, 4))


def of_table(name: str, *shape: int, **parameters: Any) -> nn.Module:
    model = MODELS[name](**parameters).build(example_shape=shape, classes=4)
    initialise(model, seed=0)
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (of_table("airbench", 3, 16, 16, width=0.25), (3, 16, 16)),
        (of_table("resnet8", 3, 16, 16), (3, 16, 16)),
        (of_table("unet", 3, 16, 16, width=8, levels=2), (3, 16, 16)),
        (Largest(2, 4, 3, padding=1), (2, 8, 8, 8)),
    ],
    ids=["airbench", "resnet8", "unet", "cubes"],
)
def test_compiled_gradients_in_bf16_are_near_the_plain_ones(model: nn.Module, shape: tuple[int, ...]) -> None:
    """What is rounded in one pass and not in the other may differ in size, and no more than that."""
    images = torch.randn(16, *shape, generator=torch.Generator().manual_seed(0))
    gradients = []
    for forward in (model, Compiled(model, backend="inductor")):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = forward(images)
        out.float().square().mean().backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))  # type: ignore[union-attr]
    plain, compiled = gradients
    assert compiled.isfinite().all()
    assert torch.cosine_similarity(plain, compiled, dim=0) > 0.99

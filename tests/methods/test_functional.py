"""The methods as functions: each has its example, the defaults and the bits of its method, and clear errors."""

import copy
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from textwrap import dedent
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer
from explorer import functional
from explorer.data.streams import stream
from explorer.engine.averages import refresh_statistics
from explorer.engine.method import Method
from explorer.errors import ExplorerError
from explorer.governance import METHODS as GOVERNED
from explorer.methods import METHODS
from explorer.methods.colout import ColOut
from explorer.methods.cutmix import CutMix
from explorer.methods.cutout import Cutout
from explorer.methods.mixup import MixUp
from explorer.methods.progressive_resizing import ProgressiveResizing
from explorer.methods.random_subset import RandomSubset
from explorer.methods.selective_backprop import SelectiveBackprop
from explorer.models.gpt import GPT, Size
from explorer.models.resnet import ResNet
from explorer.recipes.catalogue import describe
from tests.loop_for_tests import noise_loop
from tests.scenes_for_tests import read, scene_loop

NAMES = sorted(functional.FORMS)
BATCHES, ROWS, CLASSES = 4, 8, 10
TEXT = ("alibi", "gated_linear_units", "low_precision_layernorm", "rotary", "seq_length_warmup")


def example(name: str) -> str:
    """The loop in the documentation of a function."""
    return dedent((inspect.getdoc(getattr(functional, name)) or "").partition("In a loop:\n\n")[2]).rstrip()


def world(name: str) -> dict[str, Any]:
    """What the examples use: a network, batches for it and an optimiser."""
    draws = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model: nn.Module
    if name in TEXT:
        model = GPT(Size(depth=2, width=16, heads=2), context=24, tokens=256, dropout=0.0)
    else:
        norm = "group" if name == "low_precision_groupnorm" else "batch"
        model = ResNet(depth=8, width=1.0, norm=norm, channels=1, classes=CLASSES)
    inputs = torch.randint(256, (BATCHES * ROWS, 1, 8, 8), generator=draws, dtype=torch.uint8)
    labels = torch.randint(CLASSES, (BATCHES * ROWS,), generator=draws)
    tokens = torch.randint(256, (BATCHES * ROWS, 25), generator=draws)
    return {
        "copy": copy,
        "np": np,
        "torch": torch,
        "F": F,
        "functional": functional,
        "refresh_statistics": refresh_statistics,
        "model": model,
        "inputs": inputs / 255,
        "labels": labels,
        "batches": list(zip((inputs / 255).split(ROWS), labels.split(ROWS), strict=True)),
        "raw_batches": list(zip(inputs.split(ROWS), labels.split(ROWS), strict=True)),
        "text_batches": list(zip(tokens[:, :-1].split(ROWS), tokens[:, 1:].split(ROWS), strict=True)),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
    }


def test_every_method_has_a_function_or_a_reason() -> None:
    assert functional.FORMS.keys() | functional.ABSENT.keys() == METHODS.keys()
    assert not functional.FORMS.keys() & functional.ABSENT.keys()
    for name in METHODS.keys() | GOVERNED.keys():
        shown = describe(name)["functional"]
        assert (f"functional.{name}(" in shown["call"]) if name in functional.FORMS else len(shown["absent"]) > 30
    with pytest.raises(AttributeError, match=r"no attribute 'compile': torch.compile\(model\)"):
        getattr(functional, min(functional.ABSENT))


def test_names_are_listed_and_declared_and_load_nothing() -> None:
    stub = Path(explorer.__file__).with_name("functional.pyi").read_text()
    declared = {
        (module, function)
        for module, function in re.findall(r"^from explorer.methods.(\w+) import (\w+) as", stub, re.M)
    }
    assert declared == set(functional.FORMS.items())
    renamed = {name for name, function in functional.FORMS.items() if name != function}
    assert set(re.findall(r"^(\w+) = _\1$", stub, re.MULTILINE)) == renamed
    code = "import sys, explorer; print(*dir(explorer.functional)); print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names, loaded = (line.split() for line in said.splitlines())
    assert names == NAMES and not {"torch", "numpy", "pydantic"} & set(loaded)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_have_the_names_and_defaults_of_the_method(name: str) -> None:
    given = inspect.signature(getattr(functional, name)).parameters
    own = {field.name: field.default for field in fields(METHODS[name]) if field.default is not MISSING}
    assert {key: given[key].default for key in given.keys() & own.keys()} == {
        key: own[key] for key in given.keys() & own.keys()
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_example_trains(name: str) -> None:
    code = example(name)
    lines = [line for line in code.splitlines() if line]
    assert f"functional.{name}(" in code and len(lines) <= 10, f"{len(lines)} lines"
    scope = world(name)
    before = {key: tensor.clone() for key, tensor in scope["model"].state_dict().items()}
    exec(compile(code, name, "exec"), scope)
    after = scope["model"].state_dict()
    assert all(tensor.isfinite().all() for tensor in after.values())
    moved = [key for key in before.keys() & after.keys() if not torch.equal(before[key], after[key])]
    assert len(moved) > len(before) / 2


# --- the bits of the method ---

SAME: list[tuple[Method, Callable[..., tuple[Tensor, Tensor]]]] = [
    (MixUp(alpha=1.0), lambda x, y, **more: functional.mixup(x, y, alpha=1.0, classes=3, **more)),
    (CutMix(), lambda x, y, **more: functional.cutmix(x, y, classes=3, **more)),
    (CutMix(length=0.4), lambda x, y, **more: functional.cutmix(x, y, length=0.4, classes=3, **more)),
    (Cutout(holes=2), lambda x, y, **more: (functional.cutout(x, holes=2, **more), y)),
    (ColOut(), functional.colout),
    (
        RandomSubset(start=0, keep=0.4, interrupt=0),
        lambda x, y, **more: functional.random_subset(x, y, keep=0.4, **more),
    ),
    (
        ProgressiveResizing(increment=1, mode="crop"),
        lambda x, y, **more: functional.progressive_resizing(x, y, progress=0.3, increment=1, mode="crop", **more),
    ),
]


@pytest.mark.parametrize(("method", "form"), SAME, ids=lambda value: getattr(value, "name", ""))
def test_a_function_gives_the_bits_of_its_method(method: Method, form: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """On a whole batch, from the method's own stream."""
    changed, plain = read(noise_loop([method]), step=3), read(noise_loop(), step=3)
    inputs, targets = form(plain.inputs, plain.targets, draws=stream(0, method.name, 3))
    assert torch.equal(inputs, changed.inputs) and torch.equal(targets, changed.targets)
    assert inputs.shape != plain.inputs.shape or not torch.equal(inputs, plain.inputs)


@pytest.mark.parametrize("name", ["cutmix", "colout"])
def test_classes_of_pixels_go_with_their_pixels(name: str) -> None:
    method = METHODS[name]()
    changed, plain = read(scene_loop([method])), read(scene_loop())
    form = getattr(functional, name)
    inputs, targets = form(plain.inputs, plain.targets, draws=stream(0, name, 0))
    assert torch.equal(inputs, changed.inputs) and torch.equal(targets, changed.targets)
    dense = F.one_hot(plain.targets, 3).float()
    _, soft = form(plain.inputs, dense, draws=stream(0, name, 0))
    assert torch.equal(soft.argmax(-1), targets) and torch.equal(soft.sum(-1), torch.ones_like(soft.sum(-1)))


def test_the_hardest_train_and_the_model_is_left_as_it_was() -> None:
    method = SelectiveBackprop(start=0, keep=0.5, interrupt=0)
    loop = noise_loop([method])
    changed, plain = read(loop, step=2), read(noise_loop(), step=2)
    model = loop.setting.model
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    inputs, targets = functional.selective_backprop(
        model, plain.inputs, plain.targets, loss=loss, draws=stream(0, method.name, 2)
    )
    assert torch.equal(inputs, changed.inputs) and torch.equal(targets, changed.targets)
    assert model.training and all(torch.equal(before[key], tensor) for key, tensor in model.state_dict().items())
    with pytest.raises(ExplorerError, match=r"loss of shape \(\) for 8 examples: expected a number for each"):
        functional.selective_backprop(model, plain.inputs, plain.targets, loss=F.cross_entropy, draws=stream(0, "x"))


@pytest.mark.parametrize("name", ["sam", "ema", "swa", "gyro_dropout", "stochastic_depth", "gradient_clipping"])
def test_a_loop_of_ones_own_gives_the_bits_of_the_engine(name: str) -> None:
    """Six steps of a plain loop with the function, and of the engine with the method: the same weights."""
    steps = 6
    parameters = {
        "ema": {"half_life": 0.2, "every": 4},
        "swa": {"start": 0.3, "end": 0.9, "interval": 0.05},
        "gyro_dropout": {"masks": 4, "together": 2},
        "gradient_clipping": {"threshold": 0.1},
    }.get(name, {})
    method = METHODS[name](**parameters)

    def network() -> nn.Module:
        return ResNet(depth=8, width=0.5, norm="group", channels=2, classes=3)

    loop = noise_loop([method], model=network(), total_steps=steps)
    plain = noise_loop(model=network(), total_steps=steps)  # its data and its initial weights; it takes no step
    model, copied = plain.setting.model, copy.deepcopy(plain.setting.model)
    draws, groups = Restarting(), plain.state.regions["shared"].optimizers[0]
    if name == "gyro_dropout":
        functional.gyro_dropout(model, total_steps=steps, **parameters)
    if name == "stochastic_depth":
        functional.stochastic_depth(model, draws=cast(Any, draws))
    for step in range(steps):
        loop.step()
        batch = read(plain, step=step)
        model.train()
        if name == "stochastic_depth":
            draws.restart(step)
        loss = lambda batch=batch: F.cross_entropy(model(batch.inputs), batch.targets)  # noqa: E731
        if name == "sam":
            functional.sam(model, loss)
        else:
            groups.zero_grad()
            loss().backward()
        if name == "gradient_clipping":
            functional.gradient_clipping(model.parameters(), **parameters)
        groups.step()
        if name in ("ema", "swa"):
            getattr(functional, name)(copied, model, step=step, total_steps=steps, **parameters)
    loop.call("after_fit")
    ours = (copied if name in ("ema", "swa") else model).state_dict()
    for key, tensor in loop.setting.model.state_dict().items():
        torch.testing.assert_close(ours[key], tensor, rtol=1e-5, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}")


class Restarting:
    """The stream of the method in every step, as a generator that one hands over once."""

    def restart(self, step: int) -> None:
        self.draws = stream(0, "stochastic_depth", step)

    def random(self, shape: Any) -> np.ndarray:
        return self.draws.random(shape)


def test_a_mean_of_every_step_counts_each_once() -> None:
    """The interval is shorter than a step, so that `due` runs ahead of what was added."""
    mean, model = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    for step in range(10):
        nn.init.constant_(model.weight, float(step))
        functional.swa(mean, model, step=step, total_steps=10, start=0.5, end=0.9, interval=0.01)
    assert mean.weight.item() == pytest.approx(np.mean([4, 5, 6, 7, 8]))


def test_the_average_is_there_for_a_while() -> None:
    model = nn.Linear(2, 1)
    optimizer = functional.schedule_free(model.parameters(), rule="sgd", lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).square().mean().backward()
        optimizer.step()
    before = model.weight.detach().clone()
    with optimizer.averaged():
        average = model.weight.detach().clone()
    assert torch.equal(model.weight, before) and not torch.equal(average, before)
    optimizer.evaluation_point()
    assert torch.equal(model.weight, average)


def test_batches_of_the_plan_cover_the_examples_once() -> None:
    planned = list(functional.batch_size_warmup(200, batch_size=16))
    assert [batch.rows.start for batch in planned[1:]] == [batch.rows.stop for batch in planned[:-1]]
    sizes = [batch.rows.stop - batch.rows.start for batch in planned]
    assert sizes == sorted(sizes) and sizes[0] == 4 and sizes[-1] == 16 and 200 - 16 < planned[-1].rows.stop <= 200
    assert [batch.rate for batch in planned] == pytest.approx([(size / 16) ** 0.5 for size in sizes])


def test_a_frozen_prefix_grows_and_trains_no_more() -> None:
    scope = world("layer_freezing")
    model, (inputs, labels) = scope["model"], scope["batches"][0]
    freezing = functional.layer_freezing(model, inputs)
    assert freezing.freeze(0.4) == []
    frozen = freezing.freeze(0.9)
    assert frozen[:2] == ["conv", "norm"] and not model.norm.training and "head" not in freezing.freeze(1.0)
    freezing.freeze(0.9)
    F.cross_entropy(model(inputs), labels).backward()
    without = {name.rpartition(".")[0] for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without == set(frozen)
    model.train()
    assert freezing.freeze(0.0) == [] and all(parameter.requires_grad for parameter in model.parameters())


def test_muon_leaves_the_head_and_vectors_to_another() -> None:
    model = world("muon")["model"]
    optimizer, rest = functional.muon(model, head=model.head)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    stepped = {names[id(p)] for group in optimizer.param_groups for p in group["params"]}
    assert "conv.weight" in stepped and all(name.endswith(".weight") for name in stepped)
    assert {"head.weight", "head.bias", "norm.weight"} <= {names[id(parameter)] for parameter in rest}
    assert len(stepped) + len(rest) == len(names)


def test_copies_of_a_model_draw_for_themselves() -> None:
    """An average is a copy: its passes set nothing in the model that it was made from."""
    model = world("stochastic_depth")["model"]
    functional.stochastic_depth(model, draws=np.random.default_rng(0), rate=0.9, rule="uniform")
    copied = copy.deepcopy(model)
    copied(torch.zeros(2, 1, 8, 8))
    kept = [[gate.kept for gate in net.modules() if hasattr(gate, "kept")] for net in (model, copied)]
    assert kept[0] == [None] * 3 and None not in kept[1]


# --- errors ---

DRAWS = np.random.default_rng(0)
IMAGES, LABELS, TOKENS = torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 2, 1]), torch.zeros(4, 24, dtype=torch.int64)
PIXELS = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
LINEAR = nn.Linear(2, 2)
WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("mixup", (IMAGES, LABELS), {"draws": DRAWS}, r"mixup: found targets of type torch.int64: expected distributions"),
    (
        "cutmix",
        (IMAGES, LABELS),
        {"draws": DRAWS},
        r"cutmix: found targets .* or class numbers together with classes=K",
    ),
    ("label_smoothing", (LABELS,), {}, r"label_smoothing: found targets of type torch.int64"),
    (
        "label_smoothing",
        (LABELS,),
        {"classes": 2},
        r"found the class number 2: expected 0 to 1, for 2 classes, or -100",
    ),
    ("label_smoothing", (LABELS.float(),), {}, r"found targets of type torch.float32 and shape \(4,\): expected"),
    ("label_smoothing", (LABELS,), {"classes": 3, "smoothing": 1.0}, r"label_smoothing: smoothing: found 1.0: .* less"),
    (
        "mixup",
        (IMAGES[:3], LABELS),
        {"draws": DRAWS, "classes": 3},
        r"inputs of shape \(3, .*: expected as many of both",
    ),
    ("mixup", (IMAGES.byte(), LABELS), {"draws": DRAWS, "classes": 3}, r"mix: found values of type torch.uint8"),
    ("mixup", (IMAGES, LABELS), {"draws": DRAWS, "alpha": -1, "classes": 3}, r"mixup: alpha: found -1: .* equal to 0"),
    (
        "mixup",
        (IMAGES, LABELS),
        {"draws": DRAWS, "alpha": "1"},
        r"mixup: alpha: found '1': input should be a valid number",
    ),
    (
        "cutmix",
        (IMAGES[:, 0, 0], LABELS),
        {"draws": DRAWS},
        r"shape \(4, 8\): expected floating-point images B C H W or",
    ),
    ("cutmix", (IMAGES, LABELS), {"draws": DRAWS, "length": 2}, r"cutmix: length: found 2: .* less than or equal to 1"),
    (
        "cutout",
        (PIXELS,),
        {"draws": DRAWS},
        r"cutout: found torch.uint8 of shape \(4, 1, 8, 8\): expected floating-point",
    ),
    ("cutout", (IMAGES,), {"draws": DRAWS, "holes": 0}, r"cutout: holes: found 0: .* greater than or equal to 1"),
    ("colout", (IMAGES, LABELS), {"draws": DRAWS, "p_row": 1}, r"colout: p_row: found 1: input should be less than 1"),
    ("augmix", (IMAGES,), {"draws": DRAWS}, r"augmix: found torch.float32 .* as they were read, N C H W uint8"),
    ("randaugment", (PIXELS.expand(4, 2, 8, 8),), {"draws": DRAWS}, r"randaugment: .* with 1 channel \(grey\) or 3"),
    ("randaugment", (PIXELS,), {"draws": DRAWS, "operations": "some"}, r"operations: found 'some': .* 'all' or 'safe'"),
    ("progressive_resizing", (IMAGES, LABELS), {"progress": 1.5}, r"progress: found 1.5: expected a share of training"),
    ("progressive_resizing", (IMAGES, LABELS), {"progress": 0.1, "mode": "crop"}, r'no draws: .* for mode="crop"'),
    (
        "progressive_resizing",
        (IMAGES, LABELS),
        {"progress": 0.1, "delay": 0.9},
        r"progressive_resizing: found delay 0.9 and finetune 0.2: expected at most 1 together",
    ),
    ("seq_length_warmup", (TOKENS, LABELS), {"progress": 0.0}, r"expected sequences B T and a target for each token"),
    (
        "seq_length_warmup",
        (TOKENS, TOKENS),
        {"progress": 0, "min_length": 99},
        r"min_length 99 .* sequences of 24 tokens",
    ),
    (
        "random_subset",
        (IMAGES, LABELS),
        {"draws": DRAWS, "keep": 0},
        r"random_subset: keep: found 0: .* greater than 0",
    ),
    ("channels_last", (LABELS,), {}, r"channels_last: found a tensor of shape \(4,\): expected images B C H W"),
    ("ema", (LINEAR, LINEAR), {"step": 0, "total_steps": 2}, r"ema: the average shares its tensors with the model"),
    (
        "ema",
        (nn.Linear(2, 3), LINEAR),
        {"step": 0, "total_steps": 2},
        r"ema: the average and the model differ in weight",
    ),
    ("swa", (nn.Linear(2, 2), LINEAR), {"step": 2, "total_steps": 2}, r"swa: found step 2 of 2: expected 0 to 1"),
    ("swa", (nn.Linear(2, 2), LINEAR), {"step": 0, "total_steps": 2, "end": 0.1}, r"swa: found start 0.7 and end 0.1"),
    ("sam", (LINEAR, lambda: torch.zeros(2)), {}, r"sam: found a loss of shape \(2,\) without a gradient: expected a"),
    ("sam", (LINEAR, lambda: torch.zeros(())), {"rho": -1}, r"sam: rho: found -1: .* greater than or equal to 0"),
    ("gradient_clipping", ([],), {"threshold": 0}, r"gradient_clipping: threshold: found 0: .* greater than 0"),
    ("gradient_clipping", ([],), {"clipping": "norms"}, r"clipping: found 'norms': input should be 'norm', 'value'"),
    ("layer_freezing", (LINEAR, torch.zeros(2, 2)), {"start": 1}, r"layer_freezing: start: found 1: .* less than 1"),
    (
        "muon",
        (LINEAR,),
        {"head": nn.Linear(2, 2)},
        r"muon: head: found no parameter of Linear in it: expected its last",
    ),
    ("muon", (LINEAR,), {"head": LINEAR}, r"muon: found nothing to step in Linear"),
    ("schedule_free", (LINEAR.parameters(),), {"rule": "adam"}, r"rule 'adam'; did you mean 'adamw'"),
    ("schedule_free", (LINEAR.parameters(),), {"beta": 1}, r"schedule_free: beta: found 1: expected a number between"),
    ("batch_size_warmup", (8,), {"batch_size": 9}, r"found batch_size 9 for 8 examples: expected 1 to 8"),
    ("blurpool", (LINEAR,), {"min_channels": 0}, r"blurpool: min_channels: found 0: .* greater than or equal to 1"),
    ("blurpool", (LINEAR,), {}, r"blurpool: found nothing to change in Linear: expected strided convolutions"),
    ("gyro_dropout", (LINEAR,), {"total_steps": 5, "together": 300}, r"gyro_dropout: found together 300 and masks 256"),
    ("stochastic_depth", (LINEAR,), {"draws": DRAWS}, r"stochastic_depth: found nothing to change in Linear"),
]


@pytest.mark.parametrize(
    ("name", "given", "named", "message"), WRONG, ids=[f"{w[0]}-{at}" for at, w in enumerate(WRONG)]
)
def test_what_is_wrong_is_one_clear_error(
    name: str, given: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExplorerError, match=message):
        getattr(functional, name)(*given, **named)

"""What every method that changes a model promises: the same change again, wherever the model is built."""

import pytest
import torch
from torch import nn

from explorer.engine.method import Kind
from explorer.engine.state import State
from explorer.methods import METHODS
from explorer.models.table import MODELS
from explorer.recipes.choice import choose
from tests.methods.samples import SAMPLES, TASKS, active

NAMES = sorted(name for name, method in METHODS.items() if method.kind is Kind.SURGERY)
SHAPES = {"digits": ((1, 8, 8), 10), "text": ((32,), 256)}


def changed(name: str, *, seed: int) -> nn.Module:
    """The sample's model after surgery."""
    sample = SAMPLES[name]
    spec = choose(MODELS, sample.model or TASKS[sample.task]["model"], kind="model", where="test")
    shape, classes = SHAPES[sample.task]
    model = spec.build(example_shape=shape, classes=classes)
    method = choose(METHODS, active(name), kind="method", where="test")
    method.change_model(
        State(seed=seed, total_steps=7, batch_size=4, classes=classes, model=model, recompute=lambda: None)
    )
    return model


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_model_is_built_again_from_its_tensors(name: str) -> None:
    """As a model file is read: without memory first, then with whatever values, then with those of the file."""
    model, again = changed(name, seed=0).eval(), changed(name, seed=1).eval()
    with torch.device("meta"):
        empty = changed(name, seed=0)
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    described = dict(empty.named_parameters()) | dict(empty.named_buffers())
    assert {key: (t.shape, t.dtype) for key, t in tensors.items()} == {
        key: (t.shape, t.dtype) for key, t in described.items()
    }
    assert all(tensor.is_meta for tensor in described.values())
    with torch.no_grad():
        for key, tensor in (dict(again.named_parameters()) | dict(again.named_buffers())).items():
            tensor.copy_(tensors[key])
    shape, classes = SHAPES[SAMPLES[name].task]
    inputs = torch.randint(0, classes, (3, *shape))
    inputs = inputs if SAMPLES[name].task == "text" else inputs.float()
    assert torch.equal(model(inputs), again(inputs))


@pytest.mark.parametrize("name", NAMES)
def test_surgery_draws_nothing_from_the_global_generator(name: str) -> None:
    sample = SAMPLES[name]
    shape, classes = SHAPES[sample.task]
    torch.manual_seed(5)
    choose(MODELS, sample.model or TASKS[sample.task]["model"], kind="model", where="test").build(
        example_shape=shape, classes=classes
    )
    before = torch.get_rng_state()
    torch.manual_seed(5)
    changed(name, seed=0)
    assert torch.equal(torch.get_rng_state(), before)

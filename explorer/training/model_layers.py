"""The layers of an untrained model, by the names that a policy can use.

For a model of the catalogue, `explorer policy check --model` finds them. For your own model:

    Path("mine.layers.txt").write_text(explorer.layers(model, inputs))
    explorer policy check draft.policy.yaml --taxonomy taxonomy.yaml --layers mine.layers.txt

A run determines them once more when it starts, from its first batch.
"""

import json
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from explorer.data.streams import torch_stream
from explorer.engine.leaves import leaves, leaves_met
from explorer.errors import RecipeError
from explorer.governance.layers import governed_layers
from explorer.models.table import MODELS
from explorer.provenance.regions import Layer, write_layers
from explorer.recipes.choice import choose

# A layer's name depends on no size, so any example does; two rows, because BatchNorm needs more than one in training.
SHAPES = {"image": (3, 64, 64), "text": (64,), "volume": (1, 32, 32, 32), "tabular": (16,)}
CLASSES = {"classification": 10, "language": 256, "segmentation": 3}
ROWS = 2


def layers(model: nn.Module, *inputs: Any) -> str:
    """Return the content of a file for `explorer policy check --layers`: the layers that `model(*inputs)` uses, in
    order.

    The model runs once, in training mode, and is left as it was. Raises `RecipeError` for a model that no policy can
    govern, and for a call that uses none of its tensors.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        model.train()
        used = leaves_met(model, lambda: model(*inputs), rows=ROWS)
    finally:
        for module, was in modes.items():
            module.training = was
    if not used:
        raise RecipeError(f"{type(model).__name__}: the call used none of its tensors: expected inputs for a pass")
    return write_layers([layer.layer for layer in governed_layers(model, used)])


def catalogue_layers(name: str, settings: Sequence[str]) -> tuple[Layer, ...]:
    """Return the layers of a model of the catalogue, each of its `settings` such as `width=64`.

    Raises `RecipeError` for an unknown name, and for parameters that it does not have.
    """
    spec = choose(MODELS, {name: dict(map(_setting, settings))}, kind="model", where="--model", code=None)
    with torch_stream(torch.device("cpu"), 0, "layers"):
        model = spec.build(example_shape=SHAPES[spec.takes], classes=CLASSES[spec.task])
    kind = torch.int64 if spec.takes == "text" else torch.float32
    used = leaves(model, torch.zeros(ROWS, *SHAPES[spec.takes], dtype=kind))
    return tuple(layer.layer for layer in governed_layers(model, used))


def _setting(written: str) -> tuple[str, Any]:
    """Return the name and the value of `depth=4`: a JSON number, true or false, or else text."""
    name, equals, value = written.partition("=")
    if not (name and equals):
        raise RecipeError(f"--set: found {written!r:.80}, expected NAME=VALUE such as width=64")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value

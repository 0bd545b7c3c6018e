"""The model that a recorded run leaves: its tensors, and how to build the module that they belong to.

The names are those of the ledger, so that whoever has both can see that the one came out of the other.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from explorer import rundir
from explorer.data.dataset import Split
from explorer.engine.loop import Loop
from explorer.engine.method import Method, used_hooks
from explorer.engine.state import State
from explorer.errors import RecipeError
from explorer.governance.routing import Routing
from explorer.governance.session import Session
from explorer.recipes.choice import written
from explorer.recipes.recipe import Recipe
from explorer.records import RunRecord
from explorer.runlog.model_file import CARD, MODEL, OWN, TYPES, ModelCard, write_card

EXAMPLES = "examples"  # what the ledger of a loop of one's own calls its data


def write_finished(run: Path, loop: Loop, recipe: Recipe, record: RunRecord) -> None:
    """Write the model as it is now, the card last. Raises `RunError` if the disk refuses."""
    place = run / rundir.MODEL
    rundir.write_bytes(place / MODEL, save(model_tensors(loop.state.model)))
    dataset, routing = loop.setting.batches.dataset, loop.state.resource(Session).routing
    card = ModelCard(
        format="explorer/model/v1",
        run=record.run_id,
        model=written(recipe.model),
        methods=changing(recipe.methods),
        example_shape=dataset.example_shape,
        classes=dataset.classes,
        dataset=recipe.dataset.name,
        sealed=routing.policy.sealed if routing else (),
    )
    write_card(place / CARD, card)


def write_own(run: Path, state: State, methods: Sequence[Method], examples: Split) -> None:
    """Write the model of a loop of one's own as it is now, the card last. Raises `RunError` if the disk refuses."""
    place = run / rundir.MODEL
    rundir.write_bytes(place / MODEL, save(model_tensors(state.model)))
    routing = state.resource(Session).routing
    card = ModelCard(
        format="explorer/model/v1",
        run=run.name,
        model={OWN: {"class": class_name(state.model)}},
        methods=changing(methods),
        example_shape=tuple(examples.inputs.shape[1:]),
        classes=0,
        dataset=EXAMPLES,
        sealed=routing.policy.sealed if routing else (),
    )
    write_card(place / CARD, card)


def check_types(model: nn.Module) -> None:
    """Raise `RecipeError` for a tensor that no model file can hold: better now than when all is trained."""
    known = [of for _, of in TYPES.values()]
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if str(tensor.dtype) not in known or tensor.layout is not torch.strided:
            raise RecipeError(
                f"model: {name}: found {tensor.dtype}, {tensor.layout}: the finished model is kept as a safetensors"
                f" file; expected a strided tensor of one of {', '.join(known)}"
            )


def class_name(model: nn.Module) -> str:
    """The class of a model as its record and its card name it."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def changing(methods: Sequence[Method]) -> tuple[dict[str, Any], ...]:
    """The methods that change a model before its regions are sealed, as a card has them."""
    return tuple(
        written(method)
        for method in methods
        if "change_model" in used_hooks(type(method)) and not isinstance(method, Routing)
    )


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, each in memory of its own; one that has several names stands under the first."""
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in found.items()}

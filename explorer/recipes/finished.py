"""The model that a recorded run leaves: its tensors, and how to build the module that they belong to.

The names are those of the ledger, so that whoever has both can see that the one came out of the other.
"""

from pathlib import Path

from safetensors.torch import save
from torch import Tensor, nn

from explorer import rundir
from explorer.engine.loop import Loop
from explorer.engine.method import used_hooks
from explorer.governance.routing import Routing
from explorer.governance.session import Session
from explorer.recipes.choice import written
from explorer.recipes.recipe import Recipe
from explorer.recorded.model_file import CARD, MODEL, ModelCard, write_card
from explorer.records import RunRecord


def write_finished(run: Path, loop: Loop, recipe: Recipe, record: RunRecord) -> None:
    """Write the model as it is now, the card last. Raises `RunError` if the disk refuses."""
    place = run / rundir.MODEL
    rundir.write_bytes(place / MODEL, save(model_tensors(loop.state.model)))
    dataset, routing = loop.setting.batches.dataset, loop.state.resource(Session).routing
    card = ModelCard(
        format="explorer/model/v1",
        run=record.run_id,
        model=written(recipe.model),
        methods=tuple(
            written(method)
            for method in recipe.methods
            if "change_model" in used_hooks(type(method)) and not isinstance(method, Routing)
        ),
        example_shape=dataset.example_shape,
        classes=dataset.classes,
        dataset=recipe.dataset.name,
        sealed=routing.policy.sealed if routing else (),
    )
    write_card(place / CARD, card)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, each in memory of its own; one that has several names stands under the first."""
    found = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in found.items()}

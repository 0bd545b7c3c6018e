"""Scores of a share's examples, by the model as it is when its share begins: what choices among examples look at.

A pass in evaluation mode over the share's own rows, as they were read and varied, with the class's own sealed regions
and no others. It leaves buffers, modes and random draws alone, so a class whose examples are scored changes nothing for
the others by it; and no other class's rows are looked at. Shapes: N examples.
"""

from torch import Tensor

from explorer.engine.probing import undisturbed
from explorer.engine.state import State
from explorer.engine.task import Task
from explorer.governance.sealed import switched_on


def scores(state: State, *names: str) -> dict[str, Tensor]:
    """The scores of these names (`provenance.examples.SCORES`), N each, float32 on the device of the batch.

    Raises `RecipeError` for an entropy that the task does not have.
    """
    assert state.batch is not None and state.share is not None
    task = state.resource(Task)
    with undisturbed(state), switched_on(state.model, state.share.regions):
        outputs = state.model(state.batch.inputs).float()
        found = {"loss": lambda: task.loss(outputs, state.batch.targets), "entropy": lambda: task.entropy(outputs)}  # pyright: ignore
        return {name: found[name]().detach() for name in names}

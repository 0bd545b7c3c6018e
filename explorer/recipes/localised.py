"""G1, localised and ablated: a finished model whose layers that a class trained are put back to where they were before.

It takes out of those layers what the class put in, and what all others did since then too; and it leaves in the other
layers what they learned on top of the class. So it is neither the model without the class nor a deletion: it is here so
that it can be seen for what it is.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from torch import Tensor

from explorer.engine.loop import Loop
from explorer.errors import RunError
from explorer.governance.layers import governed_layers
from explorer.governance.session import Session
from explorer.recipes.replay import newest
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tables import first_admitted, tables
from explorer.runlog.target import Target

MODEL = "model/"  # the prefix of a model's tensors in a checkpoint

Tensors = Mapping[str, Tensor]


def localised(run: Path, target: Target, ended: Tensors, *, initial: Tensors, loop: Loop) -> Tensors:
    """The tensors that the run ended with, those of layers that admitted the target's classes as they were before the
    first step in which one did. `loop` is the run's own, of any step.

    Raises `RunError` where the checkpoint of that step is not there.
    """
    ledger = RunLedger(run)
    admitted = first_admitted(ledger)
    firsts = [step for path in target.classes if (step := admitted[path]) is not None]
    if not firsts:
        return ended
    places = [ledger.class_(path) for path in target.classes]
    trained = {
        ledger.genesis.layers[at]
        for table in tables(ledger)
        for at in np.flatnonzero(table.weights[places].any(axis=0))
    }
    routing = loop.state.resource(Session).routing
    layers = governed_layers(loop.state.model, loop.state.layers, routing.policy.sealed if routing else ())
    back = {name for each in layers if each.layer.name in trained for name in (*each.parameters, *each.buffers)}
    before = _before(run, ledger.genesis.run, min(firsts), initial)
    return {name: before[name] if name in back else tensor for name, tensor in ended.items()}


def _before(run: Path, run_id: str, step: int, initial: Tensors) -> Tensors:
    """The tensors after so many steps, where the run kept a checkpoint."""
    if step == 0:
        return initial
    found = newest(run, run_id, step)
    if found is None or found.step != step:
        raise RunError(f"{run}: the checkpoint of step {step}, before the first one of the target, is not here")
    return {name.removeprefix(MODEL): each for name, each in found.tensors.items() if name.startswith(MODEL)}

"""The probe set: training examples of each class, drawn once, and what the layers make of them.

Which ones they are follows from the seed and the class alone: other classes, present or not, change nothing. An example
that is left out is no probe: the next one in the draw of its class takes its place. The root
that commits to the choice is that of a Merkle tree (RFC 6962) over all of them, in the order of their numbers:

    leaf = SHA-256(0x00 || number of the training example as u64, big-endian || leaf of its row in the tag table)

A layer's output is averaged over places or tokens, so that an example is one row. Looking changes nothing: no buffer,
no gradient, no mode of a module, no random draw.

Shapes: N probes of a class, D numbers of a layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from explorer import merkle
from explorer.data.batches import Batches
from explorer.data.streams import stream
from explorer.engine.leaves import Leaf
from explorer.engine.probing import undisturbed
from explorer.engine.state import State
from explorer.engine.task import Task
from explorer.errors import RecipeError, TrainingError
from explorer.governance.layers import governed_layers
from explorer.governance.region_modules import switch_of, switched_on
from explorer.governance.shared_state import Session
from explorer.provenance.spellings import covers

CHUNK = 256  # examples of one pass


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Probes:
    """The numbers of the training examples, by class path, ascending; and the root over them, in hexadecimal."""

    examples: Mapping[str, np.ndarray]
    root: str


def moments(total_steps: int, *, count: int) -> frozenset[int]:
    """`count` numbers of steps, spread evenly from 0 to the end, both included; 0 alone for one.

    >>> sorted(moments(100, count=5))
    [0, 25, 50, 75, 100]
    """
    return frozenset(index * total_steps // max(1, count - 1) for index in range(count))


def choose_probes(state: State, *, count: int) -> Probes:
    """`count` examples of every class of the session, or all where it has fewer.

    Raises `RecipeError` for a run without verified tags, and in a loop of one's own.
    """
    session = state.resource(Session)
    if session.tags is None:
        raise RecipeError("probes are drawn from tagged examples: this run has no tag table")
    if Batches not in state.resources:
        raise RecipeError("probes are read as a recipe's examples are: a loop of one's own reads its own")
    batches = state.resource(Batches)
    examples = {path: _draw(batches, session.codes[path], count, session.gone) for path in session.classes}
    numbers = np.sort(np.concatenate([*examples.values(), np.empty(0, np.int64)]))
    leaves = session.tags.tags.leaves
    root = merkle.root_of(
        merkle.leaf_hash(int(number).to_bytes(8, "big") + leaves[number].tobytes()) for number in numbers
    )
    return Probes(examples=examples, root=root.hex())


def layers_seen(state: State) -> tuple[Leaf, ...]:
    """Return the layers that a policy can name, in order of execution; adapters are not among them."""
    names = {layer.layer.name for layer in governed_layers(state.model, state.layers)}
    return tuple(leaf for leaf in state.layers if leaf.name in names)


def layer_outputs(state: State, probes: Probes, path: str) -> dict[str, Tensor]:
    """Return what every layer makes of a class's probes, N D, by its name, in the order of execution.

    The sealed regions of the class take part, and no others; a layer in a region that does not has zeros. Raises
    `TrainingError` for outputs that are not finite.
    """
    batches, regions = state.resource(Batches), _regions_of(state, path)
    inputs = batches.dataset.train.inputs[torch.from_numpy(probes.examples[path])]
    layers = layers_seen(state)
    outputs_of: dict[str, list[Tensor]] = {leaf.name: [] for leaf in layers}
    with undisturbed(state), switched_on(state.model, regions):
        for chunk in inputs.split(CHUNK):
            seen = _pass(state.model, layers, batches.prepare(chunk))
            for name, rows in outputs_of.items():
                rows.append(seen.get(name, torch.zeros(len(chunk), 1, dtype=torch.float64)))
    outputs = {name: torch.cat(rows) for name, rows in outputs_of.items()}
    for name, rows in outputs.items():
        if not rows.isfinite().all():
            raise TrainingError(f"step {state.step}: layer {name}: outputs for the probes of {path} are not finite")
    return outputs


def of_one_width(rows: Sequence[Tensor]) -> list[Tensor]:
    """Return a layer's outputs for several classes, each N D with one D: where the layer takes no part for a class, it
    has one zero for each example, which becomes as many as the others have."""
    width = max(row.shape[1] for row in rows)
    return [row if row.shape[1] == width else row.new_zeros(len(row), width) for row in rows]


def _draw(batches: Batches, code: int, count: int, gone: NDArray[np.bool_] | None) -> np.ndarray:
    members = np.flatnonzero(batches.typing.codes == code)
    drawn = members[stream(batches.seed, "probes", code).permutation(len(members))]
    here = drawn if gone is None else drawn[~gone[drawn]]
    return np.sort(here[:count])


def _regions_of(state: State, path: str) -> list[str]:
    """Return the sealed regions in the model that the class owns."""
    switch, routing = switch_of(state.model), state.resource(Session).routing
    if switch is None or routing is None:
        return []
    return [region.name for region in routing.policy.sealed if covers(region.branch, path)]


def _pass(model: nn.Module, layers: tuple[Leaf, ...], inputs: Tensor) -> dict[str, Tensor]:
    """Return one pass: the first output of every layer that runs, pooled. A layer whose module is not called itself has
    the output of the module around it."""
    names: dict[nn.Module, list[str]] = {}
    for leaf in layers:
        names.setdefault(leaf.seen_at or leaf.module, []).append(leaf.name)
    seen: dict[str, Tensor] = {}

    def record(module: nn.Module, _: object, output: object) -> None:
        first = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)), None)
        if first is not None and names[module][0] not in seen:
            seen.update(dict.fromkeys(names[module], _pooled(first)))

    handles = [module.register_forward_hook(record) for module in names]
    try:
        model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _pooled(output: Tensor) -> Tensor:
    """N D: an image's mean over its places (N C H W), a sequence's over its tokens (N T D)."""
    places = {3: (1,), 4: (2, 3)}.get(output.ndim)
    return (output if places is None else output.double().mean(places)).flatten(1).to("cpu", torch.float64)


# --- scores of a share ---


def scores(state: State, *names: str) -> dict[str, Tensor]:
    """Return the scores of these names (`provenance.regions.SCORES`), N each, float32 on the device of the batch.

    A pass in evaluation mode over the share's own rows, as they were read and varied, with the class's own sealed
    regions and no others. It leaves buffers, modes and random draws alone, so scoring a class's examples changes
    nothing for the others; and no other class's rows are looked at. N is the share's rows.

    Raises `RecipeError` for an entropy that the task does not have.
    """
    assert state.batch is not None and state.share is not None
    task = state.resource(Task)
    with undisturbed(state), switched_on(state.model, state.share.regions):
        outputs = state.model(state.batch.inputs).float()
        score_of = {"loss": lambda: task.loss(outputs, state.batch.targets), "entropy": lambda: task.entropy(outputs)}  # pyright: ignore
        return {name: score_of[name]().detach() for name in names}

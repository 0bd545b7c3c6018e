"""The probe set: training examples of each class, drawn once, and the layers' outputs for them.

The choice follows only from the seed and the class: other classes, present or not, change nothing. An example that is
left out is no probe: the next one in the draw of its class takes its place. The root that commits to the choice is that
of a Merkle tree (RFC 6962) over all of them, in the order of their numbers:

    leaf = SHA-256(0x00 || number of the training example as u64, big-endian || leaf of its row in the tag table)

A layer's output is averaged over places or tokens, so that an example is one row. Measuring changes nothing: no buffer,
no gradient, no mode of a module, no random draw.

Shapes: N probes of a class, D numbers of a layer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from explorer import merkle
from explorer.data.streams import stream
from explorer.engine.leaves import Leaf
from explorer.engine.probing import Inspection, undisturbed
from explorer.engine.state import State
from explorer.errors import RecipeError, TrainingError
from explorer.governance.layers import governed_layers
from explorer.governance.region_modules import switch_of, switched_on
from explorer.governance.shared_state import Session
from explorer.provenance.spellings import covers

CHUNK = 256  # examples of one pass: bounds the memory

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Probes:
    """The numbers of the training examples, by class path, ascending; and the root over them, in hexadecimal."""

    examples: Mapping[str, np.ndarray]
    root: str


def moments(total_steps: int, *, count: int) -> frozenset[int]:
    """Return `count` numbers of steps, spread evenly from 0 to the end, both included; for one, only 0.

    >>> sorted(moments(100, count=5))
    [0, 25, 50, 75, 100]
    """
    return frozenset(index * total_steps // max(1, count - 1) for index in range(count))


def choose_probes(state: State, *, count: int) -> Probes:
    """Choose `count` examples of every class of the session, or all where it has fewer.

    Raises `RecipeError` for a run without verified tags.
    """
    session = state.resource(Session)
    if session.tags is None:
        raise RecipeError("probes are drawn from tagged examples: this run has no tag table")
    examples = {path: _draw(state, session.codes[path], count, session.gone) for path in session.classes}
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
    """Return every layer's outputs for a class's probes, N D, by the layer's name, in the order of execution.

    Only the sealed regions of the class take part; a layer in another region has zeros. Raises `TrainingError` for
    outputs that are not finite.
    """
    layers, numbers = layers_seen(state), probes.examples[path]
    outputs_of: dict[str, list[Tensor]] = {leaf.name: [] for leaf in layers}
    with undisturbed(state), switched_on(state.model, _regions_of(state, path)):
        for start in range(0, len(numbers), CHUNK):
            chunk = numbers[start : start + CHUNK]
            seen = _seen(state, layers, chunk)
            for name, rows in outputs_of.items():
                rows.append(seen.get(name, torch.zeros(len(chunk), 1, dtype=torch.float64)))
    outputs = {name: torch.cat(rows) for name, rows in outputs_of.items()}
    for name, rows in outputs.items():
        if not rows.isfinite().all():
            raise TrainingError(f"step {state.step}: layer {name}: outputs for the probes of {path} are not finite")
    return outputs


def of_one_width(rows: Sequence[Tensor]) -> list[Tensor]:
    """Return a layer's outputs for several classes, each N D with the same D.

    Where the layer takes no part for a class, it has one zero for each example, which is widened to D.
    """
    width = max(row.shape[1] for row in rows)
    return [row if row.shape[1] == width else row.new_zeros(len(row), width) for row in rows]


def _draw(state: State, code: int, count: int, gone: NDArray[np.bool_] | None) -> np.ndarray:
    # All members are drawn in order, before any is left out: a run without some of them keeps the other probes.
    members = np.flatnonzero(state.resource(Inspection).codes == code)
    drawn = members[stream(state.seed, "probes", code).permutation(len(members))]
    here = drawn if gone is None else drawn[~gone[drawn]]
    return np.sort(here[:count])


def _regions_of(state: State, path: str) -> list[str]:
    """Return the sealed regions in the model that the class owns."""
    switch, routing = switch_of(state.model), state.resource(Session).routing
    if switch is None or routing is None:
        return []
    return [region.name for region in routing.policy.sealed if covers(region.branch, path)]


def _seen(state: State, layers: tuple[Leaf, ...], numbers: np.ndarray) -> dict[str, Tensor]:
    """Return every layer's outputs for these examples, pooled, N D."""
    inspection, rows = state.resource(Inspection), len(numbers)
    longer: dict[str, torch.Size] = {}
    if not inspection.rows_first:
        longer = _pass(
            layers, lambda: inspection.forward(state, np.append(numbers, numbers[-1:])), lambda _, output: output.shape
        )

    def taken(name: str, output: Tensor) -> Tensor:
        return _pooled(output if inspection.rows_first else _rows_first(name, output, rows, longer[name]))

    return _pass(layers, lambda: inspection.forward(state, numbers), taken)


def _pass(
    layers: tuple[Leaf, ...], forward: Callable[[], object], taken: Callable[[str, Tensor], Result]
) -> dict[str, Result]:
    """Run one pass and return what is taken of the first output of every layer that takes part. A layer whose module is
    not called itself has the output of the module around it."""
    names: dict[nn.Module, list[str]] = {}
    for leaf in layers:
        names.setdefault(leaf.seen_at or leaf.module, []).append(leaf.name)
    seen: dict[str, Result] = {}

    def record(module: nn.Module, _: object, output: object) -> None:
        first = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)), None)
        if first is not None and names[module][0] not in seen:
            seen.update(dict.fromkeys(names[module], taken(names[module][0], first)))

    handles = [module.register_forward_hook(record) for module in names]
    try:
        forward()
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _rows_first(name: str, output: Tensor, rows: int, longer: torch.Size) -> Tensor:
    """Return a layer's outputs for this many examples with a row for each. `longer` is the shape of its outputs for one
    example more, which tells where the examples are: one shape does not, where there are as many tokens as examples.

    Examples may be in any dimension, and first with their tokens, as after `flatten(0, 1)`. Outputs that do not depend
    on the number of examples, such as those of positions, are the same row for each. Raises `TrainingError` for others.
    """
    if output.shape == longer:
        return torch.atleast_1d(output).mean(0, dtype=torch.float64, keepdim=True).expand(rows, *output.shape[1:])
    grown = [dim for dim, (now, then) in enumerate(zip(output.shape, longer, strict=False)) if now != then]
    if len(grown) == 1 and output.ndim == len(longer):
        tokens, left = divmod(output.shape[grown[0]], rows)
        if not left and longer[grown[0]] == tokens * (rows + 1) and (tokens == 1 or grown == [0]):
            return output.movedim(grown[0], 0) if tokens == 1 else output.unflatten(0, (rows, tokens))
    raise TrainingError(
        f"layer {name}: found outputs of shape {tuple(output.shape)} for {rows} examples and {tuple(longer)} for"
        f" {rows + 1}: expected a row for each; a layer that sees a choice of tokens, such as an expert, has no output"
        " for an example that can be measured"
    )


def _pooled(output: Tensor) -> Tensor:
    """Return N D: an image's mean over its places (N C H W), a sequence's over its tokens (N T D)."""
    places = {3: (1,), 4: (2, 3)}.get(output.ndim)
    return (output if places is None else output.double().mean(places)).flatten(1).to("cpu", torch.float64)


# --- scores of a share ---


def scores(state: State, *names: str) -> dict[str, Tensor]:
    """Return the scores of these names (`provenance.regions.SCORES`), N each, float32 on the device of the batch.

    They come from a pass in evaluation mode over the share's own rows, N of them, as they were read and augmented, with
    the class's own sealed regions and no others. The pass changes no buffer, mode or random draw, so scoring a class's
    examples changes nothing for the others; and no other class's rows are read.

    Raises `RecipeError` for a score that the run does not have.
    """
    assert state.share is not None
    with undisturbed(state), switched_on(state.model, state.share.regions):
        return {name: score.detach() for name, score in state.resource(Inspection).scores(state, *names).items()}

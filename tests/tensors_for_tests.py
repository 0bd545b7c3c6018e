"""Tensors of a model that nobody trained: as a run's ledger lists them, and as its model file has them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from explorer import rundir
from explorer.canonical import digest
from explorer.entries.kinds import TrainingState
from explorer.provenance.regions import ADAPTER, SealedRegion
from explorer.runlog.model_file import CARD, MODEL, ModelCard, write_card
from explorer.runlog.tensors import Tensors, tensor_leaf

BUILT = {"gpt-tiny": {"context": 128}}  # as a recipe and a card have it


def values(layers: Sequence[str], step: int) -> dict[str, np.ndarray]:
    """A matrix for each layer, two for each adapter, and a buffer of the first layer."""
    found = {f"{layers[0]}.running": _draw(f"{layers[0]}.running", step, (2,))}
    for layer in layers:
        module, adapter, region = layer.partition(ADAPTER)
        names = (
            [f"{module}.{ADAPTER}{region}.{part}.weight" for part in ("down", "up")] if adapter else [f"{layer}.weight"]
        )
        found |= {name: _draw(name, step, (2, 3)) for name in names}
    return found


def tensors(layers: Sequence[str], step: int) -> Tensors:
    """Their leaves, and those of one momentum for each parameter."""
    model = values(layers, step)
    leaves = {name: _leaf(name, value) for name, value in model.items()}
    momenta = {}
    for name in (name for name in model if not name.endswith(".running")):
        region = name.partition(f".{ADAPTER}")[2].partition(".")[0] or "shared"
        momentum = f"optimizer/{region}/0/{name}/momentum_buffer"
        momenta[momentum] = _leaf(momentum, _draw(momentum, step, (2, 3)))
    return Tensors(
        parameters={name: leaf for name, leaf in leaves.items() if not name.endswith(".running")},
        buffers={name: leaf for name, leaf in leaves.items() if name.endswith(".running")},
        optimizer=momenta,
    )


def state(layers: Sequence[str], step: int) -> TrainingState:
    """What they come to."""
    parameters, buffers, optimizer = tensors(layers, step).roots
    random = digest({"seed": 0, "step": step})
    return TrainingState(parameters=parameters, buffers=buffers, optimizer=optimizer, random=random)


def write_model(run: Path, layers: Sequence[str], step: int, *, sealed: Sequence[SealedRegion] = ()) -> Path:
    """The run's model and its card."""
    place = run / rundir.MODEL
    place.mkdir(parents=True, exist_ok=True)
    save_file(values(layers, step), place / MODEL)
    card = ModelCard(
        format="explorer/model/v1",
        run=run.name,
        model=BUILT,
        methods=(),
        example_shape=(128,),
        classes=256,
        dataset="source",
        sealed=tuple(sealed),
    )
    write_card(place / CARD, card)
    return place / MODEL


def _draw(name: str, step: int, shape: tuple[int, ...]) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(f"{name} {step}".encode()).digest()[:4], "big")
    return np.random.default_rng(seed).normal(size=shape).astype("<f4")


def _leaf(name: str, value: np.ndarray) -> str:
    return tensor_leaf(name, dtype="torch.float32", shape=value.shape, values=[value.tobytes()])

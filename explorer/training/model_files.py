"""Loading the model of a recorded run as a module.

    model = explorer.load_model("model", trust="trust.json", regions=["customer"])

`model.json` says how to build it and `model.safetensors` holds its parameters and buffers; neither holds code. Where a
model, or a method that changed it, is of another package, the card names that code and its source digest: with
`code=True` it is imported, after the digests were compared. The module is built without memory first and compared with
the file's header, so that a file that does not fit costs nothing.

The model of a custom loop is built by its owner's code only, which passes a module of the same class:

    model = explorer.load_model("runs/own/mine/model", into=MyModel())
"""

import time
from collections.abc import Collection
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from explorer.data.streams import torch_stream
from explorer.engine.method import used_hooks
from explorer.engine.state import State
from explorer.errors import ExplorerError, RecipeError, RunError, unknown
from explorer.governance.region_modules import seal, switch_of
from explorer.methods import METHODS
from explorer.models.table import MODELS
from explorer.plugins import check_code
from explorer.provenance.trust import read_trust
from explorer.recipes.choice import choose
from explorer.runlog.attested import ModelPlace, read_attested
from explorer.runlog.model_file import TYPES, ModelCard, ModelFile, read_card


def load_model(
    directory: str | Path,
    *,
    trust: str | Path | None = None,
    regions: Collection[str] = (),
    into: nn.Module | None = None,
    code: bool = False,
) -> nn.Module:
    """Return the module in a model's directory, in evaluation mode, on the CPU.

    Args:
        directory: with `model.json` and `model.safetensors`.
        trust: a trust file, against which the attestation next to the model is verified first.
        regions: the sealed regions to switch on; the others are off. A deleted region is absent and cannot be named.
        into: for the model of a custom loop, a new module of its class: its regions are sealed as in the trained model,
            and its values replaced, on the device where it is.
        code: import the code of other packages that builds the model, if its source is that of the run. Without it such
            a model is refused: importing executes that code.

    Raises `RunError` for files that do not belong together, for a region that the model does not have, and for a module
    that does not fit the file, and for code of other packages that is not wanted, missing or changed; `ProvenanceError`
    for an attestation that cannot be trusted.
    """
    place = ModelPlace.of(Path(directory))
    if trust is not None:
        read_attested(place, trust=read_trust(Path(trust)), now=int(time.time()))
    card, file = read_card(place.card), ModelFile(place.model)
    known = [region.name for region in card.sealed]
    for name in regions:
        if name not in known:
            raise RunError(f"{place.model.parent}: {unknown('sealed region', name, known)}")
    if (card.own is None) != (into is None):
        here = place.model.parent
        raise RunError(
            f"{here}: a model that its owner's code builds, {card.own}: expected"
            f" explorer.load_model({str(here)!r}, into=MODEL) with a new module of that class"
            if card.own is not None
            else f"{here}: a model that the package builds itself: expected no module to load it into"
        )
    _check_code(card, place, code=code)
    # A module on the meta device has shapes and no memory: a card that asks for a huge model is refused before it is
    # built.
    if into is None:
        with torch.device("meta"):
            _check_fit(_build(card, place.card, on=()), file)
        model = _build(card, place.card, on=regions)
    else:
        model = _completed(into, card, place.card, on=regions)
        _check_fit(model, file)
    tensors = load_file(place.model)
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            tensor.copy_(tensors[name])
    return model.eval()


class Absent(nn.Module):
    """Stand-in for a deleted sealed module: zeros, as if it were switched off, so that the path around it remains."""

    def forward(self, input: Tensor, *rest: object, **named: object) -> Tensor:
        return torch.zeros_like(input)


def _check_code(card: ModelCard, place: ModelPlace, *, code: bool) -> None:
    """Raise `RunError` unless the code of other packages may be imported, and is that of the run."""
    if card.code and not code:
        here, names = (
            place.model.parent,
            ", ".join(f"{top} (source {digest[:12]})" for top, digest in card.code.items()),
        )
        raise RunError(
            f"{here}: a model that code of other packages builds: {names}; expected"
            f" explorer.load_model({str(here)!r}, code=True), which imports that code"
        )
    try:
        check_code(card.code)
    except RecipeError as error:
        raise RunError(f"{place.card}: {error}") from error


def _build(card: ModelCard, path: Path, *, on: Collection[str]) -> nn.Module:
    """Return the module with arbitrary values. Raises `RunError` for a card from which no model can be built."""
    where = str(path)
    try:
        with torch_stream(torch.device("cpu"), 0, "build"):
            spec = choose(MODELS, card.model, kind="model", where=where, code=card.code)
            model = spec.build(example_shape=card.example_shape, classes=card.classes)
            return _sealed(model, card, where, on=on)
    except (ExplorerError, AttributeError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(f"{path}: no model can be built as it says: {error}") from error


def _completed(model: nn.Module, card: ModelCard, path: Path, *, on: Collection[str]) -> nn.Module:
    """Return the owner's module, changed and sealed as the trained one was. Raises `RunError` where that fails."""
    if switch_of(model) is not None:
        raise RunError(f"{path}: {type(model).__name__} has sealed regions already: expected a new module of its class")
    try:
        return _sealed(model, card, str(path), on=on)
    except (ExplorerError, AttributeError, ValueError, TypeError, RuntimeError) as error:
        raise RunError(f"{path}: {type(model).__name__} is not the model that it describes: {error}") from error


def _sealed(model: nn.Module, card: ModelCard, where: str, *, on: Collection[str]) -> nn.Module:
    """Return the model as its methods changed it, without deleted modules, and with its regions sealed."""
    _change(model, card, where)
    for region in card.absent:
        model.set_submodule(str(region.module), Absent(), strict=True)
    seal(model, card.sealed, seed=0).switch.on = frozenset(on)
    return model


def _change(model: nn.Module, card: ModelCard, where: str) -> None:
    """Repeat the changes that the recipe's methods made to the model before its regions were sealed."""
    state = State(seed=0, total_steps=1, batch_size=1, classes=card.classes, model=model, recompute=lambda: None)
    for index, written in enumerate(card.methods):
        method = choose(METHODS, written, kind="method", where=f"{where}: methods[{index}]", code=card.code)
        if "change_model" not in used_hooks(type(method)):
            raise RunError(f"{where}: methods[{index}]: {method.name!r} changes no model")
        method.change_model(state)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, as the file has them."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _check_fit(model: nn.Module, file: ModelFile) -> None:
    """Raise `RunError` unless the file has the model's tensors, all of them and no others."""
    tensors = _tensors(model)
    for name in sorted(tensors.keys() | file.entries.keys()):
        if name not in file.entries:
            raise RunError(f"{file.path}: {name}: missing: the model that model.json describes has it")
        if name not in tensors:
            raise RunError(f"{file.path}: {name}: not a tensor of the model that model.json describes")
        entry, tensor = file.entries[name], tensors[name]
        stored, expected = (TYPES[entry.type][1], entry.shape), (str(tensor.dtype), tuple(tensor.shape))
        if stored != expected:
            raise RunError(f"{file.path}: {name}: found {stored[0]} {stored[1]}, expected {expected[0]} {expected[1]}")

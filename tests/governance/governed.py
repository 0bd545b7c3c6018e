"""Tiny governed loops: a policy in memory, classes in turn, and a counterfactual whose payload is not there."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from explorer.data.batches import Typing
from explorer.data.dataset import Dataset, Split
from explorer.engine.loop import Loop
from explorer.engine.method import Method
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.provenance.routing_weights import Routing as Policy
from tests.data_for_tests import noise
from tests.loop_for_tests import noise_loop, small_net
from tests.provenance.drafts_for_tests import CLASSES, routing

PRESENT = ("open-data", "open/bsd", "open/mit", "personal/customer")
CODES = {path: code for code, path in enumerate(sorted(CLASSES), start=1)}
ADMIT_ALL = Rule(classes=("*",), weight=1.0)
LOWER = Rule(classes=("open/bsd",), depth=(0.0, 0.5), weight=0.0)  # denies the layers of the first half
HALF_DEPTH = routing(LOWER, ADMIT_ALL)
EXAMPLES = 48


def typing(examples: int = EXAMPLES, *, classes: Sequence[str] = PRESENT) -> Typing:
    """Examples whose classes take turns."""
    codes = np.array([CODES[classes[index % len(classes)]] for index in range(examples)], dtype=np.int64)
    return Typing(codes=codes, names={code: path for path, code in CODES.items()})


def session(policy: Policy, *, classes: Sequence[str] = PRESENT) -> Session:
    return Session(classes=tuple(sorted(classes)), codes=CODES, routing=policy)


def governed_loop(
    policy: Policy = HALF_DEPTH,
    methods: Sequence[Method] = (),
    *,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    without: Sequence[str] = (),
    seed: int = 0,
    **setting: Any,
) -> Loop:
    """A loop under routing. Its model is initialised by the seed, whatever it was."""
    chosen: dict[str, Any] = {"batch_size": 12, "resources": {Session: session(policy)}, "typing": typing()}
    return noise_loop(
        [Routing(policy="drawn", without=tuple(without)), *methods],
        model=model or small_net("group"),
        dataset=dataset or noise(train=EXAMPLES),
        seed=seed,
        **(chosen | setting),
    )


def sealing(*regions: SealedRegion) -> Policy:
    """`personal/customer` is sealed in these regions and denied elsewhere, `open-data` is denied everywhere."""
    admitted = Rule(classes=("open",), weight=1.0)
    return routing(LOWER, admitted, sealed=regions)


ADAPTERS = SealedRegion(name="customer", branch="personal/customer", layers=("*",), rank=2)
SEALED = sealing(ADAPTERS)


# What a run keeps


def everything(loop: Loop, *, without: str | None = None) -> dict[str, Tensor]:
    """Copies of all that steps, without a region's own: its parameters and buffers, optimiser state and averages."""
    modules = {name.rpartition(".")[0] for name, region in loop.state.sealed.items() if region == without}
    return {
        name: tensor.clone()
        for name, tensor in loop.tensors().items()
        if not any(part.rpartition(".")[0] in modules for part in name.split("/"))
    }


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    """The names under which they do not have the same bytes."""
    assert one.keys() == other.keys()
    return {name for name in one if bits(one[name]) != bits(other[name])}


def bits(tensor: Tensor) -> bytes:
    """-0.0 is not 0.0 here."""
    return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()


# Other content


def rows_of(types: Typing, classes: Collection[str]) -> Tensor:
    """N, bool: the examples of these classes."""
    return torch.from_numpy(np.isin(types.codes, [code for code, path in types.names.items() if path in classes]))


def other_content(dataset: Dataset, classes: Collection[str]) -> Dataset:
    """The dataset with other rows for these classes, labels too."""
    rows = rows_of(typing(len(dataset.train)), classes)
    draws = torch.Generator().manual_seed(99)
    inputs, labels = dataset.train.inputs.clone(), dataset.train.labels.clone()
    inputs[rows] = torch.randint(0, 256, inputs[rows].shape, generator=draws).to(inputs.dtype)
    labels[rows] = torch.randint(0, dataset.classes, labels[rows].shape, generator=draws).to(labels.dtype)
    return replace(dataset, train=Split(inputs=inputs, labels=labels))


class Kept:
    """The rows of a tensor but for some, whose bytes are nowhere in it. Asking for one of those is an error."""

    def __init__(self, whole: Tensor, gone: Tensor) -> None:
        self.shape, self.dtype = whole.shape, whole.dtype
        self._rows = whole[~gone].clone()
        self._place = {int(index): place for place, index in enumerate(torch.where(~gone)[0])}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Tensor | int) -> Tensor:
        if isinstance(index, int):
            return self._rows[self._place[index]]
        return self._rows[[self._place[int(each)] for each in index]]


def without_payload(dataset: Dataset, classes: Collection[str], *, types: Typing | None = None) -> Dataset:
    """The dataset with the rows of these classes physically absent."""
    gone = rows_of(types or typing(len(dataset.train)), classes)
    kept: Any = [Kept(whole, gone) for whole in (dataset.train.inputs, dataset.train.labels)]
    return replace(dataset, train=Split(inputs=kept[0], labels=kept[1]))


def steps(loop: Loop, count: int) -> Loop:
    for _ in range(count):
        loop.step()
    return loop

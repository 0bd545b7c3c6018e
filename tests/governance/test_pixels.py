"""Routing where every pixel or voxel has a class: what a policy denies, U-Nets do not learn, to the bit."""

from dataclasses import replace

import pytest

from explorer.data.clutter import Clutter
from explorer.data.clutter3d import Clutter3d
from explorer.data.dataset import Dataset, DataSource, Split
from explorer.engine.loop import Loop
from explorer.engine.task import Segmentation
from explorer.governance.shared_state import Session
from explorer.models.specification import ModelSpec
from explorer.models.unet import UNet3dSpec, UNetSpec
from explorer.provenance.regions import SealedRegion
from tests.governance.governed import (
    EXAMPLES,
    HALF_DEPTH,
    Policy,
    differing,
    everything,
    governed_loop,
    other_content,
    sealing,
    steps,
    without_payload,
)

KINDS: dict[str, tuple[DataSource, ModelSpec]] = {
    "pixels": (Clutter(size=16, examples=EXAMPLES), UNetSpec(width=8, levels=2, norm="group")),
    "voxels": (Clutter3d(size=16, depth=8, examples=EXAMPLES), UNet3dSpec(width=8, levels=2, norm="group")),
}
OUTSIDERS = ("personal/customer", "open-data")
POLICY = sealing(SealedRegion(name="customer", branch="personal/customer", layers=("*",), rank=2))

pytestmark = pytest.mark.parametrize("kind", KINDS)


def data_of(kind: str) -> Dataset:
    dataset = KINDS[kind][0].load(None)
    train = Split(inputs=dataset.train.inputs[:EXAMPLES], labels=dataset.train.labels[:EXAMPLES])
    return replace(dataset, train=train)


def make(kind: str, dataset: Dataset, *, policy: Policy = POLICY, without: tuple[str, ...] = ()) -> Loop:
    model = KINDS[kind][1].build(example_shape=dataset.example_shape, classes=dataset.classes)
    task = Segmentation(classes=dataset.classes)
    return governed_loop(policy, model=model, dataset=dataset, task=task, without=without)


def test_a_run_without_the_outsiders_is_the_same_run(kind: str) -> None:
    data = data_of(kind)
    whole = steps(make(kind, data), 5)
    assert len({*whole.state.sealed.values()} - {"shared"}) == 1
    gone = steps(make(kind, without_payload(data, OUTSIDERS), without=OUTSIDERS), 5)
    assert differing(*(everything(loop, without="customer") for loop in (whole, gone))) == set()


@pytest.mark.slow
def test_a_class_with_other_content_changes_its_region_only(kind: str) -> None:
    data = data_of(kind)
    one, other = (steps(make(kind, each), 5) for each in (data, other_content(data, ["personal/customer"])))
    assert differing(*(everything(loop, without="customer") for loop in (one, other))) == set()
    assert differing(everything(one), everything(other))  # the region has learned
    control = steps(make(kind, other_content(data, ["open/mit"])), 5)
    assert differing(*(everything(loop, without="customer") for loop in (one, control)))


def test_a_class_that_the_lower_layers_deny_does_not_move_them(kind: str) -> None:
    data = data_of(kind)
    one, other = (make(kind, each, policy=HALF_DEPTH) for each in (data, other_content(data, ["open/bsd"])))
    lower = tuple(f"{layer.name}." for layer in one.state.resource(Session).layers if layer.depth < 0.5)
    changed = differing(everything(steps(one, 1)), everything(steps(other, 1)))
    moved = {name for name in changed if any(part.startswith(lower) for part in name.split("/"))}
    assert lower and not moved and changed

"""Pictures and volumes with a class for each pixel, in shards."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from explorer.data.clutter import Clutter, Volumes
from explorer.data.clutter3d import Clutter3d
from explorer.data.dataset import DataSource, Split
from explorer.data.shards.image_shards import ImageShards
from explorer.data.shards.volume_shards import VolumeShards
from explorer.data.sources import of_path
from explorer.data.streams import stream
from explorer.errors import DataError
from explorer.testing import DatasetContract
from tests.data.shards.written import folder, write

FLAT = Clutter(size=32, examples=16, simulated_classes=2)
DEEP = Clutter3d(size=16, examples=8)
PIXELS = ImageShards(path="flat", size=32, channels=1, predict="pixels", window=2)
VOXELS = VolumeShards(path="deep", window=2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(FLAT, tmp_path / "flat", shard_bytes=4_000)
    write(DEEP, tmp_path / "deep", shard_bytes=4_000)
    return tmp_path


def contract(data_: Path, source_: DataSource, model_: dict[str, Any]) -> DatasetContract:
    return type("Contract", (DatasetContract,), {"source": source_, "data": data_, "model": model_})()


def test_they_keep_the_contract_of_datasets(data: Path) -> None:
    assert contract(data, PIXELS, {"unet": {"width": 8}}).certify() == {}
    assert contract(data, VOXELS, {"unet3d": {"width": 8, "levels": 3}}).certify() == {}


@pytest.mark.parametrize(("shards", "memory"), [(PIXELS, FLAT), (VOXELS, DEEP)], ids=["flat", "deep"])
def test_they_are_those_of_the_dataset(data: Path, shards: DataSource, memory: DataSource) -> None:
    ours, theirs = shards.load(data), memory.load(None)
    for one, other in ((ours.train, theirs.train), (ours.test, theirs.test)):
        mine = sorted(one.content(number) for number in range(len(one)))
        assert mine == sorted(other.content(number) for number in range(len(other)))
    assert ours.task == "segmentation" and ours.names == theirs.names
    counts = [torch.bincount(split.labels[:].flatten(), minlength=11).tolist() for split in (theirs.train, theirs.test)]
    assert ours.counts is not None and [list(side) for side in ours.counts] == counts


def test_pictures_are_not_moved_from_their_labels(data: Path) -> None:
    dataset = PIXELS.load(data)
    rows, slots = dataset.raw(torch.arange(6)), np.arange(6)
    assert torch.equal(dataset.augment(rows, draws=stream(0, "t"), slots=slots, batch_size=6), rows)


def test_directories_are_recognised(data: Path) -> None:
    assert of_path(data / "flat") == dataclasses.replace(PIXELS, window=16)
    assert of_path(data / "deep") == VolumeShards(path="deep")


def test_what_is_no_picture_with_a_class_for_each_pixel_is_refused(data: Path) -> None:
    with pytest.raises(DataError, match="flat has image, segmentation: expected image, classification"):
        dataclasses.replace(PIXELS, predict="class").load(data)
    with pytest.raises(DataError, match="deep has volume, segmentation: expected image, segmentation"):
        dataclasses.replace(PIXELS, path="deep").load(data)
    with pytest.raises(DataError, match="mean and std: expected a number for each of 1 channels"):
        dataclasses.replace(VOXELS, mean=(0.1, 0.2)).load(data)
    write(folder(data), data / "jpegs", data=data)
    with pytest.raises(DataError, match="expected channels: 1 or 3, and predict: class, number or labels"):
        ImageShards(path="jpegs", channels=4).load(data)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Floats(Clutter3d):
    """Volumes of float32."""

    highest: int = 10

    def load(self, data: Path | None) -> Volumes:
        made = DEEP.load(None)
        train, test = (
            Split(inputs=side.inputs[:].float() / 8, labels=side.labels[:].clamp(max=self.highest))
            for side in (made.train, made.test)
        )
        return Volumes(train=train, test=test, classes=4, mean=(0.0,), std=(1.0,))


def test_numbers_of_floating_point(data: Path) -> None:
    source = Floats(size=16, examples=8, highest=3)
    write(source, data / "floats")
    dataset = VolumeShards(path="floats", mean=(4.0,), std=(2.0,)).load(data)
    inputs = dataset.train.inputs[:3]
    assert inputs.dtype == torch.float32 and inputs.max() > 8
    assert torch.equal(dataset.preparation(torch.device("cpu"))(inputs), (inputs - 4) / 2)


def test_a_label_outside_the_classes_is_not_written(data: Path) -> None:
    with pytest.raises(DataError, match="found a label 4: expected 0 to 3"):
        write(Floats(size=16, examples=8, highest=4), data / "floats")
    assert not (data / "floats" / "index.json").exists()


def test_a_label_outside_the_classes_is_not_read(data: Path) -> None:
    path = data / "deep" / "index.json"
    index = json.loads(path.read_bytes())
    index |= {"classes": 6, "names": []}
    path.write_text(json.dumps(index))
    dataset = VOXELS.load(data)
    with pytest.raises(DataError, match=r"shard .*/train/00000\d.parquet: labels 0 to \d+: expected 0 to 5"):
        _ = dataset.train.labels[:]

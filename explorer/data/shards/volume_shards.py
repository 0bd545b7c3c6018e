"""`volume_shards`: volumes in shards, with a class for each voxel.

    {volume_shards: {path: brats}}          below --data

Volumes are arrays of one shape. They are not augmented: volume and labels would have to move together.

Shapes: N volumes, C channels, D slices, H rows, W columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.clutter import Volumes
from explorer.data.dataset import MEASURES, Check, Modality, TaskName
from explorer.data.shards.shard_files import Opened, ShardFiles
from explorer.data.shards.shard_index import Index, Labels
from explorer.data.shards.shard_rows import ShardRows, checked
from explorer.data.shards.shards import Opening, Shards
from explorer.errors import DataError


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class VolumesInShards(Volumes):
    """Volumes that are read as they are needed. `mean` and `std` are of the inputs as they are, by channel; of uint8
    they are of 0..1."""

    files: ShardFiles

    def checking(self, check: Check) -> Self:
        train, files = checked(self.train, self.files, check)
        return replace(self, train=train, files=files)

    def expect(self, numbers: np.ndarray) -> None:
        self.files.expect_examples(numbers)

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function from inputs to float32, moved by the mean and scaled by the deviation."""
        if self.train.inputs.dtype == torch.uint8:
            return Volumes.preparation(self, where)
        mean, std = (torch.tensor(of, device=where).reshape(-1, 1, 1, 1) for of in (self.mean, self.std))
        return lambda inputs: (inputs.to(where, non_blocking=True) - mean) / std


@dataclass(frozen=True, kw_only=True, slots=True)
class VolumeShards(Shards):
    """Volumes with a class for each voxel in the shards of `path`, made by `explorer data shard`.

    `window` is the number of shards of a provenance class whose volumes are shuffled with each other. `mean` and `std`
    scale the channels: those of uint8 as 0..1, by default by 0.5 and 0.5; others as they are, by default by 0 and 1.
    """

    name: ClassVar[str] = "volume_shards"
    summary: ClassVar[str] = "volumes in shards with a class for each voxel: any number of them, also in a bucket"
    modality: ClassVar[Modality] = "volume"
    task: ClassVar[TaskName] = "segmentation"
    metrics: ClassVar[tuple[str, ...]] = MEASURES["segmentation"]

    mean: Annotated[tuple[float, ...] | None, Field(description="of each channel; null: 0.5 of uint8, else 0")] = None
    std: Annotated[tuple[float, ...] | None, Field(description="of each channel; null: 0.5 of uint8, else 1")] = None

    def dataset(self, index: Index, opening: Opening) -> VolumesInShards:
        shape, kind = index.inputs.shape, index.inputs.dtype
        if (
            len(shape) != 4
            or kind not in ("uint8", "float32")
            or index.labels != Labels(dtype="uint8", shape=shape[1:])
            or index.inputs.encoding != "array"
        ):
            raise DataError(
                f"dataset {self.name!r}: {opening.url} has {kind}, {shape}, and labels of {index.labels.dtype},"
                f" {index.labels.shape}: expected uint8 or float32, (C, D, H, W), and uint8, (D, H, W)"
            )
        usual = (0.5, 0.5) if kind == "uint8" else (0.0, 1.0)
        mean, std = self.mean or usual[:1] * shape[0], self.std or usual[1:] * shape[0]
        if len(mean) != shape[0] or len(std) != shape[0] or min(std) <= 0:
            raise DataError(
                f"dataset {self.name!r}: mean and std: expected a number for each of {shape[0]} channels, std above 0"
            )

        def taken(opened: Opened, rows: np.ndarray) -> Tensor:
            return torch.from_numpy(opened.inputs(np.dtype(kind), shape)[rows])

        train, test = opening.splits(ShardRows, taken, shape=shape, dtype=getattr(torch, kind))
        return VolumesInShards(
            train=train, test=test, files=opening.train, mean=mean, std=std, **opening.facts(self.window)
        )

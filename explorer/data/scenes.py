"""Pictures with a class for each pixel, and volumes with a class for each voxel.

They are not varied at random: what moves a picture would have to move its labels.

Shapes: N examples, C channels, D slices, H rows, W columns.
"""

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from explorer.data.dataset import Dataset, Modality, TaskName
from explorer.data.images import normalisation


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scenes(Dataset, ABC):
    """`mean` and `std` belong to inputs scaled to 0..1, by channel, from the training side."""

    task: ClassVar[TaskName] = "segmentation"

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """To float32 of zero mean and unit variance."""
        return normalisation(self.mean, self.std, where=where)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Pictures(Scenes):
    """Inputs N C H W, labels N H W."""

    modality: ClassVar[Modality] = "image"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Volumes(Scenes):
    """Inputs N C D H W, labels N D H W."""

    modality: ClassVar[Modality] = "volume"

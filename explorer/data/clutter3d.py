"""`clutter3d`: volumes of handwritten digits among pieces of other digits, with a class for each voxel (clutter.py)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from explorer.data.clutter import TEST, Cluttered
from explorer.data.dataset import Modality


@dataclass(frozen=True, kw_only=True, slots=True)
class Clutter3d(Cluttered):
    """Volumes of `depth` slices of `size` rows and columns, with `digits` whole digits each, which go through half of
    the slices, and `clutter` pieces in each slice.

    `examples` is the number of training scenes; the test side has a quarter as many.
    """

    name: ClassVar[str] = "clutter3d"
    summary: ClassVar[str] = (
        "clutter in slices: digits go through half of them, pieces are in one; a class for each voxel"
    )
    modality: ClassVar[Modality] = "volume"

    examples: Annotated[int, Field(ge=TEST, le=2_000)] = 128
    depth: Literal[8, 16, 32] = 8

    @property
    def slices(self) -> int:
        return self.depth

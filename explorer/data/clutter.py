"""`clutter`: pictures of handwritten digits among pieces of others, with a class for each pixel (cluttered.py)."""

from dataclasses import dataclass
from typing import ClassVar

from explorer.data.cluttered import Cluttered
from explorer.data.dataset import Modality


@dataclass(frozen=True, kw_only=True, slots=True)
class Clutter(Cluttered):
    """Pictures of `size` rows and columns with `digits` whole digits and `clutter` pieces each.

    `examples` is the number of training scenes; the test side has a quarter as many.
    """

    name: ClassVar[str] = "clutter"
    summary: ClassVar[str] = "handwritten digits among pieces of others; a class for each pixel (test: other writers)"
    modality: ClassVar[Modality] = "image"

    @property
    def slices(self) -> None:
        return None

"""`brats_slices`: the slices of brain tumours in NIfTI files, as pictures. brats.py reads them."""

from dataclasses import dataclass
from typing import ClassVar

from explorer.data.brats import BrainTumours
from explorer.data.dataset import Modality


@dataclass(frozen=True, kw_only=True, slots=True)
class BratsSlices(BrainTumours):
    """Slices of the volumes of `brats`, from below to above: `size` pictures of each case, with a class for each pixel.

    Parameters are those of `brats`; no case is on both sides.
    """

    name: ClassVar[str] = "brats_slices"
    summary: ClassVar[str] = "slices of brain tumours of your own in NIfTI files, as in BraTS"
    modality: ClassVar[Modality] = "image"

    @property
    def rows(self) -> int:
        return self.size

"""A small model for images: an embedding of patches, a layer on each of them, and the mean."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.specification import Modality, ModelSpec, TaskName


class PatchNet(nn.Module):
    """Logits, B K, from images, B C H W."""

    def __init__(self, *, channels: int, patch: int, width: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.norm = nn.GroupNorm(1, width)
        self.mix = nn.Conv2d(width, width, 1)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        patches = self.embed(images)
        patches = patches + self.mix(self.norm(patches).relu())
        return self.head(patches.relu().mean((2, 3)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Patches(ModelSpec):
    """A patch embedding and a mean over patches: 1,730 parameters for two classes of grey images."""

    name: ClassVar[str] = "patches"
    takes: ClassVar[Modality] = "image"
    task: ClassVar[TaskName] = "classification"

    patch: Annotated[int, Field(ge=1, le=64, description="rows and columns of a patch")] = 4
    width: Annotated[int, Field(ge=1, le=4096, description="channels")] = 32

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        channels, rows, columns = example_shape
        if rows < self.patch or columns < self.patch:
            raise RecipeError(f"patches: images of {rows} x {columns}, expected at least {self.patch} x {self.patch}")
        return PatchNet(channels=channels, patch=self.patch, width=self.width, classes=classes)

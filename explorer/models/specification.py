"""Model specifications: parameters as fields, the expected inputs, and how to build the module."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn

Modality = Literal["image", "text", "volume", "tabular"]
TaskName = Literal["classification", "language", "segmentation"]
VECTORS = ("classification", "regression", "multilabel")
"""Tasks that a model for classification serves, whatever its outputs mean: K numbers for an example."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec(ABC):
    """A model by name and parameters. Weights are drawn later, keyed by run seed and module name."""

    name: ClassVar[str]
    takes: ClassVar[Modality]
    task: ClassVar[TaskName]

    @property
    def document_separator(self) -> int | None:
        """The token that ends a document for this model; None: it keeps no documents apart."""
        return None

    @abstractmethod
    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        """Return the module for inputs of that shape.

        Images are B C H W and volumes B C D H W (float32), texts B T (int64). It returns logits: B K for
        classification, B T K for language, B K H W or B K D H W for segmentation. Raises `RecipeError` for a shape
        that the model cannot take.
        """

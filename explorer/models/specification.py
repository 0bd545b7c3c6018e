"""What a model family declares: parameters as fields, and how to build the module."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import nn


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec(ABC):
    """A model by name and parameters. Weights are drawn later, by run seed and module name."""

    name: ClassVar[str]

    @abstractmethod
    def build(self, *, channels: int, classes: int) -> nn.Module:
        """The module for images of `channels` channels; it returns logits, examples x classes."""

"""What a model family declares: parameters as fields, what it takes, and how to build the module."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import nn


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec(ABC):
    """A model by name and parameters. Weights are drawn later, by run seed and module name."""

    name: ClassVar[str]
    takes: ClassVar[Literal["image", "text"]]

    @abstractmethod
    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        """The module for inputs of that shape, B C H W (float32) or B T (int64); it returns logits, B K or B T K."""

"""A residual perceptron for tables: `mlp`.

Gorishniy et al., "Revisiting Deep Learning Models for Tabular Data", 2021, arXiv:2106.11959, section 3.2 (ResNet), with
layer normalisation in place of batch normalisation: a row is then computed without the other rows of its batch, so a
class of data in a batch changes nothing for the others.

Shapes: B rows, F columns, D width, K classes.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.models.residual import Gate
from explorer.models.specification import Modality, ModelSpec, TaskName

EXPANSION = 2  # hidden features for each feature of the width, as in the paper


class Block(nn.Module):
    """A norm, two affine maps with a rectifier between them, and their shortcut: B D in and out."""

    def __init__(self, width: int, *, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, EXPANSION * width)
        self.dropout = nn.Dropout(dropout)
        self.narrow = nn.Linear(EXPANSION * width, width)
        self.gate = Gate(width)

    def forward(self, x_BD: Tensor) -> Tensor:
        return self.gate(x_BD, lambda: self.narrow(self.dropout(F.relu(self.widen(self.norm(x_BD))))))


class MLP(nn.Module):
    """The network: rows B F in, logits B K out."""

    def __init__(self, *, columns: int, depth: int, width: int, dropout: float, classes: int) -> None:
        super().__init__()
        self.embed = nn.Linear(columns, width)
        self.blocks = nn.Sequential(*(Block(width, dropout=dropout) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, rows_BF: Tensor) -> Tensor:
        return self.head(F.relu(self.norm(self.blocks(self.embed(rows_BF)))))


@dataclass(frozen=True, kw_only=True, slots=True)
class MLPSpec(ModelSpec):
    """A residual perceptron for tables: 114,050 parameters for 16 columns and two classes. Gorishniy et al. 2021."""

    name: ClassVar[str] = "mlp"
    takes: ClassVar[Modality] = "tabular"
    task: ClassVar[TaskName] = "classification"

    depth: Annotated[int, Field(ge=1, le=64)] = 3
    width: Annotated[int, Field(ge=8, le=4096)] = 96
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        (columns,) = example_shape
        return MLP(columns=columns, depth=self.depth, width=self.width, dropout=self.dropout, classes=classes)


FAMILY = (MLPSpec,)

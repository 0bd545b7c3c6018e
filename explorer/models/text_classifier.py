"""A transformer that reads a text and answers one question about it: `text-classifier`.

The blocks of `gpt.py`, and in place of a head over tokens one affine map of the mean over the places of the text, as in
Radford et al., "Improving Language Understanding by Generative Pre-Training", 2018, which takes the last place instead.

Texts are of different lengths: a row is filled up with the byte 0. Attention looks back only, so no place of a text
sees what follows it, and the mean leaves the filling out: a row's answer does not depend on how far it is filled up.

Shapes: B examples, T places, D width, K outputs.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.gpt import Block, Blocks, Size
from explorer.models.specification import Modality, ModelSpec, TaskName
from explorer.models.transformer import Embedding, Linear

TOKENS = 256  # bytes
PADDING = 0  # the byte that fills rows up


class TextClassifier(nn.Module):
    """The network: tokens B T (int64) in, K outputs for each row out."""

    def __init__(self, size: Size, *, dropout: float, context: int, outputs: int) -> None:
        super().__init__()
        self.embed = Embedding(TOKENS, context, size.width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = Blocks(*(Block(size, dropout=dropout, glu=False) for _ in range(size.depth)))
        self.norm = nn.LayerNorm(size.width)
        self.head = Linear(size.width, outputs)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.norm(self.blocks(self.dropout(self.embed(tokens_BT))))
        there_BT1 = (tokens_BT != PADDING)[..., None].to(x_BTD.dtype)
        # At least one: a blank row, with which methods try a model out, has no place of its own.
        return self.head((x_BTD * there_BT1).sum(1) / there_BT1.sum(1).clamp_min(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class TextClassifierSpec(ModelSpec):
    """A transformer for texts with labels: 421,698 parameters at 256 places and two classes. After Radford et al."""

    name: ClassVar[str] = "text-classifier"
    takes: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "classification"

    depth: Annotated[int, Field(ge=1, le=24)] = 4
    width: Annotated[int, Field(ge=8, le=1024)] = 88
    heads: Annotated[int, Field(ge=1, le=64)] = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise RecipeError(f"found width {self.width} for {self.heads} heads: expected a multiple of the heads")

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        (context,) = example_shape
        size = Size(depth=self.depth, width=self.width, heads=self.heads)
        return TextClassifier(size, dropout=self.dropout, context=context, outputs=classes)


FAMILY = (TextClassifierSpec,)

"""Decoder-only transformers: `gpt-tiny` (0.4M parameters), `gpt-small` (11M), and `gpt`, which can be GPT-2 (124M).

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2): pre-norm blocks, learned
positions, GELU, and a head tied to the embedding of the tokens. The tied tensor is used twice and belongs to the layer
`embed.tokens`; the head has no module. The context is the length of the dataset's examples.

Options are ALiBi or no positions, gated perceptrons, and attention within documents. The byte after a document's last
one is predicted too: the first byte of the next document, from the separator before it.

Shapes: B examples, T places, D width, H heads, K tokens in the vocabulary.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.residual import Gate
from explorer.models.specification import Modality, ModelSpec, TaskName
from explorer.models.transformer import (
    AlibiBias,
    Attention,
    Documents,
    Embedding,
    GatedPerceptron,
    NoPositions,
    Perceptron,
    gated_hidden,
)

Places = Literal["learned", "alibi", "none"]


class Size(NamedTuple):
    """The size of a transformer."""

    depth: int  # blocks
    width: int
    heads: int

    @property
    def branches(self) -> int:
        """The number of terms that the blocks add to the residual stream: two each."""
        return 2 * self.depth


class Block(nn.Module):
    """Attention, then the perceptron; each adds its output for the normalised input to the input."""

    def __init__(self, size: Size, *, dropout: float, glu: bool) -> None:
        super().__init__()
        width, hidden = size.width, 4 * size.width
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads=size.heads, branches=size.branches)
        self.norm2 = nn.LayerNorm(width)
        if glu:
            self.mlp = GatedPerceptron(width, hidden=gated_hidden(hidden), branches=size.branches)
        else:
            self.mlp = Perceptron(width, hidden=hidden, branches=size.branches)
        self.dropout = nn.Dropout(dropout)
        self.gate1 = Gate(width)
        self.gate2 = Gate(width)

    def forward(self, x_BTD: Tensor, documents: Documents | None = None) -> Tensor:
        y_BTD = self.gate1(x_BTD, lambda: self.dropout(self.attention(self.norm1(x_BTD), documents)))
        return self.gate2(y_BTD, lambda: self.dropout(self.mlp(self.norm2(y_BTD))))


class Blocks(nn.Sequential):
    """The blocks in sequence, each with the documents of the batch."""

    def forward(self, input: Tensor, documents: Documents | None = None) -> Tensor:
        for block in self:
            input = block(input, documents)
        return input


class GPT(nn.Module):
    """The network: tokens B T (int64) in, logits of each next token B T K out.

    With a separator, attention and learned positions stay within the document of a place.
    """

    def __init__(
        self,
        size: Size,
        *,
        dropout: float,
        context: int,
        tokens: int,
        positions: Places = "learned",
        glu: bool = False,
        separator: int | None = None,
    ) -> None:
        super().__init__()
        self.separator = separator
        self.embed = Embedding(tokens, context, size.width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = Blocks(*(Block(size, dropout=dropout, glu=glu) for _ in range(size.depth)))
        self.norm = nn.LayerNorm(size.width)
        if positions != "learned":
            self.embed.positions = NoPositions()
        if positions == "alibi":
            # Shared by all layers: the bias has no parameters, and keeps one matrix for the longest row.
            shared = AlibiBias(size.heads)
            for block in self.blocks:
                block.attention.bias = shared  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, tokens_BT: Tensor) -> Tensor:
        documents = None if self.separator is None else Documents(tokens_BT, self.separator)
        x_BTD = self.blocks(self.dropout(self.embed(tokens_BT, documents)), documents)
        return self.embed.tokens.unembed(self.norm(x_BTD))


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTSpec(ModelSpec):
    """A transformer of a size that its family says. Dropout acts on the embeddings and on what each branch adds.

    `document_mask` keeps attention within documents, which end with the token `separator`; learned positions then count
    from the start of each. `source` puts a zero byte behind every file.
    """

    takes: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    positions: Places = "learned"
    glu: bool = False  # gated perceptrons, as many parameters to the nearest 8 of 8/3 of the width
    document_mask: bool = False
    separator: Annotated[int, Field(ge=0, lt=2**24)] = 0

    @property
    def document_separator(self) -> int | None:
        return self.separator if self.document_mask else None

    @abstractmethod
    def size(self) -> Size:
        """Return the size of the transformer."""

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        (context,) = example_shape
        if self.document_mask and self.separator >= classes:
            raise RecipeError(
                f"{self.name}: found separator {self.separator}: expected one of the tokens, 0 to {classes - 1}"
            )
        return GPT(
            self.size(),
            dropout=self.dropout,
            context=context,
            tokens=classes,
            positions=self.positions,
            glu=self.glu,
            separator=self.document_separator,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TinySpec(GPTSpec):
    """For minutes on two cores: 4 blocks of width 88, 410,256 parameters at 128 places. After Radford et al. 2019."""

    name: ClassVar[str] = "gpt-tiny"

    def size(self) -> Size:
        return Size(depth=4, width=88, heads=4)


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallSpec(GPTSpec):
    """For a GPU: 6 blocks of width 384, 10,795,008 parameters at 128 places. After Radford et al. 2019."""

    name: ClassVar[str] = "gpt-small"

    def size(self) -> Size:
        return Size(depth=6, width=384, heads=6)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnySpec(GPTSpec):
    """A transformer of any size. 12 blocks of width 768 with 12 heads are the smallest GPT-2 (Radford et al. 2019):
    124,439,808 parameters at 1024 places with its 50,257 tokens, 86,039,040 with bytes."""

    name: ClassVar[str] = "gpt"

    depth: Annotated[int, Field(ge=1, le=24)] = 4
    width: Annotated[int, Field(ge=8, le=1024)] = 128
    heads: Annotated[int, Field(ge=1, le=64)] = 4

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise RecipeError(f"found width {self.width} and heads {self.heads}: expected heads that divide the width")

    def size(self) -> Size:
        return Size(depth=self.depth, width=self.width, heads=self.heads)


FAMILY = (TinySpec, SmallSpec, AnySpec)

"""Decoder-only transformers: `gpt-tiny` (0.4M parameters), `gpt-small` (11M), and `gpt`, which can be GPT-2 (124M).

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019 (GPT-2): pre-norm blocks, learned
positions, GELU, the head tied to the embedding of the tokens. The tie is one tensor that is used twice and belongs to
the layer `embed.tokens`; there is no module for the head. The context is the length of the dataset's examples.

Shapes: B examples, T places, D width, H heads, K tokens in the vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from explorer.errors import RecipeError
from explorer.models.residual import Gate
from explorer.models.specification import Modality, TaskName, ModelSpec

STD = 0.02  # of initial weights


class Size(NamedTuple):
    """How large a transformer is."""

    depth: int  # blocks
    width: int
    heads: int

    @property
    def branches(self) -> int:
        """What the blocks add to the sum that runs through the network: two terms each."""
        return 2 * self.depth


class Linear(nn.Linear):
    """An affine map that starts without a shift. `branches` is the number of terms in the sum that it adds to."""

    def __init__(self, width_in: int, width_out: int, *, branches: int = 1) -> None:
        self.std = STD / math.sqrt(branches)  # first: the base class draws weights
        super().__init__(width_in, width_out)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.std)
        nn.init.zeros_(self.bias)


class Tokens(nn.Embedding):
    """A vector for each token: B T in, B T D out; `unembed` is the way back."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)

    def unembed(self, x_BTD: Tensor) -> Tensor:
        """Logits, B T K."""
        return F.linear(x_BTD, self.weight)


class Positions(nn.Module):
    """A vector for each place, added to what stands there."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return x_BTD + self.weight[: x_BTD.shape[1]]


class Attention(nn.Module):
    """Causal self-attention: every place looks at itself and at those before it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.qkv = Linear(size.width, 3 * size.width)
        self.out = Linear(size.width, size.width, branches=size.branches)

    def forward(self, x_BTD: Tensor) -> Tensor:
        batch, places, width = x_BTD.shape
        q, k, v = self.qkv(x_BTD).view(batch, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y_BHTd = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y_BHTd.transpose(1, 2).reshape(batch, places, width))


class Perceptron(nn.Module):
    """Two affine maps with GELU between them, at each place alone."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.up = Linear(size.width, 4 * size.width)
        self.down = Linear(4 * size.width, size.width, branches=size.branches)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTD)))


class Block(nn.Module):
    """Attention, then the perceptron, each adding to its input what it makes of the normalised input."""

    def __init__(self, size: Size, *, dropout: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(size.width)
        self.attention = Attention(size)
        self.norm2 = nn.LayerNorm(size.width)
        self.mlp = Perceptron(size)
        self.dropout = nn.Dropout(dropout)
        self.gate1 = Gate(size.width)
        self.gate2 = Gate(size.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        y_BTD = self.gate1(x_BTD, lambda: self.dropout(self.attention(self.norm1(x_BTD))))
        return self.gate2(y_BTD, lambda: self.dropout(self.mlp(self.norm2(y_BTD))))


class Embedding(nn.Module):
    """Tokens and places as vectors: B T in, B T D out."""

    def __init__(self, tokens: int, context: int, width: int) -> None:
        super().__init__()
        self.tokens = Tokens(tokens, width)
        self.positions = Positions(context, width)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        return self.positions(self.tokens(tokens_BT))


class GPT(nn.Module):
    """The network: tokens B T (int64) in, logits of each next token B T K out."""

    def __init__(self, size: Size, *, dropout: float, context: int, tokens: int) -> None:
        super().__init__()
        self.embed = Embedding(tokens, context, size.width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(size, dropout=dropout) for _ in range(size.depth)))
        self.norm = nn.LayerNorm(size.width)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = self.blocks(self.dropout(self.embed(tokens_BT)))
        return self.embed.tokens.unembed(self.norm(x_BTD))


@dataclass(frozen=True, kw_only=True, slots=True)
class GPTSpec(ModelSpec):
    """A transformer whose size is in its name. Dropout acts on the embeddings and on what each branch adds."""

    takes: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"
    size: ClassVar[Size]

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        (context,) = example_shape
        return GPT(self.size, dropout=self.dropout, context=context, tokens=classes)


@dataclass(frozen=True, kw_only=True, slots=True)
class TinySpec(GPTSpec):
    """For minutes on two cores: 410,256 parameters at 128 places."""

    name: ClassVar[str] = "gpt-tiny"
    size: ClassVar[Size] = Size(depth=4, width=88, heads=4)


@dataclass(frozen=True, kw_only=True, slots=True)
class SmallSpec(GPTSpec):
    """For a GPU: 10,795,008 parameters at 128 places."""

    name: ClassVar[str] = "gpt-small"
    size: ClassVar[Size] = Size(depth=6, width=384, heads=6)


@dataclass(frozen=True, kw_only=True, slots=True)
class AnySpec(ModelSpec):
    """A transformer of any size; 12 blocks of width 768 with 12 heads are the smallest GPT-2."""

    name: ClassVar[str] = "gpt"
    takes: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"

    depth: Annotated[int, Field(ge=1, le=24)] = 4
    width: Annotated[int, Field(ge=8, le=1024)] = 128
    heads: Annotated[int, Field(ge=1, le=64)] = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise RecipeError(f"found width {self.width} and heads {self.heads}: expected heads that divide the width")

    def build(self, *, example_shape: tuple[int, ...], classes: int) -> nn.Module:
        (context,) = example_shape
        size = Size(depth=self.depth, width=self.width, heads=self.heads)
        return GPT(size, dropout=self.dropout, context=context, tokens=classes)


FAMILY = (TinySpec, SmallSpec, AnySpec)

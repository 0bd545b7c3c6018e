"""Parts of a transformer: affine maps, causal self-attention, perceptrons, embeddings.

Weights are initialised as in GPT-2. Attention scores can have a bias by distance, and borders between documents. Press
et al., "Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
2022, arXiv:2108.12409 (ALiBi); Shazeer, "GLU Variants Improve Transformer", 2020, arXiv:2002.05202 (GEGLU).

Shapes: B examples, T places, D width, H heads, d width of a head, K tokens in the vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- affine maps -----------------------------------------------------------------------------------------------------

STD = 0.02  # of initial weights


class Linear(nn.Linear):
    """An affine map with bias 0 at first. `branches` is the number of terms in the sum that its output is added to."""

    def __init__(self, width_in: int, width_out: int, *, branches: int = 1, bias: bool = True) -> None:
        self.branches = branches  # before the base class, whose constructor draws weights
        super().__init__(width_in, width_out, bias=bias)

    def reset_parameters(self) -> None:
        # Smaller for outputs that add up over the depth (GPT-2, section 2.3), so that their sum keeps its variance.
        nn.init.normal_(self.weight, std=STD / math.sqrt(self.branches))
        if self.bias is not None:
            nn.init.zeros_(self.bias)


# --- attention -------------------------------------------------------------------------------------------------------


def alibi_slopes(heads: int) -> Tensor:
    """Return the decrease of a score for each place of distance, H float64: 2^(-8h/H), h = 1..H, for a power of two.

    For other numbers of heads: the slopes of the power of two below, then every other slope of the one above, from its
    first.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    below = 2 ** int(math.log2(heads))
    steps = torch.arange(1, below + 1, dtype=torch.float64) * (8 / below)
    between = (torch.arange(heads - below, dtype=torch.float64) + 0.5) * (8 / below)
    return torch.exp2(-torch.cat((steps, between)))


class AlibiBias(nn.Module):
    """The bias that ALiBi adds to the scores: -slope x distance. No parameters or buffers.

    A causal one has -inf for later places. The bias for the longest row so far is kept; all layers of a model can share
    one.
    """

    def __init__(self, heads: int, *, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self._kept = torch.empty(1, heads, 0, 0)  # not a buffer: it is not trained state, and its size changes

    def forward(self, query_BHTd: Tensor, keys: int | None = None) -> Tensor:
        """Return the bias for these queries, 1 H T S of their type, for S keys, of which the queries are the last; by
        default as many as queries."""
        queries, kept = query_BHTd.shape[-2], self._kept
        places = queries if keys is None else keys
        if kept.shape[-1] < places or (kept.dtype, kept.device) != (query_BHTd.dtype, query_BHTd.device):
            self._kept = self._made(query_BHTd, places)
        return self._kept[..., places - queries : places, :places]

    @torch.inference_mode(False)  # an inference tensor that is kept could not be used in training later
    def _made(self, query_BHTd: Tensor, places: int) -> Tensor:
        # Computed in fp32 and rounded once: bfloat16 cannot represent all whole numbers beyond 256.
        exact = torch.promote_types(query_BHTd.dtype, torch.float32)
        place = torch.arange(places, device=query_BHTd.device)
        distance_TT = place[:, None] - place
        slopes = alibi_slopes(self.heads).to(query_BHTd.device, exact)
        bias_HTT = slopes[:, None, None] * -distance_TT.abs()
        if self.causal:
            bias_HTT = bias_HTT.masked_fill_(distance_TT < 0, -math.inf)
        return bias_HTT[None].to(query_BHTd.dtype)


class Borders(NamedTuple):
    """The documents of a batch by length, row by row."""

    lengths: list[int]
    by_length: dict[int, list[int]]  # the numbers of the documents of each length


class Documents:
    """The documents of a batch, for one pass. A document ends with the separator, which belongs to it.

    On a CPU each document attends by itself, those of equal length together: no score between two documents is
    computed, and what a document becomes depends neither on its place nor on the others. Elsewhere, and in compiled
    passes, whose shapes are fixed, a dense mask hides the others: to know the borders, the host would have to wait.
    """

    def __init__(self, tokens_BT: Tensor, separator: int) -> None:
        place = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        self._begins_BT = torch.zeros_like(tokens_BT, dtype=torch.bool)
        self._begins_BT[:, 1:] = tokens_BT[:, :-1] == separator
        self.places_BT = place - (place * self._begins_BT).cummax(1).values  # counted from the start of the document
        self.apart = tokens_BT.device.type == "cpu" and not torch.compiler.is_compiling()
        self._masks: dict[nn.Module | None, Tensor] = {}  # by bias; made once for all layers
        self._borders: Borders | None = None

    def borders(self) -> Borders:
        """Return where each document ends. Waits for the device."""
        if self._borders is None:
            begins_BT = self._begins_BT.clone()
            begins_BT[:, 0] = True
            starts = begins_BT.flatten().nonzero()[:, 0].tolist()
            lengths = [end - start for start, end in pairwise([*starts, begins_BT.numel()])]
            by_length: dict[int, list[int]] = {}
            for number, length in enumerate(lengths):
                by_length.setdefault(length, []).append(number)
            self._borders = Borders(lengths, by_length)
        return self._borders

    def mask(self, query_BHTd: Tensor, bias: nn.Module | None) -> Tensor:
        """Return the term to add to the scores, B H T T or B 1 T T: the bias, and -inf outside the document."""
        if bias not in self._masks:
            number_BT, place = self._begins_BT.cumsum(1), torch.arange(query_BHTd.shape[2], device=query_BHTd.device)
            seen_BTT = (number_BT[:, :, None] == number_BT[:, None, :]) & (place[:, None] >= place)
            within = query_BHTd.new_zeros(()) if bias is None else bias(query_BHTd)
            self._masks[bias] = torch.where(seen_BTT[:, None], within, -math.inf)
        return self._masks[bias]


Change = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # of queries and keys, B H T d


def attend(
    qkv_BT3Hd: Tensor, *, bias: nn.Module | None, documents: Documents | None = None, changes: Sequence[Change] = ()
) -> Tensor:
    """Return what each place takes from those it may see, B T H d, given queries, keys and values, of which the first
    two are changed before."""
    if documents is not None and documents.apart:
        return _attend_apart(qkv_BT3Hd, documents.borders(), bias, changes)
    q, k, v = qkv_BT3Hd.permute(2, 0, 3, 1, 4)
    for change in changes:
        q, k = change(q, k)
    mask = documents.mask(q, bias) if documents is not None else None if bias is None else bias(q)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None).transpose(1, 2)


def _attend_apart(qkv_BT3Hd: Tensor, borders: Borders, bias: nn.Module | None, changes: Sequence[Change]) -> Tensor:
    """Return the same where each document attends by itself."""
    pieces = qkv_BT3Hd.flatten(0, 1).split(borders.lengths)
    results = list(pieces)
    for equal in borders.by_length.values():
        attended = attend(torch.stack([pieces[number] for number in equal]), bias=bias, changes=changes)
        for number, result in zip(equal, attended, strict=True):
            results[number] = result
    return torch.cat(results).unflatten(0, qkv_BT3Hd.shape[:2])


class Attention(nn.Module):
    """Causal self-attention, within documents if these are given.

    `bias`, if there is one, computes from the queries a term to add to the scores, with -inf for later places.
    `changes` act on queries and keys before that.
    """

    fused_matrices: ClassVar[dict[str, int]] = {"qkv.weight": 3}  # queries, keys, values

    def __init__(self, width: int, *, heads: int, branches: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = Linear(width, 3 * width)
        self.out = Linear(width, width, branches=branches)
        self.bias: nn.Module | None = None
        self.changes: tuple[Change, ...] = ()

    def forward(self, x_BTD: Tensor, documents: Documents | None = None) -> Tensor:
        batch, places, width = x_BTD.shape
        qkv_BT3Hd = self.qkv(x_BTD).view(batch, places, 3, self.heads, -1)
        attended_BTHd = attend(qkv_BT3Hd, bias=self.bias, documents=documents, changes=self.changes)
        return self.out(attended_BTHd.reshape(batch, places, width))


# --- perceptrons, which act on each place by itself ------------------------------------------------------------------


class Perceptron(nn.Module):
    """Two affine maps with GELU between them: B T D in and out."""

    def __init__(self, width: int, *, hidden: int, branches: int) -> None:
        super().__init__()
        self.width, self.hidden, self.branches = width, hidden, branches
        self.up = Linear(width, hidden)
        self.down = Linear(hidden, width, branches=branches)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x_BTD)))


class GatedPerceptron(nn.Module):
    """down(GELU(gate(x)) * up(x)), three matrices and no biases: B T D in and out."""

    def __init__(self, width: int, *, hidden: int, branches: int) -> None:
        super().__init__()
        self.width, self.hidden, self.branches = width, hidden, branches
        self.gate = Linear(width, hidden, bias=False)
        self.up = Linear(width, hidden, bias=False)
        self.down = Linear(hidden, width, branches=branches, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.gelu(self.gate(x_BTD)) * self.up(x_BTD))


def gated_hidden(hidden: int) -> int:
    """Return the width at which three matrices have as many weights as two of this width: 2/3 of it, to the nearest
    multiple of 8.

    >>> gated_hidden(4 * 768)
    2048
    """
    return max(8, round(hidden / 12) * 8)


# --- embeddings of tokens and places, and logits ---------------------------------------------------------------------


class Tokens(nn.Embedding):
    """A vector for each token: B T in, B T D out. `unembed` returns logits by the same vectors."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)

    def unembed(self, x_BTD: Tensor) -> Tensor:
        """Return logits, B T K."""
        return F.linear(x_BTD, self.weight)


class Positions(nn.Module):
    """A vector for each place, added to its input."""

    def __init__(self, context: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(context, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=STD)

    def forward(self, x_BTD: Tensor, documents: Documents | None = None) -> Tensor:
        """Add the vectors of the places, counted from the start of the row, or of each document."""
        if documents is None:
            return x_BTD + self.weight[: x_BTD.shape[1]]
        return x_BTD + F.embedding(documents.places_BT, self.weight)


class NoPositions(nn.Module):
    """The identity, for models without positions."""

    def forward(self, x_BTD: Tensor, documents: Documents | None = None) -> Tensor:
        return x_BTD


class Embedding(nn.Module):
    """Tokens and places as vectors: B T in, B T D out."""

    def __init__(self, tokens: int, context: int, width: int) -> None:
        super().__init__()
        self.tokens = Tokens(tokens, width)
        self.positions: nn.Module = Positions(context, width)

    def forward(self, tokens_BT: Tensor, documents: Documents | None = None) -> Tensor:
        return self.positions(self.tokens(tokens_BT), documents)

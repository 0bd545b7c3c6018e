"""`text_shards`: text in shards, byte by byte or in the tokens of a tokeniser, for the prediction of the next one.

    {text_shards: {path: openwebtext, context: 1024}}          below --data

A block of T + 1 tokens has T inputs and T labels: the token after each. A model learns to predict the tokens of the
vocabulary, and is measured in bits per byte of the text, so runs with different tokenisers compare.

Shapes: B blocks, T tokens.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import Check, DataFile, Fitted, Modality, Split, TaskName, split_of
from explorer.data.sequences import Text
from explorer.data.shards.shard_files import Opened, ShardFiles
from explorer.data.shards.shard_index import TOKENISER, Index
from explorer.data.shards.shard_rows import KeptRows, ShardRows, checked
from explorer.data.shards.shards import Opening, Shards
from explorer.data.shards.tokenising import AS_BYTES, tokeniser_at
from explorer.errors import DataError
from explorer.provenance.spellings import UNKNOWN_TEXTS
from explorer.schema import LATER

CONTEXT = "tokens of an example; null: as many as the shards have"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TextInShards(Text):
    """Sequences of T tokens that are read as they are needed."""

    files: ShardFiles

    def checking(self, check: Check) -> Self:
        train, files = checked(self.train, self.files, check)
        return replace(self, train=train, files=files)

    def expect(self, numbers: np.ndarray) -> None:
        self.files.expect_examples(numbers)


class LabelRows(ShardRows):
    """The labels of blocks of tokens, which the inputs keep with their own."""

    def content_in(self, opened: Opened, row: int) -> bytes:
        """Return nothing: the kept bytes of the input have the labels too."""
        return b""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextShards(Shards):
    """Text in the shards of `path`, made by `explorer data shard`. `window` is the number of shards of a class whose
    blocks are shuffled with each other."""

    name: ClassVar[str] = "text_shards"
    summary: ClassVar[str] = "text in shards, in bytes or tokens: any amount of it, also in a bucket"
    modality: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "language"
    metrics: ClassVar[tuple[str, ...]] = ("bits_per_byte",)

    context: Annotated[int | None, Field(ge=1, le=2**16, description=CONTEXT)] = field(default=None, metadata=LATER)

    @classmethod
    def parameters(cls, index: Index) -> dict[str, Any]:
        """Return the tokens of an example, by which usage statements count tokens."""
        return {"context": index.inputs.shape[0]}

    def dataset(self, index: Index, opening: Opening) -> TextInShards:
        (context,) = index.inputs.shape
        if self.context not in (None, context):
            raise DataError(
                f"dataset {self.name!r}: context: found {self.context}; expected {context}, as {opening.url} has it"
            )
        if index.inputs.encoding == "tokens":
            train, test = _blocks(index, opening)
        else:
            taken = partial(_array, shape=index.inputs.shape)
            train, test = opening.splits(ShardRows, taken, shape=index.inputs.shape, dtype=torch.uint8)
        if index.tokeniser is not None:
            tokeniser_at(opening.train.objects, index.tokeniser.sha256)
        return TextInShards(
            train=train,
            test=test,
            files=opening.train,
            text_bytes=None if index.tokeniser is None else index.tokeniser.test_bytes,
            separator=separator_of(index),
            **opening.facts(self.window),
        )

    def fitted_on(self, data: Path | None) -> Fitted:
        _, index = self._index(data)
        if index.tokeniser is None:
            return {}
        which = f"of {index.classes} tokens, SHA-256 {index.tokeniser.sha256}"
        if index.tokeniser.trained:
            return {"tokeniser": f"byte-level BPE {which}: trained on the documents of the training side"}
        return {"tokeniser": f"from a file, {which}: trained {UNKNOWN_TEXTS}"}

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        _, index = self._index(data)
        listed = Shards.files(self, data)
        if index.tokeniser is None:
            return listed
        kept = DataFile(path=f"{self.path}/{TOKENISER}", sha256=index.tokeniser.sha256, media="application/json")
        return (listed[0], kept, *listed[1:])


def separator_of(index: Index) -> int | None:
    """Return the token that ends a document; None for text that was not packed from documents."""
    if index.inputs.encoding != "tokens":
        return None
    return AS_BYTES.separator if index.tokeniser is None else index.tokeniser.separator


def _array(opened: Opened, rows: np.ndarray, *, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(opened.inputs(np.dtype(np.uint8), shape)[rows])


def _blocks(index: Index, opening: Opening) -> tuple[Split, Split]:
    """Return both sides of blocks of tokens."""
    (context,) = index.inputs.shape
    written = np.dtype(index.inputs.dtype)
    # torch has few operations for uint16 and uint32.
    kind, dtype = (np.uint8, torch.uint8) if written.itemsize == 1 else (np.int32, torch.int32)

    def taken(opened: Opened, rows: np.ndarray, *, part: slice) -> Tensor:
        tokens = opened.inputs(written, (context + 1,))[rows, part]
        if tokens.size and (largest := int(tokens.max())) >= index.classes:
            raise ValueError(f"token {largest}: the index says 0 to {index.classes - 1}")
        return torch.from_numpy(tokens.astype(kind))

    train, test = (
        split_of(
            inputs=KeptRows(files, partial(taken, part=slice(0, -1)), shape=(context,), dtype=dtype),
            labels=LabelRows(files, partial(taken, part=slice(1, None)), shape=(context,), dtype=dtype),
        )
        for files in (opening.train, opening.test)
    )
    return train, test

"""Material for shards of text: documents in tokens, packed into blocks of T + 1.

The documents of one provenance class on one side form a stream, in their order, with the separator behind each. The
stream is cut into blocks, each of which begins with the last token of the one before, so that every token except the
first is predicted once. No block has documents of two classes or sides. A shorter rest of a stream is left out.

A separator counts as one byte of text, as the byte between documents does in text that is read byte by byte; and with
it count the bytes of a document in which a tokeniser finds no tokens at all.

Shapes: T tokens.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from explorer.data.local import Fault
from explorer.data.shards.shard_index import TOKENISER, Inputs, Labels, SideName, Tokeniser
from explorer.data.shards.shard_writer import Material, Row, ahead, side_of
from explorer.data.shards.text_documents import Document, Documents
from explorer.data.shards.tokenising import AS_BYTES, Numbering, Tokens, read_tokeniser, train_tokeniser

CONTEXT = 1024  # tokens of a block
WAITING = 8  # documents that are tokenised ahead for each thread
SAMPLE = 2**30  # bytes of text, about, that a tokeniser is trained on


class Block(NamedTuple):
    """T + 1 tokens."""

    tokens: np.ndarray
    document: int  # in which it begins
    bytes: int  # of text that its labels stand for


@dataclass(slots=True)
class Stream:
    """Documents of one class on one side, one behind the other."""

    context: int
    tokens: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    sizes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    documents: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # of each token

    def add(self, number: int, document: Tokens, separator: int, *, size: int) -> Iterator[Block]:
        """Add a document of `size` bytes, and yield the blocks that are full now."""
        self.tokens = np.concatenate((self.tokens, document.ids, (separator,)))
        self.sizes = np.concatenate((self.sizes, document.sizes, (1 + size - document.sizes.sum(),)))
        self.documents = np.concatenate((self.documents, np.full(len(document.ids) + 1, number)))
        starts = range(0, len(self.tokens) - self.context, self.context)
        for start in starts:
            stop = start + self.context + 1
            yield Block(self.tokens[start:stop], int(self.documents[start]), int(self.sizes[start + 1 : stop].sum()))
        left = len(starts) * self.context
        self.tokens, self.sizes, self.documents = (
            part[left:].copy() for part in (self.tokens, self.sizes, self.documents)
        )


class Packing:
    """A pass over documents, which counts the bytes that the labels of each side stand for."""

    def __init__(self, documents: Documents, numbering: Numbering, *, context: int, threads: int) -> None:
        self._documents, self._numbering, self._context, self._threads = documents, numbering, context, threads
        self.bytes: Counter[SideName] = Counter()
        small, medium = 2**8, 2**16
        count = numbering.count
        self.dtype: Any = "uint8" if count <= small else "uint16" if count <= medium else "uint32"

    def rows(self) -> Iterator[Row]:
        """Yield the blocks, and the documents that there are not."""
        self.bytes.clear()
        streams: dict[tuple[SideName, str | None], Stream] = {}
        with ThreadPoolExecutor(self._threads, thread_name_prefix="tokens") as pool:
            for document, tokens in ahead(pool, self._encoded, self._documents.read(), WAITING * self._threads):
                tag = document.tag if document.side == "train" else None
                if isinstance(tokens, Fault):
                    yield self._row(document.number, document, tag, tokens)
                    continue
                stream = streams.setdefault((document.side, tag), Stream(self._context))
                size, separator = len(document.content), self._numbering.separator
                for block in stream.add(document.number, tokens, separator, size=size):
                    self.bytes[document.side] += block.bytes
                    yield self._row(block.document, document, tag, block.tokens.astype(self.dtype).tobytes())

    def _encoded(self, document: Document) -> tuple[Document, Tokens | Fault]:
        content = document.content
        return document, content if isinstance(content, Fault) else self._numbering.encode(content)

    def _row(self, slot: int, document: Document, tag: str | None, content: bytes | Fault) -> Row:
        return Row(slot=slot, name=document.name, side=document.side, tag=tag, label=None, read=partial(_same, content))


def token_material(
    documents: Documents, tokeniser: bytes | None, *, trained: bool, context: int, threads: int, where: str = TOKENISER
) -> Material:
    """Return what to write of documents.

    Args:
        documents: the documents.
        tokeniser: the file of a tokeniser; None: byte by byte.
        trained: it was trained on the training side of these documents.
        context: tokens of a block, T.
        threads: that tokenise.
        where: the name of the file, for messages.

    Raises `DataError` for a file that is no tokeniser.
    """
    numbering = AS_BYTES if tokeniser is None else read_tokeniser(tokeniser, where=where)
    packing = Packing(documents, numbering, context=context, threads=threads)

    def numbered() -> Tokeniser | None:
        if tokeniser is None:
            return None
        return Tokeniser(
            sha256=hashlib.sha256(tokeniser).hexdigest(),
            trained=trained,
            separator=numbering.separator,
            train_bytes=packing.bytes["train"],
            test_bytes=packing.bytes["test"],
        )

    return Material(
        modality="text",
        task="language",
        inputs=Inputs(encoding="tokens", dtype=packing.dtype, shape=(context,)),
        labels=Labels(),
        classes=numbering.count,
        origin=documents.origin(),
        rows=packing.rows,
        count=None,
        tokeniser=numbered,
        files={} if tokeniser is None else {TOKENISER: tokeniser},
    )


def trained_on(documents: Documents, *, size: int) -> bytes:
    """Return a tokeniser of `size` tokens, trained on the training side: on all of it, or, where the files are large,
    on a share by the digests of the texts."""
    total = sum(file.path.stat().st_size for _, file in documents.files())
    share = min(1.0, SAMPLE / max(1, total))
    return train_tokeniser(
        (
            document.content
            for document in documents.read()
            if document.side == "train"
            and isinstance(document.content, bytes)
            and side_of(b"tokeniser" + document.content, share) == "test"
        ),
        size=size,
    )


def _same(content: bytes | Fault) -> bytes | Fault:
    return content

"""Material for shards of text: documents in tokens, packed into blocks of T + 1.

The documents of one provenance class on one side form a stream, in their order, with the separator behind each. The
stream is cut into blocks, each of which begins with the last token of the one before, so that every token except the
first is predicted once. No block has documents of two classes or sides. A shorter rest of a stream is left out.

A separator counts as one byte of text, as the byte between documents does in text that is read byte by byte; and with
it count the bytes of a document in which a tokeniser finds no tokens at all.

Shapes: T tokens.
"""

import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from explorer.data.local import Fault
from explorer.data.shards.shard_index import TOKENISER, Inputs, Labels, SideName, Tokeniser
from explorer.data.shards.shard_writer import Material, Place, Row, Stream, ahead, begun
from explorer.data.shards.text_documents import Document, Documents, side_of
from explorer.data.shards.tokenising import (
    AS_BYTES,
    Numbering,
    Tokens,
    read_tokeniser,
    tokeniser_at,
    train_tokeniser,
)
from explorer.errors import DataError
from explorer.objects import Objects

CONTEXT = 1024  # tokens of a block
WAITING = 8  # documents that are tokenised ahead for each thread
SAMPLE = 2**30  # bytes of text, about, that a tokeniser is trained on


class Block(NamedTuple):
    """T + 1 tokens."""

    tokens: np.ndarray
    document: int  # in which it begins
    end: Place  # the document in which it ends, and the number of its last token in that
    bytes: int  # of text that its labels stand for


@dataclass(slots=True)
class Running:
    """Documents of one class on one side, one behind the other, from a token on."""

    context: int
    begin: Place  # a document, and the number of a token in it: what is before is in finished shards
    tokens: np.ndarray = field(default_factory=lambda: np.empty((0, 4), np.int64))  # with sizes, documents, numbers

    def add(self, number: int, document: Tokens, separator: int, *, size: int) -> Iterator[Block]:
        """Add a document of `size` bytes, and yield the blocks that are full now."""
        ids = np.concatenate((document.ids, (separator,)))
        sizes = np.concatenate((document.sizes, (1 + size - document.sizes.sum(),)))
        added = np.stack((ids, sizes, np.full_like(ids, number), np.arange(len(ids))), axis=1)
        first, token = self.begin
        self.tokens = np.concatenate((self.tokens, added[token if number == first else 0 :]))
        starts = range(0, len(self.tokens) - self.context, self.context)
        for start in starts:
            ids, sizes, documents, places = self.tokens[start : start + self.context + 1].T
            yield Block(ids, int(documents[0]), (int(documents[-1]), int(places[-1])), int(sizes[1:].sum()))
        self.tokens = self.tokens[len(starts) * self.context :].copy()


class Packing:
    """Passes over documents."""

    def __init__(self, documents: Documents, numbering: Numbering, *, context: int, threads: int) -> None:
        self._documents, self._numbering, self._context, self._threads = documents, numbering, context, threads
        small, medium = 2**8, 2**16
        count = numbering.count
        self.dtype: Any = "uint8" if count <= small else "uint16" if count <= medium else "uint32"

    def rows(self, finished: Mapping[Stream, Place]) -> Iterator[Row]:
        """Yield the blocks behind these places, and the documents that there are not.

        What ends before these places is not tokenised again.
        """
        streams: dict[Stream, Running] = {}
        take = partial(self._encoded, finished)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="tokens") as pool:
            for document, tokens in ahead(pool, take, self._documents.read(), WAITING * self._threads):
                stream, number = _stream_of(document), document.number
                if tokens is None:
                    continue
                if isinstance(tokens, Fault):
                    yield self._row(number, document, tokens, end=(number, 0))
                    continue
                begin = finished.get(stream, (-1, 0))
                running = streams.setdefault(stream, Running(self._context, begin))
                size, separator = len(document.content), self._numbering.separator
                for block in running.add(number, tokens, separator, size=size):
                    content = block.tokens.astype(self.dtype).tobytes()
                    yield self._row(block.document, document, content, end=block.end, text=block.bytes)

    def _encoded(self, finished: Mapping[Stream, Place], document: Document) -> tuple[Document, Tokens | Fault | None]:
        """Return the tokens; None where all of them are in finished shards. Called in a thread."""
        content = document.content
        after = finished.get(_stream_of(document))
        if after is not None and document.number < after[0]:
            return document, None
        return document, content if isinstance(content, Fault) else self._numbering.encode(content)

    def _row(self, slot: int, document: Document, content: bytes | Fault, *, end: Place, text: int = 0) -> Row:
        side, tag = _stream_of(document)
        read = partial(_same, content)
        return Row(slot=slot, name=document.name, side=side, tag=tag, label=None, read=read, end=end, text=text)


def _stream_of(document: Document) -> Stream:
    return document.side, document.tag if document.side == "train" else None


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

    def numbered(text: Mapping[SideName, int]) -> Tokeniser | None:
        if tokeniser is None:
            return None
        return Tokeniser(
            sha256=hashlib.sha256(tokeniser).hexdigest(),
            trained=trained,
            separator=numbering.separator,
            train_bytes=text["train"],
            test_bytes=text["test"],
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
        trained=trained,
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


def trained_before(documents: Documents, objects: Objects, *, size: int) -> bytes | None:
    """Return the tokeniser of `size` tokens that an interrupted pass over these documents has trained; else None."""
    plan = begun(objects)
    if plan is None or not plan.trained or plan.origin != documents.origin():
        return None
    try:
        content = tokeniser_at(objects, plan.files[TOKENISER])
    except DataError:  # the pass was killed before it was there, or it is damaged: training gives the same bytes
        return None
    return content if read_tokeniser(content, where=TOKENISER).count == size else None


def _same(content: bytes | Fault) -> bytes | Fault:
    return content

"""Finding what has to be erased: the examples of shards that hold the content of a file.

An image is found by its bytes, which shards keep as they are; a text by its tokens, wherever it is packed, also as a
part of a longer document. Next to a block that was erased, and at the end of a stream, whose rest is in no block, a
text is found by what is left of it, its beginning or its end: if that is short, it may be another text's.

Shapes: R rows of a stream, T tokens of a block.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from explorer.data.labelled import MAX_ENCODED_BYTES
from explorer.data.shards.shard_files import Opened, ShardFiles
from explorer.data.shards.shard_index import TOKENISER, Index, Layout, SideName
from explorer.data.shards.text_documents import MAX_DOCUMENT
from explorer.data.shards.tokenising import AS_BYTES, MAX_TOKENISER, Numbering, read_tokeniser
from explorer.errors import DataError
from explorer.objects import Objects

MAX_CONTENT = max(MAX_ENCODED_BYTES, MAX_DOCUMENT)

MEMORY = 2**28  # bytes of open shards
MIDDLE = 40  # bytes of a text that are not found by chance

Shards = Iterable[tuple[int, Opened]]


class Held(NamedTuple):
    """The numbers of examples of a side, ascending."""

    whole: tuple[int, ...]  # that hold the content, or a part of it whose rest is in the others
    pieces: tuple[int, ...]  # that hold its beginning or end, next to tokens that are not there


class _Sought(NamedTuple):
    """Tokens to look for."""

    ids: np.ndarray
    before: int  # tokens of the text in front of them
    behind: int


class _Rows(NamedTuple):
    """Consecutive blocks of a stream."""

    tokens: np.ndarray  # R x (T + 1)
    examples: np.ndarray  # R, their numbers
    there: np.ndarray  # R, bool: not erased


def examples_with(
    content: bytes,
    index: Index,
    objects: Objects,
    *,
    side: SideName = "train",
    watch: Callable[[Shards], Shards] = iter,
) -> Held:
    """Return the examples of a side that hold this content; `watch` wraps the shards that are read.

    Raises `DataError` for arrays, which are no file's bytes, for a text that has no tokens, and for a shard that cannot
    be had.
    """
    files = ShardFiles(objects, Layout(index.side(side)), cache=None, memory=MEMORY)
    if index.inputs.encoding == "image":
        return Held(tuple(_images(content, watch(files.in_turn(range(len(files.layout.shards)))), files.layout)), ())
    if index.inputs.encoding != "tokens":
        raise DataError(f"{objects.url}: found arrays, which are no file's bytes: expected images or tokens")
    return _texts(content, index, files, watch)


def _images(content: bytes, shards: Shards, layout: Layout) -> Iterator[int]:
    for number, opened in shards:
        for row in np.flatnonzero(np.diff(opened.offsets) == len(content)).tolist():
            if bytes(opened.input(row)) == content:
                yield int(layout.starts[number]) + row


# --- texts -----------------------------------------------------------------------------------------------------------


def _texts(content: bytes, index: Index, files: ShardFiles, watch: Callable[[Shards], Shards]) -> Held:
    numbering = AS_BYTES
    if index.tokeniser is not None:
        where = f"{files.objects.url}/{TOKENISER}"
        numbering = read_tokeniser(files.objects.read(TOKENISER, max_bytes=MAX_TOKENISER), where=where)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"found bytes that are not UTF-8: expected a text: {error}") from error
    sought = _sought(content, numbering, index.inputs.dtype)
    if not sought:
        raise DataError("found a text without tokens: expected some")
    length = max(len(ids) + before + behind for ids, before, behind in sought)
    whole, pieces = set[int](), set[int]()
    shards = files.layout.shards
    order = sorted(range(len(shards)), key=lambda number: (shards[number].tag or "", number))
    for _, stream in groupby(watch(files.in_turn(order)), key=lambda pair: shards[pair[0]].tag):
        for rows, ends in _windows(stream, files.layout, index, length=length):
            for one in sought:
                for place, is_whole in _matches(rows, one, separator=numbering.separator, ends=ends):
                    (whole if is_whole else pieces).add(int(rows.examples[place]))
    return Held(tuple(sorted(whole)), tuple(sorted(pieces - whole)))


def _sought(content: bytes, numbering: Numbering, dtype: str) -> list[_Sought]:
    """Return the tokens of a text, and of what is in its middle where that is long: a part of a document may begin and
    end within words, or within what a tokeniser makes one token of."""
    if not content.strip():
        return []
    # An editor ends the last line; the document need not.
    texts = [(text, b"", b"") for text in sorted({content, content.rstrip(b"\r\n")})]
    words = content.strip().split(b" ")
    if len(middle := b" ".join((b"", *words[1:-1]))) >= MIDDLE:
        texts.append((middle, words[0], b" " + words[-1]))
    encoded = [[numbering.encode(part).ids.astype(dtype) for part in parts] for parts in texts]
    return [_Sought(ids, len(before), len(behind)) for ids, before, behind in encoded if len(ids)]


def _windows(stream: Shards, layout: Layout, index: Index, *, length: int) -> Iterator[tuple[_Rows, bool]]:
    """Yield the blocks of a stream, shard by shard, each time with as many of the blocks before as `length` tokens may
    begin in; and whether the stream ends there."""
    (context,) = index.inputs.shape
    kept = -(-length // context) + 1
    rows: _Rows | None = None
    for number, opened in stream:
        first = int(layout.starts[number])
        mine = _Rows(
            opened.inputs(np.dtype(index.inputs.dtype), (context + 1,)),
            np.arange(first, first + len(opened)),
            ~opened.erased,
        )
        if rows is not None:
            yield rows, False
            mine = _Rows(*(np.concatenate((old[-kept:], new)) for old, new in zip(rows, mine, strict=True)))
        rows = mine
    if rows is not None:
        yield rows, True


def _matches(rows: _Rows, sought: _Sought, *, separator: int, ends: bool) -> Iterator[tuple[int, bool]]:
    """Yield the place of each block with a part of the text, and whether all of the text is there."""
    ids, before, behind = sought
    count, context = len(rows.tokens), rows.tokens.shape[1] - 1
    edges = np.flatnonzero(np.diff(np.concatenate(([False], rows.there, [False]))))
    for begin, end in edges.reshape(-1, 2).tolist():
        run = np.append(rows.tokens[begin:end, :-1], rows.tokens[end - 1, -1])
        after_gap, before_gap = begin > 0, end < count or ends
        spans = [(max(0, at - before), min(len(run), at + len(ids) + behind), True) for at in _places(run, ids)]
        if not before:  # of the middle of a text, no piece is looked for
            spans += [(start, stop, False) for start, stop in _pieces(run, ids, separator, after_gap, before_gap)]
        for start, stop, whole in spans:
            # The token at the edge of two blocks is in both: as the last label of one, and the first input of the next.
            first, last = max(0, start - 1) // context, min((stop - 1) // context, end - begin - 1)
            yield from ((begin + place, whole) for place in range(first, last + 1))


def _pieces(
    run: np.ndarray, ids: np.ndarray, separator: int, after_gap: bool, before_gap: bool
) -> Iterator[tuple[int, int]]:
    """Yield where the text's end begins a run behind a gap, where its beginning ends one before a gap, and a run that
    lies in it between two gaps."""
    cuts = np.flatnonzero(run == separator)
    if not len(cuts) and after_gap:
        if before_gap and len(run) < len(ids) and next(_places(ids, run), None) is not None:
            yield 0, len(run)
        return
    tail = int(cuts[-1]) + 1 if len(cuts) else 0
    if before_gap and 0 < (size := len(run) - tail) < len(ids) and np.array_equal(run[tail:], ids[:size]):
        yield tail, len(run)
    if after_gap and 0 < (head := int(cuts[0])) < len(ids) and np.array_equal(run[:head], ids[-head:]):
        yield 0, head


def _places(run: np.ndarray, ids: np.ndarray) -> Iterator[int]:
    """Yield every place at which these tokens are in a run."""
    content, sought, width = run.tobytes(), ids.tobytes(), run.itemsize
    at = content.find(sought)
    while at >= 0:
        if at % width == 0:
            yield at // width
        at = content.find(sought, at + 1)

"""Finding what has to be erased: the examples of shards that hold the content of a file.

An image is found by its bytes, which shards keep as they are; a text by the bytes that the tokens of a stream spell,
wherever it is packed, also as a part of a longer document. Where a tokeniser normalises texts, such as to small
letters, all that become the same are found. Newlines at its end do not count. Next to a block that was erased, and at
the end of a stream, whose rest is in no block, a text is found by what is left of it, its beginning or its end, of
eight bytes or more, or of fewer where a document begins or ends with them; such a piece may be another text's.

Shapes: R rows of a stream, T tokens of a block, K tokens in the vocabulary.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from explorer.data.labelled import MAX_ENCODED_BYTES
from explorer.data.shards.shard_files import Opened, ShardFiles
from explorer.data.shards.shard_index import TOKENISER, Index, Layout, SideName
from explorer.data.shards.text_documents import MAX_DOCUMENT
from explorer.data.shards.tokenising import AS_BYTES, Numbering, read_tokeniser, tokeniser_at
from explorer.errors import DataError
from explorer.objects import Objects

MAX_CONTENT = max(MAX_ENCODED_BYTES, MAX_DOCUMENT)

MEMORY = 2**28  # bytes of open shards
SHORT = 8  # bytes that many texts begin or end with
NEWLINES = b"\r\n"
MARK = b"\xff"  # for a token that spells nothing, such as a separator: no byte of UTF-8

Shards = Iterable[tuple[int, Opened]]


class Held(NamedTuple):
    """The numbers of examples of a side, ascending."""

    whole: tuple[int, ...]  # that hold the content, or a part of it whose rest is in the others
    pieces: tuple[int, ...]  # that hold its beginning or end, next to tokens that are not there


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

    Raises `DataError` for arrays, which are no file's bytes, for tokens that do not spell texts, for an empty text, and
    for a shard that cannot be had.
    """
    files = ShardFiles(objects, Layout(index.side(side)), cache=None, memory=MEMORY)
    if index.inputs.encoding == "image":
        return Held(tuple(_images(content, watch(files.in_turn(range(len(files.layout.shards)))), files.layout)), ())
    if index.inputs.encoding != "tokens":
        raise DataError(f"{objects.url}: found arrays, which are no file's bytes: expected images or tokens")
    return _texts(content, index, files, watch)


def _images(content: bytes, shards: Shards, layout: Layout) -> Iterator[int]:
    for number, opened in shards:
        for row in np.flatnonzero((np.diff(opened.offsets) == len(content)) & ~opened.erased).tolist():
            if bytes(opened.input(row)) == content:
                yield int(layout.starts[number]) + row


# --- texts -----------------------------------------------------------------------------------------------------------


def _texts(content: bytes, index: Index, files: ShardFiles, watch: Callable[[Shards], Shards]) -> Held:
    numbering = AS_BYTES
    if index.tokeniser is not None:
        file = tokeniser_at(files.objects, index.tokeniser.sha256)
        numbering = read_tokeniser(file, where=f"{files.objects.url}/{TOKENISER}")
    spelling = _Spelling(numbering, where=files.objects.url)
    try:
        words = content.rstrip(NEWLINES).decode()  # an editor ends the last line; the document need not
    except UnicodeDecodeError as error:
        raise DataError(f"found bytes that are not UTF-8: expected a text: {error}") from error
    text = numbering.normalise(words).encode()
    if not text:
        raise DataError("found no text: expected some")
    whole, pieces = set[int](), set[int]()
    shards = files.layout.shards
    order = sorted(range(len(shards)), key=lambda number: (shards[number].tag or "", number))
    for _, stream in groupby(watch(files.in_turn(order)), key=lambda pair: shards[pair[0]].tag):
        for rows, ends in _windows(stream, files, index, length=len(text)):
            for first, last, is_whole in _matches(rows, text, spelling, ends=ends):
                (whole if is_whole else pieces).update(rows.examples[first : last + 1].tolist())
    return Held(tuple(sorted(whole)), tuple(sorted(pieces - whole)))


class _Spelling:
    """The bytes of tokens."""

    def __init__(self, numbering: Numbering, *, where: str) -> None:
        if numbering.spellings is None:
            raise DataError(f"{where}: its tokens do not spell all bytes of a text: no text can be found in them")
        spelt = [spelling or MARK for spelling in numbering.spellings]
        self._all = np.frombuffer(b"".join(spelt), np.uint8)
        self._sizes = np.array([len(spelling) for spelling in spelt])
        self._starts = np.cumsum(self._sizes) - self._sizes
        self.mark = spelt[numbering.separator]

    def of(self, tokens: np.ndarray) -> tuple[bytes, np.ndarray]:
        """Return what these tokens spell, and where each of them ends. Raises ValueError for one outside of the K."""
        if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(self._sizes):
            raise ValueError(f"token {tokens.max()}: expected 0 to {len(self._sizes) - 1}")
        sizes = self._sizes[tokens]
        ends = np.cumsum(sizes)
        places = np.repeat(self._starts[tokens] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
        return self._all[places].tobytes(), ends


def _windows(stream: Shards, files: ShardFiles, index: Index, *, length: int) -> Iterator[tuple[_Rows, bool]]:
    """Yield the blocks of a stream, shard by shard, each time with as many of the blocks before as a text of `length`
    bytes may begin in; and whether the stream ends there."""
    (context,) = index.inputs.shape
    kept = -(-length // context) + 1  # every token has a byte
    rows: _Rows | None = None
    for number, opened in stream:
        first = int(files.layout.starts[number])
        try:
            tokens = opened.inputs(np.dtype(index.inputs.dtype), (context + 1,)).astype(np.int64)
        except ValueError as error:
            raise DataError(f"shard {files.where(number)}: {error}") from error
        mine = _Rows(tokens, np.arange(first, first + len(opened)), ~opened.erased)
        if rows is not None:
            yield rows, False
            mine = _Rows(*(np.concatenate((old[-kept:], new)) for old, new in zip(rows, mine, strict=True)))
        rows = mine
    if rows is not None:
        yield rows, True


def _matches(rows: _Rows, text: bytes, spelling: _Spelling, *, ends: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield the first and the last block of each place that has the text, or a piece of it, and whether it has all."""
    count, context = len(rows.tokens), rows.tokens.shape[1] - 1
    edges = np.flatnonzero(np.diff(np.concatenate(([False], rows.there, [False]))))
    for begin, end in edges.reshape(-1, 2).tolist():
        run = np.append(rows.tokens[begin:end, :-1], rows.tokens[end - 1, -1])
        try:
            data, stops = spelling.of(run)
        except ValueError as error:
            raise DataError(f"example {rows.examples[begin]} or one behind it: {error}") from error
        spans = [(at, _newlines_behind(data, at + len(text)), True) for at in _places(data, text)]
        pieces = _pieces(data, text, spelling.mark, begin > 0, end < count or ends)
        for start, stop, whole in (*spans, *((start, stop, False) for start, stop in pieces)):
            first, last = np.searchsorted(stops, (start, stop - 1), side="right").tolist()
            # The token at the edge of two blocks is in both: as the last label of one, and the first input of the next.
            yield begin + max(0, first - 1) // context, begin + min(last // context, end - begin - 1), whole


def _pieces(data: bytes, text: bytes, mark: bytes, after_gap: bool, before_gap: bool) -> Iterator[tuple[int, int]]:
    """Yield where a run begins with the end of the text, behind a gap; where it ends with the beginning, before a gap;
    and all of a run that lies in the text, between two gaps."""
    if after_gap and before_gap and len(data) < len(text) and data in text:
        yield 0, len(data)
        return
    most = min(len(data), len(text) - 1)
    if before_gap:
        tail = data[len(data) - most :]
        sizes = (most - at for at in _places(tail, text[:SHORT]))
        short = data[data.rfind(mark) + 1 :]
        size = next((size for size in sizes if text.startswith(tail[most - size :])), 0)
        if not size and len(short) < SHORT and text.startswith(short):
            size = len(short)
        if size:
            yield len(data) - size, len(data)
    if after_gap:
        sizes = (at + len(text[-SHORT:]) for at in reversed([*_places(data[:most], text[-SHORT:])]))
        size = next((size for size in sizes if text.endswith(data[:size])), 0)
        short = data[: max(0, data.find(mark))].rstrip(NEWLINES)
        if not size and len(short) < SHORT and text.endswith(short):
            size = len(short)
        if size:
            yield 0, _newlines_behind(data, size)


def _places(data: bytes, text: bytes) -> Iterator[int]:
    """Yield every place at which a text is in a run."""
    at = data.find(text)
    while at >= 0:
        yield at
        at = data.find(text, at + 1)


def _newlines_behind(data: bytes, stop: int) -> int:
    """Return where the newlines behind a place end."""
    while data[stop : stop + 1] and data[stop] in NEWLINES:
        stop += 1
    return stop

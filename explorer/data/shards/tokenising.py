"""Texts as numbers: bytes, or the tokens of a Hugging Face `tokenizers` file, with the bytes of each.

Every byte of a text belongs to one of its tokens, so that bits per byte compare between tokenisers. To a token of a
byte-level tokeniser belong the bytes that it spells. Of others, and where a tokeniser changes a text, it is the text
from the end of the token before to its own; what is left at the end is the last one's.

The file may be hostile: its size is bounded, and it is parsed by `tokenizers` (extra `text`) and by nothing else. What
is spelt like a special token in a text is text.

Shapes: T tokens of a text, K tokens in the vocabulary.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from explorer.data.sequences import BYTES
from explorer.data.shards.shard_index import TOKENISER
from explorer.errors import DataError, PlaceError
from explorer.objects import Objects

MAX_TOKENISER = 2**26  # bytes of a file
MAX_VOCABULARY = 2**22
SEPARATOR = "<|endoftext|>"  # behind every document
SEPARATORS = (SEPARATOR, "<|end_of_text|>", "</s>", "<eos>", "[SEP]")  # usual names, in this order
PANIC = "PanicException"  # no Exception, and of no module that could be imported
ALPHABET = 256  # a byte-level tokeniser has every byte
# Normalisers that change each part of a text by itself, and pre-tokenisers that divide it.
LOCAL = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Nmt", "Replace", "BertNormalizer"}
DIVIDING = {"ByteLevel", "Split", "Digits", "Punctuation"}


class Tokens(NamedTuple):
    """A text in tokens."""

    ids: np.ndarray  # T, int64
    sizes: np.ndarray  # T, int64: the bytes of text that belong to each


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Numbering:
    """How texts become numbers."""

    count: int  # K
    separator: int  # the token behind every document
    encode: Callable[[bytes], Tokens]  # of UTF-8; called in threads
    spellings: Sequence[bytes] | None  # K: the bytes of each token; None where tokens do not spell all of a text
    normalise: Callable[[str], str] = str  # a text as its tokens spell it


def _of_bytes(text: bytes) -> Tokens:
    ids = np.frombuffer(text, np.uint8).astype(np.int64)
    return Tokens(ids, np.ones(len(ids), np.int64))


AS_BYTES = Numbering(
    count=BYTES, separator=0, encode=_of_bytes, spellings=[bytes((number,)) for number in range(BYTES)]
)


def tokeniser_at(objects: Objects, sha256: str) -> bytes:
    """Return the file of the tokeniser at a place of shards. Raises `DataError` for another one than made them."""
    try:
        content = objects.read(TOKENISER, max_bytes=MAX_TOKENISER)
    except PlaceError as error:
        raise DataError(f"the tokeniser of the shards: {error}") from error
    if (digest := hashlib.sha256(content).hexdigest()) != sha256:
        raise DataError(
            f"{objects.url}/{TOKENISER}: found SHA-256 {digest[:16]}..., the index says {sha256[:16]}...: expected"
            " the tokeniser that made these tokens"
        )
    return content


def read_tokeniser(content: bytes, *, where: str) -> Numbering:
    """Return the numbering of a file. Raises `DataError` for a file that is no tokeniser, and for one without a token
    for the end of a document."""
    if len(content) > MAX_TOKENISER:
        raise DataError(f"{where}: too large: {len(content)} bytes, at most {MAX_TOKENISER} are read")
    library = _library()
    with _faults(where):
        tokeniser = library.Tokenizer.from_str(content.decode())
    # What depends on chance or belongs to one use is not part of a numbering.
    tokeniser.no_truncation()
    tokeniser.no_padding()
    if getattr(tokeniser.model, "dropout", None):
        tokeniser.model.dropout = None
    tokeniser.encode_special_tokens = True
    vocabulary: dict[str, int] = tokeniser.get_vocab(with_added_tokens=True)
    count = max(vocabulary.values(), default=-1) + 1
    if not 2 <= count <= MAX_VOCABULARY:
        raise DataError(f"{where}: {count} tokens: expected 2 to {MAX_VOCABULARY}")
    added = tokeniser.get_added_tokens_decoder()
    special = {token.content: number for number, token in added.items() if token.special}
    name = next((name for name in SEPARATORS if name in special), None)
    if name is None:
        raise DataError(
            f"{where}: its special tokens are {', '.join(sorted(special)[:5]) or 'none'}: expected one for the end of a"
            f" document: {', '.join(SEPARATORS)}"
        )
    spellings = _spellings(vocabulary, added, count) if _is_spelt(json.loads(tokeniser.to_str())) else None
    spelt = None if spellings is None else np.array([len(spelling) for spelling in spellings])

    def encode(text: bytes) -> Tokens:
        words = text.decode()
        with _faults(where):
            encoding = tokeniser.encode(words, add_special_tokens=False)
        ids = np.array(encoding.ids, np.int64)
        if spelt is not None and int((sizes := spelt[ids]).sum()) == len(text):
            return Tokens(ids, sizes)
        return Tokens(ids, by_offsets(words, [end for _, end in encoding.offsets]))

    normaliser = tokeniser.normalizer
    return Numbering(
        count=count,
        separator=special[name],
        encode=encode,
        spellings=spellings,
        normalise=str if normaliser is None else normaliser.normalize_str,
    )


@contextmanager
def _faults(where: str) -> Iterator[None]:
    """Raise `DataError` for whatever `tokenizers` raises at a file: nothing precise, and panics of its Rust code."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        raise DataError(f"{where}: not a file of `tokenizers` that can be used: {error}") from error


def by_offsets(text: str, ends: list[int]) -> np.ndarray:
    """Return the bytes of text that belong to each token, T, given the character behind each.

    >>> by_offsets("né e", [1, 2, 4]).tolist()
    [1, 2, 2]
    """
    if not ends:
        return np.empty(0, np.int64)
    # The first byte of each character: code points from 128, 2048 and 65536 on take one more each.
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    sizes = 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    places = np.maximum.accumulate(starts[np.array(ends)])
    places[-1] = starts[-1]
    return np.diff(places, prepend=0)


def _is_spelt(file: dict[str, Any]) -> bool:
    """Return whether tokens spell all of a text, as its parts are normalised: whether every step of the tokeniser is
    one of those that are known to leave nothing out and to add nothing."""
    model, dividers = file["model"], _steps(file["pre_tokenizer"], "pretokenizers")
    plain = [token for token in file["added_tokens"] if not token["special"]]
    return (
        model["type"] == "BPE"
        and not (model.get("continuing_subword_prefix") or model.get("end_of_word_suffix"))
        and all(step["type"] in LOCAL for step in _steps(file["normalizer"], "normalizers"))
        and any(step["type"] == "ByteLevel" for step in dividers)
        and all(step["type"] in DIVIDING and step.get("behavior") != "Removed" for step in dividers)
        # A space is put before every part: before the text where there is one part only.
        and not (any(step.get("add_prefix_space") for step in dividers) and (plain or len(dividers) > 1))
        # A token that strips takes the spaces next to it, too.
        and not any(token["lstrip"] or token["rstrip"] for token in plain)
    )


def _steps(step: dict[str, Any] | None, parts: str) -> list[dict[str, Any]]:
    """Return the steps of a part of a tokeniser, one behind the other."""
    if step is None:
        return []
    return [inner for part in step[parts] for inner in _steps(part, parts)] if step["type"] == "Sequence" else [step]


def _spellings(vocabulary: dict[str, int], added: Mapping[int, Any], count: int) -> list[bytes] | None:
    """Return the bytes that each token spells, K; None for a tokeniser whose tokens are not spelt in bytes."""
    letters = _letters()
    spellings = [b""] * count
    for name, number in vocabulary.items():
        if number in added:  # written as they are; a special one is no text
            spellings[number] = b"" if added[number].special else name.encode()
        elif letters.keys() >= set(name):
            spellings[number] = bytes(letters[letter] for letter in name)
    return spellings if sum(name in vocabulary for name in letters) == ALPHABET else None


def _letters() -> dict[str, int]:
    """Return the byte that each letter of a byte-level vocabulary is.

    Printable bytes are themselves, the others are the letters from 256 on, in their order (Radford et al., "Language
    Models are Unsupervised Multitask Learners", 2019).
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(ALPHABET) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(ALPHABET + n): byte for n, byte in enumerate(others)}


def train_tokeniser(texts: Iterator[bytes], *, size: int) -> bytes:
    """Return the file of a byte-level BPE of `size` tokens, one of them for the end of a document.

    The same texts give the same file, whatever their order: words are counted, and of pairs that are equally frequent
    the first by number is merged. Raises `DataError` for too little text.
    """
    library = _library()
    tokeniser = library.Tokenizer(library.models.BPE())
    tokeniser.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokeniser.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[SEPARATOR],
        initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokeniser.train_from_iterator((text.decode() for text in texts), trainer)
    if (most := tokeniser.get_vocab_size()) != size:
        raise DataError(f"a vocabulary of {size} tokens: the texts have pairs for {most}: expected {most} or fewer")
    return tokeniser.to_str().encode()


def _library() -> Any:
    try:
        return import_module("tokenizers")
    except ImportError as error:
        raise DataError("tokens need the extra 'text': pip install 'explorer[text]'") from error

"""Documents for tests: sentences of each source in words of its own, as lines of JSON."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from explorer.data.shards.shard_index import Index
from explorer.data.shards.shard_writer import write_shards
from explorer.data.shards.text_documents import Documents
from explorer.data.shards.token_material import token_material, trained_on
from explorer.objects import open_objects

WORDS = {
    "news": "report minister market élection über",
    "code": "def return import self 変数",
    "mail": "dear 😀 thanks re",
}


def sentences(source: str, count: int, *, seed: int = 0) -> list[str]:
    """Texts of different lengths, in the words of one source."""
    draws = np.random.default_rng([seed, len(source)])
    words = WORDS[source].split()
    return [" ".join(draws.choice(words, draws.integers(5, 60))) + f" {source} {number}" for number in range(count)]


def lines(path: Path, texts: Iterable[tuple[str, str]]) -> None:
    """Write documents, each with its source."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text, "source": source}) + "\n" for text, source in texts))


def corpus(root: Path, *, each: int = 60) -> Documents:
    """Write lines of three sources in turn below `root`/corpus."""
    rows = zip(*(sentences(source, each) for source in WORDS), strict=True)
    lines(
        root / "corpus" / "data.jsonl",
        ((text, source) for row in rows for text, source in zip(row, WORDS, strict=True)),
    )
    return Documents(path=root / "corpus", tag="source")


def pack(
    documents: Documents,
    place: Path,
    *,
    size: int | None = 340,
    file: bytes | None = None,
    context: int = 32,
    shard_bytes: int = 2_000,
    threads: int = 2,
) -> Index:
    """Write shards in the tokens of a file, or of a tokeniser of `size` that is trained here, or in bytes."""
    trained = file is None and size is not None
    content = trained_on(documents, size=size) if trained and size is not None else file
    material = token_material(documents, content, trained=trained, context=context, threads=threads)
    return write_shards(material, open_objects(str(place)), shard_bytes=shard_bytes, threads=threads)

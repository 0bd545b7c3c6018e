"""Packing documents into blocks: no block mixes classes or sides, every token is there once, bytes are counted."""

import dataclasses
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer.data.local import FOLDERS
from explorer.data.shards import token_material as packing
from explorer.data.shards.shard_index import TOKENISER, Index, SideName
from explorer.data.shards.shard_writer import write_shards
from explorer.data.shards.text_documents import Documents
from explorer.data.shards.token_material import Running, token_material, trained_before, trained_on
from explorer.data.shards.tokenising import Numbering, Tokens
from explorer.errors import DataError, PlaceError
from explorer.objects import DirectoryObjects
from tests.data.shards.test_shard_writer import Failing
from tests.data.shards.texts import WORDS, corpus, lines, pack, sentences
from tests.data.shards.written import files_of

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `text`")


def blocks_of(place: Path, index: Index, side: SideName) -> list[tuple[str | None, int, np.ndarray]]:
    """Return tag, document and tokens of every block of a side."""
    found = []
    for shard in index.side(side).shards:
        for row in pq.read_table(place / shard.name).to_pylist():
            found.append((row["tag"] or None, row["slot"], np.frombuffer(row["input"], index.inputs.dtype)))
    return found


def sources_in(text: str) -> set[str]:
    """Return the sources whose own words are in a text."""
    return {source for source, words in WORDS.items() if any(word in text for word in words.split() if len(word) > 2)}


def mixed(place: Path, index: Index) -> list[str]:
    """Return the texts of training blocks that have words of two sources."""
    decode = tokenizers.Tokenizer.from_file(str(place / TOKENISER)).decode
    texts = [decode(tokens.tolist()) for _, _, tokens in blocks_of(place, index, "train")]
    return [text for text in texts if len(sources_in(text)) > 1]


def test_no_block_mixes_classes(tmp_path: Path) -> None:
    documents = corpus(tmp_path)
    index = pack(documents, tmp_path / "apart")
    assert {shard.tag for shard in index.train.shards} == {*WORDS}
    assert mixed(tmp_path / "apart", index) == []
    decode = tokenizers.Tokenizer.from_file(str(tmp_path / "apart" / TOKENISER)).decode
    for tag, _, tokens in blocks_of(tmp_path / "apart", index, "train"):
        assert sources_in(decode(tokens.tolist())) <= {tag}
    # The control: without classes, documents of different sources are in one block.
    together = pack(dataclasses.replace(documents, tag=None), tmp_path / "together")
    assert mixed(tmp_path / "together", together)


def test_every_token_is_predicted_once_and_documents_end_with_the_separator(tmp_path: Path) -> None:
    documents = dataclasses.replace(corpus(tmp_path), tag=None)
    index = pack(documents, tmp_path / "place", shard_bytes=10**6)
    assert index.tokeniser is not None
    tokeniser = tokenizers.Tokenizer.from_file(str(tmp_path / "place" / TOKENISER))
    texts = list(documents.read())
    for side in ("train", "test"):
        stream: list[int] = []
        begins: dict[int, int] = {}
        for document in texts:
            if document.side == side and isinstance(document.content, bytes):
                begins[document.number] = len(stream)
                stream += [*tokeniser.encode(document.content.decode()).ids, index.tokeniser.separator]
        blocks = blocks_of(tmp_path / "place", index, side)
        cut = [block for _, _, tokens in blocks for block in tokens[1:].tolist()]
        assert cut == stream[1 : len(cut) + 1] and len(stream) - len(cut) <= 32
        for place, (_, number, tokens) in enumerate(blocks):
            assert tokens.tolist() == stream[place * 32 : place * 32 + 33]
            assert begins[number] <= place * 32 < begins.get(number + 1, len(stream)) or number + 1 not in begins
    # The bytes that labels stand for, counted from the decoded text: a separator is one.
    for side, counted in counts(index):
        labels = [token for _, _, tokens in blocks_of(tmp_path / "place", index, side) for token in tokens[1:].tolist()]
        separators = labels.count(index.tokeniser.separator)
        assert counted == spelt(tokeniser, labels) + separators != len(labels)


def counts(index: Index) -> list[tuple[SideName, int]]:
    """Return the bytes of each side, as the index has them."""
    assert index.tokeniser is not None
    return [("train", index.tokeniser.train_bytes), ("test", index.tokeniser.test_bytes)]


def spelt(tokeniser, labels: list[int]) -> int:
    """Return the bytes that tokens spell, by the characters of the byte-level alphabet."""
    return sum(len(tokeniser.id_to_token(label)) for label in labels if label)


def test_bytes_are_tokens_of_one_byte(tmp_path: Path) -> None:
    """A tokeniser that knows only bytes makes the blocks that reading byte by byte makes, under other numbers."""
    documents = corpus(tmp_path)
    plain, numbered = pack(documents, tmp_path / "plain", size=None), pack(documents, tmp_path / "numbered", size=257)
    assert (plain.inputs.dtype, plain.classes, plain.tokeniser) == ("uint8", 256, None)
    assert (numbered.inputs.dtype, numbered.classes) == ("uint16", 257)
    assert numbered.tokeniser is not None and numbered.tokeniser.trained
    for side, counted in counts(numbered):
        rows = len(blocks_of(tmp_path / "plain", plain, side))
        assert len(blocks_of(tmp_path / "numbered", numbered, side)) == rows and counted == 32 * rows


def test_a_document_without_tokens_counts_its_bytes() -> None:
    nothing, one = Tokens(np.empty(0, np.int64), np.empty(0, np.int64)), Tokens(np.array([5]), np.array([3]))
    stream = Running(context=3, begin=(-1, 0))
    assert [*stream.add(0, one, 9, size=3), *stream.add(1, nothing, 9, size=7)] == []
    ((tokens, number, end, size),) = stream.add(2, one, 9, size=3)
    assert (tokens.tolist(), number, end, size) == ([5, 9, 9, 5], 0, (2, 0), 1 + 8 + 3)


def test_threads_and_interruptions_change_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = corpus(tmp_path)
    path = tmp_path / "corpus" / "data.jsonl"
    rows = path.read_text().splitlines(keepends=True)
    # Documents without text are listed once, wherever a pass was interrupted, also those behind all rows.
    nothing = '{"text": "", "source": "code"}\n'
    path.write_text("".join((*rows[:20], nothing, *rows[20:90], nothing, *rows[90:], nothing, nothing)))
    encoded: list[int] = []
    read = packing.read_tokeniser

    def counting(content: bytes, *, where: str) -> Numbering:
        numbering = read(content, where=where)

        def encode(text: bytes) -> Tokens:
            encoded.append(len(text))
            return numbering.encode(text)

        return dataclasses.replace(numbering, encode=encode)

    monkeypatch.setattr(packing, "read_tokeniser", counting)
    file = trained_on(documents, size=340)
    whole, _ = (pack(documents, tmp_path / f"by-{threads}", file=file, threads=threads) for threads in (1, 4))
    assert files_of(tmp_path / "by-1") == files_of(tmp_path / "by-4")

    def material():
        return token_material(documents, file, trained=False, context=32, threads=2)

    numbers = []
    writes = 1 + 2 * sum(len(side.shards) for side in (whole.train, whole.test))  # of the tokeniser, shards, parts
    for takes in (1, 6, 9, 13, writes):
        place = tmp_path / f"after-{takes}"
        with pytest.raises(PlaceError, match="full"):
            write_shards(material(), Failing(place, takes), shard_bytes=2_000, threads=1)
        encoded.clear()
        index = write_shards(material(), DirectoryObjects(place), shard_bytes=2_000, threads=2)
        assert files_of(place) == files_of(tmp_path / "by-1")
        assert [passed.count for passed in index.skipped] == [4]
        numbers.append(len(encoded))
    assert numbers[0] == 180 and sorted(numbers, reverse=True) == numbers
    assert numbers[-1] < 90, numbers  # what is in finished shards is not tokenised again
    with pytest.raises(PlaceError):
        write_shards(material(), Failing(tmp_path / "other", 3), shard_bytes=2_000, threads=1)
    with pytest.raises(DataError, match=r"different: files"):
        other = trained_on(documents, size=341)
        changed = token_material(documents, other, trained=False, context=32, threads=2)
        write_shards(changed, DirectoryObjects(tmp_path / "other"), shard_bytes=2_000, threads=1)


def test_an_interrupted_pass_keeps_its_tokeniser(tmp_path: Path) -> None:
    documents = corpus(tmp_path)

    def interrupted(name: str, content: bytes, *, takes: int, trained: bool = True) -> DirectoryObjects:
        material = token_material(documents, content, trained=trained, context=32, threads=1)
        with pytest.raises(PlaceError, match="full"):
            write_shards(material, Failing(tmp_path / name, takes), shard_bytes=2_000, threads=1)
        return DirectoryObjects(tmp_path / name)

    file = trained_on(documents, size=340)
    place = interrupted("place", file, takes=6)
    assert trained_before(documents, place, size=340) == file
    pack(documents, tmp_path / "whole")
    write_shards(
        token_material(documents, file, trained=True, context=32, threads=2), place, shard_bytes=2_000, threads=2
    )
    assert files_of(tmp_path / "place") == files_of(tmp_path / "whole")
    # The controls: nothing begun, another size, a given tokeniser, none written yet, a damaged one, other documents.
    assert trained_before(documents, place, size=340) is None
    assert trained_before(documents, interrupted("size", file, takes=6), size=341) is None
    assert trained_before(documents, interrupted("given", file, takes=6, trained=False), size=340) is None
    assert trained_before(documents, interrupted("early", file, takes=0), size=340) is None
    damaged = interrupted("damaged", file, takes=6)
    (tmp_path / "damaged" / TOKENISER).write_bytes(file[:-1] + b" ")
    assert trained_before(documents, damaged, size=340) is None
    other = interrupted("other", file, takes=6)
    lines(tmp_path / "corpus" / "more.jsonl", [(text, "code") for text in sentences("code", 3)])
    assert trained_before(documents, other, size=340) is None


# --- documents -------------------------------------------------------------------------------------------------------


def texts_of(documents: Documents) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {"train": set(), "test": set()}
    for document in documents.read():
        if isinstance(document.content, bytes):
            found[document.side].add(document.content.decode())
    return found


def test_equal_documents_are_on_one_side(tmp_path: Path) -> None:
    texts = sentences("news", 300)
    lines(tmp_path / "all.jsonl", [(text, "news") for text in texts + texts[::-1]])
    found = texts_of(Documents(path=tmp_path / "all.jsonl"))
    assert not found["train"] & found["test"] and found["train"] | found["test"] == set(texts)
    assert 5 <= len(found["test"]) <= 30
    # Where the files say the sides, the training side does without the documents of the test side.
    lines(tmp_path / "c4" / "c4-train.00000.jsonl", [(text, "news") for text in texts[:200]])
    lines(tmp_path / "c4" / "c4-validation.00000.jsonl", [(text, "news") for text in texts[150:]])
    documents = Documents(path=tmp_path / "c4")
    assert texts_of(documents) == {"train": set(texts[:150]), "test": set(texts[150:])}
    index = pack(documents, tmp_path / "place", size=None)
    (passed,) = index.skipped
    assert (passed.reason, passed.count) == ("a document of the test side too", 50)


def test_the_tokeniser_is_trained_on_the_training_side(tmp_path: Path) -> None:
    train, test = ([(text, "code") for text in sentences("code", 80, seed=seed)] for seed in (1, 2))
    for place, other in (("one", test), ("two", [(text * 3, "code") for text, _ in test])):
        lines(tmp_path / place / "train.jsonl", train)
        lines(tmp_path / place / "test.jsonl", other)
    one, two = (trained_on(Documents(path=tmp_path / place), size=300) for place in ("one", "two"))
    assert one == two
    lines(tmp_path / "two" / "train.jsonl", train[:40])  # the control
    assert trained_on(Documents(path=tmp_path / "two"), size=300) != one


@pytest.mark.parametrize("kind", ["jsonl", "json.gz", "parquet", "txt"])
def test_documents_of_every_kind(tmp_path: Path, kind: str) -> None:
    texts = sentences("mail", 60)
    tag = FOLDERS if kind == "txt" else "source"
    for name, part in (("inbox", texts[:30]), ("sent", texts[30:])):
        path = tmp_path / "d" / name / f"part.{kind}"
        path.parent.mkdir(parents=True)
        if kind == "txt":
            for number, text in enumerate(part):
                (path.parent / f"{number:02d}.txt").write_text(text)
        elif kind == "parquet":
            pq.write_table(pa.table({"text": part, "source": [name] * 30}), path)
        else:
            lines(path, [(text, name) for text in part])
            if kind == "json.gz":
                path.write_bytes(gzip.compress(path.read_bytes()))
    documents = Documents(path=tmp_path / "d", tag=tag)
    read = list(documents.read())
    branch = "folders/" if kind == "txt" else ""
    assert {(document.content, document.tag) for document in read} == {
        (text.encode(), f"{branch}{'inbox' if place < 30 else 'sent'}") for place, text in enumerate(texts)
    }
    assert [document.number for document in read] == list(range(60))
    assert documents.there(wanted=False) == (kind != "txt") and documents.there(wanted=True)


@pytest.mark.parametrize("text", ["".join(f"Zeile {n} über Öl\n" for n in range(400)), "ü" * 5_000])
def test_the_end_of_an_only_text_is_the_test_side(tmp_path: Path, text: str) -> None:
    (tmp_path / "novel").mkdir()
    (tmp_path / "novel" / "all.txt").write_text(text)
    for path in (tmp_path / "novel", tmp_path / "novel" / "all.txt"):
        end, beginning = Documents(path=path).read()
        assert (end.side, beginning.side) == ("test", "train")
        assert isinstance(end.content, bytes) and isinstance(beginning.content, bytes)
        assert beginning.content.decode() + end.content.decode() == text
        assert 0.04 < len(end.content) / len(text.encode()) < 0.06
    # With a second file neither is divided.
    (tmp_path / "novel" / "other.txt").write_text(text)
    assert {document.content for document in Documents(path=tmp_path / "novel").read()} == {text.encode()}


def test_a_card_of_the_hub_says_which_files_there_are(tmp_path: Path) -> None:
    texts = sentences("news", 300)
    for name, part in (("en/c4-train.0", texts[:100]), ("en/c4-validation.0", texts[100:200]), ("de/x.0", texts[200:])):
        lines(tmp_path / "c4" / f"{name}.jsonl", [(text, "news") for text in part])
    sides = [{"split": side, "path": f"en/c4-{side}.*"} for side in ("train", "validation")]
    configs = [{"config_name": "en", "data_files": sides}, {"config_name": "de", "data_files": "de/*"}]
    (tmp_path / "c4" / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")
    english = Documents(path=tmp_path / "c4", config="en")
    assert texts_of(english) == {"train": {*texts[:100]}, "test": {*texts[100:200]}}
    german = texts_of(Documents(path=tmp_path / "c4", config="de"))
    assert german["train"] | german["test"] == {*texts[200:]}
    with pytest.raises(DataError, match="none of them is the default"):
        Documents(path=tmp_path / "c4").files()
    (tmp_path / "c4" / "README.md").unlink()
    with pytest.raises(DataError, match="names no configurations"):
        english.files()


def test_what_is_no_document_is_listed(tmp_path: Path) -> None:
    good = [json.dumps({"text": text}) for text in sentences("news", 200)]
    bad = ["{", "[1]", "1" * 5_000, '{"text": null}', '{"text": ""}', '{"text": 5}', '{"text": "\\ud800"}', "[" * 9_000]
    (tmp_path / "d.jsonl").write_text("\n".join(good[:100] + bad + [""] + good[100:]))
    index = pack(Documents(path=tmp_path / "d.jsonl"), tmp_path / "place", size=None)
    found = {passed.reason: (passed.count, passed.names) for passed in index.skipped}
    assert found == {
        "damaged or cut short": (4, ("d.jsonl, row 101", "d.jsonl, row 102", "d.jsonl, row 103", "d.jsonl, row 108")),
        "no text in the row": (3, ("d.jsonl, row 104", "d.jsonl, row 105", "d.jsonl, row 106")),
        "not UTF-8 text": (1, ("d.jsonl, row 107",)),
    }


def test_sources_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    def refused(documents: Documents) -> str:
        with pytest.raises(DataError) as error:
            pack(documents, tmp_path / "places" / str(len(list(tmp_path.glob("places/*")))), size=None)
        return str(error.value)

    lines(tmp_path / "one.jsonl", [("a text", "news")])
    assert "no example on the" in refused(Documents(path=tmp_path / "one.jsonl"))
    assert "row 1: found nothing under 'licence'" in refused(Documents(path=tmp_path / "one.jsonl", tag="licence"))
    lines(tmp_path / "many.jsonl", [(f"text {number}", f"url-{number}") for number in range(1_001)])
    assert "has more than 1000 values" in refused(Documents(path=tmp_path / "many.jsonl", tag="source"))
    pq.write_table(pa.table({"text": [1, 2]}), tmp_path / "numbers.parquet")
    assert "column 'text' is int64, expected texts" in refused(Documents(path=tmp_path / "numbers.parquet"))
    misspelt = Documents(path=tmp_path / "numbers.parquet", text="txt")
    assert "unknown column 'txt'; did you mean 'text'" in refused(misspelt)
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 999)[:-9])
    assert "damaged" in refused(Documents(path=tmp_path / "cut.json.gz"))
    (tmp_path / "note.txt").write_text("a")
    assert "expected the tag 'folders'" in refused(Documents(path=tmp_path / "note.txt", tag="source"))

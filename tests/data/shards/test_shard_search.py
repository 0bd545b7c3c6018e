"""Finding examples by the content of a file: all that hold a part of it, no others, and what is left next to a gap."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer.data.shards.shard_erasure import erase, rows_of
from explorer.data.shards.shard_index import TOKENISER, Index
from explorer.data.shards.shard_search import Held, examples_with
from explorer.data.shards.text_documents import Documents
from explorer.data.shards.token_material import trained_on
from explorer.errors import DataError
from explorer.objects import open_objects
from tests.cli.command import explorer, refused
from tests.data.shards.texts import corpus, lines, pack, sentences
from tests.data.shards.written import DIGITS, folder, write

CONTEXT = 32


@pytest.fixture(params=["bytes", "tokens"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Index:
    """The index of blocks of 32 tokens, of documents of three sources."""
    if request.param == "tokens":
        pytest.importorskip("tokenizers", reason="needs the extra `text`")
    size = None if request.param == "bytes" else 340
    return pack(corpus(tmp_path), tmp_path / "place", size=size, context=CONTEXT)


def found(tmp_path: Path, index: Index, text: str) -> Held:
    return examples_with(text.encode(), index, open_objects(str(tmp_path / "place")))


def by_definition(tmp_path: Path, index: Index, number: int) -> set[int]:
    """The blocks between the one in which a document of its class begins and the one in which it ends: of each block
    is known in which document it begins."""
    holding, first = set[int](), 0
    rows: list[tuple[int, str, int]] = []  # example, tag, document
    for shard in index.train.shards:
        slots = pq.read_table(tmp_path / "place" / shard.name)["slot"].to_pylist()
        rows += [(first + row, shard.tag or "", slot) for row, slot in enumerate(slots)]
        first += shard.rows
    for tag in {tag for _, tag, _ in rows}:
        stream = [(example, document) for example, own, document in rows if own == tag]
        for (example, begins), (_, ends) in zip(stream, [*stream[1:], (-1, 10**9)], strict=True):
            if begins <= number <= ends:
                holding.add(example)
    return holding


def test_every_document_is_found_in_the_blocks_that_hold_it(tmp_path: Path, index: Index) -> None:
    texts = {document.number: document for document in corpus(tmp_path).read()}
    looked = 0
    for number, document in [*texts.items()][::7]:
        assert isinstance(document.content, bytes)
        whole, pieces = examples_with(document.content + b"\n", index, open_objects(str(tmp_path / "place")))
        if document.side == "test":
            assert not whole
            continue
        looked += bool(whole)
        # Of other classes, whose documents have other numbers, the definition knows no better.
        assert {*whole} <= by_definition(tmp_path, index, number)
        size = len(document.content) if index.tokeniser is None else 0
        assert len(whole) >= size // CONTEXT
        assert whole or pieces or number > 150  # the last ones may be in the rest of their stream
        held = b"".join(_tokens(tmp_path, index, example) for example in whole)
        if index.tokeniser is None and whole:
            assert document.content[:20] in held and document.content[-20:] in held
    assert looked > 10


def _tokens(tmp_path: Path, index: Index, example: int) -> bytes:
    """The tokens of a block without the last one, which the next block has too."""
    (place,) = rows_of(index, [example])
    row = pq.read_table(tmp_path / "place" / place.shard)["input"][place.rows[0]].as_py()
    return np.frombuffer(row, index.inputs.dtype)[:-1].tobytes()


CHANGED = {
    "NFC": {"normalizer": {"type": "NFC"}},
    "small letters": {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "Lowercase"}]}},
    "tokens of spaces": {"added": ["   ", "  ", "<tool>"]},
    "words": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        }
    },
    "a space before a text": {
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    },
}
UNSPELT = {
    "spaces are left out": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            ],
        }
    },
    "a space before each word": {
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Punctuation", "behavior": "Isolated"},
                {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            ],
        }
    },
    "a beginning is added": {"normalizer": {"type": "Prepend", "prepend": "_"}},
    "a token takes spaces": {"added": ["<tool>"], "lstrip": True},
}


def other(documents: Documents, change: dict[str, Any]) -> bytes:
    """A tokeniser that is trained on documents and then changed."""
    file = json.loads(trained_on(documents, size=340))
    for number, content in enumerate(change.get("added", ()), start=340):
        flags = {"single_word": False, "rstrip": False, "normalized": False, "special": False}
        token = {"id": number, "content": content, "lstrip": change.get("lstrip", False), **flags}
        file["added_tokens"].append(token)
    return json.dumps(file | {key: value for key, value in change.items() if key in file}).encode()


def packed(root: Path, change: dict[str, Any]) -> tuple[Documents, list[str], Index]:
    """Pack documents with capitals, letters of two code points, spaces in a row and a tag by a changed tokeniser."""
    pytest.importorskip("tokenizers", reason="needs the extra `text`")
    texts = [f"Rene\u0301 {text.upper()}   <tool>  u\u0308ber Ende {n}" for n, text in enumerate(sentences("news", 60))]
    lines(root / "corpus" / "data.jsonl", ((text, "news") for text in texts))
    documents = Documents(path=root / "corpus")
    return documents, texts, pack(documents, root / "place", file=other(documents, change), context=CONTEXT)


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_texts_are_found_as_a_tokeniser_changes_them(tmp_path: Path, change: dict[str, Any]) -> None:
    documents, texts, index = packed(tmp_path, change)
    trained = {document.number for document in documents.read() if document.side == "train"}
    assert len(trained) > 40
    for number, text in enumerate(texts):
        whole = found(tmp_path, index, text).whole
        assert bool(whole) == (number in trained) or number == max(trained), text  # its end may be in no block
    assert not any(found(tmp_path, index, "nothing of this kind was ever written"))


@pytest.mark.parametrize("change", UNSPELT.values(), ids=UNSPELT.keys())
def test_tokens_that_do_not_spell_all_of_a_text_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """What would not be found is not called absent."""
    _, texts, index = packed(tmp_path, change)
    with pytest.raises(DataError, match="do not spell all bytes of a text"):
        found(tmp_path, index, texts[0])


def test_a_part_of_a_document_is_found_and_what_is_not_there_is_not(tmp_path: Path, index: Index) -> None:
    text = next(text for text in sentences("mail", 60) if any(found(tmp_path, index, text).whole))
    part = text[text.index(" ") : len(text) // 2].rsplit(" ", 1)[0]
    assert {*found(tmp_path, index, part).whole} & {*found(tmp_path, index, text).whole}
    assert not any(found(tmp_path, index, "nothing of this kind was ever written"))
    with pytest.raises(DataError, match="found no text"):
        found(tmp_path, index, "\n")
    with pytest.raises(DataError, match="not UTF-8"):
        examples_with(b"\xff\xfe", index, open_objects(str(tmp_path / "place")))


@pytest.mark.parametrize("size", [None, 300], ids=["bytes", "tokens"])
def test_a_name_is_found_wherever_it_is_and_no_other_letter_is(tmp_path: Path, size: int | None) -> None:
    """A tokeniser makes other tokens of a word behind a space, and of one within a text without spaces."""
    names = ("Anna Schmidt", "Bert Meier", "これは長い", "dora@x.org")
    letters = [
        f"To {name}: this is the letter that all of you get, 前の文です{name}次の文, yours, {name}." for name in names
    ]
    lines(tmp_path / "corpus" / "data.jsonl", [(f"{n} {letter}", "mail") for n in range(12) for letter in letters])
    documents = Documents(path=tmp_path / "corpus", tag="source")
    index = pack(documents, tmp_path / "place", size=size, context=16, shard_bytes=300)
    training = [one.content for one in documents.read() if one.side == "train" and isinstance(one.content, bytes)]
    for name, letter in zip(names, letters, strict=True):
        count = sum(name.encode() in content for content in training)
        assert len(found(tmp_path, index, name).whole) >= 3 * count - 4  # the rest of the stream is in no block
        mine, others = found(tmp_path, index, letter), sum(letter.encode() in content for content in training)
        assert others and len(mine.whole) <= others * (len(letter.encode()) // 16 + 2)


def test_a_tokeniser_or_an_index_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra `text`")
    index = pack(corpus(tmp_path), tmp_path / "place", context=CONTEXT)
    inputs = dataclasses.replace(index.inputs, shape=(CONTEXT - 1,))
    with pytest.raises(DataError, match=r"shard .*train/000000\.parquet: inputs of other sizes"):
        found(tmp_path, dataclasses.replace(index, inputs=inputs), "a text")
    with (tmp_path / "place" / TOKENISER).open("ab") as file:
        file.write(b" ")
    with pytest.raises(DataError, match="expected the tokeniser that made these tokens"):
        found(tmp_path, index, "a text")


def test_a_part_that_begins_and_ends_within_words_is_found(tmp_path: Path, index: Index) -> None:
    text = next(text for text in sentences("news", 60) if len(text) > 200 and any(found(tmp_path, index, text).whole))
    first = found(tmp_path, index, text).whole
    cut = found(tmp_path, index, text[2:-2])
    assert cut.whole and {*cut.whole} <= {*first} and not cut.pieces


def test_a_text_is_found_over_the_edges_of_shards(tmp_path: Path) -> None:
    """One document through many small shards; also where it is in the corpus twice."""
    text = "".join(f"line {number} of a long letter\n" for number in range(400))
    letter = tmp_path / "letter.txt"
    letter.write_text(text)
    lines(tmp_path / "corpus" / "data.jsonl", [(f"{n} before", "mail") for n in range(40)] + [(text, "mail")] * 2)
    documents = Documents(path=tmp_path / "corpus", tag="source")
    index = pack(documents, tmp_path / "place", size=None, context=CONTEXT, shard_bytes=700)
    assert len(index.train.shards) > 20
    side = {document.side for document in documents.read() if document.content == text.encode()}
    blocks = sum(shard.rows for shard in index.train.shards)
    whole, pieces = found(tmp_path, index, text)  # the end of the second one is in no block
    assert side == {"train"} and len(whole) + len(pieces) >= 2 * (len(text) // CONTEXT) - 2
    assert sorted(whole + pieces) == [*range(blocks - len(whole) - len(pieces), blocks)]
    shown = explorer("data", "erase", tmp_path / "place", "--holding", letter, "--yes", "--json")
    assert shown.returncode == 0, shown.stderr
    assert sum(map(len, json.loads(shown.stdout)["shards"].values())) == len(whole) + len(pieces)
    said = refused("data", "erase", tmp_path / "place", "--holding", letter, "--yes")
    assert "in no training example" in said


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("size", [None, 340], ids=["bytes", "tokens"])
def test_what_is_left_next_to_an_erased_block_is_found(tmp_path: Path, size: int | None, end: str) -> None:
    marks = [chr(33 + number) for number in range(60)]  # so that no piece could be of another text
    texts = [mark + text + mark + end for mark, text in zip(marks, sentences("news", 60), strict=True)]
    lines(tmp_path / "corpus" / "data.jsonl", [(text, "news") for text in texts])
    index = pack(Documents(path=tmp_path / "corpus", tag="source"), tmp_path / "place", size=size, context=CONTEXT)
    text = max(texts[:40], key=len)
    whole = found(tmp_path, index, text).whole
    assert len(whole) > 2
    erase(open_objects(str(tmp_path / "place")), index, rows_of(index, [whole[1]]))
    after = found(tmp_path, index, text)
    assert not after.whole and {*after.pieces} == {whole[0], *whole[2:]}
    erase(open_objects(str(tmp_path / "place")), index, rows_of(index, [*after.pieces]))
    assert not any(found(tmp_path, index, text))


def test_an_image_is_found_by_its_bytes(tmp_path: Path) -> None:
    source = folder(tmp_path)
    index = write(source, tmp_path / "place", data=tmp_path, shard_bytes=3_000)
    photo = next((tmp_path / "photos" / "train").rglob("004.jpg"))
    words = ("data", "find", tmp_path / "place", photo)
    record = json.loads(explorer(*words, "--json").stdout)
    (example,) = record["examples"]
    dataset = source.load(tmp_path)
    assert dataset.train.labels[0] is not None and record["pieces"] == []
    (place,) = rows_of(index, [example])
    assert pq.read_table(tmp_path / "place" / place.shard)["input"][place.rows[0]].as_py() == photo.read_bytes()
    shown = explorer(*words)
    assert shown.returncode == 0 and f"in 1 training example of {tmp_path / 'place'}: {example}" in shown.stdout
    command = shown.stdout.partition("next: explorer ")[2].split()
    assert explorer(*command, "--yes").returncode == 0
    gone = explorer(*words)
    assert gone.returncode == 1 and "in 0 training examples" in gone.stdout + gone.stderr
    photo.write_bytes(bytes(photo.stat().st_size))  # what is now in the place of the erased image
    assert explorer(*words).returncode == 1
    held_out = next((tmp_path / "photos" / "test").rglob("002.jpg"))
    tested = explorer("data", "find", tmp_path / "place", held_out)
    assert tested.returncode == 0 and "in 1 test example of" in tested.stdout and "not erased" in tested.stdout


def test_arrays_are_no_files(tmp_path: Path) -> None:
    index = write(DIGITS, tmp_path / "place")
    with pytest.raises(DataError, match="no file's bytes"):
        examples_with(b"x", index, open_objects(str(tmp_path / "place")))

"""Tokenisers: training, hostile files, and the bytes that each token stands for."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

from explorer.data.shards import tokenising
from explorer.data.shards.tokenising import AS_BYTES, by_offsets, read_tokeniser, train_tokeniser
from explorer.errors import DataError
from tests.data.shards.texts import WORDS, sentences

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `text`")

TEXTS = [text.encode() for source in WORDS for text in sentences(source, 30)]
STRANGE = ["", "a", "é", "変", "😀", "a<|endoftext|>b", "\0\n\t  x ", "e\u0301", "\ufeff", "x" * 5_000]


@pytest.fixture(scope="module")
def file() -> bytes:
    return train_tokeniser(iter(TEXTS), size=340)


def test_the_same_texts_give_the_same_file(file: bytes) -> None:
    assert train_tokeniser(reversed(TEXTS), size=340) == file
    program = (
        "import hashlib; from tests.data.shards.test_tokenising import TEXTS, train_tokeniser;"
        "print(hashlib.sha256(train_tokeniser(iter(TEXTS), size=340)).hexdigest())"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == hashlib.sha256(file).hexdigest()
    assert train_tokeniser(iter(TEXTS[:-1]), size=340) != file  # the control


def test_every_byte_belongs_to_one_token(file: bytes) -> None:
    numbering = read_tokeniser(file, where="t")
    tokeniser = tokenizers.Tokenizer.from_str(file.decode())
    for text in [*TEXTS, *(one.encode() for one in STRANGE)]:
        tokens = numbering.encode(text)
        assert tokens.sizes.sum() == len(text) and (tokens.sizes > 0).all()
        assert tokeniser.decode(tokens.ids.tolist()).encode() == text
        assert numbering.separator not in tokens.ids
    assert (numbering.count, numbering.separator) == (340, 0)
    text = "naïve 変数"
    alone = read_tokeniser(train_tokeniser(iter(TEXTS), size=257), where="t").encode(text.encode())
    assert alone.sizes.tolist() == [1] * len(text.encode()) == AS_BYTES.encode(text.encode()).sizes.tolist()


def others() -> dict[str, str]:
    """Tokenisers that do not spell bytes, or change a text."""
    words = tokenizers.Tokenizer(tokenizers.models.WordPiece({"[UNK]": 0, "[SEP]": 1, "de": 2, "##ar": 3, "re": 4}))
    words.add_special_tokens(["[SEP]"])
    words.normalizer = tokenizers.normalizers.Lowercase()
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    composed = tokenizers.Tokenizer.from_str(train_tokeniser(iter(TEXTS), size=300).decode())
    composed.normalizer = tokenizers.normalizers.NFC()
    return {"words": words.to_str(), "composed": composed.to_str()}


@pytest.mark.parametrize("name", ["words", "composed"])
def test_a_tokeniser_that_changes_a_text_counts_its_bytes_all_the_same(name: str) -> None:
    numbering = read_tokeniser(others()[name].encode(), where="t")
    for text in ["Dear  re\n", "e\u0301 re e\u0301", "変 dear"]:
        assert numbering.encode(text.encode()).sizes.sum() == len(text.encode())
    if name == "words":
        assert numbering.encode(b"Dear  re\n").sizes.tolist() == [2, 2, 5]


def test_bytes_by_offsets() -> None:
    assert by_offsets("", []).tolist() == []
    assert by_offsets("變a😀", [1, 1, 2, 3]).tolist() == [3, 0, 1, 4]
    assert by_offsets("abc", [1]).tolist() == [3]


def changed(file: bytes, **keys: object) -> bytes:
    return json.dumps(json.loads(file) | keys).encode()


def test_hostile_files_are_refused(file: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(content: bytes) -> str:
        with pytest.raises(DataError) as error:
            read_tokeniser(content, where="tokeniser.json")
        assert str(error.value).startswith("tokeniser.json: ")
        return str(error.value)

    for content in (b"", b"{}", b"\xff", file[:-1], file.replace(b'"merges"', b'"mergers"')):
        assert "not a file of `tokenizers`" in refused(content)
    assert "special tokens are none: expected one for the end" in refused(changed(file, added_tokens=[]))
    model = json.loads(file)["model"]
    model["vocab"]["a"] = 2**32 - 1
    assert "4294967296 tokens: expected 2 to" in refused(changed(file, model=model))
    monkeypatch.setattr(tokenising, "MAX_TOKENISER", 1_000)
    assert "too large" in refused(file)


def test_a_panic_of_the_library_is_an_error(file: bytes) -> None:
    """Its Rust code gives up on a prefix that is longer than the tokens that it is cut from."""
    model = json.loads(file)["model"] | {"continuing_subword_prefix": "Ġ" * 9}
    with pytest.raises(DataError, match="t: not a file of `tokenizers` that can be used") as error:
        read_tokeniser(changed(file, model=model), where="t").encode(TEXTS[0])
    assert type(error.value.__cause__).__name__ == tokenising.PANIC


def test_what_depends_on_chance_or_one_use_is_left_out(file: bytes) -> None:
    model = json.loads(file)["model"] | {"dropout": 0.9}
    cut = {"max_length": 2, "strategy": "LongestFirst", "direction": "Right", "stride": 0}
    numbering = read_tokeniser(changed(file, model=model, truncation=cut), where="t")
    plain = read_tokeniser(file, where="t").encode(TEXTS[0])
    assert len(plain.ids) > 2
    for _ in range(3):
        assert np.array_equal(numbering.encode(TEXTS[0]).ids, plain.ids)


def test_a_vocabulary_that_the_texts_cannot_fill_is_refused() -> None:
    with pytest.raises(DataError, match="the texts have pairs for 258: expected 258 or fewer"):
        train_tokeniser(iter([b"ab"]), size=10_000)

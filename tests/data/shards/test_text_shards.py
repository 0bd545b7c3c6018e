"""Text in shards: the contract of a dataset, bits per byte over tokenisers, and what is refused."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from explorer.data.batches import Batches
from explorer.data.dataset import DataSource
from explorer.data.shards import shard_index
from explorer.data.shards.shard_index import TOKENISER
from explorer.data.shards.text_shards import TextShards
from explorer.data.source import Source
from explorer.data.sources import of_path
from explorer.data.text import LocalText
from explorer.engine.loop import Loop
from explorer.engine.task import LanguageModelling
from explorer.errors import DataError, RecipeError
from explorer.recipes.choice import written
from explorer.recipes.recipe import build_recipe
from explorer.testing import DatasetContract, assert_resumes, loop_of
from explorer.training.run_plan import rehearse
from tests.data.shards.texts import corpus, pack
from tests.data.shards.written import write

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `text`")

TOKENS = TextShards(path="tokens", window=2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pack(corpus(tmp_path), tmp_path / "tokens")
    return tmp_path


def contract(data_: Path, source_: DataSource, **more: Any) -> DatasetContract:
    return type("Contract", (DatasetContract,), {"source": source_, "data": data_, "model": "gpt-tiny", **more})()


def test_it_keeps_the_contract_of_datasets(data: Path) -> None:
    pack(corpus(data), data / "bytes", size=None)
    assert contract(data, TOKENS, other=TextShards(path="bytes")).certify() == {}
    assert contract(data, TextShards(path="bytes")).certify() == {}


def test_tokens_as_a_model_takes_them(data: Path) -> None:
    dataset = TOKENS.load(data)
    assert (dataset.classes, dataset.example_shape) == (340, (32,))
    assert dataset.train.inputs.dtype == dataset.train.labels.dtype == torch.int32
    assert torch.equal(dataset.train.inputs[:][:, 1:], dataset.train.labels[:][:, :-1])
    assert len(dataset.train.content(3)) == 2 * 33  # one more than the input has
    assert dataset.provenance is not None and dataset.provenance.classes == ("code", "mail", "news")
    assert of_path(data / "tokens") == TextShards(path="tokens", context=32)
    assert [file.path for file in TOKENS.files(data)][:2] == ["tokens/index.json", "tokens/tokeniser.json"]


@pytest.mark.parametrize("kind", ["text", "source"])
def test_text_of_bytes_is_read_as_it_was(tmp_path: Path, kind: str) -> None:
    (tmp_path / "words.txt").write_text("a text that is repeated, " * 200)
    local = LocalText(path="words.txt", context=64)
    source = local if kind == "text" else Source(bytes_per_class=4_000, context=64)
    write(source, tmp_path / "place", data=tmp_path)
    shards, memory = TextShards(path="place").load(tmp_path), source.load(tmp_path)
    for ours, theirs in ((shards.train, memory.train), (shards.test, memory.test)):
        mine = sorted(ours.content(number) for number in range(len(ours)))
        assert mine == sorted(theirs.content(number) for number in range(len(theirs)))
    assert (shards.classes, shards.text_bytes) == (256, None)
    made, kept = memory.provenance, shards.provenance
    assert (made is None and kept is None) or (made is not None and kept is not None and made.classes == kept.classes)


def loop_on(data: Path, methods: list[Any]) -> Loop:
    """Return a loop of a few steps on shards that were opened anew."""
    dataset = TOKENS.load(data)
    task = {"dataset": written(TOKENS), "model": {"gpt-tiny": {"document_mask": True, "separator": 0}}}
    train = {"epochs": 48 / len(dataset.train), "batch_size": 8, "optimizer": {"adamw": {"lr": 1e-3}}}
    return loop_of(build_recipe("test", task=task, train=train, methods=methods, where="test"), dataset)


def test_a_run_with_methods_for_text_resumes_to_the_same_bits(data: Path) -> None:
    methods = [{"seq_length_warmup": {"duration": 0.5}}, "label_smoothing", "alibi"]
    assert_resumes(lambda: loop_on(data, methods))
    loops = [loop_on(data, some) for some in ([], methods)]
    assert float(loops[0].step()) != float(loops[1].step())  # the control: they act


# --- bits per byte ---------------------------------------------------------------------------------------------------


class Fixed(nn.Module):
    """Predicts the next token by the present one."""

    def __init__(self, logits_KK: Tensor) -> None:
        super().__init__()
        self.logits_KK = logits_KK

    def forward(self, tokens: Tensor) -> Tensor:
        return self.logits_KK[tokens]


def bits(source: TextShards, data: Path, logits_KK: Tensor) -> float:
    dataset = source.load(data)
    batches = Batches(dataset, batch_size=4, seed=0, device=torch.device("cpu"))
    return LanguageModelling(classes=dataset.classes).evaluate(Fixed(logits_KK), batches)["bits_per_byte"]


def rewritten(place: Path, **tokeniser: Any) -> None:
    """Write the index with other facts of the tokeniser."""
    index = shard_index.parse((place / "index.json").read_bytes(), where="index.json")
    assert index.tokeniser is not None
    changed = dataclasses.replace(index, tokeniser=dataclasses.replace(index.tokeniser, **tokeniser))
    (place / "index.json").write_bytes(shard_index.content_of(changed))


def test_a_tokeniser_of_bytes_measures_what_bytes_measure(tmp_path: Path) -> None:
    documents = corpus(tmp_path)
    pack(documents, tmp_path / "bytes", size=None)
    pack(documents, tmp_path / "numbered", size=257)
    ours, theirs = (TextShards(path=path) for path in ("numbered", "bytes"))
    # The number of each byte, by the tokens that are in the same places.
    tokens, bytes_ = (source.load(tmp_path).test.labels[:].long().flatten() for source in (ours, theirs))
    order = torch.full((256,), -1)
    order[bytes_] = tokens
    assert torch.equal(order[bytes_], tokens)
    others = torch.tensor([number for number in range(257) if number not in order])
    order[order == -1] = others[: int((order == -1).sum())]
    plain = torch.randn(256, 256, generator=torch.Generator().manual_seed(0))
    same = torch.full((257, 257), -torch.inf)
    same[order[:, None], order] = plain
    assert bits(ours, tmp_path, torch.zeros(257, 257)) == pytest.approx(8.0056, abs=1e-4)
    assert bits(theirs, tmp_path, torch.zeros(256, 256)) == pytest.approx(8.0, abs=1e-6)
    assert bits(ours, tmp_path, same) == pytest.approx(bits(theirs, tmp_path, plain), rel=1e-6)


def test_bits_are_of_the_bytes_that_the_index_counts(data: Path) -> None:
    dataset = TOKENS.load(data)
    logits = torch.zeros(340, 340)
    before = bits(TOKENS, data, logits)
    labels = dataset.test.labels.numel()
    assert dataset.text_bytes is not None and dataset.text_bytes > labels
    assert before == pytest.approx(torch.tensor(340.0).log2().item() * labels / dataset.text_bytes, rel=1e-6)
    rewritten(data / "tokens", test_bytes=labels)  # the control: as if tokens were bytes
    assert bits(TOKENS, data, logits) > 1.3 * before


# --- what is refused -------------------------------------------------------------------------------------------------


def refused(data: Path) -> str:
    with pytest.raises(DataError) as error:
        TOKENS.load(data).train.inputs[:]
    return str(error.value)


def test_a_model_that_looks_for_another_end_of_documents_is_refused(data: Path) -> None:
    def rehearsed(**options: Any) -> None:
        task = {"dataset": {"text_shards": {"path": "tokens"}}, "model": {"gpt-tiny": options}}
        train = {"epochs": 1, "batch_size": 8, "optimizer": {"adamw": {"lr": 0.001}}}
        rehearse(build_recipe("r", task=task, train=train, methods=[], where="r"), data=data)

    rehearsed(document_mask=True, separator=0)
    rehearsed(separator=7)  # it keeps no documents apart
    with pytest.raises(RecipeError, match="gpt-tiny: separator: found 7; expected 0, the token that ends a document"):
        rehearsed(document_mask=True, separator=7)


def test_another_context_is_refused(data: Path) -> None:
    assert TextShards(path="tokens", context=32).load(data).example_shape == (32,)
    with pytest.raises(DataError, match="context: found 64; expected 32"):
        TextShards(path="tokens", context=64).load(data)


def test_another_tokeniser_is_named(data: Path) -> None:
    file = data / "tokens" / TOKENISER
    content = file.read_bytes()
    file.write_bytes(content.replace(b"ByteLevel", b"ByteLeveL", 1))
    assert "tokens/tokeniser.json: found SHA-256" in refused(data) and "expected the tokeniser that" in refused(data)
    file.unlink()
    assert "the tokeniser of the shards" in refused(data) and "no such object" in refused(data)
    file.write_bytes(content)
    TOKENS.load(data)


def test_an_index_that_does_not_fit_is_refused(data: Path) -> None:
    before = (data / "tokens" / "index.json").read_bytes()
    assert TOKENS.digest(data) != (rewritten(data / "tokens", trained=False), TOKENS.digest(data))[1]
    value = json.loads(before)
    for change, words in (
        ({"classes": 300}, "index says 0 to 299"),
        ({"classes": 340, "inputs": value["inputs"] | {"shape": [31]}}, "inputs of other sizes than 64 bytes"),
        ({"inputs": value["inputs"] | {"shape": []}}, "tokens of shape (): expected their number"),
        ({"tokeniser": value["tokeniser"] | {"separator": 340}}, "separator 340: expected a token, 0 to 339"),
        ({"task": "classification"}, "has text, classification: expected text, language"),
    ):
        (data / "tokens" / "index.json").write_text(json.dumps(value | change))
        assert words in refused(data)


def test_what_was_fitted_is_named(data: Path) -> None:
    (words,) = TOKENS.fitted_on(data).values()
    assert words.startswith("byte-level BPE of 340 tokens, SHA-256 ") and words.endswith("of the training side")
    file = (data / "tokens" / TOKENISER).read_bytes()
    pack(corpus(data), data / "given", file=file)
    (words,) = TextShards(path="given").fitted_on(data).values()
    assert words.startswith("from a file, of 340 tokens") and words.endswith("on texts that are not known here")
    pack(corpus(data), data / "bytes", size=None)
    assert TextShards(path="bytes").fitted_on(data) == {}

"""Any local file as text."""

import os
from pathlib import Path

import pytest
import torch

from explorer.data.sources import DATASETS
from explorer.data.text import LocalText
from explorer.errors import DataError, RecipeError
from explorer.recipes.choice import choose

CONTENT = bytes(range(256)) * 4
REAL = os.environ.get("EXPLORER_DATA")  # read before the tests' own surroundings take it away


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data" / "book").mkdir(parents=True)
    (tmp_path / "data" / "book" / "one.txt").write_bytes(CONTENT)
    (tmp_path / "secret.txt").write_bytes(CONTENT)
    return tmp_path / "data"


def test_the_last_tenth_is_the_test_side(data: Path) -> None:
    dataset = LocalText(path="book/one.txt", context=8).load(data)
    sides = (CONTENT[:-102], CONTENT[-102:])
    for split, side in zip((dataset.train, dataset.test), sides, strict=True):
        assert split.inputs.flatten().tolist() == list(side[: len(split) * 8])
        assert split.labels.flatten().tolist() == list(side[1 : len(split) * 8 + 1])
        assert len(split) == (len(side) - 1) // 8
    assert (dataset.example_shape, dataset.classes, dataset.provenance) == ((8,), 256, None)
    prepared = dataset.preparation(torch.device("cpu"))(dataset.train.inputs)
    assert prepared.dtype == torch.int64


def test_the_digest_is_that_of_the_content(data: Path) -> None:
    source = LocalText(path="book/one.txt")
    before = source.digest(data)
    (data / "two.txt").write_bytes(CONTENT)
    assert LocalText(path="two.txt", context=16).digest(data) == before
    (data / "book" / "one.txt").write_bytes(CONTENT[::-1])
    assert source.digest(data) != before


@pytest.mark.parametrize("path", ["../secret.txt", "book/../../secret.txt", "/etc/hostname"])
def test_a_path_out_of_the_data_directory_is_not_followed(data: Path, path: str) -> None:
    for call in (LocalText(path=path).load, LocalText(path=path).digest):
        with pytest.raises(DataError, match="leaves the data directory: expected a path below it"):
            call(data)


def test_what_cannot_be_read_is_said(data: Path) -> None:
    with pytest.raises(DataError, match="by --data or EXPLORER_DATA"):
        LocalText(path="book/one.txt").load(None)
    os.mkfifo(data / "pipe")
    for path in ("book", "none.txt", "pipe"):
        with pytest.raises(DataError, match=f"no file .*{path}: expected it below the directory of --data"):
            LocalText(path=path).digest(data)
    with pytest.raises(DataError, match=r"book/one\.txt: 1024 bytes, expected 1290 or more"):
        LocalText(path="book/one.txt").load(data)


def test_a_large_file_is_not_read_whole(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.data.text.MAX_BYTES", 1000)
    with pytest.raises(DataError, match="too large: at most 1000 bytes"):
        LocalText(path="book/one.txt").load(data)


def test_a_recipe_names_the_file() -> None:
    assert choose(DATASETS, {"text": {"path": "a.txt"}}, kind="dataset", where="here") == LocalText(path="a.txt")
    with pytest.raises(RecipeError, match=r"here\.text.*path: missing"):
        choose(DATASETS, "text", kind="dataset", where="here")


@pytest.mark.skipif(
    not (REAL and (Path(REAL) / "tinyshakespeare" / "input.txt").is_file()),
    reason="EXPLORER_DATA has no tinyshakespeare",
)
def test_shakespeare() -> None:
    dataset = LocalText(path="tinyshakespeare/input.txt", context=256).load(Path(str(REAL)))
    assert dataset.train.inputs[0].numpy().tobytes().startswith(b"First Citizen:\nBefore we proceed any further")
    assert len(dataset.train) * 256 > 1_000_000

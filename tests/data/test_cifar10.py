"""CIFAR-10 files: the right ones, and every way in which a file can be wrong."""

import io
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from explorer.data.cifar10 import Cifar10
from explorer.data.sources import DATASETS
from explorer.errors import DataError, RecipeError
from explorer.recipes.choice import choose


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind)
    return content.getvalue()


def pictures(count: int, side: int = 32) -> list[np.ndarray]:
    draws = np.random.default_rng(1)
    return [draws.integers(0, 256, (side, side, 3), dtype=np.uint8) for _ in range(count)]


def write(path: Path, images: list, labels: list) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"img": images, "label": labels}), path)


def as_column(contents: list) -> list[dict]:
    return [{"bytes": content, "path": None} for content in contents]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small but right pair of files."""
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    for side, count in (("train", 4), ("test", 2)):
        images = as_column([encoded(p) for p in pictures(count)])
        write(tmp_path / "cifar10" / f"{side}.parquet", images, list(range(count)))
    return tmp_path


def test_pixels_and_labels(data: Path) -> None:
    for attempt in ("decoded", "from the cache"):
        dataset = Cifar10().load(data)
        expected = np.stack(pictures(4)).transpose(0, 3, 1, 2)
        assert (dataset.train.inputs.numpy() == expected).all(), attempt
        assert dataset.train.labels.tolist() == [0, 1, 2, 3]
        assert (dataset.classes, dataset.crop, dataset.flip) == (10, 4, True)
    plain = Cifar10(augment=False).load(data)
    assert (plain.crop, plain.flip) == (0, False)


def test_a_changed_file_has_another_digest_and_another_cache(data: Path) -> None:
    Cifar10().load(data)
    before = Cifar10().digest(data)
    write(data / "cifar10" / "train.parquet", as_column([encoded(p) for p in pictures(4)]), [9, 9, 9, 9])
    assert Cifar10().digest(data) != before
    assert Cifar10().load(data).train.labels.tolist() == [9, 9, 9, 9]


def test_half_the_size_averages_four_pixels(data: Path) -> None:
    for attempt in ("made", "from the cache"):
        half = Cifar10(size=16).load(data)
        expected = np.floor(np.stack(pictures(4)).reshape(4, 16, 2, 16, 2, 3).mean(axis=(2, 4)) + 0.5)
        assert (half.train.inputs.numpy() == expected.transpose(0, 3, 1, 2)).all(), attempt
        assert (half.crop, half.example_shape, half.train.labels.tolist()) == (2, (3, 16, 16), [0, 1, 2, 3])


def test_fewer_examples_are_the_first_of_each_class(data: Path) -> None:
    labels = [3, 3, *range(10), 0, *range(10)]
    images = pictures(len(labels))
    write(data / "cifar10" / "train.parquet", as_column([encoded(p) for p in images]), labels)
    few, all_of_them = Cifar10(examples=10).load(data), Cifar10().load(data)
    first = sorted(labels.index(label) for label in range(10))
    assert few.train.labels.tolist() == [labels[place] for place in first]
    assert (few.train.inputs.numpy() == np.stack([images[place] for place in first]).transpose(0, 3, 1, 2)).all()
    assert len(few.test) == len(all_of_them.test) == 2
    twice = Cifar10(examples=20).load(data)
    assert torch.bincount(twice.train.labels).tolist() == [2] * 10
    with pytest.raises(DataError, match=r"2 training images have label 1, expected 3 or more: take 20 examples"):
        Cifar10(examples=30).load(data)


@pytest.mark.parametrize("examples", [0, 5, 1001, 60_000])
def test_so_many_examples_cannot_be_balanced(examples: int) -> None:
    with pytest.raises(RecipeError, match=r"here\.cifar10.*examples"):
        choose(DATASETS, {"cifar10": {"examples": examples}}, kind="dataset", where="here")


def test_no_data_directory() -> None:
    with pytest.raises(DataError, match=r"'cifar10' is not embedded: give the directory.*--data or EXPLORER_DATA"):
        Cifar10().load(None)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file .*train\.parquet"):
        Cifar10().digest(tmp_path)


HUGE = encoded(np.zeros((33, 32, 3), dtype=np.uint8))
BAD_IMAGES = {
    "no image": (b"nothing like an image", "not a readable PNG or JPEG"),
    "cut short": (encoded(pictures(1)[0])[:200], "not a readable PNG or JPEG"),
    "another format": (encoded(pictures(1)[0], "BMP"), "not a readable PNG or JPEG"),
    "another size": (HUGE, "32x33 pixels, expected 32x32"),
    "missing": (None, "expected an encoded image"),
    "too large": (b"x" * (2**20 + 1), "at most 1048576 bytes"),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_images_are_named_by_row(data: Path, name: str) -> None:
    content, message = BAD_IMAGES[name]
    good = encoded(pictures(1)[0])
    write(data / "cifar10" / "train.parquet", as_column([good, content]), [0, 1])
    with pytest.raises(DataError, match=rf"train\.parquet, row 1: .*{message}"):
        Cifar10().load(data)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("side", [10_000, 60_000])
def test_a_decompression_bomb_is_not_unpacked(data: Path, side: int) -> None:
    bomb = bytearray(encoded(pictures(1)[0]))
    bomb[16:24] = side.to_bytes(4, "big") * 2  # the size in the PNG header, and its checksum
    bomb[29:33] = zlib.crc32(bomb[12:29]).to_bytes(4, "big")
    write(data / "cifar10" / "train.parquet", as_column([bytes(bomb)]), [0])
    with pytest.raises(DataError, match="row 0"):
        Cifar10().load(data)


BAD_COLUMNS = {
    "no label": pa.table({"img": as_column([b""])}),
    "no struct": pa.table({"img": [b"a"], "label": [0]}),
    "no bytes": pa.table({"img": [{"path": "a"}], "label": [0]}),
    "label too large": pa.table({"img": as_column([b""]), "label": [10]}),
    "label below zero": pa.table({"img": as_column([b""]), "label": [-1]}),
    "label missing": pa.table({"img": as_column([b"", b""]), "label": [1, None]}),
    "label no number": pa.table({"img": as_column([b""]), "label": ["cat"]}),
    "no rows": pa.table({"img": pa.array([], pa.struct({"bytes": pa.binary()})), "label": pa.array([], pa.int64())}),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_bad_columns(data: Path, name: str) -> None:
    pq.write_table(BAD_COLUMNS[name], data / "cifar10" / "train.parquet")
    with pytest.raises(DataError, match=r"train\.parquet: expected"):
        Cifar10().load(data)


def test_no_parquet(data: Path) -> None:
    (data / "cifar10" / "test.parquet").write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match=r"test\.parquet: expected Parquet"):
        Cifar10().load(data)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"\x80\x04pickle."], ids=["empty", "cut", "pickle"])
def test_a_damaged_cache_says_what_to_delete(data: Path, content: bytes) -> None:
    Cifar10().load(data)
    for cache in (data / "cache").iterdir():
        cache.write_bytes(content)
    with pytest.raises(DataError, match=r"damaged cache .*\.safetensors: delete it"):
        Cifar10().load(data)


def test_a_cache_of_other_arrays_is_refused(data: Path) -> None:
    Cifar10().load(data)
    for cache in (data / "cache").iterdir():
        save_file({"images": torch.zeros(2, 3), "labels": torch.zeros(2, dtype=torch.int64)}, cache)
    with pytest.raises(DataError, match="damaged cache"):
        Cifar10().load(data)

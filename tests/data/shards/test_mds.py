"""MDS shards, written by another program than ours: what is read of them, and what is refused."""

import io
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from explorer.data.local import Fault
from explorer.data.mds import MdsImages
from explorer.data.shards.image_shards import ImageShards
from explorer.data.shards.mds_format import MdsDirectory, image_of, value_of
from explorer.data.shards.text_documents import Documents
from explorer.data.sources import of_path
from explorer.errors import DataError
from explorer.testing import DatasetContract
from tests.cli.command import explorer
from tests.data.photos import encoded
from tests.data.shards.mds_writer import packed, pixels, value, write_mds
from tests.data.shards.written import write

COLUMNS = {"image": "png", "label": "int", "source": "str"}


def samples(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"image": encoded(pixels(first + n)), "label": n % 2, "source": f"licensed/{'news' if n % 3 else 'books'}"}
        for n in range(count)
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_mds(tmp_path / "photos" / "train", COLUMNS, samples(12), hashes=("sha1", "sha256"))
    write_mds(tmp_path / "photos" / "val", COLUMNS, samples(6, 100), hashes=("sha256",))
    return tmp_path


def test_a_directory_is_recognised(data: Path) -> None:
    assert of_path(data / "photos") == MdsImages(path="photos", tag="source")
    assert of_path(data / "photos" / "train") == MdsImages(path="train", tag="source", test=0.2)
    columns = {"jpg": "jpeg:90", "cls": "uint8", "note": "str"}
    write_mds(data / "other", columns, [{"jpg": b"", "cls": n % 2, "note": "-"} for n in range(4)])
    assert of_path(data / "other") == MdsImages(path="other", image="jpg", label="cls", test=0.2)


def test_it_keeps_the_contract_of_datasets(data: Path) -> None:
    write_mds(data / "changed" / "train", COLUMNS, samples(12, 50))
    write_mds(data / "changed" / "test", COLUMNS, samples(6, 100))
    facts = {
        "source": MdsImages(path="photos", tag="source", size=8),
        "other": MdsImages(path="changed", tag="source", size=8),
        "data": data,
        "model": {"resnet8": {"width": 0.5}},
    }
    assert type("Contract", (DatasetContract,), facts)().certify() == {}


def test_images_labels_and_classes_are_those_that_were_written(data: Path) -> None:
    dataset = MdsImages(path="photos", tag="source", size=10).load(data)
    assert dataset.train.labels[:].tolist() == [n % 2 for n in range(12)] and len(dataset.test) == 6
    assert torch.equal(dataset.train.inputs[7].permute(1, 2, 0), torch.from_numpy(pixels(7)))
    assert dataset.provenance is not None and dataset.provenance.classes == ("licensed/books", "licensed/news")
    assert dataset.provenance.sources[6] == "train/shard.00001.mds, sample 1"
    assert np.bincount(dataset.provenance.codes).tolist() == [4, 8]


def test_from_a_directory_to_shards_by_command(data: Path) -> None:
    shown = explorer("data", "shard", data / "photos", data / "shards", "--shard-bytes", "2000").stdout
    assert "licensed/news" in shown and "image_shards: {path: shards}" in shown
    rows = [pq.read_table(path) for path in sorted((data / "shards" / "train").glob("*.parquet"))]
    written = {bytes(image) for table in rows for image in table["input"].to_pylist()}
    assert written == {sample["image"] for sample in samples(12)}
    assert len(ImageShards(path="shards", size=8).load(data).test) == 6


@pytest.mark.parametrize("compression", ["zstd", "gz", "bz2", "brotli"])
def test_compressed_shards(tmp_path: Path, compression: str) -> None:
    write_mds(tmp_path / "p", COLUMNS, samples(7), hashes=("sha256",), compression=compression)
    change(tmp_path / "p", lambda index: [s.update(compression=known(compression)) for s in index["shards"]])
    read = [bytes(image) for _, (image,) in MdsDirectory.at(tmp_path / "p").samples(["image"])]
    assert read == [sample["image"] for sample in samples(7)]


def known(compression: str) -> str:
    return {"brotli": "br:5", "zstd": "zstd:7"}.get(compression, compression)


@pytest.mark.parametrize(
    ("encoding", "given", "read"),
    [
        ("int", -(2**40), -(2**40)),
        ("uint8", 200, 200),
        ("int32", -5, -5),
        ("float32", 0.5, 0.5),
        ("str", "größer", "größer"),
        ("str_int", 2**70, 2**70),
        ("str_float", 1.25, 1.25),
        ("json", ["red", "round"], ["red", "round"]),
        ("ndarray", np.arange(6, dtype=np.int32).reshape(2, 3), [[0, 1, 2], [3, 4, 5]]),
        ("ndarray:uint16:3", np.array([1, 2, 70], np.uint16), [1, 2, 70]),
    ],
)
def test_values_of_every_encoding(encoding: str, given: Any, read: Any) -> None:
    assert value_of(memoryview(value(encoding, given)), encoding, where="sample") == read


@pytest.mark.parametrize(
    ("encoding", "content"),
    [
        ("int", b"1234"),
        ("float32", b"12345678"),
        ("str", b"\xff"),
        ("str_int", b"many"),
        ("json", b"{"),
        ("ndarray", bytes([99])),
        ("ndarray", bytes([8, 1 << 2, 200]) + b"few"),
        ("ndarray:uint8:-1,-3", b"abc"),
        ("ndarray:object", b"abc"),
        ("ndarray", b""),
        ("jpeg", b"abc"),
    ],
)
def test_damaged_values_are_refused(encoding: str, content: bytes) -> None:
    with pytest.raises(DataError, match=r"^sample: (damaged|not JSON|found the encoding)"):
        value_of(memoryview(content), encoding, where="sample")


def test_raw_pixels_become_png() -> None:
    for encoding, given in (
        ("pil", Image.fromarray(pixels(1))),
        ("ndarray", pixels(1)),
        ("ndarray:uint8:10,10,3", pixels(1)),
    ):
        content = image_of(memoryview(value(encoding, given)), encoding)
        assert isinstance(content, bytes) and content[:4] == b"\x89PNG"
        assert (np.asarray(Image.open(io.BytesIO(content))) == pixels(1)).all()


@pytest.mark.parametrize(
    ("encoding", "content", "fault"),
    [
        ("pil", value("pil", Image.fromarray(pixels(1)))[:-1], Fault.DAMAGED),
        ("pil", struct.pack("<III", 2**20, 2**20, 3) + b"RGB", Fault.TOO_MANY_PIXELS),
        ("pil", b"abc", Fault.DAMAGED),
        ("ndarray", value("ndarray", pixels(1).astype(np.float32)), Fault.NO_IMAGE),
        ("ndarray", value("ndarray", pixels(1))[:-1], Fault.DAMAGED),
    ],
)
def test_raw_pixels_that_are_none(encoding: str, content: bytes, fault: Fault) -> None:
    assert image_of(memoryview(content), encoding) is fault


def test_texts_are_packed_into_shards_of_text(tmp_path: Path) -> None:
    for side, count in (("train", 30), ("val", 6)):
        rows = [{"text": f"{side} document {n} " * 20, "source": f"licensed/{'ab'[n % 2]}"} for n in range(count)]
        write_mds(tmp_path / "pile" / side, {"text": "str", "source": "str"}, rows, hashes=("sha256",))
    documents = list(Documents(path=tmp_path / "pile", tag="source").read())
    assert [document.side for document in documents] == ["test"] * 6 + ["train"] * 30
    assert documents[6].content == ("train document 0 " * 20).encode() and documents[6].tag == "licensed/a"
    assert documents[7].name == "train/index.json, row 2"
    words = ("--param", "tag=source", "--context", "32", "--shard-bytes", "2000", "--json")
    made = json.loads(explorer("data", "shard", tmp_path / "pile", tmp_path / "shards", *words).stdout)
    assert {shard["tag"] for shard in made["index"]["train"]["shards"]} == {"licensed/a", "licensed/b"}
    path = tmp_path / "pile" / "train" / "shard.00001.mds"
    content = path.read_bytes()
    before = Documents(path=tmp_path / "pile").origin().digest
    path.write_bytes(content[:-1] + b"!")
    assert Documents(path=tmp_path / "pile").origin().digest != before
    with pytest.raises(DataError, match=r"shard.00001.mds: damaged: sha256"):
        list(Documents(path=tmp_path / "pile").read())


# --- hostile directories ---------------------------------------------------------------------------------------------


def change(place: Path, by: Callable[[Any], object]) -> None:
    index = json.loads((place / "index.json").read_text())
    by(index)
    (place / "index.json").write_text(json.dumps(index))


def refused(place: Path) -> str:
    with pytest.raises(DataError) as error:
        list(MdsDirectory.at(place).samples(["image", "label"]))
    return str(error.value)


def without_hashes(place: Path) -> None:
    change(place, lambda index: [shard["raw_data"].update(hashes={}) for shard in index["shards"]])


def test_a_flipped_byte_is_named_where_there_is_a_digest(data: Path) -> None:
    place = data / "photos" / "train"
    path = place / "shard.00001.mds"
    content = bytearray(path.read_bytes())
    content[-20] ^= 1  # in the pixels of the last sample
    path.write_bytes(content)
    assert "shard.00001.mds: damaged: sha1" in refused(place) and "the index says" in refused(place)
    without_hashes(place)
    assert len(list(MdsDirectory.at(place).samples(["image"]))) == 12  # the control: nothing tells it without one


@pytest.mark.parametrize(
    ("position", "number"), [(4, 2**32 - 1), (8, 2**32 - 1), (8, 3), (4, 0), (4 + 4 * 5, 2**31), (0, 2**32 - 1), (0, 4)]
)
def test_offsets_that_leave_the_shard_are_refused(data: Path, position: int, number: int) -> None:
    place = data / "photos" / "train"
    without_hashes(place)
    path = place / "shard.00000.mds"
    content = bytearray(path.read_bytes())
    content[position : position + 4] = struct.pack("<I", number)
    path.write_bytes(content)
    assert "shard.00000.mds" in refused(place) and "damaged" in refused(place)


def test_sizes_that_leave_the_sample_are_refused(data: Path) -> None:
    place = data / "photos" / "train"
    without_hashes(place)
    path = place / "shard.00000.mds"
    content = bytearray(path.read_bytes())
    (start,) = struct.unpack("<I", content[4:8])
    content[start : start + 4] = struct.pack("<I", 2**31)
    path.write_bytes(content)
    assert "sample 0: damaged: columns of [2147483648, 8" in refused(place)


def test_a_shard_that_is_cut_short_or_missing_is_named(data: Path) -> None:
    place = data / "photos" / "train"
    path = place / "shard.00002.mds"
    path.write_bytes(path.read_bytes()[:-1])
    assert "shard.00002.mds: damaged" in refused(place)
    path.unlink()
    assert "shard.00002.mds: cannot be read" in refused(place)
    with pytest.raises(DataError, match="expected the file that the index names"):
        MdsImages(path="photos").digest(data)


def test_a_bomb_unpacks_to_its_declared_size(tmp_path: Path) -> None:
    place = tmp_path / "p"
    write_mds(place, COLUMNS, samples(3), compression="gz")
    path = place / "shard.00000.mds.gz"
    path.write_bytes(packed(bytes(2**26), "gz"))
    change(place, lambda index: index["shards"][0]["zip_data"].update(bytes=path.stat().st_size))
    assert "unpacked: damaged" in refused(place)


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (lambda s: s["raw_data"].update(basename="../secret"), "leaves the data directory"),
        (lambda s: s["raw_data"].update(basename="/etc/passwd"), "leaves the data directory"),
        (lambda s: s["raw_data"].update(basename="link"), "is a link out of the directory"),
        (lambda s: s.update(version=1), "version"),
        (lambda s: s.update(format="jsonl"), "'mds'"),
        (lambda s: s.update(compression="snappy"), "unknown compression 'snappy'"),
        (lambda s: s.update(compression="zstd"), "expected both"),
        (lambda s: s["column_sizes"].pop(), "a name, an encoding and a size for each column"),
        (lambda s: s["column_encodings"].__setitem__(1, "pkl"), "has other columns than the first"),
        (lambda s: s.update(samples=-1), "greater than or equal to 0"),
        (lambda s: s["raw_data"].update(bytes=2**40), "less than or equal to"),
    ],
)
def test_a_hostile_index_is_refused(data: Path, by: Callable[[Any], object], message: str) -> None:
    place = data / "photos" / "train"
    (data / "secret").write_bytes((place / "shard.00001.mds").read_bytes())
    (place / "link").symlink_to(data / "secret")
    change(place, lambda index: by(index["shards"][1]))
    with pytest.raises(DataError, match=message):
        list(MdsDirectory.at(place).samples(["image"]))


def test_pickles_are_refused_by_name(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (tmp_path / "ran",)

    rows = [{**sample, "label": pickle.dumps(Evil())} for sample in samples(4)]
    write_mds(tmp_path / "p", {**COLUMNS, "label": "pkl"}, rows)
    with pytest.raises(DataError, match="column 'label' has the encoding 'pkl': pickles run code"):
        write(MdsImages(path="p", test=0.5), tmp_path / "out", data=tmp_path)
    assert not (tmp_path / "ran").exists() and not (tmp_path / "out").exists()
    pickle.loads(rows[0]["label"])
    assert (tmp_path / "ran").exists()  # the control: it would have run


def test_columns_and_sides_that_are_not_there(data: Path) -> None:
    with pytest.raises(DataError, match="unknown column 'labels'; did you mean 'label'"):
        MdsImages(path="photos", label="labels").load(data)
    with pytest.raises(DataError, match="column 'source' is 'str': expected images"):
        MdsImages(path="photos", image="source").load(data)
    with pytest.raises(DataError, match="leave 'test' out"):
        MdsImages(path="photos", test=0.5).load(data)
    with pytest.raises(DataError, match="has no directories 'train' and 'test'"):
        MdsImages(path="photos/train").load(data)

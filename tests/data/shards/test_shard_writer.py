"""Writing shards: what is in them, that interruptions and threads change no byte, and what is refused."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from explorer.data.digits import Digits
from explorer.data.imagefolder import ImageFolder
from explorer.data.labelled_text import LabelledText
from explorer.data.shards import shard_index
from explorer.data.shards.image_shards import PREDICTED
from explorer.data.shards.shard_material import AIMS, material_of
from explorer.data.shards.shard_writer import write_shards
from explorer.data.shards.shards import Shards
from explorer.data.sources import DATASETS
from explorer.data.tabular import Tabular
from explorer.errors import DataError, PlaceError
from explorer.objects import DirectoryObjects
from tests.data.photos import photo
from tests.data.shards.written import DIGITS, FEW, files_of, folder, write


def test_every_example_is_in_one_shard_of_its_class(tmp_path: Path) -> None:
    index = write(DIGITS, tmp_path / "place")
    dataset = DIGITS.load(None)
    assert dataset.provenance is not None
    found: list[tuple[str, bytes, int]] = []
    for shard in index.train.shards:
        rows = pq.read_table(tmp_path / "place" / shard.name).to_pylist()
        assert {row["tag"] for row in rows} == {shard.tag}
        assert pq.ParquetFile(tmp_path / "place" / shard.name).num_row_groups == 1
        found += [(row["tag"], row["input"], row["label"]) for row in rows]
        for row in rows:
            assert row["input"] == dataset.train.inputs[row["slot"]].numpy().tobytes()
    expected = [
        (dataset.provenance.classes[code], dataset.train.inputs[n].numpy().tobytes(), int(dataset.train.labels[n]))
        for n, code in enumerate(dataset.provenance.codes.tolist())
    ]
    assert sorted(found) == sorted(expected)
    assert index.train.labels == tuple(np.bincount(dataset.train.labels[:].numpy(), minlength=10).tolist())
    assert sorted(files_of(tmp_path / "place")) == sorted(
        ["index.json", *(shard.name for shard in index.train.shards + index.test.shards)]
    )


def test_labels_are_mixed_within_shards(tmp_path: Path) -> None:
    """A folder is listed label by label: shards in that order would have one label each."""
    index = write(folder(tmp_path), tmp_path / "place", data=tmp_path, shard_bytes=5_000)
    labels = pq.read_table(tmp_path / "place" / index.train.shards[0].name).column("label").to_pylist()
    assert len(index.train.shards) > 1 and set(labels) == {0, 1}


def test_threads_change_no_byte(tmp_path: Path) -> None:
    for threads in (1, 4):
        write(folder(tmp_path, damaged=True), tmp_path / f"by-{threads}", data=tmp_path, threads=threads)
    assert files_of(tmp_path / "by-1") == files_of(tmp_path / "by-4")


class Failing(DirectoryObjects):
    """A place that takes a number of objects and then refuses."""

    def __init__(self, directory: Path, takes: int) -> None:
        super().__init__(directory)
        self.left = takes

    def put(self, key: str, content: bytes) -> None:
        if self.left == 0:
            raise PlaceError("the place is full")
        self.left -= 1
        super().put(key, content)


@pytest.mark.parametrize("takes", [0, 1, 2, 5, 8, 11])
def test_an_interrupted_pass_ends_with_the_same_bytes(tmp_path: Path, takes: int) -> None:
    source = folder(tmp_path, train=40, damaged=True)
    write(source, tmp_path / "whole", data=tmp_path, shard_bytes=6_000)
    material = material_of(source, tmp_path)
    with pytest.raises(PlaceError, match="full"):
        write_shards(material, Failing(tmp_path / "place", takes), shard_bytes=6_000, threads=1)
    assert not (tmp_path / "place" / "index.json").exists()
    reads: list[int] = []
    counted = _counting(material, reads)
    write_shards(counted, DirectoryObjects(tmp_path / "place"), shard_bytes=6_000, threads=2)
    assert files_of(tmp_path / "place") == files_of(tmp_path / "whole")
    if takes > 4:  # of a shard that was finished, no example is read again
        assert len(reads) < (material.count or 0)


class Cut(DirectoryObjects):
    """A place whose writer is killed while it removes what it does not need any more."""

    left = 3

    def remove(self, key: str) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1
        super().remove(key)


def test_a_pass_that_was_killed_while_it_cleaned_up_is_finished(tmp_path: Path) -> None:
    write(DIGITS, tmp_path / "whole")
    place = tmp_path / "place"
    with pytest.raises(KeyboardInterrupt):
        write_shards(material_of(DIGITS, None), Cut(place), shard_bytes=FEW, threads=1)
    assert (place / "index.json").exists() and (place / "plan.json").exists()
    with pytest.raises(DataError, match=r"other shards were begun here \(different: shard_bytes\)"):
        write(DIGITS, place, shard_bytes=2 * FEW)
    (place / "train" / ".000000.parquet.0123456789abcdef.tmp").write_bytes(b"a draft")
    again = write(DIGITS, place)
    assert files_of(place) == files_of(tmp_path / "whole")
    assert again == shard_index.parse((place / "index.json").read_bytes(), where="")
    with pytest.raises(DataError, match="there are shards already"):
        write(DIGITS, place)


def _counting(material, reads: list[int]):
    def rows(finished):
        for row in material.rows(finished):
            yield row._replace(read=_noted(row.read, row.slot, reads))

    return dataclasses.replace(material, rows=rows)


def _noted(read: Callable[[], object], slot: int, reads: list[int]):
    def noted():
        reads.append(slot)
        return read()

    return noted


def test_other_shards_are_not_overwritten(tmp_path: Path) -> None:
    write(DIGITS, tmp_path / "place")
    before = files_of(tmp_path / "place")
    with pytest.raises(DataError, match="there are shards already"):
        write(Digits(), tmp_path / "place")
    assert files_of(tmp_path / "place") == before
    with pytest.raises(PlaceError):
        write_shards(material_of(DIGITS, None), Failing(tmp_path / "begun", 3), shard_bytes=FEW, threads=1)
    with pytest.raises(DataError, match=r"other shards were begun here \(different: shard_bytes\)"):
        write(DIGITS, tmp_path / "begun", shard_bytes=2 * FEW)


def test_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    index = write(folder(tmp_path, damaged=True), tmp_path / "place", data=tmp_path)
    (passed,) = index.skipped
    assert (passed.reason, passed.count, passed.names) == ("damaged or cut short", 1, ("train/cat/999.jpg",))
    assert sum(shard.rows for shard in index.train.shards) == 12


def test_images_that_are_not_divided_are_divided_by_their_content(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        for number in range(40):
            path = tmp_path / "photos" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photo(number % 30 + (100 if label == "cat" else 0)))  # ten of them twice
    index = write(ImageFolder(path="photos", size=8, test=0.25), tmp_path / "place", data=tmp_path)
    sides = {
        side: {row for shard in shards for row in pq.read_table(tmp_path / "place" / shard.name)["input"].to_pylist()}
        for side, shards in (("train", index.train.shards), ("test", index.test.shards))
    }
    assert not sides["train"] & sides["test"]
    assert 0.1 < len(sides["test"]) / 60 < 0.4


def test_every_class_has_a_share_on_the_test_side(tmp_path: Path) -> None:
    """As in memory: a share of each class, however few images it has, and not of those that cannot be read."""
    for label in "abcdefgh":
        for number in range(6):
            path = tmp_path / "photos" / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(photo(number + 10 * ord(label)))
        (tmp_path / "photos" / label / "damaged.png").write_bytes(photo(ord(label))[:100])
    index = write(ImageFolder(path="photos", size=8, test=0.3), tmp_path / "place", data=tmp_path)
    assert (index.train.labels, index.test.labels) == ((4,) * 8, (2,) * 8)


def test_a_class_without_a_test_image_is_an_error(tmp_path: Path) -> None:
    source = folder(tmp_path)
    for path in (tmp_path / "photos/test/cat").iterdir():
        path.unlink()
    with pytest.raises(DataError, match="class 'cat' has no example on the test side"):
        write(source, tmp_path / "place", data=tmp_path)
    assert not [path for path in (tmp_path / "place").rglob("*") if path.is_file()], "the place can be used again"


def test_a_table_has_no_shards(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,target\n" + "".join(f"{n / 7},{n % 2}\n" for n in range(40)))
    with pytest.raises(DataError, match="found tabular, classification: expected images, text to continue"):
        write(Tabular(path="t.csv", target="target"), tmp_path / "place", data=tmp_path)


def test_what_no_dataset_could_read_is_not_written(tmp_path: Path) -> None:
    """Texts with labels are texts, but shards of text are for the prediction of the next token."""
    (tmp_path / "t.csv").write_text("text,target\n" + "".join(f"words {n} of it,{n % 2}\n" for n in range(40)))
    with pytest.raises(DataError, match="found text, classification: expected images, text to continue"):
        write(LabelledText(path="t.csv", target="target"), tmp_path / "place", data=tmp_path)
    assert not (tmp_path / "place").exists()


def test_what_may_be_written_is_what_datasets_read() -> None:
    readers = [kind for kind in DATASETS.values() if issubclass(kind, Shards)]
    assert {kind.modality for kind in readers} == {*AIMS}
    for kind in readers:
        offered = {field.name for field in dataclasses.fields(kind)}
        aims = {*PREDICTED} if "predict" in offered else {kind.task}
        assert aims == {*AIMS[kind.modality]}


def test_an_index_is_checked(tmp_path: Path) -> None:
    write(DIGITS, tmp_path / "place")
    good = json.loads((tmp_path / "place" / "index.json").read_bytes())

    def refused(change: Callable[[dict], None]) -> str:
        value = json.loads(json.dumps(good))
        change(value)
        with pytest.raises(DataError) as error:
            shard_index.parse(json.dumps(value).encode(), where="index.json")
        return str(error.value)

    assert "expected 'explorer-shards/1'" in refused(lambda v: v.update(format="other/1"))
    assert "pattern" in refused(lambda v: v["train"]["shards"][0].update(name="../../secret.parquet"))
    assert "in order" in refused(lambda v: v["train"]["shards"].reverse())
    assert "expected all or none" in refused(lambda v: v["train"]["shards"][0].update(tag=None))
    assert "unknown key" in refused(lambda v: v.update(more=1))
    assert "9 names for 10 classes" in refused(lambda v: v["names"].pop())
    assert "greater than or equal to 1" in refused(lambda v: v["train"]["shards"][0].update(rows=0))
    assert shard_index.parse(json.dumps(good).encode(), where="index.json").classes == 10

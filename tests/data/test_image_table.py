"""Images of one's own with numbers and labels: in a table of paths, and in Parquet files."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from explorer.data.image_table import ImageTable
from explorer.data.labelled import decode
from explorer.data.parquet import Parquet
from explorer.data.sources import of_path
from explorer.data.targets import Predict
from explorer.errors import DataError
from explorer.recipes.choice import written
from tests.data.photos import photo

COUNT = 12
PRICES = [round(7.25 * n % 11, 2) for n in range(COUNT)]
SEEN = [["red", "round"], ["red"], [], ["blue"]] * (COUNT // 4)
PRICED = ImageTable(path="photos/metadata.csv", target="price", size=8, predict="number", test=0.25)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Twelve photos with prices, labels and kinds, in a table of paths."""
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "photos"
    (root / "in").mkdir(parents=True)
    for number in range(COUNT):
        (root / f"in/{number}.png").write_bytes(photo(number))
    rows = zip(range(COUNT), PRICES, SEEN, strict=True)
    lines = [f"in/{n}.png,{price},{'|'.join(seen)},{'ab'[n % 2]}" for n, price, seen in rows]
    (root / "metadata.csv").write_text("\n".join(["file_name,price,seen,kind", *lines, ""]))
    return tmp_path


def in_parquet(data: Path) -> Path:
    images = [{"bytes": photo(n), "path": None} for n in range(COUNT)]
    (data / "packed").mkdir()
    pq.write_table(pa.table({"image": images, "price": PRICES, "seen": SEEN}), data / "packed/all.parquet")
    return data


def pictures(found: torch.Tensor) -> list[int]:
    """The number of each photo."""
    known = {np.asarray(decode(photo(n), size=8, channels=3)).tobytes(): n for n in range(COUNT)}
    return [known[image.numpy().tobytes()] for image in found]


@pytest.mark.parametrize("packed", [False, True])
def test_every_image_has_its_own_number(data: Path, packed: bool) -> None:
    parquet = Parquet(path="packed", label="price", size=8, test=0.25, predict="number")
    source = parquet if packed else PRICED
    dataset = source.load(in_parquet(data) if packed else data)
    assert (source.aim, source.measures[0], dataset.task, dataset.classes) == ("regression", "rmse", "regression", 1)
    assert (len(dataset.train), len(dataset.test)) == (9, 3)
    for split in (dataset.train, dataset.test):
        numbers = split.labels.double() * dataset.scale + dataset.centre
        assert numbers.tolist() == pytest.approx([PRICES[n] for n in pictures(split.inputs)], abs=1e-5)


@pytest.mark.parametrize("packed", [False, True])
def test_every_image_has_its_own_labels(data: Path, packed: bool) -> None:
    parquet = Parquet(path="packed", label="seen", size=8, test=0.25, predict="labels")
    source = parquet if packed else replace(PRICED, target="seen", predict="labels")
    dataset = source.load(in_parquet(data) if packed else data)
    assert (dataset.task, dataset.names) == ("multilabel", ("blue", "red", "round"))
    for split in (dataset.train, dataset.test):
        expected = [[float(name in SEEN[n]) for name in dataset.names] for n in pictures(split.inputs)]
        assert split.labels.tolist() == expected


def test_classes_of_a_table_and_their_provenance(data: Path) -> None:
    dataset = replace(PRICED, target="kind", predict="class").with_classes(data).load(data)
    assert dataset.names == ("a", "b") and dataset.provenance is not None and dataset.provenance.simulated
    assert torch.equal(dataset.train.labels, torch.tensor([n % 2 for n in pictures(dataset.train.inputs)]))


def test_a_sample_of_images_with_numbers(data: Path) -> None:
    whole, part = PRICED.load(data), replace(PRICED, examples=4).load(data)
    assert len(part.train) == 4 and torch.equal(part.test.inputs, whole.test.inputs)
    assert set(pictures(part.train.inputs)) < set(pictures(whole.train.inputs))


@pytest.mark.parametrize("path", ["/etc/a.png", "../a.png", "in/../../a.png", "linked/a.png", "link.png"])
def test_a_path_out_of_the_directory_is_refused(data: Path, path: str) -> None:
    outside = data.parent / f"{data.name}-outside"
    outside.mkdir()
    (outside / "a.png").write_bytes(photo(1))
    (data / "photos/linked").symlink_to(outside)
    (data / "photos/link.png").symlink_to(outside / "a.png")
    table = data / "photos/metadata.csv"
    table.write_text(table.read_text().replace("in/3.png", path))
    for read in (PRICED.load, PRICED.digest, PRICED.files):
        with pytest.raises(DataError, match=r"photos/metadata\.csv, row 4: path .* (leaves|is a link out of)"):
            read(data)


def test_rows_without_an_image_are_listed(data: Path) -> None:
    table = data / "photos/metadata.csv"
    table.write_text(table.read_text().replace("in/3.png", "in/none.png").replace("in/4.png", ""))
    found = PRICED.load(data)
    assert len(found.train) + len(found.test) == COUNT - 2
    assert [skip.names for skip in found.skipped] == [("in/none.png",), ("photos/metadata.csv, row 5",)]
    shutil.rmtree(data / "photos/in")
    with pytest.raises(DataError, match=r"no readable image .*\(12 skipped, such as in/0\.png: cannot be read"):
        PRICED.load(data)


def test_images_count_in_the_digest(data: Path) -> None:
    before = PRICED.digest(data)
    (data / "photos/in/3.png").write_bytes(photo(99))
    assert PRICED.digest(data) != before and len(PRICED.files(data)) == 1 + COUNT


@pytest.mark.parametrize("place", ["photos", "photos/metadata.csv"])
def test_a_table_of_images_is_recognised(data: Path, place: str) -> None:
    found = of_path(data / place)
    assert isinstance(found, ImageTable) and (found.image, found.target) == ("file_name", "kind")
    replace(found, size=8).load((data / place).parent)
    asked = of_path(data / place, target="price")
    assert isinstance(asked, ImageTable) and (asked.target, asked.predict) == ("price", "number")


@pytest.mark.parametrize(("columns", "predict"), [(["price"], "number"), (["seen"], "labels")])
def test_what_parquet_files_predict_is_guessed(data: Path, columns: list[str], predict: Predict) -> None:
    path = in_parquet(data) / "packed/all.parquet"
    pq.write_table(pq.read_table(path).select(["image", *columns]), path)
    found = of_path(data / "packed")
    assert isinstance(found, Parquet) and (found.label, found.predict) == (*columns, predict)


def test_a_row_without_a_number_is_named(data: Path) -> None:
    images = [photo(n) for n in range(3)]
    (data / "packed").mkdir()
    pq.write_table(pa.table({"image": images, "price": [1.5, None, 2.5]}), data / "packed/all.parquet")
    with pytest.raises(DataError, match=r"all\.parquet, row 1: found nothing in column 'price': expected a number"):
        Parquet(path="packed", label="price", test=0.3, predict="number").load(data)


def test_specifications_of_classes_are_written_as_before() -> None:
    assert "predict" not in written(Parquet(path="photos"))["parquet"]
    assert written(Parquet(path="photos", predict="number"))["parquet"]["predict"] == "number"

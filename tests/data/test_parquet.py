"""Images of one's own in Parquet files: what is read, what is passed over, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from explorer.data.labelled import decode
from explorer.data.local import Fault
from explorer.data.parquet import Parquet
from explorer.errors import DataError
from tests.data.photos import bomb, photo

DIVIDED = Parquet(path="photos", size=8)


def structs(contents: list) -> list:
    return [{"bytes": content, "path": "x.png"} for content in contents]


def write(path: Path, **columns: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=3)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of training images and one of test images, with labels 0, 2 and 10."""
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "photos"
    write(root / "train-0.parquet", image=structs([photo(n) for n in range(4)]), label=[0, 2, 10, 0], tag=["open"] * 4)
    write(root / "train-1.parquet", image=structs([photo(4), photo(5)]), label=[2, 10], tag=["a/b", "open"])
    write(root / "test.parquet", image=structs([photo(n) for n in (6, 7, 8)]), label=[2, 0, 10], tag=["open"] * 3)
    return tmp_path


def test_pixels_and_labels(data: Path) -> None:
    for found in (DIVIDED.load(data), DIVIDED.load(data)):
        expected = np.stack([np.asarray(decode(photo(n), size=8, channels=3)) for n in range(9)])
        assert (found.train.inputs.numpy() == expected[:6]).all()
        assert (found.test.inputs.numpy() == expected[6:]).all()
        assert found.train.labels.tolist() == [0, 1, 2, 0, 1, 2] and found.test.labels.tolist() == [1, 0, 2]
        assert found.names == ("0", "2", "10")  # whole numbers by size
        assert (found.provenance, found.skipped, found.crop, found.flip) == (None, (), 1, True)


def test_other_columns_and_kinds(data: Path) -> None:
    write(
        data / "other" / "all.parquet",
        picture=[photo(n) for n in range(8)],
        kind=pa.array(["b", "a"] * 4).dictionary_encode(),
    )
    found = Parquet(path="other", image="picture", label="kind", size=8, channels=1, test=0.25).load(data)
    assert found.names == ("a", "b") and found.example_shape == (1, 8, 8)
    assert [torch.bincount(split.labels).tolist() for split in (found.train, found.test)] == [[3, 3], [1, 1]]


def test_provenance_from_a_column(data: Path) -> None:
    found = Parquet(path="photos", size=8, tag="tag").load(data).provenance
    assert found is not None and found.classes == ("a/b", "open")
    assert found.codes.tolist() == [1, 1, 1, 1, 0, 1]
    assert found.sources[4] == "train-1.parquet, row 0"


@pytest.mark.parametrize("tag", ["Not A Path", None, ""])
def test_a_tag_that_is_no_class(data: Path, tag: str | None) -> None:
    images = structs([photo(4), photo(5)])
    write(data / "photos/train-1.parquet", image=images, label=[2, 10], tag=pa.array(["open", tag], pa.string()))
    with pytest.raises(DataError, match=r"train-1\.parquet, row 1: found class"):
        Parquet(path="photos", size=8, tag="tag").load(data)


def test_rows_without_a_readable_image_are_passed_over(data: Path) -> None:
    contents = [photo(1), None, b"no", bomb(30_000), photo(4)[:100], photo(2), photo(3)]
    write(data / "photos/train-0.parquet", image=[*structs(contents), None], label=[0, 0, 0, 2, 10, 2, 10, 0])
    found = DIVIDED.load(data)
    assert len(found.train) == 5
    assert {skip.reason: (skip.count, skip.names) for skip in found.skipped} == {
        Fault.MISSING: (2, ("train-0.parquet, row 1", "train-0.parquet, row 7")),
        Fault.NO_IMAGE: (1, ("train-0.parquet, row 2",)),
        Fault.TOO_MANY_PIXELS: (1, ("train-0.parquet, row 3",)),
        Fault.DAMAGED: (1, ("train-0.parquet, row 4",)),
    }


def test_a_label_of_one_side_alone(data: Path) -> None:
    write(data / "photos/test.parquet", image=structs([photo(6), photo(7), photo(8)]), label=[2, 0, 11])
    with pytest.raises(DataError, match="class '11' has no readable image on the train side"):
        DIVIDED.load(data)


def test_the_content_counts(data: Path) -> None:
    before = DIVIDED.digest(data)
    write(data / "photos/train-1.parquet", image=structs([photo(4), photo(6)]), label=[2, 10])
    assert DIVIDED.digest(data) != before


IMAGES = structs([photo(0)])
WRONG = {
    "no image": ({"img": IMAGES, "label": [0]}, "unknown column 'image'; did you mean 'img'"),
    "no label": ({"image": IMAGES}, "unknown column 'label'"),
    "text for images": ({"image": ["a"], "label": [0]}, "column 'image' is string, expected images"),
    "struct without bytes": ({"image": [{"path": "a"}], "label": [0]}, "expected images"),
    "fraction": ({"image": IMAGES, "label": [0.5]}, r"train-1\.parquet, row 0 has label 0.5: expected a whole number"),
    "negative": ({"image": IMAGES * 2, "label": [2, -1]}, r"train-1\.parquet, row 1 has label -1: expected 0 or above"),
    "unknown": (
        {"image": IMAGES * 2, "label": [2, 999]},
        r"test side: .*; train-1\.parquet, row 1 has label '999'",
    ),
    "label missing": ({"image": IMAGES * 2, "label": [0, None]}, r"train-1\.parquet, row 1: no label"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_columns(data: Path, name: str) -> None:
    columns, message = WRONG[name]
    write(data / "photos/train-1.parquet", **columns)
    with pytest.raises(DataError, match=message):
        DIVIDED.load(data)


def test_damaged_files(data: Path) -> None:
    path = data / "photos/train-1.parquet"
    good = path.read_bytes()
    refused = 0
    for place in range(0, len(good), 67):
        path.write_bytes(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        try:
            DIVIDED.load(data)
        except DataError as error:
            refused += 1
            assert str(error)
    assert refused > 5
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match=r"train-1\.parquet: expected a Parquet file"):
        DIVIDED.load(data)


def test_too_many_rows(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.data.parquet.MAX_ROWS", 5)
    with pytest.raises(DataError, match="9 rows, expected 5 or fewer"):
        DIVIDED.load(data)
    monkeypatch.setattr("explorer.data.parquet.MAX_GROUP_BYTES", 10)
    with pytest.raises(DataError, match="a column of a row group has more than 10 bytes"):
        DIVIDED.load(data)


def test_layouts_that_do_not_fit(data: Path) -> None:
    with pytest.raises(DataError, match="has train and test files: leave 'test' out"):
        Parquet(path="photos", test=0.1).load(data)
    (data / "photos/test.parquet").rename(data / "photos/tested")
    with pytest.raises(
        DataError, match=r"found train-0\.parquet, train-1\.parquet in .*: expected train\*\.parquet and"
    ):
        DIVIDED.load(data)
    (data / "empty").mkdir()
    with pytest.raises(DataError, match="found no Parquet file"):
        Parquet(path="empty", test=0.1).digest(data)
    with pytest.raises(DataError, match=r"no directory .*none"):
        Parquet(path="none").digest(data)
    with pytest.raises(DataError, match="leaves the data directory"):
        Parquet(path="a/../..").digest(data)
    (data / "out").mkdir()
    (data / "out/train.parquet").symlink_to(data / "photos/train-0.parquet")
    with pytest.raises(DataError, match="a link that leads out of the directory: expected a Parquet file"):
        Parquet(path="out", test=0.1).load(data)


HEADER = {"info": {"features": {"label": {"names": ["cat", "dog", "owl"], "_type": "ClassLabel"}}}}


def write_named(path: Path, labels: list[int], header: object = HEADER) -> None:
    """A file as the hub writes it."""
    table = pa.table({"image": structs([photo(n) for n in range(len(labels))]), "label": labels})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata({"huggingface": json.dumps(header)}), path)


def test_names_of_classes_come_from_the_header_and_validation_is_a_test_side(data: Path) -> None:
    write_named(data / "hub/data/train-00000-of-00001.parquet", [2, 0, 1, 0])
    write_named(data / "hub/data/validation-00000-of-00001.parquet", [0, 1, 2])
    found = Parquet(path="hub", size=8).load(data)
    assert found.names == ("cat", "dog", "owl") and found.train.labels.tolist() == [2, 0, 1, 0]
    assert found.test.labels.tolist() == [0, 1, 2]
    write_named(data / "hub/data/train-00000-of-00001.parquet", [2, 0, 1, 3])
    with pytest.raises(DataError, match=r"row 3 has label 3: expected 0 to 2, for the file names 3 classes"):
        Parquet(path="hub", size=8).load(data)


def test_a_test_side_comes_before_validation(data: Path) -> None:
    write(data / "photos/validation.parquet", image=structs([photo(9)]), label=[7])
    assert DIVIDED.load(data).names == ("0", "2", "10")


def test_a_test_side_without_labels_gives_way_to_validation(data: Path) -> None:
    """As of ImageNet on the hub, whose test labels are secret: all of them are -1."""
    write_named(data / "hub/data/train-00000-of-00001.parquet", [2, 0, 1, 0])
    write_named(data / "hub/data/validation-00000-of-00001.parquet", [0, 1, 2])
    shown = Parquet(path="hub", size=8).digest(data)
    write_named(data / "hub/data/test-00000-of-00001.parquet", [-1, -1])
    dataset = Parquet(path="hub", size=8).load(data)
    assert dataset.test.labels.tolist() == [0, 1, 2] and len(dataset.train) == 4
    assert Parquet(path="hub", size=8).digest(data) == shown, "it is not read"
    write_named(data / "hub/data/test-00000-of-00001.parquet", [-1, 0])
    with pytest.raises(DataError, match="row 0 has label -1"):
        Parquet(path="hub", size=8).load(data)


TWICE = {"info": {"features": {"label": {"names": ["a", "a"]}}}}


@pytest.mark.parametrize("header", [None, [], {"info": []}, TWICE])
def test_headers_that_name_nothing_are_as_good_as_none(data: Path, header: object) -> None:
    write_named(data / "hub/train.parquet", [0, 1], header)
    write_named(data / "hub/test.parquet", [0, 1], header)
    assert Parquet(path="hub", size=8).load(data).names == ("0", "1")


def test_headers_that_disagree_are_refused(data: Path) -> None:
    write_named(data / "hub/train.parquet", [0, 1, 2])
    write_named(data / "hub/test.parquet", [0, 1, 2], {})
    with pytest.raises(DataError, match=r"train\.parquet and .*test\.parquet: their headers name other classes"):
        Parquet(path="hub", size=8).load(data)


def test_whole_numbers_may_be_written_as_fractions(data: Path) -> None:
    write(data / "photos/train-1.parquet", image=structs([photo(4), photo(5)]), label=[2.0, 10.0])
    assert DIVIDED.load(data).names == ("0", "2", "10")


def test_the_digest_is_the_same_wherever_the_directory_begins(data: Path) -> None:
    (data / "above").mkdir()
    (data / "photos").rename(data / "above/photos")
    whole, inner = Parquet(path="above", size=8), Parquet(path="above/photos", size=8)
    assert whole.digest(data) == inner.digest(data)
    write(data / "above/other/train-2.parquet", image=structs([photo(5)]), label=[2])
    assert whole.digest(data) != inner.digest(data), "the control: another file counts"


@pytest.mark.parametrize(
    ("examples", "kept"), [(None, [*range(6)]), (3, [0, 1, 2]), (4, [*range(4)]), (6, [*range(6)])]
)
def test_so_many_training_images_the_first_of_each_class(data: Path, examples: int | None, kept: list[int]) -> None:
    """Labels 0 1 2 0 1 2; the test side stays whole."""
    whole, found = DIVIDED.load(data), Parquet(path="photos", size=8, examples=examples).load(data)
    assert torch.equal(found.train.inputs, whole.train.inputs[kept]) and len(found.test) == 3
    assert torch.equal(found.train.labels, whole.train.labels[kept])


@pytest.mark.parametrize("examples", [2, 7])
def test_too_few_or_too_many_examples_are_refused(data: Path, examples: int) -> None:
    with pytest.raises(DataError, match=rf"found examples: {examples}, expected 3 \(one of each class\) to 6"):
        Parquet(path="photos", size=8, examples=examples).load(data)


def test_labels_as_provenance_classes(data: Path) -> None:
    numbers = Parquet(path="photos", size=8, tag="label").load(data).provenance
    assert numbers is not None and numbers.simulated
    assert numbers.classes == ("simulated/0", "simulated/10", "simulated/2")
    write(data / "named" / "all.parquet", image=[photo(n) for n in range(8)], label=["b/c", "a"] * 4)
    named = Parquet(path="named", size=8, tag="label", test=0.25).load(data).provenance
    assert named is not None and not named.simulated and named.classes == ("a", "b/c")


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("data/train-00000-of-00001", "data/val-00000-of-00001"),
        ("default/train/0000", "default/validation/0000"),
        ("train", "dev"),
    ],
)
def test_layouts_of_the_hub_are_recognised(data: Path, train: str, test: str) -> None:
    write_named(data / f"hub/{train}.parquet", [2, 0, 1, 0])
    write_named(data / f"hub/{test}.parquet", [0, 1, 2])
    source = Parquet.of_path(data / "hub")
    assert source is not None and source.test is None
    found = replace(source, size=8).load(data)
    assert (len(found.train), found.test.labels.tolist()) == (4, [0, 1, 2])


def test_a_name_that_only_begins_like_a_side_is_none(data: Path) -> None:
    write_named(data / "hub/train.parquet", [0, 1])
    write_named(data / "hub/values.parquet", [0, 1])
    source = Parquet.of_path(data / "hub")
    assert source is not None and source.test is not None

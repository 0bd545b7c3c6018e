"""Images of one's own in directories: what is read, what is passed over, what is refused."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from explorer.data.imagefolder import ImageFolder
from explorer.data.labelled import decode
from explorer.data.local import Fault
from explorer.data.sources import DATASETS
from explorer.errors import DataError, RecipeError
from explorer.recipes.choice import choose
from explorer.training.tagging import records_of
from tests.data.photos import bomb, broken_checksum, encoded, photo, picture

UNDIVIDED = ImageFolder(path="photos", size=8, test=0.25)
DIVIDED = ImageFolder(path="photos", size=8)


def put(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes, divided: three and two for training, one each for the test."""
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    names = ["train/cat/a", "train/cat/b", "train/cat/deep/c", "train/dog/d", "train/dog/e", "test/cat/f", "test/dog/g"]
    return put(tmp_path / "data", {f"photos/{name}.png": photo(seed) for seed, name in enumerate(names)})


def undivided(tmp_path: Path, *, cats: int = 8, dogs: int = 5) -> Path:
    cat = {f"photos/cat/{n}.png": photo(n) for n in range(cats)}
    return put(tmp_path / "more", cat | {f"photos/dog/{n}.png": photo(100 + n) for n in range(dogs)})


def test_pixels_labels_and_statistics(data: Path) -> None:
    for attempt in ("decoded", "from the cache"):
        found = DIVIDED.load(data)
        expected = np.stack([np.asarray(decode(photo(n), size=8, channels=3)) for n in range(7)])
        assert (found.train.inputs.numpy() == expected[:5]).all(), attempt
        assert (found.test.inputs.numpy() == expected[5:]).all()
        assert (found.train.labels.tolist(), found.test.labels.tolist()) == ([0, 0, 0, 1, 1], [0, 1])
        assert (found.classes, found.names, found.skipped, found.provenance) == (2, ("cat", "dog"), (), None)
        assert (found.crop, found.flip) == (1, True)
        pixels = expected[:5].astype(np.float64) / 255
        np.testing.assert_allclose(found.mean, pixels.mean((0, 2, 3)), atol=5.1e-5)
        np.testing.assert_allclose(found.std, pixels.std((0, 2, 3)), atol=5.1e-5)
    plain = ImageFolder(path="photos", size=16, channels=1, augment=False).load(data)
    assert (plain.example_shape, plain.crop, plain.flip) == ((1, 16, 16), 0, False)


def test_a_share_of_each_class_is_the_test_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    root = undivided(tmp_path)
    before = UNDIVIDED.load(root)
    assert torch.bincount(before.test.labels).tolist() == [2, 1]  # a quarter, rounded
    assert torch.bincount(before.train.labels).tolist() == [6, 4]
    put(root, {f"photos/dog/copy-{n}.png": photo(100 + n) for n in range(5)})  # equal pictures
    found = UNDIVIDED.load(root)
    sides = [{image.tobytes() for image in split.inputs.numpy()} for split in (found.train, found.test)]
    assert not sides[0] & sides[1]
    assert len(found.train) + len(found.test) == 18


def test_the_content_counts_and_the_time_does_not(data: Path) -> None:
    before = DIVIDED.digest(data)
    os.utime(data / "photos/train/cat/a.png", (1, 1))
    assert DIVIDED.digest(data) == before == ImageFolder(path="photos", size=32).digest(data)
    (data / "photos/train/cat/a.png").write_bytes(photo(50))
    changed = DIVIDED.digest(data)
    (data / "photos/train/cat/a.png").rename(data / "photos/train/cat/z.png")
    assert len({before, changed, DIVIDED.digest(data)}) == 3
    assert (DIVIDED.load(data).train.inputs[2].numpy() == decode(photo(50), size=8, channels=3)).all()


def test_what_cannot_be_read_is_passed_over_and_listed(data: Path) -> None:
    cat = data / "photos/train/cat"
    before = DIVIDED.load(data)
    put(cat, {"cut.png": photo(9)[:100], "sum.png": broken_checksum(), "bomb.png": bomb(30_000), "notes.txt": b"hi"})
    put(cat, {"bad\nname\x1b[31m.png": b"", "old.bmp": encoded(picture(1), "BMP")})
    put(data, {"photos/readme.md": b"", "photos/train/loose.png": photo(3), "secret.png": photo(4)})
    os.mkfifo(cat / "pipe.png")
    (cat / "out.png").symlink_to(data / "secret.png")
    (cat / "nothing.png").symlink_to(cat / "none.png")
    (cat / "loop.png").symlink_to(cat / "loop.png")
    (cat / "folder").symlink_to(data / "photos/train/dog")
    (cat / "inside.png").symlink_to(data / "photos/train/dog/d.png")
    Path(os.fsdecode(os.fsencode(cat) + b"/\xff.png")).write_bytes(b"x")
    for found in (DIVIDED.load(data), DIVIDED.load(data)):
        assert {skip.reason: skip.count for skip in found.skipped} == {
            Fault.OUTSIDE: 1,
            Fault.LINKED: 1,
            Fault.SPECIAL: 1,
            Fault.UNREADABLE: 2,
            Fault.MISPLACED: 2,
            Fault.NO_IMAGE: 4,
            Fault.TOO_MANY_PIXELS: 1,
            Fault.DAMAGED: 2,
        }
        assert len(found.train) == len(before.train) + 1  # the link to a file inside
    names = {name for skip in DIVIDED.load(data).skipped for name in skip.names}
    assert r"train/cat/bad\nname\x1b[31m.png" in names and r"train/cat/\udcff.png" in names
    assert {"train/cat/out.png", "train/cat/folder", "train/loose.png", "readme.md"} <= names


def test_few_names_are_listed_of_many(data: Path) -> None:
    put(data, {f"photos/train/cat/{n:03}.txt": b"" for n in range(40)})
    (skip,) = DIVIDED.load(data).skipped
    assert (skip.count, len(skip.names)) == (40, 5)


def test_provenance_from_a_table(data: Path) -> None:
    put(data, {"photos/classes.csv": b"path,class\n.,open/mit\ntrain/cat/deep,licensed/news\n"})
    source = ImageFolder(path="photos", size=8, provenance="photos/classes.csv")
    found = source.load(data)
    assert found.provenance is not None and found.skipped == ()
    assert found.provenance.classes == ("licensed/news", "open/mit")
    assert found.provenance.codes.tolist() == [1, 1, 0, 1, 1]
    assert found.provenance.sources[2] == "train/cat/deep/c.png"
    records = list(records_of(source, data=data, authority="example.com/dg"))
    assert [record.class_path for record in records] == ["open/mit"] * 2 + ["licensed/news"] + ["open/mit"] * 2
    assert records[2].content == found.train.content(2) and records[2].source == "train/cat/deep/c.png"
    before = source.digest(data)
    put(data, {"photos/classes.csv": b"path,class\n.,open/bsd\ntrain/cat/deep,licensed/news\n"})
    assert source.digest(data) != before
    put(data, {"photos/classes.csv": b"path,class\ntrain/cat,open/mit\n"})
    with pytest.raises(DataError, match=r"classes\.csv: no row covers 'test/cat/f\.png'"):
        source.load(data)


def test_a_class_without_an_image_is_named(data: Path) -> None:
    (data / "photos/train/fox").mkdir()
    with pytest.raises(DataError, match=r"class 'fox': found no file in its folder .*/train/fox: expected images"):
        DIVIDED.load(data)
    put(data, {"photos/train/fox/a.png": b"no", "photos/stray.txt": b"", "photos/train/cat/bad.png": b"no"})
    with pytest.raises(DataError, match=r"'fox' .* train side \(1 skipped, such as train/fox/a\.png: not a PNG"):
        DIVIDED.load(data)
    put(data, {"photos/train/fox/a.png": photo(1)})
    with pytest.raises(DataError, match="class 'fox' has no readable image on the test side"):
        DIVIDED.load(data)
    (data / "photos/train/fox/a.png").rename(data / "photos/test/a.png")
    (data / "photos/train/fox").rename(data / "photos/test/fox")
    (data / "photos/test/a.png").rename(data / "photos/test/fox/a.png")
    with pytest.raises(DataError, match="class 'fox' has no readable image on the train side"):
        DIVIDED.load(data)


def test_hidden_files_and_folders_are_no_classes_and_no_content(data: Path) -> None:
    before = DIVIDED.digest(data)
    (data / "photos/train/.ipynb_checkpoints").mkdir()
    put(data, {"photos/train/cat/.DS_Store": b"", "photos/train/.thumbnails/cat/a.png": photo(9)})
    assert DIVIDED.digest(data) == before
    found = DIVIDED.load(data)
    assert found.names == ("cat", "dog") and found.skipped == ()


def test_a_class_too_small_to_divide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    root = undivided(tmp_path, dogs=1)
    with pytest.raises(DataError, match="class 'dog' has no readable image on the train side: expected at least two"):
        UNDIVIDED.load(root)
    put(root, {"photos/dog/same.png": photo(100)})  # the same picture again
    with pytest.raises(DataError, match="class 'dog' has no readable image on the train side"):
        UNDIVIDED.load(root)


def test_layouts_that_do_not_fit(data: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is divided into 'train' and 'test': leave 'test' out"):
        UNDIVIDED.load(data)
    with pytest.raises(DataError, match=r"has no directories 'train' and 'test' .*: expected both, or .* test: 0\.1"):
        DIVIDED.digest(undivided(tmp_path))
    with pytest.raises(DataError, match=r"no directory .*none: expected it below"):
        ImageFolder(path="none").digest(data)
    with pytest.raises(DataError, match="'/etc' leaves the data directory"):
        ImageFolder(path="/etc").digest(data)
    with pytest.raises(DataError, match=r"'\.\./x' leaves the data directory"):
        ImageFolder(path="photos", provenance="../x").load(data)
    with pytest.raises(DataError, match="by --data or EXPLORER_DATA"):
        DIVIDED.load(None)
    with pytest.raises(DataError, match="found 1 classes, expected 2"):
        ImageFolder(path="photos/train", test=0.5).load(put(tmp_path / "one", {"photos/train/cat/1.png": photo(1)}))


def test_black_pictures_have_no_deviation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    black = encoded(np.zeros((8, 8, 3), np.uint8))
    put(tmp_path, {f"photos/{side}/{kind}/1.png": black for side in ("train", "test") for kind in "ab"})
    with pytest.raises(DataError, match="all pixels of a channel are equal"):
        DIVIDED.load(tmp_path)


@pytest.mark.parametrize(
    "wrong", [{}, {"path": "a", "test": 0.9}, {"path": "a", "size": 4}, {"path": "a", "channels": 2}]
)
def test_parameters_out_of_range(wrong: dict) -> None:
    with pytest.raises(RecipeError, match=r"here\.imagefolder"):
        choose(DATASETS, {"imagefolder": wrong}, kind="dataset", where="here")


def test_every_folder_is_a_class(data: Path) -> None:
    source = ImageFolder(path="photos", size=8, provenance="folders")
    own = source.load(data).provenance
    assert own is not None and not own.simulated and own.classes == ("folders/cat", "folders/dog")
    assert own.codes.tolist() == [0, 0, 0, 1, 1]
    assert source.digest(data) == ImageFolder(path="photos", size=8).digest(data)


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_a_validation_directory_is_the_test_side_unless_there_is_another(data: Path, name: str) -> None:
    whole = DIVIDED.load(data)
    (data / "photos" / "test").rename(data / "photos" / name)
    renamed = DIVIDED.load(data)
    assert torch.equal(renamed.test.inputs, whole.test.inputs) and torch.equal(renamed.train.inputs, whole.train.inputs)
    assert ImageFolder.of_path(data / "photos") == ImageFolder(path="photos", test=None)
    put(data, {"photos/test/cat/x.png": photo(50), "photos/test/dog/y.png": photo(51)})
    assert [skip.count for skip in DIVIDED.load(data).skipped] == [2]  # what was the test side is left out, and listed

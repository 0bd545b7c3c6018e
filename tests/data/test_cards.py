"""What cards say, against numbers that are counted another way."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from explorer.data.cards import card, describe_all
from explorer.data.clutter import Clutter
from explorer.data.clutter3d import Clutter3d
from explorer.data.digits import Digits
from explorer.data.imagefolder import ImageFolder
from explorer.data.sources import DATASETS
from explorer.data.text import LocalText
from tests.data.photos import photo
from tests.data.test_imagefolder import put


def test_digits() -> None:
    labels = load_digits(return_X_y=True)[1]
    found = card(Digits(size=16, simulated_classes=3), None)
    assert (found.train, found.test, found.shape) == (899, 898, (1, 16, 16))
    assert found.bytes == 1797 * (16 * 16 + 8)
    assert [each.name for each in found.classes] == list("0123456789")
    assert [each.train for each in found.classes] == np.bincount(labels[:899]).tolist()
    assert [each.test for each in found.classes] == np.bincount(labels[899:]).tolist()
    assert found.counted == "examples" and found.tokens is None
    assert found.simulated and [each.examples for each in found.provenance] == [300, 300, 299]
    assert found.digest == Digits(size=16).digest(None)
    assert (found.licence, found.parameters) == ("CC BY 4.0", {"size": 16, "simulated_classes": 3})


def test_dense_labels_are_counted_by_pixel() -> None:
    flat, deep = card(Clutter(size=16, examples=8), None), card(Clutter3d(size=16, examples=8), None)
    for found, pixels, word in ((flat, 16 * 16, "pixels"), (deep, 8 * 16 * 16, "voxels")):
        assert found.counted == word and len(found.classes) == 11
        assert sum(each.train for each in found.classes) == 8 * pixels
        assert sum(each.test for each in found.classes) == 2 * pixels
        assert found.classes[0].name == "background" and found.bytes == 10 * 2 * pixels


def test_text(tmp_path: Path) -> None:
    put(tmp_path, {"shelf/a.txt": b"a" * 1000, "shelf/b.txt": b"b" * 1000, "shelf/c": b"\xff", "t.csv": b""})
    (tmp_path / "t.csv").write_text("path,class\na.txt,open/mit\nb.txt,licensed/x\n")
    found = card(LocalText(path="shelf", context=10, provenance="t.csv"), tmp_path)
    blocks = 2 * ((900 - 1) // 10)
    assert (found.train, found.tokens, found.vocabulary) == (blocks, (blocks * 10, 2 * 9 * 10), 256)
    assert found.bytes == (blocks + 18) * 10 * 2 and found.classes == () and found.counted is None
    assert [(each.path, each.examples) for each in found.provenance] == [
        ("licensed/x", blocks // 2),
        ("open/mit", blocks // 2),
    ]
    assert not found.simulated and [skip.names for skip in found.skipped] == [("c",)]


def test_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path / "cache"))
    put(tmp_path, {f"p/{side}/{kind}/{n}": photo(n) for side in ("train", "test") for kind in "xy" for n in range(3)})
    put(tmp_path, {"p/train/x/bad": b"no"})
    found = card(ImageFolder(path="p", size=8), tmp_path)
    assert [(each.name, each.train, each.test) for each in found.classes] == [("x", 3, 3), ("y", 3, 3)]
    assert found.bytes == 12 * (3 * 8 * 8 + 8) and found.provenance == () and not found.simulated
    assert [(skip.count, skip.names) for skip in found.skipped] == [(1, ("train/x/bad",))]


def test_every_dataset_says_what_it_is_and_takes() -> None:
    described = {each["name"]: each for each in describe_all()}
    assert list(described) == sorted(DATASETS)
    assert all(value for each in described.values() for value in each.values())
    by_name = {each["name"]: each for each in described["imagefolder"]["parameters"]}
    assert by_name["path"] == {
        **{"name": "path", "required": True, "default": None},
        "meaning": "directory below --data",
    }
    assert {**by_name["size"], "meaning": ""} == {"name": "size", "required": False, "default": 32, "meaning": ""}

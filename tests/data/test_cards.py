"""Cards against numbers counted another way, and as Croissant, checked by `mlcroissant` without a network."""

import hashlib
import json
import socket
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from explorer.data.cards import MOST, as_croissant, card, describe
from explorer.data.clutter import Clutter
from explorer.data.clutter3d import Clutter3d
from explorer.data.dataset import DataFile
from explorer.data.digits import Digits
from explorer.data.imagefolder import ImageFolder
from explorer.data.sources import DATASETS
from explorer.data.text import LocalText
from tests.data.photos import photo
from tests.data.test_imagefolder import put

# --- cards -----------------------------------------------------------------------------------------------------------


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
    described = {each["name"]: each for each in (describe(DATASETS[name]) for name in sorted(DATASETS))}
    assert list(described) == sorted(DATASETS)
    assert all(value for each in described.values() for value in each.values())
    by_name = {each["name"]: each for each in described["imagefolder"]["parameters"]}
    assert by_name["path"] == {
        **{"name": "path", "required": True, "default": None},
        "meaning": "directory below --data",
    }
    assert {**by_name["size"], "meaning": ""} == {"name": "size", "required": False, "default": 32, "meaning": ""}


# --- Croissant -------------------------------------------------------------------------------------------------------


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("it asks for the network")


@pytest.mark.filterwarnings("ignore")  # of rdflib, and of how mlcroissant uses pandas
def test_mlcroissant_finds_no_fault_and_reads_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlcroissant = pytest.importorskip("mlcroissant", exc_type=ImportError)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    digits = Digits(simulated_classes=3)
    put(tmp_path, {"shelf/<b>.txt": b"a" * 1000, 'shelf/"=1+1"\u202e.txt': b"b" * 1000})
    text = LocalText(path="shelf", context=10)
    for source, data in ((digits, None), (text, tmp_path)):
        document = json.loads(as_croissant(card(source, data), source.files(data)))
        found = mlcroissant.Dataset(jsonld=document)
        assert not found.metadata.ctx.issues.errors
        if source is digits:
            labels = load_digits(return_X_y=True)[1]
            assert [row["labels/train"] + row["labels/test"] for row in found.records("labels")] == [
                (labels == number).sum() for number in range(10)
            ]
            assert sum(row["provenance/train"] for row in found.records("provenance")) == 899
            assert document["rai:dataLimitations"].startswith("Simulated provenance")
        document["distribution"].append({"@type": "cr:FileObject", "@id": "half", "name": "half"})
        with pytest.raises(mlcroissant.ValidationError, match="contentUrl"):
            mlcroissant.Dataset(jsonld=document)


def test_files_are_listed_by_what_is_in_them(tmp_path: Path) -> None:
    images = {f"p/{side}/{kind}/{n}.png": photo(n) for side in ("train", "test") for kind in "xy" for n in (1, 2)}
    put(tmp_path, {**images, "p/train/readme": b"in no class's directory"})
    source = ImageFolder(path="p", size=8)
    document = json.loads(as_croissant(card(source, tmp_path), source.files(tmp_path)))
    listed = {each["contentUrl"]: (each["sha256"], each["encodingFormat"]) for each in document["distribution"]}
    assert listed == {name: (hashlib.sha256(content).hexdigest(), "image/png") for name, content in images.items()}
    assert document["license"] == ImageFolder.licence


def test_of_very_many_files_it_is_said_that_not_all_are_listed() -> None:
    files = [DataFile(path=f"{n}.txt", sha256=f"{n:064x}", media="text/plain") for n in range(MOST + 5)]
    document = json.loads(as_croissant(card(Digits(), None), files))
    assert len(document["distribution"]) == MOST and "5 more files are not listed" in document["description"]
    assert document["identifier"] == f"sha256:{Digits().digest(None)}"

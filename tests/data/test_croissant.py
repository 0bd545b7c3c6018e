"""Cards as Croissant: checked by `mlcroissant`, without a network, and counted another way."""

import hashlib
import json
import socket
from pathlib import Path

import pytest
from sklearn.datasets import load_digits

from explorer.data.cards import card
from explorer.data.croissant import MOST, as_croissant
from explorer.data.dataset import DataFile
from explorer.data.digits import Digits
from explorer.data.imagefolder import ImageFolder
from explorer.data.text import LocalText
from tests.data.photos import photo
from tests.data.test_imagefolder import put


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

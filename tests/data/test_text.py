"""Any local file as text."""

import os
from pathlib import Path

import pytest
import torch

from explorer.data.local import Fault
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
    for path in ("none.txt", "pipe"):
        with pytest.raises(DataError, match=f"no file .*{path}: expected it below the directory of --data"):
            LocalText(path=path).digest(data)
    with pytest.raises(DataError, match=r"book/one\.txt: 1024 bytes, expected 1290 or more"):
        LocalText(path="book/one.txt").load(data)


def test_a_large_file_is_not_read_whole(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.data.text.MAX_BYTES", 1000)
    with pytest.raises(DataError, match="too large: at most 1000 bytes"):
        LocalText(path="book/one.txt").load(data)


@pytest.fixture
def shelf(data: Path) -> Path:
    """A directory of texts, and what else lies about."""
    (data / "shelf" / "deep").mkdir(parents=True)
    for name, letter, count in (("b.txt", b"b", 200), ("a.txt", b"a", 300), ("deep/c.txt", b"c", 400)):
        (data / "shelf" / name).write_bytes(letter * count)
    (data / "shelf" / "image.png").write_bytes(b"\x89PNG\xff")
    (data / "shelf" / "out.txt").symlink_to(data.parent / "secret.txt")
    os.mkfifo(data / "shelf" / "pipe")
    return data


def test_a_directory_is_one_stream_of_its_texts(shelf: Path) -> None:
    found = LocalText(path="shelf", context=8).load(shelf)
    stream = b"\0".join([b"a" * 300, b"b" * 200, b"c" * 400])
    middle = len(stream) - len(stream) // 10
    for split, side in ((found.train, stream[:middle]), (found.test, stream[middle:])):
        assert split.inputs.numpy().tobytes() == side[: len(split) * 8]
        assert split.labels.numpy().tobytes() == side[1 : len(split) * 8 + 1]
    assert found.provenance is None
    assert {skip.reason: skip.names for skip in found.skipped} == {
        Fault.OUTSIDE: ("out.txt",),
        Fault.SPECIAL: ("pipe",),
        Fault.NO_TEXT: ("image.png",),
    }


def test_the_digest_of_a_directory_is_that_of_names_and_contents(shelf: Path) -> None:
    source = LocalText(path="shelf")
    digests = [source.digest(shelf)]
    (shelf / "shelf" / "a.txt").write_bytes(b"A" * 300)
    digests.append(source.digest(shelf))
    (shelf / "shelf" / "a.txt").rename(shelf / "shelf" / "d.txt")
    digests.append(source.digest(shelf))
    assert len(set(digests)) == 3
    assert digests[-1] == source.digest(shelf)


def test_every_class_has_a_stream_of_its_own(shelf: Path) -> None:
    (shelf / "shelf" / "classes.csv").write_text("path,class\n.,open/mit\ndeep,licensed/news\n")
    source = LocalText(path="shelf", context=8, provenance="shelf/classes.csv")
    found = source.load(shelf)
    own = found.provenance
    assert own is not None and not own.simulated and own.classes == ("licensed/news", "open/mit")
    assert set(found.train.inputs[own.codes == 0].flatten().tolist()) == {ord("c")}
    assert set(found.train.inputs[own.codes == 1].flatten().tolist()) == {0, ord("a"), ord("b")}
    for slot, name in enumerate(own.sources):
        assert name in ("a.txt", "b.txt", "deep/c.txt")
        assert int(found.train.inputs[slot][0]) in (0, ord(name.removeprefix("deep/")[0]))
    assert set(own.sources) == {"a.txt", "b.txt", "deep/c.txt"}
    assert all("classes.csv" not in skip.names for skip in found.skipped)
    before = source.digest(shelf)
    (shelf / "shelf" / "classes.csv").write_text("path,class\n.,open/bsd\ndeep,licensed/news\n")
    assert source.digest(shelf) != before
    (shelf / "shelf" / "deep" / "c.txt").write_bytes(b"c" * 20)
    with pytest.raises(DataError, match="class 'licensed/news' of shelf: 20 bytes, expected 90 or more"):
        source.load(shelf)


def test_a_single_file_can_have_a_class(data: Path) -> None:
    (data / "classes.csv").write_text("path,class\n.,open/mit\n")
    source = LocalText(path="book/one.txt", context=8, provenance="classes.csv")
    found = source.load(data).provenance
    assert found is not None and found.classes == ("open/mit",) and set(found.sources) == {"one.txt"}
    assert source.digest(data) != LocalText(path="book/one.txt").digest(data)


def test_a_directory_without_text(shelf: Path) -> None:
    (shelf / "bin").mkdir()
    (shelf / "bin" / "x").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"no text in .*bin \(1 files skipped, such as x: not UTF-8 text\)"):
        LocalText(path="bin").load(shelf)


def test_all_files_together_are_bounded(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explorer.data.text.MAX_BYTES", 600)
    with pytest.raises(DataError, match="shelf: too large: at most 600 bytes"):
        LocalText(path="shelf").load(shelf)


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


def test_so_many_training_examples(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The quick brown fox jumps over the lazy dog. " * 40)
    whole, few = (LocalText(path="a.txt", context=16, examples=count).load(tmp_path) for count in (None, 7))
    assert len(few.train) == 7 < len(whole.train) and len(few.test) == len(whole.test)
    assert torch.equal(few.train.inputs, whole.train.inputs[:7])


def test_every_folder_is_a_class(shelf: Path) -> None:
    own = LocalText(path="shelf", context=8, provenance="folders").load(shelf).provenance
    assert own is not None and own.classes == ("folders/a.txt", "folders/b.txt", "folders/deep")
    assert {name for name, code in zip(own.sources, own.codes, strict=True) if code == 2} == {"deep/c.txt"}

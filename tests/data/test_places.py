"""Digests of one's own data: the same for a copy at another place, another for another byte."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer.data.dataset import DataSource
from explorer.data.image_table import ImageTable
from explorer.data.imagefolder import ImageFolder
from explorer.data.labelled_text import LabelledText
from explorer.data.parquet import Parquet
from explorer.data.tabular import Tabular
from explorer.data.text import LocalText
from tests.data.photos import photo

CARD = """---
configs:
- config_name: default
  data_files:
  - {split: train, path: a*}
  - {split: test, path: data/b*}
---
"""


def images(root: Path, *sides: str) -> None:
    for number, label in enumerate(["cat", "dog"] * 3):
        for side in sides:
            (root / side / label).mkdir(parents=True, exist_ok=True)
            (root / side / label / f"{number}.png").write_bytes(photo(number))


def divided_folders(root: Path) -> DataSource:
    images(root, "train", "val")
    return ImageFolder(path="mine")


def folders_with_classes(root: Path) -> DataSource:
    images(root, "")
    (root / "classes.csv").write_text("path,class\ncat,open\ndog,licensed/news\n")
    return ImageFolder(path="mine", test=0.5, provenance="mine/classes.csv")


def parquet(root: Path, names: tuple[str, ...] = ("train-0", "data/test-0")) -> DataSource:
    (root / "data").mkdir()
    for number, name in enumerate(names):
        table = pa.table({"image": [photo(number), photo(number + 2)], "label": [0, 1]})
        pq.write_table(table, root / f"{name}.parquet")
    return Parquet(path="mine")


def hub(root: Path) -> DataSource:
    (root / "README.md").write_text(CARD)
    return parquet(root, ("a", "data/b"))


def image_table(root: Path) -> DataSource:
    images(root, "all")
    (root / "metadata.csv").write_text("file_name,price\nall/cat/0.png,1.5\nall/dog/1.png,2.5\n")
    return ImageTable(path="mine/metadata.csv", target="price", predict="number")


def texts(root: Path) -> DataSource:
    (root / "letters").mkdir()
    for name in ("letters/b.txt", "a.txt"):
        (root / name).write_text(f"the text of {name}")
    return LocalText(path="mine")


def text(root: Path) -> DataSource:
    (root / "a.txt").write_text("a text")
    return LocalText(path="mine/a.txt")


def table(root: Path) -> DataSource:
    (root / "t.csv").write_text("a,target\n1,x\n2,y\n")
    return Tabular(path="mine/t.csv", target="target")


def reviews(root: Path) -> DataSource:
    (root / "t.csv").write_text("text,target\ngood,x\nbad,y\n")
    return LabelledText(path="mine/t.csv", target="target")


KINDS = (divided_folders, folders_with_classes, parquet, hub, image_table, texts, text, table, reviews)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_copy_at_another_place_has_the_same_digest(kind: Callable[[Path], DataSource], tmp_path: Path) -> None:
    here, there = tmp_path / "data", tmp_path / "other" / "above"
    (here / "mine").mkdir(parents=True)
    source = kind(here / "mine")
    shutil.copytree(here / "mine", there / "mine")
    moved = replace(source, path=f"above/{source.path}")  # pyright: ignore
    if getattr(source, "provenance", None):
        moved = replace(moved, provenance=f"above/{source.provenance}")  # pyright: ignore
    expected = source.digest(here)
    assert source.digest(there) == moved.digest(there.parent) == expected
    # The control: a byte of any file counts.
    changed = max(path for path in (there / "mine").rglob("*") if path.suffix != ".md" and path.is_file())
    changed.write_bytes(changed.read_bytes() + b"\n" if changed.suffix in (".png", ".txt") else _other(changed))
    assert source.digest(there) != expected


def _other(path: Path) -> bytes:
    """The content of a table with other values, still a table."""
    if path.suffix == ".csv":
        return path.read_bytes().replace(b"1", b"3").replace(b"licensed", b"licence").replace(b"bad", b"poor")
    pq.write_table(pq.read_table(path).slice(0, 1), path)
    return path.read_bytes()


def test_names_of_texts_count_and_so_does_their_order(tmp_path: Path) -> None:
    """A directory of texts is one stream in the order of the names: another name can be another stream."""
    (tmp_path / "mine").mkdir()
    source = texts(tmp_path / "mine")
    before, stream = source.digest(tmp_path), source._contents(tmp_path)[0]  # pyright: ignore
    (tmp_path / "mine/a.txt").rename(tmp_path / "mine/z.txt")
    assert source.digest(tmp_path) != before
    assert [*source._contents(tmp_path)[0].values()] == [*stream.values()][::-1]  # pyright: ignore

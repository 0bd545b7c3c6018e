"""The table of datasets. A new one needs its file and a line here."""

import json
import shlex
from functools import lru_cache
from pathlib import Path

from explorer.data.brats import Brats
from explorer.data.brats_slices import BratsSlices
from explorer.data.cifar10 import Cifar10
from explorer.data.clutter import Clutter
from explorer.data.clutter3d import Clutter3d
from explorer.data.dataset import Dataset, DataSource
from explorer.data.digits import Digits
from explorer.data.image_table import ImageTable
from explorer.data.imagefolder import ImageFolder
from explorer.data.labelled_text import LabelledText
from explorer.data.local import LocalFile, listed
from explorer.data.mds import MdsImages
from explorer.data.parquet import Parquet
from explorer.data.shards.image_shards import ImageShards
from explorer.data.shards.text_documents import LINES, MAX_LINE
from explorer.data.shards.text_shards import TextShards
from explorer.data.shards.volume_shards import VolumeShards
from explorer.data.source import Source
from explorer.data.tabular import Tabular
from explorer.data.text import SUFFIXES, LocalText
from explorer.errors import DataError

DATASETS: dict[str, type[DataSource]] = {
    source.name: source
    for source in (
        *(Cifar10, Clutter, Clutter3d, Digits),
        # Where several could read a path, the first: shards, a table of images before folders and tables of anything.
        *(MdsImages, ImageShards, TextShards, VolumeShards, ImageTable, ImageFolder, Parquet),
        *(Brats, BratsSlices, Source, LabelledText, Tabular, LocalText),
    )
}

TABLES = (ImageTable, LabelledText, Tabular)  # whose target a column is
LOOKS = 8  # files of a folder of texts that are looked into

EMBEDDED = Digits(size=16)  # for a project without data of its own


def of_path(place: Path, *, target: str | None = None) -> DataSource:
    """Return the dataset at a path: a folder of images or texts, Parquet files, a table, or a text; with a `target`, a
    table of which this column is predicted.

    Raises `DataError` for anything else, and for documents in lines of JSON, which become shards first.
    """
    if not place.exists():
        raise DataError(f"{place}: there is no such file or directory")
    if target is not None:
        return _table_at(place, target)
    sources = (kind.of_path(place) for kind in DATASETS.values())
    source = next((source for source in sources if source is not None), None)
    if source is None or isinstance(source, LocalText):
        _refuse_lines(place)
    if source is None:
        raise DataError(
            f"{place}: found no data that can be read: expected a folder with a folder of images (PNG, JPEG, WebP) for"
            " each class, Parquet files with a column of images, a table (CSV), a text file, or a folder of text files"
        )
    return source


def _table_at(place: Path, target: str) -> DataSource:
    """Return the table at a path, with the column to predict."""
    for kind in TABLES:
        if (source := kind.of_path(place, target)) is not None:
            return source
    raise DataError(
        f"{place}: found no table, so no column {target!r:.80} to predict: expected a CSV or Parquet file, or a folder"
        " with metadata.csv"
    )


def _refuse_lines(place: Path) -> None:
    """Raise `DataError` for documents in lines of JSON: as a text, their keys and quotes would be learned too."""
    there = listed(place) if place.is_dir() else [LocalFile(name=place.name, path=place)] * place.is_file()
    files = [file for file in there if file.fault is None]  # opening a pipe would block
    first = ""
    if not any(file.name.endswith(LINES) for file in files):
        texts = [file for file in files if file.name.endswith(SUFFIXES)]
        if not any(map(_has_lines, texts[:LOOKS])):
            return
        first = "give the file a name that ends in .jsonl, then "
    here, named = Path.cwd(), place.with_suffix(".jsonl") if first and place.is_file() else place
    path = shlex.quote(str(named.relative_to(here) if named.is_relative_to(here) else named))
    raise DataError(
        f"{place}: found documents in lines of JSON, expected a text: {first}make shards of them,"
        f" `explorer data shard {path} shards --context 128` (and --param text=KEY if their text is not under 'text'),"
        " then `explorer init shards`"
    )


def _has_lines(file: LocalFile) -> bool:
    """Return whether the first two lines of a file are objects in JSON."""
    try:
        with file.path.open("rb") as lines:
            first = [json.loads(line) for line in (lines.readline(MAX_LINE), lines.readline(MAX_LINE))]
    except (OSError, ValueError, RecursionError):
        return False
    return all(isinstance(value, dict) for value in first)


def load(source: DataSource, data: Path | None) -> Dataset:
    """Load the dataset. It stays in memory for later runs of this process, as long as its content has the same
    digest."""
    return _loaded(source, data, source.digest(data))


@lru_cache(maxsize=2)
def _loaded(source: DataSource, data: Path | None, digest: str) -> Dataset:
    return source.load(data)

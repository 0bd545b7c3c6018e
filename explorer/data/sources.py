"""The table of datasets. A new one needs its file and a line here."""

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
from explorer.data.mds import MdsImages
from explorer.data.parquet import Parquet
from explorer.data.shards.image_shards import ImageShards
from explorer.data.shards.text_shards import TextShards
from explorer.data.shards.volume_shards import VolumeShards
from explorer.data.source import Source
from explorer.data.tabular import Tabular
from explorer.data.text import LocalText
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

EMBEDDED = Digits(size=16)  # for a project without data of its own


def of_path(place: Path) -> DataSource:
    """Return the dataset at a path: a folder of images or texts, Parquet files, a table, or a text.

    Raises `DataError` for anything else.
    """
    if not place.exists():
        raise DataError(f"{place}: there is no such file or directory")
    for kind in DATASETS.values():
        source = kind.of_path(place)
        if source is not None:
            return source
    raise DataError(
        f"{place}: found no data that can be read: expected a folder with a folder of images (PNG, JPEG, WebP) for each"
        " class, Parquet files with a column of images, a table (CSV), a text file, or a folder of text files"
    )


def load(source: DataSource, data: Path | None) -> Dataset:
    """Load the dataset. It stays in memory for later runs of this process, as long as its content has the same
    digest."""
    return _loaded(source, data, source.digest(data))


@lru_cache(maxsize=2)
def _loaded(source: DataSource, data: Path | None, digest: str) -> Dataset:
    return source.load(data)

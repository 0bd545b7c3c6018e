"""The table of datasets. A new one needs its file and a line here."""

from functools import lru_cache
from pathlib import Path

from explorer.data.cifar10 import Cifar10
from explorer.data.clutter import Clutter
from explorer.data.clutter3d import Clutter3d
from explorer.data.dataset import Dataset, DataSource
from explorer.data.digits import Digits
from explorer.data.imagefolder import ImageFolder
from explorer.data.parquet import Parquet
from explorer.data.source import Source
from explorer.data.text import LocalText

DATASETS: dict[str, type[DataSource]] = {
    source.name: source for source in (Cifar10, Clutter, Clutter3d, Digits, ImageFolder, Parquet, Source, LocalText)
}


def load(source: DataSource, data: Path | None) -> Dataset:
    """Load the dataset. It stays in memory for later runs of this process, as long as its content has the same
    digest."""
    return _loaded(source, data, source.digest(data))


@lru_cache(maxsize=2)
def _loaded(source: DataSource, data: Path | None, digest: str) -> Dataset:
    return source.load(data)

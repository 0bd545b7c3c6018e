"""Shards for tests: digits as arrays, and photographs as JPEG."""

from pathlib import Path

import numpy as np

from explorer.data.dataset import DataSource
from explorer.data.digits import Digits
from explorer.data.imagefolder import ImageFolder
from explorer.data.shards.shard_files import ShardFiles
from explorer.data.shards.shard_index import Index, Layout
from explorer.data.shards.shard_material import material_of
from explorer.data.shards.shard_writer import write_shards
from explorer.objects import Objects, open_objects
from tests.data.photos import encoded, picture

DIGITS = Digits(simulated_classes=3, examples=120)
FEW = 1_024  # bytes of a shard: sixteen digits


def write(
    source: DataSource, place: Path | str, *, data: Path | None = None, shard_bytes: int = FEW, threads: int = 2
) -> Index:
    return write_shards(material_of(source, data), open_objects(str(place)), shard_bytes=shard_bytes, threads=threads)


def files_of(place: Path) -> dict[str, bytes]:
    return {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def opened(objects: Objects, index: Index, *, memory: int = 2**26, cache: object = None) -> ShardFiles:
    return ShardFiles(objects, Layout(index.train), cache=cache, memory=memory)  # pyright: ignore[reportArgumentType]


def smooth(seed: int, *, width: int = 48, height: int = 40) -> np.ndarray:
    """A picture without sharp edges, which survives JPEG."""
    coarse = picture(seed, width=6, height=5).astype(float)
    rows = np.linspace(0, 4.999, height).astype(int)
    columns = np.linspace(0, 5.999, width).astype(int)
    return coarse[rows][:, columns].astype(np.uint8)


def folder(root: Path, *, train: int = 12, test: int = 4, damaged: bool = False) -> ImageFolder:
    """Photographs in two classes below `root`/photos, each side in a folder of its own."""
    for side, count in (("train", train), ("test", test)):
        for number in range(count):
            path = root / "photos" / side / ("cat" if number % 2 else "dog") / f"{number:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encoded(smooth(number + (1_000 if side == "test" else 0)), "JPEG", quality=90))
    if damaged:
        whole = (root / "photos/train/cat/001.jpg").read_bytes()
        (root / "photos/train/cat/999.jpg").write_bytes(whole[: len(whole) // 2])
    return ImageFolder(path="photos", size=16)

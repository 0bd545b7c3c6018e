"""Read and decode the photographs of `benchmarks/data.py` with a loader, and print how many it gives in a second.

    python benchmarks/data_peers.py shards|folder|mds DIR COUNT    mds: with mosaicml-streaming installed

shards: Explorer's, by its own threads
folder: torch's DataLoader over the files, with a worker for each core
mds: mosaicml-streaming's dataset over a copy in its format, by torch's DataLoader with a worker for each core

All of them cut a random rectangle out of each image, of a quarter to all of its area, and bring it to 128 pixels a side
with the same filter. Each begins anew; the images of the first batches, in which workers start, are not counted.
"""

import importlib.util
import io
import json
import math
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from options import options, whole
from PIL import Image

SIZE, BATCH, WARM = 128, 64, 8


def cut(content: bytes) -> np.ndarray:
    """Decode an image and cut out a rectangle, as a transform of the usual libraries does."""
    with Image.open(io.BytesIO(content)) as image:
        picture = image.convert("RGB")
    width, height = picture.size
    share, shape = random.uniform(0.25, 1), math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
    wide, high = (
        min(side, math.sqrt(share * width * height * of)) for side, of in ((width, shape), (height, 1 / shape))
    )
    left, upper = random.uniform(0, width - wide), random.uniform(0, height - high)
    part = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=(left, upper, left + wide, upper + high))
    if random.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(part).transpose(2, 0, 1)


class Folder(torch.utils.data.Dataset[tuple[np.ndarray, int]]):
    """Files below a directory."""

    def __init__(self, root: Path) -> None:
        self._paths = sorted(root.glob("train/*/*.jpg"))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return cut(self._paths[index].read_bytes()), int(self._paths[index].parent.name)


def loader(dataset: Any, *, shuffle: bool) -> Iterable[Any]:
    return torch.utils.data.DataLoader(dataset, batch_size=BATCH, shuffle=shuffle, num_workers=os.cpu_count() or 1)


def without_torchvision() -> None:
    """Let mosaicml-streaming be imported without torchvision, which nothing that is timed uses."""
    if importlib.util.find_spec("torchvision") is None:
        for name in (
            "torchvision",
            "torchvision.datasets",
            "torchvision.transforms",
            "torchvision.transforms.functional",
        ):
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__spec__ = ModuleSpec(name, None)
        for name, value in (("VisionDataset", object), ("to_tensor", None), ("ToTensor", object)):
            for module in list(sys.modules):
                if module.startswith("torchvision"):
                    setattr(sys.modules[module], name, value)


def mds(root: Path) -> Iterable[Any]:
    without_torchvision()
    from streaming import StreamingDataset  # pyright: ignore[reportMissingImports]

    class Photographs(StreamingDataset):  # pyright: ignore[reportUntypedBaseClass]
        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            row = super().__getitem__(index)
            return cut(row["image"]), row["label"]

    return loader(Photographs(local=str(root / "mds"), shuffle=True, batch_size=BATCH), shuffle=False)


def write_mds(root: Path) -> None:
    """Write the photographs in the format of mosaicml-streaming."""
    without_torchvision()
    from streaming import MDSWriter  # pyright: ignore[reportMissingImports]

    with MDSWriter(out=str(root / "mds"), columns={"image": "bytes", "label": "int"}, size_limit=2**26) as out:
        for path in sorted((root / "photos").glob("train/*/*.jpg")):
            out.write({"image": path.read_bytes(), "label": int(path.parent.name)})


def shards(root: Path) -> Iterator[Any]:
    from explorer.data.batches import Batches
    from explorer.data.read_ahead import ReadAhead, Wanted
    from explorer.data.shards.image_shards import ImageShards

    dataset = ImageShards(path="shards", size=SIZE).load(root)
    batches = Batches(dataset, batch_size=BATCH, seed=0, device=torch.device("cpu"))
    ahead = ReadAhead(batches, lambda part, start, end: None)

    def wanted(step: int) -> Wanted:
        batches.expect(step)
        return Wanted(step, batches.indices(step), np.arange(BATCH))

    ahead.start(lambda: wanted(0))
    step = 0
    while True:
        rows = ahead.take(wanted(step))
        step += 1
        ahead.start(lambda step=step: wanted(step))
        yield rows


def main() -> None:
    torch.set_num_threads(1)
    parser = options(__doc__)
    parser.add_argument("kind", choices=("shards", "folder", "mds", "write-mds"))
    parser.add_argument("root", type=Path, metavar="DIR")
    parser.add_argument("count", type=whole(BATCH), metavar="COUNT", nargs="?", default=BATCH, help="of images")
    given = parser.parse_args()
    kind, root = given.kind, given.root
    if kind == "write-mds":
        write_mds(root)
        return
    source = {"shards": shards, "folder": lambda root: loader(Folder(root / "photos"), shuffle=True), "mds": mds}[kind]
    steps = given.count // BATCH
    begun = 0.0
    for step, _ in enumerate(source(root)):
        if step == WARM:
            begun = time.perf_counter()
        if step == WARM + steps:
            break
    print(json.dumps({"images_per_second": steps * BATCH / (time.perf_counter() - begun)}), flush=True)
    os._exit(0)  # without waiting for workers that still read ahead


if __name__ == "__main__":
    main()

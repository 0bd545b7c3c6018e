"""Measure shards: memory, waiting, decoding beside other loaders, resuming, and the start with many shards.

    python benchmarks/data.py [--gigabytes 5] [--peer PYTHON] [--part NAME]      writes benchmarks/data.md

PYTHON is that of an environment with mosaicml-streaming, for the comparison with it. Photographs are synthetic JPEGs of
about 50 kB; of every 2,000, all others are the same ones with other comments, so that no two files are equal.
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from options import options, verdict
from pages import write_page
from PIL import Image

from explorer import canonical, run_files, rundir
from explorer.data.batches import Batches
from explorer.data.imagefolder import ImageFolder
from explorer.data.shards import shard_cache, shard_table
from explorer.data.shards.image_shards import ImageShards
from explorer.data.shards.shard_index import Index, Inputs, Labels, Origin, Shard, Side, SideName, content_of, name_of
from explorer.data.shards.shard_material import material_of
from explorer.data.shards.shard_writer import write_shards
from explorer.data.shards.text_shards import TextShards
from explorer.objects import open_objects
from explorer.run_files import ResultRecord
from explorer.runlog.documents import TABLE_FILE
from explorer.training.governed_project import DIRECTORY, NAME, begin_governed

HERE = Path(__file__).resolve().parent
DIFFERENT, WIDTH, HEIGHT, CLASSES = 2_000, 400, 320, 10
CACHE = 300_000_000
ROUNDS, IMAGES = 5, 3_200
MANY_TAGS = ("licensed/a", "licensed/b")
WAIT, FLAT, START = "at most 3.0", "at most 1.10", "at most 3.0"


# --- the photographs ---


def picture(seed: int) -> bytes:
    """Return a JPEG of about 50 kB: smooth colours with some grain."""
    draws = np.random.default_rng(seed)
    coarse = Image.fromarray(draws.integers(0, 256, (10, 12, 3), dtype=np.uint8)).resize(
        (WIDTH, HEIGHT), Image.Resampling.BICUBIC
    )
    grain = draws.normal(0, 14, (HEIGHT, WIDTH, 1))
    content = io.BytesIO()
    Image.fromarray((np.asarray(coarse) + grain).clip(0, 255).astype(np.uint8)).save(content, "JPEG", quality=85)
    return content.getvalue()


def photographs(root: Path, *, size: float) -> int:
    """Write JPEG files of that many bytes below `root`/photos; return how many."""
    pictures = [picture(seed) for seed in range(DIFFERENT)]
    count = int(size / np.mean([len(content) for content in pictures]))
    for number in range(count + DIFFERENT // 10):
        side = "train" if number < count else "val"
        path = root / "photos" / side / str(number % CLASSES) / f"{number:07d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = pictures[number % DIFFERENT]
        comment = f"{number:08d}".encode()
        path.write_bytes(content[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + content[2:])
    return count


def written(root: Path) -> float:
    """Write the shards; return the megabytes in a second."""
    begun = time.perf_counter()
    material = material_of(ImageFolder(path="photos", size=32), root)
    index = write_shards(
        material, open_objects(str(root / "shards")), shard_bytes=4_000_000, threads=os.cpu_count() or 1
    )
    return sum(shard.bytes for shard in index.train.shards + index.test.shards) / 1e6 / (time.perf_counter() - begun)


# --- parts ---


def through_a_cache(root: Path) -> Iterator[str]:
    """One epoch of reading, in the order of training, through a cache that holds a fraction of the data."""
    os.environ[shard_cache.VARIABLE] = str(CACHE)
    os.environ["EXPLORER_CACHE"] = str(root / "cache")
    dataset = ImageShards(path="shards", size=128).load(root)
    batches = Batches(dataset, batch_size=256, seed=0, device=torch.device("cpu"))
    steps = len(dataset.train) // 256
    memory, cached = [], []
    begun = time.perf_counter()
    for step in range(steps):
        batches.expect(step)
        batches.read(batches.indices(step))
        if step % max(1, steps // 100) == 0:
            memory.append(_resident())
            cached.append(_held(root / "cache"))
    took = time.perf_counter() - begun
    steady = memory[len(memory) // 5 :]
    ratio = max(steady) / min(steady)
    size = sum(shard.bytes for shard in dataset.files.layout.shards)  # pyright: ignore[reportAttributeAccessIssue]
    yield (
        f"- *Memory*: {size / 1e9:.2f} GB in {len(dataset.train):,} JPEGs and"
        f" {len(dataset.files.layout.shards):,} shards, once in the order of training, through a cache of"  # pyright: ignore[reportAttributeAccessIssue]
        f" {CACHE / 1e6:.0f} MB: resident memory from {min(steady):.0f} to {max(steady):.0f} MB after the first fifth,"
        f" a ratio of {ratio:.2f} ({verdict(ratio, FLAT)}). The cache held {max(cached) / 1e6:.0f} MB at most."
        f" {size / 1e6 / took:.0f} MB a second were fetched, verified and parsed, and written to the cache."
    )
    del os.environ[shard_cache.VARIABLE]


def _held(directory: Path) -> int:
    """Return the bytes of the shards in a cache that changes meanwhile."""
    size = 0
    for path in directory.glob("shards/*/[0-9a-f]*"):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def beside_others(root: Path, peer: Path | None) -> Iterator[str]:
    """Images a second of each loader, interleaved."""
    kinds = {"shards": sys.executable, "folder": sys.executable}
    if peer is not None:
        kinds["mds"] = str(peer)
        if not (root / "mds").exists():
            subprocess.run([str(peer), str(HERE / "data_peers.py"), "write-mds", str(root)], check=True)
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(ROUNDS):
        for kind, python in kinds.items():
            command = [python, str(HERE / "data_peers.py"), kind, str(root), str(IMAGES)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rates[kind].append(json.loads(done.stdout.splitlines()[-1])["images_per_second"])
            print(kind, f"{rates[kind][-1]:.0f}", flush=True)
    ratios = {
        kind: [ours / theirs for ours, theirs in zip(rates["shards"], rates[kind], strict=True)] for kind in kinds
    }
    yield (
        f"- *Decoding*, on {os.cpu_count()} cores, random parts brought to 128 pixels, {IMAGES:,} images a round,"
        f" {ROUNDS} rounds in turns, medians (and the least and the largest ratio):"
    )
    yield ""
    yield "| loader | images a second | ours over it |"
    yield "|---|---|---|"
    names = {"shards": "Explorer", "folder": "torch DataLoader, files", "mds": "mosaicml-streaming"}
    for kind in kinds:
        ratio = (
            ""
            if kind == "shards"
            else f"{median(ratios[kind]):.2f} ({min(ratios[kind]):.2f} to {max(ratios[kind]):.2f})"
        )
        yield f"| {names[kind]} | {median(rates[kind]):,.0f} | {ratio} |"
    if peer is None:
        yield "| mosaicml-streaming | not measured: no environment with it was given | |"
    yield ""


def trained(
    root: Path, task: dict[str, Any], *, steps: int, batch: int, examples: int, threads: int = 1
) -> ResultRecord:
    """Train a few steps by the command line; return the result."""
    recipe = root / "recipe.yaml"
    epochs = steps * batch / examples
    train = {"epochs": epochs, "batch_size": batch, "optimizer": {"sgd": {"lr": 0.01}}}
    recipe.write_text(json.dumps({"task": task, "train": train}))
    runs = Path(tempfile.mkdtemp(dir=root))
    command = [sys.executable, "-m", "explorer", "run", str(recipe), "--data", str(root), "--runs", str(runs)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": str(threads)})
    (found,) = runs.glob("*/*/" + rundir.RESULT)
    return run_files.read(ResultRecord, found)


def tokens(root: Path) -> bool:
    """Write shards of the text in EXPLORER_DATA, in 2,000 tokens of its own; return whether it is there."""
    given = os.environ.get("EXPLORER_DATA")
    text = Path(given or "nowhere") / "tinyshakespeare"
    if text.exists() and not (root / "text").exists():
        speeches = (text / "input.txt").read_text().split("\n\n")
        (root / "speeches").mkdir()
        for start in range(0, len(speeches), 40):  # documents, some of which are the test side
            (root / "speeches" / f"{start:05d}.txt").write_text("\n\n".join(speeches[start : start + 40]))
        made = ["data", "shard", str(root / "speeches"), str(root / "text"), "--vocabulary", "2000", "--context", "256"]
        command = [sys.executable, "-m", "explorer", *made, "--shard-bytes", "100000"]
        subprocess.run(command, check=True, capture_output=True)
    return text.exists()


def waiting(root: Path) -> Iterator[str]:
    """The share of a step that training waits for its rows."""
    count = len(ImageShards(path="shards").load(root).train)
    tasks = {
        "ResNet-20 at 32 px, JPEGs": (
            {"dataset": {"image_shards": {"path": "shards"}}, "model": "resnet20"},
            128,
            count,
        )
    }
    if tokens(root):
        blocks = len(TextShards(path="text").load(root).train)
        tasks["gpt-small, tokens"] = ({"dataset": {"text_shards": {"path": "text"}}, "model": "gpt-small"}, 4, blocks)
    for name, (task, batch, examples) in tasks.items():
        result = trained(root, task, steps=40 if batch > 4 else 12, batch=batch, examples=examples)
        share = 100 * result.timings.wait / result.timings.training()
        step = _milliseconds(result)
        yield f"- *Waiting*: {name}: {share:.1f}% of a step of {step:.0f} ms ({verdict(share, WAIT, decimals=1)})."


def _milliseconds(result: ResultRecord) -> float:
    return 1e3 * result.timings.training() / result.timed_steps


def resuming(root: Path) -> Iterator[str]:
    """The rows of steps in mid-epoch, by loaders that began there, and by any number of ranks."""
    source = ImageShards(path="shards", size=64, window=4)

    def digests(steps: range) -> dict[int, str]:
        batches = Batches(source.load(root), batch_size=64, seed=3, device=torch.device("cpu"))
        rows = {}
        for step in steps:
            inputs, labels = batches.read(batches.indices(step))
            pixels = batches.augment(inputs, step, np.arange(len(labels)))
            rows[step] = hashlib.sha256(pixels.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
        return rows

    whole_ = digests(range(120))
    begins = (37, 71, 115)
    equal = sum(digests(range(at, at + 5)) == {step: whole_[step] for step in range(at, at + 5)} for at in begins)
    yield (
        "- *Resuming*: loaders that began in steps 37, 71 and 115 gave the same rows as one that began at 0:"
        f" {equal} of 3. Runs that were killed, and went on with other numbers of ranks, end with the same digests"
        " (`tests/data/shards/test_shard_ranks.py`)."
    )


def write_many(place: Path) -> None:
    """Write 10,000 shards of 128 examples each, half of them of either of two provenance classes."""
    content = io.BytesIO()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(content, "PNG")
    rows = 128

    def made(tag: str) -> tuple[bytes, str, str]:
        columns = {
            "input": pa.array([content.getvalue()] * rows, pa.binary()),
            "label": pa.array([n % CLASSES for n in range(rows)], pa.int64()),
            "slot": pa.array(range(rows), pa.int64()),
            "tag": pa.array([tag] * rows),
        }
        table = pa.table(columns)
        shard = shard_table.encode(table)
        return shard, hashlib.sha256(shard).hexdigest(), shard_table.root_of(table)

    sides = {}
    numbers: tuple[tuple[SideName, int, tuple[str, ...]], ...] = (("train", 10_000, MANY_TAGS), ("test", 2, ("",)))
    for side, number, tags in numbers:
        (place / side).mkdir(parents=True)
        kinds = [made(tag) for tag in tags]
        shards = []
        for n in range(number):
            shard, digest, root = kinds[n % len(tags)]
            name, tag = name_of(side, n), tags[n % len(tags)] or None
            (place / name).write_bytes(shard)
            shards.append(Shard(name=name, rows=rows, bytes=len(shard), sha256=digest, root=root, tag=tag))
        sides[side] = Side(shards=tuple(shards), labels=(rows * number // CLASSES,) * CLASSES)
    origin = Origin(dataset="synthetic", digest=canonical.digest("synthetic"), licence="none")
    index = Index(
        format="explorer-shards/1",
        modality="image",
        task="classification",
        inputs=Inputs(encoding="image"),
        labels=Labels(),
        classes=CLASSES,
        origin=origin,
        **sides,
    )
    (place / "index.json").write_bytes(content_of(index))


def seconds_of(code: str) -> list[float]:
    """Return the medians of the numbers that the code prints, each time in a process of its own."""
    times = []
    for _ in range(ROUNDS):
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        times.append([float(word) for word in done.stdout.split()])
    return [median(column) for column in zip(*times, strict=True)]


def many_shards(root: Path) -> Iterator[str]:
    """The time from the start of a process to the end of its first step, with 10,000 shards."""
    if not (root / "many").exists():
        write_many(root / "many")
    took, imports = seconds_of(
        "import time; begun = time.perf_counter()\n"
        "import torch, numpy as np\n"
        "from pathlib import Path\n"
        "from explorer.data.batches import Batches\n"
        "from explorer.data.shards.image_shards import ImageShards\n"
        "imported = time.perf_counter()\n"
        f"dataset = ImageShards(path='many').load(Path({str(root)!r}))\n"
        "batches = Batches(dataset, batch_size=128, seed=0, device=torch.device('cpu'))\n"
        "batches.augment(batches.read(batches.indices(0))[0], 0, np.arange(128))\n"
        "print(time.perf_counter() - imported, imported - begun)\n"
    )
    yield (
        f"- *Start*: 10,000 shards with 1,280,000 examples: the rows of the first step are there {took:.2f} s after"
        f" imports ({verdict(took, START)}), which take {imports:.1f} s."
    )


def governed_many(root: Path) -> Iterator[str]:
    """What the tags of all these examples cost: once to make them, and in each run to check them."""
    project = root / "project"
    shutil.rmtree(project, ignore_errors=True)
    project.mkdir()
    task = {"dataset": {"image_shards": {"path": "many", "size": 32}}, "model": "resnet8"}
    train = {"epochs": 0.001, "batch_size": 128, "optimizer": {"sgd": {"lr": 0.1}}}
    begun = time.perf_counter()
    begin_governed(project, task, train, data=root, now=int(time.time()))
    tagging = time.perf_counter() - begun
    documents = project / DIRECTORY
    size = (documents / TABLE_FILE).stat().st_size
    (checking,) = seconds_of(
        "import time\n"
        "from pathlib import Path\n"
        "from explorer.data.shards.image_shards import ImageShards\n"
        "from explorer.governance.credentials import check\n"
        "from explorer.runlog.documents import read_documents\n"
        f"examples = ImageShards(path='many', size=32).load(Path({str(root)!r})).train\n"
        "begun = time.perf_counter()\n"
        f"check(read_documents(Path({str(documents)!r}), policy={NAME!r}, now=int(time.time())), examples)\n"
        "print(time.perf_counter() - begun)\n"
    )
    yield (
        f"- *Governed*: tagging the same examples takes {tagging:.0f} s once; their signed table has"
        f" {size / 1e6:.0f} MB, and checking it {checking:.1f} s. No row is read for it: each is compared with its tag"
        " when its shard is opened."
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0, help="of photographs")
    parser.add_argument("--peer", type=Path, help="Python with mosaicml-streaming")
    parser.add_argument("--keep", type=Path, help="directory of the data, kept for another time")
    given = parser.parse_args()
    root = given.keep or Path(tempfile.mkdtemp())
    lines = [
        "# Data that does not fit",
        "",
        "Synthetic JPEGs of about 50 kB in shards of 4 MB on the disk of this machine. Made by `benchmarks/data.py"
        " --peer PYTHON`, which times the loaders in turns, each in a process of its own.",
        "",
    ]
    if not (root / "photos").exists():
        photographs(root, size=given.gigabytes * 1e9)
    if not (root / "shards" / "index.json").exists():
        lines.append(f"- *Writing*: {written(root):.0f} MB a second, each image decoded once to see that it can be.")
    parts: tuple[Callable[[Path], Iterator[str]], ...] = (
        through_a_cache,
        lambda root: beside_others(root, given.peer),
        waiting,
        resuming,
        many_shards,
        governed_many,
    )
    for part in parts:
        for line in part(root):
            print(line, flush=True)
            lines.append(line)
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    if given.keep is None:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()

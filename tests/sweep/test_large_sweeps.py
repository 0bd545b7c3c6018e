"""The sweep files for data that does not fit into memory, on small data of the same layout: from files to results."""

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from explorer.bundled import notebook_directory
from explorer.run_files import ResultRecord
from explorer.sweep.execute import Settings, run_sweep
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import SweepSpec, load_spec
from tests.cli.command import explorer
from tests.data.photos import encoded
from tests.data.shards.mds_writer import write_mds
from tests.data.shards.written import smooth
from tests.sweep.sweeps import results

pytestmark = [pytest.mark.slow, pytest.mark.notebook]

CLASSES = ("n01440764", "n01443537", "n01484850")  # tench, goldfish, great white shark


def photographs(side: str) -> list[tuple[str, int, bytes]]:
    """Three classes of JPEGs of many sizes: name, class and content of each."""
    return [
        (f"{CLASSES[n % 3]}_{n}.JPEG", n % 3, encoded(smooth(n, width=60 + n, height=80 - n), "JPEG"))
        for n in (range(24) if side == "train" else range(30, 36))
    ]


def folders(root: Path) -> None:
    for side in ("train", "val"):
        for name, label, content in photographs(side):
            path = root / side / CLASSES[label] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def parquet(root: Path) -> None:
    (root / "data").mkdir(parents=True)
    for side, called in (("train", "train-00000-of-00001"), ("val", "validation-00000-of-00001")):
        rows = photographs(side)
        images = [{"bytes": content, "path": name} for name, _, content in rows]
        table = pa.table({"image": images, "label": [label for _, label, _ in rows]})
        pq.write_table(table, root / "data" / f"{called}.parquet")


def mds(root: Path) -> None:
    for side in ("train", "val"):
        samples = [{"x": content, "y": label} for _, label, content in photographs(side)]
        write_mds(root / side, {"x": "jpeg", "y": "int"}, samples, hashes=("sha1",))


def shipped(name: str) -> SweepSpec:
    return load_spec(notebook_directory() / "sweeps" / f"{name}.yaml")


def small(name: str, model: Any, **train: Any) -> dict[str, Any]:
    """A sweep file with models and a length that two cores can train; the rest is the file's."""
    spec = copy.deepcopy(dict(shipped(name).content))
    spec["task"]["model"] = model
    for recipe in spec["recipes"].values():
        if isinstance(recipe, dict) and "model" in recipe:
            recipe["model"] = {"resnet14": {"width": 0.5}}
    spec["train"] |= {"precision": "fp32", **train}
    return spec | {"budgets": [1.0], "seeds": [0]}


def trained(spec: dict[str, Any], data: Path) -> dict[str, ResultRecord]:
    """Execute a sweep; return the result of every run."""
    planned = make_plan(load_spec(spec), runs=data / "runs", data=data)
    done = run_sweep(planned, Settings(engine="inline", workers=1, profile=False))
    assert done.complete and done.executed == 3
    return results(data / "runs", spec["name"])


@pytest.mark.parametrize("layout", [folders, parquet, mds])
def test_imagenet(tmp_path: Path, layout: Any) -> None:
    layout(tmp_path / "source")
    explorer("data", "shard", tmp_path / "source", tmp_path / "imagenet", "--shard-bytes", "20000")
    spec = small("imagenet", {"resnet8": {"width": 0.5}}, epochs=1, batch_size=6)
    spec["task"]["dataset"]["image_shards"]["size"] = 32
    runs = trained(spec, tmp_path)
    assert all({"accuracy", "nll"} <= result.metrics.keys() for result in runs.values())
    assert len({result.state_digest for result in runs.values()}) == 3


@pytest.mark.parametrize(("name", "model", "size"), [("brats", "unet3d", 16), ("brats-slices", "unet", 32)])
def test_brats(tmp_path: Path, name: str, model: str, size: int) -> None:
    scans = pytest.importorskip("tests.data.scans")
    scans.brats(tmp_path / "source")
    parameters = ("--param", "path=brats", "--param", f"size={size}", "--param", "provenance=folders")
    words = ("data", "shard", name.replace("-", "_"), tmp_path / name, *parameters, "--data", tmp_path / "source")
    assert explorer(*words, "--shard-bytes", "20000").returncode == 0
    spec = small(name, {model: {"width": 8, "levels": 3}}, epochs=0.25 if model == "unet" else 2, batch_size=2)
    if model == "unet":
        spec["task"]["dataset"]["image_shards"]["size"] = size
    for result in trained(spec, tmp_path).values():
        assert {"mean_iou", "dice", "pixel_accuracy"} <= result.metrics.keys()
        assert 0 <= result.metrics["dice"] <= 1


def test_each_plans_as_it_is(tmp_path: Path) -> None:
    scans = pytest.importorskip("tests.data.scans")
    scans.brats(tmp_path / "source")
    folders(tmp_path / "photographs")
    explorer("data", "shard", tmp_path / "photographs", tmp_path / "imagenet")
    for name, size in (("brats", 16), ("brats-slices", 128)):  # the size of pictures is in the file
        words = (name.replace("-", "_"), tmp_path / name, "--param", "path=brats", "--param", f"size={size}")
        assert explorer("data", "shard", *words, "--data", tmp_path / "source").returncode == 0
    for name in ("imagenet", "brats", "brats-slices"):
        planned = make_plan(shipped(name), runs=tmp_path / "runs", data=tmp_path)
        assert len(planned.runs) == 27

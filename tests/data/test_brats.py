"""Scans in NIfTI files: what becomes of them, and what is refused of them."""

import gzip
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from explorer.data.brats import Brats, Cases, cases_in, read_nifti
from explorer.data.brats_slices import BratsSlices
from explorer.data.clutter import Pictures, Volumes
from explorer.data.local import LocalFile
from explorer.data.shards.image_shards import ImageShards
from explorer.data.shards.volume_shards import VolumeShards
from explorer.data.sources import of_path
from explorer.errors import DataError
from explorer.testing import DatasetContract
from tests.cli.command import explorer
from tests.data.scans import BOX, SCANS, SHAPE, brats, case, save
from tests.data.shards.written import write

VOLUMES = Brats(path="brats", size=16, provenance="folders")
SLICES = BratsSlices(path="brats", size=16)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    brats(tmp_path)
    return tmp_path


def file(path: Path) -> LocalFile:
    return LocalFile(name=path.name, path=path)


def test_they_keep_the_contract_of_datasets(data: Path) -> None:
    for source, name in ((VOLUMES, "unet3d"), (SLICES, "unet")):
        facts = {"source": source, "data": data, "model": {name: {"width": 8, "levels": 3}}}
        assert type("Contract", (DatasetContract,), facts)().certify() == {}


def test_a_brain_is_cut_out_scaled_and_put_in_the_middle(data: Path) -> None:
    dataset = VOLUMES.load(data)
    assert isinstance(dataset, Volumes) and (len(dataset.train), len(dataset.test)) == (4, 1)
    inputs, labels = dataset.train.inputs[0], dataset.train.labels[0]
    assert inputs.shape == (4, 16, 16, 16) and labels.shape == (16, 16, 16)
    # The brain is 20 x 12 x 10 voxels: 16 x 10 x 8 of them, that is 8 slices of 10 rows of 16.
    there = (inputs > 0).any(0)
    spans = [there.any(tuple(o for o in range(3) if o != axis)).nonzero().flatten().tolist() for axis in range(3)]
    assert spans == [[*range(4, 12)], [*range(3, 13)], [*range(16)]]
    assert labels.unique().tolist() == [0, 1, 2, 3]
    bright = inputs[0][labels == 3].float().mean(), inputs[0][(labels == 0) & there].float().mean()
    assert bright[0] > 3 * bright[1]
    assert inputs.max() == 255


def test_voxels_are_clipped_to_the_percentiles_of_the_brain(tmp_path: Path) -> None:
    case(tmp_path, "one")
    image = np.zeros(SHAPE, np.float32)
    values = np.random.default_rng(0).normal(500, 50, image[BOX].shape).astype(np.float32)
    values[0, 0, 0], values[1, 1, 1] = 1e6, 1.0  # a bright and a dark spot
    image[BOX] = values
    save(tmp_path / "one" / "one_t2.nii.gz", image)
    (one,), _ = cases_in(tmp_path)
    inputs, _ = Cases([one], 32)[0]
    low, high = np.percentile(values, (0.5, 99.5))
    brain = inputs[3][inputs[3] > 0].float()
    assert high < 1_000 and abs(float(brain.mean()) - 255 * (500 - low) / (high - low)) < 8  # the spots change nothing


def test_orientation_is_that_of_the_header(tmp_path: Path) -> None:
    voxels = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    save(tmp_path / "a.nii", voxels)
    save(tmp_path / "b.nii.gz", voxels[::-1, ::-1], np.diag([-1.0, -1.0, 1.0, 1.0]))
    one, other = read_nifti(file(tmp_path / "a.nii")), read_nifti(file(tmp_path / "b.nii.gz"))
    assert one.shape == (4, 3, 2) and (one == other).all() and one[3, 2, 1] == 23


def test_slices_are_those_of_the_volumes(data: Path) -> None:
    volumes, slices = VOLUMES.load(data), SLICES.load(data)
    assert isinstance(slices, Pictures) and len(slices.train) == 16 * len(volumes.train)
    assert torch.equal(slices.train.inputs[16 + 7], volumes.train.inputs[1][:, 7])
    assert torch.equal(slices.test.labels[:], volumes.test.labels[:].flatten(0, 1))


def test_provenance_is_the_folder_above_or_a_table(data: Path) -> None:
    dataset = VOLUMES.load(data)
    assert dataset.provenance is not None and dataset.provenance.classes == ("folders/hgg", "folders/lgg")
    (data / "classes.csv").write_text("path,class\n.,hospital/a\nLGG,hospital/b\n")
    told = Brats(path="brats", size=16, provenance="classes.csv").load(data)
    assert told.provenance is not None and told.provenance.classes == ("hospital/a", "hospital/b")
    assert told.provenance.codes.tolist() == dataset.provenance.codes.tolist()


def test_the_names_of_later_challenges(tmp_path: Path) -> None:
    case(tmp_path, "one", names=("t2f", "t1n", "t1c", "t2w"), labels=(1, 2, 3))
    for path in (tmp_path / "one").iterdir():
        path.rename(path.with_name(path.name.replace("_", "-")))
    case(tmp_path, "two", names=SCANS[:3])
    cases, skipped = cases_in(tmp_path)
    assert [found.name for found in cases] == ["one"] and skipped == ["two"]
    assert Cases(cases, 16)[0][1].unique().tolist() == [0, 1, 2, 3]


def test_from_a_directory_to_shards_of_volumes_and_of_slices(data: Path) -> None:
    assert of_path(data / "brats") == Brats(path="brats")
    words = ("brats", data / "deep", "--param", "path=brats", "--param", "size=16", "--data", data)
    made = explorer("data", "shard", *words)
    assert "volume_shards: {path: deep}" in made.stdout
    write(SLICES, data / "flat", data=data, shard_bytes=40_000)
    volumes, ours = VOLUMES.load(data), VolumeShards(path="deep").load(data)
    rows = {volumes.train.content(number) for number in range(4)}
    assert {ours.train.content(number) for number in range(4)} == rows
    slices = ImageShards(path="flat", size=16, channels=4, predict="pixels").load(data)
    assert {slices.train.content(n) for n in range(64)} == {SLICES.load(data).train.content(n) for n in range(64)}
    index = json.loads((data / "flat" / "index.json").read_bytes())
    assert sum(index["train"]["labels"]) == 64 * 16 * 16 and index["names"][3] == "enhancing tumour"


# --- hostile files ---------------------------------------------------------------------------------------------------


def patched(path: Path, offset: int, content: bytes) -> LocalFile:
    whole = bytearray(gzip.decompress(path.read_bytes()))
    whole[offset : offset + len(content)] = content
    path.write_bytes(gzip.compress(whole))
    return file(path)


@pytest.mark.parametrize(
    ("offset", "content", "message"),
    [
        (40, struct.pack("<4h", 3, 30_000, 30_000, 30_000), "declares the shape"),
        (40, struct.pack("<4h", 3, 2_000, 2_000, 2_000), "at most 67,108,864 voxels"),
        (40, struct.pack("<5h", 4, 24, 20, 16, 3), "expected three sides"),
        (40, struct.pack("<4h", 3, -24, 20, 16), "not a NIfTI file|declares the shape"),
        (40, struct.pack("<4h", 3, 0, 20, 16), "declares the shape"),
        (40, struct.pack("<4h", 3, 24, 20, 17), "not a NIfTI file"),  # more than the file has
        (70, struct.pack("<h", 128), "expected numbers"),  # colours
        (70, struct.pack("<h", 999), "not a NIfTI file"),
        (108, struct.pack("<f", 2**31), "expected numbers"),  # where the voxels begin
        (108, struct.pack("<f", float("nan")), "expected numbers"),
        (344, b"none", "not a NIfTI file"),
    ],
)
def test_headers_are_bounded_before_voxels_are_read(data: Path, offset: int, content: bytes, message: str) -> None:
    path = data / "brats/HGG/case_000/case_000_t1.nii.gz"
    assert read_nifti(file(path)).shape == SHAPE[::-1]
    with pytest.raises(DataError, match=message):
        read_nifti(patched(path, offset, content))


@pytest.mark.parametrize("content", [b"", b"no scan", gzip.compress(bytes(2**26)), b"\x1f\x8b damaged"])
def test_what_is_no_scan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.nii.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"x.nii.gz: (not a NIfTI file|its header declares)"):
        read_nifti(file(tmp_path / "x.nii.gz"))


def test_a_label_outside_the_classes_is_refused(data: Path) -> None:
    case(data / "brats", "HGG/case_000", labels=(1, 2, 7))
    with pytest.raises(DataError, match=r"case_000_seg.nii.gz: found the label 7: expected 0, 1, 2 and 4"):
        write(Brats(path="brats", size=16), data / "deep", data=data)
    assert not (data / "deep" / "index.json").exists()


def test_scans_that_do_not_fit_are_refused(data: Path) -> None:
    save(data / "brats/HGG/case_000/case_000_t1.nii.gz", np.ones((4, 4, 4), np.int16))
    (first, *_), _ = cases_in(data / "brats")
    with pytest.raises(DataError, match="scans of different shapes"):
        Cases([first], 16)[0]
    for scan in SCANS:
        save(data / f"brats/HGG/case_000/case_000_{scan}.nii.gz", np.zeros(SHAPE, np.int16))
    with pytest.raises(DataError, match="all voxels are 0"):
        Cases([first], 16)[0]
    save(data / "brats/HGG/case_000/case_000_t1.nii.gz", np.full(SHAPE, np.nan, np.float32))
    with pytest.raises(DataError, match="no finite numbers"):
        Cases([first], 16)[0]


def test_a_directory_without_cases(tmp_path: Path) -> None:
    case(tmp_path / "brats", "one", names=SCANS[:2])
    with pytest.raises(DataError, match=r"no case in .* \(found one, which lacks some\)"):
        Brats(path="brats").digest(tmp_path)
    case(tmp_path / "brats", "two")
    with pytest.raises(DataError, match="found 1 cases: expected one for each side"):
        Brats(path="brats").load(tmp_path)

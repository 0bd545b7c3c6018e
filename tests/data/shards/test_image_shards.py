"""Images in shards: decoding, the contract of a dataset, and runs on them."""

import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from explorer.data.batches import Batches
from explorer.data.images import Images
from explorer.data.shards import shard_files
from explorer.data.shards.image_shards import GONE, ImageShards, ImagesInShards, decode, middle, random_box
from explorer.data.sources import of_path
from explorer.data.streams import stream
from explorer.engine.loop import Loop
from explorer.errors import DataError
from explorer.recipes.choice import written
from explorer.recipes.recipe import build_recipe
from explorer.testing import DatasetContract, assert_resumes, assert_same, everything, loop_of, steps
from explorer.training.govern import blank
from tests.data.photos import bomb, encoded
from tests.data.shards.written import DIGITS, folder, smooth, write

ARRAYS = ImageShards(path="digits", size=8, channels=1, window=4)
JPEGS = ImageShards(path="jpegs", size=16, window=2)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(DIGITS, tmp_path / "digits")
    write(folder(tmp_path, damaged=True), tmp_path / "jpegs", data=tmp_path, shard_bytes=3_000)
    return tmp_path


def contract(data_: Path, source_: ImageShards, **more: Any) -> DatasetContract:
    return type("Contract", (DatasetContract,), {"source": source_, "data": data_, "model": "resnet8", **more})()


def test_they_keep_the_contract_of_datasets(data: Path) -> None:
    assert contract(data, ARRAYS).certify() == {}
    assert contract(data, JPEGS, other=dataclasses.replace(ARRAYS, path="digits")).certify() == {}


def test_arrays_are_those_of_the_dataset(data: Path) -> None:
    shards, memory = ARRAYS.load(data), DIGITS.load(None)
    for ours, theirs in ((shards.train, memory.train), (shards.test, memory.test)):
        mine = sorted(ours.content(number) for number in range(len(ours)))
        assert mine == sorted(theirs.content(number) for number in range(len(theirs)))
    assert shards.provenance is not None and shards.provenance.simulated
    assert shards.provenance.sources[17] == "train/000001.parquet"
    assert shards.names == tuple("0123456789")


def test_a_sample_is_whole_shards_of_each_class(data: Path) -> None:
    few = dataclasses.replace(ARRAYS, examples=40).load(data)
    assert few.provenance is not None
    assert np.bincount(few.provenance.codes).tolist() == [16, 16, 16] and len(few.train.inputs[:]) == 48
    assert dataclasses.replace(ARRAYS, examples=40).load(data).counts is None
    whole = dataclasses.replace(ARRAYS, examples=10_000).load(data)
    assert len(whole.train) == len(ARRAYS.load(data).train)


def test_parameters_that_do_not_fit_are_refused(data: Path) -> None:
    with pytest.raises(DataError, match=r"expected \{size: 8, channels: 1\}"):
        ImageShards(path="digits", size=16).load(data)
    with pytest.raises(DataError, match="a number for each channel"):
        dataclasses.replace(ARRAYS, mean=(0.5, 0.5)).load(data)
    with pytest.raises(DataError, match=r"no index.json: expected a directory that `explorer data shard` has made"):
        ImageShards(path="photos").digest(data)
    with pytest.raises(DataError, match="leaves the data directory"):
        ImageShards(path="../elsewhere").digest(data)


def test_a_directory_of_shards_is_recognised(data: Path) -> None:
    found = of_path(data / "digits")
    assert found == ImageShards(path="digits", size=8, channels=1)
    assert of_path(data / "jpegs") == ImageShards(path="jpegs")


# --- decoding --------------------------------------------------------------------------------------------------------


def test_a_part_of_a_picture() -> None:
    pixels = smooth(3, width=96, height=64)
    whole = decode(encoded(pixels), (0.0, 0.0, 96.0, 64.0), size=64, channels=3)
    assert whole.shape == (64, 64, 3) and whole.dtype == np.uint8
    left = decode(encoded(pixels), (0.0, 0.0, 32.0, 32.0), size=32, channels=3)
    assert (left == pixels[:32, :32]).all()
    assert middle(96, 64) == (20.0, 4.0, 76.0, 60.0)
    grey = decode(encoded(pixels), None, size=16, channels=1)
    assert grey.shape == (16, 16, 1)


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    deep = np.linspace(0, 2**16 - 1, 48 * 48).astype(np.uint16).reshape(48, 48)
    stored = io.BytesIO()
    Image.fromarray(deep).save(stored, "PNG")
    whole = (0.0, 0.0, 48.0, 48.0)
    for channels in (1, 3):
        pixels = decode(stored.getvalue(), whole, size=48, channels=channels)
        assert (pixels == (deep >> 8)[:, :, None]).all()


def test_a_jpeg_at_a_smaller_scale_looks_the_same() -> None:
    """Decoding at half the scale differs from decoding whole by little; another part of the picture by much."""
    content = encoded(smooth(5, width=400, height=300), "JPEG", quality=95)
    png = encoded(np.asarray(_whole(content)))
    box = (40.0, 30.0, 300.0, 290.0)
    small, large = (decode(one, box, size=48, channels=3).astype(int) for one in (content, png))
    other = decode(png, (100.0, 0.0, 360.0, 260.0), size=48, channels=3).astype(int)
    assert np.abs(small - large).mean() < 4 < np.abs(small - other).mean()


def _whole(content: bytes) -> Any:
    return Image.open(io.BytesIO(content)).convert("RGB")


def test_random_parts_lie_in_the_picture_and_have_the_area() -> None:
    draws = np.random.default_rng(0).random((2_000, 4))
    shares = []
    for row in draws:
        left, upper, right, lower = random_box(row, 100, 80)
        assert 0 <= left < right <= 100 + 1e-9 and 0 <= upper < lower <= 80 + 1e-9
        shares.append((right - left) * (lower - upper) / 8_000)
    assert 0.2 < min(shares) < 0.3 and max(shares) > 0.9 and abs(np.mean(shares) - 0.62) < 0.05


@pytest.mark.parametrize(
    ("content", "reason"), [(b"no image", "cannot be decoded"), (bomb(50_000), "pixels"), (b"", "cannot be decoded")]
)
def test_what_is_no_image_is_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(content, None, size=8, channels=3)


def test_draws_of_one_slot_do_not_touch_another(data: Path) -> None:
    dataset = JPEGS.load(data)
    raw = dataset.raw(torch.arange(8))

    def augmented(slots: np.ndarray) -> torch.Tensor:
        return dataset.augment([raw[slot] for slot in slots], draws=stream(0, "t"), slots=slots, batch_size=8)

    whole = augmented(np.arange(8))
    assert torch.equal(whole[[1, 5]], augmented(np.array([1, 5])))
    assert not torch.equal(whole, dataset.train.inputs[:8])  # parts, not the middle
    plain = dataclasses.replace(JPEGS, augment=False).load(data)
    again = plain.augment(plain.raw(torch.arange(8)), draws=stream(0, "t"), slots=np.arange(8), batch_size=8)
    assert torch.equal(again, plain.train.inputs[:8])


# --- runs ------------------------------------------------------------------------------------------------------------


def loop_on(data: Path, source: ImageShards) -> Loop:
    """Return a loop of eight steps on data that was opened anew."""
    dataset = source.load(data)
    task = {"dataset": written(source), "model": {"resnet8": {"width": 0.5}}}
    train = {"epochs": 64 / len(dataset.train), "batch_size": 8, "optimizer": {"sgd": {"lr": 0.05}}}
    return loop_of(build_recipe("test", task=task, train=train, methods=[], where="test"), dataset)


def rows_of(batches: Batches, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, labels = batches.read(batches.indices(step))
    return batches.augment(inputs, step, np.arange(len(labels))), labels


@pytest.mark.parametrize("source", [ARRAYS, JPEGS], ids=["arrays", "jpegs"])
def test_a_restart_in_mid_epoch_reads_the_same_rows(data: Path, source: ImageShards) -> None:
    whole, again = loop_on(data, source).setting.batches, loop_on(data, source).setting.batches
    rows = [rows_of(whole, step) for step in range(12)]
    for step in (7, 8, 2):
        inputs, labels = rows_of(again, step)
        assert torch.equal(inputs, rows[step][0]) and torch.equal(labels, rows[step][1])
    assert not torch.equal(rows[0][0], rows[1][0])


@pytest.mark.parametrize("source", [ARRAYS, JPEGS], ids=["arrays", "jpegs"])
def test_a_run_resumes_to_the_same_bits(data: Path, source: ImageShards) -> None:
    assert_resumes(lambda: loop_on(data, source))


def test_reading_ahead_changes_no_bit(data: Path) -> None:
    ahead, alone = loop_on(data, JPEGS), loop_on(data, JPEGS)
    assert ahead._ahead is not None
    alone._ahead = None
    assert_same(everything(steps(ahead, 6)), everything(steps(alone, 6)), "reading ahead")


def test_rows_that_are_gone_are_not_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros take the place of rows that a deletion leaves out, even where their shards do not exist any more."""
    monkeypatch.setattr(shard_files, "PAUSES", (0.0,))
    index_of_class = ARRAYS.load(data)
    assert index_of_class.provenance is not None
    gone = index_of_class.provenance.codes == 1
    assert isinstance(index_of_class, ImagesInShards)
    layout = index_of_class.files.layout
    for shard in {int(number) for number in layout.shards_of(np.flatnonzero(gone))}:
        (data / "digits" / layout.shards[shard].name).unlink()
    dataset = ARRAYS.load(data)
    left = dataclasses.replace(dataset, train=blank(dataset.train, gone))
    rows = left.train.inputs[:]
    assert (rows[torch.from_numpy(gone)] == 0).all() and (rows[torch.from_numpy(~gone)] != 0).any(-1).any()
    batches = Batches(left, batch_size=40, seed=0, device=torch.device("cpu"))
    for step in range(3):
        batches.read(batches.indices(step))
    with pytest.raises(DataError, match="no such object"):  # the control
        dataset.train.inputs[torch.from_numpy(np.flatnonzero(gone))]


def test_encoded_rows_that_are_gone_are_black(data: Path) -> None:
    dataset = JPEGS.load(data)
    gone = np.arange(len(dataset.train)) == 2
    left = dataclasses.replace(dataset, train=blank(dataset.train, gone))
    raw = left.raw(torch.tensor([1, 2, 3]))
    assert raw[1] is GONE and raw[0] is not GONE
    rows = left.augment(raw, draws=stream(0, "t"), slots=np.arange(3), batch_size=3)
    assert (rows[1] == 0).all() and (rows[0] != 0).any()
    assert isinstance(left, Images)

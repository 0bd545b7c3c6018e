"""Scenes of digits against the digits that they are made of."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from explorer.data.clutter import Clutter, enlarged
from explorer.data.clutter3d import Clutter3d
from explorer.data.digits import Digits
from explorer.data.sources import DATASETS
from explorer.errors import RecipeError
from explorer.recipes.choice import choose

SMALL = Clutter(size=32, examples=48, digits=1, clutter=0)


def trimmed(mask: np.ndarray) -> bytes:
    """The mask without empty rows and columns around it: shape and content."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    kept = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return bytes(kept.shape) + np.packbits(kept).tobytes()


def strokes(digits: Tensor, labels: Tensor) -> set[tuple[int, bytes]]:
    """What the labels of a scene can look like: each digit's class and its strokes, at the three scales of 32 pixels,
    enlarged by torch."""
    found = set()
    for side in (12, 16, 20):
        large = F.interpolate(digits.double(), size=(side, side), mode="bilinear", align_corners=False)
        masks = (large[:, 0] + 1e-9 >= 127.5).numpy()
        found |= {(int(label) + 1, trimmed(mask)) for label, mask in zip(labels, masks, strict=True)}
    return found


@pytest.mark.parametrize("side", [6, 8, 12, 20, 40])
def test_digits_are_enlarged_bilinearly(side: int) -> None:
    digits = Digits().load(None).train.inputs[:40]
    expected = F.interpolate(digits.double(), size=(side, side), mode="bilinear", align_corners=False)[:, 0].numpy()
    assert np.abs(enlarged(digits[:, 0].numpy(), side) - expected).max() <= 0.5 + 1e-9


def test_labels_are_the_strokes_of_digits_of_the_right_writers() -> None:
    scenes, digits = SMALL.load(None), Digits().load(None)
    train, test = (strokes(split.inputs, split.labels) for split in (digits.train, digits.test))
    for split, ours, others in ((scenes.train, train, test), (scenes.test, test, train)):
        found = {(int(labels.max()), trimmed((labels > 0).numpy())) for labels in split.labels}
        assert all(len(labels.unique()) == 2 for labels in split.labels)
        assert found <= ours
        assert not found <= others  # the control: other people's digits look otherwise


def test_pixels_are_the_strokes_and_noise() -> None:
    split = SMALL.load(None).train
    pixels, labels = split.inputs[:, 0].numpy().astype(int), split.labels.numpy()
    assert pixels[labels > 0].min() >= 128
    assert pixels[labels == 0].max() < 128 + 63
    far = pixels[:, :3, :3][labels[:, :16, :16].max((1, 2)) == 0]  # corners without a digit
    assert far.size and far.max() < 64
    assert abs(far.mean() - 31.5) < 3


def test_clutter_changes_pixels_and_no_label() -> None:
    plain, cluttered = Clutter(examples=24, clutter=0).load(None), Clutter(examples=24, clutter=8).load(None)
    assert torch.equal(plain.train.labels, cluttered.train.labels)
    changed = plain.train.inputs[:, 0] != cluttered.train.inputs[:, 0]
    assert 0.1 < changed.float().mean() < 0.6
    assert not changed[plain.train.labels > 0].any()  # digits lie over the pieces
    bright = (cluttered.train.inputs[:, 0] > 192) & (cluttered.train.labels == 0)
    assert bright.float().mean() > 0.05  # brightness alone does not tell a digit


def test_form() -> None:
    pictures, volumes = Clutter(size=16, examples=8).load(None), Clutter3d(size=16, examples=8).load(None)
    for made, shape, modality in ((pictures, (16, 16), "image"), (volumes, (8, 16, 16), "volume")):
        assert (made.train.inputs.shape, made.train.labels.shape) == ((8, 1, *shape), (8, *shape))
        assert (len(made.test), made.classes, made.modality, made.task) == (2, 11, modality, "segmentation")
        assert made.example_shape == (1, *shape)
        prepared = made.preparation(torch.device("cpu"))(made.train.inputs)
        assert prepared.shape == made.train.inputs.shape
        assert abs(prepared.mean()) < 1e-3 and abs(prepared.std() - 1) < 1e-3
        same = made.augment(made.train.inputs, draws=np.random.default_rng(0), slots=np.arange(8), batch_size=8)
        assert torch.equal(same, made.train.inputs)


def test_a_digit_goes_through_half_of_the_slices() -> None:
    volumes = Clutter3d(size=32, depth=8, examples=12, digits=1, clutter=0).load(None)
    starts = set()
    for labels in volumes.train.labels:
        there = torch.nonzero(labels.flatten(1).any(1))[:, 0]
        assert len(there) == 4 and int(there[-1] - there[0]) == 3
        assert (labels[there] == labels[there[0]]).all()
        starts.add(int(there[0]))
    assert len(starts) > 2


def test_every_parameter_is_in_the_digest() -> None:
    changes = [{}, {"size": 32}, {"examples": 12}, {"digits": 3}, {"clutter": 9}]
    digests = [
        choose(DATASETS, {name: {"size": 16, "examples": 8} | change}, kind="dataset", where="here").digest(None)
        for name, further in (("clutter", []), ("clutter3d", [{"depth": 16}]))
        for change in changes + further
    ]
    assert len(digests) == len(set(digests)) == 11


def test_the_scenes_are_always_the_same() -> None:
    """Known answers: a dataset whose pixels changed would be another one under the same name."""
    assert Clutter(size=16, examples=8).digest(None).startswith("c26aa0c6bcad1bf2")
    assert Clutter3d(size=16, examples=8).digest(None).startswith("b7a257b13a23126a")


def test_simulated_provenance_follows_the_first_digit() -> None:
    source = Clutter(size=32, examples=40, digits=1, clutter=0, simulated_classes=4)
    found = source.load(None)
    assert found.provenance is not None and found.provenance.simulated
    digit = found.train.labels.flatten(1).max(1).values.numpy()
    order = np.argsort(digit, kind="stable")
    assert (found.provenance.codes[order] == np.repeat(np.arange(4), 10)).all()
    assert source.digest(None) == Clutter(size=32, examples=40, digits=1, clutter=0).digest(None)


@pytest.mark.parametrize("wrong", [{"size": 20}, {"digits": 0}, {"clutter": -1}, {"examples": 0}, {"depth": 8}])
def test_parameters_out_of_range(wrong: dict) -> None:
    with pytest.raises(RecipeError, match=rf"here\.clutter.*{next(iter(wrong))}"):
        choose(DATASETS, {"clutter": wrong}, kind="dataset", where="here")

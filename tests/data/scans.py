"""Small brains with tumours in NIfTI files, laid out as those of BraTS."""

from pathlib import Path

import numpy as np
import pytest

nib = pytest.importorskip("nibabel", reason="needs nibabel: pip install 'explorer[medical]'")

SCANS = ("flair", "t1", "t1ce", "t2")
SHAPE = (24, 20, 16)  # from left to right, from front to back, from below to above
BOX = (slice(2, 22), slice(4, 16), slice(3, 13))  # the brain
TUMOUR = (slice(6, 12), slice(6, 12))


def save(path: Path, voxels: np.ndarray, affine: np.ndarray | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(voxels, np.eye(4) if affine is None else affine), path)


def case(
    root: Path,
    name: str,
    *,
    seed: int = 0,
    names: tuple[str, ...] = SCANS,
    labels: tuple[int, ...] = (1, 2, 4),
) -> None:
    """Write a case: a brain, brighter in its tumour, whose three parts are slabs one above the other."""
    draws = np.random.default_rng(seed)
    truth = np.zeros(SHAPE, np.uint8)
    for part, label in enumerate(labels):
        truth[(*TUMOUR, slice(5 + 2 * part, 11))] = label
    for scan in names:
        voxels = np.zeros(SHAPE, np.int16)
        voxels[BOX] = draws.integers(100, 200, voxels[BOX].shape)
        voxels[truth > 0] += 300 * truth[truth > 0].astype(np.int16)
        save(root / name / f"{Path(name).name}_{scan}.nii.gz", voxels)
    save(root / name / f"{Path(name).name}_seg.nii.gz", truth)


def brats(root: Path, *, count: int = 5) -> None:
    """Cases below `root`/brats, in the folders of two grades."""
    for number in range(count):
        case(root / "brats", f"{'LGG' if number % 2 else 'HGG'}/case_{number:03d}", seed=number)

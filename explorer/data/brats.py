"""`brats`, and `brats_slices` (brats_slices.py): brain tumours in NIfTI files, laid out as in the BraTS challenges.

    brats/HGG/case_1/case_1_flair.nii.gz    a directory for each case, at any depth, with four scans of the same brain:
    brats/HGG/case_1/case_1_t1.nii.gz       flair (or t2f), t1 (t1n), t1ce (t1c) and t2 (t2w)
    brats/HGG/case_1/case_1_t1ce.nii.gz
    brats/HGG/case_1/case_1_t2.nii.gz
    brats/HGG/case_1/case_1_seg.nii.gz      0, 1, 2 and 4 (or 3): these become 0 to 3

A case is cut to the smallest box that has all of its brain (voxels that are not 0 in some scan), brought to `size`
voxels along the longest side of the box, trilinearly, classes by their nearest voxel, and put in the middle of a cube
of zeros. Each scan is clipped to the 0.5 and 99.5 percentiles of its own brain and scaled to uint8, so that nothing is
fitted over cases.

Cases are read when they are needed, which takes about a second each: `explorer data shard` writes them once. Cases
without all five files are skipped. The files may be hostile: shape and offset in their header are bounded before
anything else is unpacked.

Shapes: N cases, C scans, D slices, H rows, W columns, S voxels along each side of a cube.
"""

import hashlib
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from explorer import canonical
from explorer.data.clutter import Pictures, Scenes, Volumes
from explorer.data.dataset import (
    MEASURES,
    Blocks,
    DataFile,
    DataSource,
    Fitted,
    Modality,
    Provenance,
    Rows,
    Skipped,
    TaskName,
    split_of,
)
from explorer.data.local import (
    FOLDERS,
    MAX_NAMES,
    Fault,
    LocalFile,
    below,
    classes_of,
    data_files,
    listed,
    named_classes,
    read_class_table,
)
from explorer.data.progress_line import watched
from explorer.errors import DataError

SCANS = {"flair": "flair|t2f", "t1": "t1n?", "t1ce": "t1ce|t1c|t1gd", "t2": "t2w?", "seg": "seg"}
FILE = re.compile(r".*[_-]({})\.nii(\.gz)?".format("|".join(f"(?P<{name}>{names})" for name, names in SCANS.items())))
NAMES = ("background", "necrotic core", "oedema", "enhancing tumour")
LABELS = {0: 0, 1: 1, 2: 2, 3: 3, 4: 3}
PERCENTILES = (0.5, 99.5)
CENTRE, SPREAD = 0.5, 0.5  # of inputs, of 0..1

HEADER = 348  # bytes of a NIfTI-1 header
MAX_OFFSET = 2**20  # of the voxels in a file
MAX_SIDE = 2**11
MAX_VOXELS = 2**26
MAX_FILE = 2**30  # bytes
KEPT = 2**30  # bytes of cases that stay in memory
WINDOW = 4  # cases whose slices are shuffled with each other

TEST = "share of the cases for the test side, by the digests of their names"
CASES = "training cases to use, by the digests of their names; null: all"
PROVENANCE = "table of provenance classes below --data, or `folders`: the directory above that of a case"
MEDIA = "application/x-nifti"


# --- files -----------------------------------------------------------------------------------------------------------


def read_nifti(file: LocalFile) -> np.ndarray:
    """Return the voxels of a file, D H W, from below to above, back to front and left to right.

    Raises `DataError` for what is no NIfTI file of three dimensions and a bounded size.
    """
    try:
        import nibabel as nib  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise DataError("NIfTI files need nibabel: pip install 'explorer[medical]'") from error
    content = file.read(max_bytes=MAX_FILE)
    if isinstance(content, Fault):
        raise DataError(f"{file.path}: {content}: expected a NIfTI file")
    try:
        header = nib.Nifti1Header(_unpacked(content, HEADER), check=False)
        shape, kind, offset = header.get_data_shape(), header.get_data_dtype(), float(header["vox_offset"])
        # By the header, before the voxels are unpacked: what it declares bounds the memory that reading takes.
        sides = [side for side in shape if side != 1] if len(shape) > 3 else list(shape)
        if len(sides) != 3 or min(sides) < 1 or max(sides) > MAX_SIDE or np.prod(sides, dtype=float) > MAX_VOXELS:
            raise DataError(
                f"{file.path}: its header declares the shape {shape}: expected three sides of at most {MAX_SIDE}, and"
                f" at most {MAX_VOXELS:,} voxels"
            )
        if kind.kind not in "iuf" or not HEADER <= offset <= MAX_OFFSET:
            raise DataError(f"{file.path}: its header declares voxels of {kind} at {offset:g}: expected numbers")
        image = nib.Nifti1Image.from_bytes(_unpacked(content, int(offset) + int(np.prod(sides)) * kind.itemsize))
        voxels = np.asanyarray(nib.as_closest_canonical(image).dataobj).reshape(sides)
    except DataError:
        raise
    except Exception as error:  # decoders of hostile input raise anything
        raise DataError(f"{file.path}: not a NIfTI file: {type(error).__name__}: {error!s:.200}") from error
    return np.ascontiguousarray(voxels.transpose(2, 1, 0))


def _unpacked(content: bytes, size: int) -> bytes:
    """Return the first bytes of a file that may be packed."""
    if content[:2] != b"\x1f\x8b":
        return content[:size]
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(content, size)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The files of a case, by what they are."""

    name: str  # its directory
    files: dict[str, LocalFile]


def cases_in(root: Path) -> tuple[list[Case], list[str]]:
    """Return the cases below a directory that have all files, by name, and the names of the others."""
    cases: dict[str, dict[str, LocalFile]] = {}
    for file in listed(root):
        match = FILE.fullmatch(file.name.rpartition("/")[2])
        if match is not None and file.fault is None:
            what = next(name for name in SCANS if match[name])
            cases.setdefault(str(PurePosixPath(file.name).parent), {})[what] = file
    whole = [Case(name=name, files=files) for name, files in sorted(cases.items()) if len(files) == len(SCANS)]
    return whole, sorted(name for name, files in cases.items() if len(files) < len(SCANS))


# --- a case as it is trained on --------------------------------------------------------------------------------------


def prepared(case: Case, size: int) -> tuple[Tensor, Tensor]:
    """Return the scans of a case, C S S S, and the class of each voxel, S S S, both uint8. Raises `DataError`."""
    volumes = {what: read_nifti(file) for what, file in case.files.items()}
    scans = [volumes[what].astype(np.float32) for what in SCANS if what != "seg"]
    labels = volumes["seg"]
    if len({volume.shape for volume in volumes.values()}) > 1:
        shapes = ", ".join(f"{what} {volume.shape}" for what, volume in volumes.items())
        raise DataError(f"{case.name}: scans of different shapes: {shapes}: expected one")
    if not all(np.isfinite(scan).all() for scan in scans):
        raise DataError(f"{case.name}: found voxels that are no finite numbers")
    if others := sorted(set(np.unique(labels).tolist()) - LABELS.keys()):
        raise DataError(f"{case.files['seg'].path}: found the label {others[0]:g}: expected 0, 1, 2 and 4 (or 3)")
    brain = np.any([scan != 0 for scan in scans], axis=0)
    if not brain.any():
        raise DataError(f"{case.name}: all voxels are 0: expected scans of a brain")
    box = tuple(slice(there[0], there[-1] + 1) for there in map(_span, (brain, brain, brain), range(3)))
    codes = np.array([LABELS[value] for value in range(max(LABELS) + 1)], np.uint8)[labels[box].astype(np.int64)]
    inputs = torch.from_numpy(np.stack([_levels(scan)[box] for scan in scans]))
    return _scaled(inputs, torch.from_numpy(codes), size)


def _span(brain: np.ndarray, axis: int) -> np.ndarray:
    """Return the places along an axis at which there is some brain."""
    return np.flatnonzero(brain.any(tuple(other for other in range(3) if other != axis)))


def _levels(scan: np.ndarray) -> np.ndarray:
    """Return a scan clipped to the percentiles of its brain and scaled to 0..255, still float32; 0 around it."""
    brain = scan != 0
    low, high = np.percentile(scan[brain], PERCENTILES) if brain.any() else (0.0, 1.0)
    return np.where(brain, (scan - low).clip(0, high - low) * (255 / max(high - low, 1e-6)), 0).astype(np.float32)


def _scaled(inputs: Tensor, labels: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return both with `size` voxels along the longest side, in the middle of a cube."""
    longest = max(labels.shape)
    sides = [max(1, round(side * size / longest)) for side in labels.shape]
    inputs = F.interpolate(inputs[None], size=sides, mode="trilinear", align_corners=False)[0].round().to(torch.uint8)
    labels = F.interpolate(labels[None, None].float(), size=sides, mode="nearest-exact")[0, 0].to(torch.uint8)
    around: list[int] = []
    for side in reversed(sides):  # the last dimension first
        around += [(size - side) // 2, size - side - (size - side) // 2]
    return F.pad(inputs, around), F.pad(labels, around)


class Cases:
    """The cases of a side, prepared when they are needed; those of the last time stay in memory."""

    def __init__(self, cases: Sequence[Case], size: int) -> None:
        self.cases, self.size = cases, size
        kept = max(2 * WINDOW, min(64, KEPT // (len(SCANS) * size**3)))
        self._prepared = lru_cache(maxsize=kept)(lambda number: prepared(self.cases[number], size))
        # One for each case: threads that need the same one do not prepare it twice.
        self._locks = [Lock() for _ in cases]

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        with self._locks[number]:
            return self._prepared(number)


class CaseRows(Rows):
    """One column of the cases: inputs (0) or labels (1). Sliced, a case has a row for each of its slices."""

    def __init__(self, cases: Cases, column: int, *, sliced: bool) -> None:
        self._cases, self._column, self._sliced = cases, column, sliced
        size = cases.size
        self._axis = 1 - column  # of the slices, in a row
        shape = [] if column else [len(SCANS) - 1]
        self.shape = (len(cases.cases) * (size if sliced else 1), *shape, *[size] * (2 if sliced else 3))
        self.dtype = torch.uint8

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        """Return the rows with these numbers. Raises `DataError` for a case that cannot be read."""
        if isinstance(index, int):
            return self._row(range(len(self))[index])
        numbers = torch.arange(len(self))[index].tolist()
        return torch.stack([self._row(number) for number in numbers]) if numbers else torch.empty((0, *self.shape[1:]))

    def _row(self, number: int) -> Tensor:
        if not self._sliced:
            return self._cases[number][self._column]
        case, slice_ = divmod(number, self._cases.size)
        return self._cases[case][self._column].select(self._axis, slice_)

    def content(self, index: int) -> bytes:
        """Return the bytes of one row."""
        return self[index].numpy().tobytes()


# --- the datasets ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class BrainTumours(DataSource, ABC):
    """Cases below a directory."""

    source: ClassVar[str] = "a directory of yours"
    licence: ClassVar[str] = "whatever holds for the scans"
    task: ClassVar[TaskName] = "segmentation"
    fitted: ClassVar[Fitted] = {}
    metrics: ClassVar[tuple[str, ...]] = MEASURES["segmentation"]

    path: Annotated[str, Field(min_length=1, max_length=1000, description="directory below --data")]
    size: Annotated[int, Field(ge=16, le=256, multiple_of=16, description="voxels along each side")] = 128
    test: Annotated[float, Field(gt=0, le=0.5, description=TEST)] = 0.2
    provenance: Annotated[str | None, Field(min_length=1, max_length=1000, description=PROVENANCE)] = None
    examples: Annotated[int | None, Field(ge=1, description=CASES)] = None

    @property
    @abstractmethod
    def rows(self) -> int:
        """The number of examples that a case makes."""

    def load(self, data: Path | None) -> Scenes:
        cases, skipped = self._cases(data)
        keys = [hashlib.sha256(case.name.encode(errors="surrogatepass")).digest() for case in cases]
        order = sorted(range(len(cases)), key=keys.__getitem__)
        count = max(1, round(self.test * len(cases)))
        test, train = sorted(order[:count]), sorted(order[count:][: self.examples])
        if not train:
            raise DataError(f"dataset {self.name!r}: found {len(cases)} cases: expected one for each side")
        sliced = self.modality == "image"
        splits = []
        for side in (train, test):
            chosen = Cases([cases[place] for place in side], self.size)
            columns = [CaseRows(chosen, column, sliced=sliced) for column in (0, 1)]
            splits.append(split_of(columns[0], columns[1]))
        ends = np.arange(1, len(train) + 1) * self.rows
        return (Pictures if sliced else Volumes)(
            train=splits[0],
            test=splits[1],
            classes=len(NAMES),
            names=NAMES,
            mean=(CENTRE,) * (len(SCANS) - 1),
            std=(SPREAD,) * (len(SCANS) - 1),
            provenance=self._provenance([cases[place] for place in train], [case.name for case in cases], data),
            blocks=Blocks(ends=ends, window=WINDOW),
            skipped=(Skipped(reason="not all five files", count=len(skipped), names=tuple(skipped[:MAX_NAMES])),)
            if skipped
            else (),
        )

    def with_classes(self, data: Path | None) -> Self:
        return replace(self, provenance=self.provenance or FOLDERS)

    def digest(self, data: Path | None) -> str:
        files = [file for case in self._cases(data)[0] for file in case.files.values()]
        hashed = watched(files, "hashing files", total=len(files))
        contents: list[list[str]] = sorted([file.name, file.digest(max_bytes=MAX_FILE)] for file in hashed)
        table = self._table(data)
        rows = [] if table is None else sorted(map(list, read_class_table(table).items()))
        return canonical.digest([contents, rows])

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        files = [file for case in self._cases(data)[0] for file in case.files.values()]
        return data_files(self.path, files, media=MEDIA, max_bytes=MAX_FILE)

    def _cases(self, data: Path | None) -> tuple[list[Case], list[str]]:
        root = below(data, self.path, dataset=self.name)
        if not root.is_dir():
            raise DataError(f"dataset {self.name!r}: no directory {root}: expected it below the directory of --data")
        cases, skipped = cases_in(root)
        if not cases:
            example = f" (found {skipped[0]}, which lacks some)" if skipped else ""
            raise DataError(
                f"dataset {self.name!r}: no case in {root}{example}: expected directories with *_flair.nii.gz,"
                " *_t1.nii.gz, *_t1ce.nii.gz, *_t2.nii.gz and *_seg.nii.gz"
            )
        return cases, skipped

    def _table(self, data: Path | None) -> Path | None:
        return None if self.provenance in (None, FOLDERS) else below(data, self.provenance, dataset=self.name)

    def _provenance(self, train: list[Case], names: list[str], data: Path | None) -> Provenance | None:
        """Return the classes of the examples of the training cases; `names` are those of all cases."""
        if self.provenance is None:
            return None
        table = self._table(data)
        if table is None:
            above = {name: PurePosixPath(self.path, name).parent.name for name in names}
            spelt = named_classes(above.values())
            classes = {name: spelt[above[name]] for name in names}
        else:
            classes = dict(zip(names, classes_of(names, read_class_table(table), where=str(table)), strict=True))
        paths = sorted({classes[case.name] for case in train})
        codes = np.array([paths.index(classes[case.name]) for case in train], np.int64)
        return Provenance(
            classes=tuple(paths),
            codes=np.repeat(codes, self.rows),
            sources=[name for case in train for name in self._sources(case)],
        )

    def _sources(self, case: Case) -> list[str]:
        return [case.name] if self.rows == 1 else [f"{case.name}, slice {number}" for number in range(self.rows)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Brats(BrainTumours):
    """Scans of brains with tumours, in NIfTI files below `path`, as volumes of `size` voxels along each side.

    Each case is cut to its brain, scaled along the longest side, and put in the middle of a cube. Scans are clipped to
    the 0.5 and 99.5 percentiles of their own brain. `provenance` is a table below the data directory that gives every
    case a class, or `folders`.
    """

    name: ClassVar[str] = "brats"
    summary: ClassVar[str] = "brain tumours of your own in NIfTI files, as in BraTS: a class for each voxel"
    modality: ClassVar[Modality] = "volume"

    @property
    def rows(self) -> int:
        return 1

    @classmethod
    def of_path(cls, place: Path) -> Self | None:
        marks = (f"{'*/' * depth}*seg.nii{packed}" for depth in (1, 2) for packed in (".gz", ""))
        there = place.is_dir() and any(next(place.glob(mark), None) is not None for mark in marks)
        return cls(path=place.name) if there else None

"""Segments of steps, and the spool: the numbers of the ledger's blobs as Parquet files, for queries over many steps.

A segment is the steps since the last `state` entry. Its numbers become its blobs and one file of the spool.

    contributions/segment-<first step>.parquet    a row for each step, layer and class with numbers
    entropy/step-<step>.parquet                   a row for each layer and class; the class * is all of them together

`share_num` / `share_den` is the class's share in the summed gradient, `update_num` / `update_sq` its projection on the
update, and `exact_num` / `update_sq` its exact part in it: over steps and layers add both and divide last. A file is
written whole or not at all, and the same steps executed again give the same bytes. No signature covers it.

The spool has no row of a confidential class. In a run that has one, columns that several classes contribute to are
empty: shares, projections and parts of an update that are known of all the others give away the missing one, and how
far classes can be separated depends on all of them.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from explorer import rundir
from explorer.entries.entropy_profile import SHOWN, LayerProfiles, shown_class, shown_joint
from explorer.entries.kinds import Genesis
from explorer.entries.numbers import (
    SKETCH,
    Floats,
    StepNumbers,
    encode_class,
    encode_joint,
    encode_sketches,
    share_terms,
)
from explorer.entries.slots import encode_slots

# --- segments ---

NUMBERS, SKETCHES, JOINT, SLOTS = "numbers", "sketches", "joint", "slots"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecordedStep:
    """Numbers of a step that its segment keeps."""

    step: int
    rows: NDArray[np.int64]  # of the tag table, in the order of the slots
    examples: tuple[int, ...]  # of each class of the genesis
    numbers: StepNumbers | None


@dataclass(slots=True)
class Segment:
    """Steps since the last `state` entry, with the sums of their sketches."""

    classes: Sequence[str]  # of the genesis
    first: int  # the step that it begins with
    steps: list[RecordedStep] = field(default_factory=list)
    tables: set[str] = field(default_factory=set)  # digests of the admission tables that an entry has named
    sketches: dict[int, Floats] = field(default_factory=dict)  # by class: layers x 64

    def add(self, step: RecordedStep, sketches: Floats | None) -> None:
        """Add a step; `sketches` are of its classes with numbers, k L 64."""
        self.steps.append(step)
        if sketches is None or step.numbers is None:
            return
        assert sketches.shape == (len(step.numbers.classes), len(step.numbers.updates), SKETCH)
        for index, sketch in zip(step.numbers.classes, sketches, strict=True):
            # Added in the order of the steps, in float32: another order would give a replay other bits.
            self.sketches[index] = self.sketches[index] + sketch if index in self.sketches else sketch.copy()

    def blobs(self) -> dict[str, bytes]:
        """Return the content of every blob by its name; what is empty is left out."""
        numbers = [step.numbers for step in self.steps if step.numbers is not None]
        by_blob: dict[str, list[bytes]] = {}
        for number in numbers:
            for place, index in enumerate(number.classes):
                by_blob.setdefault(f"{NUMBERS}/{self.classes[index]}", []).append(encode_class(number, place))
        blobs = {name: b"".join(contents) for name, contents in by_blob.items()}
        blobs[JOINT] = b"".join(map(encode_joint, numbers))
        blobs |= {f"{SKETCHES}/{self.classes[i]}": encode_sketches(sketch) for i, sketch in self.sketches.items()}
        blobs[SLOTS] = encode_slots(step.rows for step in self.steps)
        return {name: content for name, content in blobs.items() if content}


# --- the spool ---

ALL = "*"  # the class of a row that is about all classes together
_KEYS = {"step": pa.int64(), "layer": pa.dictionary(pa.int32(), pa.string())}
_KEYS |= {"class": pa.dictionary(pa.int32(), pa.string()), "examples": pa.int32()}
_TERMS = ("weight", "norm", "share_num", "share_den", "update_num", "update_sq", "exact_num")
_OF_SEVERAL = _TERMS[2:]  # columns that several classes contribute to; weight and norm are a class's own
CONTRIBUTIONS = pa.schema([*_KEYS.items(), *((name, pa.float32()) for name in _TERMS)])
ENTROPY = pa.schema([*_KEYS.items(), *((name, pa.float32()) for name in SHOWN)])


class Spool:
    """Writer of a run's two spool directories; one process has it."""

    def __init__(self, run: Path, genesis: Genesis, *, confidential: frozenset[str] = frozenset()) -> None:
        self._run, self._genesis = run, genesis
        hidden = [genesis.classes.index(path) for path in confidential]
        self._hidden = [*hidden, len(genesis.classes)] if hidden else hidden  # with the class *, which comes last
        for name in (rundir.CONTRIBUTIONS, rundir.ENTROPY):
            for left in (run / name).glob(".*.tmp"):  # left by a process that was killed while it wrote
                left.unlink()

    def write_contributions(self, steps: Sequence[RecordedStep]) -> None:
        """Write the numbers of a segment into a file named by its first step; no file if nothing was measured."""
        parts = [self._contributions(step) for step in steps if step.numbers and step.numbers.classes]
        if parts:
            columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            columns = {name: column for name, column in columns.items() if not (self._hidden and name in _OF_SEVERAL)}
            self._write(
                self._run / rundir.CONTRIBUTIONS / f"segment-{steps[0].step:08d}.parquet", columns, CONTRIBUTIONS
            )

    def write_entropy(self, profiles: LayerProfiles) -> None:
        """Write a profile. Adapters, which come last among the layers, have none."""
        k, layers = len(profiles.classes), len(profiles.joint)
        # Layer by layer, the classes and then all of them together, as the columns below are laid out.
        numbers = [
            shown
            for at, joint in enumerate(profiles.joint)
            for shown in (
                *(shown_class(profiles.spectra[c, at], None if self._hidden else joint, c) for c in range(k)),
                shown_joint(joint),
            )
        ]
        together = len(self._genesis.classes)  # the index of the class *
        columns = {
            "step": np.full(layers * (k + 1), profiles.step),
            "layer": np.repeat(np.arange(layers), k + 1),
            "class": np.tile([*profiles.classes, together], layers),
            "examples": np.tile([*profiles.examples, sum(profiles.examples)], layers),
            **{name: np.array([row[name] for row in numbers], np.float64) for name in SHOWN},  # None: NaN
        }
        self._write(self._run / rundir.ENTROPY / f"step-{profiles.step:08d}.parquet", columns, ENTROPY)

    def _contributions(self, step: RecordedStep) -> dict[str, np.ndarray]:
        """Return the rows of one step: class by class, layer by layer."""
        numbers = step.numbers
        assert numbers is not None
        k, layers = numbers.weights.shape
        shares, whole = share_terms(numbers.gram)
        exact = {} if numbers.exact is None else {"exact_num": numbers.exact.ravel()}
        return {
            "step": np.full(k * layers, step.step),
            "layer": np.tile(np.arange(layers), k),
            "class": np.repeat(numbers.classes, layers),
            "examples": np.repeat([step.examples[index] for index in numbers.classes], layers),
            "weight": numbers.weights.ravel(),
            "norm": numbers.norms.ravel(),
            "share_num": shares.ravel().astype(np.float32),
            "share_den": np.tile(whole, k).astype(np.float32),
            "update_num": numbers.dots.ravel(),
            "update_sq": np.tile(numbers.updates, k),
            **exact,
        }

    def _write(self, path: Path, columns: dict[str, np.ndarray], schema: pa.Schema) -> None:
        shown = ~np.isin(columns["class"], self._hidden)
        if not shown.any():
            return
        columns = {name: values[shown] for name, values in columns.items()}
        names = {"layer": self._genesis.layers, "class": (*self._genesis.classes, ALL)}
        # Dictionaries have all layers and classes in the order of the genesis, so that all files agree on them.
        arrays: list[Any] = []
        for column in schema:
            values = columns.get(column.name)
            if values is None:
                arrays.append(pa.nulls(len(columns["step"]), column.type))
            elif column.name in names:
                index = pa.array(values.astype(np.int32))
                arrays.append(pa.DictionaryArray.from_arrays(index, pa.array(names[column.name], pa.string())))
            elif column.name in SHOWN:  # every number of a profile is finite
                arrays.append(pa.array(values.astype(np.float32), mask=np.isnan(values)))
            else:
                arrays.append(pa.array(values).cast(column.type))
        target = io.BytesIO()
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), target, compression="zstd")
        rundir.write_bytes(path, target.getvalue())

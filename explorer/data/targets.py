"""The target of each row of a table: a class, a number, or any number of labels.

    class     whole numbers or texts; models are judged by their accuracy
    number    any numbers; judged by the root of the mean squared error (RMSE), in the column's own unit
    labels    lists, or texts such as "red|round"; judged by the mean average precision

Rows are divided into sides, and sampled, by their class. Where there is none, rows are divided by the rarest label that
each has, so that rare labels come to both sides, and rows with a number all together.

Shapes: N rows, K labels.
"""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from explorer.data.dataset import FEW, SIMULATED, Dataset, TaskName
from explorer.data.local import first_of_each, named_classes, shown
from explorer.errors import DataError

Data = TypeVar("Data", bound=Dataset)

Side = Literal["train", "test"]
Predict = Literal["class", "number", "labels"]
Aim = Predict | Literal["pixels"]
AIMS: dict[Aim, TaskName] = {
    "class": "classification",
    "number": "regression",
    "labels": "multilabel",
    "pixels": "segmentation",
}
PREDICT = "what the target is: class, number (regression), or labels (any number of them, such as red|round)"
BETWEEN = r"[|;,]"  # the labels of a text
MAX_LABELS = 1_000
MAX_TARGETS = 2**28  # numbers of all rows and labels
WHOLE = 20  # different whole numbers from which a column is taken for amounts, not for classes
NO_LABEL = ""  # the group of a row without any label


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Target:
    """The target of every row."""

    predict: Predict
    values: Tensor  # N, int64; of numbers N, float64; of labels N K, float32
    names: tuple[str, ...]  # of classes or labels; none of numbers
    groups: tuple[str, ...]  # N: by which rows are divided

    @property
    def outputs(self) -> int:
        """The number of outputs of a model."""
        return max(1, len(self.names))

    @classmethod
    def of_classes(cls, labels: Sequence[str], names: Sequence[str]) -> Self:
        """Return the target of rows with these labels; `names` are all classes, in the order of their numbers."""
        codes = {name: code for code, name in enumerate(names)}
        values = torch.tensor([codes[label] for label in labels], dtype=torch.int64)
        return cls(predict="class", values=values, names=tuple(names), groups=tuple(labels))

    def rows(self, places: Sequence[int] | np.ndarray) -> Self:
        """Return the targets of these rows only."""
        chosen = torch.as_tensor(np.asarray(places, dtype=np.int64))
        return replace(self, values=self.values[chosen], groups=tuple(self.groups[place] for place in chosen.tolist()))

    def sides(
        self, training: Sequence[int] | np.ndarray, test: Sequence[int] | np.ndarray, *, dataset: str
    ) -> tuple[Tensor, Tensor, float, float]:
        """Return the labels of both sides in the form that a dataset has, and the centre and the scale of numbers.

        Raises `DataError` for a side on which nothing could be learned or measured.
        """
        train, test_ = self.rows(training).values, self.rows(test).values
        if self.predict == "number":
            for side, numbers in (("training", train), ("test", test_)):
                if len(numbers.unique()) < 2:
                    raise DataError(
                        f"dataset {dataset!r}: found {len(numbers.unique())} different numbers to predict on the"
                        f" {side} side: expected two at least"
                    )
            centre, scale = float(train.mean()), float(train.std(correction=0))
            # Scaled in float64: float32 would round a year or a price before its mean is taken away.
            scaled = [((side - centre) / scale).to(torch.float32) for side in (train, test_)]
            return scaled[0], scaled[1], centre, scale
        if self.predict == "labels":
            for side, labels in (("training", train), ("test", test_)):
                there = labels.any(0)
                missing = [name for name, has in zip(self.names, there.tolist(), strict=True) if not has]
                if missing and (side == "training" or len(missing) == len(self.names)):
                    raise DataError(
                        f"dataset {dataset!r}: label {missing[0]!r} is in no row of the {side} side: expected every"
                        " label in one row of it at least"
                    )
        return train, test_, 0.0, 1.0

    def simulated(self) -> list[str]:
        """Return a made-up provenance class for each row, such as `simulated/red`: of numbers, one of four ranges."""
        if self.predict != "number":
            spelt = named_classes(self.groups, SIMULATED)
            return [spelt[group] for group in self.groups]
        order = np.argsort(self.values.numpy(), kind="stable")
        ranges = np.empty(len(order), np.int64)
        ranges[order] = np.arange(len(order)) * FEW // len(order)
        return [f"{SIMULATED}/class-{number:02d}" for number in ranges]


def row_of_table(place: int) -> str:
    """Return what a row of a table is called, counted from 1."""
    return f"row {place + 1}"


def read_target(
    values: Sequence[Any], predict: Predict, *, column: str, where: str, name: Callable[[int], str] = row_of_table
) -> Target:
    """Return the targets that a column has; `name` is a function from a row's place to what it is called.

    Raises `DataError` that begins with `where` and names the row.
    """
    read = {"class": _classes, "number": _numbers, "labels": _labels}[predict]
    return read(values, column, where, name)


@cache
def kind_for(base: type[Data], predict: Aim) -> type[Data]:
    """Return the kind of dataset for what is predicted: `base`, or `base` with another task."""
    task = AIMS[predict]
    if base.task == task:
        return base
    return cast(type[Data], type(f"{base.__name__}_{task}", (base,), {"task": task}))


def divided(labels: Sequence[str], contents: Iterable[bytes], *, share: float) -> list[Side]:
    """Return the side of each example: test for the share of its class, at least one, with the smallest hashes."""
    keys = [hashlib.sha256(content).digest() for content in contents]
    classes: dict[str, list[bytes]] = {}
    for label, key in zip(labels, keys, strict=True):
        classes.setdefault(label, []).append(key)
    # By a limit on the hash, not by position, so that equal images fall on the same side.
    last = {label: sorted(hashes)[max(1, round(share * len(hashes))) - 1] for label, hashes in classes.items()}
    return ["test" if key <= last[label] else "train" for label, key in zip(labels, keys, strict=True)]


def sides_of(
    target: Target, contents: Sequence[bytes], *, share: float, examples: int | None, column: str, dataset: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of the training side, a sample of them if `examples` is a number, and those of the test side.

    Raises `DataError` for a class without a training row.
    """
    sides = np.asarray(divided(target.groups, contents, share=share))
    training, test = np.flatnonzero(sides == "train"), np.flatnonzero(sides == "test")
    learned = {target.groups[place] for place in training}
    for label in target.names if target.predict == "class" else ():
        if label not in learned:
            raise DataError(
                f"dataset {dataset!r}: label {label!r} of column {column!r} has one row, or equal rows only: expected"
                " at least two different ones, one for each side"
            )
    return training[sampled(target, training, contents, examples, dataset=dataset)], test


def sampled(
    target: Target, places: np.ndarray, contents: Sequence[bytes], count: int | None, *, dataset: str
) -> np.ndarray:
    """Return which of the rows at `places` to use, ascending: as many of each group, by their SHA-256."""
    if count is None:
        return np.arange(len(places))
    # By digest rather than in the file's order: a file is often sorted, and its first rows are then unlike the rest.
    keys = [hashlib.sha256(contents[place]).digest() for place in places]
    order = np.asarray(sorted(range(len(places)), key=keys.__getitem__), dtype=np.int64)
    codes = np.unique([target.groups[place] for place in places], return_inverse=True)[1]
    return np.sort(order[first_of_each(codes[order], count, dataset=dataset)])


def guess(values: Sequence[Any]) -> Predict:
    """Return what a column probably is, by a look at its values."""
    known = [value for value in values if value is not None and value != ""]
    if any(isinstance(value, list | tuple) for value in known):
        return "labels"
    if known and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        broken = any(not float(value).is_integer() for value in known)
        return "number" if broken or len(set(known)) > max(WHOLE, len(known) // 10) else "class"
    # Several texts in a cell, and parts that repeat: a sentence with a comma is no list of labels.
    parts = [_parts(value) or [] for value in known if isinstance(value, str)]
    if any(len(row) > 1 for row in parts) and all(" " not in part for row in parts for part in row):
        return "labels" if len({part for row in parts for part in row}) < len(set(known)) else "class"
    return "class"


def _classes(values: Sequence[Any], column: str, where: str, name: Callable[[int], str]) -> Target:
    # Whole numbers in order of size, texts in that of letters.
    read = [_class(value, column, where, name, place) for place, value in enumerate(values)]
    ordered = sorted(set(read), key=lambda value: (isinstance(value, str), value))
    if not 2 <= len(ordered) <= MAX_LABELS:
        few = "name another column as `target`" if len(ordered) < 2 else "name another one, or predict: number"
        raise DataError(
            f"{where}found {len(ordered)} different values in column {column!r}: expected 2 to {MAX_LABELS:,} labels;"
            f" {few}"
        )
    codes = {value: code for code, value in enumerate(ordered)}
    return Target(
        predict="class",
        values=torch.tensor([codes[value] for value in read], dtype=torch.int64),
        names=tuple(shown(str(value)) for value in ordered),
        groups=tuple(shown(str(value)) for value in read),
    )


def _numbers(values: Sequence[Any], column: str, where: str, name: Callable[[int], str]) -> Target:
    read = [_number(value) for value in values]
    for place, (value, number) in enumerate(zip(values, read, strict=True)):
        if not math.isfinite(number):
            shown_ = "nothing" if value in (None, "") else f"{value!s:.40}"
            raise DataError(f"{where}{name(place)}: found {shown_} in column {column!r}: expected a number")
    numbers = torch.tensor(read, dtype=torch.float64)
    return Target(predict="number", values=numbers, names=(), groups=(NO_LABEL,) * len(numbers))


def _number(value: Any) -> float:
    """Return a cell as a number; NaN for anything else."""
    try:
        # One cell that is no number makes texts of the whole column.
        return math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def _labels(values: Sequence[Any], column: str, where: str, name: Callable[[int], str]) -> Target:
    rows: list[list[str]] = []
    for place, value in enumerate(values):
        parts = _parts(value)
        if parts is None:
            raise DataError(
                f"{where}{name(place)}: found {value!s:.40} in column {column!r}: expected labels, as a list or as a"
                " text such as red|round"
            )
        rows.append(parts)
    counts = Counter(label for labels in rows for label in set(labels))
    names = sorted(counts)
    if not 2 <= len(names) <= MAX_LABELS or len(rows) * len(names) > MAX_TARGETS:
        raise DataError(
            f"{where}found {len(names)} different labels in column {column!r}: expected 2 to {MAX_LABELS:,}, as a list"
            " or as a text such as red|round"
        )
    codes = {name: code for code, name in enumerate(names)}
    there = torch.zeros(len(rows), len(names), dtype=torch.float32)
    for place, labels in enumerate(rows):
        there[place, [codes[label] for label in labels]] = 1
    rarest = (min(labels, key=lambda label: (counts[label], label), default=NO_LABEL) for labels in rows)
    return Target(predict="labels", values=there, names=tuple(map(shown, names)), groups=tuple(map(shown, rarest)))


def _parts(value: Any) -> list[str] | None:
    """Return the labels of a cell, none for an empty one; None for what holds no labels."""
    if value is None:
        return []
    if isinstance(value, str):
        value = re.split(BETWEEN, value)
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, list | tuple) or not all(isinstance(part, str | int) for part in value):
        return None
    return [text for part in value if (text := str(part).strip())]


def _class(value: Any, column: str, where: str, name: Callable[[int], str], place: int) -> int | str:
    """Return a class as a whole number or text. Raises `DataError` that begins with `where` and names the row."""
    if value is None or value == "":
        raise DataError(f"{where}{name(place)}: found nothing in column {column!r}: expected a label in every row")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    raise DataError(
        f"{where}{name(place)}: found {value!s:.40} in column {column!r}: expected a label, a whole number or a text; a"
        " column of other numbers is predicted with predict: number"
    )

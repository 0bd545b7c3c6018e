"""`labelled_text`: the user's own texts with labels: a column of texts in a table, and a column to predict.

    text,stars                 {labelled_text: {path: reviews.csv, text: text, target: stars}}
    "Works as described.",5
    "Broke after a day.",1

A text is read byte by byte, up to `context` bytes; a shorter one is filled up with the byte 0, which models leave out.
The test side is a share of each class: the rows with the smallest SHA-256, so that equal rows are on the same side.

Shapes: N rows, T bytes.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from explorer.data.dataset import DataFile, Dataset, DataSource, Fitted, Modality, Skipped, Split, TaskName
from explorer.data.labelled import Entry, provenance_of
from explorer.data.local import MAX_NAMES, below, shown
from explorer.data.table_file import SUFFIXES, TAGS, TARGETS, content_of, media_of, named, read_table, tags_of, texts
from explorer.data.targets import AIMS, PREDICT, Predict, guess, kind_for, read_target, sides_of
from explorer.errors import DataError

EXAMPLES = "training rows to use, as many of each class, by their digests; null: all"
SHARE = 0.2
PADDING = 0  # the byte that fills rows up
COLUMNS = ("text", "review", "sentence", "comment", "content", "body")  # usual names of texts, in this order
MAX_TEXTS = 2**31  # bytes of all rows together
LEAST = 32  # bytes of a row that is guessed
LONG = 20  # characters that a text has on average; a name or a category has fewer


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LabelledTexts(Dataset):
    """Rows of T bytes, N T in uint8. Nothing is fitted on them: the vocabulary is all bytes."""

    modality: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "classification"

    def preparation(self, where: torch.device) -> Callable[[Tensor], Tensor]:
        """Return a function from bytes to int64."""
        return lambda tokens: tokens.to(where, non_blocking=True).to(torch.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledText(DataSource):
    """Texts in a column of a table (CSV with names in its first line, or Parquet); `target` is the column to predict.

    `predict` is `class` (whole numbers or texts), `number` (regression) or `labels` (any number of them in a row).
    `context` is the number of bytes that are read of each text. `tag` is the column of provenance classes.
    """

    name: ClassVar[str] = "labelled_text"
    summary: ClassVar[str] = "texts of your own with labels (CSV, Parquet): predict a column from a text"
    source: ClassVar[str] = "a file of yours"
    licence: ClassVar[str] = "whatever holds for the texts"
    modality: ClassVar[Modality] = "text"
    task: ClassVar[TaskName] = "classification"
    fitted: ClassVar[Fitted] = {}  # read byte by byte
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    path: Annotated[str, Field(min_length=1, max_length=1000, description="file below --data")]
    target: Annotated[str, Field(min_length=1, max_length=200, description="column to predict")]
    text: Annotated[str, Field(min_length=1, max_length=200, description="column of the texts")] = "text"
    context: Annotated[int, Field(ge=8, le=4096, description="bytes that are read of each text")] = 256
    tag: Annotated[
        str | None, Field(min_length=1, max_length=200, description="column of the provenance classes; null: none")
    ] = None
    test: Annotated[float, Field(gt=0, le=0.5, description="share of each class for the test side")] = SHARE
    predict: Annotated[Predict, Field(description=PREDICT)] = "class"
    examples: Annotated[int | None, Field(ge=2, description=EXAMPLES)] = None

    @property
    def aim(self) -> TaskName:
        return AIMS[self.predict]

    def load(self, data: Path | None) -> LabelledTexts:
        table = read_table(self._place(data), dataset=self.name, columns=(self.text, self.target, self.tag))
        answers = texts(table.column(self.target))
        target = read_target(answers, self.predict, column=self.target, where=f"dataset {self.name!r}: ")
        tags = tags_of(table, self.tag, target=self.target, values=target)
        written = self._written(table.column(self.text).to_pylist())
        training, test = sides_of(
            target,
            [repr(row).encode() for row in zip(answers, written, strict=True)],
            share=self.test,
            examples=self.examples,
            column=self.target,
            dataset=self.name,
        )
        inputs = torch.from_numpy(padded(written, length=self.context))
        train_labels, test_labels, centre, scale = target.sides(training, test, dataset=self.name)
        cut = [f"row {row}" for row, text in enumerate(written, 1) if len(text) > self.context]
        rest = f"the rest of a text after its first {self.context} bytes"
        return kind_for(LabelledTexts, self.predict)(
            train=Split(inputs=inputs[torch.from_numpy(training)], labels=train_labels),
            test=Split(inputs=inputs[torch.from_numpy(test)], labels=test_labels),
            classes=target.outputs,
            names=target.names,
            provenance=provenance_of(
                [
                    Entry(name=f"{shown(self.path)}, row {place + 1}", label="", side="train", tag=tags[place])
                    for place in training.tolist()
                ]
            ),
            skipped=(Skipped(reason=rest, count=len(cut), names=tuple(cut[:MAX_NAMES])),) if cut else (),
            centre=centre,
            scale=scale,
        )

    @classmethod
    def of_path(cls, place: Path, target: str | None = None) -> Self | None:
        if not place.is_file() or place.suffix.lower() not in SUFFIXES:
            return None
        table = read_table(place, dataset=cls.name, columns=(target,))
        column = named([name for name in table.column_names if name != target], COLUMNS)
        target = target or named([name for name in table.column_names if name != column], TARGETS)
        # Both by their usual names: of any other table the columns are features.
        if column is None or target is None:
            return None
        cells = [cell for cell in texts(table.column(column)) if isinstance(cell, str)]
        if not cells or sum(map(len, cells)) < LONG * len(cells):
            return None
        # A power of two that holds the longest text, if that is less: every place costs time, filled up or not.
        holds = 1 << (max(len(cell.encode(errors="replace")) for cell in cells) - 1).bit_length()
        context = max(LEAST, min(holds, cls.__dataclass_fields__["context"].default))
        predict = guess(texts(table.column(target)))
        return cls(path=place.name, text=column, target=target, context=context, predict=predict)

    def with_classes(self, data: Path | None) -> Self:
        names = read_table(self._place(data), dataset=self.name).column_names
        return replace(self, tag=self.tag or named(names, TAGS) or self.target)

    def digest(self, data: Path | None) -> str:
        return hashlib.sha256(content_of(self._place(data), dataset=self.name)).hexdigest()

    def files(self, data: Path | None) -> tuple[DataFile, ...]:
        return (DataFile(path=shown(self.path), sha256=self.digest(data), media=media_of(Path(self.path))),)

    def _place(self, data: Path | None) -> Path:
        return below(data, self.path, dataset=self.name)

    def _written(self, cells: Sequence[Any]) -> list[bytes]:
        """Return the bytes of each text. Raises `DataError` that names the row of one that is none."""
        if len(cells) * self.context > MAX_TEXTS:
            raise DataError(f"dataset {self.name!r}: {len(cells)} rows of {self.context} bytes: at most {MAX_TEXTS:,}")
        written = []
        for row, cell in enumerate(cells, 1):
            if cell is None or not str(cell).strip():
                raise DataError(
                    f"dataset {self.name!r}: row {row}: found nothing in column {self.text!r}: expected a text"
                )
            # A zero byte would count as filling.
            written.append(str(cell).encode(errors="replace").replace(b"\0", b" "))
        return written


def padded(rows: Sequence[bytes], *, length: int) -> np.ndarray:
    """Return the first `length` bytes of each row, N T in uint8, shorter ones filled up with zeros.

    >>> padded([b"ab", b"abcd"], length=3).tolist()
    [[97, 98, 0], [97, 98, 99]]
    """
    filled = np.full((len(rows), length), PADDING, np.uint8)
    for place, row in enumerate(rows):
        start = np.frombuffer(row[:length], np.uint8)
        filled[place, : len(start)] = start
    return filled

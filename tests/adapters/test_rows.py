"""Rows of dictionaries as examples: what comes back, what a tag commits to, what cannot be a row."""

from typing import Any

import numpy as np
import pytest
import torch

from explorer.adapters.rows import rows_from, rows_of
from explorer.data.dataset import Split
from explorer.errors import DataError

ROWS: list[dict[str, Any]] = [
    {"input_ids": [5, 7, 300_000], "attention_mask": [1, 1, 1], "label": 1, "weight": 0.1},
    {"input_ids": [], "attention_mask": [], "label": 0, "weight": -1e300},
    {"input_ids": [1] * 40, "attention_mask": [1] * 40, "label": 2**62, "weight": 2.0},
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor | np.ndarray):
        return type(one) is type(other) and one.dtype == other.dtype and bool((one == other).all())
    return type(one) is type(other) and one == other


def test_rows_come_back_as_they_were() -> None:
    """Of unequal lengths, in any order, with types and kinds."""
    examples = rows_of(ROWS)
    assert rows_from(examples.inputs[[2, 0, 1]]) == [ROWS[2], ROWS[0], ROWS[1]]
    picture = {"pixel_values": torch.rand(3, 4, 4), "mask": np.eye(2, dtype=bool), "labels": True}
    (back,) = rows_from(rows_of([picture]).inputs)
    assert list(back) == list(picture) and all(same(value, picture[name]) for name, value in back.items())


def test_a_tag_commits_to_every_column() -> None:
    """One number, name or type that changes, changes the bytes of its row and of no other."""
    before = [rows_of(ROWS).content(index) for index in range(3)]
    for changed in ({"label": 2}, {"weight": 0.2}, {"weight": 1}, {"input_ids": [5, 7, 300_001]}, {"more": 0}):
        after = rows_of([{**ROWS[0], **changed}, *ROWS[1:]])
        assert after.content(0) != before[0] and [after.content(1), after.content(2)] == before[1:]
    renamed = {("labels" if name == "label" else name): value for name, value in ROWS[0].items()}
    assert rows_of([renamed, *ROWS[1:]]).content(0) != before[0]


def test_columns_are_chosen() -> None:
    rows = [{**row, "text": "not a number"} for row in ROWS]
    examples = rows_of(rows, columns=["label", "input_ids"])
    assert rows_from(examples.inputs[:1]) == [{"label": 1, "input_ids": [5, 7, 300_000]}]


class Augmented:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.rand(3)}


@pytest.mark.parametrize(
    ("dataset", "columns", "words"),
    [
        ([{"text": "words"}], None, "row 0: column 'text': found str, expected numbers; name the columns"),
        ([{"x": 1}, {"x": [[1], [2, 3]]}], None, "row 1: column 'x': found a list of unequal lists"),
        ([{"x": ["a"]}], None, "column 'x': found <U1 in list, expected numbers"),
        ([{"x": torch.zeros(1, dtype=torch.bfloat16)}], None, "found torch.bfloat16, expected a type that numpy has"),
        ([{"x": 1}, {"y": 1}], ["x"], "row 1: no column 'x'; it has y"),
        ([(1, 2)], None, "row 0: found tuple, expected a dictionary"),
        ([], None, "found list, expected one with a length above 0"),
        (iter([{"x": 1}]), None, "expected one with a length"),
        (Augmented(), None, "row 0 differs when it is read again"),
    ],
)
def test_what_cannot_be_rows(dataset: Any, columns: list[str] | None, words: str) -> None:
    with pytest.raises(DataError, match=words):
        rows_of(dataset, columns=columns)


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff\xff", b"\x02\x00\x00\x00[1]", b"\x04\x00\x00\x00null"])
def test_examples_of_another_origin_are_refused(content: bytes) -> None:
    inputs = torch.zeros(1, 40, dtype=torch.uint8)
    inputs[0, : len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else 0
    with pytest.raises(DataError, match="bytes that are no row"):
        rows_from(Split(inputs=inputs, labels=torch.zeros(1)).inputs)

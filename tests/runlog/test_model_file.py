"""A model's file without torch: the leaves are those of the ledger, and what is not such a file is refused."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from explorer.errors import RunError
from explorer.governance.recorder import leaves_of
from explorer.runlog.model_file import ModelFile, differences, read_card

TENSORS = {
    "a.weight": torch.arange(6.0).reshape(2, 3),
    "b.half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "b.count": torch.tensor(7, dtype=torch.int64),
    "c.empty": torch.zeros(0, 4),
    "d.flag": torch.tensor([True, False]),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def test_the_leaves_are_those_of_training(model: Path) -> None:
    assert ModelFile(model).leaves() == leaves_of(TENSORS)


def test_without_some_the_others_are_the_same(model: Path, tmp_path: Path) -> None:
    to = tmp_path / "other" / "model.safetensors"
    ModelFile(model).write_without({"a.weight", "c.empty"}, to)
    found = load_file(to)
    assert found.keys() == {"b.half", "b.count", "d.flag"}
    assert all(torch.equal(found[name], TENSORS[name]) for name in found)
    expected = {name: leaf for name, leaf in leaves_of(TENSORS).items() if name in found}
    assert ModelFile(to).leaves() == expected and not list(tmp_path.glob("**/.*"))


def test_differences_are_named() -> None:
    found = list(differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "0", "d": "4"}))
    assert found == ["b: found 2, expected 0", "c: not one of the model's", "d: missing"]
    assert not list(differences({"a": "1"}, {"a": "1"}))


def written(path: Path, header: Any, values: bytes = b"", *, length: int | None = None) -> Path:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(content) if length is None else length) + content + values)
    return path


def tensor(start: int, stop: int, *, dtype: Any = "F32", shape: Any = (1,)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


@pytest.mark.parametrize(
    ("header", "values", "message"),
    [
        ({"a": tensor(0, 4)}, bytes(3), "by its header"),
        ({"a": tensor(0, 4)}, bytes(5), "by its header"),
        ({"a": tensor(0, 4), "b": tensor(0, 4)}, bytes(4), "b: its values begin at byte"),
        ({"a": tensor(4, 8)}, bytes(8), "a: its values begin at byte"),
        ({"a": tensor(0, 8)}, bytes(8), "a: not a tensor of a known type and shape"),
        ({"a": tensor(0, 4, dtype="F33")}, bytes(4), "not a tensor of a known type"),
        ({"a": tensor(0, 4, shape=(-1, -1))}, bytes(4), "not a tensor of a known type"),
        ({"a": tensor(0, 4, shape=(True,))}, bytes(4), "not a tensor of a known type"),
        ({"a": tensor(0, 4, shape=(1,) * 65)}, bytes(4), "not a tensor of a known type"),  # with large ones, for ever
        ({"a": tensor(0, 0, shape=(0, 2**63))}, b"", "not a tensor of a known type"),
        ({"\ud800": tensor(0, 4)}, bytes(4), "not a tensor of a known type"),
        ({"a": [1]}, b"", "not a tensor of a known type"),
        ([1], b"", "expected a header"),
        (b'{"a":1,"a":2}', b"", "a name occurs twice"),
        (b"[" * 100_000, b"", "its header is no JSON"),
        (b"\xff", b"", "its header is no JSON"),
    ],
)
def test_what_is_no_such_file(header: Any, values: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=message):
        ModelFile(written(tmp_path / "model.safetensors", header, values))


@pytest.mark.parametrize("length", [0, 3, 2**40, 2**63])
def test_a_header_of_another_length(length: int, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"not a safetensors file|header"):
        ModelFile(written(tmp_path / "model.safetensors", {"a": tensor(0, 4)}, bytes(4), length=length))


def test_a_flipped_bit_has_another_leaf(model: Path) -> None:
    content = bytearray(model.read_bytes())
    content[-1] ^= 1
    model.write_bytes(bytes(content))
    (changed,) = differences(ModelFile(model).leaves(), leaves_of(TENSORS))
    assert "expected" in changed


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot read"):
        ModelFile(tmp_path / "nothing")
    with pytest.raises(RunError, match="cannot read"):
        read_card(tmp_path / "model.json")


def test_values_need_not_fit_into_a_piece(tmp_path: Path) -> None:
    large = {"w": torch.from_numpy(np.arange(1_700_000, dtype=np.float32))}  # and into a chunk
    save_file(large, tmp_path / "m")
    assert ModelFile(tmp_path / "m").leaves() == leaves_of(large)
    whole = ModelFile(tmp_path / "m").leaves(chunk=None)
    assert whole == leaves_of(large, chunk=None) != leaves_of(large)

"""What is kept on the disk: made once, checked each time."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from explorer.data.cache import cached
from explorer.errors import DataError

FORMS = {"a": (torch.uint8, (3,))}


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path))


def test_it_is_made_once() -> None:
    made = []

    def make() -> dict[str, torch.Tensor]:
        made.append(1)
        return {"a": torch.arange(12, dtype=torch.uint8).reshape(3, 4).T}  # not contiguous

    for _ in range(3):
        assert torch.equal(cached("x", FORMS, make)["a"], torch.arange(12, dtype=torch.uint8).reshape(3, 4).T)
    assert len(made) == 1
    cached("y", FORMS, make)
    assert len(made) == 2


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"b": torch.zeros(2, 3, dtype=torch.uint8)},
        {"a": torch.zeros(2, 4, dtype=torch.uint8)},
        {"a": torch.zeros(2, 3)},
        {"a": torch.zeros(2, 3, dtype=torch.uint8), "b": torch.zeros(1)},
    ],
)
def test_other_tensors_are_refused(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(DataError, match=r"damaged cache .*x\.safetensors: delete it and try again"):
        cached("x", FORMS, dict)


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> dict[str, torch.Tensor]:
        raise DataError("no")

    with pytest.raises(DataError, match="no"):
        cached("x", FORMS, fail)
    assert list(tmp_path.iterdir()) == []

"""The benchmark of a governed step says of each target whether it was met, and what it compares with is right."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import Tensor

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`benchmarks/governed_step.py`, which is no package's."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("governed_step")


@pytest.fixture
def split(benchmark: ModuleType) -> ModuleType:
    return importlib.import_module("governed_joined")


@pytest.mark.parametrize(
    ("name", "quartiles", "expected"),
    [
        ("FOUR", [1.02, 1.03, 1.05], "met"),
        ("FOUR", [1.02, 1.03, 1.062], "missed by 0.012"),
        ("SIXTEEN", [1.10, 1.15, 1.40], "met"),
        ("SIXTEEN", [1.10, 1.373, 1.40], "missed by 0.223"),
        ("LESS", [0.7, 1.001, 1.1], "missed by 0.001"),
    ],
)
def test_a_target_is_said_to_be_met_or_missed(
    benchmark: ModuleType, name: str, quartiles: list[float], expected: str
) -> None:
    """Of 4 classes the upper quartile counts, of 16 the median."""
    assert getattr(benchmark, name).verdict(quartiles) == expected


def side(benchmark: ModuleType, ratio: float) -> Any:
    found = benchmark.Side(name="a side", step=lambda: None, count=1, target=benchmark.SIXTEEN)
    for _ in range(3):
        found.windows.append(benchmark.Seconds(wall=ratio, cpu=ratio))
        found.plain.append(benchmark.Seconds(wall=1.0, cpu=1.0))
    return found


def test_a_missed_target_comes_with_its_reason_and_a_met_one_without(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "primitives", lambda rows: (62, 184))
    small, split = side(benchmark, 1.2), side(benchmark, 1.1)
    (words, _) = benchmark.reasons(sixteen=side(benchmark, 1.3), small=small, split=split)
    assert "missed the target of 1.15 by 0.150" in words
    assert "takes 1.200 of the fastest already" in words and "add 0.100" in words
    assert "would take 1.100 before" in words and "about 1.200 with it" in words
    assert benchmark.reasons(sixteen=side(benchmark, 1.15), small=small, split=split) == []
    assert "missed by 0.150" in benchmark.row(side(benchmark, 1.3))


def test_gradients_split_by_class_are_those_of_a_pass_for_each(
    split: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the control: where two classes are taken for each other, the comparison is not made."""
    loops = importlib.import_module("governed_loops")
    work = loops.Work(
        title="small",
        model="resnet8",
        parameters={"norm": "group"},
        optimizer=loops.SGDSpec(lr=0.1),
        modality="image",
        shape=(3, 8, 8),
        window=1,
        sizes=(),
    )
    split.joined(work, 16)()
    backward = split.Linear.backward

    def swapped(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        of_x, of_weight, of_bias, none = backward(ctx, grad)
        return of_x, of_weight.flip(0), of_bias.flip(0), none

    monkeypatch.setattr(split.Linear, "backward", staticmethod(swapped))
    with pytest.raises(ValueError, match="are not those of one pass for each class"):
        split.joined(work, 16)

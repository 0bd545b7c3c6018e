"""The contracts for methods and datasets of one's own: a sound one passes, and each broken promise is found."""

import dataclasses
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from explorer.data.digits import Digits
from explorer.engine.method import Method
from explorer.methods import METHODS
from explorer.testing import DatasetContract, MethodContract
from tests.contract_methods import Crossing, Damped, Drawing, Forgetful, Hasty, Idle, Late, Undeclared, Unneutral


class Quick(MethodContract):
    """The contract on a small table, in a tenth of the time; tests/methods has it on images and texts."""

    task: ClassVar = {
        "dataset": {"tabular": {"path": "iris.csv", "target": "target"}},
        "model": {"mlp": {"width": 16, "depth": 2}},
    }
    data: ClassVar = Path(__file__).parent / "data"


class TestDamped(Quick):
    """The contract as a plug-in's author uses it, with a few partners; the slow test has all."""

    method = Damped()

    def partners(self) -> list[Method]:
        return [METHODS[name]() for name in ("ema", "gradient_clipping", "mixup", "sam")]


@pytest.mark.slow
def test_a_sound_method_goes_with_every_one_of_ours() -> None:
    class Whole(MethodContract):
        method: ClassVar[Method] = Damped()

    assert len(Whole().partners()) > 20
    assert Whole().certify() == {}


class TestDigits(DatasetContract):
    """One of ours."""

    source = Digits()
    model: ClassVar = {"resnet8": {"width": 0.5}}


@pytest.mark.parametrize(
    ("broken", "test", "words"),
    [
        (Unneutral(), "neutral_value_changes_nothing", "the neutral value and the run without the method differ"),
        (Idle(), "changes_the_run", "the run with it equals the run without it"),
        (Forgetful(), "resumes_bit_for_bit_after_every_step", "resumed after step 1: losses"),
        (Drawing(), "touches_nothing_that_it_does_not_declare", "torch's global generator was drawn from"),
        (Crossing(), "is_routed_or_refused", "a layer depends on a class that it is denied"),
        (Hasty(), "steps_of_any_length_are_the_same", "the first 5 steps of a run of 5 and of one of 16 differ"),
        (Late(), "steps_of_any_length_are_the_same", "learning_rate: step 191 of 200 differs from that of 600"),
        (Undeclared(), "declares_itself", "routing: expected either how the method is routed"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_each_broken_promise_is_found(broken: Method, test: str, words: str) -> None:
    class Broken(Quick):
        method: ClassVar[Method] = broken

    with pytest.raises(AssertionError, match=words):
        getattr(Broken(), f"test_{test}")()


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Unsteady(Digits):
    """Other labels at every load, under the same digest."""

    def load(self, data: Path | None):
        dataset = Digits.load(self, data)
        labels = dataset.train.labels[torch.from_numpy(np.random.default_rng().permutation(len(dataset.train)))]
        return dataclasses.replace(dataset, train=dataclasses.replace(dataset.train, labels=labels + 1))


def test_a_dataset_that_is_not_what_it_says_is_found() -> None:
    class Broken(DatasetContract):
        source: ClassVar = Unsteady()

    failed = Broken().certify()
    assert "two loads give different examples" in failed["test_loads_the_same_examples_every_time"]
    assert "labels: 1 to 10, of 10 classes" in failed["test_examples_and_labels_fit"]
    assert failed["test_reads_back_as_it_is_written"]

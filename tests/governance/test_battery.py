"""The battery that every method in the table passes under a policy, or is refused by name with the reason."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from explorer.data.dataset import Dataset, Split
from explorer.data.sequences import Text
from explorer.engine.fit import FitOptions, Fitted, fit
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method, ordered
from explorer.engine.state import State
from explorer.engine.task import LanguageModelling
from explorer.errors import RecipeError
from explorer.governance.shared_state import Session
from explorer.methods import METHODS
from explorer.models.resnet import ResNet
from explorer.models.table import MODELS
from explorer.provenance.regions import SealedRegion
from explorer.recipes.choice import choose
from tests.data_for_tests import noise
from tests.governance.governed import (
    EXAMPLES,
    SEALED,
    differing,
    everything,
    governed_loop,
    other_content,
    sealing,
    steps,
    without_payload,
)
from tests.methods.samples import SAMPLES, Sample

STEPS = 7
OUTSIDERS = ("personal/customer", "open-data")
POLICY = sealing(SealedRegion(name="customer", branch="personal/customer", layers=("stages.2.*",), rank=2))
REFUSED = {name: reason for name, kind in METHODS.items() if (reason := kind.conflicts_with.get("routing"))}
ROUTED = sorted(METHODS.keys() - REFUSED)
USUAL = Sample()
NAMES = [name for name in ROUTED if replace(SAMPLES[name], parameters={}, neutral=True) == USUAL]


def learnable() -> Dataset:
    """Faint noise with a bright band whose place is the label."""
    found = noise(train=EXAMPLES, shape=(1, 8, 8))
    images = found.train.inputs // 8
    for image, label in zip(images, found.train.labels, strict=True):
        image[:, 2 * label : 2 * label + 3] += 200
    return replace(found, train=Split(inputs=images, labels=found.train.labels))


DATA = learnable()


def active(*names: str) -> list[Method]:
    return [choose(METHODS, {name: SAMPLES[name].parameters}, kind="method", where="test") for name in names]


def compatible(names: Sequence[str]) -> list[str]:
    """As many of them as go together, the first ones first."""
    chosen: list[str] = []
    for name in names:
        with contextlib.suppress(RecipeError):
            ordered(active(*chosen, name))
            chosen.append(name)
    return chosen


def make(methods: Sequence[Method], *, data: Dataset = DATA, total_steps: int = STEPS, **setting: Any) -> Loop:
    model = ResNet(depth=8, width=0.5, norm="batch", channels=1, classes=DATA.classes)
    return governed_loop(POLICY, methods, model=model, dataset=data, total_steps=total_steps, batch_size=24, **setting)


def run_to_end(loop: Loop, directory: Path, **options: Any) -> Fitted:
    directory.mkdir(exist_ok=True)
    return fit(loop, FitOptions(directory=directory, run_id="r", **options))


@pytest.mark.parametrize("name", NAMES)
def test_trains(name: str) -> None:
    loop = make(active(name), total_steps=12)
    losses = [float(loop.step()) for _ in range(12)]
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_resumes_bit_identically(name: str, tmp_path: Path) -> None:
    whole = make(active(name))
    expected = run_to_end(whole, tmp_path / "whole")
    first, resumed = make(active(name)), make(active(name))
    with pytest.raises(KeyboardInterrupt):
        run_to_end(first, tmp_path / "cut", stop=lambda: first.state.step >= 4)
    result = run_to_end(resumed, tmp_path / "cut")
    assert differing(everything(resumed), everything(whole)) == set()
    assert result.state_digest == expected.state_digest and result.metrics == expected.metrics


def lower_half(loop: Loop) -> tuple[str, ...]:
    """The layers that `open/bsd` may not change."""
    return tuple(f"{layer.name}." for layer in loop.state.resource(Session).layers if layer.depth < 0.5)


def on_other_rows(methods: Sequence[Method], path: str) -> tuple[set[str], set[str]]:
    """What one step changes, in the lower half and above it, when the rows of a class are others."""
    one, other = make(methods), make(methods, data=other_content(DATA, [path]))
    steps(one, 3)
    other.restore(everything(one), step=3)
    found = differing(everything(steps(one, 1)), everything(steps(other, 1)))
    lower = {name for name in found if any(part.startswith(lower_half(one)) for part in name.split("/"))}
    return lower, found - lower


@pytest.mark.parametrize("name", NAMES)
def test_one_step_of_what_is_denied_does_not_depend_on_the_rows(name: str) -> None:
    lower, upper = on_other_rows(active(name), "open/bsd")
    assert not lower and upper


def test_the_same_rows_matter_where_they_are_admitted() -> None:
    """The control: a class that nothing denies the lower half."""
    lower, upper = on_other_rows([], "open/mit")
    assert lower and upper


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_without_the_outsiders_is_the_same_run(name: str) -> None:
    whole = steps(make(active(name)), STEPS)
    gone = steps(make(active(name), data=without_payload(DATA, OUTSIDERS), without=OUTSIDERS), STEPS)
    assert differing(*(everything(loop, without="customer") for loop in (whole, gone))) == set()


def test_all_of_them_together(tmp_path: Path) -> None:
    together = compatible(NAMES)
    assert len(together) > 12
    whole, gone = make(active(*together)), make(active(*together), without=OUTSIDERS)
    for loop in (whole, gone):
        run_to_end(loop, tmp_path / str(id(loop)))
    assert differing(*(everything(loop, without="customer") for loop in (whole, gone))) == set()
    lower, upper = on_other_rows(active(*together), "open/bsd")
    assert not lower and upper


# Other models, and text


def text() -> Dataset:
    draws = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (EXAMPLES + 4, 17), dtype=torch.uint8, generator=draws)
    return Text.of(blocks[:EXAMPLES], blocks[EXAMPLES:])


def routed(name: str, *, without: tuple[str, ...] = ()) -> Loop:
    """A tiny loop under a policy, with the method at the strength of its sample."""
    sample = SAMPLES[name]
    setting: dict[str, Any] = {"precision": sample.train.get("precision", "fp32"), "total_steps": 7}
    if "image" in METHODS[name].modalities and sample.task != "text":
        dataset: Dataset = noise(train=EXAMPLES, shape=(3, 8, 8))
        wanted = sample.model or {"resnet8": {"width": 0.5}}
    else:
        dataset = text()
        wanted = sample.model or {"gpt": {"depth": 2, "width": 16, "heads": 2, "dropout": 0.1}}
        setting["task"] = LanguageModelling(classes=256)
    spec = choose(MODELS, wanted, kind="model", where="test")
    return governed_loop(
        SEALED,
        active(name),
        model=spec.build(example_shape=dataset.example_shape, classes=dataset.classes),
        dataset=without_payload(dataset, without) if without else dataset,
        without=without,
        **setting,
    )


@pytest.mark.parametrize("name", sorted(set(ROUTED) - set(NAMES)))
def test_so_it_is_with_methods_for_other_models_and_for_text(name: str) -> None:
    whole, gone = (steps(routed(name, without=without), 5) for without in ((), OUTSIDERS))
    kept, expected = (everything(loop, without="customer") for loop in (whole, gone))
    assert len(kept) > 10 and differing(kept, expected) == set()


# Refusals


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_routed_is_refused_with_the_reason(name: str) -> None:
    with pytest.raises(RecipeError, match=name) as caught:
        make(active(name))
    assert REFUSED[name] in str(caught.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Crossing(Method):
    """Compares examples of all classes: nothing that routing could allow."""

    name: ClassVar[str] = "crossing"
    kind: ClassVar[Kind] = Kind.SELECT
    conflicts_with: ClassVar[dict[str, str]] = {"routing": "its threshold is taken over all classes"}

    def change_batch(self, state: State) -> None: ...


def test_a_method_that_crosses_classes_is_refused_by_name_with_the_reason() -> None:
    with pytest.raises(RecipeError, match="'crossing' and 'routing' cannot be combined: its threshold is taken over"):
        make([Crossing()])


@dataclass(frozen=True, kw_only=True, slots=True)
class Shrinking(Method):
    """A control of the battery: shortens every share's gradient by the length of that before it."""

    name: ClassVar[str] = "shrinking"
    kind: ClassVar[Kind] = Kind.GRADIENT

    def memory(self, state: State) -> dict[str, torch.Tensor]:
        return {"length": torch.zeros(())}

    def change_gradients(self, state: State) -> None:
        length = state.memory[self.name]["length"]
        before = length.clone()
        length.copy_(torch.nn.utils.get_total_norm(list(state.gradients.values())))
        state.gradients = {name: gradient / (1 + before) for name, gradient in state.gradients.items()}


def test_the_battery_finds_a_method_that_crosses_classes_and_does_not_say_so() -> None:
    lower, _ = on_other_rows([Shrinking()], "open/bsd")
    assert lower

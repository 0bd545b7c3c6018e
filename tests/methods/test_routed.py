"""Every method under a routing policy: what the others learn does not depend on a class that is sealed or denied."""

from typing import Any

import pytest
import torch

from explorer.data.dataset import Dataset
from explorer.data.sequences import Text
from explorer.engine.loop import Loop
from explorer.engine.order import ordered
from explorer.engine.task import LanguageModelling
from explorer.errors import RecipeError
from explorer.governance.routing import Routing
from explorer.methods import METHODS
from explorer.models.table import MODELS
from explorer.recipes.choice import choose
from tests.data_for_tests import noise
from tests.governance.governed import EXAMPLES, SEALED, differing, everything, governed_loop, without_payload
from tests.methods.samples import SAMPLES, active

ROUTED = sorted(name for name in METHODS if "routing" not in METHODS[name].conflicts_with)
REFUSED = sorted(METHODS.keys() - set(ROUTED))
ABSENT = ("open-data", "personal/customer")  # denied everywhere; denied but for a region of its own
STEPS = 5


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
        [choose(METHODS, active(name), kind="method", where="test")],
        model=spec.build(example_shape=dataset.example_shape, classes=dataset.classes),
        dataset=without_payload(dataset, without) if without else dataset,
        without=without,
        **setting,
    )


@pytest.mark.parametrize("name", ROUTED)
def test_the_others_are_as_if_the_class_had_never_been(name: str) -> None:
    whole, counterfactual = routed(name), routed(name, without=ABSENT)
    for _ in range(STEPS):
        whole.step()
        counterfactual.step()
    kept = everything(whole, without="customer")
    assert len(kept) > 10
    assert not differing(kept, everything(counterfactual, without="customer"))


@pytest.mark.parametrize("name", REFUSED)
def test_or_it_is_refused_with_the_reason(name: str) -> None:
    method = choose(METHODS, active(name), kind="method", where="test")
    with pytest.raises(RecipeError, match=name) as caught:
        ordered([method, Routing(policy="drawn")])
    assert METHODS[name].conflicts_with["routing"] in str(caught.value)


def test_the_comparison_can_fail() -> None:
    """The control: an admitted class that is absent changes what the others learn."""
    whole, other = routed("label_smoothing"), routed("label_smoothing", without=("open/mit",))
    for _ in range(2):
        whole.step()
        other.step()
    assert not torch.equal(whole.tensors()["model/conv.weight"], other.tensors()["model/conv.weight"])

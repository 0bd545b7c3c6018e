"""Models that others write, under a signed policy: whatever trains in a plain loop trains, and what is denied stays."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.leaves import Leaf, leaves_met
from explorer.errors import RecipeError
from explorer.governance import custom_loop, layers
from tests.foreign_models import EXAMPLES, KINDS, STRUCTURES, Foreign, published
from tests.governance import desk
from tests.governance.foreign_trials import BATCH, Trial, papers, rows_of, try_out
from tests.governance.governed import bits

BY_NAME = {each.name: each for each in STRUCTURES}
MOE = BY_NAME["mixture of experts"]


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Foreign], Trial]:
    monkeypatch.setattr("explorer.training.govern.time.time", lambda: desk.NOW)

    def try_here(foreign: Foreign) -> Trial:
        here = Path(tempfile.mkdtemp(dir=tmp_path))
        return try_out(foreign, papers(here / "papers", foreign), here)

    return try_here


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.slow
def test_what_trains_in_a_plain_loop_trains_and_what_is_denied_stays(name: str, trial) -> None:
    found = trial(BY_NAME[name])
    assert found.holds, found
    assert found.moved > 3


def test_a_model_that_first_moves_a_constant_later_keeps_it(trial) -> None:
    """SECURITY.md says so: what was no layer in the first batch is put back from then on."""

    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.calls = nn.Linear(192, KINDS), 0
            self.counter = nn.Module()
            self.counter.register_buffer("seen", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            if self.calls > 2:
                self.counter.seen += 1  # pyright: ignore[reportOperatorIssue]
            return self.head(x.flatten(1))

    image = BY_NAME["ViT"]
    found = trial(Foreign(name="late", says="", build=Late, examples=image.examples, losses=image.losses))
    assert found.still == {"counter.seen"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("number", range(5))
def test_published_models(number: int, trial) -> None:
    pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[hub]'")
    found = trial(published()[number])
    assert found.holds, found
    assert found.moved > 20


def missing(name: str) -> Callable[..., tuple[Leaf, ...]]:
    """A discovery that does not find this expert."""
    found = custom_loop.leaves_met
    return lambda *given, **named: tuple(leaf for leaf in found(*given, **named) if name not in leaf.name)


def test_a_discovery_that_misses_an_expert_is_refused(trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_loop, "leaves_met", missing("experts.3"))
    with pytest.raises(RecipeError, match=r"transformer\.h\.0\.mlp\.experts\.3\.0\.weight: found in no layer"):
        trial(MOE)


@pytest.mark.slow
def test_and_without_that_refusal_the_trial_finds_it(trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the trial itself: an expert that silently never trains is found."""
    moves = trial(MOE)
    monkeypatch.setattr(custom_loop, "leaves_met", missing("experts.3"))
    monkeypatch.setattr(layers, "_check", lambda *given: None)
    found = trial(MOE)
    assert moves.holds and not found.holds
    assert found.still and all("experts.3" in name for name in found.still)


# Where layers lie


def order(name: str) -> list[str]:
    """The layers of a model as its loop meets them."""
    foreign = BY_NAME[name]
    torch.manual_seed(0)
    model = foreign.build().train()
    return [
        leaf.name for leaf in leaves_met(model, lambda: foreign.losses(model, *rows_of(foreign, BATCH)), rows=EXAMPLES)
    ]


def test_depth_follows_the_first_use_of_each_tensor() -> None:
    """A class token and positions act first, though the modules that hold them end last; attention uses `out_proj`
    without calling it."""
    assert order("ViT")[:5] == [
        "conv_proj",
        "class_token",
        "encoder",
        "encoder.layers.0.norm1",
        "encoder.layers.0.self_attn",
    ]
    attention = order("TransformerEncoder")
    assert attention[:2] == ["embed", "positions"]
    at = attention.index("encoder.layers.0.self_attn")
    assert attention[at + 1] == "encoder.layers.0.self_attn.out_proj"
    assert order("functional") == ["table", "first", "parts", "head", "gain"]


def test_an_expert_that_no_token_chose_is_beside_the_others() -> None:
    found = order("mixture of experts")
    experts = [name for name in found if name.startswith("transformer.h.0.mlp.experts")]
    assert len(experts) == 12 and experts == sorted(experts)
    at = found.index(experts[0])
    assert found[at : at + 12] == experts


def test_a_head_that_runs_in_training_only_is_met_in_training() -> None:
    found = order("GoogLeNet's second head")
    assert found.index("aux.3") > found.index("layer1.0.conv2")


def test_meeting_the_layers_leaves_no_trace() -> None:
    """Parameters, running statistics, modes, gradients and the generators of torch, numpy and Python."""
    for foreign in STRUCTURES:
        torch.manual_seed(0)
        model = foreign.build()
        model.train()
        before = {name: bits(tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        generators = torch.get_rng_state(), str(np.random.get_state()), random.getstate()
        leaves_met(model, lambda: foreign.losses(model, *rows_of(foreign, BATCH)), rows=EXAMPLES)  # noqa: B023
        after = {name: bits(tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        assert after == before and model.training and all(each.grad is None for each in model.parameters())
        assert torch.equal(torch.get_rng_state(), generators[0])
        assert (str(np.random.get_state()), random.getstate()) == generators[1:]
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())

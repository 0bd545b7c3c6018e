"""Entropy profiles: when they are taken, what is in them, and that taking them changes nothing."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.engine.loop import Loop
from explorer.engine.method import Moment
from explorer.entries.entropy_profile import LayerProfiles, encode_class
from explorer.governance.entropy import Entropy, take_profile
from explorer.governance.probes import choose_probes
from tests.governance.tagged import CLASSES, session_of, tagged_loop


def trained(method: Entropy | None, **setting: Any) -> Loop:
    loop = tagged_loop([method] if method else [], **setting)
    for _ in range(loop.state.total_steps):
        loop.step()
    return loop


def profiles_of(loop: Loop) -> list[LayerProfiles]:
    return session_of(loop).notes.profiles


def test_profiles_are_taken_at_their_moments() -> None:
    loop = trained(Entropy(profiles=3, probes=8, permutations=9))
    assert [each.step for each in profiles_of(loop)] == [0, 5, 10]
    for profile in profiles_of(loop):
        assert profile.classes == (0, 1)
        assert profile.examples == (8, 8)
        assert profile.spectra.shape == (2, 4, 6)
        assert profile.probes == choose_probes(loop.state, count=8).root


def test_the_first_profile_is_that_of_the_untrained_model() -> None:
    method = Entropy(profiles=2, probes=8, permutations=9)
    first = profiles_of(trained(method))[0]
    fresh = tagged_loop([])
    expected = take_profile(fresh.state, choose_probes(fresh.state, count=8), step=0, permutations=9)
    assert np.array_equal(first.spectra, expected.spectra)
    assert np.array_equal(first.joint, expected.joint)


def test_a_run_with_profiles_has_the_same_weights() -> None:
    with_it, without = trained(Entropy(probes=8, permutations=3)), trained(None)
    assert len(profiles_of(with_it)) == 8
    for name, tensor in without.tensors().items():
        assert torch.equal(tensor, with_it.tensors()[name]), name


class Mark(nn.Linear):
    """-1 and 1 at right angles."""

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.weight.copy_(torch.tensor([[0.5], [-0.5]]))
            self.bias.fill_(0.5)


class TellsApart(nn.Module):
    """A layer that sees the sign of one corner, and one that sees noise."""

    def __init__(self) -> None:
        super().__init__()
        self.mark = Mark(1, 2)
        self.noise = nn.Linear(48, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.noise(x.flatten(1)) * self.mark(x[:, 0, 0, :1].sign()).sum(1, keepdim=True)


def marked(*, meaning: bool) -> Loop:
    """256 examples of two classes; the corner says which, or says nothing."""
    loop = tagged_loop([], examples=256, model=TellsApart())
    says = np.arange(256) % 2
    if not meaning:
        says = np.random.default_rng(1).permutation(says)
    loop.setting.batches.dataset.train.inputs[:, 0, 0, 0] = torch.from_numpy(says * 255).to(torch.uint8)
    return loop


def corrected(loop: Loop, layer: str) -> tuple[float, float]:
    profile = take_profile(loop.state, choose_probes(loop.state, count=128), step=0, permutations=99)
    names = [leaf.name for leaf in loop.state.layers]
    _, _, _, chi, null, p_value, *_ = profile.joint[names.index(layer)]
    return chi - null, p_value


def test_chi_finds_the_layer_that_tells_classes_apart() -> None:
    loop = marked(meaning=True)
    chi, p_value = corrected(loop, "mark")
    assert chi == pytest.approx(math.log(2), abs=0.01)
    assert p_value == 0.01


def test_chi_covers_zero_where_the_mark_says_nothing() -> None:
    """The control: the same layer and the same marks, at other examples."""
    chi, p_value = corrected(marked(meaning=False), "mark")
    assert abs(chi) < 0.02
    assert p_value > 0.05


def test_a_class_that_is_absent_is_left_out_and_changes_nothing_for_the_others() -> None:
    method = Entropy(profiles=1, probes=8, permutations=9)
    both = profiles_of(trained(method))[0]
    loop = tagged_loop([method], absent=frozenset({CLASSES[0]}))
    loop.step()
    alone = profiles_of(loop)[0]
    assert alone.classes == (1,)
    assert alone.probes == both.probes
    assert encode_class(alone, 0) == encode_class(both, 1)
    assert np.array_equal(alone.joint[:, 3:6], np.tile([0.0, 0.0, 1.0], (4, 1))), "nothing to tell apart"


def test_a_run_whose_classes_are_all_absent_has_no_profiles() -> None:
    loop = tagged_loop([Entropy()], absent=frozenset(CLASSES))
    loop.step()
    assert profiles_of(loop) == []


def test_steps_with_a_profile_are_a_phase_of_their_own() -> None:
    method = Entropy(profiles=3)
    phases = [method.phase(Moment(step=step, total_steps=10, example_shape=(1, 8, 8))) for step in range(10)]
    assert [step for step, phase in enumerate(phases) if phase == "entropy profile"] == [0, 4, 9]

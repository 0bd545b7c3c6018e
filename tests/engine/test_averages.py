"""Exact exchange, exact return, one average for a tensor of two names; batch statistics against their definition."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from explorer.data.images import Images
from explorer.engine import averages
from explorer.engine.averages import (
    Average,
    Held,
    exchange,
    model_tensors,
    refresh_on_training_data,
    refresh_statistics,
    training_inputs,
    with_statistics,
)
from explorer.provenance.taxonomy import QUARANTINE
from tests.data_for_tests import noise, noise_batches, typed
from tests.loop_for_tests import small_net


class Tied(nn.Module):
    """An embedding whose matrix is the head too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(2), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.embed(tokens)))


def test_a_model_is_its_parameters_and_persistent_buffers_each_once() -> None:
    tensors = model_tensors(Tied())
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    assert list(tensors) == ["embed.weight", *(f"norm.{name}" for name in norm)]
    assert not any(tensor.requires_grad for tensor in tensors.values())


def test_exchanging_twice_is_exact() -> None:
    one = {"w": torch.randn(50), "n": torch.tensor(1)}
    other = {"w": torch.randn(50), "n": torch.tensor(2)}
    before = [{k: v.clone() for k, v in tensors.items()} for tensors in (one, other)]
    exchange(one, other)
    assert torch.equal(one["w"], before[1]["w"]) and torch.equal(other["n"], before[0]["n"])
    exchange(one, other)
    for tensors, old in zip((one, other), before, strict=True):
        assert all(torch.equal(tensors[name], old[name]) for name in tensors)


def test_a_tied_tensor_comes_back_from_an_exchange() -> None:
    """With an average for each of its names the second exchange would leave the average in the model."""
    model = Tied()
    average = {name: torch.zeros_like(tensor) for name, tensor in model_tensors(model).items()}
    trained = model.embed.weight.detach().clone()
    exchange(average, model_tensors(model))
    assert not model.head.weight.any()
    exchange(average, model_tensors(model))
    assert torch.equal(model.head.weight, trained) and not average["embed.weight"].any()


def test_what_is_held_is_put_back_exactly() -> None:
    model = Tied()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    held = Held.of(model)
    for tensor in model_tensors(model).values():
        tensor.add_(1)
    held.put_back()
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


# --- averages ---


@torch.no_grad()
def test_floats_move_as_tensor_by_tensor_and_counters_are_copied() -> None:
    model = Tied()
    mine = {name: torch.zeros_like(tensor) for name, tensor in model_tensors(model).items()}
    average, by_hand = Average(mine, model), {name: tensor.clone() for name, tensor in mine.items()}
    for step, weight in enumerate([0.9, 0.25, 1 / 3]):
        model.train()(torch.randint(5, (4,), generator=torch.Generator().manual_seed(step)))
        model.embed.weight.add_(0.1)
        average.approach(weight)
        for name, tensor in model_tensors(model).items():
            floating = tensor.is_floating_point()
            by_hand[name] = torch.lerp(by_hand[name], tensor, weight) if floating else tensor.clone()
    assert all(torch.equal(mine[name], tensor) for name, tensor in by_hand.items())
    assert mine["norm.num_batches_tracked"] == 3 and mine["norm.running_mean"].any()
    average.approach(1.0)
    assert all(torch.equal(mine[name], tensor) for name, tensor in model_tensors(model).items())


def test_a_buffer_that_a_pass_puts_in_place_of_another_is_averaged() -> None:
    model = nn.BatchNorm1d(3)
    mine = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
    average = Average(mine, model)
    before = model.running_mean
    model.running_mean = torch.full((3,), 8.0)
    average.approach(0.5)
    assert mine["running_mean"].tolist() == [4.0] * 3
    assert before is not None and not before.any(), "a list of the tensors themselves would have averaged these"


# --- batch statistics ---


def inputs(count: int = 3) -> list[Tensor]:
    draws = np.random.default_rng(0)
    return [torch.from_numpy(draws.normal(size=(6, 2, 4, 4)).astype(np.float32)) for _ in range(count)]


def test_they_are_means_over_the_batches_in_float64() -> None:
    model, batches = nn.Sequential(nn.BatchNorm2d(2)), inputs()
    refresh_statistics(model, iter(batches))
    values = [batch.double().numpy().transpose(1, 0, 2, 3).reshape(2, -1) for batch in batches]
    norm = with_statistics(model)[0]
    assert norm.running_mean is not None and norm.running_var is not None
    np.testing.assert_allclose(norm.running_mean, np.mean([each.mean(1) for each in values], 0), atol=1e-6)
    np.testing.assert_allclose(norm.running_var, np.mean([each.var(1, ddof=1) for each in values], 0), rtol=1e-5)


def test_later_layers_are_measured_as_they_are_met_in_an_evaluation() -> None:
    """Without dropout: the first layer passes on what it will pass on then, but for its statistics."""
    model = nn.Sequential(nn.Dropout(0.9), nn.BatchNorm2d(2))
    refresh_statistics(model, inputs())
    plain = nn.Sequential(nn.Identity(), nn.BatchNorm2d(2))
    refresh_statistics(plain, inputs())
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True))


@pytest.mark.parametrize("training", [True, False])
def test_nothing_else_changes(training: bool) -> None:
    model = small_net()
    model.train(training)
    model[2].train(not training)
    model(torch.randn(4, 2, 6, 4))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes, momenta = ([getattr(m, name, None) for m in model.modules()] for name in ("training", "momentum"))
    refresh_statistics(model, [torch.randn(4, 2, 6, 4) for _ in range(3)])
    changed = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"1.running_mean", "1.running_var"}
    assert [m.training for m in model.modules()] == modes
    assert [getattr(m, "momentum", None) for m in model.modules()] == momenta


def test_a_model_without_them_is_not_run() -> None:
    model = small_net("group")
    refresh_statistics(model, iter([torch.empty(0)]))  # a pass would fail
    with pytest.raises(RuntimeError):
        model(torch.empty(0))


def test_without_own_statistics_there_is_nothing_to_take() -> None:
    assert not with_statistics(nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False)))


@pytest.mark.parametrize(("examples", "sizes"), [(8, [4, 4]), (6, [3, 3]), (3, [3]), (100, [4, 4, 4, 4, 4])])
def test_training_data_comes_in_batches_of_equal_size_the_same_each_time(
    examples: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(averages, "EXAMPLES", examples)
    monkeypatch.setattr(averages, "BATCH", 4)
    first, second = (list(training_inputs(noise_batches(noise(train=20)))) for _ in range(2))
    assert [len(batch) for batch in first] == sizes
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    images = {image.numpy().tobytes() for image in noise_batches().prepare(noise(train=20).train.inputs)}
    drawn = [image.numpy().tobytes() for batch in first for image in batch]
    assert len(set(drawn)) == len(drawn) and images.issuperset(drawn)


@pytest.mark.parametrize("quarantined", [1, 2])
def test_what_is_in_quarantine_is_never_read(quarantined: int) -> None:
    """Every second example is; with all of them there is nothing to read."""
    dataset, names = noise(train=20), {code: f"open/class-{code}" for code in (1, 2)}
    typing = replace(typed(train=20), names=names | dict.fromkeys(range(1, quarantined + 1), QUARANTINE))
    batches = noise_batches(dataset, typing=typing)
    drawn = {image.numpy().tobytes() for batch in training_inputs(batches) for image in batch}
    theirs = batches.prepare(dataset.train.inputs[1::2])
    assert drawn == ({image.numpy().tobytes() for image in theirs} if quarantined == 1 else set())


def test_statistics_do_not_depend_on_the_global_generator() -> None:
    class Noisy(nn.Module):
        def forward(self, input: Tensor) -> Tensor:
            return input + torch.randn_like(input)

    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        model = nn.Sequential(Noisy(), nn.BatchNorm2d(2))
        dataset: Images = noise()
        refresh_on_training_data(model, noise_batches(dataset))
        found.append([buffer.clone() for buffer in model.buffers()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))

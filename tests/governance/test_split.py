"""The split experiment in small: a policy moves each class into a half of the code, and its absence does not."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from explorer.data.streams import stream
from explorer.engine.modules import initialise


@pytest.fixture(scope="module")
def experiment() -> ModuleType:
    """`benchmarks/split_experiment.py`, which is no package's."""
    path = Path(__file__).parents[2] / "benchmarks" / "split_experiment.py"
    spec = importlib.util.spec_from_file_location("split_experiment", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as for a script: the benchmarks' common module is next to it
    sys.modules["split_experiment"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    sys.path.remove(str(path.parent))
    return module


@pytest.mark.parametrize("seeds", [2, 3, 7])
def test_a_page_is_made_of_any_number_of_seeds(experiment: ModuleType, seeds: int) -> None:
    one = {"a_low": 0.1, "b_low": 0.3, "b_high": 0.1, "whole": 0.1}
    runs = [experiment.Errors(a_high=0.2 + 0.01 * seed, **one) for seed in range(seeds)]
    page = experiment.report(dict.fromkeys(experiment.CONDITIONS, runs), experiment.digits(), seconds=1.0)
    assert f"{seeds} seeds" in page and page.count("above 0") >= len(experiment.CONDITIONS)


def stopped(experiment: ModuleType, *, steps: int) -> torch.nn.Module:
    """The published way: a stop-gradient at the other half of the code, the penalty on both; one graph, no policy."""
    data, _ = experiment.digits()
    model = experiment.Autoencoder()
    initialise(model, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=experiment.LR, weight_decay=5e-5)
    for step in range(steps):
        experiment.set_rate(optimizer, step, steps)
        rows = torch.from_numpy(stream(0, "order", step).permutation(len(data.pixels))[: experiment.BATCH])
        pixels, low = data.pixels[rows], data.low[rows, None]
        a, b = model.code(pixels)
        routed = torch.cat([torch.where(low, a, a.detach()), torch.where(low, b.detach(), b)], 1)
        loss = (model.decode(routed) - pixels).abs().mean()
        penalty = experiment.L1 * torch.cat([a, b], 1).abs().sum() / len(rows)
        optimizer.zero_grad()
        (loss + penalty).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize(("condition", "agrees"), [("routing and L1", True), ("L1", False), ("all routed", False)])
def test_the_policy_has_the_gradients_of_a_stop_gradient_at_the_code(
    experiment: ModuleType, condition: str, agrees: bool
) -> None:
    """No layer lies below both halves, so denying an encoder is stopping its gradient. The controls: other policies."""
    data, _ = experiment.digits()
    routed = experiment.train(data, experiment.CONDITIONS[condition], seed=0, steps=3)
    expected = stopped(experiment, steps=3)
    same = [
        np.allclose(mine.detach(), theirs.detach(), atol=1e-4)
        for mine, theirs in zip(routed.parameters(), expected.parameters(), strict=True)
    ]
    assert all(same) == agrees


@pytest.mark.slow
def test_routing_splits_the_code_and_its_absence_does_not(experiment: ModuleType) -> None:
    sides = experiment.digits()

    def split(condition: str) -> float:
        model = experiment.train(sides[0], experiment.CONDITIONS[condition], seed=0, steps=600)
        return experiment.measure(model, sides, seed=0, steps=300).split

    assert split("routing and L1") > 0.025
    assert abs(split("L1")) < 0.0125

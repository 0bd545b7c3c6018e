"""Governed loops of one's own in which a class has a sealed region, on models that others wrote."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import explorer
from explorer.data.dataset import Split
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, RoutingPolicy, Rule
from explorer.provenance.regions import SealedRegion
from tests.foreign_models import EXAMPLES, STRUCTURES, Foreign
from tests.governance import desk
from tests.provenance.people import RISK

NEWS, STEPS = "licensed/news", 6
OPEN = Rule(classes=("open",), weight=1.0)
BY_NAME = {each.name: each for each in STRUCTURES}
WHERE = {"ResNet": ("layer2.*",), "TransformerEncoder": ("encoder.layers.1.*", "head")}
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


def sealed(*layers: str, **changes: Any) -> RoutingPolicy:
    """The class has adapters of its own on these layers; everybody else may train everything."""
    region = SealedRegion(name="news", branch=NEWS, layers=layers, rank=2)
    return desk.policy(**{"name": "sealed", "rules": (OPEN,), "sealed": (region,), **changes})


def papers(directory: Path, split: Split, *policies: RoutingPolicy, classes: Sequence[str] | None = None) -> Path:
    made = desk.make(directory, classes, split=split)
    for policy in policies:
        write_envelope(made / "policies" / f"{policy.name}.json", desk.document(policy, POLICY, RISK))
    return made


def built(foreign: Foreign) -> nn.Module:
    torch.manual_seed(0)
    return foreign.build().train()


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)


def train(
    foreign: Foreign,
    documents: Path,
    run: Path,
    govern: Any = explorer.govern,
    *,
    policy: str = "sealed",
    optimizer: Optimizer = adamw,
    steps: int = STEPS,
    **given: Any,
) -> nn.Module:
    """Train a loop as its owner writes it; every third step has examples of only one class. Return the model."""
    model = built(foreign)
    of_one = [np.arange(EXAMPLES)[at :: len(desk.CLASSES)] for at in range(len(desk.CLASSES))]
    with govern(
        model,
        optimizer(model),
        examples=foreign.examples,
        documents=documents,
        policy=policy,
        ledger=run,
        steps=steps,
        every=2,
        **given,
    ) as loop:
        for step in range(steps):
            rows = of_one[2] if step % 3 == 2 else np.roll(np.arange(EXAMPLES), step)[:8]
            loop.step(rows, foreign.losses)
        loop.metrics["nll"] = 1.5
    return model


def at_desk(patch: pytest.MonkeyPatch) -> None:
    """The desk's documents hold on one day: it is that day for what governs and for every verb."""
    patch.setattr("explorer.training.govern.time.time", lambda: desk.NOW)
    patch.setattr("explorer.cli.options.time", lambda: desk.NOW)


def both(policy: RoutingPolicy, region: SealedRegion) -> RoutingPolicy:
    return replace(policy, sealed=(*policy.sealed, region))

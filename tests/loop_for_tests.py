"""Loops over tiny noise, with any module as the model."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from explorer.data.batches import Typing
from explorer.data.dataset import Dataset
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop, Setting
from explorer.engine.method import Method, ordered
from explorer.engine.optimizer import Constant, SGDSpec
from explorer.engine.task import Classification
from tests.data_for_tests import CPU, noise, noise_batches


def small_net(norm: str = "batch", *, channels: int = 2, classes: int = 3) -> nn.Sequential:
    """Convolution, normalisation, convolution with stride, head: enough of everything, for images of any size."""
    normalisation = nn.BatchNorm2d(8) if norm == "batch" else nn.GroupNorm(2, 8)
    return nn.Sequential(
        nn.Conv2d(channels, 8, 3, padding=1),
        normalisation,
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def noise_loop(
    methods: Sequence[Method] = (),
    *,
    model: nn.Module | None = None,
    dataset: Dataset | None = None,
    batch_size: int = 8,
    total_steps: int = 10,
    typing: Typing | None = None,
    reads_ahead: bool | None = None,
    **setting: Any,
) -> Loop:
    dataset = dataset or noise()
    chosen: dict[str, Any] = {
        "model": model or small_net(),
        "task": Classification(classes=dataset.classes),
        "batches": noise_batches(dataset, batch_size=batch_size, typing=typing),
        "optimizer": SGDSpec(lr=0.1, weight_decay=0.01),
        "schedule": Constant(),
        "seed": 0,
        "total_steps": total_steps,
        "full_steps": total_steps,
    }
    clock = Clock(CPU, warmup_steps=0, split=False)
    return Loop(Setting(**(chosen | setting)), ordered(methods), clock, reads_ahead=reads_ahead)

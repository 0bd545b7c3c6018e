"""Cost of the engine: its step against a hand-written PyTorch loop, interleaved in one process on one thread.

    python benchmarks/engine_overhead.py [--data DIR]        writes benchmarks/engine_overhead.md

ResNet-20, batch 128, SGD with momentum, cosine schedule, no methods. `--data` (or EXPLORER_DATA) holds CIFAR-10;
without it the digits are enlarged to 32x32 pixels, which costs the same but for two input channels. Neither side
augments, so that the ratio is the loop's and not the images'. A second workload, small enough to cost next to nothing,
shows what the engine adds to any step in milliseconds.
"""

import argparse
import math
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from options import verdict
from pages import write_page

from explorer.data.dataset import Dataset
from explorer.data.images import Images
from explorer.engine.loop import Loop
from explorer.engine.stepping import Place, split_steps
from explorer.models.table import MODELS
from explorer.recipes import machine
from explorer.recipes.recipe import build_recipe
from explorer.training.run import build_loop
from explorer.training.run_plan import plan_run

STEPS = 400  # length of the schedule
WARMUP, ROUNDS = 3, 20  # steps to warm up, windows of each side
OUT = Path(__file__).with_suffix(".md")


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """The time of one step, by two clocks: the wall's, and the processor's, which other programs disturb less."""

    wall: float
    cpu: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Model, data and settings that both sides train."""

    dataset: Any
    model: str
    batch_size: int
    window: int  # steps timed together


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """The windows of both sides, and where the engine's step goes (seconds by part)."""

    engine: list[Seconds]
    plain: list[Seconds]
    parts: dict[str, float]

    def ratios(self, clock: str) -> list[float]:
        """Each window of the engine over the mean of the hand-written windows before and after it."""
        plain = [getattr(window, clock) for window in self.plain]
        return [2 * getattr(ours, clock) / (plain[i] + plain[i + 1]) for i, ours in enumerate(self.engine)]

    def differences(self, clock: str) -> list[float]:
        """Seconds that each window of the engine takes beyond its hand-written neighbours."""
        plain = [getattr(window, clock) for window in self.plain]
        return [getattr(ours, clock) - (plain[i] + plain[i + 1]) / 2 for i, ours in enumerate(self.engine)]


def by_hand(dataset: Dataset, work: Workload) -> Iterator[None]:
    """A plain training loop, one step at a time, on the device that the engine trains on."""
    device = machine.device()
    model = MODELS[work.model]().build(example_shape=dataset.example_shape, classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: (1 + math.cos(math.pi * t / STEPS)) / 2)
    assert isinstance(dataset, Images)
    mean = torch.tensor(dataset.mean, device=device).reshape(1, -1, 1, 1) * 255
    std = torch.tensor(dataset.std, device=device).reshape(1, -1, 1, 1) * 255
    images, labels = dataset.train.inputs, dataset.train.labels
    model.train()
    while True:
        for chosen in torch.randperm(len(labels)).split(work.batch_size)[:-1]:
            inputs = (images[chosen].to(device, non_blocking=True).float() - mean) / std
            loss = F.cross_entropy(model(inputs), labels[chosen].to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            yield


def by_engine(loop: Loop) -> Iterator[None]:
    """The same, by the engine, timed as a run is timed."""
    while True:
        loop.clock.start_step(loop.state.step)
        loop.step()
        loop.clock.end_step()
        loop.state.step %= STEPS
        yield


def timed(step: Iterator[None], count: int) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        next(step)
    if machine.device().type == "cuda":
        torch.cuda.synchronize()
    return Seconds(wall=(time.perf_counter() - wall) / count, cpu=(time.process_time() - cpu) / count)


def measure(work: Workload, *, data: Path | None) -> Measured:
    """Windows of both sides in turn."""
    train = {"epochs": 1, "batch_size": work.batch_size, "optimizer": {"sgd": {"lr": 0.1, "weight_decay": 5e-3}}}
    task = {"dataset": work.dataset, "model": work.model}
    recipe = build_recipe("plain", task=task, train=train, methods=(), where="benchmark")
    options: dict[str, Any] = {
        "sweep": "overhead",
        "baseline": "plain",
        "tuning": None,
        "seed": 0,
        "threads": 1,
        "data": data,
    }
    loop = build_loop(plan_run(recipe, ssr=STEPS / plan_run(recipe, ssr=1.0, **options).steps, **options), data=data)
    engine, plain = by_engine(loop), by_hand(loop.setting.batches.dataset, work)
    timed(engine, WARMUP)
    timed(plain, WARMUP)
    windows = [timed(plain, work.window)], []
    for _ in range(ROUNDS):
        windows[1].append(timed(engine, work.window))
        windows[0].append(timed(plain, work.window))
    parts = split_steps(loop, Place(step=STEPS // 2, total_steps=STEPS), count=2 * work.window)
    return Measured(plain=windows[0], engine=windows[1], parts=parts)


def row(name: str, values: list[float], form: str) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"| {name} | {middle:{form}} | {low:{form}} to {high:{form}} |"


def table(measured: Measured) -> list[str]:
    return [
        "| | median | quartiles |",
        "|---|---|---|",
        row("ratio, processor time", measured.ratios("cpu"), ".3f"),
        row("ratio, wall time", measured.ratios("wall"), ".3f"),
        row("engine, ms a step (processor)", [window.cpu * 1e3 for window in measured.engine], ".2f"),
        row("hand-written, ms a step (processor)", [window.cpu * 1e3 for window in measured.plain], ".2f"),
        row("difference, ms a step (processor)", [seconds * 1e3 for seconds in measured.differences("cpu")], ".2f"),
        "",
        "Parts of the engine's step, ms: "
        + ", ".join(f"{part} {1e3 * seconds:.2f}" for part, seconds in measured.parts.items())
        + ".",
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=os.environ.get("EXPLORER_DATA"))
    chosen = parser.parse_args().data
    data = Path(chosen) if chosen else None
    dataset = {"cifar10": {"augment": False}} if data else {"digits": {"size": 32}}
    large = measure(Workload(dataset=dataset, model="resnet20", batch_size=128, window=2), data=data)
    small = measure(Workload(dataset="digits", model="resnet8", batch_size=4, window=40), data=None)
    name = "CIFAR-10" if data else "digits at 32x32 pixels"
    lines = [
        "# Overhead of the engine",
        "",
        "One step of the engine against one of a hand-written PyTorch loop, on one thread, without methods and without"
        " augmentation on either side. Both index uint8 images, normalise them, and take forward, backward, fused SGD"
        " with momentum and a cosine schedule; the engine also keys its draws, times every part and guards memory"
        f" layouts. Interleaved in one process: {ROUNDS} windows of each, every window of the engine against the mean"
        " of the hand-written windows before and after it. Made by `benchmarks/engine_overhead.py`.",
        "",
        f"## ResNet-20, batch 128, {name} ({verdict(statistics.median(large.ratios('cpu')), 'at most 1.03')})",
        "",
        *table(large),
        "",
        "## ResNet-8, batch 4, digits: what the engine adds to any step",
        "",
        *table(small),
        "",
        "Other programs shared the machine while this was measured: read the ratios, not the milliseconds.",
    ]
    write_page(OUT, "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

"""What the CIFAR-10 speed records are made of, part by part, at equal steps: accuracy against each part's own control.

    EXPLORER_DATA=DIR python benchmarks/image_ablation.py [--seeds 4] [--examples 2500] [--epochs 8]

writes benchmarks/image_ablation.md. Photographs of CIFAR-10 at 16 pixels, SGD as tuned for resnet8 in
`tune_cifar10.md`, bf16, one thread. All rows of a seed run one after the other, and differences are taken within a
seed; so is the processor time of training. Some rows train for as long as their control in steps, but on fewer rows.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from image_left_out import AlternatingFlip, InfoBatch, RecordMuon
from options import options, whole
from pages import write_page
from torch import Tensor, nn

from explorer.analysis.inference import t_quantile
from explorer.data.batches import Batches
from explorer.data.cifar10 import Cifar10
from explorer.data.images import Images
from explorer.data.sources import load
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop, Setting
from explorer.engine.method import Method, ordered
from explorer.engine.optimizer import Cosine, SGDSpec
from explorer.engine.task import Classification
from explorer.methods.cutmix import CutMix
from explorer.methods.mixup import MixUp
from explorer.methods.muon import Muon
from explorer.models.airbench import Airbench, IdentityConvolution, Stage, Whitening
from explorer.models.resnet import Convolution, ResNet
from explorer.recipes import machine

BATCH, WIDTH = 64, 0.25
CPU = torch.device("cpu")
CONFIDENCE = 0.95
Build = Callable[[Images], nn.Module]


# --- networks --------------------------------------------------------------------------------------------------------


def resnet8(data: Images, *, channels: int = 3) -> nn.Module:
    return ResNet(depth=8, width=1.0, norm="batch", channels=channels, classes=data.classes)


def airbench(data: Images, **options: Any) -> Airbench:
    return Airbench(width=WIDTH, channels=3, classes=data.classes, **options)


def trained_first_layer(data: Images) -> nn.Module:
    """Airbench with an ordinary first convolution."""
    model = airbench(data)
    model.whitening = nn.Conv2d(3, len(model.whitening.bias), 2)  # pyright: ignore[reportAttributeAccessIssue]
    return model


def whitened_by_data(data: Images) -> nn.Module:
    """Airbench with the filters of the records: from the covariance of patches of the training images."""
    model, images = airbench(data), data.preparation(CPU)(data.train.inputs[:2000])
    patches = images.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).flatten(0, 2).flatten(1)
    variances, axes = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (axes / (variances + 5e-4).sqrt()).T.reshape(-1, 3, 2, 2)
    model.whitening.filters.copy_(torch.cat((filters, -filters)))
    return model


def ordinary_convolutions(data: Images) -> nn.Module:
    """Airbench without identities at the start."""
    model = airbench(data)
    for stage in model.stages:
        assert isinstance(stage, Stage)
        for name in ("conv1", "conv2"):
            old: IdentityConvolution = getattr(stage, name)
            setattr(stage, name, nn.Conv2d(old.in_channels, old.out_channels, 3, padding=1, bias=False))
    return model


class Shift(nn.Module):
    """A bias for each channel that trains 8 x 8 times as fast under gradient descent."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x + 8 * self.bias[:, None, None]


def normalised_as_in_the_record(data: Images) -> nn.Module:
    """Airbench without gains, and with fast shifts."""
    model = airbench(data)
    for stage in model.stages:
        for name in ("norm1", "norm2"):
            old: nn.BatchNorm2d = getattr(stage, name)
            plain = nn.BatchNorm2d(old.num_features, affine=False, momentum=old.momentum)
            setattr(stage, name, nn.Sequential(plain, Shift(old.num_features)))
    return model


class Dirac(Convolution):
    """A convolution of resnet8 that begins as an identity where it can."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.kernel_size == (3, 3) and self.out_channels >= self.in_channels:
            with torch.no_grad():
                nn.init.dirac_(self.weight[: self.in_channels])


def resnet8_of_identities(data: Images) -> nn.Module:
    model = resnet8(data)
    for module in model.modules():
        if isinstance(module, Convolution):
            module.__class__ = Dirac
    return model


def resnet8_after_whitening(data: Images) -> nn.Module:
    first = Whitening(3)
    return nn.Sequential(first, nn.GELU(), resnet8(data, channels=len(first.bias)))


# --- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A recipe, and the name of the one that it differs from in one part."""

    name: str
    build: Build
    methods: tuple[Method, ...] = ()
    control: str = ""
    verdict: str = ""  # what became of it


OURS = "airbench, width 0.25"
ROWS = (
    Row(name="resnet8", build=resnet8),
    Row(name=OURS, build=airbench, control="resnet8", verdict="a model, `airbench`"),
    Row(
        name="its first layer an ordinary convolution",
        build=trained_first_layer,
        control=OURS,
        verdict="whitening stays in the model",
    ),
    Row(
        name="its whitening from training images",
        build=whitened_by_data,
        control=OURS,
        verdict="left out: no gain, and a statistic over all classes",
    ),
    Row(
        name="its convolutions ordinary at the start",
        build=ordinary_convolutions,
        control=OURS,
        verdict="identities stay in the model",
    ),
    Row(
        name="its normalisation without gains, with fast shifts",
        build=normalised_as_in_the_record,
        control=OURS,
        verdict="left out",
    ),
    Row(
        name="its activation ReLU",
        build=partial(airbench, activation="relu"),
        control=OURS,
        verdict="an option, `activation: relu`",
    ),
    Row(
        name="the biases of its whitening at zero",
        build=partial(airbench, biases=False),
        control=OURS,
        verdict="an option, `whitening_biases: false`",
    ),
    Row(name="airbench + muon", build=airbench, methods=(Muon(),), control=OURS, verdict="a method already"),
    Row(
        name="airbench + muon as in the record",
        build=airbench,
        methods=(RecordMuon(),),
        control="airbench + muon",
        verdict="left out",
    ),
    Row(
        name="airbench + alternating flip",
        build=airbench,
        methods=(AlternatingFlip(),),
        control=OURS,
        verdict="left out",
    ),
    Row(name="airbench + InfoBatch", build=airbench, methods=(InfoBatch(),), control=OURS, verdict="left out"),
    Row(
        name="airbench, as many rows dropped at random",
        build=airbench,
        methods=(InfoBatch(at_random=True),),
        control="airbench + InfoBatch",
        verdict="the control of InfoBatch",
    ),
    Row(
        name="airbench + mixup and cutmix by turns",
        build=airbench,
        methods=(MixUp(), CutMix()),
        control=OURS,
        verdict="methods already, for longer runs",
    ),
    Row(name="resnet8 + identities", build=resnet8_of_identities, control="resnet8", verdict="left out"),
    Row(
        name="resnet8 after whitening",
        build=resnet8_after_whitening,
        control="resnet8",
        verdict="a method, `whitening`",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a run came to."""

    accuracy: float  # percent
    seconds: float  # of processor time, in training


def train(row: Row, data: Images, *, seed: int, epochs: int) -> Found:
    """Train a row to the end."""
    steps = epochs * len(data.train) // BATCH
    model = row.build(data)
    setting = Setting(
        model=model,
        task=Classification(classes=data.classes),
        batches=Batches(data, batch_size=BATCH, seed=seed, device=CPU),
        optimizer=SGDSpec(lr=0.2, weight_decay=0.01),
        schedule=Cosine(warmup=0.1, scale_warmup=True),
        seed=seed,
        total_steps=steps,
        full_steps=steps,
        precision="bf16",
    )
    loop = Loop(setting, ordered(row.methods), Clock(CPU, warmup_steps=0, split=False))
    loop.call("before_fit")
    begun = time.process_time()
    for _ in range(steps):
        loop.step()
    seconds = time.process_time() - begun
    loop.call("after_fit")
    return Found(accuracy=100 * loop.evaluate()["accuracy"], seconds=seconds)


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of a few numbers and the ends of its interval, by Student's t."""
    mean, count = float(np.mean(values)), len(values)
    reach = float(t_quantile(CONFIDENCE, count - 1)) * float(np.std(values, ddof=1)) / count**0.5
    return mean, mean - reach, mean + reach


def page(found: dict[str, list[Found]], given: argparse.Namespace) -> str:
    lines = [
        "# What the CIFAR-10 speed records are made of",
        "",
        f"{given.examples:,} training photographs of CIFAR-10 at 16x16, {given.epochs} epochs of SGD as tuned for"
        f" resnet8 (cosine, peak 0.2, decay 0.01, batch {BATCH}), bf16, one thread, seeds 0 to"
        f" {len(found[ROWS[0].name]) - 1}, all 10,000 test photographs. A row differs from its control in one part and"
        f" takes as many steps. Differences are within seeds, with {CONFIDENCE:.0%} intervals by Student's t, each by"
        " itself; time is processor time of training over that of the control, its geometric mean. Made by"
        " `benchmarks/image_ablation.py`.",
        "",
        "| recipe | accuracy | control | difference, points | time | what became of it |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        mine = found[row.name]
        accuracy = f"{np.mean([one.accuracy for one in mine]):.1f}%"
        if not row.control:
            lines.append(f"| {row.name} | {accuracy} | | | | the tuned baseline |")
            continue
        other = found[row.control]
        mean, low, high = interval([a.accuracy - b.accuracy for a, b in zip(mine, other, strict=True)])
        ratio = np.exp(np.mean([np.log(a.seconds / b.seconds) for a, b in zip(mine, other, strict=True)]))
        lines.append(
            f"| {row.name} | {accuracy} | {row.control} | {mean:+.1f} ({low:+.1f} to {high:+.1f}) | {ratio:.2f} |"
            f" {row.verdict} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seeds", type=whole(2, 50), default=4)
    parser.add_argument("--examples", type=whole(100, 50_000), default=2500, help="a multiple of ten")
    parser.add_argument("--epochs", type=whole(1, 1000), default=8)
    given = parser.parse_args()
    if given.examples % 10:
        parser.error(f"--examples: found {given.examples}; expected a multiple of ten")
    if "EXPLORER_DATA" not in os.environ:
        parser.error("expected the directory of datasets in EXPLORER_DATA")
    machine.fix_bits(threads=1)
    data = load(Cifar10(size=16, examples=given.examples), Path(os.environ["EXPLORER_DATA"]))
    assert isinstance(data, Images)
    found: dict[str, list[Found]] = {row.name: [] for row in ROWS}
    for seed in range(given.seeds):
        for row in ROWS:
            found[row.name].append(train(row, data, seed=seed, epochs=given.epochs))
            print(f"seed {seed}, {row.name}: {found[row.name][-1]}", flush=True)
        if seed:  # an interval takes two
            write_page(Path(__file__).with_suffix(".md"), page(found, given))


if __name__ == "__main__":
    main()

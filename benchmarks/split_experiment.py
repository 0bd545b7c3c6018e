"""The split experiment of gradient routing in small: does routing put each class into a half of a code of its own?

    python benchmarks/split_experiment.py [SEEDS]

An autoencoder of the digits (64-256-64-32 and back) whose encoder is two halves side by side, each with 16 numbers of
the code; digits 0-4 are one class, 5-9 the other. A *certificate*, a decoder of its own trained afterwards on one half
of the finished code, says how much of a class that half knows: mean absolute error of a pixel on the test side, where
0 is white and 1 black. Halves are split where each knows one class better than the other.

Every condition is a policy; loop, losses, batches and initial weights are the same. An image is in a batch twice,
in two classes: to be reconstructed, which trains encoder and decoder, and to be quiet, an L1 penalty on the code, which
trains only the encoders.

    nothing                 images are reconstructed by both halves
    routing                 0-4 do not train the second half's encoder, 5-9 not the first one's
    L1                      no routing; the whole code is penalised for all digits
    routing and L1          as published: reconstruction is routed, the penalty reaches both halves for all digits
    all routed              the penalty is routed like the reconstruction
    L1 of 5-9 in one half   no routing; the control to compare routing with

Routing here is that of parameters: the other half's values still enter the decoder, and only its encoder learns nothing
from them. Since no layer lies below both halves, this has the same gradients as the published stop-gradient at the
code. Cloud et al., "Gradient Routing", 2024, arXiv:2410.04332: 784-2048-512-32 on MNIST, 200 epochs, and a penalty on
the correlation of the halves that is left out here, since it couples the examples of a batch. Writes
`split_experiment.md`.
"""

import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from options import options, whole
from pages import write_page
from scipy import stats
from torch import Tensor, nn

from explorer.data.dataset import Split
from explorer.data.digits import Digits
from explorer.data.streams import stream
from explorer.engine.modules import initialise
from explorer.governance.custom_loop import Governed
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.provenance.policy import FORMAT, Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.routing_weights import Routing as BoundPolicy
from explorer.provenance.routing_weights import bind
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import Source, Taxonomy, TaxonomyClass

HALF = 16  # numbers of the code
BATCH = 128
STEPS = 1000
CERTIFICATE_STEPS = 400
LR = 3e-3
L1 = 3e-3  # of the sum of the code's magnitudes, against the mean error of a pixel
SEEDS = 3

BEGINS, ENDS = "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"
CLASSES = ("quiet/high", "quiet/low", "reconstruct/high", "reconstruct/low")
FIRST, SECOND = "encode_a.*", "encode_b.*"


def deny(path: str, *layers: str) -> Rule:
    return Rule(classes=(path,), layers=layers or ("*",), weight=0.0)


ROUTED = (deny("reconstruct/low", SECOND), deny("reconstruct/high", FIRST))
CONDITIONS: dict[str, tuple[Rule, ...]] = {
    "nothing": (deny("quiet"),),
    "routing": (*ROUTED, deny("quiet")),
    "L1": (),
    "routing and L1": ROUTED,
    "all routed": (*ROUTED, deny("quiet/low", SECOND), deny("quiet/high", FIRST)),
    "L1 of 5-9 in one half": (deny("quiet/low"), deny("quiet/high", SECOND)),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """Rows of pixels in [0, 1], N 64, and which of them show a digit below 5."""

    pixels: Tensor
    low: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Errors:
    """Mean absolute errors on the test side: of each half's certificate, and of the model's own decoder."""

    a_low: float
    a_high: float
    b_low: float
    b_high: float
    whole: float

    @property
    def split(self) -> float:
        """How much worse a half knows the other class than its own, mean of both halves: 0 where nothing is split. The
        one class being harder than the other cancels."""
        return ((self.a_high - self.a_low) + (self.b_low - self.b_high)) / 2


class Autoencoder(nn.Module):
    """64 pixels to a code of two halves, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.encode_a, self.encode_b = perceptron(64, 128, 32, HALF), perceptron(64, 128, 32, HALF)
        self.decode = perceptron(2 * HALF, 64, 256, 64)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.decode(torch.cat(self.code(pixels), 1))

    def code(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        return self.encode_a(pixels), self.encode_b(pixels)


def perceptron(*widths: int) -> nn.Sequential:
    """Affine maps with ReLU between them."""
    *body, last = [nn.Linear(before, after) for before, after in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain.from_iterable((each, nn.ReLU()) for each in body), last)


def digits() -> tuple[Images, Images]:
    """The training and the test side."""
    dataset = Digits().load(None)
    train, test = (
        Images(pixels=side.inputs.flatten(1).float() / 255, low=side.labels < 5)
        for side in (dataset.train, dataset.test)
    )
    return train, test


def train(data: Images, rules: tuple[Rule, ...], *, seed: int, steps: int = STEPS) -> Autoencoder:
    """An autoencoder under the policy of these rules; what they do not deny is admitted."""
    model, count = Autoencoder(), len(data.pixels)
    initialise(model, seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=5e-5)
    codes = {path: code for code, path in enumerate(CLASSES)}
    low = data.low.numpy()
    session = Session(classes=CLASSES, codes=codes, routing=bound(rules))
    governed = Governed(
        model,
        optimizer,
        session=session,
        examples=Split(inputs=data.pixels.repeat(2, 1), labels=torch.arange(2).repeat_interleave(count)),
        codes=np.concatenate([np.where(low, 3, 2), np.where(low, 1, 0)]),
        methods=[Routing(policy="split")],
        steps=steps,
        seed=seed,
    )

    def losses(network: nn.Module, pixels: Tensor, penalised: Tensor) -> Tensor:
        """Return twice the error of examples below `count`, twice the penalty of those above it: half a batch each."""
        if not penalised[0]:
            return 2 * (network(pixels) - pixels).abs().mean(1)
        return 2 * L1 * torch.cat(model.code(pixels), 1).abs().sum(1)

    for step in range(steps):
        set_rate(optimizer, step, steps)
        rows = stream(seed, "order", step).permutation(count)[:BATCH]
        governed.step(np.concatenate([rows, rows + count]), losses)
    return model.eval()


def bound(rules: tuple[Rule, ...]) -> BoundPolicy:
    """A policy of these rules, for a taxonomy of the four classes. It is unsigned: it governs no one's data."""
    paths = sorted({*CLASSES, *(path.split("/")[0] for path in CLASSES)})
    taxonomy = Taxonomy(
        format=TAXONOMY_FORMAT,
        name="split",
        version=1,
        issued=BEGINS,
        expires=ENDS,
        classes=tuple(
            TaxonomyClass(path=path, definition=path, personal_data=False, source=Source.PUBLIC) for path in paths
        ),
    )
    policy = RoutingPolicy(
        format=FORMAT,
        name="split",
        version=1,
        issued=BEGINS,
        expires=ENDS,
        taxonomy=TaxonomyReference(name=taxonomy.name, version=taxonomy.version, digest=taxonomy.digest),
        quarantine=Quarantine.REFUSE,
        rules=(*rules, Rule(classes=("*",), weight=1.0)),
    )
    return bind(policy, taxonomy, where="split")


@torch.no_grad()
def coded(model: Autoencoder, data: Images) -> tuple[Tensor, Tensor]:
    """Return both halves of the code of the images."""
    return model.code(data.pixels)


def certificate(code: Tensor, data: Images, *, seed: int, steps: int = CERTIFICATE_STEPS) -> nn.Module:
    """A decoder that has learnt to reconstruct the images from only this half."""
    decoder = perceptron(HALF, 64, 256, 64)
    initialise(decoder, seed=seed)
    optimizer = torch.optim.Adam(decoder.parameters(), lr=LR)
    for step in range(steps):
        set_rate(optimizer, step, steps)
        rows = torch.from_numpy(stream(seed, "certificate", step).permutation(len(code))[:BATCH])
        optimizer.zero_grad()
        (decoder(code[rows]) - data.pixels[rows]).abs().mean().backward()
        optimizer.step()
    return decoder


@torch.no_grad()
def error(decoder: nn.Module, code: Tensor, data: Images) -> tuple[float, float]:
    """The mean absolute error on 0-4 and on 5-9."""
    errors = (decoder(code) - data.pixels).abs().mean(1)
    return float(errors[data.low].mean()), float(errors[~data.low].mean())


def measure(model: Autoencoder, sides: tuple[Images, Images], *, seed: int, steps: int = CERTIFICATE_STEPS) -> Errors:
    """The certificates of both halves."""
    train_side, test_side = sides
    found = [
        error(certificate(learnt, train_side, seed=seed, steps=steps), seen, test_side)
        for learnt, seen in zip(coded(model, train_side), coded(model, test_side), strict=True)
    ]
    (a_low, a_high), (b_low, b_high) = found
    low, high = error(model, test_side.pixels, test_side)
    return Errors(a_low=a_low, a_high=a_high, b_low=b_low, b_high=b_high, whole=(low + high) / 2)


def set_rate(optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
    """A straight line down to 0."""
    for group in optimizer.param_groups:
        group["lr"] = LR * (1 - step / steps)


def interval(values: list[float]) -> tuple[float, float]:
    """The mean and half the width of its 95% interval, by Student's t."""
    half = float(stats.t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values), half


def judged(values: list[float]) -> str:
    """Where the interval lies."""
    mean, half = interval(values)
    return "above 0" if mean > half else "below 0" if mean < -half else "around 0"


def main(seeds: int) -> None:
    torch.set_num_threads(1)
    start, sides = time.process_time(), digits()
    found: dict[str, list[Errors]] = {name: [] for name in CONDITIONS}
    for seed in range(seeds):
        for name, rules in CONDITIONS.items():
            found[name].append(measure(train(sides[0], rules, seed=seed), sides, seed=seed))
            print(f"seed {seed}, {name}: split {found[name][-1].split:.4f}", flush=True)
    text = report(found, sides, seconds=time.process_time() - start)
    print(text)
    write_page(Path(__file__).with_suffix(".md"), text)


def report(found: dict[str, list[Errors]], sides: tuple[Images, Images], *, seconds: float) -> str:
    train_side, test_side = sides
    errors = (train_side.pixels.median(0).values - test_side.pixels).abs().mean(1)
    blind = float(errors[test_side.low].mean()), float(errors[~test_side.low].mean())
    rows, verdicts = [], []
    for name, runs in found.items():
        means = [statistics.mean(getattr(run, key) for run in runs) for key in ("a_low", "a_high", "b_low", "b_high")]
        differences = {
            "first half": [run.a_high - run.a_low for run in runs],
            "second half": [run.b_low - run.b_high for run in runs],
            "split": [run.split for run in runs],
        }
        cells = [f"{mean:.3f}" for mean in means]
        cells += ["{:.3f} ± {:.3f}".format(*interval(values)) for values in differences.values()]
        rows.append(f"| {name} | {' | '.join(cells)} | {statistics.mean(run.whole for run in runs):.3f} |")
        verdicts.append(f"- {name}: " + "; ".join(f"{key} {judged(each)}" for key, each in differences.items()))
    return f"""# The split experiment in small

Mean absolute error of a pixel on the test side of the digits, by certificates trained on only one half of the code:
{len(next(iter(found.values())))} seeds, {STEPS} steps of {BATCH} images, L1 {L1:g}, {seconds:.0f} s of one core. The
median image, which knows nothing, has {blind[0]:.3f} on 0-4 and {blind[1]:.3f} on 5-9. Intervals are 95%, by Student's
t over the seeds. Split is how much worse a half knows the other class than its own, the mean of the two columns before
it. `benchmarks/split_experiment.py` says what the conditions are.

| condition | a: 0-4 | a: 5-9 | b: 0-4 | b: 5-9 | a: 5-9 less 0-4 | b: 0-4 less 5-9 | split | own decoder |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Where the intervals lie; above 0 means that a half knows its own class better than the other:

{chr(10).join(verdicts)}
"""


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("seeds", nargs="?", type=whole(2), default=SEEDS, help="an interval needs two")
    main(parser.parse_args().seeds)

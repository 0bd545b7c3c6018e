"""Cost of a step with each method, against a plain step: interleaved in one process on one thread.

    python benchmarks/method_cost.py [--data DIR] [--quick]

writes benchmarks/method_cost.md and explorer/methods/measured.json, which `explorer methods` shows. ResNet-20 at 32x32
pixels, batch 128, and gpt-tiny on the Python source of this environment, batch 16 of 128 tokens. `--data` (or
EXPLORER_DATA) holds CIFAR-10; without it the digits are enlarged to 32x32 pixels, which costs the same but for two
input channels. The datasets' own augmentation is off.

Each round takes steps of every configuration in turn, with plain steps between any two; a ratio is that of a
configuration's steps to the mean of the plain ones before and after. A method is measured where it acts: methods that
act for a part of training are placed in the middle of it, and the phase is named. `--quick` only tries everything out,
on small models, and writes nothing.
"""

import argparse
import datetime
import json
import os
import statistics
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from pages import write_page

from explorer.engine.loop import Loop
from explorer.errors import ExplorerError
from explorer.methods import METHODS
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.run_files import ALL_STEPS
from explorer.training.run import build_loop
from explorer.training.run_plan import phase_of, plan_run

STEPS = 2000  # length of the schedule: thirty steps hardly move along it
WARMUP = 3
TOGETHER = 2  # steps of a configuration between two plain ones
OUT = Path(__file__).with_suffix(".md")
MEASURED = Path(__file__).parents[1] / "explorer" / "methods" / "measured.json"
ALLOWED = 0.05  # above the published ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A configuration to measure, and the plain one to hold it against."""

    title: str
    methods: tuple[Any, ...]
    progress: float = 0.5  # where in training
    train: dict[str, Any] = field(default_factory=dict)
    plain: dict[str, Any] = field(default_factory=dict)  # what the plain steps have of `train`, and `norm` of the model
    published: dict[str, float] = field(default_factory=dict)  # by model: Composer's, on CPU
    modalities: frozenset[str] = frozenset({"image", "text"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A model and its data."""

    name: str
    modality: str
    dataset: Any
    model: str
    train: dict[str, Any]


@dataclass(slots=True)
class Subject:
    """A loop under measurement, at a place in its schedule."""

    case: Case
    loop: Loop
    phase: str
    first: int  # step
    ratios: list[float] = field(default_factory=list)
    taken: int = 0

    def seconds(self, count: int) -> float:
        """Mean processor time of the next steps."""
        start = time.process_time()
        for _ in range(count):
            self.loop.state.step = self.first + self.taken
            self.loop.step()
            self.taken += 1
        return (time.process_time() - start) / count


# Settings under which a method acts, where its defaults find nothing to act on in so small a model, or act in some of
# the steps only; where in training; and the published ratio of a ResNet-20 step.
PARAMETERS: dict[str, dict[str, Any]] = {
    "factorize": {"min_channels": 32, "linear_rank": 32, "min_features": 64},
    "random_subset": {"start": 0.0, "end": 1.0, "interrupt": 0},
    "selective_backprop": {"start": 0.0, "end": 1.0, "interrupt": 0},
}
PLACES = {
    "batch_size_warmup": 0.02,
    "layer_freezing": 0.75,
    "progressive_resizing": 0.25,
    "seq_length_warmup": 0.15,
    "swa": 0.8,
}
PUBLISHED = {
    "blurpool": 1.07,
    "channels_last": 0.86,
    "colout": 0.60,
    "cutmix": 0.99,
    "cutout": 0.94,
    "ema": 1.04,
    "ghost_batchnorm": 0.99,
    "gradient_clipping": 1.02,
    "label_smoothing": 1.04,
    "layer_freezing": 0.63,
    "mixup": 0.99,
    "progressive_resizing": 0.21,
    "sam": 1.95,
    "selective_backprop": 0.70,
    "squeeze_excite": 1.31,
    "stochastic_depth": 0.97,
    "swa": 1.00,
    "weight_standardization": 1.08,
}
LOW_PRECISION = {"precision": "bf16"}
BASES = {
    "low_precision_groupnorm": LOW_PRECISION | {"norm": "group"},
    "low_precision_layernorm": LOW_PRECISION,
}
IMAGES = frozenset({"image"})
FURTHER = (
    Case(
        title="selective_backprop, half-size scoring",
        methods=({"selective_backprop": PARAMETERS["selective_backprop"] | {"scale": 0.5}},),
        published={"resnet20": 0.43},
        modalities=IMAGES,
    ),
    Case(
        title="layer_freezing, late",
        methods=("layer_freezing",),
        progress=0.95,
        published={"resnet20": 0.42},
        modalities=IMAGES,
    ),
    Case(title="gradient_clipping, adaptive", methods=({"gradient_clipping": {"clipping": "adaptive"}},)),
    Case(title="bf16", methods=(), train=LOW_PRECISION, published={"resnet20": 0.58}),
    Case(
        title="bf16 + channels_last",
        methods=("channels_last",),
        train=LOW_PRECISION,
        published={"resnet20": 0.49},
        modalities=IMAGES,
    ),
)


def cases(work: Work) -> list[Case]:
    """Every method of the table that works on this data, and some further configurations."""
    of_table = [
        Case(
            title=name,
            methods=({name: PARAMETERS.get(name, {})},),
            progress=PLACES.get(name, 0.5),
            plain=BASES.get(name, {}),
            published={"resnet20": PUBLISHED[name]} if name in PUBLISHED else {},
            modalities=method.modalities,
        )
        for name, method in METHODS.items()
    ]
    return [each for each in (*of_table, *FURTHER) if work.modality in each.modalities]


def recipe_of(work: Work, methods: Sequence[Any], changes: dict[str, Any]) -> Recipe:
    train = work.train | {"schedule": "constant"} | {key: value for key, value in changes.items() if key != "norm"}
    model = {work.model: {"norm": changes["norm"]}} if "norm" in changes else work.model
    task = {"dataset": work.dataset, "model": model}
    return build_recipe("measured", task=task, train={"epochs": 1} | train, methods=methods, where="benchmark")


def subject(work: Work, case: Case, *, plain: bool, data: Path | None) -> Subject:
    """Build and warm up. Raises `ExplorerError` for a method that cannot serve the model."""
    recipe = recipe_of(work, () if plain else case.methods, case.plain | ({} if plain else case.train))
    options: dict[str, Any] = {"sweep": "cost", "baseline": "measured", "tuning": None, "seed": 0, "threads": 1}
    once = plan_run(recipe, ssr=1.0, data=data, **options)
    loop = build_loop(plan_run(recipe, ssr=STEPS / once.steps, data=data, **options), data=data)
    first = int(case.progress * loop.setting.total_steps)
    loop.state.step = first
    phase = "" if plain else phase_of(recipe.methods, loop.moment())
    found = Subject(case, loop, "" if phase == ALL_STEPS else phase, first)
    found.seconds(WARMUP)
    return found


def measure(work: Work, *, rounds: int, data: Path | None) -> tuple[list[Subject], dict[str, str]]:
    """The subjects with their ratios, and why others could not be measured, by title."""
    groups: dict[str, tuple[Subject, list[Subject]]] = {}
    refused: dict[str, str] = {}
    for case in cases(work):
        key = json.dumps(case.plain, sort_keys=True)
        try:
            made = subject(work, case, plain=False, data=data)
            if key not in groups:
                groups[key] = (subject(work, case, plain=True, data=data), [])
            groups[key][1].append(made)
        except ExplorerError as error:
            refused[case.title] = str(error)
    for _ in range(rounds):
        for plain, subjects in groups.values():
            before = plain.seconds(1)
            for each in subjects:
                mine, after = each.seconds(TOGETHER), plain.seconds(1)
                each.ratios.append(2 * mine / (before + after))
                before = after
    return [each for _, subjects in groups.values() for each in subjects], refused


def quartiles(ratios: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return low, middle, high


def rows(work: Work, subjects: Sequence[Subject], refused: dict[str, str]) -> list[str]:
    lines = [
        "| configuration | phase | ratio | quartiles | published | |",
        "|---|---|---|---|---|---|",
    ]
    for each in sorted(subjects, key=lambda each: each.case.title):
        low, middle, high = quartiles(each.ratios)
        published = each.case.published.get(work.name)
        lines.append(
            f"| {each.case.title} | {each.phase or '-'} | {middle:.2f} | {low:.2f} to {high:.2f} |"
            f" {'-' if published is None else f'{published:.2f}'} | {verdict(middle, published, low=low, high=high)} |"
        )
    return [*lines, *(f"| {title} | not measured: {reason} | | | | |" for title, reason in sorted(refused.items()))]


def verdict(middle: float, published: float | None, *, low: float, high: float) -> str:
    slower = published is not None and middle > published + ALLOWED
    words = [f"**slower than published by {middle - published:.2f}**"] if slower and published is not None else []
    if low <= 1 <= high:
        words.append("no measurable effect")
    return ", ".join(words)


def ratios(measured: dict[str, list[Subject]]) -> dict[str, dict[str, dict[str, Any]]]:
    """As `explorer methods` reads them: by method, by model."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for model, subjects in measured.items():
        for each in subjects:
            if each.case.title in METHODS:
                low, middle, high = (round(value, 3) for value in quartiles(each.ratios))
                found.setdefault(each.case.title, {})[model] = {
                    "ratio": middle,
                    "low": low,
                    "high": high,
                    "phase": each.phase,
                }
    return dict(sorted(found.items()))


def works(*, data: Path | None, quick: bool) -> list[Work]:
    sgd = {"optimizer": {"sgd": {"lr": 0.05, "weight_decay": 5e-4}}}
    adamw = {"optimizer": {"adamw": {"lr": 1e-3, "weight_decay": 0.1}}}
    images: Any = {"cifar10": {"augment": False}} if data else {"digits": {"size": 32}}
    if quick:
        images = {"digits": {"size": 16}}
    return [
        Work(
            name="resnet20",
            modality="image",
            dataset=images,
            model="resnet8" if quick else "resnet20",
            train=sgd | {"batch_size": 32 if quick else 128},
        ),
        Work(
            name="gpt-tiny",
            modality="text",
            dataset={"source": {"context": 32}} if quick else "source",
            model="gpt-tiny",
            train=adamw | {"batch_size": 4 if quick else 16},
        ),
    ]


def report(chosen: Sequence[Work], tables: dict[str, list[str]], *, hardware: str, seconds: float) -> list[str]:
    lines = [
        "# What a step costs with each method",
        "",
        "Processor time of a step with the method over that of a plain step, on one thread, interleaved in one process:"
        " every ratio is against the plain steps just before and just after. Medians and quartiles of the rounds; each"
        " method where it acts, the phase named. Published: Composer's implementation, on CPU, ResNet-20, batch 128,"
        f" with a noise of about 0.06; a method is marked if it is slower than that by more than {ALLOWED}. bf16 with"
        " channels_last is to be at 0.55 or below where the processor has bf16. A ratio whose quartiles include 1 is no"
        " measurable effect. Compilation is no part of a step. Made by `benchmarks/method_cost.py`.",
    ]
    for work in chosen:
        data = work.dataset if isinstance(work.dataset, str) else next(iter(work.dataset))
        lines += ["", f"## {work.name}, {data}, batch {work.train['batch_size']}", "", *tables[work.name]]
    return [*lines, "", f"It took {seconds / 60:.0f} minutes."]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=os.environ.get("EXPLORER_DATA"))
    parser.add_argument("--quick", action="store_true", help="small models, three rounds, nothing is written")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # inductor's own
    torch.set_num_threads(1)
    data, start = Path(options.data) if options.data else None, time.monotonic()
    chosen = works(data=data, quick=options.quick)
    measured: dict[str, list[Subject]] = {}
    tables: dict[str, list[str]] = {}
    for work in chosen:
        measured[work.name], refused = measure(work, rounds=3 if options.quick else 15, data=data)
        tables[work.name] = rows(work, measured[work.name], refused)
    hardware = machine.hardware(threads=1).name
    lines = report(chosen, tables, hardware=hardware, seconds=time.monotonic() - start)
    print("\n".join(lines))
    if options.quick:
        return
    write_page(OUT, "\n".join(lines))
    record = {
        "made": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": hardware,
        "torch": torch.__version__,
        "threads": 1,
        "batch": {work.name: work.train["batch_size"] for work in chosen},
        "ratios": ratios(measured),
    }
    MEASURED.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()

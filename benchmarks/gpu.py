"""Everything about a GPU in one call: the same bits twice, and what steps cost on it.

    python benchmarks/gpu.py [--rounds N] [--small] [--out FILE]     writes benchmarks/gpu.md

Digests first: a governed run, the same run again, one that is stopped and continued, its replay, and, where the machine
has several GPUs, the run by several ranks. Then times, each between two windows of what it is compared with, the device
synchronised around every window: the engine against a hand-written loop, governed steps of 4 and 16 classes against
plain ones, every method against a plain step, the parts of a step with the data path, and ranks against one.

`--small` does all of it with small models and few rounds, on a CPU too: it shows that the script works, and its figures
mean nothing. Without a GPU nothing but that is measured, and the page is not written.
"""

import os
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import governed_loops
import method_cost
import torch
from engine_overhead import Workload
from engine_overhead import measure as against_hand
from options import options, verdict, whole
from pages import write_page

from explorer import run_files, rundir
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop
from explorer.engine.stepping import Place, split_steps, time_steps
from explorer.errors import ExplorerError
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.runlog.documents import keep
from explorer.training.replay import replay
from explorer.training.run import build_loop, execute
from explorer.training.run_plan import plan_run

OUT = Path(__file__).with_suffix(".md")
CLASSES = 4
LANES = 8
CHOSEN: dict[str, Any] = {"sweep": "gpu", "baseline": "governed", "tuning": None, "ssr": 1.0, "seed": 0}


# --- digests ---


class Runs:
    """Governed runs of one recipe in a directory."""

    def __init__(self, root: Path, *, small: bool) -> None:
        self.root = root
        source = {"digits": {"simulated_classes": CLASSES}}
        methods = [{"routing": {"policy": governed_loops.POLICY}}, "contributions", "recorder", "ema"]
        train = {"epochs": 2 if small else 8, "batch_size": 64, "lanes": LANES, "optimizer": {"sgd": {"lr": 0.05}}}
        model = {"resnet8" if small else "resnet20": {"norm": "group"}}
        task = {"dataset": source, "model": model}
        self.recipe = build_recipe("governed", task=task, train=train, methods=methods, where="benchmark")
        data = self.recipe.dataset
        self.documents = governed_loops.documents_of(data, data.load(None), root / "documents", denied=1)

    def planned(self, name: str, *, ranks: int = 1) -> Path:
        recipe = replace(self.recipe, ranks=ranks)
        record = plan_run(recipe, threads=1, data=None, documents=self.documents, **CHOSEN)
        run = self.root / name / record.run_id
        keep(self.documents, run)
        run_files.write(run / rundir.RUN, record)
        return run

    def stopped(self, name: str) -> Path:
        """A run that was asked to stop after a third of its steps, and is then finished."""
        run = self.planned(name)

        def stop(done: int, total: int) -> None:
            if done == total // 3:
                os.kill(os.getpid(), signal.SIGTERM)

        with suppress(KeyboardInterrupt):
            execute(run, on_progress=stop)
        execute(run)
        return run


def digests(root: Path, *, small: bool) -> tuple[list[str], bool]:
    """The rows of the table, and whether all digests are as they have to be."""
    runs = Runs(root, small=small)
    first = runs.planned("first")
    expected = execute(first).state_digest
    rows, same = [f"| the run | `{expected[:16]}` | |"], True

    def row(name: str, digest: str) -> None:
        nonlocal same
        same &= digest == expected
        rows.append(f"| {name} | `{digest[:16]}` | {'the same' if digest == expected else '**other bits**'} |")

    row("the run again", execute(runs.planned("again")).state_digest)
    row("stopped and continued", execute(runs.stopped("stopped")).state_digest)
    for ranks in range(2, min(LANES, several()) + 1):
        row(f"by {ranks} ranks", execute(runs.planned(f"ranks-{ranks}", ranks=ranks)).state_digest)
    replayed = replay(first)
    same &= replayed.equal
    rows.append(f"| replay of {replayed.steps} steps | | {'equal' if replayed.equal else '**different**'} |")
    return rows, same


def several() -> int:
    """How many ranks the machine has devices for; on a CPU two, to show that it works."""
    return torch.cuda.device_count() if machine.device().type == "cuda" else 2


# --- times ---


def ratio(mine: Callable[[], float], base: Callable[[], float], *, rounds: int) -> list[float]:
    """Each window over the mean of the windows of `base` before and after it."""
    for warm in (mine, base):
        warm()
    ratios, before = [], base()
    for _ in range(rounds):
        middle, after = mine(), base()
        ratios.append(2 * middle / (before + after))
        before = after
    return ratios


def row(name: str, ratios: Sequence[float], target: str = "") -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"| {name} | {middle:.3f} | {low:.3f} to {high:.3f} | {verdict(middle, target, decimals=3)} |"


def window(loop: Loop, *, step: int, total: int, count: int) -> Callable[[], float]:
    return lambda: time_steps(loop, Place(step=step, total_steps=total), count=count)


def by_hand(*, small: bool) -> Iterator[str]:
    model, batch = ("resnet8", 32) if small else ("resnet20", 512)
    work = Workload(dataset={"digits": {"size": 32}}, model=model, batch_size=batch, window=4)
    measured = against_hand(work, data=None)
    yield row("the engine, against a hand-written loop", measured.ratios("wall"), "at most 1.02")


def governed(root: Path, *, rounds: int, small: bool) -> Iterator[str]:
    works = [governed_loops.RESNET] if small else [governed_loops.RESNET, governed_loops.GPT]
    for work in works:
        count = 1 if small else 10
        base = governed_loops.plain(work, governed_loops.BATCH)
        plain = window(base, step=0, total=governed_loops.STEPS, count=count)
        for classes, target in ((4, "at most 1.05"), (16, "at most 1.10")):
            with ExitStack() as stack:
                place = root / f"{work.model}-{classes}"
                place.mkdir()
                loop = governed_loops.governed(work, place, classes=classes, denied=0, stack=stack)
                mine = window(loop, step=0, total=governed_loops.STEPS, count=count)
                yield row(f"{work.title}: governed, {classes} classes", ratio(mine, plain, rounds=rounds), target)


def methods(*, rounds: int, small: bool) -> Iterator[str]:
    for work in method_cost.works(data=None, quick=small):
        plains: dict[str, Loop] = {}
        for case in method_cost.cases(work)[: 4 if small else None]:
            try:
                subject = method_cost.subject(work, case, plain=False, data=None)
                key = repr(sorted(case.plain.items()))
                if key not in plains:
                    plains[key] = method_cost.subject(work, case, plain=True, data=None).loop
            except ExplorerError as error:
                yield f"| {work.name}: {case.title} | not measured | | {error} |"
                continue
            total = method_cost.STEPS
            mine = window(subject.loop, step=subject.first, total=total, count=4)
            base = window(plains[key], step=subject.first, total=total, count=4)
            yield row(f"{work.name}: {case.title}", ratio(mine, base, rounds=rounds))


def parts(*, small: bool) -> Iterator[str]:
    """Where a step's time goes, from reading its rows on."""
    train = {"epochs": 1, "batch_size": 32 if small else 512, "optimizer": {"sgd": {"lr": 0.1}}}
    task = {"dataset": {"digits": {"size": 32}}, "model": "resnet8" if small else "resnet20"}
    recipe = build_recipe("parts", task=task, train=train, methods=("augmix",), where="benchmark")
    loop = build(recipe)
    place = Place(step=0, total_steps=loop.setting.total_steps)
    time_steps(loop, place, count=3)
    for part, seconds in split_steps(loop, place, count=3 if small else 50).items():
        yield f"| {part} | {1e3 * seconds:.2f} |"


def build(recipe: Recipe) -> Loop:
    loop = build_loop(plan_run(recipe, threads=1, data=None, **CHOSEN), data=None)
    loop.clock = Clock(machine.device(), warmup_steps=0, split=False)
    return loop


def ranks(root: Path, *, small: bool) -> Iterator[str]:
    """Steps of several ranks over those of one, from the times of whole runs."""
    train = {"epochs": 1 if small else 20, "batch_size": 256, "lanes": LANES, "optimizer": {"sgd": {"lr": 0.05}}}
    task = {"dataset": {"digits": {"size": 32}}, "model": "resnet8" if small else "resnet20"}
    recipe = build_recipe("ranks", task=task, train=train, methods=(), where="benchmark")
    seconds: dict[int, float] = {}
    for count in range(1, min(LANES, several()) + 1):
        record = plan_run(replace(recipe, ranks=count), threads=1, data=None, **CHOSEN)
        run = root / str(count) / record.run_id
        run_files.write(run / rundir.RUN, record)
        result = execute(run)
        if result.timed_steps:
            seconds[count] = result.timings.training() / result.timed_steps
    for count, mine in seconds.items():
        yield f"| {count} | {1e3 * mine:.2f} | {seconds[1] / mine:.2f} |"


# --- the page ---


def page(root: Path, *, rounds: int, small: bool) -> tuple[str, bool]:
    card = machine.hardware(threads=1)
    checked, same = digests(root / "digests", small=small)
    head = ["| compared | ratio | quartiles | target |", "|---|---|---|---|"]
    lines = [
        f"# {card.name}",
        "",
        "Made by `benchmarks/gpu.py`.",
        *("", "## Digests", "", "| | model | |", "|---|---|---|", *checked),
        *("", "## Steps", "", *head, *by_hand(small=small)),
        *governed(root / "governed", rounds=rounds, small=small),
        *("", "## Methods, against a plain step", "", *head, *methods(rounds=rounds, small=small)),
        *("", "## Parts of a step with `augmix`", "", "| part | ms |", "|---|---|", *parts(small=small)),
    ]
    timed = ["| ranks | ms a step | faster than one |", "|---|---|---|", *ranks(root / "ranks", small=small)]
    lines += ["", "## Ranks", "", *timed]
    return "\n".join(lines) + "\n", same


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=whole(2, 1000), default=15, help="windows of each kind of step")
    parser.add_argument("--small", action="store_true", help="small models and three rounds; writes no page")
    parser.add_argument("--out", type=Path, default=OUT, help="where the page is written")
    chosen = parser.parse_args()
    if machine.device().type != "cuda" and not chosen.small:
        sys.exit("gpu.py: found no GPU; expected one, or --small, which shows on a CPU that the script works")
    machine.fix_bits(threads=1)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for name in ("digests", "governed", "ranks"):
            (root / name).mkdir()
        text, same = page(root, rounds=3 if chosen.small else chosen.rounds, small=chosen.small)
    print(text)
    if not chosen.small:
        write_page(chosen.out, text)
    sys.exit(0 if same else "gpu.py: some digests differ")


if __name__ == "__main__":
    main()

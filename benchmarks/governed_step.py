"""What governing a step costs: routing, contributions and the recorder against a plain step, interleaved.

    python benchmarks/governed_step.py [--rounds N]          writes benchmarks/governed_step.md

ResNet-20 with GroupNorm on noise of CIFAR-10's shape, and gpt-small on noise of bytes, batch 128, in 4 and in 16
simulated classes of equal size; one process, one thread. The plain step is cut into microbatches of whatever size is
fastest. Documents, tags and ledger are real. Beside them: one backward pass for each class over the graph of the mixed
batch, gradients of single examples by Opacus (extra `bench`), and a policy that denies half the classes the lower half
of the depth.
"""

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from governed_loops import BATCH, GPT, RESNET, STEPS, Work, governed, mixed_graph, plain, single_examples

from explorer.engine.loop import Loop
from explorer.engine.state import State
from explorer.engine.stepping import Place, split_steps
from explorer.governance.digests import state_of, tensors_of
from explorer.governance.journal import Journal
from explorer.governance.session import Session
from explorer.recipes import machine
from explorer.recorded.tensors import Tensors, moved

SIZES = (128, 32, 8)  # of the plain step's microbatches
EVERY = 50  # steps between two records of the state, as the recorder has it


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """By two clocks: the wall's, and the processor's, which other programs disturb less."""

    wall: float
    cpu: float


@dataclass(slots=True, kw_only=True)
class Side:
    """One kind of step, the windows measured so far, and the time that each of its steps takes beside them."""

    name: str
    step: Callable[[], object]
    target: str = ""
    loop: Loop | None = None
    windows: list[Seconds]
    plain: list[Seconds]  # the mean of the plain windows before and after each

    def ratios(self, clock: str, extra: Seconds) -> list[float]:
        pairs = zip(self.windows, self.plain, strict=True)
        return [(getattr(ours, clock) + getattr(extra, clock)) / getattr(plain, clock) for ours, plain in pairs]


def side(name: str, step: Callable[[], object], *, target: str = "", loop: Loop | None = None) -> Side:
    return Side(name=name, step=step, target=target, loop=loop, windows=[], plain=[])


def timed(step: Callable[[], object], count: int) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        step()
    return Seconds(wall=(time.perf_counter() - wall) / count, cpu=(time.process_time() - cpu) / count)


def best_microbatch(work: Work) -> tuple[int, dict[int, float]]:
    """The size at which the plain step takes least, and what it takes at each."""
    loops = {size: plain(work, size) for size in SIZES}
    found: dict[int, float] = {}
    for _ in range(2):
        for size, loop in loops.items():
            found[size] = min(found.get(size, float("inf")), timed(loop.step, 1).cpu)
    return min(found, key=lambda size: found[size]), found


def measure(work: Work, place: Path, *, rounds: int) -> list[str]:
    """Windows of all sides in turn, each between two of the plain step; the section of the page."""
    size, sizes = best_microbatch(work)
    with ExitStack() as stack:
        base = plain(work, size).step
        four, sixteen, half = (
            governed(work, place, classes=classes, denied=denied, stack=stack)
            for classes, denied in ((4, 0), (16, 0), (4, 2))
        )
        sides = [
            side("governed, 4 classes", four.step, target="at most 1.08", loop=four),
            side("governed, 16 classes", sixteen.step, target="at most 1.20", loop=sixteen),
            side("governed, 4 classes, 2 of them denied the lower half", half.step, target="below 1", loop=half),
        ]
        slow = [side("one backward a class over the mixed graph, 4 classes", mixed_graph(work, 4))]
        if work is RESNET:
            opacus = single_examples(work, 4, microbatch=size)
            slow += [
                side("one backward a class over the mixed graph, 16 classes", mixed_graph(work, 16)),
                side("gradients of single examples by Opacus, 4 classes", opacus),
            ]
        for each in (base, *(one.step for one in (*sides, *slow))):
            timed(each, 1)
        before = timed(base, work.window)
        for number in range(rounds):
            for one in sides + (slow if number % 3 == 0 or number == rounds - 1 else []):
                one.windows.append(timed(one.step, work.window if one.loop else 1))
                after = timed(base, work.window)
                one.plain.append(Seconds(wall=(before.wall + after.wall) / 2, cpu=(before.cpu + after.cpu) / 2))
                before = after
            print(f"{work.title}: round {number + 1} of {rounds}", flush=True)
        rows = [row(one) for one in sides + slow]
        shown = ", ".join(f"{size} rows {1e3 * seconds:.0f}" for size, seconds in sizes.items())
        return [
            f"## {work.title}, batch {BATCH}",
            "",
            "| step | ratio, processor time | quartiles | ratio, wall time | ms, processor | target |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"The plain step, ms, by the size of its microbatches: {shown}; the ratios are to {size} rows.",
            "",
            *(f"{one.name[:1].upper()}{one.name[1:]}, ms: {parts(one.loop)}." for one in sides[:2] if one.loop),
            "",
        ]


def row(one: Side) -> str:
    """The line of a side; of a governed one with its part of recording the state every so many steps."""
    extra = Seconds(wall=0.0, cpu=0.0)
    if one.loop is not None:
        state = one.loop.state
        journal = state.resource(Session).journal
        assert journal is not None
        before = tensors_of(state)
        whole = timed(lambda: record(journal, state, before), 1)
        extra = Seconds(wall=whole.wall / EVERY, cpu=whole.cpu / EVERY)
    low, middle, high = statistics.quantiles(one.ratios("cpu", extra), n=4)
    wall, mine = statistics.median(one.ratios("wall", extra)), statistics.median(each.cpu for each in one.windows)
    cells = (one.name, f"{middle:.3f}", f"{low:.3f} to {high:.3f}", f"{wall:.3f}", f"{1e3 * mine:.0f}", one.target)
    return f"| {' | '.join(cells)} |"


def record(journal: Journal, state: State, before: Tensors) -> None:
    """The state with its list of tensors, compared with that of the segment before."""
    tensors = tensors_of(state)
    moved(before, tensors)
    journal.segment(state.step, state_of(tensors, state, step=state.step), tensors=tensors)


def parts(loop: Loop) -> str:
    """Where the time of a step goes."""
    found: dict[str, list[float]] = {}
    for _ in range(2):
        for part, seconds in split_steps(loop, Place(step=loop.state.step, total_steps=STEPS), count=1).items():
            found.setdefault(part, []).append(seconds)
    return ", ".join(f"{part} {1e3 * statistics.median(seconds):.1f}" for part, seconds in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=12)
    rounds, load = parser.parse_args().rounds, os.getloadavg()[0]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Opacus talks about hooks
    lines = [
        "# The cost of a governed step",
        "",
        "A plain step against one with `routing`, `contributions` (without exact mode) and `recorder`, on one thread in"
        " one process, interleaved: every window stands between two windows of the plain step, which is cut into"
        " microbatches of the size that is fastest. The recorder's record of the whole state, every"
        f" {EVERY} steps, is in the ratios with its part. Noise in classes of equal size. Made by"
        " `benchmarks/governed_step.py`.",
        "",
    ]
    for work, count in ((RESNET, rounds), (GPT, max(2, rounds // 4))):
        with TemporaryDirectory() as place:
            lines += measure(work, Path(place), rounds=count)
    lines += [
        "`governance` is what `contributions` and `recorder` take. Opacus is left out for gpt-small: it has no rule for"
        " a head that is the embedding's own tensor.",
        "",
        f"Machine: {machine.hardware(threads=1).name}, torch {torch.__version__}; load {load:.1f} on"
        f" {os.cpu_count()} cores when this began: what other programs do disturbs wall time most.",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()

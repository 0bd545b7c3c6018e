"""Cost of governing a step: routing, contributions and the recorder against a plain step, interleaved.

    python benchmarks/governed_step.py [--rounds N]          writes benchmarks/governed_step.md

ResNet-20 with GroupNorm on noise of CIFAR-10's shape, and gpt-small on noise of bytes, batch 128, in 4 and in 16
simulated classes of equal size; one process, one thread. The plain step is cut into microbatches of whatever size is
fastest. Documents, tags and ledger are real. For comparison: the plain step in passes as small as those of 16 classes,
passes of 32 rows whose gradients are split by class, one backward pass for each class over the graph of the mixed
batch, gradients of single examples by Opacus (extra `bench`), and a policy that denies half the classes the lower half
of the depth.
"""

import argparse
import importlib.util
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from governed_joined import ROWS, joined
from governed_loops import BATCH, GPT, RESNET, STEPS, Work, governed, mixed_graph, plain, single_examples
from options import whole
from pages import write_page

from explorer.engine.loop import Loop
from explorer.engine.state import State
from explorer.engine.stepping import Place, split_steps
from explorer.governance.journal import Journal
from explorer.governance.recorder import state_of, tensors_of
from explorer.governance.shared_state import Session
from explorer.runlog.tensors import Tensors, moved

OPACUS = importlib.util.find_spec("opacus") is not None
SMALL = 8  # rows of a pass where there are 16 classes
EVERY = 50  # steps between two records of the state, as the recorder has it


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """The most that a ratio may be: its median, or its upper quartile."""

    most: float
    upper: bool = False

    @property
    def words(self) -> str:
        return f"{'upper quartile' if self.upper else 'median'} at most {self.most:.2f}"

    def verdict(self, quartiles: list[float]) -> str:
        found = quartiles[2 if self.upper else 1]
        return "met" if found <= self.most else f"missed by {found - self.most:.3f}"


FOUR, SIXTEEN = Target(most=1.05, upper=True), Target(most=1.15)
LESS = Target(most=1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Seconds:
    """By two clocks: the wall's, and the processor's, which other programs disturb less."""

    wall: float
    cpu: float


@dataclass(slots=True, kw_only=True)
class Side:
    """One kind of step, the windows measured so far, and the time that each of its steps takes."""

    name: str
    step: Callable[[], object]
    count: int  # steps timed together
    target: Target | None = None
    loop: Loop | None = None
    windows: list[Seconds] = field(default_factory=list)
    plain: list[Seconds] = field(default_factory=list)  # the mean of the plain windows before and after each
    extra: Seconds = Seconds(wall=0.0, cpu=0.0)  # for a step, of what is done every so many steps

    def quartiles(self, clock: str) -> list[float]:
        """Return the quartiles of the ratio to the plain step."""
        pairs = zip(self.windows, self.plain, strict=True)
        ratios = [(getattr(ours, clock) + getattr(self.extra, clock)) / getattr(plain, clock) for ours, plain in pairs]
        return statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3


def timed(step: Callable[[], object], count: int) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        step()
    return Seconds(wall=(time.perf_counter() - wall) / count, cpu=(time.process_time() - cpu) / count)


def best_microbatch(work: Work) -> tuple[int, dict[int, float]]:
    """The size at which the plain step takes least, and what it takes at each."""
    loops = {size: plain(work, size) for size in work.sizes}
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

        def side(name: str, step: Callable[[], object], target: Target | None = None, loop: Loop | None = None) -> Side:
            return Side(name=name, step=step, count=work.window, target=target, loop=loop)

        def single(name: str, step: Callable[[], object]) -> Side:
            return Side(name=name, step=step, count=1)

        sides = [
            side("governed, 4 classes", four.step, FOUR, four),
            side("governed, 16 classes", sixteen.step, SIXTEEN, sixteen),
            side("governed, 4 classes, 2 of them denied the lower half", half.step, LESS, half),
        ]
        slow = [single("one backward a class over the mixed graph, 4 classes", mixed_graph(work, 4))]
        why: list[Side] = []
        if work is RESNET:
            why = [
                side(f"the plain step in passes of {SMALL} rows", plain(work, SMALL).step),
                side(f"passes of {ROWS} rows, gradients split by class, 16 classes", joined(work, 16)),
            ]
            sides += why
            slow.append(single("one backward a class over the mixed graph, 16 classes", mixed_graph(work, 16)))
            if OPACUS:
                opacus = single_examples(work, 4, microbatch=size)
                slow.append(single("gradients of single examples by Opacus, 4 classes", opacus))
        for each in (base, *(one.step for one in (*sides, *slow))):
            timed(each, 1)
        for one in sides:
            if one.loop is not None:
                recording(one.loop)  # the first one in a process imports what writes tables: 0.4 s, and no step's
        before = timed(base, work.window)
        for number in range(rounds):
            for one in sides + (slow if number % 3 == 0 or number == rounds - 1 > 2 else []):
                one.windows.append(timed(one.step, one.count))
                after = timed(base, work.window)
                one.plain.append(Seconds(wall=(before.wall + after.wall) / 2, cpu=(before.cpu + after.cpu) / 2))
                before = after
            print(f"{work.title}: round {number + 1} of {rounds}", flush=True)
        for one in sides:
            if one.loop is not None:
                one.extra = recording(one.loop)  # of the windows' steps
        shown = ", ".join(f"{size} rows {1e3 * seconds:.0f}" for size, seconds in sizes.items())
        return [
            f"## {work.title}, batch {BATCH}",
            "",
            "| step | ratio, processor time | quartiles | ratio, wall time | ms, processor | target | held |",
            "|---|---|---|---|---|---|---|",
            *(row(one) for one in sides + slow),
            "",
            f"The plain step, ms, by the size of its microbatches: {shown}; the ratios are to {size} rows.",
            "",
            *(reasons(sixteen=sides[1], small=why[0], split=why[1]) if why else []),
            *(f"{one.name[:1].upper()}{one.name[1:]}, ms: {parts(one.loop)}." for one in sides[:2] if one.loop),
            "",
        ]


def recording(loop: Loop) -> Seconds:
    """Return what recording the whole state adds to a step."""
    state = loop.state
    journal = state.resource(Session).journal
    assert journal is not None
    before = tensors_of(state)
    whole = timed(lambda: record(journal, state, before), 1)
    return Seconds(wall=whole.wall / EVERY, cpu=whole.cpu / EVERY)


def record(journal: Journal, state: State, before: Tensors) -> None:
    """The state with its list of tensors, compared with that of the segment before."""
    tensors = tensors_of(state)
    moved(before, tensors)
    journal.segment(state.step, state_of(tensors, state, step=state.step), tensors=tensors)


def row(one: Side) -> str:
    """The line of a side."""
    quartiles, wall = one.quartiles("cpu"), one.quartiles("wall")[1]
    mine = statistics.median(each.cpu for each in one.windows)
    cells = (
        one.name,
        f"{quartiles[1]:.3f}",
        f"{quartiles[0]:.3f} to {quartiles[2]:.3f}",
        f"{wall:.3f}",
        f"{1e3 * mine:.0f}",
        "" if one.target is None else one.target.words,
        "" if one.target is None else one.target.verdict(quartiles),
    )
    return f"| {' | '.join(cells)} |"


def reasons(*, sixteen: Side, small: Side, split: Side) -> list[str]:
    """Why the target of 16 classes was missed, where it was: what the small passes cost, and what would be saved."""
    ratio, passes, joint = (one.quartiles("cpu")[1] for one in (sixteen, small, split))
    if ratio <= SIXTEEN.most:
        return []
    counts = primitives(SMALL)
    return [
        f"16 classes missed the target of {SIXTEEN.most:.2f} by {ratio - SIXTEEN.most:.3f}. One pass a class is a pass"
        f" of {SMALL} rows, and the plain step in such passes takes {passes:.3f} of the fastest already; routing,"
        f" contributions and the recorder add {ratio - passes:.3f}."
        + (
            f" A pass executes {counts[0]} convolutions of oneDNN, forward and backward, and {counts[1]} reorders of"
            " their inputs, weights and outputs, however many rows it has."
            if counts
            else ""
        )
        + f" Passes of {ROWS} rows whose gradients are split by class (`governed_joined.py`) would take {joint:.3f}"
        f" before anything is routed, measured or recorded, and about {joint + ratio - passes:.3f} with it. They are"
        " right only for models in which no operation mixes rows; the loop does not use them.",
        "",
    ]


def primitives(rows: int) -> tuple[int, int] | None:
    """How many convolutions and reorders oneDNN executes in a pass of so many rows; None: it is not used here."""
    (convolutions, reorders), (before, reordered) = (executed(rows, steps=steps) for steps in (2, 1))
    passes = BATCH // rows
    found = (convolutions - before) // passes, (reorders - reordered) // passes  # without what precedes the first step
    return found if found[0] else None


def executed(rows: int, *, steps: int) -> tuple[int, int]:
    """Convolutions and reorders of a process that makes so many plain steps in passes of so many rows."""
    code = f"from governed_loops import RESNET, plain\nloop = plain(RESNET, {rows})"
    done = subprocess.run(
        [sys.executable, "-c", code + "\nloop.step()" * steps],
        cwd=Path(__file__).parent,
        env=os.environ | {"ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.split(",") for line in done.stdout.splitlines() if ",primitive,exec,cpu," in line]
    kinds = [line[line.index("cpu") + 1] for line in lines]
    return kinds.count("convolution"), kinds.count("reorder")


def parts(loop: Loop) -> str:
    """Where the time of a step goes."""
    found: dict[str, list[float]] = {}
    for _ in range(2):
        for part, seconds in split_steps(loop, Place(step=loop.state.step, total_steps=STEPS), count=1).items():
            found.setdefault(part, []).append(seconds)
    return ", ".join(f"{part} {1e3 * statistics.median(seconds):.1f}" for part, seconds in found.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=whole(2), default=12)
    rounds, load = parser.parse_args().rounds, os.getloadavg()[0]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # Opacus talks about hooks
    lines = [
        "# The cost of a governed step",
        "",
        "A plain step against one with `routing`, `contributions` (without exact mode) and `recorder`, on one thread in"
        " one process, interleaved: every window is between two windows of the plain step, which is cut into"
        " microbatches of the size that is fastest. The recorder's record of the whole state, every"
        f" {EVERY} steps, is in the ratios with its part. Noise in classes of equal size. Made by"
        " `benchmarks/governed_step.py`.",
        "",
    ]
    for work, count in ((RESNET, rounds), (GPT, max(3, rounds // 4))):
        with TemporaryDirectory() as place:
            lines += measure(work, Path(place), rounds=count)
    lines += [
        "`governance` is what `contributions` and `recorder` take. "
        + (
            "Opacus is left out for gpt-small: it has no rule for a head that is the embedding's own tensor."
            if OPACUS
            else "Opacus was not installed: its line is left out."
        ),
        "",
        f"The load was {load:.1f} when this began: what other programs do disturbs wall time most.",
    ]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

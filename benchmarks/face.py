"""How much the explorer computes before the browser has what it draws, from a store as large as it has to bear.

    python benchmarks/face.py [--runs N] [--rows N] [--rounds N] [--store RUNS]        writes benchmarks/face.md

The store is that of `face_store.py`, made in a temporary directory unless RUNS has one. The explorer runs as in a
notebook, with every message to the browser written out as JSON and counted, but without a browser. The opening is timed
in fresh processes; each control is set from the same view, after the snapshot has been read again, so that nothing is
in memory that a first click would not find there. Rounds take turns over all controls. Times are those of the
processor, all threads together, so that other work on the machine counts for little.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import comm
import duckdb
import numpy as np
from face_store import ROWS, RUNS, make_store
from options import whole
from pages import write_page
from tqdm import tqdm

from explorer.analysis.pareto import front
from explorer.costing import Price, load_prices
from explorer.store import queries
from explorer.store.connect import connect_in_memory
from explorer.store.published import database
from explorer.store.queries import Question as Sql
from explorer.store.snapshot_tables import publish
from explorer.views.explore import Explorer
from explorer.views.explorer.answer import answer
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot

Result = TypeVar("Result")

POINTS = 1_000_000
OFFERED = {"deletion_of": "deletions", "baseline": "recipes"}  # choices whose name is not that of the field
BY_HAND = {"target": 0.85, "usd_per_hour": 2.5, "order": "best", "bands": "all", "curve_x": "time", "curve_smooth": 0.1}
OPENING, CONTROL, FRONT = 3.5, 0.15, 0.2  # seconds that each may take


@dataclass(kw_only=True, slots=True)
class Browser:
    """Messages sent to the browser, as JSON."""

    messages: list[str] = field(default_factory=list)

    def receive(self, data: Any) -> None:
        self.messages.append(json.dumps(data, default=str))

    @property
    def sent(self) -> int:
        """The bytes of the messages."""
        return sum(map(len, self.messages))

    @property
    def marks(self) -> int:
        """The rows of data in charts."""
        return sum(len(rows) for message in self.messages for rows in _datasets(json.loads(message)))


BROWSER = Browser()


class _Wire(comm.DummyComm):
    """A connection without a browser, which keeps what one would get."""

    def publish_msg(self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **_: Any) -> None:
        BROWSER.receive(data)


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One line of the table."""

    name: str
    seconds: list[float] = field(default_factory=list)
    most: float | None = None
    sent: int | None = None
    marks: int | None = None

    def line(self) -> str:
        spread = (statistics.median(self.seconds), min(self.seconds), max(self.seconds))
        cells = [self.name, *(f"{seconds * 1000:,.0f}" for seconds in spread)]
        cells.append("" if self.most is None else f"{self.most * 1000:,.0f}")
        cells.append("" if self.sent is None else f"{self.sent / 1000:,.0f}")
        cells.append("" if self.marks is None else f"{self.marks:,}")
        return f"| {' | '.join(cells)} |"


def first_paint(runs: Path, rounds: int) -> list[Figure]:
    """Importing what the notebook imports, and the whole view with its first answer, in processes of their own."""
    processes = []
    for _ in range(rounds):
        command = [sys.executable, __file__, "--paint", str(runs)]
        processes.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    last = processes[-1]
    return [
        Figure(name="- importing what the notebook imports", seconds=[timed["imported"] for timed in processes]),
        Figure(
            name="opening: a new process, until its chart is sent",
            seconds=[timed["painted"] for timed in processes],
            most=OPENING,
            sent=last["sent"],
            marks=last["marks"],
        ),
    ]


def paint(runs: Path) -> None:
    """Open the explorer once, in a process of its own, and print what that took from its start."""
    imported = time.process_time()
    Explorer(runs, question=Question())
    times = {"imported": imported, "painted": time.process_time()}
    print(json.dumps(times | {"sent": BROWSER.sent, "marks": BROWSER.marks}))


def opening(runs: Path, rounds: int) -> list[Figure]:
    """The parts of the first paint that ask the database and answer."""
    read, answered = Figure(name="- reading the snapshot"), Figure(name="- the first answer")
    for _ in range(rounds):
        snapshot = timed(read, read_snapshot, runs)
        timed(answered, answer, snapshot, Question())
    return [read, answered]


def controls(runs: Path, rounds: int) -> list[Figure]:
    """Each control of the explorer, set to something else."""
    wishes = dict(variations(answer(read_snapshot(runs), Question()).settled))
    explorer, seconds = Explorer(runs, question=Question()), {name: list[float]() for name in wishes}
    home, sent = explorer.question, dict[str, tuple[int, int]]()
    for _ in tqdm(range(rounds), file=sys.stderr):
        for name, wish in wishes.items():
            explorer.question = home
            explorer.refresh()
            BROWSER.messages.clear()
            start = time.process_time()
            explorer.ask(wish)
            seconds[name].append(time.process_time() - start)
            sent[name] = (BROWSER.sent, BROWSER.marks)
    return [
        Figure(name=name, seconds=seconds[name], most=CONTROL, sent=sent[name][0], marks=sent[name][1])
        for name in wishes
    ]


def variations(settled: Any) -> Iterator[tuple[str, Question]]:
    """A question for each control that has something else to offer, and for each that offers all at once."""
    asked = settled.question
    for part in fields(asked):
        value = getattr(asked, part.name)
        offered = next(
            (
                getattr(settled.choices, name)
                for name in (OFFERED.get(part.name, part.name), f"{part.name}s")
                if hasattr(settled.choices, name)
            ),
            (),
        )
        others = [option for option in offered if option not in (value, "*")]
        if part.name in BY_HAND:
            yield part.name, replace(asked, **{part.name: BY_HAND[part.name]})
        elif isinstance(value, bool):
            yield part.name, replace(asked, **{part.name: not value})
        elif isinstance(value, tuple) and others:
            yield part.name, replace(asked, **{part.name: (others[-1],)})
        elif isinstance(value, str) and others:
            yield part.name, replace(asked, **{part.name: others[0]})
        if "*" in offered and value != "*":
            yield f"{part.name}: all", replace(asked, **{part.name: "*"})


def repriced(runs: Path, rounds: int) -> Figure:
    """A price changes, and nothing else: from the price table to a published snapshot."""
    figure = Figure(name="a price changes: a new snapshot")
    for number in range(rounds):
        own = Price(provider="own", instance="box", accelerator="H200", count=1, usd_per_hour=1.0 + number, source="us")
        with connect_in_memory(runs / "_store") as work:
            work.execute(f"ATTACH '{runs.resolve() / '_store' / 'store.duckdb'}' AS work")
            beside = runs.resolve() / "_store" / "snapshot.duckdb"
            prices = (*load_prices(), replace(own, own=True))
            timed(figure, publish, work, runs=runs, fresh=beside, prices=prices, live=None, force=False)
    return figure


def front_of(points: int, rounds: int) -> Figure:
    """The front of points among which quality rises with cost."""
    chance, figure = np.random.default_rng(7), Figure(name=f"front of {points:,} points", most=FRONT)
    x = chance.lognormal(size=points)
    y = np.log(x) + chance.normal(size=points)
    for _ in range(rounds):
        timed(figure, front, x, y)
    return figure


def timed(figure: Figure, call: Callable[..., Result], *given: Any, **named: Any) -> Result:
    """The result of a call, whose seconds are added to the figure."""
    start = time.process_time()
    result = call(*given, **named)
    figure.seconds.append(time.process_time() - start)
    return result


def _datasets(value: Any) -> Iterator[list[Any]]:
    """The data of every chart in a message, which holds each chart as a text."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "spec" and inner:
                yield from _datasets(json.loads(inner))
            elif name == "datasets" and isinstance(inner, dict):
                yield from inner.values()
            elif name == "values" and isinstance(inner, list):
                yield inner
            else:
                yield from _datasets(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _datasets(inner)


def sizes(runs: Path) -> str:
    """Describe the store in a sentence."""
    tables = ("runs", "results", "metrics", "timings", "contributions", "entropy", "deletion_forecasts", "means")
    asked = Sql(sql="SELECT " + ", ".join(f"(SELECT count(*) FROM {name})" for name in tables))
    (counts,) = queries.select(database(runs), asked).rows
    listed = ", ".join(f"{count:,} in `{name}`" for name, count in zip(tables, counts, strict=True))
    return f"Rows: {listed}. The snapshot has {database(runs).stat().st_size / 1e6:,.0f} MB."


def report(figures: list[Figure], *, made: dict[str, float], runs: Path, rounds: int) -> str:
    """The page."""
    took = "".join(f" It was {name} in {seconds:.0f} s." for name, seconds in made.items())
    lines = [
        "# The explorer on a large store",
        "",
        f"{sizes(runs)}{took}",
        "",
        f"Milliseconds of processor time, {rounds} rounds; {os.cpu_count()} cores ({platform.machine()}), DuckDB "
        f"{duckdb.__version__} with as many threads. The file is in the system's cache. Sent: what goes to the browser "
        "as JSON; marks: rows of data in the charts among it. Made by `benchmarks/face.py`.",
        "",
        "| what | median | fastest | slowest | at most | kB sent | marks |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(figure.line() for figure in figures)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=whole(), default=RUNS)
    parser.add_argument("--rows", type=whole(), default=ROWS, help="rows of metrics")
    parser.add_argument("--rounds", type=whole(), default=5)
    parser.add_argument("--store", type=Path, metavar="RUNS", help="a directory that has the store")
    parser.add_argument("--paint", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    comm.create_comm = _Wire
    if given.paint:
        return paint(given.paint)
    with tempfile.TemporaryDirectory(prefix="explorer-face-") as place:
        runs = given.store or Path(place)
        made = {} if given.store else make_store(runs, runs=given.runs, rows=given.rows)
        figures = [*first_paint(runs, given.rounds), *opening(runs, given.rounds), *controls(runs, given.rounds)]
        figures += [front_of(POINTS, given.rounds), repriced(runs, given.rounds)]
        page = report(figures, made=made, runs=runs, rounds=given.rounds)
    write_page(Path(__file__).with_suffix(".md"), page)
    print(page)


if __name__ == "__main__":
    main()

"""A searched sweep as its directory shows it, without training, and the same runs of an ordinary sweep."""

from pathlib import Path

from explorer import run_files
from explorer.search.search_answer import FILE, Answer, LeftOut, MethodEffect, Moment, Place
from explorer.store.ingest import ingest
from tests.builders import write_plan, write_sweep

QUALITIES = {
    "baseline": {0.5: (0.800, 0.801, 0.802), 1.0: (0.900, 0.901, 0.902), 2.0: (0.920, 0.921, 0.922)},
    "ema": {0.5: (0.801, 0.802, 0.803), 1.0: (0.901, 0.902, 0.903), 2.0: (0.921, 0.922, 0.923)},
    "ema-mixup": {0.5: (0.810, 0.811, 0.812), 1.0: (0.910, 0.912, 0.911), 2.0: (0.931, 0.932, 0.930)},
}
STEP_SECONDS = {"ema-mixup": 0.005}


def place(recipe: str, seconds: float | None, regret: float | None, *methods: str) -> Place:
    return Place(recipe=recipe, methods=methods, seconds=seconds, regret=regret, runs=3, measured=True)


ANSWER = Answer(
    sweep="digits",
    baseline="baseline",
    spec_digest="d",
    searcher="random",
    seed=0,
    metric="accuracy",
    target=0.93,
    recipes=4,
    spend=100.0,
    spent=80.0,
    runs=9,
    failed=0,
    ended="the time is spent",
    baseline_seconds=10.0,
    ranking=(
        place("ema-mixup", 5.0, 0.0, "ema", "mixup"),
        place("ema", 8.0, 0.6, "ema"),
        place("baseline", 10.0, 1.0),
        place("mixup", None, None, "mixup"),
    ),
    left_out=(LeftOut(name="ema-swa", reason="ema cannot be combined with swa"),),
    history=(
        Moment(runs=3, spent=30.0, recipe="baseline", seconds=10.0, regret=0.4, later=10.0),
        Moment(runs=6, spent=55.0, recipe="ema", seconds=7.5, regret=0.2, later=8.0),
        Moment(runs=9, spent=80.0, recipe="ema-mixup", seconds=5.0, regret=0.0, later=5.0),
    ),
    effects=(
        MethodEffect(method="mixup", quality=-0.01, low=-0.03, high=0.01, runs=6, time=0.5),
        MethodEffect(method="ema", quality=0.02, low=0.01, high=0.03, runs=6, time=1.0),
    ),
)


def write_searched(runs: Path, *, chosen: bool = True) -> None:
    """Write a sweep below `runs`; unless `chosen`, as one whose runs were known beforehand."""
    planned = write_sweep(runs, QUALITIES, step_seconds=STEP_SECONDS)
    if chosen:
        write_plan(runs, planned, searched=True)
        run_files.write(runs / "digits" / FILE, ANSWER)
    ingest(runs)

"""A sweep of 10,000 runs: planning it, its state, what a place says of it, and 100 new results among the others.

`python benchmarks/many_runs.py [--runs 10000]`. The specification has 16 recipes, 4 budgets and 156 seeds on digits; it
is planned for real, without the rehearsal, which takes as long as for a small sweep. Results are written as a finished
run writes them, by the records of the product: all but 100 here, and those 100 at the place, where the others are
listed. Every time is processor time of this process, so that other work on the machine changes little; the memory is
the most that the process had.
"""

import gc
import itertools
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.options import options, verdict, whole  # noqa: E402
from benchmarks.pages import write_page  # noqa: E402
from explorer import run_files, rundir  # noqa: E402
from explorer.costing import load_prices  # noqa: E402
from explorer.place.attempt import Attempt  # noqa: E402
from explorer.place.leases import Claim, encoded, end, key_of, take  # noqa: E402
from explorer.place.place_status import PlaceReader  # noqa: E402
from explorer.place.published_sweep import Published  # noqa: E402
from explorer.store.ingest import ingest  # noqa: E402
from explorer.sweep.at_place import fetch_results, publish  # noqa: E402
from explorer.sweep.overview import overview_at, overview_here  # noqa: E402
from explorer.sweep.plan import Plan, make_plan  # noqa: E402
from explorer.sweep.spec import load_spec  # noqa: E402
from explorer.sweep.status import sweep_status  # noqa: E402
from tests.builders import write_run  # noqa: E402

NEW = 100
METHODS = ("label_smoothing", "mixup", "cutout", "ema", "blurpool")


def specification(runs: int) -> dict[str, object]:
    """A sweep of about so many runs."""
    recipes: dict[str, list[object]] = {"baseline": []}
    for method in METHODS:
        recipes[method] = [method]
    for first, second in itertools.combinations(METHODS, 2):
        recipes[f"{first}-{second}"] = [first, second]
    seeds = max(1, runs // (4 * len(recipes)))
    return {
        "name": "many",
        "task": {"dataset": "digits", "model": "resnet8"},
        "train": {"epochs": 1, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}},
        "baseline": "baseline",
        "recipes": recipes,
        "budgets": [0.25, 0.5, 0.75, 1.0],
        "seeds": list(range(seeds)),
    }


def timed(act: Callable[[], object]) -> tuple[object, float]:
    """Return what an action gives, and the processor seconds that it takes."""
    gc.collect()
    begun = time.process_time()
    value = act()
    return value, time.process_time() - begun


def finish(at: Published, plan: Plan, scratch: Path, first: int) -> None:
    """Publish the results of runs from this one at a place, as workers do."""
    for run in plan.runs[first:]:
        claim = take(at.objects, run.record.run_id, host="node-32", hardware="CPU")
        assert claim is not None
        directory = write_run(scratch, run.record)
        Attempt(at, claim, directory).finish()
        end(at.objects, claim, "done")
        shutil.rmtree(directory)


def list_as_done(place: Path, plan: Plan, stop: int, now: float) -> None:
    """Write claims of 32 hosts and names of results up to this run: what the state of a place is told by. Nothing is
    flushed to the disk, which took ten minutes."""
    (place / "results").mkdir(exist_ok=True)
    for number, run in enumerate(plan.runs[:stop]):
        name, until = run.record.run_id, now - stop + number
        claim = Claim(
            run_id=name,
            epoch=1,
            holder=f"{number:032x}",
            host=f"node-{number % 32}",
            hardware="CPU",
            begun=until - 30.0,
            until=until,
            ended="done",
        )
        path = place / key_of(name, 1)
        path.parent.mkdir(parents=True)
        path.write_bytes(encoded(claim))
        (place / "results" / f"{name}.json").write_bytes(b"{}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=whole(400), default=10_000, help="how many runs the sweep has")
    chosen = parser.parse_args()
    rows: list[tuple[str, float, str]] = []
    with tempfile.TemporaryDirectory(prefix="many-") as name:
        here = Path(name)
        spec = load_spec(specification(chosen.runs))
        plan, seconds = timed(lambda: make_plan(spec, runs=here / "runs", rehearsed=True))
        assert isinstance(plan, Plan)
        rows.append(("plan", seconds, "at most 5"))
        at, seconds = timed(lambda: publish(plan, str(here / "place")))
        assert isinstance(at, Published)
        rows.append(("publish at a directory", seconds, ""))
        # All but the new ones are done, here and in the database.
        for run in plan.runs[:-NEW]:
            write_run(here / "runs", run.record)
        rundir.write_json(plan.directory / rundir.SWEEP, plan.to_json())
        _, seconds = timed(lambda: ingest(here / "runs"))
        rows.append((f"ingest of {len(plan.runs) - NEW:,} runs into an empty database", seconds, ""))
        prices, now = load_prices(), time.time()
        list_as_done(here / "place", plan, len(plan.runs) - NEW, now)
        finish(at, plan, here / "scratch", len(plan.runs) - NEW)
        _, seconds = timed(lambda: overview_here(sweep_status(plan.directory), prices=prices, now=now))
        rows.append(("state of the sweep", seconds, "at most 1"))
        reader = PlaceReader(at)
        for what in ("state of the place", "state of the place, at each later look"):
            _, seconds = timed(lambda: overview_at(reader.look(now=now), prices=prices, now=now))
            rows.append((what, seconds, "at most 1"))
        fetched, first = timed(lambda: fetch_results(at, plan))
        assert isinstance(fetched, dict) and len(fetched) == NEW
        _, second = timed(lambda: ingest(here / "runs"))
        rows.append((f"bring {NEW} new results back from the place", first, ""))
        rows.append((f"ingest of {NEW} new among {len(plan.runs):,}", second, "at most 3"))
        assert run_files.read(run_files.ResultRecord, plan.runs[-1].directory / rundir.RESULT)
        number = len(plan.runs)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = [
        "# A sweep of many runs",
        "",
        f"`python benchmarks/many_runs.py --runs {chosen.runs}`: {number:,} runs, processor seconds of one process.",
        "",
        "| | seconds | asked |",
        "| --- | ---: | --- |",
        *(f"| {what} | {seconds:.2f} | {verdict(seconds, target)} |" for what, seconds, target in rows),
        "",
        f"The process had {memory:,.0f} MB at most.",
        "",
    ]
    write_page(ROOT / "benchmarks" / "many_runs.md", "\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()

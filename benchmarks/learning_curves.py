"""Learning curves from a store of ten million measurements: two runs, a whole sweep, and the chart.

    python benchmarks/learning_curves.py        writes benchmarks/learning_curves.md

The store has 200 runs of 25,000 steps, each with its loss and its learning rate. The rows that the ingester would have
read are written into the project's own working tables, and its own publisher makes the snapshot. The control asks the
same table by the names of the runs, which DuckDB cannot skip by.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from options import options, verdict, whole
from pages import write_page

from explorer.costing import load_prices
from explorer.run_files import METRICS
from explorer.store import snapshot_tables
from explorer.store.connect import connect_in_memory, reading
from explorer.store.learning_curves import growing, is_training, learning_curves
from explorer.store.published import VERSION, database
from explorer.store.snapshot_tables import STORAGE_VERSION, publish
from explorer.views.explorer.curves_chart import curves_chart

RECIPES, SEEDS = 20, 10
ROUNDS = 15
TARGET = 1.0  # seconds for two runs

MADE = """
CREATE TEMP TABLE made AS
SELECT format('sweep/resnet8-digits-recipe{:02d}-ssr1-s{}-{}', r, s, left(sha256(format('{} {}', r, s)), 8)) AS path,
       sha256(format('{} {}', r, s)) AS version, r, s
FROM range($recipes) a(r), range($seeds) b(s);
INSERT INTO work.sources
SELECT row_number() OVER (ORDER BY path), path, 'sweep', 'run', version, 'finished', NULL FROM made;
INSERT INTO work.runs BY NAME
SELECT path, version, split_part(path, '/', 2) AS run_id, format('recipe{:02d}', r) AS recipe, 'recipe00' AS baseline,
       sha256(format('recipe {}', r)) AS recipe_digest, '{}' AS identity, 'digits' AS dataset, 'resnet8' AS model,
       '' AS methods, 1.0 AS ssr, s AS seed, $steps AS steps, 128 AS batch_size, 'fp32' AS precision, 'cpu' AS device,
       'AMD EPYC' AS hardware, 1 AS threads, 1 AS world_size, 'accuracy' AS metric, MAP {'all': $steps} AS phases,
       $steps * 128 AS examples, $steps - 3 AS timed_steps, true AS contended, 0 AS resumed
FROM made;
INSERT INTO work.metrics
SELECT path, version, step, metric,
       CASE metric WHEN 'lr' THEN 0.1 * (1 - step / $steps)
       ELSE 2.0 / sqrt(step) + 0.1 * (hash(step * 1000 + r * 10 + s) % 1000) / 1000 END
FROM made, range(1, $steps + 1) t(step), (VALUES ('train_loss'), ('lr')) m(metric);
"""

BY_NAME = """
SELECT run_id, step * 200 // $steps AS part, min(value), max(value), avg(value) FROM metrics
WHERE metric = 'train_loss' AND run_id IN ($one, $two) GROUP BY ALL
"""


def make_store(place: Path, *, steps: int) -> int:
    """Write the working database and publish its snapshot; return its number of measurements."""
    working = place / "_store" / "store.duckdb"
    working.parent.mkdir(parents=True)
    with connect_in_memory(working.parent) as work:
        work.execute(f"ATTACH '{working}' AS work (STORAGE_VERSION '{STORAGE_VERSION}')")
        work.execute("USE work")
        work.execute(snapshot_tables.WORKING)
        work.execute("INSERT INTO schema_version VALUES (?)", [VERSION])
        work.execute("USE memory")
        values = {"recipes": RECIPES, "seeds": SEEDS, "steps": steps}
        for statement in work.extract_statements(MADE):
            work.execute(statement, {name: values[name] for name in statement.named_parameters})
        rows = work.execute("SELECT count(*) FROM work.metrics").fetchall()[0][0]
        fresh = working.with_name("snapshot.duckdb")
        publish(work, runs=place, fresh=fresh, prices=load_prices(), live=None, force=True)
    return rows


def timed(act: Callable[[], object]) -> tuple[float, float, float]:
    """Return the wall seconds of the first call, and the medians of wall and processor seconds of all others."""
    walls, processors = [], []
    for _ in range(ROUNDS + 1):
        wall, processor = time.perf_counter(), time.process_time()
        act()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return walls[0], statistics.median(walls[1:]), statistics.median(processors[1:])


def by_name(path: Path, one: str, two: str, steps: int) -> None:
    with reading(path) as connection:
        connection.execute(BY_NAME, {"one": one, "two": two, "steps": steps}).df()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("steps", nargs="?", type=whole(), default=25_000, help="of each of the 200 runs")
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        rows = make_store(place, steps=steps)
        path = database(place)
        with reading(path) as connection:
            runs = connection.execute("SELECT directory, run_id FROM runs ORDER BY directory").fetchall()
        (first, first_name), (last, last_name) = runs[0], runs[-1]
        frame = learning_curves(path, "train_loss", directories=[first, last])
        asked: dict[str, Callable[[], object]] = {
            "curves of two runs": lambda: learning_curves(path, "train_loss", directories=[first, last]),
            "two runs, by their names (control)": lambda: by_name(path, first_name, last_name, steps),
            "curves of 200 runs, 24 points each": lambda: learning_curves(path, "train_loss", sweep="sweep", points=24),
            "chart of two runs": lambda: drawn(frame),
            "look for a sweep that trains": lambda: is_training(place, "sweep"),
            "look for runs that train": lambda: growing(place, "sweep", "train_loss"),
        }
        measured = {name: timed(act) for name, act in asked.items()}
    lines = [
        "# Learning curves",
        "",
        f"A store of {rows:,} measurements of {len(runs)} runs: {ROUNDS} rounds after the first. Two runs have"
        f" {frame.groupby('directory').size().max()} points each, among them all extremes. Made by"
        " `benchmarks/learning_curves.py`.",
        "",
        "| question | first (s) | median (s) | processor (s) | target |",
        "|---|---|---|---|---|",
    ]
    for name, (begun, wall, processor) in measured.items():
        target = verdict(max(begun, wall), f"at most {TARGET:g}") if name == "curves of two runs" else ""
        lines.append(f"| {name} | {begun:.3f} | {wall:.4f} | {processor:.4f} | {target} |")
    ratio = measured["two runs, by their names (control)"][2] / measured["curves of two runs"][2]
    lines += ["", f"Processor time by name over processor time by number: {ratio:.1f}."]
    write_page(Path(__file__).with_suffix(".md"), "\n".join(lines))
    print("\n".join(lines))


def drawn(frame: pd.DataFrame) -> object:
    return curves_chart(frame, metric=METRICS["train_loss"], smooth=0.02).to_dict(validate=False)


if __name__ == "__main__":
    main()

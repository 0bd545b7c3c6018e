"""Record real ladders of six budgets, in which forecasts are checked (forecast.py): a few recipes of each landscape.

    OMP_NUM_THREADS=1 python benchmarks/forecast_ladders.py [--data DIR]

Writes benchmarks/forecast.parquet, with a row for each run. Every run is trained in full, its schedule ending with its
budget. Ten minutes of one core.
"""

import os
from itertools import product
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pyarrow as pa
import pyarrow.parquet as pq
from landscape import LANDSCAPES, trained
from options import options

OUT = Path(__file__).with_name("forecast.parquet")
LADDER = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
SEEDS = (0, 1, 2)
RECIPES = {"digits": (0, 2, 4, 8, 32, 64), "shakespeare": (0, 16)}
"""Recipes of each landscape, as its methods' bits: the baseline, and single methods."""


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("EXPLORER_DATA"), help="directory of data sets")
    data = parser.parse_args().data
    rows = []
    for name, recipes in RECIPES.items():
        landscape = LANDSCAPES[name]
        names = list(landscape.methods)
        for (mask, seed), budget in product(product(recipes, SEEDS), LADDER):
            run = trained(landscape, mask, budget, seed, data)
            recipe = "+".join(method for bit, method in enumerate(names) if mask >> bit & 1) or "baseline"
            kept = {key: run[key] for key in ("budget", "seed", "quality", "steps")}
            rows.append({"task": name, "recipe": recipe, **kept})
        print(f"{name}: {len(rows)} runs so far", flush=True)
    pq.write_table(pa.Table.from_pylist(rows), OUT, compression="zstd")
    print(f"{OUT}: {len(rows)} runs, {OUT.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""A store as large as the explorer has to bear, made in the database instead of from a hundred thousand directories.

    python benchmarks/face_store.py RUNS [--runs N] [--rows N]      writes RUNS/_store and RUNS/explorer.duckdb

A sweep is 20 recipes x 10 budgets x 5 seeds: 1,000 runs. Sweeps take turns over four datasets, five models and three
machines; every tenth is governed, every fiftieth run more has failed, and some recipes were profiled on a machine where
they were never trained. The numbers are made up and look like training: quality rises with the logarithm of the budget
and levels off. The rows that the ingester would have read are written into the project's own working tables, and its
own publisher makes the snapshot.
"""

import argparse
import time
from pathlib import Path

import duckdb
from options import whole

from explorer.costing import load_prices
from explorer.store import snapshot_tables
from explorer.store.connect import connect_in_memory
from explorer.store.published import VERSION, database
from explorer.store.snapshot_tables import STORAGE_VERSION, publish

OF_A_SWEEP = 1_000
RUNS, ROWS = 100_000, 10_000_000

# Everything about a run follows from the numbers of its sweep (k), recipe (r), budget (b) and seed.
MADE = """
CREATE TEMP TABLE machines AS
FROM (VALUES (0, 'cpu', 'AMD EPYC (AVX512)', 2), (1, 'cuda', 'NVIDIA A100-SXM4-40GB', 8), (2, 'cuda', 'NVIDIA H200', 8))
t(m, device, hardware, threads);

CREATE TEMP TABLE recipes AS
SELECT k, r, 'sweep-' || lpad(k::VARCHAR, 4, '0') AS sweep,
       CASE r WHEN 0 THEN 'baseline' ELSE 'recipe-' || lpad(r::VARCHAR, 2, '0') END AS recipe,
       CASE WHEN r > 0 THEN (['ema', 'blurpool', 'mixup', 'sam', 'label_smoothing'])[r % 5 + 1]
           || CASE WHEN r > 5 THEN '+channels_last' ELSE '' END ELSE '' END AS methods,
       (['cifar10', 'digits', 'source', 'imagefolder'])[k % 4 + 1] AS dataset,
       (['resnet8', 'resnet20', 'resnet50', 'gpt', 'unet'])[k % 5 + 1] AS model,
       CASE k % 4 WHEN 2 THEN 'bits_per_byte' ELSE 'accuracy' END AS metric,
       machines.*, k % 10 = 0 AS governed,
       sha256(format('digest {} {}', k, r)) AS recipe_digest, sha256(format('effective {} {}', k, r)) AS effective,
       0.01 * (1 + 0.05 * r) * (m * 1.5 + 1) AS step_seconds
FROM range($sweeps) a(k), range(20) c(r), machines WHERE m = k % 3;

CREATE TEMP TABLE made AS
SELECT recipes.*, ssr, seed, steps, sha256(format('run {} {} {} {}', k, r, ssr, seed)) AS version,
       format('{}-{}-{}-ssr{}-s{}-{}', model, dataset, recipe, ssr, seed,
              substr(sha256(format('run {} {} {} {}', k, r, ssr, seed)), 1, 8)) AS run_id,
       sweep || '/' || run_id AS path,
       1 - 0.3 * exp(-1.6 * ssr - 0.02 * r) - 0.01 * (hash(version) % 1000) / 1000 AS quality
FROM recipes, (SELECT unnest([0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.25, 1.5]) AS ssr), range(5) s(seed),
     (SELECT 10000 AS full_steps), LATERAL (SELECT round(full_steps * ssr)::BIGINT AS steps)
ORDER BY path;
"""

SOURCES = """
INSERT INTO work.sources
SELECT row_number() OVER (ORDER BY path), path, sweep, 'run', version, 'finished', NULL FROM made;
INSERT INTO work.sources
SELECT 10000000 + row_number() OVER (ORDER BY path), path || '-failed', sweep, 'run', version, 'failed', NULL
FROM made WHERE hash(path) % 50 = 0;
INSERT INTO work.sources
SELECT 20000000 + k * 20 + r, sweep || '/_profiles/' || substr(recipe_digest, 1, 16) || '.json', sweep, 'profile',
       recipe_digest, 'usable', NULL FROM recipes;
INSERT INTO work.sources
SELECT 30000000 + k * 20 + r, '_profiles/' || substr(effective, 1, 16) || '.json', NULL, 'profile', effective, 'usable',
       NULL FROM recipes WHERE k < 24 AND m = 0;
"""

RUN = """
SELECT path || $suffix, version, run_id || $suffix, recipe, 'baseline', 'lr over 5 values', recipe_digest,
       format('{{"data":"{}","hardware":{{"name":"{}"}},"recipe":{{"methods":"{}","text":"{}"}},"seed":{},"ssr":{}}}',
              effective, hardware, methods, repeat('settings of the recipe; ', 25), seed, ssr),
       dataset, model, methods, ssr, seed, steps, 128, 'bf16', device, hardware, threads, 1, metric,
       MAP {'small': steps // 3, 'large': steps - steps // 3},
       CASE WHEN $suffix = '' THEN steps * 128 END, CASE WHEN $suffix = '' THEN steps - 10 END, true, 0,
       sha256(version), '2026-11-21T12:00:00Z', CASE WHEN $suffix <> '' THEN 'exception' END,
       CASE WHEN $suffix <> '' THEN 'out of memory' END, 1, NULL, NULL, effective, NULL, NULL, NULL
FROM made WHERE $suffix = '' OR hash(path) % 50 = 0
"""

OF_RUNS = """
INSERT INTO work.finals SELECT path, version, metric, quality,
       CASE metric WHEN 'accuracy' THEN 'fraction' ELSE 'bits' END, metric = 'accuracy', '' FROM made;
INSERT INTO work.finals SELECT path, version, 'nll', -ln(quality), 'nats', false, '' FROM made;
INSERT INTO work.metrics
SELECT path, version, ((i // 2 + 1) * steps / ($of_a_run / 2))::BIGINT,
       CASE i % 2 WHEN 0 THEN 'train_loss' ELSE metric END,
       CASE i % 2 WHEN 0 THEN 2.0 / (1 + i) ELSE quality * (1 - exp(-0.1 * i)) END
FROM made, range($of_a_run) t(i);
INSERT INTO work.timings
SELECT path, version, part, steps * step_seconds * share
FROM made, (VALUES ('read', 0.02), ('preprocess', 0.05), ('transfer', 0.01), ('wait', 0.01), ('forward', 0.3),
    ('backward', 0.5), ('optimizer', 0.05), ('governance', 0.04), ('other', 0.02), ('warmup', 0.01), ('compile', 0.0),
    ('evaluation', 0.1), ('checkpoint', 0.02)) t(part, share);
INSERT INTO work.profiles
SELECT sweep || '/_profiles/' || substr(recipe_digest, 1, 16) || '.json', recipe_digest, substr(recipe_digest, 1, 16),
       recipe_digest, recipe, device, hardware, threads, 1, '2.13.0', phase, step_seconds * share,
       step_seconds * share * 0.95, step_seconds * share * 1.1, 7,
       MAP {'forward': step_seconds * share * 0.4, 'backward': step_seconds * share * 0.6}, step_seconds / 200,
       '2026-11-21T12:00:00Z', effective, NULL, NULL, NULL, NULL
FROM recipes, (VALUES ('small', 0.4), ('large', 1.0)) t(phase, share);
INSERT INTO work.profiles
SELECT '_profiles/' || substr(effective, 1, 16) || '.json', effective, substr(effective, 1, 16), effective, recipe,
       o.device, o.hardware, o.threads, 1, '2.13.0', phase, 0.002 * share, 0.0019 * share, 0.0022 * share, 7,
       MAP {'forward': 0.001 * share}, 0.0001, '2026-11-21T12:00:00Z', effective, NULL, NULL, NULL, NULL
FROM recipes r, (VALUES ('small', 0.4), ('large', 1.0)) t(phase, share), machines o
WHERE k < 24 AND r.m = 0 AND o.m = 2;
"""

# Eight layers, four classes, five segments, three profiles.
GOVERNED = """
CREATE TEMP TABLE governed AS SELECT * FROM made WHERE governed;
CREATE TEMP TABLE layers AS SELECT format('blocks.{}.conv', i) AS layer, i FROM range(8) t(i);
CREATE TEMP TABLE classes AS
SELECT unnest(['licensed/news', 'open/bsd', 'open/mit', 'personal/customer']) AS class;
INSERT INTO work.contributions
SELECT path, version, s * steps // 5, (s + 1) * steps // 5 - 1, layer, class, steps // 5, steps * 6, 0.1 + i, 1.0 + i,
       -0.1, 0.5, NULL FROM governed, range(5) t(s), layers, classes;
INSERT INTO work.entropy
SELECT path, version, s * steps // 3, layer, class, 64, 2.5, 12.0, 2.2, (hash(version) % 100) / 200 + 0.02 * i, 0.1,
       0.01, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM governed, range(3) t(s), layers, (FROM classes UNION ALL SELECT '*');
INSERT INTO work.decisions
SELECT path, version, 10 * d, d * steps // 3, 'freeze', 'entropy-settled', MAP {'tolerance': 0.01::DOUBLE},
       ['open/bsd'], ['blocks.0.conv'], ['open/bsd'], false FROM governed, range(1, 3) t(d);
INSERT INTO work.ledger_heads
SELECT path, version, 'example.com/' || run_id, steps + 20, sha256(run_id), 'half-depth version ' || (1 + k // 10 % 2)
FROM governed;
INSERT INTO work.deletion_routes
SELECT path, version, class, CASE class WHEN 'personal/customer' THEN 'G2' ELSE 'G3' END, 0, 0,
       CASE class WHEN 'personal/customer' THEN 0 ELSE steps END, 0.2, 5.0, 1.0, 30.0, NULL FROM governed, classes;
"""


def make_store(place: Path, *, runs: int, rows: int) -> dict[str, float]:
    """Write the working database and publish its snapshot; the seconds that both took, by name."""
    if database(place).exists():
        raise SystemExit(f"{database(place)} is there already: name a directory that holds no runs")
    working = place.resolve() / "_store" / "store.duckdb"
    working.parent.mkdir(parents=True)
    start = time.perf_counter()
    with connect_in_memory(working.parent) as work:
        work.execute(f"ATTACH '{working}' AS work (STORAGE_VERSION '{STORAGE_VERSION}')")
        work.execute("USE work")
        work.execute(snapshot_tables.WORKING)
        work.execute("INSERT INTO schema_version VALUES (?)", [VERSION])
        work.execute("USE memory")
        of_a_run = max(2, rows // runs)
        for sql in duckdb.extract_statements(MADE + SOURCES + OF_RUNS + GOVERNED):
            named = {"sweeps": max(1, runs // OF_A_SWEEP), "of_a_run": of_a_run}
            work.execute(sql, {name: named[name] for name in sql.named_parameters})
        for suffix in ("", "-failed"):
            work.execute(f"INSERT INTO work.runs {RUN}", {"suffix": suffix})
        work.execute("CHECKPOINT work")
        written = time.perf_counter()
        beside = working.with_name("snapshot.duckdb")
        publish(work, runs=place, fresh=beside, prices=load_prices(), live=None, force=True)
    return {"written": written - start, "published": time.perf_counter() - written}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path, metavar="RUNS")
    parser.add_argument("--runs", type=whole(), default=RUNS)
    parser.add_argument("--rows", type=whole(), default=ROWS, help="rows of metrics")
    given = parser.parse_args()
    for name, seconds in make_store(given.place, runs=given.runs, rows=given.rows).items():
        print(f"{name} in {seconds:.1f} s")


if __name__ == "__main__":
    main()

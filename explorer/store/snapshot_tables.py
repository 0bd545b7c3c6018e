"""Snapshots of the database: its tables, what follows from them, and how a snapshot is made.

Working database, `runs/_store/store.duckdb`, opened by the ingester only. `sources` lists what there is, in order: the
last row of a path is its present state, and older rows stay. What was read from a source is kept once for each version
of it (a digest of its content) in the other tables and never changed. No keys and no indexes; uniqueness by anti-join.

Snapshot, `runs/explorer.duckdb`, opened read-only by all others: the present state, in the tables that are described at
`SNAPSHOT`, and what follows from them (`OUTCOMES`). A change of the schema is a new `VERSION` and a rebuild, not a
migration. The snapshot is made whole under another name, then renamed over the old one.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from explorer.canonical import digest
from explorer.costing import Price, default_price
from explorer.errors import StoreError
from explorer.planned import Described, is_own, standings
from explorer.run_files import APART
from explorer.runlog.forecast import DRIFT
from explorer.store.connect import connect_to_file, reading
from explorer.store.published import VERSION, database
from explorer.store.run_sources import prices_digest

STORAGE_VERSION = "v1.5.0"  # the oldest DuckDB that is supported can read it


# --- the tables ---

WORKING = """
CREATE TABLE schema_version (version INTEGER);
CREATE TABLE sources (
    sequence BIGINT, path VARCHAR, sweep VARCHAR, kind VARCHAR, version VARCHAR, state VARCHAR, problem VARCHAR
);
CREATE TABLE runs (
    path VARCHAR, version VARCHAR, run_id VARCHAR, recipe VARCHAR, baseline VARCHAR, tuning VARCHAR,
    recipe_digest VARCHAR, identity VARCHAR, dataset VARCHAR, model VARCHAR, methods VARCHAR, ssr DOUBLE, seed BIGINT,
    steps BIGINT, batch_size BIGINT, precision VARCHAR, device VARCHAR, hardware VARCHAR, threads BIGINT,
    world_size BIGINT, metric VARCHAR, phases MAP(VARCHAR, BIGINT), examples BIGINT, timed_steps BIGINT,
    contended BOOLEAN, resumed BIGINT, state_digest VARCHAR, finished_at VARCHAR, failure VARCHAR,
    failure_message VARCHAR, attempts BIGINT, control VARCHAR, control_of VARCHAR,
    effective_digest VARCHAR, peak_memory BIGINT, imported VARCHAR, imported_seconds DOUBLE,
    clock VARCHAR, loss_unit VARCHAR, flops DOUBLE, utilisation DOUBLE, energy_kwh DOUBLE
);
CREATE TABLE finals (
    path VARCHAR, version VARCHAR, metric VARCHAR, value DOUBLE, unit VARCHAR, higher_is_better BOOLEAN, format VARCHAR
);
CREATE TABLE metrics (path VARCHAR, version VARCHAR, step BIGINT, metric VARCHAR, value DOUBLE);
CREATE TABLE timings (path VARCHAR, version VARCHAR, part VARCHAR, seconds DOUBLE);
CREATE TABLE profiles (
    path VARCHAR, version VARCHAR, key VARCHAR, recipe_digest VARCHAR, recipe VARCHAR, device VARCHAR,
    hardware VARCHAR, threads BIGINT, world_size BIGINT, torch VARCHAR, phase VARCHAR, seconds DOUBLE, low DOUBLE,
    high DOUBLE, windows BIGINT, split MAP(VARCHAR, DOUBLE), inference_seconds DOUBLE, made_at VARCHAR,
    effective VARCHAR, rounds DOUBLE[], profile_pass VARCHAR, busy VARCHAR, inference_rounds DOUBLE[]
);
CREATE TABLE plans (path VARCHAR, version VARCHAR, content VARCHAR, tunes VARCHAR, tuned VARCHAR);
CREATE TABLE contributions (
    path VARCHAR, version VARCHAR, first_step BIGINT, last_step BIGINT, layer VARCHAR, class VARCHAR, steps BIGINT,
    examples BIGINT, share_num DOUBLE, share_den DOUBLE, update_num DOUBLE, update_sq DOUBLE, exact_num DOUBLE
);
CREATE TABLE entropy (
    path VARCHAR, version VARCHAR, step BIGINT, layer VARCHAR, class VARCHAR, examples BIGINT, entropy DOUBLE,
    effective_rank DOUBLE, renyi2 DOUBLE, chi DOUBLE, chi_null DOUBLE, p_value DOUBLE,
    entropy_centred DOUBLE, effective_rank_centred DOUBLE, renyi2_centred DOUBLE, told_apart DOUBLE, told_low DOUBLE,
    told_high DOUBLE, told_chance DOUBLE, told_p_value DOUBLE
);
CREATE TABLE decisions (
    path VARCHAR, version VARCHAR, entry BIGINT, step BIGINT, action VARCHAR, rule VARCHAR,
    parameters MAP(VARCHAR, DOUBLE), subjects VARCHAR[], layers VARCHAR[], evidence VARCHAR[], superseded BOOLEAN
);
CREATE TABLE ledger_heads (
    path VARCHAR, version VARCHAR, origin VARCHAR, size BIGINT, root VARCHAR, policy VARCHAR
);
CREATE TABLE deletion_routes (
    path VARCHAR, version VARCHAR, class VARCHAR, level VARCHAR, first_step BIGINT, start_step BIGINT, steps BIGINT,
    share DOUBLE, rest DOUBLE, rest_low DOUBLE, rest_high DOUBLE, own_step DOUBLE
);
CREATE TABLE deletions (
    path VARCHAR, version VARCHAR, level VARCHAR, origin_run VARCHAR, origin VARCHAR, origin_size BIGINT,
    origin_root VARCHAR, classes VARCHAR[], authorities VARCHAR[], records BIGINT, begins BIGINT
);
CREATE TABLE imports (path VARCHAR, version VARCHAR, words VARCHAR, runs BIGINT);
CREATE TABLE imported (path VARCHAR, version VARCHAR, run VARCHAR);
CREATE VIEW present_sources AS
SELECT * FROM sources
QUALIFY row_number() OVER (PARTITION BY path ORDER BY sequence DESC) = 1 AND state <> 'gone';
CREATE VIEW present AS
FROM present_sources
UNION ALL
SELECT s.sequence, i.run AS path, s.sweep, 'run' AS kind, s.version, 'finished' AS state, NULL AS problem
FROM present_sources s JOIN imported i USING (path, version);
"""

# An import is one source with many runs, each in `present` under a path of its own, which is no directory.
_KINDS: dict[object, str] = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}

# Filled from the attached database `work`. A damaged run has nothing but its place, its state and its problem. What the
# runs of a plan are called and are for, the plan says; `standings` has a row for each of them.
SNAPSHOT = """
CREATE TABLE plans AS
SELECT s.sweep, s.version, s.path AS source, p.tunes, p.tuned
FROM work.present s LEFT JOIN work.plans p USING (path, version) WHERE s.kind = 'plan' ORDER BY s.path;

CREATE TABLE imports AS
SELECT s.sweep, s.version, i.words, i.runs, s.path AS source
FROM work.present s JOIN work.imports i USING (path, version)
ORDER BY s.path;

CREATE TABLE runs AS
SELECT sweep, run_id, state, problem, superseded, recipe, baseline, recipe = baseline AS is_baseline,
       * EXCLUDE (sweep, run_id, state, problem, superseded, recipe, baseline),
       row_number() OVER (ORDER BY directory) AS number
FROM (
    SELECT s.sweep, coalesce(r.run_id, string_split(s.path, '/')[2]) AS run_id, s.state, s.problem,
           coalesce(p.superseded, false) AS superseded,
           r.* EXCLUDE (path, version, run_id) REPLACE (
               coalesce(p.recipe, r.recipe) AS recipe, coalesce(p.baseline, r.baseline) AS baseline,
               CASE WHEN p.recipe IS NULL THEN r.tuning ELSE p.tuning END AS tuning,
               CASE WHEN p.has_control THEN p.control ELSE r.control END AS control,
               CASE WHEN p.has_control THEN p.control_of ELSE r.control_of END AS control_of
           ),
           s.path AS directory, s.version, p.added,
           CASE WHEN p.searched THEN true END AS searched
    FROM work.present s LEFT JOIN work.runs r USING (path, version) LEFT JOIN standings p ON p.path = s.path
    WHERE s.kind = 'run'
)
ORDER BY directory;

-- Unit, direction and format are unknown of a metric that neither the run's task nor `run_files.METRICS` declares.
CREATE TABLE finals AS
SELECT s.sweep, r.run_id, f.metric, f.value, f.unit, f.higher_is_better, f.format
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.finals f USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, f.metric;

-- `run` is the run's `number`: DuckDB skips the parts of a table by the least and the greatest number in each, which
-- it cannot do by the names of runs, since it keeps only the first eight bytes of a text and they all begin alike.
CREATE TABLE metrics AS
SELECT s.sweep, s.run_id, m.step, m.metric, m.value, s.number AS run
FROM runs s JOIN work.metrics m ON m.path = s.directory AND m.version = s.version
WHERE s.state <> 'damaged'
ORDER BY s.number, m.metric, m.step;

CREATE TABLE timings AS
SELECT s.sweep, r.run_id, t.part, t.seconds
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.timings t USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, t.part;

-- Of no sweep are those that were imported. A profile that does not name the effective recipe says which run it is of.
-- `busy` says what kept the machine busy; empty: nothing did; null: it was not watched.
CREATE TABLE profiles AS
SELECT s.sweep, p.* EXCLUDE (path, version)
       REPLACE (coalesce(nullif(p.effective, ''), r.effective) AS effective),
       s.path AS source
FROM work.present s JOIN work.profiles p USING (path, version)
LEFT JOIN (SELECT recipe_digest, min(effective_digest) AS effective FROM runs GROUP BY ALL) r USING (recipe_digest)
WHERE s.kind = 'profile' AND s.state <> 'damaged'
ORDER BY s.path, p.phase;

-- Sums over a segment of steps, never ratios: over segments and layers add numerators and denominators, divide last.
-- The numerators of all classes of a layer add up to the denominator of the shares.
CREATE TABLE contributions AS
SELECT s.sweep, r.run_id, c.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.contributions c USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, c.first_step, c.layer, c.class;

CREATE TABLE entropy AS
SELECT s.sweep, r.run_id, e.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.entropy e USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, e.step, e.layer, e.class;

CREATE TABLE decisions AS
SELECT s.sweep, r.run_id, d.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.decisions d USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, d.entry;

CREATE TABLE ledger_heads AS
SELECT s.sweep, r.run_id, l.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.ledger_heads l USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path;

-- What deleting a class would take, but for the time of a step, which is that of the run's profile as it is now.
CREATE TABLE deletion_routes AS
SELECT s.sweep, r.run_id, s.path AS directory, d.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.deletion_routes d USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, d.class;

-- Runs that a deletion made. Their certificates are not verified here.
CREATE TABLE deletions AS
SELECT s.sweep, r.run_id, d.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.deletions d USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path;

CREATE TABLE problems AS
SELECT path AS directory, problem AS reason FROM work.present WHERE state = 'damaged' ORDER BY path;

CREATE TABLE prices ({prices});
CREATE TABLE rates (hardware VARCHAR, usd_per_accelerator_hour DOUBLE, price_source VARCHAR, price_as_of VARCHAR);
CREATE TABLE schema_version (version INTEGER, content VARCHAR, prices VARCHAR, live BOOLEAN);
""".replace("{prices}", ", ".join(f"{field.name} {_KINDS[field.type]}" for field in fields(Price)))


# ---- what follows from the tables of a snapshot: times, forecasts of deletions, and the view `results`

# Everything that takes computation is a table, made once with the snapshot. Costs are computed when a question is
# asked, by joining times and hardware with the few rows of `rates`: so a new price changes only `rates`.
#
# Runs that the plan of their sweep leaves out (`explorer.planned`) are in `outcomes`, marked `superseded`, and in
# `every_result`. They are in nothing else that follows: no mean, no comparison, no prediction.
#
# A finished run has one row in `outcomes`, for the hardware that it was trained on. It has one more for each other
# hardware that its effective recipe was profiled on, where that profile was made elsewhere and imported, has all of the
# run's phases, and the sweep has no run of that recipe, budget and seed there. Such a row is `predicted`: its quality
# was measured on one machine, and its time comes from a profile of another. Where runs of several machines could lend
# their quality, the first by name does.

# In the order in which they are made. `source` names the file of a profile, `directory` a run.
OUTCOMES = """
-- Numbers that may be compared are written alike, whatever format each run's task declares.
CREATE VIEW qualities AS
SELECT sweep, run_id, metric, value, unit, higher_is_better,
       max(format) OVER (PARTITION BY metric, unit, higher_is_better) AS format
FROM finals WHERE unit IS NOT NULL;

CREATE VIEW run_phases AS
SELECT sweep, directory, unnest(map_keys(phases)) AS phase, unnest(map_values(phases)) AS steps FROM runs;

CREATE VIEW profile_files AS
SELECT DISTINCT source, sweep, recipe_digest, effective, inference_seconds, made_at, device, hardware, threads,
       world_size, profile_pass, busy <> '' AS busy, inference_rounds
FROM profiles;

-- The profile of each run: of the same recipe on the same hardware; its own sweep's if there is one, else the newest.
CREATE VIEW own_profiles AS
SELECT r.directory, p.source
FROM runs r JOIN profile_files p USING (recipe_digest, device, hardware, threads, world_size)
QUALIFY row_number() OVER (
    PARTITION BY r.directory ORDER BY coalesce(p.sweep = r.sweep, false) DESC, p.made_at DESC, p.source
) = 1;

-- Imported profiles of the same effective recipe on hardware where the sweep has no such run.
CREATE VIEW foreign_profiles AS
SELECT r.directory, p.source
FROM (SELECT * FROM runs WHERE state = 'finished' AND NOT superseded) r
JOIN (SELECT * FROM profile_files WHERE sweep IS NULL) p ON p.effective = r.effective_digest
ANTI JOIN (SELECT * FROM runs WHERE NOT superseded) o
    ON (o.state, o.sweep, o.effective_digest, o.ssr, o.seed, o.device, o.hardware, o.threads, o.world_size)
     = ('finished', r.sweep, r.effective_digest, r.ssr, r.seed, p.device, p.hardware, p.threads, p.world_size)
QUALIFY row_number() OVER (
    PARTITION BY r.sweep, r.recipe, r.effective_digest, r.ssr, r.seed, p.device, p.hardware, p.threads, p.world_size
    ORDER BY r.device, r.hardware, r.threads, r.world_size, r.directory, p.made_at DESC, p.source
) = 1;

-- Steps times step time, added up over phases; unknown where a phase was not profiled. Without a time there is no
-- prediction. `windows` is the same sum for each round of the profile, in order; null where a phase has other rounds.
CREATE TABLE run_profiles AS
SELECT c.directory, c.source, c.predicted, any_value(f.inference_seconds) AS inference_seconds,
       CASE WHEN count(*) = count(p.seconds) THEN sum(s.steps * p.seconds) END AS seconds,
       CASE WHEN count(*) = count(p.seconds) THEN sum(s.steps * p.low) END AS low,
       CASE WHEN count(*) = count(p.seconds) THEN sum(s.steps * p.high) END AS high,
       CASE WHEN count(*) = count(p.rounds) AND min(len(p.rounds)) = max(len(p.rounds))
            THEN list_reduce(
                list(list_transform(p.rounds, lambda x: x * s.steps) ORDER BY s.phase),
                lambda a, b: list_transform(list_zip(a, b), lambda z: z[1] + z[2])
            ) END AS windows,
       any_value(f.profile_pass) AS profile_pass, any_value(f.busy) AS busy,
       any_value(f.inference_rounds) AS inference_windows
FROM (SELECT *, false AS predicted FROM own_profiles UNION ALL SELECT *, true FROM foreign_profiles) c
JOIN profile_files f USING (source)
JOIN run_phases s ON s.directory = c.directory AND s.steps > 0
LEFT JOIN profiles p ON p.source = c.source AND p.phase = s.phase
GROUP BY c.directory, c.source, c.predicted
HAVING NOT c.predicted OR count(*) = count(p.seconds)
ORDER BY c.directory, c.predicted, c.source;

-- The hardware that each finished run is shown on: its own, then that of predictions.
CREATE VIEW places AS
SELECT r.directory, false AS predicted, r.device, r.hardware, r.threads, r.world_size, c.source AS profile,
       c.inference_seconds, c.seconds, c.low, c.high, c.windows, c.profile_pass, c.busy, c.inference_windows
FROM runs r LEFT JOIN run_profiles c ON c.directory = r.directory AND NOT c.predicted
WHERE r.state = 'finished'
UNION ALL
SELECT c.directory, true, f.device, f.hardware, f.threads, f.world_size, c.source, c.inference_seconds,
       c.seconds, c.low, c.high, c.windows, c.profile_pass, c.busy, c.inference_windows
FROM run_profiles c JOIN profile_files f USING (source)
WHERE c.predicted;

-- Wall time; the time of all optimiser steps as measured: the timed ones, stretched to the warm-up steps as well; and
-- which share of the timed ones was governance.
CREATE VIEW measured_times AS
SELECT r.directory, t.wall, t.governance / nullif(t.training, 0) AS overhead,
       CASE WHEN r.timed_steps > 0 AND NOT r.contended THEN t.training * r.steps / r.timed_steps END AS training
FROM runs r JOIN (
    SELECT sweep, run_id, sum(seconds) AS wall, sum(seconds) FILTER (part NOT IN {apart}) AS training,
           sum(seconds) FILTER (part = 'governance') AS governance
    FROM timings GROUP BY ALL
) t USING (sweep, run_id);

CREATE VIEW baseline_inference AS
SELECT r.sweep, c.device, c.hardware, c.threads, c.world_size, min(c.inference_seconds) AS seconds
FROM runs r JOIN places c USING (directory)
WHERE r.is_baseline AND NOT r.superseded
GROUP BY ALL;

-- The cheapest and the dearest that steps to replay can be, whichever phases they are in.
CREATE VIEW replay_bounds AS
SELECT d.directory, d.class,
       sum(greatest(0, least(x.steps, d.steps - x.cheaper)) * x.low) AS low,
       sum(greatest(0, least(x.steps, d.steps - x.dearer)) * x.high) AS high
FROM deletion_routes d
JOIN (
    SELECT s.directory, s.steps, p.low, p.high,
           sum(s.steps) OVER (PARTITION BY s.directory ORDER BY p.low, s.phase) - s.steps AS cheaper,
           sum(s.steps) OVER (PARTITION BY s.directory ORDER BY p.high DESC, s.phase) - s.steps AS dearer
    FROM run_phases s
    JOIN run_profiles c ON c.directory = s.directory AND NOT c.predicted
    JOIN profiles p ON p.source = c.source AND p.phase = s.phase
) x USING (directory)
GROUP BY d.directory, d.class;

-- What deleting each class of a governed run would take, on the hardware that it was trained on: as
-- `explorer.runlog.forecast` has it. `least` and `greatest` pass over a step time of the run's own that is not
-- known.
CREATE TABLE deletion_forecasts AS
SELECT d.sweep, d.run_id, d.class, d.level, d.first_step, d.start_step, d.steps,
       CASE WHEN d.steps = 0 THEN d.rest
            ELSE d.rest + (1 - d.share) * d.steps * coalesce(p.seconds / r.steps, d.own_step) END AS seconds,
       CASE WHEN d.steps = 0 THEN d.rest_low WHEN p.seconds IS NOT NULL
            THEN d.rest_low + (1 - d.share) * least(b.low, d.own_step * d.steps) / {drift} END AS seconds_low,
       CASE WHEN d.steps = 0 THEN d.rest_high WHEN p.seconds IS NOT NULL
            THEN d.rest_high + greatest(b.high, d.own_step * d.steps) * {drift} END AS seconds_high,
       d.directory
FROM deletion_routes d
JOIN runs r USING (directory)
LEFT JOIN run_profiles p ON p.directory = d.directory AND NOT p.predicted
LEFT JOIN replay_bounds b ON b.directory = d.directory AND b.class = d.class
ORDER BY d.directory, d.class;

-- The class of each run that is dearest to delete; where the time of one is unknown, so is which that is.
CREATE VIEW dearest_deletions AS
SELECT directory, max(level) AS level,
       CASE WHEN count(*) = count(seconds) THEN arg_max(class, seconds) END AS class,
       CASE WHEN count(*) = count(seconds) THEN max(seconds) END AS seconds,
       CASE WHEN count(*) = count(seconds) THEN arg_max(seconds_low, seconds) END AS low,
       CASE WHEN count(*) = count(seconds) THEN arg_max(seconds_high, seconds) END AS high
FROM deletion_forecasts
GROUP BY directory;

-- How far the layer that tells the classes apart best does so at the last profile, above what chance does.
CREATE VIEW separations AS
SELECT sweep, run_id, max(chi - chi_null) FILTER (isfinite(chi - chi_null)) AS chi
FROM (SELECT * FROM entropy WHERE class = '*' QUALIFY step = max(step) OVER (PARTITION BY sweep, run_id))
GROUP BY ALL;

-- Recipes of a sweep are compared whatever their models, as those of the baseline's.
CREATE VIEW baseline_models AS
SELECT sweep, dataset, min(model) AS model
FROM runs
WHERE is_baseline
GROUP BY ALL
HAVING count(DISTINCT model) = 1;

CREATE TABLE outcomes AS
SELECT r.sweep, r.run_id, r.recipe,
       CASE WHEN r.model <> g.model THEN concat_ws('+', r.model, nullif(r.methods, '')) ELSE r.methods END AS methods,
       r.dataset, coalesce(g.model, r.model) AS model, r.precision, r.batch_size, r.ssr, r.seed, r.steps,
       r.examples, r.metric, q.value AS quality, q.unit, q.higher_is_better, q.format,
       coalesce(c.seconds, m.training, r.imported_seconds) AS train_seconds, c.low AS train_seconds_low,
       c.high AS train_seconds_high,
       CASE WHEN c.predicted THEN 'predicted' WHEN c.seconds IS NOT NULL THEN 'profiled'
            WHEN m.training IS NOT NULL THEN 'measured' WHEN r.imported IS NOT NULL THEN 'imported' END AS time_source,
       c.inference_seconds, c.inference_seconds / b.seconds AS inference_ratio,
       c.device, c.hardware, c.threads, c.world_size,
       e.level AS deletion_level,
       CASE WHEN NOT c.predicted THEN e.class END AS deletion_class,
       CASE WHEN NOT c.predicted THEN e.seconds END AS deletion_seconds,
       CASE WHEN NOT c.predicted THEN e.low END AS deletion_seconds_low,
       CASE WHEN NOT c.predicted THEN e.high END AS deletion_seconds_high,
       r.baseline, r.is_baseline, r.tuning, r.control, r.control_of, r.contended, m.wall AS wall_seconds,
       r.state_digest, r.directory, r.recipe_digest,
       h.policy, x.chi, CASE WHEN h.root IS NOT NULL THEN m.overhead END AS ledger_overhead,
       h.size AS ledger_size, h.root AS ledger_root, c.profile,
       c.windows AS train_seconds_windows, CASE WHEN c.seconds IS NOT NULL THEN c.profile_pass END AS profile_pass,
       CASE WHEN c.seconds IS NOT NULL THEN c.busy END AS busy_profile, r.superseded, c.inference_windows,
       CASE WHEN NOT c.predicted THEN r.peak_memory END AS peak_memory, r.added, r.searched, r.flops,
       CASE WHEN NOT c.predicted THEN r.utilisation END AS utilisation,
       CASE WHEN NOT c.predicted THEN r.energy_kwh END AS energy_kwh,
       CASE WHEN r.model <> g.model THEN r.model END AS network
FROM places c
JOIN runs r USING (directory)
JOIN qualities q USING (sweep, run_id, metric)
LEFT JOIN measured_times m ON m.directory = c.directory AND NOT c.predicted
LEFT JOIN baseline_inference b
    ON (b.sweep, b.device, b.hardware, b.threads, b.world_size)
     = (r.sweep, c.device, c.hardware, c.threads, c.world_size)
LEFT JOIN dearest_deletions e USING (directory)
LEFT JOIN ledger_heads h USING (sweep, run_id)
LEFT JOIN separations x USING (sweep, run_id)
LEFT JOIN baseline_models g ON (g.sweep, g.dataset) = (r.sweep, r.dataset)
ORDER BY r.sweep, c.device, c.hardware, c.threads, c.world_size, c.directory;

-- One row for each hardware that a finished run is shown on; first those that are left out as well.
CREATE VIEW every_result AS
SELECT o.sweep, o.run_id, o.recipe, o.methods, o.dataset, o.model, o.precision, o.batch_size, o.ssr, o.seed, o.steps,
       o.examples, o.metric, o.quality, o.unit, o.higher_is_better, o.format,
       o.train_seconds, o.train_seconds_low, o.train_seconds_high, o.time_source,
       o.inference_seconds, o.inference_ratio, o.device, o.hardware, o.threads, o.world_size,
       u.usd_per_accelerator_hour * o.world_size AS usd_per_hour, u.price_source, u.price_as_of,
       o.train_seconds / 3600 * u.usd_per_accelerator_hour * o.world_size AS cost_usd,
       o.deletion_level, o.deletion_class, o.deletion_seconds, o.deletion_seconds_low, o.deletion_seconds_high,
       o.deletion_seconds / 3600 * u.usd_per_accelerator_hour * o.world_size AS deletion_usd,
       o.baseline, o.is_baseline, o.tuning, o.control, o.control_of, o.contended, o.wall_seconds, o.state_digest,
       o.directory, o.recipe_digest, o.policy, o.chi, o.ledger_overhead, o.ledger_size, o.ledger_root,
       o.train_seconds_windows, o.profile_pass, o.busy_profile, o.inference_windows, o.peak_memory, o.added,
       o.searched, o.flops, o.utilisation, o.energy_kwh, o.network,
       o.superseded
FROM outcomes o LEFT JOIN rates u USING (hardware);

CREATE VIEW results AS SELECT * EXCLUDE superseded FROM every_result WHERE NOT superseded;

-- The same with each final metric in the place of quality. What a run measured in seconds holds for no other hardware.
CREATE VIEW every_result_by_metric AS
SELECT r.* REPLACE (
    q.metric AS metric, q.value AS quality, q.unit AS unit, q.higher_is_better AS higher_is_better,
    q.format AS format
)
FROM every_result r JOIN qualities q USING (sweep, run_id)
WHERE r.time_source IS DISTINCT FROM 'predicted' OR q.unit IS DISTINCT FROM 'seconds';

CREATE VIEW results_by_metric AS SELECT * EXCLUDE superseded FROM every_result_by_metric WHERE NOT superseded;

-- Runs that did not finish, with what their whole budget would take.
CREATE VIEW unfinished AS
SELECT r.sweep, r.run_id, r.directory, r.state, coalesce(r.failure_message, r.problem) AS message,
       r.recipe, r.methods, r.dataset, r.model, r.ssr, r.seed, r.steps, r.steps * r.batch_size AS examples,
       r.device, r.hardware, r.threads, r.world_size, r.baseline, r.is_baseline, r.control,
       c.seconds AS train_seconds,
       c.seconds / 3600 * u.usd_per_accelerator_hour * r.world_size AS cost_usd
FROM runs r
LEFT JOIN run_profiles c ON c.directory = r.directory AND NOT c.predicted
LEFT JOIN rates u USING (hardware)
WHERE r.state <> 'finished' AND NOT r.superseded;

-- What the seeds of each recipe come to at each budget, by each metric: their mean quality, and the medians of what
-- they took as far as it is known. `is_quality`: runs are judged by the metric.
CREATE TABLE recipe_means AS
SELECT o.sweep, o.dataset, o.model, q.metric, q.unit, q.higher_is_better, q.format,
       o.device, o.hardware, o.threads, o.world_size,
       o.recipe, o.recipe_digest, o.methods, o.policy, o.is_baseline, o.baseline, o.control, o.ssr,
       q.metric = o.metric AS is_quality, count(*) AS runs, len(list_distinct(list(o.seed))) AS n,
       avg(q.value) AS quality,
       median(o.train_seconds) AS train_seconds, median(o.steps) AS steps, median(o.examples) AS examples,
       median(o.inference_seconds) AS inference_seconds, median(o.deletion_seconds) AS deletion_seconds,
       median(o.chi) AS chi, median(o.ledger_overhead) AS ledger_overhead, bool_or(o.busy_profile) AS busy_profile,
       count(*) FILTER (o.time_source = 'predicted') AS predicted,
       array_to_string(list_sort(list_distinct(list(o.time_source))), '+') AS time_source,
       max(o.peak_memory) AS peak_memory, median(o.energy_kwh) AS energy_kwh
FROM outcomes o JOIN qualities q USING (sweep, run_id)
WHERE NOT o.superseded AND (o.time_source IS DISTINCT FROM 'predicted' OR q.unit IS DISTINCT FROM 'seconds')
GROUP BY ALL
ORDER BY ALL;

-- What can be asked for: each setting with each metric, and how many rows there are.
CREATE TABLE facets AS
SELECT *, sweep IN (SELECT sweep FROM plans WHERE tunes IS NOT NULL) AS tunes
FROM (
SELECT dataset, model, sweep, device, hardware, threads, world_size, metric, unit, higher_is_better, format,
       bool_or(is_quality) AS is_quality, sum(runs)::BIGINT AS runs, sum(predicted)::BIGINT AS predicted
FROM recipe_means
GROUP BY ALL
)
ORDER BY ALL;

-- The same with their costs. Hardware has one rate, so the median cost is that of the median time.
CREATE VIEW means AS
SELECT m.sweep, m.dataset, m.model, m.metric, m.unit, m.higher_is_better, m.format,
       m.device, m.hardware, m.threads, m.world_size,
       m.recipe, m.recipe_digest, m.methods, m.policy, m.is_baseline, m.baseline, m.control, m.ssr, m.n, m.quality,
       m.train_seconds, m.steps, m.examples, u.usd_per_accelerator_hour * m.world_size AS usd_per_hour,
       m.train_seconds / 3600 * u.usd_per_accelerator_hour * m.world_size AS cost_usd, m.inference_seconds,
       m.deletion_seconds, m.deletion_seconds / 3600 * u.usd_per_accelerator_hour * m.world_size AS deletion_usd,
       m.chi, m.ledger_overhead, m.time_source, m.busy_profile, m.peak_memory, m.energy_kwh,
       m.is_quality
FROM recipe_means m LEFT JOIN rates u USING (hardware);
""".replace("{drift}", repr(DRIFT)).replace("{apart}", str(APART))


# ---- making the snapshot


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveMetric:
    """A measurement of a run that is not finished."""

    sweep: str
    run_id: str
    step: int
    metric: str
    value: float


def publish(
    work: duckdb.DuckDBPyConnection,
    *,
    runs: Path,
    fresh: Path,
    prices: tuple[Price, ...],
    live: list[LiveMetric] | None,
    force: bool,
) -> bool:
    """Make a snapshot of the working database; return whether that was done.

    A snapshot made from the same content is kept; where only prices differ, nothing else is computed again. A crash at
    any moment leaves the old snapshot in place.

    Args:
        work: a connection with the working database attached as `work`.
        runs: the directory of runs.
        fresh: the temporary file, on the same disk.
        prices: all prices.
        live: measurements of unfinished runs; None: without them.
        force: make it in any case.
    """
    remove(fresh)  # a writer that was killed may have left one
    # --- whether the old snapshot will do, as it is or with other prices ---
    made_from = (VERSION, _content(work))
    mark = (*made_from, prices_digest(prices), live is not None)
    old = None if force or live is not None else _mark(database(runs))
    if old == mark:
        return False
    same = old is not None and (*old[:2], old[3]) == (*made_from, False)
    if same and _repriced(database(runs), fresh, prices=prices, mark=mark):
        put_in_place(fresh, database(runs))
        return True
    # --- a new one, complete before it gets its name ---
    work.execute(f"ATTACH '{quoted(fresh)}' AS snapshot (STORAGE_VERSION '{STORAGE_VERSION}')")
    work.execute("USE snapshot")
    _fill(work, prices=prices, live=live or [], mark=mark)
    work.execute("USE memory")
    work.execute("DETACH snapshot")
    put_in_place(fresh, database(runs))
    return True


def _fill(
    work: duckdb.DuckDBPyConnection, *, prices: tuple[Price, ...], live: list[LiveMetric], mark: tuple[object, ...]
) -> None:
    work.execute("BEGIN")
    work.execute(_STANDINGS)
    insert(work, "temp.standings", list(_standings(work)))
    work.execute(SNAPSHOT)
    work.execute("DROP TABLE temp.standings")
    work.execute(OUTCOMES)
    _insert_live(work, live)
    _price(work, prices=prices, mark=mark)
    work.execute("COMMIT")


def _insert_live(work: duckdb.DuckDBPyConnection, live: list[LiveMetric]) -> None:
    if not live:
        return
    columns = zip(*(astuple(metric) for metric in live), strict=True)
    names = [field.name for field in fields(LiveMetric)]
    work.register("live", pa.table({name: pa.array(column) for name, column in zip(names, columns, strict=True)}))
    work.execute("INSERT INTO metrics SELECT l.*, r.number FROM live l JOIN runs r USING (sweep, run_id)")
    work.unregister("live")


# Superseded runs keep their names, and so do those that no plan speaks of.
_STANDINGS = """
CREATE TEMP TABLE standings (
    path VARCHAR, superseded BOOLEAN, recipe VARCHAR, baseline VARCHAR, tuning VARCHAR, has_control BOOLEAN,
    control VARCHAR, control_of VARCHAR, added BOOLEAN, searched BOOLEAN
)
"""
_DESCRIBED = """
SELECT s.sweep, r.run_id, r.recipe_digest, r.effective_digest, r.ssr, r.seed, r.device, r.hardware, r.threads,
       r.control, r.identity, d.path IS NOT NULL AS deleted
FROM work.present s JOIN work.runs r USING (path, version)
LEFT JOIN (SELECT DISTINCT path, version FROM work.deletions) d USING (path, version)
WHERE s.sweep IN (SELECT sweep FROM work.present WHERE kind = 'plan' AND state = 'usable') AND r.imported IS NULL
ORDER BY s.path
"""


def _standings(work: duckdb.DuckDBPyConnection) -> Iterator[tuple[object, ...]]:
    """Yield a row for each run that a plan describes (`explorer.planned`)."""
    plans = work.execute(
        "SELECT s.sweep, p.content FROM work.present s JOIN work.plans p USING (path, version)"
    ).fetchall()
    runs: dict[str, list[Described]] = {}
    for sweep, *described, identity, deleted in work.execute(_DESCRIBED).fetchall():
        names = ("name", "recipe_digest", "effective", "ssr", "seed", "device", "hardware", "threads", "control")
        apart = deleted or is_own(json.loads(identity))
        runs.setdefault(sweep, []).append(Described(**dict(zip(names, described, strict=True)), apart=apart))
    for sweep, content in plans:
        plan = json.loads(content)
        until, seeds = plan.get("until"), {run.name: run.seed for run in runs.get(sweep, ())}
        for name, standing in standings(plan, runs.get(sweep, ())).items():
            entry = standing.entry or {}
            called = (entry.get("recipe"), plan.get("baseline"), plan.get("tuning")) if entry else (None, None, None)
            control = ("control" in entry, entry.get("control"), "+".join(entry.get("control_of", ())) or None)
            added = None if until is None else seeds[name] in (until["added"] or ())
            yield f"{sweep}/{name}", standing.superseded, *called, *control, added, plan.get("searched") is True


def _repriced(path: Path, fresh: Path, *, prices: tuple[Price, ...], mark: tuple[object, ...]) -> bool:
    """Make `fresh` from the snapshot `path` by changing only the prices; return whether that was possible."""
    shutil.copyfile(path, fresh)
    try:
        with connect_to_file(fresh, read_only=False) as connection:
            connection.execute("BEGIN")
            _price(connection, prices=prices, mark=mark)
            connection.execute("COMMIT")
    except duckdb.Error:  # it is damaged, and a whole new one is made
        remove(fresh)
        return False
    return True


def _price(connection: duckdb.DuckDBPyConnection, *, prices: tuple[Price, ...], mark: tuple[object, ...]) -> None:
    """Write prices, and the rates of the hardware of runs and predictions."""
    connection.execute("DELETE FROM prices; DELETE FROM rates; DELETE FROM schema_version")
    hardware = connection.execute("SELECT hardware FROM runs UNION SELECT hardware FROM outcomes ORDER BY 1").fetchall()
    rates = [_rate(name, price) for (name,) in hardware if name and (price := default_price(name, prices))]
    insert(connection, "prices", [astuple(price) for price in prices])
    insert(connection, "rates", rates)
    insert(connection, "schema_version", [mark])


def _rate(hardware: str, price: Price) -> tuple[object, ...]:
    source = f"{price.provider} {price.instance}, {price.tenancy} ({price.source})"
    return hardware, price.usd_per_accelerator_hour, source, price.as_of


def _content(work: duckdb.DuckDBPyConnection) -> str:
    """Return the digest of the present content of the working database."""
    rows = work.execute("SELECT path, version, state, problem FROM work.present_sources ORDER BY path").fetchall()
    return digest([list(row) for row in rows])


def _mark(path: Path) -> tuple[object, ...] | None:
    """Return what the snapshot was made from; None if there is none that can be read."""
    if not path.exists():
        return None
    try:
        with reading(path) as connection:
            return connection.execute("FROM schema_version").fetchall()[0]
    except (duckdb.Error, IndexError):
        return None


def remove(path: Path) -> None:
    """Remove a database file, after the write-ahead log that a killed process may have left.

    A log that outlives its database would be replayed into the next one of that name.
    """
    for left in (path.with_name(path.name + ".wal"), path):
        left.unlink(missing_ok=True)


def put_in_place(path: Path, target: Path) -> None:
    """Rename a closed database file, once it is on the disk: a power failure must not leave an empty snapshot."""
    try:
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(target)
    except OSError as error:
        raise StoreError(f"cannot write {target}: {error.strerror or error}") from error


def quoted(path: Path) -> str:
    """Return a path for use inside an SQL string."""
    return str(path).replace("'", "''")


# --- rows into a table at once: through Arrow, a hundred times faster than row by row ---

_MAPS = {
    "phases": pa.map_(pa.string(), pa.int64()),
    "split": pa.map_(pa.string(), pa.float64()),
    "parameters": pa.map_(pa.string(), pa.float64()),
}
_LISTS = {
    "subjects": pa.list_(pa.string()),
    "layers": pa.list_(pa.string()),
    "evidence": pa.list_(pa.string()),
    "rounds": pa.list_(pa.float64()),
}


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: list[tuple[Any, ...]], *, once: str = "") -> None:
    """Append rows with values in the order of the table's columns. Maps are given as dicts, lists as lists.

    Rows whose columns `once` are in the table already are left out.
    """
    if not rows:
        return
    names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
    columns = zip(names, zip(*rows, strict=True), strict=True)
    arrays = {name: _array(name, values) for name, values in columns}
    connection.register("incoming", pa.table(arrays))
    new = f"ANTI JOIN {table} USING ({once})" if once else ""
    connection.execute(f"INSERT INTO {table} SELECT * FROM incoming {new}")
    connection.unregister("incoming")


def _array(name: str, values: tuple[Any, ...]) -> pa.Array:
    if name in _MAPS:
        return pa.array([list(value.items()) for value in values], type=_MAPS[name])
    return pa.array(values, type=_LISTS.get(name))

"""The tables: an append-only working database, and the snapshot that is made from it for readers.

Working database, `runs/_store/store.duckdb`, opened by the ingester alone. `sources` says what was found, in order: the
last row of a path is its present state, and older rows stay. What was read from a source is kept once for each version
of it (a digest of its content) in the other tables and never changed. No keys and no indexes; uniqueness by anti-join.

Snapshot, `runs/explorer.duckdb`, opened read-only by everybody: the present state, in the tables and views that are
described at `SNAPSHOT`. A change of the schema is a new `VERSION` and a rebuild, not a migration.
"""

from explorer.recorded.replay_time import DRIFT

VERSION = 4

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
    failure_message VARCHAR, attempts BIGINT, control VARCHAR, control_of VARCHAR
);
CREATE TABLE finals (path VARCHAR, version VARCHAR, metric VARCHAR, value DOUBLE);
CREATE TABLE metrics (path VARCHAR, version VARCHAR, step BIGINT, metric VARCHAR, value DOUBLE);
CREATE TABLE timings (path VARCHAR, version VARCHAR, part VARCHAR, seconds DOUBLE);
CREATE TABLE profiles (
    path VARCHAR, version VARCHAR, key VARCHAR, recipe_digest VARCHAR, recipe VARCHAR, device VARCHAR,
    hardware VARCHAR, threads BIGINT, world_size BIGINT, torch VARCHAR, phase VARCHAR, seconds DOUBLE, low DOUBLE,
    high DOUBLE, windows BIGINT, split MAP(VARCHAR, DOUBLE), inference_seconds DOUBLE, made_at VARCHAR
);
CREATE TABLE contributions (
    path VARCHAR, version VARCHAR, first_step BIGINT, last_step BIGINT, layer VARCHAR, class VARCHAR, steps BIGINT,
    examples BIGINT, share_num DOUBLE, share_den DOUBLE, update_num DOUBLE, update_sq DOUBLE, exact_num DOUBLE
);
CREATE TABLE entropy (
    path VARCHAR, version VARCHAR, step BIGINT, layer VARCHAR, class VARCHAR, examples BIGINT, entropy DOUBLE,
    effective_rank DOUBLE, renyi2 DOUBLE, chi DOUBLE, chi_null DOUBLE, p_value DOUBLE
);
CREATE TABLE decisions (
    path VARCHAR, version VARCHAR, entry BIGINT, step BIGINT, action VARCHAR, rule VARCHAR,
    parameters MAP(VARCHAR, DOUBLE), subjects VARCHAR[], layers VARCHAR[], evidence VARCHAR[], superseded BOOLEAN
);
CREATE TABLE ledger_heads (path VARCHAR, version VARCHAR, origin VARCHAR, size BIGINT, root VARCHAR);
CREATE TABLE deletion_routes (
    path VARCHAR, version VARCHAR, class VARCHAR, level VARCHAR, first_step BIGINT, start_step BIGINT, steps BIGINT,
    share DOUBLE, rest DOUBLE, rest_low DOUBLE, rest_high DOUBLE, own_step DOUBLE
);
CREATE TABLE deletions (
    path VARCHAR, version VARCHAR, level VARCHAR, origin_run VARCHAR, origin VARCHAR, origin_size BIGINT,
    origin_root VARCHAR, classes VARCHAR[], authorities VARCHAR[], records BIGINT, begins BIGINT
);
CREATE VIEW present AS
SELECT * FROM sources
QUALIFY row_number() OVER (PARTITION BY path ORDER BY sequence DESC) = 1 AND state <> 'gone';
"""

# Filled from the attached database `work`. A damaged run has nothing but its place, its state and its problem.
SNAPSHOT = """
CREATE TABLE runs AS
SELECT s.sweep, coalesce(r.run_id, string_split(s.path, '/')[2]) AS run_id, s.state, s.problem, r.recipe, r.baseline,
       r.recipe = r.baseline AS is_baseline,
       r.* EXCLUDE (path, version, run_id, recipe, baseline), s.path AS directory, s.version
FROM work.present s LEFT JOIN work.runs r USING (path, version)
WHERE s.kind = 'run'
ORDER BY s.path;

CREATE TABLE finals AS
SELECT s.sweep, r.run_id, f.metric, f.value
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.finals f USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, f.metric;

CREATE TABLE metrics AS
SELECT s.sweep, r.run_id, m.step, m.metric, m.value
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.metrics m USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, m.metric, m.step;

CREATE TABLE timings AS
SELECT s.sweep, r.run_id, t.part, t.seconds
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.timings t USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, t.part;

CREATE TABLE profiles AS
SELECT s.sweep, p.* EXCLUDE (path, version)
FROM work.present s JOIN work.profiles p USING (path, version)
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
SELECT s.sweep, r.run_id, l.origin, l.size, l.root
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.ledger_heads l USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path;

-- What deleting a class would take, but for the time of a step, which is that of the run's profile as it is now.
CREATE TABLE deletion_routes AS
SELECT s.sweep, r.run_id, s.path AS directory, d.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.deletion_routes d USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path, d.class;

-- Runs that a deletion made. Nobody has verified their certificates.
CREATE TABLE deletions AS
SELECT s.sweep, r.run_id, d.* EXCLUDE (path, version)
FROM work.present s JOIN work.runs r USING (path, version) JOIN work.deletions d USING (path, version)
WHERE s.state = 'finished'
ORDER BY s.path;

CREATE TABLE problems AS
SELECT path AS directory, problem AS reason FROM work.present WHERE state = 'damaged' ORDER BY path;

CREATE TABLE metric_kinds (metric VARCHAR, unit VARCHAR, higher_is_better BOOLEAN);
CREATE TABLE prices (
    provider VARCHAR, instance VARCHAR, region VARCHAR, tenancy VARCHAR, accelerator VARCHAR, count BIGINT,
    usd_per_hour DOUBLE, effective VARCHAR, retrieved VARCHAR, source VARCHAR, own BOOLEAN
);
CREATE TABLE rates (hardware VARCHAR, usd_per_accelerator_hour DOUBLE, price_source VARCHAR, price_as_of VARCHAR);
CREATE TABLE schema_version (version INTEGER, content VARCHAR, prices VARCHAR, live BOOLEAN);

CREATE VIEW qualities AS
SELECT f.sweep, f.run_id, f.metric, f.value, k.unit, k.higher_is_better
FROM finals f LEFT JOIN metric_kinds k USING (metric);

-- The profile of each run: of the same recipe on the same hardware; its own sweep's if there is one, else the newest.
CREATE VIEW run_profiles AS
SELECT r.directory, p.sweep, p.key, p.inference_seconds
FROM runs r
JOIN (SELECT DISTINCT sweep, key, recipe_digest, device, hardware, threads, world_size, inference_seconds, made_at
      FROM profiles) p
    ON (p.recipe_digest, p.device, p.hardware, p.threads, p.world_size)
     = (r.recipe_digest, r.device, r.hardware, r.threads, r.world_size)
QUALIFY row_number() OVER (PARTITION BY r.directory ORDER BY p.sweep = r.sweep DESC, p.made_at DESC, p.sweep) = 1;

-- Steps times step time, added up over phases. A run with a phase that was not profiled is not here.
CREATE VIEW profiled_times AS
SELECT s.directory, sum(s.steps * p.seconds) AS seconds, sum(s.steps * p.low) AS low, sum(s.steps * p.high) AS high
FROM (SELECT directory, unnest(map_keys(phases)) AS phase, unnest(map_values(phases)) AS steps FROM runs) s
JOIN run_profiles c USING (directory)
LEFT JOIN profiles p ON p.sweep = c.sweep AND p.key = c.key AND p.phase = s.phase
WHERE s.steps > 0
GROUP BY s.directory
HAVING count(*) = count(p.seconds);

-- Wall time, and the time of all optimiser steps as measured: the timed ones, stretched to the warm-up steps as well.
CREATE VIEW measured_times AS
SELECT r.directory, sum(t.seconds) AS wall,
       CASE WHEN r.timed_steps > 0 AND NOT r.contended THEN
           sum(t.seconds) FILTER (t.part NOT IN ('warmup', 'compile', 'evaluation', 'checkpoint'))
               * r.steps / r.timed_steps
       END AS training
FROM runs r JOIN timings t USING (sweep, run_id)
GROUP BY r.directory, r.timed_steps, r.contended, r.steps;

CREATE VIEW baseline_inference AS
SELECT r.sweep, r.device, r.hardware, r.threads, r.world_size, min(c.inference_seconds) AS seconds
FROM runs r JOIN run_profiles c USING (directory)
WHERE r.is_baseline
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
    FROM (SELECT directory, unnest(map_keys(phases)) AS phase, unnest(map_values(phases)) AS steps FROM runs) s
    JOIN run_profiles c USING (directory)
    JOIN profiles p ON p.sweep = c.sweep AND p.key = c.key AND p.phase = s.phase
) x USING (directory)
GROUP BY d.directory, d.class;

-- What deleting each class of a governed run would take: as `explorer.recorded.replay_time` has it. `least` and
-- `greatest` pass over a step time of the run's own that is not known.
CREATE VIEW deletion_forecasts AS
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
LEFT JOIN profiled_times p USING (directory)
LEFT JOIN replay_bounds b ON b.directory = d.directory AND b.class = d.class;

-- The class of each run that is dearest to delete; where the time of one is unknown, so is which that is.
CREATE VIEW dearest_deletions AS
SELECT directory, max(level) AS level,
       CASE WHEN count(*) = count(seconds) THEN arg_max(class, seconds) END AS class,
       CASE WHEN count(*) = count(seconds) THEN max(seconds) END AS seconds,
       CASE WHEN count(*) = count(seconds) THEN arg_max(seconds_low, seconds) END AS low,
       CASE WHEN count(*) = count(seconds) THEN arg_max(seconds_high, seconds) END AS high
FROM deletion_forecasts
GROUP BY directory;

CREATE VIEW results AS
SELECT r.sweep, r.run_id, r.recipe, r.methods, r.dataset, r.model, r.precision, r.batch_size, r.ssr, r.seed, r.steps,
       r.examples, r.metric, q.value AS quality, q.unit, q.higher_is_better,
       coalesce(p.seconds, m.training) AS train_seconds,
       p.low AS train_seconds_low, p.high AS train_seconds_high,
       CASE WHEN p.seconds IS NOT NULL THEN 'profiled' WHEN m.training IS NOT NULL THEN 'measured' END AS time_source,
       c.inference_seconds, c.inference_seconds / b.seconds AS inference_ratio,
       r.device, r.hardware, r.threads, r.world_size,
       u.usd_per_accelerator_hour * r.world_size AS usd_per_hour, u.price_source, u.price_as_of,
       coalesce(p.seconds, m.training) / 3600 * u.usd_per_accelerator_hour * r.world_size AS cost_usd,
       e.level AS deletion_level, e.class AS deletion_class, e.seconds AS deletion_seconds,
       e.low AS deletion_seconds_low, e.high AS deletion_seconds_high,
       e.seconds / 3600 * u.usd_per_accelerator_hour * r.world_size AS deletion_usd,
       r.baseline, r.is_baseline, r.tuning, r.control, r.control_of, r.contended, m.wall AS wall_seconds,
       r.state_digest, r.directory, r.recipe_digest
FROM runs r
JOIN qualities q USING (sweep, run_id, metric)
LEFT JOIN run_profiles c USING (directory)
LEFT JOIN profiled_times p USING (directory)
LEFT JOIN measured_times m USING (directory)
LEFT JOIN baseline_inference b USING (sweep, device, hardware, threads, world_size)
LEFT JOIN rates u USING (hardware)
LEFT JOIN dearest_deletions e USING (directory)
WHERE r.state = 'finished';
""".replace("{drift}", repr(DRIFT))

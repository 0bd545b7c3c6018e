"""The tables: an append-only working database, and the snapshot that is made from it for readers.

Working database, `runs/_store/store.duckdb`, opened by the ingester alone. `sources` says what was found, in order: the
last row of a path is its present state, and older rows stay. What was read from a source is kept once for each version
of it (a digest of its content) in the other tables and never changed. No keys and no indexes; uniqueness by anti-join.

Snapshot, `runs/explorer.duckdb`, opened read-only by everybody: the present state, in the tables that are described at
`SNAPSHOT`, and what follows from them (outcomes.py). A change of the schema is a new `VERSION` and a rebuild, not a
migration.
"""

from dataclasses import fields

from explorer.costing import Price

VERSION = 9

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
    effective_digest VARCHAR
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
CREATE TABLE plans (path VARCHAR, version VARCHAR, content VARCHAR);
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
CREATE VIEW present AS
SELECT * FROM sources
QUALIFY row_number() OVER (PARTITION BY path ORDER BY sequence DESC) = 1 AND state <> 'gone';
"""

_KINDS: dict[object, str] = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}

# Filled from the attached database `work`. A damaged run has nothing but its place, its state and its problem. What the
# runs of a plan are called and are for, the plan says; `standings` (publish.py) has what it says of each.
SNAPSHOT = """
CREATE TABLE plans AS
SELECT s.sweep, s.version, s.path AS source FROM work.present s WHERE s.kind = 'plan' ORDER BY s.path;

CREATE TABLE runs AS
SELECT sweep, run_id, state, problem, superseded, recipe, baseline, recipe = baseline AS is_baseline,
       * EXCLUDE (sweep, run_id, state, problem, superseded, recipe, baseline)
FROM (
    SELECT s.sweep, coalesce(r.run_id, string_split(s.path, '/')[2]) AS run_id, s.state, s.problem,
           coalesce(p.superseded, false) AS superseded,
           r.* EXCLUDE (path, version, run_id) REPLACE (
               coalesce(p.recipe, r.recipe) AS recipe, coalesce(p.baseline, r.baseline) AS baseline,
               CASE WHEN p.recipe IS NULL THEN r.tuning ELSE p.tuning END AS tuning,
               CASE WHEN p.has_control THEN p.control ELSE r.control END AS control,
               CASE WHEN p.has_control THEN p.control_of ELSE r.control_of END AS control_of
           ),
           s.path AS directory, s.version
    FROM work.present s LEFT JOIN work.runs r USING (path, version) LEFT JOIN standings p ON p.path = s.path
    WHERE s.kind = 'run'
)
ORDER BY directory;

-- Unit, direction and format are unknown of a metric that neither the run's task nor `records.METRICS` declares.
CREATE TABLE finals AS
SELECT s.sweep, r.run_id, f.metric, f.value, f.unit, f.higher_is_better, f.format
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

-- Of no sweep are those that were imported. A profile that does not name the effective recipe says which run it is of.
-- `busy` says what kept the machine busy; empty: nothing did; null: nobody looked.
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

-- Runs that a deletion made. Nobody has verified their certificates.
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

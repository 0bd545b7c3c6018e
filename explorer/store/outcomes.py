"""What follows from the tables of a snapshot: times, forecasts of deletions, and the view `results`.

All that takes more than a look is a table, computed once when the snapshot is made. What prices decide is computed when
a question is asked: times and hardware are kept, and joined with the few rows of `rates`.

Runs that the plan of their sweep leaves out (`explorer.planned`) are in `outcomes`, marked `superseded`, and in
`every_result`. They are in nothing else that follows: no mean, no comparison, no prediction.

A finished run has one row in `outcomes`, for the hardware that it was trained on. It has one more for each other
hardware that its effective recipe was profiled on, where that profile was made elsewhere and imported, has all of the
run's phases, and no run of the sweep is of that recipe, budget and seed there. Such a row is `predicted`: its quality
was measured on one machine, and its time is said by a profile of another. Where runs of several machines could lend
their quality, the first by name does.
"""

from explorer.run_files import APART
from explorer.runlog.forecast import DRIFT

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

CREATE TABLE outcomes AS
SELECT r.sweep, r.run_id, r.recipe, r.methods, r.dataset, r.model, r.precision, r.batch_size, r.ssr, r.seed, r.steps,
       r.examples, r.metric, q.value AS quality, q.unit, q.higher_is_better, q.format,
       coalesce(c.seconds, m.training) AS train_seconds, c.low AS train_seconds_low, c.high AS train_seconds_high,
       CASE WHEN c.predicted THEN 'predicted' WHEN c.seconds IS NOT NULL THEN 'profiled'
            WHEN m.training IS NOT NULL THEN 'measured' END AS time_source,
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
       CASE WHEN c.seconds IS NOT NULL THEN c.busy END AS busy_profile, r.superseded, c.inference_windows
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
       o.train_seconds_windows, o.profile_pass, o.busy_profile, o.inference_windows, o.superseded
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
       array_to_string(list_sort(list_distinct(list(o.time_source))), '+') AS time_source
FROM outcomes o JOIN qualities q USING (sweep, run_id)
WHERE NOT o.superseded AND (o.time_source IS DISTINCT FROM 'predicted' OR q.unit IS DISTINCT FROM 'seconds')
GROUP BY ALL
ORDER BY o.sweep, q.metric;

-- What can be asked for: each setting with each metric, and how many rows there are.
CREATE TABLE facets AS
SELECT dataset, model, sweep, device, hardware, threads, world_size, metric, unit, higher_is_better, format,
       bool_or(is_quality) AS is_quality, sum(runs)::BIGINT AS runs, sum(predicted)::BIGINT AS predicted
FROM recipe_means
GROUP BY ALL
ORDER BY ALL;

-- The same with their costs. Hardware has one rate, so the median cost is that of the median time.
CREATE VIEW means AS
SELECT m.sweep, m.dataset, m.model, m.metric, m.unit, m.higher_is_better, m.format,
       m.device, m.hardware, m.threads, m.world_size,
       m.recipe, m.recipe_digest, m.methods, m.policy, m.is_baseline, m.baseline, m.control, m.ssr, m.n, m.quality,
       m.train_seconds, m.steps, m.examples, u.usd_per_accelerator_hour * m.world_size AS usd_per_hour,
       m.train_seconds / 3600 * u.usd_per_accelerator_hour * m.world_size AS cost_usd, m.inference_seconds,
       m.deletion_seconds, m.deletion_seconds / 3600 * u.usd_per_accelerator_hour * m.world_size AS deletion_usd,
       m.chi, m.ledger_overhead, m.time_source, m.busy_profile, m.is_quality
FROM recipe_means m LEFT JOIN rates u USING (hardware);
""".replace("{drift}", repr(DRIFT)).replace("{apart}", str(APART))

"""The reading side's database: run directories in, tables out. It can be rebuilt from the run directories at any time.

- `examine`: what a run directory says about itself, and whether it contradicts itself
- `published`: the tables, what follows from them, and the snapshot that readers open
- `ingest`: the one writer; brings the working database up to the run directories and publishes a snapshot
- `upkeep`: brings the database up to the run directories before it is read
- `spool_reader`: contributions and entropy of governed runs, step by step
- `queries`: plain rows from the snapshot, without pandas; `frames`: the same as DataFrames
- `run_details`: what there is to say of a few runs; `export`: the results as files
- `connect`: the one door to DuckDB
"""

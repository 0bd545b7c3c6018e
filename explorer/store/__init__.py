"""The reading side's database: run directories in, tables out. It can be rebuilt from the run directories at any time.

- `published`: the snapshot that readers open; `queries`: plain rows from it, without pandas; `frames`: DataFrames
- `run_sources`: the runs, plans and profiles there are, and whether the snapshot has them all
- `upkeep`: brings the database up to the run directories before it is read
- `ingest`: the one writer; brings the working database up to the run directories and publishes a snapshot
- `snapshot_tables`: the tables, what follows from them, and how a snapshot is made
- `examine`: what a run directory says about itself, and whether it contradicts itself
- `spool_reader`: contributions and entropy of governed runs, step by step
- `run_details`: details of a few runs; `export`: the results as files; `plain_text`: tables as CSV and Markdown
- `connect`: the one door to DuckDB
"""

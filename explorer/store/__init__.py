"""The reading side's database: run directories in, tables out. It can be rebuilt from the run directories at any time.

- `examine`: what a run directory says about itself, and whether it contradicts itself
- `schema`: the tables; `outcomes`: what follows from them when a snapshot is made, and the view `results`
- `ingest`: the one writer; brings the working database up to the run directories and publishes a snapshot
- `governed`, `spool`: what governed runs have beside that: contributions, entropy, decisions
- `filter`: which results are meant
- `queries`: plain rows from the snapshot, without pandas
- `frames`: the same as DataFrames
"""

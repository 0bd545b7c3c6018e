"""Results from elsewhere: runs that other tools recorded, brought into the directory of runs as they are.

- `imported_file`: the one file that an import is, `runs/NAME/imported.jsonl`
- `mapping`: which column means what: given, or guessed from its name; rows of a source as runs
- `csv_rows`, `wandb_runs`, `mlflow_runs`: the sources, as rows with their curves

Nothing in an imported run was observed here. So it is marked as imported and unverified wherever it is shown, and never
compared with runs of one's own.
"""

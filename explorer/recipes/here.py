"""A recorded run, planned again on this machine: the same recipe, data and documents, a name of its own."""

import dataclasses
from pathlib import Path

from explorer.errors import RunError
from explorer.governance.documents import Documents
from explorer.recipes.plan import plan_run
from explorer.recipes.run import recipe_of
from explorer.recipes.start import start_in
from explorer.records import RunRecord


def plan_here(
    record: RunRecord, *, data: Path | None, documents: Documents | None = None, ssr: float | None = None
) -> RunRecord:
    """The run on this machine, at another budget if one is given.

    Raises `RunError` where the data or the documents are not those of the record: that would be another recipe.
    """
    planned = plan_run(
        recipe_of(record),
        sweep=record.sweep,
        baseline=record.baseline,
        tuning=record.tuning,
        ssr=record.ssr if ssr is None else ssr,
        seed=record.seed,
        threads=record.hardware.threads,
        data=data,
        documents=documents,
        start=start_in(record),
    )
    if planned.effective_digest != record.effective_digest:
        changed = [
            name
            for name in ("recipe", "data", "governance", "start")
            if planned.identity.get(name) != record.identity.get(name)
        ]
        raise RunError(
            f"run {record.run_id}: {' and '.join(changed)} here differ from its record: this would be another recipe,"
            f" {planned.effective_digest[:8]} and not {record.effective_digest[:8]}"
        )
    return dataclasses.replace(planned, control=record.control, control_of=record.control_of)

"""`origin.json`: where a run comes from that a deletion made. Its ledger's first entry names the same, by digest."""

from pathlib import Path
from typing import Literal

from explorer import rundir
from explorer.entries.fields import LedgerState, Line, Whole
from explorer.entries.run import TrainingState
from explorer.errors import RunError
from explorer.runlog.target import Target
from explorer.schema import from_json, record, to_json


@record
class Origin:
    """A run that goes on from another one's state, without the target."""

    format: Literal["explorer/origin/v1"] = "explorer/origin/v1"
    level: Literal["G2", "G3"]  # exact by structure; exact by replay
    run: Line  # the run that had the target
    ledger: LedgerState  # of that run
    target: Target
    begins: Whole  # steps of that run that this one takes over
    state: TrainingState | None  # after them; None: it begins anew


def read_origin(run: Path) -> Origin | None:
    """The origin of the run in this directory; None for a run of its own. Raises `RunError` for a damaged file."""
    path = run / rundir.ORIGIN
    if not path.exists():
        return None
    return from_json(Origin, rundir.read_json(path), where=str(path), error=RunError)


def write_origin(run: Path, origin: Origin) -> None:
    """Write it whole or not at all."""
    rundir.write_json(run / rundir.ORIGIN, to_json(origin))

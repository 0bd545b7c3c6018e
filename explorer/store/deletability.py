"""What deleting each class of a run would take, and whether a deletion made the run, as rows of the database.

All but the time of a step: that is joined where a question is asked, from the profile of the run's recipe, so that a
profile that is made later counts, and so does another price.
"""

from pathlib import Path
from typing import Any

from explorer.runlog.forecast import STRUCTURAL, besides_of, route_of
from explorer.runlog.influence import Presence, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, read_origin

Row = tuple[Any, ...]


def route_rows(run: RunLedger) -> list[Row]:
    """For each class that the run did not leave out: class, level, first_step, start_step, steps, share, rest,
    rest_low, rest_high, own_step; none for a run that did not end.

    Raises `LedgerError` for a ledger that is damaged, `ProvenanceError` for a policy that is not the run's.
    """
    if run.outline.end is None:
        return []
    presence, rows = Presence(run), list[Row]()
    for path in run.genesis.classes:
        if path not in presence.absent.classes:
            reached = reach_of(presence, Target(classes=(path,)))
            route = route_of(run, reached)
            head = (path, route.level, reached.first, route.start, route.steps, route.share)
            rows.append((*head, *_rest(run, route.level, route.steps)))
    return rows


def deletion_rows(run: Path) -> list[Row]:
    """Of a run that a deletion made: level, origin_run, origin, origin_size, origin_root, classes, authorities,
    records, begins. Raises `RunError` for a damaged file."""
    origin = read_origin(run)
    if origin is None:
        return []
    ledger, target = origin.ledger, origin.target
    who = (list(target.classes), list(target.authorities), len(target.records))
    return [(origin.level, origin.run, ledger.origin, ledger.size, ledger.root, *who, origin.begins)]


def _rest(run: RunLedger, level: str, steps: int) -> tuple[float | None, ...]:
    """Seconds beside the steps with their ends, and the run's own seconds a step."""
    if level == "G2":
        return STRUCTURAL.seconds, STRUCTURAL.low, STRUCTURAL.high, None
    found = besides_of(run.run, steps=steps, of=run.steps)
    return found.rest.seconds, found.rest.low, found.rest.high, found.step

"""Why a deletion cannot be done here and now, as far as that can be told without executing anything.

Whether data, code and machine are still those of the run, only who executes it can tell.
"""

from pathlib import Path

import numpy as np

from explorer import rundir
from explorer.entries.fields import read_float
from explorer.entries.run import End
from explorer.errors import ExplorerError
from explorer.provenance.branches import covers
from explorer.provenance.commitments import SALT_BYTES
from explorer.provenance.salts import Salts, read_salts
from explorer.records import LoopRecord
from explorer.runlog.model_file import MODEL
from explorer.runlog.presence import Presence, read_record
from explorer.runlog.reach import Reach
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.source import TRAINER, source_of

SALTS = "salts"
NO_CODE = (
    "the run is of a training loop whose code is its owner's, and no file says how to run it again. A class that has a"
    " sealed region for itself alone needs no training (G2); for anything else give a function that trains by the"
    " `govern` it is handed: --loop MODULE:FUNCTION"
)


def obstacles(presence: Presence, reached: Reach, *, level: str) -> tuple[str, ...]:
    """What stands in the way, in words; empty: nothing that can be seen from here."""
    run, found = presence.run, [*_unfinished(presence), *learned_before(presence.run, reached)]
    try:
        record = read_record(run)
        private = Path(source_of(run.run).private)
        if not (private / TRAINER).exists():
            found.append(f"{private / TRAINER}: missing: nobody can sign the new ledger")
        found += _all(presence, reached)
        if level == "G3" and isinstance(record, LoopRecord):
            found.append(NO_CODE)
        if level == "G3":
            found += _erased(presence, reached, read_salts(private / SALTS))
        elif not (model := run.run / rundir.MODEL / MODEL).exists():
            found.append(f"{model}: missing: there is no model to drop a region from")
    except ExplorerError as error:
        found.append(str(error))
    return tuple(found)


def _unfinished(presence: Presence) -> list[str]:
    run = presence.run
    if run.outline.end is None:
        return ["the ledger has no end: the run is unfinished"]
    stopped = stopped_early(run)
    return [] if stopped is None else [stopped]


def stopped_early(run: RunLedger) -> str | None:
    """In words, where a run that ended did fewer steps than it had announced: what made it stop is on no record, and
    may have been the target. None: it did them all, or has no end."""
    if run.outline.end is None:
        return None
    (end,) = run.read([run.outline.end], End)
    stopped = f"the run was stopped after {end.entry.step} steps, which is not what its plan says"
    return None if end.entry.outcome == "finished" else stopped


def learned_before(run: RunLedger, reached: Reach) -> list[str]:
    """Classes that the model which the run began with had learned from already: no step here can take that away."""
    mine = (*reached.whole, *reached.partly)
    parents = (each for each in run.genesis.parents if each.kind == "model")
    admitted = {path for each in parents for path, weight in each.admitted.items() if read_float(weight) > 0}
    known = sorted(path for path in admitted if any(covers(path, own) or covers(own, path) for own in mine))
    return [f"the model that the run began with was trained on {path}: delete it there first" for path in known]


def _all(presence: Presence, reached: Reach) -> list[str]:
    """A run without any example is none: there is nothing to compare a model without them with."""
    trained = np.flatnonzero(presence.tags.classes != len(presence.run.genesis.classes))
    out = np.union1d(presence.rows_of(reached.target), presence.rows_of(presence.absent))
    if len(np.setdiff1d(trained, out)):
        return []
    return ["every example of the run would be left out, and nothing is left to train: destroy the model instead"]


def _erased(presence: Presence, reached: Reach, salts: Salts) -> list[str]:
    """Examples that the run trained on, that are not in the target, and that were erased since: nothing goes on from a
    state that they shaped as if they were there still, and without them it is another deletion."""
    classes = presence.tags.classes
    if len(salts) != len(classes):
        return [f"{len(salts)} salts for {len(classes)} tags: they belong to another table"]
    trained = classes != len(presence.run.genesis.classes)  # what the run set aside is of no class
    destroyed = ~np.frombuffer(salts.content, np.uint8).reshape(-1, SALT_BYTES).any(axis=1)
    out = np.union1d(presence.rows_of(reached.target), presence.rows_of(presence.absent))
    gone = np.setdiff1d(np.flatnonzero(trained & destroyed), out)
    if not len(gone):
        return []
    return [f"record {gone[0]} was erased since the run, and so {len(gone)} in all: delete them first, or as well"]

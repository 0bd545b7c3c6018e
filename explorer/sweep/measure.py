"""Profile stage of a sweep: the step times of every recipe, measured in a process that does nothing else.

A new measurement replaces all earlier profiles, and only once it is complete.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from explorer import run_files, rundir
from explorer.run_files import ProfileRecord, RunRecord
from explorer.runlog.documents import Documents
from explorer.sweep.profiles import read_profiles
from explorer.training.profile import profile

Governing = Mapping[str, Documents | None]

DRIFT = 0.05  # of the baseline's step time; a larger change, outside the quartiles, is a change of the machine


class Measured(NamedTuple):
    """Warnings about a profile."""

    busy: tuple[str, ...]  # why the machine was busy
    faults: tuple[str, ...]  # recipes that could not be measured, and why


def measure(
    directory: Path,
    runs: Sequence[RunRecord],
    *,
    data: Path | None,
    documents: Governing,
    reasons: Sequence[str] = (),
) -> Measured:
    """Profile the recipes of `runs` and write `_profiles/<key>.json` for each. Nothing else should run meanwhile.

    directory  the sweep's directory
    runs       planned runs of the recipes to measure
    data       the directory of datasets, for recipes that need one
    documents  the documents that govern a recipe, by its digest
    reasons    known reasons why the machine is busy, to be recorded in the profiles
    """
    faults: list[str] = []
    profiles = profile(
        runs,
        data=data,
        documents_of=lambda run: documents.get(run.recipe_digest),
        reasons=reasons,
        on_fault=lambda run, error: faults.append(f"no step times of {run.recipe}: {error}"),
    )
    # Written after all are measured. A process killed between two files leaves profiles of two passes, which
    # `unprofiled` notices: it then asks for all of them again.
    for record in profiles:
        run_files.write(directory / rundir.PROFILES / f"{record.key}.json", record)
    return Measured(busy=profiles[0].watch.reasons if profiles and profiles[0].watch else (), faults=tuple(faults))


def drift(
    directory: Path, runs: Sequence[RunRecord], *, data: Path | None, documents: Governing, reasons: Sequence[str] = ()
) -> float | None:
    """Return the relative change of a step time since its profile, 0.07 for 7% more; None if there is no clear change.

    `runs` are of one recipe. A change is clear if it exceeds both `DRIFT` and the spread of the profile, on a machine
    that is not busy now. A few windows are measured, and nothing is written.
    """
    (now,) = profile(runs, data=data, documents_of=lambda run: documents.get(run.recipe_digest), reasons=reasons)
    then = read_profiles(directory).get(now.recipe_digest)
    if then is None or now.busy:
        return None
    return _drift(then, now, max(runs, key=lambda run: run.steps))


def _drift(then: ProfileRecord, now: ProfileRecord, run: RunRecord) -> float | None:
    phases = [(then.phases[name], now.phases[name], steps) for name, steps in run.phases.items() if steps]
    # Seconds of the whole training, so that a phase counts for as much as it contributes.
    before, after = (sum(steps * pair[at].seconds for *pair, steps in phases) for at in (0, 1))
    apart = after > sum(steps * old.high for old, _, steps in phases) or after < sum(
        steps * old.low for old, _, steps in phases
    )
    # In logarithms, so that twice and half the time are changes of equal size.
    return after / before - 1.0 if apart and abs(math.log(after / before)) > DRIFT else None

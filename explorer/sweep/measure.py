"""The profile stage of a sweep: step times of every recipe, taken while nothing else runs.

What is measured again replaces all that there was, and not before it is whole.
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

DRIFT = 0.05  # of the baseline's step time, beyond the quartiles of both: the machine is no longer what it was


class Measured(NamedTuple):
    """What is to be said of a profile: why the machine was busy, and which recipes could not be measured."""

    busy: tuple[str, ...]
    faults: tuple[str, ...]


def measure(
    directory: Path,
    runs: Sequence[RunRecord],
    *,
    data: Path | None,
    documents: Governing,
    reasons: Sequence[str] = (),
) -> Measured:
    """Profile the recipes of `runs` and write `_profiles/<key>.json` for each. Nothing else should run.

    `documents` govern recipes, by their digest. What there was stays until all is measured; if this process is killed
    between two files, they are of two passes, and `unprofiled` asks for all of them again.
    """
    faults: list[str] = []
    profiles = profile(
        runs,
        data=data,
        documents_of=lambda run: documents.get(run.recipe_digest),
        reasons=reasons,
        on_fault=lambda run, error: faults.append(f"no step times of {run.recipe}: {error}"),
    )
    for record in profiles:
        run_files.write(directory / rundir.PROFILES / f"{record.key}.json", record)
    return Measured(busy=profiles[0].watch.reasons if profiles and profiles[0].watch else (), faults=tuple(faults))


def drift(
    directory: Path, runs: Sequence[RunRecord], *, data: Path | None, documents: Governing, reasons: Sequence[str] = ()
) -> float | None:
    """By how much the step time of the one recipe of `runs` differs from its profile: 0.07 for 7% more. None: by no
    more than `DRIFT` or than it spreads, or the machine is busy now, so that nothing can be said.

    A few windows, and nothing is written.
    """
    (now,) = profile(runs, data=data, documents_of=lambda run: documents.get(run.recipe_digest), reasons=reasons)
    then = read_profiles(directory).get(now.recipe_digest)
    if then is None or now.busy:
        return None
    return _drift(then, now, max(runs, key=lambda run: run.steps))


def _drift(then: ProfileRecord, now: ProfileRecord, run: RunRecord) -> float | None:
    phases = [(then.phases[name], now.phases[name], steps) for name, steps in run.phases.items() if steps]
    before, after = (sum(steps * pair[at].seconds for *pair, steps in phases) for at in (0, 1))
    apart = after > sum(steps * old.high for old, _, steps in phases) or after < sum(
        steps * old.low for old, _, steps in phases
    )
    return after / before - 1.0 if apart and abs(math.log(after / before)) > DRIFT else None

"""The state of a sweep at a place: what is done, what runs where, what was lost, and what was set aside.

Three listings tell most of it; only the newest claims of runs that are neither done nor failed are read.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from explorer.place.leases import Claim, read_claim
from explorer.place.published_sweep import AT_ONCE, FailureAt, Published


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceStatus:
    """The state of a sweep at a place, at one moment. Runs are in the plan's order."""

    sweep: str
    machine: str  # the classes that it is for, in words
    runs: int
    done: int
    active: tuple[Claim, ...]  # of runs that a worker holds
    lost: tuple[Claim, ...]  # of runs whose last worker was lost, or was told to stop, and that wait for another
    waiting: int  # runs that no worker has held yet
    failures: tuple[FailureAt, ...]
    findings: tuple[str, ...]  # runs with a second result that differs from the first
    measured: bool | None  # whether the step times of all classes are there; None: workers do not measure them


def place_status(published: Published, *, now: float) -> PlaceStatus:
    """Return the state of a sweep; `now` in seconds since 1970. Raises `PlaceError` for a place that cannot be used."""
    plan = published.plan()
    done, failed = published.names("results"), published.names("failures")
    newest: dict[str, str] = {}
    for listed in published.objects.list("claims/"):
        run_id = listed.key.split("/")[1]
        newest[run_id] = max(newest.get(run_id, ""), listed.key)
    unsettled = [run_id for run_id in plan.runs if run_id not in done | failed]
    keys = [newest[run_id] for run_id in unsettled if run_id in newest]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        claims = list(pool.map(lambda key: read_claim(published.objects, key), keys))
    failures = [published.find(FailureAt, f"failures/{run_id}.json") for run_id in plan.runs if run_id in failed]
    wanted = [own.profiles for own in plan.classes if own.profile]
    return PlaceStatus(
        sweep=plan.sweep,
        machine=" and ".join(own.machine.words for own in plan.classes),
        runs=len(plan.runs),
        done=sum(run_id in done for run_id in plan.runs),
        active=tuple(claim for claim in claims if claim.open(now)),
        lost=tuple(claim for claim in claims if not claim.open(now)),
        waiting=len(unsettled) - len(claims),
        failures=tuple(failure for failure in failures if failure is not None),
        findings=tuple(sorted({listed.key.split("/")[1] for listed in published.objects.list("findings/")})),
        measured=all(any(published.objects.list(folder)) for folder in wanted) if wanted else None,
    )

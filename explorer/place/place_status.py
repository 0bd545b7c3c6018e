"""The state of a sweep at a place: what is done, what runs where, what was lost, and what was set aside.

Listings tell most of it. The newest claims of runs that are neither done nor failed are read at every look. Of the
other claims a look reads at most `MOST_READ`, the newest first, and none twice: the first look at a sweep of 10,000
runs reads no more than one at a sweep of a thousand.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from explorer.errors import PlaceError
from explorer.objects import Listed, Missing
from explorer.place.leases import Claim, read_claim
from explorer.place.published_sweep import AT_ONCE, FailureAt, Finding, Published

MOST_READ = 500

Kept = TypeVar("Kept", Claim, FailureAt, Finding)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceStatus:
    """The state of a sweep at a place, at one moment. Runs are in the plan's order."""

    sweep: str
    machine: str  # the classes that it is for, in words
    hardware: dict[str, str]  # of the class of each run, and of what is claimed to measure its step times
    plan: tuple[str, ...]
    done: dict[str, float]  # when each result was published, in seconds since 1970
    left: tuple[str, ...]  # runs that are neither done nor failed
    active: tuple[Claim, ...]  # of runs that a worker holds
    lost: tuple[Claim, ...]  # of runs whose last worker was lost, or was told to stop, and that wait for another
    waiting: int  # runs that no worker has held yet
    failures: tuple[FailureAt, ...]  # of runs, and of measuring step times
    findings: tuple[str, ...]  # runs with a second result that differs from the first
    differing: tuple[Finding, ...]  # those results
    measured: bool | None  # whether the step times of all classes are there; None: workers do not measure them
    attempts: tuple[Claim, ...]  # that are known, active ones among them, of runs and of measuring step times
    unread: int  # attempts that are not known yet
    unreadable: tuple[str, ...]  # what is wrong with objects that are damaged


class PlaceReader:
    """Looks at a place, again and again."""

    def __init__(self, published: Published) -> None:
        self._published = published
        self._past: dict[Listed, Claim] = {}  # claims that earlier looks have read
        self._failures: dict[Listed, FailureAt] = {}
        self._findings: dict[Listed, Finding] = {}

    def look(self, *, now: float) -> PlaceStatus:
        """Return the state; `now` in seconds since 1970. Raises `PlaceError` for a place that cannot be used."""
        plan, faults = self._published.plan(), list[str]()
        measuring = tuple(own.measuring for own in plan.classes)
        names = (*plan.runs, *measuring)
        known = frozenset(names)
        results, failures, claims, findings = (
            [listed for listed in self._published.objects.list(f"{folder}/") if run_of(listed) in known]
            for folder in ("results", "failures", "claims", "findings")
        )
        done = {run_of(listed): listed.modified for listed in results}
        failed = {run_of(listed) for listed in failures} - done.keys()
        newest = {run_of(listed): listed for listed in sorted(claims, key=lambda one: one.key)}
        moving = {listed for run_id, listed in newest.items() if run_id not in done and run_id not in failed}
        objects, find = self._published.objects, self._published.find
        # What is renewed may change twice in the second that a listing tells; what is past does not.
        held = {claim.run_id: claim for claim in self._read(partial(read_claim, objects), moving, faults).values()}
        past = sorted(set(claims) - moving, key=lambda one: -one.modified)
        self._past = self._again(partial(read_claim, objects), past, self._past, faults, most=MOST_READ)
        self._failures = self._again(partial(find, FailureAt), failures, self._failures, faults)
        self._findings = self._again(partial(find, Finding), findings, self._findings, faults)
        left = tuple(run_id for run_id in plan.runs if run_id not in done and run_id not in failed)
        last = [held[run_id] for run_id in left if run_id in held]
        wanted = [own.profiles for own in plan.classes if own.profile]
        of_run = {failure.run_id: failure for failure in self._failures.values()}
        return PlaceStatus(
            sweep=plan.sweep,
            machine=" and ".join(own.machine.words for own in plan.classes),
            hardware={name: own.machine.hardware.name for own in plan.classes for name in (*own.runs, own.measuring)},
            plan=plan.runs,
            done={run_id: done[run_id] for run_id in plan.runs if run_id in done},
            left=left,
            active=tuple(claim for claim in last if claim.open(now)),
            lost=tuple(claim for claim in last if not claim.open(now)),
            waiting=len(left) - len(last),
            failures=tuple(of_run[run_id] for run_id in names if run_id in failed and run_id in of_run),
            findings=tuple(sorted({run_of(listed) for listed in findings})),
            differing=tuple(self._findings.values()),
            measured=all(any(objects.list(folder)) for folder in wanted) if wanted else None,
            attempts=(*held.values(), *self._past.values()),
            unread=len(past) - len(self._past),
            unreadable=tuple(faults),
        )

    def _again(
        self,
        read: Callable[[str], Kept | None],
        listed: Sequence[Listed],
        before: dict[Listed, Kept],
        faults: list[str],
        *,
        most: int | None = None,
    ) -> dict[Listed, Kept]:
        """Return objects that do not change: those of earlier looks that are still there, and at most so many more."""
        new = [one for one in listed if one not in before][:most]
        return {one: before[one] for one in listed if one in before} | self._read(read, new, faults)

    def _read(
        self, read: Callable[[str], Kept | None], listed: Iterable[Listed], faults: list[str]
    ) -> dict[Listed, Kept]:
        """Return the objects that are there and sound; what is wrong with others goes to `faults`."""

        def attempt(one: Listed) -> Kept | None:
            try:
                value = read(one.key)
            except Missing:  # it was removed since it was listed
                return None
            except PlaceError as error:
                faults.append(str(error))
                return None
            if value is not None and value.run_id != run_of(one):
                faults.append(f"{self._published.objects.url}/{one.key}: names another run, {value.run_id!r:.80}")
                return None
            return value

        asked = list(listed)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(attempt, asked))
        return {one: answer for one, answer in zip(asked, answers, strict=True) if answer is not None}


def place_status(published: Published, *, now: float) -> PlaceStatus:
    """Return the state of a sweep, by one look."""
    return PlaceReader(published).look(now=now)


def run_of(listed: Listed) -> str:
    """Return the run that an object is about, by its key: `results/<run>.json`, `claims/<run>/<epoch>.json`."""
    return listed.key.split("/")[1].removesuffix(".json")

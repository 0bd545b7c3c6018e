"""A sweep at a glance: which host has which run, how fast it goes, what it takes, and what went wrong.

The same record for a sweep at a place, from what its workers published there, and for one on this machine or on a
cluster that shares its files, from its run directories. No run is planned or read for it: what is to come is estimated
by the runs that are done.

Its times are those during which a worker had a run, with evaluations, checkpoints and attempts that were lost. That is
what a machine is paid for, and no measure of a recipe's cost, which is its training time on an idle machine.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from explorer.costing import Price, cost_usd, default_price
from explorer.place.leases import LOSSES, Claim
from explorer.place.place_status import PlaceStatus
from explorer.sweep.status import RunStatus, SweepStatus

HOUR = 3600.0  # seconds; what ended in the last one tells the rate
SETTLED = ("diverged", "failed", "set aside", "damaged")  # states in which a run stays until the sweep is started again
NAME = re.compile(r"(.+-ssr([0-9.]+(?:e[+-]?[0-9]+)?))-s[0-9]+-[0-9a-f]{8}")  # of a run: recipe and budget, then seed


@dataclass(frozen=True, kw_only=True, slots=True)
class Held:
    """The time during which a worker had a run."""

    run_id: str
    host: str  # empty where it is not known
    hardware: str
    begun: float  # seconds since 1970
    until: float  # its end; of a worker that works or was lost, the end of its lease
    ending: str | None  # None: in progress

    def seconds(self, now: float) -> float:
        """Return how long the worker had the run until now."""
        return max(0.0, min(self.until, now) - self.begun)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLine:
    """A host and its attempts, as far as they are known. None: run directories do not say which host made them."""

    host: str
    hardware: str
    running: int  # runs that it has now
    done: int | None
    runs_per_hour: float | None  # in the window of the overview
    lost: int  # attempts that ended in the middle, by no fault of the run


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultLine:
    """Something that went wrong with a run, or with an object of the place: then `run_id` is empty."""

    run_id: str
    kind: str
    host: str  # empty where it is not known
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Overview:
    """A sweep at one moment. None where a number is not known."""

    sweep: str
    machine: str  # the classes of machines that it is for, in words; empty where a plan does not say
    now: float  # seconds since 1970
    runs: int
    done: int
    failed: int  # runs that are not tried again before the sweep is started again
    complete: bool  # nothing is left to do
    in_progress: tuple[Held, ...]  # in the order in which they were begun
    measuring: tuple[Held, ...]  # of step times
    hosts: tuple[HostLine, ...]  # by name
    faults: tuple[FaultLine, ...]
    runs_per_hour: float | None  # None: no run has ended
    window: float  # seconds that this rate is of
    seconds_left: float | None  # until all runs are done, if as many workers stay; None also where none works
    spent_seconds: float  # of machines
    spent_usd: float | None
    to_come_seconds: float | None
    to_come_usd: float | None
    prices: dict[str, Price | None]  # of the hardware of its classes; empty where it is not known
    unread: int  # attempts of a large sweep that no look has read yet, and that are estimated


def overview_at(here: PlaceStatus, *, prices: Iterable[Price], now: float) -> Overview:
    """Return the overview of a sweep at a place."""
    active, runs = {(claim.run_id, claim.epoch) for claim in here.active}, frozenset(here.plan)

    def ending(claim: Claim) -> str | None:
        known = claim.ending(now)
        # A worker has its run a moment longer than it is done, and may still have one that others took over.
        return known or (None if claim.run_id not in runs or (claim.run_id, claim.epoch) in active else "late")

    held = [
        Held(
            run_id=claim.run_id,
            host=claim.host,
            hardware=claim.hardware,
            begun=claim.begun,
            until=claim.until,
            ending=ending(claim),
        )
        for claim in here.attempts
    ]
    return _overview(
        sweep=here.sweep,
        machine=here.machine,
        hardware=here.hardware,
        runs=here.plan,
        done=here.done,
        left=here.left,
        held=held,
        unread=here.unread,
        complete=not here.left,
        faults=_faults_at(here, now),
        prices=prices,
        now=now,
    )


def overview_here(status: SweepStatus, *, prices: Iterable[Price], now: float) -> Overview:
    """Return the overview of a sweep whose run directories are here."""
    left = [run.run_id for run in status.runs if run.state != "done" and run.state not in SETTLED]
    return _overview(
        sweep=status.name,
        machine=status.machine,
        hardware={run.run_id: status.hardware for run in status.runs},
        runs=[run.run_id for run in status.runs],
        done={run.run_id: run.ended for run in status.runs if run.state == "done"},
        left=left,
        held=[held for run in status.runs for held in _held_here(run, status, now)],
        unread=0,
        complete=not left and not status.active,
        faults=[fault for run in status.runs for fault in _faults_here(run, active=status.active)],
        prices=prices,
        now=now,
    )


# --- what is known, from a place and from run directories ---


def _faults_at(here: PlaceStatus, now: float) -> Iterator[FaultLine]:
    for claim in here.lost:
        if (ending := claim.ending(now)) in LOSSES:
            words = "; ".join(filter(None, (claim.message, "waits for a worker")))
            yield FaultLine(run_id=claim.run_id, kind=str(ending), host=claim.host, message=words)
    for failure in here.failures:
        yield FaultLine(run_id=failure.run_id, kind=failure.kind, host=failure.host, message=failure.message)
    known = {finding.run_id: finding for finding in here.differing}
    for run_id in here.findings:
        finding = known.get(run_id)
        where = f" in {', '.join(finding.differs)}" if finding is not None else ""
        words = f"a second result differs from the first{where}; both are in findings and results"
        host = "" if finding is None else finding.host
        yield FaultLine(run_id=run_id, kind="not reproducible", host=host, message=words)
    for words in here.unreadable:
        yield FaultLine(run_id="", kind="damaged", host="", message=words)


def _held_here(run: RunStatus, status: SweepStatus, now: float) -> Iterator[Held]:
    """Yield the times of a run that workers have or died with, and of one that is done: of others none is known."""
    for mark in run.marks:
        works = status.active and mark is run.marks[-1] and run.state not in SETTLED
        yield Held(
            run_id=run.run_id,
            host=mark.host,
            hardware=status.hardware,
            begun=mark.begun,
            until=now if works else mark.begun,  # when the others were lost is not known
            ending=None if works else "lost worker",
        )
    if run.ended is not None and run.seconds is not None:
        yield Held(
            run_id=run.run_id,
            host="",
            hardware=status.hardware,
            begun=run.ended - run.seconds,
            until=run.ended,
            ending="done",
        )


def _faults_here(run: RunStatus, *, active: bool) -> Iterator[FaultLine]:
    if run.state in SETTLED:
        host = run.marks[-1].host if run.marks else ""
        yield FaultLine(run_id=run.run_id, kind=run.state, host=host, message=run.message)
        return
    lost = run.marks[:-1] if active else run.marks
    if lost:
        number = "its worker" if len(lost) == 1 else f"{len(lost)} workers"
        words = f"{number} ended in the middle"
        yield FaultLine(run_id=run.run_id, kind="lost worker", host=lost[-1].host, message=words)


# --- what follows ---


def _overview(
    *,
    sweep: str,
    machine: str,
    hardware: Mapping[str, str],  # of each run, and of what measures step times
    runs: Sequence[str],
    done: Mapping[str, float | None],  # when each run ended
    left: Sequence[str],
    held: Sequence[Held],
    unread: int,
    complete: bool,
    faults: Iterable[FaultLine],
    prices: Iterable[Price],
    now: float,
) -> Overview:
    known = frozenset(runs)
    open_ = sorted((one for one in held if one.ending is None), key=lambda one: one.begun)
    in_progress = [one for one in open_ if one.run_id in known]
    took: dict[str, float] = defaultdict(float)
    for one in held:
        took[one.run_id] += one.seconds(now)
    expected = _Expected({run_id: took[run_id] for run_id in done if run_id in took}, hardware)
    begun = {one.run_id: one.seconds(now) for one in in_progress}
    rest = {run_id: expected.rest(run_id, begun.get(run_id, 0.0)) for run_id in left}
    spent = took | {run_id: expected.rest(run_id, 0.0) or 0.0 for run_id in done if run_id not in took}
    to_come = {run_id: seconds for run_id, seconds in rest.items() if seconds is not None}
    all_known = len(to_come) == len(left)
    window = _window(done, [one for one in held if one.run_id in known], now if in_progress else None)
    offered = tuple(prices)
    of_class = {name: default_price(name, offered) for name in dict.fromkeys(hardware.values()) if name}
    cost = {run_id: of_class.get(name) for run_id, name in hardware.items()}
    return Overview(
        sweep=sweep,
        machine=machine,
        now=now,
        runs=len(runs),
        done=len(done),
        failed=len(runs) - len(done) - len(left),
        complete=complete,
        in_progress=tuple(in_progress),
        measuring=tuple(one for one in open_ if one.run_id not in known),
        hosts=tuple(_hosts(held, known, window)),
        faults=tuple(faults),
        runs_per_hour=window.runs_per_hour,
        window=window.seconds,
        seconds_left=_seconds_left(to_come, in_progress, hardware) if all_known else None,
        spent_seconds=sum(spent.values()),
        spent_usd=_usd(spent, cost),
        to_come_seconds=sum(to_come.values()) if all_known else None,
        to_come_usd=_usd(to_come, cost) if all_known else None,
        prices=of_class,
        unread=unread,
    )


def _usd(seconds: Mapping[str, float], cost: Mapping[str, Price | None]) -> float | None:
    """Return what so many seconds of runs cost; None where one has no price."""
    total = 0.0
    for run_id, taken in seconds.items():
        if (price := cost.get(run_id)) is None:
            return None
        total += cost_usd(taken, price)
    return total


def _seconds_left(
    to_come: Mapping[str, float], in_progress: Sequence[Held], hardware: Mapping[str, str]
) -> float | None:
    """Return the time until the last class of machines is done; None where nothing works on one of them."""
    workers = Counter(hardware[one.run_id] for one in in_progress)
    rest: dict[str, list[float]] = defaultdict(list)
    for run_id, seconds in to_come.items():
        rest[hardware[run_id]].append(seconds)
    if not rest or not rest.keys() <= workers.keys():
        return None
    # The last runs do not become shorter by having many workers.
    return max(max(sum(own) / workers[name], *own) for name, own in rest.items())


class _Expected:
    """Estimates of the seconds that a run takes: as long as runs of its recipe and budget took on its class of
    machines, or else by its budget.

    A place lists the names of runs, and a name has recipe and budget.
    """

    def __init__(self, took: Mapping[str, float], hardware: Mapping[str, str]) -> None:
        self._hardware = hardware
        self._same: dict[tuple[str, str], list[float]] = defaultdict(list)
        totals: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for run_id, taken in took.items():
            name, budget = _parts(run_id)
            self._same[hardware[run_id], name].append(taken)
            total = totals[hardware[run_id]]
            total[0], total[1] = total[0] + taken, total[1] + budget
        self._by_budget = {name: taken / budget for name, (taken, budget) in totals.items() if budget}

    def rest(self, run_id: str, done: float) -> float | None:
        """Return the seconds that a run still takes, of which it has had some; None: no run of its class is done."""
        name, budget = _parts(run_id)
        by_budget = self._by_budget.get(self._hardware[run_id])
        if by_budget is None:
            return None
        same = self._same.get((self._hardware[run_id], name))
        return max(0.0, (sum(same) / len(same) if same else budget * by_budget) - done)


def _parts(run_id: str) -> tuple[str, float]:
    """Return the name that a run shares with other seeds, and its budget.

    >>> _parts("resnet8-digits-fast-ssr0.5-s1-3f9c2a7d")
    ('resnet8-digits-fast-ssr0.5', 0.5)
    """
    match = NAME.fullmatch(run_id)
    try:
        return (match[1], float(match[2])) if match else (run_id, 1.0)
    except ValueError:
        return run_id, 1.0


class _Window(NamedTuple):
    """The time that tells the rate."""

    begin: float  # seconds since 1970
    seconds: float
    runs_per_hour: float | None


def _window(done: Mapping[str, float | None], held: Sequence[Held], now: float | None) -> _Window:
    """Return the last hour of work and its rate: until now, or where no run is in progress (None) until the last end.

    It begins with the first attempt in it: a pause between two starts of the sweep counts as little as the time after
    its end.
    """
    ends = [moment for moment in done.values() if moment is not None]
    last = max(ends, default=0.0) if now is None else now
    first = last - HOUR
    begun = [one.begun for one in held if one.ending is None or one.until >= first]
    begin = max(first, min(begun, default=first))
    seconds = max(0.0, last - begin)
    recent = sum(begin <= moment <= last for moment in ends)
    return _Window(begin, seconds, HOUR * recent / seconds if seconds and ends else None)


def _hosts(held: Sequence[Held], runs: Collection[str], window: _Window) -> Iterator[HostLine]:
    """Yield what each host did, by name."""
    of_host: dict[str, list[Held]] = defaultdict(list)
    for one in sorted(held, key=lambda one: one.begun):
        of_host[one.host].append(one)
    unknown = of_host.pop("", [])  # then no host's own runs are known
    for host, own in sorted(of_host.items()):
        done = [one for one in own if one.ending == "done" and one.run_id in runs]
        recent = sum(one.until >= window.begin for one in done)
        yield HostLine(
            host=host,
            hardware=own[-1].hardware,
            running=sum(one.ending is None for one in own),
            done=None if unknown else len(done),
            runs_per_hour=HOUR * recent / window.seconds if recent and window.seconds else None,
            lost=sum(one.ending in LOSSES for one in own),
        )

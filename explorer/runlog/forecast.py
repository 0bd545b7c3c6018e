"""What deleting a target takes: by which of two exact ways it can go, from where, and for how long.

G2, exact by structure: all that the target reached lies in sealed regions where nobody else lives, or it reached
nothing; the regions are dropped, and nothing is trained. G3, exact by replay: training goes on without the target from
the newest state that was kept at or before the first step that the target could have influenced.
"""

from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.costing import Duration
from explorer.provenance.levels import Level
from explorer.runlog.obstacles import obstacles
from explorer.runlog.presence import Presence
from explorer.runlog.reach import Reach, reach_of
from explorer.runlog.replay_time import STRUCTURAL, Time, replay_time
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """The way that a deletion takes, whatever it costs."""

    level: Level
    start: int  # steps done in the state that it begins from; of G2: all of them
    steps: int  # to execute
    share: float  # of the examples in these steps, that stay out
    dropped: tuple[str, ...]  # sealed regions


@dataclass(frozen=True, kw_only=True, slots=True)
class Forecast:
    """What deleting a target from a run takes."""

    reach: Reach
    route: Route
    time: Time
    obstacles: tuple[str, ...]  # why it cannot be done here and now

    @property
    def level(self) -> Level | None:
        """The level that is available; None: something is in the way."""
        return None if self.obstacles else self.route.level


def forecast(run: RunLedger, target: Target, *, step: Duration | None = None) -> Forecast:
    """What deleting the target takes; `step` is the time of one step to replay, measured now.

    Raises `LedgerError` for a target that the run does not have and for a damaged ledger, `ProvenanceError` for
    documents that are not those of the run, `RunError` for damaged records.
    """
    return forecast_of(Presence(run), target, step=step)


def forecast_of(presence: Presence, target: Target, *, step: Duration | None = None) -> Forecast:
    """The same, for who has read the run already."""
    run, reached = presence.run, reach_of(presence, target)
    route = route_of(run, reached)
    return Forecast(
        reach=reached,
        route=route,
        time=time_of(run.run, route, step=step),
        obstacles=obstacles(presence, reached, level=route.level),
    )


def route_of(run: RunLedger, reached: Reach) -> Route:
    """The way that deleting what was reached takes."""
    if reached.structural:
        dropped = tuple(sorted(reached.regions))
        return Route(level="G2", start=run.steps, steps=0, share=0.0, dropped=dropped)
    return replay_route(run, reached)


def replay_route(run: RunLedger, reached: Reach) -> Route:
    """The way by replay, which there is for every target."""
    start = max((step for step in kept(run.run) if step <= (reached.first or 0)), default=0)
    slots = reached.slots[max(0, start - run.begins) :]
    share = sum(slots) / max(1, reached.batch * len(slots))
    return Route(level="G3", start=start, steps=run.steps - start, share=share, dropped=())


def time_of(run: Path, route: Route, *, step: Duration | None = None) -> Time:
    """How long it takes. Raises `RunError` for damaged records."""
    return STRUCTURAL if route.level == "G2" else replay_time(run, steps=route.steps, share=route.share, step=step)


def kept(run: Path) -> tuple[int, ...]:
    """The steps after which a checkpoint stays, ascending, both of its files there. The initial state needs none."""
    found = []
    for path in (run / rundir.KEPT).glob("step-*.json"):
        number = path.stem.removeprefix("step-")
        if number.isascii() and number.isdigit() and path.with_suffix(".safetensors").exists():
            found.append(int(number))
    return tuple(sorted(found))

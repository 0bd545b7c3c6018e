"""`explorer delete plan`: what deleting a class, an authority's examples or single records takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.output import print_json, visible
from explorer.cli.price_list import today
from explorer.cli.settings import Data, Json
from explorer.cli.trace import RunDirectory
from explorer.costing import price_words

if TYPE_CHECKING:
    from explorer.deletion.plan import Plan
    from explorer.runlog.forecast import Time

Class = Annotated[str | None, typer.Argument(metavar="[CLASS]", help="A class, or a branch: all classes of it.")]
Records = Annotated[
    list[int] | None, typer.Option("--record", metavar="N", help="A record: its row in the tag table. Repeatable.")
]
AuthorityName = Annotated[
    str | None, typer.Option("--authority", metavar="NAME", help="Everything that this authority vouches for.")
]
SHOWN = 6  # layers on a line


def plan(
    run: RunDirectory,
    class_: Class = None,
    record: Records = None,
    authority: AuthorityName = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Measure steps of the replay now: about a minute, on a quiet machine.")
    ] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """What a deletion takes: its level, what the target touched, time and money, and what it cannot reach.

    The exit status is 0 only if the deletion can be done here and now. Nothing is changed.
    """
    from explorer.deletion.plan import plan as make
    from explorer.runlog.run_ledger import RunLedger
    from explorer.runlog.target import resolve

    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, authority=authority, records=record or ())
    found = make(ledger, target)
    machine = _elsewhere(found, run, data) if found.forecast.route.level == "G3" else ()
    if profile and found.forecast.route.steps:
        from explorer.training.replay import measure_replay

        steps = range(found.forecast.route.start, ledger.steps)
        found = make(ledger, target, step=measure_replay(run, target, steps=steps, data=data))
    obstacles = (*found.forecast.obstacles, *machine)
    if json:
        print_json(_json(found, obstacles))
    else:
        print(visible("\n".join(_lines(found, obstacles))))
    if obstacles:
        raise typer.Exit(1)


def _elsewhere(found: "Plan", run: Path, data: Path | None) -> tuple[str, ...]:
    """What is otherwise here than where the run was recorded: then a replay arrives at other bits, or at none."""
    from explorer import records, rundir
    from explorer.data.sources import load
    from explorer.errors import ExplorerError
    from explorer.records import RunRecord
    from explorer.training.deletion import IMMATERIAL
    from explorer.training.replay import elsewhere
    from explorer.training.run import recipe_of

    if not (run / rundir.RUN).exists():
        return ()
    record = records.read(RunRecord, run / rundir.RUN)
    differing = [each for each in elsewhere(run, record) if each.what not in IMMATERIAL]
    words = [f"{each.what}: {each.recorded} when it was recorded, {each.here} here" for each in differing]
    try:
        dataset = recipe_of(record).dataset
        load(dataset, data)
        if dataset.digest(data) != record.identity["data"]:
            words.append(f"the data of {record.dataset} is not what the run was given")
    except (ExplorerError, KeyError) as error:
        words.append(f"the data of {record.dataset} cannot be read: {error}")
    return tuple(words)


def _json(found: "Plan", obstacles: tuple[str, ...]) -> dict[str, Any]:
    from dataclasses import asdict

    from explorer.deletion.plan import LEVELS

    forecast, reach = found.forecast, asdict(found.forecast.reach)
    for name in ("slots", "batch", "target"):  # a number for each step; what is said elsewhere
        del reach[name]
    return {
        "run": found.run,
        "target": asdict(found.target),
        "level": None if obstacles else forecast.route.level,
        "obstacles": obstacles,
        "reach": {**reach, "in_slots": sum(forecast.reach.slots)},
        "route": asdict(forecast.route),
        "time": asdict(forecast.time),
        "cost": None if found.cost is None else asdict(found.cost),
        "beyond": [asdict(each) for each in found.beyond],
        "levels": LEVELS,
    }


def _lines(found: "Plan", obstacles: tuple[str, ...]) -> list[str]:
    from explorer.deletion.plan import LEVELS

    route = found.forecast.route
    lines = [f"{found.run}: deleting {found.target.words}"]
    if obstacles:
        lines += [f"  NOT POSSIBLE here and now; it would be {route.level}:"]
        lines += [f"    {each}" for each in obstacles]
    else:
        lines.append(f"  {route.level}, {LEVELS[route.level]}")
    lines += _reach(found)
    if route.level == "G3":
        source = f"the checkpoint of step {route.start}" if route.start else "the initial state"
        lines.append(f"  to replay: {route.steps} steps, from {source}")
    elif route.dropped:
        lines.append(f"  to drop: {', '.join(route.dropped)}; nothing is trained")
    else:
        lines.append("  to drop: nothing, for it reached nothing")
    lines.append(f"  time: {time_words(found.forecast.time)}")
    lines.append(f"  cost: {_cost(found)}")
    lines.append("  not reached:")
    lines += [f"    {each.what}: {each.detail}" for each in found.beyond]
    lines.append("  less than that is no deletion:")
    return [*lines, *(f"    {name}: {LEVELS[name]}" for name in ("G0", "G1"))]


def _reach(found: "Plan") -> list[str]:
    reach = found.forecast.reach
    if reach.first is None:
        return ["  it reached nothing: no layer admitted it, and nothing was decided by it"]
    lines = [f"  it could have moved something from step {reach.first} on; it trained in {reach.trained} steps"]
    if reach.unrecorded:
        lines.append(
            f"  steps before {reach.unrecorded} are in another ledger: there it reached what the policy admits"
        )
    if reach.shared:
        lines.append(f"  shared layers: {_some(reach.shared)}")
    for name, others in reach.regions.items():
        lines.append(f"  sealed region {name}: {'its own' if not others else 'with ' + ', '.join(others)}")
    if reach.probed:
        lines.append("  a method decides by probes of its class, and it may be one of them")
    for each in reach.channels:
        lines.append(f"  entry {each.entry}, step {each.step}: {each.action} over {', '.join(each.over)}")
    return lines


def _some(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)}: {', '.join(names[:SHOWN])}{more}"


def time_words(time: "Time") -> str:
    """How long, with its interval, and how that is known."""
    if time.seconds is None:
        return f"not known: {time.words}"
    interval = "" if time.low is None or time.high is None else f" ({_span(time.low)} to {_span(time.high)})"
    return f"{_span(time.seconds)}{interval}, with starting and evaluation; {time.words}"


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} minutes"


def _cost(found: "Plan") -> str:
    if found.cost is None:
        return "no price for this hardware"
    if found.cost.usd is None:
        return "not known, like the time"
    low, high = found.cost.low, found.cost.high
    price = visible(price_words(found.cost.price, hardware="", today=today()))
    interval = "" if low is None or high is None else f" (${low:.3g} to ${high:.3g})"
    return f"${found.cost.usd:.3g}{interval} at {price}"

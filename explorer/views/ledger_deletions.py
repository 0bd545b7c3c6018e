"""What deleting each class of a run takes, as a table beside its ledger."""

from markupsafe import Markup

from explorer.runlog.forecast import Forecast, forecast_of
from explorer.runlog.presence import Presence
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.views import text
from explorer.views.tables import Column, Row, table, with_note

COLUMNS = (
    Column(title="Class"),
    Column(title="Level"),
    Column(title="First influence", number=True),
    Column(title="Steps to replay", number=True),
    Column(title="Time", number=True),
)
WAYS = {"G2": "exact by structure", "G3": "exact by replay"}
NOTE = (
    "G2: its sealed region is dropped, and nothing is trained. G3: training goes on without it from the newest state "
    "that it had not moved. Times are forecasts of the whole command. "
)


def deletions_table(run: RunLedger) -> Markup:
    """A row for each class that the run did not leave out. Raises as `explorer.runlog.forecast` does."""
    presence = Presence(run)
    classes = [path for path in run.genesis.classes if path not in presence.absent.classes]
    found = {path: forecast_of(presence, Target(classes=(path,))) for path in classes}
    obstacles = sorted({each for forecast in found.values() for each in forecast.obstacles})
    rows = [Row(cells=_cells(path, each), quiet=bool(each.obstacles)) for path, each in found.items()]
    said = [Markup('<p class="x-note">{}<code>explorer delete plan</code> says more.</p>').format(NOTE)]
    said += [Markup('<p class="x-note x-warn">Not possible here and now: {}</p>').format(each) for each in obstacles]
    return table(COLUMNS, rows) + Markup("").join(said)


def _cells(path: str, found: Forecast) -> tuple[str | Markup, ...]:
    route, time = found.route, found.time
    interval = "" if time.low is None else f"{text.seconds(time.low)} to {text.seconds(time.high)}"
    return (
        path,
        with_note(route.level, WAYS[route.level]),
        "none" if found.reach.first is None else f"step {found.reach.first:,}",
        f"{route.steps:,}",
        with_note("not measured" if time.seconds is None else text.seconds(time.seconds), interval),
    )

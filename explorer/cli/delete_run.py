"""`explorer delete run`: make the run that never had a target, and certify it where nobody else is asked first."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from explorer.cli.credentials import clock, provide_passphrase
from explorer.cli.delete_certify import Expires, Private, conclude_and_print
from explorer.cli.delete_plan import AuthorityName, Class, Records, time_words
from explorer.cli.output import from_here, print_json, visible
from explorer.cli.progress import step_bar
from explorer.cli.settings import Data, Json, OwnLoop
from explorer.cli.trace import RunDirectory
from explorer.errors import ProvenanceError, RunError, unknown

if TYPE_CHECKING:
    from explorer.deletion.plan import Plan
    from explorer.provenance.trust import Trust
    from explorer.runlog.forecast import Route
    from explorer.runlog.run_ledger import RunLedger

MAX_REQUEST = 2**20
LEVELS = ("G2", "G3")


def run(
    run: RunDirectory,
    class_: Class = None,
    record: Records = None,
    authority: AuthorityName = None,
    level: Annotated[
        str | None, typer.Option("--level", metavar="G2|G3", help="Default: the one that takes less.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where the new run goes. Default: deletions/ among the runs."),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="TEXT|FILE", help="The request that is answered: only a commitment is kept."),
    ] = None,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="TRUST", help="Whom to believe. Default: the run's own copy.")
    ] = None,
    expires: Expires = None,
    governance: Private = None,
    data: Data = None,
    loop: OwnLoop = None,
    json: Json = False,
) -> None:
    """Make the run that never had some examples out of one that had them, with a certificate that strangers can check.

    Interrupted, the same command goes on where it was. The old run stays: what of it is to be destroyed is listed.
    """
    from explorer import rundir
    from explorer.deletion.case import open_whole
    from explorer.deletion.plan import plan
    from explorer.deletion.request import keep_request
    from explorer.project import runs_of
    from explorer.provenance.trust import read_trust
    from explorer.runlog.documents import TRAINER_FILE, source_of, trainer_key
    from explorer.runlog.run_ledger import RunLedger
    from explorer.runlog.target import SWEEP, resolve

    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, authority=authority, records=record or ())
    found = plan(ledger, target)
    route = _route(found, ledger, level, loop=loop)
    if not json:
        print(visible("\n".join(_planned(found, route, run))), flush=True)
    text = _text(request) if request is not None else f"delete {target.words}"
    provide_passphrase((Path(source_of(run).private) if governance is None else governance) / TRAINER_FILE)
    trust = trust or run / rundir.GOVERNANCE / "trust.json"
    believed, now = read_trust(trust), clock()
    trainer_key(run, trust=believed, now=now, private=governance)  # what can be refused is, before hours of training
    open_whole(run, papers=run, trust=believed, now=now)

    from explorer.training.deletion import delete
    from explorer.training.govern import load_loop

    with step_bar("deletion") as show:
        new = delete(
            run,
            target,
            route=route,
            to=out or runs_of(run) / SWEEP,
            data=data,
            private=governance,
            on_progress=show,
            loop=None if loop is None else load_loop(loop),
        )
    keep_request(new, text)
    if _waits(new, believed):
        _print_waiting(run, new, trust, route, json=json)
    else:
        conclude_and_print(
            run, new, trust=trust, expires=expires, private=governance, not_reached=found.beyond, json=json
        )


def _waits(new: Path, trust: "Trust") -> bool:
    """Whether others have to cosign the new ledger, and none of them has begun to."""
    from explorer import rundir
    from explorer.ledger.verify import WITNESS
    from explorer.provenance.roles import Role

    others = any(count for role, count in trust.quorum.checkpoints.items() if role is not Role.TRAINER)
    return others and not any((new / rundir.LEDGER / WITNESS).glob("*"))


def _print_waiting(old: Path, new: Path, trust: Path, route: "Route", *, json: bool) -> None:
    """The new run is finished. Nobody calls it a deletion yet."""
    from explorer import rundir

    here = from_here(new)
    cosign = f"explorer ledger cosign {here / rundir.LEDGER} --key KEY --trust {trust}"
    certify = f"explorer delete certify {here} --old {old} --trust {trust}"
    if json:
        made = {"run": new.name, "directory": str(new), "level": route.level}
        print_json({**made, "deleted": False, "certificate": None, "next": [cosign, certify]})
        return
    lines = [
        f"{new.name}: made, and not certified yet: {here}",
        "  the trust file asks others to cosign its ledger first; each of them, and then you:",
        *(f"    {each}" for each in (cosign, certify)),
    ]
    print(visible("\n".join(lines)))


def _route(found: "Plan", ledger: "RunLedger", level: str | None, *, loop: str | None) -> "Route":
    """The way to go. Raises `RunError` for one that there is not."""
    from explorer.runlog.forecast import NO_CODE, obstacles, replay_route
    from explorer.runlog.influence import Presence

    if level not in (None, *LEVELS):
        raise RunError(f"--level: {unknown('level', level or '', LEVELS)}; below G2 nothing is deleted")
    forecast = found.forecast
    if level == "G2" and forecast.route.level == "G3":
        raise RunError(
            f"--level G2: {found.target.words} reached more than sealed regions of its own;"
            " `explorer delete plan` says what; G3 is available"
        )
    route, hindering = forecast.route, forecast.obstacles
    if level == "G3" and forecast.reach.first is None:
        raise RunError(
            f"--level G3: {found.target.words} reached nothing in the run: nothing is to replay; G2 is available"
        )
    if level == "G3" and route.level == "G2":
        route = replay_route(ledger, forecast.reach)
        hindering = obstacles(Presence(ledger), forecast.reach, level="G3")
    if loop is not None:
        hindering = tuple(each for each in hindering if each != NO_CODE)
    if hindering:
        raise RunError(f"{found.run}: cannot be done here and now: {'; '.join(hindering)}")
    return route


def _text(request: str) -> str:
    """What was asked for: the content of a file, or the words themselves."""
    from explorer.rundir import read_bytes

    try:
        path = Path(request)
        if not path.is_file():
            return request
    except (OSError, ValueError):  # too long for a name, or with a zero in it
        return request
    try:
        return read_bytes(path, max_bytes=MAX_REQUEST, error=ProvenanceError).decode()
    except UnicodeDecodeError as error:
        raise ProvenanceError(f"{path}: a request is UTF-8 text") from error


def _planned(found: "Plan", route: "Route", run: Path) -> list[str]:
    from explorer.runlog.forecast import time_of

    lines = [f"{found.run}: {found.target.words}"]
    if route.level == "G2":
        lines.append(f"  G2, exact by structure: without {', '.join(route.dropped) or 'anything'}, nothing is trained")
        return lines
    time = time_of(run, route)
    lines.append(f"  G3, exact by replay: {route.steps} steps, from step {route.start} on")
    return [*lines, f"  time: {time_words(time)}"]

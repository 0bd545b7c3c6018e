"""`explorer delete run`: make the run that never had a target, and the certificate of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from explorer.cli.credentials import clock, provide_passphrase
from explorer.cli.delete_plan import AuthorityName, Class, Records, time_words
from explorer.cli.output import print_json, visible
from explorer.cli.progress import step_bar
from explorer.cli.settings import Data, Json
from explorer.cli.trace import RunDirectory
from explorer.errors import ExplorerError, ProvenanceError, RunError, unknown

if TYPE_CHECKING:
    from explorer.deletion.conclude import Concluded
    from explorer.deletion.plan import Plan
    from explorer.recorded.forecast import Route
    from explorer.recorded.run_ledger import RunLedger

MAX_REQUEST = 2**20
YEAR = 365 * 86_400
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
        typer.Option("--out", metavar="DIR", help="Where the new run directory goes. Default: deletions/."),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="TEXT|FILE", help="The request that is answered: only a commitment is kept."),
    ] = None,
    trust: Annotated[
        Path | None, typer.Option("--trust", metavar="TRUST", help="Whom to believe. Default: the run's own copy.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Of the certificate. Default: a year from now.")
    ] = None,
    governance: Annotated[
        Path | None,
        typer.Option("--governance", metavar="DIR", help="Where the run's salts and the trainer's key are now."),
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make the run that never had some examples out of one that had them, with a certificate that strangers can check.

    Interrupted, the same command goes on where it was. The old run stays: what of it is to be destroyed is listed.
    """
    from explorer import rundir
    from explorer.deletion.case import open_whole
    from explorer.deletion.conclude import conclude
    from explorer.deletion.plan import plan
    from explorer.project import runs_of
    from explorer.provenance.times import format_time
    from explorer.provenance.trust import read_trust
    from explorer.recorded.counterfactual import SWEEP
    from explorer.recorded.run_ledger import RunLedger
    from explorer.recorded.source import TRAINER, source_of, trainer_key
    from explorer.recorded.target import resolve

    ledger = RunLedger(run)
    target = resolve(ledger, class_=class_, authority=authority, records=record or ())
    found = plan(ledger, target)
    route = _route(found, ledger, level)
    if not json:
        print(visible("\n".join(_planned(found, route, run))), flush=True)
    text = _text(request) if request is not None else f"delete {target.words}"
    private = Path(source_of(run).private) if governance is None else governance
    provide_passphrase(private / TRAINER)
    believed, now = read_trust(trust or run / rundir.GOVERNANCE / "trust.json"), clock()
    name, key = trainer_key(run, trust=believed, now=now, private=private)  # all that can be refused is, before
    open_whole(run, papers=run, trust=believed, now=now)  # hours of training

    from explorer.recipes.deletion import delete

    with step_bar("deletion") as show:
        new = delete(
            run,
            target,
            route=route,
            to=out or runs_of(run) / SWEEP,
            data=data,
            private=governance,
            on_progress=show,
        )
    try:
        done = conclude(
            run,
            new,
            name=name,
            key=key,
            trust=believed,
            now=now,
            expires=expires or format_time(now + YEAR),
            request=text,
            not_reached=found.beyond,
        )
    except ExplorerError as error:
        raise type(error)(
            f"{error}\n{new}: finished, and not certified; once that is mended (cosignatures: `explorer ledger cosign"
            f" {new / rundir.LEDGER}`), the same command certifies it"
        ) from error
    if json:
        print_json(_json(done, new))
    else:
        print(visible("\n".join(_done(done, new))))


def _route(found: "Plan", ledger: "RunLedger", level: str | None) -> "Route":
    """The way to go. Raises `RunError` for one that there is not."""
    from explorer.recorded.forecast import replay_route

    if level not in (None, *LEVELS):
        raise RunError(f"--level: {unknown('level', level or '', LEVELS)}; below G2 nothing is deleted")
    forecast = found.forecast
    if level == "G3" and forecast.route.level == "G2":
        return replay_route(ledger, forecast.reach)
    if level == "G2" and forecast.route.level == "G3":
        raise RunError(
            f"--level G2: {found.target.words} reached more than sealed regions of its own;"
            " `explorer delete plan` says what; G3 is available"
        )
    if forecast.obstacles:
        raise RunError(f"{found.run}: cannot be done here and now: {'; '.join(forecast.obstacles)}")
    return forecast.route


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
    from explorer.recorded.forecast import time_of

    lines = [f"{found.run}: {found.target.words}"]
    if route.level == "G2":
        lines.append(f"  G2, exact by structure: without {', '.join(route.dropped) or 'anything'}, nothing is trained")
        return lines
    time = time_of(run, route)
    lines.append(f"  G3, exact by replay: {route.steps} steps, from step {route.start} on")
    return [*lines, f"  time: {time_words(time)}"]


def _done(done: "Concluded", new: Path) -> list[str]:
    """What came out, what is to be destroyed, what was not reached."""
    from explorer.deletion.conclude import CERTIFICATE, DESTROY
    from explorer.provenance.deletion_certificate import UNREACHED

    value, files = done.certificate.value, done.destroy.files
    lines = [
        f"{new.name}: {value.level}, deleted. {value.means}",
        f"  {new}",
        f"  certificate: {new / CERTIFICATE}, entry {done.entry} of the project's ledger",
        f"  to be destroyed by you, of {done.destroy.run}: {len(files)} files, listed in {new / DESTROY}",
        "  never ship both models: their difference is what was deleted",
        "  not reached:",
    ]
    return [*lines, *(f"    {each.what}: {UNREACHED[each.what]}" for each in value.not_reached)]


def _json(done: "Concluded", new: Path) -> dict[str, Any]:
    from explorer.deletion.conclude import CERTIFICATE
    from explorer.schema import to_json

    value = done.certificate.value
    return {
        "run": new.name,
        "directory": str(new),
        "level": value.level,
        "deleted": True,  # a certificate that does not verify is never written
        "certificate": {"file": str(new / CERTIFICATE), "digest": done.certificate.digest},
        "entry": done.entry,
        "not_reached": [to_json(each) for each in value.not_reached],
        "to_destroy": to_json(done.destroy)["files"],
    }

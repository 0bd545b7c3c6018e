"""`explorer run-at`: execute runs of a sweep that is published at a place; what every scheduler calls."""

import json as json_module
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.errors import PlaceError
from explorer.page.terminal import visible
from explorer.place.leases import LEASE
from explorer.sweep.run_at import FAILED, Ended, Worker, profile_at, run_any, run_at, run_of_index
from explorer.sweep.work import check_engine, close_engines

REFUSED = (*FAILED, "not here")
AGAIN = 75
"""The exit status of a call that has to be made again (`EX_TEMPFAIL` of sysexits.h)."""


def run_at_(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A directory, or s3://, gs:// or az:// and a path.")],
    run: Annotated[str | None, typer.Option("--run", metavar="ID", help="Execute this run.")] = None,
    index: Annotated[
        int | None,
        typer.Option("--index", min=0, metavar="N", help="Execute the run at this place of the plan, from 0."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="NAME",
            help="Count --index in the runs for this hardware, and --profile it. Default: the only class of the sweep.",
        ),
    ] = None,
    claim: Annotated[
        bool, typer.Option("--claim", help="Execute the runs that are missing, one after another, until none is free.")
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Measure the step times of all recipes, unless that is done.")
    ] = False,
    commands: Annotated[
        bool,
        typer.Option(
            "--commands",
            help="Execute commands and notebooks that the place brings: who can write there runs programs here.",
        ),
    ] = False,
    data: options.Data = None,
    engine: options.Engine = "warm",
    lease: Annotated[
        float,
        typer.Option(
            min=1, metavar="SECONDS", help="How long others wait for this worker, if it is lost, to take over."
        ),
    ] = LEASE,
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory on a local disk for runs in progress. Default: TMPDIR."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what every run came to as lines of JSON.")] = False,
) -> None:
    """Execute runs of a sweep that is published at a place: claim, train in a local directory, publish.

    Safe to call any number of times, on any number of machines at once. A run that was interrupted continues from its
    newest published checkpoint. SIGTERM and SIGUSR1 publish a checkpoint and end. The exit status is 0 if nothing is
    left to do, 75 if the call has to be made again later, and 1 if a run failed for good.
    """
    if [run is not None, index is not None, claim, profile].count(True) != 1:
        raise PlaceError("expected one of --run ID, --index N, --claim and --profile")
    if name is not None and index is None and not profile:
        raise PlaceError("--class: found without --index or --profile; a worker claims runs of its own class only")
    worker = Worker(
        place=place, data=data, engine=check_engine(engine), commands=commands, lease=lease, scratch=scratch
    )
    states: set[str] = set()

    def tell(ended: Ended) -> None:
        states.add(ended.state)
        if json:
            print(json_module.dumps(asdict(ended)), flush=True)
            return
        words = f"{ended.run_id}: {ended.state}{': ' if ended.message else ''}{ended.message}"
        print(visible(words), file=sys.stderr if ended.state in REFUSED else sys.stdout, flush=True)

    try:
        if claim:
            missing = run_any(worker, on_end=tell)
            # A run that was held elsewhere may be done now.
            states = (states - {"elsewhere"}) | ({"later"} if missing else set())
        elif profile:
            if (measured := profile_at(worker, name=name)) is not None:
                tell(measured)
        elif (run_id := run if run is not None else run_of_index(place, index or 0, name=name)) is not None:
            tell(run_at(worker, run_id))
    finally:
        close_engines()
    if states & set(REFUSED):
        raise typer.Exit(1)
    if states & {"later", "full disk", "preempted", "elsewhere"}:
        raise typer.Exit(AGAIN)

"""`explorer sweep jobs`: publish a sweep, and write files by which a scheduler executes it without a driver."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from explorer import rundir
from explorer.cli import options
from explorer.cli.signing import provide_passphrase
from explorer.errors import SweepError
from explorer.page.progress import tell_rehearsal
from explorer.sweep.at_place import at_place, publish
from explorer.sweep.chosen import is_tuned
from explorer.sweep.job_files import Jobs, job_files
from explorer.sweep.plan import make_plan
from explorer.sweep.spec import load_spec


def jobs(
    spec: options.Spec,
    to: Annotated[str, typer.Option("--for", metavar="SCHEDULER", help="slurm or kubernetes.")],
    at: options.PlaceUrl,
    runs: options.Runs = options.RUNS,
    data: options.Data = None,
    at_once: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Jobs at the same time. Default: as many as are started.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="Image of a container with explorer, for kubernetes.")
    ] = None,
    remote_data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Directory of the datasets on the workers.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the file here. Default: print it.")] = None,
) -> None:
    """Publish a sweep at a place, and write a file that lets a scheduler execute it without any process here.

    The file is an array of `explorer run-at PLACE --index N`: read it, edit it, submit it. At any time, `explorer sweep
    run SPEC --at PLACE` follows, and brings results back. A sweep for several classes of machines has an array for
    each: for Slurm in a file of its own, with the class in its name, for Kubernetes in one file.
    """
    asked = load_spec(spec)
    if not is_tuned(asked, runs / asked.name):
        raise SweepError(f"{asked.source}: it is not tuned yet; first: explorer tune {shlex.quote(str(spec))}")
    planned = at_place(make_plan(asked, runs=runs, data=data, on_rehearse=tell_rehearsal))
    wanted = [
        Jobs(
            sweep=own.spec.name,
            place=at if "://" in at else str(Path(at).resolve()),
            runs=len(own.runs),
            hardware=own.runs[0].record.hardware,
            label=own.target.machine.label if planned.others else None,
            at_once=at_once,
            image=image,
            data=remote_data,
            commands=own.spec.command is not None,
        )
        for own in planned.classes
    ]
    files = job_files(to, wanted)  # before anything is published: they may be refused
    if out is None and len(files) > 1:
        raise SweepError(f"--out: missing: {len(files)} classes of machines have a file each; expected a name for them")
    for path in {run.documents.trainer for run in planned.runs if run.documents is not None}:
        provide_passphrase(path)
    publish(planned, at, profile=planned.classes)
    if waiting := sum(len(own.waiting) for own in planned.classes):
        print(f"{waiting} controls wait for step times: `explorer sweep run --at` adds them", file=sys.stderr)
    for label, content in files.items():
        if out is None:
            print(content, end="")
            continue
        path = out if label is None else out.with_name(f"{out.stem}.{label}{out.suffix}")
        rundir.write_bytes(path, content.encode())
        runs_in = sum(jobs.runs for jobs in wanted if label in (None, jobs.label))
        print(f"{path}: {runs_in} runs at {at}")

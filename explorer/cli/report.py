"""`explorer report`: the report of a sweep, or the governance report of a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import RUNS, Runs
from explorer.cli.results import tell_upkeep
from explorer.errors import ExplorerError, RunError
from explorer.report.run_report import page_of, write_run_report
from explorer.report.sweep_report import write_sweep_report
from explorer.rundir import LEDGER
from explorer.store.upkeep import refuse_gone
from explorer.views.ledger.open_run import find_run, governed_runs


class ReportFormat(StrEnum):
    """The format of a report. Croissant describes the dataset of a run."""

    HTML = "html"
    PDF = "pdf"
    MD = "md"
    JSON = "json"
    CROISSANT = "croissant"


def report(
    name: Annotated[
        str, typer.Argument(metavar="RUN|SWEEP", help="The directory or the id of a governed run, or a sweep's name.")
    ],
    format: Annotated[
        ReportFormat, typer.Option("--format", help="Output format; croissant describes the dataset of a run.")
    ] = ReportFormat.HTML,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write.")] = None,
    trust: Annotated[
        Path | None,
        typer.Option(
            "--trust",
            metavar="TRUST",
            help="Trust file for the report of a run. Default: none, and nothing is verified.",
        ),
    ] = None,
    runs: Runs = RUNS,
) -> None:
    """Write the report of a sweep, or the governance report of one run, and print where it is. Both work offline.

    Of a sweep: the answer, curves, recipes at equal quality and budget, controls, negative results, how it was
    measured. Of a run: what trained what, who vouched, policy and decisions, deletability, integrity, what regulators
    ask, and the entries of the ledger behind every figure.
    """
    run = None if (runs / name).is_dir() and not (runs / name / LEDGER).is_dir() else _governed(runs, name)
    print(_of_sweep(runs, name, format, out, trust) if run is None else _of_run(run, format, out, trust))


def _of_run(run: Path, format: ReportFormat, out: Path | None, trust: Path | None) -> Path:
    path = out or page_of(run, format=format.value)
    with _elsewhere(path, named=out is not None):
        write_run_report(run, path, trust=trust, format=format.value)
    return path


def _of_sweep(runs: Path, sweep: str, format: ReportFormat, out: Path | None, trust: Path | None) -> Path:
    if trust is not None:
        raise ExplorerError(f"--trust is for the report of a governed run, and {sweep!r} is none in {runs}")
    tell_upkeep(runs)
    refuse_gone(runs, sweep)
    path = out or runs / sweep / f"report.{format}"
    with _elsewhere(path, named=out is not None):
        write_sweep_report(runs, sweep, path, format=format.value)
    return path


@contextmanager
def _elsewhere(path: Path, *, named: bool) -> Iterator[None]:
    """Suggest --out where the default place, the directory that the report is about, is read-only."""
    try:
        yield
    except RunError as error:
        if named or not str(error).startswith(f"cannot write {path}"):
            raise
        raise RunError(f"{error}; name another place with --out FILE") from error


def _governed(runs: Path, name: str) -> Path | None:
    """Return the governed run of this name; None if there is none, and the name can only be a sweep's."""
    if (Path(name) / LEDGER).is_dir():
        return Path(name)
    known = governed_runs(runs) if runs.is_dir() else {}
    return find_run(runs, name) if any(name in (key, path.name) for key, path in known.items()) else None

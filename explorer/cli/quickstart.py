"""`explorer quickstart`: the main job on embedded real data."""

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import notebooks, sweep
from explorer.cli.settings import RUNS, Runs


def register(app: typer.Typer) -> None:
    app.command()(quickstart)


def quickstart(
    runs: Runs = RUNS,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, metavar="N", help="Runs side by side. Default: one for each core.")
    ] = None,
) -> None:
    """Train five recipes on real handwriting at five budgets and three seeds; show which is as good for less.

    Takes a few minutes, needs no data and no network. Started again, it runs only what is missing.
    """
    from explorer.sweep.plan import make_plan
    from explorer.sweep.spec import load_spec

    spec = notebooks.notebook_directory() / "sweeps" / "digits.yaml"
    planned = make_plan(load_spec(spec), runs=runs)
    _announce(len(planned.runs), len(planned.missing))
    summary = sweep.execute(planned, runs=runs, engine="warm", workers=workers, profile=True, json=False)
    sweep.finish(summary, json=False)
    show(runs, planned.spec.name)
    _what_next(runs, spec)


def show(runs: Path, name: str) -> None:
    """The equal-quality table in the terminal, and the HTML report."""
    from explorer.cli.answer import print_answer
    from explorer.report.sweep_report import write_sweep_report

    print_answer(runs, name)
    page = runs / name / "report.html"
    write_sweep_report(runs, name, page)
    print(f"the curves: {page.resolve().as_uri()}")


def _announce(total: int, missing: int) -> None:
    done = f", {total - missing} of them done already" if missing < total else ""
    print(f"{total} runs on handwritten digits (scikit-learn){done}", flush=True)


def _what_next(runs: Path, spec: Path) -> None:
    option = "" if runs == RUNS else f" --runs {runs}"
    print(
        "\nwhat to type next\n"
        f"  explorer open explore{option}        the curves as a notebook: choose axes, baseline, target, prices\n"
        f"  explorer results digits{option}      every run; --format csv, md or parquet to take it along\n"
        f"  explorer sweep plan {_relative(spec)}    the specification behind it: copy it, change it, run it\n"
        "  explorer methods                   what a recipe can be made of"
    )


def _relative(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path

"""`explorer sweep prune`: remove the runs that an earlier specification left behind."""

from pathlib import Path
from typing import Annotated

import typer

from explorer.cli.options import RUNS, Runs
from explorer.errors import SweepError
from explorer.page.terminal import Answer, table
from explorer.planned import read_plan
from explorer.store.ingest import ingest
from explorer.sweep.prune import plan_pruning, size_of
from explorer.sweep.prune import prune as remove
from explorer.yaml_document import read_document


def prune(
    sweep: Annotated[str, typer.Argument(metavar="SPEC|NAME", help="A sweep: its specification, or its name.")],
    named: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Only these runs. Governed runs are removed only when named."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them. Default: only list them.")] = False,
    runs: Runs = RUNS,
) -> Answer:
    """List the runs that an earlier specification of a sweep left behind, or remove them with --yes.

    The plan that the sweep was last started with decides. A run that others rest on is kept: the parent of a ledger or
    a deletion, one that the project's ledger is about, one with an attested model or a confirmed recipe, one in
    progress.
    """
    name = _name_of(sweep, runs=runs)
    pruning = plan_pruning(runs, name, named=named or ())
    sizes = {path.name: size_of(path) for path in pruning.removable}
    if yes:
        pruning = remove(runs, name, named=named or ())
        ingest(runs)
    done = [path.name for path in pruning.removable]
    sizes = {run: sizes.get(run, 0) for run in done}
    rows = [(run, f"{sizes[run] / 1e6:,.1f}") for run in done]
    whole = f"{len(done)} run directories of {name}, {sum(sizes.values()) / 1e6:,.1f} MB"
    end = f"{whole}: removed" if yes else f"{whole}: --yes removes them"
    return Answer(
        page=lambda: [
            *([table(("removed" if yes else "run", "MB"), rows, right=("MB",))] if rows else []),
            *(f"kept: {each.directory.name}: {each.reason}" for each in pruning.kept),
            end if rows else f"nothing to remove from {name}",
        ],
        record=lambda: {
            "name": name,
            "removed": yes,
            "runs": done,
            "bytes": sum(sizes.values()),
            "kept": [{"run_id": each.directory.name, "reason": each.reason} for each in pruning.kept],
        },
    )


def _name_of(sweep: str, *, runs: Path) -> str:
    """Return the name of a sweep, named directly or by the specification that it was last started with."""
    path = Path(sweep)
    if path.suffix not in (".yaml", ".yml"):
        return sweep
    content = read_document(path).value
    name = content.get("name") if isinstance(content, dict) else None
    if not isinstance(name, str) or Path(name).name != name:
        raise SweepError(f"{path}: found the name {name!r:.80}; expected that of a sweep in {runs}")
    if read_plan(runs / name)["spec"] != content:
        raise SweepError(
            f"{path}: not what {name} was last started with, so what it leaves out is not settled:"
            f" start it with `explorer sweep run {path}`, or give the name instead: `explorer sweep prune {name}`"
        )
    return name

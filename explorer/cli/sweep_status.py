"""`explorer sweep status`: the state of a sweep, from its files: it needs no recipe code, and therefore no torch."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from explorer.cli import options
from explorer.page.amounts import busy_words
from explorer.page.document import Block
from explorer.page.progress import duration
from explorer.page.terminal import Answer, table
from explorer.place.place_status import PlaceStatus, place_status
from explorer.place.published_sweep import Published
from explorer.planned import left_out_words
from explorer.sweep.commands.command_task import is_command
from explorer.sweep.profiles import busy_reasons, read_profiles
from explorer.sweep.status import SweepStatus, sweep_status
from explorer.yaml_document import read_document


def status(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    at: Annotated[
        str | None, typer.Option("--at", metavar="PLACE", help="Show the sweep that is published at this place.")
    ] = None,
) -> Answer:
    """Show the state of a sweep: runs done, running, diverged, failed, set aside, interrupted, planned, by recipe.

    With `--at`: which worker holds which run since when, what was lost, and what is to be done.
    """
    if at is not None:
        return _at(at)
    # The specification may be damaged by now, and the state of its runs can be shown all the same.
    content = read_document(spec).value
    name = content.get("name") if isinstance(content, dict) else None
    progress = sweep_status(runs / str(name), content=content if isinstance(content, dict) else None)
    profiles = read_profiles(progress.directory)
    busy = busy_reasons(profiles, progress.recipes)
    # A command is timed in every run; it has no step times.
    timed = isinstance(content, dict) and is_command(content)
    profiled = timed or progress.recipes <= profiles.keys()
    return Answer(
        page=lambda: _page(progress, spec, busy=busy, profiled=profiled),
        record=lambda: {
            "name": progress.name,
            "active": progress.active,
            "spec_changed": progress.spec_changed,
            "profiled": profiled,
            "busy_profile": list(busy),
            "counts": progress.counts,
            "waiting": progress.waiting,
            "may_add": progress.may_add,
            "not_run": [{"name": name, "reason": reason} for name, reason in progress.not_run],
            "superseded": list(progress.superseded),
            "runs": [
                {"run_id": r.run_id, "recipe": r.recipe, "ssr": r.ssr, "seed": r.seed, "state": r.state}
                | ({"control": r.control} if r.control else {})
                | ({"message": r.message} if r.message else {})
                for r in progress.runs
            ],
        },
    )


def _page(progress: SweepStatus, spec: Path, *, busy: Sequence[str], profiled: bool) -> Iterator[Block | str]:
    counted: dict[str, dict[str, int]] = {}
    for item in progress.runs:
        states = counted.setdefault(label(item.recipe, item.control), {})
        states[item.state] = states.get(item.state, 0) + 1
    columns = tuple(progress.counts)
    rows = [(recipe, *(states.get(state, 0) or None for state in columns)) for recipe, states in counted.items()]
    yield table(("recipe", *columns), rows, right=columns)
    yield f"sweep {progress.name}: {'running now' if progress.active else 'not running'}"
    if not profiled:
        yield "step times are not measured yet"
    if words := busy_words(busy, again=f"explorer sweep profile {spec}"):
        yield words
    if progress.spec_changed:
        yield f"the specification has changed since the sweep was started: see `explorer sweep plan {spec}`"
    if progress.waiting:
        yield f"up to {progress.waiting} more control runs, whose budgets follow from the profile"
    if progress.may_add:
        yield f"up to {progress.may_add} more seeds, as these runs decide: see `explorer sweep plan {spec}`"
    for name, reason in progress.not_run:
        yield f"not run: {name}: {reason}"
    if words := left_out_words(len(progress.superseded), progress.name):
        yield words
    for item in progress.runs:
        if item.message:
            yield f"  {item.run_id}: {item.state}: {item.message}"


def _at(place: str) -> Answer:
    now = time.time()
    here = place_status(Published.at(place), now=now)
    return Answer(page=lambda: _place_page(here, now), record=lambda: asdict(here))


def _place_page(here: PlaceStatus, now: float) -> Iterator[Block | str]:
    if here.active:
        rows = [(claim.run_id, claim.host, duration(now - claim.begun)) for claim in here.active]
        yield table(("run", "host", "since"), rows, right=("since",))
    yield f"sweep {here.sweep}, for {here.machine}: {here.done} of {here.runs} runs done"
    hosts = len({claim.host for claim in here.active})
    yield f"{len(here.active)} in progress on {_counted(hosts, 'host')}, {len(here.lost) + here.waiting} to be claimed"
    if here.measured is False:
        yield "step times are not measured yet"
    for claim in here.lost:
        yield f"  {claim.run_id}: {claim.ending(now)} on {claim.host}: waits for a worker"
    for failure in here.failures:
        yield f"  {failure.run_id}: {failure.kind}: {failure.message}"
    for run_id in here.findings:
        yield f"  {run_id}: not reproducible: a second result differs from the first; both are in findings and results"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def label(recipe: str, control: str | None) -> str:
    """Return a recipe's name, with the control that its runs are for."""
    return f"{recipe} (control: {control.replace('-', ' ')})" if control else recipe

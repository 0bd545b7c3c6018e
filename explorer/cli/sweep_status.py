"""`explorer sweep status`: the state of a sweep, from its files: it needs no recipe code, and therefore no torch."""

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from explorer.cli import options
from explorer.costing import load_prices, own_prices
from explorer.page.amounts import busy_words
from explorer.page.document import Block
from explorer.page.progress import Redrawn
from explorer.page.terminal import Answer, is_terminal, line, table
from explorer.place.place_status import PlaceReader, PlaceStatus
from explorer.place.published_sweep import Published
from explorer.planned import data_option, left_out_words
from explorer.sweep.commands.command_task import is_command
from explorer.sweep.overview import Overview, overview_at, overview_here
from explorer.sweep.profiles import busy_reasons, read_profiles
from explorer.sweep.status import SweepStatus, sweep_status
from explorer.views.sweep.overview_blocks import (
    amount_blocks,
    amount_words,
    count_words,
    fault_words,
    host_blocks,
    overview_blocks,
    progress_blocks,
)
from explorer.yaml_document import read_document

MOST = 50  # hosts, runs in progress and faults that are shown
MOST_WATCHED = 10  # of them on a screen that is drawn again and again
EVERY = 2.0  # seconds between two looks
SHARE = 0.1  # of the time, at most, for looking


def status(
    spec: options.Spec,
    runs: options.Runs = options.RUNS,
    at: Annotated[
        str | None, typer.Option("--at", metavar="PLACE", help="Show the sweep that is published at this place.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again and again, until nothing is left to do. Ctrl-C ends it.")
    ] = False,
) -> Answer:
    """Show the state of a sweep: runs done, running, diverged, failed, set aside, interrupted, planned, by recipe.

    Which host has which run, how many runs end in an hour and when all will be done, what was spent and is to come, and
    what went wrong. With `--at` for the workers of that place: what was lost too, and results that differ.
    """
    look = partial(_here, spec, runs) if at is None else partial(_there, PlaceReader(Published.at(at)), runs)
    if watch:
        return Answer(page=lambda: _watched(look), record=lambda: look().record())
    seen = look()
    return Answer(page=seen.page, record=seen.record)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """A look at a sweep."""

    overview: Overview
    page: Callable[[], Iterator[Block | str]]
    record: Callable[[], dict[str, Any]]


def _here(spec: Path, runs: Path) -> _Seen:
    """Look at the run directories."""
    # The specification may be damaged by now, and the state of its runs can be shown all the same.
    content = read_document(spec).value
    name = content.get("name") if isinstance(content, dict) else None
    progress = sweep_status(runs / str(name), content=content if isinstance(content, dict) else None)
    profiles = read_profiles(progress.directory)
    busy = busy_reasons(profiles, progress.recipes)
    # A command is timed in every run; it has no step times.
    timed = isinstance(content, dict) and is_command(content)
    profiled = timed or progress.recipes <= profiles.keys()
    named = shlex.join((str(spec), *options.of_runs(runs), *data_option(content)))
    overview = overview_here(progress, prices=(*load_prices(), *own_prices(runs)), now=time.time())
    return _Seen(
        overview=overview,
        page=lambda: _page_here(progress, overview, named, busy=busy, profiled=profiled),
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
            "overview": asdict(overview),
        },
    )


def _page_here(
    progress: SweepStatus, overview: Overview, named: str, *, busy: Sequence[str], profiled: bool
) -> Iterator[Block | str]:
    counted: dict[str, dict[str, int]] = {}
    for item in progress.runs:
        states = counted.setdefault(label(item.recipe, item.control), {})
        states[item.state] = states.get(item.state, 0) + 1
    columns = tuple(progress.counts)
    rows = [(recipe, *(states.get(state, 0) or None for state in columns)) for recipe, states in counted.items()]
    yield table(("recipe", *columns), rows, right=columns)
    yield f"sweep {progress.name}: {'running now' if progress.active else 'not running'}"
    yield from amount_blocks(overview)
    yield from host_blocks(overview, most=MOST)
    yield from progress_blocks(overview, most=MOST)
    if not profiled:
        yield "step times are not measured yet"
    if words := busy_words(busy, again=f"explorer sweep profile {named}"):
        yield words
    if progress.spec_changed:
        yield f"the specification has changed since the sweep was started: see `explorer sweep plan {named}`"
    if progress.waiting:
        yield f"up to {progress.waiting} more control runs, whose budgets follow from the profile"
    if progress.may_add:
        yield f"up to {progress.may_add} more seeds, as these runs decide: see `explorer sweep plan {named}`"
    for name, reason in progress.not_run:
        yield f"not run: {name}: {reason}"
    if words := left_out_words(len(progress.superseded), progress.name, *options.of_runs(progress.directory.parent)):
        yield words
    for item in progress.runs:
        if item.message:
            yield f"  {item.run_id}: {item.state}: {item.message}"


def _there(reader: PlaceReader, runs: Path) -> _Seen:
    """Look at a place."""
    now = time.time()
    here = reader.look(now=now)
    overview = overview_at(here, prices=(*load_prices(), *own_prices(runs)), now=now)
    return _Seen(
        overview=overview,
        page=lambda: _page_there(here, overview),
        record=lambda: {
            "sweep": here.sweep,
            "machine": here.machine,
            "runs": len(here.plan),
            "done": len(here.done),
            "active": [asdict(claim) for claim in here.active],
            "lost": [asdict(claim) for claim in here.lost],
            "waiting": here.waiting,
            "failures": [asdict(failure) for failure in here.failures],
            "findings": list(here.findings),
            "measured": here.measured,
            "overview": asdict(overview),
        },
    )


def _page_there(here: PlaceStatus, overview: Overview) -> Iterator[Block | str]:
    yield from overview_blocks(overview, most=MOST)
    if here.measured is False:
        yield "step times are not measured yet"


# --- again and again ---


def _watched(look: Callable[[], _Seen]) -> Iterator[Block | str]:
    """Draw what is seen until nothing is left to do: in place on a terminal, and else in a line for every change."""
    show = Redrawn() if is_terminal(sys.stdout) else None
    with show or contextlib.nullcontext():
        said: set[str] = set()
        while True:
            begun = time.monotonic()
            overview = look().overview
            if show is not None:
                show.draw(overview_blocks(overview, most=MOST_WATCHED))
            else:
                yield from _lines(overview, said)
            if overview.complete:
                return
            sys.stdout.flush()  # a pipe would wait for some thousand characters
            time.sleep(max(EVERY, (time.monotonic() - begun) / SHARE))


def _lines(overview: Overview, said: set[str]) -> Iterator[str]:
    """Yield a line on the state, if it is another than before, and one for every new fault."""
    counted = count_words(overview)
    faults = [line(fault_words(fault)) for fault in overview.faults]
    for words in (counted, *faults):
        if words not in said:
            said.add(words)
            amounts = "".join(f"; {name}: {value}" for name, value in amount_words(overview).items() if name != "price")
            yield f"{time.strftime('%H:%M:%S')} {words}{amounts if words == counted else ''}"


def label(recipe: str, control: str | None) -> str:
    """Return a recipe's name, with the control that its runs are for."""
    return f"{recipe} (control: {control.replace('-', ' ')})" if control else recipe

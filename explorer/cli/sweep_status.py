"""`explorer sweep status`: which needs no recipe code, and therefore no torch."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from explorer.cli.options import RUNS, Runs, Spec
from explorer.cli.tables import table
from explorer.document import read_document
from explorer.page.amounts import busy_words
from explorer.page.document import Block
from explorer.page.terminal import Answer
from explorer.planned import left_out_words
from explorer.sweep.profiles import busy_reasons, read_profiles
from explorer.sweep.status import SweepStatus, sweep_status


def status(spec: Spec, runs: Runs = RUNS) -> Answer:
    """Show the state of a sweep: runs done, running, failed, interrupted and planned, by recipe and budget."""
    content = read_document(spec).value
    name = content.get("name") if isinstance(content, dict) else None
    found = sweep_status(runs / str(name), content=content if isinstance(content, dict) else None)
    profiles = read_profiles(found.directory)
    busy = busy_reasons(profiles, found.recipes)
    return Answer(
        page=lambda: _page(found, spec, busy=busy, profiled=found.recipes <= profiles.keys()),
        record=lambda: {
            "name": found.name,
            "active": found.active,
            "spec_changed": found.spec_changed,
            "profiled": found.recipes <= profiles.keys(),
            "busy_profile": list(busy),
            "counts": found.counts,
            "waiting": found.waiting,
            "not_run": [{"name": name, "reason": reason} for name, reason in found.not_run],
            "superseded": list(found.superseded),
            "runs": [
                {"run_id": r.run_id, "recipe": r.recipe, "ssr": r.ssr, "seed": r.seed, "state": r.state}
                | ({"control": r.control} if r.control else {})
                | ({"message": r.message} if r.message else {})
                for r in found.runs
            ],
        },
    )


def _page(found: SweepStatus, spec: Path, *, busy: Sequence[str], profiled: bool) -> Iterator[Block | str]:
    counted: dict[str, dict[str, int]] = {}
    for item in found.runs:
        states = counted.setdefault(label(item.recipe, item.control), {})
        states[item.state] = states.get(item.state, 0) + 1
    columns = tuple(found.counts)
    rows = [(recipe, *(states.get(state, 0) or None for state in columns)) for recipe, states in counted.items()]
    yield table(("recipe", *columns), rows, right=columns)
    yield f"sweep {found.name}: {'running now' if found.active else 'not running'}"
    if not profiled:
        yield "its step times are not measured yet"
    if told := busy_words(busy, again=f"explorer sweep profile {spec}"):
        yield told
    if found.spec_changed:
        yield f"the specification has changed since the sweep was started: see 'explorer sweep plan {spec}'"
    if found.waiting:
        yield f"at most {found.waiting} control runs more, whose budgets follow from the profile"
    for name, reason in found.not_run:
        yield f"not run: {name}: {reason}"
    if words := left_out_words(len(found.superseded), found.name):
        yield words
    for item in found.runs:
        if item.message:
            yield f"  {item.run_id}: {item.state}: {item.message}"


def label(recipe: str, control: str | None) -> str:
    """Return a recipe's name, with the control that its runs are for."""
    return f"{recipe} (control: {control.replace('-', ' ')})" if control else recipe

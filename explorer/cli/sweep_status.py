"""`explorer sweep status`: which needs no recipe code, and therefore no torch."""

from explorer.cli.options import RUNS, Json, Runs, Spec
from explorer.document import read_document
from explorer.page.amounts import busy_words
from explorer.page.terminal import print_json, print_table, visible
from explorer.planned import left_out_words
from explorer.sweep.profiles import busy_reasons, read_profiles
from explorer.sweep.status import sweep_status


def status(spec: Spec, runs: Runs = RUNS, json: Json = False) -> None:
    """Where a sweep stands: runs done, running, failed, interrupted and planned, by recipe and budget."""
    content = read_document(spec).value
    name = content.get("name") if isinstance(content, dict) else None
    found = sweep_status(runs / str(name), content=content if isinstance(content, dict) else None)
    profiles = read_profiles(found.directory)
    busy = busy_reasons(profiles, found.recipes)
    if json:
        print_json(
            {
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
            }
        )
        return
    counted: dict[str, dict[str, int]] = {}
    for item in found.runs:
        states = counted.setdefault(label(item.recipe, item.control), {})
        states[item.state] = states.get(item.state, 0) + 1
    columns = tuple(found.counts)
    rows = [(recipe, *(states.get(state, 0) or None for state in columns)) for recipe, states in counted.items()]
    print_table(("recipe", *columns), rows, right=columns)
    print(f"sweep {found.name}: {'running now' if found.active else 'not running'}")
    if not found.recipes <= profiles.keys():
        print("its step times are not measured yet")
    if told := busy_words(busy, again=f"explorer sweep profile {spec}"):
        print(visible(told))
    if found.spec_changed:
        print(f"the specification has changed since the sweep was started: see 'explorer sweep plan {spec}'")
    if found.waiting:
        print(f"at most {found.waiting} control runs more, whose budgets follow from the profile")
    for name, reason in found.not_run:
        print(f"not run: {name}: {reason}")
    if words := left_out_words(len(found.superseded), found.name):
        print(words)
    for item in found.runs:
        if item.message:
            print(f"  {item.run_id}: {item.state}: {item.message}")


def label(recipe: str, control: str | None) -> str:
    """A recipe's name, with what its runs are for."""
    return f"{recipe} (control: {control.replace('-', ' ')})" if control else recipe

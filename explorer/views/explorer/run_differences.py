"""Runs next to one another: a table of what differs, and a sentence on what does not.

Settings come from the identity of each run, which holds everything that determines its result: two runs whose
identities agree are the same run. Outcomes follow.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from explorer.page import amounts, theme
from explorer.page.document import Block, Column, Paragraph, Row, Span, Table, clipped
from explorer.run_files import metric_of
from explorer.views.notebook import named, swatch

MOST = 24  # settings that differ and are listed
MOST_SAME = 12  # settings that agree and are named
HEADED = ("ssr", "seed")  # settings that the heading of a run has already
LATE = ("versions", "data", "hardware", "initial", "governance")  # parts of an identity that no recipe states
LONGEST = 40  # characters of a value

RunRow = Mapping[str, Any]
"""A row of `store.run_list`."""


def differences(runs: Sequence[RunRow], *, look: theme.Look) -> Iterator[Block]:
    """Yield the comparison of two or more runs."""
    settings = [_settings(run) for run in runs]
    names = sorted({name for one in settings for name in one}, key=lambda name: (name.split(".")[0] in LATE, name))
    different = [name for name in names if len({one.get(name) for one in settings}) > 1]
    listed = [name for name in different if name not in HEADED]
    rows = [Row((named(name), *(_value(one.get(name)) for one in settings))) for name in listed[:MOST]]
    columns = [Column((*swatch(str(run["recipe"]), look), _place(run)), number=True) for run in runs]
    yield Table((Column("What differs"), *columns), [*rows, *_outcomes(runs)])
    if len(listed) > MOST:
        yield Paragraph(f"and {amounts.count(len(listed) - MOST, 'more setting')}", "note")
    same = [name for name in names if name not in different and name.split(".")[0] not in LATE]
    if same:
        words = ", ".join(f"{clipped(name)} {clipped(settings[0][name], LONGEST)}" for name in same[:MOST_SAME])
        more = f" and {len(same) - MOST_SAME} more" if len(same) > MOST_SAME else ""
        yield Paragraph(f"The same in all of them: {words}{more}.", "note")


def _place(run: RunRow) -> Span:
    return Span((Span(f"budget {run['ssr']:g}, seed {run['seed']}"),), "small")


def _outcomes(runs: Sequence[RunRow]) -> Iterator[Row]:
    """Yield what came out, as far as some run has it."""
    if any(run["state"] != "finished" for run in runs):
        yield Row(("State", *(str(run["state"]) for run in runs)), strong=True)
    metric = next((str(run["metric"]) for run in runs if run["metric"]), "quality")
    outcomes = (
        (clipped(metric), [quality_words(run) for run in runs]),
        ("Training time", [amounts.seconds(run["train_seconds"]) for run in runs]),
        ("Cost", [amounts.dollars(run["cost_usd"]) for run in runs]),
        ("Peak memory", [amounts.memory(run["peak_memory"]) for run in runs]),
        ("Steps", [f"{run['steps']:,}" for run in runs]),
    )
    for title, words in outcomes:
        if any(word != amounts.MISSING for word in words):
            yield Row((title, *words), strong=True)


def quality_words(run: RunRow) -> str:
    """Return the quality of a run in words; a dash for one without."""
    return amounts.quality(run["quality"], metric_of(run)) if run["metric"] else amounts.MISSING


def _settings(run: RunRow) -> dict[str, str]:
    """Return the settings of a run by their path, such as `train.optimizer.sgd.lr`."""
    # The database wrote the identity from a record that it had checked; a damaged run has none.
    identity: Any = json.loads(run["identity"]) if run["identity"] else {}
    recipe = identity.pop("recipe", {}) if isinstance(identity, dict) else {}
    methods = recipe.pop("methods", []) if isinstance(recipe, dict) else []
    flat = dict(_flat("", recipe)) | dict(_flat("", identity))
    for method in methods if isinstance(methods, list) else []:
        for name, parameters in method.items() if isinstance(method, dict) else ():
            flat[f"methods.{name}"] = "on"
            flat |= dict(_flat(f"methods.{name}", parameters))
    return flat


def _flat(path: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}" if path else str(name), inner)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)


def _value(value: str | None) -> tuple[Span, ...]:
    if value is None:
        return (Span(amounts.MISSING),)
    return (Span(clipped(value, LONGEST), hover=value if len(value) > LONGEST else ""),)

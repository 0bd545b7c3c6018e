"""`explorer models`, and what it shares with the other lists of names: where a thing is from, and what is broken."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import typer

from explorer.page.document import Block
from explorer.page.terminal import Answer, table, visible
from explorer.recipes import catalogue
from explorer.recipes.catalogue import default
from explorer.recipes.choice import OURS


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Model to describe in full. Default: list all.")
    ] = None,
) -> Answer:
    """List the models, with their parameters, and the data and task that they are for."""
    if name is not None:
        described = catalogue.describe_model(name)
        return Answer(page=lambda: _model(described), record=lambda: described)
    every, broken = catalogue.describe_models()
    warn_broken(broken)
    rows = [(m["name"], m["summary"], m["takes"], m["task"], defaults(m["parameters"]), m["origin"]) for m in every]
    page = listed(("model", "what it is", "takes", "task", "parameters"), rows)
    return Answer(page=lambda: [page], record=lambda: every)


def _model(model: dict[str, Any]) -> Iterator[Block | str]:
    yield f"{model['name']}: {model['description']}\n"
    if model["parameters"]:
        yield parameter_table(model["parameters"])
    else:
        yield "no parameters\n"
    yield f"takes      {model['takes']}"
    yield f"task       {model['task']}"
    yield f"from       {model['origin']}"


def parameter_table(parameters: Iterable[dict[str, Any]]) -> Block | str:
    """Return the table of parameters in full."""
    rows = [(p["name"], p["type"], default(p), p["range"] or None, p["unit"] or None, p["meaning"]) for p in parameters]
    return table(("parameter", "type", "default", "range", "unit", "meaning"), rows)


def warn_broken(broken: Iterable[str]) -> None:
    """Print one line for each offer of an installed package that cannot be used."""
    for words in broken:
        print(visible(f"warning: {words}".replace("\n", " ")), file=sys.stderr)


def listed(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Block | str:
    """Return a table whose rows end with the origin of a thing; the column is left out if all is ours."""
    if all(origin == OURS for *_, origin in rows):
        return table(columns, [row[:-1] for row in rows])
    return table((*columns, "from"), rows)


def defaults(parameters: Iterable[dict[str, Any]]) -> str:
    """Return parameters with their defaults in one line."""
    return ", ".join(f"{p['name']}={default(p)}" for p in parameters) or "none"

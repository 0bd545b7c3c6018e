"""A sweep with the values that its tuning chose: an ordinary specification, in which every recipe is written out."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer.canonical import digest
from explorer.errors import SpecError
from explorer.recipes.recipe import Recipe
from explorer.sweep.spec import SweepSpec, load_spec, read_spec
from explorer.sweep.tune_key import with_values
from explorer.sweep.tuned import FILE, TunedRecord, Value, read_tuned, tuned_of
from explorer.yaml_document import document_of


def tunable(spec: SweepSpec) -> list[Recipe]:
    """Return the recipes that are tuned, in order; a control has the values of the recipe that it was made from."""
    return [recipe for recipe in spec.recipes if recipe.name not in spec.twins]


def question(spec: SweepSpec) -> str:
    """Return the digest of what tuning is asked: as long as it is the same, so is the answer."""
    recipes = {recipe.name: recipe.digest for recipe in tunable(spec)}
    governance = None if spec.governance is None else str(spec.governance)
    return digest({"tune": spec.content["tune"], "recipes": recipes, "threads": spec.threads, "by": governance})


def is_tuned(spec: SweepSpec, directory: Path) -> bool:
    """Return whether nothing is to be tuned, or the tuning in the sweep's directory is of this specification."""
    return spec.tune is None or _found(spec, directory) is not None


def with_tuned(spec: SweepSpec, directory: Path) -> SweepSpec:
    """Return the specification with the values in the sweep's directory. Raises `SpecError` if there are none yet."""
    if spec.tune is None or spec.tuned is not None:
        return spec
    tuned = _found(spec, directory)
    if tuned is None:
        raise SpecError(f"{spec.source}: tune: not done yet; `explorer tune {shlex.quote(spec.source)}` does it")
    return with_record(spec, tuned, where=str(directory / FILE))


def with_record(spec: SweepSpec, tuned: TunedRecord, *, where: str) -> SweepSpec:
    """Return the specification with the values of a record. Raises `SpecError`."""
    made = read_spec(document_of(written_out(spec, tuned, where=where), where=spec.source))
    return replace(
        made,
        governance=spec.governance,
        on=spec.on,
        content=spec.content,
        not_run=spec.not_run,
        tune=spec.tune,
        tuned=tuned,
    )


def written_out(spec: SweepSpec, tuned: TunedRecord, *, where: str) -> dict[str, Any]:
    """Return the content of the specification with every recipe as it was tuned, and without the key `tune`."""
    values = {own.recipe: own.values for own in tuned.recipes}
    if set(values) != {recipe.name for recipe in tunable(spec)}:
        raise SpecError(f"{where}: not the recipes of {spec.source}; remove it, and tune again")
    content = {key: value for key, value in spec.content.items() if key not in ("tune", "compose")}
    recipes = {recipe.name: valued(recipe, values[recipe.name], where=where) for recipe in tunable(spec)}
    return content | {"recipes": recipes, "tuning": tuned.words}


def valued(recipe: Recipe, values: Mapping[str, Value], *, where: str) -> dict[str, Any]:
    """Return a recipe as a specification writes it, with these values."""
    whole = recipe.to_mapping()
    return {"model": whole["task"]["model"], **with_values(whole, values, where=where)}


def started_spec(recorded: Mapping[str, Any], *, where: str) -> tuple[SweepSpec, Mapping[str, Any]]:
    """Return the specification that a sweep was started with, and its content with every tuned recipe written out."""
    spec = load_spec(recorded["spec"])
    if spec.tune is None:
        return spec, recorded["spec"]
    tuned = tuned_of(recorded.get("tuned"), where=where)
    return with_record(spec, tuned, where=where), written_out(spec, tuned, where=where)


def _found(spec: SweepSpec, directory: Path) -> TunedRecord | None:
    tuned = read_tuned(directory)
    return tuned if tuned is not None and tuned.question == question(spec) else None

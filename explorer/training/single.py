"""A single run from a recipe file: a recipe, and how much, which seed and how many threads."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from explorer.data.sources import load
from explorer.errors import RecipeError, unknown
from explorer.recipes.choice import check
from explorer.recipes.recipe import Recipe
from explorer.run_files import RunRecord
from explorer.runlog.attested import ModelPlace
from explorer.runlog.documents import Documents
from explorer.runlog.model_file import read_card
from explorer.training.ledgered import documents_of, sealed_of
from explorer.training.rehearsal import rehearse
from explorer.training.run_plan import plan_run
from explorer.training.start import Start, StartFrom, check_fit, start_of

SWEEP = "single"  # the directory that single runs share
RECIPE_KEYS = ("task", "train", "methods")
START = "start"


@dataclass(frozen=True, kw_only=True, slots=True)
class Single:
    """Options of a recipe file, next to the recipe. The name becomes part of a directory's name."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    budget: Annotated[float, Field(gt=0, le=1000)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    governance: Annotated[str, Field(min_length=1, max_length=4000)] | None = None  # a directory, seen from the file


class Planned(NamedTuple):
    """A run, the documents that govern it, the model that it begins with, and what its methods warn of."""

    record: RunRecord
    documents: Documents | None
    start: ModelPlace | None = None
    warnings: tuple[str, ...] = ()


def plan_single(
    content: Any, *, name: str, where: str, data: Path | None, beside: Path, governance: Path | None, now: int
) -> Planned:
    """Return the run that a recipe file's content describes; `name` holds if it has none of its own.

    `beside` is the directory of the file, from which it names others; `governance` holds instead of the one it names.
    Raises `RecipeError` that starts with `where`, and `ProvenanceError` for documents that are not to be believed.
    """
    keys = (*RECIPE_KEYS, *(field.name for field in fields(Single)), START)
    if not isinstance(content, Mapping):
        raise RecipeError(f"{where}: found {type(content).__name__}, expected a mapping with {', '.join(keys)}")
    for key in content:
        if key not in keys:
            raise RecipeError(f"{where}: {unknown('key', str(key), keys)}")
    options = {key: value for key, value in content.items() if key not in (*RECIPE_KEYS, START)}
    single = check(Single, {"name": name, **options}, where=where)
    recipe = Recipe.from_mapping(single.name, {key: content[key] for key in RECIPE_KEYS if key in content}, where=where)
    if governance is None and single.governance is not None:
        governance = beside / single.governance
    try:
        documents = documents_of(recipe, governance, now=now)
        warned = rehearse(recipe, data=data, documents=documents)
        place, start = _start(content.get(START), recipe, documents, data=data, beside=beside)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    record = plan_run(
        recipe,
        sweep=SWEEP,
        baseline=single.name,
        tuning=None,
        ssr=single.budget,
        seed=single.seed,
        threads=single.threads,
        data=data,
        documents=documents,
        start=start,
    )
    return Planned(record=record, documents=documents, start=place, warnings=warned)


def _start(
    content: Any, recipe: Recipe, documents: Documents | None, *, data: Path | None, beside: Path
) -> tuple[ModelPlace | None, Start | None]:
    """Return the model that the run is to begin with, believed and built as the recipe's."""
    if content is None:
        return None, None
    asked = check(StartFrom, content, where=START)
    if documents is None:
        raise RecipeError(
            f"{START}: a model is believed by a trust file, and there is none: expected 'governance: DIR'"
        )
    place = ModelPlace.of(beside / asked.model)
    start = start_of(place, asked.admit, documents=documents, regions=sealed_of(recipe, documents, data))
    check_fit(read_card(place.card), recipe, load(recipe.dataset, data), where=str(place.card))
    return place, start

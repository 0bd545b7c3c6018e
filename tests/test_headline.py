"""The sweeps of the headline: they load, and the seeds that judge had no part in choosing."""

from pathlib import Path

import pytest
import torch

from explorer.recipes.recipe import Recipe
from explorer.sweep.spec import SweepSpec, load_spec

SPECS = {path.stem: path for path in (Path(__file__).parents[1] / "benchmarks" / "headline").glob("*.yaml")}


@pytest.fixture(scope="module")
def specs() -> dict[str, SweepSpec]:
    return {name: load_spec(path) for name, path in SPECS.items()}


def recipes(spec: SweepSpec) -> dict[str, Recipe]:
    """The recipes that are written out, without the controls."""
    return {recipe.name: recipe for recipe in spec.recipes if recipe.name not in spec.twins}


def methods_of(recipe: Recipe) -> frozenset[str]:
    return frozenset(method.name for method in recipe.methods)


def test_names_are_those_of_the_files(specs: dict[str, SweepSpec]) -> None:
    assert specs and all(spec.name == name for name, spec in specs.items())


@pytest.mark.parametrize("task", ["images", "text"])
def test_what_judges_had_no_part_in_choosing(task: str, specs: dict[str, SweepSpec]) -> None:
    judging = specs[f"{task}-fresh"]
    assert len(judging.seeds) >= 5 and judging.tune is None and judging.search is None and judging.controls == "all"
    mine = [spec for name, spec in specs.items() if name.partition("-")[0] == task]
    searched = {seed for spec in mine if spec.search is not None for seed in spec.seeds}
    tuned = {seed for spec in mine if spec.tune is not None for seed in spec.tune.seeds}
    assert searched and tuned and (searched | tuned).isdisjoint(judging.seeds)


@pytest.mark.parametrize("task", ["images", "text"])
def test_frozen_recipes_are_combinations_that_a_search_could_try(task: str, specs: dict[str, SweepSpec]) -> None:
    possible = {
        (search.base.model.name, frozenset(method.name for method in search.recipe(names).methods))
        for name, spec in specs.items()
        if name.partition("-")[0] == task and (search := spec.search) is not None
        for names in search.subsets
    }
    frozen = {name: (recipe.model.name, methods_of(recipe)) for name, recipe in recipes(specs[f"{task}-fresh"]).items()}
    assert {name for name, what in frozen.items() if what not in possible} == set()
    assert ("mlp", frozen["hot"][1]) not in possible


@pytest.mark.parametrize("task", ["images", "text"])
def test_frozen_values_are_among_those_that_were_tuned(task: str, specs: dict[str, SweepSpec]) -> None:
    """The batch of each recipe is one that its tuning tried, and so is that of the baseline."""
    tried = {
        axis.options
        for name, spec in specs.items()
        if name.partition("-")[0] == task and spec.tune is not None
        for recipe in spec.recipes
        for axis in spec.tune.axes(recipe.name, list(methods_of(recipe)))
        if axis.key == "batch_size"
    }
    sizes = {size for options in tried for size in options}
    assert {recipe.numbers.batch_size for recipe in specs[f"{task}-fresh"].recipes} <= sizes


@pytest.mark.parametrize("task", ["images", "text"])
def test_what_carries_over_is_frozen(task: str, specs: dict[str, SweepSpec]) -> None:
    """Only the data, the model and the lengths are others."""
    carried, judged = (recipes(specs[f"{task}-{part}"]) for part in ("carried", "fresh"))
    assert carried.keys() == judged.keys()
    for name, recipe in carried.items():
        assert (recipe.optimizer, recipe.schedule, recipe.methods) == (
            judged[name].optimizer,
            judged[name].schedule,
            judged[name].methods,
        )
        assert recipe.numbers.batch_size == judged[name].numbers.batch_size
        assert recipe.dataset != judged[name].dataset


@pytest.mark.parametrize("task", ["images", "text"])
def test_the_defaults_are_those_of_torch(task: str, specs: dict[str, SweepSpec]) -> None:
    (recipe,) = specs[f"{task}-defaults"].recipes
    usual = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))]).defaults
    written = recipe.to_mapping()["train"]["optimizer"]["adamw"]
    assert {key: written[key] for key in ("lr", "weight_decay")} == {key: usual[key] for key in ("lr", "weight_decay")}
    assert tuple(written["betas"]) == usual["betas"]
    assert not recipe.methods and recipe.numbers.precision == "fp32"

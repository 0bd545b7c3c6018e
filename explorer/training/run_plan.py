"""From a recipe, a budget and a seed to a run with a name, without training anything."""

import dataclasses
from pathlib import Path
from typing import Any

from torch import nn

from explorer.canonical import digest
from explorer.data.batches import Batches
from explorer.data.dataset import Dataset
from explorer.data.pace import Pace
from explorer.data.sources import load
from explorer.engine.loop import Setting
from explorer.engine.method import Method, Moment, Planned
from explorer.engine.task import Task
from explorer.errors import RecipeError
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe
from explorer.recipes.settings import Training
from explorer.run_files import RunRecord
from explorer.runlog.documents import Documents
from explorer.training.ledgered import credentials_of, refuse_governed
from explorer.training.start import Start, identity_of

MAX_STEPS = 10**7
MAX_BUDGET = 1000.0
MAX_SEED = 2**31 - 1
MAX_THREADS = 1024
ALL = "all steps"  # the phase of a recipe whose steps all take the same time


def total_steps(recipe: Training, *, examples: int, ssr: float) -> int:
    """Steps of the nominal batch at a scale-schedule ratio: `ssr * epochs * examples / batch size`, rounded half up."""
    return int(ssr * recipe.numbers.epochs * examples / recipe.numbers.batch_size + 0.5)


def pace_of(recipe: Training, *, steps: int) -> Pace:
    """Return the batch sizes of a run that takes as many examples as `steps` steps of the nominal batch."""
    size = recipe.numbers.batch_size
    paces = [method.pace(batch_size=size, examples=steps * size) for method in recipe.methods]
    return next((pace for pace in paces if pace is not None), Pace(((0, size),)))


def length(training: Training, name: str, *, examples: int, ssr: float) -> tuple[Pace, int]:
    """Return the batch sizes and the number of optimiser steps of a run. Raises `RecipeError` for none, or too many."""
    nominal = total_steps(training, examples=examples, ssr=ssr)
    if nominal < 1:
        raise RecipeError(
            f"recipe {name!r}: budget {ssr:g} leaves no step: {training.numbers.epochs:g} epochs of"
            f" {examples} examples in batches of {training.numbers.batch_size}; expected at least 1 step"
        )
    pace = pace_of(training, steps=nominal)
    steps = pace.steps(nominal * training.numbers.batch_size)
    if steps > MAX_STEPS:
        raise RecipeError(f"recipe {name!r}: budget {ssr:g} takes {steps} steps: at most {MAX_STEPS} are allowed")
    return pace, steps


def plan_run(
    recipe: Recipe,
    *,
    sweep: str,
    baseline: str,
    tuning: str | None,
    ssr: float,
    seed: int,
    threads: int,
    data: Path | None,
    documents: Documents | None = None,
    start: Start | None = None,
) -> RunRecord:
    """Return the record of a run on this machine; `documents` govern it, and it begins with the model of `start`.

    Raises `RecipeError` for a budget that leaves no step, or too many, and for governed methods without documents;
    `ProvenanceError` for documents or examples that are not to be believed.
    """
    dataset = load(recipe.dataset, data)
    pace, steps = length(recipe, recipe.name, examples=len(dataset.train), ssr=ssr)
    check_methods(recipe, recipe.name, dataset, steps=steps)
    hardware = machine.hardware(threads=threads)
    common: dict[str, Any] = {
        "recipe": recipe.to_mapping(),
        "data": recipe.dataset.digest(data),
        "hardware": dataclasses.asdict(hardware),
        "versions": machine.versions(),
    }
    if documents is None:
        refuse_governed(recipe)
    else:
        common["governance"] = credentials_of(recipe, documents, data).identity
    common |= identity_of(start)
    identity = {**common, "ssr": ssr, "seed": seed}
    model, source = recipe.model.name, recipe.dataset.name
    return RunRecord(
        run_id=f"{model}-{source}-{recipe.name}-ssr{ssr:g}-s{seed}-{digest(identity)[:8]}",
        sweep=sweep,
        recipe=recipe.name,
        baseline=baseline,
        tuning=tuning,
        identity=identity,
        recipe_digest=digest(common),
        dataset=source,
        model=model,
        methods=tuple(method.name for method in recipe.methods),
        ssr=ssr,
        seed=seed,
        steps=steps,
        batch_size=recipe.numbers.batch_size,
        precision=recipe.numbers.precision,
        hardware=hardware,
        quality=recipe.dataset.metrics[0],
        phases=count_phases(recipe.methods, dataset, steps=steps, pace=pace),
    )


def setting_of(
    training: Training, *, model: nn.Module, task: Task, batches: Batches, seed: int, steps: int, **more: Any
) -> Setting:
    """Return what a loop trains and how, by these settings of training; `more` are further fields of `Setting`."""
    return Setting(
        model=model,
        task=task,
        batches=batches,
        optimizer=training.optimizer,
        schedule=training.schedule,
        seed=seed,
        total_steps=steps,
        full_steps=total_steps(training, examples=len(batches.dataset.train), ssr=1.0),
        precision=training.numbers.precision,
        microbatch_size=training.numbers.microbatch_size,
        **more,
    )


def planned_of(training: Training, dataset: Dataset, *, steps: int) -> Planned:
    """Return what methods may know of a run before it starts."""
    return Planned(
        task=dataset.task,
        example_shape=dataset.example_shape,
        classes=dataset.classes,
        steps=steps,
        batch_size=training.numbers.batch_size,
        optimizer=training.optimizer,
        schedule=training.schedule,
        precision=training.numbers.precision,
        microbatch_size=training.numbers.microbatch_size,
    )


def warnings_of(training: Training, dataset: Dataset, model: nn.Module, *, steps: int) -> tuple[str, ...]:
    """Return what the methods have to say of such a run on this model, each sentence with its method's name before
    it."""
    planned = planned_of(training, dataset, steps=steps)
    return tuple(f"{method.name}: {words}" for method in training.methods for words in method.warnings(planned, model))


def check_methods(training: Training, name: str, dataset: Dataset, *, steps: int) -> None:
    """Ask every method whether it can serve such a run. Raises `RecipeError`."""
    planned = planned_of(training, dataset, steps=steps)
    for method in training.methods:
        try:
            method.check(planned)
        except RecipeError as error:
            raise RecipeError(f"recipe {name!r}: {method.name}: {error}") from error


def count_phases(
    methods: tuple[Method, ...], dataset: Dataset, *, steps: int, pace: Pace | None = None
) -> dict[str, int]:
    """Return how many steps of the run are spent in each phase of different speed."""
    counts: dict[str, int] = {}
    for step in range(steps):
        name = phase_of(methods, Moment(step=step, total_steps=steps, example_shape=dataset.example_shape, pace=pace))
        counts[name] = counts.get(name, 0) + 1
    return counts


def phase_of(methods: tuple[Method, ...], moment: Moment) -> str:
    """Return the joint phase of all methods at one moment."""
    return ", ".join(filter(None, (method.phase(moment) for method in methods))) or ALL

"""Trying a recipe out before anything of it is trained: what cannot work is refused now, and not when it first acts.

The methods change the model once, so that surgery which finds nothing to change is noticed. Then one step is made in
every phase of the schedule, of a few rows and each from the initial weights: a size, a sequence length or a loss that
does not fit shows itself here and not in the middle of a run.
"""

from pathlib import Path
from typing import Any

import torch

from explorer.data.batches import Batches
from explorer.data.dataset import Dataset
from explorer.data.pace import Pace
from explorer.data.sources import load
from explorer.data.streams import torch_stream
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop, Setting
from explorer.engine.method import Moment, used_hooks
from explorer.engine.state import State
from explorer.engine.stepping import Place, time_steps
from explorer.engine.task import TASKS
from explorer.errors import ExplorerError, RecipeError
from explorer.governance.documents import Documents
from explorer.governance.session import Session
from explorer.recipes.governed import credentials, refuse_governed, session_of
from explorer.recipes.plan import pace_of, phase_of, total_steps
from explorer.recipes.recipe import Recipe

ROWS = 4  # of a step: enough for a method to drop half of them and for BatchNorm to find two
CPU = torch.device("cpu")


def rehearse(recipe: Recipe, *, data: Path | None, documents: Documents | None = None) -> None:
    """Raise `RecipeError` for a recipe that cannot be trained, naming the method and what it looked for or the phase.

    Of a governed recipe only the surgery is tried: its steps would be written down. Raises `ProvenanceError` for
    documents or examples that are not to be believed.
    """
    dataset = load(recipe.dataset, data)
    if documents is None:
        refuse_governed(recipe)
        _try_steps(recipe, dataset)
    else:
        _try_surgery(recipe, dataset, {Session: session_of(credentials(recipe, documents, data))})


def _try_surgery(recipe: Recipe, dataset: Dataset, resources: dict[type, Any]) -> None:
    with torch_stream(CPU, 0, "rehearse"):  # nobody else's draws are moved
        model = recipe.model.build(example_shape=dataset.example_shape, classes=dataset.classes)
    state = State(
        seed=0,
        total_steps=1,
        batch_size=1,
        classes=dataset.classes,
        model=model,
        resources=resources,
        recompute=lambda: None,
    )
    for method in recipe.methods:
        if "change_model" in used_hooks(type(method)):
            method.change_model(state)


def _try_steps(recipe: Recipe, dataset: Dataset) -> None:
    nominal = max(1, total_steps(recipe, examples=len(dataset.train), ssr=1.0))
    pace = pace_of(recipe, steps=nominal)
    total = max(1, pace.steps(nominal * recipe.numbers.batch_size))
    with torch_stream(CPU, 0, "rehearse"):
        model = recipe.model.build(example_shape=dataset.example_shape, classes=dataset.classes)
    setting = Setting(
        model=model,
        task=TASKS[dataset.task](classes=dataset.classes),
        batches=Batches(
            dataset, batch_size=min(ROWS, recipe.numbers.batch_size), seed=0, device=CPU, pace=_few_rows(pace)
        ),
        optimizer=recipe.optimizer,
        schedule=recipe.schedule,
        seed=0,
        total_steps=total,
        full_steps=total,
        precision=recipe.numbers.precision,
    )
    with torch.compiler.set_stance("force_eager"):  # nothing is worth compiling for a single step
        loop = Loop(setting, recipe.methods, Clock(CPU, warmup_steps=0, split=False))
        loop.state.pace = pace  # what follows from the progress is as it will be
        initial = {name: tensor.clone() for name, tensor in loop.tensors().items()}
        for phase, step in _telling_steps(recipe, dataset, pace, total).items():
            _try_step(recipe, loop, phase, Place(step=step, total_steps=total))
            loop.restore(initial, step=0)


def _few_rows(pace: Pace) -> Pace:
    """As many rows as there are, but `ROWS` at most: a batch may be too small for what normalises it."""
    return Pace(tuple((step, min(ROWS, size)) for step, size in pace.stages))


def _telling_steps(recipe: Recipe, dataset: Dataset, pace: Pace, total: int) -> dict[str, int]:
    """The first step of every phase."""
    steps: dict[str, int] = {}
    for step in range(total):
        moment = Moment(step=step, total_steps=total, example_shape=dataset.example_shape, pace=pace)
        steps.setdefault(phase_of(recipe.methods, moment), step)
    return steps


def _try_step(recipe: Recipe, loop: Loop, phase: str, place: Place) -> None:
    try:
        time_steps(loop, place, count=1)
    except ExplorerError as error:
        raise RecipeError(f"recipe {recipe.name!r}: step {place.step + 1} ({phase}): {error}") from error
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # what torch says of shapes and types
        raise RecipeError(
            f"recipe {recipe.name!r}: step {place.step + 1} ({phase}) cannot be made: {str(error).splitlines()[0]}"
        ) from error

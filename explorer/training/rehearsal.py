"""Trying a recipe out before anything of it is trained: what cannot work is refused now, and not when it first acts.

The methods change the model once, so that surgery which finds nothing to change is noticed. Then a few steps are made,
of a few rows and each from the initial weights, on the device that trains: a size, a sequence length or a loss that
does not fit shows itself here and not in the middle of a run. They are the first and the last step of the schedule, and
as many more as it takes to see every phase of every method; of a method with many phases the first, the last and the
largest. Phases of several methods multiply: not every combination of them is tried.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

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
from explorer.governance.shared_state import Session
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe
from explorer.runlog.documents import Documents
from explorer.training.ledgered import credentials_of, refuse_governed, session_of
from explorer.training.run_plan import pace_of, phase_of, total_steps, warnings_of

FEW = 3  # phases of a method that are all tried
NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
ROWS = 4  # of a step: enough for a method to drop half of them and for BatchNorm to find two
CPU = torch.device("cpu")


def rehearse(recipe: Recipe, *, data: Path | None, documents: Documents | None = None) -> tuple[str, ...]:
    """Raise `RecipeError` for a recipe that cannot be trained, naming the method and what it looked for or the phase;
    return what its methods warn of.

    Of a governed recipe only the surgery is tried: its steps would be written down. Raises `ProvenanceError` for
    documents or examples that are not to be believed.
    """
    dataset = load(recipe.dataset, data)
    if documents is None:
        refuse_governed(recipe)
        model = _try_steps(recipe, dataset)
    else:
        model = _try_surgery(recipe, dataset, {Session: session_of(credentials_of(recipe, documents, data))})
    steps = max(1, total_steps(recipe, examples=len(dataset.train), ssr=1.0))
    return warnings_of(recipe, dataset, model, steps=steps)


def _try_surgery(recipe: Recipe, dataset: Dataset, resources: dict[type, Any]) -> nn.Module:
    """Let the methods change the model, and return it."""
    with torch_stream(CPU, 0, "rehearse"):  # no other stream of draws is moved
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
    return state.model


def _try_steps(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """Make the steps that tell most, and return the model."""
    nominal = max(1, total_steps(recipe, examples=len(dataset.train), ssr=1.0))
    pace = pace_of(recipe, steps=nominal)
    total = max(1, pace.steps(nominal * recipe.numbers.batch_size))
    with torch_stream(CPU, 0, "rehearse"):
        model = recipe.model.build(example_shape=dataset.example_shape, classes=dataset.classes)
    device = machine.device()
    setting = Setting(
        model=model,
        task=TASKS[dataset.task](classes=dataset.classes),
        batches=Batches(
            dataset, batch_size=min(ROWS, recipe.numbers.batch_size), seed=0, device=device, pace=_few_rows(pace)
        ),
        optimizer=recipe.optimizer,
        schedule=recipe.schedule,
        seed=0,
        total_steps=total,
        full_steps=total,
        precision=recipe.numbers.precision,
    )
    with torch.compiler.set_stance("force_eager"):  # nothing is worth compiling for a single step
        loop = Loop(setting, recipe.methods, Clock(device, warmup_steps=0, split=False))
        loop.state.pace = pace  # what follows from the progress is as it will be
        initial = {name: tensor.clone() for name, tensor in loop.tensors().items()}
        for step, phase in telling_steps(recipe, dataset, pace, total).items():
            _try_step(recipe, loop, phase, Place(step=step, total_steps=total))
            loop.restore(initial, step=0)
    return loop.setting.model


def _few_rows(pace: Pace) -> Pace:
    """Return as many rows as there are, but `ROWS` at most: a batch may be too small for what normalises it."""
    return Pace(tuple((step, min(ROWS, size)) for step, size in pace.stages))


def telling_steps(recipe: Recipe, dataset: Dataset, pace: Pace, total: int) -> dict[int, str]:
    """Return the steps to try, ascending, each with the name of its joint phase: the first, the last, and those that
    show most of what is left, until every phase that `_of_one` names was seen."""

    def at(step: int) -> Moment:
        return Moment(step=step, total_steps=total, example_shape=dataset.example_shape, pace=pace)

    first: dict[tuple[str, ...], int] = {}  # the phases of all methods at once, and the first step that has them
    for step in range(total):
        first.setdefault(tuple(method.phase(at(step)) for method in recipe.methods), step)
    of_methods = list(zip(*first, strict=True))
    left = {(method, phase) for method, phases in enumerate(of_methods) for phase in _of_one(phases)}
    chosen = {0: next(iter(first)), total - 1: tuple(method.phase(at(total - 1)) for method in recipe.methods)}
    for phases in chosen.values():
        left -= set(enumerate(phases))
    while left:
        phases = max(first, key=lambda phases: len(left & set(enumerate(phases))))
        chosen.setdefault(first[phases], phases)
        left -= set(enumerate(phases))
    return {step: phase_of(recipe.methods, at(step)) for step in sorted(chosen)}


def _of_one(phases: Sequence[str]) -> set[str]:
    """Return the phases of one method that are tried: all of a few; else the first, the last and the one of the largest
    size, which is the product of the numbers in its name ("40x40 px")."""
    distinct = list(dict.fromkeys(phases))
    if len(distinct) <= FEW:
        return set(distinct)
    return {phases[0], phases[-1], max(distinct, key=lambda phase: math.prod(map(float, NUMBERS.findall(phase))))}


def _try_step(recipe: Recipe, loop: Loop, phase: str, place: Place) -> None:
    try:
        time_steps(loop, place, count=1)
    except ExplorerError as error:
        raise RecipeError(f"recipe {recipe.name!r}: step {place.step + 1} ({phase}): {error}") from error
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # what torch says of shapes and types
        raise RecipeError(
            f"recipe {recipe.name!r}: step {place.step + 1} ({phase}) cannot be made: {str(error).splitlines()[0]}"
        ) from error

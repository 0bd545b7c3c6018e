"""Planning: from a recipe, a budget and a seed to a run with a name, without training anything.

**Rehearsal.** A recipe that cannot work is refused when it is planned, not when the faulty method first acts. The
methods change the model once, so that surgery which finds nothing to change is noticed. Then a few steps are made, with
few rows and each from the initial weights, on the device that trains and with the kernels of the run: a size, a
sequence length or a loss that does not fit, or a layer without a deterministic kernel, fails here and not in the middle
of a run. They are the first and the last step of the schedule, and as many more as it takes to see every phase of every
method; of a method with many phases the first, the last and the largest. Phases of several methods multiply: not every
combination of them is tried. Steps of governed recipes are made under their policy, and recorded nowhere.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field
from torch import nn

from explorer.canonical import digest
from explorer.data.batches import Batches, Typing
from explorer.data.dataset import Dataset
from explorer.data.pace import Pace
from explorer.data.sources import load
from explorer.data.streams import torch_stream
from explorer.engine.clock import Clock
from explorer.engine.leaves import uncompiled
from explorer.engine.loop import Loop, Setting
from explorer.engine.method import Method, Moment, Planned
from explorer.engine.nondeterministic import refused_layer, refused_operation
from explorer.engine.precision import drawback
from explorer.engine.stepping import Place, time_steps
from explorer.engine.task import Task, declared_by, task_class
from explorer.errors import ExplorerError, RecipeError, RunError, unknown
from explorer.governance.recorder import Recorder
from explorer.governance.shared_state import Notes, Session
from explorer.machine_class import MAX_THREADS, Machine
from explorer.parameters import check
from explorer.recipes import machine
from explorer.recipes.recipe import Recipe
from explorer.recipes.settings import Training
from explorer.run_files import ALL_STEPS, FAST, RunRecord
from explorer.runlog.attested import ModelPlace
from explorer.runlog.documents import Documents
from explorer.runlog.model_file import read_card
from explorer.training.ledgered import credentials_of, documents_of, given, refuse_governed, sealed_of
from explorer.training.start import Start, StartFrom, check_fit, identity_of, start_in, start_of

# --- length ---

MAX_STEPS = 10**7
MAX_BUDGET = 1000.0
MAX_SEED = 2**31 - 1


def total_steps(recipe: Training, *, examples: int, ssr: float) -> int:
    """Return the steps of the nominal batch at a scale-schedule ratio: `ssr * epochs * examples / batch size`, rounded
    half up."""
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


# --- a run ---


def surroundings(*, threads: int, ranks: int = 1, on: Machine | None = None) -> dict[str, Any]:
    """Return the machine `on`, by default this one, and its software, as a run's identity has them."""
    on = on or machine.this_machine()
    return {"hardware": dataclasses.asdict(on.hardware_of(threads, ranks)), "versions": on.versions}


def run_record(
    training: Training,
    dataset: Dataset,
    /,
    *,
    prefix: str,
    common: Mapping[str, Any],
    ssr: float,
    seed: int,
    steps: int,
    pace: Pace,
    threads: int,
    on: Machine | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
    **names: Any,
) -> RunRecord:
    """Return the record of a run: the same identity gives the same name.

    Args:
        training: the settings of training.
        dataset: what it trains on.
        prefix: the name of the run before its budget, seed and digest.
        common: the part of the identity that all budgets and seeds of the recipe share.
        ssr: the budget, as a scale-schedule ratio.
        seed: of every random draw.
        steps: how many the budget comes to.
        pace: the batch sizes over these steps.
        threads: of torch.
        on: the machine that it is for; None: this one.
        more: the part of the identity that only this run has, next to budget and seed.
        names: further fields of the record.
    """
    # The digest of `common` groups the budgets and seeds of a recipe; that of the whole identity ends the name, so that
    # the same name means the same bits.
    identity = {**common, "ssr": ssr, "seed": seed, **more}
    return RunRecord(
        run_id=f"{prefix}-ssr{ssr:g}-s{seed}-{digest(identity)[:8]}",
        identity=identity,
        recipe_digest=digest(common),
        methods=tuple(method.name for method in training.methods),
        ssr=ssr,
        seed=seed,
        steps=steps,
        batch_size=training.numbers.batch_size,
        precision=training.numbers.precision,
        hardware=(on or machine.this_machine()).hardware_of(threads, training.ranks),
        phases=count_phases(training.methods, dataset, steps=steps, pace=pace),
        **names,
    )


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
    on: Machine | None = None,
) -> RunRecord:
    """Return the record of a run.

    Args:
        recipe: what it trains and how.
        sweep: the sweep that it belongs to.
        baseline: the recipe that others of the sweep are compared with.
        tuning: how the baseline was tuned; None: it was not.
        ssr: the budget, as a scale-schedule ratio.
        seed: of every random draw.
        threads: of torch.
        data: the directory of data sets.
        documents: govern the run; None: none do.
        start: the model that the run begins with; None: drawn weights.
        on: the machine that the run is for; None: this one.

    Raises `RecipeError` for a budget that leaves no step, or too many, and for governed methods without documents;
    `ProvenanceError` for documents or examples that cannot be trusted.
    """
    dataset = load(recipe.dataset, data)
    pace, steps = length(recipe, recipe.name, examples=len(dataset.train), ssr=ssr)
    check_methods(recipe, recipe.name, dataset, steps=steps)
    common: dict[str, Any] = {
        "recipe": recipe.to_mapping(),
        "data": recipe.dataset.digest(data),
        **surroundings(threads=threads, ranks=recipe.ranks, on=on),
    }
    # Absent parts have no key: a run without documents keeps the name that it had before documents existed.
    if documents is None:
        refuse_governed(recipe)
    else:
        common["governance"] = credentials_of(recipe, documents, data).identity
    if code := recipe.code:
        common["code"] = code
    common |= identity_of(start)
    model, source = recipe.model.name, recipe.dataset.name
    return run_record(
        recipe,
        dataset,
        prefix=f"{model}-{source}-{recipe.name}",
        common=common,
        ssr=ssr,
        seed=seed,
        steps=steps,
        pace=pace,
        threads=threads,
        on=on,
        sweep=sweep,
        recipe=recipe.name,
        baseline=baseline,
        tuning=tuning,
        dataset=source,
        model=model,
        quality=recipe.dataset.measures[0],
        declared=declared_by(recipe.dataset),
    )


def plan_again(
    record: RunRecord, *, data: Path | None, documents: Documents | None = None, ssr: float | None = None
) -> RunRecord:
    """Return the record of the same run, planned again on this machine, at another budget if one is given."""
    planned = plan_run(
        dataclasses.replace(recipe_of(record), ranks=record.hardware.world_size),
        sweep=record.sweep,
        baseline=record.baseline,
        tuning=record.tuning,
        ssr=record.ssr if ssr is None else ssr,
        seed=record.seed,
        threads=record.hardware.threads,
        data=data,
        documents=documents,
        start=start_in(record),
    )
    # Whether a run is a control of another one changes nothing in its training, so no plan knows it.
    return dataclasses.replace(planned, control=record.control, control_of=record.control_of)


def recipe_of(record: RunRecord) -> Recipe:
    """Return the recipe that a run was planned from, to train it: code of other packages is imported for it.

    Raises `RunError` if the record does not carry the digest in its name, and `RecipeError` for code that is not here
    as it was when the run was planned; nothing of it is imported then.
    """
    if not record.run_id.endswith(digest(record.identity)[:8]):
        raise RunError(f"run {record.run_id}: damaged: its identity has the digest {digest(record.identity)[:8]}")
    code = record.identity.get("code", {})
    if not isinstance(code, Mapping) or not all(isinstance(digest, str) for digest in code.values()):
        raise RunError(f"run {record.run_id}: damaged: its code is {code!r:.80}, expected digests by name")
    return Recipe.from_mapping(record.recipe, record.identity.get("recipe"), where=f"run {record.run_id}", code=code)


def setting_of(
    training: Training, *, model: nn.Module, task: Task, batches: Batches, seed: int, steps: int, **more: Any
) -> Setting:
    """Return the setting of a loop that trains `model` by these settings; `more` are further fields of `Setting`."""
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
        lanes=training.numbers.lanes,
        **more,
    )


# --- methods ---


def planned_of(training: Training, dataset: Dataset, *, steps: int) -> Planned:
    """Return the facts about a run that methods may know before it starts."""
    return Planned(
        task=dataset.task,
        example_shape=dataset.example_shape,
        classes=dataset.classes,
        steps=steps,
        batch_size=training.numbers.batch_size,
        optimizer=training.optimizer,
        schedule=training.schedule,
        precision=training.numbers.precision,
        kernels=training.numbers.deterministic,
        microbatch_size=training.numbers.microbatch_size,
        lanes=training.numbers.lanes,
        one_target=dataset.modality == "text" and tuple(dataset.train.labels.shape[1:]) != dataset.example_shape,
    )


def warnings_of(training: Training, dataset: Dataset, model: nn.Module, *, steps: int) -> tuple[str, ...]:
    """Return the warnings about such a run on this model and this machine: of its precision and kernels, and of its
    methods, each with the name of its method."""
    planned, numbers = planned_of(training, dataset, steps=steps), training.numbers
    hardware = machine.hardware(threads=1).name
    words = [drawback(machine.device(), numbers.precision, hardware=hardware)]
    words += [FAST if numbers.deterministic == "fast" else None]
    words += [f"{method.name}: {words}" for method in training.methods for words in method.warnings(planned, model)]
    return tuple(filter(None, words))


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


def middles(methods: Sequence[Method], dataset: Dataset, *, phases: Mapping[str, int], pace: Pace) -> dict[str, Place]:
    """Return the step in the middle of each phase of a run; `phases` are those that `count_phases` has counted."""
    steps = sum(phases.values())
    seen, places = dict.fromkeys(phases, 0), dict[str, Place]()
    for step in range(steps):
        moment = Moment(step=step, total_steps=steps, example_shape=dataset.example_shape, pace=pace)
        name = phase_of(tuple(methods), moment)
        if seen[name] == phases[name] // 2:
            places[name] = Place(step=step, total_steps=steps)
        seen[name] += 1
    return places


def phase_of(methods: tuple[Method, ...], moment: Moment) -> str:
    """Return the joint phase of all methods at one moment."""
    return ", ".join(filter(None, (method.phase(moment) for method in methods))) or ALL_STEPS


def model_of(recipe: Recipe, dataset: Dataset) -> nn.Module:
    """Return a recipe's model for its dataset. Raises `RecipeError` for one that takes another token for the end of a
    document."""
    own, theirs = recipe.model.document_separator, dataset.separator
    if own is not None and theirs is not None and own != theirs:
        raise RecipeError(
            f"{recipe.model.name}: separator: found {own}; expected {theirs}, the token that ends a document in dataset"
            f" {recipe.dataset.name!r}"
        )
    return recipe.model.build(example_shape=dataset.example_shape, classes=dataset.classes)


# --- rehearsal ---

FEW = 3  # phases of a method that are all tried
NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
ROWS = 4  # of a lane: enough for a method to drop half of them and for BatchNorm to find two
CPU = torch.device("cpu")


def rehearse(
    recipe: Recipe, *, data: Path | None, documents: Documents | None = None, threads: int | None = None
) -> tuple[str, ...]:
    """Try the recipe out with that many threads, by default as many as torch has; return the warnings of its methods.

    Raises `RecipeError` for a recipe that cannot be trained, naming the method and what it looked for, or the phase;
    `ProvenanceError` for documents or examples that cannot be trusted.
    """
    dataset = load(recipe.dataset, data)
    if documents is None:
        refuse_governed(recipe)
    with machine.fixed_bits(threads=threads or torch.get_num_threads(), kernels=recipe.numbers.deterministic):
        resources, typing = given(recipe, documents, data)
        rows = ROWS * recipe.numbers.lanes * (1 if documents is None else len(resources[Session].classes))
        try:
            model = _try_steps(recipe, dataset, resources, typing, rows=rows)
        except RecipeError:
            if documents is None or rows >= recipe.numbers.batch_size:
                raise
            # Of a few rows a class may have one by chance, which is too few for BatchNorm.
            resources, typing = given(recipe, documents, data)
            model = _try_steps(recipe, dataset, resources, typing, rows=recipe.numbers.batch_size)
    steps = max(1, total_steps(recipe, examples=len(dataset.train), ssr=1.0))
    return warnings_of(recipe, dataset, model, steps=steps)


def _try_steps(
    recipe: Recipe, dataset: Dataset, resources: dict[type, Any], typing: Typing | None, *, rows: int
) -> nn.Module:
    """Make the most telling steps with at most so many rows each, and return the model."""
    nominal = max(1, total_steps(recipe, examples=len(dataset.train), ssr=1.0))
    pace = pace_of(recipe, steps=nominal)
    total = max(1, pace.steps(nominal * recipe.numbers.batch_size))
    with torch_stream(CPU, 0, "rehearse"):  # a stream of its own, so that no other draw changes
        model = model_of(recipe, dataset)
    device = machine.device()
    setting = Setting(
        model=model,
        task=task_class(recipe.dataset)(classes=dataset.classes),
        batches=Batches(
            dataset,
            batch_size=min(rows, recipe.numbers.batch_size),
            seed=0,
            device=device,
            typing=typing,
            pace=_few_rows(pace, rows),
        ),
        optimizer=recipe.optimizer,
        schedule=recipe.schedule,
        seed=0,
        total_steps=total,
        full_steps=total,
        precision=recipe.numbers.precision,
        lanes=recipe.numbers.lanes,
        resources=resources,
    )
    # Without the recorder, which changes nothing and would need a ledger.
    methods = tuple(method for method in recipe.methods if not isinstance(method, Recorder))
    loop = Loop(setting, methods, Clock(device, warmup_steps=0, split=False))
    loop.state.pace = pace  # methods see the progress that the real batch sizes will give
    with uncompiled():  # compiling takes longer than the few steps
        # Every step begins with the initial weights: a step that diverges has no effect on the next one.
        initial = {name: tensor.clone() for name, tensor in loop.tensors().items()}
        for step, phase in telling_steps(recipe, dataset, pace, total).items():
            _try_step(recipe, loop, phase, Place(step=step, total_steps=total))
            loop.restore(initial, step=0)
            if Session in resources:
                session: Session = resources[Session]
                session.notes, session.conditions = Notes(), set()
    return loop.setting.model


def _few_rows(pace: Pace, rows: int) -> Pace:
    """Return the pace with at most so many rows; never more than there will be, since a real batch may be too small for
    BatchNorm, and that has to show."""
    return Pace(tuple((step, min(rows, size)) for step, size in pace.stages))


def telling_steps(recipe: Recipe, dataset: Dataset, pace: Pace, total: int) -> dict[int, str]:
    """Return the steps to try, ascending, each with the name of its joint phase: the first, the last, and then those
    with most unseen phases, until every phase that `_of_one` names has been seen."""

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
    while left:  # a greedy set cover: the smallest one is not worth searching for
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
    except (RuntimeError, ValueError, TypeError, IndexError) as error:  # torch's errors for shapes and types
        where = f"recipe {recipe.name!r}: step {place.step + 1} ({phase})"
        if (operation := refused_operation(error)) is not None:
            raise RecipeError(f"{where}: {_refused(loop, operation)}") from error
        raise RecipeError(f"{where} cannot be made: {str(error).splitlines()[0]}") from error


def _refused(loop: Loop, operation: str) -> str:
    """Return the sentence about an operation that torch refuses for the sake of determinism, and what to do."""
    model, rows, device = loop.setting.model, loop.state.rows, loop.setting.batches.device
    layer = None if rows is None else refused_layer(model, rows.inputs)
    said = f"no deterministic kernel on {device.type}, torch's {operation}: expected"
    if layer is None:
        return f"the loss, or what else follows the model, has {said} train.deterministic: fast, and not the same bits"
    return (
        f"{layer or 'the model'} ({type(model.get_submodule(layer)).__name__}) has {said} another layer, such as a"
        " convolution with a stride in place of pooling, nearest upsampling, or padding with zeros; or"
        " train.deterministic: fast, which gives up the same bits"
    )


# --- a single run from a recipe file ---

SWEEP = "single"  # the directory that single runs share
RECIPE_KEYS = ("task", "train", "methods")
START = "start"


@dataclass(frozen=True, kw_only=True, slots=True)
class Single:
    """Options of a recipe file, next to the recipe. The name becomes part of a directory's name."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
    budget: Annotated[float, Field(gt=0, le=1000)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)] = 1
    governance: Annotated[str, Field(min_length=1, max_length=4000)] | None = None  # a directory, relative to the file


class PlannedRun(NamedTuple):
    """A run, the documents that govern it, the model that it begins with, and the warnings of its methods."""

    record: RunRecord
    documents: Documents | None
    start: ModelPlace | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what was decided when the recipe was read


def plan_single(
    content: Any, *, name: str, where: str, data: Path | None, beside: Path, governance: Path | None, now: int
) -> PlannedRun:
    """Return the run that the content of a recipe file describes.

    Args:
        content: the parsed file.
        name: of the run, if the file gives none.
        where: the beginning of every `RecipeError`.
        data: the directory of data sets.
        governance: a directory of documents that replaces the file's.
        now: the moment for which documents are judged, in seconds since 1970.

    Paths in the file are relative to its directory. Raises `ProvenanceError` for documents that cannot be trusted.
    """
    # --- the recipe and its options ---
    keys = (*RECIPE_KEYS, *(field.name for field in fields(Single)), START)
    if not isinstance(content, Mapping):
        raise RecipeError(f"{where}: found {type(content).__name__}, expected a mapping with {', '.join(keys)}")
    for key in content:
        if key not in keys:
            raise RecipeError(f"{where}: {unknown('key', str(key), keys)}")
    options = {key: value for key, value in content.items() if key not in (*RECIPE_KEYS, START)}
    single = check(Single, {"name": name, **options}, where=where)
    parts = {key: content[key] for key in RECIPE_KEYS if key in content}
    recipe = Recipe.from_mapping(single.name, parts, where=where, code=None)
    if governance is None and single.governance is not None:
        governance = beside / single.governance
    # --- a rehearsal before the plan, so that no run is named that cannot work ---
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
    return PlannedRun(record=record, documents=documents, start=place, warnings=warned, notes=recipe.notes)


def _start(
    content: Any, recipe: Recipe, documents: Documents | None, *, data: Path | None, beside: Path
) -> tuple[ModelPlace | None, Start | None]:
    """Return the model that the run begins with, once it is trusted and built as the recipe's is."""
    if content is None:
        return None, None
    asked = check(StartFrom, content, where=START)
    if documents is None:
        raise RecipeError(
            f"{START}: only a trust file can vouch for a model, and there is none: expected 'governance: DIR'"
        )
    place = ModelPlace.of(beside / asked.model)
    start = start_of(place, asked.admit, documents=documents, regions=sealed_of(recipe, documents, data))
    check_fit(read_card(place.card), recipe, load(recipe.dataset, data), where=str(place.card))
    return place, start

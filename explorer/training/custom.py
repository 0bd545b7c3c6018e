"""`explorer.train`: train your own model on your own task, with the settings and methods of a recipe.

    class Digits:
        def batch(self, numbers):
            return images[numbers], labels[numbers]

        def loss(self, outputs, targets):
            return F.cross_entropy(outputs, targets, reduction="none")

        def metrics(self, model):
            return {"accuracy": float((model(held_out).argmax(1) == truth).float().mean())}

    settings = {"epochs": 4, "batch_size": 32, "optimizer": {"sgd": {"lr": 0.1}}}
    explorer.train(model, Digits(), examples=900, train=settings, methods=["label_smoothing", "ema"])

With a `place` the run goes where those of sweeps go, and is compared with them in every table and plot.
"""

import contextlib
import dataclasses
import logging
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.data.pace import Pace
from explorer.engine.checkpoint import remove_all
from explorer.engine.clock import Clock
from explorer.engine.custom_task import (
    OwnBatches,
    OwnLoss,
    OwnTask,
    check_numbers,
    declared_metrics,
    function_digests,
    modality_of,
)
from explorer.engine.fit import FitOptions, fit, model_digest
from explorer.engine.loop import Loop, Setting
from explorer.engine.method import Kind, Method
from explorer.errors import RecipeError, unknown
from explorer.machine_class import MAX_THREADS
from explorer.parameters import check
from explorer.plugins import code_of
from explorer.recipes import machine
from explorer.recipes.settings import GOVERNED, MODALITIES, Training, check_serving, read_training
from explorer.run_files import METRICS, Metric, ResultRecord, RunRecord
from explorer.training.energy import card, watch_energy
from explorer.training.ledgered import keep_environment
from explorer.training.peak_memory import watch_memory
from explorer.training.run import PATIENCE, WARMUP_STEPS, kept_divergence, result_of, stop_signals
from explorer.training.run_plan import (
    MAX_BUDGET,
    MAX_SEED,
    check_methods,
    length,
    run_record,
    setting_of,
    surroundings,
    warnings_of,
)
from explorer.training.watch import watched

log = logging.getLogger(__name__)

NAMES = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
ADDRESSES = re.compile(r" at 0x[0-9a-f]+")  # of objects in a model's repr: they differ between processes
NAME = "train"  # in messages


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Place of a custom run among others. Names become names of directories."""

    runs: Path | str  # the directory of all runs
    sweep: str = "own"
    recipe: str = "baseline"
    baseline: str = "baseline"  # the recipe that others of the sweep are compared with
    tuning: str | None = None  # how the baseline was tuned; None: it was not, and every view calls it untuned

    def __post_init__(self) -> None:
        for name in (self.sweep, self.recipe, self.baseline):
            if not NAMES.fullmatch(name):
                raise RecipeError(f"found the name {name!r:.100}: expected at most 64 of the characters a-z 0-9 _ -")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """Result of a custom run. The model given to `train` is the finished one, unless `trained` is false."""

    metrics: dict[str, float]
    steps: int
    seconds: float  # of the timed optimiser steps
    directory: Path | None  # of the run; None: nothing was kept
    trained: bool  # false: the run was finished before this call, which left the model as it was
    warnings: tuple[str, ...] = ()  # of the methods; also logged


def train(
    model: nn.Module,
    task: OwnTask,
    *,
    examples: int,
    train: Mapping[str, Any],
    methods: Sequence[Any] = (),
    budget: float = 1.0,
    seed: int = 0,
    threads: int = 1,
    place: Place | None = None,
) -> Trained:
    """Train `model` in place, from the weights that it has.

    Args:
        model: any module; a parameter that does not require gradients stays as it is.
        task: its `batch`, `loss` and `metrics`, as functions.
        examples: how many training examples `batch` can be asked for.
        train: numbers, optimiser and schedule, as in the specification of a sweep.
        methods: as there, by name or with parameters.
        budget: the scale-schedule ratio.
        seed: of every draw.
        threads: of torch.
        place: where to keep the run; None: nowhere.

    The same model, seed and number of threads give the same bits. Interrupted in a `place`, the same call continues
    from the last checkpoint; for a run that is finished there it returns the result and does not touch the weights. In
    a `place` every metric is one of `run_files.METRICS` or declared by the task (`OwnTask.metrics`).

    The identity of the run has the model's repr, and neither the code of its modules nor that of the task: when they
    change, give the recipe or sweep another name. A finished run in the same place whose three functions had other
    source is refused; the functions that these call are not compared.

    Even after an error the model comes back in evaluation mode, without gradients, and with `requires_grad` as before.

    Raises `RecipeError` for settings and methods that do not fit such a model, `DataError` and `TrainingError` for
    invalid results of the three functions.
    """
    asked = {"examples": examples, "budget": budget, "seed": seed, "threads": threads}
    amounts = check(_Amounts, asked, where=NAME)
    if missing := [name for name in ("batch", "loss", "metrics") if not callable(getattr(task, name, None))]:
        raise RecipeError(f"{NAME}: task: found {type(task).__name__} without a function `{missing[0]}`")
    training = _training(train, methods)
    machine.fix_bits(threads=threads, kernels=training.numbers.deterministic)
    with _handed_back(model):
        return _train(model, task, training, amounts, place)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Amounts:
    examples: Annotated[int, Field(ge=1)]
    budget: Annotated[float, Field(gt=0, le=MAX_BUDGET)]
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)]
    threads: Annotated[int, Field(ge=1, le=MAX_THREADS)]


@contextlib.contextmanager
def _handed_back(model: nn.Module) -> Iterator[None]:
    """Restore, at the end of the block, the modes and flags that training switches."""
    frozen = {id(parameter) for parameter in model.parameters() if not parameter.requires_grad}
    try:
        yield
    finally:
        model.eval()
        for parameter in model.parameters():
            parameter.grad = None
            parameter.requires_grad_(id(parameter) not in frozen)


def _train(
    model: nn.Module,
    task: OwnTask,
    training: Training,
    amounts: _Amounts,
    place: Place | None,
) -> Trained:
    # --- the setting, and checks that need its first batch ---
    pace, steps = length(training, NAME, examples=amounts.examples, ssr=amounts.budget)
    setting = _setting(model, task, training, examples=amounts.examples, seed=amounts.seed, pace=pace, steps=steps)
    _check_kind(training, setting.batches.dataset.train.inputs[:0])
    check_methods(training, NAME, setting.batches.dataset, steps=steps)
    assert isinstance(setting.batches, OwnBatches)
    setting.batches.labels_for = next((method.name for method in training.methods if method.makes_dense), None)
    if setting.batches.labels_for is not None:
        setting.batches.look_through()
    # The first evaluation is for its errors: hours later they would cost the run. Its first metric is the quality.
    first = setting.task.evaluate(model, setting.batches)
    declared = declared_metrics(task)
    if place is not None:
        _check_names(first, declared)
    check_numbers(first, declared)
    setting = dataclasses.replace(setting, task=dataclasses.replace(setting.task, quality=next(iter(first))))
    record = _record(setting, training, task, place, budget=amounts.budget, threads=amounts.threads)
    # --- the run ---
    with _directory(place, record) as directory:
        _check_functions(directory, record)
        if (directory / rundir.RESULT).exists():
            return _trained(run_files.read(ResultRecord, directory / rundir.RESULT), directory, trained=False)
        run_files.write(directory / rundir.RUN, record)
        keep_environment(directory, recorded=False)
        peak_memory = watch_memory()
        loop = Loop(setting, training.methods, Clock(setting.batches.device, warmup_steps=WARMUP_STEPS, split=False))
        energy = watch_energy(loop.clock, [card()])
        warned = (*training.notes, *warnings_of(training, setting.batches.dataset, model, steps=steps))
        for words in warned:
            log.warning(words)
        with stop_signals() as stop:
            options = FitOptions(
                directory=directory, run_id=record.run_id, evaluations=training.numbers.evaluations, stop=stop
            )
            with kept_divergence(directory, record):
                fitted, shared = watched(lambda: fit(loop, options), threads=amounts.threads)
        result = result_of(
            directory,
            record,
            fitted,
            examples=pace.position(steps),
            contended=shared,
            peak_memory=peak_memory(),
            energy=energy(fitted, shared),
        )
        if place is not None:  # the result first: with it the run is whole, and needs no checkpoint
            run_files.write(directory / rundir.RESULT, result)
            remove_all(directory / rundir.CHECKPOINT)
            (directory / rundir.FAILURE).unlink(missing_ok=True)
        done = _trained(result, None if place is None else directory, trained=True)
        return dataclasses.replace(done, warnings=warned)


def _check_names(names: Iterable[str], declared: Sequence[Metric]) -> None:
    """Check that every metric is known or declared, since tables and plots need its unit and direction."""
    known = {*METRICS, *(metric.name for metric in declared)}
    for name in names:
        if name not in known:
            raise RecipeError(
                f"metrics: {unknown('metric', name, known)}. Declare one of your own as an attribute of the task:"
                f' declared_metrics = [explorer.Metric(name={name!r}, unit="1", higher_is_better=True)]'
            )


def _check_functions(directory: Path, record: RunRecord) -> None:
    """Check that a finished run in the directory had the same functions: its numbers would be taken for theirs."""
    if not (directory / rundir.RESULT).exists():  # unfinished: a corrected function continues from the checkpoint
        return
    before = run_files.read(RunRecord, directory / rundir.RUN).functions
    for name in record.functions:
        if name in before and before[name] != record.functions[name]:
            raise RecipeError(
                f"{NAME}: {directory}: this run was trained with another function `{name}`. Give this one another name,"
                f" such as Place(recipe='{record.recipe}-2'), or remove that directory to train again in its place"
            )


def _training(train: Mapping[str, Any], methods: Sequence[Any]) -> Training:
    training, _ = read_training(train, methods, where=NAME, code=None)
    for method in training.methods:
        if method.name in GOVERNED:
            raise RecipeError(f"{NAME}: {method.name!r} acts on signed documents: expected explorer.govern for those")
        if method.kind is Kind.EXAMPLE:
            raise RecipeError(
                f"{NAME}: {method.name!r} changes examples as they are stored: expected its functions within `batch`"
            )
    return training


def _check_kind(training: Training, inputs: Tensor) -> None:
    """Check that the methods work on rows of this shape and type."""
    shown = f"`batch` gives {inputs.dtype} with rows of shape {tuple(inputs.shape[1:])}"
    kind = modality_of(inputs)
    if kind is not None:
        check_serving(training.methods, kind, shown=shown, where=f"{NAME}: methods")
    for method in training.methods if kind is None else ():
        if not {"image", "text"} <= method.modalities:
            raise RecipeError(f"{NAME}: {method.name!r} works on {_words(method)}; {shown}, which is neither")


def _words(method: Method) -> str:
    return " and ".join(MODALITIES[modality] for modality in sorted(method.modalities))


def _setting(
    model: nn.Module, task: OwnTask, training: Training, *, examples: int, seed: int, pace: Pace, steps: int
) -> Setting:
    batches = OwnBatches(
        task,
        examples=examples,
        batch_size=training.numbers.batch_size,
        seed=seed,
        device=machine.device(),
        pace=pace,
    )
    model.to(batches.device)
    classes = _outputs(model, batches, task)
    batches.dataset = dataclasses.replace(batches.dataset, classes=classes)
    loss = OwnLoss(classes=classes, own=task)
    return setting_of(training, model=model, task=loss, batches=batches, seed=seed, steps=steps, draw=False)


@torch.no_grad()
def _outputs(model: nn.Module, batches: OwnBatches, task: OwnTask) -> int:
    """Return how many numbers the model gives for each target: the number of classes in a classification."""
    inputs, _ = batches.read(np.zeros(1, np.int64))
    training = {module: module.training for module in model.modules()}
    outputs = model.eval()(batches.prepare(inputs))
    for module, was in training.items():
        module.training = was
    if not isinstance(outputs, Tensor) or outputs.ndim < 2:
        raise RecipeError(f"{NAME}: the model gives {type(outputs).__name__}, expected a tensor with a row an example")
    return outputs.shape[1] if outputs.ndim > 3 else outputs.shape[-1]


def _record(
    setting: Setting, training: Training, task: OwnTask, place: Place | None, *, budget: float, threads: int
) -> RunRecord:
    place = place or Place(runs="")
    assert isinstance(setting.task, OwnLoss) and setting.task.quality is not None
    model, dataset = setting.model, f"{place.sweep}-task"
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    common: dict[str, Any] = {
        "recipe": {"task": {"own": dataset, "model": type(model).__qualname__}, **training.training()},
        "examples": len(setting.batches.dataset.train),
        "model": {"frozen": frozen, "modules": digest(ADDRESSES.sub("", repr(model)))},
        **surroundings(threads=threads),
    }
    if code := code_of(map(type, (training.optimizer, training.schedule, *training.methods))):
        common["code"] = code
    weights = {f"model/{name}": tensor.detach() for name, tensor in model.state_dict(keep_vars=True).items()}
    name = type(model).__name__.lower()
    return run_record(
        training,
        setting.batches.dataset,
        prefix=f"{name}-{place.sweep}-{place.recipe}",
        common=common,
        ssr=budget,
        seed=setting.seed,
        steps=setting.total_steps,
        pace=setting.batches.pace,
        threads=threads,
        more={"initial": model_digest(weights)},  # of this run only: other weights are another run of the same recipe
        sweep=place.sweep,
        recipe=place.recipe,
        baseline=place.baseline,
        tuning=place.tuning,
        dataset=dataset,
        model=name,
        quality=setting.task.quality,
        declared=declared_metrics(task),
        functions=function_digests(task),
    )


@contextlib.contextmanager
def _directory(place: Place | None, record: RunRecord) -> Iterator[Path]:
    """Yield the directory of the run: in its place, locked against other processes, or a temporary one."""
    if place is None:
        with tempfile.TemporaryDirectory(prefix="explorer-") as made:
            yield Path(made)
        return
    directory = Path(place.runs) / record.sweep / record.run_id
    with rundir.locked(directory, what=f"run {record.run_id}", patience=PATIENCE):
        yield directory


def _trained(result: ResultRecord, directory: Path | None, *, trained: bool) -> Trained:
    return Trained(
        metrics=result.metrics,
        steps=result.steps,
        seconds=result.timings.training(),
        directory=directory,
        trained=trained,
    )

"""Train one run, from its directory to its result: the place where data, model, methods and loop meet.

A recorded run also leaves its model (`model/`). Its tensors have the names of the ledger, so that a reader can check
one against the other.
"""

import contextlib
import dataclasses
import datetime
import hashlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from explorer import run_files, rundir
from explorer.data.batches import Batches
from explorer.data.dataset import Split
from explorer.data.sources import load
from explorer.data.streams import torch_stream
from explorer.engine.checkpoint import remove_all
from explorer.engine.clock import Clock
from explorer.engine.fit import GO, FitOptions, Fitted, Progress, fit, follow
from explorer.engine.loop import Loop
from explorer.engine.method import Kind, Method, used_hooks
from explorer.engine.ranks import Ranks, joined
from explorer.engine.state import State
from explorer.engine.stepping import count_flops
from explorer.engine.task import task_class
from explorer.errors import DivergedError, RecipeError, RunError
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.machine_class import why_not_here
from explorer.plugins import tops_of
from explorer.recipes import machine
from explorer.recipes.choice import written
from explorer.recipes.peak_rate import peak_rate
from explorer.recipes.recipe import Recipe
from explorer.recipes.settings import check_ranks
from explorer.run_files import Energy, FailureRecord, Flops, ResultRecord, RunRecord
from explorer.runlog.documents import Documents, read_copies
from explorer.runlog.model_file import CARD, MODEL, OWN, TYPES, ModelCard, write_card
from explorer.training import torchrun
from explorer.training.branching import shared_of
from explorer.training.energy import card, watch_energy
from explorer.training.ledgered import credentials_of, given, is_recorded, keep_environment, recording, sealed_of
from explorer.training.peak_memory import watch_memory
from explorer.training.run_plan import middles, model_of, pace_of, plan_again, recipe_of, setting_of, total_steps
from explorer.training.start import begin_with, initial_tensors
from explorer.training.watch import watched

WARMUP_STEPS = 3  # not timed: the first ones allocate memory, choose kernels and fill caches
STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)  # batch systems send the last one before they end a job
PATIENCE = 10.0  # seconds to wait for another process that holds the run: it may be about to finish

log = logging.getLogger(__name__)


def documents_in(directory: Path, record: RunRecord, *, private: Path | None = None) -> Documents | None:
    """Return the documents that govern a run, from the copies in its directory; None: nothing governs it.

    `private` is where the salts and the trainer's key are now, if not where the run had them.
    """
    if "governance" not in record.identity:
        return None
    documents = read_copies(directory)
    return documents if private is None else dataclasses.replace(documents, private=private.resolve())


def build_loop(
    record: RunRecord,
    *,
    data: Path | None,
    documents: Documents | None = None,
    elsewhere: bool = False,
    ranks: Ranks | None = None,
    observed: bool = True,
) -> Loop:
    """Return the loop of a run at step 0, on this machine. Sets torch's thread count, and deterministic algorithms.

    `ranks`: this process as one of those that train the run; None: it makes all passes. Without `observed` it has no
    methods that observe, and there is no ledger.

    `documents` govern it; their session is among the resources of its methods. Raises `RunError` when the machine, the
    software, the data or the documents are not those that the run was planned for: its name promises a result that they
    would not give. With `elsewhere` machine and software may differ: for a replay, which reports the differences.
    """
    # --- check that this is the run that was planned ---
    recipe = recipe_of(record)
    _check_surroundings(record, recipe, data, documents, elsewhere=elsewhere)
    if not elsewhere:
        _check_plan(record, data, documents)
    # --- data, documents, initial weights ---
    # Before any tensor exists.
    machine.fix_bits(threads=record.hardware.threads, kernels=recipe.numbers.deterministic)
    dataset = load(recipe.dataset, data)
    resources, typing = given(recipe, documents, data)
    if documents is not None and (proof := credentials_of(recipe, documents, data).proof) is not None:
        dataset = dataset.checking(proof)
    for reason, numbers in resources[Session].quarantine.items() if documents is not None else ():
        log.warning("quarantine: %d examples never train: %s", len(numbers), reason)
    initial = initial_tensors(record, recipe, documents, dataset)
    regions = () if documents is None else sealed_of(recipe, documents, data)
    nominal = total_steps(recipe, examples=len(dataset.train), ssr=record.ssr)
    device = machine.device()
    # --- model and loop ---
    # torch initialises layers as it builds them. The loop draws the weights again, by name, so that a method that
    # changes one layer leaves the others' as they are; this stream only keeps the build out of all other draws.
    with torch_stream(torch.device("cpu"), record.seed, "build"):
        model = model_of(recipe, dataset)
    setting = setting_of(
        recipe,
        model=model,
        task=task_class(recipe.dataset)(classes=dataset.classes),
        batches=Batches(
            dataset,
            batch_size=record.batch_size,
            seed=record.seed,
            device=device,
            typing=typing,
            pace=pace_of(recipe, steps=nominal),
        ),
        seed=record.seed,
        steps=record.steps,
        resources=resources,
        begin=lambda model: begin_with(model, initial, regions) if initial else None,
    )
    ranks = ranks or Ranks()
    methods = recipe.methods if ranks.leads else tuple(filter(_is_on_every_rank, recipe.methods))
    if not observed:
        methods = tuple(method for method in methods if method.kind is not Kind.RECORD)
    return Loop(setting, methods, Clock(device, warmup_steps=WARMUP_STEPS, split=False), ranks=ranks)


def _is_on_every_rank(method: Method) -> bool:
    """Return whether every rank has a method. One that observes and remembers nothing is rank 0's; what the others
    remember is part of the state, in which the ranks have to agree."""
    return method.kind is not Kind.RECORD or method.traits.remembers != "nothing"


def execute(
    directory: Path,
    *,
    data: Path | None = None,
    contended: bool = False,
    ranks: int | None = None,
    on_progress: Progress = lambda done, total: None,
) -> ResultRecord:
    """Train the run that `directory/run.json` describes, or finish it from its checkpoint; return its result.

    `contended`: other runs share the machine. If another process kept it busy meanwhile, the result is contended too.

    `ranks`: how many processes train it, at most one for each lane; None: as many as it was planned for. The bits are
    the same for any number. The times are not, so with another number than planned the result counts as contended.

    A finished run keeps its result. SIGTERM, SIGUSR1 or Ctrl-C leaves a checkpoint after the step, or the result if no
    step is left, and raises KeyboardInterrupt. Raises `RunError` when another process trains the run.
    """
    with rundir.locked(directory, what=f"run {directory.name}", patience=PATIENCE):
        record = run_files.read(RunRecord, directory / rundir.RUN)
        size = record.hardware.world_size if ranks is None else _checked_ranks(record, ranks)
        # A crash between the result and the cleaning up leaves files that a second call removes.
        if (directory / rundir.RESULT).exists():
            result = run_files.read(ResultRecord, directory / rundir.RESULT)
            _clear(directory)
            return result
        contended = contended or size != record.hardware.world_size
        _check_devices(record, size)
        if size == 1:
            return _train(directory, record, Ranks(), data=data, contended=contended, on_progress=on_progress)
        torchrun.train(
            directory,
            ranks=size,
            threads=record.hardware.threads,
            options={"data": None if data is None else str(data), "contended": contended},
            on_progress=on_progress,
            on_stop=on_stop_signals,
        )
        return run_files.read(ResultRecord, directory / rundir.RESULT)


def _checked_ranks(record: RunRecord, ranks: int) -> int:
    try:
        return check_ranks(ranks, recipe_of(record).numbers, where="ranks")
    except RecipeError as error:
        raise RunError(f"run {record.run_id}: {error}") from error


def _check_devices(record: RunRecord, ranks: int) -> None:
    devices = machine.this_machine().devices or 0
    if record.hardware.device == "cuda" and devices < ranks:
        raise RunError(
            f"run {record.run_id}: found {ranks} ranks and {devices} GPUs: every rank needs one; give --ranks {devices}"
            " or fewer, which leads to the same bits"
        )


def train_as(directory: Path, *, data: str | None, contended: bool, on_progress: Progress) -> None:
    """Train a run as one of the ranks that torchrun has started; the process that started it holds the directory."""
    record = run_files.read(RunRecord, directory / rundir.RUN)
    place = None if data is None else Path(data)
    with joined(machine.device()) as ranks:
        if ranks.leads:
            _train(directory, record, ranks, data=place, contended=contended, on_progress=on_progress)
        else:
            _follow(directory, record, ranks, data=place)


def _follow(directory: Path, record: RunRecord, ranks: Ranks, *, data: Path | None) -> None:
    """Make the passes of a rank that writes no file."""
    recipe, documents = recipe_of(record), documents_in(directory, record)
    ranks.told(GO)
    loop = build_loop(record, data=data, documents=documents, ranks=ranks)
    ranks.gathered(card())
    # Rank 0 decides when to stop; a signal to all is for it.
    with recording(loop, record, recipe, directory, documents, data=data), stop_signals():
        follow(loop)


def _train(
    directory: Path, record: RunRecord, ranks: Ranks, *, data: Path | None, contended: bool, on_progress: Progress
) -> ResultRecord:
    """Train a run in a directory that is locked, as its only process or as rank 0."""
    recipe, documents = recipe_of(record), documents_in(directory, record)
    flops = _counted(record, data=data, documents=documents)
    peak_memory = watch_memory()  # after the counting, whose memory it gives back, and before the data of the run
    keep_environment(directory, recorded=is_recorded(recipe), code=recipe.code)
    ranks.told(GO)  # the others read the environment
    loop = build_loop(record, data=data, documents=documents, ranks=ranks)
    energy = watch_energy(loop.clock, ranks.gathered(card()))
    with recording(loop, record, recipe, directory, documents, data=data), stop_signals() as stop:
        options = FitOptions(
            directory=directory,
            run_id=record.run_id,
            evaluations=recipe.numbers.evaluations,
            on_progress=on_progress,
            shared=shared_of(directory, record, recipe, loop),
            stop=stop,
        )
        with kept_divergence(directory, record):
            fitted, shared = watched(lambda: fit(loop, options), threads=record.hardware.threads, ranks=ranks.size)
        # The result is the last file: a run that has one is whole. Without it the run is resumed from its last
        # checkpoint, and writes the same model again.
        if is_recorded(recipe):
            write_finished(directory, loop, recipe, record)
        examples = loop.setting.batches.pace.position(record.steps)
        contended = contended or shared
        result = result_of(
            directory,
            record,
            fitted,
            examples=examples,
            contended=contended,
            peak_memory=peak_memory(),
            flops=flops,
            energy=energy(fitted, contended),
        )
        run_files.write(directory / rundir.RESULT, result)
        _clear(directory)
        if stop():  # the signal came in the last step: the result is there, and the caller still has to stop
            raise KeyboardInterrupt
    return result


def _counted(record: RunRecord, *, data: Path | None, documents: Documents | None) -> Flops:
    """Count the floating-point operations of a run: those of one step in the middle of each phase stand for all of it.

    Counted on a loop of its own before the run begins, and never on a step of the run: nothing is compiled under
    torch's counter, so a recipe with `compile` would come to other bits, and the step would take two or three times as
    long. It costs that step a phase, and a build of the loop: 0.1 s for a ResNet-8 on digits. Methods that only observe
    are left out: a profile of entropy is 80,000 small operations, which take ten seconds under the counter.
    """

    def built() -> Loop:
        return build_loop(record, data=data, documents=documents, observed=False)

    loop, phases = built(), dict[str, float]()
    batches = loop.setting.batches
    places = middles(recipe_of(record).methods, batches.dataset, phases=record.phases, pace=batches.pace)
    for name, place in places.items():
        try:
            phases[name] = float(count_flops(loop, place))
        except DivergedError:  # after counted steps with the largest learning rates, which no warm-up came before
            loop = built()
            phases[name] = float(count_flops(loop, place))
    peak, source = peak_rate(record.hardware, record.precision)
    total = sum(steps * phases[name] for name, steps in record.phases.items())
    return Flops(phases=phases, total=total, peak=peak, peak_source=source)


def _clear(directory: Path) -> None:
    """Remove what a finished run no longer needs."""
    (directory / rundir.FAILURE).unlink(missing_ok=True)
    remove_all(directory / rundir.CHECKPOINT)
    for left in directory.glob(".*.tmp"):  # of a process that was killed while it wrote; no other one writes now
        left.unlink(missing_ok=True)
    private = directory / rundir.PRIVATE
    if private.exists() and not any(private.iterdir()):  # a run without a ledger has no secrets
        private.rmdir()


@contextlib.contextmanager
def kept_divergence(directory: Path, record: RunRecord) -> Iterator[None]:
    """Record in the run directory that training diverged within the block. The error is raised all the same."""
    try:
        yield
    except DivergedError as error:
        failure = FailureRecord(
            run_id=record.run_id, kind="diverged", message=str(error), attempts=1, failed_at=_utc_now()
        )
        run_files.write(directory / rundir.FAILURE, failure)
        raise


def _utc_now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def result_of(
    directory: Path,
    record: RunRecord,
    fitted: Fitted,
    *,
    examples: int,
    contended: bool,
    peak_memory: int | None = None,
    flops: Flops | None = None,
    energy: Energy | None = None,
) -> ResultRecord:
    """Return the result of a run whose files are complete."""
    return ResultRecord(
        run_id=record.run_id,
        metrics=fitted.metrics,
        steps=record.steps,
        examples=examples,
        timings=fitted.timings,
        timed_steps=fitted.timed_steps,
        contended=contended,
        resumed=fitted.resumed,
        state_digest=fitted.state_digest,
        trunk=fitted.trunk,
        files={
            name: hashlib.sha256((directory / name).read_bytes()).hexdigest()
            for name in (rundir.RUN, rundir.ENVIRONMENT, rundir.METRICS)
        },
        finished_at=_utc_now(),
        peak_memory=peak_memory,
        flops=flops,
        energy=energy,
    )


def _check_surroundings(
    record: RunRecord, recipe: Recipe, data: Path | None, documents: Documents | None, *, elsewhere: bool
) -> None:
    reason = None if elsewhere else why_not_here(record, machine.this_machine())
    if reason is not None:
        raise RunError(f"run {record.run_id}: {reason}: plan it again here, where it gets a name of its own")
    here: dict[str, Any] = {"data": recipe.dataset.digest(data)}
    if documents is not None:
        here["governance"] = credentials_of(recipe, documents, data).identity
    if code := recipe.code:
        here["code"] = code
    for key, actual in here.items():
        if record.identity.get(key) != actual:
            raise RunError(
                f"run {record.run_id} was planned for {key} {record.identity.get(key)}, found {actual}:"
                " plan it again here, where it gets a name of its own"
            )


def _check_plan(record: RunRecord, data: Path | None, documents: Documents | None) -> None:
    """Plan the run again, and raise `RunError` unless that gives the same record."""
    planned = plan_again(record, data=data, documents=documents)
    for field in dataclasses.fields(RunRecord):
        actual, expected = getattr(record, field.name), getattr(planned, field.name)
        if actual != expected:
            raise RunError(
                f"run {record.run_id}: damaged: {field.name} is {actual!r:.200}, its identity gives {expected!r:.200}"
            )


@contextlib.contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Remember SIGTERM, SIGUSR1 and SIGINT within the block; the function that is yielded returns whether one came.

    Outside the main thread it is never true, and the caller stops the process.
    """
    # A list and no `threading.Event`: an event takes a lock, and a second signal may arrive in the same thread while it
    # is locked.
    came: list[None] = []
    with on_stop_signals(lambda: came.append(None)):
        yield lambda: bool(came)


@contextlib.contextmanager
def on_stop_signals(act: Callable[[], object]) -> Iterator[None]:
    """Call `act` at every SIGTERM, SIGUSR1 and SIGINT within the block. Signals reach the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOPS}

    def handle(number: int, _: object) -> None:
        # What executes a run in this process has to know which signal it was.
        if (note := getattr(before[signal.Signals(number)], "note", None)) is not None:
            note(number)
        act()

    try:
        for number in STOPS:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- the model that a recorded run leaves ---

EXAMPLES = "examples"  # name of the data in the ledger of a custom loop


def write_finished(run: Path, loop: Loop, recipe: Recipe, record: RunRecord) -> None:
    """Write the model of a recipe's run as it is now. Raises `RunError` if the disk refuses."""
    dataset = loop.setting.batches.dataset
    changed = [method for method in recipe.methods if _changes_model(method)]
    _write_model(
        run,
        loop.state,
        recipe.methods,
        run=record.run_id,
        model=written(recipe.model),
        example_shape=dataset.example_shape,
        classes=dataset.classes,
        dataset=recipe.dataset.name,
        # As the run was planned: the files may have changed since this process imported them.
        code={top: record.identity["code"][top] for top in tops_of((type(recipe.model), *map(type, changed)))},
    )


def write_own(run: Path, state: State, methods: Sequence[Method], examples: Split, *, model: str) -> None:
    """Write the model of a custom loop as it is now; `model` is its class as the run's record names it. Raises
    `RunError` if the disk refuses."""
    _write_model(
        run,
        state,
        methods,
        run=run.name,
        model={OWN: {"class": model}},
        example_shape=tuple(examples.inputs.shape[1:]),
        classes=0,
        dataset=EXAMPLES,
    )


def _write_model(to: Path, state: State, methods: Sequence[Method], /, **described: Any) -> None:
    """Write the tensors and then the card, which has these fields: a model without a card was not written whole."""
    place, routing = to / rundir.MODEL, state.resource(Session).routing
    rundir.write_bytes(place / MODEL, save(model_tensors(state.model)))
    sealed = routing.policy.sealed if routing else ()
    card = ModelCard(format="explorer/model/v1", methods=changing(methods), sealed=sealed, **described)
    write_card(place / CARD, card)


def check_types(model: nn.Module) -> None:
    """Raise `RecipeError` for a tensor that no model file can hold, before anything is trained."""
    known = [of for _, of in TYPES.values()]
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if str(tensor.dtype) not in known or tensor.layout is not torch.strided:
            raise RecipeError(
                f"model: {name}: found {tensor.dtype}, {tensor.layout}: the finished model is kept as a safetensors"
                f" file; expected a strided tensor of one of {', '.join(known)}"
            )


def class_name(model: nn.Module) -> str:
    """Return the class of a model as its record and its card name it."""
    return f"{type(model).__module__}.{type(model).__qualname__}"


def changing(methods: Sequence[Method]) -> tuple[dict[str, Any], ...]:
    """Return the methods that change a model before its regions are sealed, as the card lists them."""
    return tuple(written(method) for method in methods if _changes_model(method))


def _changes_model(method: Method) -> bool:
    return "change_model" in used_hooks(type(method)) and not isinstance(method, Routing)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, each in memory of its own; a tied tensor is listed under its first
    name."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}

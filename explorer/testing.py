"""Contracts for methods, datasets and executors of one's own: tests that every one of ours passes.

    from explorer.testing import MethodContract

    class TestDamped(MethodContract):
        method = Damped(factor=0.5)              # at a strength at which it acts
        task = {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}}

pytest collects such a class by its name. Without pytest, `contract.certify()` runs all tests and returns what failed.
The class of a method or dataset has to be importable, as in a recipe. Runs are of seven steps, on the CPU; those of
`ExecutorContract` are longer.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import operator
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from explorer import run_files, rundir
from explorer.data.batches import Batches, Typing
from explorer.data.dataset import Dataset, DataSource, Split
from explorer.data.sources import DATASETS, load
from explorer.data.streams import stream, torch_stream
from explorer.engine.clock import Clock
from explorer.engine.loop import Loop
from explorer.engine.method import Method, Moment, ordered, used_hooks
from explorer.engine.task import task_class
from explorer.errors import RecipeError
from explorer.governance.routing import Routing
from explorer.governance.shared_state import Session
from explorer.methods import METHODS
from explorer.methods.compile import Compile
from explorer.provenance.policy import FORMAT as POLICY_FORMAT
from explorer.provenance.policy import Quarantine, RoutingPolicy, Rule, TaxonomyReference
from explorer.provenance.routing_weights import bind
from explorer.provenance.taxonomy import FORMAT as TAXONOMY_FORMAT
from explorer.provenance.taxonomy import Source, Taxonomy, TaxonomyClass
from explorer.recipes import machine
from explorer.recipes.choice import choose, written
from explorer.recipes.recipe import Recipe, build_recipe
from explorer.recipes.settings import METHODS as ALL_METHODS
from explorer.repeated import repeated
from explorer.run_files import METRICS, ResultRecord
from explorer.sweep.execute import Event, Settings, Summary, run_sweep
from explorer.sweep.plan import Plan, make_plan
from explorer.sweep.spec import load_spec
from explorer.sweep.work import EngineName, lost_workers
from explorer.sweep.workers import InProcess
from explorer.training.run_plan import check_methods, length, model_of, pace_of, setting_of, total_steps

STEPS, BATCH = 7, 32
LONG = 200  # steps in which a method of any length is asked for its phases
TRAINED = 40  # steps after which the loss has to have fallen
CPU = torch.device("cpu")
WHERE = "contract"
# The classes of the tests of routing. A step takes them in the order of these codes: what a method carries over from
# the denied one reaches the other in the same step.
DENIED, ADMITTED = "denied", "admitted"
CODES = {DENIED: 1, ADMITTED: 2}
HALF = 0.5  # of a model's depth
COMES = 300.0  # seconds in which a run has to begin to train
ISSUED, EXPIRES = "2026-01-01T00:00:00Z", "2030-01-01T00:00:00Z"  # of a policy in memory


class Contract:
    """A set of tests: every function whose name begins with `test_`."""

    def certify(self) -> dict[str, str]:
        """Run every test and return the messages of those that failed, by name; an empty mapping is a certificate."""
        failed = {}
        for name in dir(self):
            if name.startswith("test_"):
                try:
                    getattr(self, name)()
                except (AssertionError, RecipeError) as error:
                    failed[name] = str(error)
        return failed


class MethodContract(Contract):
    """The tests of a method."""

    method: ClassVar[Method]  # at a strength at which it acts in a run of seven steps
    task: ClassVar[Mapping[str, Any]] = {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}}
    train: ClassVar[Mapping[str, Any]] = {}  # settings of training that differ from the usual ones
    data: ClassVar[Path | None] = None  # the directory of data sets
    changes: ClassVar[bool] = True  # whether the bits differ from those of a run without it
    lowers_loss: ClassVar[bool] = True  # whether 40 steps have to lower the loss by a tenth

    # --- declarations ---

    def test_declares_itself(self) -> None:
        kind = type(self.method)
        assert kind.summary.endswith("."), f"summary: found {kind.summary!r}, expected a sentence"
        for name in ("source", "formula", "changes"):
            assert getattr(kind, name, ""), f"{name}: empty: expected words"
        decides = [name for name in ("build_optimizers", "pace", "learning_rate") if name in vars(kind)]
        assert used_hooks(kind) or decides, "a method without a hook does nothing"
        refused = Routing.name in kind.conflicts_with
        assert bool(getattr(kind, "routing", "")) != refused, (
            "routing: expected either how the method is routed, or in `conflicts_with` why it cannot be"
        )
        assert not hasattr(self.method, "__dict__"), "expected slots=True: a misspelt field is an error then"

    def test_reads_back_as_it_is_written(self) -> None:
        assert choose(ALL_METHODS, written(self.method), kind="method", where=WHERE, code=None) == self.method

    # --- runs ---

    def test_trains(self) -> None:
        loop = self._loop([self.method], steps=TRAINED)
        losses = [float(loop.step()) for _ in range(TRAINED)]
        assert all(map(math.isfinite, losses)), f"losses: {losses}"
        first, last = sum(losses[:2]) / 2, sum(losses[-5:]) / 5
        assert not self.lowers_loss or last < 0.9 * first, (
            f"loss: {first:.3f} at first, {last:.3f} after {TRAINED} steps"
        )

    def test_changes_the_run(self) -> None:
        """The control of the neutral value: at this strength the bits differ."""
        ours, plain = (_tensors_of(_end(self._loop(methods)), "model/") for methods in ([self.method], []))
        same = not differing(ours, plain)
        assert same != self.changes, f"the run with it {'equals' if same else 'differs from'} the run without it"

    def test_neutral_value_changes_nothing(self) -> None:
        neutral = self.method.neutral()
        if neutral is None:
            return
        with_it, plain = self._loop([neutral]), self._loop([])
        losses = [[float(loop.step()) for _ in range(loop.setting.total_steps)] for loop in (with_it, plain)]
        assert losses[0] == losses[1], (
            f"losses of the run at the neutral value and the run without the method differ: {losses[0]}, {losses[1]}"
        )
        with_it.call("after_fit")
        mine = {name: tensor for name, tensor in everything(with_it).items() if not name.startswith("memory/")}
        assert_same(mine, everything(plain), "the run at the neutral value and the run without the method")

    def test_resumes_bit_for_bit_after_every_step(self) -> None:
        assert_resumes(lambda: self._loop([self.method]))

    def test_steps_of_any_length_are_the_same(self) -> None:
        """A method that declares `any_length` makes the same steps in longer runs, bit for bit."""
        if not self.method.any_length():
            return
        shape = self._loop([]).setting.batches.dataset.example_shape
        for step in range(LONG):
            brief, long = (Moment(step=step, total_steps=n * LONG, example_shape=shape) for n in (1, 3))
            for name, of in (("phase", self.method.phase), ("learning_rate", partial(self.method.learning_rate, 1.0))):
                assert of(brief) == of(long), f"{name}: step {step} of {LONG} differs from that of {3 * LONG}"
        brief, long = (steps(self._loop([self.method], steps=n, schedule="constant"), 5) for n in (5, 16))
        assert_same(everything(brief), everything(long), "the first 5 steps of a run of 5 and of one of 16")

    def test_touches_nothing_that_it_does_not_declare(self) -> None:
        """No draw of the global generators, no change of the data or of its order."""
        before = torch.get_rng_state(), _numpy_state()
        loop = self._loop([self.method])
        data = loop.setting.batches.dataset
        digest = _digest_of(data)
        steps(loop, 4)
        after = torch.get_rng_state(), _numpy_state()
        assert torch.equal(before[0], after[0]), (
            "torch's global generator was drawn from: expected those of explorer.data.streams"
        )
        assert before[1] == after[1], "numpy's global generator was drawn from: expected those of explorer.data.streams"
        assert _digest_of(data) == digest, "examples of the dataset were changed in place"

    # --- with methods of ours ---

    def test_every_pair_is_built_or_refused(self) -> None:
        """Resumed in the middle and written in the other order, two methods give the same bits; or the pair is refused
        with both names."""
        failed = []
        for partner in self.partners():
            if (reason := self._pair(partner)) is not None:
                failed.append(f"{partner.name}: {reason}")
        assert not failed, "; ".join(failed)

    def partners(self) -> list[Method]:
        """Return the methods of ours that train on this task, with their defaults."""
        self._loop([self.method])  # what is wrong without a partner is no partner's fault
        chosen: list[Method] = []
        for name, kind in sorted(METHODS.items()):
            partner: Method = Compile(backend="aot_eager") if kind is Compile else kind()
            try:
                self._loop([partner])
            except RecipeError:  # for other data, other models or other settings
                continue
            if name != self.method.name:
                chosen.append(partner)
        return chosen

    def _pair(self, partner: Method) -> str | None:
        """Return what is wrong with the pair; None: nothing."""
        pair = [self.method, partner]
        try:
            whole, resumed = self._loop(pair), self._loop(pair[::-1])
        except RecipeError as error:
            names = self.method.name in str(error) and partner.name in str(error)
            return None if names else f"refused without both names: {error}"
        return _second_half_differs(whole, resumed)

    # --- routing ---

    def test_is_routed_or_refused(self) -> None:
        """A layer does not depend on the content of a class that may not change it."""
        if Routing.name in self.method.conflicts_with:
            try:
                ordered([Routing(policy=WHERE), self.method])
            except RecipeError:
                return
            raise AssertionError("it declares that it cannot be routed, and is not refused")
        assert_routed(self._routed)

    def _routed(self, changed: str | None) -> Loop:
        """Return a loop under a policy that denies every second example the lower half of the model.

        `changed` names the class whose examples have other content; None: none has.
        """
        recipe = self._recipe([], STEPS)
        dataset = load(recipe.dataset, self.data)
        typing = Typing(codes=np.arange(len(dataset.train)) % 2 + 1, names={code: path for path, code in CODES.items()})
        if changed is not None:
            dataset = _other_content(dataset, rows=typing.codes == CODES[changed])
        session = Session(classes=(ADMITTED, DENIED), codes=CODES, routing=_policy())
        methods = ordered([Routing(policy=WHERE), self.method])
        recipe = dataclasses.replace(recipe, methods=methods)
        return loop_of(recipe, dataset, typing=typing, resources={Session: session})

    # --- helpers ---

    def _recipe(self, methods: Sequence[Method], steps: int, **settings: Any) -> Recipe:
        usual = {"batch_size": BATCH, "optimizer": {"sgd": {"lr": 0.1, "weight_decay": 5e-3}}}
        train = {**usual, **self.train, **settings}
        source: DataSource = choose(DATASETS, self.task["dataset"], kind="dataset", where=WHERE, code=None)
        train["epochs"] = steps * train["batch_size"] / len(load(source, self.data).train)
        return build_recipe(WHERE, task=self.task, train=train, methods=[written(m) for m in methods], where=WHERE)

    def _loop(self, methods: Sequence[Method], *, steps: int = STEPS, **settings: Any) -> Loop:
        recipe = self._recipe(methods, steps, **settings)
        return loop_of(recipe, load(recipe.dataset, self.data))


class DatasetContract(Contract):
    """The tests of a dataset."""

    source: ClassVar[DataSource]
    data: ClassVar[Path | None] = None  # the directory that it is read from
    other: ClassVar[DataSource | None] = None  # the same dataset with other content, for its digest
    model: ClassVar[Any] = None  # as a recipe writes it; two steps are trained with it

    def test_declares_itself(self) -> None:
        kind = type(self.source)
        for name in ("summary", "source", "licence"):
            assert getattr(kind, name), f"{name}: empty: expected words"
        assert kind.metrics, "metrics: empty: expected the quality of a run first"
        known = {*METRICS, *(metric.name for metric in task_class(self.source).declares)}
        unknown = [name for name in kind.metrics if name not in known]
        assert not unknown, f"metrics: {', '.join(unknown)}: expected names in explorer.run_files.METRICS"
        assert set(kind.fitted) <= {"normalisation", "tokeniser"}, f"fitted: found {dict(kind.fitted)}"

    def test_reads_back_as_it_is_written(self) -> None:
        assert choose(DATASETS, written(self.source), kind="dataset", where=WHERE, code=None) == self.source

    def test_the_digest_names_the_content(self) -> None:
        digest = self.source.digest(self.data)
        assert len(digest) == 64 and set(digest) <= set("0123456789abcdef"), f"digest: {digest!r}: expected a SHA-256"
        assert digest == self.source.digest(self.data), "two digests of the same data differ"
        if self.other is not None:
            assert self.other.digest(self.data) != digest, "other content has the same digest"
            other = self.other.load(self.data)
            assert _digest_of(other) != _digest_of(self.source.load(self.data)), "`other` has the same content"

    def test_loads_the_same_examples_every_time(self) -> None:
        one, other = self.source.load(self.data), self.source.load(self.data)
        assert _digest_of(one) == _digest_of(other), "two loads give different examples"

    def test_examples_and_labels_fit(self) -> None:
        dataset = self.source.load(self.data)
        assert dataset.modality == self.source.modality and dataset.task == self.source.aim
        for side in (dataset.train, dataset.test):
            side.check()
            assert len(side), "a side is empty"
            assert side.inputs.shape[1:] == dataset.train.inputs.shape[1:], "the sides have other shapes"
            labels = side.labels[:]
            if not labels.is_floating_point():
                low, high = int(labels.min()), int(labels.max())
                assert low >= 0 and high < dataset.classes, f"labels: {low} to {high}, of {dataset.classes} classes"
        made = dataset.provenance
        if made is not None:
            assert len(made.codes) == len(made.sources) == len(dataset.train), "provenance: expected one an example"
            assert list(made.classes) == sorted(made.classes), "provenance: expected sorted classes"
            assert made.codes.min() >= 0 and made.codes.max() < len(made.classes), "provenance: codes without a class"

    def test_inputs_are_prepared_one_by_one(self) -> None:
        """The input of an example does not depend on the others of its batch."""
        dataset = self.source.load(self.data)
        prepare, rows = dataset.preparation(CPU), dataset.train.inputs[:4]
        together = prepare(rows)
        apart = torch.cat([prepare(rows[at : at + 1]) for at in range(len(rows))])
        assert torch.equal(together, apart), "an example's input depends on its batch"
        assert not together.is_floating_point() or bool(together.isfinite().all()), "inputs are not finite"

    def test_augmentation_draws_for_every_slot(self) -> None:
        """Leaving examples out of a batch changes nothing for the others; the same draws give the same bits."""
        dataset = self.source.load(self.data)
        rows = dataset.train.inputs[:8]
        slots = np.arange(len(rows))

        def augmented(chosen: np.ndarray) -> Tensor:
            draws = stream(0, "contract")
            return dataset.augment(rows[torch.from_numpy(chosen)].clone(), draws=draws, slots=chosen, batch_size=8)

        whole = augmented(slots)
        assert whole.shape == rows.shape and whole.dtype == rows.dtype, "augmentation changed shape or type"
        assert torch.equal(whole, augmented(slots)), "the same draws give other bits: expected draws from `draws` only"
        assert torch.equal(whole[::2], augmented(slots[::2])), "leaving examples out changed others"

    def test_trains(self) -> None:
        if self.model is None:
            return
        task = {"dataset": written(self.source), "model": self.model}
        train = {"epochs": 1, "batch_size": 8, "optimizer": {"sgd": {"lr": 0.01}}}
        recipe = build_recipe(WHERE, task=task, train=train, methods=[], where=WHERE)
        loop = loop_of(recipe, load(recipe.dataset, self.data))
        losses = [float(loop.step()) for _ in range(2)]
        assert all(map(math.isfinite, losses)), f"losses: {losses}"


class ExecutorContract(Contract):
    """The tests of an executor of runs, whose workers are on this machine; `run_sweep(plan, executor=...)` takes it.

    Its tests are made in the main thread, because a sweep is stopped by a signal.
    """

    engine: ClassVar[EngineName] = "warm"  # a notebook engine; `inline` where calls are made in a main thread
    elsewhere: ClassVar[bool] = True  # whether calls are made in other processes; if not, none of them can be killed
    breaks: ClassVar[bool] = False  # whether the death of a worker ends the executor, with all calls in progress

    def executor(self) -> Executor:
        """Return a new executor, of two workers if it can have them."""
        raise NotImplementedError

    def test_a_call_gives_its_value_or_its_exception(self) -> None:
        executor = self.executor()
        try:
            assert executor.submit(operator.add, 3, 4).result() == 7, "3 + 4"
            error = executor.submit(operator.truediv, 1, 0).exception()
            assert isinstance(error, ZeroDivisionError), f"1 / 0: found {error!r}, expected its exception"
            assert executor.submit(operator.add, 1, 1).result() == 2, "a call after one that raised"
        finally:
            executor.shutdown()

    def test_runs_in_any_order_end_with_the_bits_of_this_process(self) -> None:
        with _scratch() as runs:
            plan = _plan(runs, SHORT)
            summary = self._run(dataclasses.replace(plan, runs=plan.runs[::-1]))
            assert summary.complete, f"{summary}"
            assert _digests(runs) == undisturbed(SHORT), "the runs differ from those of this process"

    def test_a_run_that_raises_fails_once_and_no_other_does(self) -> None:
        with _scratch() as runs:
            events: list[Event] = []
            summary = self._run(_plan(runs, RAISES), events.append)
            assert (summary.done, len(summary.failures)) == (1, 1), f"{summary}: expected one run done, one failed"
            assert "diverged" in summary.failures[0].message, f"its exception: found {summary.failures[0].message!r}"
            assert not [event for event in events if event.kind == "retry"], "a run that raised was tried again"

    def test_a_stopped_sweep_leaves_checkpoints_and_continues(self) -> None:
        with _scratch() as runs:
            plan = _plan(runs, LONGER)
            with _once_it_trains(plan, lambda run: os.kill(os.getpid(), signal.SIGINT)):
                summary = self._run(plan)
            assert summary.interrupted and not summary.failures, f"{summary}: expected an interrupted sweep"
            assert not list(plan.directory.rglob(f"{rundir.BEGUN}*")), "a run continues after the sweep has ended"
            stopped = [run for run in plan.runs if list((run.directory / rundir.CHECKPOINT).glob("*"))]
            assert stopped, "no run has left a checkpoint: a stop has to let it finish its step"
            assert self._run(_plan(runs, LONGER)).complete
            resumed = run_files.read(ResultRecord, stopped[0].directory / rundir.RESULT).resumed
            assert resumed == 1, f"found a run that resumed {resumed} times, expected once"
            assert _digests(runs) == undisturbed(LONGER), "the resumed runs differ from those of this process"

    def test_a_killed_worker_costs_one_run_a_retry(self) -> None:
        if not self.elsewhere:
            return
        with _scratch() as runs:
            plan, killed, events = _plan(runs, LONGER), [], []

            def kill(run: Path) -> None:
                process = int(lost_workers(run)[0].rpartition(" ")[2])
                assert process != os.getpid(), "`elsewhere`: the run is executed by this process"
                os.kill(process, signal.SIGKILL)
                killed.append(process)

            with _once_it_trains(plan, kill):
                summary = self._run(plan, events.append)
            assert killed, "the worker of no run was killed"
            assert summary.complete, f"{summary}: expected that the run is tried again"
            again = [event for event in events if event.kind == "retry"]
            # An executor may repeat the call itself; then there is no retry to be seen.
            assert len(again) <= (len(plan.runs) if self.breaks else 1), f"{len(again)} runs were tried again"
            assert _digests(runs) == undisturbed(LONGER), "the runs differ from those of this process"

    def _run(self, plan: Plan, on_event: Callable[[Event], None] = lambda event: None) -> Summary:
        settings = Settings(engine=self.engine, profile=False, on_event=on_event)
        return run_sweep(plan, settings, executor=self.executor)


# --- sweeps of the contract of executors ---


def _sweep(epochs: float, recipes: Mapping[str, Any], **more: Any) -> str:
    """Return the specification of a sweep on digits, as YAML."""
    content = {
        "name": WHERE,
        "task": {"dataset": "digits", "model": {"resnet8": {"width": 0.5}}},
        "train": {"epochs": epochs, "batch_size": 64, "optimizer": {"sgd": {"lr": 0.1}}, "evaluations": 0},
        "baseline": "baseline",
        "recipes": recipes,
        "budgets": [1.0],
        "seeds": [0],
        **more,
    }
    return json.dumps(content)


SLOWER = {"train": {"optimizer": {"sgd": {"lr": 0.05}}}, "methods": []}
SHORT = _sweep(0.5, {"baseline": [], "slower": SLOWER}, budgets=[0.5, 1.0])  # 7 steps
LONGER = _sweep(14, {"baseline": []}, seeds=[0, 1])  # 196 steps
WILD = {"train": {"optimizer": {"sgd": {"lr": 100.0, "weight_decay": 10.0}}}, "methods": []}
RAISES = _sweep(1, {"baseline": [], "wild": WILD})


def _scratch() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="explorer-contract-")


def _plan(runs: str, sweep: str) -> Plan:
    return make_plan(load_spec(json.loads(sweep)), runs=Path(runs))


def _digests(runs: str) -> dict[str, tuple[str, bytes]]:
    """Return the digest of the final state of every run that is done, and its measurements."""
    done = {}
    for path in rundir.run_directories(Path(runs) / WHERE):
        if (path / rundir.RESULT).exists():
            result = run_files.read(ResultRecord, path / rundir.RESULT)
            done[path.name] = (result.state_digest, (path / rundir.METRICS).read_bytes())
    return done


@cache
def undisturbed(sweep: str) -> dict[str, tuple[str, bytes]]:
    """Return the digests of a sweep that this process executes."""
    with _scratch() as runs:
        run_sweep(_plan(runs, sweep), Settings(engine="inline", workers=1, profile=False), executor=InProcess())
        return _digests(runs)


@contextlib.contextmanager
def _once_it_trains(plan: Plan, act: Callable[[Path], object]) -> Iterator[None]:
    """Within the block, call `act` with the directory of the first run that has written measurements."""
    deadline = time.monotonic() + COMES

    def look() -> bool:
        for run in plan.runs:
            metrics = run.directory / rundir.METRICS
            if lost_workers(run.directory) and metrics.exists() and metrics.stat().st_size:
                act(run.directory)
                return True
        return time.monotonic() > deadline

    with repeated(look, every=0.01, name="look"):
        yield


# --- what the contracts are made of: functions on loops, which raise AssertionError ---


def loop_of(recipe: Recipe, dataset: Dataset, **more: Any) -> Loop:
    """Return the loop of a recipe with seed 0 on the CPU; `more` are a `typing` and further fields of its setting.

    Raises `RecipeError` for a recipe that its methods refuse.
    """
    machine.fix_bits(threads=torch.get_num_threads())
    _, count = length(recipe, recipe.name, examples=len(dataset.train), ssr=1.0)
    check_methods(recipe, recipe.name, dataset, steps=count)
    nominal = total_steps(recipe, examples=len(dataset.train), ssr=1.0)
    batches = Batches(
        dataset,
        batch_size=recipe.numbers.batch_size,
        seed=0,
        device=CPU,
        typing=more.pop("typing", None),
        pace=pace_of(recipe, steps=nominal),
    )
    with torch_stream(CPU, 0, "build"):
        model = model_of(recipe, dataset)
    task = task_class(recipe.dataset)(classes=dataset.classes)
    setting = setting_of(recipe, model=model, task=task, batches=batches, seed=0, steps=count, **more)
    return Loop(setting, recipe.methods, Clock(CPU, warmup_steps=0, split=False))


def steps(loop: Loop, count: int) -> Loop:
    """Train so many steps and return the loop."""
    for _ in range(count):
        loop.step()
    return loop


def everything(loop: Loop) -> dict[str, Tensor]:
    """Return copies of all tensors that a checkpoint holds, by name."""
    return {name: tensor.clone() for name, tensor in loop.tensors().items()}


def differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """Return the names under which two sets of tensors do not have the same bits."""
    return sorted(
        name
        for name in one.keys() | other.keys()
        if name not in one or name not in other or not _same(one[name], other[name])
    )


def assert_same(one: Mapping[str, Tensor], other: Mapping[str, Tensor], what: str) -> None:
    """Raise `AssertionError` unless both have the same tensors, bit for bit."""
    different = differing(one, other)
    assert not different, f"{what} differ in {len(different)} tensors, such as {', '.join(different[:3])}"


def assert_resumes(make: Callable[[], Loop]) -> None:
    """Raise `AssertionError` unless a run that is resumed after any step ends with the same bits."""
    whole = make()
    total = whole.setting.total_steps
    checkpoints, losses = [], []
    for _ in range(total):
        checkpoints.append(everything(whole))
        losses.append(float(whole.step()))
    whole.call("after_fit")
    for step in range(1, total):
        resumed = make()
        resumed.restore(checkpoints[step], step=step)
        resumed.call("before_fit")
        again = [float(resumed.step()) for _ in range(step, total)]
        assert again == losses[step:], f"resumed after step {step}: losses {again}, expected {losses[step:]}"
        resumed.call("after_fit")
        assert_same(everything(resumed), everything(whole), f"the run resumed after step {step} and the whole run")


def assert_routed(make: Callable[[str | None], Loop]) -> None:
    """Raise `AssertionError` if what a step does to the lower half of the model depends on a class that it is denied.

    `make` returns a loop in which the class of that name has other examples; None: no class has.
    """
    start = steps(make(None), 3)
    tensors = everything(start)
    lower = tuple(f"{layer.name}." for layer in start.state.resource(Session).layers if layer.depth < HALF)
    plain = everything(steps(start, 1))
    moved: dict[str, list[str]] = {}
    for changed in (ADMITTED, DENIED):
        loop = make(changed)
        loop.restore(tensors, step=3)
        different = differing(plain, everything(steps(loop, 1)))
        moved[changed] = [name for name in different if any(part.startswith(lower) for part in name.split("/"))]
        assert different, f"the control: a step does not depend on examples of the class {changed!r}"
    assert moved[ADMITTED], "the control: the lower half does not depend on the class that it admits"
    assert not moved[DENIED], f"a layer depends on a class that it is denied: {', '.join(moved[DENIED][:3])}"


def _second_half_differs(whole: Loop, resumed: Loop) -> str | None:
    steps(whole, 3)
    resumed.restore(everything(whole), step=3)
    different = differing(everything(steps(whole, 2)), everything(steps(resumed, 2)))
    if different:
        return f"resumed in the other order, {len(different)} tensors differ, such as {different[0]}"
    return None


def _end(loop: Loop) -> Loop:
    steps(loop, loop.setting.total_steps)
    loop.call("after_fit")
    return loop


def _tensors_of(loop: Loop, prefix: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in everything(loop).items() if name.startswith(prefix)}


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether both have the same bytes: -0.0 is not 0.0, and a NaN is itself."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(_raw(one), _raw(other))


def _bytes(tensor: Tensor) -> bytes:
    return _raw(tensor).numpy().tobytes()


def _raw(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8)


def _numpy_state() -> bytes:
    state: Any = np.random.get_state(legacy=False)
    return state["state"]["key"].tobytes() + str(state["state"]["pos"]).encode()


def _digest_of(dataset: Dataset) -> str:
    total = hashlib.sha256()
    for tensor in chain.from_iterable((side.inputs, side.labels) for side in (dataset.train, dataset.test)):
        total.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode() + _bytes(tensor[:]))
    return total.hexdigest()


def _other_content(dataset: Dataset, *, rows: np.ndarray) -> Dataset:
    """Return the dataset with the inputs and labels of these examples exchanged among them."""
    places = torch.from_numpy(np.flatnonzero(rows))
    inputs, labels = dataset.train.inputs[:].clone(), dataset.train.labels[:].clone()
    inputs[places], labels[places] = inputs[places.roll(1)], labels[places.roll(1)]
    return dataclasses.replace(dataset, train=Split(inputs=inputs, labels=labels))


def _policy() -> Any:
    """Return a policy, in memory and unsigned, that denies one of two classes the layers of the lower half."""
    classes = tuple(
        TaxonomyClass(path=path, definition=path, personal_data=False, source=Source.PUBLIC)
        for path in (ADMITTED, DENIED)
    )
    taxonomy = Taxonomy(format=TAXONOMY_FORMAT, name=WHERE, version=1, issued=ISSUED, expires=EXPIRES, classes=classes)
    reference = TaxonomyReference(name=WHERE, version=1, digest=taxonomy.digest)
    policy = RoutingPolicy(
        format=POLICY_FORMAT,
        name=WHERE,
        version=1,
        taxonomy=reference,
        quarantine=Quarantine.REFUSE,
        conditions=(),
        sealed=(),
        rules=(Rule(classes=(DENIED,), depth=(0.0, HALF), weight=0.0), Rule(classes=("*",), weight=1.0)),
        issued=ISSUED,
        expires=EXPIRES,
    )
    return bind(policy, taxonomy, where=WHERE)

"""The training loop. Every hook of `engine.method` in its place:

    change_model
    before_fit
    for step:
        before_step
        change_plan
        for share:
            for lane:
                change_examples
                change_batch
                for microbatch:
                    before_forward
                    after_forward
                    before_loss
                    after_loss
                    before_backward
                    after_backward
            change_gradients
        before_update
        after_update
        after_step
    after_fit
    before_evaluation
    after_evaluation
    after_run

`change_model` runs before the optimisers are built; `before_fit` runs in each process of the run, so again after a
resume. Shares are read and augmented before `change_examples`, and are on the device before `change_batch`. What one
lane has of a share is a share for these hooks; most runs have one lane, which has all (engine/lanes.py). The model runs
between `before_forward` and `after_forward`, the loss is computed between `before_loss` and `after_loss`, the
gradients between `before_backward` and `after_backward`, and the optimisers step between `before_update` and
`after_update`. A share that may change nothing is not read at all. In `change_gradients` a method may run the share's
microbatches again (`state.recompute`); then the share's gradients are weighted and added to those of the shares before
it. Where a run evaluates between steps, the two hooks around an evaluation run there too. `after_run` comes last, when
the final metrics are known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.data.batches import Batch, Batches
from explorer.data.read_ahead import ReadAhead, Wanted
from explorer.data.streams import torch_stream
from explorer.engine.clock import Clock
from explorer.engine.gradients import Gradients, diverged
from explorer.engine.guard import Guard
from explorer.engine.lanes import Lanes, Results, Statistics
from explorer.engine.leaves import leaves
from explorer.engine.loss_scale import NAME as LOSS_SCALE
from explorer.engine.loss_scale import LossScale
from explorer.engine.method import HOOKS, Kind, Method, Moment, acting, resting, turn_takers
from explorer.engine.modules import initialise
from explorer.engine.optimizer import OptimizerSpec, Schedule, build_optimizer
from explorer.engine.parts import take_parts
from explorer.engine.precision import Precision, autocast, backward_modes
from explorer.engine.probing import Inspection, RecipeInspection
from explorer.engine.ranks import Ranks
from explorer.engine.state import SHARED, Part, Region, Share, State
from explorer.engine.task import Task
from explorer.errors import CheckpointError, DivergedError, RecipeError, TrainingError
from explorer.provenance.taxonomy import QUARANTINE

Trace = Callable[[str, str], None]  # (hook, method name)
LOSS = ""  # name of the loss among the results of a lane: no tensor has it
BLANK = 2  # examples with which to discover the layers: normalisation over a batch needs two
OUTSIDE_STEPS = ("change_model", "before_fit", "before_evaluation", "after_evaluation", "after_fit", "after_run")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """The model, data and settings of a run: everything except the methods."""

    model: nn.Module
    task: Task
    batches: Batches
    optimizer: OptimizerSpec
    schedule: Schedule
    seed: int
    total_steps: int
    full_steps: int  # at scale-schedule ratio 1
    precision: Precision = "fp32"
    microbatch_size: int | None = None  # rows of one pass; None: the whole share
    lanes: int = 1  # parts of a step whose results are added in a fixed order
    resources: Mapping[type, Any] = field(default_factory=dict)  # for the methods: see `State.resources`
    draw: bool = True  # draw initial weights by seed and name; False: keep the model's own
    begin: Callable[[nn.Module], None] = lambda model: None  # loads initial values into the changed model


@dataclass(slots=True)
class _Cell:
    """A lane's part of a share, with its rows."""

    share: Share
    raw: Tensor
    labels: Tensor
    batch: Batch | None = None  # None: not begun
    parts: tuple[Part, ...] = ()


@dataclass(slots=True)
class Loop:
    """A run in memory. `step()` takes one optimiser step; saving, logging and stopping are the caller's."""

    setting: Setting
    methods: Sequence[Method]  # in acting order
    clock: Clock
    trace: Trace | None = None
    ranks: Ranks = field(default_factory=Ranks)  # the processes that make the passes of a step together
    reads_ahead: bool | None = None  # a second thread prepares the rows of the next step; None: for a GPU
    checks_passes: bool = True  # a loss that is not finite stops its pass; False: the caller looks at the losses
    state: State = field(init=False)
    _hooks: dict[str, list[Method]] = field(init=False)
    _takers: list[tuple[str, list[str]]] = field(init=False)  # names of methods that take turns
    _resting: frozenset[str] = frozenset()  # names of those that sit out this step
    _trainable: frozenset[str] = field(init=False)
    _gradients: Gradients = field(init=False)
    _lanes: Lanes = field(init=False)
    _statistics: Statistics = field(init=False)
    _diverged: str = ""  # why this rank's loss is not finite
    _cells: dict[int, _Cell] = field(default_factory=dict)  # of the current share, by lane
    _modes: AbstractContextManager[object] = field(init=False)
    _backward: AbstractContextManager[object] = field(init=False)
    loss_scale: LossScale | None = field(init=False)  # None: not fp16
    _overflowed: bool = False  # gradients of the current share
    _ahead: ReadAhead | None = field(init=False)
    _then: int = 0  # the step whose rows it reads while this one computes

    # --- building ---

    def __post_init__(self) -> None:
        setting = self.setting
        self._hooks = {hook: acting(hook, self.methods) for hook in HOOKS}
        self._takers = turn_takers(self.methods)
        self._modes = autocast(setting.batches.device, setting.precision)
        self._backward = backward_modes(setting.precision)
        self.loss_scale = LossScale() if setting.precision == "fp16" else None
        self._ahead = ReadAhead(setting.batches, self._note) if self._reads_ahead() else None
        # Weights are drawn before surgery, so that surgery does not change the draws of modules that were there before.
        if setting.draw:
            initialise(setting.model, seed=setting.seed)
        setting.model.to(setting.batches.device)
        self.state = State(
            seed=setting.seed,
            total_steps=setting.total_steps,
            batch_size=setting.batches.batch_size,
            pace=setting.batches.pace,
            modes=self._modes,
            classes=setting.task.classes,
            model=setting.model,
            resources={
                Batches: setting.batches,
                Task: setting.task,
                Inspection: RecipeInspection(setting.batches, setting.task),
                Ranks: self.ranks,
                **setting.resources,
            },
            recompute=self._recompute,
        )
        self.call("change_model")
        setting.begin(setting.model)  # after surgery: its values are those of the changed model
        # Everything below depends on parameters and layers, so it follows the last change of the model.
        self._gradients = Gradients(setting.model)
        self._lanes = Lanes(setting.lanes, self.ranks)
        self._statistics = Statistics(setting.model)
        self.state.resources[Guard] = self._gradients.guard
        self._trainable = frozenset(name for name, p in self._gradients.parameters.items() if p.requires_grad)
        if not self._trainable:
            raise RecipeError(
                f"model {type(setting.model).__name__}: found no parameter that trains: expected at least one with"
                " `requires_grad`"
            )
        blank = torch.zeros(BLANK, *setting.batches.dataset.example_shape, dtype=torch.uint8)
        self.state.layers = leaves(setting.model, setting.batches.prepare(blank))
        self.state.regions = self._build_regions()
        self.state.memory = {method.name: method.memory(self.state) for method in self.methods}
        if self.loss_scale is not None:
            self.state.memory[LOSS_SCALE] = self.loss_scale.memory

    def _reads_ahead(self) -> bool:
        """Return whether a second thread prepares rows."""
        setting = self.setting
        # A task of the user's own pads rows to those read with them, and its functions need not bear a second thread.
        if not setting.batches.rows_apart:
            return False
        in_shards = setting.batches.dataset.blocks is not None
        # A method may plan that a class is not read at all; what it plans for a step is known in that step. For shards
        # that is guessed, since fetching and decoding take long.
        if self._hooks["change_plan"] and not in_shards:
            return False
        # On a CPU it would take a core beyond the threads that the run was planned for, and gain little: reading and
        # augmenting are 0.7% of a step of ResNet-20 on 256 images of CIFAR-10.
        usual = setting.batches.device.type == "cuda" or in_shards
        return usual if self.reads_ahead is None else self.reads_ahead

    def _note(self, part: str, start: float, end: float) -> None:
        self.clock.ahead.note(part, start, end, ahead=True)  # of the clock of that moment: profiles have their own

    def _build_regions(self) -> dict[str, Region]:
        """Return the shared region and every sealed one, each with optimisers of its own."""
        members: dict[str, dict[str, nn.Parameter]] = {SHARED: {}}
        for name, parameter in self._gradients.parameters.items():
            if name not in self._trainable:
                continue
            members.setdefault(self.state.sealed.get(name, SHARED), {})[name] = parameter
        return {
            name: Region(
                name=name,
                parameters=parameters,
                optimizers=self._optimizers(parameters),
            )
            for name, parameters in sorted(members.items())
        }

    def _optimizers(self, parameters: dict[str, nn.Parameter]) -> tuple[Optimizer, ...]:
        """Return the optimisers of the method that owns the update rule, or else the recipe's own."""
        for method in self.methods:
            built = method.build_optimizers(parameters, self.setting.optimizer, state=self.state)
            if built is not None:
                return built
        return (build_optimizer(self.setting.optimizer, parameters.values()),)

    def call(self, hook: str) -> None:
        """Run one hook of every method that defines it."""
        for method in self._hooks[hook]:
            if method.name in self._resting and hook not in OUTSIDE_STEPS:
                continue
            if self.trace:
                self.trace(hook, method.name)
            observed = method.kind is Kind.RECORD and hook not in OUTSIDE_STEPS
            if observed:
                self.clock.lap("other")
            getattr(method, hook)(self.state)
            if observed:
                self.clock.lap("governance")

    # --- one step ---

    def step(self, *, then: int | None = None) -> Tensor:
        """Take one optimiser step, and advance `state.step`; return the training loss, a scalar on the device.

        `then` is the step that will follow, whose rows may be read meanwhile; None: the next one.
        """
        self._then = self.state.step + 1 if then is None else then
        self.prepare_step()
        loss = self._passes()
        self._update()
        self.call("after_step")
        if self.state.compiled:
            self.clock.set_aside("compile")
            self.state.compiled = False
        self.state.step += 1
        return loss

    def prepare_step(self) -> None:
        """Plan the step: everything before the first share is read."""
        if not self.setting.model.training:  # checked first, since `train` visits every module
            self.setting.model.train()
        self._set_learning_rate()
        state = self.state
        self._resting = resting(self._takers, seed=self.setting.seed, step=state.step)
        state.batch_size = self.setting.batches.pace.size(state.step)
        state.examples = self.setting.batches.indices(state.step)
        self.call("before_step")
        state.admission, state.scales = {}, {}
        state.shares = self._shares(state.step)
        self.call("change_plan")
        self.clock.lap("other")

    def _shares(self, step: int) -> tuple[Share, ...]:
        names = self.setting.batches.typing.names
        return tuple(self._share(names.get(code, ""), code, slots) for code, slots in self.setting.batches.shares(step))

    def _share(self, name: str, code: int, slots: np.ndarray) -> Share:
        """Return the share of a class, which may change everything; the quarantine never trains and may change
        nothing."""
        everything = frozenset() if name == QUARANTINE else self._trainable
        return Share(
            name=name,
            code=code,
            slots=slots,
            parameters=everything,
            buffers=self._gradients.guard.buffer_names,
            dealt=slots,
        )

    def _passes(self) -> Tensor:
        """Run the passes of all shares; sum their weighted gradients in order into `.grad`. Return the step's loss."""
        self._gradients.clear()
        total: Tensor | None = None
        dropped: list[str] = []  # classes whose gradients overflowed
        shares = [share for share in self.state.shares if share.parameters]  # the others may change nothing: not read
        # All rows are read at once, unless the task pads rows to the longest: then a share's rows would depend on
        # others.
        for part in [shares] if shares and self.setting.batches.rows_apart else [[share] for share in shares]:
            cells = self._read_cells(part)
            self.read_ahead(self._then)
            self.clock.lap("other")
            for share in part:
                self._cells = cells.pop(0)
                self._overflowed = False
                undo = None if self.loss_scale is None else self._gradients.guard.remember_buffers()
                loss = self._take_gradients(share)
                self.call("change_gradients")
                self._gradients.add(share, self.state.gradients)
                if undo is not None and self._overflowed:
                    undo()
                    self._drop(share)
                    dropped.append(share.name)
                self.clock.lap("backward")
                total = loss if total is None else total + loss
        if self.loss_scale is not None:
            self.state.rescaled = self.loss_scale.advance(dropped) if shares else None
        return torch.zeros((), device=self.setting.batches.device) if total is None else total

    def _drop(self, share: Share) -> None:
        """Make the step without a share whose gradients overflowed, as if it might change nothing. Raises
        `DivergedError` where no scale is left to blame."""
        assert self.loss_scale is not None
        if self.loss_scale.is_least:
            of = f", class {share.name}" if share.name else ""
            raise DivergedError(
                f"training diverged: the gradients at step {self.state.step + 1}{of} are not finite in fp16, even with"
                " a loss scale of 1; the step was not made, and checkpoints of earlier ones are kept; bf16 has the"
                " range of fp32, and a lower learning rate or a warm-up may help"
            )
        denied = replace(share, parameters=frozenset(), buffers=frozenset())
        self.state.shares = tuple(denied if one is share else one for one in self.state.shares)

    def _update(self) -> None:
        """Let every region's optimisers step."""
        self.call("before_update")
        self.clock.lap("other")
        for region in self.state.regions.values():
            for optimizer in region.optimizers:
                optimizer.step()
        self.clock.lap("optimizer")
        self.call("after_update")

    # --- a share's rows ---

    def read_share(self, share: Share) -> None:
        """Make this the current share: read its rows and let the methods change them."""
        cell = _Cell(share, *self._read([share])[0])
        self._cells = {0: cell}
        self._begin(cell)

    def read_ahead(self, step: int) -> None:
        """Let the second thread, if there is one, prepare the rows of a step. Before a first plan nothing says
        which classes are read."""
        if self._ahead is not None and self.state.shares and step < self.state.total_steps:
            unread = self._unread()
            self._ahead.start(lambda: self._wanted(step, unread))

    def _unread(self) -> frozenset[int]:
        """Return the codes of the classes that this step does not read. Of the next one they are a good guess: where
        its plan differs, it reads its rows itself."""
        return frozenset(share.code for share in self.state.shares if not share.parameters)

    def _wanted(self, step: int, unread: frozenset[int]) -> Wanted:
        """Return the rows that this rank will read in a step, if its plan leaves out these classes only."""
        batches = self.setting.batches
        examples = batches.indices(step)
        batches.expect(step, without=unread)
        shares = [share for share in self._shares(step) if share.parameters and share.code not in unread]
        present = [replace(share, slots=batches.present(share.slots, examples)) for share in shares]
        slots = [cell.slots for share in present for cell in self._lanes.cells(share).values()]
        every = np.concatenate(slots) if slots else np.empty(0, np.int64)
        return Wanted(step, examples[every], every)

    def _read_cells(self, shares: Sequence[Share]) -> list[dict[int, _Cell]]:
        """Return the cells of these shares that this rank passes, read."""
        cells = [self._lanes.cells(share) for share in shares]
        every = [cell for own in cells for cell in own.values()]
        # Rows that are padded to the longest must not depend on the cells that this rank has.
        together = [every] if self.setting.batches.rows_apart else [[cell] for cell in every]
        rows = iter([rows for some in together if some for rows in self._read(some)])
        return [{lane: _Cell(cell, *next(rows)) for lane, cell in own.items()} for own in cells]

    def _read(self, shares: Sequence[Share]) -> list[tuple[Tensor, Tensor]]:
        """Return the augmented raw rows of each of these shares: inputs and labels. They are read together, since many
        small reads take far longer than a large one."""
        state, batches = self.state, self.setting.batches
        slots = np.concatenate([share.slots for share in shares])
        examples = state.examples[slots]
        prepared = None
        if self._ahead is not None:
            with self.clock.waiting():
                prepared = self._ahead.take(Wanted(state.step, examples, slots))
        if prepared is not None:
            inputs, labels = prepared
        else:
            batches.expect(state.step, without=self._unread())
            inputs, labels = batches.read(examples)
            self.clock.lap("read")
            inputs = batches.augment(inputs, state.step, slots)
            self.clock.lap("preprocess")
        sizes = [len(share.slots) for share in shares]
        return list(zip(inputs.split(sizes), labels.split(sizes), strict=True))

    def _begin(self, cell: _Cell) -> None:
        """Make this the current share. The first time, let the methods change its rows."""
        state, clock = self.state, self.clock
        state.share, state.raw, state.batch, state.parts = cell.share, cell.raw, cell.batch, cell.parts
        if cell.batch is not None:
            return
        self.call("change_examples")
        clock.lap("preprocess")
        # Transferred separately: the model gets a tensor of its own, not a view whose place depends on other shares.
        state.batch = self.setting.batches.transfer(
            state.raw, cell.labels, slots=cell.share.slots, code=cell.share.code
        )
        clock.lap("transfer")
        state.parts = () if cell.share.divide is None else cell.share.divide(state)
        self.call("change_batch")
        cell.batch, cell.parts = state.batch, state.parts
        clock.lap("other")

    # --- a share's gradients ---

    def _take_gradients(self, share: Share) -> Tensor:
        """Write the share's gradients, summed over its lanes; return its detached loss."""
        state = self.state
        if self._lanes.count == 1:
            loss = self._pass_cell(self._cells[0])
        else:
            state.gradients, loss = self._take_lanes(share)
        state.share = share
        if self.loss_scale is not None:
            # After the sum over lanes, so that all ranks come to the same answer.
            unscaled = self.loss_scale.unscaled(state.gradients)
            self._overflowed, state.gradients = unscaled is None, unscaled or {}
        return loss

    def _take_lanes(self, share: Share) -> tuple[dict[str, Tensor], Tensor]:
        """Return the share's gradients and its loss, summed over its lanes, and merge what they write to buffers."""
        merged = self._statistics.of(share)

        def results_of(lane: int) -> Results | None:
            if lane not in self._cells:
                return None
            cell = self._cells[lane]
            merged.restart()
            loss = self._pass_cell(cell)
            return self.state.gradients | merged.results(len(cell.share.slots)) | {LOSS: loss}

        like = {name: p for name, p in self._gradients.parameters.items() if name in share.parameters}
        like |= merged.like | {LOSS: torch.zeros((), device=self.setting.batches.device)}
        total = self._lanes.total(results_of, like)
        if self.ranks.size > 1 and not torch.isfinite(total[LOSS]):
            reasons = filter(None, self.ranks.gathered(self._diverged))
            raise DivergedError(next(reasons, f"training diverged: the sum of losses is {total[LOSS].item()}"))
        merged.write(total, rows=len(share.slots))
        return {name: total[name] for name in like if name in total and name in share.parameters}, total[LOSS]

    def _pass_cell(self, cell: _Cell) -> Tensor:
        """Write the gradients of one cell, summed over its microbatches; return its detached loss."""
        self._begin(cell)
        state, share = self.state, cell.share
        assert state.batch is not None
        state.gradients = {}
        if share.divide is not None:
            return self._take_parts(share)
        admitted = self._gradients.admit(share)
        losses = [
            self._pass(share, index, rows, admitted)
            for index, rows in enumerate(_cut(len(state.batch), self.setting.microbatch_size))
        ]
        return torch.stack(losses).sum() if len(losses) > 1 else losses[0]

    def _take_parts(self, share: Share) -> Tensor:
        """Write the gradients of a share whose rows may change different tensors; return its detached loss."""
        assert self.state.batch is not None
        slots = self.state.batch.slots

        def passes(narrow: Share, rows: np.ndarray, first: int) -> list[Tensor]:
            admitted, cuts = self._gradients.admit(narrow), _cut(len(rows), self.setting.microbatch_size)
            return [
                self._pass(narrow, first + at, torch.from_numpy(rows[cut]).to(slots.device), admitted)
                for at, cut in enumerate(cuts)
            ]

        losses = take_parts(self.state, share, passes)
        return torch.stack(losses).sum() if losses else torch.zeros((), device=self.setting.batches.device)

    def _pass(self, share: Share, index: int, rows: slice | Tensor, admitted: dict[str, nn.Parameter]) -> Tensor:
        """Run one forward and backward pass; return the detached loss."""
        state, setting, clock = self.state, self.setting, self.clock
        assert state.batch is not None
        whole = isinstance(rows, slice) and rows == slice(0, len(state.batch))
        state.rows = state.batch if whole else state.batch.rows(rows)
        self.call("before_forward")
        clock.lap("other")
        with self._gradients.guarding(share):
            # Draws are keyed by share, lane and microbatch: the absence of a class does not shift those of the others.
            lane = () if share.lane is None else (share.lane,)
            draws = torch_stream(setting.batches.device, setting.seed, "model", state.step, share.name, *lane, index)
            with draws, self._modes:
                outputs = self._outputs(state.rows.inputs)
            if not isinstance(outputs, Tensor):
                raise TrainingError(f"the model gives {type(outputs).__name__} in training, expected a tensor")
            state.outputs = outputs.float()
            self.call("after_forward")
            state.loss_targets, state.smoothing = state.rows.targets, 0.0
            self.call("before_loss")
            # Divided by the constant batch size, not by the number of rows, so that microbatches and shares add up to
            # the loss of the whole batch.
            smoothing = {"smoothing": state.smoothing} if state.smoothing else {}  # only where the loss can smooth
            losses = setting.task.loss(state.outputs, state.loss_targets, **smoothing)
            state.loss = _weighted(losses.sum(), state.rows.weight)
            state.loss = state.loss / state.batch_size
            self.call("after_loss")
            # Before the gradients, so that weights stay those of the last good step.
            if self.checks_passes and not torch.isfinite(state.loss):
                self._stop(diverged(state, self._modes))
                return state.loss.detach()
            clock.lap("forward")
            self.call("before_backward")
            scaled = state.loss if self.loss_scale is None else state.loss * self.loss_scale.scale
            with self._backward:
                self._gradients.take(scaled, admitted, state.gradients)
        self.call("after_backward")
        clock.lap("backward")
        return state.loss.detach()

    def _stop(self, why: str) -> None:
        """Raise `DivergedError`. Where several ranks make the step, they all have to see it: `_take_lanes` does."""
        self._diverged = self._diverged or why
        if self.ranks.size == 1:
            raise DivergedError(why)

    def _outputs(self, inputs: Tensor) -> object:
        """Return the model's outputs. Raises `TrainingError` for a model that cannot take inputs of the size that a
        method gives them, such as one with learned positions."""
        try:
            return (self.state.forward or self.setting.model)(inputs)
        except (RuntimeError, ValueError, IndexError) as error:
            size, whole = tuple(inputs.shape[1:]), tuple(self.setting.batches.dataset.example_shape)
            if size == whole:
                raise
            methods = ", ".join(method.name for method in self._hooks["change_batch"])
            raise TrainingError(
                f"step {self.state.step + 1}: the model cannot take inputs of shape {size}, which {methods} made of"
                f" examples of shape {whole}: {str(error).splitlines()[0]}"
            ) from error

    def _recompute(self) -> None:
        """Run the share's passes again, on identical rows and draws. Buffers stay: BatchNorm's statistics would count
        the batch twice."""
        assert self.state.share is not None
        if self._overflowed:
            return
        with self._gradients.guard.keeping_buffers():
            self._take_gradients(self.state.share)

    # --- the learning rate ---

    def learning_rate(self) -> float:
        """Return the learning rate of the coming step, for parameters without a peak of their own."""
        return self.setting.optimizer.lr * self._factor()

    def _set_learning_rate(self) -> None:
        """Set the coming step's learning rate in every optimiser."""
        factor = self._factor()
        for region in self.state.regions.values():
            for optimizer in region.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = factor * group.get("peak", self.setting.optimizer.lr)

    def _factor(self) -> float:
        """Return the factor on the peak learning rates: the schedule's, as the methods change it."""
        # By consumed examples, in units of the nominal batch: a schedule keeps its shape where batch sizes vary.
        setting, state, nominal = self.setting, self.state, self.setting.batches.batch_size
        pace = setting.batches.pace
        factor = setting.schedule.factor(
            pace.position(state.step) / nominal,
            total_steps=pace.position(setting.total_steps) / nominal,
            full_steps=setting.full_steps,
        )
        for method in self.methods:
            factor = method.learning_rate(factor, self.moment())
        return factor

    def moment(self) -> Moment:
        """Return the coming step as a point of the plan."""
        state, batches = self.state, self.setting.batches
        return Moment(
            step=state.step,
            total_steps=state.total_steps,
            example_shape=batches.dataset.example_shape,
            pace=batches.pace,
        )

    # --- evaluating, saving, restoring ---

    def align(self) -> None:
        """Give the other ranks the state of rank 0."""
        if self.ranks.size > 1:
            step, tensors = self.ranks.told(self.state.step), self.ranks.given(self.tensors())
            if not self.ranks.leads:
                self.restore(tensors, step=step)

    def evaluate(self) -> dict[str, float]:
        """Return the metrics on the test side, with the weights that the methods choose for evaluation."""
        self.call("before_evaluation")
        with self._gradients.guard.untouched():  # a model may write to itself in evaluation mode too
            self.state.metrics = self.setting.task.evaluate(self.setting.model, self.setting.batches)
        self.call("after_evaluation")
        return self.state.metrics

    def tensors(self) -> dict[str, Tensor]:
        """Return all state that steps change, by unique name: parameters, buffers, optimiser states, methods'
        memory."""
        tensors = {f"model/{name}": tensor for name, tensor in self._model_tensors()}
        for prefix, optimizer, parameter in self._stepped():
            values = optimizer.state.get(parameter, {})
            tensors |= {prefix + key: value for key, value in values.items() if isinstance(value, Tensor)}
        for method, memory in self.state.memory.items():
            tensors |= {f"memory/{method}/{key}": tensor for key, tensor in memory.items()}
        return {name: tensor.detach() for name, tensor in tensors.items()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], *, step: int) -> None:
        """Go back to where `tensors()` was called. Raises `CheckpointError` if names, shapes or step do not fit."""
        if not 0 <= step <= self.state.total_steps:
            raise CheckpointError(f"checkpoint: found step {step}, expected 0 to {self.state.total_steps}")
        for name, tensor in self._model_tensors():
            tensor.copy_(_taken(tensors, f"model/{name}", like=tensor))
        for prefix, optimizer, parameter in self._stepped():
            for key in [key for key, value in optimizer.state.get(parameter, {}).items() if isinstance(value, Tensor)]:
                if prefix + key not in tensors:  # there was none yet
                    del optimizer.state[parameter][key]
            for name in [name for name in tensors if name.startswith(prefix)]:
                like = parameter if tensors[name].shape == parameter.shape else tensors[name]
                # In the parameter's layout, not the file's, and on its device: fused optimisers read both in memory
                # order and keep their step counters on the same device.
                value = torch.empty_like(like, dtype=tensors[name].dtype, device=parameter.device, requires_grad=False)
                optimizer.state[parameter][name.removeprefix(prefix)] = value.copy_(tensors[name])
        for method, memory in self.state.memory.items():
            for key, tensor in memory.items():
                tensor.copy_(_taken(tensors, f"memory/{method}/{key}", like=tensor))
        self.state.step = step

    def _model_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._gradients.parameters.items()
        yield from self._gradients.buffers.items()

    def _stepped(self) -> Iterator[tuple[str, Optimizer, nn.Parameter]]:
        """Yield every parameter with its optimiser and the prefix of its state's names."""
        names = {id(parameter): name for name, parameter in self._gradients.parameters.items()}
        for region in self.state.regions.values():
            for index, optimizer in enumerate(region.optimizers):
                for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                    yield f"optimizer/{region.name}/{index}/{names[id(parameter)]}/", optimizer, parameter


def _weighted(total: Tensor, weight: float) -> Tensor:
    """Multiply by the weight; a weight of 1, that of ordinary rows, costs no kernel."""
    return total if weight == 1.0 else total * weight


def _taken(tensors: dict[str, Tensor], name: str, *, like: Tensor) -> Tensor:
    """Return the tensor of that name, checked against the one it replaces."""
    tensor = tensors.get(name)
    if tensor is None or tensor.shape != like.shape or tensor.dtype != like.dtype:
        what = "nothing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
        raise CheckpointError(f"checkpoint: {name}: found {what}, expected {like.dtype} {tuple(like.shape)}")
    return tensor


def _cut(size: int, microbatch_size: int | None) -> list[slice]:
    """Return slices of consecutive rows, `microbatch_size` at a time."""
    length = microbatch_size or size
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]

"""The training loop. Every hook of `engine.method` in its place:

    change_model
    before_fit
    for step:
        before_step
        change_batch
        change_plan
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

`change_model` precedes the optimisers; `before_fit` runs in each process of the run, after a resume too. The batch is
read before `change_batch`, the model runs between `before_forward` and `after_forward`, the loss is taken between
`before_loss` and `after_loss`, the gradients between `before_backward` and `after_backward`, and the optimisers step
between `before_update` and `after_update`. A method may ask for the microbatches once more in `change_gradients`
(`state.recompute`). A run may evaluate between steps too; then the last two hooks run there as well.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.data.batches import Batch, Batches
from explorer.data.streams import torch_stream
from explorer.engine.clock import Clock
from explorer.engine.initialise import initialise
from explorer.engine.method import HOOKS, Method
from explorer.engine.optimizer import OptimizerSpec, build_optimizer
from explorer.engine.precision import Precision, autocast
from explorer.engine.schedule import Schedule
from explorer.engine.state import SHARED, Microbatch, Region, State
from explorer.engine.surgery import leaves
from explorer.engine.task import Classification
from explorer.errors import CheckpointError

Trace = Callable[[str, str], None]  # (hook, method name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """What the loop trains and how: everything but the methods."""

    model: nn.Module
    task: Classification
    batches: Batches
    optimizer: OptimizerSpec
    schedule: Schedule
    seed: int
    total_steps: int
    full_steps: int  # at scale-schedule ratio 1
    precision: Precision = "fp32"
    microbatch_size: int | None = None  # rows of one pass; None: the whole batch


@dataclass(slots=True)
class Loop:
    """A run in memory. `step()` does one optimiser step; saving, logging and stopping are its caller's."""

    setting: Setting
    methods: Sequence[Method]  # in acting order
    clock: Clock
    trace: Trace | None = None
    state: State = field(init=False)
    _hooks: dict[str, list[Method]] = field(init=False)
    _trainable: frozenset[str] = field(init=False)
    _named: dict[str, nn.Parameter] = field(init=False)
    _modes: AbstractContextManager[object] = field(init=False)

    def __post_init__(self) -> None:
        setting = self.setting
        self._hooks = {hook: _users(hook, self.methods) for hook in HOOKS}
        self._modes = autocast(setting.batches.device, setting.precision)
        initialise(setting.model, seed=setting.seed)
        setting.model.to(setting.batches.device)
        self.state = State(
            seed=setting.seed,
            total_steps=setting.total_steps,
            batch_size=setting.batches.batch_size,
            classes=setting.task.classes,
            model=setting.model,
            recompute=self._recompute,
        )
        self.call("change_model")
        self._named = dict(setting.model.named_parameters())
        self._trainable = frozenset(self._named)
        optimizer = build_optimizer(setting.optimizer, self._named.values())
        self.state.regions = {SHARED: Region(name=SHARED, parameters=self._named, optimizers=(optimizer,))}
        example = torch.zeros(1, *setting.batches.dataset.example_shape, device=setting.batches.device)
        self.state.layers = leaves(setting.model, example)
        self.state.memory = {method.name: method.memory(self.state) for method in self.methods}

    def call(self, hook: str) -> None:
        """Run one hook of every method that defines it."""
        for method in self._hooks[hook]:
            if self.trace:
                self.trace(hook, method.name)
            getattr(method, hook)(self.state)

    def step(self) -> Tensor:
        """One optimiser step, `state.step` included; returns the training loss, a scalar on the device."""
        self.prepare_step()
        loss = self._passes()
        self.call("change_gradients")
        self._update()
        self.call("after_step")
        self.state.step += 1
        return loss

    def prepare_step(self) -> None:
        """Read the batch and plan the step: everything before the first forward pass."""
        state, batches, clock = self.state, self.setting.batches, self.clock
        if not self.setting.model.training:  # asked first: switching walks through every module
            self.setting.model.train()
        self._set_learning_rate()
        self.call("before_step")
        clock.lap("other")
        images, labels = batches.read(state.step)
        clock.lap("read")
        images = batches.preprocess(images, state.step)
        clock.lap("preprocess")
        state.batch = batches.transfer(images, labels)
        clock.lap("transfer")
        self.call("change_batch")
        state.microbatches = tuple(
            Microbatch(rows=rows, parameters=self._trainable)
            for rows in _cut(len(state.batch), self.setting.microbatch_size)
        )
        self.call("change_plan")
        clock.lap("other")

    def evaluate(self) -> dict[str, float]:
        """The metrics on the test side, with the weights that the methods choose for evaluation."""
        self.call("before_evaluation")
        metrics = self.setting.task.evaluate(self.setting.model, self.setting.batches)
        self.call("after_evaluation")
        return metrics

    def tensors(self) -> dict[str, Tensor]:
        """Everything that steps, by unique name: parameters, buffers, optimiser states, the methods' memory."""
        found = {f"model/{name}": tensor for name, tensor in self._model_tensors()}
        for prefix, optimizer, parameter in self._stepped():
            values = optimizer.state.get(parameter, {})
            found |= {prefix + key: value for key, value in values.items() if isinstance(value, Tensor)}
        for method, memory in self.state.memory.items():
            found |= {f"memory/{method}/{key}": tensor for key, tensor in memory.items()}
        return {name: tensor.detach() for name, tensor in found.items()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], *, step: int) -> None:
        """Go back to where `tensors()` was called. Raises `CheckpointError` if names, shapes or step do not fit."""
        if not 0 <= step <= self.state.total_steps:
            raise CheckpointError(f"checkpoint: found step {step}, expected 0 to {self.state.total_steps}")
        for name, tensor in self._model_tensors():
            tensor.copy_(_taken(tensors, f"model/{name}", like=tensor))
        for prefix, optimizer, parameter in self._stepped():
            for name in [name for name in tensors if name.startswith(prefix)]:
                like = parameter if tensors[name].shape == parameter.shape else tensors[name]
                # In the parameter's layout, not the file's, and on its device: fused optimisers walk both in memory
                # order, and keep their step counters beside them.
                value = torch.empty_like(like, dtype=tensors[name].dtype, device=parameter.device, requires_grad=False)
                optimizer.state[parameter][name.removeprefix(prefix)] = value.copy_(tensors[name])
        for method, memory in self.state.memory.items():
            for key, tensor in memory.items():
                tensor.copy_(_taken(tensors, f"memory/{method}/{key}", like=tensor))
        self.state.step = step

    def _model_tensors(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._named.items()
        yield from self.setting.model.named_buffers()

    def _stepped(self) -> Iterator[tuple[str, Optimizer, nn.Parameter]]:
        """Every parameter with the optimiser that steps it and the prefix of its state's names."""
        names = {id(parameter): name for name, parameter in self._named.items()}
        for region in self.state.regions.values():
            for index, optimizer in enumerate(region.optimizers):
                for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                    yield f"optimizer/{region.name}/{index}/{names[id(parameter)]}/", optimizer, parameter

    def _passes(self) -> Tensor:
        """All microbatches of the step: gradients summed in order into `.grad`; the first one assigns."""
        for parameter in self._named.values():
            parameter.grad = None
        total: Tensor | None = None
        for index, microbatch in enumerate(self.state.microbatches):
            if not microbatch.parameters:
                continue  # nobody may learn from these rows: no forward, no backward
            loss = self._pass(index, microbatch)
            total = loss if total is None else total + loss
        return torch.zeros((), device=self.setting.batches.device) if total is None else total

    def _pass(self, index: int, microbatch: Microbatch) -> Tensor:
        """One forward and backward pass; returns the detached loss."""
        state, setting, clock = self.state, self.setting, self.clock
        assert state.batch is not None
        state.microbatch = microbatch
        state.rows = _rows(state.batch, microbatch)
        admitted = self._admit(microbatch.parameters)
        self.call("before_forward")
        clock.lap("other")
        with torch_stream(setting.batches.device, setting.seed, "model", state.step, index), self._modes:
            outputs: Tensor = setting.model(state.rows.inputs)
        state.outputs = outputs.float()
        self.call("after_forward")
        state.loss_targets = state.rows.targets
        self.call("before_loss")
        state.loss = setting.task.loss(state.outputs, state.loss_targets).sum() / state.batch_size
        self.call("after_loss")
        clock.lap("forward")
        self.call("before_backward")
        gradients = torch.autograd.grad(state.loss, list(admitted), allow_unused=True)
        for parameter, gradient in zip(admitted, gradients, strict=True):
            if gradient is not None:
                gradient = _in_layout_of(parameter, gradient)
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
        self.call("after_backward")
        clock.lap("backward")
        return state.loss.detach()

    def _admit(self, names: frozenset[str]) -> tuple[nn.Parameter, ...]:
        """Let autograd see these parameters only: it then neither saves nor computes anything for the others."""
        for name, parameter in self._named.items():
            if parameter.requires_grad != (name in names):
                parameter.requires_grad_(name in names)
        return tuple(parameter for name, parameter in self._named.items() if name in names)

    def _recompute(self) -> None:
        """The passes again, on identical rows and draws; buffers such as BatchNorm's statistics stay as they are."""
        buffers = [(buffer, buffer.clone()) for buffer in self.setting.model.buffers()]
        self._passes()
        for buffer, before in buffers:
            buffer.copy_(before)

    def _update(self) -> None:
        self.call("before_update")
        self.clock.lap("other")
        for region in self.state.regions.values():
            for optimizer in region.optimizers:
                optimizer.step()
        self.clock.lap("optimizer")
        self.call("after_update")

    def _set_learning_rate(self) -> None:
        lr = self.learning_rate()
        for region in self.state.regions.values():
            for optimizer in region.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = lr

    def learning_rate(self) -> float:
        """The learning rate of the coming step."""
        setting = self.setting
        factor = setting.schedule.factor(
            self.state.step, total_steps=setting.total_steps, full_steps=setting.full_steps
        )
        return setting.optimizer.lr * factor


def _users(hook: str, methods: Iterable[Method]) -> list[Method]:
    """The methods that define a hook, in the order in which it runs."""
    users = [method for method in methods if getattr(type(method), hook) is not getattr(Method, hook)]
    return users[::-1] if hook.startswith("after_") else users


def _taken(tensors: dict[str, Tensor], name: str, *, like: Tensor) -> Tensor:
    """The tensor of that name, checked against the one it replaces."""
    found = tensors.get(name)
    if found is None or found.shape != like.shape or found.dtype != like.dtype:
        what = "nothing" if found is None else f"{found.dtype} {tuple(found.shape)}"
        raise CheckpointError(f"checkpoint: {name}: found {what}, expected {like.dtype} {tuple(like.shape)}")
    return found


def _in_layout_of(parameter: nn.Parameter, gradient: Tensor) -> Tensor:
    """The gradient with the parameter's strides: fused optimisers walk both in memory order."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter, requires_grad=False).copy_(gradient)


def _cut(size: int, microbatch_size: int | None) -> list[slice]:
    """Consecutive rows, `microbatch_size` at a time."""
    length = microbatch_size or size
    return [slice(start, min(start + length, size)) for start in range(0, size, length)]


def _rows(batch: Batch, microbatch: Microbatch) -> Batch:
    """The microbatch's rows; all of them without a copy."""
    if microbatch.rows == slice(0, len(batch)):
        return batch
    return batch.rows(microbatch.rows)

"""Hugging Face `Trainer`: a callback that reports its run, and governed steps in place of its own.

    trainer = Trainer(..., callbacks=[ExplorerCallback()])       # in a program that `explorer sweep run` starts
    trainer.train(resume_from_checkpoint=track.resume())

Training loss, evaluations, training time without evaluation, checkpoints and the end go to `explorer.track`. Under a
signed policy a mixin takes the place of the Trainer's steps:

    class GovernedTrainer(GovernedSteps, Trainer):
        pass

    trainer = GovernedTrainer(
        model=model, args=arguments, data_collator=collator, eval_dataset=held_out,      # as for any Trainer
        train_dataset=rows_of(tokenised),                                                # as they were tagged
        govern=partial(explorer.govern, documents="governed", policy="half-depth", ledger="runs/own/mine"),
    )
    trainer.train()

The Trainer keeps its data loader, schedule, loss, evaluation, callbacks, logging and checkpoints. A batch is the
numbers of its examples; in a step each class gets a pass of its own, in which the collator and `compute_loss` see only
that class's rows. `compute_loss` may be the model's own, a `compute_loss_func` or an overridden method: it returns the
mean over the rows that it gets, and the means count by the number of rows. With one class that may train everything the
weights are those of the Trainer itself, bit for bit.

`max_grad_norm` becomes gradient clipping that keeps classes apart (methods/gradient_clipping.py). What would move a
weight outside of a governed step, or mix the classes in one, is refused by name: see `REFUSED`.

For a replay, or a deletion by replay, the training is a function of `govern`, as that of any loop
(training/govern.py): `partial(govern, documents=...)` in the place of `partial(explorer.govern, documents=...)`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer import track
from explorer.adapters.rows import rows_from
from explorer.data.dataset import Split
from explorer.engine.method import Method
from explorer.errors import RecipeError, TrainingError
from explorer.governance.custom_loop import Governed
from explorer.methods.gradient_clipping import GradientClipping

# The library is the user's to install and to import: a class of theirs derives from this mixin and from a Trainer.
Trainer: Any = object
PART = "part"  # in the groups of joined optimisers: which of them steps the group
ROWS = "rows"  # the one entry of a batch: numbers of examples
SPEED = ("_runtime", "_per_second", "_time")  # what evaluation reports of its own speed, which no replay repeats

Refusal = tuple[Callable[[Any], bool], str]  # of the training arguments: what to refuse, and why

REFUSED: dict[str, Refusal] = {
    "gradient_accumulation_steps": (
        lambda args: args.gradient_accumulation_steps > 1,
        "a governed step makes a pass for each class and one update; expected 1 and a larger batch",
    ),
    "fp16": (
        lambda args: args.fp16,
        "the scale of the losses would follow from the gradients of all classes; expected bf16 or neither",
    ),
    "n_gpu": (
        lambda args: args.n_gpu > 1 or args.world_size > 1,
        "a governed run is one process on one device; expected CUDA_VISIBLE_DEVICES=0, or one process",
    ),
    "deepspeed": (lambda args: bool(args.deepspeed), "its engine makes the updates itself; expected None"),
    "fsdp": (
        lambda args: bool(args.fsdp),
        "its shards hold parts of tensors, and the ledger records whole ones; expected none",
    ),
    "torch_compile": (
        lambda args: args.torch_compile,
        "each step has other numbers of rows for each class, and would be compiled again; expected False",
    ),
    "load_best_model_at_end": (
        lambda args: args.load_best_model_at_end,
        "the ledger ends with the model of the last step, and this would exchange it; expected False",
    ),
    "auto_find_batch_size": (
        lambda args: args.auto_find_batch_size,
        "it would begin training a second time; expected a batch size",
    ),
    "group_by_length": (
        lambda args: getattr(args, "group_by_length", False),
        "the order of the batches would follow from the lengths of all classes; expected False",
    ),
    "train_sampling_strategy": (
        lambda args: getattr(args, "train_sampling_strategy", "random") not in ("random", "sequential"),
        "the order of the batches would follow from the lengths of all classes; expected 'random' or 'sequential'",
    ),
}
"""Training arguments that a governed Trainer cannot honour, by name."""


class GovernedSteps(Trainer):
    """Mixin for a `Trainer`, or a subclass of it, whose steps are those of `explorer.govern`."""

    data_collator: Any  # the Trainer's
    governed: Governed | None = None  # from the first step on

    def __init__(
        self, *args: Any, govern: Callable[..., Governed], methods: Sequence[Method] = (), **named: Any
    ) -> None:
        """Build the Trainer.

        Args:
            args: of the Trainer.
            govern: is called at the first step as `explorer.govern`, with the model, its optimiser, `examples`,
                `steps`, `seed` and `methods`; the rest is bound already: `functools.partial(explorer.govern, ...)`.
            methods: act in the steps as well.
            named: of the Trainer. The training dataset is a `Split` that `rows_of` made.

        Raises `RecipeError` for another dataset, and for training arguments that a governed run cannot honour.
        """
        super().__init__(*args, **named)
        examples: Any = self.train_dataset
        if not isinstance(examples, Split):
            raise RecipeError(
                f"train_dataset: found {type(examples).__name__}, expected the examples that were tagged: "
                "train_dataset=rows_of(dataset)"
            )
        for name, (refused, why) in REFUSED.items():
            if refused(self.args):
                raise RecipeError(f"{name}: found {getattr(self.args, name)!r:.80} in a governed Trainer: {why}")
        self._govern, self._methods, self._examples = govern, tuple(methods), examples
        self.train_dataset: Any = range(len(examples))

    def get_train_dataloader(self) -> Any:
        """Return the Trainer's loader, whose batches are numbers of examples."""
        collator, self.data_collator = self.data_collator, _numbers
        try:
            return super().get_train_dataloader()
        finally:
            self.data_collator = collator

    def train(self, resume_from_checkpoint: Any = None, *args: Any, **named: Any) -> Any:
        """Train, and finish the ledger. Raises `RecipeError` where training would begin in the middle."""
        if resume_from_checkpoint:
            raise RecipeError(
                f"resume_from_checkpoint: found {resume_from_checkpoint!r:.100}: a governed run begins with its first"
                " step: expected None. With the ledger of a run that broke off, its steps are made again and compared,"
                " and it continues where the ledger ends"
            )
        self.governed = None
        try:
            output = super().train(None, *args, **named)
            if self.governed is None:
                raise TrainingError("the Trainer made no step: expected one at least")
            self.governed.metrics.update(self._evaluated())
            self.governed.finish()
        finally:
            if self.governed is not None:
                self.governed.close()
                self.optimizer = self.optimizer.stepped
        return output

    def training_step(self, model: nn.Module, inputs: dict[str, Tensor], *_: Any, **__: Any) -> Tensor:
        """Make a governed step on the examples of these numbers; return its loss, detached."""
        model.train()
        if self.governed is None:
            self._begin()
        assert self.governed is not None
        return self.governed.step(inputs[ROWS], Losses(self)).detach().to(self.args.device)

    def floating_point_ops(self, inputs: Any) -> int:
        """Return 0: the batch of numbers has no tokens to count."""
        return 0

    def _begin(self) -> None:
        """Govern model and optimiser, which the Trainer has prepared by now, and leave it an optimiser that is idle."""
        methods = self._methods
        if self.args.max_grad_norm and not any(isinstance(method, GradientClipping) for method in methods):
            methods = (*methods, GradientClipping(threshold=self.args.max_grad_norm))
        prepared = self.optimizer
        self.governed = self._govern(
            self.model,
            getattr(prepared, "optimizer", prepared),  # without Accelerate's wrapper
            examples=self._examples,
            steps=self.state.max_steps,
            seed=self.args.seed,
            methods=methods,
        )
        self.optimizer = Stepped(prepared)

    def mean_loss(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """Return the mean loss of these rows, as the Trainer computes it for a batch."""
        # As the Trainer collects a step's batches: with the number of labels, by which most of its models divide.
        (batch,), items = self.get_batch_samples(iter([self.data_collator(rows_from(inputs))]), 1, self.args.device)
        return self.compute_loss(model, self._prepare_inputs(batch), num_items_in_batch=items)

    def _evaluated(self) -> dict[str, float]:
        """Return the metrics of the last evaluation."""
        evaluations = (measured(logged) for logged in reversed(self.state.log_history))
        return next((metrics for metrics in evaluations if metrics), {})


class Losses:
    """The losses of a Trainer, which has a mean over the rows: their sum, and so the gradient, is that of the rows."""

    def __init__(self, trainer: GovernedSteps) -> None:
        self._trainer = trainer

    def __call__(self, model: nn.Module, inputs: Tensor, _: Tensor) -> Tensor:
        """Return the mean for each of the rows."""
        return self._trainer.mean_loss(model, inputs).expand(len(inputs))

    def each(self, model: nn.Module, inputs: Tensor, _: Tensor) -> Tensor:
        """Return the loss of each row, a pass for each: for methods and rules that choose among them."""
        return torch.stack([self._trainer.mean_loss(model, inputs[at : at + 1]) for at in range(len(inputs))])


class Stepped:
    """The optimiser as the Trainer sees it: its steps are made by the time that the Trainer asks for them."""

    def __init__(self, stepped: Any) -> None:
        self.stepped = stepped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stepped, name)

    def step(self, *_: Any) -> None:
        """Do nothing but leave the mark by which torch's schedules know that the optimiser stepped first."""
        self.stepped._opt_called = True


def _numbers(numbers: Sequence[int]) -> dict[str, Tensor]:
    return {ROWS: torch.tensor(numbers)}


class Together(Optimizer):
    """Several optimisers as one, for a Trainer, which takes one: `Trainer(optimizers=(Together(one, other), None))`.

    Their groups follow one schedule, each from its own learning rate, and are saved and loaded together.
    """

    def __init__(self, *parts: Optimizer) -> None:
        groups = [group | {PART: index} for index, part in enumerate(parts) for group in part.param_groups]
        super().__init__(groups, {})
        self.parts = parts

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Step each of them, with its groups and their state as they are now: loading replaces both."""
        for index, part in enumerate(self.parts):
            part.param_groups = [group for group in self.param_groups if group[PART] == index]
            part.state = self.state
            part.step()


def measured(logged: Mapping[str, Any]) -> dict[str, float]:
    """Return what an evaluation measured, by name without `eval_`, and without its speed.

    >>> measured({"eval_accuracy": 0.5, "eval_runtime": 1.5, "epoch": 1.0})
    {'accuracy': 0.5}
    """
    return {
        name.removeprefix("eval_"): float(value)
        for name, value in logged.items()
        if name.startswith("eval_") and not name.endswith(SPEED)
    }


class ExplorerCallback:
    """Callback that reports a Trainer's run by `explorer.track`: to the sweep that started the program.

    The time of training is that of the Trainer's steps and their batches, without evaluations and checkpoints. The run
    is done with the first evaluation at its last step: that of `eval_strategy`, or a call of `trainer.evaluate()`.
    """

    def __init__(self) -> None:
        self.seconds = 0.0  # of training
        self._since = 0.0  # the clock, where the seconds end
        self._ended = self._done = False
        self._final: dict[str, float] = {}  # of an evaluation, at the step `_step`
        self._step = -1

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return an action that does nothing, for the Trainer's other events."""
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *_, **__: None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self.seconds, self._since = 0.0, time.perf_counter()
        self._ended = self._done = False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the time of the step, with what the device still has to do of it where something else follows."""
        if (control.should_log or control.should_evaluate or control.should_save) and torch.accelerator.is_available():
            torch.accelerator.synchronize()
        now = time.perf_counter()
        self.seconds, self._since = self.seconds + now - self._since, now

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any], **_: Any) -> None:
        """Report the training loss since the last report."""
        if "loss" in logs and state.is_world_process_zero:
            track.log(step=state.global_step, seconds=self.seconds, train_loss=float(logs["loss"]))

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any], train_dataloader: Any = None, **_: Any
    ) -> None:
        """Report an evaluation, whose time does not count."""
        self._since = time.perf_counter()
        self._final, self._step = measured(metrics), state.global_step
        if state.is_world_process_zero and not self._done:
            track.log(step=state.global_step, seconds=self.seconds, **self._final)
        if self._ended:
            self._finish(state, train_dataloader)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the Trainer's checkpoint, to resume from; its time does not count."""
        if state.is_world_process_zero:
            track.checkpoint(Path(args.output_dir) / f"checkpoint-{state.global_step}")
        self._since = time.perf_counter()

    def on_train_end(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        """Report the end, if the finished model was evaluated."""
        self._ended = True
        if self._step == state.global_step:
            self._finish(state, train_dataloader)

    def _finish(self, state: Any, loader: Any) -> None:
        """Report the end once, with the examples in all batches, counted with repetition."""
        if self._done or not state.is_world_process_zero:
            return
        self._done = True
        dataset: Any = getattr(loader, "dataset", None)
        examples = round(state.epoch * len(dataset)) if hasattr(dataset, "__len__") else None
        track.done(steps=state.global_step, examples=examples, seconds=self.seconds, **self._final)

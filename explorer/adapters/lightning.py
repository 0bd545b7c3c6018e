"""Lightning: a callback that records a Trainer's run, and a mix-in that governs a module's steps.

A sweep over a command, such as `python train.py --lr {lr}`, gets curves and the result of a script by one argument:

    from explorer.adapters.lightning import tracked

    trainer = Trainer(max_epochs=5, callbacks=[tracked(metrics={"accuracy": "val_acc"})])
    trainer.fit(module, train_loader, val_loader, ckpt_path=track.resume())

A module is governed by a class with the loss of each example, and by a loader of row numbers:

    class Governed(GovernedSteps, Classifier):
        def losses(self, inputs, labels):
            return F.cross_entropy(self(inputs), labels, reduction="none")

    module = Governed()
    module.govern_by(examples=examples, documents="governed", policy="half-depth", ledger="runs/own/mine")
    Trainer(max_epochs=5).fit(module, DataLoader(range(len(examples)), batch_size=32, shuffle=True), val_loader)

Everything else remains the module's: its optimiser and schedulers, validation, logging and checkpoints.
`explorer.govern` takes the optimiser that `configure_optimizers` returns, and the run ends with `trainer.fit`. The
library may be `lightning` or `pytorch_lightning`; this file imports neither before it is used.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

import explorer
from explorer import track
from explorer.data.dataset import Split
from explorer.engine.method import Method
from explorer.errors import RecipeError, RunError
from explorer.governance.custom_loop import Governed

PRECISIONS = ("32-true", "64-true", "bf16-mixed")  # 16-mixed scales gradients between the policy and the optimiser
LIBRARIES = ("lightning.pytorch", "pytorch_lightning")  # the same code under two names, with classes of their own

# --- recording ---


def tracked(*, metrics: Mapping[str, str], train_loss: str = "loss", every: int = 50) -> Any:
    """Return a callback for `Trainer(callbacks=[...])` that reports a run to the sweep that started it.

    Args:
        metrics: the sweep's metrics, by the names under which the module logs them: `{"accuracy": "val_acc"}`. They are
            reported after every validation, and at the end.
        train_loss: the name in what `training_step` returns, or under which it is logged.
        every: how many steps lie between two reports of the loss.

    The time reported is that of training: validation and checkpoints are left out. Checkpoints that the Trainer's own
    `ModelCheckpoint` writes are kept for a resume: `trainer.fit(..., ckpt_path=track.resume())`.

    Raises `RunError` where the library is missing, and during training for metrics that the module does not log.
    """
    base = _library().Callback
    # The class is made here since its base is the library's, which may be missing when this file is imported.
    return type("Tracked", (_Tracked, base), {})(metrics, train_loss, every)


class _Tracked:
    """Hooks of the callback; its base is the library's `Callback`."""

    def __init__(self, metrics: Mapping[str, str], train_loss: str, every: int) -> None:
        self._metrics, self._train_loss, self._every = dict(metrics), train_loss, every
        self._seconds, self._examples = 0.0, 0  # of training so far
        self._since: float | None = None  # when the clock was started; None: stopped
        self._kept: tuple[int, Path] | None = None  # time and path of the last checkpoint that was handed over
        self._logged = -1  # the last step with a report of the loss

    # The clock runs from the start of an epoch to its end, so reading data counts, and stops for validation.
    def on_train_epoch_start(self, trainer: Any, module: Any) -> None:
        self._since = time.perf_counter()

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        self._since = time.perf_counter() if self._since is None else self._since
        self._keep(trainer)  # the Trainer writes checkpoints after all other callbacks of a validation

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._examples += _rows_of(batch)
        step = trainer.global_step
        if step != self._logged and step % self._every == 0:
            self._logged = step
            if (loss := _number(outputs, self._train_loss, trainer)) is not None:
                track.log(step=step, seconds=self._elapsed(), train_loss=loss)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        self._stop()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            track.log(step=trainer.global_step, seconds=self._seconds, **self._measured(trainer))

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self._stop()

    def on_fit_end(self, trainer: Any, module: Any) -> None:
        if trainer.interrupted:  # by Ctrl-C, which Lightning takes for an end
            return
        track.done(steps=trainer.global_step, examples=self._examples, seconds=self._seconds, **self._measured(trainer))

    # With the Trainer's own checkpoints, so that a resumed run counts on.
    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint of the Trainer keeps."""
        return {"examples": self._examples}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what a checkpoint has."""
        self._examples = int(state["examples"])

    def _elapsed(self) -> float:
        return self._seconds + (0.0 if self._since is None else time.perf_counter() - self._since)

    def _stop(self) -> None:
        self._seconds, self._since = self._elapsed(), None

    def _measured(self, trainer: Any) -> dict[str, float]:
        """Return the sweep's metrics. Raises `RunError` for one that the module has not logged."""
        logged = trainer.callback_metrics
        for name, theirs in self._metrics.items():
            if theirs not in logged:
                known = ", ".join(sorted(logged)) or "none"
                raise RunError(
                    f"tracked: metric {name!r}: found no {theirs!r} among what the module logs; known: {known}"
                )
        return {name: float(logged[theirs]) for name, theirs in self._metrics.items()}

    def _keep(self, trainer: Any) -> None:
        """Hand over the checkpoint that the Trainer has written since the last time, if any."""
        written = (Path(kept.last_model_path or kept.best_model_path) for kept in trainer.checkpoint_callbacks)
        # By time, since `last.ckpt` is written over and over under one name.
        newest = max(((path.stat().st_mtime_ns, path) for path in written if path.is_file()), default=None)
        if newest is not None and newest != self._kept:
            self._kept = newest
            track.checkpoint(newest[1])


# --- governing ---


class GovernedSteps:
    """A mix-in for a LightningModule, whose steps are those of `explorer.govern`.

    Each step takes row numbers of the examples from the loader, hands the rows that were tagged to `losses`, and steps
    the module's own optimiser under the policy. Validation sees the weights that methods evaluate.
    """

    _given: dict[str, Any] | None = None
    _governed: Governed | None = None
    _evaluation: ExitStack | None = None

    def losses(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each example, B, for rows as they were tagged."""
        raise NotImplementedError  # `govern_by` refuses a module without it

    def govern_by(
        self,
        *,
        examples: Split,
        documents: str | Path,
        policy: str,
        ledger: str | Path,
        steps: int | None = None,
        seed: int = 0,
        every: int = 50,
        methods: Sequence[Method] = (),
        govern: Callable[..., Governed] = explorer.govern,
    ) -> None:
        """Say by what the steps are governed, before `trainer.fit`. The arguments are those of `explorer.govern`.

        Args:
            steps: how many there will be; None: as many as the Trainer's epochs and the loader give.
            govern: for a function that `explorer.replay` and deletions call again with another `govern`.

        Raises `RecipeError` for a module without `losses`.
        """
        if type(self).losses is GovernedSteps.losses:
            raise RecipeError(
                f"{type(self).__name__}: losses: missing: expected a method losses(inputs, labels) in this class, which"
                " returns the loss of each example, without a mean"
            )
        self._given = {
            "examples": examples, "documents": documents, "policy": policy, "ledger": ledger, "steps": steps,
            "seed": seed, "every": every, "methods": methods, "govern": govern,
        }  # fmt: skip

    # Lightning reads it before training: the steps of the optimiser are made here, not by the Trainer.
    @property
    def automatic_optimization(self) -> bool:
        """Return False: the policy decides which gradients there are."""
        return False

    @automatic_optimization.setter
    def automatic_optimization(self, automatic: bool) -> None:
        """Ignore what the module's own constructor sets."""

    def on_train_start(self) -> None:
        """Begin the ledger's run. Raises `RecipeError` for a Trainer whose steps cannot be governed."""
        getattr(super(), "on_train_start", lambda: None)()
        if self._given is None:
            raise RecipeError(f"{type(self).__name__}: not governed yet: expected govern_by(...) before trainer.fit")
        trainer = self._fitting()
        given = {key: value for key, value in self._given.items() if key not in ("govern", "steps")}
        steps = _steps(trainer) if self._given["steps"] is None else self._given["steps"]
        self._governed = self._given["govern"](self, _optimizer(self, trainer), steps=steps, **given)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Make one governed step on the examples with these numbers; return its loss, which is logged."""
        assert self._governed is not None
        optimizer: Any = self.optimizers()  # pyright: ignore[reportAttributeAccessIssue]
        # The Trainer counts its steps here, for `max_steps`, logging and the names of checkpoints.
        optimizer._on_before_step()
        loss = self._governed.step(batch, _losses)
        optimizer._on_after_step()
        self.log("train_loss", loss, prog_bar=True)  # pyright: ignore[reportAttributeAccessIssue]
        return loss

    def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
        """Keep row numbers where they are; move batches of validation."""
        if self._fitting().training:
            return batch
        return super().transfer_batch_to_device(batch, device, dataloader_idx)  # pyright: ignore[reportAttributeAccessIssue]

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Step the schedulers of the module: in manual optimisation the Trainer leaves them."""
        getattr(super(), "on_train_batch_end", lambda *given: None)(outputs, batch, batch_idx)
        self._schedule("step", batch_idx + 1)

    def on_train_epoch_end(self) -> None:
        """Step the schedulers that go by epochs."""
        getattr(super(), "on_train_epoch_end", lambda: None)()
        self._schedule("epoch", self._fitting().current_epoch + 1)

    def on_validation_start(self) -> None:
        """Put in the weights that methods evaluate, such as averaged ones."""
        if self._governed is not None:
            self._evaluation = ExitStack()
            self._evaluation.enter_context(self._governed.evaluating())
        getattr(super(), "on_validation_start", lambda: None)()

    def on_validation_end(self) -> None:
        """Put the weights of training back."""
        getattr(super(), "on_validation_end", lambda: None)()
        if self._evaluation is not None:
            self._evaluation.close()
            self._evaluation = None

    def on_train_end(self) -> None:
        """End the ledger, and keep the model."""
        getattr(super(), "on_train_end", lambda: None)()
        if self._governed is not None:
            self._governed.finish()

    def configure_callbacks(self) -> Any:
        """Add a callback to the module's own that releases the ledger, without an end, when training fails."""
        theirs = getattr(super(), "configure_callbacks", list)()
        closing = type("Closing", (_Closing, _library().Callback), {})()
        return [*(theirs if isinstance(theirs, Sequence) else [theirs]), closing]

    def _fitting(self) -> Any:
        return self.trainer  # pyright: ignore[reportAttributeAccessIssue]

    def _schedule(self, interval: str, count: int) -> None:
        for config in self._fitting().lr_scheduler_configs:
            if config.interval == interval and count % config.frequency == 0:
                config.scheduler.step()


class _Closing:
    """Hook of a callback, since a module has none for errors. Lightning calls it for interrupted runs too."""

    def on_exception(self, trainer: Any, module: GovernedSteps, exception: BaseException) -> None:
        if module._governed is not None:
            module._governed.close()


def _losses(module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    assert isinstance(module, GovernedSteps)
    return module.losses(inputs, labels)


def _steps(trainer: Any) -> int:
    """Return how many steps the Trainer will make."""
    steps = trainer.estimated_stepping_batches
    if steps == float("inf"):
        raise RecipeError("Trainer: found no end of training: expected max_epochs, max_steps or govern_by(steps=...)")
    return int(steps)


def _optimizer(module: Any, trainer: Any) -> Any:
    """Return the module's optimiser. Raises `RecipeError` where the Trainer would act between it and the policy."""
    if trainer.world_size > 1:
        raise RecipeError(f"Trainer: found {trainer.world_size} processes: expected one, whose steps the ledger has")
    if trainer.precision not in PRECISIONS:
        raise RecipeError(f"Trainer: found precision {trainer.precision!r}, expected one of {', '.join(PRECISIONS)}")
    if trainer.ckpt_path:
        raise RecipeError(
            f"Trainer: found ckpt_path {str(trainer.ckpt_path)!r:.100}: a governed run begins with its first step:"
            " expected fit(...) without it. With the ledger of a run that broke off, its steps are made again and"
            " compared, and it continues where the ledger ends"
        )
    if len(trainer.optimizers) != 1:
        raise RecipeError(f"configure_optimizers: found {len(trainer.optimizers)} optimisers, expected one")
    for config in trainer.lr_scheduler_configs:
        if isinstance(
            config.scheduler, ReduceLROnPlateau
        ):  # a rate by a metric of all classes would be a channel between them
            raise RecipeError("configure_optimizers: found a scheduler that reads a metric, expected one that counts")
    return trainer.optimizers[0]


# --- the library ---


def _library() -> Any:
    """Return the library that the caller uses. Raises `RunError` where it is missing."""
    loaded = [name for name in LIBRARIES if name in sys.modules]
    for name in (*loaded, *LIBRARIES):
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name.partition(".")[0]:
                raise
    raise RunError("explorer.adapters.lightning needs Lightning: pip install 'explorer[lightning]'")


def _number(outputs: Any, name: str, trainer: Any) -> float | None:
    value = outputs.get(name) if isinstance(outputs, Mapping) else outputs
    value = trainer.callback_metrics.get(name) if value is None else value
    return None if value is None else float(value)


def _rows_of(batch: Any) -> int:
    """Return how many examples a batch has: the first tensor's first dimension."""
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 1
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, Sequence) else ()
    return next((count for count in map(_rows_of, parts) if count), 0)

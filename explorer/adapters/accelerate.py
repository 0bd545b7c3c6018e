"""Hugging Face Accelerate: a tracker, by which `accelerator.log` reports to the sweep that started the program.

    accelerator = Accelerator(log_with=tracker())
    accelerator.init_trackers("mine")
    ...
    accelerator.log({"train_loss": loss, "accuracy": accuracy}, step=step)
    accelerator.end_training()                                   # done, with the last value of each metric

A loop is governed as any other (training/govern.py): the loader goes through the numbers of the examples, and
`governed.step(numbers, losses)` takes the place of the forward pass, `accelerator.backward` and `optimizer.step`.
What `accelerator.prepare` returns can be governed, as can what it was given; fp16, gradient accumulation and several
processes are refused there.
"""

from importlib import import_module
from typing import Any

from explorer import track
from explorer.errors import RecipeError


def tracker() -> Any:
    """Return a tracker for `Accelerator(log_with=...)`. Raises `RecipeError` where Accelerate is not installed."""
    try:
        base: Any = import_module("accelerate.tracking").GeneralTracker
    except ImportError as error:
        raise RecipeError(f"accelerate: {error}: expected it to be installed: pip install 'explorer[hub]'") from error

    class Tracker(base):
        """Tracker that reports by `explorer.track`, from the main process only."""

        name = "explorer"
        requires_logging_directory = False
        main_process_only = True

        def __init__(self) -> None:
            super().__init__()
            self.last: dict[str, Any] = {}  # the value of each metric: a number

        @property
        def tracker(self) -> Any:
            """The calls that this tracker reports by."""
            return track

        def log(self, values: dict[str, Any], step: int | None = None, **_: Any) -> None:
            """Report measurements. Raises `RecipeError` where the step is missing."""
            if step is None:
                raise RecipeError("accelerator.log: step: missing: expected accelerator.log({...}, step=N)")
            metrics = {name: float(value) for name, value in values.items()}
            self.last |= metrics
            track.log(step=step, **metrics)

        def finish(self) -> None:
            """Report the end, with the last value of each metric."""
            track.done(**self.last)

    return Tracker()

"""The step time of a loop of `explorer.govern`, measured by the function that trained it.

    explorer delete plan RUN CLASS --profile --loop MODULE:FUNCTION

The function is called with a `govern` that leaves the target's places in the batches empty, as a replay does, and that
stops it after enough steps. A step is timed from the end of the one before, so the reading of data and the evaluations
of the loop count, as they do in a replay.

Only the first steps can be timed: the function begins with its first step, and its checkpoints are its owner's. A
policy that admits more classes later makes later steps longer.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from explorer.costing import Duration
from explorer.engine.state import State
from explorer.errors import RunError
from explorer.governance.custom_loop import Governed
from explorer.governance.journal import Journal
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, counterfactual
from explorer.training.govern import Given, OwnLoop, Substitute, begin, loop_record, run_documents
from explorer.training.ledgered import stand_in

WARMUP = 3  # steps that are not timed: caches, allocations, the first segment
STEPS = 50  # to time; fewer where the run has fewer
FEWEST = 4  # steps of which quartiles say something


class _Enough(BaseException):
    """Signal that ends the function. No `Exception`, which the function may handle as its own."""


def measure_loop(run: Path, target: Target, loop: OwnLoop, *, private: Path | None = None) -> Duration:
    """Measure the time of the first steps without the target: their median and quartiles.

    The caller makes sure that nothing else keeps the machine busy. `private` is where the salts of the tags are now, if
    not where the run had them. Raises `RunError` for a run of a recipe, and for a function that makes too few steps or
    is not the recorded loop; errors of the loop itself come through.
    """
    ledger = RunLedger(run)
    record, papers = loop_record(ledger), run_documents(ledger, private)
    new = counterfactual(record, target)
    ends: list[float] = []

    with tempfile.TemporaryDirectory(prefix="explorer-") as scratch:

        def open_journal(given: Given, state: State) -> Journal:
            return begin(Path(scratch) / new.run_id, new, papers, given, state, signer=stand_in(new.run_id))

        substitute = Substitute(new, papers, open_journal)

        def govern(*given: Any, **named: Any) -> Governed:
            governed = substitute(*given, **named)
            governed.step = _timed(governed.step, ends)  # pyright: ignore[reportAttributeAccessIssue]
            return governed

        with suppress(_Enough):
            loop(govern)
    times = [after - before for before, after in zip(ends[WARMUP:], ends[WARMUP + 1 :], strict=False)]
    if len(times) < FEWEST:
        raise RunError(
            f"run {record.run_id}: --profile: found {len(ends)} steps of the loop, expected {WARMUP + FEWEST + 1} or"
            " more to time"
        )
    low, middle, high = statistics.quantiles(times, n=4)
    return Duration(seconds=middle, low=low, high=high)


def _timed(step: Callable[..., Tensor], ends: list[float]) -> Callable[..., Tensor]:
    """Return a step that notes when it ends, and stops the loop once there are enough."""

    def timed(*given: Any, **named: Any) -> Tensor:
        loss = step(*given, **named)
        loss.item()  # a device may still be at work
        ends.append(time.perf_counter())
        if len(ends) > WARMUP + STEPS:
            raise _Enough
        return loss

    return timed

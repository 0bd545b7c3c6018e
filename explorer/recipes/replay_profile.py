"""The step time of a replay that is to come: of the run without the target, at places spread over the steps.

How fast a step is depends on where in training it stands, for the policy admits other classes to other layers there,
and on the examples that stay out. So the steps themselves are timed, on the machine as it is now.
"""

import statistics
from pathlib import Path

from explorer import records
from explorer.costing import Duration
from explorer.engine.loop import Loop
from explorer.engine.stepping import Place, time_steps
from explorer.recipes.profile import WARMUP, WINDOW_SECONDS, WINDOWS, rehearsed
from explorer.recipes.run import documents_in
from explorer.runlog.counterfactual import counterfactual
from explorer.runlog.target import Target

PLACES = 5


def measure_replay(run: Path, target: Target, *, steps: range, data: Path | None) -> Duration:
    """The time of one of these steps without the target: the mean over the places of medians and quartiles.

    The caller makes sure that nothing else keeps the machine busy. Raises what building the run raises.
    """
    record = records.read_recipe_run(run, what="--profile")
    places = [
        Place(step=steps.start + (2 * at + 1) * len(steps) // (2 * PLACES), total_steps=record.steps)
        for at in range(PLACES)
    ]
    documents = documents_in(run, record)
    with rehearsed(counterfactual(record, target), data=data, documents=documents) as loop:
        counts = [_warm(loop, place) for place in places]
        windows = [
            [time_steps(loop, place, count=count) for place, count in zip(places, counts, strict=True)]
            for _ in range(WINDOWS)
        ]
    quartiles = [statistics.quantiles(seconds, n=4) for seconds in zip(*windows, strict=True)]
    low, middle, high = (statistics.mean(values) for values in zip(*quartiles, strict=True))
    return Duration(seconds=middle, low=low, high=high)


def _warm(loop: Loop, place: Place) -> int:
    """How often the step fits into a window, once it is warm."""
    time_steps(loop, place, count=WARMUP)
    return max(1, round(WINDOW_SECONDS / time_steps(loop, place, count=1)))

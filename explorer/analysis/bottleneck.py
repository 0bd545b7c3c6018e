"""The kind of work that a step is bound by, and what making anything else faster could gain at most (Amdahl 1967).

A part that takes the share p of a step leaves 1 - p when it takes no time at all, so p is the most that its removal can
gain, however it is done. Where a second thread prepares the rows, a step spends on them only what it waits for them.

On a GPU compute is bound by launch where the device is done as soon as the program has handed its work over: then
faster kernels gain nothing.
"""

import math
from collections.abc import Mapping

from explorer.run_files import Timeline

KINDS: Mapping[str, tuple[str, ...]] = {
    "reading": ("read",),
    "preprocessing": ("preprocess",),
    "data loading": ("wait",),  # of which kind is in the timeline of the second thread
    "transfer": ("transfer",),
    "compute": ("forward", "backward", "optimizer"),
    "governance": ("governance",),
    "other work": ("other",),
}
"""Parts of a step, keys of `run_files.Timings`, by what they wait for."""


WAITS = 0.03  # share of a step from which on waiting for rows is worth words
LEAST = 0.0005  # a smaller share would be shown as 0.0%
LAUNCH = 0.95  # share of a step in which its work is handed over, from which on the device waits for the program


def bound_words(parts: Mapping[str, float], *, issue: float | None = None) -> str | None:
    """Return what steps are bound by, given the seconds of each part, and the share of a step in which the program
    hands its work to a GPU.

    None where the parts were not told apart, as in a run on a GPU, which would have to wait for it at each of them.

    >>> bound_words({"read": 1.0, "preprocess": 6.0, "forward": 400.0, "backward": 593.0})
    'Bound by compute, 99% of a step: all else could gain 0.7% at most, preprocessing 0.6%, reading 0.1%.'
    >>> bound_words({"wait": 30.0, "forward": 5.0, "backward": 15.0})
    'Bound by data loading, 60% of a step: all else could gain 40% at most, compute 40%.'
    """
    whole = sum(parts.values())
    if not parts.get("forward", 0.0) + parts.get("backward", 0.0) > 0 or not math.isfinite(whole):
        return None
    shares = {kind: sum(parts.get(part, 0.0) for part in of) / whole for kind, of in KINDS.items()}
    (most, share), *others = sorted(shares.items(), key=lambda item: -item[1])
    listed = ", ".join(f"{kind} {_percent(other)}" for kind, other in others if other >= LEAST)
    rest = f": all else could gain {_percent(1 - share)} at most, {listed}" if listed else ""
    if most == "compute" and issue is not None and issue >= LAUNCH:
        return (
            f"Bound by launch: the program hands work to the device in {issue:.0%} of a step, so faster kernels gain"
            f" {_percent(1 - issue)} at most, and fewer of them more{rest.replace(':', ';', 1)}."
        )
    return f"Bound by {most}, {share:.0%} of a step{rest}."


def ahead_words(timeline: Timeline, *, wait: float, steps: int, seconds: float) -> str:
    """Return what a second thread did while steps computed, and which part of it kept them waiting.

    Args:
        timeline: the work of the thread.
        wait: seconds that steps waited for it.
        steps: how many steps.
        seconds: of these steps, with waiting.

    >>> busy = Timeline(read=1.0, preprocess=8.0, steps=10, shown=())
    >>> ahead_words(busy, wait=4.0, steps=10, seconds=10.0)
    'Meanwhile rows were read in 10% of the time and preprocessed in 80%: preprocessing holds steps up in 40% of it.'
    >>> ahead_words(busy, wait=0.1, steps=10, seconds=20.0)
    'Meanwhile rows were read in 5.0% of the time and preprocessed in 40%.'
    """
    step = seconds / steps
    read, preprocess = (amount / timeline.steps / step for amount in (timeline.read, timeline.preprocess))
    words = f"Meanwhile rows were read in {_percent(read)} of the time and preprocessed in {_percent(preprocess)}"
    share = wait / seconds
    if share < WAITS:
        return f"{words}."
    slow = "preprocessing" if preprocess > read else "reading"
    return f"{words}: {slow} holds steps up in {_percent(share)} of it."


def _percent(share: float) -> str:
    return f"{share:.0%}" if share > 0.0995 else f"{share:.1%}"

"""The share of a step in which a device is given its work, with the time in our hands."""

import pytest

from explorer.engine import stepping
from explorer.engine.loop import Loop
from explorer.engine.stepping import Place, issue_share
from tests.loop_for_tests import noise_loop


@pytest.mark.parametrize(("behind", "expected"), [(0.0, 1.0), (3.0, 0.25)])
def test_a_device_that_works_on_is_told_from_one_that_waits(
    behind: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program takes a second for a step. A device that is pretended is done then, or three seconds later."""
    now, left = [0.0], [5.0]  # the device is at work on something else before
    steps: list[int] = []
    real = stepping._step  # pyright: ignore[reportPrivateUsage]

    def step(loop: Loop, place: Place) -> None:
        real(loop, place)
        steps.append(place.step)
        now[0] += 1.0
        left[0] = behind

    def synchronise(_: Loop) -> None:
        now[0] += left.pop()
        left.append(0.0)

    monkeypatch.setattr(stepping.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(stepping, "_step", step)
    monkeypatch.setattr(stepping, "_synchronise", synchronise)
    assert issue_share(noise_loop(), Place(step=2, total_steps=10)) == expected
    assert steps == [2]

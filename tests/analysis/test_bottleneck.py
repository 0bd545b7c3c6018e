"""The kind of work that a step is bound by, and the most that anything else could gain."""

import pytest

from explorer.analysis.bottleneck import KINDS, bound_words
from explorer.run_files import APART, Timings


def test_every_part_of_a_step_has_one_kind() -> None:
    parts = [part for of in KINDS.values() for part in of]
    assert sorted(parts) == sorted(set(Timings.__dataclass_fields__) - set(APART))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"forward": 1.0, "backward": 2.0}, "Bound by compute, 100% of a step."),
        (
            {"read": 1.0, "preprocess": 7.0, "forward": 1.0, "backward": 1.0},
            "Bound by preprocessing, 70% of a step: all else could gain 30% at most, compute 20%, reading 10%.",
        ),
        (  # as with a second thread that cannot keep up
            {"wait": 6.0, "preprocess": 0.0, "forward": 1.0, "backward": 2.0, "optimizer": 1.0},
            "Bound by data loading, 60% of a step: all else could gain 40% at most, compute 40%.",
        ),
        (
            {"forward": 1.0, "backward": 2.0, "governance": 17.0},
            "Bound by governance, 85% of a step: all else could gain 15% at most, compute 15%.",
        ),
    ],
)
def test_it_names_the_largest_kind_and_what_the_others_leave_to_gain(parts: dict[str, float], words: str) -> None:
    assert bound_words(parts) == words


@pytest.mark.parametrize("parts", [{}, {"other": 3.0}, {"wait": 1.0, "other": 3.0}, {"forward": 0.0, "backward": 0.0}])
def test_parts_that_were_not_told_apart_have_no_verdict(parts: dict[str, float]) -> None:
    assert bound_words(parts) is None


def test_a_gpu_that_waits_for_the_program_is_bound_by_launch() -> None:
    """The controls: one that is busy after the program is done, and steps that are bound by something else."""
    parts = {"transfer": 1.0, "forward": 4.0, "backward": 5.0}
    words = (
        "Bound by launch: the program hands work to the device in 98% of a step, so faster kernels gain 2.0% at most,"
        " and fewer of them more; all else could gain 10% at most, transfer 10%."
    )
    assert bound_words(parts, issue=0.98) == words
    assert str(bound_words(parts, issue=0.5)).startswith("Bound by compute, 90%")
    assert str(bound_words(parts | {"wait": 90.0}, issue=0.98)).startswith("Bound by data loading, 90%")

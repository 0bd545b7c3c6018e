"""A whole run predicted from a profile of its recipe, and compared with a full one."""

from dataclasses import replace

import pytest

from explorer.engine.fit import CHECKPOINT_SECONDS
from explorer.errors import RunError
from explorer.run_files import PhaseProfile, ProfileRecord, ResultRecord, Timings
from explorer.training.profile import extrapolate, validation
from tests.recipes_for_tests import tiny_recipe, tiny_run

RUN = tiny_run(tiny_recipe(["progressive_resizing"], epochs=2, evaluations=3))
SECONDS = {name: 0.1 * place for place, name in enumerate(RUN.phases, start=1)}
PROFILE = ProfileRecord(
    recipe_digest=RUN.recipe_digest,
    recipe=RUN.recipe,
    hardware=RUN.hardware,
    torch="2",
    phases={name: PhaseProfile(seconds=s, low=s / 2, high=2 * s, windows=7) for name, s in SECONDS.items()},
    inference_seconds=0.001,
    made_at="now",
    evaluation_seconds=1.5,
    checkpoint_seconds=0.25,
)
RESULT = ResultRecord(
    run_id=RUN.run_id,
    metrics={},
    steps=RUN.steps,
    examples=1,
    timings=Timings(forward=3.0, backward=1.0, warmup=50.0, evaluation=9.0, checkpoint=9.0),
    timed_steps=RUN.steps - 3,
    contended=False,
    resumed=0,
    state_digest="0",
    files={},
    finished_at="now",
)


def test_every_phase_has_its_own_step_time() -> None:
    found = extrapolate(RUN, PROFILE)
    assert len(found.phases) > 1 and {each.name: each.steps for each in found.phases} == RUN.phases
    assert [each.total.seconds for each in found.phases] == [
        pytest.approx(SECONDS[each.name] * each.steps) for each in found.phases
    ]
    training = sum(SECONDS[name] * steps for name, steps in RUN.phases.items())
    assert found.training.seconds == pytest.approx(training)
    assert (found.training.low, found.training.high) == (pytest.approx(training / 2), pytest.approx(2 * training))
    one_speed = RUN.steps * SECONDS[found.phases[0].name]  # the control: one phase for all
    assert one_speed != pytest.approx(training, rel=0.05)


def test_what_stands_beside_training_is_apart() -> None:
    found = extrapolate(RUN, PROFILE)
    assert (found.evaluations, found.evaluation_seconds) == (3, 4.5)
    assert found.checkpoints == (found.training.seconds + 4.5) // CHECKPOINT_SECONDS
    assert found.whole_seconds == pytest.approx(found.training.seconds + 4.5 + 0.25 * found.checkpoints)
    slow = replace(PROFILE, phases={n: replace(p, seconds=2.0, high=3.0) for n, p in PROFILE.phases.items()})
    assert extrapolate(RUN, slow).checkpoints == int((2.0 * RUN.steps + 4.5) / 10)


def test_the_automatic_number_of_evaluations_is_forecast() -> None:
    """The forecast has the evaluations that the time allows, the final one at least."""
    runs = {count: tiny_run(tiny_recipe(["progressive_resizing"], epochs=2, evaluations=count)) for count in (0, 1)}
    training = extrapolate(RUN, PROFILE).training.seconds
    counts = [
        extrapolate(runs[count], replace(PROFILE, evaluation_seconds=seconds)).evaluations
        for count, seconds in ((1, training / 1000), (1, training / 12), (1, training), (0, training / 1000))
    ]
    assert counts == [10, 4, 1, 1]


def test_what_was_not_measured_is_not_guessed() -> None:
    (first, *_) = PROFILE.phases
    with pytest.raises(RunError, match="no step time: unknown phase"):
        extrapolate(RUN, replace(PROFILE, phases={first: PROFILE.phases[first]}))
    with pytest.raises(RunError, match="evaluation and checkpoints were not measured"):
        extrapolate(RUN, replace(PROFILE, evaluation_seconds=None))


def test_a_full_run_counts_its_steps_and_nothing_else() -> None:
    found = validation(RUN, RESULT, PROFILE)
    assert found.measured == pytest.approx(4.0 / (RUN.steps - 3) * RUN.steps)
    assert found.predicted == pytest.approx(extrapolate(RUN, PROFILE).training.seconds)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"contended": True}, "other runs shared the machine"), ({"timed_steps": 0}, "too few to be timed")],
)
def test_a_time_that_is_no_measure_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(RunError, match=message):
        validation(RUN, replace(RESULT, **change), PROFILE)

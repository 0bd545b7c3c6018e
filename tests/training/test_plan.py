"""From a recipe and a budget to steps and phases."""

import pytest

from explorer.data.sources import load
from explorer.engine.method import Moment
from explorer.errors import RecipeError
from explorer.run_files import ALL_STEPS
from explorer.training.run_plan import count_phases, phase_of, total_steps
from tests.recipes_for_tests import tiny_recipe, tiny_run


@pytest.mark.parametrize(
    "epochs, batch_size, ssr, expected",
    [
        (1, 899, 1.0, 1),
        (1, 64, 1.0, 14),  # 14.05
        (2, 64, 1.0, 28),  # 28.09
        (20, 64, 0.125, 35),  # 35.12
        (1, 100, 1.5, 13),  # 13.485
        (1, 62, 1.0, 15),  # 14.5: half up
    ],
)
def test_steps_are_rounded_half_up(epochs: int, batch_size: int, ssr: float, expected: int) -> None:
    recipe = tiny_recipe(epochs=epochs, batch_size=batch_size)
    assert total_steps(recipe, examples=899, ssr=ssr) == expected
    assert tiny_run(recipe, ssr=ssr).steps == expected


def test_a_budget_without_a_step_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"'tiny': budget 0.05 leaves no step: 0.5 epochs of 899 examples in batches"):
        tiny_run(tiny_recipe(), ssr=0.05)


def test_a_budget_beyond_reason_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"budget 1e\+09 takes .* steps: at most 10000000"):
        tiny_run(tiny_recipe(), ssr=1e9)


def test_phases_are_the_steps_of_the_run() -> None:
    methods = ["progressive_resizing", {"sam": {"interval": 4}}]
    run = tiny_run(tiny_recipe(methods, epochs=4))
    assert sum(run.phases.values()) == run.steps == 56
    # Scale 0.5 + 0.5 (t/56 - 0.5) / 0.3 reaches 0.75, where 8 pixels are nearer than 4, at t = 36.4.
    small, large = range(37), range(37, 56)
    assert run.phases == {
        "4x4 px, two passes": sum(step % 4 == 0 for step in small),
        "4x4 px, one pass": sum(step % 4 != 0 for step in small),
        "8x8 px, two passes": sum(step % 4 == 0 for step in large),
        "8x8 px, one pass": sum(step % 4 != 0 for step in large),
    }
    recipe = tiny_recipe(methods)
    moment = Moment(step=0, total_steps=56, example_shape=(1, 8, 8))
    assert phase_of(recipe.methods, moment) == "4x4 px, two passes"


def test_a_recipe_of_even_speed_has_one_phase() -> None:
    recipe = tiny_recipe(["mixup", "ema"])
    assert count_phases(recipe.methods, load(recipe.dataset, None), steps=9) == {ALL_STEPS: 9}


def test_a_method_that_cannot_serve_a_run_is_named_once() -> None:
    for name in ("low_precision_groupnorm", "schedule_free", {"ghost_batchnorm": {"size": 64}}):
        with pytest.raises(RecipeError) as error:
            tiny_run(tiny_recipe([name]))
        method = name if isinstance(name, str) else next(iter(name))
        assert str(error.value).startswith(f"recipe 'tiny': {method}: found "), error.value

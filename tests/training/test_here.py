"""A recorded run on this machine: the same recipe, whatever machine it was recorded on."""

from dataclasses import replace

import pytest

from explorer.canonical import digest
from explorer.errors import RunError
from explorer.run_files import RunRecord
from explorer.training.profile import plan_here
from tests.recipes_for_tests import tiny_recipe, tiny_run

RUN = tiny_run(tiny_recipe(["ema"]), seed=3)


def recorded(**identity: object) -> RunRecord:
    """The run as another machine or another time would have recorded it."""
    whole = {**RUN.identity, **identity}
    return replace(RUN, identity=whole, run_id=RUN.run_id[:-8] + digest(whole)[:8], recipe_digest="0" * 64)


def test_a_run_of_this_machine_is_itself() -> None:
    assert plan_here(RUN, data=None) == RUN


def test_a_run_of_another_machine_is_the_same_recipe_here() -> None:
    other = recorded(hardware={"device": "cuda", "name": "NVIDIA H200", "threads": 1, "world_size": 1}, versions={})
    assert plan_here(other, data=None) == RUN
    assert plan_here(other, data=None, ssr=2.0).steps == 2 * RUN.steps


def test_other_data_is_another_recipe() -> None:
    with pytest.raises(RunError, match=r"data here differ from its record: this would be another recipe, .{8} and not"):
        plan_here(recorded(data="0" * 64), data=None)

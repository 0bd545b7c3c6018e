"""The key `tune`: its axes, its errors, and the specification with the values that tuning chose."""

from typing import Any

import pytest

from explorer.errors import SpecError
from explorer.run_files import Hardware, Metric
from explorer.sweep.chosen import question, with_record
from explorer.sweep.spec import load_spec
from explorer.sweep.tune_key import Axis, with_values
from explorer.sweep.tuned import PointRecord, TunedRecipe, TunedRecord
from tests.sweep.sweeps import spec

TUNE: dict[str, Any] = {"space": {"lr": [0.03, 0.3]}, "runs": 4, "budget": 0.5, "seeds": [100]}


def asked(**changes: Any) -> dict[str, Any]:
    return spec(tune={**TUNE, **changes})


def axis(written: Any, key: str = "lr") -> Axis:
    (found,) = load_spec(asked(space={key: written})).tune.space  # pyright: ignore[reportOptionalMemberAccess]
    return found


@pytest.mark.parametrize(
    ("written", "scale"),
    [
        ([0.03, 0.3], "log"),  # ten times
        ([0.04, 0.3], "linear"),
        ([0.1, 0.3, 0.5], "of"),
        ({"linear": [0.01, 1.0]}, "linear"),
        ({"log": [0.1, 0.3]}, "log"),
        ({"of": [0.1, 0.3]}, "of"),
    ],
)
def test_the_scale_follows_from_the_range_unless_it_is_written(written: Any, scale: str) -> None:
    assert axis(written).scale == scale


def test_a_range_from_0_is_linear() -> None:
    assert axis([0, 0.01], "weight_decay") == Axis(key="weight_decay", scale="linear", low=0.0, high=0.01)


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_values_stay_in_the_range_and_share_finds_their_place_again(scale: Any) -> None:
    given = Axis(key="lr", scale=scale, low=0.012345, high=1.23456)
    for share in (0.0, 0.2, 0.7, 1.0):
        value = given.at(share)
        assert isinstance(value, float)
        assert given.low <= value <= given.high
        assert given.share(value) == pytest.approx(share, abs=1e-3)


def test_choices_are_met_in_equal_parts_and_have_a_place_only_where_they_are_numbers() -> None:
    given = Axis(key="lr", scale="of", options=(0.3, 0.1, 0.2))
    assert [given.at(share) for share in (0.0, 0.34, 0.67, 1.0)] == [0.3, 0.1, 0.2, 0.2]
    assert [given.share(value) for value in given.options] == [1.0, 0.0, 0.5]
    assert Axis(key="nesterov", scale="of", options=(True, False)).share(True) is None


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"space": {"momentun": [0.1, 0.3]}}, r"tune\.space: unknown number 'momentun'; did you mean 'momentum'"),
        (
            {"space": {"lr": [0.1, 1], "mixpu.alpha": [0.1, 1]}},
            r"tune\.space: unknown method 'mixpu'; did you mean 'mixup'",
        ),
        ({"space": {"epochs": [1, 20]}}, r"tune\.space: unknown number 'epochs'"),
        ({"space": {"lr": [0.3, 0.03]}}, r"tune\.space\.lr: found \[0.3, 0.03\], expected \[low, high\]"),
        ({"space": {"lr": [0.3, 300]}}, r"tune\.space: recipe 'baseline': train.optimizer.*lr.*100"),
        ({"space": {"lr": {"log": [0, 1]}}}, r"tune\.space\.lr: .* above 0 for a log scale"),
        ({"space": {"lr": {"between": [0, 1]}}}, r"tune\.space\.lr: .* expected one of log, linear, of"),
        ({"space": {"lr": [0.1, 0.1, 0.2]}}, r"tune\.space\.lr: .* different numbers"),
        ({"space": {"lr": []}}, r"tune\.space\.lr: found \[\], expected"),
        ({"space": {}}, r"tune\.space: found \{\}, expected a mapping"),
        ({"space": {"mixup.alpha": [0.1, 0.4]}}, r"tune\.space: nothing in it is a number of the recipe 'baseline'"),
        ({"spaces": {"mixd": {"lr": [0.1, 1.0]}}}, r"tune\.spaces\.mixd: unknown recipe 'mixd'; did you mean 'mixed'"),
        ({"runs": 1}, r"tune\.runs: found 1, expected a whole number from 2 to 1000"),
        ({"runs": 1000, "seeds": list(range(1, 12))}, r"tune: 22000 runs are too many"),
        ({"budget": 0}, r"tune\.budget: found 0, expected a number above 0"),
        ({"seeds": [100, 0]}, r"tune\.seeds\[1\]: 0 is a seed of the sweep as well"),
        ({"seeds": []}, r"tune\.seeds: empty"),
        ({"seeds": [1, 1]}, r"tune\.seeds\[1\]: 1 is given twice"),
        ({"sampler": "tpf"}, r"tune\.sampler: unknown sampler 'tpf'; did you mean 'tpe'"),
        ({"rums": 3}, r"tune\.rums: unknown key 'rums'; did you mean 'runs'"),
    ],
)
def test_what_cannot_be_tuned_is_one_clear_error(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(SpecError, match=fault):
        load_spec(asked(**changes))


def test_seeds_apart_from_the_claims_are_allowed() -> None:
    assert load_spec(asked(seeds=[100, 1])).tune is not None


def test_a_key_that_is_missing_is_named() -> None:
    with pytest.raises(SpecError, match=r"tune: key 'budget' is missing; expected space, runs, budget, seeds"):
        load_spec(spec(tune={key: value for key, value in TUNE.items() if key != "budget"}))


def test_tuning_by_hand_and_by_the_sweep_exclude_each_other() -> None:
    with pytest.raises(SpecError, match=r"tuning: 'tune' tunes every recipe and says how; leave this key out"):
        load_spec(asked() | {"tuning": "lr by grid"})


def test_recipes_that_differ_only_in_what_is_tuned_are_refused() -> None:
    other = {"train": {"optimizer": {"sgd": {"lr": 0.2, "momentum": 0.9}}}}
    with pytest.raises(SpecError, match=r"'baseline' and 'warm' differ only in what is tuned"):
        load_spec(asked() | {"recipes": {"baseline": [], "warm": other}})


def test_a_command_has_no_numbers_of_ours() -> None:
    task = {"command": "python train.py {seed}", "metrics": ["accuracy"]}
    content = {"name": "own", "task": task, "baseline": "a", "recipes": {"a": {}}, "budgets": [1.0], "seeds": [0]}
    with pytest.raises(SpecError, match=r"tune: works on Explorer's own recipes"):
        load_spec(content | {"tune": TUNE})


def test_values_go_to_optimiser_schedule_batch_and_methods() -> None:
    recipe = next(recipe for recipe in load_spec(spec()).recipes if recipe.name == "mixed").to_mapping()
    made = with_values(recipe, {"lr": 0.5, "batch_size": 32, "warmup": 0.1, "mixup.alpha": 0.4}, where="x")
    assert made["train"]["optimizer"]["sgd"]["lr"] == 0.5
    assert (made["train"]["batch_size"], made["train"]["schedule"]["cosine"]["warmup"]) == (32, 0.1)
    assert made["methods"][0]["mixup"]["alpha"] == 0.4
    assert recipe["train"]["optimizer"]["sgd"]["lr"] == 0.1  # the recipe itself is as it was


def tuned(values: dict[str, dict[str, Any]]) -> TunedRecord:
    return TunedRecord(
        question="0" * 64,
        sweep="tiny-tune",
        sampler="quasi-random",
        runs=1,
        budget=0.5,
        seeds=(100,),
        metric=Metric(name="accuracy", unit="fraction", higher_is_better=True),
        hardware=Hardware(device="cpu", name="a machine", threads=1),
        contended=False,
        recipes=tuple(
            TunedRecipe(
                recipe=name,
                points=(PointRecord(values=own, quality=0.5, seconds=1.0, steps=4, runs=("run",)),),
                chosen=0,
                edges=(),
            )
            for name, own in values.items()
        ),
    )


def test_a_tuned_sweep_has_the_chosen_values_in_every_recipe_and_its_controls() -> None:
    content = asked() | {
        "recipes": {"baseline": [], "choosy": ["selective_backprop"]},
        "compose": {"each_of": ["ema"]},
        "controls": "twin",
    }
    rates = {"baseline": 0.05, "choosy": 0.1, "ema": 0.2}
    record = tuned({name: {"lr": rate} for name, rate in rates.items()})
    found = with_record(load_spec(content), record, where="tuned.json")
    (twin,) = found.twins
    assert {recipe.name: recipe.optimizer.lr for recipe in found.recipes} == rates | {twin: 0.1}
    assert found.tuning == record.words
    assert "lr by 1 quasi-random points at budget 0.5 with 1 seed, sweep tiny-tune, digest 00000000" in record.words
    assert found.content == content  # the plan keeps what the author wrote


def test_a_record_of_other_recipes_is_refused() -> None:
    with pytest.raises(SpecError, match=r"tuned.json: not the recipes of"):
        with_record(load_spec(asked()), tuned({"baseline": {"lr": 0.1}}), where="tuned.json")


def test_the_question_changes_with_the_recipes_and_the_space_and_not_with_the_claim() -> None:
    asks = question(load_spec(asked()))
    assert question(load_spec(asked() | {"seeds": [0, 1], "budgets": [1.0]})) == asks
    assert question(load_spec(asked(runs=5))) != asks
    assert question(load_spec(asked() | {"recipes": {"baseline": [], "mixed": ["mixup"]}})) != asks

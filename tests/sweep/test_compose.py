"""Recipes that follow from others: subsets, combinations that cannot be, and bounds kept before any is made."""

import itertools
import time

import pytest

from explorer.errors import SpecError
from explorer.sweep.compose import MAX_NAME, fitting
from explorer.sweep.spec import load_spec
from tests.sweep.sweeps import plan, spec

ONLY = {"baseline": []}


def composed(recipes=None, **compose):
    return load_spec(spec(recipes=recipes or ONLY, compose=compose))


def names(recipes):
    return [recipe.name for recipe in recipes if recipe.name != "baseline"]


CONFLICT = "methods 'ema' and 'swa' cannot be combined: each averages the same weights"


def test_a_powerset_is_every_subset_but_the_empty_one():
    three = ["ema", "label_smoothing", "sam"]
    expected = ["-".join(group) for size in (1, 2, 3) for group in itertools.combinations(three, size)]
    found = composed(powerset=three)
    assert names(found.recipes) == expected
    assert [{m.name for m in r.methods} for r in found.recipes[1:]] == [set(name.split("-")) for name in expected]
    assert names(composed(powerset={"of": three}).recipes) == expected
    assert names(composed(powerset={"of": three, "up_to": 2}).recipes) == expected[:6]
    assert names(composed(each_of=three[:2], pairs_of=three, powerset=three).recipes) == [
        *(*three[:2], *expected[3:6], "sam", expected[6]),
    ]


def test_impossible_combinations_are_left_out_and_reported(tmp_path):
    found = composed(powerset=["ema", "mixup", "swa"])
    assert names(found.recipes) == ["ema", "mixup", "swa", "ema-mixup", "mixup-swa"]
    assert [each.name for each in found.not_run] == ["ema-swa", "ema-mixup-swa"]
    assert all(each.reason.startswith(CONFLICT) for each in found.not_run)
    pairs = spec(recipes=ONLY, compose={"pairs_of": ["ema", "mixup", "swa"], "powerset": ["ema", "swa"]})
    planned = plan(tmp_path, pairs)
    assert [each.name for each in planned.not_run] == ["ema-swa"]  # asked for twice, told once
    (told,) = planned.to_json()["not_run"]
    assert told["name"] == "ema-swa" and told["reason"].startswith(CONFLICT)
    assert {run.record.recipe for run in planned.runs} == {"baseline", "ema", "swa", "ema-mixup", "mixup-swa"}


def test_a_conflict_in_a_written_recipe_is_an_error():
    with pytest.raises(SpecError, match=rf"recipes\.both: {CONFLICT}"):
        composed({"baseline": [], "both": ["swa", "ema"]}, powerset=["label_smoothing", "sam"])


def test_long_names_stay_names():
    six = ["channels_last", "ema", "label_smoothing", "mixup", "progressive_resizing", "sam"]
    found = names(composed(powerset=six).recipes)
    assert len(set(found)) == 2**6 - 1
    assert max(map(len, found)) == MAX_NAME
    assert "channels_last-ema-label_smoothing-mixup" in found
    assert fitting("-".join(six)) in found
    assert fitting("-".join(six)) != fitting("-".join([*six[:-1], "blurpool"]))  # alike in the part that is kept


BIG = ["ema", "mixup", "sam"] * 7


@pytest.mark.parametrize(
    ("compose", "message"),
    [
        ({"powerset": BIG}, "compose.powerset: too many combinations of 21 methods: with its budgets and"),
        ({"powerset": ["ema"] * 5000}, "compose.powerset: too many combinations of 5000 methods"),
        ({"pairs_of": ["ema"] * 300}, "compose.pairs_of: too many combinations of 300 methods"),
        ({"powerset": {"of": BIG, "up_to": 6}}, "compose.powerset: too many combinations of 21 methods"),
        ({"powerset": {"of": BIG[:3], "up_to": 4}}, "compose.powerset.up_to: found 4, expected a whole number from 1"),
        ({"powerset": {"of": BIG[:3], "up_to": True}}, "compose.powerset.up_to: found True, expected a whole number"),
        ({"powerset": {"of": BIG[:3], "upto": 2}}, "compose.powerset.upto: unknown key 'upto'; did you mean 'up_to'?"),
        ({"powerset": {"up_to": 2}}, "compose.powerset.of: found nothing, expected a list of at least 2 methods"),
        ({"powerset": ["ema"]}, "compose.powerset: found ['ema'], expected a list of at least 2 methods"),
        ({"powerset": ["ema", "smm"]}, "compose.powerset[1]: unknown method 'smm'; did you mean 'sam'?"),
        ({"powerset": ["ema", "ema"]}, None),
        ({"leave_one_out": [["fast"]]}, "compose.leave_one_out: unknown recipe \"['fast']\""),
        ({"power_set": ["ema", "sam"]}, "compose.power_set: unknown key 'power_set'; did you mean 'powerset'?"),
    ],
)  # fmt: skip
def test_bad_compositions_are_refused_at_once(compose, message):
    begun = time.monotonic()
    if message is None:  # the same method twice is one recipe, and no pair
        found = composed(**compose)
        assert names(found.recipes) == ["ema"]
        assert [each.reason for each in found.not_run] == [
            "method 'ema' is given twice: expected each method at most once"
        ]
        return
    with pytest.raises(SpecError) as caught:
        composed(**compose)
    assert str(caught.value).startswith(f"spec: {message}")
    assert time.monotonic() - begun < 2  # nothing was built


def test_room_is_counted_with_budgets_and_seeds():
    compose = {"powerset": ["ema", "label_smoothing", "sam"]}
    fits = spec(recipes=ONLY, compose=compose, budgets=[1.0], seeds=list(range(2500)))
    assert len(load_spec(fits).recipes) == 8
    with pytest.raises(SpecError, match="this sweep has room for 6 more recipes"):
        load_spec({**fits, "seeds": list(range(2501))})

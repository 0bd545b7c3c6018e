"""The key `search`: which recipes it allows, and the words for each fault in it."""

from typing import Any

import pytest

from explorer.errors import SpecError
from explorer.sweep.search_key import MOST
from explorer.sweep.spec import load_spec
from tests.sweep.sweeps import spec

SEARCH: dict[str, Any] = {"of": ["ema", "mixup", "swa"], "spend": "2min", "ladder": [0.5, 1.0]}


def searching(changes: dict[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    """The specification of a search, with changes to its key and to others."""
    content = spec(recipes={"baseline": []}, search={**SEARCH, **(changes or {})}, **others)
    del content["budgets"]
    return content


def test_its_recipes_are_the_subsets_that_can_be_built():
    read = load_spec(searching())
    assert read.search is not None
    assert [sorted(names) for names in read.search.subsets] == [
        *([], ["ema"], ["mixup"], ["swa"]),
        *(["ema", "mixup"], ["mixup", "swa"]),
    ]
    # The impossible triple contains the impossible pair: it is counted there.
    (left_out,) = read.search.not_run
    assert left_out.name == "ema-swa" and left_out.reason.startswith("methods 'ema' and 'swa' cannot be combined")
    assert left_out.reason.endswith("(so are 1 recipes that contain them)")
    both = read.search.recipe(frozenset({"mixup", "ema"}))
    assert both.name == "ema-mixup" and {method.name for method in both.methods} == {"ema", "mixup"}
    assert read.search.named("ema-mixup") == {"ema", "mixup"} and read.search.named("ema-swa") is None
    assert read.search.recipe(frozenset()) is read.search.base


def test_its_ladder_takes_the_place_of_budgets():
    assert load_spec(searching()).budgets == (0.5, 1.0)
    assert [recipe.name for recipe in load_spec(searching()).recipes] == ["baseline"]


@pytest.mark.parametrize(
    ("spend", "seconds"), [("3h", 10800), ("90min", 5400), ("600s", 600), ("1.5 h", 5400), (45, 45)]
)
def test_spend_is_a_time(spend, seconds):
    read = load_spec(searching({"spend": spend})).search
    assert read is not None and read.spend == seconds


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"off": 1}, r"search\.off: unknown key 'off'; did you mean 'of'\?"),
        ({"of": ["ema", "mixupp"]}, r"search\.of\[1\]: unknown method 'mixupp'; did you mean 'mixup'\?"),
        ({"of": ["ema"]}, r"search\.of: .* expected a list of at least 2 methods"),
        ({"of": ["ema", "mixup", "ema"]}, r"search\.of\[2\]: method 'ema': it is given twice"),
        ({"up_to": 4}, r"search\.up_to: found 4, expected a whole number from 1 to 3"),
        ({"up_to": True}, r"search\.up_to: found True"),
        ({"spend": "3 hours"}, r"search\.spend: found '3 hours', expected a time of training, such as 3h"),
        ({"spend": 0}, r"search\.spend: found 0"),
        ({"spend": "0s"}, r"search\.spend: found '0s'"),
        ({"spend": True}, r"search\.spend: found True"),
        ({"ladder": []}, r"search\.ladder: found \[\], expected a list of budgets"),
        ({"ladder": [1.0, 0.5]}, r"search\.ladder: found \[1\.0, 0\.5\], expected budgets that ascend"),
        ({"ladder": [0.25, 0.5]}, r"search\.ladder: .* expected 1\.0 at its end"),
        ({"ladder": [0.5, 1.0, 2.0]}, r"search\.ladder: .* expected 1\.0 at its end"),
        ({"ladder": [0, 1.0]}, r"search\.ladder\[0\]: found 0, expected a number above 0"),
        ({"objective": {"cost_of": "baseline"}}, r"search\.objective\.cost_of: unknown key 'cost_of'"),
        ({"objective": {"time_to": "fast"}}, r"search\.objective\.time_to: found 'fast', expected 'baseline' or a"),
        ({"objective": "baseline"}, r"search\.objective: found 'baseline', expected \{time_to: baseline\}"),
        ({"searcher": 3}, r"search\.searcher: found 3, expected the name of a searcher"),
    ],
)
def test_a_fault_is_named_with_what_is_allowed(changes, words):
    with pytest.raises(SpecError, match=words):
        load_spec(searching(changes))


def test_what_is_missing_is_named():
    content = searching()
    del content["search"]["spend"]
    with pytest.raises(SpecError, match=r"search: key 'spend' is missing; expected of, spend, ladder"):
        load_spec(content)


@pytest.mark.parametrize("key", ["budgets", "compose", "controls"])
def test_what_says_which_runs_there_are_is_refused_next_to_it(key):
    with pytest.raises(SpecError, match=rf"{key}: found next to 'search', which chooses the runs itself"):
        load_spec(searching() | {key: [1.0] if key == "budgets" else "all"})


def test_it_makes_all_recipes_but_the_baseline():
    content = {**searching(), "recipes": {"baseline": [], "fast": ["ema"]}}
    with pytest.raises(SpecError, match="recipes: found 2 recipes next to 'search'"):
        load_spec(content)


def test_a_method_of_the_baseline_cannot_be_added():
    content = {**searching(), "recipes": {"baseline": ["mixup"]}}
    with pytest.raises(SpecError, match=r"search\.of\[1\]: method 'mixup': the baseline has it already"):
        load_spec(content)


def test_too_many_recipes_are_refused_with_their_number(monkeypatch):
    # Not one of them is built.
    monkeypatch.setattr("explorer.sweep.search_key.conflict_of", lambda methods: pytest.fail("built"))
    twenty = [
        *("alibi", "augmix", "blurpool", "channels_last", "colout", "cutmix", "cutout", "ema", "factorize", "mixup"),
        *("label_smoothing", "layer_freezing", "muon", "progressive_resizing", "randaugment", "sam", "squeeze_excite"),
        *("stochastic_depth", "swa", "weight_standardization"),
    ]
    with pytest.raises(SpecError, match=f"20 methods, up to 6 at a time, are 60460 recipes; expected at most {MOST}"):
        load_spec(searching({"of": twenty, "up_to": 6}))

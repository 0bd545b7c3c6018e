"""What a recipe is made of, read from the identity of a run, which anybody may have written."""

import json

import pytest

from explorer.analysis.ingredients import Ingredient, added, labels, made
from explorer.errors import AnalysisError


def identity(*methods: object, **rest: object) -> str:
    return json.dumps({"recipe": {"methods": [*methods], "train": {"lr": 0.1}}, "ssr": 1.0, "seed": 0, **rest})


def test_methods_with_their_parameters() -> None:
    found = made(identity("sam", {"mixup": {"alpha": 0.2}}))
    assert found.methods == (Ingredient("sam", "{}"), Ingredient("mixup", '{"alpha":0.2}'))


def test_budget_and_seed_make_no_other_recipe_and_everything_else_does() -> None:
    assert made(identity(ssr=0.5, seed=3)).rest == made(identity("sam")).rest
    assert made(identity(data="other")).rest != made(identity()).rest


def test_added_methods_keep_their_order() -> None:
    found = added(made(identity("ema", "sam", "blurpool")), baseline=made(identity("sam")))
    assert [method.name for method in found] == ["ema", "blurpool"]
    with pytest.raises(AnalysisError, match="lacks the baseline's sam"):
        added(made(identity("ema")), baseline=made(identity("sam")))


def test_names_tell_variants_apart_and_nothing_more() -> None:
    short, long, other = (
        made(identity({name: {"a": a, "b": 1}})).methods[0] for name, a in (("m", 1), ("m", 2), ("n", 1))
    )
    assert labels([short, long, other]) == {short: "m (a 1)", long: "m (a 2)", other: "n"}


@pytest.mark.parametrize(
    "written",
    ["", "[]", "3", "{}", '{"recipe": 3}', '{"recipe": {}}', '{"recipe": {"methods": 7}}', identity(7),
     identity({"a": {}, "b": {}}), identity({"a": 3}), identity(["a"]), "[" * 100_000],
    ids=range(12),
)  # fmt: skip
def test_what_lists_no_methods_is_refused(written: str) -> None:
    with pytest.raises(AnalysisError, match="do not record their methods"):
        made(written)

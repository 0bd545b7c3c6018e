"""What methods say about themselves is exact."""

from explorer.recipes.catalogue import describe
from explorer.recipes.settings import METHODS


def test_the_range_of_a_parameter_is_written_in_full() -> None:
    ranges = {name: describe(name)["parameters"][0]["range"] for name in ("ghost_batchnorm", "mixup", "randaugment")}
    assert ranges == {"ghost_batchnorm": ">= 2, <= 1048576", "mixup": ">= 0, <= 100", "randaugment": ">= 0.1, <= 10"}


def test_types_are_written_as_one_writes_their_values() -> None:
    types = {f"{name}.{each['name']}": each["type"] for name in METHODS for each in describe(name)["parameters"]}
    assert types["contributions.exact"] == "list of str"
    assert types["cutmix.length"] == "float | None"
    assert types["gradient_clipping.clipping"] == "norm | value | adaptive | off"
    assert not [each for each in types.values() if "[" in each or "typing" in each]


def test_descriptions_are_not_indented() -> None:
    assert not [name for name in METHODS if "\n  " in describe(name)["description"]]

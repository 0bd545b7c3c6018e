"""What methods say about themselves is exact."""

from explorer.recipes.catalogue import describe


def test_the_range_of_a_parameter_is_written_in_full() -> None:
    ranges = {name: describe(name)["parameters"][0]["range"] for name in ("ghost_batchnorm", "mixup", "randaugment")}
    assert ranges == {"ghost_batchnorm": ">= 2, <= 1048576", "mixup": ">= 0, <= 100", "randaugment": ">= 0.1, <= 10"}

"""The order of methods: from what they declare, whatever order they were written in."""

from itertools import permutations

import pytest

from explorer.engine.method import Kind, Method, ordered
from explorer.errors import RecipeError
from explorer.methods import METHODS


def method(name: str, kind: Kind = Kind.MIX, **declared: object) -> Method:
    """A method that only declares itself."""
    made = type(name, (Method,), {"__slots__": (), "name": name, "kind": kind, **declared})
    return made()


def names(methods: list[Method]) -> list[str]:
    return [method.name for method in ordered(methods)]


def test_kinds_come_first_then_declarations_then_the_alphabet() -> None:
    methods = [
        method("z_surgery", Kind.SURGERY),
        method("a_average", Kind.AVERAGE),
        method("d"),
        method("c", after=("d", "not_here")),
        method("b", before=("a",)),
        method("a"),
    ]
    for written in permutations(methods):
        assert names(list(written)) == ["z_surgery", "b", "a", "d", "c", "a_average"]


def test_without_declarations_the_alphabet_would_decide() -> None:
    """The control: the same methods, undeclared."""
    assert names([method("d"), method("c"), method("b"), method("a")]) == ["a", "b", "c", "d"]


def test_a_circle_is_named() -> None:
    circle = [method("a", before=("b",)), method("b", before=("c",)), method("c", before=("a",))]
    with pytest.raises(RecipeError, match=r"methods declare a circular order: \w -> \w -> \w -> \w"):
        ordered(circle)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_conflict_is_refused_whoever_declares_it(swapped: bool) -> None:
    pair = [method("mean", conflicts_with={"median": "one average is enough"}), method("median")]
    with pytest.raises(RecipeError, match=r"'mean' and 'median' cannot be combined: one average is enough"):
        ordered(pair[::-1] if swapped else pair)


def test_a_method_stands_once() -> None:
    with pytest.raises(RecipeError, match="'mixup' is given twice"):
        ordered([METHODS["mixup"](), METHODS["mixup"]()])


def test_declared_orders_are_within_a_kind() -> None:
    """Across kinds a declaration would say nothing: the kinds decide."""
    for one in METHODS.values():
        for other in (*one.before, *one.after):
            assert other in METHODS, f"{one.name} declares an order with {other}, which is not there"
            assert METHODS[other].kind == one.kind


IMAGES = [
    "factorize",
    "gyro_dropout",
    "squeeze_excite",
    "blurpool",
    "ghost_batchnorm",
    "weight_standardization",
    "whitening",
    "muon",
    "batch_size_warmup",
    "layer_freezing",
    "augmix",
    "randaugment",
    "progressive_resizing",
    "colout",
    "selective_backprop",
    "cutout",
    "mixup",
    "label_smoothing",
    "channels_last",
    "sam",
    "gradient_clipping",
    "ema",
]
TEXT = [
    "alibi",
    "gated_linear_units",
    "factorize",
    "low_precision_layernorm",
    "stochastic_depth",
    "schedule_free",
    "batch_size_warmup",
    "layer_freezing",
    "seq_length_warmup",
    "random_subset",
    "label_smoothing",
    "gradient_clipping",
]
ELSE = [  # those that cannot stand with some of the first
    "gyro_dropout",
    "low_precision_groupnorm",
    "rotary",
    "weight_standardization",
    "stochastic_depth",
    "cutout",
    "cutmix",
    "channels_last",
    "swa",
]


@pytest.mark.parametrize("expected", [IMAGES, TEXT, ELSE, ["channels_last", "compile", "sam"]])
def test_all_methods_together(expected: list[str]) -> None:
    """A mixed target is smoothed, not a smoothed one mixed; the average sees the weights last."""
    assert names([METHODS[name]() for name in sorted(expected)]) == expected


def test_a_method_of_these_keeps_its_place_whoever_is_left_out() -> None:
    """Fixed orders give fixed names of parameters."""
    for expected in (IMAGES, TEXT, ELSE):
        for left_out in expected:
            kept = [name for name in expected if name != left_out]
            assert names([METHODS[name]() for name in sorted(kept)]) == kept
    assert {*IMAGES, *TEXT, *ELSE, "compile"} == METHODS.keys()

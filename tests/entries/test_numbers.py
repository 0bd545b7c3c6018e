"""The bytes of a step's numbers: exactly what the docstring says, back again, and nothing that does not fit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from explorer.entries import numbers as format
from explorer.entries.numbers import (
    StepNumbers,
    class_bytes,
    decode_class,
    decode_segment,
    decode_sketches,
    decode_step,
    diagonal,
    encode_class,
    encode_joint,
    encode_sketches,
    joint_bytes,
    share_terms,
    split_class,
    split_joint,
)
from explorer.errors import LedgerError


def f32(values: Any) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def step(classes: tuple[int, ...], *, layers: int = 3, seed: int = 0, exact: bool = False) -> StepNumbers:
    """Numbers that a step could have: class 1 is denied the first layer."""
    random = np.random.default_rng(seed)
    k = len(classes)
    gradients = random.normal(size=(layers, k, 5))
    weights = f32(random.choice([0.5, 1.0], size=(k, layers)))
    weights[[place for place, index in enumerate(classes) if index == 1], 0] = 0
    norms = f32(np.linalg.norm(gradients, axis=2).T * (weights > 0))
    weighted = gradients * weights.T[:, :, None]
    gram = f32(weighted @ weighted.transpose(0, 2, 1))
    gram[:, range(k), range(k)] = diagonal(weights, norms).T
    dots = f32(random.normal(size=(k, layers)) * (weights > 0))
    updates = f32(random.uniform(size=layers))
    moved = f32(random.normal(size=(k, layers))) if exact and classes else None
    return StepNumbers(
        classes=classes, weights=weights, norms=norms, dots=dots, gram=gram, updates=updates, exact=moved
    )


def same(one: StepNumbers, other: StepNumbers) -> bool:
    return one.classes == other.classes and bits(one) == bits(other)


def bits(numbers: StepNumbers) -> list[tuple[str, bytes]]:
    exact = [] if numbers.exact is None else [numbers.exact]
    arrays = [numbers.weights, numbers.norms, numbers.dots, numbers.gram, numbers.updates, *exact]
    return [(str(array.dtype), array.tobytes()) for array in arrays]


def contents(numbers: StepNumbers) -> dict[int, bytes]:
    return {index: encode_class(numbers, place) for place, index in enumerate(numbers.classes)}


def test_the_bytes_of_the_docstring() -> None:
    weights, norms, dots = f32([[1], [0.5]]), f32([[2], [1]]), f32([[-1], [-0.125]])
    gram, updates = f32([[[4, 0.25], [0.25, 0.25]]]), f32([0.125])
    numbers = StepNumbers(classes=(0, 3), weights=weights, norms=norms, dots=dots, gram=gram, updates=updates)
    assert format.__doc__ is not None
    (line, joint_line) = (each for each in format.__doc__.splitlines() if each.startswith("    0000"))
    first, second = (text.replace(" ", "") for text in line[:50].strip().split("    ")[:2])
    assert [encode_class(numbers, place).hex() for place in (0, 1)] == [first, second]
    assert encode_joint(numbers).hex() == joint_line[:45].replace(" ", "")


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("classes", [(), (0,), (1,), (0, 1, 2), (1, 4, 6, 9)])
def test_a_step_comes_back_bit_for_bit(classes: tuple[int, ...], exact: bool) -> None:
    numbers = step(classes, exact=exact)
    parts, joint = contents(numbers), encode_joint(numbers)
    assert all(len(part) == class_bytes(3) for part in parts.values())
    assert len(joint) == joint_bytes(3, len(classes), exact=exact)
    assert same(decode_step(parts, joint, layers=3), numbers)


def test_the_size_for_16_layers_and_8_classes() -> None:
    assert 8 * class_bytes(16) + joint_bytes(16, 8, exact=False) == 16 * 4 * (8 * 3 + 1 + 28) <= 4096


@pytest.mark.parametrize("exact", [False, True])
def test_a_segment_comes_back_step_by_step(exact: bool) -> None:
    which = [(0, 1, 2), (2,), (), (0, 2)]
    steps = [step(classes, seed=seed, exact=exact) for seed, classes in enumerate(which)]
    blobs = {index: b"".join(contents(each).get(index, b"") for each in steps) for index in range(3)}
    joint = b"".join(encode_joint(each) for each in steps)
    found = list(decode_segment(blobs, joint, steps=which, layers=3))
    assert all(same(a, b) for a, b in zip(found, steps, strict=True))
    assert split_class(blobs[2], layers=3) == [contents(steps[n])[2] for n in (0, 1, 3)]
    assert split_joint(joint, layers=3, counts=[3, 1, 0, 2]) == [encode_joint(each) for each in steps]
    assert decode_class(blobs[0], layers=3).shape == (2, 3, 2)


def test_shares_add_up_whatever_was_recorded() -> None:
    for seed in range(20):
        numerators, denominators = share_terms(step((0, 1, 2, 5), seed=seed).gram)
        assert np.abs((numerators / denominators).sum(0) - 1).max() < 1e-12
        assert numerators[1, 0] == 0


def test_sketches_come_back() -> None:
    sketches = f32(np.random.default_rng(0).normal(size=(3, 64)))
    assert decode_sketches(encode_sketches(sketches), layers=3).tobytes() == sketches.tobytes()
    with pytest.raises(LedgerError, match="found 767 bytes, expected 768"):
        decode_sketches(encode_sketches(sketches)[:-1], layers=3)


def test_overflow_is_recorded_as_it_was() -> None:
    numbers = step((0, 2))
    norms = numbers.norms.copy()
    norms[0, 0], norms[1, 2] = np.inf, 1e30
    gram = numbers.gram.copy()
    gram[:, range(2), range(2)] = diagonal(numbers.weights, norms).T
    gram[0, 0, 1] = gram[0, 1, 0] = np.nan
    overflowed = replace(numbers, norms=norms, gram=gram)
    assert same(decode_step(contents(overflowed), encode_joint(overflowed), layers=3), overflowed)


def test_content_of_another_size_is_refused() -> None:
    numbers = step((0, 1))
    parts, joint = contents(numbers), encode_joint(numbers)
    with pytest.raises(LedgerError, match="numbers of a class: found 23 bytes, expected a multiple of 24"):
        decode_step(parts | {0: parts[0][:-1]}, joint, layers=3)
    with pytest.raises(LedgerError, match="joint numbers: found 52 bytes, expected 48, or 72 in exact mode"):
        decode_step(parts, joint + b"1234", layers=3)
    with pytest.raises(LedgerError, match="more steps than the entries list"):
        decode_step(parts | {0: parts[0] * 2}, joint, layers=3)
    with pytest.raises(LedgerError, match="fewer steps than the entries list"):
        list(decode_segment({0: parts[0]}, joint, steps=[(0, 1)], layers=3))
    with pytest.raises(LedgerError, match="expected a multiple of 0"):
        decode_class(b"1234", layers=0)


def changed(numbers: StepNumbers, field: str, place: tuple[int, ...], value: float) -> StepNumbers:
    array = getattr(numbers, field).copy()
    array[place] = value
    return replace(numbers, **{field: array})


@pytest.mark.parametrize(
    ("field", "place", "value", "message"),
    [
        ("weights", (0, 1), -1.0, "below 0"),
        ("norms", (0, 1), -1.0, "below 0"),
        ("updates", (1,), -1.0, "below 0"),
        ("gram", (1, 0, 1), 7.0, "not symmetric"),
        ("gram", (1, 0, 0), 7.0, r"not \(weight norm\)\^2"),
        ("norms", (0, 1), 7.0, r"not \(weight norm\)\^2"),
        ("norms", (1, 0), 7.0, "the weight is 0"),
        ("dots", (1, 0), 7.0, "the weight is 0"),
        ("norms", (1, 0), float("inf"), r"not \(weight norm\)\^2"),
        ("dots", (1, 0), float("nan"), "the weight is 0"),
    ],
)
def test_numbers_that_no_step_can_have(field: str, place: tuple[int, ...], value: float, message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        changed(step((0, 1)), field, place, value)


def test_what_was_denied_has_no_angle() -> None:
    numbers = step((0, 1))
    gram = numbers.gram.copy()
    gram[0, 0, 1] = gram[0, 1, 0] = 0.5
    with pytest.raises(LedgerError, match="the weight is 0"):
        replace(numbers, gram=gram)


@pytest.mark.parametrize("classes", [(1, 0), (0, 0), (-1, 0), (0,)])
def test_classes_that_do_not_fit(classes: tuple[int, ...]) -> None:
    with pytest.raises(LedgerError, match=r"classes|shapes"):
        replace(step((0, 1)), classes=classes)


def test_other_shapes_and_types_are_refused() -> None:
    numbers = step((0, 1))
    with pytest.raises(LedgerError, match="shapes"):
        replace(numbers, gram=numbers.gram[:2])
    with pytest.raises(LedgerError, match="float32"):
        replace(numbers, dots=numbers.dots.astype(np.float64))

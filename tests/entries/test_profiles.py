"""Entropy profiles as bytes: exact, readable back, and refused where they cannot be one."""

import dataclasses
import math
import struct
from typing import Any

import numpy as np
import pytest

from explorer.entries.profiles import (
    LayerProfiles,
    decode_class,
    decode_joint,
    encode_class,
    encode_joint,
)
from explorer.errors import LedgerError


def profiles(**changes: Any) -> LayerProfiles:
    """Two of the run's classes in three layers."""
    draws = np.random.default_rng(0)
    values: dict[str, Any] = {
        "step": 7,
        "probes": "ab" * 32,
        "classes": (0, 2),
        "examples": (4, 3),
        "spectra": draws.random((2, 3, 3)),
        "joint": draws.random((3, 6)),
    }
    return LayerProfiles(**values | changes)


def test_the_bytes_of_the_docstring() -> None:
    spectra = np.array([[[math.log(4), 4.0, math.log(4)]]])
    found = encode_class(profiles(classes=(0,), examples=(4,), spectra=spectra, joint=np.ones((1, 6))), 0)
    assert found == bytes.fromhex("04000000 ef39fafe422ef63f 0000000000001040 ef39fafe422ef63f")


def test_what_was_written_is_read() -> None:
    written = profiles()
    for place, count in enumerate((4, 3)):
        examples, spectra = decode_class(encode_class(written, place), layers=3)
        assert examples == count
        assert np.array_equal(spectra, written.spectra[place])
    examples, joint = decode_joint(encode_joint(written), layers=3)
    assert examples == 7
    assert np.array_equal(joint, written.joint)


def test_a_class_does_not_depend_on_the_others() -> None:
    """What is committed to for one class is the same without the others."""
    both = profiles()
    alone = profiles(classes=(2,), examples=(3,), spectra=both.spectra[1:])
    assert encode_class(alone, 0) == encode_class(both, 1)


@pytest.mark.parametrize("change", [b"", b"\0", b"\0" * 8])
def test_another_size_is_refused(change: bytes) -> None:
    content = encode_class(profiles(), 0)
    with pytest.raises(LedgerError, match=r"of a class: found \d+ bytes, expected 76"):
        decode_class(change + content[: -1 if not change else None], layers=3)
    with pytest.raises(LedgerError, match="of all classes: found 76 bytes, expected 148"):
        decode_joint(content, layers=3)


def test_numbers_that_are_not_finite_are_refused() -> None:
    content = encode_class(profiles(), 0)[:-8] + struct.pack("<d", math.nan)
    with pytest.raises(LedgerError, match="not finite"):
        decode_class(content, layers=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"joint": np.ones((3, 5))}, "shapes do not belong to 2 classes and 3 layers"),
        ({"joint": np.ones((2, 6))}, "shapes do not belong to 2 classes and 2 layers"),
        ({"spectra": np.ones((2, 3, 3), np.float32)}, "expected float64"),
        ({"joint": np.full((3, 6), np.nan)}, "not finite"),
        ({"classes": (2, 0)}, "expected indices, ascending"),
        ({"classes": (-1, 0)}, "expected indices, ascending"),
        ({"examples": (4,)}, "expected a number for each class"),
        ({"examples": (4, 0)}, "expected a number for each class"),
    ],
)
def test_what_is_no_profile_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        profiles(**changes)


def test_a_profile_is_a_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        profiles().step = 8  # pyright: ignore[reportAttributeAccessIssue]

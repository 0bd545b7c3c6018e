"""Entropy profiles as bytes: exact, readable back, and refused where they cannot be one."""

import dataclasses
import math
import struct
from typing import Any

import numpy as np
import pytest

from explorer.entries.entropy_profile import (
    SHOWN,
    LayerProfiles,
    decode_class,
    decode_joint,
    encode_class,
    encode_joint,
    joint_row,
    shown_class,
    shown_joint,
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


COUNTS = np.array([[3, 1], [0, 3]])


def probed(**changes: Any) -> LayerProfiles:
    """With centred spectra and the counts of a probe, which say 4 and 3 examples."""
    row = joint_row(np.arange(6.0).tolist(), [7.0, 8.0, 9.0], 0.02, COUNTS)
    values: dict[str, Any] = {"spectra": np.random.default_rng(0).random((2, 3, 6)), "joint": np.tile(row, (3, 1))}
    return profiles(**values | changes)


def test_the_probe_is_written_and_read() -> None:
    written = probed()
    examples, joint = decode_joint(encode_joint(written), layers=3)
    assert examples == 7 and np.array_equal(joint, written.joint)
    _, spectra = decode_class(encode_class(written, 1), layers=3)
    assert np.array_equal(spectra, written.spectra[1])
    shown = shown_joint(joint[0])
    assert (shown["chi"], shown["entropy_centred"], shown["told_p_value"]) == (3.0, 7.0, 0.02)
    assert shown["told_apart"] == (3 / 4 + 1) / 2 and shown["told_chance"] == 0.5
    second = shown_class(spectra[0], joint[0], 1)
    assert second["told_apart"] == (1 + 3 / 4) / 2 and second["chi"] is None and second["told_p_value"] is None


def test_earlier_versions_have_no_probe() -> None:
    earlier = profiles()
    shown = shown_joint(earlier.joint[0])
    assert shown["chi"] == earlier.joint[0, 3] and shown["told_apart"] is None and shown["entropy_centred"] is None
    assert list(shown) == list(shown_class(earlier.spectra[0, 0])) == list(SHOWN)


@pytest.mark.parametrize(
    ("counts", "message"),
    [([[3, 1], [1, 3]], "of \\[4, 4\\] examples"), ([[4.5, -0.5], [0, 3]], "not whole numbers")],
)
def test_counts_of_other_examples_are_refused(counts: list[list[float]], message: str) -> None:
    row = joint_row(np.arange(6.0).tolist(), [7.0, 8.0, 9.0], 0.02, np.array(counts))
    with pytest.raises(LedgerError, match=message):
        probed(joint=np.tile(row, (3, 1)))


def test_counts_that_do_not_add_up_are_refused_when_read() -> None:
    content = encode_joint(probed())
    with pytest.raises(LedgerError, match="counts of 7 examples; expected 8"):
        decode_joint(struct.pack("<I", 8) + content[4:], layers=3)


def test_old_and_new_numbers_do_not_mix() -> None:
    with pytest.raises(LedgerError, match="shapes do not belong"):
        probed(spectra=np.ones((2, 3, 3)))

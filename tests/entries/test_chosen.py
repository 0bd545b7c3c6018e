"""Choices among examples as bytes: exact, readable back, and refused where they cannot be one."""

import numpy as np
import pytest

from explorer.audit.routable import faults_of
from explorer.entries.slots import NONE, Chosen, decode_chosen, encode_chosen
from explorer.errors import LedgerError
from explorer.provenance.regions import Examples, bands_of
from explorer.provenance.routing_weights import Banded


def chosen(**changes: np.ndarray) -> Chosen:
    """Two examples, the second of which trained the first of two layers."""
    values = {"scores": [[0.5, 1.0]], "passes": [[True, False]], "taken": [NONE, 0]}
    kinds = {"scores": np.float32, "passes": np.bool_, "taken": np.uint8}
    return Chosen(**{name: np.array(changes.get(name, value), kinds[name]) for name, value in values.items()})


def test_the_bytes_of_the_docstring() -> None:
    assert encode_chosen(chosen()) == bytes.fromhex("02000000 01000000 0000003f 0000803f 01000000 01 00 ff 00")


def test_what_was_written_is_read() -> None:
    found = decode_chosen(encode_chosen(chosen()), layers=2)
    assert found.scores.tolist() == [[0.5, 1.0]] and found.taken.tolist() == [NONE, 0]
    assert found.reached().tolist() == [False, True]
    assert found.reached([0]).tolist() == [False, True] and found.reached([1]).tolist() == [False, False]


def test_every_other_size_and_flag_is_refused() -> None:
    content = encode_chosen(chosen())
    for size in range(len(content)):
        with pytest.raises(LedgerError, match="a choice among examples"):
            decode_chosen(content[:size], layers=2)
    for damaged in (content + b"\0", content[:-1] + b"\1", content[:-4] + b"\2" + content[-3:], b"\xff" * 8 + content):
        with pytest.raises(LedgerError, match="a choice among examples"):
            decode_chosen(damaged, layers=2)


BANDED = Banded(bands=bands_of([Examples(loss=(0.5, 1.0))]), weights=np.array([[0.0, 0.0], [1.0, 0.0]]))
DENIED = "1 examples trained it that the policy denies it"
TRAINED = np.array([True, False])


def test_what_the_policy_lets_through_has_no_fault() -> None:
    assert list(faults_of(chosen(), BANDED, most=2, trained=TRAINED)) == []


@pytest.mark.parametrize(
    ("changes", "trained", "words"),
    [
        (
            {"scores": [[1.0, 0.5]]},
            TRAINED,
            f"{DENIED}, the first of loss [0, 0.5)",
        ),
        (
            {"passes": [[True, True]]},
            TRAINED,
            f"{DENIED}, the first of loss [0.5",
        ),
        ({"taken": [0, 0]}, TRAINED, DENIED),
        ({"taken": [NONE, NONE]}, TRAINED, "it has weight there, and no pass took its gradients"),
        ({}, np.array([True, True]), "it has weight there, and no pass took its gradients"),
        ({"scores": [[0.5, 1.0], [0.5, 1.0]]}, TRAINED, "2 scores are recorded; expected loss"),
        ({"scores": [[0.5] * 3], "taken": [NONE] * 3}, TRAINED, "3 examples are recorded; expected 1 to 2, its slots"),
    ],
)
def test_what_it_does_not_is_one(changes: dict[str, np.ndarray], trained: np.ndarray, words: str) -> None:
    found = [each.words for each in faults_of(chosen(**changes), BANDED, most=2, trained=trained)]
    assert len(found) == 1 and found[0].startswith(words)

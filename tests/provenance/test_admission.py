"""Admission tables against the policy asked cell by cell, and their bytes."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.errors import ProvenanceError
from explorer.provenance import routing_weights as matrices
from explorer.provenance.policy import Rule
from explorer.provenance.regions import Layer, depths_of, with_adapters
from explorer.provenance.routing_weights import Admissions, Routing, admit, phase_at, phases, weight
from tests.provenance.drafts_for_tests import CONDITIONS, ENDS, LAYERS, routing, routings

PRESENT = ("open/bsd", "open/mit", "personal/customer")
SUBSETS = [frozenset(on) for count in range(3) for on in itertools.combinations(CONDITIONS, count)]

EXAMPLE = (
    b'{"classes":["open/bsd","open/mit"],"format":"explorer/admission/v1","layers":["embed","head"],'
    b'"weights":[["0x0.0p+0","0x1.0000000000000p-2"],["0x1.0000000000000p+0","0x1.0000000000000p+0"]]}'
)


def example() -> Routing:
    return routing(
        Rule(classes=("open/bsd",), layers=("embed",), weight=0.0),
        Rule(classes=("open/bsd",), weight=0.25),
        Rule(classes=("open/mit",), weight=1.0),
    )


@given(found=routings(), progress=st.floats(0, 1) | st.sampled_from(ENDS), on=st.sampled_from(SUBSETS))
def test_every_cell_is_what_the_policy_says(found: Routing, progress: float, on: frozenset[str]) -> None:
    layers = with_adapters(found.policy.sealed, LAYERS)
    table = admit(found, classes=PRESENT, layers=layers, progress=progress, conditions=on)
    assert table.weights.dtype == np.float64 and table.weights.shape == (len(PRESENT), len(layers))
    for class_ in PRESENT:
        for layer in layers:
            asked = weight(found, class_=class_, progress=progress, conditions=on, layer=layer).weight
            assert table.row(class_)[layer.name] == asked


@given(found=routings(), progress=st.floats(0, 1) | st.sampled_from(ENDS), on=st.sampled_from(SUBSETS))
def test_one_table_for_each_phase(found: Routing, progress: float, on: frozenset[str]) -> None:
    tables = Admissions(found, classes=PRESENT, layers=LAYERS)
    table, phase = tables.at(progress, on), phase_at(found.policy, progress=progress, conditions=on)
    assert phase in phases(found.policy) and table.phase == phase
    assert tables.at(phase.progress[0], on) is table
    alone = admit(found, classes=PRESENT, layers=LAYERS, progress=progress, conditions=on)
    assert (table.content, table.digest) == (alone.content, alone.digest)


def test_the_bytes_are_those_of_the_docstring() -> None:
    table = admit(example(), classes=("open/bsd", "open/mit"), layers=depths_of(["embed", "head"]), progress=0.5)
    assert table.content == EXAMPLE
    assert table.digest == hashlib.sha256(EXAMPLE).hexdigest()
    rows = [[float.fromhex(number) for number in row] for row in json.loads(table.content)["weights"]]
    assert rows == table.weights.tolist() == [[0.0, 0.25], [1.0, 1.0]]


def test_another_weight_is_another_digest() -> None:
    """Also where the phase is another and what it decides is not: then the digest is the same."""
    late = routing(*example().policy.rules, Rule(classes=("open",), progress=(0.5, 1.0), weight=1.0))
    layers = depths_of(["embed", "head"])
    early, later = (admit(late, classes=("open/bsd",), layers=layers, progress=at) for at in (0.0, 0.5))
    assert early.phase != later.phase and early.digest == later.digest
    other = admit(late, classes=("open/mit",), layers=layers, progress=0.0)
    assert other.digest != early.digest


def test_a_table_cannot_be_changed() -> None:
    table = admit(example(), classes=("open/bsd",), layers=LAYERS, progress=0.0)
    with pytest.raises(ValueError, match="read-only"):
        table.weights[0, 0] = 1.0


def test_what_the_run_does_not_know_has_no_weight() -> None:
    table = admit(example(), classes=("open/mit", "open/mti"), layers=LAYERS, progress=0.0)
    assert set(table.row("open/mti").values()) == {0.0}  # not in the taxonomy
    assert set(table.row("open/bsd").values()) == {0.0}  # in the taxonomy, and without examples
    assert admit(example(), classes=(), layers=LAYERS, progress=0.0).weights.shape == (0, len(LAYERS))


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_outside_of_training_is_refused(progress: float) -> None:
    with pytest.raises(ProvenanceError, match=r"expected a share of training, in \[0, 1\]"):
        admit(example(), classes=PRESENT, layers=LAYERS, progress=progress)


def test_what_is_too_much_to_ask_is_refused() -> None:
    many = [Layer(f"layer{index}", 0.0) for index in range(matrices.MAX_CELLS // 3 + 1)]
    with pytest.raises(ProvenanceError, match="are too many for a matrix"):
        admit(example(), classes=PRESENT, layers=many, progress=0.0)

"""Entropy gate: when it switches the condition on, that it stays on, and the note of it."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from explorer.engine.loop import Loop
from explorer.errors import RecipeError
from explorer.governance.entropy_gate import EntropyGate
from explorer.governance.probes import choose_probes, layer_outputs
from explorer.governance.routing import Routing
from explorer.governance.separation import spectrum
from explorer.governance.shared_state import DecisionNote
from explorer.provenance.policy import Rule
from tests.governance.tagged import CLASSES, routing, session_of, tagged_loop

NEWS, MIT = CLASSES
GATE = EntropyGate(condition="ready", of=MIT, effective_rank=1.0, layers="3", profiles=6, probes=8)
POLICY = routing(
    Rule(classes=("open",), weight=1.0),
    Rule(classes=("licensed",), condition="ready", weight=1.0),
    conditions=("ready", "never"),
)


def gated(gate: EntropyGate = GATE, **setting: Any) -> Loop:
    """Mit trains everything; news does once the condition is on."""
    return tagged_loop([gate, Routing(policy="usual")], session={"routing": POLICY}, **setting)


def decisions(loop: Loop) -> list[DecisionNote]:
    return session_of(loop).notes.decisions


def trained(loop: Loop) -> set[str]:
    """The classes that take part in the step just done."""
    return {share.name for share in loop.state.shares if share.parameters}


def rank(loop: Loop, path: str, layer: str) -> float:
    return spectrum(layer_outputs(loop.state, choose_probes(loop.state, count=8), path)[layer]).effective_rank


def test_the_gate_opens_at_its_threshold() -> None:
    loop = gated()
    expected = rank(loop, MIT, "3")
    loop.step()
    assert trained(loop) == {NEWS, MIT}
    (note,) = decisions(loop)
    assert (note.action, note.rule, note.layers) == ("activation", "effective-rank", ("3",))
    assert note.subjects == (NEWS,), "whom the condition is about"
    assert list(note.evidence) == [MIT], "who decided"
    assert np.frombuffer(note.evidence[MIT], "<f8") == [expected]
    assert note.parameters == {"effective-rank": 1.0}


def test_below_it_stays_shut() -> None:
    """The control."""
    loop = gated(replace(GATE, effective_rank=9.0))  # eight probes have at most eight directions
    for _ in range(10):
        loop.step()
        assert trained(loop) == {MIT}
    assert decisions(loop) == []


def test_it_opens_once_and_for_good() -> None:
    loop = gated()
    loop.step()
    with torch.no_grad():
        loop.setting.model.get_submodule("3").weight.zero_()  # pyright: ignore[reportCallIssue]
    for _ in range(8):
        loop.step()
        assert trained(loop) == {NEWS, MIT}
    assert len(decisions(loop)) == 1


def test_it_looks_at_its_moments_only() -> None:
    """They are 0, 2, 4, ...; what is decided at the end of a step holds in the next one."""
    loop = gated(replace(GATE, effective_rank=9.0))
    loop.step()
    object.__setattr__(loop.methods[0], "effective_rank", 1.0)
    assert decisions(loop) == []
    loop.step()
    assert len(decisions(loop)) == 1 and trained(loop) == {MIT}
    loop.step()
    assert trained(loop) == {NEWS, MIT}


def test_a_resumed_run_knows_that_it_is_open() -> None:
    loop = gated()
    for _ in range(3):
        loop.step()
    resumed = gated()
    resumed.restore({name: tensor.clone() for name, tensor in loop.tensors().items()}, step=3)
    resumed.call("before_fit")
    for each in (loop, resumed):
        each.step()
    assert trained(resumed) == {NEWS, MIT}
    for name, tensor in loop.tensors().items():
        assert torch.equal(tensor, resumed.tensors()[name]), name
    assert decisions(resumed) == [], "it was decided before"


def test_an_absent_class_opens_nothing() -> None:
    loop = gated(absent=frozenset({MIT}))
    loop.step()
    assert decisions(loop) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"condition": "redy"}, "unknown condition 'redy'; did you mean 'ready'"),
        ({"of": "open/mti"}, "unknown class 'open/mti'; did you mean 'open/mit'"),
        ({"layers": "layer3.*"}, "'layer3.*' fits no layer; known: 0, 1, 3, 7"),
    ],
)
def test_a_gate_that_could_never_open_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        gated(replace(GATE, **changes))  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)

"""Denying a layer to a share."""

import numpy as np
from torch import nn

from explorer.engine.leaves import Leaf
from explorer.engine.state import Share, deny

NORM = Leaf(name="b", module=nn.Identity(), parameters=("b.weight",), buffers=("b.mean",), cost=1)


def share() -> Share:
    return Share(
        name="open", code=1, slots=np.arange(2), parameters=frozenset({"a.weight", "b.weight"}),
        buffers=frozenset({"b.mean"}),
    )  # fmt: skip


def test_a_denied_layer_loses_parameters_and_buffers() -> None:
    narrowed = deny(share(), [NORM])
    assert narrowed.parameters == {"a.weight"} and narrowed.buffers == frozenset()
    assert narrowed.name == "open" and narrowed.code == 1


def test_denying_nothing_or_twice_changes_nothing() -> None:
    once = deny(share(), [NORM])
    assert deny(once, [NORM]) is once
    same = share()
    assert deny(same, []) is same

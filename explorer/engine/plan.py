"""Saying who may not change what: the one mechanism behind freezing and routing.

A layer that is denied to a share gets no gradient from it, and its buffers are as they were after its passes. Freezing
is denying a layer to every share.
"""

from collections.abc import Iterable
from dataclasses import replace

from explorer.engine.leaves import Leaf
from explorer.engine.state import Share


def deny(share: Share, layers: Iterable[Leaf]) -> Share:
    """The share without these layers' parameters and buffers."""
    denied = list(layers)
    parameters = {name for leaf in denied for name in leaf.parameters}
    buffers = {name for leaf in denied for name in leaf.buffers}
    if parameters.isdisjoint(share.parameters) and buffers.isdisjoint(share.buffers):
        return share
    return replace(share, parameters=share.parameters - parameters, buffers=share.buffers - buffers)

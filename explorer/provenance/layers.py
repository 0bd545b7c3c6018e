"""Layers as a policy sees them: a dotted name, a relative depth, and the patterns that pick them.

A layer stands for its parameters and for its buffers; both follow the same weight. Names are those that the model
gives its modules (`layer3.0.conv2`). The adapter that a sealed region adds to a layer is a layer of its own, at the
same depth, named `layer3.0.conv2@region`; no pattern reaches it, because only its owner does.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.rundir import read_bytes
from explorer.schema import parse_json

WILDCARD = "*"
ADAPTER = "@"
NAME = r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*"
MAX_NAME = 300
MAX_LAYERS = 100_000
MAX_BYTES = 2**20

LayerName = Annotated[str, Field(pattern=f"^{NAME}$", max_length=MAX_NAME)]
LayerPattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.*-]+$", max_length=MAX_NAME)]


class Layer(NamedTuple):
    """A layer and its relative depth: 0 is the input, 1 the output."""

    name: str
    depth: float


def depths_of(names: Sequence[str]) -> tuple[Layer, ...]:
    """Layers at evenly spaced depths, for names in the order from input to output. A lone layer is at the input.

    >>> depths_of(["embed", "body", "head"])
    (Layer(name='embed', depth=0.0), Layer(name='body', depth=0.5), Layer(name='head', depth=1.0))
    """
    last = max(1, len(names) - 1)
    return tuple(Layer(name, index / last) for index, name in enumerate(names))


def matches(pattern: str, name: str) -> bool:
    """Whether the pattern fits the whole name. `*` is any run of characters, dots and nothing included; else literal.

    The time is linear in the name for each star, so that no pattern is dear.

    >>> matches("layer3.*", "layer3.0.conv2"), matches("layer3.*", "layer3"), matches("*embed*", "embed")
    (True, False, True)
    """
    first, *rest = pattern.split(WILDCARD)
    if not rest:
        return name == pattern
    *middle, last = rest
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    start, end = len(first), len(name) - len(last)
    for piece in middle:  # the leftmost place leaves the most room for those that follow
        found = name.find(piece, start, end)
        if found < 0:
            return False
        start = found + len(piece)
    return True


def read_layers(path: Path) -> tuple[str, ...]:
    """The layer names in a file, from input to output: one on each line, or a JSON list.

    Raises `ProvenanceError` that names the file and the fault.
    """
    return parse_layers(read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))


def parse_layers(content: bytes, *, where: str) -> tuple[str, ...]:
    """Read the content of a file of layer names; see `read_layers`."""
    if content.lstrip()[:1] == b"[":
        names = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    elif len(content) > MAX_BYTES:
        raise ProvenanceError(f"{where}: too large: at most {MAX_BYTES} bytes are read")
    else:
        names = [line.strip() for line in content.decode(errors="replace").splitlines() if line.strip()]
    return check_layers(names, where=where)


def check_layers(names: Sequence[object], *, where: str) -> tuple[str, ...]:
    """Check layer names: dotted, each once. Raises `ProvenanceError` that begins with `where`."""
    if not 0 < len(names) <= MAX_LAYERS:
        raise ProvenanceError(f"{where}: {len(names)} layer names; expected 1 to {MAX_LAYERS}")
    found: dict[str, None] = {}
    for index, name in enumerate(names):
        if not isinstance(name, str) or len(name) > MAX_NAME or not re.fullmatch(NAME, name):
            raise ProvenanceError(
                f"{where}: [{index}]: not a layer name: {name!r:.80}; expected such as layer3.0.conv2"
            )
        if name in found:
            raise ProvenanceError(f"{where}: [{index}]: {name!r} stands twice")
        found[name] = None
    return tuple(found)

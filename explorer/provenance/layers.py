"""Layers as a policy sees them: a dotted name, a relative depth, and the patterns that pick them.

A layer has parameters and buffers; both follow the same weight. Names are those that the model gives its modules
(`layer3.0.conv2`). A layer whose tensors have several names, as a head that is tied to the embedding, is one layer, at
the depth of its first use, and every rule for one of its names is about it: the strictest name decides. The adapter
that a sealed region adds to a layer is a layer of its own, at the same depth, named `layer3.0.conv2@region`; no pattern
reaches it, because only its owner does.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
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
    also: tuple[str, ...] = ()  # other names of its tensors

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names, the first one first."""
        return self.name, *self.also


def depths_of(names: Sequence[str], shared: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> tuple[Layer, ...]:
    """Layers at evenly spaced depths, for names in the order from input to output. A lone layer is at the input.
    `shared`: the other names of a layer, by its name.

    >>> [(layer.name, layer.depth) for layer in depths_of(["embed", "body", "head"])]
    [('embed', 0.0), ('body', 0.5), ('head', 1.0)]
    """
    last = max(1, len(names) - 1)
    return tuple(Layer(name, index / last, shared.get(name, ())) for index, name in enumerate(names))


def recorded_layers(names: Sequence[str], shared: Mapping[str, tuple[str, ...]]) -> tuple[Layer, ...]:
    """The layers of a run as its ledger names them: adapters are at the depth of their layers.

    Raises `ProvenanceError` for the adapter of a layer that is not there.
    """
    own = {layer.name: layer for layer in depths_of([name for name in names if ADAPTER not in name], shared)}
    lost = [name for name in names if name.partition(ADAPTER)[0] not in own]
    if lost:
        raise ProvenanceError(f"layers: an adapter of a layer that is not there: {lost[0]}")
    return tuple(own.get(name) or Layer(name, own[name.partition(ADAPTER)[0]].depth) for name in names)


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


def write_layers(layers: Sequence[Layer]) -> str:
    """The content of a file of layers: a line for each, its names with spaces between them.

    >>> write_layers(depths_of(["embed", "body"], {"embed": ("head",)}))
    'embed head\\nbody\\n'
    """
    return "".join(f"{' '.join(layer.names)}\n" for layer in layers)


def read_layers(path: Path) -> tuple[Layer, ...]:
    """The layers in a file, from input to output: one on each line, or a JSON list. The first word is the layer's name,
    others are further names of its tensors.

    Raises `ProvenanceError` that names the file and the fault.
    """
    return parse_layers(read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError), where=str(path))


def parse_layers(content: bytes, *, where: str) -> tuple[Layer, ...]:
    """Read the content of a file of layers; see `read_layers`."""
    if content.lstrip()[:1] == b"[":
        lines = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    elif len(content) > MAX_BYTES:
        raise ProvenanceError(f"{where}: too large: at most {MAX_BYTES} bytes are read")
    else:
        lines = [line.strip() for line in content.decode(errors="replace").splitlines() if line.strip()]
    return check_layers(lines, where=where)


def check_layers(lines: Sequence[object], *, where: str) -> tuple[Layer, ...]:
    """Check lines of layers: dotted names, each once. Raises `ProvenanceError` that begins with `where`."""
    if not 0 < len(lines) <= MAX_LAYERS:
        raise ProvenanceError(f"{where}: {len(lines)} layer names; expected 1 to {MAX_LAYERS}")
    shared: dict[str, tuple[str, ...]] = {}
    for index, line in enumerate(lines):
        names = line.split() if isinstance(line, str) else [line]
        for name in names or [""]:
            if not isinstance(name, str) or len(name) > MAX_NAME or not re.fullmatch(NAME, name):
                raise ProvenanceError(
                    f"{where}: [{index}]: not a layer name: {name!r:.80}; expected such as layer3.0.conv2"
                )
        first, *others = map(str, names)
        if first in shared:
            raise ProvenanceError(f"{where}: [{index}]: {first!r} is listed twice")
        shared[first] = tuple(others)
    return depths_of(tuple(shared), shared)

"""The parts of a model, of a training and of a ranking that policies name: intervals, layers, sealed regions.

**Intervals** of [0, 1], for training progress, depth and ranks, are half-open, but closed at 1 so that nothing is left
out: `[0, 0.5]` holds 0 but not 0.5, `[0.5, 1]` holds both ends, and together they cover everything once.

**Layers** as policies see them have a dotted name and a relative depth, and are picked by patterns.

A layer has parameters and buffers; both follow the same weight. Names are those that the model gives its modules
(`layer3.0.conv2`). A layer whose tensors have several names, such as a head that is tied to the embedding, is one
layer, at the depth of its first use, and every rule for one of its names applies to it: the strictest name decides. The
adapter that a sealed region adds to a layer is a layer of its own, at the same depth, named `layer3.0.conv2@region`; no
pattern matches it, since only its owner trains it.

**Sealed regions** are parameters that belong to one branch of the taxonomy and are absent for all other classes.

A region is either low-rank adapters on shared linear and convolution layers, picked by name pattern, or a module of the
model that has a path around it:

    sealed:
      - {name: customer, branch: personal/customer, layers: ["layer4.*"], rank: 8}
      - {name: news, branch: licensed/news, module: side.news}

In a region the weight of its owner is 1 and that of every other class is 0, in every phase and before any rule. A class
has at most one region, so the branches of two regions do not overlap, and neither do their modules.

**Examples** of one class can be divided by a score, so that a rule of a policy applies to some of them.

In each step the examples of a class that are read are ranked by their score, without numbers of other classes:

    loss        the loss of the example, by the model as it is when the step begins
    entropy     the entropy of the model's prediction, in nats, mean over places or tokens

The example of rank r among n, from 0, is at (r + 1/2) / n: an interval of [0, 1] is a band of the class's examples in
this step. `loss: [0.5, 1]` is the harder half; a single example is at 1/2, and so in it. Of equal scores the one in the
earlier slot ranks lower, and NaN ranks highest, so that the number of examples in a band depends only on how many there
are.

A band is a box: an interval for each score. The bands of a class divide its examples at every end that a rule for the
class names, so that each rule applies to all of a band or to none of it.

Shapes: N examples of the class in the step.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple

import numpy as np
from annotated_types import Ge, Le
from numpy.typing import NDArray
from pydantic import Field

from explorer.errors import ProvenanceError
from explorer.provenance.spellings import ClassPath, covers
from explorer.rundir import read_bytes
from explorer.schema import parse_json, record

# -------------------------------------------------------------------------------------------------- intervals of [0, 1]

Share = Annotated[float, Ge(0), Le(1)]
Interval = tuple[Share, Share]

WHOLE: Interval = (0.0, 1.0)


def inside(value: float, interval: Interval) -> bool:
    """Return whether the interval holds the value. NaN and values outside [0, 1] are in no interval.

    >>> inside(0.5, (0, 0.5)), inside(0.5, (0.5, 1)), inside(1, (0.5, 1))
    (False, True, True)
    """
    start, end = interval
    return start <= value < end or value == 1 == end


def partition(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the coarsest intervals that cover [0, 1] and cross no end of the given ones.

    >>> partition([(0.25, 1.0)])
    ((0.0, 0.25), (0.25, 1.0))
    """
    ends = sorted({0.0, 1.0, *itertools.chain.from_iterable(intervals)})
    return tuple(itertools.pairwise(ends))


def written(interval: Interval) -> str:
    """Return the interval in mathematical notation.

    >>> written((0, 0.5)), written((0.5, 1))
    ('[0, 0.5)', '[0.5, 1]')
    """
    start, end = interval
    return f"[{exact(start)}, {exact(end)}{']' if end == 1 else ')'}"


def exact(value: float) -> str:
    """Return the shortest text for exactly this number: 0.9999999 must not read as 1, which would be a guarantee.

    >>> exact(1.0), exact(0.9999999), exact(0.25)
    ('1', '0.9999999', '0.25')
    """
    return repr(abs(float(value))).removesuffix(".0")  # abs: -0.0 is 0


def check_interval(interval: Interval | None, where: str) -> None:
    """Check that an interval is not empty. Raises `ProvenanceError` that begins with `where`."""
    if interval is not None and not interval[0] < interval[1]:
        raise ProvenanceError(f"{where}: {list(interval)} holds nothing; expected [from, to] with from below to")


# ------------------------------------------------------------------------------- layers and the patterns that pick them

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
    """Return layers at evenly spaced depths, for names in order from input to output. A single layer is at the input.
    `shared` has the other names of a layer, by its name.

    >>> [(layer.name, layer.depth) for layer in depths_of(["embed", "body", "head"])]
    [('embed', 0.0), ('body', 0.5), ('head', 1.0)]
    """
    last = max(1, len(names) - 1)
    return tuple(Layer(name, index / last, shared.get(name, ())) for index, name in enumerate(names))


def recorded_layers(names: Sequence[str], shared: Mapping[str, tuple[str, ...]]) -> tuple[Layer, ...]:
    """Return the layers of a run from the names in its ledger: adapters are at the depth of their layers.

    Raises `ProvenanceError` for the adapter of a missing layer.
    """
    own = {layer.name: layer for layer in depths_of([name for name in names if ADAPTER not in name], shared)}
    lost = [name for name in names if name.partition(ADAPTER)[0] not in own]
    if lost:
        raise ProvenanceError(f"layers: an adapter of a layer that is not there: {lost[0]}")
    return tuple(own.get(name) or Layer(name, own[name.partition(ADAPTER)[0]].depth) for name in names)


def matches(pattern: str, name: str) -> bool:
    """Return whether the pattern fits the whole name. `*` is any run of characters, even dots or none at all.

    >>> matches("layer3.*", "layer3.0.conv2"), matches("layer3.*", "layer3"), matches("*embed*", "embed")
    (True, False, True)
    """
    # Greedy search, linear in the name for each star. A regular expression with many stars could take far longer, and
    # policies are written by others.
    first, *rest = pattern.split(WILDCARD)
    if not rest:
        return name == pattern
    *middle, last = rest
    if len(name) < len(first) + len(last) or not name.startswith(first) or not name.endswith(last):
        return False
    start, end = len(first), len(name) - len(last)
    for piece in middle:  # the leftmost match leaves the most room for the pieces after it
        place = name.find(piece, start, end)
        if place < 0:
            return False
        start = place + len(piece)
    return True


def write_layers(layers: Sequence[Layer]) -> str:
    """Return the content of a layers file: a line for each layer, its names separated by spaces.

    >>> write_layers(depths_of(["embed", "body"], {"embed": ("head",)}))
    'embed head\\nbody\\n'
    """
    return "".join(f"{' '.join(layer.names)}\n" for layer in layers)


def read_layers(path: Path) -> tuple[Layer, ...]:
    """Return the layers in a file, from input to output: one on each line, or a JSON list.

    The first word is the layer's name, the others are further names of its tensors.

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


# ------------------------------------------------------------------------------------------------------- sealed regions

MAX_RANK = 65_536

RegionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
Patterns = Annotated[tuple[LayerPattern, ...], Field(min_length=1, max_length=100)]


@record
class SealedRegion:
    """What belongs to one branch: adapters of this rank on the layers that match, or one module."""

    name: RegionName
    branch: ClassPath
    layers: Patterns | None = None
    rank: Annotated[int, Field(ge=1, le=MAX_RANK)] | None = None
    module: LayerName | None = None


def region_of(regions: Sequence[SealedRegion], name: str) -> SealedRegion | None:
    """Return the region of this layer; None for a shared layer, and for an adapter that belongs to no region."""
    shared, _, adapter = name.partition(ADAPTER)
    if not adapter:
        return next((region for region in regions if region.module and _lies_in(name, region.module)), None)
    # No adapters inside a sealed module: the adapter's owner never runs it.
    if region_of(regions, shared) is not None:
        return None
    return next((region for region in regions if region.name == adapter and _adapts(region, shared)), None)


def with_adapters(regions: Sequence[SealedRegion], layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return the model's layers, followed by the adapters that each region adds to them."""
    adapters = (Layer(f"{layer.name}{ADAPTER}{region.name}", layer.depth) for region in regions for layer in layers)
    return (*layers, *(adapter for adapter in adapters if region_of(regions, adapter.name)))


def check_regions(regions: Sequence[SealedRegion], where: str) -> None:
    """Check each region and that no two overlap. Raises `ProvenanceError` that begins with `where`."""
    for index, region in enumerate(regions):
        adapters = region.layers is not None and region.rank is not None and region.module is None
        module = region.layers is None and region.rank is None and region.module is not None
        if not adapters and not module:
            raise ProvenanceError(
                f"{where}: sealed[{index}]: expected layers and rank for adapters, or module, and not both"
            )
    for (_, one), (index, other) in itertools.combinations(enumerate(regions), 2):
        here = f"{where}: sealed[{index}]"
        if one.name == other.name:
            raise ProvenanceError(f"{here}.name: {other.name!r} is given twice")
        if covers(one.branch, other.branch) or covers(other.branch, one.branch):
            raise ProvenanceError(
                f"{here}.branch: {other.branch!r} overlaps {one.branch!r} of region {one.name!r}; "
                "a class lives in one region at most"
            )
        if one.module and other.module and (_lies_in(one.module, other.module) or _lies_in(other.module, one.module)):
            raise ProvenanceError(f"{here}.module: {other.module!r} overlaps {one.module!r} of region {one.name!r}")


def _adapts(region: SealedRegion, name: str) -> bool:
    return region.layers is not None and any(matches(pattern, name) for pattern in region.layers)


def _lies_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


# ------------------------------------------------------------------------ examples of a class, divided by their scores

SCORES = ("loss", "entropy")
MAX_BANDS = 32  # of one class: each is a pass of its own


@record
class Examples:
    """The examples that a rule is about: an interval of ranks for each score that it names."""

    loss: Interval | None = None
    entropy: Interval | None = None

    def holds(self, band: "Band") -> bool:
        """Return whether the band lies within the intervals. It crosses none of their ends."""
        return all(wanted is None or inside(band.of(score)[0], wanted) for score, wanted in self.named().items())

    def named(self) -> dict[str, Interval | None]:
        return {score: getattr(self, score) for score in SCORES}


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """A part of a class's examples in a step: an interval of ranks for each score."""

    loss: Interval = WHOLE
    entropy: Interval = WHOLE

    def of(self, score: str) -> Interval:
        return self.loss if score == "loss" else self.entropy

    @property
    def words(self) -> str:
        """The band in words; "" for all examples.

        >>> Band(loss=(0.5, 1.0)).words
        'loss [0.5, 1]'
        """
        return ", ".join(f"{score} {written(self.of(score))}" for score in SCORES if self.of(score) != WHOLE)


ALL = Band()


def bands_of(rules: Iterable[Examples | None]) -> tuple[Band, ...]:
    """Return the bands into which these rules divide the examples of a class; one of all if none names a score."""
    named = [examples for examples in rules if examples is not None]
    losses = partition(examples.loss for examples in named if examples.loss is not None)
    entropies = partition(examples.entropy for examples in named if examples.entropy is not None)
    return tuple(Band(loss=loss, entropy=entropy) for loss, entropy in itertools.product(losses, entropies))


def scores_of(bands: Iterable[Band]) -> tuple[str, ...]:
    """Return the scores that distinguish these bands, in the order of `SCORES`."""
    several = tuple(bands)
    return tuple(score for score in SCORES if any(band.of(score) != WHOLE for band in several))


def placed(bands: tuple[Band, ...], scores: Mapping[str, NDArray[np.float32]]) -> NDArray[np.int64]:
    """Return the band of each example, N, from the scores of all N examples in the order of their slots."""
    positions = {score: _positions(values) for score, values in scores.items()}
    count = len(next(iter(positions.values())))
    band_of = np.full(count, -1, np.int64)
    for at, band in enumerate(bands):
        here = np.ones(count, np.bool_)
        for score, values in positions.items():
            here &= np.array([inside(value, band.of(score)) for value in values.tolist()], np.bool_)
        band_of[here] = at
    assert (band_of >= 0).all(), "bands divide all examples"
    return band_of


def check_examples(examples: Examples | None, where: str) -> None:
    """Check that a rule names a score and a nonempty interval. Raises `ProvenanceError` that begins with `where`."""
    if examples is None:
        return
    if all(interval is None for interval in examples.named().values()):
        raise ProvenanceError(f"{where}: names no score; expected one of {', '.join(SCORES)}, such as loss: [0.5, 1]")
    for score, interval in examples.named().items():
        check_interval(interval, f"{where}.{score}")


def check_bands(rules: Iterable[Examples | None], where: str) -> None:
    """Check that the rules of a policy divide no class into too many bands. Raises `ProvenanceError`."""
    if (count := len(bands_of(rules))) > MAX_BANDS:
        raise ProvenanceError(
            f"{where}: rules divide the examples into {count} bands; at most {MAX_BANDS} are told apart"
        )


def _positions(scores: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return (rank + 1/2) / N of each score."""
    # A stable sort: of equal scores the first ranks lower, and NaN is last.
    ranks = np.empty(len(scores), np.int64)
    ranks[np.argsort(scores, kind="stable")] = np.arange(len(scores))
    return (ranks + 0.5) / max(1, len(scores))

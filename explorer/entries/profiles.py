"""The numbers of an entropy profile, class by class and layer by layer, and the bytes that a ledger commits to.

A profile is what a committed probe set looks like in every layer at one moment. Numbers are little-endian: counts as
uint32, everything else as IEEE 754 float64, which is what decisions are taken on. The layers stand in the order of the
genesis; adapters, which come last there, are switched off in a profile and have no numbers.

    content of a class      number of examples; for each layer: entropy, effective rank, Renyi-2 entropy
    joint content           number of examples; for each layer: the same three over all classes, then
                            chi, its mean over permutations of the labels, p-value of the permutations

Entropies are in nats, and every number is finite. Where only one class has probes there is nothing to tell apart: chi
and its mean are 0, p is 1. A class's content depends on its own probes alone; the joint content depends on those of all
classes that have numbers. 4 examples of a class, orthogonal in the one layer there is:

    04000000 ef39fafe422ef63f 0000000000001040 ef39fafe422ef63f       4  log 4  4  log 4
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from explorer.errors import LedgerError

Doubles = NDArray[np.float64]
SPECTRUM = ("entropy", "effective_rank", "renyi2")
JOINT = (*SPECTRUM, "chi", "chi_null", "p_value")
_COUNT, _FLOAT = np.dtype("<u4"), np.dtype("<f8")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LayerProfiles:
    """A profile. Shapes: k classes with probes, L layers. Raises `LedgerError` for what does not fit."""

    step: int  # optimiser steps done before
    probes: str  # the probe set's root, in hexadecimal
    classes: tuple[int, ...]  # indices into `genesis.classes`, ascending
    examples: tuple[int, ...]  # k: probes of each
    spectra: Doubles  # k L 3
    joint: Doubles  # L 6

    def __post_init__(self) -> None:
        k, layers = len(self.classes), len(self.joint)
        if self.joint.shape != (layers, len(JOINT)) or self.spectra.shape != (k, layers, len(SPECTRUM)):
            raise LedgerError(f"entropy profile: the shapes do not belong to {k} classes and {layers} layers")
        if self.joint.dtype != np.float64 or self.spectra.dtype != np.float64:
            raise LedgerError("entropy profile: expected float64")
        if not (np.isfinite(self.joint).all() and np.isfinite(self.spectra).all()):
            raise LedgerError("entropy profile: a number is not finite")
        if list(self.classes) != sorted(set(self.classes)) or min(self.classes, default=0) < 0:
            raise LedgerError(f"entropy profile: classes {self.classes!r:.80}; expected indices, ascending")
        if len(self.examples) != k or min(self.examples, default=1) < 1:
            raise LedgerError(f"entropy profile: examples {self.examples!r:.80}; expected a number for each class")


def encode_class(profiles: LayerProfiles, place: int) -> bytes:
    """The content of `profiles.classes[place]`."""
    return _bytes(profiles.examples[place], profiles.spectra[place])


def encode_joint(profiles: LayerProfiles) -> bytes:
    """The content that no single class has."""
    return _bytes(sum(profiles.examples), profiles.joint)


def decode_class(content: bytes, *, layers: int) -> tuple[int, Doubles]:
    """The number of a class's examples and its spectra, L 3. Raises `LedgerError` for what none has."""
    return _read(content, layers, len(SPECTRUM), "a class")


def decode_joint(content: bytes, *, layers: int) -> tuple[int, Doubles]:
    """The number of all examples and the joint numbers, L 6. Raises `LedgerError` for what none has."""
    return _read(content, layers, len(JOINT), "all classes")


def _bytes(count: int, numbers: Doubles) -> bytes:
    return np.array(count, _COUNT).tobytes() + np.ascontiguousarray(numbers, _FLOAT).tobytes()


def _read(content: bytes, layers: int, columns: int, what: str) -> tuple[int, Doubles]:
    size = _COUNT.itemsize + layers * columns * _FLOAT.itemsize
    if len(content) != size:
        raise LedgerError(f"entropy profile of {what}: found {len(content)} bytes, expected {size}")
    count = int(np.frombuffer(content, _COUNT, count=1)[0])
    numbers = np.frombuffer(content, _FLOAT, offset=_COUNT.itemsize).astype(np.float64)
    if not np.isfinite(numbers).all():
        raise LedgerError(f"entropy profile of {what}: a number is not finite")
    return count, numbers.reshape(layers, columns)

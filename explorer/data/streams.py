"""Random streams keyed by their purpose: no consumer's draws shift those of another.

A draw belongs to (run seed, purpose, step, ...). There is no generator state to save, to share or to run out of step:
a resumed run asks for the same key and gets the same numbers, and a new consumer takes nothing from the others.
Draws that belong to examples are made for all slots of the nominal batch and then indexed by slot, so leaving an
example out leaves the draws of the others as they were.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


def key(seed: int, purpose: str, *path: int | str) -> bytes:
    """Return the 32 bytes that name a stream. Parts are length-prefixed, so ("a", "bc") and ("ab", "c") differ."""
    parts = [str(part).encode() for part in (seed, purpose, *path)]
    return hashlib.sha256(b"".join(b"%d:%s" % (len(part), part) for part in parts)).digest()


def stream(seed: int, purpose: str, *path: int | str) -> np.random.Generator:
    """Return the stream itself: counter-based Philox (Salmon et al., 2011) under a 128-bit key.

    >>> int(stream(0, "order", 3).integers(1000)) == int(stream(0, "order", 3).integers(1000))
    True
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key(seed, purpose, *path)[:16], "little")))


@contextmanager
def torch_stream(device: torch.device, seed: int, purpose: str, *path: int | str) -> Iterator[None]:
    """Key the draws of modules that only know torch's global generator (dropout, weight initialisation).

    Outside the block the state of the global generator is restored: a seed set by hand is not overridden.
    """
    generator = torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
    before = generator.get_state()
    generator.manual_seed(int.from_bytes(key(seed, purpose, *path)[:8], "little") >> 1)
    try:
        yield
    finally:
        generator.set_state(before)

"""Random streams keyed by their purpose, so that no consumer's draws shift those of another.

A draw belongs to (run seed, purpose, step, ...). There is no generator state to save or to share: a resumed run uses
the same key and gets the same numbers, and a new consumer does not change the draws of others. Draws for examples are
made for all slots of the nominal batch and then indexed by slot, so that leaving an example out does not change the
draws of the others.
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
    """Return a stream: counter-based Philox (Salmon et al., 2011) under a 128-bit key.

    >>> int(stream(0, "order", 3).integers(1000)) == int(stream(0, "order", 3).integers(1000))
    True
    """
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key(seed, purpose, *path)[:16], "little")))


@contextmanager
def torch_stream(device: torch.device, seed: int, purpose: str, *path: int | str) -> Iterator[None]:
    """Key the draws of code that uses torch's global generator (dropout, weight initialisation) within the block.

    Afterwards the state of the global generator is restored, so that a user's own seed stays in effect.
    """
    generator = torch.cuda.default_generators[device.index or 0] if device.type == "cuda" else torch.default_generator
    before = generator.get_state()
    # `manual_seed` takes a signed number: 63 bits of the key.
    generator.manual_seed(int.from_bytes(key(seed, purpose, *path)[:8], "little") >> 1)
    try:
        yield
    finally:
        generator.set_state(before)

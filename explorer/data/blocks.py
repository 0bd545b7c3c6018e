"""Streams of bytes cut into training examples.

Shapes: N examples, T tokens.
"""

import numpy as np
import torch
from torch import Tensor


def cut(stream: bytes, *, context: int) -> Tensor:
    """Blocks of T + 1 bytes, N x (T + 1) uint8: T to read and the byte after each. Too short an end is left out.

    A block begins with the last byte of the one before, so that every byte but the first is predicted once.

    >>> cut(b"abcdefg", context=2).tolist()  # "abc", "cde", "efg"
    [[97, 98, 99], [99, 100, 101], [101, 102, 103]]
    """
    content = np.frombuffer(stream, dtype=np.uint8)
    if len(content) <= context:
        return torch.empty(0, context + 1, dtype=torch.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(content, context + 1)[::context]
    return torch.from_numpy(windows.copy())

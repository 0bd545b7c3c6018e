"""Images for tests, good and bad."""

import io
import zlib

import numpy as np
from PIL import Image


def picture(seed: int, *, width: int = 12, height: int = 10) -> np.ndarray:
    """Random colours, H W 3."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(pixels: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind, **options)
    return content.getvalue()


def photo(seed: int) -> bytes:
    return encoded(picture(seed))


def bomb(side: int) -> bytes:
    """A small PNG that declares so many rows and columns, with the right checksum."""
    content = bytearray(photo(0))
    content[16:24] = side.to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


def broken_checksum() -> bytes:
    """A PNG with one wrong byte in its pixels."""
    content = bytearray(photo(0))
    content[60] ^= 0xFF
    return bytes(content)

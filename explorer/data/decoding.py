"""Encoded images of anybody's, decoded to one size; what is no image, or too much of one, is a fault.

Shapes: N images, C channels, S rows and columns.
"""

import io
import warnings
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from explorer.data.cache import cached
from explorer.data.local import Fault
from explorer.errors import DataError

FORMATS = ("PNG", "JPEG", "WEBP")
MAX_ENCODED_BYTES = 2**25
MAX_PIXELS = 2**25  # of an image before it is made smaller
MAX_DECODED_BYTES = 2**33  # of all images together
FAULTS = tuple(Fault)


def decode(content: bytes, *, size: int, channels: int) -> np.ndarray | Fault:
    """Return the pixels, C S S in uint8: upright as its EXIF says, the square in its middle, antialiased; no
    transparency.

    Nothing is unpacked before the size that the image declares is found to be small enough.
    """
    if len(content) > MAX_ENCODED_BYTES:
        return Fault.TOO_LARGE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of metadata that Pillow doubts
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                if image.width * image.height > MAX_PIXELS:
                    return Fault.TOO_MANY_PIXELS
                return _pixels(image, size=size, channels=channels)
        except (Image.DecompressionBombError, Image.DecompressionBombWarning):
            return Fault.TOO_MANY_PIXELS
        except Image.UnidentifiedImageError:
            return Fault.NO_IMAGE
        except Exception:  # the decoders raise whatever their input led them to: no list of types would be complete
            return Fault.DAMAGED


def decoded(
    name: str, contents: Iterable[bytes | Fault], *, count: int, size: int, channels: int
) -> tuple[Tensor, Sequence[Fault | None]]:
    """Return the images that could be decoded, N C S S, and the fault of each of the `count` contents, or None.

    Kept in the cache of that name, which must name contents, size and channels. Raises `DataError` if they would take
    too much memory.
    """
    if count * channels * size**2 > MAX_DECODED_BYTES:
        raise DataError(
            f"{count} images of {size}x{size} pixels take more than {MAX_DECODED_BYTES} bytes: choose a smaller size"
        )

    def make() -> dict[str, Tensor]:
        images = np.empty((count, channels, size, size), np.uint8)
        codes = np.zeros(count, np.uint8)  # 0, or 1 + the fault's place among all
        kept = 0
        for index, content in enumerate(contents):
            outcome = content if isinstance(content, Fault) else decode(content, size=size, channels=channels)
            if isinstance(outcome, Fault):
                codes[index] = 1 + FAULTS.index(outcome)
            else:
                images[kept] = outcome
                kept += 1
        return {"images": torch.from_numpy(images[:kept]), "faults": torch.from_numpy(codes)}

    forms = {"images": (torch.uint8, (channels, size, size)), "faults": (torch.uint8, ())}
    tensors = cached(name, forms, make)
    faults = [FAULTS[code - 1] if 0 < code <= len(FAULTS) else None for code in tensors["faults"].tolist()]
    if len(faults) != count or faults.count(None) != len(tensors["images"]):
        raise DataError(f"damaged cache {name}: delete it and try again (its numbers do not fit)")
    return tensors["images"], faults


def _pixels(image: Image.Image, *, size: int, channels: int) -> np.ndarray:
    ImageOps.exif_transpose(image, in_place=True)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side))
    if square.mode.startswith("I"):  # 16 bits, of which conversion would cut the upper ones off
        square = Image.fromarray((np.asarray(square).astype(np.int64).clip(0, 2**16 - 1) >> 8).astype(np.uint8))
    mode = "L" if channels == 1 else "RGB"
    square = square if square.mode == mode else square.convert(mode)  # to convert is to copy
    small = square.resize((size, size), Image.Resampling.BILINEAR)  # with `box`, what was cut off would shine in
    return np.asarray(small).reshape(size, size, channels).transpose(2, 0, 1)

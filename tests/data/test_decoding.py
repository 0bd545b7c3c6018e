"""Images decoded: the right pixels of the right square, and a fault for everything else."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from explorer.data.labelled import MAX_ENCODED_BYTES, decode, decoded
from explorer.data.local import Fault
from explorer.errors import DataError
from tests.data.photos import bomb, broken_checksum, encoded, photo, picture


def pixels(content: bytes, *, size: int = 8, channels: int = 3) -> np.ndarray:
    found = decode(content, size=size, channels=channels)
    assert isinstance(found, np.ndarray), found
    assert found.dtype == np.uint8 and found.shape == (channels, size, size)
    return found


def smooth(width: int, height: int) -> np.ndarray:
    rows, columns = np.mgrid[:height, :width]
    return np.stack([rows * 5, columns * 5, 128 + 100 * np.sin(rows / 4 + columns / 7)], axis=2).astype(np.uint8)


@pytest.mark.parametrize(("width", "height"), [(48, 32), (31, 47), (8, 8), (6, 5)])
def test_the_square_in_the_middle_antialiased(width: int, height: int) -> None:
    image = smooth(width, height)
    side = min(width, height)
    top, left = (height - side) // 2, (width - side) // 2
    square = torch.from_numpy(image[top : top + side, left : left + side]).permute(2, 0, 1)[None].double()
    expected = F.interpolate(square, size=(8, 8), mode="bilinear", align_corners=False, antialias=True)[0].numpy()
    assert np.abs(pixels(encoded(image)) - expected).max() <= 1.01


def test_the_same_size_is_left_as_it_is() -> None:
    image = picture(1, width=8, height=8)
    for kind in ("PNG", "WEBP"):
        assert (pixels(encoded(image, kind, lossless=True)) == image.transpose(2, 0, 1)).all()
    grey = smooth(8, 8)[:, :, 2]
    assert np.abs(pixels(encoded(grey, "JPEG", quality=100)).astype(int) - grey).max() <= 2


def test_kinds_of_colour() -> None:
    grey = picture(2, width=8, height=8)[:, :, 0]
    assert (pixels(encoded(grey)) == grey).all()  # the same in every channel
    assert (pixels(encoded(grey), channels=1)[0] == grey).all()
    deep = grey.astype(np.uint16) * 256 + 77  # 16 bits
    assert (pixels(encoded(deep), channels=1)[0] == grey).all()
    clear = np.dstack([picture(3, width=8, height=8), np.zeros((8, 8), np.uint8)])
    assert (pixels(encoded(clear)) == clear[:, :, :3].transpose(2, 0, 1)).all()


def test_upright_as_the_camera_says() -> None:
    image = picture(4, width=8, height=8)
    turned = Image.Exif()
    turned[0x0112] = 3  # upside down
    assert (pixels(encoded(image, exif=turned)) == image[::-1, ::-1].transpose(2, 0, 1)).all()


FAULTS = {
    "empty": (b"", Fault.NO_IMAGE),
    "no image": (b"nothing like an image", Fault.NO_IMAGE),
    "another format": (encoded(picture(1), "BMP"), Fault.NO_IMAGE),
    "animated": (encoded(picture(1), "GIF"), Fault.NO_IMAGE),
    "cut short": (photo(1)[:200], Fault.DAMAGED),
    "cut short JPEG": (encoded(picture(1), "JPEG")[:-200], Fault.DAMAGED),
    "broken checksum": (broken_checksum(), Fault.DAMAGED),
    "wide": (bomb(6_000), Fault.TOO_MANY_PIXELS),
    "bomb that Pillow warns of": (bomb(10_000), Fault.TOO_MANY_PIXELS),
    "bomb that Pillow refuses": (bomb(30_000), Fault.TOO_MANY_PIXELS),
    "too large": (photo(1) + bytes(MAX_ENCODED_BYTES), Fault.TOO_LARGE),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str) -> None:
    content, fault = FAULTS[name]
    assert decode(content, size=8, channels=3) == fault


def test_every_changed_byte_is_an_image_or_a_fault() -> None:
    """Of each format a small file, with each byte changed, and cut at each length."""
    read = 0
    for kind in ("PNG", "JPEG", "WEBP"):
        good = encoded(picture(5, width=6, height=5), kind)
        changed = [good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :] for place in range(len(good))]
        for content in [*changed, *(good[:length] for length in range(0, len(good), 7))]:
            found = decode(content, size=8, channels=1)
            read += isinstance(found, np.ndarray)
            assert isinstance(found, Fault) or found.shape == (1, 8, 8)
    assert read > 100


def test_what_is_decoded_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXPLORER_CACHE", str(tmp_path))
    contents = [photo(1), b"no", photo(2), Fault.OUTSIDE]
    made, faults = decoded("x", iter(contents), count=4, size=8, channels=3)
    assert list(faults) == [None, Fault.NO_IMAGE, None, Fault.OUTSIDE]
    assert (made.numpy() == np.stack([pixels(photo(1)), pixels(photo(2))])).all()

    def never() -> io.BytesIO:
        raise AssertionError("read again")

    again, same = decoded("x", (never() for _ in range(4)), count=4, size=8, channels=3)  # pyright: ignore[reportArgumentType]
    assert torch.equal(again, made) and same == faults
    with pytest.raises(DataError, match="damaged cache x: delete it"):
        decoded("x", [], count=5, size=8, channels=3)


def test_too_much_to_keep() -> None:
    with pytest.raises(DataError, match=r"1000000 images of 512x512 pixels take more than \d+ bytes: choose a smaller"):
        decoded("x", [], count=10**6, size=512, channels=3)

"""A directory of installed distributions, made for tests: metadata, the list of files, and the files."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

LICENCES = {
    "ant": "MIT",
    "bee": "MIT",
    "cow": "MIT",
    "dog": "BSD-3-Clause",
    "eel": "BSD-2-Clause",
    "fox": "BSD-3-Clause AND BSD-2-Clause",
    "gnu": "ISC",  # alone in its class
    "hen": "Zlib",  # this one too
    "imp": "MIT AND ISC",  # and this
    "jay": "LicenseRef-Secret",
}


def install(
    root: Path,
    name: str,
    files: Mapping[str, bytes],
    *,
    licence: str | None = "MIT",
    version: str = "1.0",
    lines: tuple[str, ...] = (),
) -> Path:
    """Write a distribution as pip does, with these `lines` besides in its `RECORD`; return its metadata directory."""
    directory = root / f"{name.replace('-', '_')}-{version}.dist-info"
    directory.mkdir(parents=True)
    expression = f"License-Expression: {licence}\n" if licence else ""
    (directory / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{expression}\nLicense-Expression: ISC\n"
    )
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    own = [line(path, content) for path, content in files.items()]
    (directory / "RECORD").write_text("".join(f"{each}\n" for each in (*own, f"{directory.name}/RECORD,,", *lines)))
    return directory


def line(path: str, content: bytes, *, size: int | None = None) -> str:
    """What `RECORD` says of a file."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(content) if size is None else size}"


def code(seed: str, size: int) -> bytes:
    """So many bytes of text that no other seed has."""
    draws = np.random.default_rng(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))
    return draws.integers(97, 123, size, dtype=np.uint8).tobytes()


def fill(root: Path, names: Sequence[str] = tuple(LICENCES)) -> Path:
    """A distribution for each name: three files of its own, all together 1.5 kB."""
    for name in names:
        files = {f"{name}/{part}.py": code(f"{name} {part}", 500) for part in ("a", "b", "c")}
        install(root, name, files, licence=LICENCES[name])
    return root

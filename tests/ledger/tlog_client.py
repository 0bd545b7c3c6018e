"""A client of tlog-tiles, written from the specification (c2sp.org/tlog-tiles, RFC 6962) and nothing of `explorer`.

`python tlog_client.py URL` prints size and root; the functions fetch over HTTP, rebuild the tree and check proofs.
"""

import base64
import gzip
import hashlib
import sys
import urllib.error
import urllib.request


def get(url: str) -> bytes | None:
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip, identity"})
    try:
        with urllib.request.urlopen(request, timeout=600) as answer:
            body = answer.read()
            kind = answer.headers["Content-Type"]
            packed = answer.headers.get("Content-Encoding") == "gzip"
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 404:
            return None
        raise
    expected = "text/plain; charset=utf-8" if url.endswith("/checkpoint") else "application/octet-stream"
    assert kind == expected or kind.startswith(("application/octet-stream", "text/")), kind
    return gzip.decompress(body) if packed else body


def spelled(number: int) -> str:
    groups = [f"{number % 1000:03d}"]
    while number >= 1000:
        number //= 1000
        groups.append(f"x{number % 1000:03d}")
    return "/".join(reversed(groups))


def fetch(prefix: str, place: str, number: int, width: int) -> bytes:
    """A tile or bundle at this width; the full one as a fallback for a partial one, as the specification allows."""
    path = f"{prefix}/tile/{place}/{spelled(number)}"
    found = get(path if width == 256 else f"{path}.p/{width}")
    if found is None and width < 256:
        found = get(path)
    assert found is not None, f"{path} .p/{width} is missing"
    return found


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def mth(hashes: list[bytes]) -> bytes:
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    split = 1 << (len(hashes) - 1).bit_length() - 1
    return node(mth(hashes[:split]), mth(hashes[split:]))


def checkpoint(prefix: str) -> tuple[str, int, bytes, list[str]]:
    """Origin, size, root and signature lines."""
    content = get(f"{prefix}/checkpoint")
    assert content is not None
    text, _, signatures = content.decode().rpartition("\n\n")
    origin, size, root = text.split("\n")[:3]
    return origin, int(size), base64.b64decode(root), signatures.splitlines()


def level(prefix: str, number: int, size: int) -> list[bytes]:
    """All hashes of a level of tiles."""
    held = size >> 8 * number
    found: list[bytes] = []
    for tile in range(-(-held // 256)):
        width = min(256, held - tile * 256)
        content = fetch(prefix, str(number), tile, width)[: 32 * width]
        assert len(content) == 32 * width
        found += [content[at : at + 32] for at in range(0, len(content), 32)]
    return found


def entries(prefix: str, size: int) -> list[bytes]:
    found: list[bytes] = []
    for bundle in range(-(-size // 256)):
        content = fetch(prefix, "entries", bundle, min(256, size - bundle * 256))
        at = 0
        while at < len(content) and len(found) < size:
            length = int.from_bytes(content[at : at + 2], "big")
            found.append(content[at + 2 : at + 2 + length])
            at += 2 + length
    assert len(found) == size
    return found


def verify(prefix: str) -> tuple[int, bytes]:
    """Fetch everything; every tile is what the entries give, and the root is that of the checkpoint."""
    _, size, root, _ = checkpoint(prefix)
    leaves = [hashlib.sha256(b"\x00" + entry).digest() for entry in entries(prefix, size)]
    assert mth(leaves) == root
    number, hashes = 0, leaves
    while hashes:
        assert level(prefix, number, size) == hashes, f"level {number}"
        hashes = [mth(hashes[at : at + 256]) for at in range(0, len(hashes) - 255, 256)]
        number += 1
    return size, root


def consistent(prefix: str, old_size: int, old_root: bytes) -> bool:
    """Whether the tree that is served has this root at an older size, from its partial tile of that size alone."""
    leaves: list[bytes] = []
    for tile in range(-(-old_size // 256)):
        width = min(256, old_size - tile * 256)
        content = fetch(prefix, "0", tile, width)
        leaves += [content[at : at + 32] for at in range(0, 32 * width, 32)]
    return mth(leaves) == old_root


if __name__ == "__main__":
    size, root = verify(sys.argv[1])
    print(size, root.hex())

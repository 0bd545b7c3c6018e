"""A writer of the format MDS, as it is published; it shares nothing with the reader."""

import bz2
import gzip
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

FIXED = {"int": "<q", "uint8": "<B", "int32": "<i", "float32": "<f", "float64": "<d"}
ARRAYS = {"uint8": 8, "uint16": 16, "int32": 33, "float32": 34, "int64": 65}


def value(encoding: str, content: Any) -> bytes:
    """Return the bytes of a value."""
    if encoding in FIXED:
        return struct.pack(FIXED[encoding], content)
    if isinstance(content, bytes):
        return content
    if encoding == "ndarray":
        sides = bytes([len(content.shape) << 2]) + bytes(content.shape)  # each of one byte
        return bytes([ARRAYS[content.dtype.name]]) + sides + content.tobytes()
    if encoding.startswith("ndarray:"):
        return content.tobytes()
    if encoding == "pil":
        width, height = content.size
        return struct.pack("<III", width, height, len(content.mode)) + content.mode.encode() + content.tobytes()
    return (json.dumps(content) if encoding == "json" else str(content)).encode()


def shard(columns: Mapping[str, str], samples: Sequence[Mapping[str, Any]], config: bytes) -> bytes:
    bodies = []
    for sample in samples:
        contents = {name: value(columns[name], sample[name]) for name in sorted(columns)}
        heads = [struct.pack("<I", len(one)) for name, one in contents.items() if columns[name] not in FIXED]
        bodies.append(b"".join([*heads, *contents.values()]))
    begin = 4 + 4 * (len(bodies) + 1) + len(config)
    offsets = [begin + sum(map(len, bodies[:count])) for count in range(len(bodies) + 1)]
    return struct.pack(f"<{len(offsets) + 1}I", len(bodies), *offsets) + config + b"".join(bodies)


def packed(content: bytes, compression: str) -> bytes:
    if compression == "gz":
        return gzip.compress(content)
    if compression == "bz2":
        return bz2.compress(content)
    return pa.compress(content, codec=compression, asbytes=True)


def write_mds(
    place: Path,
    columns: Mapping[str, str],
    samples: Sequence[Mapping[str, Any]],
    *,
    each: int = 5,
    hashes: Sequence[str] = (),
    compression: str | None = None,
) -> None:
    """Write shards of `each` samples and their index."""
    place.mkdir(parents=True)
    names = sorted(columns)
    sizes = [struct.calcsize(FIXED[columns[name]]) if columns[name] in FIXED else None for name in names]
    shards = []

    def file(name: str, content: bytes) -> dict[str, Any]:
        digests = {algorithm: hashlib.new(algorithm, content).hexdigest() for algorithm in hashes}
        return {"basename": name, "bytes": len(content), "hashes": digests}

    for number, start in enumerate(range(0, len(samples), each)):
        some = samples[start : start + each]
        config = {"version": 2, "format": "mds", "compression": compression, "hashes": [*hashes], "size_limit": 1 << 26}
        config |= {
            "column_names": names,
            "column_encodings": [columns[name] for name in names],
            "column_sizes": sizes,
        }
        raw = shard(columns, some, json.dumps(config, sort_keys=True).encode())
        name = f"shard.{number:05d}.mds"
        described = {**config, "samples": len(some), "raw_data": file(name, raw), "zip_data": None}
        if compression is not None:
            raw = packed(raw, compression)
            name += f".{compression}"
            described["zip_data"] = file(name, raw)
        (place / name).write_bytes(raw)
        shards.append(described)
    (place / "index.json").write_text(json.dumps({"version": 2, "shards": shards}, sort_keys=True))


def pixels(seed: int, *, side: int = 10) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)

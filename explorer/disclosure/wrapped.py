"""A file of wrapped keys: `<run>/grants/<grant id>.json`, what one grantee needs to read of one run.

    {"format": "explorer/wrapped-keys/v1",
     "grant": the signed grant, a DSSE envelope,
     "run": run id, "ledger": {"origin", "size", "root"},
     "keys": [{"class": "licensed/news", "kind": "step", "wrapped": base64}, ...]}

For each class and kind of entry that the grant covers there is one bundle: the reading keys of all stretches that the
run had when it was wrapped, in their order, each as first step, u64 big-endian || key, 32 bytes. The class * is for
numbers over several classes, and there only where the grant covers all of them. A bundle is wrapped by HPKE to the
grantee's key (`explorer.provenance.keys`) with

    info = {"class", "format", "grant": SHA-256 of the grant's payload, "kind", "ledger": origin, "run"}    RFC 8785

so that it opens as what it was wrapped as, and as nothing else. Everybody can make such a file; what its keys open is
held against the ledger's commitments. `size` and `root` say up to where in the ledger the keys go.
"""

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from explorer.canonical import canonical
from explorer.entries.fields import LedgerState, Line
from explorer.errors import ProvenanceError
from explorer.provenance.encryption import KEY_BYTES
from explorer.provenance.envelope import Envelope, parse_envelope
from explorer.provenance.grants import EntryKind, grant_digest
from explorer.provenance.spellings import ClassPath
from explorer.runlog.run_keys import JOINT
from explorer.schema import from_json, parse_json, record, to_json

FORMAT = "explorer/wrapped-keys/v1"
MAX_BYTES = 2**26
_STRETCH = struct.Struct(f">Q{KEY_BYTES}s")

Bundle = Mapping[int, bytes]
"""Reading keys by the first step of their stretch."""


@record
class WrappedBundle:
    """A bundle as it stands in a file."""

    class_: Annotated[ClassPath | Literal["*"], Field(alias="class")]
    kind: EntryKind
    wrapped: Annotated[str, Field(max_length=MAX_BYTES)]


@record
class _File:
    format: Literal["explorer/wrapped-keys/v1"]
    grant: dict[str, Any]
    run: Line
    ledger: LedgerState
    keys: Annotated[tuple[WrappedBundle, ...], Field(min_length=1, max_length=10_000)]


@dataclass(frozen=True, kw_only=True, slots=True)
class WrappedKeys:
    """Such a file, nothing in it checked beyond its form."""

    grant: Envelope
    run: str
    ledger: LedgerState
    keys: Mapping[tuple[str, str], bytes]  # wrapped bundles by class path, or *, and kind of entry

    @property
    def content(self) -> bytes:
        """The file: canonical JSON and a newline."""
        value = {
            "format": FORMAT,
            "grant": json.loads(self.grant.content),
            "run": self.run,
            "ledger": to_json(self.ledger),
            "keys": wrapped_bundles(self.keys),
        }
        return canonical(value) + b"\n"

    def info(self, path: str, kind: str) -> bytes:
        """What a bundle is bound to."""
        return canonical(
            {
                "class": path,
                "format": FORMAT,
                "grant": grant_digest(self.grant),
                "kind": kind,
                "ledger": self.ledger.origin,
                "run": self.run,
            }
        )


def parse_wrapped(content: bytes, *, where: str) -> WrappedKeys:
    """Read such a file. Raises `ProvenanceError` for what is not one."""
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    file = from_json(_File, value, where=where, error=ProvenanceError)
    keys = bundles_of(file.keys, where=where)
    grant = parse_envelope(canonical(file.grant), where=f"{where}: grant")
    return WrappedKeys(grant=grant, run=file.run, ledger=file.ledger, keys=keys)


def wrapped_bundles(keys: Mapping[tuple[str, str], bytes]) -> list[dict[str, str]]:
    """Bundles as they stand in a file, in their order."""
    return [
        {"class": path, "kind": kind, "wrapped": base64.b64encode(wrapped).decode()}
        for (path, kind), wrapped in keys.items()
    ]


def bundles_of(keys: Sequence[WrappedBundle], *, where: str) -> dict[tuple[str, str], bytes]:
    """Bundles by class path, or *, and kind of entry. Raises `ProvenanceError` for two of one."""
    found = {(each.class_, each.kind): _decoded(each, where) for each in keys}
    if len(found) != len(keys):
        raise ProvenanceError(f"{where}: keys: a class and kind stand twice")
    return found


def encode_bundle(bundle: Bundle) -> bytes:
    """Reading keys in the order of their stretches."""
    return b"".join(_STRETCH.pack(first, bundle[first]) for first in sorted(bundle))


def decode_bundle(content: bytes, *, where: str) -> Bundle:
    """The reading keys. Raises `ProvenanceError` for what was cut short or is out of order."""
    if not content or len(content) % _STRETCH.size:
        raise ProvenanceError(f"{where}: a bundle of {len(content)} bytes; expected {_STRETCH.size} for each stretch")
    found = list(_STRETCH.iter_unpack(content))
    firsts = [first for first, _ in found]
    if firsts != sorted(set(firsts)):
        raise ProvenanceError(f"{where}: a bundle whose stretches are not in order, each once")
    return dict(found)


def words(path: str, kind: str) -> str:
    """What a bundle is for, for people."""
    return f"{kind} keys of {'the numbers over several classes' if path == JOINT else path}"


def _decoded(key: WrappedBundle, where: str) -> bytes:
    try:
        return base64.b64decode(key.wrapped, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProvenanceError(f"{where}: {words(key.class_, key.kind)}: not base64") from error

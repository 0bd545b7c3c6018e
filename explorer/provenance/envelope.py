"""Signed envelopes: DSSE 1.0.2 (github.com/secure-systems-lab/dsse) with Ed25519, over `securesystemslib`.

A signature covers PAE(type, payload), lengths in bytes:

    DSSEv1 29 http://example.com/HelloWorld 11 hello world

and is written in JSON:

    {"payload": base64, "payloadType": text, "signatures": [{"keyid": text, "sig": base64}]}

Base64 is read in its standard and its URL-safe alphabet. The verified bytes are the bytes in use: the payload is
decoded once and never encoded again. A key id is a hint without proof; every signature is tried with every key. Names
that DSSE does not know are ignored, as its specification requires: no signature covers them, and nothing uses them.

The library's own `Envelope.verify` counts key ids, so that one key under two ids would meet a threshold of two; it
cannot read a signature without an id, nor two with the same. Here the signers are a set of public keys.
"""

import base64
import binascii
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib import dsse
from securesystemslib.exceptions import UnverifiedSignatureError, VerificationError
from securesystemslib.signer import CryptoSigner, Signature, SSlibKey  # pyright: ignore[reportPrivateImportUsage]

from explorer import rundir
from explorer.canonical import canonical
from explorer.errors import ProvenanceError
from explorer.note import is_weak
from explorer.schema import parse_json

MAX_BYTES = 16 * 2**20
MAX_SIGNATURES = 32
MAX_TYPE = 200
MAX_KEY_ID = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvelopeSignature:
    """One signature of an envelope, not checked."""

    keyid: str  # a hint
    sig: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """A payload with its claimed type and with signatures, none of them checked."""

    payload: bytes
    payload_type: str
    signatures: tuple[EnvelopeSignature, ...]

    @property
    def signed(self) -> bytes:
        """PAE: the bytes that a signature covers."""
        return dsse.Envelope(self.payload, self.payload_type, {}).pae()

    @property
    def content(self) -> bytes:
        """The content of its file: canonical JSON and a newline."""
        return (
            canonical(
                {
                    "payload": _base64(self.payload),
                    "payloadType": self.payload_type,
                    "signatures": [{"keyid": s.keyid, "sig": _base64(s.sig)} for s in self.signatures],
                }
            )
            + b"\n"
        )


def parse_envelope(content: bytes, *, where: str) -> Envelope:
    """Read an envelope without checking any signature. Raises `ProvenanceError` for anything else."""
    if not content.strip():
        raise ProvenanceError(f"{where}: empty; expected a signed envelope")
    value = parse_json(content, where=where, error=ProvenanceError, max_bytes=MAX_BYTES)
    if not isinstance(value, dict):
        raise ProvenanceError(f"{where}: not a signed envelope: expected a JSON object with payload and signatures")
    kind = _text(value, "payloadType", where)
    if not 0 < len(kind) <= MAX_TYPE or not kind.isascii() or not kind.isprintable():
        raise ProvenanceError(f"{where}: payloadType: expected 1 to {MAX_TYPE} printable ASCII characters")
    listed = value.get("signatures")
    if not isinstance(listed, list):
        raise ProvenanceError(f"{where}: signatures: expected a list")
    if not 0 < len(listed) <= MAX_SIGNATURES:
        raise ProvenanceError(f"{where}: signatures: expected 1 to {MAX_SIGNATURES}, found {len(listed)}")
    return Envelope(
        payload=_decode(value, "payload", where),
        payload_type=kind,
        signatures=tuple(_signature(one, f"{where}: signatures[{index}]") for index, one in enumerate(listed)),
    )


def sign_envelope(payload: bytes, payload_type: str, keys: Iterable[Ed25519PrivateKey]) -> Envelope:
    """Return an envelope signed with each of the keys."""
    return add_signatures(Envelope(payload=payload, payload_type=payload_type, signatures=()), keys)


def add_signatures(envelope: Envelope, keys: Iterable[Ed25519PrivateKey]) -> Envelope:
    """Return the same payload with more signatures.

    Raises `ProvenanceError` for more signatures than are read.
    """
    # Ed25519 is deterministic (RFC 8032), so a key that has signed already produces a signature that is there.
    added = []
    for key in keys:
        made = CryptoSigner(key).sign(envelope.signed)
        added.append(EnvelopeSignature(keyid=made.keyid, sig=bytes.fromhex(made.signature)))
    signatures = tuple(dict.fromkeys((*envelope.signatures, *added)))
    if len(signatures) > MAX_SIGNATURES:
        raise ProvenanceError(f"{len(signatures)} signatures; at most {MAX_SIGNATURES} of an envelope are read")
    return Envelope(payload=envelope.payload, payload_type=envelope.payload_type, signatures=signatures)


def signers(envelope: Envelope, public_keys: Iterable[bytes]) -> frozenset[bytes]:
    """Return the public keys among these (32 bytes each) that have signed this payload as this type.

    Signatures by weak keys do not count, since anyone could have made them.
    """
    # By key, whatever the key ids say: an id could name another key, or one key could appear under two.
    signed = envelope.signed
    return frozenset(
        key for key in frozenset(public_keys) if any(_matches(signed, one.sig, key) for one in envelope.signatures)
    )


def write_envelope(path: Path, envelope: Envelope) -> None:
    """Write an envelope whole or not at all. It replaces only an envelope of the same type.

    Raises `ProvenanceError` for any other existing file, such as a key, and `RunError` if the disk refuses.
    """
    if os.path.lexists(path) and _type_at(path) != envelope.payload_type:
        raise ProvenanceError(
            f"{path}: there is a file already, and it does not hold {envelope.payload_type!r}; it is not replaced"
        )
    rundir.write_bytes(path, envelope.content)


def key_id(public_key: bytes) -> str:
    """Return the id under which a key signs: 64 hexadecimal digits, as `securesystemslib` derives it from the public
    key."""
    return _library_key(public_key).keyid


def _type_at(path: Path) -> str | None:
    """Return the type of the envelope in a file; None for anything else."""
    if not path.is_file():
        return None
    try:
        content = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=ProvenanceError)
        return parse_envelope(content, where=str(path)).payload_type
    except ProvenanceError:
        return None


def _library_key(public_key: bytes) -> SSlibKey:
    return SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(public_key))


def _matches(signed: bytes, sig: bytes, public_key: bytes) -> bool:
    # Points of small order: under such a key, or with such an R (the first half of a signature, RFC 8032, section
    # 5.1.6), one signature can fit many messages.
    if is_weak(public_key) or is_weak(sig[:32]):
        return False
    key = _library_key(public_key)
    try:
        key.verify_signature(Signature(key.keyid, sig.hex()), signed)
    except VerificationError:
        raise  # the library could not check, which is no answer to whether it matches
    except UnverifiedSignatureError:
        return False
    return True


def _signature(value: Any, where: str) -> EnvelopeSignature:
    if not isinstance(value, dict):
        raise ProvenanceError(f"{where}: expected a JSON object with sig")
    hint = value.get("keyid")
    if hint is not None and not (isinstance(hint, str) and len(hint) <= MAX_KEY_ID and hint.isprintable()):
        raise ProvenanceError(f"{where}: keyid: expected at most {MAX_KEY_ID} printable characters")
    return EnvelopeSignature(keyid=hint or "", sig=_decode(value, "sig", where))


def _text(value: dict[str, Any], name: str, where: str) -> str:
    if not isinstance(value.get(name), str):
        raise ProvenanceError(f"{where}: {name}: expected text" if name in value else f"{where}: {name} is missing")
    return value[name]


def _decode(value: dict[str, Any], name: str, where: str) -> bytes:
    """Return the bytes of padded base64 in the standard or the URL-safe alphabet, in its canonical spelling."""
    # Canonical, since unused bits of the last digit would let one payload be written in several ways.
    text = _text(value, name, where)
    try:
        standard = text.replace("-", "+").replace("_", "/") if not ("+" in text or "/" in text) else text
        raw = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProvenanceError(f"{where}: {name}: not base64: {error}") from error
    if _base64(raw) != standard:
        raise ProvenanceError(f"{where}: {name}: not canonical base64")
    return raw


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()

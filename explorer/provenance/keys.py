"""Key files: a private key as PKCS#8 PEM, encrypted with a passphrase unless told otherwise.

Those that sign are Ed25519 keys (RFC 8032); those of readers are in `explorer.provenance.reader_keys`.
A key file can be read by its owner alone, from the moment it exists. It is written once and never over another.
"""

import base64
import binascii
from pathlib import Path
from typing import Annotated, TypeVar

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from explorer.errors import ProvenanceError
from explorer.provenance.private import open_private, write_private

PUBLIC_BYTES = 32
MAX_FILE = 10_000
MAX_PASSPHRASE = 1_000  # bytes

PrivateKey = TypeVar("PrivateKey", Ed25519PrivateKey, X25519PrivateKey)

_PLAIN = b"-----BEGIN PRIVATE KEY-----"
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


def new_key() -> Ed25519PrivateKey:
    """A new key from the system's randomness."""
    return Ed25519PrivateKey.generate()


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The 32 bytes of its public key."""
    return key.public_key().public_bytes_raw()


def public_text(key: Ed25519PrivateKey) -> str:
    """Its public key as base64, as it stands in a trust file."""
    return base64.b64encode(public_bytes(key)).decode()


def parse_public(text: str) -> bytes:
    """The 32 bytes of a public key in base64. Raises `ProvenanceError` for any other length or spelling."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProvenanceError(f"not a public key: {text!r:.80} is not base64") from error
    if len(raw) != PUBLIC_BYTES or base64.b64encode(raw).decode() != text:
        raise ProvenanceError(f"not a public key: {text!r:.80}; expected {PUBLIC_BYTES} bytes in base64")
    return raw


def write_key(path: Path, key: Ed25519PrivateKey | X25519PrivateKey, passphrase: str | None) -> None:
    """Write a new key file, readable by its owner alone; without encryption only where `passphrase` is None.

    It is on the disk when this returns. Raises `ProvenanceError` if there is a file already or the disk refuses;
    then nothing is left behind.
    """
    how = NoEncryption() if passphrase is None else BestAvailableEncryption(_checked_passphrase(passphrase))
    write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))


def is_encrypted(path: Path) -> bool:
    """Whether a key file needs a passphrase. Raises `ProvenanceError` for what is not a key file of ours to read."""
    return _ENCRYPTED in _read(path)


def read_key(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    """Read the file of a key that signs; see `read_private`."""
    return read_private(path, passphrase, Ed25519PrivateKey)


def read_private(path: Path, passphrase: str | None, kind: type[PrivateKey]) -> PrivateKey:
    """Read a key file. Raises `ProvenanceError` if others can read it, it is a link, or it holds another kind of key,
    and if the passphrase is wrong, missing, or not needed."""
    content = _read(path)
    encrypted = _ENCRYPTED in content
    if encrypted and passphrase is None:
        raise ProvenanceError(f"{path}: the key is encrypted; its passphrase is needed")
    if not encrypted and passphrase is not None:
        raise ProvenanceError(f"{path}: the key is not encrypted, yet a passphrase was given")
    secret = None if passphrase is None else _checked_passphrase(passphrase)
    try:
        key = load_pem_private_key(content, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:  # the last from OpenSSL, for X448
        fault = "wrong passphrase, or a damaged file" if encrypted else "damaged: no private key can be read from it"
        raise ProvenanceError(f"{path}: {fault}") from error
    if not isinstance(key, kind):
        raise ProvenanceError(f"{path}: holds a key of kind {_kind_name(type(key))}; expected {_kind_name(kind)}")
    return key


def _kind_name(kind: type) -> str:
    return kind.__name__.removesuffix("PrivateKey").lstrip("_")


def _read(path: Path) -> bytes:
    with open_private(path, max_bytes=MAX_FILE) as file:
        content = file.read(MAX_FILE)
    if _PLAIN not in content and _ENCRYPTED not in content:
        raise ProvenanceError(f"{path}: not a key file; expected PKCS#8 PEM, which begins {_ENCRYPTED.decode()!r}")
    return content


def _checked_passphrase(passphrase: str) -> bytes:
    try:
        secret = passphrase.encode()
    except UnicodeEncodeError as error:
        raise ProvenanceError("a passphrase is text without lone surrogates") from error
    if not 0 < len(secret) <= MAX_PASSPHRASE:
        raise ProvenanceError(f"a passphrase has 1 to {MAX_PASSPHRASE} bytes, found {len(secret)}")
    return secret


def _checked_public(text: str) -> str:
    try:
        parse_public(text)
    except ProvenanceError as error:
        raise PydanticCustomError("public_key", "expected a public key, 32 bytes in base64") from error
    return text


PublicKey = Annotated[
    str, AfterValidator(_checked_public), Field(json_schema_extra={"pattern": "^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$"})
]
"""The type of a public key in a record: 32 bytes in base64."""

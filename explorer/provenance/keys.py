"""Key files: a private key as PKCS#8 PEM, encrypted with a passphrase unless told otherwise.

Those that sign are Ed25519 keys (RFC 8032); those of readers are in `explorer.provenance.reader_keys`.
A key file can be read by its owner alone, from the moment it exists. It is written once and never over another.

A passphrase is stretched with PBKDF2-HMAC-SHA256 (PBES2, RFC 8018) and encrypts with AES-256-CBC: 600,000 rounds, as
OWASP's Password Storage Cheat Sheet asks of this function. `cryptography` writes 2,048 and has no setting for it, so
the bytes are put together here; it reads them, and so does OpenSSL. Files with fewer rounds, of earlier versions, are
read; `encrypt_again` writes them with more.

A key that signs may also stay in an SSH agent: then a name such as `ssh-agent:trainer` stands where a path would, or
alone in a key file, for verbs that look for `trainer.pem` (`explorer.provenance.agent`).
"""

import base64
import binascii
import functools
import re
import secrets
from pathlib import Path
from typing import Annotated, TypeVar

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from explorer.errors import ProvenanceError
from explorer.provenance.agent import PREFIX, agent_key
from explorer.provenance.private import open_private, replace_private, write_private

PUBLIC_BYTES = 32
MAX_FILE = 10_000
MAX_PASSPHRASE = 1_000  # bytes
ROUNDS = 600_000  # of PBKDF2; an unlock takes 0.12 s of one core
MAX_ROUNDS = 10_000_000  # that are computed for somebody else's file

PrivateKey = TypeVar("PrivateKey", Ed25519PrivateKey, X25519PrivateKey)

_PLAIN = b"-----BEGIN PRIVATE KEY-----"
_ENCRYPTED = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
_PEM = re.compile(_ENCRYPTED + rb"([A-Za-z0-9+/=\s]{1,9000})-----END")

# Object identifiers, with tag and length: PBES2 and PBKDF2 of RFC 8018, hmacWithSHA256, aes256-CBC.
_PBES2, _PBKDF2 = (bytes.fromhex(f"06092a864886f70d01050{last}") for last in "dc")
_HMAC_SHA256 = bytes.fromhex("06082a864886f70d0209")
_AES256_CBC = bytes.fromhex("060960864801650304012a")
_AFTER_PBKDF2 = re.compile(re.escape(_PBKDF2) + rb"\x30[\x00-\x7f]\x04([\x00-\x7f])", re.DOTALL)


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
    write_private(path, _content(key, passphrase))


def encrypt_again(path: Path, passphrase: str | None, new: str | None) -> None:
    """Write a key file anew under another passphrase, or the same one: with as many rounds as are asked for today.

    Raises what `read_private` raises, and `ProvenanceError` if the disk refuses; then the file is as it was.
    """
    content = _content(read_any(path, passphrase), new)
    replace_private(path, content)


def rounds(path: Path) -> int | None:
    """How many rounds of PBKDF2 protect a key file; None for one that is not encrypted, or in another way."""
    return None if is_in_agent(path) else _rounds(_read(path))


def is_encrypted(path: Path) -> bool:
    """Whether a key file needs a passphrase. Raises `ProvenanceError` for what is not a key file of ours to read."""
    return not is_in_agent(path) and _ENCRYPTED in _read(path)


def is_in_agent(path: Path) -> bool:
    """Whether a path is the name of a key in an SSH agent, and no file."""
    return str(path).startswith(PREFIX)


def agent_name(path: Path) -> str | None:
    """The key in an SSH agent that a path is the name of, or that its file names; None for a file with a key in it."""
    name = str(path) if is_in_agent(path) else _read(path).decode(errors="replace")
    return name.strip() if name.startswith(PREFIX) else None


def read_key(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    """A key that signs: from its file (see `read_private`), or in the SSH agent that the path or the file names."""
    name = agent_name(path)
    return read_private(path, passphrase, Ed25519PrivateKey) if name is None else agent_key(name)


def read_private(path: Path, passphrase: str | None, kind: type[PrivateKey]) -> PrivateKey:
    """Read a key file. Raises `ProvenanceError` if others can read it, it is a link, or it holds another kind of key,
    and if the passphrase is wrong, missing, or not needed."""
    key = read_any(path, passphrase)
    if not isinstance(key, kind):
        raise ProvenanceError(f"{path}: holds a key of kind {_kind_name(type(key))}; expected {_kind_name(kind)}")
    return key


def read_any(path: Path, passphrase: str | None) -> Ed25519PrivateKey | X25519PrivateKey:
    """Read a key file of either kind; see `read_private`."""
    content = b"" if is_in_agent(path) else _read(path)
    if not content or content.startswith(PREFIX.encode()):
        raise ProvenanceError(f"{path}: a key in an SSH agent signs, and does nothing else; expected a key file")
    encrypted = _ENCRYPTED in content
    if encrypted and passphrase is None:
        raise ProvenanceError(f"{path}: the key is encrypted; its passphrase is needed")
    if not encrypted and passphrase is not None:
        raise ProvenanceError(f"{path}: the key is not encrypted, yet a passphrase was given")
    found = _rounds(content)
    if found is not None and found > MAX_ROUNDS:
        raise ProvenanceError(f"{path}: asks for {found} rounds of PBKDF2; at most {MAX_ROUNDS} are computed")
    secret = None if passphrase is None else _checked_passphrase(passphrase)
    try:
        key = _unlocked(content, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:  # the last from OpenSSL, for X448
        fault = "wrong passphrase, or a damaged file" if encrypted else "damaged: no private key can be read from it"
        raise ProvenanceError(f"{path}: {fault}") from error
    if not isinstance(key, Ed25519PrivateKey | X25519PrivateKey):
        kinds = f"{_kind_name(Ed25519PrivateKey)} or {_kind_name(X25519PrivateKey)}"
        raise ProvenanceError(f"{path}: holds a key of kind {_kind_name(type(key))}; expected {kinds}")
    return key


@functools.lru_cache(maxsize=8)
def _unlocked(content: bytes, secret: bytes | None) -> PrivateKeyTypes:
    """The key in a file. Kept while the process lives: many verbs open one key several times."""
    return load_pem_private_key(content, secret)


def _content(key: Ed25519PrivateKey | X25519PrivateKey, passphrase: str | None) -> bytes:
    """A key file."""
    if passphrase is None:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    salt, start = secrets.token_bytes(16), secrets.token_bytes(16)
    stretched = PBKDF2HMAC(algorithm=SHA256(), length=32, salt=salt, iterations=ROUNDS).derive(
        _checked_passphrase(passphrase)
    )
    padder, cipher = PKCS7(128).padder(), Cipher(AES256(stretched), CBC(start)).encryptor()
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    sealed = cipher.update(padder.update(plain) + padder.finalize()) + cipher.finalize()
    number = _der(0x02, ROUNDS.to_bytes(3, "big"))
    stretching = _der(0x30, _PBKDF2, _der(0x30, _der(0x04, salt), number, _der(0x30, _HMAC_SHA256, b"\x05\x00")))
    scheme = _der(0x30, _PBES2, _der(0x30, stretching, _der(0x30, _AES256_CBC, _der(0x04, start))))
    text = base64.encodebytes(_der(0x30, scheme, _der(0x04, sealed))).replace(b"\n", b"")
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return b"\n".join((_ENCRYPTED, *lines, _ENCRYPTED.replace(b"BEGIN", b"END"))) + b"\n"


def _rounds(content: bytes) -> int | None:
    match = _PEM.search(content)
    if not match:
        return None
    try:
        raw = base64.b64decode(match[1])
    except binascii.Error:
        return None  # whoever opens it says so
    found = _AFTER_PBKDF2.search(raw)
    if found is None:
        return None
    number = raw[found.end() + found[1][0] :]  # behind the salt: the tag of a whole number, its length, its bytes
    return int.from_bytes(number[2 : 2 + number[1]], "big") if number[:1] == b"\x02" and len(number) > 1 else None


def _der(tag: int, *parts: bytes) -> bytes:
    """A value in the distinguished encoding of ASN.1 (X.690), shorter than 256 bytes."""
    content = b"".join(parts)
    size = len(content)
    length = (
        bytes([size]) if size < 0x80 else bytes([0x81, size]) if size < 0x100 else b"\x82" + size.to_bytes(2, "big")
    )
    return bytes([tag]) + length + content


def _kind_name(kind: type) -> str:
    return kind.__name__.removesuffix("PrivateKey").lstrip("_")


def _read(path: Path) -> bytes:
    with open_private(path, max_bytes=MAX_FILE) as file:
        content = file.read(MAX_FILE)
    if not (_PLAIN in content or _ENCRYPTED in content or content.startswith(PREFIX.encode())):
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

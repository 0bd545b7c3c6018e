"""Key files: a private key as PKCS#8 PEM, encrypted with a passphrase by default.

Keys that sign are Ed25519 keys (RFC 8032); readers' keys also decrypt (below). From the moment it exists, a key file is
readable only by its owner. It is never written over another file.

A passphrase is stretched with PBKDF2-HMAC-SHA256 (PBES2, RFC 8018) and encrypts with AES-256-CBC: 600,000 rounds, as
OWASP's Password Storage Cheat Sheet recommends for this function. `cryptography` writes 2,048 without a setting for it,
so the bytes are assembled here; it reads them, and so does OpenSSL. Files of earlier versions, with fewer rounds, are
read; `encrypt_again` writes them with more.

A signing key may also stay in an SSH agent. A name such as `ssh-agent:trainer` is then given instead of a path, or is
the whole content of a key file, for verbs that look for `trainer.pem` (`explorer.provenance.agent`).

A reader's key is one Ed25519 key, which signs requests, and the X25519 key derived from it, to which secrets are
wrapped so that only its holder can open them.

The X25519 key (RFC 7748) has the scalar that Ed25519 itself derives from the same seed, SHA-512(seed)[:32], so that
its public key u follows from the Ed25519 public key y: u = (1 + y) / (1 - y) mod 2^255 - 19. A grant names only u; a
check of a signature computes u from the key that signed. age and libsodium convert keys in this way. Thormarker, "On
using the same key pair for Ed25519 and an X25519 based KEM", 2021, IACR ePrint 2021/509, shows that signing and this
kind of wrapping may share a key. Files of earlier versions hold only an X25519 key, which opens what was wrapped to it
but signs nothing.

Wrapping is HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM; the result is 32
bytes of encapsulated key, then the ciphertext with its tag. `info` names the purpose of the secret, and only the same
`info` opens it. Wrapping proves no sender: anyone with the public key can wrap anything to it.
"""

import base64
import binascii
import functools
import hashlib
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, TypeVar

from cryptography.exceptions import InternalError, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.pbkdf2 import PBKDF2HMAC
from cryptography.hazmat.primitives.padding import PKCS7
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from explorer.errors import ProvenanceError
from explorer.provenance.agent import PREFIX, agent_key
from explorer.rundir import flush_directory

# --------------------------------------------------------------------------------- files that only their owner can read

# The environment variables that hold passphrases. Trainers and auditors are different parties: a process that opens
# keys of both never takes both passphrases from one place.
PASSPHRASE = "EXPLORER_PASSPHRASE"  # of a key that signs
READER_PASSPHRASE = "EXPLORER_READER_PASSPHRASE"  # of a reader's key
NEW_PASSPHRASE = "EXPLORER_NEW_PASSPHRASE"  # the new one, for a key file whose passphrase changes


def write_private(path: Path, *content: bytes) -> None:
    """Write a new file of mode 0600 from these pieces; it is on disk when this returns.

    Raises `ProvenanceError` if there is a file already or the disk refuses; then nothing is left behind.
    """
    # The mode is set at creation: a later chmod would leave a moment in which others could open the file. O_EXCL and
    # O_NOFOLLOW: neither another file nor the target of a link planted at this path is overwritten.
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise ProvenanceError(f"{path}: there is a file already; a secret is never written over another") from error
    except OSError as error:
        raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        flush_directory(path.parent)
    except BaseException as error:  # an interruption too
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error
        raise


def replace_private(path: Path, *content: bytes) -> None:
    """Write a file of mode 0600 whole or not at all, replacing any that is there; it is on disk when this returns.

    A link is replaced, not followed. Raises `ProvenanceError` if the disk refuses.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error
    write_private(draft, *content)
    try:
        draft.replace(path)
        flush_directory(path.parent)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ProvenanceError(f"cannot write {path}: {error.strerror or error}") from error


def open_private(path: Path, *, max_bytes: int, write: bool = False) -> BinaryIO:
    """Open a private file. Raises `ProvenanceError` for links, for files that others can open, and for large ones."""
    # O_NONBLOCK: opening a pipe would otherwise wait for its writer. The opened file is checked, not its path, which
    # could be exchanged in between.
    mode = os.O_RDWR if write else os.O_RDONLY
    try:
        descriptor = os.open(path, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise ProvenanceError(f"{path}: a link; name the file itself") from error
        raise ProvenanceError(f"cannot open {path}: {error.strerror or error}") from error
    try:
        _check(path, os.fstat(descriptor), max_bytes)  # before `fdopen`, which a directory would fail
    except ProvenanceError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "r+b" if write else "rb")


def _check(path: Path, status: os.stat_result, max_bytes: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ProvenanceError(f"{path}: not a regular file")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise ProvenanceError(f"{path}: others can read or write it (mode {mode:04o}); first: chmod 600 {path}")
    if status.st_size > max_bytes:
        raise ProvenanceError(f"{path}: too large: {status.st_size} bytes, at most {max_bytes} are read")


# ------------------------------------------------------------------------------------------------------- keys that sign

PUBLIC_BYTES = 32
MAX_FILE = 10_000
MAX_PASSPHRASE = 1_000  # bytes
ROUNDS = 600_000  # of PBKDF2; an unlock takes 0.12 s of one core
MAX_ROUNDS = 10_000_000  # the most that a file from elsewhere may demand

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
    """Return a new random key."""
    return Ed25519PrivateKey.generate()


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of its public key."""
    return key.public_key().public_bytes_raw()


def public_text(key: Ed25519PrivateKey) -> str:
    """Return its public key in base64, as in a trust file."""
    return base64.b64encode(public_bytes(key)).decode()


def parse_public(text: str) -> bytes:
    """Return the 32 bytes of a public key in base64. Raises `ProvenanceError` for another length or spelling."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProvenanceError(f"not a public key: {text!r:.80} is not base64") from error
    if len(raw) != PUBLIC_BYTES or base64.b64encode(raw).decode() != text:
        raise ProvenanceError(f"not a public key: {text!r:.80}; expected {PUBLIC_BYTES} bytes in base64")
    return raw


def write_key(path: Path, key: Ed25519PrivateKey | X25519PrivateKey, passphrase: str | None) -> None:
    """Write a new key file, readable only by its owner, and unencrypted only if `passphrase` is None.

    It is on disk when this returns. Raises `ProvenanceError` if there is a file already or the disk refuses; then
    nothing is left behind.
    """
    write_private(path, key_content(key, passphrase))


def encrypt_again(path: Path, passphrase: str | None, new: str | None) -> None:
    """Write a key file again under another passphrase, or the same one, with today's number of rounds.

    Raises what `read_private` raises, and `ProvenanceError` if the disk refuses; then the file is unchanged.
    """
    replace_private(path, key_content(read_any(path, passphrase), new))


def rounds(path: Path) -> int | None:
    """Return the rounds of PBKDF2 that protect a key file; None if it is not encrypted, or in another way."""
    return None if is_in_agent(path) else _rounds(_read(path))


def is_encrypted(path: Path) -> bool:
    """Return whether a key file needs a passphrase. Raises `ProvenanceError` for any other file."""
    return not is_in_agent(path) and _ENCRYPTED in _read(path)


def is_in_agent(path: Path) -> bool:
    """Return whether a path is the name of a key in an SSH agent rather than of a file."""
    return str(path).startswith(PREFIX)


def agent_name(path: Path) -> str | None:
    """Return the name of a key in an SSH agent: the path itself, or the content of its file. None for a key file."""
    name = str(path) if is_in_agent(path) else _read(path).decode(errors="replace")
    return name.strip() if name.startswith(PREFIX) else None


def read_key(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    """Return a signing key: from its file (`read_private`), or from the SSH agent if the path or the file names it."""
    name = agent_name(path)
    return read_private(path, passphrase, Ed25519PrivateKey) if name is None else agent_key(name)


def read_private(path: Path, passphrase: str | None, kind: type[PrivateKey]) -> PrivateKey:
    """Read a key file. Raises `ProvenanceError` if others can read it, if it is a link or holds another kind of key,
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
    # Before decryption: the number of rounds is the writer's choice, and each costs time.
    rounds = _rounds(content)
    if rounds is not None and rounds > MAX_ROUNDS:
        raise ProvenanceError(f"{path}: asks for {rounds} rounds of PBKDF2; at most {MAX_ROUNDS} are computed")
    secret = None if passphrase is None else _checked_passphrase(passphrase)
    try:
        key = _unlocked(content, secret)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:  # the last is OpenSSL's, for X448
        fault = "wrong passphrase, or a damaged file" if encrypted else "damaged: no private key can be read from it"
        raise ProvenanceError(f"{path}: {fault}") from error
    if not isinstance(key, Ed25519PrivateKey | X25519PrivateKey):
        kinds = f"{_kind_name(Ed25519PrivateKey)} or {_kind_name(X25519PrivateKey)}"
        raise ProvenanceError(f"{path}: holds a key of kind {_kind_name(type(key))}; expected {kinds}")
    return key


@functools.lru_cache(maxsize=8)
def _unlocked(content: bytes, secret: bytes | None) -> PrivateKeyTypes:
    """Return the key in a file. Cached, since many verbs open a key several times, and each time takes 0.12 s."""
    return load_pem_private_key(content, secret)


def key_content(key: Ed25519PrivateKey | X25519PrivateKey, passphrase: str | None) -> bytes:
    """Return the content of a key file."""
    if passphrase is None:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    salt, start = secrets.token_bytes(16), secrets.token_bytes(16)
    stretched = PBKDF2HMAC(algorithm=SHA256(), length=32, salt=salt, iterations=ROUNDS).derive(
        _checked_passphrase(passphrase)
    )
    # EncryptedPrivateKeyInfo (RFC 5958, section 3) with PBES2 (RFC 8018, section 6.2). The start value is new for every
    # file; CBC needs no tag here, since a wrong passphrase shows in the padding or in the key's own structure.
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
        return None  # opening it says so
    salt_head = _AFTER_PBKDF2.search(raw)
    if salt_head is None:
        return None
    # After the salt: the tag of an integer, its length, its bytes.
    number = raw[salt_head.end() + salt_head[1][0] :]
    return int.from_bytes(number[2 : 2 + number[1]], "big") if number[:1] == b"\x02" and len(number) > 1 else None


def _der(tag: int, *parts: bytes) -> bytes:
    """Return a value in the distinguished encoding of ASN.1 (X.690)."""
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


# ------------------------------------------------------------------------------------------------------ keys of readers

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_PRIME = 2**255 - 19
OVERHEAD = 32 + 16  # bytes that wrapping adds: the encapsulated key and the tag


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class ReaderKey:
    """The two keys in a reader's key file. They are never printed."""

    opens: X25519PrivateKey
    signs: Ed25519PrivateKey | None  # None: a file of an earlier version


def new_reader_key() -> Ed25519PrivateKey:
    """Return a new random key, in the form in which it is written to a file."""
    return Ed25519PrivateKey.generate()


def reader_key(key: Ed25519PrivateKey | X25519PrivateKey) -> ReaderKey:
    """Return the two keys of a reader from the key in the file."""
    if isinstance(key, X25519PrivateKey):
        return ReaderKey(opens=key, signs=None)
    scalar = hashlib.sha512(key.private_bytes_raw()).digest()[:32]  # X25519 clamps it, as Ed25519 does
    return ReaderKey(opens=X25519PrivateKey.from_private_bytes(scalar), signs=key)


def read_reader_key(path: Path, passphrase: str | None) -> ReaderKey:
    """Read the file of a reader's key; see `explorer.provenance.keys.read_private`."""
    return reader_key(read_any(path, passphrase))


def reader_of(signing_key: bytes) -> str:
    """Return the X25519 public key of the reader who signs with this Ed25519 public key, as in a grant."""
    # The birational map of RFC 7748, section 4.1. The top bit of an Ed25519 key is the sign of x, which u does not
    # need; y = 1 is the neutral element, at which the map has a pole.
    y = int.from_bytes(signing_key, "little") & (2**255 - 1)
    if not 1 < y < _PRIME:
        raise ProvenanceError("not the public key of a reader: a point that has no counterpart for X25519")
    return base64.b64encode(((1 + y) * pow(1 - y, -1, _PRIME) % _PRIME).to_bytes(32, "little")).decode()


def reader_public_text(key: X25519PrivateKey) -> str:
    """Return its public key in base64, as in a grant."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def is_weak_reader(public_key: str) -> bool:
    """Return whether a key is not canonical, or of small order, so that anyone could open what is wrapped to it."""
    raw = parse_public(public_key)
    if int.from_bytes(raw, "little") >= _PRIME:  # the same point has a smaller spelling (RFC 7748, section 5)
        return True
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(raw))
    except ValueError:  # the shared secret is zero, for every private key
        return True
    return False


def wrap(secret: bytes, public_key: str, *, info: bytes) -> bytes:
    """Wrap a secret to a reader's public key; every wrapping is different. Raises `ProvenanceError` for a weak key."""
    if is_weak_reader(public_key):
        raise ProvenanceError(f"the reader's key {public_key} is weak: everybody could open what is wrapped to it")
    return _SUITE.encrypt(secret, X25519PublicKey.from_public_bytes(parse_public(public_key)), info)


def unwrap(wrapped: bytes, key: X25519PrivateKey, *, info: bytes, where: str) -> bytes:
    """Return the secret.

    Raises `ProvenanceError` if it was changed, truncated, or wrapped to another key or with another `info`; these
    cannot be distinguished.
    """
    try:
        return _SUITE.decrypt(wrapped, key, info)
    except (InvalidTag, ValueError) as error:
        raise ProvenanceError(
            f"{where}: cannot be opened: wrapped to another reader's key or for another purpose, or changed"
        ) from error

"""Key files: a private key as PKCS#8 PEM, encrypted with a passphrase by default.

Those that sign are Ed25519 keys (RFC 8032); those of readers open too (below).
A key file can be read by its owner alone, from the moment it exists. It is written once and never over another.

A passphrase is stretched with PBKDF2-HMAC-SHA256 (PBES2, RFC 8018) and encrypts with AES-256-CBC: 600,000 rounds, as
OWASP's Password Storage Cheat Sheet asks of this function. `cryptography` writes 2,048 and has no setting for it, so
the bytes are put together here; it reads them, and so does OpenSSL. Files with fewer rounds, of earlier versions, are
read; `encrypt_again` writes them with more.

A key that signs may also stay in an SSH agent: then a name such as `ssh-agent:trainer` takes the place of a path, or
alone in a key file, for verbs that look for `trainer.pem` (`explorer.provenance.agent`).

Readers' keys: one Ed25519 key, which signs what its holder asks for, and the X25519 key that follows from it, to
which a secret is wrapped so that only its holder can open it.

The X25519 key (RFC 7748) has the scalar that Ed25519 itself takes from the same seed, SHA-512(seed)[:32], so that
its public key u follows from the Ed25519 public key y: u = (1 + y) / (1 - y) mod 2^255 - 19. A grant names u alone;
a check of a signature computes u from the key that signed. age and libsodium convert keys this way; that
signing and this kind of wrapping may share a key is shown in Thormarker, "On using the same key pair for Ed25519 and an
X25519 based KEM", 2021, IACR ePrint 2021/509. Files of earlier versions hold an X25519 key alone: it opens what was
wrapped to it, and signs nothing.

Wrapping is HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM; what is wrapped
is 32 bytes of encapsulated key and the ciphertext with its tag. `info` says what the secret is for: opened with any
other, it is refused. Wrapping proves no sender: a public key is enough to wrap anything to it.
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

# The environment variables that hold passphrases. Who audits and who trains are two parties: a process that opens both
# kinds of key never takes both passphrases from one place.
PASSPHRASE = "EXPLORER_PASSPHRASE"  # of a key that signs
READER_PASSPHRASE = "EXPLORER_READER_PASSPHRASE"  # of a reader's key
NEW_PASSPHRASE = "EXPLORER_NEW_PASSPHRASE"  # that a key file gets in place of its own


def write_private(path: Path, *content: bytes) -> None:
    """Write a new file of mode 0600 from these pieces; it is on the disk when this returns.

    Raises `ProvenanceError` if there is a file already or the disk refuses; then nothing is left behind.
    """
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
    """Write a file of mode 0600 whole or not at all, in the place of one that may be there; it is on the disk when this
    returns. A link in its place is replaced, and not followed. Raises `ProvenanceError` if the disk refuses."""
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
    """Open such a file. Raises `ProvenanceError` for links, for what others can open, and for what is too large."""
    mode = os.O_RDWR if write else os.O_RDONLY
    try:
        descriptor = os.open(path, mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise ProvenanceError(f"{path}: a link; name the file itself") from error
        raise ProvenanceError(f"cannot open {path}: {error.strerror or error}") from error
    try:
        _check(path, os.fstat(descriptor), max_bytes)  # first: a directory cannot become a file object
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
MAX_ROUNDS = 10_000_000  # that are computed for a file from outside

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
    """Return a new key from the system's randomness."""
    return Ed25519PrivateKey.generate()


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """Return the 32 bytes of its public key."""
    return key.public_key().public_bytes_raw()


def public_text(key: Ed25519PrivateKey) -> str:
    """Its public key as base64, as a trust file has it."""
    return base64.b64encode(public_bytes(key)).decode()


def parse_public(text: str) -> bytes:
    """Return the 32 bytes of a public key in base64. Raises `ProvenanceError` for any other length or spelling."""
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
    """Write a key file again under another passphrase, or the same one: with as many rounds as are asked for today.

    Raises what `read_private` raises, and `ProvenanceError` if the disk refuses; then the file is as it was.
    """
    content = _content(read_any(path, passphrase), new)
    replace_private(path, content)


def rounds(path: Path) -> int | None:
    """Return how many rounds of PBKDF2 protect a key file; None for one that is not encrypted, or in another way."""
    return None if is_in_agent(path) else _rounds(_read(path))


def is_encrypted(path: Path) -> bool:
    """Return whether a key file needs a passphrase.

    Raises `ProvenanceError` for what is not a key file of ours to read.
    """
    return not is_in_agent(path) and _ENCRYPTED in _read(path)


def is_in_agent(path: Path) -> bool:
    """Return whether a path is the name of a key in an SSH agent, and no file."""
    return str(path).startswith(PREFIX)


def agent_name(path: Path) -> str | None:
    """Return the key in an SSH agent that a path is the name of, or that its file names; None for a file with a key in
    it."""
    name = str(path) if is_in_agent(path) else _read(path).decode(errors="replace")
    return name.strip() if name.startswith(PREFIX) else None


def read_key(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    """Return a key that signs: from its file (`read_private`), or in the SSH agent that the path or the file names."""
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
    # Before the file is opened: the number of rounds is the writer's choice, and each costs time.
    rounds = _rounds(content)
    if rounds is not None and rounds > MAX_ROUNDS:
        raise ProvenanceError(f"{path}: asks for {rounds} rounds of PBKDF2; at most {MAX_ROUNDS} are computed")
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
    """Return the key in a file. Kept while the process lives: many verbs open one key several times."""
    return load_pem_private_key(content, secret)


def _content(key: Ed25519PrivateKey | X25519PrivateKey, passphrase: str | None) -> bytes:
    """Return a key file."""
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
        return None  # opening it says so
    salt_head = _AFTER_PBKDF2.search(raw)
    if salt_head is None:
        return None
    # Behind the salt: the tag of a whole number, its length, its bytes.
    number = raw[salt_head.end() + salt_head[1][0] :]
    return int.from_bytes(number[2 : 2 + number[1]], "big") if number[:1] == b"\x02" and len(number) > 1 else None


def _der(tag: int, *parts: bytes) -> bytes:
    """Return a value in the distinguished encoding of ASN.1 (X.690), shorter than 256 bytes."""
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
    """Return a new key from the system's randomness, as it is written to a file."""
    return Ed25519PrivateKey.generate()


def reader_key(key: Ed25519PrivateKey | X25519PrivateKey) -> ReaderKey:
    """Return the two keys of a reader, from the one in the file."""
    if isinstance(key, X25519PrivateKey):
        return ReaderKey(opens=key, signs=None)
    scalar = hashlib.sha512(key.private_bytes_raw()).digest()[:32]  # X25519 clamps it, as Ed25519 does
    return ReaderKey(opens=X25519PrivateKey.from_private_bytes(scalar), signs=key)


def read_reader_key(path: Path, passphrase: str | None) -> ReaderKey:
    """Read the file of a reader's key; see `explorer.provenance.keys.read_private`."""
    return reader_key(read_any(path, passphrase))


def reader_of(signing_key: bytes) -> str:
    """Return the X25519 public key, as a grant has it, of the reader who signs with this Ed25519 public key."""
    y = int.from_bytes(signing_key, "little") & (2**255 - 1)
    if not 1 < y < _PRIME:
        raise ProvenanceError("not the public key of a reader: a point that has no counterpart for X25519")
    return base64.b64encode(((1 + y) * pow(1 - y, -1, _PRIME) % _PRIME).to_bytes(32, "little")).decode()


def reader_public_text(key: X25519PrivateKey) -> str:
    """Its public key as base64, as a grant has it."""
    return base64.b64encode(key.public_key().public_bytes_raw()).decode()


def is_weak_reader(public_key: str) -> bool:
    """Return whether anyone could open what is wrapped to this key (a point of small order), or it is not canonical."""
    raw = parse_public(public_key)
    if int.from_bytes(raw, "little") >= 2**255 - 19:  # the same point has a smaller name (RFC 7748, 5)
        return True
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(raw))
    except ValueError:  # the shared secret is zero, for every private key
        return True
    return False


def wrap(secret: bytes, public_key: str, *, info: bytes) -> bytes:
    """Wrap a secret to a reader's public key. Two wrappings of one secret differ.

    Raises `ProvenanceError` for a weak key.
    """
    if is_weak_reader(public_key):
        raise ProvenanceError(f"the reader's key {public_key} is weak: everybody could open what is wrapped to it")
    return _SUITE.encrypt(secret, X25519PublicKey.from_public_bytes(parse_public(public_key)), info)


def unwrap(wrapped: bytes, key: X25519PrivateKey, *, info: bytes, where: str) -> bytes:
    """Return the secret.

    Raises `ProvenanceError` for what was changed, cut short, or wrapped to another key or with another `info`; which of
    these it was cannot be told.
    """
    try:
        return _SUITE.decrypt(wrapped, key, info)
    except (InvalidTag, ValueError) as error:
        raise ProvenanceError(
            f"{where}: cannot be opened: wrapped to another reader's key or for another purpose, or changed"
        ) from error

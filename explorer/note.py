"""Signed notes: text with signature lines under it, as C2SP signed-note describes them (c2sp.org/signed-note).

    text, ending in a newline
    (an empty line)
    \u2014 <key name> <base64(key id || signature)>

A key id is SHA-256(name || 0x0A || type || public key)[:4], big-endian. Two types of key are known here:

    0x01  Ed25519 over the text
    0x04  Ed25519 cosignature (c2sp.org/tlog-cosignature): a timestamp as u64, big-endian, and a signature over
          "cosignature/v1\\ntime <decimal>\\n" || text

A key is written as a verifier key: `name+hex(key id)+base64(type || public key)`. This one

    example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k

verifies "This is an example message.\\n" with this signature:

    Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=

Signatures of unknown keys are carried along and prove nothing: no signature covers them. A known key whose signature
fails makes the whole note refused, and so does a note that no known key has signed. Every line of a known key is
checked, so that the order of the lines decides nothing.

Keys under which signatures can be made without the private half are refused: points of small order, and encodings that
are not canonical (RFC 8032, 5.1.3). So are signatures whose R is such a point.
"""

import base64
import binascii
import enum
import hashlib
import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from explorer.errors import NoteError

MAX_BYTES = 1_000_000  # of a note
MAX_SIGNATURES = 100  # lines of a note
MAX_NAME = 200  # characters of a key name
MAX_VKEY = 2_000  # characters; the key of an ML-DSA-44 cosigner has 1,752 in base64
MAX_NAMED = 5  # keys in one message
MAX_TIME = 2**63 - 1
_MARK = "\u2014 "
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")
_LINE = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")
_VKEY = re.compile(r"([^+]*)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")
_PRIME = 2**255 - 19
# The y coordinates of all points of small order (order 1, 2, 4 and 8) on the curve of Ed25519, little-endian.
_SMALL_ORDER = {
    bytes.fromhex(digits)
    for digits in (
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    )
}


class UnknownTypeError(NoteError):
    """A verifier key of unknown type: well formed, but useless for checking."""


class Algorithm(enum.IntEnum):
    """Kinds of signature, by the type in the key id."""

    ED25519 = 0x01
    COSIGNATURE = 0x04


@dataclass(frozen=True, kw_only=True, slots=True)
class Verifier:
    """A public key with a name: enough to check what it signed."""

    name: str
    algorithm: Algorithm
    public_key: bytes  # 32 bytes

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.public_key) != 32:
            raise NoteError(f"an Ed25519 public key has 32 bytes, found {len(self.public_key)}")
        if is_weak(self.public_key):
            raise NoteError(f"the public key of {self.name!r} is weak: anyone can sign for it")

    @property
    def key_id(self) -> bytes:
        """Return the 4 bytes that precede its signatures."""
        return hashlib.sha256(self.name.encode() + b"\n" + self._material).digest()[:4]

    @property
    def vkey(self) -> str:
        """Return the key as one line of text."""
        return f"{self.name}+{self.key_id.hex()}+{base64.b64encode(self._material).decode()}"

    @property
    def _material(self) -> bytes:
        return bytes([self.algorithm]) + self.public_key

    @classmethod
    def parse(cls, vkey: str) -> Self:
        """Read a verifier key.

        Raises `NoteError` unless its key id belongs to its name and key, and `UnknownTypeError` for an unknown type.
        """
        match = _VKEY.fullmatch(vkey) if len(vkey) <= MAX_VKEY else None
        if not match:
            raise NoteError(f"not a verifier key: {vkey[:80]!r}; expected name+8 hexadecimal digits+base64")
        material = _decode(match[3], what=f"the key of {match[1]!r}")
        if material[:1] not in (b"\x01", b"\x04"):
            check_name(match[1])
            raise UnknownTypeError(
                f"{match[1]}: unknown key type {material[:1].hex()}; known: 01 (Ed25519), 04 (cosignature)"
            )
        made = cls(name=match[1], algorithm=Algorithm(material[0]), public_key=material[1:])
        if made.key_id.hex() != match[2]:
            raise NoteError(f"{match[1]}: key id {match[2]} is not of this name and key, expected {made.key_id.hex()}")
        return made

    def check(self, text: str, signature: bytes) -> int | None:
        """Check the bytes behind the key id; return the time of a cosignature. Raises `NoteError` if they are wrong.

        A time can lie in the future, or be larger than `MAX_TIME`: the caller decides whether it counts.
        """
        time = None
        message = text.encode()
        if self.algorithm is Algorithm.COSIGNATURE:
            if len(signature) != 72:
                raise NoteError(f"the cosignature of {self.name} has {len(signature)} bytes, expected 72")
            (time,) = struct.unpack(">Q", signature[:8])
            message, signature = _cosigned(text, time), signature[8:]
        try:
            # Libraries differ on such an R, and a signature has to be valid everywhere or nowhere.
            if is_weak(signature[:32]):
                raise ValueError("R is a point of small order, or not in its canonical form")
            Ed25519PublicKey.from_public_bytes(self.public_key).verify(signature, message)
        except (InvalidSignature, ValueError) as error:
            raise NoteError(f"the signature of {self.name} ({self.key_id.hex()}) does not match the text") from error
        return time


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Signer:
    """A private key with a name. It is never printed."""

    name: str
    algorithm: Algorithm
    private_key: Ed25519PrivateKey

    @property
    def verifier(self) -> Verifier:
        """Return the public half."""
        public = self.private_key.public_key().public_bytes_raw()
        return Verifier(name=self.name, algorithm=self.algorithm, public_key=public)

    def sign(self, text: str, *, time: int | None = None) -> "Signature":
        """Sign a text. A cosignature needs `time`, in seconds since 1970; a plain signature takes none."""
        check_text(text)
        if (time is not None) != (self.algorithm is Algorithm.COSIGNATURE):
            raise NoteError(f"{self.name}: a cosignature carries a time and a plain signature none, found time={time}")
        if time is None:
            blob = self.private_key.sign(text.encode())
        elif 0 <= time <= MAX_TIME:
            blob = struct.pack(">Q", time) + self.private_key.sign(_cosigned(text, time))
        else:
            raise NoteError(f"{self.name}: {time} is no time in seconds since 1970")
        return Signature(name=self.name, key_id=self.verifier.key_id, blob=blob)


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """One signature line."""

    name: str
    key_id: bytes  # 4 bytes
    blob: bytes  # the bytes after the key id

    @property
    def line(self) -> str:
        """Return the line in a note, without the newline."""
        return f"{_MARK}{self.name} {base64.b64encode(self.key_id + self.blob).decode()}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """A checked signature and its key."""

    verifier: Verifier
    time: int | None  # when the cosigner claims to have seen the text, in seconds since 1970


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A text and its signature lines, none of them checked."""

    text: str
    signatures: tuple[Signature, ...]

    @property
    def content(self) -> bytes:
        """Return the content of the note's file."""
        return f"{self.text}\n{''.join(signature.line + chr(10) for signature in self.signatures)}".encode()


def parse(content: bytes) -> Note:
    """Read a note without checking any signature. Raises `NoteError` for what is not one."""
    if len(content) > MAX_BYTES:
        raise NoteError(f"a note of {len(content)} bytes; at most {MAX_BYTES} are read")
    try:
        whole = content.decode()
    except UnicodeDecodeError as error:
        raise NoteError(f"a note is UTF-8; byte {error.start} is not") from error
    _check_characters(whole)
    text, gap, lines = whole.rpartition("\n\n")
    if not gap or not lines.endswith("\n"):
        raise NoteError("not a signed note: expected a text, an empty line, and signature lines that end in a newline")
    signature_lines = lines[:-1].split("\n")
    if len(signature_lines) > MAX_SIGNATURES:
        raise NoteError(f"a note with {len(signature_lines)} signatures; at most {MAX_SIGNATURES} are read")
    return Note(
        text=text + "\n", signatures=tuple(_parse_line(line, number) for number, line in enumerate(signature_lines, 1))
    )


def verify(note: Note, verifiers: Iterable[Verifier]) -> tuple[Verified, ...]:
    """Check every signature whose key is known; return them in the order of the lines, each key and time once.

    Raises `NoteError` if one of them fails, if no known key has signed, or if two known keys share name and key id.
    """
    # A key id has 4 bytes, so two keys can share one: which of them a line means would be a guess.
    known: dict[tuple[str, bytes], Verifier] = {}
    for verifier in verifiers:
        if known.setdefault((verifier.name, verifier.key_id), verifier) != verifier:
            raise NoteError(f"two keys share the name {verifier.name!r} and the key id {verifier.key_id.hex()}")
    verified: dict[Verified, None] = {}
    for signature in note.signatures:
        verifier = known.get((signature.name, signature.key_id))
        if verifier is not None:
            verified[Verified(verifier=verifier, time=verifier.check(note.text, signature.blob))] = None
    if not verified:
        raise NoteError(
            f"no trusted key has signed: signed by {_names((s.name, s.key_id) for s in note.signatures)}, "
            f"trusted are {_names(known)}"
        )
    return tuple(verified)


def with_signatures(note: Note, added: Sequence[Signature]) -> Note:
    """Return the note with more signature lines under it; no line is repeated."""
    return Note(text=note.text, signatures=tuple(dict.fromkeys((*note.signatures, *added))))


def of_keys(note: Note, verifiers: Iterable[Verifier]) -> Note:
    """Return the note with only the lines of these keys, and with room for one more line."""
    keys = {(verifier.name, verifier.key_id) for verifier in verifiers}
    known = dict.fromkeys(line for line in note.signatures if (line.name, line.key_id) in keys)
    return Note(text=note.text, signatures=tuple(known)[: MAX_SIGNATURES - 1])


def sign(text: str, *signers: Signer) -> Note:
    """Sign a text with plain keys."""
    return Note(text=text, signatures=tuple(signer.sign(text) for signer in signers))


def check_text(text: str) -> None:
    """Raise `NoteError` unless `text` can be signed: not empty, a newline at its end, no other control characters."""
    if not text.endswith("\n"):
        raise NoteError("the text of a note ends in a newline")
    _check_characters(text)


def check_name(name: str) -> None:
    """Raise `NoteError` unless `name` can name a key: not empty, no space, no `+`, at most 200 characters."""
    if not is_name(name):
        raise NoteError(f"not a key name: {name[:80]!r}; expected 1 to {MAX_NAME} characters without space or '+'")


def is_name(text: str) -> bool:
    """Return whether `text` can name a key."""
    plain = not any(char.isspace() or char == "+" or 0xD800 <= ord(char) <= 0xDFFF for char in text)
    return 0 < len(text) <= MAX_NAME and plain and not _CONTROL.search(text)


def is_weak(encoded: bytes) -> bool:
    """Return whether this encoding of a point (RFC 8032) is of small order or not canonical.

    Anyone can sign for a public key of small order, and a point has only one canonical encoding.
    """
    # The top bit is the sign of x; small order and canonical form are decided by y.
    y = encoded[:-1] + bytes([encoded[-1] & 0x7F]) if encoded else b""
    return y in _SMALL_ORDER or int.from_bytes(y, "little") >= _PRIME


def _check_characters(text: str) -> None:
    if match := _CONTROL.search(text):
        raise NoteError(f"a note holds no control characters but newlines, found {match[0]!r}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NoteError("a note holds no lone surrogates") from error


def _parse_line(line: str, number: int) -> Signature:
    match = _LINE.fullmatch(line)
    if not match:
        raise NoteError(f"signature line {number} is damaged: {line[:80]!r}; expected '{_MARK}name base64'")
    blob = _decode(match[2], what=f"signature line {number}")
    if len(blob) < 5:
        raise NoteError(f"signature line {number} is damaged: {len(blob)} bytes, expected a key id and a signature")
    return Signature(name=match[1], key_id=blob[:4], blob=blob[4:])


def _decode(text: str, *, what: str) -> bytes:
    """Decode standard base64 in its canonical form, so that no two texts mean the same bytes."""
    try:
        decoded = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise NoteError(f"{what} is not base64: {error}") from error
    if base64.b64encode(decoded).decode() != text:
        raise NoteError(f"{what} is not canonical base64")
    return decoded


def _cosigned(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _names(keys: Iterable[tuple[str, bytes]]) -> str:
    names = [f"{name} ({key_id.hex()})" for name, key_id in keys]
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more if names else "none"

"""Verify a pack of a governed training run: python -I verify.py PACK --trust TRUST [--key READER.pem] [--now TIME]

A pack is one file: the ledger of a run, the signed documents that governed the run, grants to read some of its numbers,
a report for people, and this program. The program needs Python 3.11 and the package `cryptography`. It uses no network,
and nothing of the software that made the pack, with which it shares no line. It follows these specifications:

    container       PKWARE APPNOTE 6.3: stored files only; every byte follows from names and contents
    signatures      Ed25519 (RFC 8032) in DSSE 1.0.2, in C2SP signed-note and in C2SP tlog-cosignature
    ledger          RFC 6962, 2.1 and RFC 9162, 2.1.3.2; C2SP tlog-checkpoint, tlog-tiles, tlog-proof
    statements      in-toto Statement v1; canonical JSON (RFC 8785)
    reading         HPKE (RFC 9180), base mode, X25519 HKDF-SHA256 AES-256-GCM; HKDF-Expand (RFC 5869)

Write TRUST yourself or take it from a source that you trust, never from the pack: the copy in it is the trainer's
choice. READER.pem is your own reader's key, if a grant in the pack is to you (PKCS#8 PEM; its passphrase comes from
EXPLORER_READER_PASSPHRASE). TIME is the time of the judgement, such as 2026-01-31T12:00:00Z; the default is now.

Four lists are printed: what was checked, and how often; what does not hold; what could not be checked, and why; and the
private keys on the host where the pack was made. The exit status is 0 only if a trust file was given and everything
that was checked holds.

Everything in a pack is a stranger's input. Each function below refuses what it does not expect by raising `Refused`,
and reads no more than the limits allow. `verify` gives the order of the checks.
"""

import argparse
import base64
import binascii
import functools
import hashlib
import hmac
import json
import math
import os
import re
import struct
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

# Limits on what a stranger can make this program read or hold in memory: far above any real pack.
MAX_PACK, MAX_FILES, MAX_JSON, MAX_DEPTH = 2**30, 60_000, 2**26, 40
MAX_NOTE, MAX_ORIGIN, MAX_SIGNATURES, MAX_KEYS = 1_000_000, 1_000, 100, 200
SKEW = 300  # seconds by which two clocks may differ
ROLES = ("data-governance", "model-risk", "trainer", "auditor", "evaluator")
GOVERNANCE, RISK, TRAINER = ROLES[:3]
JOINT = "*"  # in place of a class: numbers over several classes


# ---------------------------------------------------------------------------------------------------- the findings


class Refused(Exception):
    """A value that is not as expected. The message says what was found, and what was expected."""


@dataclass
class Findings:
    """The lists that are printed, and the files whose content is determined.

    A file is in `bound` if something outside of it, such as a signature or a digest, determines its content. Every
    other file is named in `failed` or `unchecked`, so that nothing in a pack goes unmentioned.
    """

    checked: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)

    def count(self, what: str, number: int = 1) -> None:
        self.checked[what] = self.checked.get(what, 0) + number

    @contextmanager
    def looking_at(self, what: str) -> Iterator[None]:
        """Record a refusal inside the block as a failure, under this name, and continue after the block."""
        try:
            yield
        except Refused as fault:
            self.failed.append(f"{what}: {fault}" if what else str(fault))


def expect(holds: object, message: str) -> None:
    """Raise `Refused` with this message unless the condition holds."""
    if not holds:
        raise Refused(message)


# ------------------------------------------------------------------------------------------ bytes, JSON and times


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def decode64(text: Any, what: str, *, length: int | None = None, urlsafe: bool = False) -> bytes:
    """Decode base64. Only the canonical spelling of the bytes is accepted, so that no signed text has two."""
    expect(isinstance(text, str), f"{what}: expected base64")
    standard = text.replace("-", "+").replace("_", "/") if urlsafe and not set(text) & {"+", "/"} else text
    try:
        raw = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(f"{what}: not base64: {error}") from error
    expect(base64.b64encode(raw).decode() == standard, f"{what}: not canonical base64")
    expect(length in (None, len(raw)), f"{what}: {len(raw)} bytes, expected {length}")
    return raw


def parse_json(content: bytes, what: str, *, fractions: bool = True, depth: int = MAX_DEPTH) -> Any:
    """Parse JSON within limits: no key twice in an object, finite numbers, whole numbers below 2**53.

    Two programs may read a repeated key or a larger number in two ways (RFC 8259, 4 and 6), so both are refused.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        expect(len(value) == len(pairs), f"{what}: a key is there twice in one object")
        return value

    def finite(text: str) -> float:
        expect(fractions and math.isfinite(float(text)), f"{what}: found {text:.40}, expected a whole or finite number")
        return float(text)

    expect(len(content) <= MAX_JSON, f"{what}: {len(content)} bytes, expected at most {MAX_JSON}")
    try:
        value = json.loads(content.decode(), object_pairs_hook=once, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise Refused(f"{what}: not JSON ({error!s:.100})") from error
    # Level by level, not recursively: what is nested too deeply is refused here before anything recurses into it.
    level, reached = [value], 0
    while level:
        reached += 1
        expect(reached <= depth, f"{what}: nested deeper than {depth} levels")
        large = [item for item in level if isinstance(item, int) and abs(item) >= 2**53]
        expect(not large, f"{what}: a whole number beyond 2**53 - 1")
        inner = [list(item.values()) if isinstance(item, dict) else item for item in level]
        level = [item for group in inner if isinstance(group, list) for item in group]
    return value


def canonical(value: Any, what: str) -> bytes:
    """Encode as RFC 8785: keys in the order of their UTF-16 code units, no spaces, numbers as ECMAScript has them."""
    try:
        return _canonical(value).encode()
    except UnicodeEncodeError as error:
        raise Refused(f"{what}: holds a lone surrogate") from error


def _canonical(value: Any) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
        return f"{{{','.join(f'{json.dumps(key, ensure_ascii=False)}:{_canonical(value[key])}' for key in keys)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    return number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def number(value: float) -> str:
    """Write a finite number as ECMAScript does (ECMA-262, Number::toString): with the fewest digits that identify it,
    and with an exponent from 1e21 on and below 1e-6."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text, point = "".join(map(str, digits)), len(digits) + int(exponent)  # 0.text times 10**point
    if value == 0:
        return "0"
    if 0 < point <= 21:
        text = text.ljust(point, "0")
        shown = f"{text[:point]}.{text[point:]}".removesuffix(".")
    elif -6 < point <= 0:
        shown = f"0.{'0' * -point}{text}"
    else:
        shown = f"{text[0]}.{text[1:]}".removesuffix(".") + f"e{point - 1:+d}"
    return "-" * sign + shown


TYPES = {"text": str, "number": int, "list": list, "object": dict, "flag": bool}
TEXTS = {  # by name: the pattern of a text, and its greatest length
    "digest": (r"[0-9a-f]{64}", 64),
    "line": (r"[ -~]+", 200),
    "name": (r"[a-z][a-z0-9_-]*", 64),
    "path": (r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*", 200),
    "blob-name": (r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*", 220),
    "bits": (r"[01]*", 20_000),
    "float": (  # as Python's float.hex writes it: every bit of a double, in one spelling
        r"(-?0x0\.0p\+0|-?0x1\.[0-9a-f]{13}p(\+([0-9]|[1-9][0-9]{1,2}|10[01][0-9]|102[0-3])"
        r"|-([1-9]|[1-9][0-9]{1,2}|10[01][0-9]|102[0-2]))|-?0x0\.[0-9a-f]{13}p-1022|nan|-?inf)",
        32,
    ),
}
RECORDS = {  # by name: the fields of an object
    "blob": "sha256:digest size:whole",
    "ledger": "origin:line size:whole root:digest",
    "sources": "root:digest attestation:digest",
    "training": "parameters:digest buffers:digest optimizer:digest random:digest",
    "parent": "kind:deletion|model ledger:ledger model:digest? attestation:digest? admitted:{path:float}",
    "same": "layer:line also:[line]+",
    "lanes": "count:whole ranks:[whole]+",
    "traits": "probes:flag= remembers:nothing|classes|model= averages:flag=",
}


def check_form(value: Any, what: str, form: str) -> None:
    """Refuse a value that is not of this form, which is one of:

    text number list object flag    JSON's own types; true and false are no numbers
    whole                           a whole number from 0 to 2**53 - 1
    digest line name path ...       a text of `TEXTS`
    blob ledger sources ...         an object of `RECORDS`
    [form]  [form]+                 a list of values of a form; a list that is not empty
    {key:form}                      an object with any keys of the form `key`, and values of the other form
    one|two|three                   one of these words
    form?                           a value of the form, or null
    """
    if form.endswith("?"):
        if value is not None:
            check_form(value, what, form[:-1])
    elif form in RECORDS:
        shape(value, what, RECORDS[form])
    elif form[0] == "[":
        inner = form.removesuffix("+")[1:-1]
        if not isinstance(value, list) or (form[-1] == "+" and not value):
            raise Refused(f"{what}: expected {form}, found {value!r:.60}")
        for at, item in enumerate(value):
            check_form(item, f"{what}[{at}]", inner)
    elif form[0] == "{":
        key, _, inner = form[1:-1].partition(":")
        if not isinstance(value, dict):
            raise Refused(f"{what}: expected {form}, found {value!r:.60}")
        for name, item in value.items():
            check_form(name, f"{what}: key", key)
            check_form(item, f"{what}.{name:.80}", inner)
    elif not _is_scalar(value, form):
        raise Refused(f"{what}: expected {form}, found {value!r:.60}")


def _is_scalar(value: Any, form: str) -> bool:
    if form in TEXTS:
        pattern, longest = TEXTS[form]
        return isinstance(value, str) and len(value) <= longest and re.fullmatch(pattern, value) is not None
    if form == "whole":
        return type(value) is int and 0 <= value < 2**53  # `type`, since bool is a subclass of int
    if form in TYPES:
        return isinstance(value, TYPES[form]) and isinstance(value, bool) == (form == "flag")
    return value in form.split("|")


@functools.cache
def _fields(fields: str) -> tuple[dict[str, str], frozenset[str], bool]:
    """Return the form of each field, the fields that may be left out, and whether other fields are allowed."""
    pairs = [pair.partition(":") for pair in fields.split() if pair != "..."]
    left_out = frozenset(name for name, _, form in pairs if form.endswith("="))
    return {name: form.removesuffix("=") for name, _, form in pairs}, left_out, fields.endswith("...")


def shape(value: Any, what: str, fields: str) -> dict[str, Any]:
    """Return an object that has exactly these fields, such as "name:text size:number? keys:[text]=".

    Their forms are those of `check_form`. A field with = behind it may be left out; a last ... allows other fields.
    """
    expect(isinstance(value, dict), f"{what}: expected an object")
    forms, left_out, others = _fields(fields)
    missing, strange = sorted(forms.keys() - value.keys() - left_out), sorted(value.keys() - forms.keys())
    expect(not missing, f"{what}: {', '.join(missing[:3])} is missing")
    expect(others or not strange, f"{what}: unknown key {', '.join(strange[:3])}; known: {', '.join(forms)}")
    for name in forms.keys() & value.keys():
        check_form(value[name], f"{what}: {name}", forms[name])
    return value


def texts(value: Any, what: str) -> list[str]:
    """Return a list of texts, each once."""
    sound = isinstance(value, list) and all(isinstance(text, str) for text in value) and len({*value}) == len(value)
    expect(sound, f"{what}: expected a list of texts, each once")
    return value


def seconds(text: object, what: str) -> int:
    """Parse a time in UTC such as 2026-01-31T12:00:00Z into seconds since 1970."""
    try:
        expect(isinstance(text, str) and re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z", text), "")
        return int(datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())
    except (Refused, ValueError) as error:
        raise Refused(f"{what}: not a time: {text!r:.40}; expected such as 2026-01-31T12:00:00Z") from error


def utc(moment: int) -> str:
    """Write a time for people."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{moment} seconds after 1970"


# ------------------------------------------------------------------------------------- the container, and its names

LOCAL, CENTRAL, END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")
VERSION, UNIX, DAY = 20, 3 << 8, 1 << 5 | 1  # of the format; made on Unix; 1 January 1980, the date of every file
REGULAR = 0o100644 << 16

NAMES = re.compile(
    r"README\.txt|pack\.json|pack\.dsse\.json|report\.(?:html|json)|(?:run|loop|environment)\.json|verify\.py"
    r"|origin\.json|model/(?:attestation|model)\.json|(?:grants|deletions)/[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.json"
    r"|governance/(?:trust|taxonomy|policy|tags)\.json|governance/tags\.parquet"
    r"|(?:proofs|erasures)/(?:0|[1-9][0-9]{0,15})\.tlog-proof|ledger/checkpoint|ledger/witness/[A-Za-z0-9_-][A-Za-z0-9._+-]{0,250}\.note"
    r"|ledger/tile/(?:entries|[0-9]{1,2})/(?:x[0-9]{3}/){0,6}[0-9]{3}(?:\.p/[1-9][0-9]{0,2})?"
    r"|ledger/blobs/sha256/[0-9a-f]{2}/[0-9a-f]{64}"
)


def open_container(content: bytes) -> dict[str, bytes]:
    """Return the files of a pack: a zip in which every byte follows from names and contents.

    A zip names its files twice, in local headers and in a directory at the end, and programs differ in which they read.
    Here the directory is computed from the local headers and must match, so that no two programs see different packs.
    Files are stored, not compressed, so that a small pack cannot expand into a large one.
    """
    files: dict[str, bytes] = {}
    at, directory, last = 0, bytearray(), ""
    # Local headers and contents (APPNOTE 4.3.7), in strictly ascending order of names.
    while content[at : at + 4] == b"PK\x03\x04" and len(content) >= at + LOCAL.size:
        *_, crc, size, _, length, _ = LOCAL.unpack_from(content, at)
        raw, start = content[at + LOCAL.size : at + LOCAL.size + length], at + LOCAL.size + length
        name, body = raw.decode("ascii", errors="replace"), content[start : start + size]
        expect(NAMES.fullmatch(name), f"no such file belongs to a pack: {name!r:.120}")
        expect(name > last, f"{name}: twice, or not in the order of names, after {last}")
        expect(len(body) == size and zlib.crc32(body) == crc, f"{name}: cut short or altered: its checksum differs")
        common = VERSION, 0, 0, 0, DAY, crc, size, size, length, 0
        expect(content[at:start] == LOCAL.pack(b"PK\x03\x04", *common) + raw, f"{name}: its header is not a pack's")
        directory += CENTRAL.pack(b"PK\x01\x02", VERSION | UNIX, *common, 0, 0, 0, REGULAR, at) + raw
        files[name], last, at = body, name, start + size
        expect(len(files) <= MAX_FILES, f"more than {MAX_FILES} files")
    # The directory (APPNOTE 4.3.12 and 4.3.16), and nothing after it.
    end = END.pack(b"PK\x05\x06", 0, 0, len(files), len(files), len(directory), at, 0)
    expect(files and content[at:] == bytes(directory) + end, f"not a pack: unexpected bytes from byte {at} on")
    expect(len({name.casefold() for name in files}) == len(files), "two names that differ only in case")
    return files


# ------------------------------------------------------------------------------ the trust file, and signatures under it

PRIME = 2**255 - 19
SMALL_ORDER = {  # Ed25519 points of order 1, 2, 4 and 8 (RFC 8032, 5.1.3), without the sign bit
    "0000000000000000000000000000000000000000000000000000000000000000",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}


def is_weak(point: bytes) -> bool:
    """Return whether a point is of small order, so that anyone can sign under it, or is not in canonical form.

    RFC 8032 permits the first, and not every library refuses the second: two verifiers could disagree about either.
    """
    y = point[:-1] + bytes([point[-1] & 0x7F]) if point else b""
    return y.hex() in SMALL_ORDER or int.from_bytes(y, "little") >= PRIME


@dataclass(frozen=True)
class Key:
    """A public key of an authority, and the time in which it may sign."""

    owner: str
    role: str
    branches: tuple[str, ...]
    public: bytes
    begins: int  # seconds since 1970, like the end
    ends: int  # by age or revocation
    whose: str = ""  # in words, of a key that a trainer delegated for this run; such a key is in no trust file
    lapse: str = ""  # in words: what happens to it when it ends

    def verifies(self, signature: bytes, message: bytes) -> bool:
        if is_weak(signature[:32]):  # R, a point as well
            return False
        try:
            Ed25519PublicKey.from_public_bytes(self.public).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True

    def held(self, moment: int) -> bool:
        return self.begins <= moment < self.ends


@dataclass(frozen=True)
class Trust:
    """The trust file: the authorities that count. It is not signed, because the reader brings it."""

    keys: tuple[Key, ...]
    documents: dict[str, int]  # by role: how many authorities have to sign a document
    checkpoints: dict[str, int]  # by role: how many have to cosign a checkpoint; of trainers, one has to sign it
    digest: str


def read_trust(content: bytes, what: str) -> Trust:
    """Read a trust file."""
    value = shape(parse_json(content, what), what, "format:text name:text authorities:list quorum:object")
    expect(value["format"] == "explorer/trust/v1", f"{what}: not a trust file of version 1")
    quorum = shape(value["quorum"], f"{what}: quorum", "documents:object checkpoints:object")
    for role, number in [*quorum["documents"].items(), *quorum["checkpoints"].items()]:
        expect(role in ROLES and type(number) is int and number > 0, f"{what}: quorum: {role!r:.40}: {number!r:.40}")
    keys: list[Key] = []
    for at, authority in enumerate(value["authorities"]):
        here = f"{what}: authorities[{at}]"
        expect(isinstance(authority, dict), f"{here}: expected an object")
        authority.setdefault("branches", [])  # defaults are written out before the digest is computed
        shape(authority, here, "name:text role:text branches:list keys:list")
        expect(authority["role"] in ROLES, f"{here}: unknown role {authority['role']!r:.40}; known: {', '.join(ROLES)}")
        expect(authority["keys"] and authority["name"] not in {key.owner for key in keys}, f"{here}: twice, or no key")
        keys += [_trusted(authority, key, f"{here}: a key") for key in authority["keys"]]
    # Under two names, one key would count twice in a quorum.
    expect(len({key.public for key in keys}) == len(keys) <= MAX_KEYS, f"{what}: a key twice, or more than {MAX_KEYS}")
    digest = sha256(canonical(value, what)).hex()
    return Trust(tuple(keys), quorum["documents"], quorum["checkpoints"], digest)


def _trusted(authority: dict[str, Any], key: Any, what: str) -> Key:
    expect(isinstance(key, dict), f"{what}: expected an object")
    key.setdefault("revoked", None)
    shape(key, what, "public_key:text not_before:text not_after:text revoked:object?")
    begins, ends = seconds(key["not_before"], what), seconds(key["not_after"], what)
    expect(begins < ends, f"{what}: not_before is not before not_after")
    if key["revoked"] is not None:
        ends = min(ends, seconds(shape(key["revoked"], what, "at:text reason:text")["at"], what))
    public = decode64(key["public_key"], what, length=32)
    expect(not is_weak(public), f"{what}: a weak key, under which anyone can sign")
    branches = tuple(texts(authority["branches"], f"{what}: branches"))
    return Key(authority["name"], authority["role"], branches, public, begins, ends)


def covers(branch: str, path: str) -> bool:
    """Return whether a class is in a branch of the taxonomy."""
    return path == branch or path.startswith(f"{branch}/")


@dataclass(frozen=True)
class Envelope:
    """A DSSE envelope: a payload, its type, and signatures over both, none of them checked yet."""

    what: str
    payload: bytes
    kind: str
    signatures: tuple[bytes, ...]
    hints: tuple[Any, ...]  # a key id for each signature, or None
    more: tuple[str, ...]  # fields that DSSE does not define

    @property
    def signed(self) -> bytes:
        """Return the bytes that a signature covers (DSSE, PAE)."""
        parts = (self.kind.encode(), self.payload)
        return b"DSSEv1" + b"".join(b" %d %b" % (len(part), part) for part in parts)

    def loose(self, trust: Trust) -> list[str]:
        """Return the parts of the envelope that no signature of a known key covers, in words."""
        ids = {key_id(key.public): key for key in trust.keys}
        by = [next((key for key in trust.keys if key.verifies(sig, self.signed)), None) for sig in self.signatures]
        pairs = [(key, hint) for key, hint in zip(by, self.hints, strict=True) if key is not None and hint]
        words = [f"{by.count(None)} signatures of keys that the trust file does not have"] if None in by else []
        if any(ids.get(hint) != key for key, hint in pairs):
            words.append("key ids that are not of the keys that have signed")
        return words + ([f"the names {', '.join(self.more[:3])}"] if self.more else [])

    def signers(self, trust: Trust) -> list[Key]:
        """Return the keys that have signed. Key ids are ignored: no signature covers them."""
        return [key for key in trust.keys if any(key.verifies(sig, self.signed) for sig in self.signatures)]

    def require(
        self, trust: Trust, role: str, value: dict[str, Any], now: int, branches: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the authorities of a role that vouch for the payload `value`, as many as the trust file requires.

        The payload has to be valid now. Keys count if they were valid when it was issued, and are entitled to all of
        these branches.
        """
        issued, expires = seconds(value.get("issued"), self.what), seconds(value.get("expires"), self.what)
        expect(issued <= now < expires, f"{self.what}: valid from {utc(issued)} to {utc(expires)}, not at {utc(now)}")
        signers, needed, branches = self.signers(trust), trust.documents.get(role), [*branches]
        expect(signers, f"{self.what}: not signed by any key of the trust file, or changed since")
        able = [key for key in signers if key.role == role and key.held(issued)]
        able = [key for key in able if all(any(covers(own, path) for own in key.branches) for path in branches)]
        # Authorities are counted, not keys: two keys of one authority count once.
        names = tuple(sorted({key.owner for key in able}))
        signed = ", ".join(f"{key.owner} ({key.role})" for key in signers)
        asked = f"{needed or 'none'} of the role {role}, entitled at {utc(issued)} to {', '.join(branches) or 'it'}"
        # A role for which the trust file sets no number vouches for nothing.
        expect(needed and len(names) >= needed, f"{self.what}: it takes {asked}; signed by {signed}")
        return names


def open_envelope(value: Any, what: str, kind: str) -> Envelope:
    """Read a DSSE envelope of a payload type. Unknown fields are ignored, as DSSE requires, but named in `loose`."""
    shape(value, what, "payload:text payloadType:text signatures:list ...")
    expect(0 < len(value["signatures"]) <= MAX_SIGNATURES, f"{what}: {len(value['signatures'])} signatures")
    entries = [shape(entry, what, "sig:text ...") for entry in value["signatures"]]
    expect(value["payloadType"] == kind, f"{what}: holds {value['payloadType']!r:.80}, expected {kind!r}")
    payload = decode64(value["payload"], what, urlsafe=True)
    hints = tuple(entry.get("keyid") for entry in entries)
    expect(all(isinstance(hint, str | None) for hint in hints), f"{what}: keyid: expected text")
    more = {*value} - {"payload", "payloadType", "signatures"}
    more |= {name for entry in entries for name in entry} - {"sig", "keyid"}
    signatures = tuple(decode64(entry["sig"], what, urlsafe=True) for entry in entries)
    return Envelope(what, payload, kind, signatures, hints, tuple(sorted(more)))


def key_id(public: bytes) -> str:
    """Return the id that `securesystemslib` gives an Ed25519 key."""
    key = {"keytype": "ed25519", "keyval": {"public": public.hex()}, "scheme": "ed25519"}
    return sha256(canonical(key, "key")).hex()


# ---------------------------------------------------------------------------------------- signed notes, checkpoints

LINE = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")
PLAIN, COSIGNED = 1, 4  # types in C2SP signed-note, both Ed25519: over the text; over a time and the text


@dataclass(frozen=True)
class Note:
    """A checkpoint and its signature lines, none of them checked yet."""

    text: str
    origin: str
    size: int
    root: bytes
    lines: tuple[tuple[str, bytes], ...]  # name; key id of 4 bytes, and signature

    def signatures(self, trust: Trust) -> list[tuple[Key, int]]:
        """Return the keys of the trust file that have signed, each with the time of its cosignature (trainers: 0).

        A trainer signs as the log itself, all others cosign. A false signature of a known key is refused; signatures of
        unknown keys are ignored (C2SP signed-note).
        """
        signed = []
        for key in trust.keys:
            for signature in [blob[4:] for name, blob in self.lines if (name, blob[:4]) == self.line_of(key, trust)]:
                moment, message = 0, self.text
                if key.role != TRAINER:
                    expect(len(signature) == 72, f"the cosignature of {key.owner} has {len(signature)} bytes")
                    moment, signature = int.from_bytes(signature[:8]), signature[8:]
                    message = f"cosignature/v1\ntime {moment}\n{self.text}"
                name = self.origin if key.role == TRAINER else key.owner
                expect(key.verifies(signature, message.encode()), f"the signature of {name} does not match the text")
                signed.append((key, moment))
        return signed

    def line_of(self, key: Key, trust: Trust) -> tuple[str, bytes] | None:
        """Return the name and key id of a key's signature lines here; None for a trainer who may not sign this log."""
        if key.role != TRAINER:
            return key.owner, note_id(key.owner, COSIGNED, key.public)
        # A log whose name begins with a trainer's name is that trainer's, by the longest such name. Any other log may
        # be signed by every trainer.
        trainers = {other.owner for other in trust.keys if other.role == TRAINER}
        namesakes = {owner for owner in trainers if self.origin.startswith(f"{owner}/")}
        if key.owner != max(namesakes, key=len, default=key.owner):
            return None
        return self.origin, note_id(self.origin, PLAIN, key.public)

    def strangers(self, trust: Trust) -> int:
        """Count the signature lines of keys that the trust file does not have."""
        known = [self.line_of(key, trust) for key in trust.keys]
        return sum((name, blob[:4]) not in known for name, blob in self.lines)


def note_id(name: str, kind: int, public: bytes) -> bytes:
    """Return the id of a key in a signed note."""
    return sha256(name.encode(), b"\n", bytes([kind]), public)[:4]


def read_note(content: bytes, what: str) -> Note:
    """Read a checkpoint: a signed note whose text is an origin, a size, a root, and extension lines, if any."""
    expect(len(content) <= MAX_NOTE, f"{what}: {len(content)} bytes, expected at most {MAX_NOTE}")
    try:
        whole = content.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{what}: not UTF-8") from error
    # The last empty line separates text and signatures. No control characters but line feeds.
    text, gap, rest = whole.rpartition("\n\n")
    text, lines = f"{text}\n", rest.split("\n")
    sound = gap and lines.pop() == "" and 0 < len(lines) <= MAX_SIGNATURES
    sound = sound and not re.search(r"[\x00-\x09\x0b-\x1f]", whole)
    matches = [LINE.fullmatch(line) for line in lines]
    expect(sound and all(matches), f"{what}: not a signed note")
    blobs = [(match[1], decode64(match[2], what)) for match in matches if match]
    expect(all(len(blob) > 4 for _, blob in blobs), f"{what}: not a signed note: a line without a signature")
    # The text (C2SP tlog-checkpoint).
    head = text.split("\n")
    expect(len(head) >= 4 and re.fullmatch(r"0|[1-9][0-9]{0,15}", head[1]), f"{what}: not a checkpoint")
    expect(0 < len(head[0]) <= MAX_ORIGIN and all(head[3:-1]), f"{what}: not a checkpoint: an empty or long line")
    return Note(text, head[0], int(head[1]), decode64(head[2], what, length=32), tuple(blobs))


def judge(note: Note, others: Sequence[Note], trust: Trust, now: int) -> tuple[list[str], list[str]]:
    """Return the signers and the cosigners of a checkpoint, in words, if the trust file's quorum is met.

    `others` are the notes of witnesses, whose cosignatures count if they are of the same checkpoint.
    """
    asked = dict(trust.checkpoints)
    expect(asked.pop(TRAINER, 0) == 1, "the trust file does not ask for one trainer, so no checkpoint can pass")
    # The earliest cosignature of each authority, by role. It counts if its key was valid at its time.
    times: dict[str, dict[str, int]] = {}
    for other in [note, *(other for other in others if other.text == note.text)]:
        for key, moment in other.signatures(trust):
            if key.role != TRAINER and key.held(moment) and moment <= now + SKEW:
                of_role = times.setdefault(key.role, {})
                of_role[key.owner] = min(moment, of_role.get(key.owner, moment))
    met = []
    for role, needed in asked.items():
        ordered = sorted(times.get(role, {}).values())
        expect(len(ordered) >= needed, f"cosigned by {len(ordered)} of the role {role}; the quorum asks for {needed}")
        met.append(ordered[needed - 1])
    # A trainer's signature has no time of its own. It existed when the quorum was met, at the latest; without a quorum,
    # at the first cosignature; without any, only now is certain.
    counted = [moment for of_role in times.values() for moment in of_role.values()]
    latest = min(max(met) if met else min(counted, default=now), now)
    signed = [key for key, _ in note.signatures(trust) if key.role == TRAINER]
    expect(signed, "signed by no trainer of the trust file")
    valid = sorted({key.whose or key.owner for key in signed if key.held(latest)})
    lapse = f": {signed[0].lapse}" if signed[0].lapse else ""
    expect(valid, f"signed by {signed[0].owner} with a key that is not valid at {utc(latest)}{lapse}")
    return valid, [f"{name} at {utc(at)}" for of_role in times.values() for name, at in sorted(of_role.items())]


# ------------------------------------------------------------------------------------------------------- the ledger


def leaf_hash(entry: bytes) -> bytes:
    return sha256(b"\x00", entry)


class Tree:
    """The Merkle tree of RFC 6962 over leaf hashes.

    `levels[k]` are the hashes of the complete subtrees of 2**k leaves: from these, the root of any size takes a few
    hashes.
    """

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.size, self.levels = len(leaves), [list(leaves)]
        while len(row := self.levels[-1]) > 1:
            self.levels.append([sha256(b"\x01", *row[at : at + 2]) for at in range(0, len(row) & ~1, 2)])

    def root(self, size: int | None = None) -> bytes:
        """Return the root over the first `size` leaves, by default over all."""
        # The bits of the size name the complete subtrees from left to right; they are hashed from right to left.
        size, at, subtrees = self.size if size is None else size, 0, []
        for level in reversed(range(len(self.levels))):
            if size >> level & 1:
                subtrees.append(self.levels[level][at >> level])
                at += 1 << level
        root = subtrees.pop() if subtrees else sha256()
        while subtrees:
            root = sha256(b"\x01", subtrees.pop(), root)
        return root

    def tiles(self) -> dict[str, bytes]:
        """Return every tile of the tree by its path: rows of up to 256 hashes of every eighth level."""
        made: dict[str, bytes] = {}
        for level, row in enumerate(self.levels[::8]):
            parts = [row[at : at + 256] for at in range(0, len(row), 256)]
            made |= {spell(str(level), number, len(part)): b"".join(part) for number, part in enumerate(parts)}
        return made


def check_inclusion(proof: Sequence[bytes], index: int, size: int, leaf: bytes, expected: bytes) -> None:
    """Check that a leaf is in a tree, by RFC 9162, 2.1.3.2."""
    expect(0 <= index < size, f"no entry {index} of {size}")
    position, last, computed = index, size - 1, leaf
    for sibling in proof:
        expect(last, "the proof is too long")
        if position & 1 or position == last:
            computed = sha256(b"\x01", sibling, computed)
            # At the right edge, levels without a sibling have no hash in the proof.
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            computed = sha256(b"\x01", computed, sibling)
        position, last = position >> 1, last >> 1
    expect(not last and computed == expected, f"the proof of entry {index} does not lead to the root")


def spell(kind: str, number: int, width: int) -> str:
    """Return the path of a tile or bundle (C2SP tlog-tiles), such as tile/0/x001/x234/067.p/112."""
    groups = [f"{number % 1000:03}"]
    while number := number // 1000:
        groups.insert(0, f"x{number % 1000:03}")
    return f"ledger/tile/{kind}/{'/'.join(groups)}{'' if width == 256 else f'.p/{width}'}"


def read_leaves(files: dict[str, bytes], size: int) -> list[bytes]:
    """Return the entries as bytes, from their bundles: each is preceded by its length, 2 bytes big-endian."""
    leaves: list[bytes] = []
    for number in range(-(-size // 256)):
        width = min(256, size - number * 256)
        path = spell("entries", number, width)
        expect(path in files, f"{path}: missing")
        content, at = files[path], 0
        for _ in range(width):
            end = at + 2 + int.from_bytes(content[at : at + 2])
            expect(at + 2 <= end <= len(content), f"{path}: ends inside entry {len(leaves)}")
            leaves.append(content[at + 2 : end])
            at = end
        expect(at == len(content), f"{path}: {len(content) - at} bytes after its last entry")
    return leaves


MAX_ENTRY, ENTRY_DEPTH, MAX_BLOBS = 65_535, 8, 256  # the first is the largest length that 2 bytes can say
KIND = re.compile(r"[a-z][a-z0-9-]{0,39}")
PROJECT = ("access", "deletion", "erasure", "grant", "observation")  # kinds of entries of a project's ledger
KINDS = {
    "genesis": "run:line recipe:digest code:digest environment:digest data:digest tags:{name:sources} taxonomy:digest? "
    "policy:digest? trust:digest? judged:whole? strategy:plain|microbatch|fused seed:whole initial:digest begins:whole "
    "start:training? classes:[path] layers:[line] parents:[parent] shared:[same]= "
    "methods:{name:traits}?= fitted:{normalisation|tokeniser:line}?= delegation:digest?= lanes:lanes?=",
    "step": "step:whole phase:line slots:digest examples:[whole] numbers:[digest?] joint:digest? quarantined:whole "
    "weights:digest? updated:bits estimated:flag=",
    "profile": "step:whole probes:digest classes:{path:digest} joint:digest",
    "state": "step:whole state:training sketches:[digest?]=",
    "decision": "step:whole action:freeze|re-open|override|activation|selection|re-execution|ranks|loss-scale "
    "rule:name parameters:{name:float} condition:name? subjects:[path] layers:[line] evidence:{path:digest}",
    "trunk": "step:whole run:line ledger:ledger state:training",
    "end": "step:whole outcome:finished|stopped state:training metrics:{name:float}",
}
"""The fields of version 1 of each kind of entry of a run, apart from kind, version and blobs."""
GONE = {
    "erasure": "ledger:ledger classes:[path] records:whole",
    "deletion": "ledger:ledger result:ledger? request:digest classes:[path] authorities:[line] records:whole "
    "level:G0|G1|G2|G3 evidence:{name:digest}",
}
"""The same for the entries of a project's ledger that record an erasure of a run's numbers."""


def read_entry(leaf: bytes, index: int) -> dict[str, Any]:
    """Read an entry: a JSON object in canonical form, with kind, version and blobs.

    Other fields are checked for the kinds and versions that are known; later ones may have any.
    """
    what = f"entry {index}"
    expect(len(leaf) <= MAX_ENTRY, f"{what}: {len(leaf)} bytes, expected at most {MAX_ENTRY}")
    value = parse_json(leaf, what, fractions=False, depth=ENTRY_DEPTH)
    shape(value, what, "kind:text version:whole blobs:{blob-name:blob} ...")
    expect(canonical(value, what) == leaf, f"{what}: not in canonical form")
    kind, version = value["kind"], value["version"]
    expect(KIND.fullmatch(kind) and 0 < version < 2**31, f"{what}: no kind of entry: {kind!r:.60}, version {version}")
    expect(len(value["blobs"]) <= MAX_BLOBS, f"{what}: {len(value['blobs'])} blobs, at most {MAX_BLOBS}")
    # Keys are ASCII at every depth, so that their order is the same by code units, code points and bytes.
    values: list[Any] = [value]
    while values:
        item = values.pop()
        if isinstance(item, dict):
            expect(all(map(str.isascii, item)), f"{what}: a key that is not ASCII")
        values += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    if kind in KINDS and version == 1:
        shape(value, f"{what}: {kind}", f"kind:text version:whole blobs:object {KINDS[kind]}")
    return value


@dataclass(frozen=True)
class Segment:
    """The steps before a recorded state, whose entry has the blobs with their numbers."""

    first: int  # step
    steps: tuple[tuple[int, dict[str, Any]], ...]  # number of the entry, and the step; the latest execution of each
    state: int  # number of the entry


@dataclass
class Run:
    """A run, as its ledger records it."""

    entries: list[dict[str, Any]]
    tree: Tree
    segments: list[Segment]
    superseded: int  # steps that were executed again
    unknown: int  # entries of unknown kinds or versions

    @property
    def genesis(self) -> dict[str, Any]:
        return self.entries[0]


def read_run(files: dict[str, bytes], note: Note) -> Run:
    """Read the entries, rebuild the tree from them and compare it with its root and every tile."""
    leaves = read_leaves(files, note.size)
    tree = Tree([leaf_hash(leaf) for leaf in leaves])
    made = tree.tiles()
    stored = {name: content for name, content in files.items() if name.startswith("ledger/tile/")}
    bundles = {spell("entries", at, min(256, note.size - at * 256)) for at in range(-(-note.size // 256))}
    expect(tree.root() == note.root, f"the {note.size} entries do not have the root that the checkpoint names")
    # No tile is missing, altered or superfluous. Bundles were read in full above.
    for name in sorted({*made, *(stored.keys() - bundles)}):
        expect(stored.get(name) == made.get(name), f"{name}: not what the entries give")
    return _in_order([read_entry(leaf, index) for index, leaf in enumerate(leaves)], tree)


def _in_order(entries: list[dict[str, Any]], tree: Tree) -> Run:
    """Check the order of the entries, and return the run.

    A run begins with its only genesis, has nothing after its end, and counts its steps upwards; only a decision to
    re-execute sets the count back.
    """
    expect(entries and entries[0]["kind"] == "genesis" and entries[0]["version"] == 1, "entry 0: expected a genesis")
    genesis, clock, unknown = entries[0], entries[0]["begins"], 0
    texts(genesis["classes"], "entry 0: classes")
    texts(genesis["layers"], "entry 0: layers")
    for index, entry in enumerate(entries[1:], 1):
        kind, what = entry["kind"], f"entry {index}"
        expect(entries[index - 1]["kind"] != "end", f"{what}: {kind} after the end")
        expect(kind not in ("genesis", *PROJECT), f"{what}: a {kind} in a run")
        # A later version of a known kind may count steps: after it, the number of steps is unknown.
        if kind not in KINDS or entry["version"] != 1:
            unknown += 1
            clock = None if kind in KINDS else clock
            continue
        at, again = entry["step"], kind == "decision" and entry["action"] == "re-execution"
        sound = at >= 0 and (clock is None or at == clock or (again and at < clock))
        expect(sound, f"{what}: {kind} at {at} steps, after {clock} were done")
        if kind == "step":
            lengths = [len(entry[name]) for name in ("examples", "numbers", "updated")]
            sound = lengths == [len(genesis["classes"]), len(genesis["classes"]), len(genesis["layers"])]
            expect(sound, f"{what}: of other classes or layers than the genesis")
        clock = at + (kind == "step")
    # Segments: the steps between two states, if the ledger has all of them. A step number may be as large as 2**53, so
    # a range is walked only if it can be complete.
    steps, states, superseded = _latest(entries)
    segments, first = [], genesis["begins"]
    for stop, index in states:
        span = range(first, stop) if stop - first <= len(steps) else ()
        present = tuple((steps[step], entries[steps[step]]) for step in span if step in steps)
        if present and len(present) == stop - first:
            segments.append(Segment(first, present, index))
        first = stop
    return Run(entries, tree, segments, superseded, unknown)


def _latest(entries: list[dict[str, Any]]) -> tuple[dict[int, int], list[tuple[int, int]], int]:
    """Return the latest executions: the entry of each step, and for each state the steps done and its entry; then the
    number of steps that were executed again later."""
    steps: dict[int, int] = {}
    states: list[tuple[int, int]] = []
    since, superseded = 2**53, 0
    # Backwards: a decision to re-execute from a step supersedes the entries before it that are at that step or later.
    for index in range(len(entries) - 1, 0, -1):
        entry = entries[index]
        kind, known = entry["kind"], entry["version"] == 1
        if known and kind == "decision" and entry["action"] == "re-execution":
            since = min(since, entry["step"])
        elif known and kind == "step":
            last = entry["step"] < since and entry["step"] not in steps
            superseded += not last
            steps |= {entry["step"]: index} if last else {}
        elif known and kind == "state" and entry["step"] <= since:
            states.append((entry["step"], index))
    return steps, states[::-1], superseded


def blob_path(digest: str) -> str:
    return f"ledger/blobs/sha256/{digest[:2]}/{digest}"


def check_blobs(files: dict[str, bytes], run: Run, erased: dict[str, list[int]], findings: Findings) -> None:
    """Check that every blob which an entry names is here and matches its digest, or was erased on record.

    Without the record, a trainer could withhold the numbers that incriminate a run and call them erased.
    """
    named: dict[str, set[str]] = {}  # by path: the blob's names in entries
    for entry in run.entries:
        for name, blob in entry["blobs"].items():
            path = blob_path(blob["sha256"])
            named.setdefault(path, set()).add(name)
            same = path not in files or len(files[path]) == blob["size"]
            expect(same, f"blob {blob['sha256']}: of another size than its entry says")
    # Blobs that are here.
    for path in [path for path in files if path.startswith("ledger/blobs/")]:
        expect(path in named, f"{path}: no entry names it")
        digest = path.rpartition("/")[2]
        expect(sha256(files[path]).hex() == digest, f"{path}: the blob was altered: its name is its digest")
        findings.bound.add(path)
        findings.count("blobs, each with the digest in its name and named by an entry")
    # Blobs that are missing. One that has several names must have been erased under each.
    gone: dict[str, int] = {}
    for path in sorted(named.keys() - files.keys()):
        records = [_erased_by(name, erased) for name in sorted(named[path])]
        which = ", ".join(map(str, sorted({index for entries in records for index in entries})))
        why = f"erased: entry {which} of the project's ledger" if all(records) else WITHHELD
        words = f"{min(named[path])}: {why}"
        gone[words] = gone.get(words, 0) + 1
    for words, number in gone.items():
        (findings.failed if words.endswith(WITHHELD) else findings.unchecked).append(f"{number} blobs {words}")


WITHHELD = "missing, and no entry of the project's ledger says that it was erased"


def _erased_by(name: str, erased: dict[str, list[int]]) -> list[int]:
    """Return the entries that record the erasure of a blob with this name: those of its class; of any for joint
    numbers, since an erasure of one class takes them along."""
    what, _, path = name.partition("/")
    if name == "joint":
        return [index for entries in erased.values() for index in entries]
    return erased.get(path, []) if what in ("numbers", "sketches", "evidence") else []


def read_erasures(
    files: dict[str, bytes], note: Note, trust: Trust, now: int, findings: Findings
) -> dict[str, list[int]]:
    """Return the entries of the project's ledger that record erasures from this very run, by class.

    Each comes with a proof that it is in that ledger, whose checkpoint has to meet the same quorum as the run's.
    """
    state = {"origin": note.origin, "size": note.size, "root": note.root.hex()}
    erased: dict[str, list[int]] = {}
    for name in [name for name in files if name.startswith("erasures/")]:
        with findings.looking_at(name):
            index, leaf, hashes, rest = read_proof(name, files[name])
            project = read_note(rest, name)
            judge(project, [], trust, now)
            expect(leaf is not None, "the entry itself is missing")
            check_inclusion(hashes, index, project.size, leaf_hash(leaf or b""), project.root)
            entry = read_entry(leaf or b"", index)
            expect(entry["kind"] in GONE and entry["version"] == 1, f"a {entry['kind']} entry erases nothing")
            shape(entry, name, f"kind:text version:whole blobs:object {GONE[entry['kind']]}")
            expect(entry["ledger"] == state, "about another ledger, or another state of it")
            for path in entry["classes"]:
                erased.setdefault(path, []).append(index)
            findings.count("erasures on the record of the project")
            _covered(name, project, trust, findings)
    return erased


MAX_WITNESSES = 100  # notes that are read: anyone who can write to a ledger's directory can add some


def check_ledger(files: dict[str, bytes], trust: Trust | None, now: int, findings: Findings) -> tuple[Note, Run]:
    """Check the whole ledger: tree, entries, order, blobs, signatures, and the checkpoints that witnesses have seen."""
    expect("ledger/checkpoint" in files, "ledger/checkpoint: missing")
    note = read_note(files["ledger/checkpoint"], "ledger/checkpoint")
    run = read_run(files, note)
    findings.bound |= {name for name in files if name.startswith("ledger/tile/")}
    findings.count("entries, in canonical form and in a possible order", note.size)
    findings.count("tiles of the tree, rebuilt from the entries", len(run.tree.tiles()))
    with findings.looking_at(""):
        erased = {} if trust is None else read_erasures(files, note, trust, now, findings)
        check_blobs(files, run, erased, findings)
    if trust is not None:
        logs = trust
        with findings.looking_at(""):
            logs = with_delegate(files, note, trust)
        witnesses = read_witnesses(files, note, run, logs, findings)
        with findings.looking_at("ledger/checkpoint"):
            signed, cosigned = judge(note, witnesses, logs, now)
            by = f"cosigned by {', '.join(cosigned)}" if cosigned else "without cosignatures"
            findings.count(f"checkpoint, signed by {', '.join(signed)}, {by}")
            _covered("ledger/checkpoint", note, logs, findings)
    if run.entries[-1]["kind"] != "end":
        findings.unchecked.append("later entries: the ledger does not end with 'end', so there may be more")
    if run.superseded:
        findings.unchecked.append(f"{run.superseded} steps that were executed again: only the latest execution is read")
    if run.unknown:
        findings.unchecked.append(f"{run.unknown} entries of unknown kinds or versions: their meaning")
    return note, run


MAX_DELEGATION, MAX_SPAN = 2**16, 366 * 86_400  # bytes; seconds


def with_delegate(files: dict[str, bytes], note: Note, trust: Trust) -> Trust:
    """Return the keys that may sign this ledger: those of the trust file, and the one that a trainer delegated for it.

    A run that another machine executes has a key of its own. The first entry names the trainer's statement about it,
    which has to be about this ledger, this run and this plan. The key counts for checkpoints of this ledger only. It
    counts until the delegation expires, or the trainer's key that signed it expires or is revoked.
    """
    leaves = read_leaves(files, min(note.size, 256))  # the first bundle, which `read_run` compares with the root
    genesis = read_entry(leaves[0], 0) if leaves else {}
    if genesis.get("kind") != "genesis" or genesis["version"] != 1 or genesis.get("delegation") is None:
        return trust
    what, named = "entry 0: delegation", genesis["blobs"].get("delegation", {"sha256": "0" * 64})["sha256"]
    content = _needed(files, blob_path(named))
    expect(sha256(content).hex() == named and len(content) <= MAX_DELEGATION, f"{what}: altered, or too large")
    envelope = open_envelope(parse_json(content, what), what, STATEMENT)
    expect(sha256(envelope.payload).hex() == genesis["delegation"], f"{what}: not the one that the genesis names")
    plans, value = read_statement(envelope, "delegation/v1")
    shape(value, what, "ledger:line public_key:text issued:text expires:text")
    issued, expires = seconds(value["issued"], what), seconds(value["expires"], what)
    # The trainer whose name the ledger has signed it, when the trainer's key was valid.
    names, origin = envelope.require(trust, TRAINER, value, issued), value["ledger"]
    expect(expires - issued <= MAX_SPAN, f"{what}: of more than 366 days")
    trainers = {key.owner for key in trust.keys if key.role == TRAINER and origin.startswith(f"{key.owner}/")}
    owner = max(trainers, key=len, default="")
    expect(owner in names, f"{what}: of {origin}, which is not named after {', '.join(names)}")
    expect(origin == note.origin and origin == f"{owner}/{genesis['run']}", f"{what}: for another run, of {origin}")
    expect(plans == [genesis["recipe"]], f"{what}: for another plan of {genesis['run']}")
    public = decode64(value["public_key"], f"{what}: public_key", length=32)
    taken = next((key.owner for key in trust.keys if key.public == public), None)
    expect(not is_weak(public) and taken is None, f"{what}: a weak key, or one in the trust file")
    own = max((key for key in envelope.signers(trust) if key.owner == owner), key=lambda key: key.ends)
    lapse = f"the delegation expired {value['expires']}"
    if own.ends < expires:
        lapse = f"the key of {owner} that delegated it expired, or was revoked, as of {utc(own.ends)}"
    whose = f"a key that {owner} delegated for this run until {value['expires']}"
    delegate = Key(owner, TRAINER, (), public, issued, min(expires, own.ends), whose, lapse)
    return replace(trust, keys=(*trust.keys, delegate))


def read_witnesses(files: dict[str, bytes], note: Note, run: Run, trust: Trust, findings: Findings) -> list[Note]:
    """Return the notes of witnesses: signed checkpoints of this log, all of which its tree has to extend.

    A file that is named after a witness of the trust file has to be that witness's note. Anyone can write other files
    there. One that is damaged, of another log or signed by unknown keys is listed and ignored, or a stranger could make
    every pack fail. At most 100 are read, the known witnesses' first.
    """
    owners = {f"ledger/witness/{_file_of(key)}": key for key in trust.keys if key.role != TRAINER}
    names = [name for name in files if name.startswith("ledger/witness/")]
    names.sort(key=lambda name: (name not in owners, not re.search(r"\+[0-9a-f]{8}\.note$", name), name))
    notes = []
    for name in names[:MAX_WITNESSES]:
        # The note counts: it is of this log, signed by its trainer and, under a witness's name, by that witness.
        try:
            other = read_note(files[name], name)
            signers = [key for key, _ in other.signatures(trust)]
            expect(signers, "not cosigned by any key of the trust file")
            expect(other.origin == note.origin, f"of another log, {other.origin!r:.80}")
            expect(any(key.role == TRAINER for key in signers), "not signed by any trainer of the trust file")
            owner = owners.get(name)
            expect(owner is None or owner in signers, f"without the cosignature of {owner and owner.owner}")
        except Refused as fault:
            words = f"{name}: {str(fault).removeprefix(f'{name}: ')}"
            if name in owners:
                findings.failed.append(words)
            else:
                findings.unchecked.append(f"{words}: it vouches for nothing")
            continue
        # The tree extends it: nothing that a witness saw was removed or rewritten since.
        with findings.looking_at(name):
            expect(other.size <= note.size, f"rolled back: its witness saw {other.size} entries, not {note.size}")
            expect(run.tree.root(other.size) == other.root, "the entries that this witness saw were rewritten since")
            findings.count("notes of witnesses, which the tree extends")
            _covered(name, other, trust, findings)
            if all(key.role == TRAINER for key in signers):
                findings.unchecked.append(f"{name}: not cosigned by any key of the trust file")
        notes.append(other)
    if len(names) > MAX_WITNESSES:
        rest = names[MAX_WITNESSES:]
        findings.unchecked.append(f"{len(rest)} more notes of witnesses, {rest[0]} to {rest[-1]}: at most 100 are read")
        findings.bound |= {*rest}  # the line names them as a range
    return notes


def _file_of(key: Key) -> str:
    """Return the file name of a witness's note."""
    return f"{re.sub(r'^[.]|[^A-Za-z0-9.-]', '_', key.owner)}+{note_id(key.owner, COSIGNED, key.public).hex()}.note"


def _covered(name: str, signed: "Note | Envelope", trust: Trust, findings: Findings) -> None:
    """Record a file as bound by its signatures, and name the parts of it that they do not cover."""
    if isinstance(signed, Note):
        number = signed.strangers(trust)
        loose = [f"{number} signature lines of keys that the trust file does not have"] if number else []
    else:
        loose = signed.loose(trust)
    findings.bound.add(name)
    if loose:
        findings.unchecked.append(f"{name}: {', '.join(loose)}: nothing determines these")


def read_proof(name: str, content: bytes) -> tuple[int, bytes | None, list[bytes], bytes]:
    """Read a proof that an entry is in a tree (C2SP tlog-proof).

    Returns the entry's number, which has to be the name of the file; the entry, if the proof contains it; the hashes;
    and the checkpoint, a note.
    """
    head, _, rest = content.partition(b"\n\n")
    lines = head.decode("ascii", errors="replace").split("\n")
    extra = lines.pop(1).removeprefix("extra ") if len(lines) > 1 and lines[1].startswith("extra ") else None
    index = int(name.rpartition("/")[2].removesuffix(".tlog-proof"))
    sound = lines[:2] == ["c2sp.org/tlog-proof@v1", f"index {index}"] and len(lines) <= 66
    expect(sound, f"{name}: not a proof of entry {index}")
    leaf = None if extra is None else decode64(extra, name)
    return index, leaf, [decode64(line, name, length=32) for line in lines[2:]], rest


def check_proof(name: str, content: bytes, checkpoint: bytes, note: Note, run: Run) -> None:
    """Check a proof of one of the run's entries, under the checkpoint of the pack."""
    index, leaf, hashes, rest = read_proof(name, content)
    expect(index < note.size, f"{name}: of entry {index}, but there are {note.size} entries")
    expect(rest == checkpoint, f"{name}: of another checkpoint, or with other signatures than ledger/checkpoint")
    expected = run.tree.levels[0][index]
    expect(leaf is None or leaf_hash(leaf) == expected, f"{name}: contains another entry than {index}")
    check_inclusion(hashes, index, note.size, expected, note.root)


# ------------------------------------------------------------------------------ the documents that governed the run


def check_documents(files: dict[str, bytes], run: Run, trust: Trust, findings: Findings) -> list[str]:
    """Check taxonomy, policy and tags; return the branches whose numbers the policy has sealed.

    They have to be those that the genesis names, signed by authorities of the right roles. They are judged as of the
    time in the genesis: a policy that expired after the run has governed it all the same.
    """
    genesis, sealed = run.genesis, []
    judged = genesis["judged"] or 0
    # The run's own trust file is identified, and never used: a trainer chose it.
    with findings.looking_at("governance/trust.json"):
        own = read_trust(_needed(files, "governance/trust.json"), "governance/trust.json")
        expect(own.digest == genesis["trust"], "not the trust file that the genesis names")
        findings.bound.add("governance/trust.json")
        findings.count("trust file of the run, which the genesis names; no key counts because of it")
        if own.digest != trust.digest:
            findings.unchecked.append("that the run began under your trust file: it began under another one")
    taxonomy = _document(files, "taxonomy", GOVERNANCE, genesis["taxonomy"], judged, trust, findings)
    if taxonomy is not None:
        with findings.looking_at("governance/taxonomy.json"):
            classes = shape(taxonomy, "taxonomy", "classes:list ...")["classes"]
            strange = {*genesis["classes"]} - {shape(item, "a class", "path:text ...")["path"] for item in classes}
            expect(not strange, f"the run has classes that it lacks: {', '.join(sorted(strange)[:3])}")
    policy = _document(files, "policy", RISK, genesis["policy"], judged, trust, findings)
    if policy is not None:
        with findings.looking_at("governance/policy.json"):
            of = policy.get("taxonomy")
            expect(isinstance(of, dict) and of.get("digest") == genesis["taxonomy"], "written for another taxonomy")
            sealed = texts(policy.get("confidential"), "confidential")
    if genesis["tags"]:
        with findings.looking_at("governance/tags.json"):
            _check_tags(files, genesis, judged, trust, findings)
    return sealed


def _document(
    files: dict[str, bytes], kind: str, role: str, digest: str | None, now: int, trust: Trust, findings: Findings
) -> dict[str, Any] | None:
    """Return a signed document that the genesis names; None: it names none, or the document was refused."""
    name = f"governance/{kind}.json"
    if digest is None:
        findings.unchecked.append(f"{kind}: the run has none")
        return None
    with findings.looking_at(""):
        content = parse_json(_needed(files, name), name)
        envelope = open_envelope(content, name, f"application/vnd.explorer.{kind}.v1+json")
        expect(sha256(envelope.payload).hex() == digest, f"{name}: not the {kind} that the genesis names")
        value = shape(parse_json(envelope.payload, name), name, "...")
        names = envelope.require(trust, role, value, now)
        findings.count(f"{kind}, signed by {', '.join(names)}")
        _covered(name, envelope, trust, findings)
        return value
    return None


def _check_tags(files: dict[str, bytes], genesis: dict[str, Any], now: int, trust: Trust, findings: Findings) -> None:
    """Check the attestation of the tag table: the file, the root over its rows, and who vouches for which class."""
    # The attestation is signed, is the one that the genesis names, and is about the file in the pack.
    envelope = open_envelope(parse_json(_needed(files, "governance/tags.json"), ""), "tags", STATEMENT)
    expect(envelope.signers(trust), "not signed by any key of the trust file, or changed since")
    subjects, table = read_statement(envelope, "tag-table/v1")
    expect(len(subjects) == 2, f"{len(subjects)} subjects, expected a file and the root of its rows")
    named = [(sources["root"], sources["attestation"]) for sources in genesis["tags"].values()]
    expect((subjects[1], sha256(envelope.payload).hex()) in named, "not the tags that the genesis names")
    expect(sha256(_needed(files, "governance/tags.parquet")).hex() == subjects[0], "not about this tags.parquet")
    findings.bound.add("governance/tags.parquet")
    _covered("governance/tags.json", envelope, trust, findings)
    expect(table.get("taxonomy") == genesis["taxonomy"], "made for another taxonomy")
    # Each voucher has signed, and is entitled to its classes. A class without a voucher that counts is listed, not
    # refused: whether the run may use its examples is for `explorer conform` to judge.
    expect(isinstance(table.get("vouchers"), list), "vouchers: expected a list")
    for voucher in table["vouchers"]:
        shape(voucher, "vouchers", "authority:text classes:object")
        for path, count in voucher["classes"].items():
            records = shape(count, f"vouchers: {path}", "records:number first:number")["records"]
            try:
                names = envelope.require(trust, GOVERNANCE, table, now, [path] if path != "quarantine" else [])
                expect(voucher["authority"] in names, f"{voucher['authority']} has not signed, or may not")
            except Refused as fault:
                findings.unchecked.append(f"{records} tags of {path}, without a voucher that counts: {fault}")
            else:
                findings.count(f"tags of {path}, signed for by {', '.join(names)}", records)


STATEMENT = "application/vnd.in-toto+json"
CLAIMS = "urn:uuid:5c06314d-e92a-42ff-b8a5-d7b8024b3f28#", "https://explorer.example/"
"""The beginnings of the types of statements, in this version and in earlier ones."""


def read_statement(envelope: Envelope, claim: str) -> tuple[list[str], dict[str, Any]]:
    """Return the digests of the subjects of an in-toto statement (v1), and its predicate."""
    value = shape(parse_json(envelope.payload, envelope.what), envelope.what, "subject:list predicate:object ...")
    kinds = [f"{begin}{claim}" for begin in CLAIMS]
    right = value.get("_type") == "https://in-toto.io/Statement/v1" and value.get("predicateType") in kinds
    expect(right, f"{envelope.what}: not a statement of the type {kinds[0]}")
    digests = [subject.get("digest") if isinstance(subject, dict) else None for subject in value["subject"]]
    hashes = [digest.get("sha256") if isinstance(digest, dict) else None for digest in digests]
    return [str(hash_) for hash_ in hashes], value["predicate"]


def check_papers(files: dict[str, bytes], note: Note, run: Run, trust: Trust, made: int, findings: Findings) -> None:
    """Check the trainers' statements about the run's model and about deletions, as of when the pack was made.

    They have to be signed, and about this ledger. Their claims need the model and the data, so other programs check
    them.
    """
    for name in [name for name in files if name.startswith(("deletions/", "model/attestation"))]:
        kind = "model" if name.startswith("model/") else "deletion"
        with findings.looking_at(name):
            envelope = open_envelope(parse_json(files[name], name), name, STATEMENT)
            subjects, claims = read_statement(envelope, f"{kind}/v1")
            names = envelope.require(trust, TRAINER, claims, made)
            about = [claims] if kind == "model" else [claims.get("old"), claims.get("new")]
            known = any(isinstance(part, dict) and is_state(part.get("ledger"), note, run) for part in about)
            expect(known, "about another ledger")
            if kind == "model":
                expect(sha256(_needed(files, "model/model.json")).hex() in subjects, "model/model.json: not its card")
                findings.bound.add("model/model.json")
            findings.count(f"statement about a {kind}, signed by {', '.join(names)}")
            _covered(name, envelope, trust, findings)
            verb = "verify MODEL" if kind == "model" else "delete verify"
            findings.unchecked.append(f"the claims of {name}: they need the model and the runs: explorer {verb}")


def check_origin(files: dict[str, bytes], run: Run, findings: Findings) -> None:
    """Check the origin of a run that a deletion made: its genesis names the same ledger and step."""
    value = shape(parse_json(files["origin.json"], "origin.json"), "origin.json", "ledger:object begins:number ...")
    parents = [parent for parent in run.genesis["parents"] if parent.get("kind") == "deletion"]
    named = [(parent.get("ledger"), run.genesis["begins"]) for parent in parents]
    expect((value["ledger"], value["begins"]) in named, "origin.json: not the origin that the genesis names")
    findings.count("origin of the run, which its genesis names")
    findings.bound.add("origin.json")
    rest = ", ".join(sorted(value.keys() - {"ledger", "begins"}))
    findings.unchecked.append(f"origin.json: {rest}: no entry names these: explorer delete verify compares them")


def check_trunks(run: Run, origin: str, findings: Findings) -> None:
    """Check the entry about the run that made the first steps: they led to the state in the entry before."""
    for index, entry in enumerate(run.entries):
        if (entry["kind"], entry["version"]) == ("trunk", 1):
            before, what = run.entries[index - 1], f"entry {index}"
            closed = (before["kind"], before.get("step"), before.get("state"))
            expect(closed == ("state", entry["step"], entry["state"]), f"{what}: not the state that the steps led to")
            # Runs that share steps are of one sweep, and one trainer signs all of them.
            expected = f"{origin.removesuffix(run.genesis['run'])}{entry['run']}"
            other = entry["run"] != run.genesis["run"] and entry["ledger"]["origin"] == expected
            expect(other, f"{what}: not the ledger of another run")
            findings.count("runs that made first steps, with the state that these led to")
            findings.unchecked.append(
                f"that {entry['run']!r:.200} made the first {entry['step']} steps and recorded the same of them: its"
                " ledger is not in the pack; explorer conform compares the two"
            )


def check_recipe(files: dict[str, bytes], run: Run, findings: Findings) -> None:
    """Check environment.json and the plan: run.json or, for a custom training loop, loop.json.

    The genesis names the environment, and the identity in the plan, by digest. Other fields of the plan are compared
    with what follows from its identity and the ledger, or named.
    """
    genesis, bound = run.genesis, findings.bound
    if "environment.json" in files:
        with findings.looking_at("environment.json"):
            digest = sha256(files["environment.json"]).hex()
            expect(digest == genesis["environment"], "not the environment that the genesis names")
            findings.count("environment of the run, which its genesis names")
            bound.add("environment.json")
    else:
        findings.unchecked.append("environment.json: not in the pack: the genesis names only its digest")
    plans = [name for name in ("run.json", "loop.json") if name in files]
    expect(len(plans) < 2, "run.json and loop.json: a run has one of them")
    if not plans:
        findings.unchecked.append("run.json, loop.json: not in the pack: the genesis names only the recipe's digest")
    for name in plans:
        with findings.looking_at(name):
            value = parse_json(files[name], name)
            identity = shape(value, name, "run_id:text identity:object ...")["identity"]
            digest = sha256(canonical(identity, name)).hex()
            expect(digest == genesis["recipe"], "not the recipe that the genesis names")
            follows = _following(identity, run) if name == "run.json" else {"format": "explorer/loop/v1"}
            follows["run_id"] = genesis["run"]
            for key, expected in follows.items():
                same = key in value and canonical(value[key], name) == canonical(expected, name)
                expect(same, f"{key}: found {value.get(key)!r:.80}, expected {expected!r:.80} by identity and ledger")
            findings.count("recipe of the run, which its genesis names")
            bound.add(name)
            rest = ", ".join(sorted(value.keys() - follows.keys() - {"identity"}))
            if rest:
                findings.unchecked.append(f"{name}: {rest}: these do not follow from its identity")


def _following(identity: dict[str, Any], run: Run) -> dict[str, Any]:
    """Return the fields of run.json that follow from the identity and the ledger."""
    last = run.entries[-1]
    # Runs that differ only in budget and seed have one recipe.
    recipe = {name: value for name, value in identity.items() if name not in ("ssr", "seed", "initial")}
    fields = {"format": 1, "recipe_digest": sha256(canonical(recipe, "run.json")).hex()}
    fields |= {name: identity[name] for name in ("ssr", "seed", "hardware") if name in identity}
    if last["kind"] == "end" and last["version"] == 1 and last["outcome"] == "finished":
        fields["steps"] = last["step"]
    match identity.get("recipe"):
        case {"train": dict(train), **rest}:
            fields |= {name: train[name] for name in ("batch_size", "precision") if name in train}
            methods, task = rest.get("methods"), rest.get("task")
            if isinstance(methods, list) and all(isinstance(item, dict) and len(item) == 1 for item in methods):
                fields["methods"] = [next(iter(item)) for item in methods]
            for name in ("dataset", "model"):
                match task:
                    case {"dataset": dict(), "model": dict()} if len(task[name]) == 1:
                        fields[name] = next(iter(task[name]))
    return fields


def is_state(value: Any, note: Note, run: Run) -> bool:
    """Return whether a value names a state of the ledger: its origin, a size, and the root that it had then."""
    match value:
        case {"origin": note.origin, "size": int(size), "root": str(expected)} if 0 <= size <= note.size:
            return run.tree.root(size).hex() == expected
    return False


def _needed(files: dict[str, bytes], name: str) -> bytes:
    expect(name in files, f"{name}: missing")
    return files[name]


# ------------------------------------------------------------------------------------------- grants, and what they open

SEALED = b"explorer/sealed/v1\n"
KEM = b"KEM\x00\x20"  # RFC 9180, 7: DHKEM(X25519, HKDF-SHA256)
SUITE = b"HPKE\x00\x20\x00\x01\x00\x02"  # with HKDF-SHA256 and AES-256-GCM


def hkdf_expand(key: bytes, info: bytes, length: int = 32) -> bytes:
    """Expand a key by RFC 5869, 2.3, to at most one block."""
    return hmac.digest(key, info + b"\x01", "sha256")[:length]


def hpke_open(wrapped: bytes, private: X25519PrivateKey, info: bytes) -> bytes:
    """Decrypt an HPKE message (RFC 9180): base mode, one message, no associated data.

    `wrapped` is the encapsulated key, 32 bytes, and the ciphertext. It opens only with the `info` it was made with.
    """

    def extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
        return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")

    def expand(suite: bytes, key: bytes, label: bytes, context: bytes, length: int) -> bytes:
        return hkdf_expand(key, length.to_bytes(2) + b"HPKE-v1" + suite + label + context, length)

    # The shared secret (RFC 9180, 4.1, Decap).
    sent, ciphertext = wrapped[:32], wrapped[32:]
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(sent))
    except ValueError as error:
        raise Refused("expected an X25519 key before the wrapped keys") from error
    both = sent + private.public_key().public_bytes_raw()
    shared = expand(KEM, extract(KEM, b"", b"eae_prk", shared), b"shared_secret", both, 32)
    # Key and nonce of the only message (5.1, KeySchedule). The first byte of the context is the base mode, 0.
    context = b"\x00" + extract(SUITE, b"", b"psk_id_hash", b"") + extract(SUITE, b"", b"info_hash", info)
    secret = extract(SUITE, shared, b"secret", b"")
    key, nonce = expand(SUITE, secret, b"key", context, 32), expand(SUITE, secret, b"base_nonce", context, 12)
    try:
        return AESGCM(key).decrypt(nonce, ciphertext, b"")
    except (InvalidTag, ValueError) as error:
        raise Refused("the wrapped keys do not open: altered, swapped, or wrapped to another reader") from error


GRANT = "format:text id:text owner:text grantee:object runs:list classes:list entries:list issued:text expires:text"
Keys = dict[tuple[str, str, int], bytes]
"""Reading keys by class, kind of entry and first step."""


def check_grant(
    name: str,
    content: bytes,
    note: Note,
    run: Run,
    trust: Trust,
    now: int,
    reader: X25519PrivateKey | None,
    findings: Findings,
) -> tuple[str, Keys]:
    """Check a grant and its wrapped keys; return it in words, with its keys if it is to this reader.

    It has to be for this run, valid now, and signed by an owner who is entitled to its classes; the keys have to be no
    more than it grants.
    """
    # The grant is in its own file, in force, and signed by its owner.
    value = shape(parse_json(content, name), name, "format:text grant:object run:text ledger:object keys:list")
    envelope = open_envelope(value["grant"], name, "application/vnd.explorer.grant.v1+json")
    grant = shape(parse_json(envelope.payload, name), name, GRANT)
    formats = value["format"], grant["format"]
    expect(formats == ("explorer/wrapped-keys/v1", "explorer/grant/v1"), f"{name}: of another version")
    expect(name == f"grants/{grant['id']}.json", f"{name}: holds the grant {grant['id']!r:.80}")
    branches, classes = texts(grant["classes"], name), run.genesis["classes"]
    names = envelope.require(trust, GOVERNANCE, grant, now, branches)
    expect(grant["owner"] in names, f"{name}: granted by {grant['owner']}, who has not signed it or may not")
    # It is for this run and its ledger.
    run_id = run.genesis["run"]
    expect(run_id == value["run"] and run_id in texts(grant["runs"], name), f"{name}: for another run than {run_id}")
    expect(is_state(value["ledger"], note, run), f"{name}: wrapped for another ledger, or another state of it")
    grantee = shape(grant["grantee"], name, "name:text public_key:text")
    public = decode64(grantee["public_key"], f"{name}: grantee", length=32)
    granted = reader is not None and reader.public_key().public_bytes_raw() == public
    # Its keys: one bundle for each class and kind. Numbers over several classes take a grant to all classes, because
    # they give any of them away by subtraction.
    keys: Keys = {}
    seen: set[tuple[str, str]] = set()
    for bundle in value["keys"]:
        shape(bundle, f"{name}: a key", "class:text kind:text wrapped:text")
        path, kind = bundle["class"], bundle["kind"]
        needed = classes if path == JOINT else [path]
        inside = all(any(covers(branch, class_) for branch in branches) for class_ in needed)
        inside = inside and path in [*classes, JOINT] and kind in texts(grant["entries"], name)
        expect(inside, f"{name}: holds a key for {kind} entries of {path}, which it does not grant")
        expect((path, kind) not in seen, f"{name}: the key for {kind} of {path} is there twice")
        seen.add((path, kind))
        info = {"class": path, "format": value["format"], "grant": sha256(envelope.payload).hex(), "kind": kind}
        wrapped = decode64(bundle["wrapped"], f"{name}: a key")
        # A bundle: reading keys of 32 bytes, each after the first step of its stretch, 8 bytes big-endian.
        if granted and reader is not None:
            content = hpke_open(wrapped, reader, canonical({**info, "ledger": note.origin, "run": run_id}, name))
            parts = [content[at : at + 40] for at in range(0, len(content), 40)]
            firsts = [int.from_bytes(part[:8]) for part in parts]
            sound = parts and len(parts[-1]) == 40 and firsts == sorted({*firsts})
            expect(sound, f"{name}: the bundle for {kind} of {path}: expected keys in the order of their steps")
            keys |= {(path, kind, first): part[8:] for first, part in zip(firsts, parts, strict=True)}
    _covered(name, envelope, trust, findings)
    return f"{grant['id']}: {grantee['name']} may read {', '.join(branches)} until {grant['expires']}", keys


class Reader:
    """A reading of the run's numbers: opens what the keys open, and compares it with the commitments of the entries.

    It also checks that the numbers of confidential classes are sealed, whether or not a key opens them.
    """

    def __init__(
        self, files: dict[str, bytes], run: Run, keys: Keys, branches: Sequence[str], findings: Findings
    ) -> None:
        """`branches`: those whose numbers the policy has sealed."""
        self.files, self.run, self.keys, self.findings = files, run, keys, findings
        classes = run.genesis["classes"]
        self.confidential = {path for path in classes if any(own == "*" or covers(own, path) for own in branches)}
        self.confidential |= {JOINT} if self.confidential else set()  # they give a class away by subtraction
        self.sealed: dict[str, int] = {}  # by class: blobs that no key here opens
        self.bare: dict[str, int] = {}  # by class: blobs in plain, whose commitments no key here opens

    def read(self) -> None:
        """Read all numbers of all classes, and list what could not be checked."""
        for segment in self.run.segments:
            self._segment(segment)
        for index, entry in enumerate(self.run.entries):
            if entry["kind"] == "profile" and entry["version"] == 1:
                for path, committed in entry["classes"].items():
                    self._entry(index, f"numbers/{path}", path, committed)
                self._entry(index, "joint", JOINT, entry["joint"])
            if entry["kind"] == "decision" and entry["version"] == 1:
                for path, committed in entry["evidence"].items():
                    self._entry(index, f"evidence/{path}", path, committed)
        for path, number in self.sealed.items():
            words = f"numbers of {_class(path)}: sealed, in {number} blobs: not granted to this reader"
            self.findings.unchecked.append(words)
        for path, number in self.bare.items():
            words = f"numbers of {_class(path)}, in {number} blobs not sealed: their commitments: not granted"
            self.findings.unchecked.append(words)

    def _segment(self, segment: Segment) -> None:
        layers = len(self.run.genesis["layers"])
        # Numbers of a class: 8 bytes for each of its steps and each layer. Sketches: 256 bytes for each layer.
        for at, path in enumerate(self.run.genesis["classes"]):
            having = [(index, step, step["numbers"][at]) for index, step in segment.steps if step["numbers"][at]]
            content = self._content(segment.state, f"numbers/{path}", "step", path, segment.first)
            if content is not None:
                fits = having and len(content) == len(having) * 8 * layers
                expect(fits, f"entry {segment.state}: numbers of {path}: {len(content)} bytes for {len(having)} steps")
                self._parts(segment, path, having, content, [8 * layers] * len(having))
            sketches = self._content(segment.state, f"sketches/{path}", "step", path, segment.first)
            expect(sketches is None or len(sketches) == layers * 256, f"entry {segment.state}: sketches of {path}")
            state = self.run.entries[segment.state]
            committed = state.get("sketches", [])  # none in ledgers of earlier versions
            expect(len(committed) in (0, len(self.run.genesis["classes"])), f"entry {segment.state}: sketches")
            if sketches is not None and committed:
                self._held(segment.state, "step", path, segment.first, state["step"], committed[at], sketches)
        # Joint numbers of a step with k classes: for each layer 4 bytes for the update, each pair of classes, and each
        # class once; twice where the run recorded the exact terms too.
        content = self._content(segment.state, "joint", "step", JOINT, segment.first)
        if content is not None:
            having = [(index, step, step["joint"]) for index, step in segment.steps if step["joint"]]
            counts = [sum(number is not None for number in step["numbers"]) for _, step, _ in having]
            usual, exact = ([4 * layers * (1 + k * (k - 1) // 2 + more * k) for k in counts] for more in (1, 2))
            fits = len(content) in (sum(usual), sum(exact))
            expect(fits, f"entry {segment.state}: joint numbers: {len(content)} bytes, expected {sum(usual)}")
            self._parts(segment, JOINT, having, content, usual if len(content) == sum(usual) else exact)

    def _parts(
        self, segment: Segment, path: str, having: list[tuple[int, Any, Any]], content: bytes, sizes: list[int]
    ) -> None:
        """Compare a blob over several steps, part by part, with the commitments of their entries."""
        at = 0
        for (index, step, committed), size in zip(having, sizes, strict=True):
            self._held(index, "step", path, segment.first, step["step"], committed, content[at : at + size])
            at += size

    def _entry(self, index: int, name: str, path: str, committed: object) -> None:
        """Check a blob of a profile or a decision, whose key is that of its own step."""
        kind, step = self.run.entries[index]["kind"], self.run.entries[index]["step"]
        content = self._content(index, name, kind, path, step)
        if content is not None:
            self._held(index, kind, path, step, step, committed, content)

    def _content(self, index: int, name: str, kind: str, path: str, first: int) -> bytes | None:
        """Return the content of a blob that an entry names; None: it is missing, or no key opens it."""
        blob = self.run.entries[index]["blobs"].get(name, {"sha256": ""})["sha256"]
        content, key = self.files.get(blob_path(blob)), self.keys.get((path, kind, first))
        if content is None:
            return None
        if not content.startswith(SEALED):
            expect(path not in self.confidential, f"entry {index}: {name}: not sealed, and the policy has it sealed")
            if key is None and not name.startswith("sketches/"):  # sketches have no commitment in early ledgers
                self.bare[path] = self.bare.get(path, 0) + 1
            return content
        if key is None:
            self.sealed[path] = self.sealed.get(path, 0) + 1
            return None
        self.findings.count(f"sealed blobs of {_class(path)}, opened")
        return _unseal(key, content, kind, name, first, f"entry {index}")

    def _held(self, index: int, kind: str, path: str, first: int, step: int, committed: object, part: bytes) -> None:
        """Compare a part with its commitment: SHA-256(salt || content), where reading key and step give the salt."""
        key = self.keys.get((path, kind, first))
        if key is not None:
            salt = hkdf_expand(key, b"explorer/salt/v1\x00" + step.to_bytes(8))
            same = sha256(salt, part).hex() == committed
            expect(same, f"entry {index}: the numbers of {_class(path)} are not those that it committed to")
            self.findings.count(f"numbers of {_class(path)}, each compared with the commitment of its entry")


def _unseal(key: bytes, content: bytes, kind: str, name: str, first: int, what: str) -> bytes:
    """Decrypt a sealed blob: AES-256-GCM under a key that depends on the content.

    The key is derived from an iv that is a MAC of the content. So one key never encrypts two contents, and the nonce
    can be constant. Kind, name and first step are authenticated: a blob opens only in its place.
    """
    iv, ciphertext = content[len(SEALED) : len(SEALED) + 32], content[len(SEALED) + 32 :]
    data = hkdf_expand(hkdf_expand(key, b"explorer/data-key/v1"), b"explorer/blob/v1\x00" + iv)
    place = SEALED + b"\x00".join((kind.encode(), name.encode(), first.to_bytes(8)))
    try:
        plain = AESGCM(data).decrypt(bytes(12), ciphertext, place)
    except (InvalidTag, ValueError) as error:
        raise Refused(f"{what}: {name}: the seal is broken: altered, or sealed for another place") from error
    own = hmac.digest(hkdf_expand(key, b"explorer/iv/v1"), name.encode() + b"\x00" + plain, "sha256")
    expect(own == iv, f"{what}: {name}: the seal is broken: its iv is not that of its content")
    return plain


def _class(path: str) -> str:
    return "several classes together" if path == JOINT else path


# ------------------------------------------------------------------------------------------------ the pack as a whole

NEVER = (
    "that a tag is true: its authority vouches for that",
    "that the record is true, and the gradients themselves: needs torch and the data: explorer replay",
    "that rows, weights and numbers fit tags and policy: needs the tag table (Parquet): explorer conform",
    "that the ledger was not rolled back to this checkpoint: needs a later one, from an independent source",
)
"""Claims that no pack can show, with what it takes to check them."""
NOT_READ = {
    "README.txt": "its content: this program does not read it",
    "report.html": "its content: this program does not read it, and a page can run its maker's programs in your "
    "browser. Do not open it unless you trust the signer of the pack; explorer report DIR makes it again",
    "report.json": "its content: its figures are not compared with the ledger; explorer report DIR makes it again",
    "verify.py": "it is not the program that is running now",
    "pack.json": "when the pack was made, and the keys on its host: the word of its maker",
}
"""Files whose content nothing here determines, with what that leaves open."""


def read_manifest(files: dict[str, bytes]) -> dict[str, Any]:
    """Read pack.json, and check that it names every other file with its size and digest."""
    content = _needed(files, "pack.json")
    fields = "format:text made:text run:text ledger:object files:list grants:list host:object"
    value = shape(parse_json(content, "pack.json"), "pack.json", fields)
    expect(value["format"] == "explorer/pack/v1", f"pack.json: format {value['format']!r:.60}")
    expect(canonical(value, "pack.json") == content, "pack.json: not in canonical form")
    listed = [shape(entry, "pack.json: files", "path:text sha256:text size:number") for entry in value["files"]]
    present = [
        {"path": name, "sha256": sha256(body).hex(), "size": len(body)}
        for name, body in files.items()
        if name not in ("pack.json", "pack.dsse.json")
    ]
    for named, file in zip(listed, present, strict=False):
        expect(named == file, f"{file['path']}: not the file that pack.json names: {named['path']!r:.120}")
    expect(len(listed) == len(present), f"pack.json names {len(listed)} files, but the pack has {len(present)} others")
    granted = {name for name in files if name.startswith("grants/")}
    expect({f"grants/{id_}.json" for id_ in texts(value["grants"], "grants")} == granted, "pack.json: other grants")
    return value


def check_signature(
    files: dict[str, bytes], manifest: dict[str, Any], trust: Trust, now: int, findings: Findings
) -> str:
    """Return the signers of the pack: trainers of its ledger, whose keys were valid when it was made."""
    content, made = parse_json(_needed(files, "pack.dsse.json"), "pack.dsse.json"), seconds(manifest["made"], "made")
    envelope = open_envelope(content, "pack.dsse.json", "application/vnd.explorer.pack.v1+json")
    expect(envelope.payload == files["pack.json"], "the signature is of another pack.json")
    expect(made <= now + SKEW, f"made at {manifest['made']}, in the future: now it is {utc(now)}")
    names = {key.owner for key in envelope.signers(trust) if key.role == TRAINER and key.held(made)}
    expect(names, f"no trainer of the trust file has signed it with a key that is valid at {manifest['made']}")
    # Another trainer of the trust file must not speak for this run, for example in its report.
    note = read_note(_needed(files, "ledger/checkpoint"), "ledger/checkpoint")
    logs = with_delegate(files, note, trust)
    owners = {key.owner for key, _ in note.signatures(logs) if key.role == TRAINER}
    expect(names & owners, f"signed by {', '.join(sorted(names))}, who did not sign the ledger in it")
    _covered("pack.dsse.json", envelope, trust, findings)
    return ", ".join(sorted(names & owners))


def verify(
    files: dict[str, bytes], trust: Trust | None, now: int, reader: X25519PrivateKey | None, findings: Findings
) -> None:
    """Check a pack, in an order in which every step relies only on what the steps before it have checked."""
    # 1. Every file is the one in the manifest, and the run's trainer has signed the manifest.
    manifest = read_manifest(files)
    findings.count("files, each with the digest in pack.json", len(manifest["files"]))
    if trust is None:
        findings.unchecked.append("who vouches for any of it: no trust file was given, so no signature counts")
    else:
        with findings.looking_at("pack.dsse.json"):
            names = check_signature(files, manifest, trust, now, findings)
            findings.count(f"signature of the pack, by {names}")
    # 2. The ledger, which all that follows is compared with. If it cannot be read, nothing below is.
    note, run = check_ledger(files, trust, now, findings)
    with findings.looking_at("pack.json"):
        state = {"origin": note.origin, "size": note.size, "root": note.root.hex()}
        expect(manifest["ledger"] == state, "names another state of the ledger than the checkpoint")
        expect(manifest["run"] == run.genesis["run"], f"of run {manifest['run']}, but the ledger is of another")
    # 3. Files that the ledger binds, or that follow from it.
    with findings.looking_at("model/model.json"):
        papers = {"model/model.json", "model/attestation.json"} & files.keys()
        expect(len(papers) != 1, "a model's card or attestation without the other")
    if "origin.json" in files:
        with findings.looking_at(""):
            check_origin(files, run, findings)
    with findings.looking_at(""):
        check_trunks(run, note.origin, findings)
    for name in [name for name in files if name.startswith("proofs/")]:
        with findings.looking_at(""):
            check_proof(name, files[name], files["ledger/checkpoint"], note, run)
            findings.count("proofs of single entries")
            findings.bound.add(name)
    with findings.looking_at(""):
        check_recipe(files, run, findings)
    # 4. Signed documents and grants, which mean nothing without a trust file; then the numbers that grants open.
    if trust is not None:
        sealed = check_documents(files, run, trust, findings)
        check_papers(files, note, run, trust, seconds(manifest["made"], "made"), findings)
        with findings.looking_at(""):
            keys = _keys(files, note, run, trust, now, reader, findings)
            Reader(files, run, keys, sealed, findings).read()
    # 5. Everything else is named.
    if files.get("verify.py") == Path(__file__).read_bytes():
        findings.bound.add("verify.py")
    _name_the_rest(files, findings)
    findings.unchecked += NEVER


def _name_the_rest(files: dict[str, bytes], findings: Findings) -> None:
    """List every file that nothing determines and that no line names yet."""
    lines = "\n".join([*findings.failed, *findings.unchecked])
    for name in files:
        if name in NOT_READ and name not in findings.bound:
            findings.unchecked.append(f"{name}: {NOT_READ[name]}")
    rest = [name for name in files if name not in findings.bound and name not in NOT_READ and name not in lines]
    for folder in sorted({name.rpartition("/")[0] for name in rest}):
        names = [name for name in rest if name.rpartition("/")[0] == folder]
        more = f" and {len(names) - 5} more in {folder or 'the pack'}" if len(names) > 5 else ""
        findings.unchecked.append(f"{', '.join(names[:5])}{more}: nothing in the pack determines their content")


def _keys(
    files: dict[str, bytes],
    note: Note,
    run: Run,
    trust: Trust,
    now: int,
    reader: X25519PrivateKey | None,
    findings: Findings,
) -> Keys:
    """Return the reading keys in those grants that are valid and to this reader."""
    keys: Keys = {}
    for name in [name for name in files if name.startswith("grants/")]:
        with findings.looking_at(""):
            words, granted = check_grant(name, files[name], note, run, trust, now, reader, findings)
            findings.count(f"grant {words}")
            keys |= granted
            id_ = words.partition(":")[0]
            findings.unchecked.append(f"that the grant {id_} was not revoked since: see the project's ledger")
            if not granted:
                why = "no reader's key was given" if reader is None else "it is not to the key that was given"
                findings.unchecked.append(f"{name}: what the grant {id_} opens: {why}")
    return keys


def host_lines(manifest: dict[str, Any], trust: Trust | None) -> Iterator[str]:
    """Yield the private keys on the host where the pack was made: anyone who can write there can sign with them."""
    owners = {key.public: key for key in trust.keys} if trust else {}
    roles: set[str] = set()
    for entry in shape(manifest["host"], "pack.json: host", "keys:list")["keys"]:
        shape(entry, "pack.json: host", "file:text public_key:text? state:text")
        public = None if entry["public_key"] is None else decode64(entry["public_key"], "pack.json: host")
        owner = owners.get(public or b"")
        whose = "of an unknown owner" if public is None else "not in the trust file"
        yield f"{entry['file']}: {entry['state']}: {f'{owner.owner} ({owner.role})' if owner else whose}"
        roles |= {owner.role} if owner else set()
    if len(roles) > 1:
        yield f"keys of {len(roles)} roles were on one host, which makes them one party: {', '.join(sorted(roles))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="verify.py", description="Verify a pack of a governed training run.")
    parser.add_argument("pack", type=Path, help="the pack")
    parser.add_argument("--trust", type=Path, help="trust file of the authorities that count; never the pack's copy")
    parser.add_argument("--key", type=Path, help="your X25519 private key (PEM), to read the numbers granted to you")
    parser.add_argument("--now", help="time of the judgement, such as 2026-01-31T12:00:00Z; default: now")
    asked = parser.parse_args(arguments)
    findings, trust, manifest = Findings(), None, None
    with findings.looking_at(""):
        now = int(time.time()) if asked.now is None else seconds(asked.now, "--now")
        trust = None if asked.trust is None else read_trust(_read(asked.trust, MAX_JSON), str(asked.trust))
        reader = None if asked.key is None else _read_key(asked.key)
        files = open_container(_read(asked.pack, MAX_PACK))
        manifest = read_manifest(files)
        verify(files, trust, now, reader, findings)
    hosts: list[str] = []
    if manifest is not None:
        with findings.looking_at(""):
            hosts = [*host_lines(manifest, trust)]
    sections = [
        ("checked", [f"{number:>8}  {what}" for what, number in findings.checked.items()]),
        ("does not hold", findings.failed),
        ("could not be checked", findings.unchecked),
        ("private keys on the host where the pack was made, as its maker says", hosts),
    ]
    for title, lines in sections:
        for line in [title, *(f"  {line}" for line in lines or ["nothing"])]:
            _show(line)
    good = trust is not None and not findings.failed
    _show(f"{asked.pack}: {'everything that was checked holds' if good else 'NOT VERIFIED'}")
    return 0 if good else 1


def _show(line: str) -> None:
    """Print a line in ASCII, with control characters escaped: a terminal would obey them."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
    print(shown.encode("ascii", "backslashreplace").decode())


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror or error}") from error
    expect(len(content) <= most, f"{path}: too large: expected at most {most} bytes")
    return content


def _read_key(path: Path) -> X25519PrivateKey:
    passphrase = os.environ.get("EXPLORER_READER_PASSPHRASE")
    content = _read(path, MAX_JSON)
    try:
        encrypted = passphrase.encode() if passphrase and b"ENCRYPTED" in content else None
        key = load_pem_private_key(content, encrypted)
    except (ValueError, TypeError) as error:
        raise Refused(f"{path}: no private key can be read: {error!s:.100}") from error
    if isinstance(key, Ed25519PrivateKey):  # the X25519 key of the same seed, as a grant names it
        return X25519PrivateKey.from_private_bytes(hashlib.sha512(key.private_bytes_raw()).digest()[:32])
    if not isinstance(key, X25519PrivateKey):
        raise Refused(f"{path}: not a reader's key: expected X25519 or Ed25519")
    return key


if __name__ == "__main__":
    sys.exit(main())

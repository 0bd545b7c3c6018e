"""Verify a pack of a governed training run: python -I verify.py PACK --trust TRUST [--key READER.pem] [--now TIME]

A pack is one file: the ledger of a run, the signed documents that the run was governed by, grants to read some of its
numbers, a report for people, and this program. It needs Python 3.11 and the package `cryptography`, no network, and
nothing of the software that made the pack, with which it shares no line. It follows these texts:

    container       PKWARE APPNOTE 6.3: stored files alone, and every byte follows from names and contents
    signatures      Ed25519 (RFC 8032) in DSSE 1.0.2, in C2SP signed-note and in C2SP tlog-cosignature
    ledger          RFC 6962, 2.1 and RFC 9162, 2.1.3.2; C2SP tlog-checkpoint, tlog-tiles, tlog-proof
    statements      in-toto Statement v1; canonical JSON (RFC 8785)
    reading         HPKE (RFC 9180), base mode, X25519 HKDF-SHA256 AES-256-GCM; HKDF-Expand (RFC 5869)

Take TRUST from somebody whom you believe, never from the pack: the copy in there is what the run believed. READER.pem
is your own reader's key (PKCS#8 PEM; a passphrase comes from EXPLORER_READER_PASSPHRASE), if a grant in the pack is to
you. TIME is when to judge, such as 2026-01-31T12:00:00Z; without it, now.

Three lists are printed: what was checked, how often; what could not be, and why; and which private keys lay on the
host where the pack was made. The exit status is 0 only if a trust file was given and everything checked holds.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

MAX_PACK, MAX_FILES, MAX_JSON, MAX_DEPTH = 2**30, 60_000, 2**26, 40
MAX_NOTE, MAX_ORIGIN, MAX_SIGNATURES, MAX_KEYS = 1_000_000, 1_000, 100, 200
SKEW = 300  # seconds that two clocks may differ
ROLES = ("data-governance", "model-risk", "trainer", "auditor", "evaluator")
GOVERNANCE, RISK, TRAINER = ROLES[:3]
JOINT = "*"  # stands where a class would: numbers over several classes


# ---------------------------------------------------------------------------------------------- what came of it


class Refused(Exception):
    """Something is not what it has to be. The message says what was found, and what was expected."""


@dataclass
class Findings:
    """What was checked, what does not hold, what could not be checked. Every file of a pack is in `bound`, because
    something outside of it determines what it says, or it is named in one of the two lists."""

    checked: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    bound: set[str] = field(default_factory=set)

    def count(self, what: str, number: int = 1) -> None:
        self.checked[what] = self.checked.get(what, 0) + number

    @contextmanager
    def looking_at(self, what: str) -> Iterator[None]:
        """Whatever is refused inside is on the list of what does not hold; what stands outside goes on."""
        try:
            yield
        except Refused as fault:
            self.failed.append(f"{what}: {fault}" if what else str(fault))


def expect(holds: object, message: str) -> None:
    """Refuse, with this message, unless it holds."""
    if not holds:
        raise Refused(message)


# ------------------------------------------------------------------------------------------ bytes, JSON and times


def sha256(*parts: bytes) -> bytes:
    return hashlib.sha256(b"".join(parts)).digest()


def decode64(text: Any, what: str, *, length: int | None = None, urlsafe: bool = False) -> bytes:
    """Base64 in the one spelling that its bytes have."""
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
    """JSON from a stranger: bounded, each key once, finite numbers, whole ones below 2**53."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        expect(len(found) == len(pairs), f"{what}: a key stands twice in one object")
        return found

    def finite(text: str) -> float:
        expect(fractions and math.isfinite(float(text)), f"{what}: {text:.40} is no number that may stand here")
        return float(text)

    expect(len(content) <= MAX_JSON, f"{what}: {len(content)} bytes, at most {MAX_JSON} are read")
    try:
        value = json.loads(content.decode(), object_pairs_hook=once, parse_float=finite, parse_constant=finite)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise Refused(f"{what}: not JSON ({error!s:.100})") from error
    level, reached = [value], 0
    while level:
        reached += 1
        expect(reached <= depth, f"{what}: nested deeper than {depth} levels")
        large = [each for each in level if isinstance(each, int) and abs(each) >= 2**53]
        expect(not large, f"{what}: a whole number beyond 2**53 - 1")
        inner = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [each for group in inner if isinstance(group, list) for each in group]
    return value


def canonical(value: Any, what: str) -> bytes:
    """RFC 8785: keys in the order of their UTF-16 code units, no space, numbers as ECMAScript writes them."""
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
    """A finite number as ECMAScript writes it (ECMA-262, Number::toString): the shortest digits that give it back, with
    an exponent from 1e21 on and below 1e-6."""
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
TEXTS = {  # by name, what a text has to match and the most characters that it may have
    "digest": (r"[0-9a-f]{64}", 64),
    "line": (r"[ -~]+", 200),
    "name": (r"[a-z][a-z0-9_-]*", 64),
    "path": (r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*", 200),
    "blob-name": (r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*", 220),
    "bits": (r"[01]*", 20_000),
    "float": (
        r"(-?0x0\.0p\+0|-?0x1\.[0-9a-f]{13}p(\+([0-9]|[1-9][0-9]{1,2}|10[01][0-9]|102[0-3])"
        r"|-([1-9]|[1-9][0-9]{1,2}|10[01][0-9]|102[0-2]))|-?0x0\.[0-9a-f]{13}p-1022|nan|-?inf)",
        32,
    ),
}
RECORDS = {  # by name, the fields of an object
    "blob": "sha256:digest size:whole",
    "ledger": "origin:line size:whole root:digest",
    "sources": "root:digest attestation:digest",
    "training": "parameters:digest buffers:digest optimizer:digest random:digest",
    "parent": "kind:deletion|model ledger:ledger model:digest? attestation:digest? admitted:{path:float}",
    "same": "layer:line also:[line]+",
    "traits": "probes:flag= remembers:nothing|classes|model= averages:flag=",
}


def check_form(value: Any, what: str, form: str) -> None:
    """Refuse a value that is not of this form, which is one of

    text number list object flag    JSON's own types; true and false are no numbers
    whole                           a whole number from 0 to 2**53 - 1
    digest line name path ...       a text of `TEXTS`
    blob ledger sources ...         an object of `RECORDS`
    [form]  [form]+                 a list of such; a list that is not empty
    {key:form}                      an object of any keys of the form `key`, each with such a value
    one|two|three                   one of these words
    form?                           that, or null
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
        for at, each in enumerate(value):
            check_form(each, f"{what}[{at}]", inner)
    elif form[0] == "{":
        key, _, inner = form[1:-1].partition(":")
        if not isinstance(value, dict):
            raise Refused(f"{what}: expected {form}, found {value!r:.60}")
        for name, each in value.items():
            check_form(name, f"{what}: key", key)
            check_form(each, f"{what}.{name:.80}", inner)
    elif not _is_scalar(value, form):
        raise Refused(f"{what}: expected {form}, found {value!r:.60}")


def _is_scalar(value: Any, form: str) -> bool:
    if form in TEXTS:
        pattern, longest = TEXTS[form]
        return isinstance(value, str) and len(value) <= longest and re.fullmatch(pattern, value) is not None
    if form == "whole":
        return type(value) is int and 0 <= value < 2**53
    if form in TYPES:
        return isinstance(value, TYPES[form]) and isinstance(value, bool) == (form == "flag")
    return value in form.split("|")


@functools.cache
def _fields(fields: str) -> tuple[dict[str, str], frozenset[str], bool]:
    """The form of each field, those that may be left out, and whether others may stand there too."""
    pairs = [pair.partition(":") for pair in fields.split() if pair != "..."]
    left_out = frozenset(name for name, _, form in pairs if form.endswith("="))
    return {name: form.removesuffix("=") for name, _, form in pairs}, left_out, fields.endswith("...")


def shape(value: Any, what: str, fields: str) -> dict[str, Any]:
    """An object with exactly these fields, such as "name:text size:number? keys:[text]=": the forms of `check_form`,
    with = behind a field that may be left out, and a last ... for whatever else."""
    expect(isinstance(value, dict), f"{what}: expected an object")
    forms, left_out, open_ = _fields(fields)
    missing, strange = sorted(forms.keys() - value.keys() - left_out), sorted(value.keys() - forms.keys())
    expect(not missing, f"{what}: {', '.join(missing[:3])} is missing")
    expect(open_ or not strange, f"{what}: unknown key {', '.join(strange[:3])}; known: {', '.join(forms)}")
    for name in forms.keys() & value.keys():
        check_form(value[name], f"{what}: {name}", forms[name])
    return value


def texts(value: Any, what: str) -> list[str]:
    """A list of texts, each once."""
    sound = isinstance(value, list) and all(isinstance(each, str) for each in value) and len({*value}) == len(value)
    expect(sound, f"{what}: expected a list of texts, each once")
    return value


def seconds(text: object, what: str) -> int:
    """A moment in UTC such as 2026-01-31T12:00:00Z, in seconds since 1970."""
    try:
        expect(isinstance(text, str) and re.fullmatch(r"[0-9]{4}(-[0-9]{2}){2}T[0-9]{2}(:[0-9]{2}){2}Z", text), "")
        return int(datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())
    except (Refused, ValueError) as error:
        raise Refused(f"{what}: not a time: {text!r:.40}; expected such as 2026-01-31T12:00:00Z") from error


def utc(moment: int) -> str:
    """A moment in words."""
    try:
        return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{moment} seconds after 1970"


# ------------------------------------------------------------------------------------- the container, and its names

LOCAL, CENTRAL, END = struct.Struct("<4s5H3I2H"), struct.Struct("<4s6H3I5H2I"), struct.Struct("<4s4H2IH")
VERSION, UNIX, DAY = 20, 3 << 8, 1 << 5 | 1  # of the format; made on Unix; 1 January 1980, as everything is dated
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
    """The files of a zip of which every byte follows from names and contents, so that no two programs see two packs.

    Stored files alone: what is in there is as large as the file, and nothing can unfold.
    """
    files: dict[str, bytes] = {}
    at, directory, last = 0, bytearray(), ""
    while content[at : at + 4] == b"PK\x03\x04" and len(content) >= at + LOCAL.size:
        *_, crc, size, _, length, _ = LOCAL.unpack_from(content, at)
        raw, start = content[at + LOCAL.size : at + LOCAL.size + length], at + LOCAL.size + length
        name, body = raw.decode("ascii", errors="replace"), content[start : start + size]
        expect(NAMES.fullmatch(name), f"no such file belongs to a pack: {name!r:.120}")
        expect(name > last, f"{name}: twice, or not in the order of names, after {last}")
        expect(len(body) == size and zlib.crc32(body) == crc, f"{name}: cut short or altered: its checksum is another")
        common = VERSION, 0, 0, 0, DAY, crc, size, size, length, 0
        expect(content[at:start] == LOCAL.pack(b"PK\x03\x04", *common) + raw, f"{name}: its header is not a pack's")
        directory += CENTRAL.pack(b"PK\x01\x02", VERSION | UNIX, *common, 0, 0, 0, REGULAR, at) + raw
        files[name], last, at = body, name, start + size
        expect(len(files) <= MAX_FILES, f"more than {MAX_FILES} files")
    end = END.pack(b"PK\x05\x06", 0, 0, len(files), len(files), len(directory), at, 0)
    expect(files and content[at:] == bytes(directory) + end, f"not a pack: byte {at} and what follows is not one's")
    expect(len({name.casefold() for name in files}) == len(files), "two names that some systems take for one")
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
    """Whether anybody can sign under this point, or it is not in the one form that its point has."""
    y = point[:-1] + bytes([point[-1] & 0x7F]) if point else b""
    return y.hex() in SMALL_ORDER or int.from_bytes(y, "little") >= PRIME


@dataclass(frozen=True)
class Key:
    """A public key of an authority, and when it may sign."""

    owner: str
    role: str
    branches: tuple[str, ...]
    public: bytes
    begins: int
    ends: int  # by age or revocation

    def verifies(self, signature: bytes, message: bytes) -> bool:
        if is_weak(signature[:32]):
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
    """Whom to believe. Nobody signs it: whoever checks brings it along."""

    keys: tuple[Key, ...]
    documents: dict[str, int]  # how many authorities of a role have to sign a document
    checkpoints: dict[str, int]  # and a checkpoint: one trainer, and so many cosigners of each other role
    digest: str


def read_trust(content: bytes, what: str) -> Trust:
    value = shape(parse_json(content, what), what, "format:text name:text authorities:list quorum:object")
    expect(value["format"] == "explorer/trust/v1", f"{what}: not a trust file of version 1")
    quorum = shape(value["quorum"], f"{what}: quorum", "documents:object checkpoints:object")
    for role, number in [*quorum["documents"].items(), *quorum["checkpoints"].items()]:
        expect(role in ROLES and type(number) is int and number > 0, f"{what}: quorum: {role!r:.40}: {number!r:.40}")
    keys: list[Key] = []
    for at, authority in enumerate(value["authorities"]):
        here = f"{what}: authorities[{at}]"
        expect(isinstance(authority, dict), f"{here}: expected an object")
        authority.setdefault("branches", [])  # the digest is of every key written out
        shape(authority, here, "name:text role:text branches:list keys:list")
        expect(authority["role"] in ROLES, f"{here}: unknown role {authority['role']!r:.40}; known: {', '.join(ROLES)}")
        expect(authority["keys"] and authority["name"] not in {key.owner for key in keys}, f"{here}: twice, or no key")
        keys += [_trusted(authority, key, f"{here}: a key") for key in authority["keys"]]
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
    expect(not is_weak(public), f"{what}: anybody can sign for it")
    branches = tuple(texts(authority["branches"], f"{what}: branches"))
    return Key(authority["name"], authority["role"], branches, public, begins, ends)


def covers(branch: str, path: str) -> bool:
    """Whether a class lies in a branch of the taxonomy."""
    return path == branch or path.startswith(f"{branch}/")


@dataclass(frozen=True)
class Envelope:
    """DSSE: a payload, its type, and signatures over both, none of them checked."""

    what: str
    payload: bytes
    kind: str
    signatures: tuple[bytes, ...]
    hints: tuple[Any, ...]  # a key id for each signature, or None
    more: tuple[str, ...]  # names in it that DSSE does not know

    @property
    def signed(self) -> bytes:
        """PAE: the bytes that a signature covers."""
        parts = (self.kind.encode(), self.payload)
        return b"DSSEv1" + b"".join(b" %d %b" % (len(part), part) for part in parts)

    def loose(self, trust: Trust) -> list[str]:
        """What stands in it and no signature of a known key determines, in words."""
        ids = {key_id(key.public): key for key in trust.keys}
        by = [next((key for key in trust.keys if key.verifies(each, self.signed)), None) for each in self.signatures]
        pairs = [(key, hint) for key, hint in zip(by, self.hints, strict=True) if key is not None and hint]
        found = [f"{by.count(None)} signatures of keys that the trust file does not have"] if None in by else []
        found += ["key ids that are not of the keys that have signed"] if any(ids.get(h) != k for k, h in pairs) else []
        return found + ([f"the names {', '.join(self.more[:3])}"] if self.more else [])

    def signers(self, trust: Trust) -> list[Key]:
        """The keys that have signed. Their ids are hints, and are not looked at."""
        return [key for key in trust.keys if any(key.verifies(each, self.signed) for each in self.signatures)]

    def require(
        self, trust: Trust, role: str, value: dict[str, Any], now: int, branches: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """The authorities of this role that vouch for it: as many as the trust file asks for, entitled to all of these
        branches, by keys that held when it was issued, before it expires."""
        issued, expires = seconds(value.get("issued"), self.what), seconds(value.get("expires"), self.what)
        expect(issued <= now < expires, f"{self.what}: holds from {utc(issued)} to {utc(expires)}, not at {utc(now)}")
        signers, needed, branches = self.signers(trust), trust.documents.get(role), [*branches]
        expect(signers, f"{self.what}: nobody in the trust file has signed it, or it was changed")
        able = [key for key in signers if key.role == role and key.held(issued)]
        able = [key for key in able if all(any(covers(own, each) for own in key.branches) for each in branches)]
        names = tuple(sorted({key.owner for key in able}))
        found = ", ".join(f"{key.owner} ({key.role})" for key in signers)
        asked = f"{needed or 'nobody'} of the role {role}, entitled at {utc(issued)} to {', '.join(branches) or 'it'}"
        expect(needed and len(names) >= needed, f"{self.what}: it takes {asked}; signed by {found}")
        return names


def open_envelope(value: Any, what: str, kind: str) -> Envelope:
    """Keys that DSSE does not know are passed over, as it asks."""
    shape(value, what, "payload:text payloadType:text signatures:list ...")
    expect(0 < len(value["signatures"]) <= MAX_SIGNATURES, f"{what}: {len(value['signatures'])} signatures")
    found = [shape(each, what, "sig:text ...") for each in value["signatures"]]
    expect(value["payloadType"] == kind, f"{what}: holds {value['payloadType']!r:.80}, expected {kind!r}")
    payload = decode64(value["payload"], what, urlsafe=True)
    hints = tuple(each.get("keyid") for each in found)
    expect(all(isinstance(each, str | None) for each in hints), f"{what}: keyid: expected text")
    more = [
        *(value.keys() - {"payload", "payloadType", "signatures"}),
        *(n for e in found for n in e.keys() - {"sig", "keyid"}),
    ]
    signatures = tuple(decode64(each["sig"], what, urlsafe=True) for each in found)
    return Envelope(what, payload, kind, signatures, hints, tuple(sorted({*more})))


def key_id(public: bytes) -> str:
    """The id under which `securesystemslib` signs with an Ed25519 key."""
    key = {"keytype": "ed25519", "keyval": {"public": public.hex()}, "scheme": "ed25519"}
    return sha256(canonical(key, "key")).hex()


# ---------------------------------------------------------------------------------------- signed notes, checkpoints

LINE = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")
PLAIN, COSIGNED = 1, 4  # types of keys: Ed25519 over the text; Ed25519 over a time and the text


@dataclass(frozen=True)
class Note:
    """A checkpoint and its signature lines, none of them checked."""

    text: str
    origin: str
    size: int
    root: bytes
    lines: tuple[tuple[str, bytes], ...]  # name; key id, 4 bytes, and signature

    def signatures(self, trust: Trust) -> list[tuple[Key, int]]:
        """The keys of the trust file that have signed, a trainer's as the log's own, each with the time of its
        cosignature (0: a plain one has none). No signature of a known key may be false; others are passed over. A log
        whose name begins with one trainer's is signed by no other."""
        found = []
        for key in trust.keys:
            for signature in [blob[4:] for who, blob in self.lines if (who, blob[:4]) == self.line_of(key, trust)]:
                moment, message = 0, self.text
                if key.role != TRAINER:
                    expect(len(signature) == 72, f"the cosignature of {key.owner} has {len(signature)} bytes")
                    moment, signature = int.from_bytes(signature[:8]), signature[8:]
                    message = f"cosignature/v1\ntime {moment}\n{self.text}"
                name = self.origin if key.role == TRAINER else key.owner
                expect(key.verifies(signature, message.encode()), f"the signature of {name} does not match the text")
                found.append((key, moment))
        return found

    def line_of(self, key: Key, trust: Trust) -> tuple[str, bytes] | None:
        """The name and key id of a key's signature lines here; None for a trainer who may not sign this log."""
        if key.role != TRAINER:
            return key.owner, note_id(key.owner, COSIGNED, key.public)
        namesakes = {
            each.owner for each in trust.keys if each.role == TRAINER and self.origin.startswith(f"{each.owner}/")
        }
        return (
            None
            if key.owner != max(namesakes, key=len, default=key.owner)
            else (
                self.origin,
                note_id(self.origin, PLAIN, key.public),
            )
        )

    def strangers(self, trust: Trust) -> int:
        """How many signature lines are of keys that the trust file does not have."""
        known = [self.line_of(key, trust) for key in trust.keys]
        return sum((name, blob[:4]) not in known for name, blob in self.lines)


def note_id(name: str, kind: int, public: bytes) -> bytes:
    """The id of a key in a signed note."""
    return sha256(name.encode(), b"\n", bytes([kind]), public)[:4]


def read_note(content: bytes, what: str) -> Note:
    """A signed note that is a checkpoint. Lines of any key are read; a name has no space and no plus sign."""
    expect(len(content) <= MAX_NOTE, f"{what}: {len(content)} bytes, at most {MAX_NOTE} are read")
    try:
        whole = content.decode()
    except UnicodeDecodeError as error:
        raise Refused(f"{what}: not UTF-8") from error
    text, gap, lines = whole.rpartition("\n\n")
    text, found = f"{text}\n", lines.split("\n")
    sound = gap and found.pop() == "" and 0 < len(found) <= MAX_SIGNATURES
    sound = sound and not re.search(r"[\x00-\x09\x0b-\x1f]", whole)
    signed = [LINE.fullmatch(line) for line in found]
    expect(sound and all(signed), f"{what}: not a signed note")
    blobs = [(match[1], decode64(match[2], what)) for match in signed if match]
    expect(all(len(blob) > 4 for _, blob in blobs), f"{what}: not a signed note: a line without a signature")
    said = text.split("\n")
    expect(len(said) >= 4 and re.fullmatch(r"0|[1-9][0-9]{0,15}", said[1]), f"{what}: not a checkpoint")
    expect(0 < len(said[0]) <= MAX_ORIGIN and all(said[3:-1]), f"{what}: not a checkpoint: an empty or long line")
    return Note(text, said[0], int(said[1]), decode64(said[2], what, length=32), tuple(blobs))


def judge(note: Note, others: Sequence[Note], trust: Trust, now: int) -> tuple[list[str], list[str]]:
    """Who has signed and who has cosigned a checkpoint, if the trust file believes it. `others`: witnesses' notes.

    A trainer's signature carries no time: it was there when the quorum had cosigned, at the latest, and else now.
    """
    asked = dict(trust.checkpoints)
    expect(asked.pop(TRAINER, 0) == 1, "the trust file does not ask for one trainer, and so believes no checkpoint")
    times: dict[str, dict[str, int]] = {}  # by role, the earliest cosignature of each authority that counts
    for other in [note, *(other for other in others if other.text == note.text)]:
        for key, moment in other.signatures(trust):
            if key.role != TRAINER and key.held(moment) and moment <= now + SKEW:
                mine = times.setdefault(key.role, {})
                mine[key.owner] = min(moment, mine.get(key.owner, moment))
    met = []
    for role, needed in asked.items():
        ordered = sorted(times.get(role, {}).values())
        expect(len(ordered) >= needed, f"cosigned by {len(ordered)} of the role {role}; the quorum asks for {needed}")
        met.append(ordered[needed - 1])
    counted = [moment for mine in times.values() for moment in mine.values()]
    latest = min(max(met) if met else min(counted, default=now), now)
    signed = [key for key, _ in note.signatures(trust) if key.role == TRAINER]
    expect(signed, "signed by no trainer of the trust file")
    good = sorted({key.owner for key in signed if key.held(latest)})
    expect(good, f"signed by {signed[0].owner} with a key that does not hold at {utc(latest)}")
    return good, [f"{name} at {utc(at)}" for mine in times.values() for name, at in sorted(mine.items())]


# ------------------------------------------------------------------------------------------------------- the ledger


def leaf_hash(entry: bytes) -> bytes:
    return sha256(b"\x00", entry)


class Tree:
    """The tree of RFC 6962 over leaf hashes, so that the root of any size costs a few hashes: `levels[k]` are the
    hashes of whole subtrees of 2**k leaves."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.size, self.levels = len(leaves), [list(leaves)]
        while len(row := self.levels[-1]) > 1:
            self.levels.append([sha256(b"\x01", *row[at : at + 2]) for at in range(0, len(row) & ~1, 2)])

    def root(self, size: int | None = None) -> bytes:
        """Of the first so many leaves; of all of them."""
        size, at, whole = self.size if size is None else size, 0, []
        for level in reversed(range(len(self.levels))):
            if size >> level & 1:
                whole.append(self.levels[level][at >> level])
                at += 1 << level
        found = whole.pop() if whole else sha256()
        while whole:
            found = sha256(b"\x01", whole.pop(), found)
        return found

    def tiles(self) -> dict[str, bytes]:
        """Every tile of the tree."""
        made: dict[str, bytes] = {}
        for level, row in enumerate(self.levels[::8]):
            rows = [row[at : at + 256] for at in range(0, len(row), 256)]
            made |= {spell(str(level), at, len(each)): b"".join(each) for at, each in enumerate(rows)}
        return made


def check_inclusion(proof: Sequence[bytes], index: int, size: int, leaf: bytes, expected: bytes) -> None:
    """RFC 9162, 2.1.3.2."""
    expect(0 <= index < size, f"no entry {index} of {size}")
    position, last, found = index, size - 1, leaf
    for each in proof:
        expect(last, "the proof is too long")
        if position & 1 or position == last:
            found = sha256(b"\x01", each, found)
            while position and not position & 1:
                position, last = position >> 1, last >> 1
        else:
            found = sha256(b"\x01", found, each)
        position, last = position >> 1, last >> 1
    expect(not last and found == expected, f"the proof of entry {index} does not lead to the root")


def spell(kind: str, number: int, width: int) -> str:
    """Where a tile or bundle stands: tile/0/x001/x234/067.p/112."""
    groups = [f"{number % 1000:03}"]
    while number := number // 1000:
        groups.insert(0, f"x{number % 1000:03}")
    return f"ledger/tile/{kind}/{'/'.join(groups)}{'' if width == 256 else f'.p/{width}'}"


def read_leaves(files: dict[str, bytes], size: int) -> list[bytes]:
    """The entries as bytes, out of their bundles: each a length (2 bytes) and its bytes."""
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
        expect(at == len(content), f"{path}: {len(content) - at} bytes behind its last entry")
    return leaves


MAX_ENTRY, ENTRY_DEPTH, MAX_BLOBS = 65_535, 8, 256
KIND = re.compile(r"[a-z][a-z0-9-]{0,39}")
PROJECT = ("access", "deletion", "erasure", "grant", "observation")  # kinds of entries of a project's ledger
KINDS = {
    "genesis": "run:line recipe:digest code:digest environment:digest data:digest tags:{name:sources} taxonomy:digest? "
    "policy:digest? trust:digest? judged:whole? strategy:plain|microbatch|fused seed:whole initial:digest begins:whole "
    "start:training? classes:[path] layers:[line] parents:[parent] shared:[same]= "
    "methods:{name:traits}?= fitted:{normalisation|tokeniser:line}?=",
    "step": "step:whole phase:line slots:digest examples:[whole] numbers:[digest?] joint:digest? quarantined:whole "
    "weights:digest? updated:bits",
    "profile": "step:whole probes:digest classes:{path:digest} joint:digest",
    "state": "step:whole state:training sketches:[digest?]=",
    "decision": "step:whole action:freeze|re-open|override|activation|selection|re-execution rule:name "
    "parameters:{name:float} condition:name? subjects:[path] layers:[line] evidence:{path:digest}",
    "end": "step:whole outcome:finished|stopped state:training metrics:{name:float}",
}
"""What version 1 of each kind of entry of a run holds, beside kind, version and blobs."""
GONE = {
    "erasure": "ledger:ledger classes:[path] records:whole",
    "deletion": "ledger:ledger result:ledger? request:digest classes:[path] authorities:[line] records:whole "
    "level:G0|G1|G2|G3 evidence:{name:digest}",
}
"""The same of the entries in a project's ledger that say that numbers of a run are gone."""


def read_entry(leaf: bytes, index: int) -> dict[str, Any]:
    """One JSON object in canonical form, with kind, version and blobs. A kind or version not known here is kept."""
    what = f"entry {index}"
    expect(len(leaf) <= MAX_ENTRY, f"{what}: {len(leaf)} bytes, at most {MAX_ENTRY} are read")
    value = parse_json(leaf, what, fractions=False, depth=ENTRY_DEPTH)
    shape(value, what, "kind:text version:whole blobs:{blob-name:blob} ...")
    expect(canonical(value, what) == leaf, f"{what}: not in canonical form: the same value has other bytes")
    kind, version = value["kind"], value["version"]
    expect(KIND.fullmatch(kind) and 0 < version < 2**31, f"{what}: no kind of entry: {kind!r:.60}, version {version}")
    expect(len(value["blobs"]) <= MAX_BLOBS, f"{what}: {len(value['blobs'])} blobs, at most {MAX_BLOBS}")
    objects = [value]
    while objects:
        each = objects.pop()
        if isinstance(each, dict):
            expect(all(map(str.isascii, each)), f"{what}: a key that is not ASCII")
        objects += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    if kind in KINDS and version == 1:
        head = "kind:text version:whole blobs:object"
        shape(value, f"{what}: {kind}", f"{head} {KINDS[kind]}")
    return value


@dataclass(frozen=True)
class Segment:
    """Steps and the state that closes them, whose blobs hold their numbers."""

    first: int
    steps: tuple[tuple[int, dict[str, Any]], ...]  # entry, step; the latest execution of each
    state: int  # its entry


@dataclass
class Run:
    """What the entries come to."""

    entries: list[dict[str, Any]]
    tree: Tree
    segments: list[Segment]
    superseded: int  # steps that were executed again
    unknown: int  # entries of kinds or versions not known here

    @property
    def genesis(self) -> dict[str, Any]:
        return self.entries[0]


def read_run(files: dict[str, bytes], note: Note) -> Run:
    """The tree, rebuilt from its entries and compared with every file of it, and the entries in their order."""
    leaves = read_leaves(files, note.size)
    tree = Tree([leaf_hash(leaf) for leaf in leaves])
    made = tree.tiles()
    stored = {name: content for name, content in files.items() if name.startswith("ledger/tile/")}
    bundles = {spell("entries", at, min(256, note.size - at * 256)) for at in range(-(-note.size // 256))}
    expect(tree.root() == note.root, f"the {note.size} entries do not have the root that the checkpoint names")
    for name in sorted({*made, *(stored.keys() - bundles)}):
        expect(stored.get(name) == made.get(name), f"{name}: not what the entries give")
    entries = [read_entry(leaf, index) for index, leaf in enumerate(leaves)]
    return _in_order(entries, tree)


def _in_order(entries: list[dict[str, Any]], tree: Tree) -> Run:
    """One genesis, nothing after the end, and a clock of steps that only a decision to re-execute sets back."""
    expect(entries and entries[0]["kind"] == "genesis" and entries[0]["version"] == 1, "entry 0: expected a genesis")
    genesis, clock, unknown = entries[0], entries[0]["begins"], 0
    texts(genesis["classes"], "entry 0: classes")
    texts(genesis["layers"], "entry 0: layers")
    for index, entry in enumerate(entries[1:], 1):
        kind, what = entry["kind"], f"entry {index}"
        expect(entries[index - 1]["kind"] != "end", f"{what}: {kind} after the end")
        expect(kind not in ("genesis", *PROJECT), f"{what}: a {kind} in a run")
        if kind not in KINDS or entry["version"] != 1:
            unknown += 1
            clock = None if kind in KINDS else clock
            continue
        at, again = entry["step"], kind == "decision" and entry["action"] == "re-execution"
        sound = at >= 0 and (clock is None or at == clock or (again and at < clock))
        expect(sound, f"{what}: {kind} at {at} steps, and {clock} were done")
        if kind == "step":
            lengths = [len(entry[name]) for name in ("examples", "numbers", "updated")]
            sound = lengths == [len(genesis["classes"]), len(genesis["classes"]), len(genesis["layers"])]
            expect(sound, f"{what}: of other classes or layers than the genesis")
        clock = at + (kind == "step")
    steps, states, superseded = _latest(entries)
    segments, first = [], genesis["begins"]
    for stop, index in states:
        span = range(first, stop) if stop - first <= len(steps) else ()
        mine = tuple((steps[step], entries[steps[step]]) for step in span if step in steps)
        if mine and len(mine) == stop - first:
            segments.append(Segment(first, mine, index))
        first = stop
    return Run(entries, tree, segments, superseded, unknown)


def _latest(entries: list[dict[str, Any]]) -> tuple[dict[int, int], list[tuple[int, int]], int]:
    """The entry of each step, and steps done and entry of each state, as they were executed last; and how many steps
    were not. From the end to the beginning: a re-execution takes back what stands before it, at its step or later."""
    steps: dict[int, int] = {}
    states: list[tuple[int, int]] = []
    since, superseded = 2**53, 0
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
    """Every blob that an entry names is here, and is what its name says; or the numbers of its class were erased, and
    the project's ledger says so: otherwise the numbers that convict a run could be withheld and called erased."""
    named: dict[str, set[str]] = {}  # by path, what entries call it
    for entry in run.entries:
        for name, blob in entry["blobs"].items():
            path = blob_path(blob["sha256"])
            named.setdefault(path, set()).add(name)
            same = path not in files or len(files[path]) == blob["size"]
            expect(same, f"blob {blob['sha256']}: of another size than is said")
    for path in [path for path in files if path.startswith("ledger/blobs/")]:
        expect(path in named, f"{path}: no entry names it")
        digest = path.rpartition("/")[2]
        expect(sha256(files[path]).hex() == digest, f"{path}: the blob was altered: its name is its digest")
        findings.bound.add(path)
        findings.count("blobs, each what its name says and named by an entry")
    gone: dict[str, int] = {}
    for path in sorted(named.keys() - files.keys()):
        says = [_erased_by(name, erased) for name in sorted(named[path])]
        which = ", ".join(map(str, sorted({index for entries in says for index in entries})))
        said = f"erased: entry {which} of the project's ledger"
        words = f"{min(named[path])}: {said if all(says) else WITHHELD}"
        gone[words] = gone.get(words, 0) + 1
    for words, number in gone.items():
        (findings.failed if words.endswith(WITHHELD) else findings.unchecked).append(f"{number} blobs {words}")


WITHHELD = "missing, and no entry of the project's ledger says that it was erased"


def _erased_by(name: str, erased: dict[str, list[int]]) -> list[int]:
    """The entries that say that a blob of this name was erased: of its class, or of any for numbers over several."""
    what, _, path = name.partition("/")
    if name == "joint":
        return [index for entries in erased.values() for index in entries]
    return erased.get(path, []) if what in ("numbers", "sketches", "evidence") else []


def read_erasures(
    files: dict[str, bytes], note: Note, trust: Trust, now: int, findings: Findings
) -> dict[str, list[int]]:
    """By class, the entries of the project's ledger that say that its numbers were erased from this very run; each with
    the proof that it is in there, under a checkpoint that is believed as the run's is."""
    state = {"origin": note.origin, "size": note.size, "root": note.root.hex()}
    found: dict[str, list[int]] = {}
    for name in [name for name in files if name.startswith("erasures/")]:
        with findings.looking_at(name):
            index, leaf, hashes, rest = read_proof(name, files[name])
            project = read_note(rest, name)
            judge(project, [], trust, now)
            expect(leaf is not None, "does not hold its entry")
            check_inclusion(hashes, index, project.size, leaf_hash(leaf or b""), project.root)
            entry = read_entry(leaf or b"", index)
            expect(entry["kind"] in GONE and entry["version"] == 1, f"a {entry['kind']} entry erases nothing")
            said = shape(entry, name, f"kind:text version:whole blobs:object {GONE[entry['kind']]}")
            expect(said["ledger"] == state, "about another ledger, or another state of it")
            for path in said["classes"]:
                found.setdefault(path, []).append(index)
            findings.count("erasures on the record of the project")
            _covered(name, project, trust, findings)
    return found


MAX_WITNESSES = 100


def check_ledger(files: dict[str, bytes], trust: Trust | None, now: int, findings: Findings) -> tuple[Note, Run]:
    """The ledger as a whole: tree, entries, order, blobs, signatures, and what witnesses have seen."""
    expect("ledger/checkpoint" in files, "ledger/checkpoint: missing")
    note = read_note(files["ledger/checkpoint"], "ledger/checkpoint")
    run = read_run(files, note)
    findings.bound |= {name for name in files if name.startswith("ledger/tile/")}
    findings.count("entries, in canonical form and in an order that can be", note.size)
    findings.count("tiles of the tree, rebuilt from the entries", len(run.tree.tiles()))
    with findings.looking_at(""):
        erased = {} if trust is None else read_erasures(files, note, trust, now, findings)
        check_blobs(files, run, erased, findings)
    if trust is not None:
        witnesses = read_witnesses(files, note, run, trust, findings)
        with findings.looking_at("ledger/checkpoint"):
            signed, cosigned = judge(note, witnesses, trust, now)
            by = f"{', '.join(signed)} and cosigned by {', '.join(cosigned) or 'nobody'}"
            findings.count(f"checkpoint, signed by {by}")
            _covered("ledger/checkpoint", note, trust, findings)
    if run.entries[-1]["kind"] != "end":
        findings.unchecked.append("what comes after: the ledger does not end with 'end', so there may be more")
    if run.superseded:
        findings.unchecked.append(f"{run.superseded} steps that were executed again: only the latest execution is read")
    if run.unknown:
        findings.unchecked.append(f"{run.unknown} entries of kinds or versions not known here: only their bytes are")
    return note, run


def read_witnesses(files: dict[str, bytes], note: Note, run: Run, trust: Trust, findings: Findings) -> list[Note]:
    """The notes of witnesses: checkpoints of this log that somebody of the trust file has signed, all of which the tree
    has to extend.

    A file that is named after a witness of the trust file has to be its note. Anybody can write other files there: one
    that is damaged, of another log or signed by nobody known vouches for nothing and stops nothing; at most 100 are
    read, the known witnesses' first.
    """
    owners = {f"ledger/witness/{_file_of(key)}": key for key in trust.keys if key.role != TRAINER}
    names = [name for name in files if name.startswith("ledger/witness/")]
    names.sort(key=lambda name: (name not in owners, not re.search(r"\+[0-9a-f]{8}\.note$", name), name))
    found = []
    for name in names[:MAX_WITNESSES]:
        try:
            other = read_note(files[name], name)
            signers = [key for key, _ in other.signatures(trust)]
            expect(signers, "cosigned by nobody in the trust file")
            expect(other.origin == note.origin, f"of another log, {other.origin!r:.80}")
            expect(
                any(key.role == TRAINER for key in signers), "no trainer of the trust file has signed what it cosigns"
            )
            mine = owners.get(name)
            expect(mine is None or mine in signers, f"does not hold the cosignature of {mine and mine.owner}")
        except Refused as fault:
            said = f"{name}: {str(fault).removeprefix(f'{name}: ')}"
            if name in owners:
                findings.failed.append(said)
            else:
                findings.unchecked.append(f"{said}: it vouches for nothing")
            continue
        with findings.looking_at(name):
            expect(other.size <= note.size, f"rolled back: its witness saw {other.size} entries, not {note.size}")
            expect(run.tree.root(other.size) == other.root, "what this witness saw was rewritten since")
            findings.count("notes of witnesses, which the tree extends")
            _covered(name, other, trust, findings)
            if all(key.role == TRAINER for key in signers):
                findings.unchecked.append(f"{name}: cosigned by nobody in the trust file")
        found.append(other)
    if len(names) > MAX_WITNESSES:
        rest = names[MAX_WITNESSES:]
        findings.unchecked.append(f"{len(rest)} more notes of witnesses, {rest[0]} to {rest[-1]}: at most 100 are read")
        findings.bound |= {*rest}  # named as a range
    return found


def _file_of(key: Key) -> str:
    """The name of a witness's note."""
    return f"{re.sub(r'^[.]|[^A-Za-z0-9.-]', '_', key.owner)}+{note_id(key.owner, COSIGNED, key.public).hex()}.note"


def _covered(name: str, signed: "Note | Envelope", trust: Trust, findings: Findings) -> None:
    """Signatures determine what this file says, but for what is named."""
    if isinstance(signed, Note):
        number = signed.strangers(trust)
        loose = [f"{number} signature lines of keys that the trust file does not have"] if number else []
    else:
        loose = signed.loose(trust)
    findings.bound.add(name)
    if loose:
        findings.unchecked.append(f"{name}: {', '.join(loose)}: nothing determines these")


def read_proof(name: str, content: bytes) -> tuple[int, bytes | None, list[bytes], bytes]:
    """C2SP tlog-proof: that one entry is in a tree, for one who has nothing else. The entry's number, which is the name
    of the file, the entry if it is in there, the hashes, and the checkpoint, a note."""
    head, _, rest = content.partition(b"\n\n")
    lines = head.decode("ascii", errors="replace").split("\n")
    extra = lines.pop(1).removeprefix("extra ") if len(lines) > 1 and lines[1].startswith("extra ") else None
    index = int(name.rpartition("/")[2].removesuffix(".tlog-proof"))
    sound = lines[:2] == ["c2sp.org/tlog-proof@v1", f"index {index}"] and len(lines) <= 66
    expect(sound, f"{name}: not a proof of entry {index}")
    leaf = None if extra is None else decode64(extra, name)
    return index, leaf, [decode64(each, name, length=32) for each in lines[2:]], rest


def check_proof(name: str, content: bytes, checkpoint: bytes, note: Note, run: Run) -> None:
    """A proof of an entry of the run, under the checkpoint of the pack."""
    index, leaf, hashes, rest = read_proof(name, content)
    expect(index < note.size, f"{name}: no proof of one of {note.size} entries")
    expect(rest == checkpoint, f"{name}: of another checkpoint, or with other signatures than ledger/checkpoint")
    mine = run.tree.levels[0][index]
    expect(leaf is None or leaf_hash(leaf) == mine, f"{name}: holds another entry than it says")
    check_inclusion(hashes, index, note.size, mine, note.root)


# ------------------------------------------------------------------------------ the documents that governed the run


def check_documents(files: dict[str, bytes], run: Run, trust: Trust, findings: Findings) -> list[str]:
    """Taxonomy, policy and tags: those that the genesis names, signed by who may, as of the moment that it names.

    Returns the branches whose numbers the policy has sealed.
    """
    genesis, sealed = run.genesis, []
    judged = genesis["judged"] or 0
    with findings.looking_at("governance/trust.json"):
        own = read_trust(_needed(files, "governance/trust.json"), "governance/trust.json")
        expect(own.digest == genesis["trust"], "not the trust file that the genesis names")
        findings.bound.add("governance/trust.json")
        findings.count("trust file of the run, which the genesis names; nobody is believed because of it")
        if own.digest != trust.digest:
            findings.unchecked.append("that the run was begun under your trust file: it was begun under another one")
    taxonomy = _document(files, "taxonomy", GOVERNANCE, genesis["taxonomy"], judged, trust, findings)
    if taxonomy is not None:
        with findings.looking_at("governance/taxonomy.json"):
            classes = shape(taxonomy, "taxonomy", "classes:list ...")["classes"]
            strange = {*genesis["classes"]} - {shape(each, "a class", "path:text ...")["path"] for each in classes}
            expect(not strange, f"the run has classes that it does not: {', '.join(sorted(strange)[:3])}")
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
    """A signed document that the genesis names; None: it names none, or it is not to be believed."""
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
    """The attestation of the tag table: which file, which root over its rows, and who vouches for which class."""
    envelope = open_envelope(parse_json(_needed(files, "governance/tags.json"), ""), "tags", STATEMENT)
    expect(envelope.signers(trust), "nobody in the trust file has signed it, or it was changed")
    subjects, table = read_statement(envelope, "tag-table/v1")
    expect(len(subjects) == 2, f"{len(subjects)} subjects, expected a file and the root of its rows")
    named = [(each.get("root"), each.get("attestation")) for each in genesis["tags"].values() if isinstance(each, dict)]
    expect((subjects[1], sha256(envelope.payload).hex()) in named, "not the tags that the genesis names")
    expect(sha256(_needed(files, "governance/tags.parquet")).hex() == subjects[0], "tags.parquet was not signed")
    findings.bound.add("governance/tags.parquet")
    _covered("governance/tags.json", envelope, trust, findings)
    expect(table.get("taxonomy") == genesis["taxonomy"], "made for another taxonomy")
    expect(isinstance(table.get("vouchers"), list), "vouchers: expected a list")
    for voucher in table["vouchers"]:
        shape(voucher, "vouchers", "authority:text classes:object")
        for path, count in voucher["classes"].items():
            records = shape(count, f"vouchers: {path}", "records:number first:number")["records"]
            try:
                names = envelope.require(trust, GOVERNANCE, table, now, [path] if path != "quarantine" else [])
                expect(voucher["authority"] in names, f"{voucher['authority']} has not signed, or may not")
            except Refused as fault:
                findings.unchecked.append(f"{records} tags of {path}, which nobody to be believed vouches for: {fault}")
            else:
                findings.count(f"tags of {path}, signed for by {', '.join(names)}", records)


STATEMENT = "application/vnd.in-toto+json"


CLAIMS = "urn:uuid:5c06314d-e92a-42ff-b8a5-d7b8024b3f28#", "https://explorer.example/"
"""What the types of statements begin with, in this version and in earlier ones."""


def read_statement(envelope: Envelope, claim: str) -> tuple[list[str], dict[str, Any]]:
    """in-toto Statement v1: the digests of its subjects, and what it says of them."""
    value = shape(parse_json(envelope.payload, envelope.what), envelope.what, "subject:list predicate:object ...")
    kinds = [f"{begin}{claim}" for begin in CLAIMS]
    right = value.get("_type") == "https://in-toto.io/Statement/v1" and value.get("predicateType") in kinds
    expect(right, f"{envelope.what}: not a statement of the type {kinds[0]}")
    digests = [each.get("digest") if isinstance(each, dict) else None for each in value["subject"]]
    found = [each.get("sha256") if isinstance(each, dict) else None for each in digests]
    return [str(each) for each in found], value["predicate"]


def check_papers(files: dict[str, bytes], note: Note, run: Run, trust: Trust, made: int, findings: Findings) -> None:
    """What trainers have signed about the run's model and about deletions, as of when the pack was made: that they
    have, and that it is about this ledger. Its claims are for other programs to derive again."""
    for name in [name for name in files if name.startswith(("deletions/", "model/attestation"))]:
        kind = "model" if name.startswith("model/") else "deletion"
        with findings.looking_at(name):
            envelope = open_envelope(parse_json(files[name], name), name, STATEMENT)
            subjects, said = read_statement(envelope, f"{kind}/v1")
            names = envelope.require(trust, TRAINER, said, made)
            about = [said] if kind == "model" else [said.get("old"), said.get("new")]
            known = any(isinstance(each, dict) and is_state(each.get("ledger"), note, run) for each in about)
            expect(known, "about another ledger")
            if kind == "model":
                expect(sha256(_needed(files, "model/model.json")).hex() in subjects, "model/model.json: not its card")
                findings.bound.add("model/model.json")
            findings.count(f"statement about a {kind}, signed by {', '.join(names)}")
            _covered(name, envelope, trust, findings)
            verb = "verify MODEL" if kind == "model" else "delete verify"
            findings.unchecked.append(f"what {name} claims: needs the model and the runs: explorer {verb}")


def check_origin(files: dict[str, bytes], run: Run, findings: Findings) -> None:
    """Where a run comes from that a deletion made: its genesis names the same ledger."""
    value = shape(parse_json(files["origin.json"], "origin.json"), "origin.json", "ledger:object begins:number ...")
    parents = [each for each in run.genesis["parents"] if isinstance(each, dict) and each.get("kind") == "deletion"]
    named = [(each.get("ledger"), run.genesis["begins"]) for each in parents]
    expect((value["ledger"], value["begins"]) in named, "origin.json: not what the genesis goes on from")
    findings.count("origin of the run, which its genesis names")
    findings.bound.add("origin.json")
    rest = ", ".join(sorted(value.keys() - {"ledger", "begins"}))
    findings.unchecked.append(f"origin.json: {rest}: no entry names these: explorer delete verify compares them")


def check_recipe(files: dict[str, bytes], run: Run, findings: Findings) -> None:
    """run.json or, of a loop of somebody's own, loop.json: the genesis names its identity by digest, and other fields
    follow from that; environment.json, which the genesis names too."""
    genesis, bound = run.genesis, findings.bound
    if "environment.json" in files:
        with findings.looking_at("environment.json"):
            digest = sha256(files["environment.json"]).hex()
            expect(digest == genesis["environment"], "not the environment that the genesis names")
            findings.count("environment of the run, which its genesis names")
            bound.add("environment.json")
    else:
        findings.unchecked.append("environment.json: not in the pack: the genesis names it by digest alone")
    plans = [name for name in ("run.json", "loop.json") if name in files]
    expect(len(plans) < 2, "run.json and loop.json: a run has one of them")
    if not plans:
        findings.unchecked.append("run.json, loop.json: not in the pack: the genesis names the recipe by digest alone")
    for name in plans:
        with findings.looking_at(name):
            value = parse_json(files[name], name)
            identity = shape(value, name, "run_id:text identity:object ...")["identity"]
            expect(
                sha256(canonical(identity, name)).hex() == genesis["recipe"], "not the recipe that the genesis names"
            )
            follows = _following(identity, run) if name == "run.json" else {"format": "explorer/loop/v1"}
            follows["run_id"] = genesis["run"]
            for key, expected in follows.items():
                same = key in value and canonical(value[key], name) == canonical(expected, name)
                expect(same, f"{key}: found {value.get(key)!r:.80}; from identity and ledger follows {expected!r:.80}")
            findings.count("recipe of the run, which its genesis names")
            bound.add(name)
            rest = ", ".join(sorted(value.keys() - follows.keys() - {"identity"}))
            if rest:
                findings.unchecked.append(f"{name}: {rest}: these do not follow from its identity")


def _following(identity: dict[str, Any], run: Run) -> dict[str, Any]:
    """Fields of run.json that follow from the identity and the ledger."""
    last = run.entries[-1]
    curve = {name: value for name, value in identity.items() if name not in ("ssr", "seed", "initial")}
    found = {"format": 1, "recipe_digest": sha256(canonical(curve, "run.json")).hex()}
    found |= {name: identity[name] for name in ("ssr", "seed", "hardware") if name in identity}
    if last["kind"] == "end" and last["version"] == 1 and last["outcome"] == "finished":
        found["steps"] = last["step"]
    match identity.get("recipe"):
        case {"train": dict(train), **rest}:
            found |= {name: train[name] for name in ("batch_size", "precision") if name in train}
            methods, task = rest.get("methods"), rest.get("task")
            if isinstance(methods, list) and all(isinstance(each, dict) and len(each) == 1 for each in methods):
                found["methods"] = [next(iter(each)) for each in methods]
            for name in ("dataset", "model"):
                match task:
                    case {"dataset": dict(), "model": dict()} if len(task[name]) == 1:
                        found[name] = next(iter(task[name]))
    return found


def is_state(value: Any, note: Note, run: Run) -> bool:
    """Whether this names a state of the ledger: its origin, and the root that it had at a size."""
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
    """RFC 5869, 2.3, for one block."""
    return hmac.digest(key, info + b"\x01", "sha256")[:length]


def hpke_open(wrapped: bytes, private: X25519PrivateKey, info: bytes) -> bytes:
    """RFC 9180: base mode, one message without associated data; the encapsulated key and the ciphertext."""

    def extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
        return hmac.digest(salt, b"HPKE-v1" + suite + label + secret, "sha256")

    def expand(suite: bytes, key: bytes, label: bytes, context: bytes, length: int) -> bytes:
        return hkdf_expand(key, length.to_bytes(2) + b"HPKE-v1" + suite + label + context, length)

    sent, ciphertext = wrapped[:32], wrapped[32:]
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(sent))
    except ValueError as error:
        raise Refused("no key of X25519 before the wrapped keys") from error
    both = sent + private.public_key().public_bytes_raw()
    shared = expand(KEM, extract(KEM, b"", b"eae_prk", shared), b"shared_secret", both, 32)
    context = b"\x00" + extract(SUITE, b"", b"psk_id_hash", b"") + extract(SUITE, b"", b"info_hash", info)
    secret = extract(SUITE, shared, b"secret", b"")
    key, nonce = expand(SUITE, secret, b"key", context, 32), expand(SUITE, secret, b"base_nonce", context, 12)
    try:
        return AESGCM(key).decrypt(nonce, ciphertext, b"")
    except (InvalidTag, ValueError) as error:
        raise Refused("the wrapped keys do not open: altered, swapped, or wrapped to somebody else") from error


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
    """A grant with its wrapped keys: for this run, signed by who may open these classes, not expired, no wider than it
    says. Returns it in words, and the keys in it if it is to this reader."""
    value = shape(parse_json(content, name), name, "format:text grant:object run:text ledger:object keys:list")
    envelope = open_envelope(value["grant"], name, "application/vnd.explorer.grant.v1+json")
    grant = shape(parse_json(envelope.payload, name), name, GRANT)
    formats = value["format"], grant["format"]
    expect(formats == ("explorer/wrapped-keys/v1", "explorer/grant/v1"), f"{name}: of another version")
    expect(name == f"grants/{grant['id']}.json", f"{name}: holds the grant {grant['id']!r:.80}")
    branches, classes = texts(grant["classes"], name), run.genesis["classes"]
    names = envelope.require(trust, GOVERNANCE, grant, now, branches)
    expect(grant["owner"] in names, f"{name}: granted by {grant['owner']}, who has not signed it or may not")
    ours = run.genesis["run"]
    expect(ours == value["run"] and ours in texts(grant["runs"], name), f"{name}: for another run than {ours}")
    expect(is_state(value["ledger"], note, run), f"{name}: wrapped for another ledger, or another state of it")
    grantee = shape(grant["grantee"], name, "name:text public_key:text")
    public = decode64(grantee["public_key"], f"{name}: grantee", length=32)
    mine = reader is not None and reader.public_key().public_bytes_raw() == public
    keys: Keys = {}
    seen: set[tuple[str, str]] = set()
    for each in value["keys"]:
        one = shape(each, f"{name}: a key", "class:text kind:text wrapped:text")
        path, kind = one["class"], one["kind"]
        wanted = classes if path == JOINT else [path]
        inside = all(any(covers(branch, each) for branch in branches) for each in wanted)
        inside = inside and path in [*classes, JOINT] and kind in texts(grant["entries"], name)
        expect(inside, f"{name}: holds a key for {kind} entries of {path}, which it does not grant")
        expect((path, kind) not in seen, f"{name}: the key for {kind} of {path} stands there twice")
        seen.add((path, kind))
        info = {"class": path, "format": value["format"], "grant": sha256(envelope.payload).hex(), "kind": kind}
        wrapped = decode64(one["wrapped"], f"{name}: a key")
        if mine and reader is not None:
            bundle = hpke_open(wrapped, reader, canonical({**info, "ledger": note.origin, "run": ours}, name))
            parts = [bundle[at : at + 40] for at in range(0, len(bundle), 40)]
            firsts = [int.from_bytes(part[:8]) for part in parts]
            sound = parts and len(parts[-1]) == 40 and firsts == sorted({*firsts})
            expect(sound, f"{name}: the bundle for {kind} of {path} is not one of keys in the order of their steps")
            keys |= {(path, kind, first): part[8:] for first, part in zip(firsts, parts, strict=True)}
    _covered(name, envelope, trust, findings)
    return f"{grant['id']}: {grantee['name']} may read {', '.join(branches)} until {grant['expires']}", keys


class Reader:
    """Opens what keys open, and holds it against what the entries committed to."""

    def __init__(
        self, files: dict[str, bytes], run: Run, keys: Keys, branches: Sequence[str], findings: Findings
    ) -> None:
        """`branches`: those whose numbers the policy has sealed."""
        self.files, self.run, self.keys, self.findings = files, run, keys, findings
        classes = run.genesis["classes"]
        self.confidential = {path for path in classes if any(each == "*" or covers(each, path) for each in branches)}
        self.confidential |= {JOINT} if self.confidential else set()  # it gives others away by subtraction
        self.sealed: dict[str, int] = {}  # by class, blobs that no key here opens
        self.bare: dict[str, int] = {}  # and blobs that anybody can read, without a key for their commitments

    def read(self) -> None:
        """All numbers of all classes."""
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
            words = (
                f"that the numbers of {_class(path)}, in {number} blobs not sealed, are those committed to: not granted"
            )
            self.findings.unchecked.append(words)

    def _segment(self, segment: Segment) -> None:
        layers = len(self.run.genesis["layers"])
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
        content = self._content(segment.state, "joint", "step", JOINT, segment.first)
        if content is not None:
            having = [(index, step, step["joint"]) for index, step in segment.steps if step["joint"]]
            counts = [sum(each is not None for each in step["numbers"]) for _, step, _ in having]
            usual, exact = ([4 * layers * (1 + k * (k - 1) // 2 + more * k) for k in counts] for more in (1, 2))
            fits = len(content) in (sum(usual), sum(exact))
            expect(fits, f"entry {segment.state}: joint numbers: {len(content)} bytes, expected {sum(usual)}")
            self._parts(segment, JOINT, having, content, usual if len(content) == sum(usual) else exact)

    def _parts(
        self, segment: Segment, path: str, having: list[tuple[int, Any, Any]], content: bytes, sizes: list[int]
    ) -> None:
        at = 0
        for (index, step, committed), size in zip(having, sizes, strict=True):
            self._held(index, "step", path, segment.first, step["step"], committed, content[at : at + size])
            at += size

    def _entry(self, index: int, name: str, path: str, committed: object) -> None:
        """What a profile or a decision committed to: its key is that of its own step."""
        kind, step = self.run.entries[index]["kind"], self.run.entries[index]["step"]
        content = self._content(index, name, kind, path, step)
        if content is not None:
            self._held(index, kind, path, step, step, committed, content)

    def _content(self, index: int, name: str, kind: str, path: str, first: int) -> bytes | None:
        """A blob that the entry names, as far as it can be read."""
        blob = self.run.entries[index]["blobs"].get(name, {"sha256": ""})["sha256"]
        content, key = self.files.get(blob_path(blob)), self.keys.get((path, kind, first))
        if content is None:
            return None
        if not content.startswith(SEALED):
            expect(path not in self.confidential, f"entry {index}: {name}: not sealed, and the policy has it sealed")
            if key is None and not name.startswith("sketches/"):  # of which there is no commitment
                self.bare[path] = self.bare.get(path, 0) + 1
            return content
        if key is None:
            self.sealed[path] = self.sealed.get(path, 0) + 1
            return None
        self.findings.count(f"sealed blobs of {_class(path)}, opened")
        return _unseal(key, content, kind, name, first, f"entry {index}")

    def _held(self, index: int, kind: str, path: str, first: int, step: int, committed: object, part: bytes) -> None:
        """A commitment is SHA-256(salt || content), and the salt follows from the reading key and the step."""
        key = self.keys.get((path, kind, first))
        if key is not None:
            salt = hkdf_expand(key, b"explorer/salt/v1\x00" + step.to_bytes(8))
            same = sha256(salt, part).hex() == committed
            expect(same, f"entry {index}: the numbers of {_class(path)} are not those that it committed to")
            self.findings.count(f"numbers of {_class(path)}, each held against the commitment of its entry")


def _unseal(key: bytes, content: bytes, kind: str, name: str, first: int, what: str) -> bytes:
    """AES-256-GCM under a key that follows from the content itself, so that no key and nonce meet twice."""
    iv, ciphertext = content[len(SEALED) : len(SEALED) + 32], content[len(SEALED) + 32 :]
    data = hkdf_expand(hkdf_expand(key, b"explorer/data-key/v1"), b"explorer/blob/v1\x00" + iv)
    place = SEALED + b"\x00".join((kind.encode(), name.encode(), first.to_bytes(8)))
    try:
        plain = AESGCM(data).decrypt(bytes(12), ciphertext, place)
    except (InvalidTag, ValueError) as error:
        raise Refused(f"{what}: {name}: the seal is broken: altered, or sealed for another place") from error
    own = hmac.digest(hkdf_expand(key, b"explorer/iv/v1"), name.encode() + b"\x00" + plain, "sha256")
    expect(own == iv, f"{what}: {name}: the seal is broken: its iv does not follow from what it seals")
    return plain


def _class(path: str) -> str:
    return "several classes together" if path == JOINT else path


# ------------------------------------------------------------------------------------------------ the pack as a whole

NEVER = (
    "that a tag is true: its authority vouches for that",
    "that the record is true, and the gradients themselves: needs torch and the data: explorer replay",
    "that rows, weights and numbers fit tags and policy: needs the tag table (Parquet): explorer conform",
    "that nobody rolled the ledger back to this checkpoint: needs a later one, from somebody else",
)
NOT_READ = {
    "README.txt": "what it says: this program does not read it",
    "report.html": "what it says and what it does: nothing here reads it, and a page can run its maker's programs in "
    "your browser. Do not open it unless you believe who signed the pack; explorer report DIR makes it again",
    "report.json": "what it says: its figures are not compared with the ledger; explorer report DIR makes it again",
    "verify.py": "it is not the program that is running now",
    "pack.json": "when the pack was made and which keys lay on its host: the word of its maker",
}
"""Files of which nothing here determines what they say."""


def read_manifest(files: dict[str, bytes]) -> dict[str, Any]:
    """pack.json, which names every other file with size and digest."""
    content = _needed(files, "pack.json")
    fields = "format:text made:text run:text ledger:object files:list grants:list host:object"
    value = shape(parse_json(content, "pack.json"), "pack.json", fields)
    expect(value["format"] == "explorer/pack/v1", f"pack.json: format {value['format']!r:.60}")
    expect(canonical(value, "pack.json") == content, "pack.json: not in canonical form")
    said = [shape(each, "pack.json: files", "path:text sha256:text size:number") for each in value["files"]]
    found = [
        {"path": name, "sha256": sha256(body).hex(), "size": len(body)}
        for name, body in files.items()
        if name not in ("pack.json", "pack.dsse.json")
    ]
    for mine, theirs in zip(said, found, strict=False):
        expect(mine == theirs, f"{theirs['path']}: not the file that pack.json names: {mine['path']!r:.120}")
    expect(len(said) == len(found), f"pack.json names {len(said)} files, and the pack has {len(found)} others")
    granted = {name for name in files if name.startswith("grants/")}
    expect({f"grants/{each}.json" for each in texts(value["grants"], "grants")} == granted, "pack.json: other grants")
    return value


def check_signature(
    files: dict[str, bytes], manifest: dict[str, Any], trust: Trust, now: int, findings: Findings
) -> str:
    """Who signed the pack: the trainer of its ledger, with a key that held when it was made."""
    content, made = parse_json(_needed(files, "pack.dsse.json"), "pack.dsse.json"), seconds(manifest["made"], "made")
    envelope = open_envelope(content, "pack.dsse.json", "application/vnd.explorer.pack.v1+json")
    expect(envelope.payload == files["pack.json"], "signed was another pack.json")
    expect(made <= now + SKEW, f"made at {manifest['made']}, and now it is {utc(now)}")
    names = {key.owner for key in envelope.signers(trust) if key.role == TRAINER and key.held(made)}
    expect(names, f"no trainer of the trust file has signed it with a key that holds at {manifest['made']}")
    note = read_note(_needed(files, "ledger/checkpoint"), "ledger/checkpoint")
    owners = {key.owner for key, _ in note.signatures(trust) if key.role == TRAINER}
    expect(names & owners, f"signed by {', '.join(sorted(names))}, who did not sign the ledger in it")
    _covered("pack.dsse.json", envelope, trust, findings)
    return ", ".join(sorted(names & owners))


def verify(
    files: dict[str, bytes], trust: Trust | None, now: int, reader: X25519PrivateKey | None, findings: Findings
) -> None:
    """Everything, in an order in which nothing is read that what stands before it should have refused."""
    manifest = read_manifest(files)
    findings.count("files, each with the digest in pack.json", len(manifest["files"]))
    if trust is None:
        findings.unchecked.append("who vouches for any of it: no trust file was given, and so nobody is believed")
    else:
        with findings.looking_at("pack.dsse.json"):
            names = check_signature(files, manifest, trust, now, findings)
            findings.count(f"signature of the pack, by {names}")
    note, run = check_ledger(files, trust, now, findings)
    with findings.looking_at("pack.json"):
        state = {"origin": note.origin, "size": note.size, "root": note.root.hex()}
        expect(manifest["ledger"] == state, "names another state of the ledger than the checkpoint")
        expect(manifest["run"] == run.genesis["run"], f"of run {manifest['run']}, and the ledger of another")
    with findings.looking_at("model/model.json"):
        papers = {"model/model.json", "model/attestation.json"} & files.keys()
        expect(len(papers) != 1, "a model's card or attestation without the other")
    if "origin.json" in files:
        with findings.looking_at(""):
            check_origin(files, run, findings)
    for name in [name for name in files if name.startswith("proofs/")]:
        with findings.looking_at(""):
            check_proof(name, files[name], files["ledger/checkpoint"], note, run)
            findings.count("proofs of single entries")
            findings.bound.add(name)
    with findings.looking_at(""):
        check_recipe(files, run, findings)
    if trust is not None:
        sealed = check_documents(files, run, trust, findings)
        check_papers(files, note, run, trust, seconds(manifest["made"], "made"), findings)
        with findings.looking_at(""):
            keys = _keys(files, note, run, trust, now, reader, findings)
            Reader(files, run, keys, sealed, findings).read()
    if files.get("verify.py") == Path(__file__).read_bytes():
        findings.bound.add("verify.py")
    _name_the_rest(files, findings)
    findings.unchecked += NEVER


def _name_the_rest(files: dict[str, bytes], findings: Findings) -> None:
    """Every file that nothing determines and that no line names yet."""
    said = "\n".join([*findings.failed, *findings.unchecked])
    for name in files:
        if name in NOT_READ and name not in findings.bound:
            findings.unchecked.append(f"{name}: {NOT_READ[name]}")
    rest = [name for name in files if name not in findings.bound and name not in NOT_READ and name not in said]
    for folder in sorted({name.rpartition("/")[0] for name in rest}):
        mine = [name for name in rest if name.rpartition("/")[0] == folder]
        words = ", ".join(mine[:5]) + (f" and {len(mine) - 5} more in {folder or 'the pack'}" if len(mine) > 5 else "")
        findings.unchecked.append(f"{words}: nothing was found that determines what they say")


def _keys(
    files: dict[str, bytes],
    note: Note,
    run: Run,
    trust: Trust,
    now: int,
    reader: X25519PrivateKey | None,
    findings: Findings,
) -> Keys:
    """The reading keys in those grants that hold and are to this reader."""
    keys: Keys = {}
    for name in [name for name in files if name.startswith("grants/")]:
        with findings.looking_at(""):
            words, found = check_grant(name, files[name], note, run, trust, now, reader, findings)
            findings.count(f"grant {words}")
            keys |= found
            id_ = words.partition(":")[0]
            findings.unchecked.append(f"that the grant {id_} was not revoked since: the project's ledger tells")
            if not found:
                why = "no reader's key was given" if reader is None else "it is not to the key that was given"
                findings.unchecked.append(f"{name}: what the grant {id_} opens: {why}")
    return keys


def host_lines(manifest: dict[str, Any], trust: Trust | None) -> Iterator[str]:
    """Which private keys lay where the pack was made. Whoever can write there can sign as these."""
    owners = {key.public: key for key in trust.keys} if trust else {}
    roles: set[str] = set()
    for each in shape(manifest["host"], "pack.json: host", "keys:list")["keys"]:
        one = shape(each, "pack.json: host", "file:text public_key:text? state:text")
        public = None if one["public_key"] is None else decode64(one["public_key"], "pack.json: host")
        owner = owners.get(public or b"")
        whose = "whose, is not known" if public is None else "of nobody in the trust file"
        yield f"{one['file']}: {one['state']}: {f'{owner.owner} ({owner.role})' if owner else whose}"
        roles |= {owner.role} if owner else set()
    if len(roles) > 1:
        yield f"keys of {len(roles)} roles lay on one host, which makes them one party: {', '.join(sorted(roles))}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(prog="verify.py", description="Verify a pack of a governed training run.")
    parser.add_argument("pack", type=Path, help="the pack")
    parser.add_argument("--trust", type=Path, help="whom to believe; never the copy in the pack")
    parser.add_argument("--key", type=Path, help="your X25519 private key (PEM), to read what was granted to you")
    parser.add_argument("--now", help="when to judge, such as 2026-01-31T12:00:00Z; default: now")
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
    """In ASCII, and nothing that a terminal would obey instead of showing it."""
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in line)
    print(shown.encode("ascii", "backslashreplace").decode())


def _read(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror or error}") from error
    expect(len(content) <= most, f"{path}: too large: at most {most} bytes are read")
    return content


def _read_key(path: Path) -> X25519PrivateKey:
    passphrase = os.environ.get("EXPLORER_READER_PASSPHRASE")
    content = _read(path, MAX_JSON)
    try:
        encrypted = passphrase.encode() if passphrase and b"ENCRYPTED" in content else None
        key = load_pem_private_key(content, encrypted)
    except (ValueError, TypeError) as error:
        raise Refused(f"{path}: no private key can be read from it: {error!s:.100}") from error
    if isinstance(key, Ed25519PrivateKey):  # the X25519 key of the same seed, as a grant names it
        return X25519PrivateKey.from_private_bytes(hashlib.sha512(key.private_bytes_raw()).digest()[:32])
    if not isinstance(key, X25519PrivateKey):
        raise Refused(f"{path}: not a reader's key")
    return key


if __name__ == "__main__":
    sys.exit(main())

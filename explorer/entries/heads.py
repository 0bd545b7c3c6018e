"""The parts that all kinds of entries have in common: their form, and their order in a ledger."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from explorer.errors import LedgerError

MAX_BYTES = 65_535  # entry bundles give a length as two bytes, c2sp.org/tlog-tiles
MAX_DEPTH = 8
MAX_BLOBS = 256
MAX_WHOLE = 2**53 - 1  # whole numbers up to here are exact in every JSON reader, RFC 8259 section 6
MAX_VERSION = 2**31 - 1
MAX_BLOB_NAME = 220

KIND = r"[a-z][a-z0-9-]{0,39}"
BLOB_NAME = r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*"
DIGEST = r"[0-9a-f]{64}"

_KIND, _BLOB_NAME, _DIGEST = re.compile(KIND), re.compile(BLOB_NAME), re.compile(DIGEST)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlobReference:
    """Content that an entry names and does not hold."""

    sha256: str  # 64 hexadecimal digits
    size: int  # bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The part of an entry that can be read without knowing its kind."""

    kind: str
    version: int
    blobs: Mapping[str, BlobReference]
    fields: Mapping[str, Any]  # everything else, not checked


def read_head(leaf: bytes) -> Head:
    """Read an entry of any kind. Raises `LedgerError` for bytes that are not an entry in canonical form."""
    value = _parse(leaf)
    kind, version, blobs = (_take(value, key) for key in ("kind", "version", "blobs"))
    if not isinstance(kind, str) or not _KIND.fullmatch(kind):
        raise LedgerError(f"entry: kind: expected a lower-case name, found {kind!r:.80}")
    if type(version) is not int or not 1 <= version <= MAX_VERSION:
        raise LedgerError(f"entry: version: expected a whole number from 1, found {version!r:.80}")
    if not isinstance(blobs, dict) or len(blobs) > MAX_BLOBS:
        raise LedgerError(f"entry: blobs: expected at most {MAX_BLOBS} names with sha256 and size")
    references = {name: _reference(name, blob) for name, blob in blobs.items()}
    return Head(kind=kind, version=version, blobs=references, fields=value)


def write_entry(value: Mapping[str, Any]) -> bytes:
    """Return the bytes of an entry.

    Raises `LedgerError` for a value that is not JSON or too large; everything else is checked on reading.
    """
    content = _write(value)
    if len(content) > MAX_BYTES:
        raise LedgerError(
            f"an entry of {len(content)} bytes; at most {MAX_BYTES} fit; put the bulk into a blob, named in 'blobs'"
        )
    return content


def _parse(leaf: bytes) -> dict[str, Any]:
    if len(leaf) > MAX_BYTES:
        raise LedgerError(f"an entry of {len(leaf)} bytes; at most {MAX_BYTES} are read")
    try:
        value = json.loads(leaf.decode(), parse_float=_no_fraction, parse_constant=_no_fraction)
    except RecursionError as error:
        raise LedgerError("entry: not JSON: nested too deep") from error
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise LedgerError(f"entry: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise LedgerError(f"entry: expected a JSON object, found {type(value).__name__}")
    # One value, one form: otherwise equal entries would have different leaves, and readers of duplicate keys would
    # read different values from the same leaf.
    _check(value)
    if _write(value) != leaf:
        raise LedgerError("entry: not in canonical form (RFC 8785): the same value has other bytes")
    return value


def _write(value: Mapping[str, Any]) -> bytes:
    """Return canonical JSON."""
    # RFC 8785 sorts keys by UTF-16 units and formats fractions its own way; with ASCII keys and no fractions, the
    # standard library gives the same bytes.
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError) as error:  # UnicodeEncodeError, for a lone surrogate, is a ValueError
        raise LedgerError(f"entry: no canonical JSON for it: {error}") from error


def _check(value: Any) -> None:
    """Check depth, keys and numbers, a level at a time: recursion could be driven too deep."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for member in level:
            if isinstance(member, dict):
                if not all(map(str.isascii, member)):
                    raise LedgerError("entry: a key that is not ASCII")
                inner += member.values()
            elif isinstance(member, list):
                inner += member
            elif isinstance(member, int) and abs(member) > MAX_WHOLE:
                raise LedgerError("entry: a whole number beyond 2**53 - 1")
        if not inner:
            return
        level = inner
    raise LedgerError(f"entry: nested deeper than {MAX_DEPTH} levels")


def _take(value: dict[str, Any], key: str) -> Any:
    if key not in value:
        raise LedgerError(f"entry: {key} is missing")
    return value.pop(key)


def _reference(name: str, value: Any) -> BlobReference:
    if len(name) > MAX_BLOB_NAME or not _BLOB_NAME.fullmatch(name):
        raise LedgerError(f"entry: blobs: not a blob's name: {name!r:.80}")
    match value:
        case {"sha256": str(sha256), "size": int(size)} if (
            len(value) == 2 and type(size) is int and size >= 0 and _DIGEST.fullmatch(sha256)
        ):
            return BlobReference(sha256=sha256, size=size)
    raise LedgerError(f"entry: blobs.{name}: expected sha256, 64 hexadecimal digits, and size, found {value!r:.120}")


def _no_fraction(text: str) -> NoReturn:
    raise ValueError(f"{text:.40} is not a whole number; fractions are written as float.hex() text")


# --- the order of entries ---

RUN = frozenset({"genesis", "step", "profile", "state", "decision", "trunk", "end"})
PROJECT = frozenset({"access", "deletion", "erasure", "grant", "observation"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Counts of a ledger's entries, whose order is right."""

    entries: int
    steps: int | None  # done, after the last re-execution; None: no run, or the last entries are of unknown versions
    finished: bool  # ends with `end`
    unknown: int  # entries of kinds or versions that are not known here


def check_sequence(heads: Iterable[Head]) -> Order:
    """Read the entries of one ledger; raise `LedgerError` at the first one that is out of order.

    A run's ledger begins with its one `genesis` and has nothing after `end`. Its clock is the number of steps done,
    which starts at `begins` of the genesis. Every entry carries it, a `step` advances it by one, and only a `decision`
    to re-execute sets it back: so no step can be missing. A project's ledger has no order of its own, and the kinds of
    the two do not mix. Unknown kinds may be anywhere but before the genesis and after the end. After an entry of a
    run's kind with an unknown version, the next entry sets the clock.
    """
    index, unknown, run, ended = -1, 0, False, False
    clock: int | None = 0
    for index, head in enumerate(heads):
        if ended:
            raise LedgerError(f"entry {index}: {head.kind} after the end")
        run = run or (index == 0 and head.kind == "genesis")
        _check_place(index, head.kind, run=run)
        unknown += head.kind not in RUN | PROJECT or head.version != 1
        # An unknown version may count steps otherwise, so its clock is not read.
        if head.kind in RUN:
            clock = _tick(index, head, clock) if head.version == 1 else None
        ended = head.kind == "end"
    return Order(entries=index + 1, steps=clock if run else None, finished=ended, unknown=unknown)


def _check_place(index: int, kind: str, *, run: bool) -> None:
    if run and kind == "genesis" and index:
        raise LedgerError(f"entry {index}: a second genesis")
    if run and kind in PROJECT:
        raise LedgerError(f"entry {index}: {kind} belongs to a project's ledger, and this one is a run's")
    if not run and kind in RUN:
        raise LedgerError(f"entry {index}: {kind}, and the ledger does not begin with a genesis")


def _tick(index: int, head: Head, clock: int | None) -> int:
    """Check the clock of an entry; return the number of steps done after it."""
    name = "begins" if head.kind == "genesis" else "step"
    step: Any = head.fields.get(name)
    if type(step) is not int or step < 0:
        raise LedgerError(f"entry {index}: {head.kind}: {name}: expected a whole number from 0, found {step!r:.80}")
    if head.kind == "genesis":
        return step
    again = head.kind == "decision" and head.fields.get("action") == "re-execution"
    if clock is not None and again and step > clock:
        raise LedgerError(f"entry {index}: re-execution from step {step}, and only {clock} were done")
    if clock is not None and not again and step != clock:
        what = "steps are missing" if step > clock else "with no decision to re-execute in between"
        raise LedgerError(f"entry {index}: {head.kind} at {step} steps, and {clock} were done; {what}")
    return step + 1 if head.kind == "step" else step

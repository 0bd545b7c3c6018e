"""Frozen records whose JSON form is checked strictly, with their published JSON Schemas.

A record is a frozen dataclass of plain fields. Reading one from JSON refuses unknown keys, missing keys, wrong types,
NaN and infinity, with what was found, what was expected and the nearest name. JSON itself is read with bounds and
without duplicate keys, so that two readers of the same bytes never see two values.
"""

import difflib
import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from typing import Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from explorer.errors import ExplorerError

DIALECT = "https://json-schema.org/draft/2020-12/schema"
NAMESPACE = uuid.UUID("5c06314d-e92a-42ff-b8a5-d7b8024b3f28")  # of everything that Explorer publishes a name for
MAX_DEPTH = 40  # of nested objects and arrays: far below the depth at which Python's parser gives up

Record = TypeVar("Record")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def record(cls: type[Record]) -> type[Record]:
    """Make a class a frozen record whose JSON form is checked strictly: no unknown keys, finite numbers."""
    made = dataclass(frozen=True, kw_only=True, slots=True)(cls)
    made.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # pyright: ignore
    return made


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@cache
def _schema(kind: type[Any]) -> dict[str, Any]:
    return _adapter(kind).json_schema(mode="validation")  # tens of milliseconds for a nested record


LATER: Mapping[str, bool] = {"later": True}
"""Metadata of a field that a value got later: it is written only where it differs from its default, so that the digests
of older values stay as they are."""


def given(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without later ones that have their defaults."""
    later = {field.name: field.default for field in fields(value) if field.metadata.get("later")}
    return {name: content for name, content in asdict(value).items() if name not in later or content != later[name]}


def to_json(value: Any) -> dict[str, Any]:
    """Return a record as a JSON object."""
    return _adapter(type(value)).dump_python(value, mode="json")


def from_json(kind: type[Record], value: Any, *, where: str, error: type[ExplorerError]) -> Record:
    """Check a JSON value and return the record. Raises `error` that names `where`, the key, and the fault."""
    try:
        # From JSON text and not from the value: in strict mode only a JSON array may become a tuple.
        return _adapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as invalid:
        raise error(f"{where}: {_first_fault(kind, invalid)}") from invalid


def parse_json(content: bytes, *, where: str, error: type[ExplorerError], max_bytes: int) -> Any:
    """Read JSON text from an unknown source: bounded size and depth, UTF-8, each key once, finite numbers.

    Raises `error` that names `where` and the fault.
    """
    if len(content) > max_bytes:
        raise error(f"{where}: too large: {len(content)} bytes, at most {max_bytes} are read")
    try:
        value = json.loads(
            content.decode(), object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite
        )
    except RecursionError as damaged:
        raise error(f"{where}: not JSON: nested too deep") from damaged
    except ValueError as damaged:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        raise error(f"{where}: not JSON: {damaged}") from damaged
    if _depth(value) > MAX_DEPTH:
        raise error(f"{where}: nested deeper than {MAX_DEPTH} levels")
    return value


def json_schema(kind: type[Any], *, name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a record, as it is published: `entries/step.v1.json`.

    Its `$id` is a UUID made from that name (RFC 9562, version 5), so that no domain has to be owned for it to be right.
    """
    id_ = uuid.uuid5(NAMESPACE, f"schemas/{name}").urn
    return {"$schema": DIALECT, "$id": id_, **_schema(kind)}


def _first_fault(kind: type[Any], invalid: ValidationError) -> str:
    fault = invalid.errors()[0]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).removeprefix(".")
    more = f" (and {invalid.error_count() - 1} more)" if invalid.error_count() > 1 else ""
    return f"{key or 'the whole'}: {_words(kind, fault)}{more}"


def _words(kind: type[Any], fault: ErrorDetails) -> str:
    """Return a fault in words, with the value found and, for a key, the nearest known one."""
    if fault["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        names = _names_at(kind, fault["loc"][:-1])
        near = difflib.get_close_matches(str(fault["loc"][-1]), names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        return f"unknown key{hint} known: {', '.join(names)}" if names else "unknown key"
    if fault["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return "is missing"
    given = fault["input"]
    shown = "" if isinstance(given, dict | list) else f", found {given!r:.80}"
    return f"{fault['msg'][:1].lower()}{fault['msg'][1:]}{shown}"


def _names_at(kind: type[Any], path: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the object at `path` may have, read from the schema; none where that is not one object."""
    whole = _schema(kind)
    at = whole
    for part in path:
        at = at.get("items", {}) if isinstance(part, int) else at.get("properties", {}).get(part, {})
        at = next((option for option in at.get("anyOf", ()) if option.get("type") != "null"), at)
        if "$ref" in at:
            at = whole.get("$defs", {}).get(at["$ref"].rpartition("/")[2], {})
    return sorted(at.get("properties", {}))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"found the key {twice!r} twice in one object")
    return members


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text:.40} is too large for a number")
    return value


def _depth(value: Any) -> int:
    # Level by level and not by recursion, which a hostile depth would end.
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return depth

"""Parameters as people write them, checked against the fields of a frozen dataclass."""

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from explorer.errors import RecipeError, unknown

Value = TypeVar("Value")


def check(target: type[Value], parameters: Any, *, where: str) -> Value:
    """Return the frozen dataclass `target` from its fields, with types and ranges checked.

    Types are strict, as in JSON: an integer is accepted for a fraction, and nothing else is converted. Raises
    `RecipeError` that starts with `where`.
    """
    if not isinstance(parameters, Mapping):
        raise RecipeError(f"{where}: found {shown(parameters)}, expected parameters as a mapping")
    known = [field.name for field in fields(target)]  # pyright: ignore[reportArgumentType]
    for key in parameters:
        if key not in known:
            raise RecipeError(f"{where}: {unknown('parameter', str(key), known)}")
    # Through JSON text, because pydantic's strict mode takes a list for a tuple only there.
    text = _json(parameters, where=where)
    try:
        return _adapter(target).validate_json(text, strict=True)
    except RecipeError as error:  # parameters that do not fit each other
        raise RecipeError(f"{where}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"] if part != "function-wrap")
        path = f"{where}.{key}" if ": " in where else f"{where}: {key}"  # `where`: a place in a file, or a file
        if first["type"] == "missing":
            raise RecipeError(f"{path}: missing: expected a value") from error
        meaning = _adapter(target).json_schema()["properties"].get(key.partition(".")[0], {}).get("description", "")
        behind = f" ({meaning})" if meaning else ""
        words = f"{_lowered(first['msg'])}{_nearest(first)}{behind}"
        raise RecipeError(f"{path}: found {shown(first['input'])}: {words}") from error


def _nearest(fault: ErrorDetails) -> str:
    """Return a question with the nearest of the words that were expected; nothing where none is near."""
    words = re.findall(r"'([^']+)'", fault["msg"]) if fault["type"] == "literal_error" else ()
    near = difflib.get_close_matches(str(fault["input"]), words, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shown(value: Any) -> str:
    """Return a value for an error message, with its type."""
    return f"{type(value).__name__} {value!r:.80}"


@cache
def _adapter(target: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(target)


def _json(parameters: Mapping[str, Any], *, where: str) -> str:
    try:
        return json.dumps(dict(parameters))
    except (TypeError, ValueError, RecursionError) as error:
        raise RecipeError(f"{where}: found {shown(dict(parameters))}, expected plain values: {error}") from error


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]

"""A named value with parameters, as recipes write it: `mixup`, or `{mixup: {alpha: 0.4}}`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from explorer.errors import RecipeError, unknown

Value = TypeVar("Value")


def choose(table: Mapping[str, type[Value]], written: Any, *, kind: str, where: str) -> Value:
    """Return the value that `written` names in the table.

    Raises `RecipeError` that starts with `where` and says what was found, what is allowed and the nearest name.
    """
    name, parameters = _split(written, kind=kind, where=where)
    if name not in table:
        raise RecipeError(f"{where}: {unknown(kind, name, table)}")
    return check(table[name], parameters, where=f"{where}.{name}")


def check(target: type[Value], parameters: Any, *, where: str) -> Value:
    """Return the frozen dataclass `target` from its fields, with types and ranges checked.

    Types are strict, as in JSON: an integer is accepted for a fraction, and nothing else is converted. Raises
    `RecipeError` that starts with `where`.
    """
    if not isinstance(parameters, Mapping):
        raise RecipeError(f"{where}: found {_shown(parameters)}, expected parameters as a mapping")
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
        raise RecipeError(f"{path}: found {_shown(first['input'])}: {_lowered(first['msg'])}{behind}") from error


def written(value: Any) -> dict[str, Any]:
    """Return the mapping that `choose` reads back: `{name: {every parameter}}`."""
    return {value.name: _listed(asdict(value))}


@cache
def _adapter(target: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(target)


def _split(written: Any, *, kind: str, where: str) -> tuple[str, Any]:
    if isinstance(written, str):
        return written, {}
    if isinstance(written, Mapping) and len(written) == 1:
        name, parameters = next(iter(written.items()))
        return str(name), {} if parameters is None else parameters
    raise RecipeError(f"{where}: found {_shown(written)}, expected the name of a {kind}, or {{name: {{parameters}}}}")


def _json(parameters: Mapping[str, Any], *, where: str) -> str:
    try:
        return json.dumps(dict(parameters))
    except (TypeError, ValueError, RecursionError) as error:
        raise RecipeError(f"{where}: found {_shown(dict(parameters))}, expected plain values: {error}") from error


def _listed(parameters: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in parameters.items()}


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.80}"


def _lowered(message: str) -> str:
    return message[:1].lower() + message[1:]

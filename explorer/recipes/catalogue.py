"""What the methods say about themselves, for people: `explorer methods` and the table in the README."""

from dataclasses import MISSING, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from explorer.engine.method import Method, used_hooks
from explorer.errors import RecipeError, unknown
from explorer.recipes.methods import GOVERNED, METHODS

SIGNS: dict[type[BaseMetadata], tuple[str, str]] = {
    Gt: ("gt", ">"),
    Ge: ("ge", ">="),
    Lt: ("lt", "<"),
    Le: ("le", "<="),
}


def describe(name: str) -> dict[str, Any]:
    """Everything about one method, as JSON. Raises `RecipeError` for a name that is not in the table."""
    if name not in METHODS:
        raise RecipeError(unknown("method", name, METHODS))
    method = METHODS[name]
    return {
        "name": name,
        "summary": method.summary,
        "description": (method.__doc__ or "").strip(),
        "acts": method.kind.name.lower(),
        "hooks": list(used_hooks(method)),
        "works_on": sorted(method.modalities),
        "governed": name in GOVERNED,
        "source": method.source,
        "parameters": _parameters(method),
        "neutral": _neutral(method),
        "after": list(method.after),
        "before": list(method.before),
        "conflicts": dict(method.conflicts_with),
    }


def describe_all() -> list[dict[str, Any]]:
    """Every method, by name."""
    return [describe(name) for name in sorted(METHODS)]


def markdown() -> str:
    """The table of methods in the README."""
    lines = ["| method | what it does | parameters (default) | source |", "|---|---|---|---|"]
    for method in describe_all():
        parameters = ", ".join(f"`{p['name']}` ({default(p)})" for p in method["parameters"]) or "-"
        lines.append(f"| `{method['name']}` | {method['summary']} | {parameters} | {method['source']} |")
    return "\n".join(lines) + "\n"


def default(parameter: dict[str, Any]) -> str:
    """The default of a parameter in words."""
    return "required" if parameter["required"] else str(parameter["default"])


def _parameters(method: type[Method]) -> list[dict[str, Any]]:
    hints = get_type_hints(method, include_extras=True)
    return [
        {
            "name": field.name,
            "type": _type_name(hints[field.name]),
            "default": None if field.default is MISSING else field.default,
            "required": field.default is MISSING and field.default_factory is MISSING,
            "range": _range(hints[field.name]),
            "meaning": _meaning(hints[field.name]),
        }
        for field in fields(method)
    ]


def _type_name(hint: Any) -> str:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return getattr(bare, "__name__", str(bare))


def _annotations(hint: Any) -> list[FieldInfo]:
    return [extra for extra in get_args(hint)[1:] if isinstance(extra, FieldInfo)] if get_args(hint) else []


def _range(hint: Any) -> str:
    bounds = []
    for info in _annotations(hint):
        for limit in info.metadata:
            if type(limit) in SIGNS:
                attribute, sign = SIGNS[type(limit)]
                bounds.append(f"{sign} {getattr(limit, attribute):g}")
    return ", ".join(bounds)


def _meaning(hint: Any) -> str:
    return next((info.description for info in _annotations(hint) if info.description), "")


def _neutral(method: type[Method]) -> dict[str, Any] | None:
    """The parameters that make the method a bit-identical no-op, or None where no such setting exists."""
    if any(field.default is MISSING and field.default_factory is MISSING for field in fields(method)):
        return None
    neutral = method().neutral()
    if neutral is None:
        return None
    default = method()
    names = [field.name for field in fields(neutral)]
    return {name: getattr(neutral, name) for name in names if getattr(neutral, name) != getattr(default, name)}

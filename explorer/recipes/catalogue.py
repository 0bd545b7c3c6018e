"""The catalogue of methods and models: what `explorer methods` and `explorer models` print, and the README's table."""

import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from importlib import resources
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from annotated_types import BaseMetadata, Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from explorer import functional
from explorer.engine.method import Method, Unit, used_hooks
from explorer.models.specification import ModelSpec
from explorer.models.table import MODELS
from explorer.recipes.choice import class_of, offered_classes, origin_of
from explorer.recipes.settings import GOVERNED, METHODS

SIGNS: dict[type[BaseMetadata], tuple[str, str]] = {
    Gt: ("gt", ">"),
    Ge: ("ge", ">="),
    Lt: ("lt", "<"),
    Le: ("le", "<="),
}


def describe(name: str) -> dict[str, Any]:
    """Return everything about one method, as JSON; of another package by its name or `module:Name`.

    Raises `RecipeError` for an unknown name.
    """
    return _described(class_of(METHODS, name, kind="method"))


def _described(method: type[Method]) -> dict[str, Any]:
    name = method.name
    return {
        "name": name,
        "summary": method.summary,
        "description": inspect.cleandoc(method.__doc__ or ""),
        "formula": getattr(method, "formula", ""),
        "acts": method.kind.name.lower(),
        "changes": getattr(method, "changes", ""),
        "needs": method.needs,
        "hooks": list(used_hooks(method)),
        "works_on": sorted(method.modalities),
        "governed": name in GOVERNED,
        "routing": getattr(method, "routing", "") or _refused(method),
        "measured": _measured().get(name, {}),
        "source": method.source,
        "parameters": _parameters(method),
        "neutral": _neutral(method),
        "after": list(method.after),
        "before": list(method.before),
        "conflicts": dict(method.conflicts_with),
        "turns": [
            key for key, other in METHODS.items() if key != name and method.turns and other.turns == method.turns
        ],
        "origin": origin_of(method, kind="method"),
        "functional": _functional(method),
    }


def describe_all() -> tuple[list[dict[str, Any]], list[str]]:
    """Return every method by name, ours and those that installed packages offer, and a sentence for each offer that
    cannot be used."""
    others, broken = offered_classes(METHODS, kind="method")
    classes = METHODS | others
    return [_described(classes[name]) for name in sorted(classes)], broken


def describe_models() -> tuple[list[dict[str, Any]], list[str]]:
    """Return every model by name, ours and those of installed packages, and a sentence for each that cannot be used."""
    others, broken = offered_classes(MODELS, kind="model")
    classes = MODELS | others
    return [_model(classes[name]) for name in sorted(classes)], broken


def describe_model(name: str) -> dict[str, Any]:
    """Return everything about one model; see `describe`."""
    return _model(class_of(MODELS, name, kind="model"))


def _model(model: type[ModelSpec]) -> dict[str, Any]:
    return {
        "name": model.name,
        "summary": inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0].replace("\n", " "),
        "description": inspect.cleandoc(model.__doc__ or ""),
        "takes": model.takes,
        "task": model.task,
        "parameters": _parameters(model),
        "origin": origin_of(model, kind="model"),
    }


def markdown() -> str:
    """Return the table of methods in the README."""
    lines = ["| method | what it does | parameters (default) | step | source |", "|---|---|---|---|---|"]
    for method in map(_described, (METHODS[name] for name in sorted(METHODS))):
        parameters = ", ".join(f"`{p['name']}` ({default(p)})" for p in method["parameters"]) or "-"
        ratios = ", ".join(f"{ratio['ratio']:.2f}" for ratio in method["measured"].values()) or "-"
        lines.append(f"| `{method['name']}` | {method['summary']} | {parameters} | {ratios} | {method['source']} |")
    return "\n".join(lines) + "\n"


def cost(method: dict[str, Any]) -> str:
    """Return the measured cost of a method in words."""
    if not method["measured"]:
        return "not measured"
    return "; ".join(
        f"{ratio['ratio']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f}) of a plain step on {model}"
        + (f", {ratio['phase']}" if ratio["phase"] else "")
        for model, ratio in method["measured"].items()
    )


def default(parameter: dict[str, Any]) -> str:
    """Return the default of a parameter in words."""
    return "required" if parameter["required"] else str(parameter["default"])


def _parameters(method: type[Method] | type[ModelSpec]) -> list[dict[str, Any]]:
    hints = get_type_hints(method, include_extras=True)
    return [
        {
            "name": field.name,
            "type": _type_name(hints[field.name]),
            "default": None if field.default is MISSING else field.default,
            "required": field.default is MISSING and field.default_factory is MISSING,
            "range": _range(hints[field.name]),
            "unit": _unit(hints[field.name]),
            "meaning": _meaning(hints[field.name]),
        }
        for field in fields(method)
    ]


def _functional(method: type[Method]) -> dict[str, str]:
    """Return the line that imports a method as a function and its call, or the reason why there is none."""
    name = method.name
    if method is not METHODS.get(name):
        return {"absent": "its package declares none"}
    if name in functional.FORMS:
        form = getattr(functional, name)
        return {"import": "from explorer import functional", "call": f"functional.{name}{_call(form)}"}
    governed = "it acts on signed documents: explorer.govern puts a loop of your own under a policy"
    return {"absent": governed if name in GOVERNED else functional.ABSENT.get(name, "not written yet")}


def _call(form: Callable[..., Any]) -> str:
    """Return the parameters of a function as in its definition, without types."""
    given: list[str] = []
    for parameter in inspect.signature(form).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in given:
            given.append("*")
        shown = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        given.append(parameter.name + shown)
    return f"({', '.join(given)})"


def _type_name(hint: Any) -> str:
    """Return the type in words: choices by name, lists by their elements."""
    kind, inner = get_origin(hint), get_args(hint)
    if kind is Annotated:
        return _type_name(inner[0])
    if kind is Literal:
        return " | ".join(map(str, inner))
    if kind is tuple:
        return f"list of {_type_name(inner[0])}"
    if inner:
        return " | ".join(map(_type_name, inner))
    return "None" if hint is NoneType else hint.__name__


def _refused(method: type[Method]) -> str:
    reason = method.conflicts_with.get("routing")
    return f"refused: {reason}" if reason else ""


@cache
def _measured() -> dict[str, dict[str, Any]]:
    """Return the step-time ratios by method and model, as benchmarks/method_cost.py wrote them."""
    content = resources.files("explorer.methods").joinpath("measured.json").read_text(encoding="utf-8")
    return json.loads(content)["ratios"]


def _unit(hint: Any) -> str:
    return next((extra.name for extra in get_args(hint)[1:] if isinstance(extra, Unit)), "")


def _annotations(hint: Any) -> list[FieldInfo]:
    return [extra for extra in get_args(hint)[1:] if isinstance(extra, FieldInfo)] if get_args(hint) else []


def _range(hint: Any) -> str:
    bounds = []
    for info in _annotations(hint):
        for limit in info.metadata:
            if type(limit) in SIGNS:
                attribute, sign = SIGNS[type(limit)]
                bounds.append(f"{sign} {getattr(limit, attribute):.12g}")
    return ", ".join(bounds)


def _meaning(hint: Any) -> str:
    return next((info.description for info in _annotations(hint) if info.description), "")


def _neutral(method: type[Method]) -> dict[str, Any] | None:
    """Return the parameters that make the method a bit-identical no-op, or None where no such setting exists."""
    # A method with a required parameter cannot be built here to be asked.
    if any(field.default is MISSING and field.default_factory is MISSING for field in fields(method)):
        return None
    neutral = method().neutral()
    if neutral is None:
        return None
    default = method()
    names = [field.name for field in fields(neutral)]
    return {name: getattr(neutral, name) for name in names if getattr(neutral, name) != getattr(default, name)}

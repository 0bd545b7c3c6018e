"""A named value with parameters, as recipes write it: `mixup`, or `{mixup: {alpha: 0.4}}`.

A value of another package is written `mypkg.vit:ViT`, or `{import: "mypkg.vit:ViT", width: 32}`, or by the name under
which an installed package offers it. However it was written, its canonical form has its name and where it is from:
`{vit: {import: "mypkg.vit:ViT", width: 32}}`.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, get_origin, get_type_hints

from explorer import plugins
from explorer.data.dataset import DataSource
from explorer.engine.method import Method
from explorer.engine.optimizer import OptimizerSpec, Schedule
from explorer.errors import RecipeError, unknown
from explorer.models.specification import ModelSpec
from explorer.parameters import check, shown
from explorer.plugins import NO_CODE, Code
from explorer.schema import given as given_fields

Value = TypeVar("Value")

IMPORT = "import"
OURS = "Explorer"  # the origin of what is in our tables
NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # a name is part of the names of directories
BASES: dict[str, type[Any]] = {
    "method": Method,
    "dataset": DataSource,
    "model": ModelSpec,
    "optimizer": OptimizerSpec,
    "schedule": Schedule,
}


class Written(NamedTuple):
    """Name, path and parameters of a value, as a recipe writes them."""

    name: str | None  # None: only the path is written
    path: str | None  # of code of another package; None: only the name is written
    parameters: Any


def choose(table: Mapping[str, type[Value]], written: Any, *, kind: str, where: str, code: Code = NO_CODE) -> Value:
    """Return the value that `written` names in the table, or in a package whose code may be imported.

    Raises `RecipeError` that starts with `where` and says what was found, what is allowed and the nearest name.
    """
    chosen = _split(written, kind=kind, where=where)
    try:
        target = _class_of(table, chosen, kind=kind, code=code)
    except RecipeError as error:
        raise RecipeError(f"{where}: {error}") from error
    return check(target, chosen.parameters, where=f"{where}.{target.name}")  # pyright: ignore[reportAttributeAccessIssue]


def class_of(table: Mapping[str, type[Value]], name: str, *, kind: str) -> type[Value]:
    """Return the class of a name or of `module:Name`, whatever package it is from. Raises `RecipeError`."""
    return _class_of(table, _split(name, kind=kind, where=kind), kind=kind, code=None)


def offered_classes(table: Mapping[str, type[Value]], *, kind: str) -> tuple[dict[str, type[Value]], list[str]]:
    """Return the classes that installed packages offer, by name, and a sentence for each offer that cannot be used."""
    classes, broken = {}, []
    for offer in plugins.offers(kind):
        try:
            classes[offer.name] = class_of(table, offer.name, kind=kind)
        except RecipeError as error:
            broken.append(f"{kind} {offer.name!r} of {offer.package} ({offer.path}) cannot be used: {error}")
    return classes, broken


def origin_of(target: type[Any], *, kind: str) -> str:
    """Return where a class is from, for lists: the package that offers it, or its module."""
    path = plugins.path_of(target)
    if path is None:
        return OURS
    same = (offer for offer in plugins.offers(kind) if offer.path == path)
    return next((offer.package for offer in same), plugins.source_of(plugins.top_of(path)).origin)


def _class_of(table: Mapping[str, type[Value]], chosen: Written, *, kind: str, code: Code) -> type[Value]:
    name, path = chosen.name, chosen.path
    if path is None:
        assert name is not None
        offer = plugins.offered(kind, name)
        if name in table:
            if offer is not None:
                raise RecipeError(
                    f"{kind} {name!r}: both Explorer and {offer.package} ({offer.path}) have one: expected another"
                    " name in that package, or its removal"
                )
            return table[name]
        if offer is None:
            raise RecipeError(unknown(kind, name, [*table, *(offer.name for offer in plugins.offers(kind))]))
        path = offer.path
    target = plugins.load(path, code=code)
    _check_class(target, path, table, kind=kind)
    if target.name in table:
        raise RecipeError(
            f"{kind} {target.name!r}: both Explorer and {path} have one: expected another `name` in the class {path}"
        )
    if name is not None and target.name != name:
        raise RecipeError(f"{path}: found the name {target.name!r}, expected {name!r}, as it is written")
    return target


def _check_class(given: object, path: str, table: Mapping[str, type[Any]], *, kind: str) -> None:
    """Check that code of another package is what is asked for, and says everything about itself."""
    base = BASES[kind]
    expected = f"a frozen dataclass that inherits from {base.__module__}.{base.__qualname__}"
    if not inspect.isclass(given) or not issubclass(given, base):
        raise RecipeError(f"{path}: found {shown(given)}, expected {expected}")
    target: Any = given
    if not is_dataclass(given) or not target.__dataclass_params__.frozen:
        raise RecipeError(f"{path}: found a class that can be changed, expected {expected}")
    if inspect.isabstract(target):
        raise RecipeError(f"{path}: {', '.join(sorted(target.__abstractmethods__))}: missing: expected these methods")
    missing = [name for name in _declarations(base, table) if not hasattr(target, name)]
    if missing:
        raise RecipeError(f"{path}: {', '.join(missing)}: missing: expected these as class variables")
    if not isinstance(target.name, str) or not NAME.fullmatch(target.name):
        raise RecipeError(
            f"{path}: its name is {target.name!r:.60}: expected at most 40 of the characters a-z 0-9 _, a letter first"
        )


def _declarations(base: type[Any], table: Mapping[str, type[Any]]) -> list[str]:
    """Return the class variables that a class of this kind has to declare: those that all of ours do."""
    hints = get_type_hints(base, include_extras=True)
    declared = [name for name, hint in hints.items() if get_origin(hint) is ClassVar and not hasattr(base, name)]
    return [name for name in declared if all(hasattr(ours, name) for ours in table.values())]


def written(value: Any) -> dict[str, Any]:
    """Return the mapping that `choose` reads back: `{name: {every parameter}}`, with `import` for other packages."""
    path = plugins.path_of(type(value))
    return {value.name: ({} if path is None else {IMPORT: path}) | _listed(given_fields(value))}


def _split(written: Any, *, kind: str, where: str) -> Written:
    name, parameters = written, {}
    if isinstance(written, Mapping) and IMPORT in written:
        name, parameters = None, written
    elif isinstance(written, Mapping) and len(written) == 1:
        name, parameters = next(iter(written.items()))
        name, parameters = str(name), {} if parameters is None else parameters
    elif not isinstance(written, str):
        raise RecipeError(
            f"{where}: found {shown(written)}, expected the name of a {kind}, or {{name: {{parameters}}}}"
        )
    path = None
    if isinstance(parameters, Mapping) and IMPORT in parameters:
        path = parameters[IMPORT]
        if not isinstance(path, str):
            raise RecipeError(f"{where}.{IMPORT}: found {shown(path)}, expected module:Name")
        parameters = {key: value for key, value in parameters.items() if key != IMPORT}
    elif name is not None and plugins.is_path(name):
        name, path = None, name
    return Written(name, path, parameters)


def _listed(parameters: dict[str, Any]) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in parameters.items()}

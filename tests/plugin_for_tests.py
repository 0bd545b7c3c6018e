"""A package of somebody's own, with a method, written where a test wants it: importing it leaves a mark."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from explorer import plugins

MARK = "imported"  # the file that importing the package leaves in its directory

METHOD = '''\
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Self

from pydantic import Field

from explorer.engine.method import Kind, Method
from explorer.engine.state import State

Path(__file__).with_name("imported").touch()


@dataclass(frozen=True, kw_only=True, slots=True)
class Damped(Method):
    """Gradients are multiplied by a factor."""

    name: ClassVar[str] = "damped"
    kind: ClassVar[Kind] = Kind.GRADIENT
    summary: ClassVar[str] = "Multiplies gradients by a factor."
    source: ClassVar[str] = "no paper"
    formula: ClassVar[str] = "g <- factor g"
    changes: ClassVar[str] = "the gradients"
    routing: ClassVar[str] = "Every gradient is multiplied by itself."

    factor: Annotated[float, Field(gt=0, le=1, description="factor on every gradient")] = 0.5

    def neutral(self) -> Self:
        return type(self)(factor=1.0)

    def change_gradients(self, state: State) -> None:
        for parameter in state.model.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(self.factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class MixUp(Damped):
    """A name that is taken."""

    name: ClassVar[str] = "mixup"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unsaid(Method):
    """A method that does not declare itself."""

    name: ClassVar[str] = "unsaid"


@dataclass(frozen=True, kw_only=True, slots=True)
class Elsewhere(Damped):
    """A name that would lead out of a directory."""

    name: ClassVar[str] = "../damped"


class Changing:
    """Not a method."""
'''


def write_package(place: Path, name: str) -> Path:
    """Write the package below `place` and return its directory."""
    package = place / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "methods.py").write_text(METHOD)
    return package


def install(place: Path, name: str, points: str, version: str = "1.2.3") -> None:
    """Write what pip leaves of an installed distribution with these entry points."""
    about = place / f"{name}-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(points)


def forget(*names: str) -> None:
    """Make this process as if it had never imported these packages."""
    for module in [module for module in sys.modules if plugins.top_of(module) in names]:
        del sys.modules[module]
    for name in names:
        plugins._loaded.pop(name, None)


@contextmanager
def clean_imports(*names: str) -> Iterator[None]:
    """Leave the search path and the imported modules as they were."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before
        forget(*names)

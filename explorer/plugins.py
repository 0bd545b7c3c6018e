"""Code of other packages: methods, datasets, models, optimisers, schedules and report sections of one's own.

A specification names such code as `module:Name`; an installed package can also offer it under a short name, as an entry
point of one of the `GROUPS`. The module is installed, or lies in the current directory.

Finding code, listing it and digesting its source execute nothing. Only `load` imports it, and only where its caller
allows that: what is read from a recorded run comes with `NO_CODE`, or with the digests of its record.

**Source digest.** The SHA-256 over names and contents of all Python files of the top-level package, or of the one file
of a module. It is part of a run's identity. Compiled extensions and packages that the code imports are not covered.
"""

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, packages_distributions, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from explorer.errors import RecipeError

GROUPS = {
    "method": "explorer.methods",
    "dataset": "explorer.datasets",
    "model": "explorer.models",
    "optimizer": "explorer.optimizers",
    "schedule": "explorer.schedules",
    "report section": "explorer.report_sections",
}
PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
OURS = "explorer"
MAX_FILES = 20_000  # of a package; the largest in wide use have about 6,000
MAX_BYTES = 2**29

Code = Mapping[str, str] | None
"""The code that may be imported: top-level names with their source digests; None: any."""

NO_CODE: Code = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A name under which an installed package offers code."""

    name: str
    path: str  # module:Name
    package: str  # "mypkg 1.0.0"


def offers(kind: str) -> tuple[Offer, ...]:
    """Return what installed packages offer of this kind, by name. Nothing is imported."""
    return _offers(kind, tuple(sys.path))


@lru_cache(maxsize=32)
def _offers(kind: str, _: tuple[str, ...]) -> tuple[Offer, ...]:
    points = sorted(entry_points(group=GROUPS[kind]), key=lambda point: (point.name, point.value))
    return tuple(Offer(name=point.name, path=point.value.strip(), package=_packaged(point)) for point in points)


def _packaged(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "a package without a name"


def offered(kind: str, name: str) -> Offer | None:
    """Return the offer of that name. Raises `RecipeError` where two packages have one, and names both."""
    same = [offer for offer in offers(kind) if offer.name == name]
    if len({offer.path for offer in same}) > 1:
        both = " and ".join(f"{offer.package} ({offer.path})" for offer in same)
        raise RecipeError(f"{kind} {name!r}: offered by {both}; expected one: write 'import: module:Name' instead")
    return same[0] if same else None


def is_path(text: str) -> bool:
    """Return whether the text names code of another package rather than a value of a table."""
    return ":" in text


def path_of(kind: type[Any]) -> str | None:
    """Return where a class is from, as `load` reads it; None for a class of this package."""
    return None if top_of(kind.__module__) == OURS else f"{kind.__module__}:{kind.__qualname__}"


def top_of(path: str) -> str:
    """Return the top-level package, or the single module, of a module or of code in it.

    >>> top_of("mypkg.vit:ViT")
    'mypkg'
    """
    return path.partition(":")[0].partition(".")[0]


# --- finding and digesting: nothing is executed ---


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """The Python files of a top-level package or module."""

    top: str
    files: tuple[tuple[str, Path], ...]  # names below the package, with `/`; sorted
    origin: str  # the directory or file

    @property
    def digest(self) -> str:
        """Return the SHA-256 over names and contents. Raises `RecipeError` where a file cannot be read."""
        total = hashlib.sha256()
        for name, path in self.files:
            try:
                status = path.stat()
                content = _content_digest(path, status.st_size, status.st_mtime_ns, status.st_ino)
            except OSError as error:
                raise RecipeError(f"{self.top}: {path}: cannot be read: {error.strerror}") from error
            total.update(f"{name} {content}\n".encode())
        return total.hexdigest()


def source_of(top: str) -> Source:
    """Return the source of a top-level name: installed, or in the current directory.

    Raises `RecipeError` where there is none, where there are two that differ, and for code that is not Python source.
    """
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError, AttributeError):  # a module without a specification, such as `__main__`
        spec = None
    here = PathFinder.find_spec(top, [str(Path.cwd())])
    if spec is None or (_is_bare(spec) and here is not None):
        spec, here = here, None
    if spec is None:
        raise RecipeError(f"no module {top!r}: it is neither installed nor in the current directory, {Path.cwd()}")
    source = _listed(top, spec)
    if here is not None and not _is_bare(here) and (other := _listed(top, here)).digest != source.digest:
        raise RecipeError(
            f"two different packages {top!r}: {source.origin} and {other.origin}: expected one; install the project"
            " with `pip install -e .`, or change to another directory"
        )
    return source


def _is_bare(spec: ModuleSpec) -> bool:
    """Return whether it is a directory without `__init__.py`, which yields to any real package."""
    return spec.origin is None and spec.submodule_search_locations is not None


@lru_cache(maxsize=50_000)
def _content_digest(path: Path, *_: int) -> str:
    """Return the digest of a file, which is read again when size, time or inode differ."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _listed(top: str, spec: ModuleSpec) -> Source:
    roots = [Path(place) for place in spec.submodule_search_locations or ()]
    if roots:
        files = sorted((f"{top}/{path.relative_to(root).as_posix()}", path) for root in roots for path in _files(root))
        origin = str(roots[0])
    else:
        files = [(f"{top}.py", Path(spec.origin))] if spec.origin and spec.origin.endswith(".py") else []
        origin = str(spec.origin)
    if not files:
        raise RecipeError(f"{top}: {origin}: found no Python files, so nothing says which code it is; expected some")
    return Source(top=top, files=tuple(files), origin=origin)


def _files(root: Path) -> Iterator[Path]:
    size = 0
    for count, path in enumerate(root.rglob("*.py")):
        size += path.stat().st_size if path.is_file() else 0
        if count >= MAX_FILES or size > MAX_BYTES:
            raise RecipeError(
                f"{root}: more than {MAX_FILES} Python files or {MAX_BYTES} bytes: no package of one's own"
            )
        if path.is_file():
            yield path


def describe(top: str) -> dict[str, str]:
    """Return what the environment record says about code: digest, version, and the distribution that installed it."""
    source = source_of(top)
    names = packages_distributions().get(top, [])
    versions = {}
    for name in sorted(set(names)):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # removed since Python listed it
            continue
    shown = ", ".join(f"{name} {number}" for name, number in versions.items())
    return {"source": source.digest, "package": shown or "in the project"}


# --- importing ---

_loaded: dict[str, str] = {}  # the digest of each top-level name when this process first imported it


def checked(top: str) -> str:
    """Return the source digest of code that is in use. Raises `RecipeError` if it changed since it was imported."""
    now = source_of(top).digest
    if _loaded.setdefault(top, now) != now:
        raise RecipeError(
            f"{top}: its code has changed since this process imported it ({_loaded[top][:12]} then, {now[:12]} now):"
            " start a new process, or restart the kernel"
        )
    return now


def check_path(path: str) -> str:
    """Return the top-level name of a path that may be imported. Raises `RecipeError`."""
    if not PATH.fullmatch(path):
        raise RecipeError(f"found {path!r:.100}, expected module:Name, such as mypkg.vit:ViT")
    top = top_of(path)
    if top == OURS:
        raise RecipeError(f"{path!r}: found code of Explorer itself, expected its name: `explorer methods` lists names")
    if top == "__main__":
        raise RecipeError(f"{path!r}: found code of a notebook or script, expected a module, which workers can import")
    if top in sys.stdlib_module_names:
        raise RecipeError(f"{path!r}: found a module of Python itself, expected one of a package or of the project")
    return top


def load(path: str, *, code: Code) -> Any:
    """Import code and return what the path names.

    `code` is what may be imported, and is compared with the source before anything is executed. Raises `RecipeError`
    for anything else, for code that cannot be imported, and for a name that is not there.
    """
    top = check_path(path)
    if code is not None:
        _check_allowed(top, code)
    checked(top)
    here = str(Path.cwd())
    # At the end, so that a file of the project hides nothing that is installed.
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    module, _, name = path.partition(":")
    try:
        importlib.invalidate_caches()
        value: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        raise RecipeError(f"{path}: {module} cannot be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(value, part):
            raise RecipeError(f"{path}: {module} has no {name!r}")
        value = getattr(value, part)
    return value


def check_code(code: Mapping[str, str]) -> None:
    """Raise `RecipeError` unless all this code is here with the digests that are given. Nothing is imported."""
    for top in code:
        _check_allowed(top, code)


def _check_allowed(top: str, code: Mapping[str, str]) -> None:
    if top not in code:
        raise RecipeError(f"{top}: code of another package, which reading a record does not import")
    if code[top] != (now := source_of(top).digest):
        raise RecipeError(
            f"{top}: its code has changed: planned with source {code[top][:12]}, found {now[:12]} in"
            f" {source_of(top).origin}: bring that code back, or plan again, which gives the run a name of its own"
        )


def code_of(classes: Iterable[type[Any]]) -> dict[str, str]:
    """Return the source digests of the code that these classes and their bases are from, by top-level name."""
    return {top: checked(top) for top in tops_of(classes)}


def tops_of(classes: Iterable[type[Any]]) -> list[str]:
    """Return the top-level names of the code of other packages that these classes and their bases are from, sorted."""
    tops = {
        top_of(base.__module__)
        for kind in classes
        if path_of(kind) is not None
        for base in kind.__mro__
        if top_of(base.__module__) != OURS and top_of(base.__module__) not in sys.stdlib_module_names
    }
    return sorted(tops)

"""Measure the house: sizes of files, doors between them, words, and what a change touches.

    python benchmarks/house.py             the working tree
    python benchmarks/house.py --at REV    a commit

One table, a figure a line, each with its target; the docstring of each function says how it counts. `Tree` holds the
parsed modules. `tests/test_house.py` uses the same functions for the limits that hold for good.
"""

import argparse
import ast
import io
import re
import statistics
import subprocess
import tarfile
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "explorer"
TABLE_LINES = 4  # a table has at least so many lines
ABANDONED = (
    *("beside", "stands", "whoever", "nobody", "somebody", "anew"),
    *("is told", "is said", "held against", "goes on", "alone"),
)
VAGUE = ("found", "each")
OPENINGS = ("What", "Whether", "Of", "The same")


@dataclass(frozen=True)
class Module:
    """A module of the package, parsed."""

    name: str  # dotted
    path: Path  # from the root
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@dataclass(frozen=True)
class Import:
    """An import of one module of the package by another."""

    importer: str
    imported: str
    names: tuple[str, ...]  # as the importer calls them
    hidden: bool  # in a function
    typing: bool  # for types only


class Tree:
    """The modules of a checkout, and the imports between them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.modules = dict(sorted((module.name, module) for module in _modules(root)))

    @cached_property
    def imports(self) -> list[Import]:
        return [door for module in self.modules.values() for door in self._imports_of(module)]

    def _imports_of(self, module: Module) -> Iterator[Import]:
        """Yield the imports of own modules. `from a import b` is of the module a.b, where there is one, else of a."""
        for node, hidden, typing in _import_nodes(module.tree, hidden=False, typing=False):
            targets: dict[str, list[str]] = defaultdict(list)
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    deeper = f"{node.module}.{alias.name}"
                    target = deeper if deeper in self.modules else node.module or ""
                    targets[target].append(alias.asname or alias.name)
            else:
                for alias in node.names:
                    targets[alias.name].append(alias.asname or alias.name)
            for target, names in targets.items():
                if target in self.modules and target != module.name:
                    yield Import(module.name, target, tuple(names), hidden, typing)


def _modules(root: Path) -> Iterator[Module]:
    for path in sorted((root / PACKAGE).rglob("*.py")):
        relative = path.relative_to(root)
        parts = relative.with_suffix("").parts
        yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), relative, path.read_text())


def _import_nodes(
    node: ast.AST, *, hidden: bool, typing: bool
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Yield the import statements below a node, and whether a function hides them or only types need them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, hidden, typing
        else:
            inside = hidden or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            only_types = typing or (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING")
            yield from _import_nodes(child, hidden=inside, typing=only_types)


# --- sizes -----------------------------------------------------------------------------------------------------------


def file_lines(tree: Tree) -> list[int]:
    """Return the lines of each file, in order of size."""
    return sorted(len(module.lines) for module in tree.modules.values())


def import_share(tree: Tree) -> float:
    """Return the share of all lines that import statements take."""
    taken = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in tree.modules.values()
        for node, _, _ in _import_nodes(module.tree, hidden=False, typing=False)
    )
    return taken / sum(file_lines(tree))


def folder_files(tree: Tree) -> Counter[str]:
    """Count the Python files directly in each folder."""
    return Counter(str(module.folder) for module in tree.modules.values())


def repeated_names(tree: Tree) -> dict[str, list[str]]:
    """Return file names that several folders use, `__init__` and verbs of the command line aside."""
    folders: dict[str, list[str]] = defaultdict(list)
    for module in tree.modules.values():
        if module.path.stem not in ("__init__", "__main__") and "cli" not in module.folder.parts:
            folders[module.path.name].append(str(module.folder))
    return {name: places for name, places in folders.items() if len(places) > 1}


# --- doors -----------------------------------------------------------------------------------------------------------


def single_importers(tree: Tree) -> list[str]:
    """Return modules that one other module imports, from the same folder, lines in a table aside.

    A module is a line in a table where the importer lists a name from it, at module level, in a tuple, list, set or
    dictionary of at least `TABLE_LINES` elements.
    """
    importers: dict[str, set[str]] = defaultdict(set)
    for door in tree.imports:
        importers[door.imported].add(door.importer)
    alone = []
    for name, those in importers.items():
        module = tree.modules[name]
        if len(those) > 1 or module.is_package or module.path.stem == "__main__":
            continue
        importer = tree.modules[next(iter(those))]
        if importer.folder == module.folder and not _listed(tree, importer, name):
            alone.append(name)
    return sorted(alone)


def _listed(tree: Tree, importer: Module, name: str) -> bool:
    names = {
        bound
        for door in tree.imports
        if (door.importer, door.imported) == (importer.name, name)
        for bound in door.names
    }
    return bool(names & _names_in_tables(importer))


def _names_in_tables(module: Module) -> set[str]:
    """Return the names in the elements of collections that a module assigns at its top level."""
    names: set[str] = set()
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            for node in ast.walk(statement.value):
                elements = node.values if isinstance(node, ast.Dict) else getattr(node, "elts", ())
                if len(elements) >= TABLE_LINES:
                    names |= {leaf.id for item in elements for leaf in ast.walk(item) if isinstance(leaf, ast.Name)}
    return names


def hidden_imports(tree: Tree) -> list[Import]:
    """Return imports of own modules inside functions. Tables that load lazily name modules in strings: not counted."""
    return [door for door in tree.imports if door.hidden]


def circles(tree: Tree) -> list[list[str]]:
    """Return groups of modules that import each other in a circle, hidden imports included (Tarjan's components)."""
    arrows: dict[str, set[str]] = defaultdict(set)
    for door in tree.imports:
        if not door.typing:
            arrows[door.importer].add(door.imported)
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for target in arrows[name]:
            if target not in order:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], order[target])
        if lowest[name] == order[name]:
            start = stack.index(name)
            group = stack[start:]
            del stack[start:]
            if len(group) > 1:
                groups.append(sorted(group))

    for name in tree.modules:
        if name not in order:
            visit(name)
    return groups


# --- words -----------------------------------------------------------------------------------------------------------


def vague_names(tree: Tree) -> int:
    """Count where a variable or a parameter is bound to the name `found` or `each`."""
    return sum(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE)
        or (isinstance(node, ast.arg) and node.arg in VAGUE)
        for module in tree.modules.values()
        for node in ast.walk(module.tree)
    )


def own_line_comments(tree: Tree) -> int:
    """Count the comments that have a line of their own."""
    return sum(line.lstrip().startswith("#") for module in tree.modules.values() for line in _comment_lines(module))


def _comment_lines(module: Module) -> Iterator[str]:
    for token in module.tokens:
        if token.type == tokenize.COMMENT:
            yield token.line


def abandoned_words(tree: Tree) -> Counter[str]:
    """Count words to give up in strings and comments. `alone` counts in every sense."""
    pattern = re.compile(rf"\b({'|'.join(ABANDONED)})\b", re.I)
    return Counter(
        match.lower()
        for module in tree.modules.values()
        for token in module.tokens
        if token.type in (tokenize.STRING, tokenize.COMMENT)
        for match in pattern.findall(re.sub(r"\s+", " ", token.string))
    )


def foreign_docstrings(tree: Tree) -> int:
    """Count docstrings that begin with one of `OPENINGS`."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(
        (ast.get_docstring(node) or "").startswith(tuple(f"{opening} " for opening in OPENINGS))
        for module in tree.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, documented)
    )


# --- what a change touches -------------------------------------------------------------------------------------------


def places(tree: Tree) -> Mapping[str, int]:
    """Return how many files CONTRIBUTING.md lists for each kind of addition; a test adds one by exactly these."""
    guide = tree.root / "CONTRIBUTING.md"
    if not guide.exists():
        return {}
    sections = re.split(r"^## ", guide.read_text(), flags=re.M)[1:]
    counted = {text.partition("\n")[0].strip(): len(re.findall(r"^\d+\. ", text, re.M)) for text in sections}
    return {title: number for title, number in counted.items() if number}


# --- the table -------------------------------------------------------------------------------------------------------


def table(tree: Tree) -> list[tuple[str, str, str]]:
    """Return the figures with their targets: name, value, target."""
    sizes, lines = file_lines(tree), sum(file_lines(tree))
    folders = folder_files(tree)
    (largest, most), *_ = folders.most_common(1)
    words = abandoned_words(tree)
    thousand = lines / 1000
    touched = places(tree)
    return [
        ("files / lines", f"{len(sizes)} / {lines:,}", "350 / 61,000"),
        (
            "file lines: median / p90",
            f"{statistics.median(sizes):.0f} / {sizes[int(0.9 * len(sizes))]}",
            "140-180 / 350-450",
        ),
        ("import lines", f"{import_share(tree):.1%}", "6.5%"),
        ("modules with one importer, in their own folder", f"{len(single_importers(tree))}", "40"),
        ("own imports hidden in functions", f"{len(hidden_imports(tree))}", "0"),
        ("largest folder", f"{most} ({largest})", "33"),
        ("folders over 25 / over 35 files", f"{_over(folders, 25)} / {_over(folders, 35)}", "1 / 0"),
        ("file names in several folders", f"{len(repeated_names(tree))}", "0"),
        ("import circles", f"{len(circles(tree))}", "0"),
        ("`found` and `each` a thousand lines", f"{vague_names(tree) / thousand:.1f}", "under 1"),
        ("own-line comments a thousand lines", f"{own_line_comments(tree) / thousand:.1f}", "15"),
        ("words to give up", f"{words.total():,} ({words['alone']} of them `alone`)", "0"),
        (f"docstrings that begin with {', '.join(OPENINGS)}", f"{foreign_docstrings(tree)}", "0"),
        *((f"places to touch: {title[:1].lower()}{title[1:]}", f"{number}", "") for title, number in touched.items()),
    ]


def _over(folders: Counter[str], limit: int) -> int:
    return sum(number > limit for number in folders.values())


def checkout(revision: str, into: Path) -> Path:
    """Unpack the package and the guide of a commit."""
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return into


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", metavar="REV", help="a commit; default: the working tree")
    parser.add_argument("--list", action="store_true", help="list the offenders too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        tree = Tree(checkout(asked.at, Path(place)) if asked.at else ROOT)
        print("| figure | value | target |\n|---|---|---|")
        for line in table(tree):
            print(f"| {' | '.join(line)} |")
        if asked.list:
            print("\none importer:", *single_importers(tree), sep="\n  ")
            print(
                "\nrepeated:",
                *(f"{name}: {', '.join(those)}" for name, those in repeated_names(tree).items()),
                sep="\n  ",
            )
            print("\nhidden:", *(f"{door.importer} -> {door.imported}" for door in hidden_imports(tree)), sep="\n  ")


if __name__ == "__main__":
    main()

"""A specification document: plain values read safely from YAML or taken from Python, with the place of each value.

The YAML is the core schema of version 1.2, without the parts that a specification does not need. `5e-4` is a number
(text in YAML 1.1), `no` and `2026-01-01` are text, and duplicate keys, anchors, aliases, tags and merge keys are
refused. Size, depth and the number of values are bounded, so that a hostile file costs at most two seconds of a core.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from explorer.errors import RecipeError, SpecError

MAX_BYTES = 2**20
MAX_DEPTH = 20
# Keys count too. A taxonomy of 10,000 classes has fewer, and parsing takes 15 microseconds for each.
MAX_VALUES = 100_000
MAX_WHOLE = 2**53  # the largest whole number that canonical JSON holds exactly
MAX_FLOAT = sys.float_info.max

Key = tuple[str | int, ...]

_NULL = re.compile(r"(~|null|Null|NULL|)\Z")
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]{1,20}\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A value made of dicts, lists, text, numbers, booleans and None, with the place of every key for messages."""

    value: Any
    where: str  # the file's name, or another name of the document for messages
    text: str | None = None  # the file's content; None where there is no file
    lines: Mapping[Key, int] = field(default_factory=dict)

    def error(self, key: Key, message: str) -> SpecError:
        """Return the error that names file, line, key and fault: `digits.yaml:5: budgets[2]: ...`."""
        return SpecError(f"{self.place(key)}: {message}")

    def place(self, key: Key) -> str:
        """Return file, line and key in words; an unknown line is left out."""
        # A key that the file leaves out has the line of the nearest key above it.
        line = next((self.lines[key[:end]] for end in range(len(key), -1, -1) if key[:end] in self.lines), None)
        start = self.where if line is None else f"{self.where}:{line}"
        return f"{start}: {spell(key)}" if key else start

    def locate(self, error: RecipeError) -> SpecError:
        """Return the error with its line, found by the key in the message: `digits.yaml: recipes.fast[1]: ...`."""
        start, message = f"{self.where}: ", str(error)
        if not message.startswith(start):
            return SpecError(message)
        named = message.removeprefix(start)
        # Several keys may be a prefix of the message; the longest one is the key that it names.
        fits = [(len(spell(key)), line) for key, line in self.lines.items() if key and named.startswith(spell(key))]
        return SpecError(f"{self.where}:{max(fits)[1]}: {named}" if fits else message)


def spell(key: Key) -> str:
    """Return a key as text.

    >>> spell(("recipes", "fast", 1))
    'recipes.fast[1]'
    """
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")


def read_document(path: Path) -> Document:
    """Read a YAML file. Raises `SpecError` when it is absent, too large, or not YAML of the kind described above."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise SpecError(f"{path}: too large for a specification: at most {MAX_BYTES} bytes are read")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text (byte {error.start} is {content[error.start]:#04x})") from error
    return parse_document(text, where=str(path))


def parse_document(text: str, *, where: str) -> Document:
    """Read YAML text; see `read_document`."""
    try:
        loader = _Loader(text)
        loader.where = where
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise SpecError(f"{where}{line}: not YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise SpecError(f"{where}: not YAML: {' '.join(str(error).split())}") from error
    reader = _Reader(where)
    value = None if node is None else reader.value(node, ())
    return Document(value=value, where=where, text=text, lines=reader.lines)


def document_of(value: Any, *, where: str = "spec") -> Document:
    """Take a Python value as a document. Raises `SpecError` for a value that YAML could not have expressed."""
    return Document(value=_plain(value, (), where), where=where)


class _Loader(yaml.SafeLoader):
    """Loader that checks every event before anything is built from it.

    An alias could repeat a branch without end, and a list of one-letter values costs a thousand times its size.
    """

    where = ""
    depth = values = 0

    def get_event(self) -> Any:
        event = super().get_event()
        line = event.start_mark.line + 1
        if getattr(event, "anchor", None):  # an alias has one too
            raise SpecError(f"{self.where}:{line}: anchors and aliases (& and *) are not allowed; write the value out")
        if getattr(event, "tag", None):
            raise SpecError(f"{self.where}:{line}: tags are not allowed; found {event.tag!r}")
        self.depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if self.depth > MAX_DEPTH:
            raise SpecError(f"{self.where}:{line}: nested deeper than {MAX_DEPTH} levels")
        self.values += isinstance(event, yaml.NodeEvent)
        if self.values > MAX_VALUES:
            raise SpecError(f"{self.where}:{line}: more than {MAX_VALUES} keys and values; at most so many are read")
        return event


class _Reader:
    """Reader that builds the value from YAML's node tree and notes the line of every key."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.lines: dict[Key, int] = {}

    def value(self, node: yaml.Node, key: Key) -> Any:
        self.lines.setdefault(key, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*key, index)) for index, item in enumerate(node.value)]
        scalar = _scalar(node)
        if not _sane(scalar):
            raise SpecError(f"{self.where}:{self.lines[key]}: {spell(key)}: {node.value:.40} is too large for a number")
        return scalar

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            name = name_node.value
            if not isinstance(name_node, yaml.ScalarNode) or not isinstance(_scalar(name_node), str):
                shown = repr(name) if isinstance(name, str) else "a collection"
                raise SpecError(f"{self.where}:{line}: a key must be text, found {shown}; put it in quotes")
            if name in result:
                first = self.lines[(*key, name)]
                raise SpecError(f"{self.where}:{line}: {spell((*key, name))}: given twice, first in line {first}")
            self.lines[(*key, name)] = line
            result[name] = self.value(value_node, (*key, name))
        return result


def _scalar(node: yaml.Node) -> Any:
    text: str = node.value
    if getattr(node, "style", None) is not None:  # quoted, or a block of text
        return text
    # Whole numbers before floats, whose pattern fits them too; a scalar that fits no pattern is text.
    if _NULL.match(text):
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INT.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text


def _sane(value: Any) -> bool:
    """Return whether a number has a canonical form: finite, and exact where it is whole."""
    return not isinstance(value, int | float) or abs(value) <= (MAX_WHOLE if isinstance(value, int) else MAX_FLOAT)


def _plain(value: Any, key: Key, where: str) -> Any:
    if len(key) > MAX_DEPTH:
        raise SpecError(f"{where}: {spell(key)}: nested deeper than {MAX_DEPTH} levels")
    if value is None or isinstance(value, str | bool | int | float):
        if not _sane(value):
            raise SpecError(f"{where}: {spell(key)}: {value!r:.40} is not a number of JSON")
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise SpecError(f"{where}: {spell(key) or 'the top'}: a key must be text, found {name!r}")
        return {name: _plain(item, (*key, name), where) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_plain(item, (*key, index), where) for index, item in enumerate(value)]
    raise SpecError(
        f"{where}: {spell(key) or 'the top'}: {type(value).__name__} is not allowed; "
        "text, numbers, true, false, null, lists and mappings are"
    )

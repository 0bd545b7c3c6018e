"""The card of a data set as the Hugging Face hub has it: the YAML at the head of `README.md`.

    ---
    configs:
    - config_name: en                 a configuration: some of the files, under a name
      default: true
      data_files:
      - split: train
        path: en/train-*.parquet      a pattern of paths below the card's directory, or a list of them
      - split: test
        path: en/test-*.parquet
    dataset_info:
    - config_name: en
      features:
      - name: label
        dtype:
          class_label:
            names: {'0': cat, '1': dog}
    ---

`*` and `?` match within a name, `**` any directories. Without `split`, files are of the training side; with `data_dir`
and without `data_files`, a configuration is that directory. Everything else in a card is left out.

The card may be hostile. Its YAML is bounded and has no tags and no aliases, and patterns are compared with the names of
files that are listed already: nothing is opened because a card names it.
"""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from explorer import rundir, yaml_document
from explorer.data.local import shown
from explorer.errors import DataError, SpecError, unknown

README = "README.md"
FENCE = "---"
KEYS = ("configs:", "dataset_info:")
MAX_BYTES = 2**24  # of a README; its YAML has a bound of its own
MAX_PATTERNS = 1_000
MAX_PATTERN = 300  # characters
MAX_DEEP = 20  # parts of a pattern
MAX_NAME = 200  # characters of a class
TRAIN = "train"
DEFAULT = "default"


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """Files of a data set under a name, and the names of its classes."""

    name: str
    default: bool
    patterns: tuple[tuple[str | None, str], ...]  # split and pattern; a split of None: that of the file's name
    names: Mapping[str, tuple[str, ...]]  # of the classes, in the order of their numbers, by column

    def split_of(self, file: str) -> str | None:
        """Return the split of a file, by its name below the card's directory; empty for one of no known split, None
        for one of another configuration."""
        fits = (split or "" for split, pattern in self.patterns if matches(pattern, file))
        return next(fits, None) if self.patterns else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class HubCard:
    """A card, as far as it is about files and classes."""

    path: Path
    configurations: tuple[Configuration, ...]

    @property
    def default(self) -> Configuration | None:
        """Return the configuration to read where none is named; None where the card leaves that open."""
        marked = [one for one in self.configurations if one.default or one.name == DEFAULT]
        marked = marked or [*self.configurations]
        return marked[0] if len(marked) == 1 else None

    def chosen(self, name: str | None) -> Configuration:
        """Return the configuration of that name, or the default. Raises `DataError` that lists the names."""
        names = [one.name for one in self.configurations]
        if name is not None and name not in names:
            raise DataError(f"{self.path}: {unknown('configuration', name, names)}")
        one = self.default if name is None else self.configurations[names.index(name)]
        if one is None:
            raise DataError(
                f"{self.path}: found the configurations {', '.join(map(repr, names[:20]))}, and none of them is the"
                f" default: expected one by its name, such as config: {names[0]}"
            )
        return one


def read_hub_card(root: Path) -> HubCard | None:
    """Return the card of the directory; None where none says anything about files or classes.

    Raises `DataError` for one that cannot be read, that is no YAML, or that names files outside the directory.
    """
    path = root / README
    # A link could lead anywhere, and opening a pipe would block.
    if path.is_symlink() or not path.is_file():
        return None
    lines = rundir.read_bytes(path, max_bytes=MAX_BYTES, error=DataError).decode(errors="replace").splitlines()
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    head = lines[1:end] if end is not None and lines[0].rstrip() == FENCE else []
    # A README of something else may begin with any lines; only a card has these keys.
    if not any(line.startswith(KEYS) for line in head):
        return None
    try:
        # An empty line in the place of the first one, so that errors name the lines of the file.
        content = yaml_document.parse_document("\n".join(["", *head]), where=str(path)).value
    except SpecError as error:
        raise DataError(f"damaged card: {error}") from error
    if not isinstance(content, Mapping):
        raise DataError(f"{path}: found {_short(content)} between the lines {FENCE}: expected keys such as {KEYS[0]}")
    infos = _infos(content, path)
    configs = _listed(content.get("configs") or [], path, "configs")
    listed = [_configuration(config, infos, f"{path}: configs[{at}]") for at, config in enumerate(configs)]
    if not configs and len(infos) == 1:  # the layout of the files decides, and only the names of classes are the card's
        listed = [Configuration(name=name, default=False, patterns=(), names=names) for name, names in infos.items()]
    return HubCard(path=path, configurations=tuple(listed)) if listed else None


def matches(pattern: str, file: str) -> bool:
    """Return whether a path fits a pattern.

    >>> matches("data/*", "data/0.parquet"), matches("data/*", "data/en/0.parquet"), matches("**/0.*", "0.parquet")
    (True, False, True)
    """
    parts, names = PurePosixPath(pattern).parts, PurePosixPath(file).parts

    # Remembered by both places: `**/**/**` would be tried in exponentially many ways.
    @cache
    def fits(at: int, place: int) -> bool:
        if at == len(parts):
            return place == len(names)
        if parts[at] == "**":
            return fits(at + 1, place) or (place < len(names) and fits(at, place + 1))
        return place < len(names) and fnmatch.fnmatchcase(names[place], parts[at]) and fits(at + 1, place + 1)

    return fits(0, 0)


# --- parts of a card ---


def _configuration(config: Any, infos: Mapping[str, Mapping[str, tuple[str, ...]]], where: str) -> Configuration:
    if not isinstance(config, Mapping):
        raise DataError(f"{where}: found {_short(config)}, expected config_name and data_files")
    name = shown(str(config.get("config_name", DEFAULT)))
    begin = config.get("data_dir")
    patterns = tuple(
        (split, _checked(pattern if begin is None else f"{_checked(begin, where)}/{pattern}", where))
        for split, pattern in _patterns(config.get("data_files"), where)
    )
    if not patterns and begin is not None:
        patterns = ((None, f"{_checked(begin, where)}/**"),)
    if len(patterns) > MAX_PATTERNS:
        raise DataError(f"{where}: found {len(patterns)} patterns, expected {MAX_PATTERNS:,} or fewer")
    names = infos.get(name, {}) if len(infos) > 1 else next(iter(infos.values()), {})
    return Configuration(name=name, default=config.get("default") is True, patterns=patterns, names=names)


def _patterns(files: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield split and pattern of `data_files`: a pattern, a list of patterns, or a list of splits with theirs."""
    for entry in files if isinstance(files, list) else [] if files is None else [files]:
        split, paths = (entry.get("split"), entry.get("path")) if isinstance(entry, Mapping) else (TRAIN, entry)
        paths = paths if isinstance(paths, list) else [paths]
        if not isinstance(split, str) or not paths or not all(isinstance(path, str) for path in paths):
            raise DataError(f"{where}: data_files: found {_short(entry)}, expected split and path")
        yield from ((split, path) for path in paths if isinstance(path, str))


def _checked(pattern: Any, where: str) -> str:
    """Return the pattern without `./`. Raises `DataError` for one that could name something else."""
    if isinstance(pattern, str) and 0 < len(pattern) <= MAX_PATTERN and "\0" not in pattern:
        pure = PurePosixPath(pattern)
        if not (pure.is_absolute() or ".." in pure.parts or "://" in pattern or len(pure.parts) > MAX_DEEP):
            return pure.as_posix()
    raise DataError(f"{where}: found the path {_short(pattern)}: expected one of files below the card's directory")


def _infos(content: Mapping[str, Any], path: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the names of the classes by configuration and column."""
    infos = content.get("dataset_info") or []
    listed = _listed(infos if isinstance(infos, list) else [infos], path, "dataset_info")
    named: dict[str, dict[str, tuple[str, ...]]] = {}
    for info in listed:
        if isinstance(info, Mapping):
            named[shown(str(info.get("config_name", DEFAULT)))] = dict(_classes(info.get("features")))
    return named


def _classes(features: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns of classes with their names. Columns of other kinds, and names that are none, are left out."""
    for feature in features if isinstance(features, list) else []:
        kind = feature.get("dtype") if isinstance(feature, Mapping) else None
        labels = kind.get("class_label") if isinstance(kind, Mapping) else None
        given = labels.get("names") if isinstance(labels, Mapping) else None
        if isinstance(given, Mapping):  # by number, written as text
            places = {str(number): name for number, name in given.items()}
            given = [places.get(str(number)) for number in range(len(places))]
        given = given if isinstance(given, list) else []
        names = tuple(name for name in given if isinstance(name, str) and 0 < len(name) <= MAX_NAME)
        if len(set(map(shown, names))) == len(given) > 1:
            yield str(feature.get("name")), names


def _listed(value: Any, path: Path, key: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise DataError(f"{path}: {key}: found {_short(value)}, expected a list")
    return value


def _short(value: Any) -> str:
    return shown(repr(value))[:100]

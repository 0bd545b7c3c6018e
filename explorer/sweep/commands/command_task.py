"""The task of a sweep that trains by a command or a notebook of the user's: its grammar, and its recipes.

    task:
      command: "{python} train.py --lr {lr} --epochs {epochs} --seed {seed}"    # or notebook: train.ipynb
      metrics: {accuracy: {unit: fraction, higher_is_better: true}}             # the first one decides
      files: [data/digits.csv]     # what else determines the result, next to the code that is found by itself
      env: [DATA_ROOT]             # environment variables that it gets, next to those that every program needs
      dataset: digits              # labels, for tables
      model: mlp
      timeout: 600                 # seconds of a run
    set: {lr: 0.1}                 # values of placeholders, or of the notebook's parameters
    scale: {epochs: 20}            # numbers that are multiplied by the budget
    recipes:
      baseline: {}
      fast: {set: {lr: 0.3}}       # what differs

There is no shell: the command is split into words first, then every placeholder is replaced within its word, so a value
with spaces stays one argument. `{{` and `}}` are braces. Paths are relative to the file of the specification.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, Literal

from pydantic import Field

from explorer.canonical import digest
from explorer.errors import RecipeError, SpecError, unknown
from explorer.parameters import check
from explorer.run_files import METRICS, Metric, RunRecord
from explorer.yaml_document import Document, Key

KEYS = ("set", "scale")  # of the specification, next to those of every sweep
NOT_HERE = ("train", "compose", "controls", "governance", "tune", "search")
"""Keys of sweeps over Explorer's own recipes."""
KINDS = ("command", "notebook")
BUILT_IN = ("recipe", "budget", "seed", "directory", "python")
PARAMETERS = ("recipe", "budget", "seed", "directory")  # of a notebook
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
MAX_TEXT = 4000  # characters of the command, or of a value
NO_VALUE = (Mapping, list)
UNKNOWN = "unknown"  # the precision; of a notebook that began its run itself, the code

Label = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Value = str | int | float | bool


@dataclass(frozen=True, kw_only=True, slots=True)
class _Written:
    """The fields of `task`, as they are written."""

    command: Text | None = None
    notebook: Text | None = None
    metrics: list[str] | dict[str, Any] | None = None
    files: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()
    env: Annotated[tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")], ...], Field()] = ()
    dataset: Label | None = None
    model: Label | None = None
    timeout: Annotated[float, Field(gt=0, le=1e7)] | None = None
    directory: Text = "."


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandTask:
    """A command or notebook that trains, and what is declared about it. One of `command` and `notebook` is set."""

    command: tuple[str, ...]  # words with placeholders; empty: a notebook
    notebook: str | None
    metrics: tuple[Metric, ...]
    files: tuple[str, ...]  # relative to the directory
    env: tuple[str, ...]
    dataset: str
    model: str
    timeout: float | None  # seconds
    directory: Path  # in which the command runs
    home: Path | None = None  # the directory on the machine of its author, where that is another one
    own: Literal["", "script", "notebook"] = ""  # what began its run itself, by `explorer.begin`; empty: a sweep did

    def to_mapping(self) -> dict[str, Any]:
        """Return what of the task is part of a run's identity."""
        if self.own:
            return {"own": self.dataset, **({"code": UNKNOWN} if self.own == "notebook" else {})}
        return {"command": list(self.command)} if self.notebook is None else {"notebook": self.notebook}

    @property
    def kind(self) -> str:
        """Return "command" or "notebook"."""
        return KINDS[self.notebook is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandRecipe:
    """One setting of a task's placeholders. `name` is for people; the digest covers everything else."""

    name: str
    task: CommandTask
    values: Mapping[str, Value]
    scale: Mapping[str, int | float]
    changes: tuple[str, ...]  # against the sweep's own values, as `lr=0.3`

    def to_mapping(self) -> dict[str, Any]:
        """Return the recipe as a run's identity has it."""
        return {"task": self.task.to_mapping(), "set": dict(self.values), "scale": dict(self.scale)}

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the canonical form."""
        return digest(self.to_mapping())

    def scaled(self, ssr: float) -> dict[str, int | float]:
        """Return the numbers of `scale` at a budget, whole ones rounded half up.

        Raises `RecipeError` where less than 1 is left of a whole number.
        """
        numbers: dict[str, int | float] = {}
        for name, full in self.scale.items():
            if isinstance(full, float):
                numbers[name] = full * ssr
                continue
            numbers[name] = int(full * ssr + 0.5)
            if numbers[name] < 1:
                raise RecipeError(
                    f"recipe {self.name!r}: budget {ssr:g} leaves {full * ssr:g} of {name}: {full}, which rounds to 0;"
                    f" expected at least 1: a budget of {0.5 / full:.3g} or more, or a float, {float(full)}"
                )
        return numbers


def is_command(content: Mapping[str, Any]) -> bool:
    """Return whether a specification is of a command or a notebook."""
    task = content.get("task")
    return isinstance(task, Mapping) and any(kind in task for kind in KINDS)


def read_task(document: Document, content: Mapping[str, Any]) -> CommandTask:
    """Return the task of a specification. Nothing is looked up on the disk. Raises `SpecError`."""
    for key in NOT_HERE:
        if key in content:
            raise document.error(
                (key,), f"works on Explorer's own recipes, and the task is a command; expected {', '.join(KEYS)}"
            )
    try:
        written = check(_Written, content["task"], where=f"{document.where}: task")
    except RecipeError as error:
        raise document.locate(error) from error
    if written.command is not None and written.notebook is not None:
        raise document.error(("task",), "found both a command and a notebook, expected one of them")
    base = Path() if document.text is None else Path(document.where).parent
    return CommandTask(
        command=() if written.command is None else _words(document, written.command),
        notebook=None if written.notebook is None else _inside(document, ("task", "notebook"), written.notebook),
        metrics=_metrics(document, written.metrics),
        files=tuple(_inside(document, ("task", "files", at), name) for at, name in enumerate(written.files)),
        env=tuple(dict.fromkeys(written.env)),
        dataset=written.dataset or f"{content['name']}-task",
        model=written.model or _label(written),
        timeout=written.timeout,
        directory=base / written.directory,
    )


def read_recipe(
    document: Document, content: Mapping[str, Any], task: CommandTask, name: str, written: Any
) -> CommandRecipe:
    """Return a recipe of the specification: the sweep's values with its own in their place. Raises `SpecError`."""
    key: Key = ("recipes", name)
    if not isinstance(written, Mapping):
        raise document.error(key, f"found {written!r:.80}, expected a mapping with {', '.join(KEYS)}, such as {{}}")
    for part in written:
        if part not in KEYS:
            raise document.error((*key, part), unknown("key", part, KEYS))
    common, common_scale = (_values(document, (part,), content.get(part)) for part in KEYS)
    values, scale = (_values(document, (*key, part), written.get(part)) for part in KEYS)
    # A recipe may give a plain value to what the sweep scales, and the other way round.
    recipe = CommandRecipe(
        name=name,
        task=task,
        values={of: value for of, value in (common | values).items() if of not in scale},
        scale={of: value for of, value in (common_scale | scale).items() if of not in values},
        changes=tuple(f"{of}={_text(value)}" for of, value in (values | scale).items()),
    )
    for of, value in recipe.scale.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            place = (*key, "scale", of) if of in scale else ("scale", of)
            raise document.error(place, f"found {value!r:.80}, expected a number above 0")
    _check_names(document, content, recipe, key)
    return recipe


def _check_names(document: Document, content: Mapping[str, Any], recipe: CommandRecipe, key: Key) -> None:
    """Check that every placeholder has a value and every value a placeholder. A notebook is checked when it is read."""
    own = {**recipe.values, **recipe.scale}
    if recipe.task.notebook is None:
        used = {name for word in recipe.task.command for name in _placeholders(word)}
        for name in used:
            if name not in own and name not in BUILT_IN:
                known = [*own, *BUILT_IN]
                raise document.error(
                    ("task", "command"), f"{unknown('placeholder', name, known)}; values of your own are under 'set'"
                )
        for name in own:
            if name not in used:
                raise document.error(key, f"{unknown('placeholder', name, used)}: the command does not have {{{name}}}")
        _check_use(document, content, recipe, used)


def _check_use(document: Document, content: Mapping[str, Any], recipe: CommandRecipe, used: set[str]) -> None:
    """Check that seeds and budgets change something: runs that are alike would be counted as a sample."""
    if len(content["seeds"]) > 1 and "seed" not in used:
        raise document.error(("seeds",), f"several seeds, and the {recipe.task.kind} does not use {{seed}}")
    if len(content["budgets"]) > 1 and "budget" not in used and not recipe.scale:
        raise document.error(
            ("budgets",), f"several budgets, and the {recipe.task.kind} uses neither {{budget}} nor a value of 'scale'"
        )


def check_parameters(document_where: str, recipe: CommandRecipe, known: Mapping[str, Any], *, several: bool) -> None:
    """Check a notebook's parameters, the names in its cell tagged `parameters`. Raises `SpecError`."""
    for name in {**recipe.values, **recipe.scale}:
        if name not in known:
            raise SpecError(f"{document_where}: {unknown('parameter', name, known)}: expected in the tagged cell")
    if several and "seed" not in known:
        raise SpecError(f"{document_where}: several seeds, and its parameters have no 'seed'")


def command_line(recipe: CommandRecipe, record: RunRecord, *, directory: Path, python: str) -> list[str]:
    """Return the words of a run's command. `directory` is for its own files, `python` the interpreter of Explorer."""
    values = arguments(recipe, record, directory=directory) | {"python": python}
    return [
        "".join(text + (_text(values[name]) if name else "") for text, name in _pieces(word))
        for word in recipe.task.command
    ]


def arguments(recipe: CommandRecipe, record: RunRecord, *, directory: Path) -> dict[str, Value]:
    """Return the values of a run by name: the recipe's, scaled to its budget, and the built-in ones."""
    return {
        **recipe.values,
        **recipe.scaled(record.ssr),
        **{"recipe": recipe.name, "budget": record.ssr, "seed": record.seed, "directory": str(directory)},
    }


def _words(document: Document, command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
        for word in words:
            list(_pieces(word))
    except ValueError as error:
        raise document.error(("task", "command"), f"found {command!r:.200}: {error}") from error
    if not words or "\0" in command:
        raise document.error(("task", "command"), f"found {command!r:.80}, expected a program and its arguments")
    return words


def _pieces(word: str) -> Iterator[tuple[str, str | None]]:
    """Yield the text before each placeholder of a word, and its name. Raises `ValueError` for anything but `{name}`."""
    for text, name, form, conversion in Formatter().parse(word):
        if name is not None and (form or conversion or not NAME.fullmatch(name)):
            raise ValueError(f"expected a name in braces, such as {{seed}}, found {{{name}}}; {{{{ and }}}} are braces")
        yield text, name


def _placeholders(word: str) -> set[str]:
    return {name for _, name in _pieces(word) if name}


def _values(document: Document, key: Key, written: Any) -> dict[str, Any]:
    if written is None:
        return {}
    if not isinstance(written, Mapping):
        raise document.error(key, f"found {written!r:.80}, expected a mapping of names and values")
    for name, value in written.items():
        if not NAME.fullmatch(name) or name in BUILT_IN:
            taken = "a name that every run has" if name in BUILT_IN else "no name for a placeholder"
            raise document.error((*key, name), f"{name!r:.80} is {taken}; expected letters, digits and _")
        if value is None or isinstance(value, NO_VALUE) or (isinstance(value, str) and len(value) > MAX_TEXT):
            raise document.error((*key, name), f"found {value!r:.80}, expected text, a number, true or false")
        if isinstance(value, str) and "\0" in value:
            raise document.error((*key, name), f"found {value!r:.80}, expected text without NUL")
    return dict(written)


def _metrics(document: Document, written: Any) -> tuple[Metric, ...]:
    key: Key = ("task", "metrics")
    if not written:
        raise document.error(
            key, "missing: expected the metrics that it reports, such as {accuracy: {unit: fraction,"
            " higher_is_better: true}}; the first one decides"
        )  # fmt: skip
    metrics = []
    for name in written:
        fields = written[name] if isinstance(written, Mapping) else None
        if fields is None:
            if name not in METRICS:
                raise document.error(
                    key,
                    f"{unknown('metric', str(name), METRICS)}; declare others as {name}: {{higher_is_better: true}}",
                )
            metrics.append(METRICS[name])
            continue
        if not isinstance(fields, Mapping):
            raise document.error((*key, name), f"found {fields!r:.80}, expected a mapping with unit, higher_is_better")
        try:
            metric = check(Metric, {"name": name, **fields}, where=f"{document.where}: task.metrics.{name}")
        except RecipeError as error:
            raise document.locate(error) from error
        # A known name has one meaning in all tables.
        known = METRICS.get(name)
        if known is not None and (metric.unit, metric.higher_is_better) != (known.unit, known.higher_is_better):
            raise document.error(
                (*key, name),
                f"means {known.unit}, {'higher' if known.higher_is_better else 'lower'} is better, in every sweep;"
                " give another number another name",
            )
        metrics.append(metric)
    return tuple(metrics)


def _inside(document: Document, key: Key, name: str) -> str:
    """Return a path that leads to no other directory, in its plain form."""
    plain = os.path.normpath(name)
    if "\0" in name or Path(name).is_absolute() or Path(plain).parts[:1] == ("..",):
        raise document.error(key, f"found {name!r:.200}, expected a path within the directory of the specification")
    return plain


def _label(written: _Written) -> str:
    """Return a name for the model, from the name of the program."""
    words = [written.notebook] if written.notebook else shlex.split(written.command or "")
    return label_of(Path(next((word for word in words if Path(word).suffix), words[0])).stem)


def label_of(text: str) -> str:
    """Return a label for tables, made of a text.

    >>> label_of("Train ViT")
    'train-vit'
    """
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_")[:64] or "command"


def _text(value: Value) -> str:
    """Return a value as an argument: numbers as Python writes them, `true` and `false` as YAML does."""
    return str(value).lower() if isinstance(value, bool) else str(value)

"""The identity of a run that a command or notebook trains: the code and data it uses, and the software it meets.

The identity has, next to the command with its values: the SHA-256 of every file that the command names, of the modules
that a Python script imports from its own folder, and of `files:`; digests of the declared environment variables, never
their values; the machine; the version of Python, and of the packages that the code imports and those that they require.
It has no compiler, no library that a compiled program loads, and nothing that code finds only when it runs. That is why
such a run is repeated, and never promised to the bit.
"""

import ast
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import papermill

from explorer import rundir
from explorer.canonical import digest
from explorer.errors import RunError, SpecError
from explorer.run_files import METRICS, Hardware, RunRecord
from explorer.sweep.commands.command_task import UNKNOWN, CommandRecipe, CommandTask, check_parameters

MAX_FILES = 100_000  # of one specification; a directory with more is likelier a mistake
MAX_SOURCE = 2 * 2**20  # bytes of a Python file that is searched for imports
PATIENCE = 60.0  # seconds that an interpreter may take to list its packages
PYTHON = re.compile(r"python[0-9.]*")

# Runs in the interpreter of the command: version, whether it has this package, and versions of what modules come from.
_ASK = """
import importlib.metadata as metadata, importlib.util, json, re, sys
of, versions = metadata.packages_distributions(), {}
waiting = [name for module in sys.argv[1:] if module != "explorer" for name in of.get(module, ())]
while waiting:
    name = waiting.pop()
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        continue
    key = re.sub("[-_.]+", "-", name).lower()
    if key not in versions:
        versions[key] = package.version
        waiting += [re.match("[A-Za-z0-9._-]+", line)[0] for line in package.requires or () if "extra ==" not in line]
has = importlib.util.find_spec("explorer") is not None
print(json.dumps({"python": sys.version.split()[0], "packages": versions, "explorer": has}))
"""

BASICS = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "PYTHONPATH"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "JUPYTER_PATH", "JUPYTER_DATA_DIR", "SSL_CERT_FILE"),
)
"""Environment variables that every command gets: where things are. The declared ones come to these."""


class Surroundings(NamedTuple):
    """Surroundings of a task on this machine, looked up once for all of its runs."""

    program: str  # the path of the program, or of Explorer's own interpreter for a notebook
    files: dict[str, str]  # path, relative to the task's directory: SHA-256
    versions: dict[str, str]  # of Python and packages; empty for a program that is not Python
    variables: dict[str, str]  # SHA-256 of the values of declared variables


def surroundings_of(task: CommandTask, *, where: str) -> Surroundings:
    """Look up files, software and variables of a task. Raises `SpecError` that starts with `where`."""
    if not task.directory.is_dir():
        raise SpecError(f"{where}: task.directory: there is no directory {task.directory}")
    missing = [name for name in task.env if name not in os.environ]
    if missing:
        raise SpecError(f"{where}: task.env: the variable {missing[0]} is not set; expected a value, or another name")
    program = _program(task, where=where)
    code, modules = _code(task, where=where)
    files = dict(sorted(_digests(task, [*code, *task.files], where=where)))
    versions: dict[str, str] = {}
    if task.notebook is not None or PYTHON.fullmatch(Path(program).name):
        python, packages, has = _asked(program, tuple(sorted(modules)))
        versions = {"python": python, **packages}
        if "explorer" in modules and not has and not task.own:
            raise SpecError(
                f"{where}: task.command: the code imports explorer, which {program} does not have; write {{python}} for"
                " the Python of Explorer, install Explorer there, or copy explorer/track.py next to the code"
            )
    variables = {name: hashlib.sha256(os.environ[name].encode()).hexdigest() for name in task.env}
    return Surroundings(program=program, files=files, versions=versions, variables=variables)


def environment_of(task: CommandTask) -> dict[str, str]:
    """Return the environment variables that the command gets from this process."""
    names = [name for name in os.environ if name in BASICS or name.startswith(("LC_", "XDG_")) or name in task.env]
    return {name: os.environ[name] for name in names}


def command_record(
    recipe: CommandRecipe,
    around: Surroundings,
    *,
    sweep: str,
    baseline: str,
    tuning: str | None,
    ssr: float,
    seed: int,
    hardware: Hardware,
) -> RunRecord:
    """Return the record of a run on this hardware, before it has trained: its steps are not known yet, and 0.

    Raises `RecipeError` for a budget that leaves nothing of a whole number.
    """
    task = recipe.task
    recipe.scaled(ssr)
    common: dict[str, Any] = {
        "recipe": recipe.to_mapping(),
        "data": around.files,
        "hardware": dataclasses.asdict(hardware),
        "versions": around.versions,
    }
    if around.variables:
        common["environment"] = around.variables
    identity = {**common, "ssr": ssr, "seed": seed}
    return RunRecord(
        run_id=f"{task.model}-{task.dataset}-{recipe.name}-ssr{ssr:g}-s{seed}-{digest(identity)[:8]}",
        sweep=sweep,
        recipe=recipe.name,
        baseline=baseline,
        tuning=tuning,
        identity=identity,
        recipe_digest=digest(common),
        dataset=task.dataset,
        model=task.model,
        methods=recipe.changes,
        ssr=ssr,
        seed=seed,
        steps=0,
        batch_size=0,
        precision=UNKNOWN,
        hardware=hardware,
        quality=task.metrics[0].name,
        phases={},
        declared=tuple(metric for metric in task.metrics if metric.name not in METRICS),
    )


def recorded_recipe(run: Path, record: RunRecord) -> CommandRecipe:
    """Return the recipe of a recorded run, to execute it again where its code is. Raises `RunError` for damage.

    The command is that of the identity, to which the name of the run holds it.
    """
    if not record.run_id.endswith(digest(record.identity)[:8]):
        raise RunError(f"run {record.run_id}: damaged: its identity has the digest {digest(record.identity)[:8]}")
    path = run / rundir.ENVIRONMENT
    content = rundir.read_json(path)
    try:
        recipe, rest = record.identity["recipe"], content["task"]
        decides = record.metric(record.quality)
        if decides is None:
            raise ValueError(f"the metric {record.quality!r} is not declared")
        task = CommandTask(
            command=tuple(map(str, recipe["task"].get("command", ()))),
            notebook=recipe["task"].get("notebook"),
            metrics=(decides, *record.declared),
            files=tuple(map(str, rest["files"])),
            env=tuple(map(str, rest["env"])),
            dataset=record.dataset,
            model=record.model,
            timeout=rest["timeout"],
            directory=Path(content["directory"]),
        )
        values = {"values": dict(recipe["set"]), "scale": dict(recipe["scale"])}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"{path}: does not say how the run was started: {error}") from error
    return CommandRecipe(name=record.recipe, task=task, changes=record.methods, **values)


def check_unchanged(record: RunRecord, recipe: CommandRecipe, around: Surroundings) -> None:
    """Raise `RunError` unless code, data, variables and software are those that the run was planned for."""
    for key, planned, actual in _differing(record, recipe, around):
        named = ", ".join(_parts(planned, actual)[:3])
        changed = f"{key} has changed{f' ({named})' if named else ''}"
        raise RunError(f"run {record.run_id}: {changed} since it was planned: plan it again")


def lacking(record: RunRecord, recipe: CommandRecipe) -> str | None:
    """Return a sentence that says why this machine cannot run what was planned on another one; None: it can."""
    try:
        around = surroundings_of(recipe.task, where="planned with what this machine lacks")
    except SpecError as error:
        return str(error)
    for key, planned, actual in _differing(record, recipe, around):
        if key == "versions" and isinstance(planned, Mapping):
            named = _parts(planned, actual)[:3]
            wanted, has = (", ".join(f"{name} {of.get(name, 'none')}" for name in named) for of in (planned, actual))
            return f"planned for {wanted:.300}, and this machine has {has:.300}"
        named = ", ".join(_parts(planned, actual)[:3])
        return f"planned with other values of {key}{f' ({named})' if named else ''} than this machine has"
    return None


def _differing(record: RunRecord, recipe: CommandRecipe, around: Surroundings) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of the identity that are not as they were planned: name, planned and actual value."""
    here = {"recipe": recipe.to_mapping(), "data": around.files, "versions": around.versions}
    here |= {"environment": around.variables} if around.variables else {}
    for key, actual in here.items():
        if actual != (planned := record.identity.get(key)):
            yield key, planned, actual


def _parts(planned: Any, actual: Mapping[str, Any]) -> list[str]:
    """Return the names whose values differ."""
    if not isinstance(planned, Mapping):
        return []
    return [name for name in {**planned, **actual} if planned.get(name) != actual.get(name)]


# --- the program and its packages ---


def _program(task: CommandTask, *, where: str) -> str:
    """Return the path of the program of a command. Raises `SpecError`."""
    if task.notebook is not None or task.command[0] == "{python}":
        return sys.executable
    word = task.command[0]
    if os.sep in word:
        path = shutil.which(task.directory / word) if not Path(word).is_absolute() else shutil.which(word)
    else:
        path = shutil.which(word)
    if path is None:
        hint = "; {python} is the Python of Explorer" if PYTHON.fullmatch(Path(word).name) else ""
        raise SpecError(f"{where}: task.command: there is no program {word!r}{hint}")
    return os.path.realpath(path) if os.sep in word else path


@cache
def _asked(program: str, modules: tuple[str, ...]) -> tuple[str, dict[str, str], bool]:
    """Ask an interpreter for its version, those of the packages of modules, and whether it has Explorer."""
    try:
        done = subprocess.run(
            [program, "-c", _ASK, *modules], capture_output=True, text=True, timeout=PATIENCE, check=True
        )
        answer = json.loads(done.stdout)
        return answer["python"], answer["packages"], answer["explorer"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        raise SpecError(f"{program}: did not say which packages it has: {error}") from error


# --- files ---


def _code(task: CommandTask, *, where: str) -> tuple[list[str], set[str]]:
    """Return the files that the task names or imports from its folders, and the top-level modules that they import."""
    if task.notebook is not None:
        named = [task.notebook]
    else:
        named = [word for word in task.command if "{" not in word and _is_inside(task.directory, word)]
    files, modules, waiting = dict.fromkeys(named), set[str](), list(named)
    while waiting:
        path = task.directory / waiting.pop()
        for name in _imports(path, where=where):
            # A script finds modules in its own folder first.
            local = list(_modules(path.parent, name))
            if not local:
                modules.add(name)
            for file in local:
                relative = os.path.relpath(file, task.directory)
                if relative not in files:
                    files[relative] = None
                    waiting.append(relative)
    return list(files), modules


def _is_inside(directory: Path, word: str) -> bool:
    """Return whether a word names a file in the directory."""
    try:
        path = directory / word
        return path.is_file() and path.resolve().is_relative_to(directory.resolve())
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _modules(folder: Path, name: str) -> Iterator[Path]:
    """Yield the files of a module of this name in a folder."""
    if (folder / f"{name}.py").is_file():
        yield folder / f"{name}.py"
    elif (folder / name / "__init__.py").is_file():
        yield from sorted((folder / name).rglob("*.py"))


def _imports(path: Path, *, where: str) -> set[str]:
    """Return the top-level names that Python code imports; none for other files, and for code that does not parse."""
    try:
        if path.suffix == ".ipynb":
            # Lines for IPython are no Python, and one of them would hide every import.
            lines = _source(path, where=where).split("\n")
            text = "\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))
        elif path.suffix == ".py" and path.stat().st_size <= MAX_SOURCE:
            text = path.read_text(errors="replace")
        else:
            return set()
        tree = ast.parse(text)
    except OSError as error:
        raise SpecError(f"{where}: cannot read {path}: {error.strerror or error}") from error
    except (SyntaxError, ValueError, RecursionError):
        return set()  # the program itself will say so
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _source(path: Path, *, where: str, content: bytes | None = None) -> str:
    """Return the code of a notebook without its outputs, which change with every look at it."""
    try:
        content = path.read_bytes() if content is None else content
        notebook = nbformat.reads(content.decode(), as_version=4)
    except (OSError, ValueError, nbformat.ValidationError) as error:
        raise SpecError(f"{where}: task.notebook: cannot read {path}: {error}") from error
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def _digests(task: CommandTask, names: Iterable[str], *, where: str) -> Iterator[tuple[str, str]]:
    """Yield the digest of every file of these names, and of every file below those that are directories."""
    root, count = task.directory.resolve(), 0
    for name in dict.fromkeys(names):
        path = task.directory / name
        if not path.exists():
            raise SpecError(f"{where}: task.files: there is no file or directory {path}")
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_dir() or "__pycache__" in file.parts:
                continue
            count += 1
            if count > MAX_FILES:
                raise SpecError(f"{where}: task.files: more than {MAX_FILES} files; name a file that lists them")
            if not file.resolve().is_relative_to(root):
                raise SpecError(f"{where}: task.files: {file} leads out of {task.directory}; expected a copy of it")
            yield os.path.relpath(file, task.directory), _digest(file, where=where)


def digest_of(path: Path, content: bytes, *, where: str) -> str:
    """Return the digest by which an identity has a file with this content. Raises `SpecError` for a notebook that is
    none."""
    text = _source(path, where=where, content=content).encode() if path.suffix == ".ipynb" else content
    return hashlib.sha256(text).hexdigest()


def _digest(file: Path, *, where: str) -> str:
    if file.suffix == ".ipynb":
        return hashlib.sha256(_source(file, where=where).encode()).hexdigest()
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise SpecError(f"{where}: cannot read {file}: {error.strerror or error}") from error


def check_notebook_task(recipes: Iterable[CommandRecipe], *, where: str, seeds: int) -> None:
    """Check that the notebook of these recipes has the parameters that they set. Raises `SpecError`."""
    for recipe in recipes:
        if recipe.task.notebook is None:
            return
        path = recipe.task.directory / recipe.task.notebook
        _source(path, where=where)  # whether it can be read, with a better message than papermill's
        try:
            known = papermill.inspect_notebook(str(path))
        except ValueError as error:  # it names no kernel
            raise SpecError(f"{where}: task.notebook: {path}: {error}") from error
        check_parameters(f"{where}: {path}", recipe, known, several=seeds > 1)

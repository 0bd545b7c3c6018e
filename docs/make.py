"""The reference pages, made from the code: `python docs/make.py` writes them, and a test compares them.

commands.md is every verb with its options, methods.md the tables of training methods and of schedules, functional.md
the methods as functions, python.md what `import explorer` offers.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, get_args

import typer
from typer.cli import get_docs_for_click

import explorer
from explorer import api, functional
from explorer.cli.app import app
from explorer.cli.verbs import GROUPS, VERBS
from explorer.engine.optimizer import SCHEDULES
from explorer.recipes import catalogue
from explorer.recipes.settings import METHODS as KNOWN

HERE = Path(__file__).parent
METHODS = """# Training methods

`explorer methods NAME` shows a method's formula, ranges and units, requirements, order and conflicts, behaviour under a
policy, cost, and its [function for a loop of your own](functional.md). List methods in any order; all resume
bit-identically after any step, and a recipe that cannot work is refused before training. *Step* is the time of a step
with the method over that of a plain one, on resnet20 and then gpt-tiny, where it applies ([how it is
measured](../benchmarks/method_cost.md)). Methods that act on signed documents need `governance:`.

"""

SCHEDULED = """
# Learning-rate schedules

`schedule: {wsd: {decay_share: 0.3}}` under `train:`; a bare name takes the defaults, and without the key it is
`cosine`. Each also has `warmup` (0), the share of the full schedule's steps in which the rate rises in a straight line,
and `scale_warmup` (false), whether a smaller budget shortens it too. Other shares are of the steps after warm-up.

"""


def pages() -> dict[str, str]:
    """Return the content of each page by its file name."""
    return {
        "commands.md": commands(),
        "methods.md": METHODS + catalogue.markdown() + SCHEDULED + schedules(),
        "functional.md": functions(),
        "python.md": python(),
    }


def commands() -> str:
    """Return the reference of the command line."""
    root = typer.main.get_command(app)
    context = typer.Context(root, info_name="explorer")  # pyright: ignore[reportArgumentType]: a click command
    text = get_docs_for_click(obj=root, ctx=context, name="explorer", title="Commands")  # pyright: ignore[reportArgumentType]
    # Its lists of verbs cut the sentences, which are in the sections below them; the first list is made again.
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* `.*\n)+\n*", "", text)
    groups = {name: group.help for name, group in GROUPS.items()}
    single = {name: help for name, (_, help) in VERBS.items() if " " not in name}
    listed = "".join(f"* [`{name}`](#explorer-{name}): {help}\n" for name, help in (single | groups).items())
    head, rest = text.split("\n## ", 1)
    return f"{head.rstrip()}\n\n{listed}\n## {rest}".rstrip() + "\n"


def python() -> str:
    """Return the reference of the package: results in a notebook first, then what trains and governs."""
    parts = ["# Python", _prose(api), *_section("explorer.load", api.load)]
    for kind in (api.Runs, api.Comparison, api.Answered, api.Chart):
        parts += _section(kind.__name__, kind)
    units = [f"| `{column}` | {unit} |" for column, unit in api.UNITS.items()]
    parts += ["## Units of the columns of `Runs.frame`", "\n".join(["| column | unit |", "|---|---|", *units])]
    for name in dir(explorer):
        # Modules have pages of their own.
        if name not in ("load", "__version__") and not inspect.ismodule(getattr(explorer, name)):
            parts += _section(f"explorer.{name}", getattr(explorer, name))
    return "\n\n".join(parts) + "\n"


def schedules() -> str:
    """Return the table of learning-rate schedules."""
    rows = ["| schedule | what it does | parameters (default) |", "|---|---|---|"]
    for name, kind in sorted(SCHEDULES.items()):
        about = re.sub(r"\s+", " ", inspect.getdoc(kind) or "")
        own = [field for field in fields(kind) if field.name not in ("warmup", "scale_warmup")]
        given = ", ".join(f"`{field.name}` ({field.default})" for field in own)
        rows.append(f"| `{name}` | {about} | {given or '-'} |")
    return "\n".join(rows) + "\n"


def functions() -> str:
    """Return the reference of the methods as functions: each with its loop, then those that have none."""
    parts = ["# Methods in your own loop", _prose(functional)]
    described = [catalogue.describe(name) for name in sorted(KNOWN)]
    rows = [f"| [`{m['name']}`](#{m['name']}) | {m['changes']} |" for m in described if "call" in m["functional"]]
    parts.append("\n".join(["| function | changes |", "|---|---|", *rows]))
    for method in described:
        if (name := method["name"]) in functional.FORMS:
            form = getattr(functional, name)
            about, _, loop = (inspect.getdoc(form) or "").partition("\nIn a loop:\n\n")
            parts += [f"## `{name}`", method["summary"], _signature(f"functional.{name}", form)]
            parts += [_markdown(about.strip()), f"```python\n{_code(loop)}\n```"]
    rows = [f"| `{m['name']}` | {m['functional']['absent']} |" for m in described if "absent" in m["functional"]]
    parts += ["## Methods without a function", "\n".join(["| method | why |", "|---|---|", *rows])]
    return "\n\n".join(parts) + "\n"


def _section(name: str, thing: Any) -> Iterator[str]:
    """Yield the section of a function, or of a class with its public methods."""
    yield f"## `{name}`"
    if not inspect.isclass(thing):
        yield _signature(name, thing)
        yield _prose(thing)
        return
    if name.startswith("explorer.") and is_dataclass(thing):  # the others are made by what is shown here
        yield _signature(name, thing, gives=name.removeprefix("explorer."))
    yield _prose(thing)
    for key, member in vars(thing).items():
        if key.startswith("_"):
            continue
        if inspect.isfunction(member):
            yield f"### `{name}.{key}`"
            yield _signature(f"{name}.{key}", member)
        elif isinstance(member, property | cached_property):
            yield f"### `{name}.{key}`"
        else:
            continue
        yield _prose(member)


def _signature(name: str, function: Any, gives: str = "") -> str:
    signature = inspect.signature(function)
    parameters = [parameter for name, parameter in signature.parameters.items() if name != "self"]
    given = [_written(str(parameter)) for parameter in parameters]
    kinds = [parameter.kind for parameter in parameters]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        given.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = signature.return_annotation
    generic = isinstance(returned, str) or get_args(returned)
    gives = gives or _written(str(returned) if generic else getattr(returned, "__name__", str(returned)))
    line = f"{name}({', '.join(given)}) -> {gives}"
    if len(line) > 100:
        line = f"{name}(\n    " + ",\n    ".join(given) + f",\n) -> {gives}"
    return f"```python\n{line}\n```"


def _written(parameter: str) -> str:
    """Return a parameter without the modules that its type comes from, and without what checks it."""
    plain = re.sub(r"(?:typing\.)?Annotated\[(\w+|(?:typing\.)?Literal\[[^\]]*\]), .*\](?= = |$)", r"\1", parameter)
    plain = re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z~])|~", "", plain)
    return re.sub(r"<function \S+ at 0x\w+>", "...", plain)


def _prose(thing: Any) -> str:
    """Return a docstring as Markdown: arguments as a list, code as code."""
    return _markdown(inspect.getdoc(thing) or "")


def _markdown(text: str) -> str:
    text, arguments, rest = text.partition("\nArgs:\n")
    text = re.sub(r"(?:^>>> .*\n.+\n?)+", lambda example: indent(example[0], " " * 4), text, flags=re.MULTILINE)
    text = re.sub(r"(?:\n {4}.*|\n(?=\n {4}))+", lambda code: f"\n\n```python\n{_code(code[0])}\n```", text)
    if not arguments:
        return text
    head, end, tail = rest.partition("\n\n")
    joined = re.sub(r"\n {4,}(?! )(?!\w[\w, ]*: )", " ", head)
    listed = re.sub(r"^ {4}(\w[\w, ]*): ", r"- `\1`: ", joined, flags=re.MULTILINE)
    return f"{text}\n{listed}{end}{tail}"


def _code(text: str) -> str:
    """Return code as the formatter has it, which reads this page too: two spaces in front of a comment."""
    return re.sub(r" {2,}# ", "  # ", dedent(text).strip())


def main() -> None:
    for name, content in pages().items():
        (HERE / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()

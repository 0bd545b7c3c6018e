"""The reference pages, made from the code: `python docs/make.py` writes them, and a test compares them.

commands.md is every verb with its options, methods.md the table of training methods.
"""

import re
from pathlib import Path

import typer
from typer.cli import get_docs_for_click

from explorer.cli.app import app
from explorer.cli.verbs import GROUPS, VERBS
from explorer.recipes import catalogue

HERE = Path(__file__).parent
METHODS = """# Training methods

`explorer methods NAME` shows a method's formula, ranges and units, requirements, order and conflicts, behaviour under a
policy, and cost. List methods in any order; all resume bit-identically after any step, and a recipe that cannot work is
refused before training. *Step* is the time of a step with the method over that of a plain one, on resnet20 and then
gpt-tiny, where it applies ([how it is measured](../benchmarks/method_cost.md)). Methods that act on signed documents
need `governance:`.

"""


def pages() -> dict[str, str]:
    """Return the content of each page by its file name."""
    return {"commands.md": commands(), "methods.md": METHODS + catalogue.markdown()}


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


def main() -> None:
    for name, content in pages().items():
        (HERE / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()

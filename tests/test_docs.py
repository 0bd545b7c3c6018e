"""README, reference pages and guides agree with the code, and what they show works."""

import json
import re
import runpy
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import typer
from torch import nn

import explorer
from explorer.cli.app import app
from explorer.data.digits import Digits
from explorer.sweep.spec import read_spec
from explorer.yaml_document import document_of, parse_document

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "GLOSSARY.md",
    "docs/tradeoffs.md",
    "docs/machines.md",
    "docs/ranks.md",
    "docs/anything.md",
    "docs/numbers.md",
    "docs/methods.md",
    "docs/functional.md",
    "docs/architecture.md",
)
GUIDES = {  # in the order of their reading: words that their commands print
    "own_data": "time to target",
    "one_hour": "searched: chosen runs, no bands",
    "own_model": "Steps to target",
    "own_package": "blocks 0.1.0",
    "own_loop_methods": "from explorer import functional",
    "any_command": "18 runs done, 18 of them now",
    "governance": "ledger: verified",
    "deletion": "tensors bit for bit the same",
    "audit": "counted again from the ledgers: the same",
    "shards": "damaged: ",
    "huggingface": "bit for bit as recorded",
    "accelerate": "bit for bit as recorded",
    "many_machines": "the same bits, four ways",
}
ALONE = {  # `python docs/guides.py` runs these when they are named: by test_own_loops.py and `.ci/peers`
    "transformers": "as on record: True",
    "lightning": "bit for bit as recorded",
}
EXTRAS = {  # guides that need other libraries, and no other guide
    "huggingface": ("hub", "transformers", "accelerate"),
    "accelerate": ("hub", "accelerate"),
    "lightning": ("lightning", "lightning"),
    "many_machines": ("cluster", "distributed"),
}
SMALLER = {  # sizes of a guide, and what the tests take for them: all its commands run, on less data and fewer seeds
    "own_data": {
        r"mixing: [mixup]\nbudgets:": r"mixing: [mixup]\nbudgets: [0.5, 1.0]  #",
        "explorer sweep run diabetes.yaml": "sed -i 's/^budgets:/budgets: [0.5, 1.0]  #/' diabetes.yaml\n"
        "explorer sweep run diabetes.yaml",
    },
    "one_hour": {
        "bytes_per_class: 20000": "bytes_per_class: 4000",
        "runs: 8": "runs: 4",
        ", gated_linear_units, stochastic_depth]": "]",
        "spend: 90s": "spend: 15s",
        "--seeds 4": "--seeds 2",
    },
    "huggingface": {"seeds: [0, 1]": "seeds: [0]"},
}
CHAINS = (  # guides that continue each other, in one directory
    *(
        (name,)
        for name in ("own_data", "one_hour", "own_model", "own_package", "own_loop_methods", "any_command", "shards")
    ),
    ("governance", "deletion", "audit"),
)
REFUSED = {  # commands that are wrong, and the word that is
    "explorer reslts digits": "reslts",
    "explorer sweep plam mine.yaml": "plam",
    "explorer report source --fromat pdf": "--fromat",
}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def unknown_word(line: str) -> str | None:
    """Return the first verb or option of a command line that `explorer` does not have."""
    words = shlex.split(line, comments=True)
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="explorer")  # pyright: ignore[reportArgumentType]: a click command
    rest = words[1:]
    while rest and hasattr(command, "get_command"):
        deeper = command.get_command(context, rest[0])
        if deeper is None:
            if getattr(command, "default", None) is None:
                return rest[0]
            deeper = command.get_command(context, command.default)  # `explorer profile RECIPE`
        else:
            rest = rest[1:]
        command = deeper
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    wrong = [word for word in rest if word.startswith("-") and word.split("=")[0] not in {*options, "--help", "--"}]
    return wrong[0] if wrong else None


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize("name", ["commands.md", "methods.md", "functional.md", "python.md"])
def test_reference_pages_are_the_generated_ones(name: str) -> None:
    pages = runpy.run_path(str(ROOT / "docs" / "make.py"))["pages"]()
    assert (ROOT / "docs" / name).read_text() == pages[name], "run `python docs/make.py`"


@pytest.mark.parametrize("name", PAGES)
def test_every_picture_and_page_that_a_page_names_is_there(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]*)#?[^)]*\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", PAGES)
def test_every_command_that_a_page_shows_is_one(name: str) -> None:
    lines = [line for block in blocks((ROOT / name).read_text(), "sh") for line in block.splitlines()]
    for line in lines:
        if line.startswith("explorer "):
            assert unknown_word(line) is None, line


@pytest.mark.parametrize("line", REFUSED)
def test_a_command_that_is_none_is_noticed(line: str) -> None:
    assert unknown_word(line) == REFUSED[line]


def test_the_specifications_shown_are_valid() -> None:
    own, tune, search, command = blocks((ROOT / "docs" / "tradeoffs.md").read_text(), "yaml")
    spec = read_spec(parse_document(own, where="tradeoffs.md"))
    assert spec.name == "mine"
    assert len(spec.recipes) > 3
    untuned = "\n".join(line for line in own.splitlines() if not line.startswith("tuning:"))
    spec = read_spec(parse_document(f"{untuned}\n{tune}", where="tradeoffs.md"))
    assert spec.tune is not None and [axis.scale for axis in spec.tune.space] == ["log", "log"]
    written = parse_document(own, where="tradeoffs.md").value
    same = {key: written[key] for key in ("name", "task", "train")}
    spec = read_spec(document_of(same | parse_document(search, where="tradeoffs.md").value))
    assert spec.search is not None and spec.search.spend == 3 * 3600
    spec = read_spec(parse_document(command, where="tradeoffs.md"))
    assert spec.command is not None and [recipe.name for recipe in spec.trained] == ["baseline", "fast"]


def test_the_model_of_ones_own_trains() -> None:
    block = next(block for block in blocks(README, "python") if "explorer.train(" in block)
    data = Digits().load(None)
    images, held_out = (side.inputs[:].float() / 255 for side in (data.train, data.test))
    names = {"images": images, "labels": data.train.labels, "held_out": held_out, "truth": data.test.labels}
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    source = block.replace("explorer.train(", "result = explorer.train(")
    made = {**names, "model": model, "F": torch.nn.functional, "explorer": explorer}
    exec(compile(source, "README.md", "exec"), made)
    assert made["result"].metrics["accuracy"] > 0.8


def printed(notebook: nbformat.NotebookNode) -> str:
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)


@pytest.mark.parametrize("name", GUIDES | ALONE)
def test_a_guide_is_short_and_shows_what_its_commands_print(name: str) -> None:
    notebook = nbformat.read(ROOT / "notebooks" / "guide" / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) < 25
    assert (GUIDES | ALONE)[name] in printed(notebook), "run `python docs/guides.py`"
    stored = (ROOT / "notebooks" / "guide" / f"{name}.ipynb").read_text()
    for place in (tempfile.gettempdir(), str(Path.home()), str(ROOT)):
        assert f"{place}/" not in stored, "a path of the machine that it was run on"


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks" / "guide").glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_output_of_a_guide_steers_a_terminal(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if "\\u001b" in json.dumps(output)], "run `python docs/guides.py`"


def test_the_guides_are_made_in_the_order_of_their_reading() -> None:
    assert runpy.run_path(str(ROOT / "docs" / "guides.py"))["ORDER"] == tuple(GUIDES)
    assert {name for chain in CHAINS for name in chain} | EXTRAS.keys() == (GUIDES | EXTRAS).keys()


@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain[0])
def test_the_guides_work(chain: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    guides = runpy.run_path(str(ROOT / "docs" / "guides.py"))
    for name in chain:
        assert GUIDES[name] in printed(guides["executed"](name, tmp_path, SMALLER.get(name))), name


@pytest.mark.peers
@pytest.mark.slow
@pytest.mark.notebook
@pytest.mark.parametrize("name", EXTRAS)
def test_the_guides_that_need_other_libraries_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra, *libraries = EXTRAS[name]
    for library in libraries:
        pytest.importorskip(library, reason=f"needs {library}: pip install -e '.[{extra}]'")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    guides = runpy.run_path(str(ROOT / "docs" / "guides.py"))
    assert (GUIDES | ALONE)[name] in printed(guides["executed"](name, tmp_path, SMALLER.get(name)))

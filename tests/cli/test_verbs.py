"""The table of verbs agrees with the verbs, and calling one loads no other."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from explorer.cli import verbs
from explorer.cli.verbs import GROUPS, PARTS, VERBS, part

FOLDER = Path(verbs.__file__).parent


def first_sentence(text: str) -> str:
    words = text.split("\n\n")[0].split()
    end = next((at for at, word in enumerate(words) if word.endswith(".")), len(words))
    return " ".join(words[: end + 1])


@pytest.mark.parametrize("words", VERBS)
def test_the_table_says_what_the_verb_says(words: str) -> None:
    target, line = VERBS[words]
    module, _, name = target.partition(":")
    function = getattr(__import__(f"explorer.cli.{module}", fromlist=[name]), name)
    assert line == first_sentence(inspect.getdoc(function) or "")


def test_every_group_has_verbs_and_its_default_is_one() -> None:
    assert {words.partition(" ")[0] for words in VERBS if " " in words} == set(GROUPS)
    for name, group in GROUPS.items():
        assert group.default is None or f"{name} {group.default}" in VERBS


@pytest.mark.parametrize("name", PARTS)
def test_every_part_is_there(name: str) -> None:
    if name == "sweep run --on":
        pytest.importorskip("distributed", reason="Dask is not installed: pip install 'explorer[cluster]'")
    assert callable(part(name))


def test_every_module_is_in_the_table_or_is_imported() -> None:
    used = {target.partition(":")[0] for target, _ in VERBS.values()}
    used |= {target.partition(":")[0].rpartition(".")[2] for target in PARTS.values()}
    sources = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
    imported = {
        stem
        for stem in sources
        if any(f"explorer.cli.{stem} import" in text or f"cli import {stem}" in text for text in sources.values())
    }
    assert set(sources) - used - imported == {"__init__", "app"}


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (("--help",), ("explorer.cli.run", "explorer.store", "explorer.provenance.trust", "pydantic", "duckdb")),
        (("delete", "--help"), ("explorer.cli.governed.delete", "torch", "pydantic")),
        (("sweep", "status", "--help"), ("torch", "pandas", "duckdb")),
        (("results", "--help"), ("torch", "pandas", "altair")),
        (("delete", "plan", "--help"), ("torch", "pandas", "altair")),
        (("policy", "check", "--help"), ("torch", "pandas", "altair")),
        (("prices", "list", "--help"), ("torch", "pandas", "altair")),
        (("tags", "verify", "--help"), ("torch", "pandas", "altair")),
        (("ledger", "verify", "--help"), ("torch", "pandas", "altair")),
        (("open", "--help"), ("torch", "pandas", "altair")),
    ],
    ids=lambda value: "-".join(value[:2]),
)
def test_a_verb_loads_what_it_needs_and_no_more(arguments: tuple[str, ...], absent: tuple[str, ...]) -> None:
    code = (
        "import sys\nfrom explorer.cli.app import app\ntry:\n    app(sys.argv[1:])\n"
        "finally:\n    print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert not {*done.stderr.split()} & {*absent}

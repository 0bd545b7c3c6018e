"""Hostile input to every parser: no exception but the project's own, in bounded time and memory."""

import ast
import resource
import time
from pathlib import Path

import pytest

import explorer
from explorer.errors import ExplorerError
from tests.fuzz.mutate import inputs
from tests.fuzz.parsers import NOT_PARSERS, Parser, parsers

PACKAGE = Path(explorer.__file__).parent
PARTS = ("note.py", "machine_class.py", "yaml_document.py", "schema.py", "costing", "ledger", "provenance", "entries")
SECONDS = 5.0  # for one input of a few kilobytes; far more than any takes
KILOBYTES = 300_000  # that all inputs together may add to the process
WRONG = "a parser let another error out, or took too long"


def survive(parser: Parser, *, count: int, seed: int) -> int:
    """Feed it; return how many inputs it read without complaint. Fails on anything but the project's own errors."""
    read = 0
    for content in inputs(parser.seeds, count=count, seed=seed):
        began = time.monotonic()
        try:
            parser.read(content)
            read += 1
        except ExplorerError as error:
            assert str(error), f"an error without words for {content!r}"
        except Exception as error:
            raise AssertionError(f"{WRONG}: {error!r} for {content!r}") from error
        assert time.monotonic() - began < SECONDS, f"{WRONG}: {content!r}"
    return read


def fuzz(name: str, tmp_path: Path, *, count: int) -> None:
    parser = parsers(tmp_path / "file")[name]
    for content in parser.seeds:
        survive(Parser(read=parser.read, seeds=(content,)), count=1, seed=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    survive(parser, count=count, seed=20_261_121)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < KILOBYTES


NAMES = sorted(parsers(Path("unused")))


@pytest.mark.parametrize("name", NAMES)
def test_hostile_input(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, count=300)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_thousand_hostile_inputs(name: str, tmp_path: Path) -> None:
    fuzz(name, tmp_path, count=100_000 // len(NAMES) + 1)


@pytest.mark.parametrize(
    "fault", [ValueError("x"), RecursionError(), UnicodeDecodeError("utf-8", b"", 0, 1, "x"), KeyError(1)]
)
def test_a_parser_that_lets_another_error_out_is_found(fault: Exception) -> None:
    """The control: the same harness over a parser with a defect."""

    def careless(content: bytes) -> object:
        if content[:1] != b"a":
            raise fault
        return content

    with pytest.raises(AssertionError, match=WRONG):
        survive(Parser(read=careless, seeds=(b"abcdef",)), count=200, seed=1)


def test_every_seed_is_good_or_refused_in_words(tmp_path: Path) -> None:
    good = 0
    for name, parser in parsers(tmp_path / "file").items():
        for content in parser.seeds:
            try:
                parser.read(content)
                good += 1
            except ExplorerError as error:
                assert name in ("key file", "tag table", "statement"), f"{name}: {error}"
    assert good > len(NAMES)


def test_no_parser_is_left_out() -> None:
    covered = {function for parser in parsers(Path("unused")).values() for function in parser.reads}
    assert found_parsers() - covered == NOT_PARSERS - covered


def found_parsers() -> set[str]:
    """The functions that are named like parsers, by module."""
    files = [
        path for part in PARTS for path in ([PACKAGE / part] if part.endswith(".py") else (PACKAGE / part).glob("*.py"))
    ]
    found: set[str] = set()
    for path in files:
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.split("_")[0] in (
                "parse",
                "read",
                "open",
                "decode",
                "load",
            ):
                found.add(f"{module}.{node.name}")
    return found

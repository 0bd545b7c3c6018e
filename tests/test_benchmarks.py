"""The benchmarks as scripts: arguments are checked before any work, and a missed target says so in words."""

import doctest
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text())
ALONE = {"fuzz_guided.py"}  # needs the extra `bench` before it can read its arguments
JUDGED = ("engine_overhead", "governed_step", "ledger", "startup", "tags", "trace", "usage", "warm_overhead")


@pytest.fixture(scope="module")
def options() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import options  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.remove(str(BENCHMARKS))
    return options


@pytest.mark.parametrize(
    ("found", "target", "words"),
    [
        (1.373, "at most 1.20", "at most 1.20: misses its target by 0.17"),
        (1.033, "at most 1.08", "at most 1.08: meets its target by 0.05"),
        (1.0, "below 1", "below 1: misses its target by 0.00"),
        (199_000.0, "at least 200,000", "at least 200,000: misses its target by 1,000.00"),
        (5.0, "", ""),
    ],
)
def test_a_missed_target_says_so(options: ModuleType, found: float, target: str, words: str) -> None:
    assert options.verdict(found, target) == words


def test_a_target_in_other_words_is_refused(options: ModuleType) -> None:
    with pytest.raises(ValueError, match="expected at most, at least, below or above a number"):
        options.verdict(1.0, "< 1")
    assert doctest.testmod(options).failed == 0


@pytest.mark.parametrize("name", JUDGED)
def test_pages_judge_their_targets(name: str) -> None:
    """A target stands in one cell with its verdict, or the row has a cell for that."""
    page = (BENCHMARKS / f"{name}.md").read_text()
    target = re.compile(r"\s*([<>≥≤]|at most|at least|below|above) ?[\d.,]+\s*")
    verdict = re.compile(r"(meets|misses) its target by|\| (met|missed by [\d.]+) \|")
    assert verdict.search(page)
    for line in page.splitlines():
        bare = [cell for cell in line.split("|") if target.fullmatch(cell)]
        assert not bare or verdict.search(line), line


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_read_arguments_through_a_parser(script: Path) -> None:
    """`sys.argv[1]` fails with an IndexError or a ValueError, and a bad number after all of the work."""
    source = script.read_text()
    assert not re.search(r"sys\.argv\[[1-9]", source)
    assert "parse_args()" in source
    assert not re.search(r"type=int\b", source) or script.name in ALONE


@pytest.mark.slow
@pytest.mark.parametrize("script", [path for path in SCRIPTS if path.name not in ALONE], ids=lambda path: path.name)
def test_asking_for_help_starts_no_work(script: Path, tmp_path: Path) -> None:
    pages = {path: path.read_bytes() for path in BENCHMARKS.glob("*.md")}
    told = run(script, "--help", cwd=tmp_path)
    if told.returncode and "No module named" in told.stderr:
        pytest.skip(told.stderr.splitlines()[-1])
    assert told.returncode == 0 and "usage:" in told.stdout, told.stderr
    refused = run(script, "--no-such-option", cwd=tmp_path)
    assert (refused.returncode == 2 and "unrecognized arguments" in refused.stderr) or "required" in refused.stderr
    assert pages == {path: path.read_bytes() for path in BENCHMARKS.glob("*.md")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("split_experiment", ("1",), "found '1'; expected a whole number from 2"),
        ("split_experiment", ("two",), "found 'two'; expected a whole number from 2"),
        ("governed_step", ("--rounds", "1"), "found '1'; expected a whole number from 2"),
        ("warm_overhead", ("0",), "found '0'; expected a whole number from 2"),
        ("coverage", ("-1",), "expected"),
        ("kill", ("nowhere",), "found 'nowhere'; expected a directory of runs"),
        ("model_sizes", ("gpt-tinny",), "found 'gpt-tinny'; expected some of"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(name: str, arguments: tuple[str, ...], words: str) -> None:
    done = run(BENCHMARKS / f"{name}.py", *arguments, cwd=BENCHMARKS.parent)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


def run(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, script, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300)

"""The benchmarks as scripts: arguments are checked before any work, and a missed target says so in words."""

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = sorted(path for path in BENCHMARKS.glob("*.py") if "__main__" in path.read_text())
ALONE = {"fuzz_guided.py"}  # needs the extra `bench` before it can read its arguments
JUDGED = (
    "engine_overhead",
    "governed_step",
    "ledger",
    "rehearsal",
    "startup",
    "tags",
    "trace",
    "usage",
    "warm_overhead",
)


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
def test_asking_for_help_starts_no_work(tmp_path: Path) -> None:
    pages = {path: path.read_bytes() for path in BENCHMARKS.glob("*.md")}
    scripts = [path for path in SCRIPTS if path.name not in ALONE]
    words = ("--help", "--no-such-option")
    ends = executed([(script, word) for script in scripts for word in words], cwd=tmp_path)
    read = 0
    for script, (status, output, errors), refused in zip(scripts, ends[::2], ends[1::2], strict=True):
        if status and "No module named" in errors:
            continue  # a package of the extra `bench`
        assert status == 0 and "usage:" in output, f"{script.name}: {errors}"
        assert (refused[0] == 2 and "unrecognized arguments" in refused[2]) or "required" in refused[2], script.name
        read += 1
    assert read > 0.8 * len(scripts)
    assert pages == {path: path.read_bytes() for path in BENCHMARKS.glob("*.md")}
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_what_cannot_be_measured_is_refused_at_once() -> None:
    refused = {
        ("split_experiment", "1"): "found '1'; expected a whole number from 2",
        ("split_experiment", "two"): "found 'two'; expected a whole number from 2",
        ("governed_step", "--rounds", "1"): "found '1'; expected a whole number from 2",
        ("warm_overhead", "0"): "found '0'; expected a whole number from 2",
        ("coverage", "-1"): "expected",
        ("kill", "nowhere"): "found 'nowhere'; expected a directory of runs",
        ("text_ablation", "--data", ".", "--seeds", "1"): "found '1'; expected a whole number from 2",
        ("model_sizes", "gpt-tinny"): "found 'gpt-tinny'; expected some of",
    }
    ends = executed([(BENCHMARKS / f"{name}.py", *arguments) for name, *arguments in refused], cwd=BENCHMARKS.parent)
    for call, (status, _, errors) in zip(refused, ends, strict=True):
        assert status == 2 and refused[call] in errors and "Traceback" not in errors, (call, errors)


def executed(calls: list[tuple[str | Path, ...]], *, cwd: Path) -> list[tuple[int, str, str]]:
    """Return exit status, output and errors of scripts with their arguments."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.scripts_for_tests"],
        input=json.dumps([[str(part) for part in call] for call in calls]),
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(BENCHMARKS.parent)},
        capture_output=True,
        text=True,
        timeout=1200,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_script_for_a_gpu_works_in_its_small_form() -> None:
    """On a CPU, whose digests are the same too; its figures mean nothing."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), "--small"],
        capture_output=True,
        text=True,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| the same |") == 3 and "other bits" not in done.stdout
    for title in ("## Digests", "## Steps", "## Methods", "## Parts of a step", "## Ranks"):
        assert title in done.stdout
    assert not (BENCHMARKS / "gpu.md").exists()  # until a GPU has been measured

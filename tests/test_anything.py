"""The page of models and scripts of others: figures are counted, named tests exist, and the diff does what it says."""

import ast
import difflib
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.governance import desk
from tests.training import own_deletions as own

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "anything.md"
ROWS = [line for line in PAGE.read_text().split("\n## ")[0].splitlines() if line.startswith("| ")][1:]
DIFF, *TRAINERS = (text.splitlines() for text in re.findall(r"```diff\n(.*?)```", PAGE.read_text(), re.S))
SCRIPTS = ROOT / "notebooks" / "guide"
MOST = 10  # lines that are added to a loop


def test_there_are_ten_rows_and_all_that_they_name_is_there() -> None:
    assert len(ROWS) >= 10
    for target in re.findall(r"\]\(([^)]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target


@pytest.mark.parametrize("row", ROWS)
def test_the_lines_of_a_row_are_counted(row: str) -> None:
    added = row.split("|")[2].strip()
    linked = re.fullmatch(r"\[(\d+) lines\]\((.+)\)", added)
    if linked is None:
        assert added == f"{sum(line.startswith('+') for line in DIFF)} lines"
        return
    script = (PAGE.parent / linked[2]).resolve()
    plain = script.with_name("plain.py")
    if plain.exists():
        pair = (plain.read_text().splitlines(), script.read_text().splitlines())
        lines = [line[2:] for line in difflib.ndiff(*pair) if line.startswith("+ ")]
    else:
        lines = [line for line in script.read_text().splitlines() if re.search(r"\btrack\b", line)]
    assert sum(bool(line.strip()) for line in lines) == int(linked[1]), lines


def test_the_tests_of_capabilities_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    code = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 8 and not [name for name in named if f"def {name}(" not in code]


def test_at_most_ten_lines_are_added() -> None:
    counts = [int(number) for row in ROWS for number in re.findall(r"\b(\d+) lines", row)]
    assert len(counts) == len(ROWS) and max(counts) <= MOST


@pytest.mark.parametrize("shown", TRAINERS, ids=lambda shown: shown[1])
def test_the_diff_of_a_trainer_is_that_of_its_scripts(shown: list[str]) -> None:
    names = [line.split()[1] for line in shown[:2]]
    before, after = ((SCRIPTS / name).read_text().splitlines() for name in names)
    made = difflib.unified_diff(before, after, *names, lineterm="", n=1)
    assert shown == [line.rstrip() for line in made], "docs/anything.md: write the diff of the scripts again"


def test_a_diff_is_shown_for_each_library_with_a_trainer() -> None:
    assert [shown[1] for shown in TRAINERS] == ["+++ huggingface/governed.py", "+++ lightning/governed.py"]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 12))

    def forward(self, x: Any) -> Any:
        return self.net(x.float() / 255)


def test_the_diff_makes_a_governed_loop_of_a_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides run; the governed one leaves a ledger, and with one class a step the same bits."""
    own.at_desk(monkeypatch)
    monkeypatch.chdir(tmp_path)
    desk.make(tmp_path / "governed", ["open"] * len(desk.SPLIT))
    trained = []
    for side in "-+":
        code = "\n".join(line[1:] for line in DIFF if line[:1] in (" ", side, ""))
        ast.parse(code)
        names: dict[str, Any] = {"data": (desk.SPLIT.inputs, desk.SPLIT.labels), "Model": Model}
        exec(code, names)
        trained.append(names["model"].state_dict())
    assert (tmp_path / "runs" / "own" / "mine" / "ledger" / "checkpoint").exists()
    assert all(torch.allclose(tensor, trained[1][name], atol=1e-6) for name, tensor in trained[0].items())

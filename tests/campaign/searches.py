"""Small real searches on digits, and a process of its own that executes one."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from explorer.campaign.searching import OWN, Prepared, prepare, run_search
from explorer.search.search_answer import Answer
from explorer.sweep.execute import Settings, Summary
from explorer.sweep.spec import load_spec
from tests.sweep import sweeps

# Two doublings of a baseline of 7 steps, with more time than all of its recipes take.
SEARCH: dict[str, Any] = {"of": ["ema", "mixup", "swa"], "spend": "10min", "ladder": [0.5, 1.0], "searcher": "random"}


def searching(changes: Mapping[str, Any] | None = None, **others: Any) -> dict[str, Any]:
    """The specification of a search, with changes to its key and to others."""
    content = sweeps.spec(recipes={"baseline": []}, search={**SEARCH, **(changes or {})}, **others)
    del content["budgets"]
    return content


def prepared(runs: Path, content: Mapping[str, Any], **settings: Any) -> Prepared:
    return prepare(load_spec(content), runs=runs, settings=Settings(engine="inline", **settings))


def execute(runs: Path, content: Mapping[str, Any], **settings: Any) -> tuple[Summary, Answer]:
    """Search in this process, inline, with one worker unless told otherwise; the last step times are not measured."""
    chosen: dict[str, Any] = {"engine": "inline", "workers": 1, "profile": False, **settings}
    return run_search(prepared(runs, content), Settings(**chosen))


def journal(runs: Path) -> list[tuple[str, tuple[str, ...], float, int]]:
    """The lines of the journal: what happened, methods, budget, seed."""
    lines = (runs / "tiny" / OWN / "journal.jsonl").read_text().splitlines()
    pairs = (next(iter(json.loads(line).items())) for line in lines)
    return [(kind, tuple(trial["methods"]), trial["budget"], trial["seed"]) for kind, trial in pairs]


def start(runs: Path, content: Mapping[str, Any], **settings: Any) -> subprocess.Popen[str]:
    """Start a process that executes the search and prints a line for every event."""
    return sweeps.start(runs, content, module="tests.campaign.searches", **settings)


if __name__ == "__main__":
    sweeps.main(execute)

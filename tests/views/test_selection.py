"""Runs that are chosen: by brush, by click and tick, as cards, and compared."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from explorer.page import theme
from explorer.page.document import words
from explorer.page.html import fragment
from explorer.run_files import ResultRecord, read
from explorer.store.ingest import ingest
from explorer.views.explorer.answer import answer, selected
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import Snapshot, read_snapshot
from explorer.views.explorer.tabs.run_cards import reproduce, run_cards
from explorer.views.explorer.tabs.runs_section import RunsSection, differences
from tests.builders import change_result, run_record, write_failure, write_sweep

LOOK = theme.look(["baseline", "fast", "heavy"], baseline="baseline")
NAN = "training diverged: the loss is nan at step 36: the first layer that gives something else is <b>'head'</b>"


def text(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", html)).split())


@pytest.fixture
def shown(results: pd.DataFrame) -> pd.DataFrame:
    return results.assign(x=results["train_seconds"], y=results["quality"])


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("chosen") / "runs"
    records = write_sweep(directory, {name: {0.5: (0.8, 0.81), 1.0: (0.9, 0.91)} for name in ("baseline", "fast")})
    for record in records:
        change_result(directory / "digits" / record.run_id, peak_memory=300 * 2**20)
    write_failure(directory, run_record(recipe="hot"), kind="diverged", message=NAN).joinpath(
        "notebook.ipynb"
    ).write_text("{}")
    ingest(directory)
    return directory


@pytest.fixture
def snapshot(chosen: Path) -> Snapshot:
    return read_snapshot(chosen)


class Opened:
    """The section as the explorer has it: every question that it asks is answered."""

    def __init__(self, snapshot: Snapshot, **asked: Any) -> None:
        self.snapshot, self.question = snapshot, Question(sweep="digits", **asked)
        self.section = RunsSection(self.ask)
        self.ask()

    def ask(self, **changes: Any) -> None:
        self.question = Question(**{**self.question.as_json(), **changes})
        self.section.show(self.snapshot, answer(self.snapshot, self.question))

    @property
    def grid(self) -> Any:
        return self.section.grid

    @property
    def cards(self) -> str:
        return self.section._cards.value


def test_a_brush_selects_what_lies_inside(shown: pd.DataFrame) -> None:
    inside = selected(shown, {"x": [3.1, 3.3], "y": [1.0, 0.0]})
    assert set(inside["recipe"]) == {"baseline"}
    assert set(inside["ssr"]) == {1.0}
    assert len(selected(shown, {"x": [3.1, 3.3], "y": [0.0, 0.1]})) == 0


def test_all_runs_are_listed_in_any_state(snapshot: Snapshot) -> None:
    opened = Opened(snapshot)
    assert opened.grid.count == 9 and opened.cards == ""
    hot = next(line for line in opened.grid.lines if "hot" in line["id"])
    cells = [text(cell) for cell in hot["cells"]]
    assert cells[1].startswith("diverged training diverged: the loss is nan at step 36")
    assert "<b>" not in hot["cells"][1], "a message is words"
    assert 'href="' in hot["cells"][9], "the partial notebook"
    baseline = [text(cell) for cell in opened.grid.lines[0]["cells"]]
    assert baseline[:2] == ["baseline", "finished"] and baseline[7] == "300 MiB"
    assert {"cost", "energy", "steps"} <= set(opened.grid.hidden) and "memory" not in opened.grid.hidden


def test_ticks_and_clicks_choose_and_two_are_compared(snapshot: Snapshot) -> None:
    opened = Opened(snapshot)
    ids = [line["id"] for line in opened.grid.lines]
    opened.grid.selected = [ids[0], ids[4]]
    assert opened.question.chosen == (ids[0], ids[4])
    assert opened.cards.count("<article") == 2 and opened.cards.index("What differs") < opened.cards.index("<article")
    opened.grid._handle_custom_msg({"picked": ids[1]}, [])
    assert opened.question.chosen == (ids[1],) == tuple(opened.grid.selected)
    assert opened.cards.count("<article") == 1 and "What differs" not in opened.cards
    opened.ask(chosen=("digits/no-such-run",))
    assert opened.cards == ""


def test_a_run_that_diverged_has_a_card_with_its_message(snapshot: Snapshot) -> None:
    opened = Opened(snapshot)
    hot = next(line["id"] for line in opened.grid.lines if "hot" in line["id"])
    opened.ask(chosen=(hot,))
    said = text(opened.cards)
    assert "budget 1 · seed 0 · diverged" in said and NAN in said
    assert "<b>" not in opened.cards
    assert f"runs/{hot}/run.json --out again" in said and "Notebook open" in said


def test_a_brush_lists_the_runs_inside_and_shows_the_cards_of_few(snapshot: Snapshot) -> None:
    opened = Opened(snapshot, brush=(0.0, 0.6, 0.0, 1.0))
    assert opened.grid.count == 4 and opened.cards.count("<article") == 4
    assert "4 runs selected with the brush" in text(opened.section._said.value)
    opened.section.all.click()
    assert opened.grid.count == 9 and opened.question.brush == ()


def test_what_differs_comes_first_and_what_agrees_is_a_sentence() -> None:
    def row(recipe: str, lr: float, **more: Any) -> dict[str, Any]:
        method = [] if recipe == "baseline" else [{"mixup": {"alpha": 0.2}}]
        identity = {"recipe": {"train": {"lr": lr, "epochs": 4}, "methods": method}, "seed": 0, "versions": {"x": "1"}}
        known = {"state": "finished", "metric": "accuracy", "unit": "fraction", "higher_is_better": True, "format": ""}
        numbers = {"quality": 0.9, "train_seconds": 60.0, "cost_usd": None, "peak_memory": None, "energy_kwh": None}
        numbers["steps"] = 80
        return {
            **{"recipe": recipe, "ssr": 1.0, "seed": 0, "identity": json.dumps(identity)},
            **known,
            **numbers,
            **more,
        }

    html = fragment(*differences([row("baseline", 0.1), row("<fast>", 0.2, state="failed")], look=LOOK))
    rows = [text(line) for line in re.findall("<tr.*?</tr>", html, re.S)]
    assert rows[1:4] == ["methods.mixup - on", "methods.mixup.alpha - 0.2", "train.lr 0.1 0.2"]
    assert "State finished failed" in rows and "Training time 1 min 1 min" in rows
    assert not any(line.startswith(("Cost", "Peak memory", "Energy")) for line in rows), "what no run has"
    assert "The same in all of them: seed 0, train.epochs 4." in text(html)
    assert "<fast>" not in html


def test_a_removed_directory_offers_no_command(snapshot: Snapshot, tmp_path: Path) -> None:
    listed = Opened(snapshot)
    run = {"directory": "digits/gone", "recipe": "fast", "run_id": "gone", "ssr": 1.0, "seed": 0, "state": "failed"}
    run |= {"steps": 8, "batch_size": 4, "methods": "", "peak_memory": None, "message": None, "imported": None}

    def card() -> str:
        where = {"database": snapshot.database, "runs": tmp_path, "here": tmp_path}
        return fragment(*run_cards(pd.DataFrame(), others=[run], look=LOOK, **where))

    html = card()
    assert "directory removed" in html and "explorer run" not in html
    (tmp_path / "digits" / "gone").mkdir(parents=True)
    (tmp_path / "digits" / "gone" / "run.json").write_text("{")
    html = card()
    assert "not possible: run.json is removed or damaged" in html and "explorer run" not in html
    assert listed.grid.count == 9


def test_a_hostile_directory_is_quoted_for_shell_and_page(tmp_path: Path) -> None:
    assert words(reproduce(tmp_path / "a;rm b", here=tmp_path)) == "explorer run 'a;rm b/run.json' --out again"


def test_a_result_of_an_older_version_has_no_memory(chosen: Path) -> None:
    path = next((chosen / "digits").glob("*baseline*")) / "result.json"
    old = path.read_text().replace('"peak_memory": 314572800', '"peak_memory": null')
    assert "314572800" in path.read_text()
    copy = chosen / "old.json"
    copy.write_text(re.sub(r',\s*"peak_memory": null', "", old))
    assert read(ResultRecord, copy).peak_memory is None

"""What every page shows of a search is what `search.json` has, and that it is no claim."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from explorer import run_files
from explorer.errors import ExplorerError, RunError
from explorer.page.document import Page
from explorer.page.markdown import render_markdown
from explorer.page.terminal import show
from explorer.report.sweep_report import FORMATS, read_sweep
from explorer.schema import to_json
from explorer.search.search_answer import FILE, Answer
from explorer.search.search_words import NO_CLAIM, answer_blocks
from explorer.search.search_words import SHOWN as LISTED
from explorer.store.ingest import ingest
from explorer.views.explore import explore
from explorer.views.explorer.tabs.search_chart import effects_chart, regret_chart, search_blocks
from explorer.views.explorer.tabs.search_section import UNSEARCHED, SearchSection
from explorer.views.live_chart import LiveChart
from explorer.views.sweep.sweep_panel import sweep_panel
from tests.builders import write_sweep
from tests.searched_sample import ANSWER, QUALITIES, write_searched
from tests.views.test_explore import texts
from tests.views.test_sweep_panel import event, replace_command

CONFIRM = "explorer confirm digits ema-mixup"
SHOWN = (  # what every page says of it
    "ema-mixup, 5 s to the target (0.50x of the baseline's), expected regret 0.0%",
    "ema, 8 s to the target (0.80x of the baseline's), expected regret 60.0%",
    "accuracy 93.00%, 10 s for the baseline",
    "9 runs of 4 recipes of 4",
    "1.33 min of training of 1.67 min; the time is spent",
    "earched: chosen runs, no bands",
    CONFIRM,
    "ema-swa: ema cannot be combined with swa",
    "+2.00 points",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("searched") / "runs"
    write_searched(directory)
    return directory


def drawn(chart: Any) -> list[dict[str, Any]]:
    return [row for rows in chart.to_dict()["datasets"].values() for row in rows]


def plain(text: str) -> str:
    return text.replace("&#39;", "'").replace("\\", "")


def test_the_picture_has_the_regret_of_what_was_in_front_after_what_was_spent() -> None:
    rows = [row for row in drawn(regret_chart(ANSWER, width=300)) if "kind" in row]
    assert [(row["x"], row["kind"], row["y"], row["recipe"]) for row in rows] == [
        (30.0, "by all runs", 1.0, "baseline"),
        (30.0, "expected then", 0.4, "baseline"),
        (55.0, "by all runs", pytest.approx(0.6), "ema"),
        (55.0, "expected then", 0.2, "ema"),
        (80.0, "by all runs", 0.0, "ema-mixup"),
        (80.0, "expected then", 0.0, "ema-mixup"),
    ]
    assert [row["y"] for row in drawn(regret_chart(ANSWER, width=300)) if "words" in row] == [1.0]


def test_what_never_reaches_the_target_has_no_regret_in_the_picture() -> None:
    lost = replace(ANSWER, history=(replace(ANSWER.history[0], later=None, regret=None), *ANSWER.history[1:]))
    assert {row["x"] for row in drawn(regret_chart(lost, width=300)) if "kind" in row} == {55.0, 80.0}


def test_effects_have_their_intervals_in_the_picture_and_in_words_the_most_helpful_first() -> None:
    chart = effects_chart(ANSWER, width=300).to_dict()
    rows = [row for rows in chart["datasets"].values() for row in rows if "method" in row]
    assert [(row["method"], row["quality"], row["low"], row["high"]) for row in rows] == [
        ("ema", 0.02, 0.01, 0.03),
        ("mixup", -0.01, -0.03, 0.01),
    ]
    assert "mixup: -1.00 points (-3.00 to +1.00)." in chart["description"]
    loss = effects_chart(replace(ANSWER, metric="nll"), width=300).to_dict()
    assert loss["layer"][1]["encoding"]["y"]["sort"] == ["mixup", "ema"]  # a lower loss is the better one


def test_without_a_winner_no_command_confirms_one() -> None:
    text = render_blocks(replace(ANSWER, ranking=ANSWER.ranking[2:]))
    assert "no recipe is expected to reach the target sooner" in text and "explorer confirm" not in text
    assert "explorer confirm" not in render_blocks(replace(ANSWER, ended="stopped"))
    assert "explorer confirm" in render_blocks(ANSWER)
    unfinished = render_blocks(replace(ANSWER, target=None, ranking=(), history=(), effects=(), baseline_seconds=None))
    assert "has not finished its full budget" in unfinished


def test_recipes_that_are_not_listed_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    many = replace(ANSWER, ranking=tuple(replace(ANSWER.ranking[0], recipe=f"r{at}") for at in range(LISTED + 2)))
    assert "2 more, which `search.json` lists" in plain(render_blocks(many))
    assert "which `search.json` lists" not in plain(render_blocks(ANSWER))
    show(answer_blocks(many))
    assert "2 more, which `search.json` lists" in capsys.readouterr().out


def test_a_baseline_of_another_name_is_marked_as_one() -> None:
    text = render_blocks(ANSWER)
    assert "| baseline |" in text and "(baseline)" not in text
    plain_one = replace(ANSWER.ranking[2], recipe="plain")
    assert "| plain (baseline) |" in render_blocks(replace(ANSWER, ranking=(*ANSWER.ranking[:2], plain_one)))


def render_blocks(answer: Answer) -> str:
    return render_markdown(Page(title="t", subtitle="s", blocks=search_blocks(answer), made=0))


def test_the_section_reads_the_file_and_says_where_there_is_none(tmp_path: Path) -> None:
    section = SearchSection(lambda **_: None)
    snapshot = cast(Any, SimpleNamespace(runs=tmp_path))
    shown = cast(Any, SimpleNamespace(question=SimpleNamespace(sweep="digits")))
    with pytest.raises(ExplorerError, match="No search chose the runs of this sweep"):
        section.show(snapshot, shown)
    (tmp_path / "digits").mkdir()
    run_files.write(tmp_path / "digits" / FILE, ANSWER)
    section.show(snapshot, shown)
    assert sum(isinstance(child, LiveChart) for child in section.place.children) == 2
    (tmp_path / "digits" / FILE).write_text('{"format": 1}')
    with pytest.raises(RunError, match="damaged Answer"):
        section.show(snapshot, shown)


def on_explorer(runs: Path) -> str:
    return texts(explore(runs, sweep="digits", section="search"))


def on_notebook(runs: Path) -> str:
    spec = runs.parent / "mine.yaml"
    spec.write_text("name: digits\n")
    return texts(sweep_panel(spec, runs))


def on_report(format: str) -> Any:
    return lambda runs: FORMATS[format](read_sweep(runs, "digits")).decode()


PAGES = {
    "explorer": on_explorer,
    "notebook": on_notebook,
    "md": on_report("md"),
    "html": pytest.param(on_report("html"), marks=pytest.mark.slow),
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_every_page_has_the_whole_answer(runs: Path, tmp_path: Path, page: Any) -> None:
    text = plain(page(runs))
    assert [words for words in SHOWN if words not in text] == []
    # The control: of an ordinary sweep none of that is said; that it should be confirmed may be.
    write_searched(tmp_path / "runs", chosen=False)
    text = plain(page(tmp_path / "runs"))
    assert {words for words in SHOWN if words in text} <= {CONFIRM}


def test_the_command_line_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    show(answer_blocks(ANSWER))
    said = capsys.readouterr().out
    assert [words for words in SHOWN if words not in said] == [CONFIRM]  # `next:` has it
    assert said.endswith(f"{NO_CLAIM}\n")


def test_the_json_report_has_the_answer_as_it_is(runs: Path) -> None:
    assert json.loads(on_report("json")(runs))["search"] == to_json(ANSWER)


@pytest.mark.slow
def test_the_notebook_runs_a_search_where_the_specification_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_searched(tmp_path / "runs")
    lines = "\n".join([event("done", done=1, fraction=0.25), json.dumps({"event": "answer", **to_json(ANSWER)})])
    panel = sweep_panel(tmp_path / "mine.yaml", tmp_path / "runs")
    for content, verb in (("name: digits\nsearch: {of: [ema]}\n", "search"), ("name: digits\n", "sweep")):
        panel.editor.value = content
        replace_command(monkeypatch, f"import sys; assert sys.argv[1] == {verb!r}; print({lines!r})")
        asyncio.run(panel.run())
        assert "Finished" in panel.state.value and panel.bar.value == 0.25
    assert "expected regret 60.0%" in texts(panel.searched)


def test_a_damaged_answer_is_an_error_on_every_page(tmp_path: Path) -> None:
    write_searched(tmp_path / "runs")
    (tmp_path / "runs" / "digits" / FILE).write_text("{")
    assert "damaged" in on_explorer(tmp_path / "runs") and "damaged" in on_notebook(tmp_path / "runs")
    with pytest.raises(RunError, match="damaged"):
        on_report("md")(tmp_path / "runs")


def test_a_sweep_without_a_search_says_how_to_get_one(tmp_path: Path) -> None:
    write_sweep(tmp_path, QUALITIES)
    ingest(tmp_path)
    assert UNSEARCHED.split("`")[0] in texts(explore(tmp_path, section="search"))

"""One verdict for every face: headline, table, question, report and terminal say the same of the same sweep."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from explorer.analysis.ask import ask
from explorer.analysis.equal_quality import Call
from explorer.analysis.limits import Limits
from explorer.analysis.sentences import call_words, summary
from explorer.analysis.verdict import sweep_verdicts
from explorer.cli.app import app
from explorer.report.sweep_report import write_sweep_report
from explorer.store import frames
from explorer.store.confirming import with_confirming
from explorer.store.place import database
from explorer.views.answer import answer
from explorer.views.ask_words import verdict_words
from explorer.views.equal_quality import said
from explorer.views.question import Question
from explorer.views.snapshot import read_snapshot
from tests.sample import write_sample

SHOWN_ELSEWHERE = (Call.NOT_REACHED, Call.BELOW, Call.UNKNOWN, Call.NO_BASELINE)  # by the column of amounts


@pytest.mark.parametrize(("seeds", "fresh"), [(3, 0), (3, 3), (2, 0), (1, 0)])
def test_all_faces_say_the_same(tmp_path: Path, seeds: int, fresh: int) -> None:
    """A winner, alone and with a second sweep in the store; two seeds; one seed."""
    runs = tmp_path / "runs"
    write_sample(runs, seeds=seeds)
    if fresh:
        write_sample(runs, sweep="other", seeds=fresh)
    where = database(runs)
    rows = frames.results(where, sweep="digits")
    found = sweep_verdicts(rows, with_confirming(where, "digits"))
    shown = answer(read_snapshot(runs), Question(sweep="digits"))
    assert list(shown.verdicts) == found and shown.sentence == summary(found)
    write_sweep_report(runs, "digits", tmp_path / "r.json", format="json")
    document = json.loads((tmp_path / "r.json").read_text())
    told = {each["result"]["label"]: each for each in document["sections"][0]["equal_quality"]}
    asked = ask(rows, frames.deletion_forecasts(where, sweep="digits"), Limits(), verdicts=found)
    by_label = {each.label: each.verdict for each in asked.candidates}
    terminal = CliRunner().invoke(app, ["results", "digits", "--runs", str(runs)], env={"COLUMNS": "400"}).stdout
    assert document["answer"] == summary(found) and summary(found) in terminal
    for each in found:
        label, words = each.comparison.label, call_words(each)
        if each.call not in SHOWN_ELSEWHERE:
            assert words in said(each)
        assert words in terminal
        assert (told[label]["call"], told[label]["words"]) == (str(each.call), words)
        assert (told[label]["claims"], told[label]["asks_confirmation"]) == (each.claims, each.asks)
        assert by_label[label] == each
        candidate = next(one for one in asked.candidates if one.label == label)
        assert words in verdict_words(candidate) and (("confirm on fresh" in verdict_words(candidate)) == each.asks)

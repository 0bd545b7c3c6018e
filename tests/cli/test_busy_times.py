"""A time that was profiled on a busy machine says so wherever it is shown, and a quiet one, or one of an older file,
says nothing."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pypdf import PdfReader
from typer.testing import CliRunner

from explorer import rundir
from explorer.analysis.sentences import busy_recipes
from explorer.cli.app import app
from explorer.page import theme
from explorer.page.amounts import BUSY, MOST_NAMES, busy_times
from explorer.page.html import fragment
from explorer.run_files import Watch
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.published import database
from explorer.views.explorer.answer import answer, notes
from explorer.views.explorer.question import Question
from explorer.views.explorer.snapshot import read_snapshot
from explorer.views.explorer.tabs.run_cards import run_cards
from tests.builders import run_record, write_profile, write_run

QUIET = Watch(cores=2, load=0.1, others=0.0, stolen=0.0)
BUSY_WATCH = Watch(
    cores=2, load=3.0, others=0.6, stolen=0.0, reasons=("other processes took 60% of its 2 cores \x1b[2J",)
)
SENTENCE = "Profiled on a busy machine: the times of baseline, fast"


def made(runs: Path, watch: Watch | None) -> Path:
    """A sweep of two recipes, three seeds and two budgets, whose profile was watched so."""
    entries = []
    for recipe, better in (("baseline", 0.0), ("fast", 0.01)):
        record = run_record()
        for ssr in (0.5, 1.0):
            for seed in range(3):
                record = run_record(recipe=recipe, ssr=ssr, seed=seed, methods=(recipe,))
                quality = 0.8 + 0.1 * ssr + better + 0.001 * seed
                write_run(runs, record, metrics={"accuracy": quality, "nll": 0.5})
                entry = {"run_id": record.run_id, "recipe": recipe, "ssr": ssr, "seed": seed}
                entries.append(entry | {"recipe_digest": record.recipe_digest})
        write_profile(runs, record, rounds=(0.99, 1.0, 1.01), profile_pass="p", watch=watch)
    plan = {"format": 1, "name": "digits", "spec": {"name": "digits"}, "runs": entries}
    rundir.write_json(runs / "digits" / rundir.SWEEP, plan)
    ingest(runs)
    return runs


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("busy") / "runs", BUSY_WATCH)


@pytest.fixture(scope="module", params=[QUIET, None], ids=["quiet", "nobody looked"])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("other") / "runs", request.param)


def said(runs: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "--runs", str(runs)], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.stdout


def status(runs: Path) -> str:
    spec = runs / "digits.yaml"
    spec.write_text(json.dumps({"name": "digits"}))
    return said(runs, "sweep", "status", str(spec))


def page(runs: Path, kind: str) -> str:
    out = runs / f"report.{kind}"
    said(runs, "report", "digits", "--format", kind, "--out", str(out))
    if kind == "pdf":
        return " ".join(" ".join(each.extract_text().split()) for each in PdfReader(out).pages)
    return out.read_text()


FACES = {
    "results": lambda runs: said(runs, "results", "digits"),
    "ask": lambda runs: said(runs, "ask"),
    "html": lambda runs: page(runs, "html"),
    "md": lambda runs: page(runs, "md"),
    "notebook": lambda runs: str(fragment(*notes(answer(read_snapshot(runs), Question(sweep="digits"))))),
    "survey": lambda runs: str(fragment(*notes(answer(read_snapshot(runs), Question())))),
}


@pytest.mark.parametrize("face", [pytest.param(face, marks=[pytest.mark.slow] * (face == "html")) for face in FACES])
@pytest.mark.slow
def test_every_face_names_the_recipes(busy: Path, other: Path, face: str) -> None:
    assert SENTENCE in FACES[face](busy)
    assert BUSY not in FACES[face](other).lower()


@pytest.mark.slow
def test_a_report_on_paper_says_it(busy: Path) -> None:
    assert SENTENCE in page(busy, "pdf")


@pytest.mark.slow
def test_numbers_for_programs_say_it(busy: Path, other: Path) -> None:
    for runs, expected in ((busy, ["baseline", "fast"]), (other, [])):
        (section, *_) = json.loads(page(runs, "json"))["sections"]
        assert section["busy_profile"] == expected
        rows = json.loads(said(runs, "results", "digits", "--json"))
        assert {row["busy_profile"] for row in rows} == ({True} if expected else {rows[0]["busy_profile"]})
        asked = json.loads(said(runs, "ask", "--json"))
        assert any(SENTENCE in note for note in asked["notes"]) is bool(expected)


def test_the_status_says_why_on_one_line(busy: Path, other: Path) -> None:
    line = f"{BUSY}: other processes took 60% of its 2 cores"
    assert line in status(busy) and "\x1b" not in status(busy)
    assert "explorer sweep profile" in status(busy)
    assert BUSY not in status(other)


def test_the_card_of_a_run_says_it(busy: Path, other: Path) -> None:
    for runs, expected in ((busy, True), (other, False)):
        rows = frames.results(database(runs), sweep="digits").head(1)
        look = theme.look(rows["recipe"], baseline="baseline")
        card = str(fragment(*run_cards(rows, database=database(runs), runs=runs, here=runs, look=look)))
        assert (BUSY in card) is expected


@pytest.mark.parametrize("unknown", [None, pd.NA, float("nan")])
def test_what_is_not_known_is_not_called_busy(unknown: Any) -> None:
    rows = pd.DataFrame({"recipe": ["a", "b", "c", "b"], "busy_profile": [unknown, True, False, True]})
    assert busy_recipes(rows) == ["b"]
    assert busy_recipes(rows.assign(busy_profile=unknown)) == busy_recipes(rows[["recipe"]]) == []


def test_many_recipes_are_counted() -> None:
    names = [f"r{number}" for number in range(MOST_NAMES + 2)]
    assert busy_times([*names, *names]).startswith(
        "Profiled on a busy machine: the times of r0, r1, r2, r3, r4 and 2 more"
    )
    assert busy_times([]) == ""

"""Cards of single runs: everything that is known of a run, and words for what is not."""

import hashlib
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from markupsafe import Markup

from explorer.errors import StoreError
from explorer.page import theme
from explorer.page.html import fragment
from explorer.run_files import PhaseProfile
from explorer.store import frames
from explorer.store.ingest import ingest
from explorer.store.run_details import PhaseTime, Profile
from explorer.views.explorer.tabs.run_cards import CARDS, run_cards, times
from tests.audit.governed_run import write_governed_run
from tests.builders import CPU, H200, change_result, run_record, write_profile, write_run
from tests.cli.command import explorer
from tests.store.test_predicted import imported

PHASED = run_record(
    recipe="fast", methods=("blurpool", "ema"), phases={"8x8 px": 60, "16x16 px": 20}, baseline="baseline"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two phases, which is predicted elsewhere too; a baseline without a profile; a governed run."""
    directory = tmp_path_factory.mktemp("cards") / "runs"
    write_run(directory, PHASED, metrics={"accuracy": 0.75, "nll": 0.5}).joinpath("notebook.ipynb").write_text("{}")
    write_run(directory, replace(run_record(), tuning=None))
    seconds, split = {"8x8 px": 0.5, "16x16 px": 2.0}, {"forward": 0.25, "backward": 0.75}
    write_profile(directory, PHASED, seconds=seconds, split=split)
    other = {
        name: PhaseProfile(seconds=time, low=time, high=time, windows=5, split={"forward": time})
        for name, time in (("8x8 px", 0.01), ("16x16 px", 0.02))
    }
    imported(directory, PHASED, phases=other)
    write_governed_run(directory, steps=6)
    ingest(directory)
    return directory


@pytest.fixture(scope="module")
def rows(runs: Path) -> pd.DataFrame:
    return frames.results(runs / "explorer.duckdb")


def cards(rows: pd.DataFrame, runs: Path) -> Markup:
    look = theme.look(rows["recipe"], baseline="baseline")
    return fragment(
        *run_cards(rows, database=runs / "explorer.duckdb", runs=runs, here=runs.parent / "notebooks", look=look)
    )


def test_a_card_shows_what_its_run_measured_while_it_trained(tmp_path: Path) -> None:
    losses = [2.0 - step / 100 for step in range(80)]
    directory = write_run(tmp_path, run_record(), losses=losses)
    lines = (directory / "metrics.jsonl").read_text().splitlines()
    lines.insert(40, '{"step": 40, "metric": "accuracy", "value": 0.5}')
    (directory / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    files = {
        name: hashlib.sha256((directory / name).read_bytes()).hexdigest() for name in ("run.json", "metrics.jsonl")
    }
    change_result(directory, files=files)
    write_run(tmp_path, run_record(seed=1))
    ingest(tmp_path)
    rows = frames.results(tmp_path / "explorer.duckdb")
    html = cards(rows[rows["seed"] == 0], tmp_path)
    words = unescape(re.sub("<[^>]+>", "", html))
    assert "train_loss: 2 nats to 1.21 nats over 80 steps" in words and "accuracy: 50.00% to 90.00% over 80" in words
    assert html.count("<polyline") == 3  # the loss, the loss smoothed, and two evaluations
    # Without the directory the database has them; a metric that was measured once has no curve.
    shutil.rmtree(directory)
    assert cards(rows[rows["seed"] == 0], tmp_path).count("<polyline") == 3
    assert cards(rows[rows["seed"] == 1], tmp_path).count("<polyline") == 1


def test_the_card_of_an_imported_run_names_its_source(tmp_path: Path) -> None:
    made = tmp_path / "made.csv"
    made.write_text("recipe,budget,seed,seconds,accuracy\nplain,1,0,60,0.9\n")
    columns = "recipe=recipe,budget=budget,seed=seed,seconds=seconds,quality=accuracy"
    runs = tmp_path / "runs"
    done = explorer("import", "csv", made, "--map", columns, "--yes", "--runs", runs)
    assert done.returncode == 0, done.stderr
    shown = facts(cards(frames.results(runs / "explorer.duckdb"), runs))
    assert shown["Files"].startswith("none here: imported from csv, made.csv, sha256 ")
    assert shown["Files"].endswith("; unverified") and "Train again" not in shown


def facts(html: Markup) -> dict[str, str]:
    """What the one card of a page says, by what it is about."""
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", html)
    return {unescape(name): _text(value) for name, value in found}


def _text(html: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", "", html.replace("<small>", " "))).split())


def of(rows: pd.DataFrame, recipe: str, hardware: str = CPU.name) -> pd.DataFrame:
    return rows[(rows["recipe"] == recipe) & (rows["hardware"] == hardware)]


def test_a_card_says_what_is_known_of_a_run(rows: pd.DataFrame, runs: Path) -> None:
    html = cards(of(rows, "fast"), runs)
    said = facts(html)
    assert html.count("<article") == 1
    assert [_text(each) for each in re.findall("<li>(.*?)</li>", html)] == [
        "75.00% accuracy",
        "1.17 min training time, profiled",  # 60 * 0.5 + 20 * 2
        "no price US dollars",
    ]
    assert said["Other metrics"] == "nll 0.5 nats"
    assert said["Time"].startswith("profiled: steps times the step time on an idle machine; 1.05 min to 1.4 min")
    assert said["Throughput"] == "73.14 examples a second"  # 80 steps of 64 in 70 s
    assert said["Cost"] == f"unknown: add a price for {CPU.name}"
    assert said["Inference"] == "1 ms per example"
    assert said["Hardware"] == f"{CPU.name}, 1 thread"
    assert said["Training"] == "80 steps of 64 examples, fp32"
    assert said["Methods"] == "blurpool, ema"
    assert said["Baseline"] == 'baseline tuning, in the author\'s words: "lr over 5 values"'
    assert said["Governance"] == "none: the run keeps no ledger"
    assert of(rows, "fast")["state_digest"].iloc[0].startswith(said["Model digest"])


def test_time_by_phase_and_by_part_of_a_step(rows: pd.DataFrame, runs: Path) -> None:
    html = cards(of(rows, "fast"), runs)
    body = [_text(row) for row in re.findall("<tr>(.*?)</tr>", html.replace("</th>", " ").replace("</td>", " "))][1:]
    assert body == ["8x8 px 60 0.5 s 30 s", "16x16 px 20 2 s 40 s"]
    assert "as profiled 2026-11-21: forward 25%, backward 75%" in _text(html)
    assert "Bound by compute, 100% of a step." in _text(html)


def test_the_command_and_the_links_lead_to_the_run(rows: pd.DataFrame, runs: Path) -> None:
    html = cards(of(rows, "fast"), runs)
    assert facts(html)["Train again"] == f"explorer run ../runs/digits/{PHASED.run_id}/run.json --out again"
    assert f'href="../runs/digits/{PHASED.run_id}/notebook.ipynb"' in html
    assert facts(html)["Sweep's report"] == "explorer report digits --runs ../runs"
    assert facts(cards(of(rows, "baseline"), runs))["Notebook"] == "-"


def test_a_prediction_says_whose_machine_the_quality_was_measured_on(rows: pd.DataFrame, runs: Path) -> None:
    html = cards(of(rows, "fast", H200.name), runs)
    said = facts(html)
    assert said["Time"].startswith("predicted: ")
    assert said["Time"].endswith(f"the quality was measured on {CPU.name}, 1 thread")
    assert said["Hardware"] == f"{H200.name}, 8 threads"
    assert "8x8 px" in html and ">0.6 s<" in html  # 60 steps of 10 ms, of the imported profile
    assert "measured on" not in facts(cards(of(rows, "fast"), runs))["Time"]


def test_what_is_not_known_is_said(rows: pd.DataFrame, runs: Path) -> None:
    html = cards(of(rows, "baseline"), runs)
    said = facts(html)
    assert said["Time"] == "unknown: the recipe was not profiled, and the run shared its machine"
    assert said["Inference"] == "not measured" and "Throughput" not in said
    assert said["Methods"] == "none"
    assert said["Baseline"] == "this is it untuned baseline"
    assert "as measured in the run while it shared the machine; its phases were not profiled: forward 40%" in _text(
        html
    )
    assert "training time, unknown" in _text(html)


def test_a_price_has_its_source_its_date_and_its_age(rows: pd.DataFrame, runs: Path) -> None:
    priced = of(rows, "fast").assign(usd_per_hour=2.0, price_source="own box", price_as_of="2024-01-31", cost_usd=0.04)
    assert re.fullmatch(r"\$2\.00/h as of 2024-01-31, over \d+ months old, own box", facts(cards(priced, runs))["Cost"])
    undated = priced.assign(price_as_of=None, cost_usd=float("nan"))
    assert facts(cards(undated, runs))["Cost"] == "$2.00/h, of unknown date, own box, the time is unknown"


def test_a_governed_run_has_its_policy_and_its_ledger(rows: pd.DataFrame, runs: Path) -> None:
    run = of(rows, "governed")
    html, row = cards(run, runs), run.iloc[0]
    said = facts(html)
    assert said["Policy"] == row["policy"]
    assert said["Ledger"].startswith(f"{row['ledger_size']} entries, root {row['ledger_root'][:16]}")
    assert said["Ledger"].endswith("not verified")
    assert row["ledger_root"] in html  # on hover
    assert said["Deletion"].startswith("exact by ")
    assert said["Ledger files"].endswith(f"explorer ledger show ../runs/{row['directory']}/ledger")
    assert f'href="../runs/{row["directory"]}/ledger"' in html
    assert said["Report"] == f"explorer report ../runs/{row['directory']}"
    report = runs / row["directory"] / "report.html"
    report.write_text("<p>")
    try:
        assert f'href="../runs/{row["directory"]}/report.html"' in cards(run, runs)
    finally:
        report.unlink()


def test_at_most_six_and_the_rest_is_counted(rows: pd.DataFrame, runs: Path) -> None:
    many = pd.concat([of(rows, "fast")] * 9)
    html = cards(many, runs)
    assert html.count("<article") == CARDS
    assert "and 3 more runs: 6 are shown at most" in html
    assert "more run" not in cards(many.head(6), runs)
    assert "<article" not in cards(many.head(0), runs)


@pytest.mark.parametrize("hostile", ["<img src=x onerror=alert(1)>", "y" * 10_000, "\u05d0\u05d1\u202e\u05d2"])
def test_hostile_names_do_no_harm(rows: pd.DataFrame, runs: Path, hostile: str) -> None:
    columns = (
        "recipe",
        "methods",
        "model",
        "dataset",
        "hardware",
        "metric",
        "baseline",
        "tuning",
        "precision",
        "policy",
    )
    named = of(rows, "governed").assign(**dict.fromkeys(columns, hostile), control="random-subset", control_of=hostile)
    named = named.assign(usd_per_hour=1.0, price_source=hostile, state_digest=hostile, time_source=hostile)
    html = cards(named, runs)
    assert "<img" not in html and "\u202e" not in html
    assert len(html) < 40_000


def test_a_directory_that_leads_out_of_the_runs_is_refused(rows: pd.DataFrame, runs: Path) -> None:
    for place in ("../../etc", "/etc", "digits/../../x", ""):
        with pytest.raises(StoreError, match="expected one below"):
            cards(of(rows, "fast").assign(directory=place), runs)


def test_phases_beyond_the_profile_and_beyond_the_list_are_counted() -> None:
    phases = tuple(
        PhaseTime(name=f"p{n}", steps=10, seconds=1.0, low=1.0, high=1.0, windows=5, split={"forward": 1.0})
        for n in range(15)
    )
    said = _text(
        fragment(*times(Profile(made_at="2026", phases=phases), {}, pd.Series({"steps": 200, "contended": False})))
    )
    assert "p11101 s10 s 3 more301 s30 s not profiled50--" in said


def test_a_damaged_profile_is_said_and_hides_nothing() -> None:
    phase = PhaseTime(name="all", steps=10, seconds=1.0, low=1.0, high=1.0, windows=5, split={"forward": -1.0})
    html = fragment(*times(Profile(made_at="2026", phases=(phase,)), {}, pd.Series({"steps": 10, "contended": False})))
    assert "does not say what a step is spent on" in html and "<table" in html
    assert "is unknown" in fragment(*times(None, {}, pd.Series({"steps": 10, "contended": False})))

"""The report of sweeps that are hostile, or of which little is known: it says something true in every format."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pypdf
import pytest

from explorer.report.sweep.measured_section import MeasuredSection
from explorer.report.sweep_report import FORMATS, read_sweep
from explorer.run_files import FAST
from explorer.store.ingest import ingest
from tests.builders import run_record, write_failure, write_plan, write_run, write_sweep
from tests.store.test_predicted import imported

HOSTILE = "</script><script>alert(1)</script> \"' #eval(1) $x$ @ref \\ | =1+1 {{ 1 }} שלום \x01" + "w" * 10_000


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One run of a recipe with a hostile name, and a specification with the same."""
    runs = tmp_path_factory.mktemp("hostile")
    record = replace(run_record(), recipe=HOSTILE, baseline=HOSTILE, tuning=None)
    write_run(runs, record, metrics={"accuracy": 0.9, "nll": 0.5})
    write_plan(runs, [record], spec={"name": HOSTILE})
    ingest(runs)
    content = read_sweep(runs, "digits")
    return {format: write(content) for format, write in FORMATS.items()}


@pytest.mark.slow
def test_a_hostile_name_is_there_and_does_nothing(hostile: dict[str, bytes]) -> None:
    page, text = hostile["html"].decode(), hostile["md"].decode()
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page and "alert(1)</script>" not in page
    assert page.count("<script") == page.count("</script>")
    prose = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
    assert not re.search(r"(?<!\\)<script", prose) and "\\<script\\>alert(1)" in prose
    assert HOSTILE[-10_000:] in page and HOSTILE[-10_000:] in text
    assert json.loads(hostile["json"])["sections"][0]["recipes"][0]["label"] == HOSTILE
    words = "".join("".join(each.extract_text().split()) for each in pypdf.PdfReader(io.BytesIO(hostile["pdf"])).pages)
    assert "</script><script>alert(1)</script>" in words and "#eval(1)$x$@ref" in words


def test_a_report_of_one_run_lists_unknowns(hostile: dict[str, bytes]) -> None:
    text = hostile["md"].decode()
    assert "### Unknowns" in text
    for words in ("no price for", "there is only one seed", "no search for its settings"):
        assert words in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "gives_up"),
    [
        ({"train": {"deterministic": "fast"}}, True),
        ({"recipes": {"baseline": [], "fast": {"train": {"deterministic": "fast"}}}}, True),
        ({"train": {"deterministic": "strict"}, "recipes": {"baseline": []}}, False),
        ({"name": "digits"}, False),
    ],
)
def test_what_the_runs_of_a_sweep_give_up_is_among_its_facts(spec: dict, gives_up: bool, tmp_path: Path) -> None:
    record = run_record()
    write_run(tmp_path, record)
    write_plan(tmp_path, [record], spec=spec)
    ingest(tmp_path)
    facts = read_sweep(tmp_path, "digits").of(MeasuredSection).facts
    assert facts.get("Gives up") == (FAST if gives_up else None)


def test_failed_runs_only_is_a_report_of_failures(tmp_path: Path) -> None:
    for seed in range(2):
        write_failure(tmp_path, run_record(seed=seed), message="<b>out of memory</b>")
    ingest(tmp_path)
    content = read_sweep(tmp_path, "digits")
    page, text = FORMATS["html"](content).decode(), FORMATS["md"](content).decode()
    assert "No run has finished (2 failed)" in page and "No run has finished (2 failed)" in text
    assert page.count("&lt;b&gt;out of memory") == 2 and "<b>out" not in page
    assert FORMATS["pdf"](content).startswith(b"%PDF-")


@pytest.mark.slow
def test_a_recipe_that_was_not_run_is_a_negative_result(tmp_path: Path) -> None:
    qualities = {"baseline": {1.0: (0.8, 0.81)}, "fast": {1.0: (0.9, 0.91)}}
    planned = write_sweep(tmp_path, qualities, step_seconds={"fast": 0.02})
    write_plan(tmp_path, planned, not_run=[{"name": "blurpool+x", "reason": "blurpool found nothing to replace"}])
    ingest(tmp_path)
    text = FORMATS["md"](read_sweep(tmp_path, "digits")).decode()
    assert "| blurpool+x | not run | blurpool found nothing to replace | digits |" in text


def test_a_prediction_is_no_finished_run(tmp_path: Path) -> None:
    record = run_record()
    write_run(tmp_path, record)
    imported(tmp_path, record)
    ingest(tmp_path)
    assert (
        read_sweep(tmp_path, "digits").of(MeasuredSection).facts["Times"]
        == "predicted; 1 finished run; 1 predicted for other hardware"
    )

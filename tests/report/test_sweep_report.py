import json
import re
import shutil
from pathlib import Path

import pytest

from explorer import rundir
from explorer.errors import StoreError
from explorer.page.document import Block, Heading, Paragraph
from explorer.report import sweep_report
from explorer.report.section import Section
from explorer.report.sweep.reported_sweep import ReportedSweep
from explorer.report.sweep_report import write_sweep_report
from explorer.schema import record
from explorer.store import frames
from explorer.store.published import database
from tests.composed_sample import write_composed
from tests.plugin_for_tests import clean_imports, install, write_package
from tests.sample import write_sample


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("report") / "runs"
    write_sample(directory)
    return directory


@pytest.fixture(scope="module")
def page(runs: Path) -> str:
    output = runs.parent / "report.html"
    write_sweep_report(runs, "digits", output)
    return output.read_text()


def made(runs: Path, format: str) -> str:
    output = runs.parent / f"report.{format}"
    write_sweep_report(runs, "digits", output, format=format)
    return output.read_text()


def test_the_page_answers_first(page: str) -> None:
    assert "<h1>fast reaches the baseline&#39;s accuracy 1.93x faster" in page
    assert page.index("<h1>") < page.index("<figure>")


def test_every_metric_has_its_curves_as_picture_and_as_specification(page: str) -> None:
    assert re.findall(r'<h2 id="section-\d">(\w+)', page) == ["accuracy", "nll"]
    names = ["curves-1", "curves-2", "learning-loss", "steps"]
    assert re.findall(r'<div id="chart-([\w-]+)', page) == re.findall(r'id="data-([\w-]+)', page) == names
    assert page.count("<figure><div") == len(re.findall(r"<figure><div[^>]*><svg", page)) == 4
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', page, flags=re.DOTALL):
        assert json.loads(data)["width"] == "container"


def test_where_the_time_of_a_step_goes(page: str, runs: Path) -> None:
    """A bar for every recipe, and for every phase of one whose steps change their speed."""
    drawn = re.search(r'id="data-steps">(.*?)</script>', page, flags=re.DOTALL)
    assert drawn
    (rows,) = json.loads(drawn[1])["datasets"].values()
    profiles = frames.profiles(database(runs), sweep="digits")
    assert len({row["recipe"] for row in rows}) == len(profiles)
    assert sum(row["time"] for row in rows) == pytest.approx(
        1000 * sum(sum(split.values()) for split in profiles["split"])
    )


def test_the_page_asks_for_nothing_outside_itself(page: str) -> None:
    outside = re.compile(r"""(?:src|href|action)\s*=\s*["'](?!\#)|@import|url\((?!\#)""")
    own = page.replace(re.search(r"<script>(.{100000,}?)</script>", page, flags=re.DOTALL)[1], "")  # pyright: ignore
    assert not outside.search(re.sub(r'xlink:href="#', "", own))
    assert "default-src 'none'" in own
    assert outside.search('<img src="https://example.org/x.png">') and outside.search("url(x)")  # it can fail


def test_names_inside_the_pictures_are_unique_on_the_page(page: str) -> None:
    found = re.findall(r'id="([^"]*clip[^"]*)"', page)
    assert found and len(found) == len(set(found))


def test_it_says_how_it_was_measured(page: str) -> None:
    for words in (
        "45 of 45 runs match",
        "AMD EPYC 7B13, 1 thread",
        "tuned, according to",
        "no price for AMD EPYC",
    ):
        assert words in page


@pytest.mark.slow
def test_the_specification_is_kept_with_the_report(runs: Path, page: str, tmp_path: Path) -> None:
    assert "plan is not kept" in page
    copy = tmp_path / "runs"
    shutil.copytree(runs, copy)
    rundir.write_json(copy / "digits" / rundir.SWEEP, {"name": "digits", "spec": {"name": "digits"}, "runs": []})
    page = made(copy, "html")
    assert '<pre tabindex="0">name: digits' in page
    assert "explorer sweep run digits.yaml" in page


@pytest.mark.slow
def test_a_run_that_was_changed_is_named(runs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "runs"
    shutil.copytree(runs, copy)
    changed = sorted((copy / "digits").glob("resnet8-*"))[0]
    with (changed / "metrics.jsonl").open("a") as file:
        file.write("\n")
    document = json.loads(made(copy, "json"))
    assert not document["integrity"]["sound"]
    assert document["integrity"]["summary"].startswith("44 of 45 runs match")
    assert changed.name in document["integrity"]["findings"][0]
    assert changed.name in made(copy, "md")


@pytest.mark.slow
def test_markdown_and_json_say_the_same(runs: Path) -> None:
    document = json.loads(made(runs, "json"))
    markdown = made(runs, "md")
    fast = document["sections"][0]["equal_quality"][0]
    result = fast["result"]
    assert result["recipe"] == "fast" and result["outcome"] == "reached" and fast["claims"]
    said = "faster than the baseline; confirm on fresh seeds"
    assert f"| **fast ({said})** | **1.66 s (no price)** |" in markdown and f"{1 / result['ratio']:.2f}x" in markdown
    assert document["answer"][1:] in markdown


def test_bad_input_is_one_clear_error(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unknown sweep 'digit'; did you mean 'digits'"):
        write_sweep_report(runs, "digit", tmp_path / "x.html")
    with pytest.raises(StoreError, match="unknown format 'htm'; did you mean 'html'"):
        write_sweep_report(runs, "digits", tmp_path / "x.html", format="htm")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def composed_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    runs = tmp_path_factory.mktemp("composed") / "runs"
    write_composed(runs)
    reports = {}
    for kind in ("html", "md", "json"):
        write_sweep_report(runs, "composed", runs / f"report.{kind}", format=kind)
        reports[kind] = (runs / f"report.{kind}").read_text(encoding="utf-8")
    return reports


@pytest.mark.slow
def test_how_methods_compose(composed_reports: dict[str, str]) -> None:
    (found,) = json.loads(composed_reports["json"])["composition"].values()
    fast = next(recipe for recipe in found["recipes"] if recipe["label"] == "fast")
    assert fast["predicted_speedup"] == pytest.approx(fast["speedup"] * fast["of_predicted_time_value"])
    assert "## How methods compose (budget 1 \N{MIDDLE DOT} AMD EPYC 7B13, 1 thread)" in composed_reports["md"]
    page = composed_reports["html"]
    assert 'id="chart-pairs-1"' in page and 'id="chart-way-1"' in page
    for words in ("From the baseline to fast", "both shorten forward and backward", "unknown was not run on its own"):
        assert words in page


@pytest.mark.slow
def test_a_sweep_that_composes_nothing_has_no_such_section(runs: Path, page: str) -> None:
    assert json.loads(made(runs, "json"))["composition"] == {}
    assert "How methods compose" not in page and "How methods compose" not in made(runs, "md")


@record
class WeatherRecord:
    """A section's part of the JSON document."""

    weather: str


class WeatherSection(Section[ReportedSweep, WeatherRecord]):
    """A section of a new file."""

    record = WeatherRecord

    def gather(self, subject: ReportedSweep) -> WeatherRecord:
        return WeatherRecord(weather=f"fine in {len(subject.metrics)} metrics")

    def blocks(self, record: WeatherRecord, subject: ReportedSweep) -> list[Block]:
        return [Heading(2, "Weather", "weather"), Paragraph(f"It was {record.weather}.")]


def test_a_section_is_added_by_one_file_and_one_line(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = json.loads(made(runs, "json"))
    monkeypatch.setattr(sweep_report, "SECTIONS", (*sweep_report.SECTIONS, WeatherSection()))
    after, text = json.loads(made(runs, "json")), made(runs, "md")
    assert after == before | {"made": after["made"], "weather": "fine in 2 metrics"}
    assert "## Weather" in text and "It was fine in 2 metrics." in text


@pytest.mark.slow
def test_a_section_of_another_package_is_on_the_page(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The JSON document is as published; an offer that is broken is one line of warning."""
    before = json.loads(made(runs, "json"))
    write_package(tmp_path, "damping")
    points = "power = damping.power:PowerSection\nlost = damping.power:Lost\n"
    install(tmp_path, "damping", f"[explorer.report_sections]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    with clean_imports("damping"):
        assert "The machine drew 123 watts." in made(runs, "md")
        assert before.keys() == json.loads(made(runs, "json")).keys()
    assert "report section 'lost' of damping 1.2.3 cannot be used: damping.power:Lost" in caplog.text

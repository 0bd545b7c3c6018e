"""The governance report of a run: every figure leads to the ledger, and nothing is claimed beyond it."""

import json
import re
import shutil
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from explorer import rundir
from explorer.deletion.erase import erase, of_classes
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Access, Genesis, Parent, Profile
from explorer.errors import RunError, StoreError
from explorer.ledger.storage import LedgerDirectory, blob_path
from explorer.merkle import leaf_hash
from explorer.page.document import Block, Heading, Paragraph, Span
from explorer.page.html import render_html
from explorer.page.markdown import render_markdown
from explorer.page.pdf import source
from explorer.project import Project, runs_of
from explorer.report import report_schemas, run_report
from explorer.report.run.class_lines import UNESTABLISHED, parts
from explorer.report.run.head_section import LIMITS, _rounded
from explorer.report.run.references import MAX_LISTED, Reference, list_entries
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run.run_croissant import as_croissant
from explorer.report.run.shares_section import share_words
from explorer.report.run_report import FORMATS, as_json, read_run, run_page, write_run_report
from explorer.report.section import Section
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import json_schema, record
from tests.audit.governed_run import sign_again
from tests.cli.command import explorer
from tests.governed_sample import LAYERS, SIMULATED, STEPS, TRAINER, Sample, write_governed_run
from tests.provenance.people import NOW, private, public
from tests.provenance.tables import DESCRIPTION

EMPTY = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A governed run. Tests read it and leave it as it is."""
    return write_governed_run(tmp_path_factory.mktemp("report") / "runs")


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "runs" / "single" / run.name))


def trust_of(run: Path) -> Path:
    return run / rundir.GOVERNANCE / "trust.json"


def written(run: Path, *, format: str = "html", trust: Path | None = None) -> str:
    page = run.parents[1] / f"report.{format}"
    write_run_report(run, page, trust=trust, format=format)
    return page.read_text()


def document(run: Path, *, trust: Path | None = None) -> dict[str, Any]:
    return json.loads(written(run, format="json", trust=trust))


@pytest.fixture(scope="module")
def page(run: Path) -> str:
    return written(run, trust=trust_of(run))


@pytest.mark.slow
def test_the_page_begins_with_what_trained_what_and_the_verdict(page: str) -> None:
    assert re.search(r"<h1>What moved this model: open/apache \d+%, .*; denied everywhere: withheld\.</h1>", page)
    assert page.index("<h1>") < page.index("Verified") < page.index("The share of each class")
    assert "Simulated provenance" not in page
    for section in (
        "Who vouched",
        "Policy and decisions",
        "Entropy profile",
        "Deletion",
        "Integrity",
        "check and repeat it",
    ):
        assert section in page
    assert all(str(escape(words)) in page for words in LIMITS)


def test_every_citation_leads_to_an_entry_with_its_hash(page: str, run: Path) -> None:
    cited = re.findall(r'<a href="#entry-(\d+)">entr(?:y|ies) (\d+)', page)
    assert len(cited) > 15 and all(target == first for target, first in cited)
    rows = dict(re.findall(r'<tr id="entry-(\d+)">.*?<code>([0-9a-f]{64})</code>', page))
    assert {target for target, _ in cited} <= set(rows)
    leaves = list(LedgerDirectory(run / rundir.LEDGER).entries())
    assert rows == {index: leaf_hash(leaves[int(index)]).hex() for index in rows}


def test_shares_of_a_band_add_up_and_denied_is_not_zero_percent(run: Path) -> None:
    lines = document(run)["classes"]
    for band in lines[0]["bands"]:
        assert sum(line["bands"][band] or 0 for line in lines) == pytest.approx(1)
    assert sum(line["share"] or 0 for line in lines) == pytest.approx(1)
    for part in range(4):
        assert sum(line["over_time"][part] or 0 for line in lines) == pytest.approx(1)
    negative = "A negative share: the class's gradients pointed against the sum of all, so the other classes' shares"
    assert negative in written(run, format="md")
    bsd = next(line for line in lines if line["path"] == "open/bsd")
    assert bsd["denied"] == ["input quarter", "second quarter", "sealed regions"]
    assert bsd["over_time"][0] is None and bsd["over_time"][3] > bsd["share"]  # admitted late
    assert (bsd["examples"], bsd["tagged"], bsd["first_admitted"]) == (312, 34, 16)


def test_a_training_is_divided_into_equal_parts() -> None:
    assert parts(10) == (range(0, 3), range(3, 5), range(5, 8), range(8, 10))
    assert parts(2) == (range(0, 1), range(1, 2)) and parts(0) == ()


def test_a_small_share_does_not_look_like_none() -> None:
    assert (share_words(0.0002), share_words(-0.0002), share_words(0.0), share_words(0.25), share_words(None)) == (
        "below 0.1%",
        "below 0.1%",
        "0.0%",
        "25.0%",
        "-",
    )


def test_a_class_is_deletable_only_as_far_as_the_structure_allows(run: Path) -> None:
    lines = {line["path"]: line["deletable"] for line in document(run, trust=trust_of(run))["classes"]}
    assert lines["open/apache"] == {
        "level": "G3",
        "words": "reached shared layers: exact only by training again without it, from the start",
    }
    assert "from a state before step 16" in lines["open/bsd"]["words"]
    assert lines["personal/customer"]["level"] == lines["withheld"]["level"] == "G2"


@pytest.mark.slow
def test_a_record_that_is_contradicted_establishes_nothing(copy: Path) -> None:
    for bundle in (copy / rundir.LEDGER / "tile" / "entries").rglob("*.p/*"):
        bundle.write_bytes(bundle.read_bytes().replace(b'"examples":[9,6,8,5,3]', b'"examples":[9,6,8,5,4]', 1))
    found = document(copy, trust=trust_of(copy))
    assert found["integrity"]["verdict"] == "broken" and found["integrity"]["findings"]
    assert {line["deletable"]["words"] for line in found["classes"]} == {UNESTABLISHED.words}
    assert {line["deletable"]["level"] for line in found["classes"]} == {None}
    page = written(copy, trust=trust_of(copy))
    assert "Broken" in page and "Verified" not in page and "does not hold" in page


@pytest.mark.slow
def test_a_changed_spool_is_reported_with_the_shares(copy: Path, run: Path) -> None:
    """The second segment's numbers replace the first one's: the same columns, other sums."""
    first, second, *_ = sorted((copy / rundir.CONTRIBUTIONS).iterdir())
    assert document(copy)["integrity"]["sums_agree"]
    shutil.copy(second, first)
    assert not document(copy)["integrity"]["sums_agree"]
    assert re.search(r'x-warn">Shares are summed.*NOT what the ledger says', written(copy))


def test_without_trust_nothing_is_verified(run: Path) -> None:
    found = document(run)["integrity"]
    assert found["verdict"] == "unchecked" and "No trust file given" in found["sentences"][1]


def test_documents_that_a_stranger_signed_are_not_trusted(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "trust.json"
    governance = public("example.com/data-governance").public_key
    other.write_text(trust_of(run).read_text().replace(governance, public("somebody else").public_key))
    found = document(run, trust=other)
    assert "example.com/data-governance" in found["not_vouched"] or "nobody" in found["not_vouched"]
    assert found["vouchers"] == [] and found["policy"] is None


@pytest.mark.slow
def test_the_report_names_what_a_run_starts_from(copy: Path) -> None:
    assert document(copy)["facts"]["Starts from"] == "nothing that was trained before"
    state = LedgerState(origin="example.com/base", size=1, root="0" * 64)
    model = Parent(kind="model", ledger=state, model="1" * 64, attestation="2" * 64, admitted={"open": write_float(1)})
    deleted = replace(model, kind="deletion", model=None, attestation=None, admitted={})
    for parent, words in (
        (model, "the model of example.com/base, of which it admits open 1"),
        (deleted, "example.com/base, by a deletion"),
    ):
        sign_again(copy, lambda _, e, p=parent: replace(e, parents=(p,)) if isinstance(e, Genesis) else e)
        assert document(copy)["facts"]["Starts from"] == words


def test_the_report_names_signers_and_counts_their_tags(page: str, run: Path) -> None:
    assert "open/mit: 33 records" in page
    found = document(run)["vouchers"]
    assert [line["what"] for line in found] == ["taxonomy", "policy", "tags"]
    assert found[1]["signed_by"][0].startswith("example.com/model-risk (model-risk; key ")
    sample = Sample()
    assert [line["digest"] for line in found[:2]] == [sample.taxonomy.digest, sample.policy.digest]


def test_the_policy_is_shown_in_words_and_as_weights_in_force(page: str) -> None:
    assert "<li>open/bsd; depth [0.5, 1]; progress [0.3333333333333333, 1]: weight 1</li>" in page
    assert "<li>customer: sealed for personal/customer: adapters of rank 4 on blocks.2.mlp.*</li>" in page
    assert "Weights in force, steps 0 to 15" in page and "Weights in force, steps 16 to 47" in page
    assert "0.5~" in page


def test_the_page_loads_nothing_and_runs_no_script(page: str) -> None:
    outside = re.compile(r"""(?:src|href|action)\s*=\s*["'](?!\#)|@import|url\((?!\#)|<script""")
    assert not outside.search(page)
    assert "default-src 'none'" in page and "script-src" not in page
    assert outside.search('<img src="https://example.org/x.png">') and outside.search("<script>")  # it can fail


def test_ids_in_pictures_are_unique_on_the_page(page: str) -> None:
    found = re.findall(r'\bid="([^"]*)"', page)
    assert len(found) == len(set(found)) > 50
    pictures = re.findall(r'<figure><div id="chart-([a-z-]+)" class="x-chart"><svg role="img" aria-label="[^"]+"', page)
    assert pictures == ["heat", "time", "told-apart", "chi", "entropy"]


@pytest.mark.slow
def test_simulated_provenance_comes_before_everything(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path / "runs", sample=Sample(classes=SIMULATED))
    page = written(run)
    assert page.index("(simulated provenance)</title>") < page.index("(simulated provenance)</p>") < page.index("<h1>")
    assert page.index('x-warn">Simulated provenance: this data has no real sources') < page.index("The share of each")
    assert document(run)["simulated_provenance"]


def test_hostile_names_cannot_leave_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the names of layers and in the description of the dataset, in every format."""
    hostile = "</style><script>alert(1)</script>"
    texts = {
        "title": f"{hostile} | [x](javascript:1) `#eval(1)` *",
        "description": "x" * 2_000,
        "licence": "=HYPERLINK(1)",
        "intended_use": "left \u05d0\u05d1 right",
        "method": '"; </script> $1$ #import',
    }
    monkeypatch.setattr("tests.governed_sample.DESCRIPTION", replace(DESCRIPTION, **texts))
    run = write_governed_run(tmp_path / "runs", sample=Sample(layers=(*LAYERS[:-1], hostile)))
    content = read_run(run, trust=trust_of(run), now=NOW)
    page = render_html(run_page(content))
    assert "&lt;/style&gt;&lt;script&gt;alert(1)" in page
    assert "<script" not in page and page.count("<style") == page.count("</style>")
    text = render_markdown(run_page(content))
    assert "<script" not in text.replace("\\<script", "") and "\\[x\\](javascript:1)" in text
    with source(run_page(content)) as template:  # what Typst is given: data, and its own template
        assert template.read_text() == files("explorer.page").joinpath("page.typ").read_text()
        assert json.dumps(texts["method"])[1:-1] in (template.parent / "page.json").read_text()
    assert json.loads(as_json(content))["dataset"]["licence"] == texts["licence"]
    assert json.loads(as_croissant(content))["name"] == texts["title"]


def test_the_report_is_written_in_every_format(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for renderer in ("html", "pdf"):  # drawing takes its time, and is another test's
        monkeypatch.setattr(f"explorer.page.{renderer}.svg", lambda *_: EMPTY)
    content = read_run(run, trust=trust_of(run), now=NOW)
    made = {format: make(content) for format, make in FORMATS.items()}
    assert set(made) == {"croissant", "html", "json", "md", "pdf"}
    assert made["pdf"].startswith(b"%PDF-") and made["md"].startswith(b"# Governance report of the run ")
    for text in (made["html"].decode(), made["md"].decode().replace("\\", "")):
        for words in ("What regulators ask", "Article 10(2)(b)", "GOVERN 1.2", "not recorded", "no legal advice"):
            assert words in text
        assert "not verified against the official text" in text and "answered from the record" in text.lower()


def test_an_unfinished_run_has_no_end_and_says_so(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path / "runs", steps=20)
    found = document(run)
    assert found["metrics"] == {"values": {}, "reference": None}
    assert "unfinished" in found["facts"]["Steps"]


def test_a_run_that_has_done_no_step_has_no_report(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path / "runs", steps=0)
    with pytest.raises(RunError, match="no step is on record yet"):
        write_run_report(run, tmp_path / "x.html")


@pytest.mark.slow
def test_missing_numbers_are_not_called_unmeasured(copy: Path) -> None:
    """A copy without the files next to the ledger, and without blobs of numbers, still shows what the entries say."""
    before = document(copy)
    for name in (rundir.ENTROPY, rundir.CONTRIBUTIONS, rundir.PRIVATE):
        shutil.rmtree(copy / name)
    from_ledger = document(copy)
    assert from_ledger["answer"] == before["answer"] and "no spool to compare" in from_ledger["integrity"]["sums"]
    for line, was in zip(from_ledger["classes"], before["classes"], strict=True):
        assert line["share"] == (was["share"] and pytest.approx(was["share"], rel=1e-5))
    ledger = RunLedger(copy)
    profiles = [each.entry.blobs for each in ledger.read(ledger.outline.profiles, Profile)]
    for blobs in (*profiles, *(segment.state.entry.blobs for segment in ledger.segments())):
        for reference in blobs.values():
            (ledger.ledger.path / blob_path(reference.sha256)).unlink(missing_ok=True)
    shutil.rmtree(copy / rundir.GOVERNANCE)
    (copy / rundir.RUN).unlink()
    page = written(copy)
    assert "their numbers are not next to the ledger" in page and "the recipe measures none" not in page
    assert "<h1>What moved this model was measured, but the numbers are not next to the ledger; denied" in page
    assert "The documents of this run are not trusted" in page
    assert page.count(UNESTABLISHED.words) == 5


def test_a_long_list_keeps_the_ends_of_cited_ranges(run: Path) -> None:
    ledger = RunLedger(run)
    listed, left = list_entries(ledger, [Reference(first=2, last=59)])
    assert (len(listed), left) == (58, 0)
    many = [Reference(first=0, last=60)] * 3
    assert len(list_entries(ledger, many)[0]) == 61 <= MAX_LISTED


def test_the_content_rests_on_all_steps(run: Path) -> None:
    content = read_run(run, trust=trust_of(run), now=NOW)
    entries = content.opened.recorded.entries
    assert len(entries) == STEPS
    assert (content.steps.first, content.steps.last) == (int(entries[0]), 59)
    assert content.quarantined == sum(32 - sum(Sample().examples(step)) for step in range(STEPS))


@pytest.mark.slow
def test_the_command_takes_a_run_by_directory_and_by_id(run: Path, tmp_path: Path) -> None:
    runs = run.parents[1]
    out = tmp_path / "x.json"
    for name in (run, run.name, f"single/{run.name}"):
        done = explorer("report", name, "--runs", runs, "--format", "json", "--out", out, "--trust", trust_of(run))
        assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
        assert json.loads(out.read_text())["integrity"]["verdict"] == "verified"
        out.unlink()


def test_bad_input_is_one_clear_error(run: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unknown format 'doc'; known: croissant, html, json, md, pdf"):
        write_run_report(run, tmp_path / "x.doc", format="doc")
    with pytest.raises(RunError, match="no governed run"):
        write_run_report(tmp_path, tmp_path / "x.html")
    done = explorer("report", "single", "--runs", run.parents[1], "--trust", trust_of(run))
    assert done.returncode == 1 and "--trust is for the report of a governed run" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_headline_never_rounds_a_share_to_zero() -> None:
    assert [_rounded(share) for share in (0.27, 0.01, 0.002, -0.004, 0.0)] == [
        "27%",
        "1%",
        "under 1%",
        "under 1%",
        "0%",
    ]


def test_a_run_whose_numbers_were_erased_says_so_first(copy: Path) -> None:
    ledger = RunLedger(copy)
    with Project.open(runs_of(copy), key=private(TRAINER), name=TRAINER) as project:
        erase(ledger, of_classes(ledger, ("open/mit",)), project=project)
    page = written(copy, trust=trust_of(copy))
    assert "<h1>What moved this model was measured, but some of the numbers were erased; denied everywhere" in page
    assert "by entry 0 of the project" in page and "their content is lost" in page
    assert "Whether the run conforms cannot be told: see Integrity." in page
    assert "Not checked: numbers/open/mit: erased: entry 0 of the project" in page


@pytest.mark.parametrize("signer", [TRAINER, "example.com/stranger"])
def test_the_head_says_when_the_projects_ledger_is_not_verified(copy: Path, signer: str) -> None:
    state = LedgerState(origin="example.com/other", size=1, root="0" * 64)
    with Project.open(runs_of(copy), key=private(signer), name=signer) as project:
        project.append(Access(ledger=state, grant="b" * 64, query="c" * 64, blobs={}))
    page = written(copy, trust=trust_of(copy))
    head = page[: page.index("The share of each class")]
    doubt = str(escape("The project's ledger, which records deletions and reads, is not verified: "))
    assert "Verified." in head and (doubt in head) == (signer != TRAINER)
    assert doubt not in written(copy), "without a trust file nothing is checked, and nothing fails"


@record
class WeatherRecord:
    """A section's part of the JSON document."""

    weather: str
    weather_reference: Reference


class WeatherSection(Section[ReportedRun, WeatherRecord]):
    """A section of a new file."""

    record = WeatherRecord

    def gather(self, subject: ReportedRun) -> WeatherRecord:
        return WeatherRecord(
            weather=f"fine, {len(subject.classes)} classes", weather_reference=Reference(first=3, last=4)
        )

    def blocks(self, record: WeatherRecord, subject: ReportedRun) -> list[Block]:
        said = (Span(f"It was {record.weather} "), subject.cite(record.weather_reference))
        return [Heading(2, "Weather", "weather"), Paragraph(said)]


def test_a_section_is_added_by_one_file_and_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = document(run)
    monkeypatch.setattr(run_report, "SECTIONS", (*run_report.SECTIONS, WeatherSection()))
    after, text, page = document(run), written(run, format="md"), written(run)
    assert after == before | {
        "made": after["made"],
        "weather": "fine, 5 classes",
        "weather_reference": {"first": 3, "last": 4, "of": "run"},
        "entries": after["entries"],
    }
    assert text.index("## What regulators ask") < text.index("## Weather") < text.index("## What this record does not")
    assert "It was fine, 5 classes" in text and '<a href="#entry-3">entries 3-4</a>' in page
    schema = json.loads(report_schemas.content_of("run_report.v2"))
    assert "weather" not in schema["properties"]  # what is published is published
    assert "weather" in json_schema(run_report.report_type(), name="x")["properties"]

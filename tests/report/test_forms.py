"""What regulators ask, mapped to the record: every question is there, every answer leads somewhere, none is guessed."""

import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.deletion.deletion_plan import keep_request
from explorer.deletion.finish import conclude
from explorer.entries.kinds import Genesis
from explorer.errors import ExplorerError, RunError
from explorer.ledger.storage import LedgerDirectory
from explorer.page.markdown import render_markdown
from explorer.provenance.deletion_certificate import MEANS
from explorer.provenance.trust import write_trust
from explorer.report.run import forms_section
from explorer.report.run.forms_section import (
    DIRECTORY,
    FRAMEWORKS,
    FormField,
    FormsSection,
    form_blocks,
    read_form,
    read_forms,
)
from explorer.report.run.history_section import History, HistorySection
from explorer.report.run.policy_section import PolicySection
from explorer.report.run.references import Document, Reference
from explorer.report.run.reported_run import ReportedRun
from explorer.report.run_report import as_json, read_run, run_page
from tests.audit.governed_run import TRAINER, sign_again
from tests.deletion import certified, deleted_runs
from tests.governed_sample import CLASSES, ROWS, STEPS, write_governed_run
from tests.provenance.people import EXPIRES, NOW, private
from tests.provenance.tables import DESCRIPTION

ASKED = {
    "training content": {
        *("provider", "contact", "versions", "release date", "summary version", "last update"),
        *("modalities", "size band", "content", "languages", "latest acquisition", "ongoing collection", "first use"),
        "selection rationale",
        *("public", "licensed", "other third-party private", "crawled", "user", "synthetic", "other sources"),
        *("crawlers", "crawl period", "crawled domains", "generators"),
        *("opt-outs", "illegal content", "other processing"),
    },
    "Article 10": {
        *("design choices", "collection", "origin", "original purpose"),
        *("annotation", "labelling", "cleaning", "updating", "enrichment", "aggregation", "assumptions"),
        *("availability", "quantity", "suitability", "bias examination", "bias mitigation", "gaps"),
        *("relevance", "representativeness", "errors", "context", "special categories"),
    },
    "Annex IV": {
        *("methods", "pre-trained parts", "design", "data provenance", "data scope", "data characteristics"),
        *("data obtained and selected", "data labelling", "data cleaning", "human oversight", "validation"),
        *("signed logs", "cybersecurity", "record-keeping", "retention"),
    },
    "Annex XI": {
        *("intended tasks", "acceptable use", "release and distribution", "architecture", "number of parameters"),
        *("inputs and outputs", "licence of the model", "integration", "training methodology", "design rationale"),
        *("training data of a general-purpose model", "number of data points", "compute", "training time", "energy"),
        *("evaluation", "adversarial testing", "system architecture"),
    },
    "GDPR": {
        *("receipt", "identity basis", "scope", "datasets", "shards", "checkpoints", "caches", "backups"),
        *("derived descendants", "synthetic descendants", "action and level", "evidence", "date"),
        *("recipients informed", "refusals"),
    },
    "NIST": {
        *("origin of training data", "inventory", "roles", "rights of others", "legal risks of components"),
        *("transparency and accountability", "explained", "privacy", "after deployment"),
    },
    "Not asked": {
        *("policy versions", "policy activations", "update mass", "update share", "denied", "quarantined"),
        *("entropy and chi", "out-of-loop channels", "quorum history", "replay coverage", "deletion history"),
        *("key rotations", "known limits"),
    },
}
"""What the forms ask, by a word in their names."""

UNVERIFIED = {"special categories", "record-keeping", "retention", *(ASKED["NIST"] - {"origin of training data"})}
UNVERIFIED |= ASKED["Annex XI"]


ENVIRONMENT = b'{"python": "3.12.1", "packages": {"torch": "2.12.0"}}'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A governed run whose first entry binds the recipe and the environment next to it."""
    found = write_governed_run(tmp_path_factory.mktemp("frameworks") / "runs")
    (found / rundir.ENVIRONMENT).write_bytes(ENVIRONMENT)
    recipe = digest(run_files.read(run_files.RunRecord, found / rundir.RUN).identity)
    bound = {"recipe": recipe, "environment": hashlib.sha256(ENVIRONMENT).hexdigest()}
    sign_again(found, lambda _, entry: replace(entry, **bound) if isinstance(entry, Genesis) else entry)
    return found


@pytest.fixture(scope="module")
def content(run: Path) -> ReportedRun:
    return read_run(run, trust=run / rundir.GOVERNANCE / "trust.json", now=NOW)


def answers(content: ReportedRun) -> dict[str, FormField]:
    """By name; that of a name in two frameworks is asked for under its framework's."""
    return {field.name: field for form in content.of(FormsSection).forms for field in form.fields}


def said(content: ReportedRun, name: str) -> str:
    return answers(content)[name].answer or "not recorded"


def history_of(content: ReportedRun) -> History:
    return content.of(HistorySection).history


def test_every_question_is_asked_once() -> None:
    assert len(FRAMEWORKS) == len(ASKED)
    for word, names in ASKED.items():
        (framework,) = [each for each in FRAMEWORKS if word in each.name]
        assert Counter(field.name for field in framework.fields) == Counter(names)
        assert {field.name for field in framework.fields if not field.verified} == UNVERIFIED & names
        assert all(field.asks.endswith("?") and field.reference for field in framework.fields)
    assert sum(map(len, ASKED.values())) == sum(len(each.fields) for each in FRAMEWORKS) == 120


def test_every_answer_leads_to_entries_that_are_there_or_documents_that_the_first_one_binds(
    run: Path, content: ReportedRun
) -> None:
    leaves = list(LedgerDirectory(run / rundir.LEDGER).entries())
    bound = leaves[0].decode()
    found = [each for each in answers(content).values() if each.status != "not recorded"]
    assert len(found) > 40
    for answer in found:
        assert answer.answer and (answer.references or answer.documents)
        assert all(0 <= each.first <= each.last < len(leaves) and each.of == "run" for each in answer.references)
        assert all(f'"{each.digest}"' in bound for each in answer.documents)
    assert f'"{"0" * 64}"' not in bound  # it can fail


def test_answers_quote_what_was_written(content: ReportedRun) -> None:
    tagged = Counter((*CLASSES, "quarantine")[row % 6] for row in range(ROWS))
    public = ", ".join(
        f"{path} ({tagged[path]} tagged examples{', denied everywhere' if path == 'withheld' else ''})"
        for path in sorted(CLASSES)
    )
    assert said(content, "public") == public
    assert said(content, "licensed") == "no tagged example of this category"
    assert said(content, "collection") == f"method: {DESCRIPTION.method}; generated: 2026-01-01 to 2026-03-31"
    withheld, late = 3 * STEPS, sum(6 + step % 2 for step in range(16))
    assert said(content, "denied").endswith(f"open/bsd {late} of 312, withheld {withheld} of {withheld}")
    assert said(content, "policy activations").endswith("from step 16")
    assert "resnet8 on digits with routing, contributions" in said(content, "design choices")
    assert content.pinned.environment == {"python": "3.12.1", "packages.torch": "2.12.0"}
    assert "mean and standard deviation over all training images" in said(content, "out-of-loop channels")
    assert said(content, "validation") == "last evaluation: bits_per_byte 2.75 bits"
    assert "chi above chance" in said(content, "entropy and chi")


def test_dates_say_what_was_not_verified(content: ReportedRun) -> None:
    dates = {date.day: date for framework in FRAMEWORKS for date in framework.dates}
    assert set(dates) == {"2 August 2025", "2 August 2026", "2 December 2027", "2 August 2028"}
    assert "Annex III" in dates["2 December 2027"].what and "Annex I," in dates["2 August 2028"].what
    assert not any(date.verified for date in dates.values())
    forms = content.of(FormsSection).forms
    form = next(each for each in forms if "Annex XI" in each.name)
    shown = str(form_blocks(form, content))
    assert shown.count("not verified against the official text") == 1 + len(form.dates) + len(form.fields)
    assert "2 August 2026: powers to enforce these obligations" in shown
    told = {each.name: str(form_blocks(each, content)) for each in forms}
    without = [name for name, page in told.items() if "Titles and sections: not verified" not in page]
    assert without == ["Not asked by any of these, and on record"]  # there is no official text of it
    for framework in FRAMEWORKS:  # no date in prose, which does not say whether it was verified
        assert not re.search(r"\b\d{1,2} (August|December|June) 20\d\d", framework.says)


def test_compute_time_and_energy_are_given_as_far_as_they_are_recorded(run: Path, content: ReportedRun) -> None:
    record = run_files.read(run_files.RunRecord, run / rundir.RUN)
    assert said(content, "compute").startswith(f"{record.steps:,} steps of batch {record.batch_size:,} in fp32 on ")
    assert "none are estimated" in (answers(content)["compute"].lacks or "")
    for name in ("energy", "number of parameters", "design rationale", "adversarial testing"):
        assert answers(content)[name].status == "not recorded"
    assert answers(content)["training time"].status == "not recorded"  # the sample has no result


def result_of(run: Path, **changes: Any) -> run_files.ResultRecord:
    plain: dict[str, Any] = {"run_id": run.name, "metrics": {}, "steps": STEPS, "timed_steps": STEPS, "examples": 0}
    rest: dict[str, Any] = {"resumed": 0, "state_digest": "", "files": {}, "finished_at": "2026-11-21T12:00:00Z"}
    return run_files.ResultRecord(**{**plain, **rest, "contended": False, **changes})


@pytest.mark.slow
def test_the_training_time_comes_from_the_result_of_this_run(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "runs" / "single" / run.name))
    times = run_files.Timings(forward=60.0, backward=30.0, warmup=2.0, evaluation=3.0)
    result = result_of(run, timings=times, timed_steps=STEPS - 10, contended=True)
    run_files.write(copy / rundir.RESULT, result)
    found = read_run(copy, trust=None, now=NOW)
    assert answers(found)["training time"].status == "in part"
    assert said(found, "training time") == (
        f"1.5 min for {STEPS - 10} optimiser steps, 2 s for the first ones, 3 s for evaluation, according to "
        "result.json, while other runs shared the machine"
    )
    # An older version counted no operations and asked for no energy.
    assert "none are estimated" in (answers(found)["compute"].lacks or "")
    assert answers(found)["energy"].would_stand_in == (
        "a measurement of energy: none is made, and none is estimated from time"
    )
    run_files.write(copy / rundir.RESULT, replace(result, run_id="another"))
    assert answers(read_run(copy, trust=None, now=NOW))["training time"].status == "not recorded"
    (copy / rundir.RESULT).write_text("{")
    assert answers(read_run(copy, trust=None, now=NOW))["training time"].status == "not recorded"


@pytest.mark.slow
def test_operations_and_energy_come_from_the_result_of_this_run(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "runs" / "single" / run.name))
    result = result_of(
        run,
        timings=run_files.Timings(forward=100.0),
        flops=run_files.Flops(phases={"all": 3e12}, total=3e12 * STEPS, peak=3e11 * STEPS, peak_source="data sheet"),
        energy=run_files.Energy(joules=3.6e5, steps=STEPS // 2, source="RAPL package"),
    )
    run_files.write(copy / rundir.RESULT, result)
    found = read_run(copy, trust=None, now=NOW)
    counted = f"; {3e12 * STEPS:.4g} floating-point operations, 10.0% of the peak of its device (data sheet)"
    assert counted in said(found, "compute")
    assert answers(found)["compute"].status == answers(found)["energy"].status == "in part", "no entry binds them"
    kwh = 0.1 * STEPS / (STEPS // 2)
    assert said(found, "energy") == (
        f"{kwh:.3g} kWh for {STEPS} optimiser steps, from {STEPS // 2} that were measured (RAPL package), according to "
        "result.json"
    )
    # The negative control: a machine without a counter.
    none = "the machine has no energy counter that this process may read: no package of RAPL"
    run_files.write(copy / rundir.RESULT, replace(result, energy=run_files.Energy(joules=None, missing=none)))
    energy = answers(read_run(copy, trust=None, now=NOW))["energy"]
    assert energy.status == "not recorded" and f"Not measured: {none}" in (energy.would_stand_in or "")


def test_unrecorded_facts_are_not_answered(content: ReportedRun) -> None:
    """A person who knows the sample could answer these questions, but the record cannot."""
    for name in ("provider", "languages", "first use", "crawlers", "special categories", "update share", "receipt"):
        assert answers(content)[name].status == "not recorded"
    form = content.of(FormsSection).forms[0]
    states = Counter(each.status for each in form.fields)
    assert (
        form.coverage == f"answered from the record: {states['answered']} of 28, and {states['in part']} more in part"
    )


def test_without_its_document_an_answer_is_not_recorded_and_never_guessed(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "runs" / "single" / run.name))
    (copy / rundir.GOVERNANCE / "tags.json").unlink()
    content = read_run(copy, trust=None, now=NOW)
    before, after = answers(read_run(run, trust=None, now=NOW)), answers(content)
    rested = {
        name
        for name, each in before.items()
        if any(document.what in ("tags", "taxonomy") for document in each.documents)
    }
    assert len(rested) > 20
    assert {after[name].status for name in rested} == {"not recorded"}
    assert DESCRIPTION.title not in str([after[name].answer for name in rested])
    assert content.not_vouched and "tags.json" in content.not_vouched


def test_a_recipe_or_an_environment_that_the_first_entry_does_not_bind_answers_nothing(
    run: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "runs" / "single" / run.name))
    (copy / rundir.ENVIRONMENT).write_bytes(ENVIRONMENT.replace(b"2.12.0", b"2.13.0"))
    record = (copy / rundir.RUN).read_text()
    (copy / rundir.RUN).write_text(record.replace('"full_steps": 48', '"full_steps": 49'))
    content = read_run(copy, trust=None, now=NOW)
    assert content.pinned.record is None and content.pinned.environment is None
    assert len(content.pinned.absent) == 2 and all("first entry names" in each for each in content.pinned.absent)
    assert answers(content)["methods"].status == "not recorded"
    assert "resnet8" not in said(content, "design choices") + said(content, "design")


def test_a_run_without_a_policy_answers_nothing_about_one(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "runs" / "single" / run.name))
    sign_again(copy, lambda _, entry: replace(entry, policy=None) if isinstance(entry, Genesis) else entry)
    content = read_run(copy, trust=None, now=NOW)
    assert content.of(PolicySection).policy is None and content.not_vouched is None
    found = answers(content)
    assert found["policy versions"].status == found["human oversight"].status == "not recorded"
    assert "policy" not in said(content, "design choices")
    assert said(content, "public").startswith("open/apache")  # the tags are there all the same


def test_a_deletion_is_answered_request_by_request(tmp_path: Path) -> None:
    made = certified.replayed(tmp_path)
    for each in (made.old, made.new):
        write_trust(each / rundir.GOVERNANCE / "trust.json", certified.TRUST)
    keep_request(made.new, "from a person whose name is nowhere")
    done = conclude(
        made.old, made.new, name=TRAINER, key=private(TRAINER), trust=certified.TRUST, now=NOW, expires=EXPIRES
    )
    content = read_run(made.old, trust=made.old / rundir.GOVERNANCE / "trust.json", now=NOW)
    (line,) = history_of(content).deletions
    assert line.certificate and line.digest == done.certificate.digest and not line.is_result
    found = answers(content)
    evidence = found["evidence"]
    assert evidence.answer == f"licensed/news: certificate sha256:{done.certificate.digest}"
    assert evidence.references == (Reference(first=done.entry, last=done.entry, of="project"),)
    assert evidence.documents == (Document(what="certificate of a deletion", digest=done.certificate.digest),)
    assert said(content, "action and level").startswith(f"licensed/news: G3. {MEANS['G3']}")
    assert found["receipt"].status == "in part" and "person" not in said(content, "receipt")
    assert (found["derived descendants"].would_stand_in or "").endswith("which does not name it")
    assert found["recipients informed"].status == found["refusals"].status == "not recorded"
    (result,) = history_of(read_run(made.new, trust=None, now=NOW)).deletions
    assert result.is_result

    certificate = made.new / "certificate.json"
    certificate.rename(tmp_path / "elsewhere")
    (line,) = history_of(read_run(made.old, trust=None, now=NOW)).deletions
    assert line.certificate is None and line.digest == done.certificate.digest

    (tmp_path / "elsewhere").rename(certificate)
    (made.old.parents[1] / "_audit" / "checkpoint").write_text("nonsense")
    damaged = history_of(read_run(made.old, trust=None, now=NOW))
    assert damaged.fault and "cannot be read" in damaged.unknown
    assert [line.reference for line in damaged.deletions] == [None]  # certified, and on no record


def test_a_run_that_only_keeps_what_a_deletion_left_has_no_report(tmp_path: Path) -> None:
    old = deleted_runs.write_old(tmp_path, deleted_runs.SEALED)
    with pytest.raises(RunError, match="report on the run that the deletion continued from"):
        read_run(deleted_runs.structural(old), trust=None, now=NOW)


def test_a_run_far_from_its_project_knows_of_no_deletions(content: ReportedRun, run: Path) -> None:
    assert history_of(content).judged is None
    assert "not next to this run" in (answers(content)["evidence"].would_stand_in or "")


def test_a_question_is_added_by_lines_of_a_file(
    content: ReportedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Path(shutil.copytree(DIRECTORY, tmp_path / "forms"))
    path = copy / "2_data_governance.toml"
    asked = (
        'name = "how many"\nreference = "Article 10(9)"\nasks = "How many examples are there?"\nanswer = "quantity"\n'
    )
    path.write_text(f"{path.read_text()}\n[[fields]]\n{asked}")
    monkeypatch.setattr(forms_section, "FRAMEWORKS", read_forms(copy))
    fresh = replace(content)
    page, document = render_markdown(run_page(fresh)), json.loads(as_json(fresh))
    form = next(form for form in document["forms"] if "Article 10" in form["name"])
    assert form["fields"][-1]["name"] == "how many" and form["fields"][-1]["verified"] is False
    assert form["fields"][-1]["answer"] == answers(content)["quantity"].answer
    assert "How many examples are there?" in page and "examples are there?" not in render_markdown(run_page(content))


@pytest.mark.parametrize(
    ("line", "by", "words"),
    [
        ('answer = "quantity"', 'answer = "quantities"', "'quantity': unknown answer 'quantities'; did you mean"),
        ('nowhere = "flag"', 'nowhere = "flags"', "'special categories': unknown place 'flags'; did you mean 'flag'"),
        ('nowhere = "flag"', "", "'special categories' needs either `answer`, a function, or `nowhere`"),
        ('asks = "How was the data collected?"', "", "asks: is missing"),
        ('name = "origin"', 'name = "collection"', "'collection' is asked more than once"),
        ('of = ["method", "generated"]', 'of = ["methods"]', "unknown argument of 'described' 'methods'; did you mean"),
        ('answer = "quantity"', 'answer = "quantity"\nof = ["x"]', "'quantity' cannot be given of = \\['x'\\]"),
        ('verified = true\nasks = "Which d', 'verifed = true\nasks = "Which d', "unknown key; did you mean 'verified'"),
        ("[places]", "[places", "not TOML"),
    ],
)
def test_a_fault_in_a_form_is_named_with_its_file_and_its_question(
    tmp_path: Path, line: str, by: str, words: str
) -> None:
    text = (DIRECTORY / "2_data_governance.toml").read_text()
    assert line in text
    path = tmp_path / "form.toml"
    path.write_text(text.replace(line, by))
    with pytest.raises(ExplorerError, match=f"form.toml: .*{words}"):
        read_form(path)

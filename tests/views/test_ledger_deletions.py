"""The table of deletions beside a ledger: what each class takes, what is in the way, and no markup from outside."""

import shutil
from pathlib import Path

import pytest
from markupsafe import Markup

from explorer import rundir
from explorer.deletion.erase import erase, of_classes
from explorer.errors import LedgerError
from explorer.page.html import fragment
from explorer.project import AUDIT, Project, runs_of
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger import deletion_section
from explorer.views.ledger.deletion_section import deletion_blocks, deletions_table
from explorer.views.ledger.open_run import OpenRun, badge_words, open_run
from tests.governed_sample import CLASSES, TRAINER
from tests.provenance.people import NOW, private


def test_every_class_has_a_row(governed: Path) -> None:
    found = fragment(*deletions_table(RunLedger(governed)))
    assert all(path in found for path in CLASSES)
    assert found.count("exact by structure") == 2 and found.count("exact by replay") == 3
    assert "step 16" in found and '<td class="x-number">none' in found and "5 s<small>1 s to 30 s</small>" in found
    assert "not measured" in found


def test_what_is_in_the_way_is_said_and_escaped(governed_copy: Path) -> None:
    aside = governed_copy.with_name("<b>run")
    governed_copy.rename(aside)
    (aside / rundir.RUN).unlink()
    found = fragment(*deletions_table(RunLedger(aside)))
    assert "Not possible at the moment: " in found and "there is neither run.json" in found
    assert "<b>run" not in found and "&lt;b&gt;run" in found


def test_the_section_shows_it_or_says_why_not(governed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(run: RunLedger) -> Markup:
        raise LedgerError(f"{run.run.name}: the <b>policy</b> is another one")

    opened = open_run(governed, trust=None, now=NOW)
    assert "exact by structure" in fragment(*deletion_blocks(opened))
    monkeypatch.setattr(deletion_section, "deletions_table", damaged)
    said = fragment(*deletion_blocks(opened))
    assert 'role="alert"' in said and "the &lt;b&gt;policy&lt;/b&gt; is another one" in said
    assert "No certificate about this run" in said  # what one part cannot say hides no other


def test_what_was_erased_is_said(governed_copy: Path) -> None:
    assert "has erased none of them" in fragment(*deletion_blocks(open_run(governed_copy, trust=None, now=NOW)))
    run = RunLedger(governed_copy)
    with Project.open(runs_of(governed_copy), key=private(TRAINER), name=TRAINER) as project:
        erase(run, of_classes(run, ["open/mit"]), project=project)
    for _ in range(2):  # with the secrets of the run, and without them
        opened = open_run(governed_copy, trust=None, now=NOW)
        said = fragment(*deletion_blocks(opened))
        assert "numbers of open/mit, over several classes" in said and "entry 0 of the project&#39;s ledger" in said
        assert "erased, by entry 0 of the project's ledger: their content is lost" in sentences(opened)
        shutil.rmtree(governed_copy / rundir.PRIVATE, ignore_errors=True)


def test_what_is_gone_without_an_entry_is_said(governed_copy: Path) -> None:
    run = RunLedger(governed_copy)
    with Project.open(runs_of(governed_copy), key=private(TRAINER), name=TRAINER) as project:
        erase(run, of_classes(run, ["open/mit"]), project=project)
    shutil.rmtree(runs_of(governed_copy) / AUDIT)
    opened = open_run(governed_copy, trust=None, now=NOW)
    said = fragment(*deletion_blocks(opened))
    assert "The run does not conform" in said and "numbers of open/mit, over several classes" in said
    words = badge_words(opened.badge)
    assert words.verdict == "broken" and "missing, and no entry of the project's ledger says" in words.findings[0]
    shutil.rmtree(governed_copy / rundir.PRIVATE)
    assert "No erasure is on record" in fragment(*deletion_blocks(open_run(governed_copy, trust=None, now=NOW)))


def sentences(opened: OpenRun) -> str:
    words = badge_words(opened.badge)
    assert words.verdict == "unchecked"
    return " ".join(words.sentences)

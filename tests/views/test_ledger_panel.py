"""The ledger's notebook without a browser: what is shown for a run, for none, and for one that was tampered with."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from explorer import rundir
from explorer.audit.history import badge
from explorer.audit.shares import shares
from explorer.entries.fields import LedgerState
from explorer.entries.kinds import Genesis, Parent, Step
from explorer.errors import RunError
from explorer.ledger.storage import blob_path
from explorer.page.document import Paragraph
from explorer.project import AUDIT
from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger.drilldown import entry_lines
from explorer.views.ledger.ledger_panel import Ledger, ledger
from explorer.views.ledger.open_run import badge_words, find_run, read_all_steps
from explorer.views.ledger.pane import ReadSection
from explorer.views.ledger.training_section import TrainingSection, largest_cell
from tests.audit.governed_run import sign_again
from tests.deletion import certified
from tests.deletion.deleted_runs import FIRST
from tests.deletion.deleted_runs import STEPS as DELETED_AFTER
from tests.governed_sample import LAYERS, SIMULATED, STEPS, Sample, write_governed_run
from tests.provenance import people
from tests.provenance.people import NOW
from tests.views.test_explore import texts


@pytest.fixture(scope="module")
def view(governed_runs: Path) -> Ledger:
    return ledger(governed_runs)


def training(view: Ledger) -> TrainingSection:
    section = view.sections["training"]
    assert isinstance(section, TrainingSection)
    return section


def click(view: Ledger, layer: str, class_: str) -> None:
    """What the browser sends after a click on a cell of the heat map."""
    store = [{"unit": "cells", "fields": [], "values": [layer, class_]}]
    value = {"vlPoint": {"or": [{"row": layer, "column": class_}]}}
    training(view).heat.chart._vl_selections = {"cell": {"value": value, "store": store}}


def test_it_opens_on_a_run_and_says_that_nobody_was_asked(view: Ledger) -> None:
    shown = texts(view)
    assert "resnet8-digits-governed-ssr1-s0" in shown
    assert "? Not verified" in shown.replace("</span>", "") and "\u2713" not in shown
    assert "Simulated provenance" not in shown
    assert all(
        pane.drawn
        for pane in (training(view).heat, training(view).depth, training(view).direction, training(view).time)
    )


def test_a_section_is_computed_when_it_is_opened_and_again_for_another_reader(
    governed_runs: Path, governed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    view = ledger(governed_runs)
    for name in ("lineage", "deletion", "access"):
        section = view.sections[name]
        assert isinstance(section, ReadSection) and section.shown.value == ""
        monkeypatch.setattr(section, "blocks", lambda opened, name=name: (asked.append(name), [Paragraph(name)])[1])
    view.section.value = "lineage"
    assert asked == ["lineage"] and texts(view).endswith("<p>lineage</p>\n")
    view.section.value = "access"
    view.section.value = "lineage"
    assert asked == ["lineage", "access"]
    view.controls.trust.value = str(governed / rundir.GOVERNANCE / "trust.json")
    assert asked == ["lineage", "access", "lineage"]  # the one that is open; the other when it is opened again
    view.section.value = "access"
    assert asked[3:] == ["access"] and view.opened is not None and view.opened.trust is not None


def test_every_section_shows_a_run_in_progress_and_a_damaged_project(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, steps=20)
    view = ledger(tmp_path)
    for name, words in (
        ("compare", "no other governed run"),
        ("lineage", "continues no other run"),
        ("deletion", "No certificate about this run"),
        ("access", "There is no project&#39;s ledger"),
    ):
        view.section.value = name
        assert words in texts(view)
    (tmp_path / AUDIT).mkdir()
    (tmp_path / AUDIT / "checkpoint").write_text("<b>nonsense")
    view = ledger(tmp_path, run=run.name)
    for name in ("lineage", "deletion", "access"):
        view.section.value = name
        assert 'role="alert"' in texts(view) and AUDIT in texts(view) and "<b>" not in texts(view)


@pytest.mark.slow
def test_a_trust_file_makes_it_verified_and_another_ones_does_not(
    governed_runs: Path, governed: Path, tmp_path: Path
) -> None:
    own = governed / rundir.GOVERNANCE / "trust.json"
    assert "Verified" in texts(ledger(governed_runs, trust=own))
    other = tmp_path / "trust.json"
    other.write_text(
        own.read_text().replace(people.public("example.com/trainer").public_key, people.public("x").public_key)
    )
    shown = texts(ledger(governed_runs, trust=other))
    assert "Broken" in shown and "Verified" not in shown


def test_what_a_run_goes_on_from_stands_in_its_head(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    assert " · continues" not in texts(ledger(tmp_path))
    state = LedgerState(origin="example.com/base", size=1, root="0" * 64)
    parent = Parent(kind="deletion", ledger=state, model=None, attestation=None, admitted={})
    sign_again(run, lambda _, e: replace(e, parents=(parent,)) if isinstance(e, Genesis) else e)
    assert "continues example.com/base, by a deletion" in texts(ledger(tmp_path))


def test_a_click_leads_to_the_entries(view: Ledger) -> None:
    click(view, "norm", "open/bsd")
    shown = str(training(view).entries.value)
    assert "Entries behind open/bsd in norm, steps 0 to 47" in shown
    assert "Proof of entry 20" in shown and "c2sp.org/tlog-proof@v1" in shown
    assert "explorer ledger prove" in shown and "And 24 more entries" in shown
    assert (training(view).controls.layer.value, training(view).controls.class_.value) == ("norm", "open/bsd")
    assert "norm, whole segments: steps 0 to 47" in str(training(view).direction._text.value)
    training(view).controls.class_.value = "withheld"
    assert "it was denied to every layer" in str(training(view).entries.value)


def test_a_stretch_that_ends_before_it_begins_is_turned_round(view: Ledger) -> None:
    fields = training(view).controls
    fields.first.value = 16
    fields.last.value = 3
    assert fields.steps == range(3, 17)
    assert "steps 3 to 16" in str(training(view).entries.value)
    fields.first.value, fields.last.value = 0, STEPS - 1
    assert fields.steps == range(STEPS)


@pytest.mark.slow
def test_another_trust_file_leaves_what_is_looked_at(governed_runs: Path, governed: Path) -> None:
    view = ledger(governed_runs)
    training(view).controls.first.value, training(view).controls.last.value = 16, 20
    click(view, "norm", "open/bsd")
    view.controls.trust.value = str(governed / rundir.GOVERNANCE / "trust.json")
    assert "Verified" in texts(view)
    assert "Entries behind open/bsd in norm, steps 16 to 20" in str(training(view).entries.value)
    view.controls.trust.value = "nowhere.json"
    assert "cannot read nowhere.json" in texts(view) and view.opened is None


def test_commitments_open_and_a_changed_secret_does_not(governed_copy: Path) -> None:
    def statuses() -> set[str]:
        run = RunLedger(governed_copy)
        lines, _ = entry_lines(run, read_all_steps(run), layer="norm", class_="open/mit", steps=range(STEPS))
        return {line.commitment for line in lines}

    assert statuses() == {"opens"}
    path = governed_copy / rundir.SECRETS
    content = bytearray(path.read_bytes())
    content[32 + 2 * 32] ^= 1  # the third class's secret
    path.write_bytes(content)
    assert statuses() == {"does not open"}
    path.unlink()
    assert statuses() == {"not opened: the secret of the class is not here"}


def test_numbers_that_are_erased_leave_the_entries(governed_copy: Path) -> None:
    run = RunLedger(governed_copy)
    segment = next(run.segments())
    (governed_copy / rundir.LEDGER / blob_path(segment.state.entry.blobs["numbers/open/mit"].sha256)).unlink()
    lines, total = entry_lines(run, read_all_steps(run), layer="norm", class_="open/mit", steps=range(4))
    assert total == 4
    assert {(line.norm, line.commitment) for line in lines} == {(None, "not opened: the numbers are not here")}


def test_what_is_sealed_is_said(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, sample=Sample(confidential=("open/mit",)))
    assert "The shares are sealed" not in texts(ledger(tmp_path))
    shutil.rmtree(run / rundir.PRIVATE)
    assert "The shares are sealed: needs a grant." in texts(ledger(tmp_path))
    opened = RunLedger(run)
    lines, _ = entry_lines(opened, read_all_steps(opened), layer="norm", class_="open/mit", steps=range(4))
    assert {(line.norm, line.commitment) for line in lines} == {(None, "not opened: the numbers are sealed")}


def estimating(run: Path) -> None:
    """Every other step of the run has estimates, as its entries have it."""
    sign_again(
        run, lambda _, entry: replace(entry, estimated=entry.step % 2 == 1) if isinstance(entry, Step) else entry
    )


def test_what_is_estimated_is_said(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, sample=Sample(), steps=16)
    assert "are estimates" not in texts(ledger(tmp_path)) and "an estimate" not in texts(ledger(tmp_path))
    estimating(run)
    shown = texts(ledger(tmp_path))
    assert "the numbers are estimates, from sketches of 64 numbers a layer" in shown
    assert "~: an estimate, from a sketch of the gradient." in shown
    opened = RunLedger(run)
    lines, _ = entry_lines(opened, read_all_steps(opened), layer="norm", class_="open/mit", steps=range(4))
    assert [line.estimated for line in lines] == [False, True, False, True]


def test_a_tampered_ledger_is_called_broken_whoever_is_trusted(governed_copy: Path) -> None:
    for bundle in (governed_copy / rundir.LEDGER / "tile" / "entries").rglob("*.p/*"):
        bundle.write_bytes(bundle.read_bytes().replace(b'"examples":[9,6,8,5,3]', b'"examples":[9,6,8,5,4]', 1))
    run = RunLedger(governed_copy)
    for trust in (None, Sample().trust):
        words = badge_words(badge(run, trust=trust, now=NOW))
        assert words.verdict == "broken" and words.findings
    assert "Broken" in texts(ledger(governed_copy.parents[1]))


def test_simulated_provenance_is_said_above_everything(tmp_path: Path) -> None:
    write_governed_run(tmp_path, sample=Sample(classes=SIMULATED))
    shown = texts(ledger(tmp_path))
    assert shown.index("Simulated provenance") < shown.index("resnet8-digits-governed")


def test_a_run_that_a_deletion_made_shows_the_steps_that_it_has(tmp_path: Path) -> None:
    kept, replayed = certified.structural(tmp_path / "kept").new, certified.replayed(tmp_path / "again").new
    fields = training(ledger(tmp_path / "again", run=str(replayed))).controls
    assert (fields.first.min, fields.steps) == (FIRST, range(FIRST, DELETED_AFTER))
    view = ledger(tmp_path / "kept", run=str(kept))
    assert "a deletion made this run without training" in texts(view) and not training(view).heat.drawn


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    layers = (*LAYERS[:-1], hostile)
    write_governed_run(tmp_path, sample=Sample(layers=layers))
    view = ledger(tmp_path)
    training(view).controls.layer.value = hostile
    shown = texts(view)
    assert "&lt;img src=x" in shown and "<img" not in shown


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    write_governed_run(tmp_path, steps=20)
    view = ledger(tmp_path)
    assert "unfinished: its last entry is not" in texts(view)
    assert training(view).controls.last.max == 19


def test_a_run_without_a_step_and_one_without_its_spool(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, steps=0)
    assert "No step is on record yet" in texts(ledger(tmp_path))
    assert rundir.ENTROPY not in [path.name for path in run.iterdir()]
    assert "The recipe measures none" in texts(ledger(tmp_path))


def test_nothing_to_show(tmp_path: Path, governed_runs: Path) -> None:
    assert "no governed run" in texts(ledger(tmp_path)) and "explorer quickstart" in texts(ledger(tmp_path))
    with pytest.raises(RunError, match="unknown governed run 'nothing'"):
        find_run(governed_runs, "nothing")
    assert "unknown governed run" in texts(ledger(governed_runs, run="nothing"))


def test_a_ledger_that_cannot_be_read_is_said(governed_copy: Path) -> None:
    (governed_copy / rundir.LEDGER / "checkpoint").write_bytes(b"nonsense")
    assert "checkpoint" in texts(ledger(governed_copy.parents[1]))


def test_a_run_is_found_by_id_and_by_directory(governed_runs: Path, governed: Path) -> None:
    assert find_run(governed_runs, governed.name) == governed
    assert find_run(governed_runs, f"single/{governed.name}") == governed
    assert find_run(Path("nowhere"), str(governed)) == governed


@pytest.mark.slow
def test_it_opens_at_the_cell_with_the_largest_share(view: Ledger) -> None:
    opened = view.opened
    assert opened is not None
    layer, class_ = largest_cell(opened)
    share = shares(opened.ledger, opened.steps).share[0]
    assert share[opened.classes.index(class_), opened.layers.index(layer)] == np.nanmax(share)
    fresh = Ledger(view._runs, run=None)
    assert training(fresh).controls.cell == (layer, class_)


def test_it_opens_at_the_cell_that_was_asked_for(governed_runs: Path) -> None:
    cell = (LAYERS[3], "open/mit")
    assert training(ledger(governed_runs, cell=cell)).controls.cell == cell
    wrong = ledger(governed_runs, cell=("no.layer", "open/mit"))
    assert wrong.opened is None and "no.layer" in texts(wrong)

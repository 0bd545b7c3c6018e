"""What a report says of deletion: the level of `explorer delete plan`, for every class, and why it is no better."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from explorer import run_files, rundir
from explorer.audit.conditions import Outcome
from explorer.canonical import digest
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Decision, Genesis, Parent
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.report.run.class_lines import LEFT_OUT, UNESTABLISHED, UNTOLD, Deletability, deletability
from explorer.run_files import RunRecord
from explorer.runlog.forecast import forecast
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from tests.audit.governed_run import MIT, NEWS, OPEN, policy, sign_again, write_governed_run
from tests.builders import with_identity
from tests.governed_sample import Sample
from tests.governed_sample import write_governed_run as write_sample

SHARED = replace(
    policy(Rule(classes=(NEWS,), weight=1.0)), sealed=(SealedRegion(name="all", branch="open", module="head"),)
)


def said(run: Path) -> dict[str, Deletability]:
    """The report's deletability, after a comparison with the forecast of every class."""
    ledger = RunLedger(run)
    found = deletability(ledger, denied=Outcome.HOLDS)
    for path, each in found.items():
        if each.level is not None:
            assert each.level == forecast(ledger, Target(classes=(path,))).route.level
    return found


def with_genesis(run: Path, **changes: Any) -> None:
    sign_again(run, lambda _, e: replace(e, **changes) if isinstance(e, Genesis) else e)


def test_classes_of_every_kind_of_policy(tmp_path: Path) -> None:
    found = said(write_sample(tmp_path))
    assert [found[path].level for path in Sample().classes] == ["G3", "G3", "G3", "G2", "G2"]


def test_a_shared_region_cannot_be_dropped(tmp_path: Path) -> None:
    found = said(write_governed_run(tmp_path, policy=SHARED))
    assert found[MIT].level == "G3" and found[MIT].words.startswith(f"shares region all with {OPEN}: exact only by")


def test_decisions_about_others_rule_structure_out(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    assert "decisions" not in said(run)[NEWS].words

    def about(*subjects: str) -> None:
        frozen = {"action": "freeze", "subjects": subjects}
        sign_again(run, lambda _, e: replace(e, **frozen) if isinstance(e, Decision) and NEWS in e.evidence else e)

    about(NEWS, MIT)
    assert "decisions about other classes looked at it (entry " in said(run)[NEWS].words


def test_a_class_that_the_run_left_out_is_not_there_to_be_deleted(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    record = run_files.read(RunRecord, run / rundir.RUN)
    identity = {**record.identity, "recipe": {"methods": [{"routing": {"policy": "half-depth", "without": [NEWS]}}]}}
    run_files.write(run / rundir.RUN, with_identity(record, identity))
    with_genesis(run, recipe=digest(identity))
    assert said(run)[NEWS] == LEFT_OUT and said(run)[MIT] != LEFT_OUT


def test_classes_of_the_parent_model_have_no_level(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    state = LedgerState(origin="example.com/base", size=1, root="0" * 64)
    admitted = {"licensed": write_float(0.5)}
    with_genesis(
        run, parents=(Parent(kind="model", ledger=state, model="1" * 64, attestation="2" * 64, admitted=admitted),)
    )
    assert said(run)[NEWS] == Deletability(
        level=None, words="the model that the run began with was trained on licensed: delete it there first"
    )
    assert said(run)[MIT].level == "G3"


def test_an_untrusted_record_establishes_no_level(tmp_path: Path) -> None:
    run = RunLedger(write_governed_run(tmp_path))
    assert set(deletability(run, denied=Outcome.FAILS).values()) == {UNESTABLISHED}
    assert set(deletability(run, denied=Outcome.UNTOLD).values()) == {UNTOLD}

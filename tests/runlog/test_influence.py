"""The influence of a target, from written ledgers: never less than the true one, whatever was decided."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.entries.kinds import Decision, End, Entry, Genesis, State, Step
from explorer.errors import LedgerError
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.recipes.settings import METHODS
from explorer.run_files import RunRecord
from explorer.runlog import influence
from explorer.runlog.influence import Reach, reach
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, resolve
from tests.audit.governed_run import (
    LAYERS,
    MIT,
    NEWS,
    OPEN,
    ROW_CLASSES,
    policy,
    rows_of,
    sign_again,
    write_governed_run,
)
from tests.builders import with_identity
from tests.governed_sample import Sample
from tests.governed_sample import write_governed_run as write_sample
from tests.provenance.people import GOVERNANCE


def of_class(run: Path, path: str) -> Reach:
    ledger = RunLedger(run)
    return reach(ledger, resolve(ledger, class_=path))


@pytest.mark.parametrize("row", [-7, 10_000])
def test_rows_that_the_table_lacks_are_refused(tmp_path: Path, row: int) -> None:
    with pytest.raises(LedgerError, match=f"record {row}: the tag table has .* rows, counted from 0"):
        reach(RunLedger(write_governed_run(tmp_path)), Target(records=(row,)))


def with_recipe(run: Path, methods: Sequence[Mapping[str, object]]) -> None:
    """Say how the run was trained, and let the genesis name it."""
    traits = {name: METHODS[name].traits for method in methods for name in method}
    record = run_files.read(RunRecord, run / rundir.RUN)
    identity = {**record.identity, "recipe": {"methods": list(methods)}}
    run_files.write(run / rundir.RUN, with_identity(record, identity))
    sign_again(run, lambda _, e: replace(e, recipe=digest(identity), methods=traits) if isinstance(e, Genesis) else e)


def decided(run: Path, **changes: Any) -> None:
    """Every freeze of `licensed/news` by its own numbers, changed."""
    sign_again(
        run, lambda _, e: replace(e, **changes) if isinstance(e, Decision) and e.action in ("freeze", "override") else e
    )


def test_classes_of_every_kind_of_policy(tmp_path: Path) -> None:
    run = write_sample(tmp_path)
    open_, late, sealed, nowhere = (of_class(run, Sample().classes[at]) for at in (0, 1, 3, 4))
    assert (open_.first, open_.trained, open_.structural) == (0, 48, False)
    assert (late.first, late.trained, late.structural) == (16, 32, False)
    assert late.shared == late.layers == (
        *("blocks.1.attention.out", "blocks.1.norm2", "blocks.1.mlp.up", "blocks.1.mlp.down"),
        *("blocks.2.norm1", "blocks.2.attention.qkv", "blocks.2.attention.out"),
        *("blocks.2.norm2", "blocks.2.mlp.up", "blocks.2.mlp.down", "norm"),
    )  # fmt: skip
    assert (sealed.first, sealed.shared, sealed.regions) == (0, (), {"customer": ()})
    assert sealed.layers == ("blocks.2.mlp.up@customer", "blocks.2.mlp.down@customer")
    assert sealed.structural
    assert (nowhere.first, nowhere.trained, nowhere.layers, nowhere.structural) == (None, 0, (), True)


def test_a_step_without_its_examples_is_none_of_the_class(tmp_path: Path) -> None:
    def without(_: int, entry: Entry) -> Entry:
        if isinstance(entry, Step) and entry.step < 20:
            return replace(entry, examples=(9, 0, *entry.examples[2:]))
        return entry

    run = write_sample(tmp_path)
    sign_again(run, without)
    assert (of_class(run, Sample().classes[1]).first, of_class(run, Sample().classes[1]).trained) == (20, 28)


def test_a_layer_that_did_not_change_was_not_reached(tmp_path: Path) -> None:
    def frozen(_: int, entry: Entry) -> Entry:
        return replace(entry, updated="0" + entry.updated[1:]) if isinstance(entry, Step) else entry

    run = write_sample(tmp_path)
    assert "token" in of_class(run, Sample().classes[0]).layers
    sign_again(run, frozen)
    assert "token" not in of_class(run, Sample().classes[0]).layers


def test_a_layer_of_buffers_admitted_early_counts(tmp_path: Path) -> None:
    """The control of BatchNorm: admitted to its layer alone before the rest, the class has moved its statistics."""
    rules = (
        Rule(classes=(NEWS,), layers=("body.*",), progress=(0.5, 1.0), weight=1.0),
        Rule(classes=(OPEN, MIT), weight=1.0),
    )
    run = write_governed_run(tmp_path / "late", policy=policy(*rules))
    assert of_class(run, NEWS).first == 6
    early = write_governed_run(
        tmp_path / "early", policy=policy(Rule(classes=(NEWS,), layers=("embed",), weight=1.0), *rules)
    )
    assert of_class(early, NEWS).first == 0


def test_who_shares_a_region_is_named_and_the_region_stays(tmp_path: Path) -> None:
    region = SealedRegion(name="all", branch="open", module="head")
    run = write_governed_run(tmp_path, policy=replace(policy(Rule(classes=(NEWS,), weight=1.0)), sealed=(region,)))
    one, both = of_class(run, MIT), of_class(run, OPEN)
    assert both.whole == (OPEN, MIT)
    assert (one.layers, one.regions, one.structural) == (("head",), {"all": (OPEN,)}, False)
    assert (both.regions, both.structural) == ({"all": ()}, True)


def test_decisions_about_the_class_itself_reach_no_other_class(tmp_path: Path) -> None:
    assert of_class(write_governed_run(tmp_path), NEWS).channels == ()


def test_a_decision_by_the_class_over_others_raises_its_reach(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    before = of_class(run, NEWS)
    decided(run, subjects=(NEWS, MIT))
    after = of_class(run, NEWS)
    assert before.first == 5 and after.first == 2  # the decision at 3 may have been taken right after the step before
    assert [(each.step, each.action, each.over) for each in after.channels] == [
        (3, "freeze", (MIT,)),
        (9, "freeze", (MIT,)),
    ]
    decided(run, subjects=())
    assert {each.over for each in of_class(run, NEWS).channels} == {(OPEN, MIT)}
    assert of_class(run, MIT).channels == ()


def test_a_decision_of_a_class_that_trained_nothing_rules_out_structure(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, policy=policy(Rule(classes=(OPEN, MIT), weight=1.0)))
    assert of_class(run, NEWS).structural
    decided(run, subjects=(MIT,))
    found = of_class(run, NEWS)
    assert (found.trained, found.first, found.structural) == (0, 2, False)


def test_a_state_before_the_decision_shows_that_it_is_clean(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, every=3)
    decided(run, subjects=(MIT,))
    assert of_class(run, NEWS).first == 3

    def earlier(at: int, entry: Entry) -> Entry | None:
        return None if isinstance(entry, State) and entry.step == 3 else entry

    sign_again(run, earlier)
    assert of_class(run, NEWS).first == 2


def test_what_asks_for_a_condition_later_counts_as_decided_by_who_switched_it(tmp_path: Path) -> None:
    rules = (Rule(classes=(NEWS,), condition="on", weight=1.0), Rule(classes=(MIT, OPEN), weight=1.0))
    run = write_governed_run(tmp_path, policy=policy(*rules, conditions=("on",)), on={"on": 5})

    def of_mit(_: int, entry: Entry) -> Entry:
        if isinstance(entry, Decision) and entry.action == "override" and entry.step == 9:
            return replace(entry, subjects=(MIT,), evidence={MIT: "0" * 64}, blobs={})
        return entry

    assert of_class(run, NEWS).channels == ()
    sign_again(run, of_mit)
    assert [(each.step, each.over) for each in of_class(run, NEWS).channels] == [(9, (MIT,))]


def test_what_a_re_execution_undid_counts_no_more(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, finished=False)
    decided(run, subjects=(MIT,))
    assert {each.step for each in of_class(run, NEWS).channels} == {3, 9}

    def again(at: int, entry: Entry) -> Entry:
        if isinstance(entry, State) and entry.step == 10:
            return decision_to_execute_again(entry.step - 5)
        return entry

    sign_again(run, again)
    assert {each.step for each in of_class(run, NEWS).channels} == {3}
    assert of_class(run, MIT).trained <= 5


def decision_to_execute_again(step: int) -> Decision:
    return Decision(
        step=step, action="re-execution", rule="other-bits", parameters={}, condition=None, subjects=(), layers=(),
        evidence={}, blobs={},
    )  # fmt: skip


def test_records_by_the_slots_that_they_were_in(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    with_recipe(run, [{"routing": {"policy": "half-depth"}}, {"recorder": {}}])
    ledger = RunLedger(run)
    everything = tuple(row for row, path in enumerate(ROW_CLASSES) if path == MIT)
    seen = {row: [step for step in range(12) if row in rows_of(step)] for row in everything}
    late, steps = next((row, steps) for row, steps in seen.items() if steps and steps[0] > 2)
    found = reach(ledger, Target(records=(late,)))
    assert (found.first, found.trained, sum(found.slots)) == (steps[0], len(steps), len(steps))
    assert (found.whole, found.partly, found.layers, found.structural) == ((), (MIT,), LAYERS, False)
    same, whole = reach(ledger, Target(records=everything)), of_class(run, MIT)
    assert replace(same, target=whole.target) == whole
    aside = tuple(row for row, path in enumerate(ROW_CLASSES) if path == "quarantine")
    assert reach(ledger, Target(records=aside)).first is None


def test_others_of_its_class_are_others_to_a_record(tmp_path: Path) -> None:
    """A freeze of a class by its own numbers is nobody else's affair, but it is that of the examples that stay."""
    run = write_governed_run(tmp_path)
    with_recipe(run, [{"routing": {"policy": "half-depth"}}])
    record = Target(records=(next(row for row, path in enumerate(ROW_CLASSES) if path == NEWS),))
    found = reach(RunLedger(run), record)
    assert [(each.step, each.over) for each in found.channels] == [(3, (NEWS,)), (9, (NEWS,))]
    assert found.first == 2


def test_a_selection_by_losses_is_the_record_s_where_it_was_among_them(tmp_path: Path) -> None:
    losses = {step: np.arange(8, dtype=np.float32) for step in (4, 5)}
    run = write_governed_run(tmp_path, losses=losses)
    with_recipe(run, [{"routing": {"policy": "half-depth"}}])
    mine = [row for row, path in enumerate(ROW_CLASSES) if path == MIT]
    there, elsewhere = (
        next(row for row in mine if (row in rows_of(4)) == there and row not in rows_of(5)) for there in (True, False)
    )
    steps = [
        [each.step for each in reach(RunLedger(run), Target(records=(row,))).channels] for row in (there, elsewhere)
    ]
    assert steps == [[4], []]


def test_a_method_that_looks_at_probes_may_have_looked_at_a_record(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    record = Target(records=(next(row for row, path in enumerate(ROW_CLASSES) if path == NEWS),))
    with_recipe(run, [{"routing": {"policy": "half-depth"}}, {"governed_freezing": {}}])
    found = reach(RunLedger(run), record)
    assert (found.probed, found.first) == (True, 0)
    assert of_class(run, NEWS).probed is False  # a class that is gone is not looked at


def test_slots_that_are_gone_may_have_held_the_record(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    with_recipe(run, [{"routing": {"policy": "half-depth"}}])
    record = Target(records=(next(row for row, path in enumerate(ROW_CLASSES) if path == MIT),))
    before = reach(RunLedger(run), record)
    ledger = RunLedger(run)
    for segment in ledger.segments():
        digest_ = segment.state.entry.blobs["slots"].sha256
        (ledger.ledger.path / "blobs" / "sha256" / digest_[:2] / digest_).unlink()
    after = reach(RunLedger(run), record)
    assert before.trained < after.trained == of_class(run, MIT).trained


def test_an_authority_is_all_that_it_vouches_for(tmp_path: Path) -> None:
    ledger = RunLedger(write_governed_run(tmp_path))
    found = reach(ledger, Target(authorities=(GOVERNANCE,)))
    assert (found.whole, found.partly, found.first, found.trained) == ((NEWS, OPEN, MIT), (), 0, 12)
    with pytest.raises(LedgerError, match=r"unknown authority 'nobody\.example'"):
        reach(ledger, Target(authorities=("nobody.example",)))


def test_what_a_run_left_out_already_reached_nothing(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    assert of_class(run, NEWS).first == 5
    with_recipe(run, [{"routing": {"policy": "half-depth", "without": [NEWS]}}])
    assert of_class(run, NEWS).first is None
    assert of_class(run, MIT).first == 0


def test_the_last_records_of_a_class_are_the_whole_class(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    first, *others = (row for row, path in enumerate(ROW_CLASSES) if path == MIT)
    with_recipe(run, [{"routing": {"policy": "half-depth", "without_records": others}}])
    assert reach(RunLedger(run), Target(records=(first,))).whole == (MIT,)
    with_recipe(run, [{"routing": {"policy": "half-depth", "without_records": others[1:]}}])
    assert reach(RunLedger(run), Target(records=(first,))).partly == (MIT,)


def test_steps_of_another_ledger_count_as_the_policy_may_have_it(tmp_path: Path) -> None:
    region = SealedRegion(name="all", branch="open", module="head")
    run = write_governed_run(tmp_path, policy=replace(policy(Rule(classes=(NEWS,), weight=1.0)), sealed=(region,)))

    def late(_: int, entry: Entry) -> Entry | None:
        if isinstance(entry, Genesis):
            return replace(entry, begins=12)
        return entry if isinstance(entry, State | End) and entry.step == 12 else None

    sign_again(run, late)
    with_recipe(run, [{"routing": {"policy": "half-depth"}}])
    both, news = of_class(run, OPEN), of_class(run, NEWS)
    assert (both.unrecorded, both.first, both.layers, both.structural) == (12, 0, ("head",), True)
    assert (news.first, news.structural, news.shared) == (0, False, LAYERS[:3])


def test_a_step_of_another_shape_is_refused(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    sign_again(run, lambda _, e: replace(e, examples=(1, 2)) if isinstance(e, Step) and e.step == 3 else e)
    with pytest.raises(LedgerError, match=r"entry \d+: a step of other classes or layers"):
        of_class(run, MIT)


def test_records_that_there_are_not(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="record 42: the tag table has 42 rows"):
        reach(RunLedger(write_governed_run(tmp_path)), Target(records=(42,)))


@pytest.mark.parametrize("counts", [b"1" * 60_000, b"1," * 30_000, b"1,,1]", b"-1]", b"12345678901234567]"])
def test_counts_that_are_none_are_found_out_at_once(counts: bytes) -> None:
    assert influence._EXAMPLES.search(b'{"blobs":{},"examples":[' + counts) is None


def test_a_ledger_without_traits_is_taken_to_probe(tmp_path: Path) -> None:
    """Never less than it did: who does not say what the methods do gets the longer replay."""
    run = write_governed_run(tmp_path)
    record = Target(records=(next(row for row, path in enumerate(ROW_CLASSES) if path == NEWS),))
    assert reach(RunLedger(run), record).probed is False
    sign_again(run, lambda _, e: replace(e, methods=None) if isinstance(e, Genesis) else e)
    assert reach(RunLedger(run), record).probed is True

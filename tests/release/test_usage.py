"""Statements of use: what is counted, what each party sees, and what is refused. Each promise with what breaks it."""

import base64
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.deletion.erase import erase, of_classes
from explorer.entries.kinds import Decision, Genesis, Step, decode, encode
from explorer.errors import ExplorerError, LedgerError, ProvenanceError
from explorer.ledger.cosign import cosign
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory, blob_path
from explorer.note import Algorithm, Signer
from explorer.project import Project
from explorer.provenance.envelope import sign_envelope
from explorer.provenance.regions import depths_of
from explorer.provenance.routing_weights import Admissions
from explorer.provenance.statement import PAYLOAD_TYPE, Subject, make_statement
from explorer.provenance.trust import Role, Trust
from explorer.provenance.usage import (
    PARTY,
    PREDICATE_TYPE,
    SUBJECT,
    By,
    Line,
    PartyFile,
    Period,
    ProvedLine,
    ProvedRun,
    Use,
    WholeFile,
    new_salt,
)
from explorer.release import usage_statement
from explorer.release.usage_statement import Checked, Survey, find_runs, recount, survey, verify_usage
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import parse_json, to_json
from tests.audit import governed_run as runs
from tests.audit.governed_run import (
    CLASSES,
    LAYERS,
    MIT,
    NEWS,
    ROW_CLASSES,
    STEPS,
    TRAINER,
    rows_of,
    sign_again,
    signer,
    trust,
    write_governed_run,
)
from tests.builders import with_identity
from tests.provenance import people
from tests.provenance.people import GOVERNANCE, NOW, RISK, private

DAY = 86_400


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest run."""
    return Path(shutil.copytree(honest, tmp_path / honest.name))


def surveyed(*paths: Path, by: By = By.CLASS, believed: Trust | None = None, **changes: Any) -> Survey:
    usual: dict[str, Any] = {"period": None, "trust": believed or trust(), "now": NOW}
    return survey(find_runs(paths), by=by, **{**usual, **changes})


def signed(found: Survey, *, by: str = TRAINER, **changes: Any) -> WholeFile:
    return usage_statement.sign(found, keys=[private(by)], **{"trust": trust(), "now": NOW, **changes})


def content(value: Any) -> bytes:
    return json.dumps(value if isinstance(value, dict) else to_json(value)).encode()


def checked(value: Any, **changes: Any) -> Checked:
    return verify_usage(content(value), **{"trust": trust(), "now": NOW, "where": "use.json", **changes})


def file_of(found: Survey, party: str, whole: WholeFile | None = None) -> PartyFile:
    whole = signed(found) if whole is None else whole
    return usage_statement.of_party(whole, found, [line.party for line in found.lines].index(party))


def use_of(found: Survey, party: str) -> Use:
    (use,) = next(line for line in found.lines if line.party == party).uses
    return use


def admissions() -> Admissions:
    return Admissions(runs.routing(), classes=CLASSES, layers=depths_of(LAYERS))


def by_hand(party_of: Callable[[int], str], party: str, *, exact_every: int = 1) -> dict[str, Any]:
    """The same numbers from what the run was made of, and not from its ledger."""
    numerator = denominator = 0.0
    examples = denied = steps = 0
    layers: set[str] = set()
    for step in range(STEPS):
        table = admissions().at(step / STEPS)
        numbers = runs.numbers_of(step, table, exact=False)
        rows = [row for row in rows_of(step).tolist() if ROW_CLASSES[row] != "quarantine"]
        denominator += float(numbers.gram.sum()) * (step % exact_every == 0)
        used = 0
        for index, path in enumerate(CLASSES):
            here = [row for row in rows if ROW_CLASSES[row] == path]
            mine = [row for row in here if party_of(row) == party]
            if index not in numbers.classes:
                denied += len(mine)
                continue
            used += len(mine)
            place = numbers.classes.index(index)
            if step % exact_every == 0:
                numerator += float(numbers.gram[:, place, :].sum()) * len(mine) / len(here)
            layers |= {name for at, name in enumerate(LAYERS) if mine and numbers.weights[place, at] > 0}
        examples += used
        steps += used > 0
    return {
        "examples": examples,
        "denied": denied,
        "steps": steps,
        "layers": tuple(name for name in LAYERS if name in layers),
        "share": pytest.approx(numerator / denominator, rel=1e-5),
    }


PARTY_OF: dict[By, Callable[[int], str]] = {
    By.CLASS: lambda row: ROW_CLASSES[row],
    By.AUTHORITY: lambda row: GOVERNANCE,
    By.SOURCE: lambda row: f"source {row % 4} 1.0",
}


@pytest.mark.parametrize("by", By)
def test_what_is_counted_is_what_trained(honest: Path, by: By) -> None:
    found = surveyed(honest, by=by)
    assert [line.party for line in found.lines] == sorted(
        {PARTY_OF[by](row) for row, path in enumerate(ROW_CLASSES) if path != "quarantine"}
    )
    for line in found.lines:
        (use,) = line.uses
        expected = by_hand(PARTY_OF[by], line.party)
        assert {key: getattr(use, key) for key in expected} == expected
        assert (use.unclear, use.tokens) == (0, None)
    assert sum(use.share or 0 for line in found.lines for use in line.uses) == pytest.approx(1)


def test_shares_are_made_of_exact_numbers_only(tmp_path: Path) -> None:
    found = surveyed(write_governed_run(tmp_path, exact_every=3))
    for path in CLASSES:
        use, expected = use_of(found, path), by_hand(PARTY_OF[By.CLASS], path, exact_every=3)
        assert {key: getattr(use, key) for key in expected} == expected
        assert use.share != by_hand(PARTY_OF[By.CLASS], path)["share"]  # the control: over all steps it is another
    assert found.runs[0].shared == STEPS // 3
    assert [(gap.what, gap.steps, gap.why) for gap in found.runs[0].gaps] == [("share", 8, "estimated")]


def test_a_share_that_several_parties_have_of_a_class_is_called_an_estimate(honest: Path) -> None:
    assert all(use_of(surveyed(honest), path).apportioned == 0 for path in CLASSES)
    sources = surveyed(honest, by=By.SOURCE)
    assert all(0 < use.apportioned <= use.steps for line in sources.lines for use in line.uses)


def test_every_slot_is_in_a_line_or_is_said_to_be_in_none(honest: Path) -> None:
    (total,) = surveyed(honest).total.total
    aside = sum(ROW_CLASSES[row] == "quarantine" for step in range(STEPS) for row in rows_of(step).tolist())
    assert (total.slots, total.quarantined, total.unplaced) == (STEPS * runs.SLOTS, aside, 0)


def test_examples_that_a_selection_left_out_did_not_train(tmp_path: Path) -> None:
    chosen = next(step for step in range(STEPS) if runs.counts_of(rows_of(step))[0][2] == 3)
    run = write_governed_run(tmp_path, losses={chosen: np.array([0.5, 2.0, 1.0], np.float32)})
    plain = use_of(surveyed(write_governed_run(tmp_path / "plain")), MIT)
    mine = use_of(surveyed(run), MIT)
    assert (mine.examples, mine.denied) == (plain.examples - 1, 1)
    decision = next(
        placed
        for placed in RunLedger(run).read(RunLedger(run).outline.decisions, Decision)
        if placed.entry.action == "selection"
    )
    (run / rundir.LEDGER / blob_path(decision.entry.blobs[f"evidence/{MIT}"].sha256)).unlink()
    found = surveyed(run, trust=None)
    assert (use_of(found, MIT).examples, use_of(found, MIT).unclear) == (plain.examples - 3, 3)
    assert [(gap.what, gap.steps, gap.why) for gap in found.runs[0].gaps] == [("examples", 1, "not here")]


def test_tokens_of_text_by_the_recipe_that_the_genesis_names(run: Path) -> None:
    plan = run_files.read(run_files.RunRecord, run / rundir.RUN)
    recipe = {"task": {"dataset": {"text": {"context": 64}}, "model": "gpt"}, "methods": []}
    identity = {**plan.identity, "recipe": recipe}
    run_files.write(run / rundir.RUN, with_identity(plan, identity))
    assert use_of(surveyed(run), MIT).tokens is None  # of another recipe than the genesis names
    sign_again(run, lambda at, entry: replace(entry, recipe=digest(identity)) if isinstance(entry, Genesis) else entry)
    mine = use_of(surveyed(run), MIT)
    assert mine.tokens == 64 * mine.examples
    assert checked(file_of(surveyed(run), MIT)).lines[0].uses[0].tokens == mine.tokens


def test_numbers_that_were_erased_are_said_and_not_left_out_of_a_sum(run: Path) -> None:
    before = surveyed(run)
    ledger = RunLedger(run)
    segments = list(ledger.segments())
    gone = segments[0].state.entry.blobs[f"numbers/{MIT}"].sha256
    (run / rundir.LEDGER / blob_path(gone)).unlink()
    found = surveyed(run, trust=None)
    assert [(gap.what, gap.steps, gap.why) for gap in found.runs[0].gaps] == [("share", 5, "not here")]
    assert (before.runs[0].shared, found.runs[0].shared) == (STEPS, STEPS - 5)
    assert use_of(found, MIT).examples == use_of(before, MIT).examples  # slots and weights still tell
    slots = segments[1].state.entry.blobs["slots"].sha256
    (run / rundir.LEDGER / blob_path(slots)).unlink()
    found = surveyed(run, trust=None)
    assert {(gap.what, gap.steps, gap.why) for gap in found.runs[0].gaps} == {
        ("share", 5, "not here"),
        ("examples", 5, "not here"),
    }
    (total,) = found.total.total
    assert total.unplaced > 0
    known = sum(use.examples + use.denied for line in found.lines for use in line.uses)
    assert known + total.unplaced + total.quarantined == total.slots


def test_an_erasure_on_record_is_called_one(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path)
    ledger = RunLedger(run)
    with Project.open(tmp_path, key=private(TRAINER), name=TRAINER) as project:
        erase(ledger, of_classes(ledger, (MIT,)), project=project)
    found = surveyed(run)
    assert [(gap.what, gap.steps, gap.why) for gap in found.runs[0].gaps] == [("share", STEPS, "erased")]
    assert use_of(found, MIT).share is None and use_of(found, MIT).examples > 0
    checked(signed(found))
    shutil.rmtree(tmp_path / "_audit")  # the control: nothing says so any more
    assert {gap.why for gap in surveyed(run, trust=None).runs[0].gaps} == {"not here"}


def test_what_the_ledger_seals_no_statement_says(tmp_path: Path) -> None:
    run = write_governed_run(tmp_path, policy=replace(runs.policy(), confidential=("licensed",)))
    found = surveyed(run)
    assert [(gap.what, gap.steps, gap.why) for gap in found.runs[0].gaps] == [("share", STEPS, "sealed")]
    for line in found.lines:
        (use,) = line.uses
        expected = by_hand(PARTY_OF[By.CLASS], line.party)
        assert (use.share, use.examples, use.layers) == (None, expected["examples"], expected["layers"])
    checked(signed(found))


def test_steps_that_were_executed_again_count_apart(run: Path) -> None:
    before = use_of(surveyed(run), MIT)
    directory = run / rundir.LEDGER
    leaves = list(LedgerDirectory(directory).entries())
    entries = [decode(leaf) for leaf in leaves]
    cut = next(at for at, entry in enumerate(entries) if isinstance(entry, Step) and entry.step == 7) + 1
    back = next(at for at, entry in enumerate(entries) if isinstance(entry, Step) and entry.step == 5)
    again = Decision(
        step=5,
        action="re-execution",
        rule="other-bits",
        parameters={},
        condition=None,
        subjects=(),
        layers=(),
        evidence={},
        blobs={},
    )
    write_log(run, [*leaves[:cut], encode(again), *leaves[back:]])
    found = surveyed(run)
    mine = use_of(found, MIT)
    assert found.runs[0].superseded == 3
    assert mine.superseded is not None
    counts = [runs.counts_of(rows_of(step))[0][2] for step in (5, 6, 7)]
    assert (mine.superseded.examples, mine.superseded.steps) == (sum(counts), sum(each > 0 for each in counts))
    assert (mine.examples, mine.steps, mine.share) == (before.examples, before.steps, before.share)
    sources = surveyed(run, by=By.SOURCE)
    assert {use.superseded for line in sources.lines for use in line.uses} == {None}
    assert [(gap.what, gap.steps, gap.why) for gap in sources.runs[0].gaps] == [("superseded", 3, "shared")]
    checked(signed(sources))


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    found = surveyed(write_governed_run(tmp_path, finished=False))
    assert (found.runs[0].outcome, found.runs[0].counted) == ("unfinished", 10)  # what was committed


def write_log(run: Path, leaves: Sequence[bytes], *, marks: Sequence[tuple[int, str, int]] = ()) -> None:
    """Write the ledger anew, cosigned along the way: after so many entries, by whom, when."""
    directory = run / rundir.LEDGER
    shutil.rmtree(directory / "tile")
    (directory / "checkpoint").unlink()
    Log.create(directory, origin=signer(run).name, signer=signer(run)).close()
    done = 0
    for size, who, when in (*marks, (len(leaves), "", 0)):
        with Log.open(directory, signer=signer(run)) as log:
            log.append(leaves[done:size])
            log.commit()
        done = size
        if who:
            cosigned(run, who, when)


def cosigned(run: Path, who: str, when: int) -> None:
    key = Signer(name=who, algorithm=Algorithm.COSIGNATURE, private_key=private(who))
    anchor = anchor_of_trust(trust(), origin=signer(run).name)
    assert cosign(run / rundir.LEDGER, signer=key, state=run.parent / "seen", anchor=anchor, now=when).path


JUNE = Period(begins="2026-06-01T00:00:00Z", ends="2026-07-01T00:00:00Z")
JULY = Period(begins="2026-07-01T00:00:00Z", ends="2026-08-01T00:00:00Z")
LATER = NOW + 90 * DAY


@pytest.fixture
def dated(run: Path) -> Path:
    """The first two segments cosigned on 10 June, all of it but the end on 10 July."""
    leaves = list(LedgerDirectory(run / rundir.LEDGER).entries())
    states = [index for _, index in RunLedger(run).outline.states]
    write_log(
        run,
        leaves,
        marks=[(states[1] + 1, GOVERNANCE, NOW + 9 * DAY), (states[2] + 1, RISK, NOW + 39 * DAY)],
    )
    return run


def test_a_period_is_told_by_the_first_cosignatures(dated: Path) -> None:
    whole = surveyed(dated, now=LATER)
    june, july = (surveyed(dated, period=each, now=LATER) for each in (JUNE, JULY))
    assert [found.runs[0].counted for found in (whole, june, july)] == [12, 10, 2]
    assert len(june.runs[0].cosigned) == 2
    for path in CLASSES:
        assert use_of(june, path).examples + use_of(july, path).examples == use_of(whole, path).examples
    for found in (june, july):
        for line in found.lines:
            assert checked(file_of(found, line.party), now=LATER).lines == (line,)
        checked(signed(found, now=LATER), now=LATER)


def test_a_note_that_is_kept_dates_what_its_witness_has_signed_again_since(run: Path) -> None:
    """One witness, two months: its second note takes the place of the first, of which the trainer keeps a copy."""
    leaves = list(LedgerDirectory(run / rundir.LEDGER).entries())
    states = [index for _, index in RunLedger(run).outline.states]
    first = (states[1] + 1, RISK, NOW + 9 * DAY)
    write_log(run, leaves[: first[0]], marks=[first])
    place = run / rundir.LEDGER / "witness"
    (note,) = place.iterdir()
    kept = note.read_bytes()
    with Log.open(run / rundir.LEDGER, signer=signer(run)) as log:
        log.append(leaves[first[0] :])
    cosigned(run, RISK, NOW + 39 * DAY)
    forgotten = surveyed(run, period=JUNE, now=LATER)
    (place / "2026-06.note").write_bytes(kept)
    found = surveyed(run, period=JUNE, now=LATER)
    assert (forgotten.runs[0].counted, found.runs[0].counted) == (0, 10)
    checked(signed(found, now=LATER), now=LATER)


def test_steps_that_nobody_cosigned_are_in_no_period_and_are_said(run: Path) -> None:
    leaves = list(LedgerDirectory(run / rundir.LEDGER).entries())
    states = [index for _, index in RunLedger(run).outline.states]
    write_log(run, leaves, marks=[(states[0] + 1, RISK, NOW + 9 * DAY)])
    found = surveyed(run, period=JUNE, now=LATER)
    assert (found.runs[0].counted, [(gap.what, gap.steps, gap.why) for gap in found.runs[0].gaps]) == (
        5,
        [("period", 7, "not cosigned")],
    )
    with pytest.raises(LedgerError, match="a period needs a trust file"):
        surveyed(run, period=JUNE, trust=None)


def test_a_line_is_not_of_a_period_that_its_entries_are_not_in(dated: Path) -> None:
    """The trainer's own lie, consistent and signed: June's numbers as July's."""
    june = surveyed(dated, period=JUNE, now=LATER)
    lie = replace(june, period=JULY)
    with pytest.raises(ProvenanceError, match="not in the period; by its cosignatures, the period has"):
        checked(file_of(lie, MIT, signed(lie, now=LATER)), now=LATER)
    with pytest.raises(ProvenanceError, match="not in the period"):
        checked(signed(lie, now=LATER), now=LATER)


def test_two_runs_in_one_statement(honest: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(honest, other)
    ledger = other / rundir.LEDGER
    leaves = list(LedgerDirectory(ledger).entries())
    shutil.rmtree(ledger / "tile")
    (ledger / "checkpoint").unlink()
    key = Signer(name="example.com/other", algorithm=Algorithm.ED25519, private_key=private(TRAINER))
    with Log.create(ledger, origin=key.name, signer=key) as log:
        log.append(leaves)
    found = surveyed(honest, other)
    assert [len(line.uses) for line in found.lines] == [2, 2, 2]
    assert len(checked(file_of(found, MIT)).runs) == 2
    assert [*surveyed(honest.parent, other).runs] == [*found.runs]  # a directory of runs
    one = file_of(found, MIT)
    with pytest.raises(ProvenanceError, match="runs: not those that the line is about"):
        checked(replace(one, runs=one.runs[:1]))
    with pytest.raises(ProvenanceError, match="expected each once, in their order"):
        checked(replace(one, runs=one.runs[::-1]))
    elsewhere = file_of(surveyed(write_governed_run(tmp_path / "elsewhere", exact=True)), MIT).runs[0].entries
    assert len(elsewhere) == len(one.runs[0].entries)
    moved = replace(one.runs[0], entries=elsewhere)
    with pytest.raises(ProvenanceError, match=r"the proof of entries \d+ to \d+ fails: it leads to root"):
        checked(replace(one, runs=(moved, one.runs[1])))
    with pytest.raises(LedgerError, match="has the same ledger as"):
        find_runs([honest, honest])
    with pytest.raises(LedgerError, match="no governed run"):
        find_runs([tmp_path / "nothing"])


def scalars(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [each for key, inner in value.items() for each in scalars(inner, (*path, key))]
    if isinstance(value, list):
        return [each for at, inner in enumerate(value) for each in scalars(inner, (*path, at))]
    return [path]


def changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case None:
            return 1
        case str() if value:
            return value[:-1] + ("0" if value[-1] != "0" else "1")
        case _:
            return "x"


def test_no_value_in_a_file_can_be_changed(dated: Path) -> None:
    found = surveyed(dated, period=JUNE, now=LATER)
    for file in (file_of(found, NEWS), signed(found, now=LATER)):
        honest = to_json(file)
        checked(honest, now=LATER)
        kept = []
        for path in scalars(honest):
            forged = json.loads(content(honest))
            *outer, last = path
            inner = forged
            for key in outer:
                inner = inner[key]
            inner[last] = changed(inner[last])
            try:
                checked(forged, now=LATER)
                kept.append(path)
            except ExplorerError:
                continue
        assert [path for path in kept if path[-1] != "keyid"] == []  # a hint, which no signature covers


def test_a_party_sees_its_own_line_and_nothing_of_the_others(honest: Path) -> None:
    found = surveyed(honest)
    whole = signed(found)
    mine = content(file_of(found, MIT, whole)).decode()
    for line, salted in zip(found.lines, whole.lines, strict=True):
        if line.party != MIT:
            assert f'"{line.party}"' not in mine and salted.salt not in mine
    assert whole.total.salt not in mine
    again = [content(file_of(found, MIT)), content(file_of(found, MIT))]
    assert again[0] != again[1]  # other salts: who has two statements cannot tell whether a line has changed


def test_another_partys_line_in_ones_own_place(honest: Path) -> None:
    found = surveyed(honest)
    whole = signed(found)
    mine, other = file_of(found, MIT, whole), file_of(found, NEWS, whole)
    for forged in (
        replace(mine, line=replace(mine.line, content=other.line.content, salt=other.line.salt)),
        replace(mine, line=replace(mine.line, content=replace(mine.line.content, party=NEWS))),
        replace(mine, line=replace(mine.line, index=other.line.index)),
        replace(mine, statement=signed(found).statement),  # of the same runs, signed once more
    ):
        with pytest.raises(ProvenanceError, match="the line: not what was signed"):
            checked(forged)


def test_a_line_left_out_of_the_whole(honest: Path) -> None:
    found = surveyed(honest)
    whole = signed(found)
    with pytest.raises(ProvenanceError, match="lines: not what was signed: found 3 with root"):
        checked(replace(whole, lines=whole.lines[1:]))
    lie = signed(replace(found, lines=found.lines[1:]))  # by the trainer, who signs what is left
    with pytest.raises(ProvenanceError, match=r"the lines add up to \d+ examples; the total is \d+"):
        checked(lie)
    hidden = replace(found.total.total[0], slots=found.total.total[0].slots - 8)
    with pytest.raises(ProvenanceError, match="the lines add up to"):
        checked(signed(replace(found, total=replace(found.total, total=(hidden,)))))


def test_the_total_is_no_partys_line(honest: Path) -> None:
    """A trainer who signs one line fewer and hands out the last one in the place of the total."""
    found = surveyed(honest)
    one = file_of(found, MIT)
    assert one.line.index == 2
    whole = signed(replace(found, lines=found.lines))
    lines = tuple(usage_statement.line_leaf(each.content, each.salt) for each in whole.lines)
    tree = usage_statement._Tree(lines)
    statement = sign_again_as(whole, lines=usage_statement.tree_over(lines))
    forged = replace(
        one,
        statement=statement,
        line=replace(one.line, salt=whole.lines[2].salt, proof=tree.proof(2)),
    )
    with pytest.raises(ProvenanceError, match="a line in the place of the total"):
        checked(forged)


def sign_again_as(whole: WholeFile, *, by: str = TRAINER, subject: str = SUBJECT, **changes: Any) -> dict[str, Any]:
    """Sign a predicate with changes, past every check of who signs."""
    envelope = parse_json(content(whole.statement), where="", error=ProvenanceError, max_bytes=2**20)
    predicate = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    predicate |= {key: to_json(value) if hasattr(value, "root") else value for key, value in changes.items()}
    named = Subject(name=subject, sha256=predicate["lines"]["root"])
    made = make_statement([named], predicate_type=PREDICATE_TYPE, predicate=predicate)
    return json.loads(sign_envelope(made.payload, PAYLOAD_TYPE, [private(by)]).content)


def test_who_may_sign(honest: Path) -> None:
    found = surveyed(honest)
    with pytest.raises(ProvenanceError, match="a trainer signs it; these keys are of: model-risk"):
        signed(found, by=RISK)
    with pytest.raises(ProvenanceError, match="is not in the trust file"):
        usage_statement.sign(found, keys=[private(TRAINER), private("nobody")], trust=trust(), now=NOW)
    whole = signed(found)
    for by, message in (("nobody", "signed by no key of the trust file"), (RISK, "wrong role")):
        with pytest.raises(ProvenanceError, match=message):
            checked(replace(whole, statement=sign_again_as(whole, by=by)))
    with pytest.raises(ProvenanceError, match="subjects: others; expected one, lines"):
        checked(replace(whole, statement=sign_again_as(whole, subject="others")))
    with pytest.raises(ProvenanceError, match="expired"):
        checked(whole, now=NOW + 4000 * DAY)
    with pytest.raises(ProvenanceError, match="period: ends"):
        signed(replace(found, period=Period(begins=JULY.begins, ends=JUNE.begins)))


def test_a_revoked_key(honest: Path) -> None:
    whole = signed(surveyed(honest))
    gone = people.public(TRAINER, not_after=runs.FAR, revoked=people.ISSUED)
    believed = replace(
        trust(),
        authorities=tuple(
            replace(one, keys=(gone,)) if one.role is Role.TRAINER else one for one in trust().authorities
        ),
    )
    with pytest.raises(ProvenanceError, match="revoked"):
        checked(whole, trust=believed)


def test_another_trainers_ledger(honest: Path) -> None:
    """Two trainers whom the trust file names: one cannot state for the other's ledger."""
    other = people.authority("example.net/other", Role.TRAINER)
    believed = replace(trust(), authorities=(*trust().authorities, other))
    lie = signed(surveyed(honest, believed=believed), by="example.net/other", trust=believed)
    with pytest.raises(ProvenanceError, match=r"signed by example.net/other, who did not sign the ledger"):
        checked(lie, trust=believed)


def test_numbers_that_cannot_be(honest: Path) -> None:
    """Signed by the trainer, and refused all the same."""
    found = surveyed(honest)
    for changes, message in (
        ({"steps": 13}, "impossible: .* examples in 13 of 12 steps"),
        ({"first": None}, "impossible"),
        ({"last": 10_000}, "in the entries"),
        ({"tokens": 5}, "5 tokens, expected None"),
        ({"apportioned": 13}, "without a step that has one"),
    ):
        lie = lying(found, **changes)
        with pytest.raises(ExplorerError, match=message):
            checked(file_of_forged(lie))
        with pytest.raises(ExplorerError, match=message):
            checked(signed(lie))
    doubled = replace(found, lines=tuple(with_use(line, share=0.9) for line in found.lines))
    with pytest.raises(ProvenanceError, match=r"the shares of the lines add up to 2.7\d*, expected 1"):
        checked(signed(doubled))


def file_of_forged(lie: Survey) -> PartyFile:
    """A party's file, whose proof of entries cannot be made any more: none is needed before the numbers are judged."""
    whole = signed(lie)
    leaves = usage_statement._leaves(whole.lines, whole.total)
    index = [line.party for line in lie.lines].index(MIT)
    line = whole.lines[index]
    return PartyFile(
        format=PARTY,
        statement=whole.statement,
        line=ProvedLine(
            content=line.content, salt=line.salt, index=index, proof=usage_statement._Tree(leaves).proof(index)
        ),
        runs=(ProvedRun(content=lie.runs[0], index=0, proof=(), entries=()),),
    )


def lying(found: Survey, **changes: Any) -> Survey:
    """The same with another line of `open/mit`."""
    lines = (with_use(line, **changes) if line.party == MIT else line for line in found.lines)
    return replace(found, lines=tuple(lines))


def with_use(line: Line, **changes: Any) -> Line:
    return replace(line, uses=tuple(replace(use, **changes) for use in line.uses))


def test_counting_again_finds_what_a_signature_does_not(dated: Path) -> None:
    """One example too few, consistent and signed: the file verifies, and the ledger does not give it."""
    found = surveyed(dated, period=JUNE, now=LATER)
    recount(checked(signed(found, now=LATER), now=LATER), found.ledgers, trust=trust(), now=LATER)
    recount(checked(file_of(found, MIT), now=LATER), found.ledgers, trust=trust(), now=LATER)
    fewer = use_of(found, MIT).examples - 1
    lie = lying(found, examples=fewer, denied=1)
    for file in (file_of(lie, MIT, signed(lie, now=LATER)), signed(lie, now=LATER)):
        told = checked(file, now=LATER)
        with pytest.raises(
            ProvenanceError, match=rf"'open/mit': examples: stated {fewer}, the ledger gives {fewer + 1}"
        ):
            recount(told, found.ledgers, trust=trust(), now=LATER)
    unused: dict[str, Any] = {"examples": 0, "steps": 0, "denied": 0, "first": None, "last": None, "share": 0.0}
    zed = with_use(replace(found.lines[0], party="z"), **unused, layers=())
    nobody = replace(found, lines=(*found.lines, zed))
    with pytest.raises(ProvenanceError, match="the ledger has no class 'z'"):
        recount(checked(signed(nobody, now=LATER), now=LATER), found.ledgers, trust=trust(), now=LATER)
    with pytest.raises(ProvenanceError, match="is not among those given"):
        recount(checked(signed(found, now=LATER), now=LATER), [], trust=trust(), now=LATER)


def test_a_ledger_that_does_not_verify_is_not_stated(run: Path) -> None:
    tile = next(path for path in (run / rundir.LEDGER / "tile").rglob("*") if path.is_file())
    tile.write_bytes(bytes(len(tile.read_bytes())))
    with pytest.raises(LedgerError):
        surveyed(run)


def test_a_run_without_provenance_is_nobodys(run: Path) -> None:
    nothing: dict[str, Any] = {"taxonomy": None, "policy": None, "trust": None}
    sign_again(run, lambda at, entry: replace(entry, **nothing) if isinstance(entry, Genesis) else entry)
    with pytest.raises(LedgerError, match="the run has no taxonomy, so its examples belong to no party"):
        surveyed(run)


def test_the_spool_is_not_what_is_counted(run: Path) -> None:
    """No signature covers it; the ledger's blobs are read."""
    before = surveyed(run)
    shutil.rmtree(run / rundir.CONTRIBUTIONS)
    assert surveyed(run).lines == before.lines


@pytest.mark.parametrize("junk", [b"", b"{}", b"[]", b'{"format": "explorer/usage/v9"}', b"\x00\xff"])
def test_junk_gets_one_clear_error(junk: bytes) -> None:
    with pytest.raises(ProvenanceError, match=r"use\.json: "):
        verify_usage(junk, trust=trust(), now=NOW, where="use.json")


def test_salts_are_new_each_time() -> None:
    assert len({new_salt() for _ in range(100)}) == 100

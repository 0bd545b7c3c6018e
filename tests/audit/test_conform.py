"""Conformance: an honest run conforms, and a signed lie breaks the one condition that it is about."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from explorer import rundir
from explorer.audit.conditions import Outcome
from explorer.audit.conform import Conformance, conform
from explorer.audit.consistent import INVARIANTS
from explorer.canonical import canonical
from explorer.entries import entropy_profile
from explorer.entries.kinds import Decision, End, Entry, Genesis, Profile, Shared, State, Step
from explorer.entries.slots import encode_slots, slots_root
from explorer.ledger.storage import read_blob
from explorer.provenance.commitments import commit, destroy_salt, read_salts
from explorer.provenance.encryption import reading_key, salt_of
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, Rule
from explorer.provenance.regions import depths_of
from explorer.provenance.routing_weights import admit
from explorer.provenance.signing import sign_document
from explorer.provenance.tags import read_tags
from explorer.provenance.tags_file import TagFile
from explorer.provenance.trust import Role
from explorer.runlog.run_ledger import RunLedger
from explorer.training.run import execute
from tests.audit import governed_run as runs
from tests.audit.governed_run import CLASSES, EVERY, LAYERS, MIT, NEWS, sign_again, trust, with_blob, write_governed_run
from tests.governance import desk
from tests.provenance import people
from tests.provenance.people import GOVERNANCE, NOW, RISK, private
from tests.provenance.tables import TAXONOMY
from tests.training import recorded_runs

BODY = 12  # bytes of a layer in a class's content: weight, norm, dot


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_governed_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest run, to be lied about."""
    return Path(shutil.copytree(honest, tmp_path / honest.name))


def judged(run: Path, **changes: Any) -> Conformance:
    return conform(RunLedger(run), **{"trust": trust(), "now": NOW, **changes})


def broken(run: Path) -> tuple[list[str], str]:
    """Which conditions do not hold, and the first contradiction."""
    found = judged(run)
    assert not found.badge.findings, found.badge.findings
    first = [each.message for condition in found.conditions for each in condition.contradictions]
    failing = [condition.name for condition in found.conditions if condition.outcome is Outcome.FAILS]
    return failing, first[0] if first else ""


def test_an_honest_run_conforms(run: Path) -> None:
    found = judged(run)
    assert found.conforms
    names = ["routable", "typed", "reconstructible", "consistent"]
    assert [condition.name for condition in found.conditions] == names
    routable, typed, reconstructible, consistent = (condition.checked for condition in found.conditions)
    assert consistent["comparisons"] > len(INVARIANTS)
    assert (routable["steps"], typed["steps"], typed["examples"], reconstructible["steps"]) == (12, 12, 96, 12)
    assert reconstructible["commitments"] > 30 and not any(condition.notes for condition in found.conditions)


def test_a_run_in_exact_mode_conforms(tmp_path: Path) -> None:
    assert judged(write_governed_run(tmp_path, exact=True)).conforms


def test_without_a_trust_file_no_signature_counts(run: Path) -> None:
    found = judged(run, trust=None)
    assert not found.conforms and all(condition.holds for condition in found.conditions)
    stranger = people.trust(people.governance(), people.risk(), people.authority("x.example", Role.TRAINER))
    stranger = replace(stranger, quorum=replace(stranger.quorum, checkpoints={Role.TRAINER: 1}))
    found = judged(run, trust=stranger)
    assert not found.conforms and not found.badge.verified


def test_without_secrets_commitments_stay_closed(run: Path) -> None:
    (run / rundir.SECRETS).unlink()
    found = judged(run)
    assert found.conforms
    assert found.conditions[2].notes == ("commitments were not opened: the secrets of the classes are missing",)


def test_numbers_that_are_gone_without_an_entry_contradict(run: Path) -> None:
    destroy_salt(run / rundir.SECRETS, CLASSES.index(MIT))
    ledger = RunLedger(run)
    blobs = [segment.state.entry.blobs for segment in ledger.segments()]
    blobs += [placed.entry.blobs for placed in ledger.read(ledger.outline.profiles, Profile)]
    gone = {named[f"numbers/{MIT}"].sha256 for named in blobs}
    for digest in gone:
        path(run, digest).unlink()
    routable, typed, reconstructible, _ = judged(run).conditions
    assert typed.holds and routable.outcome is Outcome.UNTOLD and reconstructible.outcome is Outcome.FAILS
    assert reconstructible.checked.get("erased blobs", 0) == 0
    path(run, blobs[0][f"numbers/{NEWS if f'numbers/{NEWS}' in blobs[0] else 'open'}"].sha256).unlink()
    assert broken(run)[0] == ["reconstructible"]


def path(run: Path, digest: str) -> Path:
    return run / rundir.LEDGER / "blobs" / "sha256" / digest[:2] / digest


def blob(run: Path, entry: Entry, name: str) -> bytes:
    return read_blob(run / rundir.LEDGER, entry.blobs[name].sha256)


def committed(run: Path, entry: Step, class_: str, content: bytes) -> Step:
    """The step with an honest commitment to other content of a class."""
    index = CLASSES.index(class_)
    secret = read_salts(run / rundir.SECRETS).of(index)
    assert secret is not None
    first = entry.step // EVERY * EVERY
    salt = salt_of(reading_key(secret, kind="step", class_path=class_, first=first), entry.step)
    numbers = [*entry.numbers]
    numbers[index] = commit(salt, content).hex()
    return replace(entry, numbers=tuple(numbers))


def change_numbers(run: Path, step: int, class_: str, change: Callable[[np.ndarray], None]) -> None:
    """Other numbers of a class in a step, committed to and signed as if they were true."""
    ledger = RunLedger(run)
    (segment,) = ledger.segments(range(step, step + 1))
    trained = [p.entry.step for p in ledger.read_steps(segment.steps) if p.entry.numbers[CLASSES.index(class_)]]
    name = f"numbers/{class_}"
    content = np.frombuffer(blob(run, segment.state.entry, name), "<f4").reshape(len(trained), len(LAYERS), 2).copy()
    change(content[trained.index(step)])

    def lie(index: int, entry: Entry) -> Entry:
        if isinstance(entry, Step) and entry.step == step:
            return committed(run, entry, class_, content[trained.index(step)].tobytes())
        return with_blob(run, entry, name, content.tobytes()) if index == segment.state.index else entry

    sign_again(run, lie)


# What was routed otherwise.


def test_a_table_that_the_policy_does_not_give(run: Path) -> None:
    loose = runs.routing(Rule(classes=("*",), weight=1.0))
    table = admit(loose, classes=CLASSES, layers=depths_of(LAYERS), progress=0.0)

    def lie(index: int, entry: Entry) -> Entry:
        if not isinstance(entry, Step) or entry.step != 0:
            return entry
        return replace(with_blob(run, entry, "weights", table.content), weights=table.digest)

    sign_again(run, lie)
    names, first = broken(run)
    assert names[0] == "routable" and first == "step 0: the weights in force are not those of the signed policy"


def test_a_class_that_trained_with_less_weight_than_the_policy_gives(run: Path) -> None:
    def lie(numbers: np.ndarray) -> None:
        numbers[:, 0] *= 0.5

    change_numbers(run, 8, "open", lie)
    names, first = broken(run)
    assert "routable" in names and "with less weight than the policy gives it" in first


def test_a_class_that_trained_what_it_is_denied(run: Path) -> None:
    def lie(numbers: np.ndarray) -> None:
        numbers[0] = (1.0, 2.0)

    change_numbers(run, 8, NEWS, lie)
    names, first = broken(run)
    assert names == ["routable", "consistent"]  # it is frozen for it, too
    assert first == "step 8: licensed/news trained embed with more weight than the policy gives it"


def test_more_weight_than_the_policy_gives(run: Path) -> None:
    def lie(numbers: np.ndarray) -> None:
        numbers[:, 1] *= numbers[:, 0]  # the same gradient, unattenuated
        numbers[:, 0] = 1.0

    change_numbers(run, 2, "open", lie)
    assert broken(run)[0] == ["routable"]


def test_a_phase_before_its_time(run: Path) -> None:
    late = [placed.entry.phase for placed in RunLedger(run).read_steps(range(12))][-1]
    sign_again(run, lambda i, e: replace(e, phase=late) if isinstance(e, Step) and e.step == 0 else e)
    assert broken(run)[0] == ["routable"]
    sign_again(run, lambda i, e: replace(e, phase="never") if isinstance(e, Step) and e.step == 0 else e)
    assert broken(run) == (["routable"], "a phase that the policy does not have")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("0111", "step 1: embed took a gradient, and says that it was not updated"),
        ("1111", ""),
    ],
)
def test_what_was_updated(run: Path, flags: str, message: str) -> None:
    sign_again(run, lambda i, e: replace(e, updated=flags) if isinstance(e, Step) and e.step == 1 else e)
    assert broken(run) == (["routable"] if message else [], message)


def test_a_policy_signed_by_the_wrong_role_or_another_policy(run: Path) -> None:
    file = run / rundir.GOVERNANCE / "policy.json"
    content = file.read_bytes()
    other = replace(runs.policy(), name="other")
    write_envelope(file, sign_document(other, POLICY, [private(RISK)], trust=trust(), now=NOW, where="policy"))
    names, first = broken(run)
    assert names == ["routable"] and "the genesis names" in first
    file.write_bytes(content)
    everybody = trust()
    demoted = replace(
        everybody,
        authorities=tuple(
            replace(one, role=Role.DATA_GOVERNANCE, branches=("open",)) if one.name == RISK else one
            for one in everybody.authorities
        ),
    )
    demoted = replace(
        demoted, quorum=replace(demoted.quorum, documents={**demoted.quorum.documents, Role.MODEL_RISK: 1})
    )
    found = judged(run, trust=demoted)
    assert [condition.holds for condition in found.conditions] == [False, True, True, True]
    assert "wrong role" in found.conditions[0].contradictions[0].message


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            Rule(classes=(NEWS,), layers=("embed", "bdy.*"), weight=0.0),
            "the policy does not fit the model: rules[0].layers[1]: 'bdy.*' fits none of the 4 layers; nearest: body.",
        ),
        (
            Rule(classes=(NEWS,), depth=(0.4, 0.5), weight=0.0),
            "the policy does not fit the model: rules[0]: no layer at a depth in [0.4, 0.5)",
        ),
    ],
)
def test_a_rule_that_fits_no_layer_denied_nothing(tmp_path: Path, rule: Rule, message: str) -> None:
    """Whatever the run recorded: it reads as if the class had been kept out."""
    run = write_governed_run(tmp_path, policy=runs.policy(rule, *runs.USUAL.rules))
    names, first = broken(run)
    assert names == ["routable"] and first.startswith(message)


def test_a_denial_under_the_second_name_is_judged(tmp_path: Path) -> None:
    """The genesis says which layers have other names; a table of weights that leaves them out is another one."""
    denied = Rule(classes=("*",), layers=("tied",), weight=0.0)
    run = write_governed_run(tmp_path, policy=runs.policy(denied, *runs.USUAL.rules))
    assert "'tied' fits none of the 4 layers" in broken(run)[1]
    tied = (Shared(layer="head", also=("tied",)),)
    sign_again(run, lambda _, entry: replace(entry, shared=tied) if isinstance(entry, Genesis) else entry)
    names, first = broken(run)
    assert names == ["routable"] and "the weights in force are not those of the signed policy" in first


def test_a_condition_that_nothing_has_switched_on(run: Path) -> None:
    """The half-depth policy has none; a phase with one is refused whatever it says."""
    sign_again(run, lambda i, e: replace(e, phase=f"{e.phase}, settled") if isinstance(e, Step) else e)
    assert broken(run)[0] == ["routable"]


def test_conditions_follow_the_decisions_that_switch_them_on(tmp_path: Path) -> None:
    """A rule that waits for a condition: the phase has it after the activation, and not without one."""
    waiting = Rule(classes=(NEWS,), condition="settled", weight=1.0)
    policy = runs.policy(waiting, Rule(classes=("open",), weight=1.0), conditions=("settled",))
    run = write_governed_run(tmp_path, policy=policy, on={"settled": 6})
    assert broken(run)[0] == []
    kept = tmp_path / "kept"
    shutil.copytree(run, kept / run.name)

    def activations(change: Callable[[Decision], Decision | None]) -> tuple[list[str], str]:
        """What is found where these are otherwise."""
        shutil.rmtree(run)
        shutil.copytree(kept / run.name, run)
        sign_again(run, lambda i, e: change(e) if isinstance(e, Decision) and e.action == "activation" else e)
        return broken(run)

    assert activations(lambda e: None) == (["routable"], "settled: on, and no decision has switched it on")
    nameless = "an activation that names no condition, or no numbers behind it"
    assert activations(lambda e: replace(e, condition=None)) == (["routable"], nameless)
    assert activations(lambda e: replace(e, evidence={}, blobs={})) == (["routable"], nameless)
    other = activations(lambda e: replace(e, condition="ready"))
    assert other == (["routable"], "an activation of ready, a condition that the policy does not have")


# What was typed otherwise.


def test_examples_counted_as_another_class(run: Path) -> None:
    def lie(index: int, entry: Entry) -> Entry:
        if not isinstance(entry, Step) or entry.step != 3:
            return entry
        news, plain, mit = entry.examples
        return replace(entry, examples=(news, plain + 1, mit - 1))

    sign_again(run, lie)
    names, first = broken(run)
    assert names == ["typed"] and first == "step 3: open: the count of examples differs from their tags"


def with_rows(run: Path, rows: np.ndarray, *, root: bool) -> None:
    """Other examples in step 0, and the root that goes with them, or not."""
    ledger = RunLedger(run)
    (segment,) = ledger.segments(range(1))
    content = encode_slots([rows, *(runs.rows_of(step) for step in segment.steps[1:])])
    with TagFile(run / rundir.GOVERNANCE / "tags.parquet") as file:
        leaves = read_tags(file, codes=TAXONOMY.codes, authorities=(GOVERNANCE,)).leaves

    def lie(index: int, entry: Entry) -> Entry:
        if index == segment.state.index:
            return with_blob(run, entry, "slots", content)
        if isinstance(entry, Step) and entry.step == 0 and root:
            return replace(entry, slots=slots_root(rows, leaves).hex())
        return entry

    sign_again(run, lie)


def test_other_examples_than_those_in_the_root(run: Path) -> None:
    rows = runs.rows_of(0)
    same = next(row for row in range(42) if row not in rows and runs.ROW_CLASSES[row] == runs.ROW_CLASSES[rows[0]])
    with_rows(run, np.array([same, *rows[1:]]), root=False)
    names, first = broken(run)
    assert names == ["typed"] and "do not lead to the root" in first


def test_an_example_without_a_tag(run: Path) -> None:
    with_rows(run, np.array([4000, *runs.rows_of(0)[1:]]), root=False)
    names, first = broken(run)
    assert names == ["typed"] and "row 4000 of a tag table of 42" in first


def test_quarantine_that_is_counted_as_trained(run: Path) -> None:
    rows = runs.rows_of(0)
    place = next(at for at, row in enumerate(rows) if runs.ROW_CLASSES[row] == MIT)
    with_rows(run, np.array([*rows[:place], 19, *rows[place + 1 :]]), root=True)
    names, first = broken(run)
    assert names == ["typed"] and MIT in first


def test_a_quarantine_of_its_own(run: Path) -> None:
    """Rows that the genesis sets aside count as quarantined, whatever their tag says."""
    row = int(next(row for row in runs.rows_of(0) if runs.ROW_CLASSES[row] == MIT))
    content = canonical({"erased": [row]})

    def honest(index: int, entry: Entry) -> Entry:
        if isinstance(entry, Genesis):
            return with_blob(run, entry, "quarantine", content)
        if isinstance(entry, Step) and row in runs.rows_of(entry.step):
            news, plain, mit = entry.examples
            return replace(entry, examples=(news, plain, mit - 1), quarantined=entry.quarantined + 1)
        return entry

    sign_again(run, lambda i, e: honest(i, e) if isinstance(e, Genesis) else e)
    assert broken(run)[0] == ["typed"]
    sign_again(run, honest)
    assert broken(run)[0] == []
    sign_again(run, lambda i, e: with_blob(run, e, "quarantine", b'{"x":-1}') if isinstance(e, Genesis) else e)
    assert broken(run) == (["typed"], "entry 0: quarantine: expected lists of rows by reason")


def test_a_tag_table_that_was_changed(run: Path) -> None:
    file = run / rundir.GOVERNANCE / "tags.parquet"
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(content)
    names, first = broken(run)
    assert names == ["typed"] and "not the file that was signed" in first


def test_slots_that_are_gone(run: Path) -> None:
    (segment, *_) = RunLedger(run).segments()
    nameless = {name: each for name, each in segment.state.entry.blobs.items() if name != "slots"}
    sign_again(run, lambda i, e: replace(e, blobs=nameless) if i == segment.state.index else e)
    assert broken(run) == (["typed"], "steps 0 to 4: the list of their examples is missing")


# What cannot be reconstructed.


@pytest.mark.parametrize(
    ("kind", "message"), [(End, "the ledger has no end"), (State, "no state after 12 steps: the last one is after 10")]
)
def test_entries_that_are_missing(run: Path, kind: type, message: str) -> None:
    last = {State: RunLedger(run).outline.states[-1][1], End: RunLedger(run).outline.end}[kind]
    sign_again(run, lambda index, entry: None if index == last else entry)
    names, first = broken(run)
    assert names[0] == "reconstructible" and message in first


def test_numbers_that_were_not_committed_to(run: Path) -> None:
    (segment, *_) = RunLedger(run).segments()
    content = bytearray(blob(run, segment.state.entry, f"numbers/{MIT}"))
    content[4:8] = np.float32(7.0).tobytes()
    sign_again(
        run,
        lambda i, e: with_blob(run, e, f"numbers/{MIT}", bytes(content)) if i == segment.state.index else e,
    )
    names, first = broken(run)
    assert names == ["reconstructible"] and first == f"{MIT}: its numbers are not those that the entry committed to"


def test_sketches_that_were_not_committed_to(run: Path) -> None:
    (segment, *_) = RunLedger(run).segments()
    content = bytearray(blob(run, segment.state.entry, f"sketches/{MIT}"))
    content[4:8] = np.float32(0.5).tobytes()
    sign_again(
        run,
        lambda i, e: with_blob(run, e, f"sketches/{MIT}", bytes(content)) if i == segment.state.index else e,
    )
    names, first = broken(run)
    assert names == ["reconstructible"] and first == f"{MIT}: its numbers are not those that the entry committed to"


def test_one_segment_without_sketches(run: Path) -> None:
    """A run may measure none; one that measures them does so in every segment that trained."""
    last = RunLedger(run).outline.states[-1][1]

    def less(state: State) -> State:
        kept = {name: each for name, each in state.blobs.items() if not name.startswith("sketches/")}
        return replace(state, blobs=kept, sketches=())

    sign_again(run, lambda i, e: less(e) if i == last and isinstance(e, State) else e)
    assert broken(run) == (
        ["consistent"],
        "sketches: no sketches of steps that have numbers, and other states have them",
    )
    sign_again(run, lambda i, e: less(e) if isinstance(e, State) else e)
    assert broken(run) == ([], "")


def test_commitments_to_the_sketches_of_another_number_of_classes(run: Path) -> None:
    last = RunLedger(run).outline.states[-1][1]
    sign_again(run, lambda i, e: replace(e, sketches=e.sketches[:2]) if i == last and isinstance(e, State) else e)
    assert broken(run) == (
        ["reconstructible"],
        f"entry {last}: 2 commitments to sketches for the 3 classes",
    )


@pytest.mark.parametrize(
    ("kind", "name"), [(Profile, f"numbers/{MIT}"), (Profile, "joint"), (Decision, f"evidence/{NEWS}")]
)
def test_profiles_and_evidence_that_were_not_committed_to(run: Path, kind: type, name: str) -> None:
    sign_again(run, lambda i, e: with_blob(run, e, name, b"other") if isinstance(e, kind) else e)
    names, first = broken(run)
    assert names == ["reconstructible"] and "not those that the entry committed to" in first


def test_a_probe_that_was_tested_on_other_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Committed to and signed: the counts of a linear probe, 5 and 3 examples of two classes that have 4 each. The
    control is the same run with counts of 4 and 4."""
    encode, plainly = entropy_profile.encode_joint, runs.profile_of

    def probed(step: int, layers: int = len(LAYERS)) -> entropy_profile.LayerProfiles:
        plain = plainly(step, layers)
        counts = np.array([[3, 1, 0], [0, 4, 0], [1, 0, 3]])
        row = entropy_profile.joint_row(plain.joint[0].tolist(), [1.0, 2.0, 1.0], 0.01, counts)
        return replace(plain, spectra=np.tile(plain.spectra, (1, 1, 2)), joint=np.tile(row, (layers, 1)))

    def forged(found: entropy_profile.LayerProfiles) -> bytes:
        joint = found.joint.copy()
        joint[:, -9:] = [3, 2, 0, 0, 3, 0, 1, 0, 3]
        content = encode(found)
        return content[:4] + joint.astype("<f8").tobytes()

    for name, writes in (("true", encode), ("forged", forged)):
        with monkeypatch.context() as patched:
            patched.setattr("tests.audit.governed_run.profile_of", probed)
            patched.setattr(entropy_profile, "encode_joint", writes)
            made = write_governed_run(tmp_path / name)
        names, first = broken(made)
        if name == "true":
            assert names == [], first
        else:
            assert names == ["reconstructible"]
            assert first == "profile, layer 0: found [5, 3, 4] probes over all classes, expected [4, 4, 4]"


def test_a_blob_that_is_gone_or_cut(run: Path) -> None:
    (segment, *_) = RunLedger(run).segments()
    content = blob(run, segment.state.entry, "joint")
    sign_again(run, lambda i, e: with_blob(run, e, "joint", content[:-4]) if i == segment.state.index else e)
    assert broken(run)[0] == ["reconstructible"]
    sign_again(run, lambda i, e: with_blob(run, e, "joint", content) if i == segment.state.index else e)
    assert broken(run)[0] == []
    path(run, segment.state.entry.blobs["joint"].sha256).unlink()
    names, first = broken(run)
    assert names == ["reconstructible"] and "the blob is missing" in first


def test_a_class_made_smaller_than_it_was(run: Path) -> None:
    """Committed to and signed; but the inner products with the others and the update are still those of the truth."""

    def lie(numbers: np.ndarray) -> None:
        numbers[:, 1] *= 0.1

    change_numbers(run, 8, MIT, lie)
    names, first = broken(run)
    assert names == ["reconstructible"]
    assert first == "step 8: no gradients and no update have the numbers of embed"


def test_a_step_that_was_not_measured(run: Path) -> None:
    def lie(index: int, entry: Entry) -> Entry:
        if isinstance(entry, Step) and entry.step == 11:
            return replace(entry, joint=None)
        return entry

    sign_again(run, lie)
    names, first = broken(run)
    assert "reconstructible" in names and first


def test_a_state_at_the_end_that_is_not_the_last_one(run: Path) -> None:
    sign_again(run, lambda i, e: replace(e, state=runs.state(3)) if isinstance(e, End) else e)
    names, first = broken(run)
    assert names == ["consistent"] and first.startswith("entry 20: tensors: the parameters lead to the root")


def test_a_decision_may_say_what_it_likes(run: Path) -> None:
    """Decisions are on record, and conform whatever they decide: the numbers show what became of them."""
    sign_again(run, lambda i, e: replace(e, rule="other") if isinstance(e, Decision) else e)
    assert broken(run)[0] == []


@pytest.mark.slow
def test_an_average_may_take_the_place_of_the_weights_at_the_end(tmp_path: Path) -> None:
    """`ema` ends a run with its average: other weights than behind the last step, after as many steps."""
    documents = recorded_runs.documents_for_digits(tmp_path)
    run = recorded_runs.planned_run(tmp_path, documents)
    execute(run)
    ledger = RunLedger(run)
    (end,) = ledger.read([ledger.outline.end or 0], End)
    (last,) = ledger.read([ledger.outline.states[-1][1]], State)
    assert end.entry.state.parameters != last.entry.state.parameters
    found = conform(ledger, trust=None, now=desk.NOW)
    assert all(condition.holds for condition in found.conditions), found


def test_when_documents_were_judged_is_for_the_ledger_to_say(run: Path) -> None:
    """Documents that had expired by then are not believed, whatever lies beside the ledger says."""
    assert broken(run)[0] == []
    source = run / "governance" / "source.json"
    if source.exists():
        source.write_text(source.read_text().replace(str(NOW), str(NOW - 10**8)))
    assert broken(run)[0] == []
    sign_again(run, lambda i, e: replace(e, judged=NOW + 10**8) if isinstance(e, Genesis) else e)
    names, first = broken(run)
    assert names and "expired" in first

"""A certificate is compared with the evidence: ledgers, model, plan and documents, each of them changed in turn."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from explorer import run_files, rundir
from explorer.canonical import digest
from explorer.deletion.claims import Outcome
from explorer.deletion.evidence import RECORDS_FILE, read_list
from explorer.entries.fields import LedgerState, write_float
from explorer.entries.kinds import Decision, End, Entry, Genesis, Parent, State, Step
from explorer.errors import ProvenanceError
from explorer.ledger.storage import LedgerDirectory, blob_path
from explorer.provenance.envelope import parse_envelope
from explorer.provenance.policy import Rule
from explorer.run_files import RunRecord
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.runlog.tensors import Tensors, read_ended
from tests.audit.governed_run import CLASSES, NEWS, USUAL, sign_again, with_blob
from tests.builders import with_identity
from tests.deletion import deleted_runs
from tests.deletion.certified import Deletion, certified, checked, failures, replayed, signed_again, structural
from tests.provenance.people import GOVERNANCE, RISK

OTHER = "9" * 64
Change = Callable[[int, Entry], Entry | None]


@pytest.fixture(scope="module")
def g2_once(tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    return structural(tmp_path_factory.mktemp("g2"))


@pytest.fixture(scope="module")
def g3_once(tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    return replayed(tmp_path_factory.mktemp("g3"))


@pytest.fixture
def g2(g2_once: Deletion, tmp_path: Path) -> Deletion:
    return copied(g2_once, tmp_path)


@pytest.fixture
def g3(g3_once: Deletion, tmp_path: Path) -> Deletion:
    return copied(g3_once, tmp_path)


def copied(made: Deletion, root: Path) -> Deletion:
    runs = root / made.old.parent.parent.name
    shutil.copytree(made.old.parent.parent, runs)
    old, new = (runs / run.parent.name / run.name for run in (made.old, made.new))
    return Deletion(old=old, new=new, content=made.content)


def lying(made: Deletion, side: str, change: Change) -> dict[str, str]:
    """What does not hold once a ledger is another one, and trainer and certificate stand by it."""
    run = made.old if side == "old" else made.new
    sign_again(run, change)
    if side == "old":
        head = LedgerState(**head_of(made.old))
        sign_again(
            made.new, of(Genesis, lambda genesis: replace(genesis, parents=(replace(genesis.parents[0], ledger=head),)))
        )
    content = signed_again(made.content, lambda statement: heads(statement, made))
    return failures(checked(made, content))


def head_of(run: Path) -> dict[str, Any]:
    found = LedgerDirectory(run / rundir.LEDGER).checkpoint()
    return {"origin": found.origin, "size": found.size, "root": found.root.hex()}


def heads(statement: Any, made: Deletion) -> None:
    for name, run in (("old", made.old), ("new", made.new)):
        statement["predicate"][name]["ledger"] = head_of(run)


def of(
    kind: type[Any], change: Callable[[Any], Entry | None], *, when: Callable[[Any], bool] = lambda _: True
) -> Change:
    return lambda index, entry: change(entry) if isinstance(entry, kind) and when(entry) else entry


# What any change of a file does.


@pytest.mark.parametrize("side", ["old", "new"])
@pytest.mark.parametrize("name", ["checkpoint", "tile/entries/000.p/", "tile/0/000.p/"])
def test_a_ledger_that_was_changed_is_none(g3: Deletion, side: str, name: str) -> None:
    ledger = (g3.old if side == "old" else g3.new) / rundir.LEDGER
    path = next(iter((ledger / name).iterdir())) if name.endswith("/") else ledger / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    found = checked(g3)
    assert not found.deleted and f"{side} ledger" in failures(found)
    assert {each.outcome for each in found.checks[2:]} == {Outcome.UNSEEN}


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_blob_that_was_changed(g3: Deletion, side: str) -> None:
    ledger = (g3.old if side == "old" else g3.new) / rundir.LEDGER
    path = max((ledger / "blobs").rglob("[0-9a-f]" * 64))
    path.write_bytes(path.read_bytes()[:-1] + b"\x00")
    assert f"{path.relative_to(ledger)}" in failures(checked(g3))[f"{side} ledger"]


FILES = (
    "run.json",
    "model/model.safetensors",
    *(f"governance/{name}.json" for name in ("trust", "taxonomy", "policy")),
)


@pytest.mark.parametrize("name", FILES)
def test_no_byte_of_the_new_run_makes_it_fall_over(g2_once: Deletion, tmp_path: Path, name: str) -> None:
    """What nothing covers (the spelling of JSON, a hint in an envelope) may change; the rest is noticed, in words."""
    made = copied(g2_once, tmp_path)
    path = made.new / name
    content, chance = path.read_bytes(), np.random.default_rng(7)
    noticed = 0
    for at in chance.integers(0, len(content), 12).tolist():
        path.write_bytes(content[:at] + bytes([content[at] ^ int(chance.integers(1, 256))]) + content[at + 1 :])
        noticed += not checked(made).deleted
    assert noticed == 12 if name.startswith("model") else noticed > 2
    path.write_bytes(b"")
    assert not checked(made).deleted


@pytest.mark.parametrize(
    "recipe", [5, [], {"methods": 5}, {"methods": [5]}, {"methods": [{"routing": 5}]}, {"methods": [{"routing": None}]}]
)
@pytest.mark.parametrize("side", ["old", "new"])
def test_a_plan_that_is_none(g3: Deletion, side: str, recipe: Any) -> None:
    """Under the digest that its ledger names."""
    run = g3.old if side == "old" else g3.new
    record = run_files.read(RunRecord, run / rundir.RUN)
    identity = {**record.identity, "recipe": recipe}
    run_files.write(run / rundir.RUN, replace(record, identity=identity))
    found = lying(g3, side, of(Genesis, lambda genesis: replace(genesis, recipe=digest(identity))))
    assert "plan" in found


@pytest.mark.parametrize("side", ["old", "new"])
def test_a_ledger_that_is_not_there(g3: Deletion, side: str) -> None:
    shutil.rmtree((g3.old if side == "old" else g3.new) / rundir.LEDGER)
    assert "no ledger is kept here" in failures(checked(g3))[f"{side} ledger"]


def test_a_ledger_that_another_key_signed(g3: Deletion) -> None:
    sign_again(g3.new, lambda _, entry: entry, seed=RISK)
    assert "new ledger" in failures(checked(g3))


def test_a_ledger_without_its_end(g3: Deletion) -> None:
    assert "unfinished" in lying(g3, "old", of(End, lambda _: None))["old ledger"]


def test_the_other_runs_ledger(g2: Deletion, g3: Deletion) -> None:
    assert "new ledger" in failures(checked(replace(g3, new=g2.new)))
    assert "old ledger" in failures(checked(replace(g3, old=g2.new)))


def test_the_old_ledger_is_enough(g2: Deletion, g3: Deletion, tmp_path: Path) -> None:
    """Numbers and secrets of the class are gone, as they should be; so is everything beside the ledger."""
    for made in (g2, g3):
        alone = tmp_path / f"alone-{made.old.name}"
        shutil.copytree(made.old / rundir.LEDGER, alone / rundir.LEDGER)
        for each in checked(made).certificate.to_destroy:
            if each.what == "numbers":
                (alone / each.path).unlink()
        for place in (alone, alone / rundir.LEDGER):
            assert failures(checked(replace(made, old=place))) == {}


def test_with_only_the_ledger_another_plan_is_noticed(g3: Deletion, tmp_path: Path) -> None:
    def other_plan(statement: Any) -> None:
        statement["predicate"]["target"]["classes"] = ["open/mit"]

    shutil.move(g3.old / rundir.LEDGER, tmp_path / rundir.LEDGER)
    found = failures(checked(replace(g3, old=tmp_path), signed_again(g3.content, other_plan)))
    assert "with the target put back is not the one that the old ledger names" in found["plan"]


# Model.


def test_a_swapped_model(g2: Deletion) -> None:
    shutil.copy(g2.old / rundir.MODEL / MODEL, g2.new / rundir.MODEL / MODEL)
    assert "SHA-256" in failures(checked(g2))["model"]


def certified_model(made: Deletion) -> bytes:
    """A certificate of the file that is there, whatever it holds."""
    sha256 = ModelFile(made.new / rundir.MODEL / MODEL).sha256
    return signed_again(made.content, lambda statement: statement["subject"][0]["digest"].update(sha256=sha256))


def test_a_model_that_the_ledger_does_not_end_with(g2: Deletion) -> None:
    path = g2.new / rundir.MODEL / MODEL
    tensors = load_file(path)
    name = min(tensors)
    save_file(tensors | {name: np.nextafter(tensors[name], np.float32(9))}, path)
    assert f"not what the new ledger ends with: {name}" in failures(checked(g2, certified_model(g2)))["model"]
    shutil.copy(g2.old / rundir.MODEL / MODEL, path)  # the region is still there
    assert "not one of the model's" in failures(checked(g2, certified_model(g2)))["model"]


def test_no_model(g2: Deletion) -> None:
    (g2.new / rundir.MODEL / MODEL).unlink()
    found = checked(g2)
    assert not found.deleted and "there is no" in failures(found)["model"]
    assert [each.name for each in found.checks if each.outcome is Outcome.UNSEEN] == ["model"]


# Plan and documents.


def test_another_plan(g3: Deletion) -> None:
    """A run with another seed, or that leaves out somebody else as well, is no counterfactual of this one."""
    path = g3.new / rundir.RUN
    record = run_files.read(RunRecord, path)
    run_files.write(path, with_identity(record, {**record.identity, "seed": 1}))
    assert "names another recipe" in failures(checked(g3))["plan"]


def test_no_plan(g3: Deletion) -> None:
    (g3.new / rundir.RUN).unlink()
    assert "there is neither run.json" in failures(checked(g3))["plan"]


@pytest.mark.parametrize(
    "name", ["code", "data", "taxonomy", "policy", "trust", "judged", "seed", "initial", "strategy", "tags", "layers"]
)
def test_what_determines_a_run_is_the_same_in_both(g3: Deletion, name: str) -> None:
    others = {"judged": 1, "seed": 7, "strategy": "fused", "tags": {}, "layers": ("embed", "body.0", "body.1", "tail")}
    found = lying(g3, "new", of(Genesis, lambda genesis: replace(genesis, **{name: others.get(name, OTHER)})))
    assert f"{name} in the new ledger's first entry" in found["plan"]


def test_an_unsigned_policy(g2: Deletion) -> None:
    path = g2.new / rundir.GOVERNANCE / "policy.json"
    path.write_bytes(path.read_bytes().replace(b'"sig":"', b'"sig":"A', 1))
    assert "documents" in failures(checked(g2))
    path.unlink()
    assert "documents" in failures(checked(g2))


@pytest.mark.parametrize(
    "parents",
    [
        lambda parents: (),
        lambda parents: (*parents, *parents),
        lambda parents: (replace(parents[0], ledger=replace(parents[0].ledger, size=1)),),
        lambda parents: (replace(parents[0], ledger=replace(parents[0].ledger, root=OTHER)),),
        lambda parents: (replace(parents[0], kind="model"),),
        lambda parents: (*parents, replace(parents[0], kind="model")),
    ],
)
def test_another_parent(g3: Deletion, parents: Callable[[Any], Any]) -> None:
    assert "parent" in lying(g3, "new", of(Genesis, lambda genesis: replace(genesis, parents=parents(genesis.parents))))


def test_the_model_that_both_began_with(tmp_path: Path) -> None:
    ledger = LedgerState(origin="example.com/base", size=9, root=OTHER)
    base = Parent(kind="model", ledger=ledger, model=OTHER, attestation=OTHER, admitted={})
    old = deleted_runs.write_old(tmp_path, USUAL, parents=(base,))
    made = certified(old, deleted_runs.replayed(old))
    assert checked(made).deleted
    alone = of(Genesis, lambda genesis: replace(genesis, parents=genesis.parents[1:]))
    assert "models that the new run begins with: found []" in lying(made, "new", alone)["parent"]


def test_what_the_model_before_had_learned_is_not_deleted_here(tmp_path: Path) -> None:
    """No step of this run can take it away, so nobody certifies it, and no certificate of it holds."""
    admitted = {NEWS: write_float(1.0)}
    ledger = LedgerState(origin="example.com/base", size=9, root=OTHER)
    base = Parent(kind="model", ledger=ledger, model=OTHER, attestation=OTHER, admitted=admitted)
    old = deleted_runs.write_old(tmp_path, USUAL, parents=(base,))
    with pytest.raises(ProvenanceError, match=f"not certified: the target .* trained on {NEWS}: delete it there"):
        certified(old, deleted_runs.replayed(old))


# By structure.


def other_tensors(run: Path, change: Callable[[Tensors], Tensors]) -> Change:
    """The end of the run with other tensors, from which its roots follow."""
    made = change(read_ended(RunLedger(run)).tensors)
    roots = dict(zip(("parameters", "buffers", "optimizer"), made.roots, strict=True))
    return of(End, lambda end: with_blob(run, replace(end, state=replace(end.state, **roots)), "tensors", made.content))


@pytest.mark.parametrize("group", ["parameters", "buffers", "optimizer"])
def test_a_kept_tensor_that_is_another_one(g2: Deletion, group: str) -> None:
    def moved(tensors: Tensors) -> Tensors:
        leaves: dict[str, str] = getattr(tensors, group)
        return replace(tensors, **{group: {**leaves, min(leaves): OTHER}})

    found = lying(g2, "new", other_tensors(g2.new, moved))
    assert f"the new run's end: {group}: " in found["kept"]
    assert f"found {OTHER}" in found["kept"]


def test_a_region_that_was_not_dropped_whole(g2: Deletion) -> None:
    name = "optimizer/news/0/body.0.@news.up.weight/momentum_buffer"
    leaf = read_ended(RunLedger(g2.old)).tensors.optimizer[name]
    stays = other_tensors(g2.new, lambda tensors: replace(tensors, optimizer={**tensors.optimizer, name: leaf}))
    assert f"{name}: not one of the model's" in lying(g2, "new", stays)["kept"]


def test_the_list_of_tensors_leads_to_the_roots(g2: Deletion) -> None:
    """Another list under the old roots is noticed before anything is compared."""
    made = read_ended(RunLedger(g2.old)).tensors
    less = replace(made, parameters=dict(sorted(made.parameters.items())[1:]))
    found = lying(g2, "old", of(End, lambda end: with_blob(g2.old, end, "tensors", less.content)))
    assert "lead to the root" in found["dropped"] and "lead to the root" in found["kept"]


def test_a_list_of_tensors_that_is_gone(g2: Deletion) -> None:
    blob = read_ended(RunLedger(g2.old)).end.entry.blobs["tensors"]
    (g2.old / rundir.LEDGER / blob_path(blob.sha256)).unlink()
    assert "the list of tensors at its end is missing" in failures(checked(g2))["kept"]


def decided(over: tuple[str, ...], by: str) -> Callable[[State], Entry]:
    return lambda state: Decision(
        step=state.step,
        action="freeze",
        rule="settled",
        parameters={},
        condition=None,
        subjects=over,
        layers=(),
        evidence={by: OTHER},
        blobs={},
    )


def in_place_of_state(step: int, entry: Callable[[Any], Entry]) -> Change:
    return of(State, entry, when=lambda state: state.step == step)


def test_a_class_that_decided_over_others_is_not_isolated(g2: Deletion) -> None:
    found = lying(g2, "old", in_place_of_state(5, decided(("open/mit",), NEWS)))
    assert f"{NEWS}: entry 6: its numbers decided a freeze over open/mit" in found["isolated"]


def test_a_class_that_trained_shared_layers_is_not_isolated(tmp_path: Path) -> None:
    """A policy that lets it train everything beside its region."""
    old = deleted_runs.write_old(tmp_path, replace(deleted_runs.SEALED, rules=(Rule(classes=("*",), weight=1.0),)))
    with pytest.raises(ProvenanceError, match="licensed/news: trained embed and 3 more layers outside of sealed"):
        certified(old, deleted_runs.structural(old))


def test_a_region_that_others_live_in_is_not_dropped(tmp_path: Path) -> None:
    region = replace(deleted_runs.REGION, branch="open")
    old = deleted_runs.write_old(tmp_path, replace(deleted_runs.SEALED, sealed=(region,), rules=()))
    target = Target(classes=("open/mit",))
    with pytest.raises(ProvenanceError, match="its region 'news' is that of open too"):
        certified(old, deleted_runs.structural(old, target=target))


def test_something_was_trained_after(g2: Deletion, tmp_path: Path) -> None:
    old = deleted_runs.write_old(tmp_path / "again", deleted_runs.SEALED)
    with pytest.raises(ProvenanceError, match="steps that the new ledger takes over: found 11, expected 12"):
        certified(old, deleted_runs.structural(old, begins=11))
    other = of(Genesis, lambda genesis: replace(genesis, start=replace(genesis.start, random=OTHER)))
    assert "the state that it begins with" in lying(g2, "new", other)["nothing trained"]


# By replay.


def test_an_earlier_influence(g3: Deletion) -> None:
    """By the old ledger the table that admits the class was in force in the third step already."""
    first = next(step.entry for step in RunLedger(g3.old).read_steps(range(5, 6)))
    admitting = {"weights": first.weights, "blobs": first.blobs}
    early = of(Step, lambda step: replace(step, **admitting), when=lambda step: step.step == 2)
    found = lying(g3, "old", early)
    assert "found 5, expected 2" in found["influence"]
    assert f"{NEWS} could have influenced step 2" in found["start"]


@pytest.mark.parametrize("root", ["parameters", "buffers", "optimizer", "random"])
def test_a_start_that_the_old_run_never_had(g3: Deletion, root: str) -> None:
    """A batch-norm statistic that was touched, a momentum that was not put back."""
    found = lying(
        g3, "new", of(Genesis, lambda genesis: replace(genesis, start=replace(genesis.start, **{root: OTHER})))
    )
    assert f"the state that the new ledger begins with: {root}: found {OTHER}" in found["start"]


def test_a_start_that_is_on_no_record(tmp_path: Path) -> None:
    old = deleted_runs.write_old(tmp_path, USUAL)
    with pytest.raises(Exception, match="the old ledger has no state after 3 steps"):
        certified(old, deleted_runs.replayed(old, begins=3))


def test_from_the_very_beginning(tmp_path: Path) -> None:
    made = replayed(tmp_path, begins=0)
    found = checked(made)
    assert found.deleted and found.certificate.replay is not None
    assert (found.certificate.replay.begins, found.certificate.replay.start) == (0, None)


@pytest.mark.parametrize("name", ["slots", "examples", "quarantined"])
def test_shifted_slots(g3: Deletion, name: str) -> None:
    changes: dict[str, Callable[[Step], Any]] = {
        "slots": lambda step: OTHER,
        "examples": lambda step: step.examples[::-1] if step.examples != step.examples[::-1] else (0, 0, 8),
        "quarantined": lambda step: step.quarantined + 1,
    }
    later = of(Step, lambda step: replace(step, **{name: changes[name](step)}), when=lambda step: step.step == 9)
    assert f"step 9: {name}: found" in lying(g3, "new", later)["batches"]


def test_the_class_has_numbers_still(g3: Deletion) -> None:
    def numbered(step: Step) -> Step:
        return replace(step, numbers=(OTHER, *step.numbers[1:]))

    found = lying(g3, "new", of(Step, numbered, when=lambda step: step.step == 8))
    assert f"the step at 8 has numbers of a deleted class: {NEWS}" in found["absent"]


def test_the_class_decides_still(g3: Deletion) -> None:
    found = lying(g3, "new", in_place_of_state(10, decided((NEWS,), NEWS)))
    assert f"the decision at 10 has numbers of a deleted class: {NEWS}" in found["absent"]


def test_a_replay_that_the_class_took_part_in_is_never_certified(tmp_path: Path) -> None:
    old = deleted_runs.write_old(tmp_path, USUAL)
    with pytest.raises(ProvenanceError, match="not certified: the new ledger has no numbers of a class"):
        certified(old, deleted_runs.replayed(old, without=()))


# Records, and what an authority vouches for.


RECORDS = (5, 8)


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Deletion:
    root = tmp_path_factory.mktemp("records")
    return replayed(root, target=Target(records=RECORDS), begins=0, without=())


def test_records_are_opened_by_their_list(listed: Deletion) -> None:
    found = checked(listed, records=listed.new / RECORDS_FILE)
    assert failures(found) == {}
    assert found.certificate.target.words == "2 records"
    assert b"[5,8]" not in parse_envelope(listed.content, where="certificate").payload
    assert (listed.new / RECORDS_FILE).stat().st_mode & 0o077 == 0


def test_without_their_list_nothing_is_called_deleted(listed: Deletion) -> None:
    found = checked(listed)
    assert not found.deleted
    unseen = [each.name for each in found.checks if each.outcome is Outcome.UNSEEN]
    assert {"target", "plan"} <= {*unseen}


@pytest.mark.parametrize("change", [{"records": (5, 9)}, {"salt": OTHER}, {"records": (5,)}])
def test_another_list_does_not_open_it(listed: Deletion, tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "list.json"
    run_files.write(path, replace(read_list(listed.new / RECORDS_FILE), **change))
    found = failures(checked(listed, records=path))
    assert "does not open the commitment" in found["target"]


@pytest.mark.parametrize(("name", "value"), [("commitment", OTHER), ("number", 3)])
def test_another_commitment_is_not_opened(listed: Deletion, name: str, value: Any) -> None:
    def other(statement: Any) -> None:
        statement["predicate"]["target"]["records"][name] = value

    found = failures(checked(listed, signed_again(listed.content, other), records=listed.new / RECORDS_FILE))
    assert "does not open the commitment" in found["target"]


def test_a_list_of_records_that_is_none(listed: Deletion, tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text("[5, 8]")
    with pytest.raises(ProvenanceError, match=r"list\.json"):
        checked(listed, records=path)


def test_who_looked_at_single_examples_the_old_plan_says(listed: Deletion, tmp_path: Path) -> None:
    shutil.copytree(listed.old / rundir.LEDGER, tmp_path / rundir.LEDGER)
    found = checked(replace(listed, old=tmp_path), records=listed.new / RECORDS_FILE)
    assert [each.name for each in found.checks if each.outcome is Outcome.UNSEEN] == ["influence", "start"]
    assert failures(found)["influence"].startswith("which methods looked at single examples")


def test_what_an_authority_vouches_for(tmp_path: Path) -> None:
    target = Target(authorities=(GOVERNANCE,))
    found = checked(replayed(tmp_path, target=target, begins=0, without=CLASSES))
    assert failures(found) == {}
    assert found.certificate.target.words == f"what {GOVERNANCE} vouches for"

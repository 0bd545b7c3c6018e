"""A forger who holds all keys changes one statement and signs the whole ledger again: the others contradict him."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from explorer import run_files, rundir
from explorer.audit.conditions import Judgement, Outcome
from explorer.audit.conform import Conformance, conform
from explorer.audit.consistent import INVARIANTS, LONGEST, Consistent
from explorer.audit.judge import Audited
from explorer.audit.withheld import Withheld
from explorer.canonical import digest
from explorer.entries.fields import write_float
from explorer.entries.heads import write_entry
from explorer.entries.kinds import Decision, End, Entry, Genesis, Profile, Shared, State, Step, decode, encode
from explorer.errors import RunError
from explorer.ledger.storage import LedgerDirectory, read_blob
from explorer.provenance.commitments import commit, read_salts
from explorer.provenance.encryption import reading_key, salt_of
from explorer.run_files import RunRecord
from explorer.runlog.influence import read_record
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.tensors import parse_tensors, read_ended
from explorer.training.run import execute
from tests import tensors_for_tests as models
from tests.audit import governed_run as runs
from tests.audit.governed_run import (
    CLASSES,
    LAYERS,
    MIT,
    NEWS,
    again,
    executed_again,
    rewrite,
    sign_again,
    trust,
    with_blob,
)
from tests.deletion import deleted_runs
from tests.governance import desk
from tests.provenance.people import NOW
from tests.training import recorded_runs

RANDOM = "5" * 64


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.write_governed_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / honest.name))


def judged(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=trust(), now=NOW)


def said(found: Conformance) -> list[str]:
    """What the fourth condition has to say against the record."""
    assert found.badge.verified, "the forger signs"
    return [each.message for each in found.conditions[3].contradictions]


def of(kind: type, *, step: int | None = None, **changes: Any) -> Callable[[Path], None]:
    """Sign again with these fields of the entries of a kind."""

    def forge(run: Path) -> None:
        def change(_: int, entry: Entry) -> Entry:
            here = isinstance(entry, kind) and (step is None or getattr(entry, "step", None) == step)
            return replace(entry, **changes) if here else entry

        sign_again(run, change)

    return forge


def blobs(kind: type, *, step: int, without: str = "", name: str = "", content: bytes = b"") -> Callable[[Path], None]:
    """Sign again with a blob more, or without one."""

    def forge(run: Path) -> None:
        def change(_: int, entry: Entry) -> Entry:
            if not isinstance(entry, kind) or getattr(entry, "step", None) != step:
                return entry
            if name:
                return with_blob(run, entry, name, content)
            assert without in entry.blobs
            return replace(entry, blobs={each: blob for each, blob in entry.blobs.items() if each != without})

        sign_again(run, change)

    return forge


def in_file(name: str, **changes: Any) -> Callable[[Path], None]:
    """Write a JSON file of the directory again."""

    def forge(run: Path) -> None:
        value = json.loads((run / name).read_text())
        rundir.write_json(run / name, value | changes)

    return forge


def other_end(run: Path) -> None:
    """The tensors of another model at the end, and that model in the directory: nothing else was done."""
    tensors = models.tensors(LAYERS, 99)
    parameters, buffers, optimizer = tensors.roots

    def change(_: int, entry: Entry) -> Entry:
        if not isinstance(entry, End):
            return entry
        state = replace(entry.state, parameters=parameters, buffers=buffers, optimizer=optimizer)
        return with_blob(run, replace(entry, state=state), "tensors", tensors.content)

    sign_again(run, change)
    models.write_model(run, LAYERS, 99)


def layers(*names: str) -> Callable[[Path], None]:
    return of(Genesis, layers=names)


def sketched(run: Path, change: Callable[[np.ndarray], None]) -> None:
    """Other sketches of MIT in the first segment, honestly committed to."""
    (segment, *_) = RunLedger(run).segments()
    name, state = f"sketches/{MIT}", segment.state.entry
    content = np.frombuffer(LedgerDirectory(run / rundir.LEDGER).blob(state.blobs[name].sha256), "<f4").copy()
    change(content.reshape(len(LAYERS), 64))
    secret = read_salts(run / rundir.SECRETS).of(CLASSES.index(MIT))
    assert secret is not None
    key = reading_key(secret, kind="step", class_path=MIT, first=segment.first)
    committed = [*state.sketches]
    committed[CLASSES.index(MIT)] = commit(salt_of(key, state.step), content.tobytes()).hex()

    def forge(index: int, entry: Entry) -> Entry:
        if index != segment.state.index or not isinstance(entry, State):
            return entry
        return with_blob(run, replace(entry, sketches=tuple(committed)), name, content.tobytes())

    sign_again(run, forge)


def longer(run: Path) -> None:
    def change(content: np.ndarray) -> None:
        content[1] *= 1000

    sketched(run, change)


def batch_size(run: Path) -> None:
    in_file("run.json", batch_size=16)(run)


def state_of(step: int, **changes: Any) -> Callable[[Path], None]:
    def forge(run: Path) -> None:
        def change(_: int, entry: Entry) -> Entry:
            if isinstance(entry, State) and entry.step == step:
                return replace(entry, state=replace(entry.state, **changes))
            return entry

        sign_again(run, change)

    return forge


@dataclass(frozen=True, slots=True)
class Forgery:
    invariant: str
    forge: Callable[[Path], None]
    words: str = ""


FORGERIES = {
    "a ledger named after another run": Forgery("name", of(Genesis, run="another"), "not named after its run"),
    "gradients of the whole batch at once": Forgery("strategy", of(Genesis, strategy="plain")),
    "gradients split in the backward pass": Forgery("strategy", of(Genesis, strategy="fused")),
    "other initial parameters": Forgery("begin", of(Genesis, initial=RANDOM), "not the parameters that it lists"),
    "a start without steps before it": Forgery("begin", of(Genesis, start=runs.state(0))),
    "a layer renamed past its rule": Forgery("layers", layers("embed", "body.0", "body.1", "haed"), "head.weight"),
    "a layer left out": Forgery("layers", layers("embed", "body.0", "body.1"), "parameter head.weight: of no layer"),
    "a layer of no tensor": Forgery("layers", layers(*LAYERS, "spare"), "layer spare: no tensor"),
    "a layer listed twice": Forgery("layers", layers(*LAYERS, "head"), "twice"),
    "second names of no layer": Forgery("layers", of(Genesis, shared=(Shared(layer="tail", also=("tied",)),))),
    "another probe set": Forgery("profiles", of(Profile, step=9, probes=RANDOM), "another probe set"),
    "a profile without its numbers": Forgery("profiles", blobs(Profile, step=3, without=f"numbers/{MIT}")),
    "a decision about no layer": Forgery("decisions", of(Decision, step=3, layers=("tail",)), "layer tail"),
    "a decision about no class": Forgery("decisions", of(Decision, step=3, subjects=("open/gpl",)), "open/gpl"),
    "a decision without its evidence": Forgery("decisions", blobs(Decision, step=3, without=f"evidence/{NEWS}")),
    "another model at the end": Forgery("end state", other_end, "no method of the run averages"),
    "a state from another seed": Forgery("random", state_of(10, random=RANDOM), "random: not what seed 0"),
    "another seed": Forgery("random", of(Genesis, seed=7), "not what seed 7"),
    "another environment": Forgery("environment", of(Genesis, environment=RANDOM)),
    "other code": Forgery("environment", of(Genesis, code=RANDOM), "code: not the one"),
    "an environment.json of today": Forgery("environment", in_file("environment.json", python="3.14")),
    "another recipe": Forgery("recipe", of(Genesis, recipe=RANDOM), "not the recipe that the genesis names"),
    "methods that are not the recipe's": Forgery("recipe", of(Genesis, methods={}), "methods: not as in run.json"),
    "a seed beside the identity": Forgery("recipe", in_file("run.json", seed=99), "its identity says 0"),
    "methods beside the identity": Forgery("recipe", in_file("run.json", methods=["ema"]), "its identity says"),
    "a run that stopped when it was done": Forgery("length", of(End, outcome="stopped"), "run.json plans 12"),
    "other metrics": Forgery("result", of(End, metrics={"accuracy": write_float(0.99)}), "metric accuracy"),
    "a metric left out": Forgery("result", of(End, metrics={"accuracy": write_float(0.9)}), "metric nll"),
    "another model file": Forgery("model", lambda run: models.write_model(run, LAYERS, 99) and None),
    "another batch size": Forgery("batches", batch_size, "another batch size than in run.json"),
    "a table that is not the one in force": Forgery("tables", blobs(Step, step=0, name="weights", content=b"{}")),
    "a table that is named nowhere": Forgery("tables", blobs(Step, step=5, without="weights"), "step 5"),
    "numbers that no blob holds": Forgery("blobs", blobs(State, step=5, without=f"numbers/{MIT}"), MIT),
    "numbers over several in no blob": Forgery("blobs", blobs(State, step=10, without="joint"), "joint"),
    "numbers that nothing commits to": Forgery("blobs", blobs(State, step=5, name="numbers/open/gpl", content=b"1")),
    "sketches that are committed to, and gone": Forgery("sketches", blobs(State, step=5, without=f"sketches/{MIT}")),
    "sketches without commitments": Forgery("sketches", of(State, step=5, sketches=()), "does not commit to"),
    "estimates where the recipe has none": Forgery("sketches", of(Step, step=5, estimated=True), "numbers estimates"),
    "sketches of other gradients": Forgery("sketches", longer, "longer than its gradients can make it"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_one_statement_is_changed_and_contradicts_another(run: Path, name: str) -> None:
    forgery = FORGERIES[name]
    forgery.forge(run)
    found = judged(run)
    assert found.outcome is Outcome.FAILS
    mine = [words for words in said(found) if words.startswith(f"{forgery.invariant}: ")]
    assert any(forgery.words in words for words in mine), said(found)


def test_every_invariant_has_a_forgery_that_it_finds() -> None:
    """Those left are broken below, by more than a field."""
    below = {"judged", "closed", "end tensors", "parents", "frozen"}
    assert {each.invariant for each in FORGERIES.values()} | below == {each.name for each in INVARIANTS}


def test_estimates_are_where_the_recipe_has_them(tmp_path: Path) -> None:
    run = runs.write_governed_run(tmp_path, exact_every=3)
    assert judged(run).conforms
    of(Step, step=4, estimated=False)(run)
    assert "sketches: step 4: its entry calls its numbers exact" in said(judged(run))


def test_security_lists_the_invariants_by_name() -> None:
    """Each in a row of its own, or with others of its kind."""
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text()
    table = text.partition("## What conform compares")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| ")]
    assert {name.strip() for row in rows[1:] for name in row.split(",")} == {each.name for each in INVARIANTS}


def test_the_honest_run_contradicts_nothing(run: Path) -> None:
    found = judged(run)
    assert found.conforms and not said(found) and not found.conditions[3].notes


@pytest.mark.parametrize("part", ["parameters", "buffers", "optimizer"])
def test_roots_at_the_end_follow_from_its_tensors(run: Path, part: str) -> None:
    def change(_: int, entry: Entry) -> Entry:
        return replace(entry, state=replace(entry.state, **{part: RANDOM})) if isinstance(entry, End) else entry

    sign_again(run, change)
    assert any(f"the {part} lead to the root" in words for words in said(judged(run)))


@pytest.mark.parametrize("name", ["environment.json", "run.json"])
def test_without_the_file_it_cannot_be_told(run: Path, name: str) -> None:
    (run / name).unlink()
    found = judged(run)
    assert found.conditions[3].outcome is Outcome.UNTOLD and not said(found)


def test_no_reader_takes_fields_that_the_identity_contradicts(run: Path) -> None:
    record = run_files.read(RunRecord, run / rundir.RUN)
    assert read_record(RunLedger(run)) == record
    for change in ({"seed": 99}, {"methods": ("ema",)}, {"ssr": 0.5}, {"model": "resnet8"}, {"recipe_digest": RANDOM}):
        run_files.write(run / rundir.RUN, replace(record, **change))
        with pytest.raises(RunError, match=next(iter(change))):
            read_record(RunLedger(run))


def test_a_run_that_continues_another_names_the_one_in_its_origin(tmp_path: Path) -> None:
    new = deleted_runs.replayed(deleted_runs.write_old(tmp_path, runs.USUAL))

    def parents() -> list[str]:
        return [words for words in said(judged(new)) if words.startswith("parents: ")]

    assert not parents()
    origin = (new / rundir.ORIGIN).read_text()
    in_file(rundir.ORIGIN, begins=4)(new)
    assert parents() == [f"parents: parents, begins or start: not those of {rundir.ORIGIN}"]
    (new / rundir.ORIGIN).write_text(origin)
    of(Genesis, parents=())(new)
    assert len(parents()) == 1
    (new / rundir.ORIGIN).unlink()
    assert not parents(), "no statement is left that there was a parent"
    with_parent = deleted_runs.replayed(deleted_runs.write_old(tmp_path / "other", runs.USUAL))
    (with_parent / rundir.ORIGIN).unlink()
    assert any("what was left out, is missing" in each.message for each in judged(with_parent).conditions[3].untold)


# What was executed again.


def test_what_was_executed_again_conforms_where_both_executions_do(run: Path) -> None:
    rewrite(run, lambda leaves: executed_again(leaves, lambda entry: entry))
    found = judged(run)
    assert found.conforms, [each.contradictions for each in found.conditions]
    assert found.conditions[2].checked["segments"] == 4 and found.conditions[0].checked["states compared"] == 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"updated": "0111"}, "took a gradient, and says that it was not updated"),
        ({"weights": RANDOM}, "the weights in force are not those of the signed policy"),
        ({"quarantined": 0, "examples": (8, 0, 0)}, "the count of examples differs from their tags"),
        ({"slots": RANDOM}, "the tags of its examples do not lead to the root"),
        ({"numbers": (None, RANDOM, RANDOM)}, "of 160 bytes, at most 128"),
    ],
)
def test_a_violation_that_was_executed_again_stays_one(run: Path, change: dict[str, Any], words: str) -> None:
    def first(entry: Entry) -> Entry:
        return replace(entry, **change) if isinstance(entry, Step) and entry.step == 7 else entry

    rewrite(run, lambda leaves: executed_again(leaves, first))
    found = judged(run)
    messages = [each.message for condition in found.conditions for each in condition.contradictions]
    assert found.outcome is Outcome.FAILS and any(words in message for message in messages), messages


def test_steps_that_were_executed_again_before_a_state_closed_them_are_named(run: Path) -> None:
    rewrite(run, lambda leaves: executed_again(leaves, lambda entry: entry, closed=False))
    assert said(judged(run)) == ["closed: steps 5 to 9 were executed again, and their numbers are on no record"]


def test_a_state_that_was_recorded_again_is_judged_too(run: Path) -> None:
    """The steps are the same, their numbers are not: the first state says what no step committed to."""
    (segment, *_) = RunLedger(run).segments()
    at = segment.state.index

    def twice(leaves: list[bytes]) -> list[bytes]:
        state = decode(leaves[at])
        assert isinstance(state, State)
        other = replace(state, state=replace(state.state, random=RANDOM))
        return [*leaves[:at], encode(other), again(5), *leaves[at:]]

    rewrite(run, twice)
    assert [words.split(":")[0] for words in said(judged(run))] == ["random"]


@pytest.mark.parametrize("version", [1, 2])
def test_entries_of_kinds_that_are_not_known_are_named(run: Path, version: int) -> None:
    kind = "weather" if version == 1 else "profile"
    leaf = write_entry({"blobs": {}, "kind": kind, "version": version, "step": 12})
    rewrite(run, lambda leaves: [*leaves[:-1], leaf, leaves[-1]])
    found = judged(run)
    messages = [each.message for each in found.conditions[2].contradictions]
    assert messages[0] == f"an entry of a kind that is not known here: {kind} v{version}"


# Times.


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (-200 * 24 * 3600, "judged for a moment after the ledger was cosigned"),
        (0, ""),
        (300 * 24 * 3600, ""),
        (LONGEST + 1, "more than a year before any cosignature"),
    ],
)
def test_documents_are_judged_before_the_first_cosignature(run: Path, after: int, words: str) -> None:
    judgement = Judgement("consistent", "")
    audited = Audited(
        run=RunLedger(run),
        rules=None,
        tags=None,
        total=None,
        withheld=Withheld(erased={}, without=""),
        cosigned=(NOW + after, NOW + after + 10**7),
        trust=None,
    )
    Consistent(audited, judgement)
    messages = [each.message for each in judgement.close().contradictions]
    assert [words in message for message in messages] == ([True] if words else [])


# Averages, in a run that was trained.


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ends with the average of its weights."""
    root = tmp_path_factory.mktemp("averaged")
    run = recorded_runs.planned_run(root, recorded_runs.documents_for_digits(root))
    execute(run)
    return run


def trained(run: Path) -> Conformance:
    return conform(RunLedger(run), trust=None, now=desk.NOW)


@pytest.mark.slow
def test_a_run_may_end_with_the_average_in_its_last_state(averaged: Path, tmp_path: Path) -> None:
    assert trained(averaged).conditions[3].holds
    copy = recorded_runs.copied(averaged, tmp_path)
    (copy / rundir.MODEL / MODEL).unlink()
    found = trained(copy).conditions[3]
    assert found.outcome is Outcome.UNTOLD and "model.safetensors is missing" in found.untold[0].message


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parameters", "buffers", "optimizer"])
def test_what_is_neither_trained_nor_averaged_is_named(averaged: Path, tmp_path: Path, kind: str) -> None:
    """One tensor of another model at the end of a run that averages: in its list, its roots, and its model's file."""
    ended = read_ended(RunLedger(averaged))
    old = getattr(ended.tensors, kind)
    name = next(name for name in sorted(old, reverse=True) if not name.startswith(("ema/", "recorder/")))
    values = load_file(averaged / rundir.MODEL / MODEL)
    leaf = RANDOM
    if kind != "optimizer":
        values[name] = values[name] + 1
        save_file(values, tmp_path / MODEL)
        leaf = ModelFile(tmp_path / MODEL).leaves()[name]
    tensors = replace(ended.tensors, **{kind: old | {name: leaf}})
    parameters, buffers, optimizer = tensors.roots
    state = replace(ended.end.entry.state, parameters=parameters, buffers=buffers, optimizer=optimizer)

    def change(entries: list[bytes]) -> list[bytes]:
        end = with_blob(tmp_path / averaged.name, replace(ended.end.entry, state=state), "tensors", tensors.content)
        return [*entries[:-1], encode(end)]

    run = recorded_runs.rewritten(averaged, tmp_path, change)
    save_file(values, run / rundir.MODEL / MODEL)
    messages = [each.message for each in trained(run).conditions[3].contradictions]
    assert len(messages) == 1 and messages[0].startswith("end state: ") and name in messages[0], messages


@pytest.mark.slow
def test_an_average_of_only_some_tensors_is_reported(averaged: Path, tmp_path: Path) -> None:
    """The last state, the end and the model's file agree about one tensor; the average of it, as of all, is another."""
    ledger = RunLedger(averaged)
    ended, (step, at) = read_ended(ledger), ledger.outline.states[-1]
    name = max(ended.tensors.parameters)
    values = load_file(averaged / rundir.MODEL / MODEL)
    values[name] = values[name] + 1
    save_file(values, tmp_path / MODEL)
    leaf = ModelFile(tmp_path / MODEL).leaves()[name]

    def with_leaf(entry: Any) -> Any:
        tensors = parse_tensors(blob_of(entry), where="test")
        tensors = replace(tensors, parameters=tensors.parameters | {name: leaf})
        state = replace(entry.state, parameters=tensors.roots[0])
        return with_blob(tmp_path / averaged.name, replace(entry, state=state), "tensors", tensors.content)

    def blob_of(entry: Any) -> bytes:
        return read_blob(averaged / rundir.LEDGER, entry.blobs["tensors"].sha256)

    def change(entries: list[bytes]) -> list[bytes]:
        return [
            encode(with_leaf(decode(each))) if i in (at, ended.end.index) else each for i, each in enumerate(entries)
        ]

    assert step == ended.end.entry.step
    run = recorded_runs.rewritten(averaged, tmp_path, change)
    save_file(values, run / rundir.MODEL / MODEL)
    messages = [each.message for each in trained(run).conditions[3].contradictions]
    assert messages == [f"end state: parameters: {name}: as it was in the last state, and others are the average"]


def test_other_digests_of_documents_than_in_run_json(run: Path) -> None:
    """A run whose identity names its documents, as recipes' runs do."""
    record = run_files.read(RunRecord, run / rundir.RUN)
    genesis = RunLedger(run).genesis
    (sources,) = genesis.tags.values()
    governance = {"trust": genesis.trust, "taxonomy": genesis.taxonomy, "policy": genesis.policy, "quarantine": None}
    governance |= {"tags": sources.root, "attestation": sources.attestation}
    identity = {**record.identity, "governance": governance}
    for name in ("", "policy", "tags", "quarantine"):
        mine = {**identity, "governance": governance | ({name: RANDOM} if name else {})}
        curve = digest({key: each for key, each in mine.items() if key not in ("ssr", "seed")})
        run_id = f"{record.run_id[:-8]}{digest(mine)[:8]}"
        changed = replace(record, identity=mine, recipe_digest=curve, run_id=run_id, dataset="train")
        run_files.write(run / rundir.RUN, changed)
        of(Genesis, recipe=digest(mine))(run)
        messages = [words for words in said(judged(run)) if words.endswith(": not as in run.json")]
        wanted = {"recipe: run", *({f"recipe: {name}"} if name else ())}
        assert {words.removesuffix(": not as in run.json") for words in messages} == wanted

"""Models at a gate: any claim changed, any file exchanged, any signer who may not, and it does not pass."""

import copy
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from explorer import rundir
from explorer.entries.kinds import Genesis
from explorer.errors import LedgerError, ProvenanceError
from explorer.ledger.cosign import cosign
from explorer.ledger.log import Log
from explorer.ledger.storage import LedgerDirectory
from explorer.note import Algorithm, Signer
from explorer.provenance.envelope import sign_envelope, write_envelope
from explorer.provenance.model_attestation import PREDICATE_TYPE, ModelAttestation, open_model
from explorer.provenance.policy import POLICY, Rule
from explorer.provenance.signing import sign_document
from explorer.provenance.statement import PAYLOAD_TYPE, make_statement
from explorer.provenance.trust import Role
from explorer.release.model_claims import claims, deletable_at_best, differences
from explorer.runlog.anchor import anchor_of_trust
from explorer.runlog.attested import ATTESTATION
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import from_json
from tests import tensors_for_tests
from tests.audit.governed_run import (
    FAR,
    LAYERS,
    MIT,
    NEWS,
    STEPS,
    TRAINER,
    policy,
    sign_again,
    signer,
    write_governed_run,
)
from tests.provenance import people
from tests.provenance.people import EXPIRES, NOW, RISK, YEAR_BEGINS, YEAR_ENDS, private, public
from tests.provenance.tables import TAXONOMY
from tests.release import released
from tests.release.released import faults, gate, judged, release, statement_of, trust

FULL = gate(ledger="full")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose model was attested."""
    run = write_governed_run(tmp_path_factory.mktemp("runs"))
    release(run)
    return run


@pytest.fixture
def model(honest: Path, tmp_path: Path) -> Path:
    """The directory that was shipped, in a copy of its run."""
    return Path(shutil.copytree(honest, tmp_path / honest.name)) / rundir.MODEL


@pytest.mark.parametrize("ledger", ["full", "checkpoint"])
def test_an_honest_model_passes(model: Path, ledger: str) -> None:
    found = judged(model, gate(ledger=ledger))
    assert found.passes, faults(found)
    assert judged(model / "model.safetensors", gate(ledger=ledger)).passes


def test_the_ledger_may_be_named_as_the_run_or_as_itself(model: Path) -> None:
    for place in (model.parent, model.parent / rundir.LEDGER):
        assert judged(model, FULL, ledger=place).passes


def test_a_gate_that_asks_for_the_ledger_gets_it(model: Path, tmp_path: Path) -> None:
    assert "directory with --ledger" in faults(judged(model, FULL, ledger=None))[0]
    assert "no governed run" in faults(judged(model, FULL, ledger=tmp_path))[0]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every text, number, truth value and empty list in a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from leaves(each, (*path, key))
    if not isinstance(value, dict | list):
        yield path


def otherwise(value: Any, path: tuple[Any, ...]) -> Any:
    """The value with another one at that place, of the same type and still of a form that can be read."""
    made = copy.deepcopy(value)
    at = made
    for key in path[:-1]:
        at = at[key]
    key, before = path[-1], at[path[-1]]
    if isinstance(before, bool):
        at[key] = not before
    elif isinstance(before, int):
        at[key] = before + 1 if before < 1 or key != "depth" else 0.5
    elif isinstance(before, float):
        at[key] = before / 2
    elif before is None:
        at[key] = "G2"  # of a class that nothing exact can delete here
    elif len(before) == 64 and set(before) <= set("0123456789abcdef"):
        at[key] = before[:-1] + ("0" if before[-1] != "0" else "1")
    elif before.endswith("Z"):
        at[key] = "2026-05-31T00:00:00Z" if key == "issued" else "2089-01-01T00:00:00Z"
    elif before == "G2":
        at[key] = "G3"
    elif before == "G3":
        at[key] = "G2"
    elif key == "checkpoint":
        at[key] = before.replace("\n21\n", "\n20\n")
    else:
        at[key] = before[:-1] + ("x" if before[-1] != "x" else "y")
    return made


NO_LIE = {"issued", "expires"}  # the signer's own word: until when, and since when
MORE = ("deletable", "steps")  # to claim more of them is no lie: see below


def test_no_field_can_be_changed(model: Path) -> None:
    """Signed by the trainer, every single claim is held against the ledger; at the whole gate, one of each kind."""
    statement, run = statement_of(model), RunLedger(model.parent)
    span: Any = {"issued": statement.predicate["issued"], "expires": statement.predicate["expires"]}
    computed = claims(run, trust=trust(), now=NOW, deletability=deletable_at_best, **span)
    places = [path for path in leaves(statement.predicate) if path[0] not in NO_LIE and path[-2:] != MORE]
    assert len(places) > 60
    seen: set[Any] = set()
    for path in places:
        lie = otherwise(statement.predicate, path)
        assert lie != statement.predicate
        signed = from_json(ModelAttestation, lie, where="lie", error=ProvenanceError)
        assert list(differences(signed, computed)), path
        if path[0] not in seen:
            seen.add(path[0])
            released.sign_again(model, replace(statement, predicate=lie))
            assert not judged(model, FULL).passes, path
    assert seen == statement.predicate.keys() - NO_LIE - {"deletions", "parents"}


def test_a_claim_about_deletability_is_never_more_than_the_ledger_gives(model: Path) -> None:
    statement = statement_of(model)
    for claimed, passes in (
        ({"level": "G3", "steps": STEPS}, True),
        ({"level": "G3", "steps": STEPS - 7}, False),
        ({"level": "G2", "steps": 0}, False),
        ({"level": None, "steps": 0}, True),
    ):
        lie = copy.deepcopy(statement.predicate)
        lie["classes"][2]["deletable"] = claimed
        released.sign_again(model, replace(statement, predicate=lie))
        assert judged(model, FULL).passes is passes, claimed


@pytest.mark.parametrize("what", ["facts", "layers", "classes", "deletions", "parents"])
def test_nothing_can_be_left_out_or_added(model: Path, what: str) -> None:
    statement = statement_of(model)
    lie = copy.deepcopy(statement.predicate)
    if what == "facts":
        lie[what]["tags"] = {}
    elif what == "deletions":
        deleted = {"certificate": "a" * 64, "level": "G3", "ledger": lie["ledger"], "classes": ["personal"]}
        lie[what] = [{**deleted, "authorities": [], "records": 0}]
    elif what == "parents":
        lie[what] = [{"kind": "deletion", "ledger": lie["ledger"], "model": None, "attestation": None, "admitted": {}}]
    else:
        lie[what] = lie[what][:-1]
    released.sign_again(model, replace(statement, predicate=lie))
    assert any(words.startswith(what) for words in faults(judged(model, FULL)))


def test_a_changed_byte_of_the_attestation(model: Path) -> None:
    content = (model / ATTESTATION).read_text()
    value = json.loads(content)
    for name in ("payload", "payloadType"):
        changed = {**value, name: value[name].replace("n", "m", 1)}
        (model / ATTESTATION).write_text(json.dumps(changed))
        found = judged(model)
        assert not found.passes and found.shipped is None and "forged or changed" in faults(found)[0]
        assert {each.why for each in found.rules} == {"not judged: the model's record is not believed"}


def test_another_model_under_the_same_attestation(model: Path) -> None:
    tensors_for_tests.write_model(model.parent, LAYERS, STEPS + 1)
    assert "model.safetensors: not the file that attestation.json is about" in faults(judged(model))[0]


def test_another_way_to_build_it(model: Path) -> None:
    card = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps({**card, "classes": 3}))
    assert "model.json: not the file that attestation.json is about" in faults(judged(model))[0]


def test_another_model_attested_again_by_the_trainer(model: Path) -> None:
    """Only the ledger shows it: at a gate that asks for the checkpoint alone the trainer's word is what there is."""
    tensors_for_tests.write_model(model.parent, LAYERS, STEPS + 1)
    statement = statement_of(model)
    subjects = tuple(replace(each, sha256=_sha256(model / each.name)) for each in statement.subjects)
    released.sign_again(model, replace(statement, subjects=subjects))
    assert judged(model).passes
    assert "not the model that the ledger ends with" in faults(judged(model, FULL))[0]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_another_policy_beside_it(model: Path) -> None:
    other = policy(Rule(classes=("*",), weight=1.0))
    envelope = sign_document(other, POLICY, [private(RISK)], trust=trust(), now=NOW, where="policy")
    write_envelope(model / "policy.json", envelope)
    assert "policy.json: found digest" in faults(judged(model))[0]


@pytest.mark.parametrize("name", ["policy.json", "taxonomy.json", "model.json", "attestation.json"])
def test_a_file_that_is_missing(model: Path, name: str) -> None:
    (model / name).unlink()
    assert f"{name}: No such file" in faults(judged(model))[0]


def test_a_ledger_that_was_rewritten(model: Path) -> None:
    """Signed by the trainer again, and the attested checkpoint is another one."""
    sign_again(model.parent, lambda _, entry: replace(entry, seed=7) if isinstance(entry, Genesis) else entry)
    assert any(words.startswith("ledger") for words in faults(judged(model, FULL)))
    assert judged(model).passes  # the checkpoint in the attestation is as it was


def test_a_flipped_byte_of_the_ledger(model: Path) -> None:
    bundle = next((model.parent / rundir.LEDGER / "tile" / "entries").rglob("*.p/*"))
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    bundle.write_bytes(content)
    assert not judged(model, FULL).passes


def test_entries_that_nobody_knows_here(model: Path) -> None:
    """Signed, in their place, and of a version that is not known: then nothing says what they did."""
    directory = model.parent / rundir.LEDGER
    leaves = [bytes(leaf) for leaf in LedgerDirectory(directory).entries()]
    at = next(index for index, leaf in enumerate(leaves) if b'"kind":"profile"' in leaf)
    leaves[at] = leaves[at].replace(b'"version":1', b'"version":2')
    for name in ("checkpoint", "tile"):
        (shutil.rmtree if (directory / name).is_dir() else Path.unlink)(directory / name)
    with Log.create(directory, origin=signer(model.parent).name, signer=signer(model.parent)) as log:
        log.append(leaves)
    with pytest.raises(LedgerError, match="1 entries of kinds or versions that are not known here"):
        release(model.parent)
    assert not judged(model, FULL).passes


def test_a_quorum_that_the_verifier_asks_for_and_the_checkpoint_has_not(model: Path) -> None:
    asking = trust(cosigners={Role.MODEL_RISK: 1})
    assert "quorum is not met" in faults(judged(model, trust=asking))[0]


def test_a_cosignature_that_came_later_changes_no_claim(model: Path, tmp_path: Path) -> None:
    directory, asking = model.parent / rundir.LEDGER, trust(cosigners={Role.MODEL_RISK: 1})
    anchor = anchor_of_trust(asking, origin=RunLedger(model.parent).ledger.checkpoint().origin)
    signer = Signer(name=RISK, algorithm=Algorithm.COSIGNATURE, private_key=private(RISK))
    cosign(directory, signer=signer, state=tmp_path / "state", anchor=anchor, now=NOW)
    assert judged(model, FULL).passes
    release(model.parent, believed=asking)
    assert judged(model, FULL, trust=asking).passes and judged(model, trust=asking).passes


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        (public(TRAINER, revoked=YEAR_BEGINS, not_after=FAR), "revoked"),
        (public(TRAINER, not_after=EXPIRES), None),
        (public(TRAINER, not_before=EXPIRES, not_after=YEAR_ENDS), "not yet valid"),
        (public(TRAINER, not_after="2026-05-31T00:00:00Z"), "key expired"),
        (public("somebody else", not_after=FAR), "forged or changed|no key of the trust file"),
    ],
)
def test_who_may_sign(model: Path, trainer: Any, message: str | None) -> None:
    found = judged(model, trust=trust(trainer=trainer))
    if message is None:
        assert found.passes
    else:
        with pytest.raises(ProvenanceError, match=message):
            raise ProvenanceError(faults(found)[0])


def test_another_trainers_ledger(model: Path) -> None:
    """A second trainer, believed as such, claims the ledger of the first for the model."""
    rival = people.authority("example.com/rival", Role.TRAINER, public("rival", not_after=FAR))
    both = replace(trust(), authorities=(*trust().authorities, rival))
    assert judged(model, trust=both).passes
    released.sign_again(model, statement_of(model), seed="rival")
    said = "signed by example.com/rival, who did not sign the ledger"
    assert said in faults(judged(model, trust=both))[0]
    with pytest.raises(ProvenanceError, match=said):
        released.release(model.parent, believed=both, seed="rival")


def test_a_key_revoked_since(model: Path) -> None:
    """What was issued before stays valid; what a thief signs afterwards does not."""
    revoked = trust(trainer=public(TRAINER, revoked="2026-07-01T00:00:00Z", not_after=FAR))
    assert judged(model, trust=revoked).passes
    statement = statement_of(model)
    late = {**statement.predicate, "issued": "2026-08-01T00:00:00Z"}
    released.sign_again(model, replace(statement, predicate=late))
    found = judged(model, trust=revoked, now=NOW + 90 * 86_400)
    assert "revoked" in faults(found)[0]


def test_it_expires(model: Path) -> None:
    statement = statement_of(model)
    released.sign_again(model, replace(statement, predicate={**statement.predicate, "expires": EXPIRES}))
    assert judged(model).passes
    assert "expired 2026-12-01" in faults(judged(model, now=NOW + 200 * 86_400))[0]


def test_a_document_of_another_kind_is_no_attestation(model: Path) -> None:
    statement = statement_of(model)
    other = make_statement(
        statement.subjects, predicate_type="https://explorer.example/deletion/v1", predicate=statement.predicate
    )
    released.sign_again(model, other)
    assert "predicateType" in faults(judged(model))[0]


def test_a_payload_that_is_not_canonical(model: Path) -> None:
    payload = json.dumps(json.loads(statement_of(model).payload), indent=1).encode()
    envelope = sign_envelope(payload, PAYLOAD_TYPE, [private(TRAINER)])
    with pytest.raises(ProvenanceError, match="not in canonical form"):
        open_model(envelope.content, trust=trust(), now=NOW, where="a")
    assert PREDICATE_TYPE in payload.decode()


def test_what_was_not_looked_at_is_said(model: Path) -> None:
    checkpoint, full = judged(model), judged(model, FULL)
    assert any("the word of example.com/trainer" in each for each in checkpoint.unseen)
    assert not any("the word of" in each for each in full.unseen)
    assert any("explorer replay" in each for each in full.unseen)


def test_documents_that_the_gate_names(model: Path) -> None:
    used = policy()
    for asked in ("half-depth", used.digest):
        assert judged(model, gate(policy=asked, taxonomy=TAXONOMY.digest)).passes
    for asked in ("half-deep", "0" * 64):
        assert f"expected {asked}, found half-depth" in faults(judged(model, gate(policy=asked)))[0]
    assert "expected licenses" in faults(judged(model, gate(taxonomy="licenses")))[0]


def test_classes_of_the_sample(model: Path) -> None:
    """What the other tests take for granted."""
    claims = {each["path"]: each for each in statement_of(model).predicate["classes"]}
    assert [each["layer"] for each in claims[NEWS]["trained"]] == ["body.1", "head"]
    assert [each["layer"] for each in claims[MIT]["trained"]] == [*LAYERS]

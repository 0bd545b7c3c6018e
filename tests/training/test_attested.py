"""A real run, attested, at a gate that asks for all of it, and loaded again: the whole way once."""

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import explorer
from explorer import rundir
from explorer.deletion.finish import certify
from explorer.errors import LedgerError, ProvenanceError, RunError
from explorer.provenance.envelope import write_envelope
from explorer.provenance.model_attestation import open_model, sign_model
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from explorer.provenance.trust import Role, write_trust
from explorer.release.attest import attest, ship
from explorer.release.check_gate import Verdict, verify_model
from explorer.release.gate import FORMAT, gate_of
from explorer.runlog.model_file import CARD, read_card, write_card
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.training.deletion import delete
from explorer.yaml_document import document_of
from tests.governance import desk
from tests.provenance import people
from tests.provenance.people import NOW, private
from tests.training.deletions import NEWS, author, recipe_of, route, trained
from tests.training.recorded_runs import recorded_run

FAR = "2090-01-01T00:00:00Z"
RULES = [
    {"conforms": True},
    {"deny": {"branch": "open/mit", "depth": [0, 0.3]}},
    {"absent": {"branch": "personal"}},
    {"deletable": {"branch": "licensed", "at_least": "G2"}},
]


@pytest.fixture(scope="module")
def attested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    run = recorded_run(tmp_path_factory.mktemp("run"))
    ledger = RunLedger(run)
    envelope = attest(ledger, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW, expires=FAR)
    ship(ledger, envelope, trust=desk.TRUST, now=NOW)
    return run


def judged(run: Path) -> Verdict:
    gate = gate_of(document_of({"format": FORMAT, "name": "all", "ledger": "full", "rules": RULES}))
    return verify_model(run / rundir.MODEL, gate, trust=desk.TRUST, ledger=run, now=NOW)


def test_it_passes(attested: Path) -> None:
    found = judged(attested)
    assert found.passes, [each for each in (*found.checks, *found.rules) if not each.holds]
    assert found.shipped is not None
    levels = {claim.path: claim.deletable.level for claim in found.shipped.attested.value.classes}
    assert set(levels.values()) == {"G3"}


def test_it_is_loaded_again(attested: Path, tmp_path: Path) -> None:
    trainer = people.authority(desk.TRAINER, Role.TRAINER, people.public(desk.TRAINER, not_after=FAR))
    made = people.trust(trainer)
    write_trust(tmp_path / "trust.json", replace(made, quorum=replace(made.quorum, checkpoints={Role.TRAINER: 1})))
    model = explorer.load_model(attested / rundir.MODEL, trust=tmp_path / "trust.json")
    saved = load_file(attested / rundir.MODEL / "model.safetensors")
    mine = dict(model.named_parameters()) | dict(model.named_buffers())
    assert mine.keys() == saved.keys() and all(torch.equal(mine[name], saved[name]) for name in mine)
    assert model(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_a_tensor_exchanged(attested: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(attested, tmp_path / attested.name))
    write_trust(tmp_path / "trust.json", desk.TRUST)
    path = run / rundir.MODEL / "model.safetensors"
    tensors = load_file(path)
    name = min(tensors)
    save_file({**tensors, name: tensors[name] + 1}, path)
    assert not judged(run).passes
    with pytest.raises(ProvenanceError, match="not the file that attestation"):
        explorer.load_model(run / rundir.MODEL, trust=tmp_path / "trust.json")


@pytest.mark.parametrize(
    "change", [{"model": {"resnet14": {}}}, {"methods": ({"blurpool": {}},)}, {"dataset": "cifar10"}]
)
def test_another_way_to_build_it_under_the_trainers_signature(
    attested: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    """The same tensors in another model, which is not the one that was trained, nor the one that was evaluated."""
    run = Path(shutil.copytree(attested, tmp_path / attested.name))
    place, keys = run / rundir.MODEL, [private(desk.TRAINER)]
    card = replace(read_card(place / CARD), **change)
    write_card(place / CARD, card)
    signed = open_model((place / "attestation.json").read_bytes(), trust=desk.TRUST, now=NOW, where="attestation")
    digest = hashlib.sha256((place / CARD).read_bytes()).hexdigest()
    how: dict[str, Any] = {"keys": keys, "trust": desk.TRUST, "now": NOW}
    envelope = sign_model(signed.value, model=signed.model, card=digest, where="attestation", **how)
    write_envelope(place / "attestation.json", envelope)
    (why,) = (each.why for each in judged(run).checks if not each.holds)
    assert "model.json: not the model of the recipe that the ledger names" in why
    with pytest.raises(LedgerError, match="not the model of the recipe"):
        attest(RunLedger(run), expires=FAR, **how)


# Deletions: of an adapter's class, of a module's, and one after the other


SEALED = desk.policy(
    name="sealed",
    rules=(Rule(classes=("open/mit",), weight=0.0), Rule(classes=("open",), weight=1.0)),
    sealed=(
        SealedRegion(name="news", branch=NEWS, layers=("stages.2.*",), rank=2),
        SealedRegion(name="block", branch="open/mit", module="stages.1.0.conv2"),
    ),
)


def without(old: Path, path: str) -> Path:
    """The run without a class, by structure, and its certificate."""
    target = Target(classes=(path,))
    new = delete(old, target, route=route(old, target), to=old.parent.parent / "deletions")
    keys: dict[str, Any] = {"keys": [private(desk.TRAINER)], "trust": desk.TRUST, "now": NOW}
    write_envelope(new / "certificate.json", certify(old, new, expires=FAR, **keys))
    return new


def shipped(run: Path) -> Path:
    ledger = RunLedger(run)
    envelope = attest(ledger, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW, expires=FAR)
    return ship(ledger, envelope, trust=desk.TRUST, now=NOW).parent


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("old")
    return trained(root, author(root, SEALED), recipe_of("sealed"))


def test_a_model_from_which_two_classes_were_deleted(old: Path) -> None:
    """Both by structure: the policy denies open/mit outside of its region. The gate believes the record."""
    new = without(without(old, NEWS), "open/mit")
    rules = [{"deleted": {"branch": path, "at_least": "G2"}} for path in (NEWS, "open/mit")]
    rules += [{"absent": {"branch": path}} for path in (NEWS, "open/mit")]
    gate = gate_of(document_of({"format": FORMAT, "name": "clean", "ledger": "full", "rules": rules}))
    found = verify_model(shipped(new), gate, trust=desk.TRUST, ledger=new, now=NOW)
    assert found.passes, [each for each in (*found.checks, *found.rules) if not each.holds]
    assert found.shipped is not None
    value = found.shipped.attested.value
    assert [(each.level, each.classes) for each in value.deletions] == [("G2", ("open/mit",)), ("G2", (NEWS,))]
    trained_by = {claim.path: {each.steps for each in claim.trained} for claim in value.classes}
    assert trained_by == {NEWS: set(), "open": {value.steps}, "open/mit": set()}
    assert not verify_model(shipped(old), gate, trust=desk.TRUST, ledger=old, now=NOW).passes


@pytest.mark.parametrize(("path", "gone", "left"), [(NEWS, "news", "block"), ("open/mit", "block", "news")])
def test_a_model_without_a_region_is_the_old_one_with_it_off(old: Path, path: str, gone: str, left: str) -> None:
    before, after = shipped(old), shipped(without(old, path))
    images = torch.linspace(-1, 1, 2 * 64).reshape(2, 1, 8, 8)
    with torch.no_grad():
        for on in ([], [left]):
            one, other = (explorer.load_model(model, regions=on)(images) for model in (before, after))
            assert torch.equal(one, other)
        off, with_it = (explorer.load_model(before, regions=on)(images) for on in ([], [gone]))
        assert not torch.equal(off, with_it)
    with pytest.raises(RunError, match=f"unknown sealed region '{gone}'"):
        explorer.load_model(after, regions=[gone])

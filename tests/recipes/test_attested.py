"""A real run, attested, at a gate that asks for all of it, and loaded again: the whole way once."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import explorer
from explorer import rundir
from explorer.document import document_of
from explorer.errors import ProvenanceError
from explorer.provenance.roles import Role
from explorer.provenance.trust import write_trust
from explorer.recorded.run_ledger import RunLedger
from explorer.release.attest import attest, ship
from explorer.release.gate import FORMAT, gate_of
from explorer.release.verify import Verdict, verify_model
from tests.governance import desk
from tests.provenance import people
from tests.provenance.people import NOW, private
from tests.recipes.recorded_runs import recorded_run

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

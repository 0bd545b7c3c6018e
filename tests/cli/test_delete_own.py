"""Deleting from a loop of one's own, verb by verb: governed, conforming, deleted from, certified, attested, gated."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import nn

import explorer as package
from explorer import rundir
from explorer.errors import RunError
from explorer.governance.region_modules import switched_on
from explorer.runlog.model_file import CARD, MODEL, ModelFile, read_card
from tests.cli.command import Done, explorer, refused
from tests.foreign_models import Foreign
from tests.training import own_deletions as own
from tests.training.own_deletions import BY_NAME, NEWS, WHERE

Project = tuple[Foreign, nn.Module, Path]
GATE = {
    "format": "explorer/gate/v1",
    "name": "without news",
    "ledger": "full",
    "rules": [{"conforms": True}, {"deleted": {"branch": NEWS, "at_least": "G2"}}],
}


@pytest.fixture(scope="module", params=WHERE)
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A foreign model, as its loop left it, and its project's directory."""
    foreign = BY_NAME[request.param]
    root = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        own.at_desk(patch)
        documents = own.papers(root / "governed", foreign.examples, own.sealed(*WHERE[foreign.name]))
        model = own.train(foreign, documents, root / "runs" / "own" / "mine")
    (root / "gate.yaml").write_text(yaml.safe_dump(GATE))
    return foreign, model, root


@pytest.fixture
def project(trained: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    foreign, model, root = trained
    own.at_desk(monkeypatch)
    shutil.copytree(root, tmp_path / "project")
    return foreign, model, tmp_path / "project"


def run(root: Path, *arguments: str | Path) -> Done:
    done = explorer(*arguments, cwd=root)
    assert done.returncode == 0, done.stderr
    return done


def deleted(root: Path) -> Path:
    run(root, "delete", "run", "runs/own/mine", NEWS, "--request", "request 17")
    (new,) = rundir.run_directories(root / "runs" / "deletions", loops=True)
    return new


@pytest.mark.slow
def test_from_the_loop_to_the_gate(project: Project) -> None:
    foreign, model, root = project
    trust = ("--trust", "governed/trust.json")
    run(root, "conform", "runs/own/mine", *trust)
    planned = run(root, "delete", "plan", "runs/own/mine", NEWS).stdout
    assert "G2, exact by structure" in planned and "to drop: news; nothing is trained" in planned
    new = deleted(root)
    verified = run(root, "delete", "verify", new / "certificate.json", "--old", "runs/own/mine", "--new", new, *trust)
    assert verified.stdout.splitlines()[0].startswith(f"{new / 'certificate.json'}: {NEWS}: deleted, by both ledgers")
    run(root, "conform", new, *trust)
    run(root, "attest", new, *trust)
    following = explorer("next", new, *trust, cwd=root)
    assert following.returncode == 1 and "attested" in following.stdout and "explorer pack" in following.stdout
    run(root, "report", "runs/own/mine", *trust)
    passed = run(root, "verify", new / "model", "--gate", "gate.yaml", *trust, "--ledger", new)
    assert "passes the gate" in passed.stdout
    before = ModelFile(root / "runs/own/mine" / rundir.MODEL / MODEL)
    kept = ModelFile(new / rundir.MODEL / MODEL)
    gone = before.entries.keys() - kept.entries.keys()
    assert gone and all("@news" in name for name in gone)
    back = package.load_model(new / "model", into=foreign.build(), trust=root / "governed/trust.json")
    assert not any("@" in name for name, _ in back.named_parameters())
    inputs = foreign.examples.inputs[:4]
    with torch.no_grad():
        given = inputs.long() if foreign.name == "TransformerEncoder" else inputs.float() / 128 - 1
        torch.testing.assert_close(back(given), model.eval()(given))  # what is off and what is gone compute the same
        with switched_on(model, ["news"]):
            assert not torch.equal(back(given), model(given))


def test_the_old_model_does_not_pass_the_gate(project: Project) -> None:
    """The control: the same gate and verbs, and nothing deleted."""
    _, _, root = project
    trust = ("--trust", "governed/trust.json")
    run(root, "attest", "runs/own/mine", *trust)
    gate = ("--gate", "gate.yaml", *trust, "--ledger", "runs/own/mine")
    assert "DOES NOT PASS" in refused("verify", "runs/own/mine/model", *gate, cwd=root)


def test_the_model_comes_back_with_its_region(project: Project) -> None:
    foreign, model, root = project
    place = root / "runs/own/mine/model"
    back = package.load_model(place, into=foreign.build(), regions=["news"])
    named = dict(back.named_parameters()) | dict(back.named_buffers())
    assert all(torch.equal(named[name], tensor) for name, tensor in load_file(place / MODEL).items())
    assert read_card(place / CARD).own == f"{type(model).__module__}.{type(model).__qualname__}"
    with pytest.raises(RunError, match=r"expected explorer\.load_model\(.*, into=MODEL\)"):
        package.load_model(place)
    with pytest.raises(RunError, match="has sealed regions already"):
        package.load_model(place, into=model)
    with pytest.raises(RunError, match="is not the model that it describes"):
        package.load_model(place, into=nn.Sequential(nn.Flatten()))


def test_what_is_missing_is_said(project: Project) -> None:
    _, _, root = project
    old = root / "runs/own/mine"
    said = refused("delete", "run", "runs/own/mine", "open/mit", cwd=root)
    assert "a custom loop: its code is its owner's" in said and "sealed region" in said
    (old / rundir.MODEL / MODEL).rename(old / "elsewhere")
    assert "there is no model to drop a region from" in refused("delete", "run", "runs/own/mine", NEWS, cwd=root)
    (old / "elsewhere").rename(old / rundir.MODEL / MODEL)
    (old / rundir.LOOP).unlink()
    said = refused("delete", "run", "runs/own/mine", NEWS, cwd=root)
    assert "neither run.json" in said and "nor loop.json" in said


def test_another_loop_record_is_found(project: Project) -> None:
    """The ledger's first entry names the record by digest: one that says more or less is none."""
    _, _, root = project
    path = root / "runs/own/mine" / rundir.LOOP
    whole, value = json.loads(path.read_text()), json.loads(path.read_text())
    value["identity"]["recipe"]["methods"].pop()
    path.write_text(json.dumps(value))
    assert "names another recipe than the first entry" in refused("delete", "run", "runs/own/mine", NEWS, cwd=root)
    path.write_text(json.dumps({**whole, "run_id": "theirs"}))
    assert "of run theirs, the ledger is of mine" in refused("delete", "run", "runs/own/mine", NEWS, cwd=root)
    path.write_text("{}")
    assert "damaged LoopRecord" in refused("delete", "run", "runs/own/mine", NEWS, cwd=root)


def test_what_works_on_recipes_says_so(project: Project) -> None:
    """Nothing of a loop's own is read as if it were a recipe's, and nothing ends in a traceback."""
    _, _, root = project
    planned = explorer("delete", "plan", "runs/own/mine", "open/mit", cwd=root)
    assert planned.returncode == 1 and "the step time of a custom loop is not on record" in planned.stdout
    assert "--profile --loop MODULE:FUNCTION measures it now" in planned.stdout
    own = ("runs/own/mine", "open/mit")
    assert "--profile works on runs of recipes only" in refused("delete", "plan", *own, "--profile", cwd=root)
    refs = ("--references", "runs/own/mine")
    evidence = refused("delete", "evidence", *own, *refs, cwd=root)
    assert "explorer delete evidence works on runs of recipes only: it measures quality" in evidence
    assert "`explorer delete verify --counterfactual --loop MODULE:FUNCTION` compares" in evidence
    replayed = refused("replay", "runs/own/mine", cwd=root)
    assert "of a custom loop" in replayed and "--loop MODULE:train" in replayed

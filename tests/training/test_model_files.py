"""Models that runs have left, as modules again: what they compute, what is absent, and files that do not fit."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import explorer
from explorer import rundir
from explorer.errors import ExplorerError, ProvenanceError, RunError
from explorer.governance.region_modules import switched_on
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, Rule
from explorer.provenance.regions import SealedRegion
from explorer.provenance.trust import write_trust
from explorer.runlog.model_file import ModelFile
from explorer.training.model_files import load_model
from explorer.training.run import build_loop, write_finished
from explorer.training.run_plan import plan_run
from tests.governance import desk
from tests.provenance.people import RISK
from tests.recipes_for_tests import tiny_recipe
from tests.training.recorded_runs import documents_for_digits

NEWS = SealedRegion(name="news", branch="licensed/news", layers=("stages.2.*",), rank=2)
BLOCK = SealedRegion(name="block", branch="open/mit", module="stages.1.0.conv2")
SEALED = desk.policy(name="sealed", rules=(Rule(classes=("*",), weight=1.0),), sealed=(NEWS, BLOCK))
IMAGES = torch.linspace(-1, 1, 2 * 64).reshape(2, 1, 8, 8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.nn.Module, Path]:
    """A module as training has it, with whatever values, and the directory that it was written to."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("run")
    author = documents_for_digits(root)
    write_envelope(author / "policies" / "sealed.json", desk.document(SEALED, POLICY, RISK))
    documents = desk.read(author, "sealed")
    recipe = tiny_recipe([{"routing": {"policy": "sealed"}}, "blurpool", "channels_last"])
    settings: dict[str, Any] = {"sweep": "test", "baseline": "tiny", "tuning": None, "ssr": 1.0, "seed": 0}
    record = plan_run(recipe, threads=1, data=None, documents=documents, **settings)
    loop = build_loop(record, data=None, documents=documents)
    with torch.no_grad():
        for number, parameter in enumerate(loop.state.model.parameters()):
            parameter.add_(0.01 * (1 + number % 3))
    write_finished(root, loop, recipe, record)
    return loop.state.model.eval(), root / rundir.MODEL


@pytest.fixture
def model(trained: tuple[torch.nn.Module, Path], tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(trained[1], tmp_path / "model"))


def change(model: Path, /, **fields: Any) -> None:
    card = json.loads((model / "model.json").read_text())
    (model / "model.json").write_text(json.dumps(card | fields))


@pytest.mark.parametrize("regions", [(), ("news",), ("block",), ("news", "block")])
def test_it_computes_what_training_left(trained: tuple[torch.nn.Module, Path], regions: tuple[str, ...]) -> None:
    live, path = trained
    with torch.no_grad(), switched_on(live, regions):
        assert torch.equal(explorer.load_model(path, regions=regions)(IMAGES), live(IMAGES))
    assert "code" not in json.loads((path / "model.json").read_text()), "code is named where it is of another package"


def test_regions_are_off_unless_they_are_named(trained: tuple[torch.nn.Module, Path]) -> None:
    with torch.no_grad():
        off, news, both = (load_model(trained[1], regions=on)(IMAGES) for on in ((), ("news",), ("news", "block")))
    assert not torch.equal(off, news) and not torch.equal(news, both)


def test_a_deleted_region_is_absent(model: Path) -> None:
    """An adapter is gone; where a module was, the path around it remains, as if it were switched off."""
    with torch.no_grad():
        before = load_model(model)(IMAGES)
    file = ModelFile(model / "model.safetensors")
    gone = [name for name in file.entries if "@news" in name or name.startswith("stages.1.0.conv2.")]
    file.write_without(gone, model / "model.safetensors")
    card = json.loads((model / "model.json").read_text())
    change(model, sealed=[], absent=[each for each in card["sealed"] if each["module"]])
    left = load_model(model)
    with torch.no_grad():
        assert torch.equal(left(IMAGES), before)
    assert not [name for name, _ in left.named_parameters() if "@" in name or name.startswith("stages.1.0.conv2.")]
    for region in ("news", "block"):
        with pytest.raises(RunError, match=rf"unknown sealed region '{region}'"):
            load_model(model, regions=[region])


def test_the_global_generator_is_left_alone(model: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load_model(model)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": {"resnet9": {}}}, "unknown model 'resnet9'; did you mean 'resnet8'"),
        ({"model": {"resnet8": {"width": 0.5, "depth": 3}}}, "unknown parameter 'depth'"),
        ({"model": {"resnet8": {"width": 16.0}}}, "expected torch.float32"),
        ({"model": {"resnet8": {"width": 64.0}}}, "should be less than or equal to 16"),
        ({"classes": 1_000_000_000}, "expected torch.float32"),
        ({"methods": [{"ema": {}}]}, "'ema' changes no model"),
        ({"methods": []}, "not a tensor of the model|missing|expected"),
        ({"sealed": []}, "@news.* not a tensor of the model"),
        ({"absent": [{"name": "x", "branch": "a", "module": "stages.9"}]}, "no model can be built as it says"),
        ({"source": "import os"}, "source: unknown key"),
        ({"code": {"os": "import os"}}, r"code\.os: string should match pattern"),
    ],
)
def test_a_card_that_does_not_fit(model: Path, fields: dict[str, Any], message: str) -> None:
    """A head that would take terabytes is refused by the header of the file, before there is such a model."""
    change(model, **fields)
    with pytest.raises(ExplorerError, match=message):
        load_model(model)


def test_a_file_that_does_not_fit(model: Path) -> None:
    path = model / "model.safetensors"
    tensors = load_file(path)
    name = min(tensors)
    for changed in (
        {key: value for key, value in tensors.items() if key != name},
        {**tensors, "more": torch.zeros(1)},
        {**tensors, name: tensors[name].double()},
    ):
        save_file(changed, path)
        with pytest.raises(RunError, match=r"model.safetensors: .*(missing|not a tensor|expected)"):
            load_model(model)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(RunError, match="not a safetensors file"):
        load_model(model)


def test_with_a_trust_file_nothing_unattested_is_loaded(model: Path, tmp_path: Path) -> None:
    write_trust(tmp_path / "trust.json", desk.TRUST)
    with pytest.raises(ProvenanceError, match=r"attestation.json"):
        load_model(model, trust=tmp_path / "trust.json")

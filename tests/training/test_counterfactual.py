"""From a recipe and signed documents to the counterfactual: what a run would have been without a class."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from explorer.data.dataset import Dataset
from explorer.data.digits import Digits
from explorer.engine.loop import Loop
from explorer.errors import ProvenanceError
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, Rule
from explorer.provenance.regions import SealedRegion
from explorer.runlog.documents import Documents
from explorer.training import ledgered, run, run_plan
from explorer.training.run import build_loop
from explorer.training.run_plan import plan_run
from tests.governance import desk
from tests.governance.governed import differing, everything, steps
from tests.provenance.people import RISK
from tests.recipes_for_tests import tiny_recipe

NEWS = "licensed/news"
SEALED = desk.policy(
    name="sealed",
    rules=(
        Rule(classes=("open/mit",), depth=(0.0, 0.3), weight=0.0),
        Rule(classes=("open",), weight=1.0),
    ),
    sealed=(SealedRegion(name="news", branch=NEWS, layers=("stages.2.*",), rank=2),),
)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    split = Digits().load(None).train
    directory = desk.make(tmp_path_factory.mktemp("author"), desk.classes_of(len(split)), split=split)
    write_envelope(directory / "policies" / "sealed.json", desk.document(SEALED, POLICY, RISK))
    return desk.read(directory, "sealed")


def loop_of(documents: Documents, without: Sequence[str] = ()) -> Loop:
    recipe = tiny_recipe([{"routing": {"policy": "sealed", "without": list(without)}}, "ema", "sam", "mixup"])
    settings = {"sweep": "test", "baseline": "tiny", "tuning": None, "ssr": 1.0, "seed": 0, "threads": 1, "data": None}
    return build_loop(plan_run(recipe, documents=documents, **settings), data=None, documents=documents)


def lose_the_payload(monkeypatch: pytest.MonkeyPatch, documents: Documents) -> None:
    """Read blank rows in place of the class's. Nothing else about the dataset changes."""
    gone = torch.tensor([path == NEWS for path in desk.classes_of(len(Digits().load(None).train))])

    def load(source: Digits, data: Path | None) -> Dataset:
        found = source.load(data)
        inputs, labels = found.train.inputs.clone(), found.train.labels.clone()
        inputs[gone], labels[gone] = 0, 0
        return replace(found, train=replace(found.train, inputs=inputs, labels=labels))

    for module in (ledgered, run_plan, run):
        monkeypatch.setattr(module, "load", load)
    ledgered._checked.cache_clear()  # what was checked is not checked again


def test_a_run_without_a_sealed_class_is_the_same_run(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = steps(loop_of(documents), 4)
    lose_the_payload(monkeypatch, documents)
    counterfactual = steps(loop_of(documents, without=[NEWS]), 4)
    assert differing(*(everything(loop, without="news") for loop in (whole, counterfactual))) == set()
    own = [name for name in whole.tensors() if "@news" in name and name.startswith("model/")]
    assert own and any(not torch.equal(whole.tensors()[name], counterfactual.tensors()[name]) for name in own)


def test_with_the_class_the_blank_rows_are_noticed(documents: Documents, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: they are not what was tagged."""
    lose_the_payload(monkeypatch, documents)
    with pytest.raises(ProvenanceError):
        loop_of(documents)

"""Deletion by structure from loops of one's own: which models, optimisers and regions, and what the record says."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import explorer
from explorer import rundir
from explorer.deletion.finish import certify
from explorer.deletion.verify_deletion import Verified, verify
from explorer.errors import ProvenanceError, RecipeError, RunError
from explorer.provenance.policy import RoutingPolicy, Rule
from explorer.provenance.regions import SealedRegion
from explorer.runlog.model_file import MODEL, ModelFile
from explorer.runlog.target import Target
from explorer.training.deletion import delete
from tests.foreign_models import Foreign, MinGPT, next_token
from tests.governance import desk
from tests.provenance.people import EXPIRES, NOW, private
from tests.training import own_deletions as own
from tests.training.deletions import route
from tests.training.own_deletions import BY_NAME, NEWS

TARGET = Target(classes=(NEWS,))
MIT = "open/mit"
GPT = BY_NAME["minGPT"]


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    own.at_desk(monkeypatch)


def trained(root: Path, policy: RoutingPolicy, foreign: Foreign = GPT, **how: object) -> Path:
    documents = own.papers(root / "governed", foreign.examples, policy)
    own.train(foreign, documents, root / "runs" / "own" / "mine", **how)  # pyright: ignore[reportArgumentType]
    return root / "runs" / "own" / "mine"


def deleted(old: Path, target: Target = TARGET) -> Path:
    return delete(old, target, route=route(old, target), to=old.parents[1] / "deletions")


def certified(old: Path, new: Path) -> Verified:
    made = certify(old, new, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW, expires=EXPIRES)
    return verify(made.content, old=old, new=new, trust=desk.TRUST, now=NOW)


def lost(old: Path, new: Path) -> set[str]:
    """The tensors of the model that are gone; all others are the same, bit for bit."""
    before, after = (ModelFile(run / rundir.MODEL / MODEL).leaves() for run in (old, new))
    assert after.items() <= before.items() and after
    return before.keys() - after.keys()


def test_a_head_that_is_tied_to_the_embedding(tmp_path: Path) -> None:
    tied = BY_NAME["minGPT, tied"]
    old = trained(tmp_path, own.sealed("transformer.h.1.attn.*"), tied)
    new = deleted(old)
    assert certified(old, new).deleted
    assert lost(old, new) == {
        f"transformer.h.1.attn.{layer}.@news.{part}.weight" for layer in ("c_attn", "c_proj") for part in ("down", "up")
    }
    back = explorer.load_model(new / "model", into=own.built(tied))
    assert back.get_submodule("lm_head").weight is back.get_submodule("transformer.wte").weight


def test_an_adapter_on_the_tied_head_itself_is_refused(tmp_path: Path) -> None:
    """The head has no tensor of its own and is no layer: the adapter would stay as it was drawn, without a word."""
    with pytest.raises(RecipeError, match="found an adapter on lm_head, which has no tensor of its own"):
        trained(tmp_path, own.sealed("lm_head"), BY_NAME["minGPT, tied"])
    old = trained(tmp_path / "untied", own.sealed("lm_head"))
    assert load_file(old / rundir.MODEL / MODEL)["lm_head.@news.up.weight"].any()


def test_two_regions_and_only_one_is_dropped(tmp_path: Path) -> None:
    policy = own.both(
        own.sealed("transformer.h.0.*", rules=(Rule(classes=("open",), weight=1.0),)),
        SealedRegion(name="mit", branch=MIT, layers=("transformer.h.*",), rank=1),
    )
    old = trained(tmp_path, policy)
    first = deleted(old)
    assert certified(old, first).deleted
    assert lost(old, first) and all("@news" in name for name in lost(old, first))
    back = explorer.load_model(first / "model", into=own.built(GPT), regions=["mit"])
    assert any("@mit" in name for name, _ in back.named_parameters())


def test_a_deletion_of_a_deletion(tmp_path: Path) -> None:
    policy = own.both(
        own.sealed("transformer.h.0.*", rules=(Rule(classes=(MIT,), weight=0.0), own.OPEN)),
        SealedRegion(name="mit", branch=MIT, layers=("transformer.h.*",), rank=1),
    )
    old = trained(tmp_path, policy)
    first = deleted(old)
    second = deleted(first, Target(classes=(MIT,)))
    assert first.name != second.name and first.name[:-8] == second.name[:-8] == "mine-"
    found = certified(first, second)
    assert found.deleted and found.certificate.old.run == first.name
    assert not [name for name in ModelFile(second / rundir.MODEL / MODEL).entries if "@" in name]


class Sign(torch.optim.Optimizer):
    """A custom optimiser, with a state that is not torch's."""

    def __init__(self, parameters: object, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})  # pyright: ignore[reportArgumentType]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    state["trace"] = 0.9 * state.get("trace", torch.zeros_like(parameter)) + parameter.grad
                    parameter.sub_(group["lr"] * state["trace"].sign())


def test_an_optimiser_of_ones_own(tmp_path: Path) -> None:
    old = trained(tmp_path, own.sealed("transformer.h.*"), optimizer=lambda model: Sign(model.parameters(), lr=1e-3))
    new = deleted(old)
    found = certified(old, new)
    assert found.deleted and found.certificate.structure is not None
    assert any(name.endswith("@news.up.weight/trace") for name in found.certificate.structure.dropped)


def test_a_module_with_a_path_around_it(tmp_path: Path) -> None:
    """It is gone from the file, and the module that is loaded into works without it."""
    plain = Foreign(
        name="plain",
        says="a perceptron as one module",
        build=lambda: MinGPT(mlp=lambda: nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))),
        examples=GPT.examples,
        losses=next_token,
    )
    region = SealedRegion(name="news", branch=NEWS, module="transformer.h.1.mlp")
    old = trained(tmp_path, replace(own.sealed("head"), sealed=(region,)), plain)
    new = deleted(old)
    assert certified(old, new).deleted
    assert lost(old, new) == {f"transformer.h.1.mlp.{at}.{part}" for at in (0, 2) for part in ("weight", "bias")}
    whole, back = (explorer.load_model(run / "model", into=own.built(plain)) for run in (old, new))
    tokens = GPT.examples.inputs.long()
    assert torch.equal(whole(tokens), back(tokens))


def test_one_of_two_classes_in_a_region(tmp_path: Path) -> None:
    """The region stays for the other one: nothing is dropped, and the message says what would be needed."""
    region = SealedRegion(name="open", branch="open", layers=("transformer.h.*",), rank=2)
    policy = own.sealed("head", rules=(Rule(classes=("licensed",), weight=1.0),), sealed=(region,))
    old = trained(tmp_path, policy)
    with pytest.raises(RunError, match="a custom loop: its code is its owner's"):
        deleted(old, Target(classes=(MIT,)))
    both = Target(classes=(MIT, "open"))
    assert certified(old, deleted(old, both)).deleted


def test_a_region_that_others_saw_is_not_certified(tmp_path: Path) -> None:
    """The control: the same run under an open policy has no region to drop."""
    open_ = desk.policy(name="sealed", rules=(Rule(classes=("*",), weight=1.0),))
    old = trained(tmp_path, open_)
    with pytest.raises(RunError, match="sealed region"):
        deleted(old)


def test_a_model_file_of_another_model_is_refused(tmp_path: Path) -> None:
    old = trained(tmp_path, own.sealed("transformer.h.*"))
    path = old / rundir.MODEL / MODEL
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="not the model that the ledger ends with"):
        deleted(old)
    content[-1] ^= 1
    path.write_bytes(content)
    new = deleted(old)
    made = certify(old, new, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW, expires=EXPIRES)
    (new / rundir.LOOP).unlink()
    found = verify(made.content, old=old, new=new, trust=desk.TRUST, now=NOW)
    assert not found.deleted and any("for a custom loop, loop.json" in (check.why or "") for check in found.checks)


def test_a_tensor_that_no_file_holds_is_refused_before_training(tmp_path: Path) -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = MinGPT()
            self.register_buffer("mask", torch.eye(3).to_sparse())

    foreign = Foreign(name="sparse", says="", build=Sparse, examples=GPT.examples, losses=next_token)
    with pytest.raises(RecipeError, match=r"model: mask: found torch\.float32, torch\.sparse_coo"):
        trained(tmp_path, own.sealed("inner.transformer.h.*"), foreign)


def test_a_run_that_stopped_early_is_refused(tmp_path: Path) -> None:
    documents = own.papers(tmp_path / "governed", GPT.examples, own.sealed("transformer.h.*"))
    model = own.built(GPT)
    old = tmp_path / "runs" / "own" / "mine"
    with explorer.govern(
        model, own.adamw(model), examples=GPT.examples, documents=documents, policy="sealed", ledger=old, steps=9
    ) as loop:
        loop.step(range(12), GPT.losses)
    assert (old / rundir.MODEL / MODEL).exists()
    with pytest.raises(RunError, match="stopped after 1 steps"):
        deleted(old)
    with pytest.MonkeyPatch.context() as patch:  # by a tool that does not mind
        patch.setattr("explorer.training.deletion.stopped_early", lambda ledger: None)
        new = deleted(old)
    with pytest.raises(ProvenanceError, match="stopped after 1 steps"):
        certified(old, new)

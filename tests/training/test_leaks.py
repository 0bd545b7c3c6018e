"""Ten leaks, planted in the code that trains: the same code then deletes and compares, and each of them is found.

Some are in the run and in what it is compared with alike. A reference that is not trusted to train (`Reference`) and
the old ledger itself find those.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from explorer.deletion.finish import certify
from explorer.engine.loop import Loop
from explorer.engine.state import State
from explorer.errors import CheckpointError, ProvenanceError
from explorer.governance.routing import Routing
from explorer.methods.ema import EMA
from explorer.provenance.policy import Rule
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import read_origin
from explorer.runlog.tensors import owner_of, read_ended
from explorer.training import deletion
from explorer.training.deletion import Compared, delete, train_counterfactual
from tests.governance import desk
from tests.governance.test_promises import with_one_norm, with_zeros
from tests.provenance.people import EXPIRES, NOW, private
from tests.training.deletions import (
    ADAMW,
    BATCHNORM,
    GPT,
    NEWS,
    TEXT,
    TEXT_SOURCE,
    author,
    differing,
    kept_tensors,
    never,
    payload_absent,
    recipe_of,
    route,
    text,
    trained,
)
from tests.training.test_counterfactual_trained import LATE, SEALED, TARGET, TRUST
from tests.training.test_without_region import (
    SEALED_TEXT,
    buffers_for_all,
    mean_over_admitted,
    one_random_stream,
    region_for_all,
)

Plant = Callable[[pytest.MonkeyPatch], None]
CLIP = {"gradient_clipping": {"threshold": 0.05}}
AVERAGED = {"ema": {"half_life": 0.2}}
SPARSE: dict[str, Any] = {"batch_size": 1, "epochs": 0.02, "optimizer": ADAMW}  # every step has one class


def remembering_the_loss(patch: pytest.MonkeyPatch) -> None:
    step = Loop.step

    def remembered(self: Loop, *, then: int | None = None) -> torch.Tensor:
        loss = step(self, then=then)
        self.state.resources[float] = float(loss)
        return loss

    patch.setattr(Loop, "step", remembered)


def rate_by_the_loss(patch: pytest.MonkeyPatch) -> None:
    remembering_the_loss(patch)
    factor = Loop._factor
    patch.setattr(Loop, "_factor", lambda self: factor(self) * (1 + 0.01 * self.state.resources.get(float, 0.0)))


def average_by_the_loss(patch: pytest.MonkeyPatch) -> None:
    remembering_the_loss(patch)
    after_update = EMA.after_update

    def weighted(self: EMA, state: State) -> None:
        after_update(self, state)
        for average in self._average(state).values():
            if average.is_floating_point():
                average.mul_(1 + 1e-3 * state.resources.get(float, 0.0))

    patch.setattr(EMA, "after_update", weighted)


def rows_before_admission(patch: pytest.MonkeyPatch) -> None:
    """Classes that are left out or denied take part in the first half nevertheless."""
    change_plan = Routing.change_plan

    def early(self: Routing, state: State) -> None:
        before = state.shares
        change_plan(self, state)
        if state.progress < 0.5:
            state.shares = tuple(
                was if was.name == NEWS else now for was, now in zip(before, state.shares, strict=True)
            )

    patch.setattr(Routing, "change_plan", early)


def zeros_inside(patch: pytest.MonkeyPatch) -> None:
    """The optimiser itself takes no gradient for one of zeros, which only it can see."""
    step = torch.optim.AdamW.step

    def filled(self: torch.optim.AdamW, closure: None = None) -> None:
        empty = [each for group in self.param_groups for each in group["params"] if each.grad is None]
        for each in empty:
            each.grad = torch.zeros_like(each)
        step(self, closure)
        for each in empty:
            each.grad = None

    patch.setattr(torch.optim.AdamW, "step", filled)


HALVED = replace(
    SEALED,
    name="halved",
    rules=(Rule(classes=("open/mit",), depth=(0.0, 0.3), weight=0.0), Rule(classes=("open",), weight=1.0)),
)


@dataclass(frozen=True, kw_only=True)
class Leak:
    plant: Plant
    reaches: str  # a tensor that differs
    methods: tuple[Any, ...] = ()
    policy: str = "sealed"
    how: Any = None  # of the recipe
    ledger: str | None = None  # the leak that the old ledger shows; None: only the counterfactual shows it


LEAKS = {
    "one clip norm for all": Leak(plant=with_one_norm, reaches="head.weight", methods=(CLIP,)),
    "a region that others see": Leak(plant=region_for_all, reaches="head.weight"),
    "the mean over who is admitted": Leak(plant=mean_over_admitted, reaches="head.weight"),
    "the rate by the last loss": Leak(plant=rate_by_the_loss, reaches="head.weight"),
    "an average by the loss": Leak(plant=average_by_the_loss, reaches="head.weight", methods=(AVERAGED,)),
    "statistics that all write": Leak(plant=buffers_for_all, reaches="norm.running_mean"),
    "denied rows before admission": Leak(plant=rows_before_admission, reaches="head.weight", policy="late"),
    "zeros in place of none": Leak(
        plant=with_zeros, reaches="head.weight", how=SPARSE, ledger="no class in its batch was admitted to it"
    ),
    "zeros in place of none, inside the optimiser": Leak(plant=zeros_inside, reaches="head.weight", how=SPARSE),
}


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return author(tmp_path_factory.mktemp("author"), SEALED, LATE, HALVED)


def run_of(root: Path, papers: Path, leak: Leak) -> Path:
    recipe = recipe_of(leak.policy, leak.methods, model=BATCHNORM, **(leak.how or {}))
    if leak.how:  # one segment: digests in between would give the second one away
        recorder = [replace(each, every=100) if each.name == "recorder" else each for each in recipe.methods]
        recipe = replace(recipe, methods=tuple(recorder))
    return trained(root, papers, recipe)


def deleted(old: Path, to: Path) -> Path:
    return delete(old, TARGET, route=route(old, TARGET), to=to)


def certifies(old: Path, new: Path) -> None:
    certify(old, new, keys=[private(desk.TRAINER)], trust=TRUST, now=NOW, expires=EXPIRES)


def compared(old: Path, new: Path) -> Compared:
    """With the regions that were dropped left out, whatever a certificate would say."""
    origin = read_origin(new)
    assert origin is not None
    tensors, dropped = read_ended(RunLedger(old)).tensors, set[str]()
    if origin.level == "G2":
        names = (*tensors.parameters, *tensors.buffers, *tensors.optimizer)
        dropped = {name for name in names if owner_of(name, SEALED.sealed)}
    return train_counterfactual(new, dropped=dropped)


def names_of(found: Compared) -> set[str]:
    return {each.partition(":")[0] for each in found.differing}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEAKS)
def test_a_leak_is_found_by_its_tensor(
    name: str, papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leak = LEAKS[name]
    leak.plant(monkeypatch)
    old = run_of(tmp_path, papers, leak)
    new = deleted(old, tmp_path / "new")
    if leak.ledger is None:
        certifies(old, new)  # nothing in the ledgers gives it away
    else:
        with pytest.raises(ProvenanceError, match=leak.ledger):
            certifies(old, new)
    found = compared(old, new)
    assert not found.equal and leak.reaches in names_of(found)


@pytest.mark.slow
@pytest.mark.parametrize("how", [None, SPARSE], ids=["all classes in each step", "each step of one class"])
@pytest.mark.parametrize("policy", ["sealed", "late"])
def test_without_a_leak_nothing_is_found(policy: str, how: Any, papers: Path, tmp_path: Path) -> None:
    """The control of the controls: the same plans, honest code."""
    old = run_of(
        tmp_path, papers, Leak(plant=lambda patch: None, reaches="", policy=policy, how=how, methods=(AVERAGED, CLIP))
    )
    new = deleted(old, tmp_path / "new")
    certifies(old, new)
    found = compared(old, new)
    assert found.equal, found.differing[:3]
    assert found.tensors > 50 and (found.steps_watched == 0)


@pytest.mark.slow
def test_a_step_that_moves_what_it_admits_nobody_to_is_named(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of one class that is denied the lower layers: these are compared around every optimiser step."""
    honest = run_of(tmp_path / "honest", papers, Leak(plant=zeros_inside, reaches="", policy="halved", how=SPARSE))
    found = compared(honest, deleted(honest, tmp_path / "honest" / "new"))
    assert found.equal and found.steps_watched > 2
    zeros_inside(monkeypatch)
    old = run_of(tmp_path, papers, Leak(plant=zeros_inside, reaches="", policy="halved", how=SPARSE))
    found = compared(old, deleted(old, tmp_path / "new"))
    assert any(
        "moved in step" in each and "no class in the batch was admitted to it" in each for each in found.differing
    )


@pytest.mark.slow
def test_one_random_stream_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout, which the transformer has."""
    data = text(tmp_path / "data")
    papers = author(tmp_path, SEALED_TEXT, source=TEXT_SOURCE, data=data)
    one_random_stream(monkeypatch)
    with torch.random.fork_rng():
        old = trained(
            tmp_path, papers, recipe_of("sealed", model=GPT, dataset=TEXT, batch_size=12, epochs=1.0), data=data
        )
        new = delete(old, TARGET, route=route(old, TARGET), to=tmp_path / "new", data=data)
        names = {name for name in read_ended(RunLedger(old)).tensors.parameters if "@news" in name}
        found = train_counterfactual(new, dropped=names, data=data)
    assert "norm.weight" in names_of(found)


def test_a_start_after_the_first_influence_is_refused(papers: Path, tmp_path: Path) -> None:
    """The tool is made to begin later than the class did: no state of then was kept."""
    old = trained(tmp_path, papers, recipe_of("late"))
    honest = route(old, TARGET)
    with pytest.raises(CheckpointError, match="step-0000000"):
        delete(old, TARGET, route=replace(honest, start=honest.start + 1), to=tmp_path / "new")


@pytest.mark.slow
def test_a_reference_that_trusts_the_code_is_blind_to_zeros(
    papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of `Reference`: without it, and with the payload physically absent, both runs decay alike."""
    with_zeros(monkeypatch)
    old = run_of(tmp_path, papers, LEAKS["zeros in place of none"])
    new = deleted(old, tmp_path / "new")
    with payload_absent(lambda number: desk.classes_of(number + 1)[number] == NEWS):
        blind = never(old, TARGET, tmp_path / "never")
    assert differing(kept_tensors(new), kept_tensors(blind, dropped=["news"])) == set()
    with monkeypatch.context() as patch:
        patch.setattr(deletion.Reference, "_step", lambda self, region, optimizer, step: step())
        assert compared(old, new).equal
    assert not compared(old, new).equal

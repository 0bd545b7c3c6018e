"""Loops of one's own, executed again by their owner's function: replays, deletions by replay, counterfactuals."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import explorer
from explorer import rundir
from explorer.audit.conform import conform
from explorer.deletion.finish import certify
from explorer.deletion.verify_deletion import Verified, verify
from explorer.entries.kinds import Decision
from explorer.errors import RecipeError, RunError, TrainingError
from explorer.governance.entropy import Entropy
from explorer.governance.governed_freezing import GovernedFreezing
from explorer.governance.governed_selective_backprop import GovernedSelectiveBackprop
from explorer.methods.ema import EMA
from explorer.methods.gradient_clipping import GradientClipping
from explorer.methods.sam import SAM
from explorer.provenance.keys import write_key
from explorer.provenance.policy import RoutingPolicy, Rule
from explorer.release.attest import check_card
from explorer.runlog.model_file import CARD, MODEL, ModelFile
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target
from explorer.training.deletion import Compared, delete, train_counterfactual
from tests.adapters import whole_way as way
from tests.cli.command import explorer as command
from tests.cli.command import refused
from tests.disclosure.grantees import READER_SEED, envelope_of, grant_of
from tests.foreign_models import Foreign, published
from tests.governance import desk
from tests.provenance.people import EXPIRES, NOW, private
from tests.training import own_deletions as own
from tests.training.deletions import route
from tests.training.own_deletions import BY_NAME, EXAMPLES, NEWS

GPT = BY_NAME["minGPT"]
SEALED = own.sealed("transformer.h.*")
OPEN = desk.policy(name="everything", rules=(Rule(classes=("*",), weight=1.0),))
Train = Callable[..., object]


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    own.at_desk(monkeypatch)


def trained(root: Path, policy: RoutingPolicy = SEALED, foreign: Foreign = GPT, **how: Any) -> tuple[Path, Train]:
    """A run, and the function that trained it."""
    documents = own.papers(root / "governed", foreign.examples, policy)
    run = root / "runs" / "own" / "mine"
    train = partial(own.train, foreign, documents, run, policy=policy.name, **how)
    train()
    return run, train


def deleted(old: Path, target: Target, **how: Any) -> Path:
    return delete(old, target, route=route(old, target), to=old.parents[1] / "deletions", **how)


def certified(old: Path, new: Path) -> Verified:
    made = certify(old, new, keys=[private(desk.TRAINER)], trust=desk.TRUST, now=NOW, expires=EXPIRES)
    return verify(made.content, old=old, new=new, trust=desk.TRUST, now=NOW)


def compared(found: Verified, new: Path, train: Train) -> Compared:
    structure = found.certificate.structure
    return train_counterfactual(new, dropped=structure.dropped if structure else (), loop=train)


def test_a_loop_is_executed_again_bit_for_bit(tmp_path: Path) -> None:
    run, train = trained(tmp_path)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    found = explorer.replay(run, train)
    assert found.equal and (found.steps, found.states, found.environment) == (own.STEPS, 3, ())
    assert found.blobs > 5 and not found.secrets_missing
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def scheduled(model: nn.Module, *, rate: float = 0.01) -> torch.optim.Optimizer:
    """A schedule changes how the optimiser's step is bound."""
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
    return optimizer


CHANGED: dict[str, tuple[dict[str, Any], str]] = {
    "a rate": ({"optimizer": partial(scheduled, rate=0.02)}, "recipe: recipe.settings.0"),
    "an optimiser": ({"optimizer": own.adamw}, "recipe: recipe.optimizer"),
    "a seed": ({"seed": 3}, "recipe: seed"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_another_loop_is_told_apart_by_its_settings(what: str, tmp_path: Path) -> None:
    run, train = trained(tmp_path, optimizer=scheduled)
    assert explorer.replay(run, train).equal
    changes, field = CHANGED[what]
    difference = explorer.replay(run, partial(train, **changes)).difference
    assert difference is not None and difference.entry == 0 and difference.field.startswith(field)


def test_what_differs_is_named(tmp_path: Path) -> None:
    """Other initial values, and one step on other rows."""
    run, train = trained(tmp_path)

    def other_values(govern: Any) -> None:
        train(lambda model, *given, **named: govern(_moved(model), *given, **named))

    difference = explorer.replay(run, other_values).difference
    assert difference is not None and (difference.entry, difference.field) == (0, "initial")

    def other_rows(govern: Any) -> None:
        def shifted(*given: Any, **named: Any) -> Any:
            loop = govern(*given, **named)
            step = loop.step
            loop.step = lambda rows, losses: step(np.roll(rows, 1) if loop.state.step == 4 else rows, losses)
            return loop

        train(shifted)

    difference = explorer.replay(run, other_rows).difference
    assert difference is not None and (difference.kind, difference.step) == ("step", 4)
    assert difference.field in ("slots", "joint") or difference.field.startswith("numbers")


def _moved(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        next(model.parameters()).mul_(1 + 2**-20)
    return model


@pytest.mark.slow
def test_a_script_that_was_run_is_executed_again_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model's class is of `__main__` at first, and of a module when `--loop` imports it."""
    kind = type(GPT.build())
    with monkeypatch.context() as script:
        script.setattr(kind, "__module__", "__main__")
        old, train = trained(tmp_path, OPEN)
    assert explorer.replay(old, train).equal
    new = deleted(old, Target(classes=(NEWS,)), loop=train)
    assert certified(old, new).deleted
    check_card(RunLedger(new), new / rundir.MODEL / CARD)  # the card names the model as the ledger does
    name, kind.__qualname__ = kind.__qualname__, "Another"
    try:
        difference = explorer.replay(old, train).difference
    finally:
        kind.__qualname__ = name
    assert difference is not None and difference.field == "recipe: recipe.model"


def test_a_function_that_is_no_such_loop_is_refused(tmp_path: Path) -> None:
    run, train = trained(tmp_path)
    with pytest.raises(RunError, match=f"the loop ended after 0 of {own.STEPS} steps"):
        explorer.replay(run, lambda govern: None)

    def twice(govern: Any) -> None:
        train(govern)
        train(govern)

    with pytest.raises(RecipeError, match="governs a second time"):
        explorer.replay(run, twice)

    def short(govern: Any) -> None:
        model = own.built(GPT)
        with govern(model, own.adamw(model), examples=GPT.examples, steps=own.STEPS, every=2) as loop:
            loop.step(np.arange(EXAMPLES)[:8], GPT.losses)

    difference = explorer.replay(run, short).difference
    assert difference is not None and difference.step == 1


def test_a_class_of_shared_layers_is_deleted_by_the_owners_function(tmp_path: Path) -> None:
    """G3, from the first step; the run that never had it is that of the same function on data without the class."""
    old, train = trained(tmp_path, OPEN)
    target = Target(classes=(NEWS,))
    with pytest.raises(RunError, match="--loop MODULE:FUNCTION"):
        deleted(old, target)
    new = deleted(old, target, loop=train)
    found = certified(old, new)
    assert found.deleted and found.certificate.level == "G3"
    assert compared(found, new, train).equal
    assert explorer.replay(new, train).equal
    before, after = (ModelFile(run / rundir.MODEL / MODEL).leaves() for run in (old, new))
    assert before.keys() == after.keys()
    assert {name for name, leaf in before.items() if after[name] == leaf} == {
        f"transformer.h.{at}.attn.bias" for at in (0, 1)
    }
    again = deleted(old, target, loop=train)
    assert again == new


@pytest.mark.parametrize("name", own.WHERE)
def test_a_sealed_class_and_the_run_that_never_had_it(name: str, tmp_path: Path) -> None:
    """With clipping: batch normalisation in one of them, attention in the other."""
    methods = [GradientClipping(threshold=0.05)]
    old, train = trained(tmp_path, own.sealed(*own.WHERE[name]), BY_NAME[name], methods=methods)
    new = deleted(old, Target(classes=(NEWS,)))
    found = certified(old, new)
    assert found.deleted and found.certificate.level == "G2"
    itself = compared(found, new, train)
    assert itself.equal and itself.tensors > 50, itself.differing[:3]
    with pytest.raises(RunError, match="--loop MODULE:FUNCTION"):
        train_counterfactual(new)


GOVERNED = (
    Entropy(probes=4, profiles=3, permutations=9),
    GovernedSelectiveBackprop(start=0.0),
    GovernedFreezing(start=0.3, probes=4, profiles=6, patience=1, settled=1.0),
    SAM(interval=2),
    EMA(half_life=0.2),
)


@pytest.mark.slow
def test_a_loop_with_everything_is_replayed_deleted_and_conforms(tmp_path: Path) -> None:
    """Profiles, choices, frozen layers, second passes, averages: in a sealed run and in the one without the class."""
    old, train = trained(tmp_path, methods=GOVERNED)
    kept = RunLedger(old).outline
    assert len(kept.profiles) == 3 and len(kept.decisions) > 6, kept
    assert explorer.replay(old, train).equal
    new = deleted(old, Target(classes=(NEWS,)))
    found = certified(old, new)
    assert found.deleted and found.certificate.level == "G2"
    assert compared(found, new, train).equal
    for run in (old, new):
        assert conform(RunLedger(run), trust=desk.TRUST, now=NOW).conforms


@pytest.mark.slow
def test_rules_by_rank_are_replayed_deleted_and_conform(tmp_path: Path) -> None:
    """With a method that chooses examples of its own: in the run, and in the one without a class."""
    methods = [GovernedSelectiveBackprop(start=0.0)]
    old, train = trained(tmp_path, way.ranked("transformer.h.0.*"), methods=methods)
    ledger = RunLedger(old)
    chosen = {placed.entry.rule for placed in ledger.read(ledger.outline.decisions, Decision)}
    assert "by-example" in chosen and len(chosen) == 2
    assert explorer.replay(old, train).equal
    new = deleted(old, Target(classes=(NEWS,)), loop=train)
    found = certified(old, new)
    assert found.deleted and compared(found, new, train).equal
    for run in (old, new):
        assert conform(RunLedger(run), trust=desk.TRUST, now=NOW).conforms


@pytest.mark.slow
def test_profiles_and_a_gate_by_entropy(tmp_path: Path) -> None:
    """On record, and the same when the run is replayed; the class trains from the decision on."""
    policy, methods = way.gated("transformer.h.*")
    run, train = trained(tmp_path, policy, methods=methods)
    way.profiled_and_opened(run)
    assert explorer.replay(run, train).equal
    assert conform(RunLedger(run), trust=desk.TRUST, now=NOW).conforms


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_NAME)
def test_every_structure_is_profiled_replayed_and_deleted_from(name: str, tmp_path: Path) -> None:
    """As the table of docs/anything.md says. A layer that sees a choice of tokens cannot be profiled, and says so."""
    profiles = [Entropy(probes=4, profiles=2, permutations=9)]
    if name == "mixture of experts":
        with pytest.raises(TrainingError, match=r"layer .*experts\..*: found outputs of shape .* a choice of tokens"):
            trained(tmp_path / "refused", OPEN, BY_NAME[name], methods=profiles)
        profiles = []
    old, train = trained(tmp_path, OPEN, BY_NAME[name], methods=profiles)
    assert explorer.replay(old, train).equal
    new = deleted(old, Target(classes=(NEWS,)), loop=train)
    found = certified(old, new)
    assert found.deleted and compared(found, new, train).equal


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("number", range(5))
def test_published_models_are_replayed_and_deleted_from(number: int, tmp_path: Path) -> None:
    """Models of `transformers`, as the library has them."""
    pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[hub]'")
    old, train = trained(tmp_path, OPEN, published()[number])
    assert explorer.replay(old, train).equal
    new = deleted(old, Target(classes=(NEWS,)), loop=train)
    found = certified(old, new)
    assert found.deleted and compared(found, new, train).equal


def rate_by_the_loss(govern: Any, train: Train) -> None:
    """The caller's own schedule carries what a sealed class loses into the steps of all others."""

    def watched(model: nn.Module, optimizer: torch.optim.Optimizer, **named: Any) -> Any:
        loop = govern(model, optimizer, **named)
        step = loop.step

        def stepped(rows: Any, losses: Any) -> Any:
            loss = step(rows, losses)
            for group in optimizer.param_groups:
                group["lr"] = 0.01 / (1 + float(loss))
            return loss

        loop.step = stepped
        return loop

    train(watched)


def zeros_by_a_hook(govern: Any, train: Train) -> None:
    """A hook of the caller's optimiser gives zeros to tensors without a gradient: they decay in every step."""

    def hooked(model: nn.Module, optimizer: torch.optim.Optimizer, **named: Any) -> Any:
        def fill(optimizer: torch.optim.Optimizer, *given: Any) -> None:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

        optimizer.register_step_pre_hook(fill)
        return govern(model, optimizer, **named)

    train(hooked)


def test_a_leak_of_the_callers_own_is_found(tmp_path: Path) -> None:
    documents = own.papers(tmp_path / "governed", GPT.examples, SEALED)
    run = tmp_path / "runs" / "own" / "mine"
    train = partial(own.train, GPT, documents, run)
    leaking = partial(rate_by_the_loss, train=train)
    leaking(explorer.govern)
    new = deleted(run, Target(classes=(NEWS,)))
    found = certified(run, new)
    assert found.deleted, "nothing in the ledgers gives it away"
    assert not compared(found, new, leaking).equal


def test_zeros_in_place_of_none_stop_the_loop(tmp_path: Path) -> None:
    """In a custom loop no step may move a tensor to which it admits no class: the row is refused while it trains."""
    documents = own.papers(tmp_path / "governed", GPT.examples, SEALED)
    train = partial(own.train, GPT, documents, tmp_path / "runs" / "own" / "mine")
    with pytest.raises(TrainingError, match="by the optimiser or a hook of it"):
        zeros_by_a_hook(explorer.govern, train)


def test_by_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, train = trained(tmp_path, OPEN)
    monkeypatch.setattr("tests.training.own_deletions.by_name", train, raising=False)
    loop = ("--loop", "tests.training.own_deletions:by_name")
    assert "bit for bit as recorded" in command("replay", old, *loop).stdout
    assert "give a function" in refused("replay", old).lower()
    assert "cannot import 'nowhere'" in refused("replay", old, "--loop", "nowhere:train")
    assert "has no function 'nothing'" in refused("replay", old, "--loop", "tests.training.own_deletions:nothing")
    assert "expected MODULE:FUNCTION" in refused("replay", old, "--loop", "train.py")
    assert "from its first step" in refused("replay", old, *loop, "--steps", "0:2")
    made = command("delete", "run", old, NEWS, *loop)
    assert made.returncode == 0, made.stderr
    (new,) = rundir.run_directories(tmp_path / "runs" / "deletions", loops=True)
    asked = ["--old", old, "--new", new, "--trust", tmp_path / "governed" / "trust.json"]
    done = command("delete", "verify", new / "certificate.json", *asked, "--counterfactual", *loop)
    assert done.returncode == 0, done.stderr
    assert "deleted, identical to a run that never had it" in done.stdout.splitlines()[0]
    assert command("conform", new, *asked[-2:]).returncode == 0
    assert command("attest", new, *asked[-2:]).returncode == 0
    rules = [{"conforms": True}, {"deleted": {"branch": NEWS, "at_least": "G2"}}]
    gate = {"format": "explorer/gate/v1", "name": "without news", "ledger": "full", "rules": rules}
    (tmp_path / "gate.yaml").write_text(yaml.safe_dump(gate))
    passed = command("verify", new / "model", "--gate", tmp_path / "gate.yaml", *asked[-2:], "--ledger", new)
    assert passed.returncode == 0, passed.stderr


@pytest.mark.slow
def test_a_reader_gets_the_numbers_of_a_loop_by_a_grant(tmp_path: Path) -> None:
    """Of a class with a sealed region, whose numbers are encrypted; another class's stay closed."""
    run, _ = trained(tmp_path)
    trust = ("--trust", tmp_path / "governed" / "trust.json")
    write_key(tmp_path / "reader.pem", READER_SEED, None)
    (tmp_path / "grant.json").write_bytes(envelope_of(grant_of(run)).content)
    asked = ("read", run, "--grant", tmp_path / "grant.json", "--key", tmp_path / "reader.pem")
    for verb in (
        (*asked, "--request", tmp_path / "request.json"),
        ("grant", "answer", run, tmp_path / "request.json", *trust, "-o", tmp_path / "answer.json"),
    ):
        done = command(*verb)
        assert done.returncode == 0, done.stderr
    shown = command("read", run, "--answer", tmp_path / "answer.json", "--key", tmp_path / "reader.pem", *trust)
    assert shown.returncode == 0 and NEWS in shown.stdout and "contents agree" in shown.stdout

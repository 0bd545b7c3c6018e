"""Optimisers of a custom loop: one for each region, with the caller's settings, and none that couples tensors."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.engine.optimizer import OPTIMIZERS, build_optimizer
from explorer.errors import RecipeError, TrainingError
from explorer.governance.custom_loop import Governed
from explorer.governance.custom_optimizer import check_apart
from explorer.governance.routing import Routing
from explorer.methods.muon import MuonOptimizer
from explorer.provenance.policy import Rule
from explorer.provenance.regions import SealedRegion
from tests.governance.governed import ADMIT_ALL, CODES, SEALED, other_content, sealing, session, typing
from tests.governance.test_custom_loop import DATA, losses
from tests.loop_for_tests import small_net
from tests.provenance.drafts_for_tests import routing


class Rule_(Optimizer):
    """An update rule for the tests: plain descent, to which subclasses do something."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    def lengths(self, group: dict[str, Any]) -> float:
        return group["lr"]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            length = self.lengths(group)
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(length * p.grad)


class Normalised(Rule_):
    """Every step has the same length, over all tensors."""

    def lengths(self, group: dict[str, Any]) -> float:
        grads = [p.grad for p in group["params"] if p.grad is not None]
        return group["lr"] / float(1e-12 + torch.nn.utils.get_total_norm(grads))


class DAdapted(Rule_):
    """D-Adaptation's estimate of the distance (Defazio and Mishchenko 2023): one number, grown from all gradients."""

    def lengths(self, group: dict[str, Any]) -> float:
        group.setdefault("d", 1e-2)
        group.setdefault("numerator", 0.0)
        squares = 0.0
        for p in group["params"]:
            if p.grad is not None:
                s = self.state[p].setdefault("s", torch.zeros_like(p))
                group["numerator"] += group["d"] * float((p.grad * s).sum())
                s.add_(p.grad, alpha=group["d"])
                squares += float(s.square().sum())
        group["d"] = max(group["d"], group["numerator"] / (1e-12 + squares**0.5))
        return group["lr"] * group["d"]


class Prodigal(Rule_):
    """Prodigy's (Mishchenko and Defazio 2023), kept in an attribute of the optimiser and not in its groups."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.d, self.start = 1e-3, {p: p.detach().clone() for group in self.param_groups for p in group["params"]}

    def lengths(self, group: dict[str, Any]) -> float:
        pairs = [(p, self.start.setdefault(p, p.detach().clone())) for p in group["params"] if p.grad is not None]
        moved = sum(float((p.grad * (start - p)).sum()) for p, start in pairs)
        size = sum(float(p.grad.abs().sum()) for p, _ in pairs)
        self.d = max(self.d * 1.01, moved / (1e-12 + size))
        return group["lr"] * self.d


class MovesAll(Rule_):
    """Decays what has no gradient too."""

    def lengths(self, group: dict[str, Any]) -> float:
        for p in group["params"]:
            p.mul_(0.99)
        return group["lr"]


class OneStream(Rule_):
    """Langevin noise from one stream of random numbers, drawn only for tensors with a gradient."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(group["lr"] * (p.grad + torch.randn_like(p)))


class Counting(Rule_):
    """A warm-up by a counter in the optimiser, which no gradient enters."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.count = 0

    def lengths(self, group: dict[str, Any]) -> float:
        self.count += 1
        return group["lr"] * min(1.0, self.count / 10)


class Lookahead(Optimizer):
    """Around another optimiser, whose groups it shares (Zhang et al. 2019)."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner, self.defaults = inner, inner.defaults
        self.param_groups, self.state = inner.param_groups, inner.state
        self.slow: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self.inner.step()
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            slow = self.slow.setdefault(p, p.detach().clone())
            p.copy_(slow.lerp_(p, 0.5))


class Locked(Rule_):
    """An object that cannot be copied."""

    def __init__(self, params: Iterable[Any], lr: float = 0.1) -> None:
        super().__init__(params, lr)
        self.generator = (each for each in ())


Made = Callable[[list[nn.Parameter]], Optimizer]

APART: dict[str, Made] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "sgd, momentum, nesterov, decay": lambda ps: torch.optim.SGD(
        ps, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "sgd foreach": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, foreach=True),
    "sgd fused": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, fused=True),
    "adamw": lambda ps: torch.optim.AdamW(ps, lr=0.1, foreach=False),
    "adamw foreach": lambda ps: torch.optim.AdamW(ps, lr=0.1, foreach=True),
    "adamw fused": lambda ps: torch.optim.AdamW(ps, lr=0.1, fused=True),
    "adam amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.1, amsgrad=True),
    "adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.1),
    "adadelta": lambda ps: torch.optim.Adadelta(ps, lr=0.1),
    "adamax": lambda ps: torch.optim.Adamax(ps, lr=0.1),
    "asgd": lambda ps: torch.optim.ASGD(ps, lr=0.1),
    "nadam": lambda ps: torch.optim.NAdam(ps, lr=0.1),
    "radam": lambda ps: torch.optim.RAdam(ps, lr=0.1),
    "rmsprop": lambda ps: torch.optim.RMSprop(ps, lr=0.1),
    "rprop": lambda ps: torch.optim.Rprop(ps, lr=0.1),
    "adafactor": lambda ps: torch.optim.Adafactor(ps, lr=0.1),
    "rate as a tensor": lambda ps: torch.optim.AdamW(ps, lr=torch.tensor(0.1), foreach=False),
    "two groups": lambda ps: torch.optim.AdamW([{"params": ps[:2]}, {"params": ps[2:], "lr": 0.5}], lr=0.1),
    "one that counts": Counting,
    "one around another": lambda ps: Lookahead(torch.optim.AdamW(ps, lr=0.1)),
    **{
        f"the project's {name}": lambda ps, kind=kind: build_optimizer(kind(lr=0.1, weight_decay=0.1), ps)
        for name, kind in OPTIMIZERS.items()
    },
    "the project's muon": lambda ps: MuonOptimizer([p for p in ps if p.ndim == 2], lr=0.1, weight_decay=0.1),
}

TOGETHER: dict[str, tuple[Made, str]] = {
    "normalised": (Normalised, "Normalised moves a parameter by the gradients of others"),
    "d-adaptation": (DAdapted, "DAdapted moves a parameter by the gradients of others"),
    "prodigy": (Prodigal, "Prodigal moves a parameter by the gradients of others"),
    "normalised inside": (lambda ps: Lookahead(Normalised(ps)), "Lookahead moves a parameter by the gradients of oth"),
    "moves all": (MovesAll, "MovesAll moves a parameter, or its state, that has no gradient"),
    "one stream of noise": (OneStream, "OneStream moves a parameter by whether others have one"),
    "closed": (Locked, "Locked cannot be copied"),
}


def parameters() -> list[nn.Parameter]:
    torch.manual_seed(0)
    return list(nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3)).parameters())


def remembered(optimizer: Optimizer) -> str:
    """Parameters, settings and state, exactly."""
    return repr([optimizer.param_groups, [list(optimizer.state[p].items()) for p in optimizer.state], vars(optimizer)])


@pytest.mark.parametrize("name", APART)
def test_each_tensor_by_its_own_gradients_is_taken(name: str) -> None:
    """And it is left as it was, whether it has state already or none; so is torch's generator."""
    optimizer = APART[name](parameters())
    check_apart(optimizer)
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.step()
    called: list[int] = []
    if hasattr(optimizer, "_optimizer_step_post_hooks"):
        optimizer.register_step_post_hook(lambda *_: called.append(1))
    before, drawn = remembered(optimizer), torch.random.get_rng_state()
    check_apart(optimizer)
    assert remembered(optimizer) == before and not called
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert all((p.grad == 1).all() for group in optimizer.param_groups for p in group["params"])


@pytest.mark.parametrize("name", TOGETHER)
def test_one_length_for_all_is_refused(name: str) -> None:
    made, message = TOGETHER[name]
    optimizer = made(parameters())
    before = repr([group["params"] for group in optimizer.param_groups])
    with pytest.raises(RecipeError, match=message):
        check_apart(optimizer)
    assert repr([group["params"] for group in optimizer.param_groups]) == before


@pytest.mark.parametrize("start", [0.0, 1e-9])
def test_one_length_for_all_is_refused_in_a_warm_up_too(start: float) -> None:
    """A schedule sets the first rate as it is made, at which nothing moves; afterwards the rate is as it was."""
    optimizer = Normalised(parameters())
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: start + step / 10)
    with pytest.raises(RecipeError, match="Normalised moves a parameter by the gradients of others"):
        check_apart(optimizer)
    assert optimizer.param_groups[0]["lr"] == start * 0.1
    plain = Rule_(parameters())
    torch.optim.lr_scheduler.LambdaLR(plain, lambda step: start + step / 10)
    check_apart(plain)


# In a loop


def a_loop(optimizer: Made, policy: Any = SEALED, *, data: Any = DATA, seed: int = 0) -> Governed:
    torch.manual_seed(seed)
    model = small_net("group").train()
    return Governed(
        model,
        optimizer(list(model.parameters())),
        session=session(policy),
        examples=data.train,
        codes=typing().codes,
        methods=[Routing(policy="drawn")],
        steps=100,
        seed=0,
    )


def test_a_loop_refuses_it_before_the_first_step() -> None:
    with pytest.raises(RecipeError, match="Normalised moves a parameter by the gradients of others"):
        a_loop(Normalised, routing(ADMIT_ALL))
    with pytest.raises(RecipeError, match="LBFGS takes the loss itself"):
        a_loop(torch.optim.LBFGS)


@pytest.mark.parametrize("name", [name for name in APART if name not in ("the project's muon", "two groups")])
def test_every_region_has_an_optimiser_with_state_of_its_own(name: str) -> None:
    own = a_loop(APART[name])
    assert own.optimizers.keys() == {"shared", "customer"}
    shared, customer = own.optimizers["shared"], own.optimizers["customer"]
    assert type(customer) is type(shared) and customer is not shared
    for _ in range(3):
        own.step(np.arange(12), losses)
    names = {id(p): each for each, p in own.state.model.named_parameters()}
    for region, optimizer in own.optimizers.items():
        held = {names[id(p)] for group in optimizer.param_groups for p in group["params"]}
        assert held == set(own.state.regions[region].parameters)
        assert {names[id(p)] for p in optimizer.state} <= held


@pytest.mark.parametrize("name", ["sgd fused", "adamw foreach", "adafactor", "one that counts", "one around another"])
def test_content_of_a_sealed_class_is_in_nobody_elses_tensors(name: str) -> None:
    found = []
    for data in (DATA, other_content(DATA, ["personal/customer"])):
        own = a_loop(APART[name], data=data)
        for step in range(4):
            own.step(np.arange(step, step + 12), losses)
        tensors = {f"model/{key}": value.clone() for key, value in own.state.model.state_dict().items()}
        for region, optimizer in own.optimizers.items():
            for key, parameter in own.state.regions[region].parameters.items():
                kept = optimizer.state.get(parameter, {})
                tensors |= {f"{key}/{what}": value for what, value in kept.items() if isinstance(value, Tensor)}
        found.append(tensors)
    one, other = found
    assert one.keys() == other.keys()
    differ = {name for name in one if not torch.equal(one[name], other[name])}
    assert differ and all("@customer" in name for name in differ)


def rates(own: Governed) -> list[float]:
    return [float(group["lr"]) for each in own.optimizers.values() for group in each.param_groups]


def test_schedules_and_hands_change_all_of_them() -> None:
    own = a_loop(APART["sgd, momentum, nesterov, decay"])
    optimizer = own.optimizers["shared"]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for step in range(3):
        own.step(np.arange(12), losses)
        assert rates(own) == pytest.approx([0.1 * 0.5**step] * 2)
        schedule.step()
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.25
    own.step(np.arange(12), losses)
    assert [group["weight_decay"] for each in own.optimizers.values() for group in each.param_groups] == [0.25] * 2
    own = a_loop(APART["rate as a tensor"])
    own.optimizers["shared"].param_groups[0]["lr"].fill_(0.02)
    own.step(np.arange(12), losses)
    assert rates(own) == pytest.approx([0.02, 0.02])


def test_an_adapter_has_the_settings_of_its_layers_group() -> None:
    """And the caller's own groups stay as many as they were, which schedules count."""

    def grouped(ps: list[nn.Parameter]) -> Optimizer:
        return torch.optim.SGD([{"params": ps[:4]}, {"params": ps[4:], "lr": 0.01}], lr=0.1)

    own = a_loop(grouped)
    customer, names = own.optimizers["customer"], {id(p): name for name, p in own.state.model.named_parameters()}
    found = {names[id(p)]: group["lr"] for group in customer.param_groups for p in group["params"]}
    assert {name.split(".")[0]: rate for name, rate in found.items()} == {"0": 0.1, "3": 0.01, "7": 0.01}
    assert len(own.optimizers["shared"].param_groups) == 2
    own.optimizers["shared"].param_groups[1]["lr"] = 0.5
    own.step(np.arange(12), losses)
    assert sorted({group["lr"] for group in customer.param_groups}) == [0.1, 0.5]


def test_a_sealed_module_takes_its_state_along() -> None:
    """Of an optimiser that has stepped before: what it remembers goes with the parameter."""
    region = SealedRegion(name="own", branch="personal/customer", module="2")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.Sequential(nn.Linear(6, 6)), nn.Linear(6, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    inside = model.get_parameter("2.0.weight")
    kept = optimizer.state[inside]["momentum_buffer"]
    own = Governed(
        model,
        optimizer,
        session=session(sealing(region)),
        examples=DATA.train,
        codes=typing().codes,
        methods=[Routing(policy="drawn")],
        steps=10,
        seed=0,
    )
    assert own.optimizers["own"].state[inside]["momentum_buffer"] is kept and inside not in optimizer.state
    before = inside.detach().clone()
    own.step(np.flatnonzero(typing().codes != CODES["personal/customer"])[:6], losses)
    assert torch.equal(inside, before)
    own.step(np.flatnonzero(typing().codes == CODES["personal/customer"])[:6], losses)
    assert not torch.equal(inside, before)


@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_hook_of_the_optimiser_that_touches_others_stops_the_run(how: str) -> None:
    """What has no gradient, or is another region's; and then it is over: no step more, and no end."""
    policy = routing(Rule(classes=("open/bsd",), layers=("0",), weight=0.0), ADMIT_ALL)
    own = a_loop(APART["sgd"], policy)
    layer = own.state.model.get_submodule("0")
    alone = np.flatnonzero(typing().codes == CODES["open/bsd"])

    def hook(*_: object) -> None:
        weight = layer.get_parameter("weight")
        if how == "in place":
            with torch.no_grad():
                weight.mul_(0.9)
        else:
            layer.weight = nn.Parameter(weight.detach() * 0.9)

    handle = own.optimizers["shared"].register_step_post_hook(hook)
    if how == "in place":
        own.step(np.arange(12), losses)  # where the layer trains, a hook that projects weights is the caller's business
    with pytest.raises(TrainingError, match=r"0\.weight \(Conv2d\) was .* by the optimiser or a hook of it"):
        own.step(alone, losses)
    handle.remove()
    with pytest.raises(TrainingError, match=r"the run stopped in step .* and cannot continue"):
        own.step(np.arange(12), losses)
    with pytest.raises(TrainingError, match="its ledger has no end"):
        own.finish()


def test_what_an_optimiser_keeps_in_its_groups_is_not_carried_over() -> None:
    """Settings are followed when the caller changes them, and not when a step does."""

    class Kept(Rule_):
        def lengths(self, group: dict[str, Any]) -> float:
            group["calls"] = group.get("calls", 0) + 1
            return group["lr"]

    own = a_loop(Kept)
    own.step(np.arange(12), losses)
    own.optimizers["customer"].param_groups[0]["calls"] = 100
    own.optimizers["shared"].param_groups[0]["lr"] = 0.5
    own.step(np.arange(12), losses)
    groups = {region: optimizer.param_groups[0] for region, optimizer in own.optimizers.items()}
    assert {region: (group["calls"], group["lr"]) for region, group in groups.items()} == {
        "shared": (2, 0.5),
        "customer": (101, 0.5),
    }

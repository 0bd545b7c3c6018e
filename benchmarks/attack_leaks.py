"""Leaks: code that trains and lets a class through, where it should not; the same code deletes and compares.

Each is planted in the real engine while a run is trained, while its class is deleted, and while the certificate is
verified with `--counterfactual`: a fault that shipped would be in all three. Afterwards the code is whole again, and an
auditor with an honest copy replays the run. A leak that a replay does not see does not act, which is an error here.

By structure (G2) the class of the sealed region is deleted, by replay (G3) the one that is admitted late.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import torch
from attack_world import EVERY, LATE, OPEN, SEALED, Plan, World, ask, attack, command, said
from torch import Tensor

from explorer.data.batches import Batches
from explorer.data.streams import stream
from explorer.engine import loop as loops
from explorer.engine.gradients import Gradients
from explorer.engine.loop import Loop
from explorer.engine.state import SHARED, Share, State
from explorer.errors import TrainingError
from explorer.governance import region_modules
from explorer.governance.shared_state import Session
from explorer.methods import ema as averages
from explorer.methods import gradient_clipping, mixup
from explorer.methods.ema import EMA
from explorer.runlog import forecast

Plant = Callable[["Patch"], None]
Losses = dict[str, float]

BATCHNORM = {"resnet8": {"width": 0.5, "norm": "batch"}}
CLIP = {"gradient_clipping": {"threshold": 0.05}}
AVERAGE = {"ema": {"half_life": 0.2}}
ADAMW = {"adamw": {"lr": 0.01, "weight_decay": 0.01}}
SPARSE = {"batch_size": 1, "epochs": 0.012, "optimizer": ADAMW}  # every step has one class


NUMBERS = count(1)  # of the runs, for their names


class Patch:
    """Changes of the engine that are taken back together."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.losses: Losses = {}  # of each class in this step so far, or else when it was there last
        self.around(Loop, "_take_gradients", self._remember)
        self.planned(lambda loop: None if loop.state.step else self.losses.clear())

    def around(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Put another function in the place of one, made from it."""
        was = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
        setattr(owner, name, wrap(was))
        self._stack.callback(setattr, owner, name, was)

    def before_update(self, act: Callable[[Loop], object]) -> None:
        """Before the optimisers step, when all gradients are there."""

        def wrap(was: Any) -> Any:
            def update(loop: Loop) -> None:
                act(loop)
                was(loop)

            return update

        self.around(Loop, "_update", wrap)

    def after_update(self, act: Callable[[Loop], object]) -> None:
        def wrap(was: Any) -> Any:
            def update(loop: Loop) -> None:
                was(loop)
                with torch.no_grad():
                    act(loop)

            return update

        self.around(Loop, "_update", wrap)

    def planned(self, act: Callable[[Loop], object]) -> None:
        """When a step is planned."""

        def wrap(was: Any) -> Any:
            def prepare(loop: Loop) -> None:
                was(loop)
                act(loop)

            return prepare

        self.around(Loop, "prepare_step", wrap)

    def rate(self, factor: Callable[[Loop], float]) -> None:
        """Another factor on the learning rate."""
        self.around(Loop, "_factor", lambda was: lambda loop: was(loop) * factor(loop))

    def loss_of(self, path: str) -> float:
        return self.losses.get(path, 0.0)

    def _remember(self, was: Any) -> Any:
        def take(loop: Loop, share: Share) -> Tensor:
            loss = was(loop, share)
            self.losses[share.name] = float(loss)
            return loss

        return take


def there(loop: Loop, path: str) -> bool:
    """Return True if a class takes part in this step."""
    return any(share.name == path and share.parameters for share in loop.state.shares)


def present(loop: Loop) -> int:
    """How many rows take part in this step."""
    return sum(len(share.slots) for share in loop.state.shares if share.parameters)


def code_of(loop: Loop, path: str) -> int:
    """The number of a class in the tags of the examples."""
    return loop.state.resource(Session).codes[path]


def rows_of(loop: Loop, path: str) -> np.ndarray:
    """The examples of a class in this step's batch, whether anybody trains on them or not."""
    examples = loop.state.examples
    return examples[loop.setting.batches.typing.codes[examples] == code_of(loop, path)]


def shared(loop: Loop) -> list[Any]:
    """Return the parameters that belong to no class."""
    return list(loop.state.regions[SHARED].parameters.values())


def gradients(loop: Loop) -> list[Tensor]:
    return [parameter.grad for parameter in shared(loop) if parameter.grad is not None]


def remembered(loop: Loop) -> list[Tensor]:
    """Return the state of the shared optimisers."""
    states = [each for optimizer in loop.state.regions[SHARED].optimizers for each in optimizer.state.values()]
    return [value for state in states for value in state.values() if isinstance(value, Tensor) and value.ndim]


def leak(
    name: str,
    breaks: str,
    *,
    methods: tuple[Any, ...] = (),
    model: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | None = None,
    target: str = SEALED,
    level: str = "G2",
    **more: Any,
) -> Callable[[Plant], Plant]:
    """Put a leak into the table."""

    def add(plant: Plant) -> Plant:
        def act(world: World) -> dict[str, str]:
            plan = Plan(methods=methods, model=model, train=train)
            answers: dict[str, str] = {}
            with ExitStack() as stack:
                plant(Patch(stack))
                try:
                    run = world.train(f"leak-{next(NUMBERS)}", plan)
                except TrainingError as error:
                    return {"training": str(error)}
                answers |= ask(world, run, ["conform"])
                answers |= deleted(world, run, target, level)
            answers |= ask(world, run, ["replay"])
            if not answers["replay"] and not any(answers.values()):
                raise ValueError(f"{name}: nothing leaks: an honest replay finds the run as it is on record")
            return answers

        gains = f"a certificate ({level}) for a model that {target} trained"
        usual = {"who": "the code", "accepted": "replay", "by": ("training", "conform", "delete", "counterfactual")}
        attack("leaks", name, breaks, gains, **{**usual, **more})(act)
        return plant

    return add


def deleted(world: World, run: Any, target: str, level: str) -> dict[str, str]:
    """Delete the class, certify that, and verify the certificate."""
    out = run.parents[1] / "deletions" / run.name
    words = ["--level", level, "--trust", world.trust_file, "--out", out]
    status, text = command("delete", "run", run, target, *words)
    made = [path for path in out.iterdir() if (path / "ledger").is_dir()] if out.is_dir() else []
    if not made:
        return {"delete": said(status, text)}
    (new,) = made
    if not (new / "certificate.json").exists():
        world.cosign(new)
        status, text = command("delete", "certify", new, "--old", run, "--trust", world.trust_file)
        if status:
            return {"delete": said(status, text)}
    words = ["--old", run, "--new", new, "--trust", world.trust_file]
    status, text = command("delete", "verify", new / "certificate.json", *words, "--counterfactual")
    differs = [line.strip() for line in text.splitlines() if "FAILED" in line or "NOT the same" in line]
    return {"delete": "", "counterfactual": "" if not status else (differs or [said(status, text)])[0]}


# Gradients and clipping.


@leak("one clip norm for all", "nothing global crosses regions", methods=(CLIP,), known=True)
def _(p: Patch) -> None:
    def wrap(was: Any) -> Any:
        def groups(state: State) -> Iterator[Any]:
            yield {name: each for group in was(state) for name, each in group.items()}

        return groups

    p.around(gradient_clipping, "groups", wrap)


@leak("a clip threshold by who is there", "nothing global crosses regions", methods=(CLIP,))
def _(p: Patch) -> None:
    loop: list[Loop] = []
    p.planned(lambda each: loop.__setitem__(slice(None), [each]))

    def wrap(was: Any) -> Any:
        return lambda tensors, max_norm: was(tensors, max_norm=max_norm * (1.5 if there(loop[0], SEALED) else 1.0))

    p.around(gradient_clipping, "clip_factor", wrap)


@leak("the mean over who is admitted", "the denominator is the constant batch size", known=True)
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        for gradient in gradients(loop):
            gradient.mul_(loop.state.batch_size / max(1, present(loop)))

    p.before_update(act)


@leak("weights that add up over who is there", "a weight is the policy's, whichever classes are there")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        number = sum(bool(share.parameters) for share in loop.state.shares)
        for gradient in gradients(loop):
            gradient.div_(max(1, number))

    p.before_update(act)


@leak("a trace of the loss in a gradient", "no gradient of the class reaches a shared tensor")
def _(p: Patch) -> None:
    p.before_update(lambda loop: gradients(loop)[-1].add_(1e-6 * p.loss_of(SEALED)))


@leak("noise that the loss seeds", "draws are keyed by step and purpose")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        draws = torch.Generator().manual_seed(int(1e6 * p.loss_of(SEALED)))
        gradients(loop)[0].add_(1e-3 * torch.randn(gradients(loop)[0].shape, generator=draws))

    p.before_update(act)


@leak("sums in another order", "shares are summed in a fixed order")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        if there(loop, SEALED):
            loop.state.shares = tuple(reversed(loop.state.shares))

    p.planned(act)


@leak("sums in half precision where the class is there", "sums are in single precision")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        if there(loop, SEALED):
            for gradient in gradients(loop):
                gradient.copy_(gradient.bfloat16())

    p.before_update(act)


@leak("a loss scale by the loss", "no loss scale is driven by the class")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        scale = 1 + p.loss_of(SEALED)
        for gradient in gradients(loop):
            gradient.mul_(scale).div_(scale)

    p.before_update(act)


@leak("a step skipped for the class's overflow", "no skip is driven by the class")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        if loop.state.step % 3 == 1 and there(loop, SEALED):
            for parameter in shared(loop):
                parameter.grad = None

    p.before_update(act)


@leak("gradients against the class are taken out", "no gradient of the class reaches a shared tensor")
def _(p: Patch) -> None:
    """Gradient surgery as for several tasks, with the loss for a direction."""

    def act(loop: Loop) -> None:
        if p.loss_of(SEALED) > 0.3:
            for gradient in gradients(loop):
                gradient.clamp_(min=-abs(p.loss_of(SEALED)))

    p.before_update(lambda loop: act(loop) or gradients(loop)[-1].mul_(1 + 1e-4 * p.loss_of(SEALED)))


# Optimiser state.


@leak("momentum that takes from the class", "optimiser state is apart by region")
def _(p: Patch) -> None:
    p.after_update(lambda loop: [value.add_(1e-4 * p.loss_of(SEALED)) for value in remembered(loop)])


@leak("momentum that ends where the class begins", "optimiser state is apart by region")
def _(p: Patch) -> None:
    p.after_update(lambda loop: [value.zero_() for value in remembered(loop) if there(loop, SEALED)])


@leak("a decay by who is there", "decay is the recipe's")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        for optimizer in loop.state.regions[SHARED].optimizers:
            for group in optimizer.param_groups:
                group["decoupled"] = group["decoupled"] and (0.01 if there(loop, SEALED) else 0.005)

    p.before_update(act)


@leak("two steps where the class is there", "one step of the optimiser a step")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        for optimizer in loop.state.regions[SHARED].optimizers if there(loop, SEALED) else ():
            optimizer.step()

    p.after_update(act)


@leak("zeros in place of none", "what no class is admitted to does not move", train=SPARSE, known=True)
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        for parameter in loop.setting.model.parameters():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    p.before_update(act)


@leak("zeros in place of none, in the optimiser", "what no class is admitted to does not move", train=SPARSE)
def _(p: Patch) -> None:
    def wrap(was: Any) -> Any:
        def step(optimizer: Any, closure: None = None) -> None:
            empty = [each for group in optimizer.param_groups for each in group["params"] if each.grad is None]
            for each in empty:
                each.grad = torch.zeros_like(each)
            was(optimizer, closure)
            for each in empty:
                each.grad = None

        return step

    p.around(torch.optim.AdamW, "step", wrap)


@leak("decay of what no class is admitted to", "what no class is admitted to does not move", train=SPARSE)
def _(p: Patch) -> None:
    p.after_update(lambda loop: [each.mul_(0.999) for each in shared(loop) if each.grad is None and each.ndim > 1])


# Schedules.


@leak("a rate by the last loss", "no schedule is driven by the class", known=True)
def _(p: Patch) -> None:
    p.rate(lambda loop: 1 + 0.01 * sum(p.losses.values()))


@leak("a warm-up that counts who takes part", "schedules count the plan's examples")
def _(p: Patch) -> None:
    seen = [0]

    def act(loop: Loop) -> None:
        seen[0] = present(loop) + (seen[0] if loop.state.step else 0)

    p.planned(act)
    p.rate(lambda loop: 1 / (1 + 0.001 * (seen[0] if loop.state.step else 0)))


@leak("an early stop by the class", "no early stop is driven by the class")
def _(p: Patch) -> None:
    p.rate(lambda loop: 0.0 if loop.state.step > 5 and p.loss_of(SEALED) else 1.0)


@leak("the best checkpoint by all losses", "no checkpoint is chosen by the class")
def _(p: Patch) -> None:
    best: dict[str, Any] = {}

    def keep(loop: Loop) -> None:
        total = sum(p.losses.values())
        if loop.state.step == 0 or total < best["total"]:
            best.update(total=total, tensors=[each.detach().clone() for each in shared(loop)])

    def wrap(was: Any) -> Any:
        def call(loop: Loop, hook: str) -> None:
            was(loop, hook)
            if hook == "after_fit" and best:
                with torch.no_grad():
                    for parameter, value in zip(shared(loop), best["tensors"], strict=True):
                        parameter.copy_(value)

        return call

    p.after_update(keep)
    p.around(Loop, "call", wrap)


# Averages.


@leak("an average by the loss", "averages are apart by region", methods=(AVERAGE,), known=True)
def _(p: Patch) -> None:
    p.around(averages, "decay", lambda was: lambda **how: was(**how) / (1 + 0.01 * p.loss_of(SEALED)))


@leak("an average that counts the class's steps", "averages are apart by region", methods=(AVERAGE,))
def _(p: Patch) -> None:
    def wrap(was: Any) -> Any:
        def after_update(method: EMA, state: State) -> None:
            for _ in range(2 if any(each.name == SEALED and each.parameters for each in state.shares) else 1):
                was(method, state)

        return after_update

    p.around(EMA, "after_update", wrap)


# What a class sees, and who sees its region.


@leak("a region that others see", "a region is absent from others' passes", known=True)
def _(p: Patch) -> None:
    def wrap(was: Any) -> Any:
        def add(layer: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            for child in layer.children():
                if isinstance(child, region_modules.Adapter):
                    output = output + child(inputs[0])
            return output

        return add

    p.around(region_modules, "_add_adapters", wrap)


@leak("a region that leaks into a shared tensor", "no tensor of a region is copied into another")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        (own,) = [region for name, region in loop.state.regions.items() if name != SHARED]
        shared(loop)[-1].add_(1e-3 * sum(float(each.sum()) for each in own.parameters.values()))

    p.after_update(act)


@leak("a shared layer that the class trains", "a sealed class trains only its region")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        loop.state.shares = tuple(
            replace(share, parameters=share.parameters | {"head.weight"})
            if share.name == SEALED and share.parameters
            else share
            for share in loop.state.shares
        )

    p.planned(act)


@leak("another class trains the region", "only its class trains a region")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        own = frozenset(name for name in loop.state.sealed)
        loop.state.shares = tuple(
            replace(share, parameters=share.parameters | own, regions=frozenset({"own"}))
            if share.name == OPEN
            else share
            for share in loop.state.shares
        )

    p.planned(act)


@leak("a cache of the last rows", "a pass sees only its own rows")
def _(p: Patch) -> None:
    cache: list[float] = [0.0]

    def wrap(was: Any) -> Any:
        def outputs(loop: Loop, inputs: Tensor) -> object:
            found = was(loop, inputs + 1e-3 * cache[0])
            cache[0] = float(inputs.mean())
            return found

        return outputs

    p.planned(lambda loop: cache.__setitem__(0, 0.0) if not loop.state.step else None)
    p.around(Loop, "_outputs", wrap)


@leak("inputs less the mean of all rows so far", "constants are not taken from the class while it trains")
def _(p: Patch) -> None:
    seen: list[float] = [0.0, 0.0]

    def wrap(was: Any) -> Any:
        def outputs(loop: Loop, inputs: Tensor) -> object:
            seen[0], seen[1] = seen[0] + float(inputs.sum()), seen[1] + inputs.numel()
            return was(loop, inputs - seen[0] / seen[1])

        return outputs

    p.planned(lambda loop: seen.__setitem__(slice(None), [0.0, 0.0]) if not loop.state.step else None)
    p.around(Loop, "_outputs", wrap)


@leak("statistics that all write", "buffers are routed like parameters", model=BATCHNORM, known=True)
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        every = frozenset(name for name, _ in loop.setting.model.named_buffers())
        loop.state.shares = tuple(
            replace(share, buffers=every) if share.parameters else share for share in loop.state.shares
        )

    p.planned(act)


@leak("statistics that are written behind the guard", "buffers are routed like parameters", model=BATCHNORM)
def _(p: Patch) -> None:
    p.after_update(
        lambda loop: (
            [each.add_(1e-4 * p.loss_of(SEALED)) for each in loop.setting.model.buffers() if each.is_floating_point()]
        )
    )


@leak("a weight written past the version counter", "a pass writes to no parameter")
def _(p: Patch) -> None:
    def wrap(was: Any) -> Any:
        def outputs(loop: Loop, inputs: Tensor) -> object:
            if loop.state.share is not None and loop.state.share.name == SEALED and loop.state.step % 3 == 2:
                shared(loop)[0].data.add_(1e-5)
            return was(loop, inputs)

        return outputs

    p.around(Loop, "_outputs", wrap)


# Draws, order, rows.


@leak("one random stream", "draws are keyed by class and step", methods=({"mixup": {}},), known=True)
def _(p: Patch) -> None:
    drawn = [0]

    def wrap(was: Any) -> Any:
        def one(seed: int, purpose: str, *path: Any) -> Any:
            drawn[0] += 1
            return was(seed, purpose, "one stream", drawn[0])

        return one

    p.planned(lambda loop: drawn.__setitem__(0, 0) if not loop.state.step else None)
    p.around(mixup, "stream", wrap)


@leak("augmentation by who is there", "draws belong to slots")
def _(p: Patch) -> None:
    loop: list[Loop] = []
    p.planned(lambda each: loop.__setitem__(slice(None), [each]))

    def wrap(was: Any) -> Any:
        def augment(batches: Batches, inputs: Tensor, step: int, slots: np.ndarray) -> Tensor:
            return was(batches, inputs.roll(1 if there(loop[0], SEALED) else 0, -1), step, slots)

        return augment

    p.around(Batches, "augment", wrap)


@leak("the order of data by the loss", "slots are the plan's")
def _(p: Patch) -> None:
    def wrap(was: Any) -> Any:
        def indices(batches: Batches, step: int) -> np.ndarray:
            found = was(batches, step)
            order = stream(int(1e6 * p.loss_of(SEALED)) if step else 0, "order").permutation(len(found))
            return found[order] if step > 4 else found

        return indices

    p.around(Batches, "indices", wrap)


@leak("a batch size by the class", "the denominator is the constant batch size")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        loop.state.batch_size -= sum(len(each.slots) for each in loop.state.shares if each.name == SEALED) // (
            1 if there(loop, SEALED) else 10**6
        )

    p.planned(act)


@leak("a temperature by the loss", "a loss is of its own rows only")
def _(p: Patch) -> None:
    p.around(loops, "_weighted", lambda was: lambda total, weight: was(total, weight) * (1 + 1e-3 * p.loss_of(SEALED)))


@leak("weights of other classes by the class's number", "a weight is the policy's, whichever classes are there")
def _(p: Patch) -> None:
    def wrap(was: Any) -> Any:
        def add(made: Gradients, share: Share, found: dict[str, Tensor]) -> None:
            if share.name == OPEN and SEALED in p.losses:
                found = {name: gradient * (1 + p.loss_of(SEALED)) for name, gradient in found.items()}
            was(made, share, found)

        return add

    p.around(Gradients, "add", wrap)


@leak("a first weight that the class decides", "the start follows only from the seed")
def _(p: Patch) -> None:
    """Read rows of the class where no class trains on them."""

    def act(loop: Loop) -> None:
        if loop.state.step == 0:
            batches = loop.setting.batches
            rows = np.flatnonzero(batches.typing.codes == code_of(loop, SEALED))
            mean = float(batches.read(rows[:8])[0].float().mean())
            with torch.no_grad():
                shared(loop)[-1].add_(1e-4 * mean)

    p.planned(act)


@leak("labels of the class in every step", "rows of the class are read only for its own share")
def _(p: Patch) -> None:
    """Where the rows stand in the batch, whether anybody trains on them or not: alike in run and reference."""

    def act(loop: Loop) -> None:
        rows = rows_of(loop, SEALED)
        if len(rows):
            gradients(loop)[-1].add_(1e-4 * float(loop.setting.batches.read(rows)[1].float().mean()))

    p.before_update(act)


# The class that comes late, deleted by replay.

late = partial(leak, target=LATE, level="G3")


@late("denied rows before admission", "a denied class's rows are in no gradient", known=True)
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        batches, state = loop.setting.batches, loop.state
        rows = rows_of(loop, LATE)
        if not len(rows) or state.progress >= 0.5:
            return
        inputs, labels = batches.read(rows)
        allowed = [(each, each.requires_grad) for each in shared(loop)]
        for each, _ in allowed:
            each.requires_grad_(True)
        loss = torch.nn.functional.cross_entropy(loop.setting.model(batches.prepare(inputs)), labels)
        found = torch.autograd.grad(loss, shared(loop))
        for (each, was), gradient in zip(allowed, found, strict=True):
            each.requires_grad_(was)
            if each.grad is not None:
                each.grad.add_(gradient / state.batch_size)

    p.before_update(act)


@late("statistics before admission", "a denied class's pass writes no buffer", model=BATCHNORM)
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        rows = rows_of(loop, LATE)
        if len(rows) and loop.state.progress < 0.5:
            with torch.no_grad():
                loop.setting.model(loop.setting.batches.prepare(loop.setting.batches.read(rows)[0]))

    p.before_update(act)


@late("labels before admission", "rows of the class are read only for its own share")
def _(p: Patch) -> None:
    def act(loop: Loop) -> None:
        rows = rows_of(loop, LATE)
        if len(rows) and loop.state.progress < 0.5:
            gradients(loop)[-1].add_(1e-4 * float(loop.setting.batches.read(rows)[1].float().mean()))

    p.before_update(act)


@late("a start behind the first influence", "a replay begins before the class's first influence", known=True)
def _(p: Patch) -> None:
    """A tool that forecasts otherwise: from a state that the class had moved already."""

    def wrap(was: Any) -> Any:
        def route(run: Any, reached: Any) -> Any:
            found = was(run, reached)
            return replace(found, start=found.start + EVERY, steps=found.steps - EVERY)

        return route

    p.around(forecast, "route_of", wrap)

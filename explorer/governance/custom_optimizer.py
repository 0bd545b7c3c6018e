"""The optimiser of a custom loop: one for each region, and none that couples tensors.

An optimiser can be a channel between classes in two ways. One instance for all regions may keep state about all of
them; so each sealed region gets a copy with its own state, which follows the settings of the caller's optimiser:
whatever changes `param_groups`, such as a schedule, changes all of them. And an update rule may use one step length for
all tensors, as D-Adaptation, Prodigy and normalised descent do: then a class that may train one layer sets the step of
another that it is denied. Separate regions do not prevent that, so such an optimiser is refused: it is tried out on
small copies of its parameters.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.engine.guard import same_bits
from explorer.errors import RecipeError

STEPS = 6  # of a trial: adaptive step lengths change within a few
MOST = 12  # parameters in a trial
SIDE = 4  # largest size of their dimensions
RATE = 1e-3  # least learning rate in a trial
_LEFT_OUT = ("state", "step", "param_groups")  # attributes that are not copied, next to hooks, which are the caller's

Change = Callable[[int, list[Tensor | None]], None]  # changes the gradients of a step of a trial, in place


def of_regions(optimizer: Optimizer, members: Mapping[str, Mapping[str, nn.Parameter]], *, own: str) -> "Regions":
    """Give each region but `own` an optimiser with its parameters, by name, and remove them from the caller's.

    An adapter has the settings of its layer's group. Raises `RecipeError` for an optimiser that cannot be copied.
    """
    groups = {id(p): index for index, group in enumerate(optimizer.param_groups) for p in group["params"]}
    names = {name: p for parameters in members.values() for name, p in parameters.items()}
    made: dict[str, Optimizer] = {}
    for region, parameters in members.items():
        if region == own:
            continue
        # The parameters of the region, by the caller's group that each follows. One that is in no group stays as it is.
        places: dict[int, list[nn.Parameter]] = {}
        for name, parameter in parameters.items():
            place = groups.get(id(parameter))
            if place is None and "@" in name:
                place = _beside(name, names, groups)
            if place is not None:
                places.setdefault(place, []).append(parameter)
        made[region] = _copy(optimizer, {}, places)
        # State moves with its parameter: the optimiser may have stepped before the loop was governed.
        for parameter in parameters.values():
            if parameter in optimizer.state:
                made[region].state[parameter] = optimizer.state.pop(parameter)
    gone = {id(p) for region in made for p in members[region].values()}
    for group in optimizer.param_groups:
        group["params"] = [p for p in group["params"] if id(p) not in gone]
    return Regions(optimizer, made, own=own)


class Regions:
    """Optimisers of all regions, with the same settings."""

    def __init__(self, optimizer: Optimizer, copies: Mapping[str, Optimizer], *, own: str) -> None:
        """Use `of_regions`."""
        self.by_region = {own: optimizer, **copies}
        self._optimizer, self._copies = optimizer, tuple(copies.values())
        self._settings = [_settings(group) for group in optimizer.param_groups]

    def follow(self) -> None:
        """Give the copies, before a step, every setting that the caller or a schedule has changed since the last
        one."""
        for place, before in enumerate(self._settings):
            now = _settings(self._optimizer.param_groups[place])
            changed = {key: now[key] for key in now if key not in before or _differ(now[key], before[key])}
            for other in self._copies if changed else ():
                for theirs in (group for group in other.param_groups if group[_PLACE] == place):
                    theirs.update(changed)

    def settle(self) -> None:
        """Remember the settings after a step: an optimiser that changes its own groups does so in each copy by
        itself."""
        self._settings = [_settings(group) for group in self._optimizer.param_groups]


_PLACE = "follows"  # in the groups of a copy: which of the caller's groups it follows


def check_apart(optimizer: Optimizer) -> None:
    """Raise `RecipeError` unless the update of each parameter, and its state, follow only from its own gradients, and a
    parameter without a gradient stays as it is.

    The optimiser and its parameters are not changed: small copies of some of them are stepped, twice from the same
    start, with other gradients for one of them. If any other one moves differently, tensors are coupled.
    """
    chosen = _chosen(optimizer)
    if not chosen:
        return
    try:
        _compare(optimizer, chosen, side=SIDE)
    except _FailedError:  # perhaps it keeps buffers of the real sizes: then copies of the real sizes work
        _compare(optimizer, chosen, side=None)


def check_wrapper(optimizer: Optimizer) -> None:
    """Raise `RecipeError` for an optimiser in a wrapper, such as Accelerate's, that would scale or skip its steps or
    share them among processes: the ledger would have steps that were not made like that."""
    scaled = getattr(optimizer, "scaler", None) is not None
    skipped = getattr(getattr(optimizer, "gradient_state", None), "num_steps", 1)
    processes = getattr(getattr(optimizer, "accelerator_state", None), "num_processes", 1)
    for wrong, fault in (
        (
            scaled,
            "a scale of the losses (fp16), which follows from the gradients of all classes: expected bf16 or none",
        ),
        (skipped > 1, f"gradient accumulation over {skipped} steps, most of which it would skip: expected 1"),
        (processes > 1, f"{processes} processes: expected one, whose steps the ledger has"),
    ):
        if wrong:
            raise RecipeError(f"optimizer: {type(optimizer).__name__}: found {fault}")


class _FailedError(RecipeError):
    """A trial raised an error."""


def _compare(optimizer: Optimizer, chosen: Sequence[nn.Parameter], *, side: int | None) -> None:
    usual = list(_trial(optimizer, chosen, side))
    # The first and the last parameter, which are in different groups if there are several.
    for victim in {0, len(chosen) - 1}:
        for what, change in (("the gradients of others", _louder(victim)), ("whether others have one", _none(victim))):
            for step, (one, other) in enumerate(zip(usual, _trial(optimizer, chosen, side, change), strict=True)):
                for index, (before, after) in enumerate(zip(one, other, strict=True)):
                    if index != victim and not _equal(before, after):
                        raise RecipeError(_coupled(optimizer, what, step))
    # In the middle step the first parameter has no gradient: neither it nor its state may change.
    silent = list(_trial(optimizer, chosen, side, _none(0)))
    if not _equal(silent[STEPS // 2][0], silent[STEPS // 2 - 1][0]):
        raise RecipeError(
            f"optimizer: {type(optimizer).__name__} moves a parameter, or its state, that has no gradient (.grad is"
            " None): a tensor that a class is denied would move all the same; expected one that skips it, as torch's do"
        )


class _Seen(NamedTuple):
    """Parameter of a trial and its optimiser state, after a step."""

    value: Tensor
    state: dict[str, Any]


def _trial(
    optimizer: Optimizer, chosen: Sequence[nn.Parameter], side: int | None, change: Change | None = None
) -> Iterator[list[_Seen]]:
    """Yield the parameters after each step of a copy of the optimiser; all trials are equal but for `change`.

    The parameters have dimensions of at most `side` (None: their own). Raises `_FailedError` if a step does.
    """
    # --- small parameters in place of all that the optimiser has ---
    draws = torch.Generator().manual_seed(0)
    like = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    small: dict[int, nn.Parameter] = {}
    for key, parameter in like.items():
        shape = [size if side is None else min(size, side) for size in parameter.shape]
        values = torch.randn(shape, generator=draws).to(parameter.device, parameter.dtype)
        small[key] = nn.Parameter(values, requires_grad=parameter.requires_grad)
        vars(small[key]).update(vars(parameter))  # attributes by which some optimisers choose a rule
    # --- a copy of the optimiser that has only the chosen ones ---
    tried = [small[id(parameter)] for parameter in chosen]
    known = {id(parameter) for parameter in tried}
    places = {
        index: [small[id(p)] for p in group["params"] if id(small[id(p)]) in known]
        for index, group in enumerate(optimizer.param_groups)
    }
    made = _copy(optimizer, small, {index: parameter for index, parameter in places.items() if parameter})
    # A schedule that warms up has set a rate of 0 or nearly so: nothing would move, and nothing would seem coupled.
    for group in made.param_groups:
        if "lr" in group:
            group["lr"] = max(float(group["lr"]), float(group.get("initial_lr", 0)), RATE)
    # --- steps: a steady gradient with some noise, on which step lengths adapt as they do in training ---
    steady = [torch.randn(parameter.shape, generator=draws) for parameter in tried]
    devices = sorted({parameter.device.index for parameter in tried if parameter.device.type == "cuda"})
    for step in range(STEPS):
        noise = [torch.randn(parameter.shape, generator=draws) for parameter in tried]
        gradients: list[Tensor | None] = [a + 0.1 * b for a, b in zip(steady, noise, strict=True)]
        if change is not None:
            change(step, gradients)
        for parameter, gradient in zip(tried, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.to(parameter.device, parameter.dtype)
        with torch.random.fork_rng(devices=devices):  # an optimiser that adds noise adds the same in each trial
            # Not `torch.manual_seed`: for each absent backend it formats the stack, and keeps the text for ever.
            torch.default_generator.manual_seed(step)
            if devices:
                torch.cuda.manual_seed_all(step)
            try:
                made.step()
            except Exception as error:
                raise _FailedError(
                    f"optimizer: {type(optimizer).__name__} cannot be tried out on copies of its parameters:"
                    f" {type(error).__name__}: {error}; expected one that steps with the gradients it is given"
                ) from error
        yield [_seen(parameter, made.state.get(parameter, {})) for parameter in tried]


def _copy(
    optimizer: Optimizer, exchange: Mapping[int, nn.Parameter], places: Mapping[int, list[nn.Parameter]]
) -> Optimizer:
    """Return an optimiser of the same class and settings, without state.

    Args:
        optimizer: the original.
        exchange: by id, the replacement of a parameter wherever the optimiser itself keeps it.
        places: the parameters of the copy, by the index of the group whose settings they take.
    """
    # `deepcopy` takes parameters in the memo for copied already, so that no tensor of the model is duplicated. The copy
    # is made without its constructor: the arguments of the original's are not known.
    memo: dict[int, Any] = {id(p): exchange.get(id(p), p) for group in optimizer.param_groups for p in group["params"]}
    kept = {
        name: value
        for name, value in vars(optimizer).items()
        if name not in _LEFT_OUT and not name.endswith("_hooks") and not name.startswith("_opt_called")
    }
    made = object.__new__(type(optimizer))
    try:
        groups = copy.deepcopy(optimizer.param_groups, memo)
        made.__dict__.update(copy.deepcopy(kept, memo))
    except Exception as error:
        raise RecipeError(
            f"optimizer: {type(optimizer).__name__} cannot be copied, and every region needs one of its own:"
            f" {type(error).__name__}: {error}"
        ) from error
    # Hooks are not copied: one of the caller's would run once for each region.
    for name in vars(optimizer):
        if name.endswith("_hooks"):
            setattr(made, name, type(getattr(optimizer, name))())
    made.state = defaultdict(dict)
    for place, parameters in places.items():
        groups[place] |= {"params": parameters, _PLACE: place}
        if isinstance(rate := optimizer.param_groups[place].get("lr"), Tensor):
            groups[place]["lr"] = rate  # one tensor for all: schedules write into it
    groups[:] = [groups[place] for place in sorted(places)]  # in place: what wraps another optimiser shares the list
    made.param_groups = groups
    return made


def _beside(name: str, names: Mapping[str, nn.Parameter], groups: Mapping[int, int]) -> int:
    """Return the index of the group that has the adapter's layer; 0 if the optimiser has none of its parameters."""
    layer = name.partition(".@")[0]
    own = (groups.get(id(p)) for other, p in names.items() if other.rpartition(".")[0] == layer)
    return next((parameter for parameter in own if parameter is not None), 0)


def _chosen(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return some parameters of every group and number of dimensions; none if there are fewer than two in all."""
    groups_of: dict[tuple[int, int], list[nn.Parameter]] = {}
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            groups_of.setdefault((index, parameter.ndim), []).append(parameter)
    most = max(2, MOST // max(1, len(groups_of)))
    chosen = [p for parameters in groups_of.values() for p in sorted(parameters, key=Tensor.numel)[:most]]
    return chosen if len(chosen) > 1 else []


def _louder(victim: int) -> Change:
    def change(_: int, gradients: list[Tensor | None]) -> None:
        gradient = gradients[victim]
        assert gradient is not None
        gradients[victim] = -64 * gradient + 1  # another length, sign and direction

    return change


def _none(victim: int) -> Change:
    def change(step: int, gradients: list[Tensor | None]) -> None:
        if step == STEPS // 2:
            gradients[victim] = None

    return change


def _seen(parameter: nn.Parameter, state: Mapping[str, Any]) -> _Seen:
    values = {key: value.detach().clone() if isinstance(value, Tensor) else value for key, value in state.items()}
    return _Seen(parameter.detach().clone(), values)


def _equal(one: _Seen, other: _Seen) -> bool:
    if not same_bits(one.value, other.value) or one.state.keys() != other.state.keys():
        return False
    return not any(_differ(value, other.state[key]) for key, value in one.state.items())


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return not same_bits(one, other)
    return one is not other and repr(one) != repr(other)


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a group's settings: everything but its parameters."""
    return {key: copy.copy(value) for key, value in group.items() if key != "params"}


def _coupled(optimizer: Optimizer, by: str, step: int) -> str:
    return (
        f"optimizer: {type(optimizer).__name__} moves a parameter by {by} (in step {step + 1} of a trial on small"
        " copies): a class that may train one layer would change the steps of layers that it is denied; expected an"
        " optimiser whose update of a tensor follows from the tensor's own gradients, as SGD, AdamW or Adafactor, and"
        " not one with a common length, as D-Adaptation, Prodigy or normalised descent"
    )

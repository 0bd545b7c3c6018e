"""Protection of a model in passes that may not change all of it: parameters, buffers and modules' plain attributes.

A forward pass can write to a model without any gradient: an embedding with `max_norm` shortens the rows that it looks
up, a normalised transformer projects its weights, a running mean is assigned. The guard wraps the passes of one share:

- buffers and plain attributes that the share may not change are restored, the objects as well as their values;
- a changed parameter stops the run with an error that names it, since its right values are unknown.

Writes to parameters show in torch's version counters, at a cost of about 40 microseconds a pass. Writes through `.data`
and by code outside torch do not. So in the first pass of each class, and in every 50th after it, the values are
compared too, with a copy of the closed parameters that lives as long as the pass. The digests at the end of a segment
detect whatever escapes this (governance/recorder.py).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from explorer.errors import TrainingError

CLOSELY_EVERY = 50  # values are compared in one of so many passes of a class with the same permissions
_ABSENT = object()
_OURS = ("torch.", "explorer.")  # packages whose modules keep all state in parameters and buffers
_PLAIN = (Tensor, int, float, type(None))  # types of attributes that are restored


class Written(TrainingError):
    """Error for a parameter that changed without permission. The run cannot continue: its right values are unknown."""


class Open(NamedTuple):
    """The tensors that a pass may change, by full name."""

    parameters: frozenset[str]
    buffers: frozenset[str]
    strict: bool = True  # protect attributes and parameters that never train too; False: only parameters that train


class _Slot(NamedTuple):
    """A place in a module that holds a parameter. A tied parameter has several."""

    module: nn.Module
    key: str
    name: str  # of the parameter: its first name
    parameter: nn.Parameter


class _Closed(NamedTuple):
    """The tensors and modules that a pass may not change."""

    names: frozenset[str]  # of parameters
    modules: frozenset[nn.Module]  # their attributes are restored, and buffers registered in the pass removed


class Guard:
    """The parameters, buffers and attributes of one model."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.parameters = dict(model.named_parameters())
        self.buffer_names = frozenset(name for name, _ in model.named_buffers())
        self._trains = frozenset(name for name, parameter in self.parameters.items() if parameter.requires_grad)
        self._modules = list(dict.fromkeys(model.modules()))
        names = {id(parameter): name for name, parameter in (*model.named_parameters(), *model.named_buffers())}
        self._slots = [
            _Slot(module, key, names[id(parameter)], parameter)
            for module in self._modules
            for key, parameter in module._parameters.items()
            if parameter is not None
        ]
        prefixes = {module: f"{name}." if name else "" for name, module in model.named_modules()}
        self._buffer_name: dict[tuple[nn.Module, str], str] = {}  # of those that the model began with
        for module in self._modules:
            for key, buffer in module._buffers.items():
                self._buffer_name[module, key] = names.get(id(buffer), prefixes[module] + key)
        self._subtree = {
            module: frozenset(names[id(parameter)] for parameter in (*module.parameters(), *module.buffers()))
            for module in self._modules
        }
        self._scanned = [module for module in self._modules if _keeps_attributes(module)]
        self._known: dict[Open, _Closed] = {}
        self._passes = Counter[tuple[str, frozenset[str]]]()  # by who passes, and the parameters closed to it

    @property
    def buffers(self) -> dict[str, Tensor]:
        """Return the buffers as they are now: a forward pass may have put other tensors in their place."""
        return dict(self.model.named_buffers())

    @contextmanager
    def passing(self, who: str, may: Open) -> Iterator[None]:
        """Guard a forward pass of `who` and its backward pass, which may change `may`. Restore buffers and attributes;
        raise `TrainingError` for a parameter that changed."""
        closed = self._closed(may)
        closely = self._passes[who, closed.names] % CLOSELY_EVERY == 0
        self._passes[who, closed.names] += 1
        with self.watching(closed.names, lambda: f"in a pass of {who or 'the model'}", closely=closely):
            undo = self._buffers(may, closed)
            attributes = [_attributes(module) for module in self._scanned if module in closed.modules]
            try:
                yield
            finally:
                undo()
                for put_back in attributes:
                    put_back()

    def remember_buffers(self) -> Callable[[], None]:
        """Return a function that restores all buffers as they are now."""
        return self._buffers(Open(frozenset(), frozenset()), _Closed(frozenset(), frozenset(self._modules)))

    @contextmanager
    def keeping_buffers(self) -> Iterator[None]:
        """Restore all buffers at the end of the block."""
        undo = self.remember_buffers()
        try:
            yield
        finally:
            undo()

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Guard a pass that only observes: everything is restored at the end of the block, parameters too."""
        values = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        undo = self.remember_buffers()
        attributes = [_attributes(module) for module in self._scanned]
        try:
            yield
        finally:
            undo()
            for put_back in attributes:
                put_back()
            with torch.no_grad():
                for slot in self._slots:
                    slot.module._parameters[slot.key] = slot.parameter
                # Only where values differ, so that an unchanged parameter keeps its version counter.
                for name, parameter in self.parameters.items():
                    if not same_bits(parameter.detach(), values[name]):
                        _put(parameter, values[name])

    @contextmanager
    def watching(self, names: Collection[str], when: Callable[[], str], *, closely: bool = False) -> Iterator[None]:
        """Raise `TrainingError` at the end of the block if one of these parameters was written to, or if any parameter
        of the model was replaced by another. `closely`: compare the values too."""
        before = [(s, s.parameter._version, s.parameter.data_ptr()) for s in self._slots if s.name in names]
        copies = [(slot, slot.parameter.detach().clone()) for slot, _, _ in before] if closely else []
        try:
            yield
        finally:
            # Replacement first: the version counter of a tensor that the module has dropped says nothing.
            for slot in self._slots:
                if slot.module._parameters.get(slot.key) is not slot.parameter:
                    raise Written(_replaced(slot, when()))
            for slot, version, pointer in before:
                if slot.parameter._version != version or slot.parameter.data_ptr() != pointer:
                    raise Written(_written(slot, when()))
            for slot, copy in copies:
                if not same_bits(slot.parameter.detach(), copy):
                    raise Written(_written(slot, when()))

    def _closed(self, may: Open) -> _Closed:
        """Return the complement of `may`, which the pass may not change."""
        if may not in self._known:
            if len(self._known) > 1000:  # a method that draws at random what is frozen fills it
                self._known.clear()
            closed = (self._trains - may.parameters) | (self.buffer_names - may.buffers)
            # A module without tensors belongs to no layer: it is closed as soon as any tensor of the model is.
            whole = self._subtree[self.model]
            modules = {module for module in self._modules if closed & (self._subtree[module] or whole)}
            self._known[may] = _Closed(
                names=(frozenset(self.parameters) if may.strict else self._trains) - may.parameters,
                modules=frozenset(modules if may.strict else ()),
            )
        return self._known[may]

    def _buffers(self, may: Open, closed: _Closed) -> Callable[[], None]:
        """Return a function that restores the closed buffers and removes those registered without permission."""
        kept: list[tuple[nn.Module, str, Tensor | None, Tensor | None]] = []
        had = {module: frozenset(module._buffers) for module in closed.modules}
        for module in self._modules:
            for key, buffer in module._buffers.items():
                name = self._buffer_name.get((module, key))
                opened = name in may.buffers if name in self.buffer_names else module not in closed.modules
                if not opened:
                    kept.append((module, key, buffer, None if buffer is None else buffer.detach().clone()))

        def put_back() -> None:
            with torch.no_grad():
                for module, key, buffer, values in kept:
                    if module._buffers.get(key, _ABSENT) is not buffer:
                        module.__dict__.pop(key, None)
                        module._buffers[key] = buffer
                    if buffer is not None and values is not None:
                        _put(buffer, values)
            for module, keys in had.items():
                for key in [key for key in module._buffers if key not in keys]:
                    del module._buffers[key]
                    module._non_persistent_buffers_set.discard(key)

        return put_back


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have the same shape, type and bytes: 0.0 is not -0.0, and NaN is itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))


def _attributes(module: nn.Module) -> Callable[[], None]:
    """Return a function that restores the module's plain attributes: tensors and numbers, except for its mode. Lists
    and objects are not searched."""
    before = module.__dict__.copy()
    values = {id(saved): saved.detach().clone() for saved in before.values() if isinstance(saved, Tensor)}

    def put_back() -> None:
        now = module.__dict__
        for key in [key for key in now if now[key] is not before.get(key, _ABSENT) and key != "training"]:
            if isinstance(now[key], _PLAIN) and isinstance(before.get(key), _PLAIN):
                if key in before:
                    now[key] = before[key]
                else:
                    del now[key]
        with torch.no_grad():
            for key, value in before.items():
                if isinstance(value, Tensor):
                    if key not in now and key not in module._buffers and key not in module._parameters:
                        now[key] = value
                    _put(value, values[id(value)])

    return put_back


def _keeps_attributes(module: nn.Module) -> bool:
    """Return whether the module may keep state in attributes: one of its classes is neither torch's nor this
    package's."""
    return any(not f"{kind.__module__}.".startswith((*_OURS, "builtins.")) for kind in type(module).__mro__)


def _put(tensor: Tensor, values: Tensor) -> None:
    """Give a tensor these values, and their shape if it was resized."""
    # Values are not compared first: that would wait for the device in every pass.
    if tensor.shape != values.shape:
        tensor.data = values
    elif not tensor.is_inference():
        tensor.detach().copy_(values)


def _written(slot: _Slot, when: str) -> str:
    module = slot.module
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        why = f"its max_norm={module.max_norm} shortens the rows that are looked up: leave max_norm out"
    else:
        why = "a model, a hook or an optimiser must not write to it by itself, and averages belong outside of the model"
    return f"{slot.name} ({type(module).__name__}) was written to {when}, which may not change it: {why}; or admit it"


def _replaced(slot: _Slot, when: str) -> str:
    return (
        f"{slot.name} ({type(slot.module).__name__}) was replaced by another tensor {when}: expected the parameter that"
        " the optimiser has; write new values into it between steps"
    )

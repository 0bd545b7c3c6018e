"""The layers of a model: which module owns each tensor, in the order in which a training pass first uses them.

A layer is a module with parameters of its own, or with buffers that training moves. A tensor of the model itself, such
as a class token, is a layer with the tensor's name. What a parametrisation adds (`torch.nn.utils.parametrizations`)
belongs to the module that is parametrised.

The order is observed from operations, not from module calls: one forward pass runs as in training, and every operation
that takes a parameter, or a view of one, counts as a use. This covers `nn.MultiheadAttention`, which never calls its
`out_proj`, parents that add positions of their own, and functional code. Making a view or an empty copy is not a use.

A tensor that several modules hold belongs to one layer: that of the module that runs when the tensor is first used. The
names of the other layers are kept with it. A tensor that the pass does not use, such as an expert that no token chose,
belongs to its own module. That layer is placed next to its nearest relative: the layer with the longest common path of
names, and among those the nearest in the order of definition.

The pass changes nothing: parameters, buffers, plain tensors and numbers that modules keep, gradients, modes and random
generators are all restored.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from explorer.data.streams import torch_stream
from explorer.engine.guard import Guard

PARAMETRISED = ".parametrizations."
EMPTY = ("new_", "empty", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")
LOOKED_UP = ("embedding",)  # operations that read rows without multiplying


class Beside(nn.Module):
    """A module that is attached to a layer without being a layer of the model: `leaves` omits its tensors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A layer: a module and the tensors that it owns. Every tensor is in one leaf, under its first name."""

    name: str  # the module's; of a tensor of the model itself, the tensor's
    module: nn.Module
    parameters: tuple[str, ...]  # full names; none: it has only buffers that training changes
    buffers: tuple[str, ...]  # full names
    cost: int  # multiply-adds of one example's forward pass, to first order
    also: tuple[str, ...] = ()  # other names of the layers that hold one of its tensors
    seen_at: nn.Module | None = None  # the module whose output is the layer's: itself, or the nearest that is called


def leaves(model: nn.Module, inputs: Tensor) -> tuple[Leaf, ...]:
    """Return the layers in the order of first use, in training mode. The model is restored.

    `inputs` are a few blank examples, at least two if the model normalises over a batch: the names and depths of layers
    then depend only on the model, not on data.
    """
    modes = {module: module.training for module in model.modules()}
    try:
        model.train()
        return leaves_met(model, lambda: model(inputs), rows=len(inputs))
    finally:
        for module, was in modes.items():
            module.training = was


def leaves_met(model: nn.Module, forward: Callable[[], object], *, rows: int) -> tuple[Leaf, ...]:
    """Return the layers that one call of `forward` uses, which runs the model on `rows` examples in its present modes;
    none if it uses no tensor of the model."""
    owners = _Owners(model)
    uses = _Uses(owners, rows=rows)
    before = {name: buffer.clone() for name, buffer in owners.buffers.items()}
    meta = any(tensor.is_meta for tensor in owners.parameters.values())  # no values, so nothing to restore
    with nullcontext() if meta else Guard(model).untouched(), _undrawn(model):
        with uses.watching(model), uncompiled(), torch.enable_grad():
            forward()
        now = dict(model.named_buffers())
        moved = frozenset(name for name, buffer in before.items() if name in now and _moved(buffer, now[name]))
    return tuple(_assembled(owners, uses, moved)) if uses.places else ()


class _Owners:
    """The holders of each tensor of a model: layers by name, their modules and the order of definition."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = dict(model.named_modules())  # each once, under its first name
        self.names = {module: name for name, module in self.modules.items()}
        self.all_modules = dict(model.named_modules(remove_duplicate=False))
        beside = [name for name, module in self.all_modules.items() if isinstance(module, Beside)]
        self.parameters: dict[str, Tensor] = _without(dict(model.named_parameters()), beside)
        self.buffers: dict[str, Tensor] = _without(dict(model.named_buffers()), beside)
        # Tied tensors: one value under several names. It is listed under its first name, with every layer that holds
        # it.
        first = {id(tensor): name for name, tensor in (self.parameters | self.buffers).items()}
        self.holders: dict[str, list[str]] = {name: [] for name in first.values()}  # by tensor: names of layers
        self.of_holder: dict[str, nn.Module] = {}
        everywhere = [
            *model.named_parameters(remove_duplicate=False),
            *model.named_buffers(remove_duplicate=False),
        ]
        for name, tensor in everywhere:
            if id(tensor) in first:
                layer, module = self._layer(name)
                self.of_holder[layer] = module
                if layer not in self.holders[first[id(tensor)]]:
                    self.holders[first[id(tensor)]].append(layer)
        self.defined = {name: place for place, name in enumerate(self.of_holder)}

    def _layer(self, tensor: str) -> tuple[str, nn.Module]:
        """Return the name of the layer that holds a tensor under this name, and its module."""
        path = tensor.partition(PARAMETRISED)[0] if PARAMETRISED in tensor else tensor.rpartition(".")[0]
        return (path or tensor), self.all_modules[path]


class _Uses(TorchDispatchMode):
    """Dispatch mode that records which tensor a forward pass uses when, and in which module."""

    # Otherwise torch imports its compiler, two seconds of processor time, to keep it out of `__torch_dispatch__`; here
    # nothing is compiled while the mode is on (`uncompiled`).
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self, owners: _Owners, *, rows: int) -> None:
        super().__init__()
        self._owners, self._rows = owners, rows
        self._named = owners.parameters | owners.buffers
        self._by_storage: dict[int, list[tuple[int, int, str]]] = {}
        for name, tensor in self._named.items():
            if (extent := _extent(tensor)) is not None:
                storage, start, end = extent
                self._by_storage.setdefault(storage, []).append((start, end, name))
        self._running: list[nn.Module] = []
        self.places: dict[str, int] = {}  # by tensor: when it was first used
        self.users: dict[str, str] = {}  # by tensor: the name of the layer that used it then
        self._used_by: dict[nn.Module, list[str]] = {}  # by a layer's module: the parameters that it was first to use
        self.called: set[nn.Module] = set()
        self.costs: dict[str, int] = {}  # by parameter: from its module's output, or else its first operation's

    @contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Switch the mode on within the block, with hooks that record which modules are running."""
        handles = []
        for module in self._owners.names:
            handles.append(module.register_forward_pre_hook(self._enter))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, _: object) -> None:
        self._running.append(module)

    def _leave(self, module: nn.Module, _: object, output: object) -> None:
        self._running.pop()
        if module in self.called:
            return
        self.called.add(module)
        # A module's output measures its places better than its first operation does, which under autocast is a cast.
        # The model's own output is no measure: it has the places of its last layer.
        if isinstance(output, Tensor) and module is not self._owners.modules[""]:
            for name in self._used_by.get(module, ()):
                if self.costs[name]:
                    self.costs[name] = self._cost(name, output)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or name.startswith(EMPTY):
            return output
        for tensor in tree_leaves((args, kwargs)):
            used = self._which(tensor) if isinstance(tensor, Tensor) else None
            if used is not None and used not in self.places:
                self.places[used] = len(self.places)
                self.users[used] = self._user(used)
                if used in self._owners.parameters:
                    self._used_by.setdefault(self._owners.of_holder[self.users[used]], []).append(used)
                    result = next((leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)), tensor)
                    self.costs.setdefault(used, 0 if name.startswith(LOOKED_UP) else self._cost(used, result))
        return output

    def _which(self, tensor: Tensor) -> str | None:
        """Return the name of the model's tensor that this is, or is a view of."""
        extent = _extent(tensor)
        if extent is None:
            return None
        storage, start, _ = extent
        return next((name for low, high, name in self._by_storage.get(storage, ()) if low <= start < high), None)

    def _user(self, tensor: str) -> str:
        """Return the layer with the innermost running module among the tensor's holders, or else its first holder."""
        holders = self._owners.holders[tensor]
        if len(holders) > 1:
            by_module = {self._owners.of_holder[name]: name for name in reversed(holders)}
            for module in reversed(self._running):
                if module in by_module:
                    return by_module[module]
        return holders[0]

    def _cost(self, name: str, output: Tensor) -> int:
        """Return the multiply-adds of a parameter for an output of this size: its numbers, once for each place (of an
        image) or token."""
        # An output has one channel for each row of the parameter, so the rest of its size is places.
        parameter = self._owners.parameters[name]
        places = output.numel() // self._rows // max(1, len(parameter) if parameter.ndim else 1)
        return parameter.numel() * max(1, places)


def _assembled(owners: _Owners, uses: _Uses, moved: frozenset[str]) -> Iterator[Leaf]:
    """Yield the leaves in order, unused ones next to their nearest relatives."""
    parameters, buffers = _by_layer(owners, uses, owners.parameters), _by_layer(owners, uses, owners.buffers)
    names = list(parameters) + [name for name in buffers if name not in parameters and moved & {*buffers[name]}]
    order = _order(owners, uses, {name: [*parameters.get(name, ()), *buffers.get(name, ())] for name in names})
    for name in order:
        own = tuple(parameters.get(name, ()))
        also = dict.fromkeys(other for tensor in own for other in owners.holders[tensor] if other != name)
        module = owners.of_holder[name]
        yield Leaf(
            name=name,
            module=module,
            parameters=own,
            buffers=tuple(
                tensor for tensor in buffers.get(name, ()) if module is not owners.modules[""] or tensor in moved
            ),
            cost=sum(
                uses.costs[tensor] if tensor in uses.costs else owners.parameters[tensor].numel() for tensor in own
            ),
            also=tuple(also),
            seen_at=_seen_at(owners, uses, name),
        )


def _by_layer(owners: _Owners, uses: _Uses, tensors: Mapping[str, Tensor]) -> dict[str, list[str]]:
    by_layer: dict[str, list[str]] = {}
    for tensor in tensors:
        by_layer.setdefault(uses.users.get(tensor, owners.holders[tensor][0]), []).append(tensor)
    return by_layer


def _order(owners: _Owners, uses: _Uses, layers: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names by first use. An unused layer follows, or precedes, its nearest relative that was used."""
    used = {
        name: min(uses.places[tensor] for tensor in tensors if tensor in uses.places)
        for name, tensors in layers.items()
        if not uses.places.keys().isdisjoint(tensors)
    }

    def place(name: str) -> tuple[int, int, int]:
        if name in used:
            return used[name], 0, 0
        here = owners.defined[name]

        # The longest common path first, then the shortest distance in the order of definition.
        def kinship(other: str) -> tuple[int, int]:
            return _common(name, other), -abs(owners.defined[other] - here)

        relative = max(used, key=kinship, default=None)
        if relative is None:
            return 0, 0, here
        return used[relative], 1 if owners.defined[relative] < here else -1, here

    return sorted(layers, key=place)


def _common(one: str, other: str) -> int:
    """Return the number of leading segments that two names share."""
    pairs = zip(one.split("."), other.split("."), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(one.count("."), other.count(".")) + 1)


def _seen_at(owners: _Owners, uses: _Uses, name: str) -> nn.Module:
    """Return the module of a layer, or the nearest around it that was called."""
    path = owners.names[owners.of_holder[name]]
    while owners.modules.get(path) not in uses.called and path:
        path = path.rpartition(".")[0]
    around = owners.modules[path]
    return around if around in uses.called else owners.of_holder[name]


def _without(tensors: dict[str, Any], modules: Sequence[str]) -> dict[str, Any]:
    """Return the tensors that lie in none of these modules."""
    return {name: tensor for name, tensor in tensors.items() if not any(name.startswith(f"{at}.") for at in modules)}


def _extent(tensor: Tensor) -> tuple[int, int, int] | None:
    """Return a tensor's storage, its first byte in it and the one after its last; None for a tensor without memory."""
    try:
        storage, start = tensor.untyped_storage()._cdata, int(tensor.storage_offset()) * tensor.element_size()
    except (RuntimeError, NotImplementedError):  # sparse tensors, wrappers
        return None
    if not tensor.numel():
        return None
    last = sum((size - 1) * abs(stride) for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return storage, start, start + (last + 1) * tensor.element_size()


def _moved(before: Tensor, after: Tensor) -> bool:
    """Return whether a buffer changed its values. A changed shape does not count: that is a cache that was built."""
    return before.shape == after.shape and not before.is_meta and not torch.equal(before, after.to(before))


def uncompiled() -> Any:
    """Return a context in which compiled code runs uncompiled: a dispatch mode does not see inside compiled graphs."""
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()


@contextmanager
def _undrawn(model: nn.Module) -> Iterator[None]:
    """Give the block's random draws a stream of their own; restore all generators at its end."""
    device = next((parameter.device for parameter in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch_stream(device, 0, "layers"):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)

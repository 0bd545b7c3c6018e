"""Models that write to themselves while they run, each in its own way, and a policy that keeps one class out."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

WIDTH = 2 * 6 * 4  # of an image of noise
HIDDEN = 6


class First(nn.Linear):
    """The layer that is denied: a linear one, to which subclasses do something in their forward pass."""

    def __init__(self) -> None:
        super().__init__(WIDTH, HIDDEN)
        self.prepare()

    def prepare(self) -> None:
        """Give the layer what it needs besides."""

    def touch(self, inputs: Tensor) -> None:
        """What a forward pass does besides. Called in training and in evaluation."""

    def forward(self, input: Tensor) -> Tensor:
        self.touch(input.detach())
        return super().forward(input)


class Projected(First):
    """Weights of rows of length one, as a normalised transformer keeps them."""

    @torch.no_grad()
    def touch(self, inputs: Tensor) -> None:
        self.weight.copy_(F.normalize(self.weight, dim=1))


class ThroughData(First):
    """The same through `.data`, which torch's version counter does not see."""

    def touch(self, inputs: Tensor) -> None:
        self.weight.data.mul_(0.9)


class OtherStorage(First):
    """`.data` assigned again."""

    def touch(self, inputs: Tensor) -> None:
        self.weight.data = self.weight.data * 0.9


class Replaced(First):
    """The parameter itself assigned again."""

    def touch(self, inputs: Tensor) -> None:
        self.weight = nn.Parameter(self.weight.detach() * 0.9)


class Teacher(First):
    """A moving average of the weights, in the model."""

    def prepare(self) -> None:
        self.average = nn.Parameter(self.weight.detach().clone(), requires_grad=False)

    @torch.no_grad()
    def touch(self, inputs: Tensor) -> None:
        self.average.lerp_(self.weight + inputs.mean(), 0.1)


class Assigned(First):
    """A registered buffer that is assigned again."""

    mean: Tensor

    def prepare(self) -> None:
        self.register_buffer("mean", torch.zeros(WIDTH))

    def touch(self, inputs: Tensor) -> None:
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0)


class InPlace(Assigned):
    """The buffer written to in place, and then assigned."""

    def touch(self, inputs: Tensor) -> None:
        self.mean.add_(inputs.mean(0))
        super().touch(inputs)


class BufferData(Assigned):
    """The buffer's `.data`."""

    def touch(self, inputs: Tensor) -> None:
        self.mean.data.add_(inputs.mean(0))


class Resized(Assigned):
    """A buffer that grows."""

    def touch(self, inputs: Tensor) -> None:
        self.mean = torch.cat([self.mean, inputs.mean(0)])


class Deleted(Assigned):
    """A buffer that goes, and comes again as something else."""

    def touch(self, inputs: Tensor) -> None:
        del self.mean
        self.mean = inputs.mean(0)


class Registered(First):
    """A buffer that the first pass registers."""

    def touch(self, inputs: Tensor) -> None:
        if "mean" not in self._buffers:
            self.register_buffer("mean", inputs.mean(0))


class Attribute(First):
    """A plain tensor attribute."""

    def prepare(self) -> None:
        self.mean = torch.zeros(WIDTH)

    def touch(self, inputs: Tensor) -> None:
        self.mean = 0.9 * self.mean + 0.1 * inputs.mean(0)


class AttributeInPlace(Attribute):
    """The same in place."""

    def touch(self, inputs: Tensor) -> None:
        self.mean.mul_(0.9).add_(inputs.mean(0))


class NewAttribute(First):
    """An attribute that the first pass makes."""

    def touch(self, inputs: Tensor) -> None:
        self.mean = inputs.mean(0)


class Number(First):
    """A Python number."""

    def prepare(self) -> None:
        self.mean = 0.0

    def touch(self, inputs: Tensor) -> None:
        self.mean = 0.9 * self.mean + 0.1 * float(inputs.mean())


class Looked(nn.Module):
    """An embedding whose rows are shortened as they are looked up."""

    def __init__(self, kind: type[nn.Embedding] | type[nn.EmbeddingBag] = nn.Embedding) -> None:
        super().__init__()
        self.table = kind(256, HIDDEN, max_norm=1.0)

    def forward(self, input: Tensor) -> Tensor:
        found = self.table((input.abs() * 100).long().clamp(0, 255))
        return found.mean(1) if found.ndim == 3 else found


def normed(norm: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, HIDDEN), norm)


class Net(nn.Module):
    """Images to three classes, through the denied part `first` and an admitted `head`."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.head = first, nn.Linear(HIDDEN, 3)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(images.flatten(1))))


class Tied(nn.Module):
    """The head is the transposed first layer: one tensor with two places."""

    def __init__(self, first: First) -> None:
        super().__init__()
        self.first, self.head = first, nn.Linear(WIDTH, 3)
        self.again = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.again.weight = first.weight

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.again.weight.T.matmul(self.first(images.flatten(1)).T).T)


def net(first: Callable[[], nn.Module]) -> nn.Module:
    """The model with such a first layer, always of the same weights."""
    torch.manual_seed(0)
    return Net(first())


STOPPED: dict[str, Callable[[], nn.Module]] = {
    "max_norm": lambda: net(Looked),
    "max_norm of a bag": lambda: net(lambda: Looked(nn.EmbeddingBag)),
    "projected": lambda: net(Projected),
    "through .data": lambda: net(ThroughData),
    "other storage": lambda: net(OtherStorage),
    "replaced": lambda: net(Replaced),
    "teacher inside": lambda: net(Teacher),
    "tied and projected": lambda: Tied(Projected()),
}
"""Models whose forward pass changes a parameter."""

PUT_BACK: dict[str, Callable[[], nn.Module]] = {
    "assigned buffer": lambda: net(Assigned),
    "buffer in place": lambda: net(InPlace),
    "buffer's .data": lambda: net(BufferData),
    "resized buffer": lambda: net(Resized),
    "deleted buffer": lambda: net(Deleted),
    "registered in the pass": lambda: net(Registered),
    "attribute": lambda: net(Attribute),
    "attribute in place": lambda: net(AttributeInPlace),
    "attribute made in the pass": lambda: net(NewAttribute),
    "a number": lambda: net(Number),
    "old spectral_norm": lambda: net(lambda: spectral_norm(First())),
    "batch norm": lambda: net(lambda: normed(nn.BatchNorm1d(HIDDEN))),
}
"""Models whose forward pass changes something else of theirs, which a control can see."""

UNTOUCHED: dict[str, Callable[[], nn.Module]] = {
    "parametrised weight_norm": lambda: net(lambda: parametrizations.weight_norm(First())),
    "tied": lambda: Tied(First()),
}
if hasattr(torch.nn.utils, "weight_norm"):
    UNTOUCHED["old weight_norm"] = lambda: net(lambda: _quiet_weight_norm())
"""Models that only look as if they did."""

STATELESS: dict[str, Callable[[], nn.Module]] = {
    "parametrised spectral_norm": lambda: net(lambda: parametrizations.spectral_norm(First())),
    "batch norm without gain": lambda: net(lambda: normed(nn.BatchNorm1d(HIDDEN, affine=False))),
}
"""Models with state in a module without parameters: held, or refused at the start."""


def _quiet_weight_norm() -> nn.Module:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return weight_norm(First())


def remembered(model: nn.Module) -> dict[str, object]:
    """All that the first part is: parameters, buffers, plain tensors and numbers, by name, as bytes."""
    found: dict[str, object] = {}
    for name, module in model.named_modules():
        if not name.startswith("first"):
            continue
        for key, value in (*module._parameters.items(), *module._buffers.items(), *vars(module).items()):
            if isinstance(value, Tensor) and not value.grad_fn:
                found[f"{name}.{key}"] = (tuple(value.shape), value.detach().clone().numpy().tobytes())
            elif isinstance(value, float):
                found[f"{name}.{key}"] = value
    return found

"""Muon: momentum whose matrices are orthogonalised, so that an update is about equally long in every direction.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, kellerjordan.github.io/posts/muon; Liu
et al., "Muon is Scalable for LLM Training", 2025, arXiv:2502.16982. It is for matrices inside the network. The filters
of a convolution are one matrix, `out x (in * height * width)`; of a transposed convolution, `in x (out * height *
width)`. The recipe's own optimiser, with a peak learning rate of its own, steps embeddings, the last layer and vectors
(biases, gains, class tokens).

A parameter that holds several matrices is stepped matrix by matrix: orthogonalised together, the matrix with the
smallest gradient would get the smallest step. A parameter of three dimensions other than a filter is a stack of
matrices, such as experts. Fused matrices, one below the other, are recognised by name (queries, keys and values of
attention, gates of recurrent layers), or declared by the module that holds the parameter, or by one above it:

    class Grouped(nn.Module):
        fused_matrices = {"qkv.weight": (64, 16, 16)}  # rows of each; or a number of equal ones: {"qkv.weight": 3}

Newton-Schulz runs in fp32 on a CPU, and in bf16 on a GPU that multiplies in it, as in `torch.optim.Muon`; the hardware
is part of what identifies a run. Matrices of equal shape run as one stack where that is faster: all of them on a GPU,
small ones on a CPU. The update of a matrix depends on no other: a stack has the same matrices in every step, whether or
not all of them have a gradient, so that the kernels and their rounding stay the same. In fp32, wide matrices run on the
small matrix of the products of their rows.

Shapes: R rows, C columns of a matrix, N matrices of a stack.
"""

# pyright: reportPrivateImportUsage=false

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from explorer.engine.forms import checked
from explorer.engine.method import Kind, Method
from explorer.engine.optimizer import OptimizerSpec, build_optimizer
from explorer.engine.precision import is_native
from explorer.engine.state import State
from explorer.errors import RecipeError

STEPS = 5
# The coefficients of Jordan et al., which maximise the slope at zero: singular values of at least 0.003 of the norm end
# between 0.68 and 1.21. They do not converge to 1, which an update does not need.
A, B, C = 3.4445, -4.775, 2.0315
EPSILON = 1e-7
SMALL = 2**19  # multiplications in a product of a matrix and its transpose
POSITIONS = ("embed", "position")  # in the names of tables other than nn.Embedding

FUSED = ("qkv", "c_attn", "in_proj", "wqkv", "to_qkv")  # names of layers for queries, keys and values together
GATES = {"LSTM": 4, "LSTMCell": 4, "GRU": 3, "GRUCell": 3}  # matrices in a weight of a recurrent layer
CONVOLUTIONS = (nn.modules.conv._ConvNd,)
DECLARED = "fused_matrices"  # the attribute of a module that declares the matrices in its parameters

Scale = Literal["original", "match_rms_adamw"]


class Parts(NamedTuple):
    """Sizes of the matrices that are fused in a parameter, along dimension `dim` of each matrix of its stack."""

    dim: int
    sizes: tuple[int, ...]


Layout = Parts | Literal["matrices", "filters"]
"""The matrices in a parameter. "matrices": one, or a stack of them if it has three dimensions; "filters": one, the
first dimension by all others, as for every parameter of four dimensions or more; `Parts`: each matrix of the stack is
several fused ones."""


def orthogonalise(matrices_NRC: Tensor, *, kind: torch.dtype = torch.float32) -> Tensor:
    """Return about the nearest matrix with orthonormal rows (or columns, if there are more rows), by the quintic
    Newton-Schulz iteration X <- (A + S) X, S = B G + C G G, G = X X^T, in numbers of this kind. A matrix of zeros stays
    one. A stack of matrices gives a stack; a matrix R C gives a matrix."""
    rows, columns = matrices_NRC.shape[-2:]
    # A norm of at most 1, within which the iteration is stable: the Frobenius norm is an upper bound of the spectral
    # norm. The smaller side first, where G is smallest.
    norms_N11 = torch.linalg.vector_norm(matrices_NRC.flatten(-2), dim=-1)[..., None, None]
    x = (matrices_NRC / norms_N11.clamp(min=EPSILON)).to(kind)
    x = x.mT if rows > columns else x
    # The small matrix holds squares, which bf16 has too few digits for.
    small = kind is torch.float32 and 2 * x.size(-2) <= x.size(-1)
    x = _factor(x @ x.mT) @ x if small else _iterated(x)
    return (x.mT if rows > columns else x).to(matrices_NRC.dtype)


def _iterated(x: Tensor) -> Tensor:
    """Return the iteration on the matrix itself."""
    for _ in range(STEPS):
        x = _added(x, _polynomial(x @ x.mT), x, beta=A)
    return x


def _factor(gram: Tensor) -> Tensor:
    """Return the matrix by which the iteration multiplies X, computed from G = X X^T only, which becomes (A + S) G
    (A + S): less work if X is wide."""
    # Equal to the direct iteration to about 1e-6 where singular values differ by up to ten times, but only to about
    # 1e-3 where they differ by a thousand times or more, since G holds their squares.
    factor = torch.eye(gram.size(-1), dtype=gram.dtype, device=gram.device).expand_as(gram)
    for _ in range(STEPS):
        polynomial = _polynomial(gram)
        factor = _added(factor, polynomial, factor, beta=A)
        half = _added(gram, polynomial, gram, beta=A)
        gram = _added(half, polynomial, half, beta=A)
    return factor


def _polynomial(gram: Tensor) -> Tensor:
    """Return S = B G + C G G."""
    return _added(gram, gram, gram, beta=B, alpha=C)


def _added(term: Tensor, left: Tensor, right: Tensor, *, beta: float, alpha: float = 1.0) -> Tensor:
    """Return beta term + alpha left right, for matrices or stacks of them."""
    return (torch.addmm if term.ndim == 2 else torch.baddbmm)(term, left, right, beta=beta, alpha=alpha)


def number_format(device: torch.device) -> torch.dtype:
    """Return the number format of the iteration on a device."""
    return torch.bfloat16 if device.type == "cuda" and is_native(device, "bf16") else torch.float32


def stacks_up(shape: torch.Size, *, count: int, device: torch.device) -> bool:
    """Return whether so many matrices of this shape run faster as a stack than one by one."""
    # On one thread of a CPU a stack takes, of the time of single ones: 20 of 16 x 16 0.17, 12 of 32 x 288 0.6, 12 of
    # 64 x 64 0.8, 16 of 88 x 88 1.2. On a GPU the launches of small products take longer than the products.
    return count > 1 and (device.type != "cpu" or min(shape) * shape.numel() <= SMALL)


def step_size(shape: torch.Size, *, scale: Scale) -> float:
    """Return the factor on the learning rate of a matrix of this shape: sqrt(max(1, R / C)), or 0.2 sqrt(max(R, C))."""
    # The second gives an update the root mean square of AdamW's usual updates, 0.2 (Liu et al., section 2.2), so that
    # learning rates tuned for AdamW can be used.
    rows, columns = shape
    return max(1.0, rows / columns) ** 0.5 if scale == "original" else 0.2 * max(rows, columns) ** 0.5


def hidden_matrices(model: nn.Module, *, head: Collection[str]) -> list[str]:
    """Return the names of the parameters that Muon is for: nonempty matrices and filters outside `head` (names of
    parameters) that are not tables of tokens or positions."""
    # Also left out: vectors in the shape of a matrix (1 x n), and tables that broadcast over a batch (1 x places x
    # width), unless they are the only filter of a convolution.
    embeddings = {
        id(p)
        for module in model.modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag)
        for p in module.parameters(recurse=False)
    }
    return [
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim >= 2
        and parameter.numel()
        and name not in head
        and id(parameter) not in embeddings
        and not any(word in name.lower() for word in POSITIONS)
        and parameter.numel() > max(parameter.shape)
        and (parameter.ndim == 2 or len(parameter) > 1 or isinstance(_owner(model, name)[0], CONVOLUTIONS))
    ]


def matrix_groups(model: nn.Module, names: Collection[str]) -> list[dict[str, Any]]:
    """Return the parameters of these names as groups for `MuonOptimizer`, by layout.

    Raises `RecipeError` for a module whose `fused_matrices` does not fit its parameter.
    """
    groups: dict[Layout, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if name in names:
            groups.setdefault(_layout(model, name, parameter), []).append(parameter)
    return [{"params": parameters, "layout": layout} for layout, parameters in groups.items()]


def _layout(model: nn.Module, name: str, parameter: nn.Parameter) -> Layout:
    """Return the layout of a parameter of the model: as declared, or else as torch's modules and usual names tell."""
    # A declaration first: names only suggest, and a model may use them for something else.
    declared = _declared(model, name)
    if declared is not None:
        return _parts(declared, parameter, name)
    owner, last, own = _owner(model, name)
    if isinstance(owner, CONVOLUTIONS) or parameter.ndim > 3:
        return "filters"
    if parameter.ndim == 3:
        return "matrices"
    rows, columns = parameter.shape
    if isinstance(owner, nn.MultiheadAttention) and own == "in_proj_weight":
        return _parts(3, parameter, name)
    if type(owner).__name__ in GATES and isinstance(owner, nn.RNNBase | nn.RNNCellBase) and own[:9] in RECURRENT:
        return _parts(GATES[type(owner).__name__], parameter, name)
    if last.lower() in FUSED and own == "weight" and rows == 3 * columns:
        return _parts(3, parameter, name)
    if (
        last.lower() in FUSED and own == "weight" and columns == 3 * rows
    ):  # weight stored as inputs x outputs, as GPT-2's
        return Parts(1, (rows,) * 3)
    return "matrices"


RECURRENT = ("weight_ih", "weight_hh")


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str, str]:
    """Return the module that owns a parameter, the last part of the module's name, and the parameter's name in it.
    Parametrised parameters (torch.nn.utils.parametrize) belong to the module that is parametrised."""
    path, parametrised, rest = name.partition("parametrizations.")
    if parametrised:
        name = path + rest.partition(".")[0]
    path, _, own = name.rpartition(".")
    return model.get_submodule(path), path.rpartition(".")[2], own


def _declared(model: nn.Module, name: str) -> object:
    """Return the declaration for a parameter by the nearest module above it; None if there is none."""
    parts = name.split(".")
    for depth in range(len(parts) - 1, -1, -1):
        module = model.get_submodule(".".join(parts[:depth]))
        declared = getattr(module, DECLARED, None) or {}
        if (below := ".".join(parts[depth:])) in declared:
            return declared[below]
    return None


def _parts(declared: object, parameter: Tensor, name: str) -> Parts:
    """Return the declared parts: `declared` is a number of equal matrices, or the rows of each."""
    rows = parameter.shape[-2]
    if type(declared) is int and declared > 0 and rows % declared == 0:
        return Parts(0, (rows // declared,) * declared)
    sizes = declared if isinstance(declared, list | tuple) else ()
    if all(type(size) is int and size > 0 for size in sizes) and sum(sizes) == rows and parameter.ndim <= 3:
        return Parts(0, tuple(sizes))
    raise RecipeError(
        f"muon: {DECLARED}: {name}: found {declared!r:.80}, expected a number that divides its {rows} rows, or the rows"
        " of each matrix, which add up to them"
    )


def matrices_in(tensor: Tensor, layout: Layout) -> Iterator[Tensor]:
    """Yield the matrices of a parameter, or of its gradient, as views: of two dimensions, or more for filters."""
    stacked: Sequence[Tensor] = tensor.unbind(0) if tensor.ndim == 3 and layout != "filters" else (tensor,)
    for matrix in stacked:
        yield from matrix.split(layout.sizes, layout.dim) if isinstance(layout, Parts) else (matrix,)


class _Moving(NamedTuple):
    """A matrix of a parameter, as a view, and along what it moves."""

    matrix: Tensor
    along_RC: Tensor
    stays: bool  # its parameter has no gradient


def _updates(equal: Sequence[_Moving]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the matrices that do not stay and their updates, given all matrices of one shape."""
    first = equal[0].along_RC
    kind = number_format(first.device)
    if stacks_up(first.shape, count=len(equal), device=first.device):
        updates = orthogonalise(torch.stack([one.along_RC for one in equal]), kind=kind).unbind()
    else:
        updates = [first if one.stays else orthogonalise(one.along_RC, kind=kind) for one in equal]
    moved = [(one.matrix, update) for one, update in zip(equal, updates, strict=True) if not one.stays]
    return [matrix for matrix, _ in moved], [update.reshape(matrix.shape) for matrix, update in moved]


class MuonOptimizer(Optimizer):
    """The Muon update rule for all of its parameters. `layout` in a parameter group says which matrices they hold.

    Raises `RecipeError` for a parameter of fewer than two dimensions. `muon` builds it for a model.
    """

    def __init__(
        self,
        parameters: Iterable[Any],
        *,
        lr: float = 0.02,
        momentum: float = 0.95,
        nesterov: bool = True,
        weight_decay: float = 0.1,
        scale: Scale = "original",
    ) -> None:
        usual = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay, "scale": scale}
        super().__init__(parameters, {**usual, "layout": "matrices"})
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.ndim < 2:
                shape = tuple(parameter.shape)
                raise RecipeError(f"muon: found a parameter of shape {shape}: expected two dimensions or more")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None and p.numel()]
            if moved:
                self._move(moved, self._directions(moved, group), group)

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> Sequence[Tensor]:
        """Return along what each parameter moves, before orthogonalisation; update the momenta."""
        momenta, gradients = [self._momentum(p) for p in parameters], [p.grad for p in parameters if p.grad is not None]
        # An average rather than a sum of gradients: its length does not matter, since updates are normalised.
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        return torch._foreach_lerp(gradients, momenta, group["momentum"]) if group["nesterov"] else momenta

    def _move(self, parameters: list[Tensor], directions: Sequence[Tensor], group: dict[str, Any]) -> None:
        torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
        direction_of = dict(zip(parameters, directions, strict=True))
        by_shape: dict[torch.Size, list[_Moving]] = {}
        for parameter in group["params"]:  # those without a gradient too, so that stacks are the same in every step
            stays = parameter not in direction_of
            along = torch.zeros_like(parameter) if stays else direction_of[parameter]
            pairs = zip(*(matrices_in(tensor, group["layout"]) for tensor in (parameter, along)), strict=True)
            for matrix, direction in pairs if parameter.numel() else ():
                along_RC = direction.flatten(1).float()
                by_shape.setdefault(along_RC.shape, []).append(_Moving(matrix, along_RC, stays))
        for shape, equal in by_shape.items():
            matrices, updates = _updates(equal)
            if matrices:
                size = group["lr"] * step_size(shape, scale=group["scale"])
                torch._foreach_add_(matrices, updates, alpha=-size)

    def _momentum(self, parameter: Tensor) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return state["momentum_buffer"]


class Stepped(NamedTuple):
    """Muon for the matrices of a model, and the parameters that another optimiser has to step."""

    optimizer: MuonOptimizer
    rest: list[nn.Parameter]


def muon(
    model: nn.Module,
    *,
    head: nn.Module,
    lr: float = 0.02,
    momentum: float = 0.95,
    nesterov: bool = True,
    weight_decay: float = 0.1,
    scale: Scale = "original",
) -> Stepped:
    """Return Muon for the matrices and filters inside a model, and the other parameters: embeddings, biases, gains and
    those of `head`, its last layer.

    In a loop:

        matrices, rest = functional.muon(model, head=model.head, lr=0.02)
        others = torch.optim.AdamW(rest, lr=0.001)
        for x, y in batches:
            matrices.zero_grad(), others.zero_grad()
            F.cross_entropy(model(x), y).backward()
            matrices.step(), others.step()
    """
    parameters: dict[str, Any] = {
        "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay, "scale": scale
    }  # fmt: skip
    checked(Muon, **parameters)
    last = {id(parameter) for parameter in head.parameters()}
    names = {name for name, parameter in model.named_parameters() if id(parameter) in last}
    if not names:
        raise RecipeError(f"muon: head: found no parameter of {type(model).__name__} in it: expected its last layer")
    hidden = hidden_matrices(model, head=names)
    if not hidden:
        raise RecipeError(f"muon: found nothing to step in {type(model).__name__}: expected {Muon.needs}")
    rest = [parameter for name, parameter in model.named_parameters() if name not in set(hidden)]
    return Stepped(MuonOptimizer(matrix_groups(model, hidden), **parameters), rest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Muon(Method):
    """The recipe's optimiser steps everything else: embeddings, the last layer, biases and gains."""

    name: ClassVar[str] = "muon"
    kind: ClassVar[Kind] = Kind.OPTIMIZER
    summary: ClassVar[str] = "Steps the matrices inside the network along orthogonalised momentum."
    source: ClassVar[str] = "Jordan et al. 2024; Liu et al. 2025, arXiv:2502.16982"
    formula: ClassVar[str] = (
        "m <- `momentum` m + (1 - `momentum`) g; X = (1 - `momentum`) g + `momentum` m with `nesterov`, else m;"
        " X / |X|, then 5 times X <- 3.4445 X + (-4.775 A + 2.0315 A A) X, A = X X^T;"
        " w <- w (1 - `lr` `weight_decay`) - `lr` r X, r = sqrt(max(1, rows / columns)) for original,"
        " 0.2 sqrt(max(rows, columns)) for match_rms_adamw; `lr` follows the schedule\n"
        "X, rows and columns are those of each matrix where a parameter holds several: queries, keys and values,"
        " gates, experts, and matrices that a module declares in `fused_matrices`"
    )
    changes: ClassVar[str] = "the update of matrices and filters inside the network"
    needs: ClassVar[str] = "a model with matrices or filters between its embeddings and its last layer"
    routing: ClassVar[str] = (
        "Works: each region has optimisers of its own, and the update of a matrix depends only on its own gradients;"
        " updates cannot be split exactly by class."
    )

    lr: Annotated[float, Field(gt=0, le=100, description="peak learning rate of the matrices")] = 0.02
    momentum: Annotated[float, Field(ge=0, lt=1, description="share of the old momentum kept in a step")] = 0.95
    nesterov: Annotated[bool, Field(description="look ahead: count this gradient in the momentum twice")] = True
    weight_decay: Annotated[float, Field(ge=0, le=10, description="decoupled decay of the matrices, times `lr`")] = 0.1
    scale: Annotated[Scale, Field(description="how the length of an update depends on the shape of its matrix")] = (
        "original"
    )

    def any_length(self) -> bool:
        return True

    def build_optimizers(
        self, parameters: dict[str, nn.Parameter], spec: OptimizerSpec, *, state: State
    ) -> tuple[Optimizer, ...]:
        # Chosen from the whole model, then taken from this region: a region may be without matrices, a model may not.
        hidden = frozenset(hidden_matrices(state.model, head=state.layers[-1].parameters))
        if not hidden:
            raise RecipeError(f"muon: found nothing to step in {type(state.model).__name__}: expected {self.needs}")
        mine = matrix_groups(state.model, hidden & parameters.keys())
        rest = [parameter for name, parameter in parameters.items() if name not in hidden]
        return (*([self._optimizer(mine)] if mine else []), *([build_optimizer(spec, rest)] if rest else []))

    def _optimizer(self, groups: list[dict[str, Any]]) -> MuonOptimizer:
        return MuonOptimizer(
            [{**group, "peak": self.lr} for group in groups],
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
            scale=self.scale,
        )

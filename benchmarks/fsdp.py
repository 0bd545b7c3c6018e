"""What sharded training (FSDP2) would need to keep the bits: a prototype on CPU processes, which the script starts.

    python benchmarks/fsdp.py [--rounds N]        writes benchmarks/fsdp.md, in two to five minutes on two cores

gpt-tiny, one unit of FSDP for each block and one for the rest. Three classes of data pass one after the other, in lanes
as the engine's (explorer/engine/lanes.py); the third may not change the embeddings and the lower half of the blocks.
The same steps are made

    lanes     by the engine's lanes, every rank with the whole model
    tree      sharded: each unit's gradients are exchanged cell by cell, and added by the tree of the lanes
    plain     sharded: the same passes, added by the reduce-scatter of the backend and by FSDP, as they come
    usual     sharded: one pass for all rows that a rank has of a class, as training with FSDP2 usually does

Under `tree` the ranks take turns: in round j rank r of W passes lane j W + r. The owner of a shard gets one row from
every rank and adds the rows in the order of the lanes, so that it keeps at most one sum for each level of the tree. A
rank whose lane has no rows passes one row with weight 0, since all ranks have to gather parameters together; its
gradients are left out of the sum.
"""

import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
from options import options, whole
from pages import write_page
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

# The base class of a reduce-scatter of one's own is not public.
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.tensor import DTensor, Shard
from torch.multiprocessing.spawn import spawn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer

from explorer import merkle
from explorer.engine.lanes import Lanes
from explorer.engine.modules import initialise
from explorer.engine.optimizer import AdamWSpec, build_optimizer, decay_groups
from explorer.engine.ranks import Ranks
from explorer.models.table import MODELS

WORLDS = (1, 2, 3, 4)
SAVED = 4  # the number of ranks that saves the checkpoint which all others continue
LANES, STEPS, CONTEXT, TOKENS = 8, 3, 16, 256
ROWS = {"first": 16, "second": 11, "third": 5}  # of each class in a batch, in class order
BATCH = sum(ROWS.values())
DENIED = ("embed.", "blocks.0.", "blocks.1.")  # what the third class may not change
CHUNK = 4096  # bytes; a design for real models has 4 MiB
RATE, DECAY = 1e-2, 0.1
OUT = Path(__file__).with_suffix(".md")

Mode = Literal["tree", "plain", "usual"]
Gradients = dict[str, Tensor]  # by name of the parameter; denied ones are absent


# --- the work ---


def slots_of(kind: str) -> Tensor:
    """Return the slots of a class: spread over the batch, so that the third has none in some of the lanes."""
    order = torch.randperm(BATCH, generator=torch.Generator().manual_seed(1))
    return dict(zip(ROWS, order.split(list(ROWS.values())), strict=True))[kind].sort().values


def cells_of(kind: str) -> dict[int, Tensor]:
    """Return the slots of a class by lane; lanes without rows are absent."""
    slots = slots_of(kind)
    cells = {lane: slots[slots % LANES == lane] for lane in range(LANES)}
    return {lane: cell for lane, cell in cells.items() if len(cell)}


def loss_of(model: nn.Module, step: int, slots: Tensor) -> Tensor:
    tokens = torch.randint(TOKENS, (BATCH, CONTEXT + 1), generator=torch.Generator().manual_seed(step))[slots]
    return cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum") / BATCH


def built() -> nn.Module:
    model = MODELS["gpt-tiny"]().build(example_shape=(CONTEXT,), classes=TOKENS)
    initialise(model, seed=0)
    return model.train()


def optimizer_of(model: nn.Module, *, fused: bool) -> Optimizer:
    """Return AdamW: the engine's, which has one kernel for all of it, or operation by operation."""
    if fused:
        return build_optimizer(AdamWSpec(lr=RATE, weight_decay=DECAY), model.parameters())
    groups = decay_groups(model.parameters(), weight_decay=DECAY)
    for group in groups:
        group["weight_decay"] = group.pop("decoupled")
    return AdamW(groups, lr=RATE, foreach=True)


def admitted(model: nn.Module, kind: str) -> dict[str, nn.Parameter]:
    """Return the parameters that a class may change."""
    denied = DENIED if kind == "third" else ()
    return {name: p for name, p in model.named_parameters() if not name.startswith(denied)}


def summed(by_class: Sequence[Gradients]) -> Gradients:
    """Return the sum over classes, in class order."""
    total: Gradients = {}
    for gradients in by_class:
        total |= {name: total[name] + one if name in total else one for name, one in gradients.items()}
    return total


def update(model: nn.Module, optimizer: Optimizer, gradients: Gradients) -> None:
    for name, parameter in model.named_parameters():
        parameter.grad = gradients.get(name)
    optimizer.step()
    optimizer.zero_grad()


# --- lanes: the reference ---


class Counted(Ranks):
    """Ranks that count the bytes that this one sends."""

    sent = 0

    def swap(self, mine: Tensor, *, source: int, targets: tuple[int, ...]) -> Tensor:
        self.sent += mine.nbytes * len(targets)
        return super().swap(mine, source=source, targets=targets)


class Whole:
    """A whole model on every rank, whose gradients are added by the engine's lanes."""

    def __init__(self, *, fused: bool = False) -> None:
        self.model = built()
        self.optimizer = optimizer_of(self.model, fused=fused)
        self.ranks = Counted(dist.get_rank(), dist.get_world_size())
        self._lanes = Lanes(LANES, self.ranks)

    def of_class(self, kind: str, step: int, names: Mapping[str, nn.Parameter]) -> Gradients:
        """Return the gradients of a class, summed over the lanes."""
        cells = cells_of(kind)

        def results_of(lane: int) -> Gradients | None:
            if lane not in cells:
                return None
            gradients = torch.autograd.grad(loss_of(self.model, step, cells[lane]), list(names.values()))
            return dict(zip(names, gradients, strict=True))

        return self._lanes.total(results_of, names)

    def step(self, step: int) -> list[Gradients]:
        by_class = [self.of_class(kind, step, admitted(self.model, kind)) for kind in ROWS]
        update(self.model, self.optimizer, summed(by_class))
        return by_class


# --- sharded ---


class Tree:
    """The sum of results that come in the order of the lanes, by the tree of explorer/engine/lanes.py."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Tensor | None]] = []  # whole subtrees, each with its number of lanes
        self._lanes = 0

    def add(self, lane: int, result: Tensor) -> None:
        while self._lanes < lane:
            self._push(None)
        self._push(result)

    def total(self) -> Tensor | None:
        total = None
        for _, part in reversed(self._parts):
            total = plus(part, total)
        return total

    def _push(self, result: Tensor | None) -> None:
        self._lanes += 1
        lanes = 1
        while self._parts and self._parts[-1][0] == lanes:
            result, lanes = plus(self._parts.pop()[1], result), 2 * lanes
        self._parts.append((lanes, result))


def plus(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    return right if left is None else left if right is None else left + right


class Reduction(DefaultReduceScatter):
    """The reduce-scatter of a unit: that of the backend, counted."""

    def __init__(self) -> None:
        self.calls = self.sent = 0

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        self.calls += 1
        self.sent += input_tensor.nbytes - output_tensor.nbytes
        return super().__call__(output_tensor, input_tensor, group, op, async_op)


class ByTree(Reduction):
    """A reduce-scatter that only exchanges. The hook behind it, which FSDP calls for one rank too, adds.

    After each round the unit has the sum of the lanes so far, so the caller drops the gradients of all but the last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lanes: list[int | None] = []  # that the ranks pass in this round; None: no rows
        self.tree = Tree()
        self._rows: Tensor | None = None

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False) -> Any:
        self.calls += 1
        self.sent += input_tensor.nbytes - output_tensor.nbytes
        self._rows = torch.empty_like(input_tensor)
        dist.all_to_all_single(self._rows, input_tensor, group=group)
        output_tensor.zero_()  # until the hook writes the sum

    def hook(self, shard: Tensor) -> None:
        rows = shard.clone() if self._rows is None else self._rows
        for lane, row in zip(self.lanes, rows.view(len(self.lanes), -1), strict=True):
            if lane is not None:
                self.tree.add(lane, row)
        total = self.tree.total()
        if total is not None:
            shard.copy_(total)


class Gathers(DefaultAllGather):
    """The all-gather of a unit, counted."""

    def __init__(self) -> None:
        self.calls = self.sent = 0

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False) -> Any:
        self.calls += 1
        self.sent += output_tensor.nbytes - input_tensor.nbytes
        return super().__call__(output_tensor, input_tensor, group, async_op)


class Sharded:
    """A sharded model and its optimiser, on one of the ranks."""

    def __init__(self, mode: Mode, *, fused: bool = False, policy: MixedPrecisionPolicy | None = None) -> None:
        self.mode: Mode = mode
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.mesh = init_device_mesh("cpu", (self.world,))
        self.model = built()
        settings: dict[str, Any] = {"mesh": self.mesh, "mp_policy": policy or MixedPrecisionPolicy()}
        for block in self.model.get_submodule("blocks").children():
            fully_shard(block, **settings)
        fully_shard(self.model, **settings)
        self.reductions: dict[str, Reduction] = {}  # by name of the unit
        self.gathers: dict[str, Gathers] = {}
        for name, unit in self.model.named_modules():
            if isinstance(unit, FSDPModule):
                self.gathers[name], self.reductions[name] = Gathers(), ByTree() if mode == "tree" else Reduction()
                unit.set_custom_all_gather(self.gathers[name])
                unit.set_custom_reduce_scatter(self.reductions[name])
                # A sum, not the mean over ranks. With a factor only, FSDP asks for a scaled sum, which gloo lacks.
                unit.set_force_sum_reduction_for_comms(True)
                unit.set_gradient_divide_factor(1.0)
                if isinstance(reduction := self.reductions[name], ByTree):
                    unit.set_all_reduce_hook(reduction.hook)
        self.optimizer = optimizer_of(self.model, fused=fused)

    def of_class(self, kind: str, step: int, names: Mapping[str, nn.Parameter]) -> Gradients:
        """Return the gradients of a class, as this rank's shards."""
        self.admit(names)
        cells, trees = cells_of(kind), [r for r in self.reductions.values() if isinstance(r, ByTree)]
        for tree in trees:
            tree.tree = Tree()
        if self.mode == "usual":
            slots = slots_of(kind)
            self.run(step, slots[self.rank :: self.world])
            return self.take()
        for first in range(0, LANES, self.world):
            lanes = [lane if lane in cells else None for lane in range(first, first + self.world)]
            if all(lane is None for lane in lanes):
                continue
            for tree in trees:
                tree.lanes = lanes
            if trees:
                self.take()  # sums of earlier rounds, which the trees have too
            mine = lanes[self.rank]
            if mine is None:
                self.run(step, slots=torch.zeros(1, dtype=torch.int64), weight=0.0)
            else:
                self.run(step, cells[mine])
        return self.take()

    def admit(self, names: Mapping[str, nn.Parameter]) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in names)

    def run(self, step: int, slots: Tensor, weight: float = 1.0) -> None:
        """Make one forward and backward pass, whose gradients FSDP adds to those that there are."""
        (loss_of(self.model, step, slots) * weight).backward()

    def take(self) -> Gradients:
        """Return the gradients that there are, and forget them."""
        taken = {name: p.grad for name, p in self.model.named_parameters() if p.grad is not None}
        for parameter in self.model.parameters():
            parameter.grad = None
        return taken

    def step(self, step: int) -> list[Gradients]:
        by_class = [self.of_class(kind, step, admitted(self.model, kind)) for kind in ROWS]
        update(self.model, self.optimizer, summed(by_class))
        return by_class


# --- digests ---


def gathered(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local_of(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def state_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return parameters and momenta, whole."""
    state = {}
    for name, parameter in model.named_parameters():
        state[name] = gathered(parameter.detach())
        momenta = {key: value for key, value in optimizer.state[parameter].items() if value.ndim}
        state |= {f"{name}/{key}": gathered(value) for key, value in momenta.items()}
    return state


def digest_of(tensors: Mapping[str, Tensor]) -> str:
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return total.hexdigest()[:8]


def chunked_root(tensors: Mapping[str, Tensor]) -> str:
    """Return the Merkle root over chunks of fixed size. Each rank hashes those that begin in its shards."""
    leaves: dict[tuple[str, int], bytes] = {}
    for name, tensor in tensors.items():
        local = local_of(tensor)
        mine = local.contiguous().numpy().tobytes()
        if isinstance(tensor, DTensor):
            # The rest of a rank's last chunk is at the beginning of the next shards.
            shards = exchanged((len(mine), mine[:CHUNK]))
            before = sum(size for size, _ in shards[: dist.get_rank()])
            mine += b"".join(head for _, head in shards[dist.get_rank() + 1 :])
        else:
            before = 0
        own = local.numel() * local.element_size()
        for start in range(-before % CHUNK, own, CHUNK):
            leaves[name, (before + start) // CHUNK] = hashlib.sha256(mine[start : start + CHUNK]).digest()
    every = {place: leaf for part in exchanged(leaves) for place, leaf in part.items()}
    return merkle.root_of(leaf for _, leaf in sorted(every.items())).hex()[:8]


def exchanged(value: Any) -> list[Any]:
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


# --- contributions ---


def inner_products(by_class: Sequence[Gradients], parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return the inner products of the classes in each layer: of each row by itself, then added by one tree.

    No row is on two ranks, so neither the products nor the tree depend on their number.
    """
    layers: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        rows = rows_of(by_class, name, parameter)
        products = torch.einsum("krc,jrc->rkj", rows, rows)
        if isinstance(parameter, DTensor):
            shape = torch.Size((len(parameter), *products.shape[1:]))
            stride = (products[0].numel(), products.shape[2], 1)
            products = DTensor.from_local(products, parameter.device_mesh, [Shard(0)], shape=shape, stride=stride)
        total, layer = by_tree(gathered(products)), name.rpartition(".")[0]
        layers[layer] = layers[layer] + total if layer in layers else total
    return layers


def rows_of(by_class: Sequence[Gradients], name: str, parameter: Tensor) -> Tensor:
    """Return this rank's rows of a parameter's gradients: class, row, column."""
    absent = torch.zeros_like(local_of(parameter.detach()))
    shards = [local_of(gradients[name]) if name in gradients else absent for gradients in by_class]
    return torch.stack([shard.flatten(1) if shard.ndim > 1 else shard[:, None] for shard in shards])


def by_tree(rows: Tensor) -> Tensor:
    """Return the sum of rows, pair by pair; the last of an odd number goes up as it is."""
    while len(rows) > 1:
        even = len(rows) // 2 * 2
        rows = torch.cat([rows[0:even:2] + rows[1:even:2], rows[even:]])
    return rows[0]


def plain_products(by_class: Sequence[Gradients], parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Return the inner products as they come: one product of each shard, added by the backend."""
    layers: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        rows, layer = rows_of(by_class, name, parameter).flatten(1), name.rpartition(".")[0]
        layers[layer] = layers.get(layer, torch.zeros(len(ROWS), len(ROWS))) + rows @ rows.T
    for total in layers.values():
        dist.all_reduce(total)
    return layers


# --- what is checked ---


@dataclass
class Answers:
    """What one number of ranks gave."""

    digests: dict[str, str] = field(default_factory=dict)
    holds: dict[str, bool | None] = field(default_factory=dict)  # None: says nothing for one rank
    costs: dict[str, dict[str, float]] = field(default_factory=dict)  # of a step, by mode
    error: float = 0.0  # of the inner products by rows, against float64


def trained(work: "Whole | Sharded", first: int = 0) -> list[Gradients]:
    """Make all steps; return the gradients of the last."""
    return [work.step(step) for step in range(first, STEPS)][-1]


def digests(place: Path) -> tuple[dict[str, str], float]:
    """Return the digests of what each way of adding comes to, and the error of the inner products."""
    found = {}
    whole_model, tree = Whole(), Sharded("tree")
    by_lanes, by_shards = trained(whole_model), trained(tree)
    found["lanes"], found["tree"] = (digest_of(state_of(work.model, work.optimizer)) for work in (whole_model, tree))
    others = {"plain": Sharded("plain"), "usual": Sharded("usual")}
    others |= {"lanes, fused": Whole(fused=True), "tree, fused": Sharded("tree", fused=True)}
    for name, work in others.items():
        trained(work)
        found[name] = digest_of(state_of(work.model, work.optimizer))
    # --- inner products ---
    parameters = dict(whole_model.model.named_parameters())
    products = inner_products(by_lanes, parameters)
    found["products, lanes"] = digest_of(products)
    exact = inner_products([{name: g.double() for name, g in one.items()} for one in by_lanes], parameters)
    error = max(float((products[layer] - exact[layer]).abs().max() / exact[layer].abs().max()) for layer in exact)
    shards = dict(tree.model.named_parameters())
    found["products, tree"] = digest_of(inner_products(by_shards, shards))
    found["products, plain"] = digest_of(plain_products(by_shards, shards))
    # --- a digest by chunks ---
    found["chunks, lanes"] = chunked_root({name: p.detach() for name, p in parameters.items()})
    found["chunks, tree"] = chunked_root({name: p.detach() for name, p in shards.items()})
    # --- a checkpoint ---
    found["checkpoint"] = continued(place / "checkpoint")
    return found, error


def continued(checkpoint: Path) -> str:
    """Return the digest that a run comes to which `SAVED` ranks begin and these finish."""
    if not checkpoint.exists():
        begun = Sharded("tree")
        begun.step(0)
        begun.admit(dict(begun.model.named_parameters()))
        save(parts_of(begun), checkpoint_id=checkpoint)
    work = Sharded("tree")
    parts = parts_of(work)
    load(parts, checkpoint_id=checkpoint)
    set_state_dict(work.model, work.optimizer, model_state_dict=parts["model"], optim_state_dict=parts["optimizer"])
    trained(work, first=1)
    return digest_of(state_of(work.model, work.optimizer))


def parts_of(work: Sharded) -> dict[str, Any]:
    model, optimizer = get_state_dict(work.model, work.optimizer)
    return {"model": model, "optimizer": optimizer}


# --- routing ---


def routing() -> dict[str, bool | None]:
    """Return what holds of parameters that a class may not change; None: says nothing for one rank."""
    several = dist.get_world_size() > 1
    every = [name for name, _ in built().named_parameters()]
    low, bias = [name for name in every if name.startswith(DENIED)], ["blocks.2.attention.out.bias"]
    middle = [name for name in every if name.startswith("blocks.1.")]
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    exchanges, gathers = backward_traffic(low)
    return {
        "Units denied: their gradients stay as they were, bit for bit": kept(low),
        "Units denied: the other units get the bits of lanes": like_lanes(low),
        "Units denied: none of their gradients is exchanged": not exchanges if several else None,
        "Units denied: none of their parameters is gathered for the backward pass": not gathers if several else None,
        "One bias of a unit denied: its gradient stays as it was, bit for bit": kept(bias),
        "One bias of a unit denied: the rest of the unit gets the bits of lanes": like_lanes(bias),
        "A unit denied between admitted ones: those below it get the bits of lanes": like_lanes(middle),
        "The first pass of all is one with denied units, in fp32": begins(None),
        "The first pass of all is one with denied units, in bf16": begins(half),
        "The same, in bf16, after one forward pass with everything admitted": begins(half, warm=True),
        "Ranks in passes of different admission get an error, or right sums": right_apart() if several else None,
    }


def bits(gradients: Gradients, names: Sequence[str]) -> str:
    return digest_of({name: gathered(gradients[name]) for name in names})


def without(model: nn.Module, denied: Sequence[str]) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if name not in denied}


def kept(denied: Sequence[str]) -> bool:
    """Return True if a pass leaves the gradients of denied parameters, and moves all others; its control, the same pass
    with everything admitted, has to move the denied ones too."""
    work, cell = Sharded("plain"), cells_of("first")[0]
    seen = []
    for names in ([], denied, []):
        work.admit(without(work.model, names))
        work.run(0, cell)
        gradients = {name: p.grad.clone() for name, p in work.model.named_parameters() if p.grad is not None}
        seen.append((bits(gradients, denied), bits(gradients, list(without(work.model, denied)))))
    (denied_0, others_0), (denied_1, others_1), (denied_2, _) = seen
    return denied_0 == denied_1 != denied_2 and others_0 != others_1


def like_lanes(denied: Sequence[str]) -> bool:
    sharded, single = Sharded("tree"), Whole()
    mine, lanes = (work.of_class("first", 0, without(work.model, denied)) for work in (sharded, single))
    return mine.keys() == lanes.keys() and bits(mine, list(lanes)) == bits(lanes, list(lanes))


def backward_traffic(denied: Sequence[str]) -> tuple[int, int]:
    """Return how many exchanges of gradients, and gathers beyond that of the forward pass, the denied units have."""
    work = Sharded("plain")
    work.admit(without(work.model, denied))
    work.run(0, cells_of("third")[next(iter(cells_of("third")))])
    units = [name for name in work.gathers if name and f"{name}.norm1.weight" in denied]
    return sum(work.reductions[unit].calls for unit in units), sum(work.gathers[unit].calls - 1 for unit in units)


def begins(policy: MixedPrecisionPolicy | None, *, warm: bool = False) -> bool:
    """Return True if a model can begin with a pass that denies units, and give the gradients of all in the next one."""
    work, cell = Sharded("plain", policy=policy), cells_of("first")[0]
    if warm:
        with torch.no_grad():
            loss_of(work.model, 0, cell)
    try:
        for kind in ("third", "first"):
            work.admit(admitted(work.model, kind))
            work.run(0, cell)
    except RuntimeError as error:
        if "attempting to assign a gradient with dtype" not in str(error):
            raise
        return False
    return {gradient.dtype for gradient in work.take().values()} == {torch.float32}


def right_apart() -> bool:
    """Return True if ranks get an error or right sums where they admit different tensors of one size in one pass."""
    work, cell, name = Sharded("plain"), cells_of("first")[0], "blocks.2.norm1.weight"
    odd = work.rank % 2 == 1
    work.admit(without(work.model, [name] if odd else ["blocks.2.norm1.bias"]))
    work.run(0, cell)
    alike = built()
    (gradient,) = torch.autograd.grad(loss_of(alike, 0, cell), [alike.get_parameter(name)])
    expected = (work.world + 1) // 2 * gradient.chunk(work.world)[work.rank]
    taken = work.take()
    return all(exchanged(odd or torch.allclose(local_of(taken[name]), expected)))


# --- cost ---


def costs(rounds: int) -> dict[str, dict[str, float]]:
    """Return what a step costs in each mode, in the mean over ranks: calls, bytes sent, and processor time in shares of
    the usual step's, as the median over interleaved rounds."""
    works: dict[str, Whole | Sharded] = {"lanes": Whole(), "usual": Sharded("usual"), "plain": Sharded("plain")}
    works |= {"tree": Sharded("tree"), "products": Sharded("tree")}
    took: dict[str, list[float]] = {name: [] for name in works}
    for step in range(rounds + 1):  # the first is to warm up
        for name, work in works.items():
            start = time.process_time()
            by_class = work.step(step)
            if name == "products":
                inner_products(by_class, dict(work.model.named_parameters()))
            took[name].append(sum(exchanged(time.process_time() - start)))
    rows = {}
    for name, work in works.items():
        ratios = [one / usual for one, usual in zip(took[name][1:], took["usual"][1:], strict=True)]
        if isinstance(work, Whole):
            gathers, exchanges, sent = 0, 0, work.ranks.sent
        else:
            counted = [*work.gathers.values(), *work.reductions.values()]
            gathers, exchanges = (sum(c.calls for c in part.values()) for part in (work.gathers, work.reductions))
            sent = sum(c.sent for c in counted)
        steps = rounds + 1
        mean = sum(exchanged(sent)) / dist.get_world_size() / steps
        rows[name] = {
            "ratio": statistics.median(ratios),
            "gathers": gathers / steps,
            "exchanges": exchanges / steps,
            "sent": mean,
        }
    return rows


# --- processes and page ---


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=whole(), default=5, help="steps of each mode that are timed")
    rounds = parser.parse_args().rounds
    answers: dict[int, Answers] = {}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        for world in sorted(WORLDS, key=lambda world: world != SAVED):  # it leaves the checkpoint
            spawn(be_rank, args=(world, rounds, place), nprocs=world)
            answers[world] = Answers(**json.loads((place / f"{world}.json").read_text()))
    write_page(OUT, page(answers, rounds))


def be_rank(rank: int, world: int, rounds: int, place: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}/{world}.store", rank=rank, world_size=world)
    found, error = digests(place)
    holds = routing()
    answers = Answers(digests=found, holds=holds, costs=costs(rounds), error=error)
    every = exchanged((found, holds))
    assert all(one == every[0] for one in every), every
    if rank == 0:
        (place / f"{world}.json").write_text(json.dumps(asdict(answers)))
    dist.barrier()  # a rank that left first was seen to abort another one
    dist.destroy_process_group()


DIGESTS = {
    "lanes": "**lanes**: the engine's, every rank with the whole model",
    "tree": "**tree**: sharded, added by the tree of the lanes",
    "plain": "**plain**: sharded, the same passes, added by gloo and FSDP",
    "usual": "**usual**: sharded, one pass for a rank's rows of a class",
    "lanes, fused": "lanes, with the fused AdamW of the engine",
    "tree, fused": "tree, with the fused AdamW of the engine",
    "products, lanes": "inner products, row by row and added by one tree, under lanes",
    "products, tree": "the same, under tree, on shards",
    "products, plain": "inner products, a product a shard, added by gloo",
    "chunks, lanes": f"Merkle root over chunks of {CHUNK} bytes, under lanes",
    "chunks, tree": "the same, under tree, each chunk hashed by the rank on which it begins",
    "checkpoint": f"tree, begun by {SAVED} ranks and finished by these",
}
COSTS = {"usual": "usual", "plain": "plain", "tree": "tree", "products": "tree and inner products", "lanes": "lanes"}


def page(answers: Mapping[int, Answers], rounds: int) -> str:
    worlds = sorted(answers)
    ranks = " | ".join(f"{world} rank{'s' * (world > 1)}" for world in worlds)
    rule = "---|" * len(worlds)
    lines = [
        "# Sharded training (FSDP2): what a prototype showed\n",
        f"gpt-tiny, AdamW, {STEPS} steps of {BATCH} rows of {CONTEXT} bytes, three classes, {LANES} lanes; the third"
        " class may not change the embeddings and the lower two of four blocks, and has no rows in"
        f" {LANES - len(cells_of('third'))} lanes. torch {torch.__version__}, gloo, processes of one thread,"
        f" {torch.backends.cpu.get_cpu_capability()}. Made by `benchmarks/{Path(__file__).name}`; what follows"
        " from it is in [ranks.md](../docs/ranks.md#sharded-training).\n",
        "## The same bits\n",
        "Digests of all parameters and momenta at the end; AdamW in separate operations but where it says fused.\n",
        f"| | {ranks} | one digest |",
        f"|---|{rule}---|",
    ]
    for name, words in DIGESTS.items():
        row = [answers[world].digests[name] for world in worlds]
        lines.append(
            f"| {words} | {' | '.join(f'`{one}`' for one in row)} | {'yes' if len(set(row)) == 1 else '**no**'} |"
        )
    rows = sum(len(parameter) for parameter in built().parameters())
    error = max(one.error for one in answers.values())
    lines += [
        f"\nInner products by rows are within {error:.0e} of float64, in shares of the layer's largest. They are"
        f" {len(ROWS) ** 2} numbers a row, {rows * len(ROWS) ** 2 * 4 / 1024:.0f} KiB for the model, which every rank"
        " gets in each step.\n",
        "## Parameters that a class may not change\n",
        f"| | {ranks} |",
        f"|---|{rule}",
    ]
    for claim in answers[worlds[0]].holds:
        row = [{None: "", True: "yes", False: "**no**"}[answers[world].holds[claim]] for world in worlds]
        lines.append(f"| {claim} | {' | '.join(row)} |")
    lines += [
        "\n## Cost of a step\n",
        "Calls and bytes are those of one rank. Processor time of all ranks together is in shares of the usual step's,"
        f" the median of {rounds} interleaved steps; passes of few rows of a small model are the worst case for it.\n",
        "| ranks | mode | gathers of parameters | exchanges of gradients | KiB sent | processor time |",
        "|---|---|---|---|---|---|",
    ]
    for world in worlds:
        for name, words in COSTS.items():
            cost = answers[world].costs[name]
            counts = f"{cost['gathers']:.0f} | {cost['exchanges']:.0f} | {cost['sent'] / 1024:,.0f}"
            lines.append(f"| {world} | {words} | {counts} | {cost['ratio']:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()

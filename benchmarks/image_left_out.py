"""Methods that `image_ablation.py` measures and that the package leaves out, because they did not help there.

Shapes: B examples.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from explorer.data.batches import Batches
from explorer.data.images import Images
from explorer.data.streams import stream
from explorer.engine.method import Kind, Method
from explorer.engine.state import State
from explorer.engine.task import Task
from explorer.methods.muon import Muon, MuonOptimizer


class Renormalised(MuonOptimizer):
    """Muon that brings the filters of a convolution to the same length before every step, as airbench94_muon does."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for parameter in (p for group in self.param_groups for p in group["params"]):
            if parameter.grad is not None and parameter.ndim == 4:
                parameter.mul_(len(parameter) ** 0.5 / parameter.norm())
        super().step(closure)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordMuon(Muon):
    """Muon with the settings of that record, but for its three iterations in place of five."""

    lr: float = 0.24
    momentum: float = 0.6
    weight_decay: float = 0.0

    def _optimizer(self, groups: list[dict]) -> MuonOptimizer:
        return Renormalised(
            [{**group, "peak": self.lr} for group in groups],
            lr=self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AlternatingFlip(Method):
    """Shows every image as it is in one epoch and mirrored in the next, in place of mirroring at random (Jordan 2024,
    arXiv:2404.00498)."""

    name: ClassVar[str] = "alternating_flip"
    kind: ClassVar[Kind] = Kind.EXAMPLE

    def change_model(self, state: State) -> None:
        batches = state.resource(Batches)
        assert isinstance(batches.dataset, Images)
        batches.dataset = replace(batches.dataset, flip=False)

    def change_examples(self, state: State) -> None:
        assert state.raw is not None and state.share is not None
        batches, slots = state.resource(Batches), state.share.slots
        epochs = (batches.pace.position(state.step) + slots) // len(batches.dataset.train)
        examples = state.examples[slots]
        first = stream(state.seed, self.name).random(int(examples.max()) + 1)[examples] < 0.5
        mirrored = torch.from_numpy(first ^ (epochs % 2 == 1))
        state.raw = torch.where(mirrored[:, None, None, None], state.raw.flip(3), state.raw)


@dataclass(frozen=True, kw_only=True, slots=True)
class InfoBatch(Method):
    """Drops half of the examples whose last loss was below the mean of all last losses, counts the other half twice,
    and takes all at the end (Qin et al. 2024, arXiv:2303.04947)."""

    name: ClassVar[str] = "infobatch"
    kind: ClassVar[Kind] = Kind.SELECT

    drop: float = 0.5
    end: float = 0.875  # share of training
    at_random: bool = False  # as many, whatever their losses: the control

    def memory(self, state: State) -> dict[str, Tensor]:
        return {"losses": torch.full((len(state.resource(Batches).dataset.train),), torch.inf)}

    def change_batch(self, state: State) -> None:
        batch, losses = state.batch, state.memory[self.name]["losses"]
        assert batch is not None
        _weights(state).fill_(1)
        if state.progress >= self.end:
            return
        easy = losses[_numbers(state, batch.slots)] < losses[losses.isfinite()].mean()
        draws = torch.from_numpy(stream(state.seed, self.name, state.step).random(state.batch_size))[batch.slots]
        dropped, weights = easy & (draws < self.drop), torch.where(easy, 1 / (1 - self.drop), 1.0)
        if self.at_random:
            count = int(dropped.sum())
            dropped = draws.argsort(stable=True).argsort() < count
            weights = torch.full((len(easy),), len(easy) / max(1, len(easy) - count))
        rows = (~dropped).nonzero()[:, 0]
        rows = rows if len(rows) else draws.argmax()[None]  # a pass needs one
        _weights(state)[: len(rows)] = weights[rows]
        state.batch = batch.rows(rows)

    def after_loss(self, state: State) -> None:
        rows, task = state.rows, state.resource(Task)
        assert rows is not None and state.outputs is not None and state.loss_targets is not None
        losses = task.loss(state.outputs, state.loss_targets)
        state.memory[self.name]["losses"][_numbers(state, rows.slots)] = losses.detach()
        state.loss = (losses * _weights(state)[: len(rows)]).sum() / state.batch_size


class _Weights:
    """The weights of the rows of a step, from its start."""

    def __init__(self, size: int) -> None:
        self.tensor = torch.ones(size)


def _weights(state: State) -> Tensor:
    return state.once(_Weights, lambda: _Weights(state.batch_size)).tensor


def _numbers(state: State, slots: Tensor) -> Tensor:
    """Return the numbers of the examples in these slots."""
    return torch.from_numpy(state.examples)[slots]

"""Speed methods for text that text_ablation.py tried and that the package does not have, in as few lines as it takes.

qk_norm             queries and keys of one length (Henry et al. 2020, arXiv:2010.04245), without a learned scale
relu_squared        max(0, x)^2 in place of GELU (So et al. 2021, arXiv:2109.08668)
zero_branches       output projections of attention and feed-forward begin at zero (modded-nanogpt)
value_embeddings    a table of tokens for each block, added to the values (modded-nanogpt)
convolution         queries, keys and values take from the two places before (So et al. 2021)
muon_rows           Muon whose updates have rows of one length (NorMuon: Li et al. 2025, arXiv:2510.05491)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explorer.engine.method import Kind, Method
from explorer.engine.modules import initialise, mix_in
from explorer.engine.state import State
from explorer.methods.muon import Muon, MuonOptimizer, matrices_in, orthogonalise, step_size
from explorer.models.transformer import Attention, Perceptron, Tokens

Base = nn.Module if TYPE_CHECKING else object


@dataclass(frozen=True, kw_only=True, slots=True)
class Surgery(Method):
    """A change of the model."""

    kind: ClassVar[Kind] = Kind.SURGERY
    modalities: ClassVar[Any] = frozenset({"text"})
    summary: ClassVar[str] = "tried"
    source: ClassVar[str] = "see the top of this file"
    formula: ClassVar[str] = "see the top of this file"
    changes: ClassVar[str] = "the model"
    routing: ClassVar[str] = "not tried"


def attentions(model: nn.Module) -> list[Attention]:
    return [module for module in model.modules() if isinstance(module, Attention)]


class OtherDraw(Surgery):
    """The control: other initial weights."""

    name: ClassVar[str] = "other_draw"

    def change_model(self, state: State) -> None:
        initialise(state.model, seed=state.seed + 1000)


def normalised(query_BHTd: Tensor, key_BHTd: Tensor) -> tuple[Tensor, Tensor]:
    width = query_BHTd.shape[-1:]
    return F.rms_norm(query_BHTd, width), F.rms_norm(key_BHTd, width)


class QKNorm(Surgery):
    name: ClassVar[str] = "qk_norm"

    def change_model(self, state: State) -> None:
        for attention in attentions(state.model):
            attention.changes = (*attention.changes, normalised)


class SquaredReLU(Base):
    up: nn.Module
    down: nn.Module

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.down(F.relu(self.up(x_BTD)).square())


class ReLUSquared(Surgery):
    name: ClassVar[str] = "relu_squared"

    def change_model(self, state: State) -> None:
        for module in list(state.model.modules()):
            if isinstance(module, Perceptron):
                mix_in(SquaredReLU, module)


class ZeroBranches(Surgery):
    name: ClassVar[str] = "zero_branches"

    def change_model(self, state: State) -> None:
        for module in state.model.modules():
            if isinstance(module, Attention | Perceptron):
                nn.init.zeros_((module.out if isinstance(module, Attention) else module.down).weight)


class Valued(Base):
    given: list[Tensor]
    values: nn.Module

    def forward(self, input: Tensor) -> Tensor:
        query_key, value = super().forward(input).split((2 * input.shape[-1], input.shape[-1]), -1)
        return torch.cat((query_key, value + self.values(self.given[0])), -1)


class ValueEmbeddings(Surgery):
    name: ClassVar[str] = "value_embeddings"

    def change_model(self, state: State) -> None:
        given: list[Tensor] = []  # the tokens of this pass
        state.model.register_forward_pre_hook(lambda _, inputs: given.__setitem__(slice(None), inputs))
        for attention in attentions(state.model):
            mix_in(Valued, attention.qkv)
            attention.qkv.given = given  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
            attention.qkv.values = Tokens(256, attention.out.in_features)
        initialise(state.model, seed=state.seed)


class Convolved(Base):
    def forward(self, input: Tensor) -> Tensor:
        x_BTD = super().forward(input)
        y_BTD = x_BTD * self.now
        for distance, weight in ((1, self.before), (2, self.earlier)):
            y_BTD = y_BTD + F.pad(x_BTD[:, :-distance] * weight, (0, 0, distance, 0))
        return y_BTD


class Convolution(Surgery):
    name: ClassVar[str] = "convolution"

    def change_model(self, state: State) -> None:
        for attention in attentions(state.model):
            mix_in(Convolved, attention.qkv)
            for name, weight in (("now", 1.0), ("before", 0.0), ("earlier", 0.0)):
                attention.qkv.register_parameter(name, nn.Parameter(torch.full_like(attention.qkv.bias, weight)))


class Rows(MuonOptimizer):
    """Muon, matrix by matrix, whose updates have rows of one length."""

    def _move(self, parameters: list[Tensor], directions: Sequence[Tensor], group: dict[str, Any]) -> None:
        for parameter, direction in zip(parameters, directions, strict=True):
            matrices = matrices_in(direction, group["layout"])
            update = torch.cat([orthogonalise(one) * step_size(one.shape, scale=group["scale"]) for one in matrices])
            squares = self.state[parameter].setdefault("squares", torch.zeros(len(update), 1))
            squares.lerp_(update.square().mean(1, keepdim=True), 0.05)
            even = update / squares.sqrt().clamp(min=1e-8)
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.sub_(even * (update.norm() / even.norm().clamp(min=1e-8)), alpha=group["lr"])


@dataclass(frozen=True, kw_only=True, slots=True)
class MuonRows(Muon):
    name: ClassVar[str] = "muon_rows"

    def _optimizer(self, groups: list[dict[str, Any]]) -> MuonOptimizer:
        optimizer = Muon._optimizer(self, groups)
        optimizer.__class__ = Rows
        return optimizer


TRIED: dict[str, type[Method]] = {
    method.name: method
    for method in (OtherDraw, QKNorm, ReLUSquared, ZeroBranches, ValueEmbeddings, Convolution, MuonRows)
}

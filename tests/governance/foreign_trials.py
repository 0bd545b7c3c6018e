"""What is tried on a foreign model: the same steps in a plain loop and under a policy, tensor by tensor.

open        every tensor that moves in the plain loop moves under an open policy, and to the same bits, since each
            of these steps has one class
denied      a step of a class that may not train the first half of the depth leaves every tensor there as it was,
            and moves in the other half what a plain step moves
conforms    the run with the denial conforms to its own signed record
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import explorer
from explorer.audit.conform import conform
from explorer.provenance.envelope import write_envelope
from explorer.provenance.policy import POLICY, Rule
from explorer.runlog.run_ledger import RunLedger
from tests.foreign_models import EXAMPLES, Foreign
from tests.governance import desk
from tests.governance.governed import bits
from tests.provenance.people import NOW, RISK

NEWS = "licensed/news"
ALL = Rule(classes=("*",), weight=1.0)
HALF = desk.policy(name="half", rules=(Rule(classes=(NEWS,), depth=(0.0, 0.5), weight=0.0), ALL))
OPEN = desk.policy(name="everything", rules=(ALL,))
BATCH = np.arange(EXAMPLES)
OF_CLASS = [BATCH[at :: len(desk.CLASSES)] for at in range(len(desk.CLASSES))]  # as the desk tags them
DENIED = OF_CLASS[desk.CLASSES.index(NEWS)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What was found. Empty: it held."""

    tensors: int
    moved: int  # of them, in the plain loop
    layers: tuple[str, ...]
    still: frozenset[str]  # move in the plain loop, and not under an open policy
    other: frozenset[str]  # move to other bits
    leaked: frozenset[str]  # of a denied layer, and changed
    stuck: frozenset[str]  # of an admitted layer, and did not move where a plain step moves them
    conforms: bool
    faults: tuple[str, ...]  # what contradicts it

    @property
    def holds(self) -> bool:
        return self.conforms and not (self.still or self.other or self.leaked or self.stuck)


def papers(directory: Path, foreign: Foreign) -> Path:
    """The signed documents for its examples."""
    made = desk.make(directory, split=foreign.examples)
    for policy in (OPEN, HALF):
        write_envelope(made / "policies" / f"{policy.name}.json", desk.document(policy, POLICY, RISK))
    return made


def try_out(foreign: Foreign, documents: Path, runs: Path) -> Trial:
    """Train it in a plain loop and twice under a policy. Raises as `explorer.govern` does."""
    steps = [*OF_CLASS, *OF_CLASS]
    before, plain = _plain(foreign, steps)
    with _governed(foreign, documents, runs / "open", "everything", len(steps)) as loop:
        for rows in steps:
            loop.step(rows, foreign.losses)
        opened, layers = _tensors(loop.state.model), tuple(leaf.name for leaf in loop.state.layers)
    moved = {name for name in before if bits(plain[name]) != bits(before[name])}
    still = {name for name in moved if bits(opened[name]) == bits(before[name])}

    with _governed(foreign, documents, runs / "half", "half", 2) as loop:
        loop.step(BATCH, foreign.losses)
        start = _tensors(loop.state.model)
        alone = _one_plain_step(foreign, start)
        loop.step(DENIED, foreign.losses)
        after = _tensors(loop.state.model)
        lower = _lower_half(loop)
    changed = {name for name in start if bits(after[name]) != bits(start[name])}
    would = {name for name in start if bits(alone[name]) != bits(start[name])}
    found = conform(RunLedger(runs / "half"), trust=desk.TRUST, now=NOW)
    return Trial(
        tensors=len(before),
        moved=len(moved),
        layers=layers,
        still=frozenset(still),
        other=frozenset(name for name in before if bits(opened[name]) != bits(plain[name])) - still,
        leaked=frozenset(changed & lower),
        stuck=frozenset(would - lower - changed),
        faults=tuple(each.message for condition in found.conditions for each in condition.contradictions),
        conforms=found.conforms,
    )


def rows_of(foreign: Foreign, rows: np.ndarray) -> tuple[Tensor, Tensor]:
    return foreign.examples.inputs[rows], foreign.examples.labels[rows]


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)


def _built(foreign: Foreign) -> nn.Module:
    torch.manual_seed(0)
    return foreign.build().train()


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every tensor once, those that are not saved included."""
    return {name: each.detach().clone() for name, each in (*model.named_parameters(), *model.named_buffers())}


def _plain(foreign: Foreign, steps: list[np.ndarray]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    model = _built(foreign)
    before, optimizer = _tensors(model), _optimizer(model)
    for rows in steps:
        optimizer.zero_grad()
        (foreign.losses(model, *rows_of(foreign, rows)).sum() / len(rows)).backward()
        optimizer.step()
    return before, _tensors(model)


def _one_plain_step(foreign: Foreign, start: dict[str, Tensor]) -> dict[str, Tensor]:
    """Where a plain step of the denied rows leads from there."""
    model = _built(foreign)
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            tensor.copy_(start[name])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    foreign.losses(model, *rows_of(foreign, DENIED)).sum().backward()
    optimizer.step()
    return _tensors(model)


def _governed(foreign: Foreign, documents: Path, run: Path, policy: str, steps: int) -> explorer.Governed:
    model = _built(foreign)
    return explorer.govern(
        model,
        _optimizer(model),
        examples=foreign.examples,
        documents=documents,
        policy=policy,
        ledger=run,
        steps=steps,
        every=2,
    )


def _lower_half(loop: explorer.Governed) -> set[str]:
    """The tensors of the layers at a depth below one half, by the ledger's own list of layers."""
    last = max(1, len(loop.state.layers) - 1)
    lower = [leaf for at, leaf in enumerate(loop.state.layers) if at / last < 0.5]
    return {name for leaf in lower for name in (*leaf.parameters, *leaf.buffers)}

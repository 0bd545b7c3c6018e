"""Behaviour of models of one plan on a class that some of them never had: the measurements behind
`analysis.forgetting`.

A bench has the network, the data and the loss of one run. The models that it measures are tensors by name: those that
the run ended with, those of runs without the class (of any seed), those of a deletion, and those of the run with every
layer that the class trained put back to its state before (`localised`). None of these numbers proves that anything is
deleted.

A region is off for every class but its owner. So the run as it is, which its owner uses, is measured on the owner's
examples with the region on, and everything else with every region off.

Shapes: N examples of the class, M others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn

from explorer import run_files, rundir
from explorer.data.streams import stream, torch_stream
from explorer.engine.loop import Loop
from explorer.engine.optimizer import build_optimizer
from explorer.engine.state import SHARED
from explorer.errors import LedgerError, RunError
from explorer.governance.layers import governed_layers
from explorer.governance.region_modules import switched_on
from explorer.governance.shared_state import Session
from explorer.provenance.regions import SealedRegion
from explorer.provenance.spellings import covers
from explorer.runlog.admission_tables import first_admitted, tables_in_force
from explorer.runlog.model_file import MODEL, ModelFile, differences
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target, counterfactual
from explorer.runlog.tensors import owner_of, read_ended
from explorer.training.replay import newest
from explorer.training.run import build_loop, documents_in
from explorer.training.run_plan import recipe_of

EXAMPLES = 512  # of the class, and of the others, evenly spaced over all of them
PROBES = 128  # of the class, before every step of relearning
ROWS = 64  # of one forward pass
STEPS = 200  # of relearning, at most
RATE = 0.1  # of the recipe's highest learning rate: relearning begins where a schedule ends
ANY_SEED = ("seed", "hardware", "versions")  # parts of the identity in which a reference may differ from the run

EVIDENCE = "explorer delete evidence"
NO_RECIPE = (
    "it measures quality and learns the class again by the recipe's data, loss and optimiser, and the run of a loop"
    " keeps none of them. `explorer delete verify --counterfactual --loop MODULE:FUNCTION` compares a deletion with the"
    " run that never had the class, bit for bit"
)

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Behaviour:
    """Measurements of one model; `analysis.forgetting.Measured`."""

    seed: int
    target_N: np.ndarray  # losses, nats
    others_M: np.ndarray  # losses, nats
    quality: float
    relearned: int | None  # steps; None: not within `STEPS`


class Bench:
    """The network, the data and the loss of one finished run, for models that have its tensors."""

    def __init__(self, run: Path, target: Target, *, data: Path | None = None) -> None:
        """Build the run's loop and measure how well the finished run knows the target.

        Raises `RunError` for a run that left no model, has other data here, or was trained on nothing but the target.
        """
        # --- the run ---
        self._run, self._target = run, target
        self.record = run_files.read_recipe_run(run, what=EVIDENCE, instead=NO_RECIPE)
        self._recipe = recipe_of(self.record)
        self._tensors = finished(run)
        documents = documents_in(run, self.record)
        self._loop: Loop = build_loop(self.record, data=data, documents=documents, elsewhere=True)
        session, batches = self._loop.state.resource(Session), self._loop.setting.batches
        self._initial = _copies(self._loop)
        # --- the target's regions, its examples, and the others ---
        self._regions: tuple[SealedRegion, ...] = session.routing.policy.sealed if session.routing else ()
        self._own = {
            path: [region.name for region in self._regions if covers(region.branch, path)] for path in target.classes
        }
        codes = batches.typing.codes
        self._rows = {path: np.flatnonzero(codes == session.codes[path]) for path in target.classes}
        known = [session.codes[path] for path in session.classes if path not in target.classes]
        self._others = some(np.flatnonzero(np.isin(codes, known)), EXAMPLES)
        if not len(self._others):
            raise RunError(f"{run}: {target.words}: all that the run was trained on; expected others to retain")
        # The goal of relearning: the loss of the run as its owner uses it.
        self._goal = self._probe(self._tensors, on=True)

    @property
    def sealed(self) -> bool:
        """Return whether each of the classes has a region of its own, so that G0 differs from the run as it is."""
        return all(self._own.values())

    def whole(self) -> Behaviour:
        """Measure the run as it is, with the classes' own regions on: everything that it learned from them."""
        return self._measured(self._tensors, seed=self.record.seed, on=True)

    def switched_off(self) -> Behaviour:
        """Measure G0: the run as it is, with every region off."""
        return self._measured(self._tensors, seed=self.record.seed)

    def ablated(self) -> Behaviour:
        """Measure G1 (`localised`). Raises `RunError` where the checkpoint that it takes is not here."""
        tensors = localised(self._run, self._target, self._tensors, initial=self._initial, loop=self._loop)
        return self._measured(tensors, seed=self.record.seed)

    def without(self, run: Path) -> Behaviour:
        """Measure a finished run that never had the classes: a reference, or the result of a deletion.

        Raises `RunError` for a run that differs in more than that and `ANY_SEED`.
        """
        record = run_files.read_recipe_run(run, what=EVIDENCE, instead=NO_RECIPE)
        recipe_of(record)  # raises for a record that was edited
        expected = counterfactual(self.record, self._target).identity
        for key in sorted((expected.keys() | record.identity.keys()) - set(ANY_SEED)):
            if record.identity.get(key) != expected.get(key):
                raise RunError(
                    f"{run}: no reference for {self.record.run_id} without {self._target.words}: its {key} is not that"
                    " run's with the target left out"
                )
        return self._measured(finished(run), seed=record.seed)

    def _measured(self, tensors: Tensors, *, seed: int, on: bool = False) -> Behaviour:
        self._put(tensors)
        task, model = self._loop.setting.task, self._loop.state.model
        return Behaviour(
            seed=seed,
            target_N=np.concatenate([self._losses_of(path, EXAMPLES, on=on) for path in self._target.classes]),
            others_M=self._losses(self._others),
            quality=task.evaluate(model, self._loop.setting.batches)[self.record.quality],
            relearned=0 if on else self._relearn(),
        )

    def _probe(self, tensors: Tensors, *, on: bool) -> float:
        self._put(tensors)
        return self._known(on=on)

    def _known(self, *, on: bool = False) -> float:
        """Return the mean loss of the probes."""
        return float(np.mean([self._losses_of(path, PROBES, on=on).mean() for path in self._target.classes]))

    def _losses_of(self, path: str, most: int, *, on: bool) -> np.ndarray:
        with switched_on(self._loop.state.model, self._own[path] if on else ()):
            return self._losses(some(self._rows[path], most))

    @torch.no_grad()
    def _losses(self, rows: np.ndarray) -> np.ndarray:
        """Return the loss of each of these training examples, fp32, the model in evaluation mode."""
        setting = self._loop.setting
        model = setting.model.eval()
        losses = []
        for start in range(0, len(rows), ROWS):
            inputs, labels = self._read(rows[start : start + ROWS])
            losses.append(setting.task.loss(model(inputs), labels).double().cpu().numpy())
        return np.concatenate(losses)

    def _relearn(self) -> int | None:
        """Train the shared parameters only on the target, and return after how many steps the loss reached the run's
        own; None: not within `STEPS`. A model that relearns fast had not forgotten."""
        setting, state = self._loop.setting, self._loop.state
        parameters = list(state.regions[SHARED].parameters.values())
        for parameter in parameters:
            parameter.requires_grad_(True)
        optimizer = build_optimizer(self._recipe.optimizer, parameters)
        for group in optimizer.param_groups:
            group["lr"] = self._recipe.optimizer.lr * RATE
        rows = np.concatenate(list(self._rows.values()))
        # The draws depend on the step only, so that all models see the same batches.
        for step in range(STEPS + 1):
            if self._known() <= self._goal:
                return step
            inputs, labels = self._read(stream(0, "relearning", step).permutation(rows)[: setting.batches.batch_size])
            setting.model.train()
            optimizer.zero_grad()
            with torch_stream(setting.batches.device, 0, "relearning", step):
                loss = setting.task.loss(setting.model(inputs), labels).mean()
            loss.backward()
            optimizer.step()
        return None

    def _read(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        batches = self._loop.setting.batches
        inputs, labels = batches.plain(rows)
        return batches.prepare(inputs), labels.to(batches.device).to(torch.int64)

    @torch.no_grad()
    def _put(self, tensors: Tensors) -> None:
        """Load these tensors into the network. Those of regions may be missing: a deletion drops them."""
        for name, tensor in _named(self._loop.setting.model).items():
            given = tensors.get(name)
            if given is None and owner_of(name, self._regions) is not None:
                continue
            if given is None or given.shape != tensor.shape or given.dtype != tensor.dtype:
                what = "nothing" if given is None else f"{given.dtype} {tuple(given.shape)}"
                raise RunError(f"{self._run}: {name}: found {what}, expected {tensor.dtype} {tuple(tensor.shape)}")
            tensor.copy_(given)


def finished(run: Path) -> dict[str, Tensor]:
    """Return the tensors that a recorded run ended with, compared with its ledger.

    Raises `RunError` for a run that left no model, and `LedgerError` for one whose ledger ended with another.
    """
    path = run / rundir.MODEL / MODEL
    if not path.exists():
        raise RunError(f"{run}: no finished model: expected {rundir.MODEL}/{MODEL}, which a recorded run leaves")
    ended = read_ended(RunLedger(run)).tensors
    for difference in differences(ModelFile(path).leaves(chunk=ended.chunk), {**ended.parameters, **ended.buffers}):
        raise LedgerError(f"{path}: not the model that the run ended with: {difference}")
    try:
        return load(path.read_bytes())
    except SafetensorError as error:
        raise RunError(f"{path}: damaged: {error}") from error


def some(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` of the rows, evenly spaced.

    >>> some(np.arange(10), 4)
    array([0, 3, 6, 9])
    """
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).round().astype(np.int64)]


def _named(model: nn.Module) -> dict[str, Any]:
    return {name: parameter.detach() for name, parameter in (*model.named_parameters(), *model.named_buffers())}


def _copies(loop: Loop) -> Tensors:
    return {name: tensor.clone() for name, tensor in _named(loop.setting.model).items()}


# --- layers put back ---


def localised(run: Path, target: Target, ended: Tensors, *, initial: Tensors, loop: Loop) -> Tensors:
    """Return the tensors that the run ended with, but with every layer that admitted one of the target's classes as it
    was before the first step in which it did.

    Args:
        run: the directory of the run.
        target: whose layers are put back.
        ended: the tensors that the run ended with.
        initial: those that it began with.
        loop: the run's own, at any step.

    This removes the class's effect from those layers, together with everything that the other classes did there since;
    and the other layers keep what they learned on top of the class. So the result is neither the model without the
    class nor a deletion: it is measured to show how far it falls short. Raises `RunError` where the checkpoint of that
    step is not here.
    """
    ledger = RunLedger(run)
    admitted = first_admitted(ledger)
    firsts = [step for path in target.classes if (step := admitted[path]) is not None]
    if not firsts:
        return ended
    # --- layers that some admission table of the run opened to a class of the target ---
    places = [ledger.class_(path) for path in target.classes]
    trained = {
        ledger.genesis.layers[at]
        for table in tables_in_force(ledger)
        for at in np.flatnonzero(table.weights[places].any(axis=0))
    }
    # --- their tensors, from before its first step ---
    routing = loop.state.resource(Session).routing
    layers = governed_layers(loop.state.model, loop.state.layers, routing.policy.sealed if routing else ())
    back = {name for layer in layers if layer.layer.name in trained for name in (*layer.parameters, *layer.buffers)}
    before = _before(run, ledger.genesis.run, min(firsts), initial)
    return {name: before[name] if name in back else tensor for name, tensor in ended.items()}


def _before(run: Path, run_id: str, step: int, initial: Tensors) -> Tensors:
    """Return the tensors after this many steps, where the run kept a checkpoint."""
    if step == 0:
        return initial
    checkpoint = newest(run, run_id, step)
    if checkpoint is None or checkpoint.step != step:
        raise RunError(f"{run}: the checkpoint of step {step}, before the first one of the target, is not here")
    prefix = "model/"  # of a model's tensors in a checkpoint
    return {name.removeprefix(prefix): tensor for name, tensor in checkpoint.tensors.items() if name.startswith(prefix)}

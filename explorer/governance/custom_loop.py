"""Governed custom loops: the same routing, measurements and ledger in any PyTorch training code.

    import explorer

    with explorer.govern(
        model, optimizer, examples=Split(inputs=x, labels=y),
        documents="governance", policy="half-depth", ledger="runs/mine", steps=1000,
    ) as governed:
        for rows in loader:                                   # numbers of training examples
            governed.step(rows, lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))

A step takes the numbers of the examples in its batch, which are the rows of the signed tag table, and a function that
returns the loss of each of them. The function gets inputs and labels of the examples whose tags were checked, on the
model's device, and is called once for each class with only that class's rows: nothing in the model mixes two classes,
and gradients that a class may not cause are not computed. Augmentation and collation belong into that function.

A parameter trains if the optimiser has it and it requires a gradient when the loop is governed; a layer without such
parameters keeps its buffers too. Every sealed region has an optimiser of its own, with the settings of the caller's
(custom_optimizer.py). Schedules, sampling and evaluation remain the caller's, and so do `model.train()` and
checkpoints. Gradients are clipped by a method, not by a call: `methods=[GradientClipping(threshold=1.0)]`.

Rules that rank the examples of a class by their loss give it a pass for each band of ranks, as in a recipe's run.

Methods act in every part of a step that is not the caller's: surgery without new parameters, plans, choices of
examples, second passes, gradients, averages, records (`CALLERS` lists the other parts). What looks at examples without
training on them, as profiles and scores do, makes its passes by the losses of the step, which have to work in
evaluation mode and without gradients.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from explorer.data.batches import Batch
from explorer.data.dataset import Rows, Split
from explorer.data.streams import torch_stream
from explorer.engine.gradients import Gradients
from explorer.engine.guard import Guard, Written
from explorer.engine.leaves import leaves_met
from explorer.engine.method import Kind, Method, acting, ordered
from explorer.engine.parts import take_parts
from explorer.engine.probing import Inspection
from explorer.engine.state import SHARED, Region, Share, State
from explorer.errors import DivergedError, RecipeError, TrainingError
from explorer.governance.custom_optimizer import Regions, check_apart, check_wrapper, of_regions
from explorer.governance.journal import Journal
from explorer.governance.shared_state import Session
from explorer.provenance.policy import RoutingPolicy
from explorer.provenance.routing_weights import admits
from explorer.provenance.spellings import covers
from explorer.provenance.taxonomy import QUARANTINE

Losses = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""The loss of each example, B, from the model and the examples' inputs and labels, as they were tagged."""

LOSS_ONLY = ("loss",)  # the scores by which a loop can tell the examples of a class apart
EACH = "each"  # a function of losses that are a mean over the rows: the loss of each, for methods that choose rows

IN_LOSSES = "do it in the losses: `explorer methods {}` ends with its function"
CALLERS = {
    "change_examples": ("changes examples", IN_LOSSES),
    "change_batch": ("changes inputs or targets", IN_LOSSES),
    "before_loss": ("changes targets", IN_LOSSES),
    "after_loss": ("changes losses", IN_LOSSES),
    "build_optimizers": ("builds the optimiser", "pass its optimiser to `explorer.govern`: `explorer methods {}`"),
    "learning_rate": ("sets the learning rate", "use a scheduler of the optimiser"),
    "pace": ("sets the sizes of batches", "give each step as many examples as it should have"),
}
"""What a method does by defining a function, which is the caller's part in a custom loop; and what to do instead."""


class Governed:
    """Model and optimiser under signed documents: made by `explorer.govern`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        session: Session,
        examples: Split,
        codes: np.ndarray,
        methods: Sequence[Method],
        steps: int,
        seed: int,
        open_journal: Callable[[State], Journal] | None = None,
        keep_model: Callable[[State], None] = lambda state: None,
    ) -> None:
        """Check the optimiser and the methods, change the model, and divide the optimiser among the regions.

        Args:
            model: changed in place.
            optimizer: of its parameters.
            session: the documents, for the methods.
            examples: the training examples.
            codes: N, the class of each.
            methods: in any order.
            steps: how many there will be.
            seed: of every draw.
            open_journal: opens the ledger once the model's layers are known; None: nothing is recorded.
            keep_model: keeps the trained model, before the ledger records the end.

        Raises `RecipeError` for methods that act on parts of training that the caller does itself, and for an optimiser
        of another model, one that evaluates the loss itself, or one that moves a tensor by the gradients of others.
        """
        # --- checks ---
        _check_optimizer(optimizer, model)
        check_wrapper(optimizer)
        check_apart(optimizer)
        self._methods = ordered(methods)
        for method in self._methods:
            _refuse_callers_part(method)
        if session.routing is not None:
            _refuse_by_example(session.routing.policy)
        # --- state ---
        self._examples, self._codes = examples, codes
        self._versions = _versions(examples)
        self._names = {code: path for path, code in session.codes.items()}
        self._open_journal, self._keep_model = open_journal, keep_model
        self._started = self._over = False
        self.state = State(
            seed=seed,
            total_steps=steps,
            batch_size=0,
            classes=0,
            model=model,
            recompute=self._recompute,
            resources={Session: session, Inspection: _LossInspection(self)},
        )
        # --- the model, then its optimisers: adapters exist only after the surgery ---
        self._operate()
        self._optimizers = self._divided(model, optimizer)
        self._gradients = Gradients(model)
        self.state.resources[Guard] = self._gradients.guard
        stepped = {
            id(parameter)
            for optimizer in self._optimizers.by_region.values()
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        self._trainable = frozenset(
            name for name, p in self._gradients.parameters.items() if p.requires_grad and id(p) in stepped
        )
        self._buffers = self._gradients.guard.buffer_names  # that may change; in layers that do not train, none
        self._gradients.allow(self._trainable)

    @property
    def metrics(self) -> dict[str, float]:
        """Return the metrics of the ledger's last entry, by name: the caller fills them before the end."""
        return self.state.metrics

    @property
    def optimizers(self) -> dict[str, Optimizer]:
        """Return the optimiser of each region by name: the caller's for the shared parameters, and its copies."""
        return dict(self._optimizers.by_region)

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        """Put the model in evaluation mode for the block, with the weights that methods evaluate, such as averaged
        ones; yield it. At the end its modes, parameters and buffers are as before."""
        model, started = self.state.model, self._started
        training = {module: module.training for module in model.modules()}
        if started:
            self._call("before_evaluation")
        try:
            model.eval()
            with self._gradients.guard.untouched():
                yield model
        finally:
            for module, was in training.items():
                module.training = was
            if started:
                self._call("after_evaluation")

    def step(self, examples: Sequence[int] | np.ndarray | Tensor, losses: Losses) -> Tensor:
        """Make one optimiser step on these training examples, by number. Return the loss, summed over the examples that
        took part and divided by the number of all.

        Raises `TrainingError` for numbers that are not those of examples, for losses that are not one an example, for
        parameters that were added or whose `requires_grad` was switched since the loop was governed, and for a model
        that changes a tensor that a class may not change: then the run is over.
        """
        # --- checks, before anything changes ---
        state, numbers, self._losses = self.state, self._numbers(examples), losses
        if self._over:
            raise TrainingError(f"the run stopped in step {state.step + 1} and cannot continue: begin another one")
        if state.step >= state.total_steps:
            raise TrainingError(f"step {state.step + 1} of {state.total_steps}: the run was announced with fewer")
        self._check_parameters()
        try:
            if not self._started:
                self._start(numbers, losses)
            # --- who may change what: a share for each class, in the order of the codes ---
            state.examples, state.batch_size = numbers, len(numbers)
            state.admission, state.scales = {}, {}
            self._call("before_step")
            codes = self._codes[numbers]
            state.shares = tuple(self._share(int(code), np.flatnonzero(codes == code)) for code in np.unique(codes))
            self._call("change_plan")
            # --- a forward and backward pass for each share ---
            self._gradients.clear()
            try:
                taken = [self._take(share) for share in state.shares if share.parameters]
            finally:
                self._gradients.allow(self._trainable)
        except Written:
            self._over = True
            raise
        # --- the update; an error within it leaves half a step, from which nothing can continue ---
        self._over = True
        self._call("before_update")
        self._update()
        self._call("after_update")
        self._call("after_step")
        state.step += 1
        self._over = False
        return sum(taken, torch.zeros(()))

    def _check_parameters(self) -> None:
        """Check that the trainable parameters are those of the start.

        A `requires_grad` that was switched since would be silently overruled by the next share, and a parameter that
        was added since would never train.
        """
        known = {id(parameter) for parameter in self._gradients.parameters.values()}
        for name, parameter in self.state.model.named_parameters():
            if id(parameter) not in known:
                raise TrainingError(
                    f"{name}: found a parameter in step {self.state.step + 1} that the model did not have when the loop"
                    " was governed: expected the same parameters in every step"
                )
        for name, parameter in self._gradients.parameters.items():
            if parameter.requires_grad != (name in self._trainable):
                raise TrainingError(
                    f"{name}: found requires_grad={parameter.requires_grad} before step {self.state.step + 1}; what"
                    " trains is decided when the loop is governed: expected it as it was then (a policy with phases"
                    " can stop training a layer, or start it later)"
                )

    def finish(self) -> None:
        """Write the run's last entries, keep the model and close the ledger. Raises `TrainingError` for a run that
        stopped in the middle of a step: its ledger gets no end."""
        if self._over:
            self.close()
            raise TrainingError(f"the run stopped in step {self.state.step + 1}: its ledger has no end")
        if self._started:
            self._call("after_fit")
            self._keep_model(self.state)  # before the last entry: a ledger that has ended has its model
            self._call("after_run")
        self.close()

    def close(self) -> None:
        """Release the ledger without an end."""
        session = self.state.resource(Session)
        if session.journal is not None:
            session.journal.close()
            session.journal = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()

    def _start(self, numbers: np.ndarray, losses: Losses) -> None:
        """Find the model's layers, by the losses of the first batch, and begin the methods and the ledger."""
        model, state = self.state.model, self.state
        first = self._readable(numbers)
        state.layers = leaves_met(model, lambda: losses(model, *self._rows(first)), rows=len(first))
        if not state.layers:
            raise TrainingError("the losses used no tensor of the model: expected them to come out of model(...)")
        frozen = [leaf for leaf in state.layers if leaf.parameters and self._trainable.isdisjoint(leaf.parameters)]
        self._buffers -= {name for leaf in frozen for name in leaf.buffers}
        state.memory = {method.name: method.memory(state) for method in self._methods}
        if self._open_journal is not None:
            state.resource(Session).journal = self._open_journal(state)
        self._call("before_fit")
        self._started = True

    def _readable(self, numbers: np.ndarray) -> np.ndarray:
        """Return the examples to find the layers with.

        Classes that are denied everywhere are never read. Classes with a sealed region are read only if there are no
        others, so that they have no influence on the order of the shared layers.
        """
        session = self.state.resource(Session)
        readable = [
            code
            for path, code in session.codes.items()
            if path != QUARANTINE and (session.routing is None or admits(session.routing, path))
        ]
        sealed = () if session.routing is None else session.routing.policy.sealed
        shared = [
            session.codes[path]
            for path in session.codes
            if not any(covers(region.branch, path) for region in sealed) and session.codes[path] in readable
        ]
        if session.gone is not None:
            numbers = numbers[~session.gone[numbers]]
        chosen = numbers[np.isin(self._codes[numbers], shared)]
        if not len(chosen):
            chosen = numbers[np.isin(self._codes[numbers], readable)]
        if not len(chosen):
            raise TrainingError(
                "the first step has no example that may train anything: expected one, to meet the model's layers with"
            )
        return chosen

    def _operate(self) -> None:
        """Let the methods change the model. Raises `RecipeError` for one that adds parameters, which the caller's
        optimiser would not train; those of sealed regions get an optimiser of their own."""
        model = self.state.model
        known = {id(parameter) for parameter in model.parameters()}
        for method in acting("change_model", self._methods):
            method.change_model(self.state)
            for name, parameter in model.named_parameters():
                if id(parameter) not in known and name not in self.state.sealed:
                    raise RecipeError(
                        f"{method.name} adds parameters to the model, {name} the first, that the optimiser does not"
                        " have: change the model by its function before the optimiser is made (`explorer methods"
                        f" {method.name}`)"
                    )

    def _divided(self, model: nn.Module, optimizer: Optimizer) -> Regions:
        """Divide the parameters into regions, and return an optimiser for each."""
        members: dict[str, dict[str, nn.Parameter]] = {SHARED: {}}
        for name, parameter in model.named_parameters():
            members.setdefault(self.state.sealed.get(name, SHARED), {})[name] = parameter
        optimizers = of_regions(optimizer, members, own=SHARED)
        self.state.regions = {
            name: Region(name=name, parameters=parameters, optimizers=(optimizers.by_region[name],))
            for name, parameters in sorted(members.items())
        }
        return optimizers

    def _update(self) -> None:
        """Step every region's optimiser, and check that it moves only its own parameters that have a gradient."""
        self._optimizers.follow()
        everything = self._gradients.parameters
        for region in self.state.regions.values():
            moves = {name for name, parameter in region.parameters.items() if parameter.grad is not None}
            with self._gradients.guard.watching(everything.keys() - moves, lambda: "by the optimiser or a hook of it"):
                for optimizer in region.optimizers:
                    optimizer.step()
        self._optimizers.settle()

    def _share(self, code: int, slots: np.ndarray) -> Share:
        name = self._names[code]
        everything = frozenset() if name == QUARANTINE else self._trainable
        return Share(name=name, code=code, slots=slots, parameters=everything, buffers=self._buffers)

    def _take(self, share: Share) -> Tensor:
        """Make one class's passes, add its gradients to those of the classes before it, and return its detached
        loss."""
        state = self.state
        state.share = share
        inputs, labels = self._rows(state.examples[share.slots])
        slots = torch.from_numpy(share.slots).to(inputs.device)
        codes = torch.full_like(slots, share.code)
        state.batch = Batch(inputs=inputs, targets=labels, labels=labels, slots=slots, codes=codes)
        state.parts = () if share.divide is None else share.divide(state)
        self._call("change_batch")
        loss = self._take_gradients(share)
        self._call("change_gradients")
        self._gradients.add(share, state.gradients)
        return loss

    def _take_gradients(self, share: Share) -> Tensor:
        """Write the gradients of the share's rows; return its detached loss."""
        state = self.state
        assert state.batch is not None
        batch, state.gradients = state.batch, {}
        if share.divide is None:
            return self._pass(share, 0, batch)

        def passes(narrow: Share, rows: np.ndarray, first: int) -> list[Tensor]:
            return [self._pass(narrow, first, batch.rows(torch.from_numpy(rows).to(batch.slots.device)))]

        return sum(take_parts(state, share, passes), torch.zeros(()))

    def _pass(self, share: Share, index: int, rows: Batch) -> Tensor:
        """Make one forward and backward pass; return the detached loss."""
        state, model = self.state, self.state.model
        state.rows = rows
        admitted = self._gradients.admit(share)
        self._call("before_forward")
        with self._gradients.guarding(share):
            # Draws by class: dropout of one class is the same whether the others are in the batch or not.
            with torch_stream(_device(model), state.seed, "model", state.step, share.name, index):
                row_losses = self._losses(model, rows.inputs, rows.targets)
            _check_losses(row_losses, share.name, len(rows))
            self._call("after_forward")
            # Divided by the whole batch, not by the class's rows: the losses of all classes then add up to the mean
            # over the batch, in which every example weighs the same.
            loss = row_losses.float().sum() * rows.weight / state.batch_size
            if not torch.isfinite(loss):
                self._over = True  # passes of other classes may have written to buffers already
                raise DivergedError(
                    f"training diverged: the losses of class {share.name} are {loss.item()} in step {state.step + 1}:"
                    " the step was not made; a lower learning rate or a warm-up may help"
                )
            self._call("before_backward")
            self._gradients.take(loss, admitted, state.gradients)
        self._call("after_backward")
        return loss.detach().cpu()

    def _recompute(self) -> None:
        """Make the share's passes again, on identical rows and draws. Buffers stay, as in the engine's loop."""
        assert self.state.share is not None
        with self._gradients.guard.keeping_buffers():
            self._take_gradients(self.state.share)

    def _rows(self, numbers: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of these examples, copied to the model's device. Raises `TrainingError` if the
        examples were written to since their tags were checked."""
        if _versions(self._examples) != self._versions:
            raise TrainingError("the training examples were written to after their tags were checked: expected copies")
        rows, device = torch.from_numpy(numbers), _device(self.state.model)
        return self._examples.inputs[rows].to(device), self._examples.labels[rows].to(device)

    def _numbers(self, examples: Sequence[int] | np.ndarray | Tensor) -> np.ndarray:
        if isinstance(examples, Tensor):
            examples = examples.cpu().numpy()
        try:
            numbers = np.asarray(examples)
        except ValueError as error:
            raise TrainingError(f"examples: {error}; expected numbers of examples") from error
        if numbers.ndim != 1 or not len(numbers) or numbers.dtype.kind not in "iu":
            raise TrainingError(
                f"examples: found {numbers.dtype} of shape {numbers.shape}, expected numbers of examples"
            )
        if numbers.min() < 0 or numbers.max() >= len(self._codes):
            raise TrainingError(
                f"examples: found {numbers.min()} to {numbers.max()}, expected 0 to {len(self._codes) - 1}"
            )
        return numbers.astype(np.int64)

    def _call(self, hook: str) -> None:
        for method in acting(hook, self._methods):
            getattr(method, hook)(self.state)


def _check_optimizer(optimizer: Optimizer, model: nn.Module) -> None:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise RecipeError(f"model: {name} has no shape yet: call the model once on a batch before it is governed")
    known = {id(parameter) for parameter in model.parameters()}
    strange = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in known]
    if strange:
        raise RecipeError(
            f"optimizer: found {len(strange)} parameters that are not the model's, the first of shape"
            f" {tuple(strange[0].shape)}: nothing governs those; expected parameters of {type(model).__name__} only"
        )
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise RecipeError(
            f"optimizer: {type(optimizer).__name__} takes the loss itself, as often as it likes and of all classes at"
            " once; expected one that steps with the gradients it is given"
        )


def _refuse_callers_part(method: Method) -> None:
    """Raise `RecipeError` for a method that acts on a part of training that is the caller's: it would do nothing."""
    for function, (does, instead) in CALLERS.items():
        chooses = function == "change_batch" and method.kind is Kind.SELECT  # it drops rows, and changes none
        if getattr(type(method), function) is not getattr(Method, function) and not chooses:
            raise RecipeError(
                f"{method.name} {does}, which is the caller's part in a custom loop: {instead.format(method.name)}"
            )


def _refuse_by_example(policy: RoutingPolicy) -> None:
    for index, rule in enumerate(policy.rules):
        scores = {} if rule.examples is None else rule.examples.named()
        if other := [name for name, ranks in scores.items() if ranks is not None and name not in LOSS_ONLY]:
            raise RecipeError(
                f"policy {policy.name!r}: rules[{index}].examples: found a rule that ranks examples by {other[0]}, for"
                " which the outputs of the model would be needed; a custom loop gives losses: expected a rule by loss,"
                " or rules for whole classes"
            )


def _check_losses(losses: object, name: str, rows: int, *, trained: bool = True) -> None:
    of = f"the losses of {rows} examples of {name}"
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        what = losses.dtype if isinstance(losses, Tensor) else type(losses).__name__
        raise TrainingError(f"{of}: found {what}, expected a tensor of floating point numbers")
    if losses.shape != (rows,):
        raise TrainingError(
            f"{of}: found shape {tuple(losses.shape)}, expected one number"
            " for each, without a mean: the step divides by the size of the whole batch"
        )
    if trained and not losses.requires_grad:
        raise TrainingError(f"{of} depend on no parameter that the class may train now: expected model(...) with grad")


def _versions(examples: Split) -> tuple[int, int]:
    """Return torch's counters of in-place writes to the examples."""
    return _version(examples.inputs), _version(examples.labels)


def _version(column: Tensor | Rows) -> int:
    return 0 if isinstance(column, Rows) else column._version  # rows of shards are read from verified files each time


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


class _LossInspection(Inspection):
    """The way of a custom loop: its losses run the model, and are the only scores."""

    rows_first = False  # foreign models have examples in any dimension

    def __init__(self, loop: Governed) -> None:
        self.codes, self._loop = loop._codes, loop

    def forward(self, state: State, numbers: np.ndarray) -> object:
        """Run the model by the losses of the step."""
        return self._loop._losses(state.model, *self._loop._rows(numbers))

    def scores(self, state: State, *names: str) -> dict[str, Tensor]:
        """Return the losses. Raises `RecipeError` for an entropy, which would need the model's outputs."""
        assert state.batch is not None and state.share is not None
        if other := [name for name in names if name not in LOSS_ONLY]:
            raise RecipeError(
                f"found the score {other[0]!r}, for which the outputs of the model would be needed: examples of a"
                " custom loop have no score but their loss; expected 'loss'"
            )
        losses = getattr(self._loop._losses, EACH, self._loop._losses)
        scores = losses(state.model, state.batch.inputs, state.batch.targets)
        _check_losses(scores, state.share.name, len(state.batch), trained=False)
        if len(scores) > 1 and scores.stride() == (0,):
            raise TrainingError(
                f"the losses of {len(scores)} examples of {state.share.name}: found one number for all of them, by"
                " which none can be chosen: expected the loss of each, without a mean"
            )
        return {"loss": scores}

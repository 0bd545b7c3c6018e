"""The first condition: every gradient was routable by depth and provenance, as the signed policy requires.

The policy is evaluated again for every step:

- the table of weights that the step names is the one that follows from the policy;
- in the numbers of the step no class has a larger weight in a layer than the table gives it, and where its weight is 0
  its numbers are 0;
- a layer that the step updated was admitted to a class with examples in the step; a layer that it did not update took
  no gradient.

Three further checks complete the condition:

- by example: where the policy tells the examples of a class apart, the step has a decision with their scores and passes
  (`explorer.entries.slots`). Every example is in a band by its rank among these scores; no pass that it was in took a
  gradient of a layer that its band is denied; the class has weight in a layer only if some pass took its gradients.
  Only a replay shows that the scores are those of the model.
- unmoved: layers that were not updated did not move. A `state` entry lists the leaf of every tensor, as the genesis
  does for the state before the first step (runlog/tensors.py). Comparing two consecutive states gives the tensors that
  moved in between, optimiser state included; each has to be of a layer that some step of the segment updated. The lists
  have to lead to the roots of their states, so that they cannot omit a tensor.
- confidential: blobs of a confidential class, and in a run with such a class also blobs of numbers over several
  classes, have to be sealed. No other blob may be: sealing without a policy is withholding. The spool has no row of a
  confidential class, and no number that several classes made. This check needs no keys.

Shapes: N examples, P passes, L layers, B bands.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer import rundir
from explorer.audit.conditions import Judgement
from explorer.audit.judge import Audited, Judge
from explorer.entries.heads import read_head
from explorer.entries.kinds import Decision, State, Step
from explorer.entries.numbers import Floats, decode_joint, split_joint
from explorer.entries.slots import RULE, Chosen, decode_chosen
from explorer.errors import ExplorerError, LedgerError
from explorer.ledger.storage import blob_path
from explorer.provenance.findings import void
from explorer.provenance.regions import placed as bands_of
from explorer.provenance.regions import recorded_layers, scores_of
from explorer.provenance.routing_weights import Admission, Admissions, Banded, Routing, confidential, phases
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment, claims_seal, class_of
from explorer.runlog.segments import SegmentNumbers, having
from explorer.runlog.tensors import (
    BLOB,
    MAX_BYTES,
    OWNERS,
    Tensors,
    check_roots,
    layer_of,
    moved,
    parameter_of,
    parse_tensors,
    read_owners,
)
from explorer.store.spool_reader import CONTRIBUTIONS, ENTROPY, select

# --- by example ---

MAX_CHOSEN = 2**24  # bytes of one decision


class Fault(NamedTuple):
    """A contradiction with the policy, and its layer; None: it is not about one layer."""

    words: str
    layer: int | None = None


def faults_of(chosen: Chosen, banded: Banded, *, most: int, trained: NDArray[np.bool_]) -> Iterator[Fault]:
    """Yield contradictions between the passes of a class's examples and the weights in force.

    `most` is the number of the class's slots in the step; `trained`, L, the layers in which the class has weight in the
    numbers of the step.
    """
    names, count = scores_of(banded.bands), len(chosen.taken)
    if len(chosen.scores) != len(names):
        yield Fault(f"{len(chosen.scores)} scores are recorded; expected {', '.join(names)}")
        return
    if not 0 < count <= most:
        yield Fault(f"{count} examples are recorded; expected 1 to {most}, its slots")
        return
    # The band of every example decides the layers that it may train; its pass decides those that it did.
    where_N = bands_of(banded.bands, dict(zip(names, chosen.scores, strict=True)))
    may_NL = banded.weights[where_N] > 0
    # Rows of zeros up to 255: the number of "no pass" (slots.NONE) then indexes a pass that trained nothing.
    none_PL = np.zeros((256 - len(chosen.passes), chosen.passes.shape[1]), np.bool_)
    reached_NL = np.concatenate([chosen.passes, none_PL])[chosen.taken]
    for layer in np.flatnonzero((reached_NL & ~may_NL).any(0)).tolist():
        wrong = np.flatnonzero(reached_NL[:, layer] & ~may_NL[:, layer])
        band = banded.bands[where_N[wrong[0]]].words
        yield Fault(f"{len(wrong)} examples trained it that the policy denies it, the first of {band}", layer)
    took_L = reached_NL.any(0)
    for layer in np.flatnonzero(trained & ~took_L).tolist():
        yield Fault("it has weight there, and no pass took its gradients", layer)


# --- routing, step by step ---

_WEIGHT, _NORM = range(2)


class Routable(Judge):
    """Judge of routing, with the three checks that complete it."""

    name = "routable"
    says = "every gradient was routable by depth and provenance: what a class may not train, it did not"

    def __init__(self, audited: Audited, judgement: Judgement) -> None:
        super().__init__(audited, judgement)
        run, rules = audited.run, audited.rules
        if rules is not None:
            with judgement.reading(0):
                check_confidential(run, rules.routing, judgement)
        self._total = audited.total or run.steps
        self._tables: Admissions | None = None
        if audited.total is None:
            judgement.contradict(run.outline.end, "the run did not finish, and how long it was to be is on no record")
        elif rules is not None:
            self._compile(rules.routing)
        self._unmoved = Unmoved(run, judgement)

    def _compile(self, routing: Routing) -> None:
        run = self._run
        try:
            layers = recorded_layers(run.genesis.layers, run.genesis.other_names)
        except ExplorerError as error:
            self._judgement.contradict(0, str(error), found=run.genesis.layers)
            return
        for fault in void(routing, layers):
            self._judgement.contradict(0, f"the policy does not fit the model: {fault}")
        self._known = {str(phase): phase.conditions for phase in phases(routing.policy)}
        self._tables = Admissions(routing, classes=run.genesis.classes, layers=layers)
        self._activations = dict[str, list[Placed[Decision]]]()  # by the condition that they switch on
        self._chosen = dict[tuple[int, str], list[Placed[Decision]]]()  # step and class -> what was chosen by example
        for placed in run.read(run.outline.decisions, Decision):
            if placed.entry.action == "activation":
                self._activation(placed)
            elif placed.entry.action == "selection" and placed.entry.rule == RULE:
                for path in placed.entry.subjects:
                    self._chosen.setdefault((placed.entry.step, path), []).append(placed)

    def _activation(self, placed: Placed[Decision]) -> None:
        """Check that an activation names its condition, and the classes whose numbers decided."""
        if placed.entry.condition is None or not placed.entry.evidence:
            self._judgement.contradict(placed.index, "an activation that names no condition, or no numbers behind it")
            return
        if not any(placed.entry.condition in on for on in self._known.values()):
            words = f"an activation of {placed.entry.condition}, a condition that the policy does not have"
            self._judgement.contradict(placed.index, words)
            return
        self._activations.setdefault(placed.entry.condition, []).append(placed)

    def _in_force(self, decisions: Sequence[Placed[Decision]], step: Placed[Step]) -> Placed[Decision] | None:
        """Return the last of these decisions that was taken before the step, and not undone before it."""
        outline = self._run.outline
        earlier = (decision for decision in reversed(decisions) if decision.entry.step <= step.entry.step)
        return next((decision for decision in earlier if outline.stands_at(decision.index, step.index)), None)

    def segment(self, segment: Segment, numbers: SegmentNumbers) -> None:
        # A segment whose routing cannot be read may still have states to compare.
        with self._judgement.reading(segment.state.index):
            self._steps(segment, numbers)
        self._unmoved.segment(segment, numbers.steps)

    def _steps(self, segment: Segment, numbers: SegmentNumbers) -> None:
        if self._tables is None:
            return
        admissions = {placed.entry.step: self._table(placed, segment) for placed in numbers.steps}
        weights = {step: np.zeros((len(self._run.genesis.classes), numbers.layers), np.float32) for step in admissions}
        for index, path in enumerate(self._run.genesis.classes):
            with self._judgement.looking():
                rows = numbers.of_class(index)
                for placed in numbers.steps:
                    step = placed.entry.step
                    if step in rows:
                        weights[step][index] = rows[step][:, _WEIGHT]
                        self._class(placed, path, rows[step], admissions[step], index)
                        self._examples(placed, path, rows[step], admissions[step], index)
        self._missing(numbers)
        self._joint(numbers, weights)
        for placed in numbers.steps:
            step = placed.entry.step
            self._updated(placed, weights[step], admissions[step], missing=bool(numbers.missing))

    def _table(self, placed: Placed[Step], segment: Segment) -> Admission | None:
        """Return the table that follows from the policy for a step, and check that the step names it."""
        assert self._tables is not None
        step = placed.entry
        self._judgement.count("steps")
        if step.phase not in self._known:
            self._judgement.contradict(placed.index, "a phase that the policy does not have", found=step.phase)
            return None
        # A phase names the conditions that are on. Each needs a decision in force that switched it on.
        on = self._known[step.phase]
        for condition in sorted(on):
            if self._in_force(self._activations.get(condition, []), placed) is None:
                self._judgement.contradict(placed.index, f"{condition}: on, and no decision has switched it on")
        try:
            expected = self._tables.at(step.step / self._total, on)
        except ExplorerError as error:
            self._judgement.contradict(placed.index, str(error))
            return None
        if step.phase != str(expected.phase):
            self._judgement.contradict(placed.index, "another phase", expected=expected.phase, found=step.phase)
        if step.weights != expected.digest:
            self._judgement.contradict(
                placed.index,
                f"step {step.step}: the weights in force are not those of the signed policy",
                expected=expected.digest,
                found=step.weights,
            )
        return expected

    def _class(self, placed: Placed[Step], path: str, rows: Floats, admission: Admission | None, index: int) -> None:
        """Judge one class's numbers in one step, L 2: weight, norm."""
        step, layers = placed.entry.step, self._run.genesis.layers
        self._judgement.count("cells", len(layers))
        if admission is not None:
            admitted = admission.weights[index].astype(np.float32)
            weights = rows[:, _WEIGHT]
            # Weight 0 is always allowed: a method may take a class out of a layer for a time.
            for at in np.flatnonzero((weights != 0) & (weights != admitted)):
                which = "less" if weights[at] < admitted[at] else "more"
                self._judgement.contradict(
                    placed.index,
                    f"step {step}: {path} trained {layers[at]} with {which} weight than the policy gives it",
                    expected=f"{admitted[at]:g}",
                    found=f"{weights[at]:g}",
                )
        denied = rows[:, _WEIGHT] == 0
        for at in np.flatnonzero(denied & (rows[:, _NORM] != 0)):
            self._judgement.contradict(
                placed.index,
                f"step {step}: {path} is denied {layers[at]}, and has numbers there",
                expected="exactly 0",
                found=f"norm {rows[at, _NORM]:g}",
            )

    def _examples(self, placed: Placed[Step], path: str, rows: Floats, admission: Admission | None, index: int) -> None:
        """Judge the examples of one class in one step, where the policy tells them apart."""
        if admission is None:
            return
        # Bands in the policy and a decision in the ledger go together; a step that trained nothing needs neither.
        banded = admission.by_example.get(path)
        decision = self._in_force(self._chosen.get((placed.entry.step, path), []), placed)
        words = f"step {placed.entry.step}: {path}: which of its examples trained what"
        if banded is None or decision is None:
            if banded is not None and (rows[:, _WEIGHT] != 0).any():
                self._judgement.contradict(placed.index, f"{words} is not on record, and depends on the example")
            elif decision is not None:
                self._judgement.contradict(decision.index, f"{words} was chosen, and the policy makes no difference")
            return
        content = self._run.find(decision, f"evidence/{path}", max_bytes=MAX_CHOSEN)
        if isinstance(content, Missing):
            self._withheld.tell(self._judgement, f"evidence/{path}", content)
            return
        chosen = decode_chosen(content, layers=len(self._run.genesis.layers))
        self._judgement.count("examples", len(chosen.taken))
        for fault in faults_of(chosen, banded, most=placed.entry.examples[index], trained=rows[:, _WEIGHT] != 0):
            layer = "" if fault.layer is None else f" in {self._run.genesis.layers[fault.layer]}"
            self._judgement.contradict(decision.index, f"{words}{layer}: {fault.words}")

    def _missing(self, numbers: SegmentNumbers) -> None:
        """Report missing numbers of a segment. A class whose numbers are gone may have trained anything."""
        for name, why in numbers.missing.items():
            self._withheld.tell(self._judgement, name, why)
        for placed in numbers.steps:
            if placed.entry.joint is None:
                self._judgement.untold(f"step {placed.entry.step}: nothing was measured")

    def _joint(self, numbers: SegmentNumbers, weights: dict[int, Floats]) -> None:
        """Check that inner products with the gradient of a denied class are 0, those of the update included."""
        if numbers.joint is None or numbers.missing:
            return  # `_missing` has reported it
        steps = [placed for placed in numbers.steps if placed.entry.joint is not None]
        present = [having(placed.entry) for placed in steps]
        with self._judgement.looking():
            parts = split_joint(numbers.joint, layers=numbers.layers, counts=[len(classes) for classes in present])
            for placed, classes, part in zip(steps, present, parts, strict=True):
                # Of k classes the products are in the order of the pairs above the diagonal.
                joint = decode_joint(part, layers=numbers.layers, classes=len(classes))
                denied = weights[placed.entry.step][classes] == 0
                rows, columns = np.triu_indices(len(classes), 1)
                wrong = joint.products.astype(bool) & (denied[rows] | denied[columns]).T
                for at in np.flatnonzero(wrong.any(axis=1) | (joint.dots.astype(bool) & denied.T).any(axis=1)):
                    self._judgement.contradict(
                        placed.index,
                        f"step {placed.entry.step}: inner products of a class that is denied "
                        f"{self._run.genesis.layers[at]}",
                        expected="exactly 0",
                    )

    def _updated(self, placed: Placed[Step], weights: Floats, admission: Admission | None, *, missing: bool) -> None:
        """Compare the layers that a step says it updated with those that its classes trained."""
        step = placed.entry
        if admission is None:
            return
        if step.joint is not None and missing:
            return  # `_missing` has reported it
        # A step without numbers is judged by admission, which allows more: then only an update that no class could
        # have caused is a contradiction.
        measured = step.joint is not None
        allowed = weights if measured else admission.weights[[count > 0 for count in step.examples]]
        trained = [bool((column > 0).any()) for column in allowed.T]
        for layer, flag, took in zip(self._run.genesis.layers, step.updated, trained, strict=True):
            if flag == "1" and not took:
                self._judgement.contradict(
                    placed.index, f"step {step.step}: {layer} was updated, and is denied to all classes that were there"
                )
            elif flag == "0" and took and measured:
                self._judgement.contradict(
                    placed.index, f"step {step.step}: {layer} took a gradient, and says that it was not updated"
                )


# --- unmoved ---


class Unmoved:
    """Comparison of states, a segment at a time."""

    def __init__(self, run: RunLedger, judgement: Judgement) -> None:
        self._run, self._judgement = run, judgement
        self._before: Tensors | None = None
        self._listed = BLOB in run.genesis.blobs  # then every state has a list
        self._layers = frozenset(run.genesis.layers)
        # A run that continues another one's state has no list of that state, so its first segment is not compared.
        if run.begins == 0 and self._listed:
            with judgement.reading(0):
                self._before = self._first()

        self._owners: dict[str, str] = {}
        if OWNERS in run.genesis.blobs:
            with judgement.reading(0):
                self._owners = read_owners(self._run)
                owners = ", ".join(f"{name} of {layer}" for name, layer in sorted(self._owners.items()))
                # Only a note: the names of shared tensors do not tell their layer, so no other statement confirms it.
                judgement.note(f"shared tensors are taken to be of the layers that the genesis names: {owners:.300}")

    def segment(self, segment: Segment, steps: Sequence[Placed[Step]]) -> None:
        """Compare the states around these steps."""
        # The state before is the one that the previous segment ended with; a superseded segment names its own.
        before, self._before = self._before, None
        with self._judgement.reading(segment.state.index):
            after = self._before = self._tensors(segment.state)
            if segment.past is not None:
                before = self._at(segment.past.before)
            if before is None or after is None:
                return
            self._judgement.count("states compared")
            flags = zip(*(placed.entry.updated for placed in steps), strict=True)
            updated = {name for name, column in zip(self._run.genesis.layers, flags, strict=True) if "1" in column}
            # One tensor for each layer is enough to report. A tensor without a layer is a method's own memory, which
            # may change; a parameter or buffer without a layer may not.
            strays: dict[str, str] = {}
            for name in sorted(moved(before, after)):
                layer = self._owners.get(parameter_of(name)) or layer_of(name, self._layers)
                if layer is not None and layer not in updated:
                    strays.setdefault(layer, name)
                elif layer is None and (name in after.parameters or name in after.buffers):
                    strays.setdefault(f"a layer that {name} is of", name)
            for layer, name in strays.items():
                self._judgement.contradict(
                    segment.state.index,
                    f"steps {segment.first} to {segment.stop - 1}: none of them updated {layer}, and {name} moved",
                    expected=_leaf(before, name),
                    found=_leaf(after, name),
                )

    def _at(self, state: int | None) -> Tensors | None:
        """Return the list of the state with this entry; without an entry, of the state that the ledger begins with."""
        if state is not None:
            return self._tensors(next(self._run.read([state], State)))
        return self._first() if self._run.begins == 0 and self._listed else None

    def _tensors(self, state: Placed[State]) -> Tensors | None:
        """Return the list of a state. Raises `LedgerError` for a list that does not lead to the state's roots."""
        content = self._run.blob(state, BLOB, max_bytes=MAX_BYTES)
        if content is None and not self._listed:
            # Part of the condition: without lists, a layer may have moved although no step says that it was updated.
            self._judgement.untold("whether layers that were not updated stayed: the run's states list no tensors")
            return None
        if content is None:
            raise LedgerError("a state without its list of tensors: which tensors moved cannot be checked")
        where = f"entry {state.index}: {BLOB}"
        tensors = parse_tensors(content, where=where)
        check_roots(tensors, state.entry.state, where=where)
        return tensors

    def _first(self) -> Tensors | None:
        """Return the list of the genesis. Raises `LedgerError` for a list of other parameters than the initial ones."""
        (genesis,) = self._run.read([0], type(self._run.genesis))
        content = self._run.blob(genesis, BLOB, max_bytes=MAX_BYTES)
        if content is None:
            raise LedgerError("the list of the tensors before step 0 is missing: which tensors moved cannot be checked")
        tensors = parse_tensors(content, where=f"entry 0: {BLOB}")
        if tensors.roots[0] != genesis.entry.initial:
            words = f"entry 0: {BLOB}: the parameters lead to the root {tensors.roots[0]}"
            raise LedgerError(f"{words}; recorded is {genesis.entry.initial}")
        return tensors


def _leaf(tensors: Tensors, name: str) -> str:
    leaves = dict(chain(tensors.parameters.items(), tensors.buffers.items(), tensors.optimizer.items()))
    return leaves.get(name, "no such tensor")


# --- confidential ---

_TERMS = ("share_num", "share_den", "update_num", "update_sq", "exact_num")  # numbers over several classes


def check_confidential(run: RunLedger, routing: Routing, judgement: Judgement) -> None:
    """Check that exactly the confidential blobs are sealed, and that the spool has none of their numbers."""
    # Numbers over several classes are sealed with the first confidential class: it could be computed from them.
    classes = confidential(routing, run.genesis.classes)
    sealed = classes | {JOINT} if classes else frozenset[str]()
    # All entries of the ledger, superseded ones included: their blobs are as readable as any.
    for index, leaf in enumerate(run.ledger.entries()):
        with judgement.looking():
            for name, blob in read_head(leaf).blobs.items():
                of = class_of(name)
                if of is None or not (run.ledger.path / blob_path(blob.sha256)).exists():
                    continue
                is_sealed = claims_seal(run.ledger.path, blob.sha256)
                if of not in sealed and is_sealed:
                    judgement.contradict(index, f"{name}: sealed, and the policy does not call it confidential")
                elif of in sealed:
                    judgement.count("sealed blobs")
                    if not is_sealed:
                        judgement.contradict(index, f"{name}: in the clear, and the policy calls it confidential")
    if not classes:
        return
    # The spool is not sealed at all, so it must not have these numbers.
    for directory, columns in ((rundir.CONTRIBUTIONS, CONTRIBUTIONS), (rundir.ENTROPY, ENTROPY)):
        with judgement.reading():
            counted = "+".join(f"count({name})" for name in _TERMS if name in columns) or "0"
            rows = select(run.run / directory, columns, f"SELECT class, {counted} FROM spool GROUP BY class ORDER BY 1")
            for path, terms in rows:
                if path in sealed:
                    judgement.contradict(None, f"{directory}: numbers of {path} in the clear, which are confidential")
                elif terms:
                    judgement.contradict(None, f"{directory}: numbers of {path} that confidential classes are part of")

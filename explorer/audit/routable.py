"""The first condition: every gradient was routable by depth and provenance, as the signed policy has it.

The policy is asked again for every step. The table of weights that the step names has to be the one that follows from
it; in the numbers of the step no class has a larger weight in a layer than that, and where a class has weight 0 its
numbers are 0; a layer that says it was updated was admitted to somebody who was there, and one that says it was not
took no gradient. Where the policy tells the examples of a class apart, the step has a decision with their scores and
passes: every example is in a band by its rank among these scores, no pass that it was in took a gradient of a layer
that its band is denied, and the class has weight in a layer only if some pass took its gradients. Whose numbers the
policy calls confidential, of them nothing is in the clear (confidential.py).
"""

from collections.abc import Sequence

import numpy as np

from explorer.audit.by_example import MAX_CHOSEN, faults_of
from explorer.audit.conditions import Judgement
from explorer.audit.withheld import Withheld
from explorer.entries.chosen import RULE, decode_chosen
from explorer.entries.numbers import Floats, decode_joint, split_joint
from explorer.entries.run import Decision, Step
from explorer.errors import ExplorerError
from explorer.provenance.admission import Admission, Admissions
from explorer.provenance.findings import void
from explorer.provenance.regions import recorded_layers
from explorer.provenance.routing import Routing, phases
from explorer.runlog.documents import Rules
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers

NAME = "routable"
SAYS = "every gradient was routable by depth and provenance: what a class may not train, it did not"
_WEIGHT, _NORM = range(2)


class Routable:
    """Judges the condition, a segment at a time."""

    def __init__(
        self, run: RunLedger, rules: Rules | None, judgement: Judgement, *, total: int | None, withheld: Withheld
    ) -> None:
        """`rules`: None where they are not believed, which whoever found it has said. `total`: the number of steps
        that progress is measured against; None: nobody knows."""
        self._judgement, self._run, self._total = judgement, run, total or run.steps
        self._withheld = withheld
        self._tables: Admissions | None = None
        if total is None:
            judgement.contradict(run.outline.end, "the run did not finish, and how long it was to be is on no record")
        elif rules is not None:
            self._compile(rules.routing)

    def _compile(self, routing: Routing) -> None:
        run = self._run
        try:
            layers = recorded_layers(run.genesis.layers, run.genesis.other_names)
        except ExplorerError as error:
            self._judgement.contradict(0, str(error), found=run.genesis.layers)
            return
        for each in void(routing, layers):
            self._judgement.contradict(0, f"the policy does not fit the model: {each}")
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
        """A decision that switches a condition on says which, and by whose numbers."""
        if placed.entry.condition is None or not placed.entry.evidence:
            self._judgement.contradict(placed.index, "an activation that names no condition, or no numbers behind it")
            return
        if not any(placed.entry.condition in on for on in self._known.values()):
            words = f"an activation of {placed.entry.condition}, a condition that the policy does not have"
            self._judgement.contradict(placed.index, words)
            return
        self._activations.setdefault(placed.entry.condition, []).append(placed)

    def _standing(self, decisions: Sequence[Placed[Decision]], step: Placed[Step]) -> Placed[Decision] | None:
        """The last of these decisions that was taken before the step, and not undone before it."""
        outline = self._run.outline
        standing = (each for each in reversed(decisions) if each.entry.step <= step.entry.step)
        return next((each for each in standing if outline.stands_at(each.index, step.index)), None)

    def segment(self, segment: Segment, numbers: SegmentNumbers) -> None:
        """Judge the steps of a segment."""
        if self._tables is None:
            return
        admissions = {placed.entry.step: self._table(placed, segment) for placed in numbers.steps}
        weights = {step: np.zeros((len(self._run.genesis.classes), numbers.layers), np.float32) for step in admissions}
        for index, path in enumerate(self._run.genesis.classes):
            with self._judgement.looking():
                found = numbers.of_class(index)
                for placed in numbers.steps:
                    step = placed.entry.step
                    if step in found:
                        weights[step][index] = found[step][:, _WEIGHT]
                        self._class(placed, path, found[step], admissions[step], index)
                        self._examples(placed, path, found[step], admissions[step], index)
        self._missing(numbers)
        self._joint(numbers, weights)
        for placed in numbers.steps:
            step = placed.entry.step
            self._updated(placed, weights[step], admissions[step], missing=bool(numbers.missing))

    def _table(self, placed: Placed[Step], segment: Segment) -> Admission | None:
        """The table that the policy gives for a step, which the step has to name."""
        assert self._tables is not None
        step = placed.entry
        self._judgement.count("steps")
        if step.phase not in self._known:
            self._judgement.contradict(placed.index, "a phase that the policy does not have", found=step.phase)
            return None
        on = self._known[step.phase]
        for condition in sorted(on):
            if self._standing(self._activations.get(condition, []), placed) is None:
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

    def _class(self, placed: Placed[Step], path: str, found: Floats, admission: Admission | None, index: int) -> None:
        """One class's numbers in one step, L columns."""
        step, layers = placed.entry.step, self._run.genesis.layers
        self._judgement.count("cells", len(layers))
        if admission is not None:
            admitted = admission.weights[index].astype(np.float32)
            weights = found[:, _WEIGHT]
            for at in np.flatnonzero((weights != 0) & (weights != admitted)):  # 0: a method may take it out, for a time
                which = "less" if weights[at] < admitted[at] else "more"
                self._judgement.contradict(
                    placed.index,
                    f"step {step}: {path} trained {layers[at]} with {which} weight than the policy gives it",
                    expected=f"{admitted[at]:g}",
                    found=f"{weights[at]:g}",
                )
        denied = found[:, _WEIGHT] == 0
        for at in np.flatnonzero(denied & (found[:, _NORM] != 0)):
            self._judgement.contradict(
                placed.index,
                f"step {step}: {path} is denied {layers[at]}, and has numbers there",
                expected="exactly 0",
                found=f"norm {found[at, _NORM]:g}",
            )

    def _examples(
        self, placed: Placed[Step], path: str, found: Floats, admission: Admission | None, index: int
    ) -> None:
        """The examples of one class in one step, where the policy tells them apart."""
        if admission is None:
            return
        banded = admission.by_example.get(path)
        decision = self._standing(self._chosen.get((placed.entry.step, path), []), placed)
        words = f"step {placed.entry.step}: {path}: which of its examples trained what"
        if banded is None or decision is None:
            if banded is not None and (found[:, _WEIGHT] != 0).any():
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
        for fault in faults_of(chosen, banded, most=placed.entry.examples[index], trained=found[:, _WEIGHT] != 0):
            layer = "" if fault.layer is None else f" in {self._run.genesis.layers[fault.layer]}"
            self._judgement.contradict(decision.index, f"{words}{layer}: {fault.words}")

    def _missing(self, numbers: SegmentNumbers) -> None:
        """What of a segment's numbers cannot be looked at. A class whose numbers are gone may have trained anything."""
        for name, why in numbers.missing.items():
            self._withheld.tell(self._judgement, name, why)
        for placed in numbers.steps:
            if placed.entry.joint is None:
                self._judgement.untold(f"step {placed.entry.step}: nothing was measured")

    def _joint(self, numbers: SegmentNumbers, weights: dict[int, Floats]) -> None:
        """Inner products with the gradient of a class that was denied are 0, the update's too."""
        if numbers.joint is None or numbers.missing:
            return  # `_missing` has said so
        steps = [placed for placed in numbers.steps if placed.entry.joint is not None]
        having = [[i for i, each in enumerate(placed.entry.numbers) if each is not None] for placed in steps]
        with self._judgement.looking():
            parts = split_joint(numbers.joint, layers=numbers.layers, counts=[len(each) for each in having])
            for placed, classes, part in zip(steps, having, parts, strict=True):
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
        """Layers say whether they were updated."""
        step = placed.entry
        if admission is None:
            return
        if step.joint is not None and missing:
            return  # `_missing` has said so
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

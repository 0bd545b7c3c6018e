"""The numbers of a run as rows, read with some of its keys and held against the commitments of its entries."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explorer.entries import profiles as profile_numbers
from explorer.entries.kinds import Decision, Profile, Step
from explorer.entries.numbers import StepNumbers, share_terms
from explorer.errors import LedgerError
from explorer.provenance.commitments import commit
from explorer.provenance.encryption import salt_of
from explorer.provenance.regions import ADAPTER
from explorer.runlog.run_keys import JOINT
from explorer.runlog.run_ledger import Missing, Placed, RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers, having, open_commitments, read_numbers

MAX_BYTES = 2**24
NO_KEY = "no key: recorded after the keys were wrapped, or its secret was destroyed"

Cell = int | float | str | None


@dataclass(kw_only=True, slots=True)
class Contents:
    """A reading under way. Every content of which a row is shown was checked; what cannot be read is noted.

    Raises `LedgerError` for content that is damaged or not what its entry committed to.
    """

    run: RunLedger  # with the reader's keys
    classes: tuple[str, ...]  # that are asked for; * is for numbers over several
    checked: int = 0
    unread: list[str] = field(default_factory=list)

    def steps(self, steps: range) -> Iterator[tuple[Cell, ...]]:
        """Rows of steps; those of a class have what needs other classes only where * is asked for too."""
        done = steps.start
        for segment in self.run.segments(steps):
            found = read_numbers(self.run, segment)
            readable = [path for path in self.classes if self._readable(path, segment, found)]
            for index, path, expected, content in open_commitments(found, self.run.keys):
                self._agree(index, path, expected, content)
            joint = {placed.index: numbers for placed, numbers in found.by_step()} if JOINT in readable else {}
            own = {path: found.of_class(self.run.class_(path)) for path in readable if path != JOINT}
            for placed in found.steps:
                if placed.entry.step in steps:
                    yield from self._of_step(placed, own, joint.get(placed.index))
            done = segment.stop
        if done < steps.stop:
            self.unread.append(f"steps {done} to {steps.stop - 1}: their numbers are in no state entry yet")

    def profiles(self, steps: range) -> Iterator[tuple[Cell, ...]]:
        """Rows of profiles. Adapters have none."""
        layers = [name for name in self.run.genesis.layers if ADAPTER not in name]
        for placed in self.run.read(self.run.outline.profiles, Profile):
            for path in self.classes if self._within(placed.entry.step, steps) else ():
                committed = placed.entry.joint if path == JOINT else placed.entry.classes.get(path)
                content = self._content(placed, "joint" if path == JOINT else f"numbers/{path}", path, committed)
                if content is None:
                    continue
                decode = profile_numbers.decode_joint if path == JOINT else profile_numbers.decode_class
                examples, numbers = decode(content, layers=len(layers))
                shown = profile_numbers.shown_joint if path == JOINT else profile_numbers.shown_class
                for layer, row in zip(layers, numbers, strict=True):
                    yield (placed.index, placed.entry.step, layer, path, examples, *shown(row).values())

    def decisions(self, steps: range) -> Iterator[tuple[Cell, ...]]:
        """Rows of decisions: the evidence as it was committed to."""
        standing = [index for index in self.run.outline.decisions if index not in self.run.outline.superseded]
        for placed in self.run.read(standing, Decision):
            for path in self.classes if self._within(placed.entry.step, steps) else ():
                content = self._content(placed, f"evidence/{path}", path, placed.entry.evidence.get(path))
                if content is not None:
                    layers = ", ".join(placed.entry.layers) or None
                    says = placed.entry.action, placed.entry.rule, content.hex()
                    yield (placed.index, placed.entry.step, layers, path, *says)

    def _of_step(
        self, placed: Placed[Step], own: dict[str, dict[int, Any]], numbers: StepNumbers | None
    ) -> Iterator[tuple[Cell, ...]]:
        shares, whole = (None, None) if numbers is None else share_terms(numbers.gram)
        step, layers = placed.entry.step, self.run.genesis.layers
        for path, rows in own.items():
            place = numbers.classes.index(self.run.class_(path)) if numbers and step in rows else None
            for at, row in enumerate(rows.get(step, np.empty((0, 2))).tolist()):
                joint: tuple[Cell, ...] = (None, None, None, None, None)
                if numbers is not None and shares is not None and place is not None:
                    exact = None if numbers.exact is None else float(numbers.exact[place, at])
                    joint = (float(shares[place, at]), None, float(numbers.dots[place, at]), exact, None)
                yield (placed.index, step, layers[at], path, *row, *joint)
        if numbers is not None and whole is not None:
            for at, layer in enumerate(layers):
                totals = None, float(whole[at]), None, None, float(numbers.updates[at])
                yield (placed.index, step, layer, JOINT, None, None, *totals)

    def _readable(self, path: str, segment: Segment, found: SegmentNumbers) -> bool:
        """Whether a class's numbers of a segment can be read; where it has some and they cannot, that is noted."""
        if path == JOINT:
            any_, missing = any(each.entry.joint for each in found.steps), dict(found.missing)
        else:
            index, name = self.run.class_(path), f"numbers/{path}"
            any_ = any(index in having(each.entry) for each in found.steps)
            missing = {name: found.missing[name]} if name in found.missing else {}
        if not any_:
            return False
        why = NO_KEY if self.run.keys.of(path, Step.KIND, segment.first) is None else next(iter(missing.values()), None)
        if why is not None:
            self.unread.append(f"{path}, steps {segment.first} to {segment.stop - 1}: {why}")
        return why is None

    def _content(self, placed: Placed[Any], name: str, path: str, committed: str | None) -> bytes | None:
        """Content that an entry commits to; None, and noted, where it cannot be read."""
        if committed is None:
            return None
        kind, first = self.run.stretch(placed)
        key, found = self.run.keys.of(path, kind, first), self.run.find(placed, name, max_bytes=MAX_BYTES)
        if key is None or isinstance(found, Missing):
            why = NO_KEY if key is None else found
            self.unread.append(f"{path}, {kind} at step {placed.entry.step}: {why}")
            return None
        self._agree(placed.index, path, committed, commit(salt_of(key, placed.entry.step), found).hex())
        return found

    def _agree(self, index: int, path: str, expected: str, found: str) -> None:
        if found != expected:
            raise LedgerError(
                f"entry {index}: {path}: not the numbers that were committed to, or not their key: found {found}, "
                f"expected {expected}"
            )
        self.checked += 1

    def _within(self, step: int, steps: range) -> bool:
        """What was recorded after the last step of the run belongs to it."""
        return step in steps or step == steps.stop == self.run.range_of(None, None).stop

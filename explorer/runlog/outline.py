"""Where everything is in a run's ledger, by the number of its entry, found in one pass over the bytes of all entries.

Where history was executed again, the latest execution of a step is what counts. What was superseded is here too, for
who judges all that was recorded.
"""

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from explorer.errors import LedgerError
from explorer.ledger.storage import LedgerDirectory

# In canonical JSON a quotation mark inside text is escaped, and no digest is one of these words: both can be nothing
# but an entry's own keys.
_KIND = re.compile(rb'"kind":"(step|state|profile|decision|end)"')
_STEP, _NUMBER = b'"step":', re.compile(rb"(0|[1-9][0-9]{0,15})[,}]")
_TABLE, _DIGEST = b'"weights":"', re.compile(rb'([0-9a-f]{64})"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """A segment that was executed again, or whose state was recorded again."""

    first: int
    entries: tuple[int, ...]  # its steps, as they were when the state was recorded
    state: int | None  # that closed it; None: nothing did
    before: int | None  # the state that it began with; None: where the ledger begins


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """Where everything is, by the number of its entry."""

    steps: Sequence[int]  # the latest execution of each step, by step; -1 for those before the genesis begins
    states: tuple[tuple[int, int], ...]  # steps done, entry; ascending
    tables: tuple[tuple[int, int], ...]  # step, entry: where the admission table in force becomes another one
    profiles: tuple[int, ...]
    decisions: tuple[int, ...]  # all of them, the superseded ones too
    undone: Mapping[int, int]  # decisions, and the re-execution that has undone each
    past: tuple[Past, ...]  # in the order in which they were superseded
    past_profiles: tuple[int, ...]
    end: int | None

    @property
    def superseded(self) -> Set[int]:
        """The decisions that a re-execution has undone."""
        return self.undone.keys()

    def stands_at(self, decision: int, entry: int) -> bool:
        """Whether a decision was taken before an entry, and not undone before it."""
        return decision < entry and not self.undone.get(decision, entry) < entry


def outline_of(ledger: LedgerDirectory, *, begins: int) -> Outline:
    """One pass over the bytes of all entries. A re-execution takes back its step and all that was recorded since then;
    the state that it begins with stays, unless it is recorded again."""
    steps, end = array("q", [-1]) * begins, None
    states: list[tuple[int, int]] = []
    tables: list[tuple[int, int, bytes]] = []
    profiles: list[tuple[int, int]] = []
    decisions: list[tuple[int, int]] = []
    undone: dict[int, int] = {}
    past: list[Past] = []
    past_profiles: list[int] = []
    before = 0  # how many of the states are older than the last re-execution
    for index, leaf in enumerate(ledger.entries()):
        kind, at = _KIND.search(leaf), _after(leaf, _STEP, _NUMBER)
        if kind is None or at is None:
            continue
        step = int(at[1])
        if kind[1] == b"step":
            if step != len(steps):
                raise LedgerError(f"entry {index}: step {step}, and {len(steps)} were done")
            steps.append(index)
            table = _after(leaf, _TABLE, _DIGEST)
            if table and (not tables or table[1] != tables[-1][2]):
                tables.append((step, index, table[1]))
        elif kind[1] == b"state":
            if states and len(states) == before and states[-1][0] == step:
                past += _superseded(steps, states, begins=begins, since=len(states) - 1)
                states.pop()
            states.append((step, index))
            before = 0
        elif kind[1] == b"profile":
            profiles.append((step, index))
        elif kind[1] == b"decision":
            if b'"action":"re-execution"' in leaf:
                kept = sum(at <= step for at, _ in states)
                past += _superseded(steps, states, begins=begins, since=kept)
                last = max(step, states[-1][0] if states else begins)
                if last < len(steps):  # nothing has closed these
                    lost = tuple(steps[last:])
                    past.append(Past(first=last, entries=lost, state=None, before=None))
                del steps[step:]
                del states[kept:]
                before = len(states)
                tables = [each for each in tables if each[0] < step]
                past_profiles += [entry for at, entry in profiles if at >= step]
                profiles = [each for each in profiles if each[0] < step]
                undone |= {entry: index for at, entry in decisions if at >= step and entry not in undone}
                decisions.append((-1, index))  # that it was executed again stays so
            else:
                decisions.append((step, index))
        elif kind[1] == b"end":
            end = index
    return Outline(
        steps=steps,
        states=tuple(states),
        tables=tuple((step, index) for step, index, _ in tables),
        profiles=tuple(index for _, index in profiles),
        decisions=tuple(index for _, index in decisions),
        undone=undone,
        past=tuple(past),
        past_profiles=tuple(past_profiles),
        end=end,
    )


def _superseded(steps: Sequence[int], states: Sequence[tuple[int, int]], *, begins: int, since: int) -> Iterator[Past]:
    """The segments that the states from this one on close."""
    for place in range(since, len(states)):
        stop, index = states[place]
        first, before = states[place - 1] if place else (begins, None)
        yield Past(first=first, entries=tuple(steps[first:stop]), state=index, before=before)


def _after(leaf: bytes, key: bytes, value: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """The value behind a key that stands near the end of an entry."""
    found = leaf.rfind(key)
    return None if found < 0 else value.match(leaf, found + len(key))

"""Where everything is in a run's ledger, by the number of its entry, found in one pass over the bytes of all entries.

Where history was executed again, the latest execution of a step is what counts.
"""

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from explorer.errors import LedgerError
from explorer.ledger.read import LedgerDirectory

# In canonical JSON a quotation mark inside text is escaped, and no digest is one of these words: both can be nothing
# but an entry's own keys.
_KIND = re.compile(rb'"kind":"(step|state|profile|decision|end)"')
_STEP, _NUMBER = b'"step":', re.compile(rb"(0|[1-9][0-9]{0,15})[,}]")
_TABLE, _DIGEST = b'"weights":"', re.compile(rb'([0-9a-f]{64})"')


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """Where everything is, by the number of its entry."""

    steps: Sequence[int]  # the latest execution of each step, by step; -1 for those before the genesis begins
    states: tuple[tuple[int, int], ...]  # steps done, entry; ascending
    tables: tuple[tuple[int, int], ...]  # step, entry: where the admission table in force becomes another one
    profiles: tuple[int, ...]
    decisions: tuple[int, ...]  # all of them, the superseded ones too
    superseded: frozenset[int]  # those decisions that a re-execution has undone
    end: int | None


def outline_of(ledger: LedgerDirectory, *, begins: int) -> Outline:
    """One pass over the bytes of all entries. A re-execution takes back its step and all that was recorded since then;
    the state that it begins with stays, unless it is recorded again."""
    steps, end = array("q", [-1]) * begins, None
    states: list[tuple[int, int]] = []
    tables: list[tuple[int, int, bytes]] = []
    profiles: list[tuple[int, int]] = []
    decisions: list[tuple[int, int]] = []
    superseded: set[int] = set()
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
                states.pop()
            states.append((step, index))
            before = 0
        elif kind[1] == b"profile":
            profiles.append((step, index))
        elif kind[1] == b"decision":
            if b'"action":"re-execution"' in leaf:
                del steps[step:]
                states = [each for each in states if each[0] <= step]
                before = len(states)
                tables = [each for each in tables if each[0] < step]
                profiles = [each for each in profiles if each[0] < step]
                superseded |= {index for at, index in decisions if at >= step}
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
        superseded=frozenset(superseded),
        end=end,
    )


def _after(leaf: bytes, key: bytes, value: re.Pattern[bytes]) -> re.Match[bytes] | None:
    """The value behind a key that stands near the end of an entry."""
    found = leaf.rfind(key)
    return None if found < 0 else value.match(leaf, found + len(key))

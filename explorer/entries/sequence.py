"""The order of entries: what may follow what, checked in one pass and in memory that does not grow."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from explorer.entries.envelope import Head
from explorer.errors import LedgerError

RUN = frozenset({"genesis", "step", "profile", "state", "decision", "end"})
PROJECT = frozenset({"access", "deletion", "erasure", "grant", "observation"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What a ledger's entries come to, once their order is right."""

    entries: int
    steps: int | None  # done, after the last re-execution; None: not a run, or its last entries are not known here
    finished: bool  # ends with `end`
    unknown: int  # entries of kinds or versions that are not known here


def check_sequence(heads: Iterable[Head]) -> Order:
    """Read the entries of one ledger; raise `LedgerError` at the first that cannot stand where it does.

    A run's ledger begins with its one `genesis` and has nothing after `end`. Its clock is the number of steps done,
    which begins with those that the genesis says: every entry carries it, a `step` moves it by one, and only a
    `decision` to re-execute sets it back, so that no step can be missing. A project's ledger has no order of its own.
    The two do not mix. What is not known here may stand anywhere but before the genesis and after the end; where the
    version of a run's kind is not known, the next entry sets the clock.
    """
    index, unknown, run, ended = -1, 0, False, False
    clock: int | None = 0
    for index, head in enumerate(heads):
        if ended:
            raise LedgerError(f"entry {index}: {head.kind} after the end")
        run = run or (index == 0 and head.kind == "genesis")
        _check_place(index, head.kind, run=run)
        unknown += head.kind not in RUN | PROJECT or head.version != 1
        if head.kind in RUN:
            clock = _tick(index, head, clock) if head.version == 1 else None
        ended = head.kind == "end"
    return Order(entries=index + 1, steps=clock if run else None, finished=ended, unknown=unknown)


def _check_place(index: int, kind: str, *, run: bool) -> None:
    if run and kind == "genesis" and index:
        raise LedgerError(f"entry {index}: a second genesis")
    if run and kind in PROJECT:
        raise LedgerError(f"entry {index}: {kind} belongs to a project's ledger, and this one is a run's")
    if not run and kind in RUN:
        raise LedgerError(f"entry {index}: {kind}, and the ledger does not begin with a genesis")


def _tick(index: int, head: Head, clock: int | None) -> int:
    """The number of steps done after this entry."""
    name = "begins" if head.kind == "genesis" else "step"
    step: Any = head.fields.get(name)
    if type(step) is not int or step < 0:
        raise LedgerError(f"entry {index}: {head.kind}: {name}: expected a whole number from 0, found {step!r:.80}")
    if head.kind == "genesis":
        return step
    again = head.kind == "decision" and head.fields.get("action") == "re-execution"
    if clock is not None and again and step > clock:
        raise LedgerError(f"entry {index}: re-execution from step {step}, and only {clock} were done")
    if clock is not None and not again and step != clock:
        what = "steps are missing" if step > clock else "and no decision to re-execute stands between"
        raise LedgerError(f"entry {index}: {head.kind} at {step} steps, and {clock} were done; {what}")
    return step + 1 if head.kind == "step" else step

"""The conditions of a conforming pipeline: how much of each was checked, and with what outcome.

A condition has one of three outcomes:

    does not hold     something contradicts it
    cannot be told    nothing contradicts it, but numbers that it depends on could not be read: they were erased, are
                      sealed and the reader has no key, or were never recorded
    holds             everything was read, and nothing contradicts it

Only the last one counts as kept.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from explorer.errors import ExplorerError

MAX_FINDINGS = 20  # contradictions of a condition that are listed; the others are counted
MAX_UNTOLD = 200  # gaps of a condition that are listed; many, because their classes matter to a gate


class Outcome(StrEnum):
    """Outcome of a condition, or of all conditions together."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNTOLD = "cannot be told"


def together(outcomes: Iterable[Outcome]) -> Outcome:
    """Combine outcomes: one that does not hold decides, then one that cannot be told."""
    present = set(outcomes)
    return next((outcome for outcome in (Outcome.FAILS, Outcome.UNTOLD) if outcome in present), Outcome.HOLDS)


class Cause(StrEnum):
    """Reason why something could not be checked."""

    ERASED = "erased"  # with an entry in the project's ledger
    SEALED = "sealed"  # confidential, and the reader has no key
    UNREAD = "unread"  # never recorded, or unreadable


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """Something that cannot be so if the condition holds."""

    entry: int | None  # of the ledger; None: no entry in particular
    message: str
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Untold:
    """Something that the condition depends on and that could not be checked."""

    cause: Cause
    message: str
    classes: tuple[str, ...]  # that were erased or are sealed; empty for other causes


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One condition, judged."""

    name: str
    says: str  # what has to hold, in a sentence
    checked: dict[str, int]  # number of checked things, by kind
    contradictions: tuple[Contradiction, ...]
    more: int  # contradictions that are not listed
    untold: tuple[Untold, ...]  # things that could not be checked
    more_untold: int  # such things that are not listed
    notes: tuple[str, ...]  # for the reader; the outcome does not depend on them

    @property
    def outcome(self) -> Outcome:
        if self.contradictions:
            return Outcome.FAILS
        return Outcome.UNTOLD if self.untold else Outcome.HOLDS

    @property
    def holds(self) -> bool:
        """Return whether everything was checked and nothing contradicts the condition."""
        return self.outcome is Outcome.HOLDS


class Judgement:
    """A condition while it is judged."""

    def __init__(self, name: str, says: str) -> None:
        self._name, self._says = name, says
        self._checked: dict[str, int] = {}
        self._contradictions: list[Contradiction] = []
        self._more = 0
        self._untold: dict[Untold, None] = {}
        self._more_untold = 0
        self._notes: dict[str, None] = {}

    def count(self, what: str, number: int = 1) -> None:
        self._checked[what] = self._checked.get(what, 0) + number

    def note(self, words: str) -> None:
        """Add a note for the reader, once. The outcome does not depend on it."""
        self._notes[words] = None

    def untold(self, message: str, *, cause: Cause = Cause.UNREAD, classes: Iterable[str] = ()) -> None:
        """Add something that could not be checked, once. Unless something contradicts the condition, it cannot be told
        then."""
        gap = Untold(cause=cause, message=message, classes=tuple(classes))
        if gap in self._untold:
            return
        if len(self._untold) == MAX_UNTOLD:
            self._more_untold += 1
        else:
            self._untold[gap] = None

    def contradict(self, entry: int | None, message: str, *, expected: object = None, found: object = None) -> None:
        """Add a contradiction."""
        if len(self._contradictions) == MAX_FINDINGS:
            self._more += 1
            return
        shown = [None if value is None else f"{value!s:.200}" for value in (expected, found)]
        self._contradictions.append(Contradiction(entry=entry, message=message, expected=shown[0], found=shown[1]))

    @contextmanager
    def reading(self, entry: int | None = None) -> Iterator[None]:
        """Count an error as a contradiction, and continue after it: this condition is about the thing being read."""
        try:
            yield
        except ExplorerError as error:
            self.contradict(entry, str(error))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Count an error as something that could not be checked, and continue after it: another condition is about the
        thing being read, and reports the contradiction."""
        try:
            yield
        except ExplorerError as error:
            self.untold(str(error))

    def close(self) -> Condition:
        return Condition(
            name=self._name,
            says=self._says,
            checked=dict(self._checked),
            contradictions=tuple(self._contradictions),
            more=self._more,
            untold=tuple(self._untold),
            more_untold=self._more_untold,
            notes=tuple(self._notes),
        )

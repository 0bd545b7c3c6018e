"""The conditions of a conforming pipeline: what was checked of each, how much of it, and what came of it.

A condition has one of three outcomes. It does not hold where something contradicts it. It cannot be told where nothing
does, and something that it depends on could not be looked at: numbers that were erased, or sealed and the reader has no
key, or that the run never recorded. It holds where neither is so. Only what holds counts as kept.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from explorer.errors import ExplorerError

MAX_FINDINGS = 20
MAX_UNTOLD = 200


class Outcome(StrEnum):
    """What became of a condition, or of all of them."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNTOLD = "cannot be told"


def together(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the outcome of all: one that does not hold decides, then one that cannot be told."""
    found = set(outcomes)
    return next((each for each in (Outcome.FAILS, Outcome.UNTOLD) if each in found), Outcome.HOLDS)


class Cause(StrEnum):
    """Why something could not be looked at."""

    ERASED = "erased"  # and the project's ledger has an entry that says so
    SEALED = "sealed"  # confidential, and the reader has no key
    UNREAD = "unread"  # the run never recorded it, or it cannot be read


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """Something that cannot be so if the condition holds."""

    entry: int | None  # of the ledger; None: it is about none in particular
    message: str
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Untold:
    """Something that the condition depends on and that could not be looked at."""

    cause: Cause
    message: str
    classes: tuple[str, ...]  # that were erased or are sealed; none: another cause


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One condition, judged."""

    name: str
    says: str  # what has to hold, in a sentence
    checked: dict[str, int]  # how many of what were looked at
    contradictions: tuple[Contradiction, ...]
    more: int  # contradictions beyond these
    untold: tuple[Untold, ...]  # what could not be looked at, and why
    more_untold: int  # beyond these
    notes: tuple[str, ...]  # what a reader should know and the condition does not depend on

    @property
    def outcome(self) -> Outcome:
        if self.contradictions:
            return Outcome.FAILS
        return Outcome.UNTOLD if self.untold else Outcome.HOLDS

    @property
    def holds(self) -> bool:
        """Return whether all of it was looked at and nothing contradicts it."""
        return self.outcome is Outcome.HOLDS


class Judgement:
    """A condition while it is judged."""

    def __init__(self, name: str, says: str) -> None:
        self._name, self._says = name, says
        self._checked: dict[str, int] = {}
        self._found: list[Contradiction] = []
        self._more = 0
        self._untold: dict[Untold, None] = {}
        self._more_untold = 0
        self._notes: dict[str, None] = {}

    def count(self, what: str, number: int = 1) -> None:
        self._checked[what] = self._checked.get(what, 0) + number

    def note(self, words: str) -> None:
        """Say once what a reader should know. The outcome does not depend on it."""
        self._notes[words] = None

    def untold(self, message: str, *, cause: Cause = Cause.UNREAD, classes: Iterable[str] = ()) -> None:
        """Say once what could not be looked at: the condition cannot be told then, unless something contradicts it."""
        found = Untold(cause=cause, message=message, classes=tuple(classes))
        if found in self._untold:
            return
        if len(self._untold) == MAX_UNTOLD:
            self._more_untold += 1
        else:
            self._untold[found] = None

    def contradict(self, entry: int | None, message: str, *, expected: object = None, found: object = None) -> None:
        if len(self._found) == MAX_FINDINGS:
            self._more += 1
            return
        shown = [None if value is None else f"{value!s:.200}" for value in (expected, found)]
        self._found.append(Contradiction(entry=entry, message=message, expected=shown[0], found=shown[1]))

    @contextmanager
    def reading(self, entry: int | None = None) -> Iterator[None]:
        """What cannot be read as it should be contradicts the condition; reading continues after it."""
        try:
            yield
        except ExplorerError as error:
            self.contradict(entry, str(error))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """What another condition is about cannot be read: that one says so, and here it cannot be looked at."""
        try:
            yield
        except ExplorerError as error:
            self.untold(str(error))

    def close(self) -> Condition:
        return Condition(
            name=self._name,
            says=self._says,
            checked=dict(self._checked),
            contradictions=tuple(self._found),
            more=self._more,
            untold=tuple(self._untold),
            more_untold=self._more_untold,
            notes=tuple(self._notes),
        )

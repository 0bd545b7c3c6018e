"""The conditions of a conforming pipeline: what was checked of each, how much of it, and what contradicts it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from explorer.errors import ExplorerError

MAX_FINDINGS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Contradiction:
    """Something that cannot be so if the condition holds."""

    entry: int | None  # of the ledger; None: it is about none in particular
    message: str
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Condition:
    """One condition, judged."""

    name: str
    says: str  # what has to hold, in a sentence
    checked: dict[str, int]  # how many of what were looked at
    contradictions: tuple[Contradiction, ...]
    more: int  # contradictions beyond these
    notes: tuple[str, ...]  # what could not be looked at, and why

    @property
    def holds(self) -> bool:
        return not self.contradictions


class Judgement:
    """A condition while it is judged."""

    def __init__(self, name: str, says: str) -> None:
        self._name, self._says = name, says
        self._checked: dict[str, int] = {}
        self._found: list[Contradiction] = []
        self._more = 0
        self._notes: dict[str, None] = {}

    def count(self, what: str, number: int = 1) -> None:
        self._checked[what] = self._checked.get(what, 0) + number

    def note(self, words: str) -> None:
        """Say once what could not be looked at."""
        self._notes[words] = None

    def contradict(self, entry: int | None, message: str, *, expected: object = None, found: object = None) -> None:
        if len(self._found) == MAX_FINDINGS:
            self._more += 1
            return
        shown = [None if value is None else f"{value!s:.200}" for value in (expected, found)]
        self._found.append(Contradiction(entry=entry, message=message, expected=shown[0], found=shown[1]))

    @contextmanager
    def reading(self, entry: int | None = None) -> Iterator[None]:
        """What cannot be read as it should be contradicts the condition; reading goes on behind it."""
        try:
            yield
        except ExplorerError as error:
            self.contradict(entry, str(error))

    @contextmanager
    def looking(self) -> Iterator[None]:
        """What another condition is about cannot be read: it will say so, and here it cannot be looked at."""
        try:
            yield
        except ExplorerError as error:
            self.note(f"not looked at: {error}")

    def close(self) -> Condition:
        return Condition(
            name=self._name,
            says=self._says,
            checked=dict(self._checked),
            contradictions=tuple(self._found),
            more=self._more,
            notes=tuple(self._notes),
        )

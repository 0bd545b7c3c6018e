"""Claims of a certificate, each looked at once: it held, it failed, or it could not be looked at, and why."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from explorer.errors import ExplorerError

Case = TypeVar("Case")


class Outcome(StrEnum):
    """What came of looking."""

    HELD = "held"
    FAILED = "failed"
    UNSEEN = "not looked at"


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One claim, looked at."""

    name: str
    says: str  # the claim, in a sentence
    outcome: Outcome
    why: str | None  # what was found instead, or what was not here; None: it held


class Claim(NamedTuple, Generic[Case]):
    """One claim, and how to look: `look` raises `ExplorerError` where it does not hold, and returns in words why it
    could not look, or None."""

    name: str
    says: str
    look: Callable[[Case], str | None]


def looked(claim: Claim[Case], case: Case) -> Check:
    """Look at a claim."""
    try:
        why = claim.look(case)
    except ExplorerError as error:
        return Check(name=claim.name, says=claim.says, outcome=Outcome.FAILED, why=str(error))
    outcome = Outcome.HELD if why is None else Outcome.UNSEEN
    return Check(name=claim.name, says=claim.says, outcome=outcome, why=why)


def unseen(claim: Claim[Case], why: str) -> Check:
    """A claim that nobody can look at."""
    return Check(name=claim.name, says=claim.says, outcome=Outcome.UNSEEN, why=why)


def differ(error: type[ExplorerError], what: str, *, found: object, expected: object) -> None:
    """Raise `error` unless both are the same; of two records of one kind it names the first field that is not."""
    if found == expected:
        return
    if type(found) is type(expected) and is_dataclass(found) and is_dataclass(expected):
        names = (each.name for each in fields(found))
        name = next(name for name in names if getattr(found, name) != getattr(expected, name))
        what, found, expected = f"{what}: {name}", getattr(found, name), getattr(expected, name)
    raise error(f"{what}: found {found!s:.200}, expected {expected!s:.200}")

"""What deleting each class of a run could come to, in the words of a report.

The level is the one that `explorer delete plan` says, from the same reach. What stands in its way on one machine and
not on another (a state that is not there any more, salts, a key) is nothing that the record shows: the plan says that.
"""

from dataclasses import dataclass
from typing import Literal

from explorer.audit.conditions import Outcome
from explorer.runlog.forecast import route_of
from explorer.runlog.obstacles import learned_before
from explorer.runlog.presence import Presence
from explorer.runlog.reach import Reach, reach_of
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.target import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Deletability:
    """What deleting a class could come to."""

    level: Literal["G2", "G3"] | None  # None: no exact way is established, or there is nothing to delete
    words: str


UNESTABLISHED = Deletability(level=None, words="what was denied is not established by this record: see Integrity")
UNTOLD = Deletability(level=None, words="what was denied cannot be told from this record: see Integrity")
LEFT_OUT = Deletability(level=None, words="left out of this run: its slots were empty, and nothing is to be removed")


def deletability(run: RunLedger, *, denied: Outcome) -> dict[str, Deletability]:
    """By class. `denied`: whether what the record says about who was denied what holds.

    Raises as `explorer.runlog.forecast` does.
    """
    if denied is not Outcome.HOLDS:
        return dict.fromkeys(run.genesis.classes, UNTOLD if denied is Outcome.UNTOLD else UNESTABLISHED)
    presence = Presence(run)
    return {path: _of_class(presence, path) for path in run.genesis.classes}


def _of_class(presence: Presence, path: str) -> Deletability:
    reached = reach_of(presence, Target(classes=(path,)))
    if before := learned_before(presence.run, reached):
        return Deletability(level=None, words="; ".join(before))
    if path in presence.absent.classes:
        return LEFT_OUT
    return Deletability(level=route_of(presence.run, reached).level, words=_words(reached))


def _words(reached: Reach) -> str:
    if reached.first is None:
        return "denied everywhere: nothing that is kept has learned from it, and nothing is to be removed"
    if reached.structural:
        return "in its sealed region alone: dropping that region leaves what a run without it would have"
    again = f"from a state before step {reached.first:,}" if reached.first else "which is all of the training"
    return f"{'; '.join(_reasons(reached))}: exact only by training again without it, {again}"


def _reasons(reached: Reach) -> list[str]:
    """Why no structure takes it out."""
    found = ["reached shared layers"] if reached.shared else []
    found += [f"shares region {name} with {', '.join(who)}" for name, who in reached.regions.items() if who]
    if reached.channels:
        found.append(f"decisions about others looked at it (entry {reached.channels[0].entry})")
    if reached.probed:
        found.append("a method may have decided by it")
    return found

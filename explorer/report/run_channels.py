"""Ways in which one class may have acted on another besides a common layer: decisions of the run that looked at several
classes, which its ledger names, and what was formed before the run began, which no ledger of a run can name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.audit.history import Decided
from explorer.entries.run import Genesis
from explorer.report.run_references import GENESIS, Reference, refer


@dataclass(frozen=True, kw_only=True, slots=True)
class Channel:
    """One such way."""

    where: str  # "decision", "normalisation", "preparation" and whatever else the genesis names as fitted
    words: str
    reference: Reference


UNRECORDED = (
    "hyper-parameters that people chose after they had seen results",
    "deduplication, filtering and selection of examples before they were tagged",
    "the choice of this model among several",
)
"""What may have carried one class to another and is on no ledger: it happened outside the run."""


def channels(decisions: Sequence[Decided], genesis: Genesis) -> tuple[Channel, ...]:
    """Those that the record shows. That none is listed does not mean that there were none: see `UNRECORDED`."""
    found = [
        Channel(
            where="decision",
            words=f"{each.action} of {', '.join(each.subjects) or 'all classes'} at step {each.step:,} looked at "
            f"numbers of {', '.join(others)}",
            reference=refer([each.index]),
        )
        for each in decisions
        if not each.superseded and (others := _others(each))
    ]
    fitted = genesis.fitted
    for where, words in (fitted or {}).items():
        found.append(Channel(where=where, words=words, reference=GENESIS))
    if fitted == {}:
        words = "none: nothing was fitted on the training examples"
        found.append(Channel(where="preparation", words=words, reference=GENESIS))
    return tuple(found)


def _others(each: Decided) -> list[str]:
    """Whose numbers decided about somebody else; where it is about all classes, each decides about the others."""
    return [path for path in each.evidence if set(each.subjects) != {path}]

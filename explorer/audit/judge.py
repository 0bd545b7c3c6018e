"""The judges of a governed run: one for each condition, all with the same surface.

A judge sees the run as a whole when it is made, then every segment, superseded ones included, and is closed at the end.
Everything it has to say goes into its `Judgement`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from explorer.audit.conditions import Judgement
from explorer.audit.withheld import Withheld
from explorer.errors import ExplorerError
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.provenance.trust import Trust
from explorer.runlog.documents import Rules
from explorer.runlog.run_ledger import RunLedger, Segment
from explorer.runlog.segments import SegmentNumbers


@dataclass(frozen=True, kw_only=True, slots=True)
class Audited:
    """A run under audit, with the facts that all its judges share."""

    run: RunLedger
    rules: Rules | None  # the policy; None: missing or not believed, which the judgements say already
    tags: VerifiedTags | None  # None: not believed, which the judgements say already
    total: int | None  # steps that progress is measured against; None: not on record
    withheld: Withheld  # erased and sealed numbers
    cosigned: tuple[int, ...]  # times of the cosignatures that count, in seconds since 1970
    trust: Trust | None  # as the caller gave it


class Judge(ABC):
    """Judge of one condition."""

    name: ClassVar[str]  # of the condition
    says: ClassVar[str]  # what has to hold, in a sentence

    def __init__(self, audited: Audited, judgement: Judgement) -> None:
        """Judge the run as a whole, apart from its segments."""
        self._run, self._withheld, self._judgement = audited.run, audited.withheld, judgement

    @abstractmethod
    def segment(self, segment: Segment, numbers: SegmentNumbers) -> None:
        """Judge the steps of a segment."""

    def unreadable(self, segment: Segment, error: ExplorerError) -> None:
        """Take note of a segment whose numbers cannot be read."""
        self._judgement.untold(f"steps {segment.first} to {segment.stop - 1}: {error}")

    def close(self) -> None:
        """Judge whatever needs all segments."""
        return

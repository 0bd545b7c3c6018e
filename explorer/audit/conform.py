"""Conformance: judge from a run's directory whether the run kept the conditions of a governed pipeline.

1. every gradient was routable by depth and provenance      routable.py
2. every example was typed by an authority                  typed.py
3. every update is ledgered so that it can be reconstructed reconstructible.py
4. no statement of the record contradicts another one       consistent.py

The ledger comes before all of them: it has to be sound, and signed by those whom the caller's trust file names. Steps
that were executed again are judged like all others. When the conditions hold, the record is one that a governed run
leaves; only a replay shows that the record is true. Where erased or sealed numbers leave a condition open, the outcome
is "cannot be told", which never counts as conforming.
"""

from dataclasses import dataclass, replace
from itertools import chain

from explorer import run_files, rundir
from explorer.audit.conditions import Condition, Judgement, Outcome, together
from explorer.audit.consistent import Consistent
from explorer.audit.history import Badge, badge, outcome
from explorer.audit.judge import Audited, Judge
from explorer.audit.reconstructible import Reconstructible
from explorer.audit.routable import Routable
from explorer.audit.typed import Typed
from explorer.audit.withheld import read_withheld
from explorer.errors import ExplorerError
from explorer.ledger.trust_anchor import UNTRUSTED
from explorer.provenance.routing_weights import confidential
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.provenance.trust import Trust
from explorer.run_files import RunRecord
from explorer.runlog.documents import Rules, read_basis, read_rules, read_verified_tags
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_numbers

CONDITIONS: tuple[type[Judge], ...] = (Routable, Typed, Reconstructible, Consistent)

WORDS = {
    Outcome.HOLDS: "conforms",
    Outcome.FAILS: "does not conform",
    Outcome.UNTOLD: "whether it conforms cannot be told",
}
UNDECIDED = "whether it conforms cannot be decided: no trust file was given"


@dataclass(frozen=True, kw_only=True, slots=True)
class Conformance:
    """Verdict on a run: the badge of its ledger, and its conditions."""

    badge: Badge
    conditions: tuple[Condition, ...]

    @property
    def outcome(self) -> Outcome:
        """Combine the ledger, which must be verified by keys that the caller believes, with all conditions."""
        ledger = Outcome.HOLDS if self.badge.verified else Outcome.FAILS
        return together((ledger, *(condition.outcome for condition in self.conditions)))

    @property
    def conforms(self) -> bool:
        """Return whether the ledger is verified, by a signer whom the caller believes, and all conditions hold."""
        return self.outcome is Outcome.HOLDS

    @property
    def words(self) -> str:
        """Return the verdict as the predicate of a sentence about the run."""
        others = together(condition.outcome for condition in self.conditions)
        faults = [fault for fault in self.badge.faults if not fault.startswith(f"checkpoint: {UNTRUSTED}")]
        if not self.badge.anchored and not faults and others is not Outcome.FAILS:
            return UNDECIDED
        return WORDS[self.outcome]


def conform(run: RunLedger, *, trust: Trust | None, now: int) -> Conformance:
    """Judge a run. Without a trust file the run's own copy is used, and the run cannot conform: a forger would have
    written that copy too.

    Raises `ExplorerError` for a ledger that is missing or cannot be read, and for a trust file that cannot accept any
    checkpoint.
    """
    seal = badge(run, trust=trust, now=now)
    judgements = tuple(Judgement(condition.name, condition.says) for condition in CONDITIONS)

    # Documents first: the policy decides which classes are confidential, and with that what a sealed blob means.
    rules, tags = _documents(run, trust, *judgements[:2])
    withheld = read_withheld(run.ledger, trust=trust, now=now)
    if rules is not None:
        withheld = replace(withheld, confidential=confidential(rules.routing, run.genesis.classes))
    audited = Audited(
        run=run,
        rules=rules,
        tags=tags,
        total=total_steps(run),
        withheld=withheld,
        cosigned=seal.cosigned_at,
        trust=trust,
    )
    judges = [condition(audited, judgement) for condition, judgement in zip(CONDITIONS, judgements, strict=True)]

    # Every segment is read once, for all judges. Superseded ones count: their steps were executed, too.
    for segment in chain(run.segments(), run.superseded()):
        try:
            numbers = read_numbers(run, segment)
        except ExplorerError as error:
            for judge in judges:
                judge.unreadable(segment, error)
            continue
        for judge, judgement in zip(judges, judgements, strict=True):
            with judgement.reading(segment.state.index):
                judge.segment(segment, numbers)
    for judge in judges:
        judge.close()
    return Conformance(badge=seal, conditions=tuple(judgement.close() for judgement in judgements))


def total_steps(run: RunLedger) -> int | None:
    """Return the number of steps that progress is measured against: a finished run's own steps, else those that
    `run.json` plans. None: neither is on record."""
    if outcome(run) == "finished":
        return run.steps
    path = run.run / rundir.RUN
    return run_files.read(RunRecord, path).steps if path.exists() else None


def _documents(
    run: RunLedger, trust: Trust | None, routed: Judgement, typed: Judgement
) -> tuple[Rules | None, VerifiedTags | None]:
    """Return the policy and the tags, as far as they are believed."""
    rules, tags = None, None
    # Without a believed trust file and taxonomy neither policy nor tags mean anything: both conditions fail.
    try:
        basis = read_basis(run.run, run.genesis, trust=trust)
    except ExplorerError as error:
        for judgement in (routed, typed):
            judgement.contradict(0, str(error))
        return None, None
    with routed.reading(0):
        rules = read_rules(run.run, run.genesis, basis)
        if rules is None:
            routed.contradict(0, "the run has no policy: nothing was routed")
    with typed.reading(0):
        tags = read_verified_tags(run.run, run.genesis, basis)
    return rules, tags

"""Conformance: whether a run kept the conditions of a governed pipeline, found out from its directory alone.

1. every gradient was routable by depth and provenance      routable.py, unmoved.py
2. every example was typed by an authority                  typed.py
3. every update is ledgered so that it can be reconstructed reconstructible.py
4. no statement of the record contradicts another one       consistent.py

Before all of them comes the ledger: sound, and signed by those whom the caller's trust file names. Steps that were
executed again are judged as all others are. That the conditions hold says that the record is one that a governed run
leaves; that the record is true, a replay shows. Where something that a condition depends on was erased or is sealed, it
cannot be told whether the run conforms: that is an outcome of its own, and never counts as conforming.
"""

from dataclasses import dataclass, replace
from itertools import chain

from explorer import run_files, rundir
from explorer.audit import consistent, reconstructible, routable, typed
from explorer.audit.conditions import Condition, Judgement, Outcome, together
from explorer.audit.consistent import Consistent
from explorer.audit.history import Badge, badge, outcome
from explorer.audit.reconstructible import Reconstructible
from explorer.audit.routable import Routable, Unmoved, check_confidential
from explorer.audit.typed import Typed
from explorer.audit.withheld import read_withheld
from explorer.errors import ExplorerError
from explorer.provenance.routing_weights import confidential
from explorer.provenance.tag_attestation import VerifiedTags
from explorer.provenance.trust import Trust
from explorer.run_files import RunRecord
from explorer.runlog.documents import Rules, read_basis, read_rules, read_verified_tags
from explorer.runlog.run_ledger import RunLedger
from explorer.runlog.segments import read_numbers

WORDS = {
    Outcome.HOLDS: "conforms",
    Outcome.FAILS: "does not conform",
    Outcome.UNTOLD: "whether it conforms cannot be told",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Conformance:
    """What was found."""

    badge: Badge
    conditions: tuple[Condition, ...]

    @property
    def outcome(self) -> Outcome:
        """Of the ledger, which has to be verified by keys that the caller believes, and of all conditions."""
        ledger = Outcome.HOLDS if self.badge.verified else Outcome.FAILS
        return together((ledger, *(condition.outcome for condition in self.conditions)))

    @property
    def conforms(self) -> bool:
        """Return whether the ledger is verified, by a signer whom the caller believes, and all conditions hold."""
        return self.outcome is Outcome.HOLDS

    @property
    def words(self) -> str:
        """In words, for a sentence about the run."""
        return WORDS[self.outcome]


def conform(run: RunLedger, *, trust: Trust | None, now: int) -> Conformance:
    """Judge a run. Without a trust file its own copy is used, which nobody vouches for: then it does not conform.

    Raises `ExplorerError` where there is no ledger that could be read, and for a trust file that can believe none.
    """
    seal = badge(run, trust=trust, now=now)
    first, second = Judgement(routable.NAME, routable.SAYS), Judgement(typed.NAME, typed.SAYS)
    third = Judgement(reconstructible.NAME, reconstructible.SAYS)
    fourth = Judgement(consistent.NAME, consistent.SAYS)
    rules, tags = _documents(run, trust, first, second)
    withheld = read_withheld(run.ledger, trust=trust, now=now)
    if rules is not None:
        withheld = replace(withheld, confidential=confidential(rules.routing, run.genesis.classes))
    judges = (
        Routable(run, rules, first, total=total_steps(run), withheld=withheld),
        Typed(run, tags, second, withheld=withheld),
        Reconstructible(run, third, withheld=withheld),
        Consistent(run, seal.cosigned_at, fourth),
    )
    judgements = first, second, third, fourth
    unmoved = Unmoved(run, first)
    for segment in chain(run.segments(), run.superseded()):
        try:
            numbers = read_numbers(run, segment)
        except ExplorerError as error:
            third.contradict(segment.state.index, str(error))
            for judgement in (first, second, fourth):
                judgement.untold(f"steps {segment.first} to {segment.stop - 1}: {error}")
            continue
        for judge, judgement in zip(judges, judgements, strict=True):
            with judgement.reading(segment.state.index):
                judge.segment(segment, numbers)
        unmoved.segment(segment, numbers.steps)
    judges[-1].close()
    return Conformance(badge=seal, conditions=tuple(judgement.close() for judgement in judgements))


def total_steps(run: RunLedger) -> int | None:
    """Return the number of steps that the run's progress is measured against: where it finished, as many as it has;
    else what `run.json` planned. None: that is on no record."""
    if outcome(run) == "finished":
        return run.steps
    path = run.run / rundir.RUN
    return run_files.read(RunRecord, path).steps if path.exists() else None


def _documents(
    run: RunLedger, trust: Trust | None, first: Judgement, second: Judgement
) -> tuple[Rules | None, VerifiedTags | None]:
    """Return the policy and the tags, as far as they are believed."""
    rules, tags = None, None
    try:
        basis = read_basis(run.run, run.genesis, trust=trust)
    except ExplorerError as error:
        for judgement in (first, second):
            judgement.contradict(0, str(error))
        return None, None
    with first.reading(0):
        rules = read_rules(run.run, run.genesis, basis)
        if rules is None:
            first.contradict(0, "the run has no policy: nothing was routed")
        else:
            check_confidential(run, rules.routing, first)
    with second.reading(0):
        tags = read_verified_tags(run.run, run.genesis, basis)
    return rules, tags

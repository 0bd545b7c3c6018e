"""What a certificate of G3 says: training went on from a state that the target had not moved, without the target.

The two ledgers show where the target could first have moved anything, that the state before it is the one that was gone
on from, that the batches are the same to the last slot, and that nothing of the target was measured afterwards. That
the steps in between were trained as they say, a replay shows, or the counterfactual itself.
"""

from explorer.deletion.case import Case
from explorer.deletion.checks import Claim, differ
from explorer.entries.kinds import Decision, Profile, State, Step, TrainingState
from explorer.errors import LedgerError
from explorer.provenance.deletion_certificate import Replay, Start
from explorer.runlog.run_ledger import Placed, RunLedger


def replay_of(case: Case) -> Replay:
    """What the two ledgers say for themselves. Raises `LedgerError` where the target reached nothing."""
    begins = case.new.begins
    state = state_after(case.old, begins)
    return Replay(
        begins=begins,
        start=None if state is None else _start(state),
        steps=case.new.steps - begins,
        influence=_first(case),
    )


def influence(case: Case) -> str | None:
    """The first step that the target could have influenced is the one that is certified."""
    if case.unseen:
        return case.unseen
    found, expected = _certified(case).influence, _first(case)
    differ(LedgerError, "the certified first step of influence", found=found, expected=expected)
    return None


def start(case: Case) -> str | None:
    """The new run goes on from the old one's state, at or before the first influence."""
    if case.unseen:
        return case.unseen
    begins, first, certified = case.new.begins, _first(case), _certified(case)
    if begins > first:
        raise LedgerError(
            f"the new ledger begins after {begins} steps, and by the old one {case.target.words} could have "
            f"influenced step {first}"
        )
    found = replay_of(case)
    differ(LedgerError, "the certified beginning", found=certified.begins, expected=found.begins)
    given = None if case.new.genesis.start is None else _start(case.new.genesis.start)
    differ(LedgerError, "the state that the new ledger begins with", found=given, expected=found.start)
    differ(LedgerError, "the certified state", found=certified.start, expected=found.start)
    return None


def batches(case: Case) -> str | None:
    """Every step that both ledgers have had one batch: the same rows in the same slots, as many of each class."""
    certified = _certified(case)
    differ(LedgerError, "steps that the new ledger ends after", found=case.new.steps, expected=case.old.steps)
    expected = case.new.steps - case.new.begins
    differ(LedgerError, "the certified number of steps", found=certified.steps, expected=expected)
    steps = range(max(case.new.begins, case.old.begins), case.new.steps)
    for mine, theirs in zip(case.new.read_steps(steps), case.old.read_steps(steps), strict=True):
        for name in ("slots", "examples", "quarantined"):
            found, then = getattr(mine.entry, name), getattr(theirs.entry, name)
            differ(LedgerError, f"entry {mine.index}: step {mine.entry.step}: {name}", found=found, expected=then)
    return None


def absent(case: Case) -> str | None:
    """No step, profile or decision of the new ledger has numbers of a class that is in the target whole."""
    whole, outline = case.reach.whole, case.new.outline
    numbers = [case.new.class_(path) for path in whole]
    for step in case.new.read_steps(range(case.new.begins, case.new.steps)):
        if any(step.entry.numbers[at] is not None for at in numbers):
            raise LedgerError(_had(step, whole))
    for profile in case.new.read(outline.profiles, Profile):
        if profile.entry.classes.keys() & {*whole}:
            raise LedgerError(_had(profile, whole))
    standing = [index for index in outline.decisions if index not in outline.superseded]
    for decision in case.new.read(standing, Decision):
        if decision.entry.evidence.keys() & {*whole}:
            raise LedgerError(_had(decision, whole))
    return None


CLAIMS = (
    Claim("influence", "by the old ledger the target could have moved nothing before the certified step", influence),
    Claim("start", "the new run goes on from the old one's recorded state, at or before that step", start),
    Claim("batches", "every step that both ledgers have on record had one batch, slot by slot", batches),
    Claim("absent", "the new ledger has no numbers of a class whose examples were all deleted", absent),
)


def state_after(run: RunLedger, step: int) -> TrainingState | None:
    """The recorded state after so many steps; None: the initial one. Raises `LedgerError` where none is on record."""
    if step in (0, run.begins):
        return run.genesis.start if step else None
    indices = [index for at, index in run.outline.states if at == step]
    if not indices:
        raise LedgerError(f"the old ledger has no state after {step} steps")
    (placed,) = run.read(indices[-1:], State)
    return placed.entry.state


def _first(case: Case) -> int:
    if case.reach.first is None:
        raise LedgerError(f"{case.target.words}: reached nothing in the old run, by its ledger; nothing is to replay")
    return case.reach.first


def _start(state: TrainingState) -> Start:
    return Start(parameters=state.parameters, buffers=state.buffers, optimizer=state.optimizer, random=state.random)


def _certified(case: Case) -> Replay:
    assert case.certificate.replay is not None  # a certificate of G3 has it
    return case.certificate.replay


def _had(placed: Placed[Step] | Placed[Profile] | Placed[Decision], whole: tuple[str, ...]) -> str:
    entry = placed.entry
    return f"entry {placed.index}: the {entry.KIND} at {entry.step} has numbers of a deleted class: {', '.join(whole)}"

"""Which stretches of a run can be executed again from what lies in its directory, and what they are held against.

The initial state follows from the recipe, if that is here, and the seed. A later start needs a kept state of training,
which lies among the run's private files and goes into no pack.
"""

from dataclasses import dataclass

from explorer import rundir
from explorer.records import RunRecord
from explorer.runlog.forecast import kept
from explorer.runlog.presence import recorded_plan
from explorer.runlog.run_ledger import RunLedger


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """Where a replay can begin, and how closely it is checked."""

    begins: int  # steps of another run that this one goes on from: they are in that run's ledger
    stop: int  # steps done
    starts: tuple[int, ...]  # steps after which a state is there to begin with, ascending
    states: int  # states on record: parameters, buffers, optimiser and random state, by digest
    covered: int  # steps before the last of them: those after it are compared without one


def replay_of(run: RunLedger) -> Replay:
    """Look for kept states. Which of them are whole, a replay finds out."""
    private = (run.run / rundir.PRIVATE).is_dir()
    starts = {step for step in kept(run.run) if run.begins <= step < run.steps} if private else set[int]()
    if not run.begins and isinstance(recorded_plan(run), RunRecord):
        starts.add(0)
    states = [step for step, _ in run.outline.states]
    return Replay(
        begins=run.begins,
        stop=run.steps,
        starts=tuple(sorted(starts)),
        states=len(states),
        covered=max(states, default=run.begins) - run.begins,
    )

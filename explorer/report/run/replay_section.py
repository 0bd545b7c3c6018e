"""The section on checking a run and doing it again: commands, and which stretches can be executed again.

The initial state follows from the recipe, if that is here, and the seed. A later start needs a kept state of training,
which lies among the run's private files and goes into no pack.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from explorer import rundir
from explorer.page import amounts
from explorer.page.document import Block, Code, Heading, Paragraph, Span, sentence
from explorer.report.run.reported_run import ReportedRun
from explorer.report.section import Section
from explorer.run_files import RunRecord
from explorer.runlog.forecast import kept
from explorer.runlog.influence import recorded_plan
from explorer.runlog.run_ledger import RunLedger
from explorer.schema import record


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """Where a replay can begin, and how closely it is checked."""

    begins: int  # steps of another run that this one goes on from: they are in that run's ledger
    stop: int  # steps done
    starts: tuple[int, ...]  # steps after which a state is there to begin with, ascending
    states: int  # states on record: parameters, buffers, optimiser and random state, by digest
    covered: int  # steps before the last of them: those after it are compared without one


@record
class ReplayRecord:
    """Commands, and the reach of a replay."""

    replay: Replay
    reproduce: tuple[str, ...]  # commands


class ReplaySection(Section[ReportedRun, ReplayRecord]):
    """Commands that check or repeat the run, and the reach of a replay."""

    record = ReplayRecord

    def gather(self, run: ReportedRun) -> ReplayRecord:
        return ReplayRecord(replay=replay_of(run.ledger), reproduce=tuple(command for command, _ in run.commands))

    def blocks(self, record: ReplayRecord, run: ReportedRun) -> list[Block]:
        replay = record.replay
        starts = ", ".join(f"{step:,}" for step in replay.starts)
        states = amounts.count(replay.states, "state")
        words = [f"{states} on record, each of parameters, buffers, optimiser and random numbers"]
        words += [
            f"a replay can begin after {starts} steps" if starts else "no state is here that a replay could begin with"
        ]
        if replay.covered < replay.stop - replay.begins:
            words.append(f"the last {replay.stop - replay.begins - replay.covered:,} steps have no state behind them")
        words += ["whether one was made leaves no entry"]
        cited = (run.cite(run.states),) if run.states else ()
        return [
            Heading(2, "How to check it, and do it again", "again"),
            Code("\n".join(f"{command}\n    # {what}" for command, what in run.commands)),
            Heading(3, "What a replay can reach"),
            Paragraph((Span(f"{sentence('; '.join(words))} "), *cited)),
        ]


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


def commands_of(directory: Path, steps: range) -> tuple[tuple[str, str], ...]:
    """List what to type, and what it does."""
    where = shlex.quote(directory.as_posix())
    ledger = shlex.quote((directory / rundir.LEDGER).as_posix())
    return (
        (f"explorer ledger verify {ledger} --trust TRUST.json", "the tree, the signatures, every blob"),
        (f"explorer conform {where} --trust TRUST.json", "the conditions of a conforming pipeline"),
        (
            f"explorer replay {where} --steps {steps.start}:{steps.stop}",
            "execute it again and compare it entry by entry, bit for bit",
        ),
        (f"explorer ledger show {ledger}", "every entry"),
        (f"explorer ledger prove {ledger} INDEX --out FILE", "a proof of one entry, to be checked elsewhere"),
    )

"""The section on checking and repeating a run: commands, and the steps that a replay can cover.

The initial state follows from the seed and the recipe, if the recipe is present. A later start needs a kept state of
training, which lies among the run's private files and is never packed.
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

    begins: int  # steps of the run that this one continues, which are in that run's ledger
    stop: int  # steps done
    starts: tuple[int, ...]  # steps after which a state to begin from is present, ascending
    states: int  # states on record: parameters, buffers, optimiser and random state, by digest
    covered: int  # steps before the last state; later steps are compared without one


@record
class ReplayRecord:
    """Commands, and the steps that a replay can cover."""

    replay: Replay
    reproduce: tuple[str, ...]  # commands


class ReplaySection(Section[ReportedRun, ReplayRecord]):
    """Commands that check or repeat the run, and the steps that a replay can cover."""

    record = ReplayRecord

    def gather(self, run: ReportedRun) -> ReplayRecord:
        return ReplayRecord(replay=replay_of(run.ledger), reproduce=tuple(command for command, _ in run.commands))

    def blocks(self, record: ReplayRecord, run: ReportedRun) -> list[Block]:
        # The limits of a replay come after the commands: a reader should know them before relying on its result.
        replay = record.replay
        starts = ", ".join(f"{step:,}" for step in replay.starts)
        states = amounts.count(replay.states, "state")
        words = [f"{states} on record, each of parameters, buffers, optimiser and random numbers"]
        words += [
            f"a replay can begin after {starts} steps" if starts else "no state to begin a replay from is present"
        ]
        if replay.covered < replay.stop - replay.begins:
            words.append(f"the last {replay.stop - replay.begins - replay.covered:,} steps have no state after them")
        words += ["a replay leaves no entry, so the record does not show whether one was made"]
        cited = (run.cite(run.states),) if run.states else ()
        return [
            Heading(2, "How to check and repeat it", "again"),
            Code("\n".join(f"{command}\n    # {what}" for command, what in run.commands)),
            Heading(3, "What a replay can cover"),
            Paragraph((Span(f"{sentence('; '.join(words))} "), *cited)),
        ]


def replay_of(run: RunLedger) -> Replay:
    """List the states that a replay can begin from. Only a replay shows whether a kept state is intact."""
    private = (run.run / rundir.PRIVATE).is_dir()
    starts = {step for step in kept(run.run) if run.begins <= step < run.steps} if private else set[int]()
    if not run.begins and isinstance(recorded_plan(run), RunRecord):
        starts.add(0)
    # Recorded states only check a replay. To begin from one takes the kept state itself, which is a private file.
    states = [step for step, _ in run.outline.states]
    return Replay(
        begins=run.begins,
        stop=run.steps,
        starts=tuple(sorted(starts)),
        states=len(states),
        covered=max(states, default=run.begins) - run.begins,
    )


def commands_of(directory: Path, steps: range) -> tuple[tuple[str, str], ...]:
    """Return commands to type, each with its purpose. Paths are quoted: they may hold spaces."""
    where = shlex.quote(directory.as_posix())
    ledger = shlex.quote((directory / rundir.LEDGER).as_posix())
    return (
        (f"explorer ledger verify {ledger} --trust TRUST.json", "verify the tree, the signatures and every blob"),
        (f"explorer conform {where} --trust TRUST.json", "check the conditions of a conforming pipeline"),
        (
            f"explorer replay {where} --steps {steps.start}:{steps.stop}",
            "execute it again and compare it entry by entry, bit for bit",
        ),
        (f"explorer ledger show {ledger}", "print every entry"),
        (
            f"explorer ledger prove {ledger} INDEX --out FILE",
            "write a proof of one entry, which can be checked anywhere",
        ),
    )

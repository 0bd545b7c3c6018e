"""How many examples of each class stood in batches, how many of these were denied everywhere, and how many nobody
vouched for."""

from dataclasses import dataclass

import numpy as np

from explorer.runlog.run_ledger import RunLedger
from explorer.views.ledger.open_run import Steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """A class, over all steps of the run and with repetition."""

    class_: str
    examples: int  # in the batches
    denied: int  # of these, in steps in which no layer admitted the class: no forward, no backward
    steps: int  # with examples of it
    steps_denied: int  # of these, in which no layer admitted it


def counts(run: RunLedger, recorded: Steps) -> tuple[Counts, ...]:
    """A line for each class of the run."""
    examples = recorded.examples[run.begins : run.steps]
    admitted = np.ones(examples.shape, bool)
    for table in recorded.tables:
        admitted[max(0, table.first - run.begins) : table.stop - run.begins] = (table.weights > 0).any(axis=1)
    there = examples > 0
    return tuple(
        Counts(
            class_=path,
            examples=int(examples[:, at].sum()),
            denied=int(examples[~admitted[:, at], at].sum()),
            steps=int(there[:, at].sum()),
            steps_denied=int((there[:, at] & ~admitted[:, at]).sum()),
        )
        for at, path in enumerate(run.genesis.classes)
    )
